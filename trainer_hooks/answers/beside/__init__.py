"""Sampling beside the training, in a process of its own: checkpoints, jobs, and who is asked."""
