"""The sampler hurts the run: steps are slower, or wait for data, while answers are sampled.

Windows are told by the phase ``sampling``, from the loop or from a process beside it, by the clock:
whoever starves the loader shows in the steps of these very seconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from monitor.detectors.base import (
    Cause,
    Detector,
    Evidence,
    Hold,
    Judgement,
    RunFacts,
    Severity,
    StepEvent,
    StepFrame,
    Verdict,
)
from monitor.domain.interference import StepRow, WindowVerdict, judge_window, split


@dataclass(frozen=True, slots=True)
class Params:
    """``kept``: rows remembered. ``before`` and ``after``: rows a window is compared with and
    waited for. ``windows``: told at once, the oldest give way.
    """

    kept: int = 600
    before: int = 100
    after: int = 20
    windows: int = 8


@dataclass(slots=True)
class _Window:
    """A sampling window; without ``end_at`` it is still open."""

    id: str
    begin_at: float
    end_at: float | None = None
    who: str = ""
    path: str = ""
    is_judged: bool = False


class SamplerInterference(Detector):
    """Judges each window once the steps after it are there."""

    name: ClassVar[str] = "sampler_interference"
    version: ClassVar[int] = 1
    title: ClassVar[str] = "sampling answers slows the training"
    needs: ClassVar[tuple[str, ...]] = ("step_s", "data_wait_s", "loss/train")
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=2, m=3, calm=2)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self._params = params or Params()
        self._rows: deque[StepRow] = deque(maxlen=self._params.kept)
        self._windows: list[_Window] = []
        self._attempt = ""

    def update(self, frame: StepFrame) -> list[Verdict]:
        if frame.attempt != self._attempt:  # a restart warms up anew
            self._attempt = frame.attempt
            self._rows.clear()
        for event in frame.events:
            self._hear(event)
        if not self._add(frame):
            return []
        return [self._said(window, frame) for window in self._windows if self._is_ripe(window)]

    # -- collecting --------------------------------------------------------------------------------

    def _hear(self, event: StepEvent) -> None:
        if event.name != "sampling" or event.kind not in ("phase", "phase_end"):
            return
        named = str(event.data.get("phase_id") or "")
        known = next((window for window in self._windows if window.id == named), None)
        if event.kind == "phase" and known is None:
            who, path = event.text, str(event.data.get("path") or "")
            self._windows.append(_Window(named, event.at, None, who, path))
            del self._windows[: -self._params.windows]
        elif event.kind == "phase_end" and known is not None and known.end_at is None:
            known.end_at = event.at

    def _add(self, frame: StepFrame) -> bool:
        step_s = frame.values.get("step_s")
        if step_s is None or not math.isfinite(step_s) or step_s <= 0:
            return False
        wait_s, loss = _finite(frame, "data_wait_s"), _finite(frame, "loss/train")
        self._rows.append(StepRow(frame.step, frame.t, step_s, wait_s, loss))
        return True

    def _is_ripe(self, window: _Window) -> bool:
        """The window is over, and so are the steps it is compared with."""
        if window.is_judged or window.end_at is None or len(self._rows) < self._params.after:
            return False
        first_after = self._rows[-self._params.after]
        return first_after.t - first_after.step_s >= window.end_at

    # -- judging -----------------------------------------------------------------------------------

    def _said(self, window: _Window, frame: StepFrame) -> Verdict:
        window.is_judged = True
        begin, end = window.begin_at, window.end_at or window.begin_at
        before, inside, after = split(list(self._rows), begin, end)
        clean = [row for row in before if not self._in_other(row, window)]
        found = judge_window(clean[-self._params.before :], inside, after[-self._params.after :])
        judgement: Judgement = (
            "bad" if found.hurt else "cannot_tell" if found.effect == "unknown" else "calm"
        )
        severity: Severity = "warning" if found.hurt else "info"
        reason = found.effect if found.effect != "none" else "no_lasting_effect"
        first = inside[0].step if inside else frame.step
        return Verdict(
            self.name, "", judgement, severity, reason, frame.step, frame.t, frame.attempt,
            self.title, self._evidence(window, found, first),
        )  # fmt: skip

    def _in_other(self, row: StepRow, window: _Window) -> bool:
        return any(
            other.begin_at < row.t and (other.end_at is None or row.t - row.step_s < other.end_at)
            for other in self._windows
            if other is not window
        )

    def _evidence(self, window: _Window, found: WindowVerdict, first_step: int) -> Evidence:
        who = window.who or "sampling in the loop"
        return Evidence(
            rule="steps inside a sampling window against those before it",
            version=self.version,
            value=found.step_inside_s,
            threshold=found.step_before_s,
            unit="s",
            n=found.inside_n,
            onset_step=first_step,
            onset_at=window.begin_at,
            series=("step_s", "data_wait_s"),
            numbers=_numbers(found),
            summary=f"{who}: {found.words()}",
            causes=(_cause(who, found),) if found.hurt else (),
            first_action="give the sampler another device or fewer threads, or raise its --nice.",
            clears="two sampling windows in a row without an effect",
        )

    # -- memory ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        rows = [[r.step, r.t, r.step_s, r.wait_s, r.loss] for r in self._rows]
        windows = [asdict(window) for window in self._windows]
        return {"attempt": self._attempt, "rows": rows, "windows": windows}

    def restore(self, state: dict[str, Any]) -> None:
        self._attempt = state["attempt"]
        self._rows = deque((StepRow(*row) for row in state["rows"]), maxlen=self._params.kept)
        self._windows = [_Window(**window) for window in state["windows"]]


def _finite(frame: StepFrame, key: str) -> float | None:
    value = frame.values.get(key)
    return value if value is not None and math.isfinite(value) else None


def _numbers(found: WindowVerdict) -> tuple[tuple[str, float, str, str], ...]:
    rows: list[tuple[str, float, str, str]] = []
    if found.step_inside_s is not None:
        rows.append(("step time", found.step_inside_s, "s", f"before {found.step_before_s:.3g} s"))
    if found.wait_inside_s is not None and found.wait_before_s is not None:
        rows.append(("data wait", found.wait_inside_s, "s", f"before {found.wait_before_s:.3g} s"))
    if found.loss_change is not None:
        rows.append(("loss after it", found.loss_change, "nats", "change"))
    return tuple(rows)


def _cause(who: str, found: WindowVerdict) -> Cause:
    what = "starves the loader" if found.effect == "starved" else "takes the training's time"
    seen = 1 + (found.effect == "starved") + (not found.lasts)
    return Cause(f"{who} {what}", seen, 3, "step after step, from its beginning on")
