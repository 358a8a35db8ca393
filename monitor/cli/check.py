"""``watchkeeper check``: the effective settings, where each comes from, and what is wrong."""

from __future__ import annotations

import argparse
import os

from pydantic import SecretStr

from monitor.cli.options import add_settings, overrides, read_settings
from monitor.errors import UnsafeSettings
from monitor.settings import Settings


def arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Print one line per setting; 1 if the server would refuse to start with them."""
    settings = read_settings(options)
    said = overrides(options)
    for name in Settings.model_fields:
        print(f"{name:22} {shown(getattr(settings, name)):36} {source(name, said)}")
    try:
        settings.refuse_unsafe()
    except UnsafeSettings as error:
        print(f"\nWould not start: {error.detail} {error.hint}")
        return 1
    print("\nNothing is wrong with these.")
    return 0


def shown(value: object) -> str:
    """A value as text; a secret as whether there is one."""
    if isinstance(value, SecretStr):
        return "(set, not shown)"
    return "(not set)" if value is None or value in ("", []) else str(value)


def source(name: str, said: dict[str, object]) -> str:
    """Command line, environment or default."""
    if name in said:
        return "command line"
    variable = f"WATCHKEEPER_{name.upper()}"
    upper = {key.upper() for key in os.environ}
    return variable if variable in upper else "default"
