"""What the client is made of: the way from the training thread's queue to the server."""
