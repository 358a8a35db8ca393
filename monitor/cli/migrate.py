"""``watchkeeper migrate``: bring the database to this program's schema, and end."""

from __future__ import annotations

import argparse

from monitor.cli.options import add_settings, read_settings


def arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Upgrade and say to what."""
    from monitor.app import migrate_database

    print(f"Schema: {migrate_database(read_settings(options))}")
    return 0
