"""How a rendered message looks: one file per format and this table."""
