"""What the commands that read foreign logs share: their options, and opening a file."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

from monitor.errors import UnreadableLog
from monitor.importers import read_log
from monitor.importers.base import Imported
from trainer_hooks.wire import RunKind


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """How to read a log whose names do not tell everything."""
    parser.add_argument(
        "--map", action="append", default=[], metavar="COLUMN=SERIES", type=pair,
        help="what a column is: a series such as loss/heldout, or step, tokens, epoch, time, "
        "ignore; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--kind", choices=get_args(RunKind), help="kind of run (default: by its columns)"
    )


def pair(text: str) -> tuple[str, str]:
    """``name=value`` in two; the last ``=`` cuts, for column names may hold one."""
    name, cut, value = text.rpartition("=")
    if not (cut and name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def open_log(path: Path, options: argparse.Namespace) -> Imported:
    """Read a file as the options say. Logs without a calendar end when the file was last written.

    Raises:
        UnreadableLog: there is none, or it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            written_at = os.fstat(stream.fileno()).st_mtime
            imported = read_log(stream, mapping=dict(options.map), ended_at=written_at)
    except OSError as error:
        raise UnreadableLog(f"{path}: {error.strerror or error}.") from None
    except UnreadableLog as error:
        raise UnreadableLog(f"{path}: {error.detail}", hint=error.hint) from None
    return imported if options.kind is None else replace(imported, run_kind=options.kind)


def run_name(path: Path) -> str:
    """The file's name without its endings."""
    name = path.name
    for ending in (".gz", ".csv", ".tsv", ".jsonl", ".json", ".txt", ".log"):
        name = name.removesuffix(ending)
    return name or path.name
