"""GPU throttle: a card that holds its clocks down, or that somebody else uses as well."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

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
from monitor.detectors.robust import median
from monitor.detectors.saying import finite, said

NAMES = (
    "gpu_throttle", "gpu_temperature_c", "gpu_sm_clock_hz", "gpu_util", "gpu_power_w",
    "gpu_other_process",
)  # fmt: skip
MIB = float(1 << 20)


@dataclass(frozen=True, slots=True)
class Params:
    """``bad_of`` of the last ``samples``: a card touches its limits for a moment now and then.
    ``clock_share``: the clock against the best of its own ``reference`` first samples under load
    (``busy``: the least utilisation that counts as load). ``hot_c``: said as the reason from here
    on; heat that does not slow the card is no fault. ``other_bytes``: what a display or a monitor
    holds is no other job. ``slower``: a loss of speed that makes it a warning."""

    samples: int = 10
    bad_of: int = 5
    clock_share: float = 0.85
    reference: int = 20
    busy: float = 0.5
    hot_c: float = 83.0
    other_bytes: float = 512.0 * MIB


@dataclass(slots=True)
class _Card:
    """One card: the last samples, and its clock under load when the run was young."""

    slowed: list[bool] = field(default_factory=list)
    shared: list[bool] = field(default_factory=list)
    clocks: list[float] = field(default_factory=list)
    clock_ref: float | None = None
    slow_step: int | None = None
    slow_at: float = 0.0
    shared_step: int | None = None
    shared_at: float = 0.0
    last: dict[str, float] = field(default_factory=dict)


class GpuThrottle(Detector):
    """Warns when a card says it is slowed, or its clock has sunk, in 5 of 10 samples."""

    name: ClassVar[str] = "gpu_throttle"
    title: ClassVar[str] = "a GPU is held back"
    needs: ClassVar[tuple[str, ...]] = tuple(f"{name}*" for name in NAMES)
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=5)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._cards: dict[str, _Card] = {}

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Take one sample of each card; what follows the series' name tells the cards apart."""
        cards: dict[str, dict[str, float]] = {}
        for key in frame.values:
            value = finite(frame, key)
            name = next((one for one in NAMES if key.startswith(one)), None)
            if value is not None and name is not None:
                cards.setdefault(key[len(name) :].lstrip("/@"), {})[name] = value
        verdicts: list[Verdict] = []
        for card_name, sample in cards.items():
            card = self._cards.setdefault(card_name, _Card())
            card.last.update(sample)
            verdicts += self._slowed(frame, card_name, card, sample)
            verdicts += self._shared(frame, card_name, card, sample)
        return verdicts

    # -- held back --------------------------------------------------------------------------------

    def _slowed(
        self, frame: StepFrame, name: str, card: _Card, sample: dict[str, float]
    ) -> list[Verdict]:
        sunk = self._clock_sunk(card, sample)
        if sunk is None and "gpu_throttle" not in sample:
            return []
        slowed = bool(sample.get("gpu_throttle")) or bool(sunk)
        card.slowed = [*card.slowed, slowed][-self.params.samples :]
        if slowed and card.slow_step is None:
            card.slow_step, card.slow_at = frame.step, frame.t
        if sum(card.slowed) >= self.params.bad_of:
            return [self._slow(frame, name, card, bool(sunk))]
        if not any(card.slowed):
            was_bad, card.slow_step = card.slow_step is not None, None
            return [said(self, frame, "calm", "info", "free", subject=name)] if was_bad else []
        return [said(self, frame, "calm", "info", "free", subject=name)] if not slowed else []

    def _clock_sunk(self, card: _Card, sample: dict[str, float]) -> bool | None:
        """Whether the clock lies below its own reference; None: no load, or no reference yet."""
        clock = sample.get("gpu_sm_clock_hz")
        if clock is None or sample.get("gpu_util", 0.0) < self.params.busy:
            return None
        if card.clock_ref is None:
            card.clocks = [*card.clocks, clock]
            if len(card.clocks) >= self.params.reference:
                card.clock_ref, card.clocks = median(card.clocks), []
            return None
        return clock < self.params.clock_share * card.clock_ref

    def _slow(self, frame: StepFrame, name: str, card: _Card, sunk: bool) -> Verdict:
        last, reference = card.last, card.clock_ref
        heat, clock = last.get("gpu_temperature_c"), last.get("gpu_sm_clock_hz")
        at = f" at {heat:.0f} C" if heat is not None else ""
        was = f", {reference / 1e9:.2f} GHz before" if reference else ""
        runs = f"; its clock is {clock / 1e9:.2f} GHz{was}" if clock is not None else ""
        who = f"GPU {name}" if name else "The GPU"
        numbers = [("samples held back", float(sum(card.slowed)), "", f"of {len(card.slowed)}")]
        if heat is not None:
            numbers.append(("temperature", heat, "C", ""))
        if clock is not None:
            numbers.append(("clock", clock / 1e9, "GHz", was.strip(", ")))
        evidence = Evidence(
            rule="clock_below_reference" if sunk else "throttled",
            version=self.version,
            value=float(sum(card.slowed)),
            threshold=float(self.params.bad_of),
            unit="samples",
            n=len(card.slowed),
            onset_step=card.slow_step,
            onset_at=card.slow_at,
            series=tuple(_key(one, name) for one in NAMES[:4]),
            numbers=tuple(numbers),
            summary=f"{who} was held back in {sum(card.slowed)} of the last {len(card.slowed)} "
            f"samples{at}{runs}.",
            causes=self._slow_causes(card),
            first_action="look at fans, air and power of the machine; lower the power limit rather "
            "than let the card swing.",
            clears=f"{self.params.samples + self.hold.calm} samples in a row that are not.",
        )
        title = f"{who} is held back"
        return said(
            self, frame, "bad", "warning", evidence.rule, subject=name, title=title,
            evidence=evidence,
        )  # fmt: skip

    def _slow_causes(self, card: _Card) -> tuple[Cause, ...]:
        heat, says = card.last.get("gpu_temperature_c"), bool(card.last.get("gpu_throttle"))
        hot = heat is not None and heat >= self.params.hot_c
        heated = Cause(
            "heat: the card slows itself to stay whole",
            signs_seen=int(hot) + int(says and hot),
            signs_of=2,
            why=f"{heat:.0f} C" if heat is not None else "its temperature is not known",
        )
        power = Cause(
            "the power supply: a brake signal of the machine, or a power limit that was lowered",
            signs_seen=int(not hot),
            signs_of=2,
            why="it is not hot" if not hot and heat is not None else "",
        )
        return (heated, power) if hot else (power, heated)

    # -- shared -----------------------------------------------------------------------------------

    def _shared(
        self, frame: StepFrame, name: str, card: _Card, sample: dict[str, float]
    ) -> list[Verdict]:
        held = sample.get("gpu_other_process")
        if held is None:
            return []
        subject = f"{name} shared".strip()
        shared = held > self.params.other_bytes
        card.shared = [*card.shared, shared][-self.params.samples :]
        if shared and card.shared_step is None:
            card.shared_step, card.shared_at = frame.step, frame.t
        if sum(card.shared) >= self.params.bad_of:
            return [self._other(frame, subject, name, card, held)]
        if not shared:
            was_bad = card.shared_step is not None
            if not any(card.shared):
                card.shared_step = None
            return [said(self, frame, "calm", "info", "alone", subject=subject)] if was_bad else []
        return []

    def _other(
        self, frame: StepFrame, subject: str, name: str, card: _Card, held: float
    ) -> Verdict:
        began_so = card.shared_step is not None and len(card.shared) < self.params.samples
        severity: Severity = "info" if began_so else "warning"
        who = f"GPU {name}" if name else "The GPU"
        evidence = Evidence(
            rule="other_process",
            version=self.version,
            value=held,
            threshold=self.params.other_bytes,
            unit="byte",
            n=len(card.shared),
            onset_step=card.shared_step,
            onset_at=card.shared_at,
            series=tuple(_key(one, name) for one in ("gpu_other_process", "gpu_memory_bytes")),
            numbers=(("held by others", held / MIB, "MiB", "usual: none"),),
            summary=f"{who} is not ours alone: other processes hold {held / MIB:,.0f} MiB on it in "
            f"{sum(card.shared)} of the last {len(card.shared)} samples.",
            causes=(
                Cause(
                    "another job, a notebook, or a process left over from an earlier run",
                    signs_seen=1,
                    signs_of=1,
                    why="memory of foreign processes on the card",
                ),
            ),
            first_action="nvidia-smi on that host; end what should not be there.",
            clears=f"{self.hold.calm} samples in a row without.",
        )
        title = "another process uses the GPU"
        return said(
            self, frame, "bad", severity, "other_process", subject=subject, title=title,
            evidence=evidence,
        )  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        return {name: asdict(card) for name, card in self._cards.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self._cards = {name: _Card(**card) for name, card in state.items()}


def _key(name: str, card: str) -> str:
    return f"{name}/{card}" if card else name
