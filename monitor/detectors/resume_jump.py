"""A resumed run whose loss does not go on where the run before it stood."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import Cause, Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.robust import MAD_TO_SD, median
from monitor.detectors.saying import finite, said

LOSS = "loss/train"


@dataclass(frozen=True, slots=True)
class Params:
    """``judged_steps``: the first 200 of an attempt belong to this rule. ``kept_points``: of the
    attempt before, so that the same step numbers are still there after a rewind; ``about_steps``:
    compared are steps so near to each other.
    ``fewest_reference``, ``fewest_points``: medians of fewer losses are luck.
    ``jump_sd``, ``jump_share``: above the reference by both. ``recent_points``: back means that
    the median of so many is within half of that. ``lr_ratio``: a learning rate that differs by
    more from the one at the same step is another schedule. ``repeat_share``: as in stale_data.
    ``norm_share``: weights of the same checkpoint have the same norm."""

    judged_steps: int = 200
    kept_points: int = 600
    about_steps: int = 32
    fewest_reference: int = 8
    fewest_points: int = 5
    jump_sd: float = 6.0
    jump_share: float = 0.03
    recent_points: int = 8
    lr_ratio: float = 1.3
    repeat_share: float = 0.05
    norm_share: float = 0.02


@dataclass(slots=True)
class _Memory:
    """``past`` and ``own``: [step, loss, learning rate, norm] of the attempt before and of this.

    Learning rate and weight norm are the latest known, 0 where none is.
    """

    attempt: str = ""
    first_step: int = 0
    first_at: float = 0.0
    resumed: bool = False
    own: list[list[float]] = field(default_factory=list)
    past: list[list[float]] = field(default_factory=list)
    lr: float = 0.0
    norm: float = 0.0
    repeats: float = 0.0
    repeats_seen: bool = False
    open: bool = False


class ResumeJump(Detector):
    """Warns when the first losses of a resumed attempt lie above those of the one before it."""

    name: ClassVar[str] = "resume_jump"
    title: ClassVar[str] = "loss jumped at the resume"
    needs: ClassVar[tuple[str, ...]] = (LOSS, "lr/*", "repeat_share", "weight_norm/total")
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=5)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Compare with the attempt before at the same steps, or with its last ones."""
        if frame.attempt != self._memory.attempt:
            self._begin(frame)
        memory = self._memory
        self._note(frame)
        loss = finite(frame, LOSS)
        if loss is None:
            return []
        memory.own.append([float(frame.step), loss, memory.lr, memory.norm])
        del memory.own[: -self.params.kept_points]
        if not memory.resumed:
            return []
        if frame.step - memory.first_step >= self.params.judged_steps:
            return self._end(frame)
        return self._judge(frame)

    def _begin(self, frame: StepFrame) -> None:
        old = self._memory
        resumed = bool(old.attempt) and bool(old.own)
        self._memory = _Memory(
            frame.attempt, frame.step, frame.t, resumed, past=old.own if resumed else [],
        )  # fmt: skip

    def _note(self, frame: StepFrame) -> None:
        memory = self._memory
        rates = [v for key, v in frame.values.items() if key.startswith("lr/") and v >= 0.0]
        memory.lr = max(rates) if rates else memory.lr
        norm, share = finite(frame, "weight_norm/total"), finite(frame, "repeat_share")
        memory.norm = norm if norm is not None else memory.norm
        if share is not None:
            memory.repeats_seen = True
            memory.repeats += 0.2 * (share - memory.repeats)

    def _end(self, frame: StepFrame) -> list[Verdict]:
        """After the first 200 steps the other rules have references of their own."""
        memory = self._memory
        memory.resumed, memory.past = False, []
        was_open, memory.open = memory.open, False
        return [said(self, frame, "calm", "info", "settled_elsewhere")] if was_open else []

    def _reference(self) -> list[list[float]]:
        """The attempt before at the steps of this one; where it has none, its last 200 steps."""
        memory, params = self._memory, self.params
        begin = memory.own[-params.recent_points :][0][0] - params.about_steps
        end = memory.own[-1][0] + params.about_steps
        same = [p for p in memory.past if begin <= p[0] <= end]
        if len(same) >= params.fewest_reference and memory.past[-1][0] >= memory.own[-1][0]:
            return same
        return [p for p in memory.past if p[0] >= memory.first_step - params.judged_steps]

    def _judge(self, frame: StepFrame) -> list[Verdict]:
        memory, params = self._memory, self.params
        reference = [point[1] for point in self._reference()]
        recent = [point[1] for point in memory.own[-params.recent_points :]]
        if len(reference) < params.fewest_reference or len(recent) < params.fewest_points:
            return []
        level = median(reference)
        noise = MAD_TO_SD * median([abs(loss - level) for loss in reference])
        sd = max(noise, 0.001 * abs(level)) / len(recent) ** 0.5 * 1.25
        limit = max(params.jump_sd * sd, params.jump_share * abs(level))
        above = median(recent) - level
        if above > (limit / 2 if memory.open else limit):
            memory.open = True
            return [self._bad(frame, level, median(recent), limit)]
        memory.open = False
        return [said(self, frame, "calm", "info", "goes_on")]

    def _bad(self, frame: StepFrame, level: float, now: float, limit: float) -> Verdict:
        memory, step = self._memory, self._memory.first_step
        evidence = Evidence(
            rule="resume_jump",
            version=self.version,
            value=now,
            threshold=level + limit,
            unit="nats",
            n=len(memory.own),
            onset_step=step,
            onset_at=memory.first_at,
            series=(LOSS, "lr/*", "repeat_share", "weight_norm/total"),
            numbers=(
                ("train loss since the resume", now, "nats", f"before it {level:.3f}"),
                ("steps since the resume", float(frame.step - step), "", "judged for 200"),
            ),
            summary=f"The run was resumed at step {step:,}; its train loss is {now:.3f} where the "
            f"attempt before had {level:.3f}.",
            causes=self._causes(),
            first_action="check that optimizer state, learning-rate schedule and data position "
            "were loaded with the weights.",
            clears="five points in a row near the loss of the attempt before.",
        )
        return said(self, frame, "bad", "warning", "resume_jump", evidence=evidence)

    def _causes(self) -> tuple[Cause, ...]:
        memory, params = self._memory, self.params
        found: list[Cause] = []
        before = self._nearest(memory.first_step)
        rate = memory.own[-1][2]
        if before[2] > 0.0 and rate > params.lr_ratio * before[2]:
            text = f"the learning rate is x{rate / before[2]:.3g} of what it was at this step"
            found.append(Cause(text, 2, 2, f"{before[2]:.3g} before, {rate:.3g} now"))
        first_norm = next((p[3] for p in memory.own if p[3] > 0.0), 0.0)
        if before[3] > 0.0 and abs(first_norm - before[3]) > params.norm_share * before[3] > 0.0:
            if first_norm > 0.0:
                why = f"|W| was {before[3]:.4g} at this step, now {first_norm:.4g}"
                found.append(Cause("another checkpoint was loaded", 2, 2, why))
        if memory.repeats > params.repeat_share:
            text = "the data began again: rows are served that the model has seen"
            found.append(Cause(text, 1, 2, f"{100 * memory.repeats:.0f} % repeats since"))
        if not found:
            same = before[2] > 0.0 and rate > 0.0
            text = "the optimizer's state was lost, or the data order is another"
            why = "learning rate and weights are as before" if same else "nothing else is known"
            found.append(Cause(text, 1 if same else 0, 2, why))
        return tuple(sorted(found, key=lambda cause: -cause.signs_seen / cause.signs_of))

    def _nearest(self, step: int) -> list[float]:
        past = [point for point in self._memory.past if point[0] <= step] or self._memory.past
        return past[-1] if past else [0.0, 0.0, 0.0, 0.0]

    def snapshot(self) -> dict[str, Any]:
        return {"memory": asdict(self._memory)}

    def restore(self, state: dict[str, Any]) -> None:
        self._memory = _Memory(**state["memory"])
