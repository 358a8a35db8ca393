"""The store: one code base on SQLite and PostgreSQL. Only here is SQL spoken."""
