"""Which run this is, and which attempt at it: what survives a restart of the training process."""

from __future__ import annotations

import json
import os
import re
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer_hooks.spool import run_folder


@dataclass(frozen=True, slots=True)
class State:
    """Kept in checkpoints and in the state file. ``step`` counts completed optimizer steps."""

    run: str
    attempt: str
    ordinal: int
    step: int = 0
    tokens_seen: int = 0

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> State:
        """Read it back.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        return cls(
            run=str(plain["run"]),
            attempt=str(plain["attempt"]),
            ordinal=int(plain["ordinal"]),
            step=int(plain["step"]),
            tokens_seen=int(plain["tokens_seen"]),
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the run's id came from. ``is_settled``: a checkpoint shall not change it any more."""

    run: str
    is_settled: bool
    earlier: State | None
    state_path: Path | None
    resumes_step: bool
    """Whether the state's step is where this process goes on, if nothing else says so."""


def find_origin(
    *, run: str | None, state_file: str | os.PathLike[str] | None, name: str, root: Path
) -> Origin:
    """The run by argument, environment, or state file, in this order; else a new one."""
    given = run or os.environ.get("WATCHKEEPER_RUN") or None
    if state_file is not None:
        path = Path(state_file)
        state = read_state(path)
        if state is not None and given in (None, state.run):
            return Origin(state.run, True, state, path, True)
        return Origin(given or new_run_id(name), True, None, path, True)
    if given is not None:
        path = run_folder(root, given) / "state.json"
        return Origin(given, True, read_state(path), path, False)
    return Origin(new_run_id(name), False, None, None, False)


def read_state(path: Path) -> State | None:
    """The state in a file; None if there is none that can be read."""
    try:
        return State.from_plain(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_state(path: Path, state: State) -> None:
    """Replace the file at once, so that no reader ever sees half of it.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial.write_text(json.dumps(asdict(state)), encoding="utf-8")
    os.replace(partial, path)


def new_run_id(name: str) -> str:
    """A new id that shows the name."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
    return f"{slug}-{uuid.uuid4().hex[:8]}"


def new_attempt_id() -> str:
    """A new attempt's id."""
    return uuid.uuid4().hex


def spool_root(given: str | os.PathLike[str] | None) -> Path:
    """Where spools lie: argument, environment, or the user's folder for local state."""
    chosen = given or os.environ.get("WATCHKEEPER_SPOOL_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_STATE_HOME")
    try:
        home = Path(base) if base else Path.home() / ".local" / "state"
    except RuntimeError:  # a container's user without a home
        home = Path(tempfile.gettempdir()) / f"watchkeeper-{os.getuid()}"
    return home / "watchkeeper" / "spool"
