"""``watchkeeper version``."""

from __future__ import annotations

import argparse

from monitor import __version__
from trainer_hooks.wire import WIRE_VERSION


def arguments(parser: argparse.ArgumentParser) -> None:
    """Takes none."""


def run(_options: argparse.Namespace) -> int:
    """Print the program's version and the wire's."""
    print(f"watchkeeper {__version__} (wire {WIRE_VERSION})")
    return 0
