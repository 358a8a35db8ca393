"""What the watch is made of: everything that happens on the training thread."""
