"""Thin adapters to trainers; imported only by name."""
