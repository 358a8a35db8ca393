"""The command line: one file per command, each importing its floor only when it is called."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from keyword import iskeyword

DESCRIPTION = "Watch the training of language models: a server with a dashboard, and its tools."
COMMANDS: dict[str, str] = {
    "serve": "run the server",
    "demo": "train a small GPT with a fault waiting, and watch it",
    "migrate": "bring the database to this program's schema",
    "sync": "send what an earlier run left in its spool",
    "sample": "ask checkpoints, or a completions server, the same prompts beside the training",
    "alerts": "list, show, acknowledge, close and silence alerts",
    "rules": "thresholds and trends of your own on any series",
    "import": "bring a training log of another tool in, as a run of the past",
    "backtest": "judge files or stored runs with the detectors, and print what they say",
    "check": "print the effective settings and what is wrong with them",
    "version": "print the version",
}
"""Command and its one-line help. Each lives in ``monitor/cli/<name>.py`` with two functions:
``arguments(parser)`` and ``run(options) -> int`` (the exit status). A command that is a word of
Python's own has a module with an underscore behind it."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; errors we know are one line on stderr and exit status 2."""
    words = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="watchkeeper", description=DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = words[0] if words else ""
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:
            module = import_module(f"monitor.cli.{name}{'_' if iskeyword(name) else ''}")
            module.arguments(sub)
            sub.set_defaults(run_command=module.run)
    options = parser.parse_args(words)
    from monitor.errors import WatchkeeperError

    try:
        return int(options.run_command(options))
    except WatchkeeperError as error:
        hint = f" {error.hint}" if error.hint else ""
        print(f"watchkeeper: {error.detail}{hint}", file=sys.stderr)
        return 2
