"""Figures that need no training thread: they are added to rows on their way to the spool.

Each part fails for itself: an error is counted, and after three in a row the part is left out.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_hooks.feed.meter import FeedMeter, source_spec
from trainer_hooks.feed.settings import Feed
from trainer_hooks.machine import flops, process
from trainer_hooks.machine.nvml import Nvml, NvmlError
from trainer_hooks.post.frames import Row
from trainer_hooks.wire import Asleep, SeriesSpec

log = logging.getLogger("trainer_hooks")

MACHINE_S = 10.0
FEED_SHARE = 0.02
FEED_SAVED_S = 0.2
CLIP_STEPS = 100
FAILURES_TO_SWITCH_OFF = 3


@dataclass(slots=True)
class ClipMeter:
    """The share of the last 100 steps whose gradient was longer than the threshold."""

    threshold: float
    _clipped: deque[bool] = field(default_factory=lambda: deque(maxlen=CLIP_STEPS))

    def measure(self, cells: dict[str, Any]) -> dict[str, float]:
        """A gradient norm that is not finite was clipped, in whatever sense."""
        norm = cells.get("grad_norm/total")
        if norm is None:
            return {}
        self._clipped.append(not norm <= self.threshold)
        return {"clip_share": sum(self._clipped) / len(self._clipped)}


@dataclass(slots=True)
class Allowance:
    """Processor time that may be spent: a share of the time that passes, saved up to a bound.

    A loop of a thousand steps a second would otherwise share its interpreter with us all day.
    """

    now: Callable[[], float]
    spent_now: Callable[[], float] = time.thread_time
    share: float = FEED_SHARE
    saved_s: float = FEED_SAVED_S
    _at: float | None = None

    def is_left(self) -> bool:
        """Whether something may be spent now."""
        now = self.now()
        if self._at is not None:
            self.saved_s = min(FEED_SAVED_S, self.saved_s + (now - self._at) * self.share)
        self._at = now
        return self.saved_s > 0

    def spend(self, act: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Do it, and pay for it."""
        began_s = self.spent_now()
        try:
            return act()
        finally:
            self.saved_s -= self.spent_now() - began_s


@dataclass(frozen=True, slots=True)
class Plan:
    """What the parts need to know."""

    feed: Feed
    folder: Path
    planned_steps: int | None = None
    clip_norm: float | None = None
    flops_per_token: float | None = None
    peak_tflops: float | None = None
    cards: tuple[str, ...] = ()
    world_size: int = 1


class Beside:
    """All parts. Made on the training thread, in microseconds; used on the collector's alone."""

    def __init__(self, plan: Plan, *, now: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._now = now
        self._feed = FeedMeter(plan.feed, plan.planned_steps)
        self._allowance = Allowance(now)
        self._clip = None if plan.clip_norm is None else ClipMeter(float(plan.clip_norm))
        self._mfu = flops.make_mfu(
            plan.flops_per_token, plan.peak_tflops, list(plan.cards), plan.world_size
        )
        self._machine_at = float("-inf")
        self._nvml: Nvml | None = None
        self._nvml_missing = ""
        try:
            self._nvml = Nvml()
        except NvmlError as error:
            self._nvml_missing = str(error)
        self._memory: Path | None = None
        self._may_recall = False
        self._is_kept = False
        self._failures: dict[str, int] = {}
        self._told: set[str] = set()

    def specs(self) -> list[SeriesSpec]:
        """The series that can be filled."""
        found = [*self._feed.specs(), *process.specs()]
        if self._clip is not None:
            found.append(_CLIP_SPEC)
        if isinstance(self._mfu, flops.Mfu):
            found.append(flops.spec())
        return found + (self._nvml.specs() if self._nvml is not None else [])

    def asleep(self) -> list[Asleep]:
        """What cannot be told, and what wakes it."""
        found = self._feed.asleep()
        if self._clip is None:
            found.append(
                Asleep("clip_share", "the clipping threshold", "watch(..., clip_norm=1.0)")
            )
        if isinstance(self._mfu, Asleep):
            found.append(self._mfu)
        if self._nvml is None:
            wake = "run where NVIDIA's driver library is"
            found.append(Asleep("gpu_*", f"NVML ({self._nvml_missing})", wake))
        return found

    def remember_in(self, folder: Path, *, continues: bool) -> None:
        """Where the reference is kept for later processes; ``continues``: one may lie there."""
        self._memory = folder / "fed.json"
        self._may_recall = continues

    def add_to(self, rows: Sequence[Row], count_error: Callable[[], None]) -> tuple[int, list[str]]:
        """Fill the rows up; how many values that added, and sources seen for the first time."""
        self._recall()
        added, sources = 0, []
        for row in rows:
            if not row.through:
                continue
            cells: Any = row.cells  # the recorder's own dict
            for name, measure in self._parts(row):
                for key, value in self._try(name, measure, count_error).items():
                    added += key not in cells
                    cells.setdefault(key, value)
                    sources += self._new_source(key)
        self._keep()
        return added, sources

    def source_specs(self, sources: Sequence[str]) -> list[SeriesSpec]:
        """What the series of these sources are."""
        return [source_spec(source) for source in sources]

    def _recall(self) -> None:
        """A resumed run is compared with its own beginning, not with that of this process."""
        if not self._may_recall or self._memory is None or "torch" not in sys.modules:
            return
        self._may_recall = False
        try:
            self._feed.reference.restore(json.loads(self._memory.read_text()))
            self._is_kept = True
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.debug("no earlier reference of what is fed: %s", error)

    def _keep(self) -> None:
        if self._is_kept or self._memory is None or not self._feed.reference.is_frozen:
            return
        self._is_kept = True
        try:
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            self._memory.write_text(json.dumps(self._feed.reference.state()))
        except OSError as error:
            log.debug("the reference of what is fed cannot be kept: %s", error)

    def _parts(self, row: Row) -> list[tuple[str, Callable[[], dict[str, float]]]]:
        cells: Any = row.cells
        parts: list[tuple[str, Callable[[], dict[str, float]]]] = []
        if row.fed and self._allowance.is_left():
            feed = self._allowance.spend
            parts.append(("feed", lambda: feed(lambda: self._feed.measure(row.fed))))
        if self._clip is not None:
            clip = self._clip
            parts.append(("clip_share", lambda: clip.measure(cells)))
        mfu, speed = self._mfu, cells.get("tokens_per_s")
        if isinstance(mfu, flops.Mfu) and speed is not None:
            parts.append(("mfu", lambda: {"mfu": mfu.of(speed)}))
        if self._now() - self._machine_at >= MACHINE_S:
            self._machine_at = self._now()
            parts.append(("machine", lambda: process.read_machine(self._plan.folder)))
            if self._nvml is not None:
                parts.append(("gpu", self._nvml.read))
        return parts

    def _try(
        self, name: str, measure: Callable[[], dict[str, float]], count_error: Callable[[], None]
    ) -> dict[str, float]:
        if self._failures.get(name, 0) >= FAILURES_TO_SWITCH_OFF:
            return {}
        try:
            found = measure()
        except Exception as error:
            count_error()
            self._failures[name] = self._failures.get(name, 0) + 1
            if self._failures[name] == FAILURES_TO_SWITCH_OFF:
                log.warning("%s is switched off: %s: %s", name, type(error).__name__, error)
            return {}
        self._failures.pop(name, None)
        return found

    def _new_source(self, key: str) -> list[str]:
        _, is_source, source = key.partition("source_share@")
        if not is_source or source in self._told:
            return []
        self._told.add(source)
        return [source]


_CLIP_SPEC = SeriesSpec(
    "clip_share",
    "clip_share",
    family="gradient",
    help="share of the last 100 steps whose gradient was clipped",
)
