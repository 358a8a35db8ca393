"""Stale data: rows served before, beyond what the run declared."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from monitor.detectors.base import (
    Cause,
    Detector,
    Evidence,
    Hold,
    RunFacts,
    StepFrame,
    Verdict,
)
from monitor.detectors.gate import Gate
from monitor.detectors.saying import said
from monitor.domain.words import duration_text


@dataclass(frozen=True, slots=True)
class Params:
    """``repeat_share``: licence headers, upsampled files and the padding of an epoch's end repeat a
    few rows in a hundred in sound data. ``batches_bad`` of ``batches_seen``: one repeated batch is
    an accident, five in twenty are a loader. ``gap_batches``: repeats further apart than this are
    two spells, and the present one began after the gap. ``stall_back_steps``: how far before the
    first repeat a stall may lie to be its cause (a small shard takes that long to come round).
    ``worth_saying_nats``: smaller moves of a loss are its noise."""

    repeat_share: float = 0.05
    batches_bad: int = 5
    batches_seen: int = 20
    gap_batches: int = 5
    stall_back_steps: int = 500
    worth_saying_nats: float = 0.02


@dataclass(frozen=True, slots=True)
class _Batch:
    step: int
    t: float
    share: float
    losses: dict[str, float]


COMPANIONS = ("loss/train", "loss/heldout", "loss/probe")


class StaleData(Detector):
    """Critical at 5 of 20 batches with more than 5 % repeats; info while they stay below 5 %."""

    name: ClassVar[str] = "stale_data"
    title: ClassVar[str] = "stale data"
    needs: ClassVar[tuple[str, ...]] = ("repeat_share", *COMPANIONS)
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=10)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._facts = facts
        self._gate = Gate()
        self._window: list[_Batch] = []
        self._stalls: list[tuple[int, float]] = []
        self._now: dict[str, float] = {}
        self._onset: _Batch | None = None

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge the last 20 batches whenever this step says how much of its batch was a repeat."""
        if self._gate.enter(frame):
            self._window, self._onset, self._stalls = [], None, []
        self._note(frame)
        share = frame.values.get("repeat_share")
        if share is None or not math.isfinite(share):
            return []
        self._window.append(_Batch(frame.step, frame.t, share, dict(self._now)))
        del self._window[: -self.params.batches_seen]
        self._find_onset()
        if self._gate.steps_to_go(frame.step):
            return []
        return self._judge(frame)

    def _note(self, frame: StepFrame) -> None:
        for event in frame.events:
            if event.name == "data_stall":
                self._stalls.append((frame.step, float(event.data.get("wait_s") or 0.0)))
                del self._stalls[:-8]
        for key in COMPANIONS:
            value = frame.values.get(key)
            if value is None or not math.isfinite(value):
                continue
            known = self._now.get(key)
            # The training loss is smoothed over about 20 steps; evaluations are taken as they are.
            smooth = key == "loss/train" and known is not None
            self._now[key] = known + 0.05 * (value - known) if smooth and known else value

    def _find_onset(self) -> None:
        """The first repeat of the present spell: going back, the first long gap ends it."""
        repeats = [index for index, batch in enumerate(self._window) if batch.share > 0.0]
        if not repeats:
            self._onset = None
        elif self._onset is None and len(repeats) >= self.params.batches_bad:
            first = repeats[-1]
            for index in reversed(repeats):
                if first - index > self.params.gap_batches:
                    break
                first = index
            self._onset = self._window[first]

    def _judge(self, frame: StepFrame) -> list[Verdict]:
        above = sum(batch.share > self.params.repeat_share for batch in self._window)
        any_repeat = sum(batch.share > 0.0 for batch in self._window)
        if above >= self.params.batches_bad:
            evidence = self._evidence(above)
            return [
                said(self, frame, "bad", "critical", "repeats_above_declared", evidence=evidence)
            ]
        if any_repeat >= self.params.batches_bad and above == 0:
            evidence = self._evidence(any_repeat)
            return [said(self, frame, "bad", "info", "few_repeats", evidence=evidence)]
        if any_repeat == 0 and len(self._window) == self.params.batches_seen:
            return [said(self, frame, "calm", "info", "no_repeats")]
        return []

    def _evidence(self, batches: int) -> Evidence:
        onset = self._onset or self._window[0]
        step = onset.step
        mean = sum(batch.share for batch in self._window) / len(self._window)
        declared = float(self._facts.facts.get("declared_epochs") or 1.0)
        told = f"declared: {declared:g} epochs" if declared > 1.0 else "declared: none"
        numbers = [("rows served before", 100.0 * mean, "%", f"last {len(self._window)} batches")]
        numbers += self._changes(onset)
        return Evidence(
            rule="repeat_share",
            version=self.version,
            value=mean,
            threshold=self.params.repeat_share,
            unit="share of rows",
            n=len(self._window),
            onset_step=step,
            onset_at=onset.t,
            series=("repeat_share", "data_wait_s", *onset.losses),
            numbers=tuple(numbers[:3]),
            summary=f"{100 * mean:.0f} % of the rows in the last {len(self._window)} batches were "
            f"served before ({told}); {batches} of these batches repeat. First repeat at step "
            f"{step:,}.{self._meanwhile(onset)}",
            causes=self._causes(step),
            first_action="stop the run, look at the loader's shard index and at its workers.",
            clears=f"{self.params.batches_seen + self.hold.calm} batches in a row without repeats.",
        )

    def _changes(self, onset: _Batch) -> list[tuple[str, float, str, str]]:
        """How the losses moved since the first repeat."""
        return [
            (f"{key} since the first repeat", self._now[key] - before, "nats", f"was {before:.3f}")
            for key, before in onset.losses.items()
        ]

    def _meanwhile(self, onset: _Batch) -> str:
        words = []
        for key, label in (("loss/train", "Train loss"), ("loss/probe", "the fixed probe")):
            if key in onset.losses:
                moved = self._now[key] - onset.losses[key]
                if abs(moved) >= self.params.worth_saying_nats:
                    words.append(f"{label} {'rose' if moved > 0 else 'fell'} {abs(moved):.2f}")
        said = ", ".join(words)
        return f" {said[0].upper()}{said[1:]} meanwhile." if said else ""

    def _causes(self, first_repeat: int) -> tuple[Cause, ...]:
        back = self.params.stall_back_steps
        stalls = [s for s in self._stalls if first_repeat - back <= s[0] <= first_repeat]
        if stalls:
            step, wait_s = stalls[-1]
            return (
                Cause(
                    f"the loader began its shard again after a stall of {duration_text(wait_s)} "
                    f"at step {step:,}",
                    signs_seen=2,
                    signs_of=2,
                    why=f"a stall {first_repeat - step} steps before the first repeat",
                ),
            )
        return (
            Cause(
                "the loader serves the same rows again: a shard index or a sampler's seed was "
                "reset, or workers share one",
                signs_seen=1,
                signs_of=2,
                why="no stall of the loader was seen before the first repeat",
            ),
        )

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "window": [asdict(batch) for batch in self._window],
            "stalls": [list(entry) for entry in self._stalls],
            "now": dict(self._now),
            "onset": asdict(self._onset) if self._onset else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._window = [_Batch(**batch) for batch in state["window"]]
        self._stalls = [(int(s), float(w)) for s, w in state["stalls"]]
        self._now = dict(state["now"])
        self._onset = _Batch(**state["onset"]) if state["onset"] else None
