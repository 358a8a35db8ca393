"""How a rendered message leaves the house."""
