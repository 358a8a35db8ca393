"""One job per new checkpoint: ask, send, remember.

A job that was cut off is done again under the same ids, so that a repeat stores nothing twice: the
id of a sampling is a function of run, prompt set and checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainer_hooks.answers.beside.checkpoints import Checkpoint
from trainer_hooks.answers.beside.run import NotSentError, RunReader, RunSeen, RunUnknownError, Way
from trainer_hooks.wire import Answer, Phase

log = logging.getLogger("trainer_hooks")

MOST_TRIES = 3
"""Of a checkpoint that cannot be loaded or asked; then it is left out, and said so."""


class Source(Protocol):
    """Where checkpoints come from: a folder, or what an endpoint serves."""

    def ready(self) -> list[Checkpoint]: ...


class Asker(Protocol):
    """Whoever gives answers for a checkpoint."""

    def label(self) -> str:
        """The set's hash and whatever else makes these answers other ones."""
        ...

    def where(self) -> str:
        """Where it runs, for the phase's text: ``cpu``, ``cuda:1``, an address."""
        ...

    def ask(self, checkpoint: Checkpoint, sampling_id: str) -> list[Answer]: ...


@dataclass(frozen=True, slots=True)
class Every:
    """How far apart sampled checkpoints have to be: in steps, in seconds, or not at all."""

    steps: int = 0
    seconds: float = 0.0

    def is_due(self, checkpoint: Checkpoint, last: tuple[int, float] | None) -> bool:
        """``last``: step and time of the one before. One that goes back in steps but is newer is
        due too: the run was rewound.
        """
        if last is None:
            return True
        if checkpoint.step < last[0]:
            return checkpoint.modified_at > last[1]
        far = checkpoint.step - last[0] >= self.steps
        return far and checkpoint.modified_at - last[1] >= self.seconds


def parse_every(text: str | None) -> Every:
    """``1d``, ``6h``, ``30m``, ``90s``, or a number of steps.

    Raises:
        ValueError: it is none of these.
    """
    if not text:
        return Every()
    number, unit = (text[:-1], text[-1]) if text[-1].isalpha() else (text, "")
    seconds = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12 or (unit and unit not in seconds):
        raise ValueError(f"{text!r}: a number of steps, or a time such as 1d, 6h, 30m")
    return Every(seconds=value * seconds[unit]) if unit else Every(steps=int(value))


@dataclass(slots=True)
class Memory:
    """What is done, in a file that is replaced at once. ``last``: by label, step and time."""

    path: Path
    done: dict[str, str] = field(default_factory=dict)
    last: dict[str, tuple[int, float]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Memory:
        """What an earlier process remembered; nothing where the file is missing or broken."""
        try:
            plain = json.loads(path.read_text("utf-8"))
            last = {str(k): (int(v[0]), float(v[1])) for k, v in plain["last"].items()}
            return cls(path, {str(k): str(v) for k, v in plain["done"].items()}, last)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            return cls(path)

    def note(self, label: str, checkpoint: Checkpoint, sampling_id: str, what: str) -> None:
        """Remember a sampling that is done with (``what``: sampled or failed)."""
        self.done[sampling_id] = what
        if what == "sampled":
            self.last[label] = (checkpoint.step, checkpoint.modified_at)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        partial.write_text(json.dumps({"done": self.done, "last": self.last}), "utf-8")
        os.replace(partial, self.path)


def sampling_name(run: str, label: str, checkpoint: Checkpoint) -> str:
    """32 hex digits: the same for the same checkpoint, whoever asks and however often."""
    when = int(checkpoint.modified_at * 1000)
    words = "\0".join((run, label, checkpoint.path.name, str(checkpoint.step), str(when)))
    return hashlib.sha256(words.encode()).hexdigest()[:32]


class Jobs:
    """Does what is due.

    Args:
        every: which of the checkpoints are asked.
        memory: what is done already.
        wall: seconds UTC, for the phase.
    """

    def __init__(
        self,
        source: Source,
        asker: Asker,
        reader: RunReader,
        way: Way,
        memory: Memory,
        *,
        every: Every | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._asker = asker
        self._reader = reader
        self._way = way
        self._memory = memory
        self._every = every or Every()
        self._wall = wall
        self._tries: dict[str, int] = {}

    def run_once(self) -> tuple[int, int]:
        """Do the jobs that are due, oldest first: how many were done, and how many failed."""
        done = failed = 0
        for checkpoint in self._source.ready():
            name = sampling_name(self._reader.run, self._asker.label(), checkpoint)
            if name in self._memory.done:
                continue
            if not self._is_due(checkpoint):
                continue
            if self._try(checkpoint, name):
                done += 1
            else:
                failed += 1
                break  # in order: what comes later is compared with what comes before
        return done, failed

    def _is_due(self, checkpoint: Checkpoint) -> bool:
        return self._every.is_due(checkpoint, self._memory.last.get(self._asker.label()))

    def _try(self, checkpoint: Checkpoint, name: str) -> bool:
        try:
            seen = self._reader.look()
            self._do(checkpoint, name, seen)
        except (NotSentError, RunUnknownError) as error:
            log.warning("%s is kept for later: %s", checkpoint.path.name, error)
            return False
        except Exception as error:
            return self._failed(checkpoint, name, error)
        self._memory.note(self._asker.label(), checkpoint, name, "sampled")
        return True

    def _do(self, checkpoint: Checkpoint, name: str, seen: RunSeen) -> None:
        begun = Phase(
            name, "sampling", seen.last_step, self._wall(), path=str(checkpoint.path),
            text=f"watchkeeper sample on {self._asker.where()}",
        )  # fmt: skip
        self._way.send(seen.current.id, [begun])
        try:
            answers = self._asker.ask(checkpoint, name)
        finally:
            ended_at = self._wall()
            ended = _ended(begun, self._last_step(seen), ended_at)
            self._way.send(seen.current.id, [ended])
        self._way.send(seen.owner(checkpoint.step, checkpoint.modified_at).id, answers)
        log.info("%s: %d answers", checkpoint.path.name, len(answers))

    def _last_step(self, seen: RunSeen) -> int:
        try:
            return max(seen.last_step, self._reader.look().last_step)
        except RunUnknownError:
            return seen.last_step

    def _failed(self, checkpoint: Checkpoint, name: str, error: Exception) -> bool:
        """Perhaps it was read too early: try again later, but not for ever."""
        self._tries[name] = self._tries.get(name, 0) + 1
        log.warning("%s: %s: %s", checkpoint.path.name, type(error).__name__, error)
        if self._tries[name] >= MOST_TRIES:
            log.error("%s is left out after %d tries", checkpoint.path.name, MOST_TRIES)
            self._memory.note(self._asker.label(), checkpoint, name, "failed")
        return False


def _ended(begun: Phase, step: int, at: float) -> Phase:
    return Phase(
        begun.phase_id, begun.name, begun.begin_step, begun.begin_at, step, at, begun.path,
        begun.text,
    )  # fmt: skip
