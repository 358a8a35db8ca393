"""Prompts, generation with per-token probability, and the samplers."""
