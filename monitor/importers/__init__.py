"""Foreign log formats, pure: from an open binary stream to frames."""
