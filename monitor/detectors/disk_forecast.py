"""Disk forecast: when the free space of a disk the run writes to will be gone."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from monitor.detectors.base import (
    Cause,
    Detector,
    Evidence,
    Hold,
    RunFacts,
    Severity,
    StepFrame,
    Verdict,
)
from monitor.detectors.robust import mann_kendall, theil_sen
from monitor.detectors.saying import finite, said, unsure
from monitor.domain.words import duration_text

NAME = "disk_free_bytes"
GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class Params:
    """``warn_s`` and ``critical_s``: time left. ``least_s``: a trend over less is one checkpoint.
    Old checkpoints are deleted when new ones are there, so free space goes in saw teeth:
    the trend is that of the lowest point of each of ``spans`` equal spans of the window
    (``window_s``), and must be monotone (Mann-Kendall, ``p``). ``empty_bytes``: below this the disk
    is full, whatever the trend."""

    warn_s: float = 24 * 3600.0
    critical_s: float = 2 * 3600.0
    calm_s: float = 48 * 3600.0
    least_s: float = 3600.0
    window_s: float = 12 * 3600.0
    spans: int = 12
    p: float = 0.01
    empty_bytes: float = 0.25 * GIB
    most_points: int = 480


@dataclass(slots=True)
class _Disk:
    """Points by rising time: seconds since the first, free bytes, step."""

    ts: list[float] = field(default_factory=list)
    free: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    open: bool = False
    told: bool = False


class DiskForecast(Detector):
    """Warns a day ahead, critical two hours ahead or when the disk is full; one alert a disk."""

    name: ClassVar[str] = "disk_forecast"
    title: ClassVar[str] = "the disk is filling up"
    needs: ClassVar[tuple[str, ...]] = (NAME, f"{NAME}/*")
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=3)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._disks: dict[str, _Disk] = {}

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Take the free bytes of each disk."""
        verdicts: list[Verdict] = []
        for key in frame.values:
            free = finite(frame, key) if key.startswith(NAME) else None
            if free is not None:
                disk = self._disks.setdefault(key, _Disk())
                verdicts += self._take(frame, key, disk, free)
        return verdicts

    def _take(self, frame: StepFrame, key: str, disk: _Disk, free: float) -> list[Verdict]:
        if disk.ts and frame.t < disk.ts[-1]:
            disk.ts, disk.free, disk.steps = [], [], []  # the clock was set back
        disk.ts.append(frame.t)
        disk.free.append(free)
        disk.steps.append(frame.step)
        self._keep(disk)
        subject = key.removeprefix(NAME).removeprefix("/")
        if free < self.params.empty_bytes:
            disk.open = True
            return [self._bad(frame, subject, key, disk, 0.0, 0.0)]
        ran_s = disk.ts[-1] - disk.ts[0]
        if ran_s < self.params.least_s or len(disk.ts) < self.params.spans:
            if disk.told:
                return []
            disk.told = True
            needed = f"needs about {duration_text(self.params.least_s)} of free disk space"
            return [unsure(self, frame, needed, subject)]
        return self._forecast(frame, subject, key, disk)

    def _keep(self, disk: _Disk) -> None:
        """Bounded: what is older than the window goes; of many points, each lower of two stays."""
        old = sum(t < disk.ts[-1] - self.params.window_s for t in disk.ts)
        del disk.ts[:old], disk.free[:old], disk.steps[:old]
        if len(disk.ts) > self.params.most_points:
            pairs = range(0, len(disk.ts) - 1, 2)
            low = [i if disk.free[i] <= disk.free[i + 1] else i + 1 for i in pairs]
            low.append(len(disk.ts) - 1)
            low = sorted(set(low))
            disk.ts = [disk.ts[i] for i in low]
            disk.free = [disk.free[i] for i in low]
            disk.steps = [disk.steps[i] for i in low]

    def _forecast(self, frame: StepFrame, subject: str, key: str, disk: _Disk) -> list[Verdict]:
        params = self.params
        t_N, free_N = _lows(disk.ts, disk.free, params.spans)
        direction, p = mann_kendall(free_N.tolist())
        per_s = -theil_sen(t_N, free_N)
        left_s = float(free_N[-1]) / per_s if per_s > 0 else float("inf")
        if direction < 0 and p < params.p and left_s < params.warn_s:
            disk.open = True
            return [self._bad(frame, subject, key, disk, per_s, left_s)]
        if disk.open and left_s > params.calm_s:
            return [said(self, frame, "calm", "info", "space_enough", subject=subject)]
        return [] if disk.open else [said(self, frame, "calm", "info", "space_enough")]

    def _bad(
        self, frame: StepFrame, subject: str, key: str, disk: _Disk, per_s: float, left_s: float
    ) -> Verdict:
        full = per_s == 0.0
        severity: Severity = "critical" if full or left_s < self.params.critical_s else "warning"
        free, place = disk.free[-1], subject or "the run's disk"
        told = "it is full" if full else f"{per_s * 3600 / GIB:.2f} GiB an hour go"
        ahead = (
            f"{place} has {free / GIB:.2f} GiB left: the next checkpoint will fail."
            if full
            else f"{place} has {free / GIB:.1f} GiB left and loses {per_s * 3600 / GIB:.2f} GiB an "
            f"hour: full in {duration_text(left_s)}."
        )
        evidence = Evidence(
            rule="full" if full else "trend_to_zero",
            version=self.version,
            value=left_s,
            threshold=self.params.warn_s,
            unit="s",
            n=len(disk.ts),
            onset_step=disk.steps[-1] if full else disk.steps[0],
            onset_at=disk.ts[-1] if full else disk.ts[0],
            series=(key,),
            numbers=(("free", free / GIB, "GiB", told),),
            summary=ahead[0].upper() + ahead[1:],
            causes=(
                Cause(
                    "checkpoints are kept and none is deleted, or logs and caches grow",
                    signs_seen=0,
                    signs_of=1,
                    why="unexplained: what fills the disk cannot be seen from here",
                ),
            ),
            first_action="delete or move old checkpoints (never the last good one).",
            clears=f"space for more than {self.params.calm_s / 3600:.0f} h.",
        )
        return said(
            self, frame, "bad", severity, evidence.rule, subject=subject, evidence=evidence
        )  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        return {key: asdict(disk) for key, disk in self._disks.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self._disks = {key: _Disk(**disk) for key, disk in state.items()}


def _lows(ts: list[float], free: list[float], spans: int) -> tuple[Any, Any]:
    """The lowest point of each span of the window: (seconds [S], bytes [S])."""
    t_N, free_N = np.asarray(ts), np.asarray(free)
    edges = np.linspace(t_N[0], t_N[-1], spans + 1)
    place = np.clip(np.searchsorted(edges, t_N, side="right") - 1, 0, spans - 1)
    found = [int(np.flatnonzero(place == s)[free_N[place == s].argmin()])
             for s in range(spans) if (place == s).any()]  # fmt: skip
    return t_N[found], free_N[found]
