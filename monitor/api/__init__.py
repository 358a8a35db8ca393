"""The HTTP surface: one file per noun."""
