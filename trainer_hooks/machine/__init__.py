"""The machine that trains: memory, disk, pressure, cards."""
