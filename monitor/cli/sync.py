"""``watchkeeper sync``: send what earlier training processes could not."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from trainer_hooks.loop.options import DEFAULT_SERVER
from trainer_hooks.loop.state import spool_root
from trainer_hooks.post.sending import Backoff, Leftover, adopt
from trainer_hooks.spool import find_leftovers
from trainer_hooks.transport import RetryLater, Transport


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--spool-dir", type=Path, help="the folder of the spools")
    parser.add_argument("--run", dest="only_run", help="only what belongs to this run")
    parser.add_argument(
        "--server",
        help="send everything here, whichever server it was meant for (default: where it was "
        "meant for, if WATCHKEEPER_SERVER or the usual address is that)",
    )
    parser.add_argument("--no-proxy", action="store_true", help="go past HTTP(S)_PROXY")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to keep trying")


def run(options: argparse.Namespace) -> int:
    """Exit status 0 when nothing is left, 1 when something is."""
    root = spool_root(options.spool_dir)
    server = options.server or os.environ.get("WATCHKEEPER_SERVER") or DEFAULT_SERVER
    token = os.environ.get("WATCHKEEPER_INGEST_TOKEN") or None
    transport = Transport(server, token=token, proxies=not options.no_proxy)
    deadline = time.monotonic() + options.timeout
    meant_for = None if options.server else server
    done = [
        _deliver(left, transport, deadline)
        for left in adopt(root, server=meant_for, run=options.only_run)
    ]
    transport.close()
    rest = len(find_leftovers(root, options.only_run))
    print(f"{sum(done)} of {len(done)} spools sent to {server}; {rest} left in {root}")
    return 0 if rest == 0 else 1


def _deliver(leftover: Leftover, transport: Transport, deadline: float) -> bool:
    """Send one spool; False if the server would not have it in time."""
    backoff = Backoff()
    try:
        while not leftover.closed:
            outcome = leftover.post_next(transport)
            if not isinstance(outcome, RetryLater):
                backoff.succeed()
                continue
            wait_s = backoff.fail(outcome.after_s)
            if time.monotonic() + wait_s > deadline:
                print(f"{leftover.run}: {outcome.why}", file=sys.stderr)
                return False
            time.sleep(wait_s)
    finally:
        leftover.release()
    return True
