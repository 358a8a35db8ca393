"""Command-line options that overrule settings, shared by the commands that read them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from monitor.errors import UnsafeSettings
from monitor.settings import Settings

NAMES = ("host", "port", "data_dir", "database_url", "base_url", "log_level")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Options of the settings people change from the command line; tokens are not among them."""
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=int, help="port to listen on; 0 takes a free one")
    parser.add_argument("--data-dir", type=Path, help="folder of the embedded database")
    parser.add_argument("--database-url", help="postgresql://user:password@host/name")
    parser.add_argument("--base-url", help="address of the dashboard as people type it")
    parser.add_argument("--log-level", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parser.add_argument(
        "--no-migrate", action="store_true", help="leave the database's schema alone"
    )


def overrides(options: argparse.Namespace) -> dict[str, Any]:
    """What the command line says, by setting."""
    given = {name: getattr(options, name, None) for name in NAMES}
    said = {name: value for name, value in given.items() if value is not None}
    if "database_url" in said:
        said["database_url"] = SecretStr(said["database_url"])
    if getattr(options, "no_migrate", False):
        said["migrate"] = False
    return said


def read_settings(options: argparse.Namespace) -> Settings:
    """Environment and command line together.

    Raises:
        UnsafeSettings: a value cannot be read. It is not repeated: it may be a secret.
    """
    try:
        return Settings(**overrides(options))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise UnsafeSettings(f"WATCHKEEPER_{name}: {first['msg']}.") from None
