"""Signals: one file per family, and the table."""
