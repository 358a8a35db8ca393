"""Small real training runs on CPU with named, timed faults."""
