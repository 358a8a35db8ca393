"""A resumed run whose loss does not go on where the run before it stood."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from monitor.detectors.base import Cause, Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.robust import MAD_TO_SD, bend_sd, median
from monitor.detectors.saying import finite, said

LOSS = "loss/train"


HELD_OUT = ("loss/probe", "loss/heldout")
NORM, UPDATE, GRADIENT = "weight_norm/total", "update_ratio/total", "grad_norm/total"


@dataclass(frozen=True, slots=True)
class Params:
    """``judged_steps``: the first 200 of an attempt belong to this rule. ``kept_points``: of the
    attempt before, so that the same step numbers are still there after a rewind; ``about_steps``:
    compared are steps so near to each other. ``last_points``: else with so many of its last.
    ``fewest_reference``, ``fewest_points``: medians of fewer losses are luck.
    ``jump_sd``, ``jump_share``, ``jump_nats``: above the reference by all three; memorised losses
    swing by less than the last. ``witness_sd`` is enough where
    something else says that it is not the same model. ``grown_points``: a small jump takes so many
    to show. ``recent_points``: back means that the median of so many lost half of the jump.
    ``held_share``, ``held_sd``: the fixed held-out loss is compared with its last value: above it
    by both, one value is enough. ``lr_ratio``: a learning rate that differs by
    more from the one at the same step is another schedule. ``repeat_share``: as in stale_data.
    ``norm_share``: weights of the same checkpoint have the same norm. ``update_ratio``: an
    optimizer without its state steps further at the same rate. ``times_off``: how near to a
    whole number a factor on loss and gradient must lie to be one of counting."""

    judged_steps: int = 200
    kept_points: int = 600
    about_steps: int = 32
    last_points: int = 64
    fewest_reference: int = 8
    fewest_points: int = 5
    jump_sd: float = 6.0
    jump_share: float = 0.03
    jump_nats: float = 0.03
    witness_sd: float = 4.0
    grown_points: int = 50
    recent_points: int = 8
    held_share: float = 0.03
    held_sd: float = 6.0
    kept_evals: int = 64
    noise_evals: int = 8
    lr_ratio: float = 1.3
    repeat_share: float = 0.05
    norm_share: float = 0.02
    update_ratio: float = 1.2
    grad_ratio: float = 4.0
    times_off: float = 0.15


@dataclass(slots=True)
class _Memory:
    """``past`` and ``own``: [step, loss, learning rate, norm, update, gradient] of the attempt
    before and of this; the latest known, 0 where none is. ``held``: [step, held-out loss]
    of the attempt before, ``held_now``: the first of this. ``size``: of the jump that was told."""

    attempt: str = ""
    first_step: int = 0
    first_at: float = 0.0
    resumed: bool = False
    own: list[list[float]] = field(default_factory=list)
    past: list[list[float]] = field(default_factory=list)
    held_key: str = ""
    held: list[list[float]] = field(default_factory=list)
    held_now: list[float] | None = None
    lr: float = 0.0
    norm: float = 0.0
    update: float = 0.0
    gradient: float = 0.0
    repeats: float = 0.0
    repeats_seen: bool = False
    open: bool = False
    told: bool = False
    size: float = 0.0


class ResumeJump(Detector):
    """Warns when the first losses of a resumed attempt lie above those of the one before it."""

    name: ClassVar[str] = "resume_jump"
    title: ClassVar[str] = "loss jumped at the resume"
    version: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = (
        LOSS, *HELD_OUT, "lr/*", "repeat_share", NORM, UPDATE, GRADIENT,
    )  # fmt: skip
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
        held = self._note_held(frame)
        loss = finite(frame, LOSS)
        if loss is not None:
            row = [float(frame.step), loss, memory.lr, memory.norm, memory.update, memory.gradient]
            memory.own.append(row)
            del memory.own[: -self.params.kept_points]
        if not memory.resumed or (loss is None and not held):
            return []
        if frame.step - memory.first_step >= self.params.judged_steps:
            return self._end(frame)
        return self._judge(frame)

    def _begin(self, frame: StepFrame) -> None:
        old = self._memory
        resumed = bool(old.attempt) and bool(old.own)
        self._memory = _Memory(
            frame.attempt, frame.step, frame.t, resumed, past=old.own if resumed else [],
            held_key=old.held_key, held=old.held if resumed else [],
        )  # fmt: skip

    def _note(self, frame: StepFrame) -> None:
        memory = self._memory
        rates = [v for key, v in frame.values.items() if key.startswith("lr/") and v >= 0.0]
        memory.lr = max(rates) if rates else memory.lr
        memory.norm = _known(finite(frame, NORM), memory.norm)
        memory.update = _known(finite(frame, UPDATE), memory.update)
        memory.gradient = _known(finite(frame, GRADIENT), memory.gradient)
        share = finite(frame, "repeat_share")
        if share is not None:
            memory.repeats_seen = True
            memory.repeats += 0.2 * (share - memory.repeats)

    def _note_held(self, frame: StepFrame) -> bool:
        """The first held-out loss of a resumed attempt is kept apart; True where it is this."""
        memory = self._memory
        for key in HELD_OUT:
            value = finite(frame, key) if memory.held_key in ("", key) else None
            if value is None:
                continue
            memory.held_key = key
            if memory.resumed and memory.held_now is None:
                memory.held_now = [float(frame.step), value]
                return True
            if not memory.resumed:
                memory.held.append([float(frame.step), value])
                del memory.held[: -self.params.kept_evals]
            return False
        return False

    def _end(self, frame: StepFrame) -> list[Verdict]:
        """After the first 200 steps the other rules have references of their own."""
        memory = self._memory
        memory.resumed, memory.past, memory.held = False, [], []
        was_open, memory.open = memory.open, False
        return [said(self, frame, "calm", "info", "settled_elsewhere")] if was_open else []

    def _reference(self) -> list[list[float]]:
        """The attempt before at the steps of this one; where it has none, its last ones."""
        memory, params = self._memory, self.params
        first = memory.own[-params.grown_points :][0][0] if memory.own else memory.first_step
        last = memory.own[-1][0] if memory.own else memory.first_step
        begin, end = first - params.about_steps, last + params.about_steps
        same = [p for p in memory.past if begin <= p[0] <= end]
        if len(same) >= params.fewest_reference and memory.past[-1][0] >= last:
            return same
        near = [p for p in memory.past if p[0] >= memory.first_step - params.judged_steps]
        return near[-params.last_points :]

    def _judge(self, frame: StepFrame) -> list[Verdict]:
        memory, params = self._memory, self.params
        reference = [point[1] for point in self._reference()]
        if len(reference) < params.fewest_reference:
            return []
        level = median(reference)
        recent = [point[1] for point in memory.own[-params.recent_points :]]
        if memory.open:
            if median(recent) - level > memory.size / 2 and memory.size > 0.0:
                return [self._bad(frame, level)]
            memory.open = False
            return [said(self, frame, "calm", "info", "goes_on")]
        if self._held_jumped() and memory.held_now is not None:
            memory.open = memory.told = True
            memory.size = max(params.jump_nats, params.jump_share * abs(level))
            return [self._bad(frame, level)]
        return self._judge_losses(frame, reference, level)

    def _judge_losses(
        self, frame: StepFrame, reference: list[float], level: float
    ) -> list[Verdict]:
        """The latest few, and all since the resume: a large jump shows at once, a small one as
        its points grow in number."""
        memory, params = self._memory, self.params
        if len(memory.own) < params.fewest_points:
            return []
        noise = MAD_TO_SD * median([abs(loss - level) for loss in reference])
        least = max(params.jump_nats, params.jump_share * abs(level))
        times = params.witness_sd if self._other_weights() else params.jump_sd
        # Once told, all since the resume must not tell it again while the latest are back.
        for count in (params.recent_points, *([] if memory.told else [params.grown_points])):
            own = [point[1] for point in memory.own[-count:]]
            sd = 1.25 * max(noise, 0.001 * abs(level)) * (1 / len(own) + 1 / len(reference)) ** 0.5
            above = median(own) - level
            if above > max(times * sd, least):
                memory.open, memory.told, memory.size = True, True, above
                return [self._bad(frame, level)]
        return [said(self, frame, "calm", "info", "goes_on")]

    def _held_before(self) -> list[float]:
        """Held-out losses of the attempt before, as far as the step of the first of this one."""
        now = self._memory.held_now
        return [value for step, value in self._memory.held if now is None or step <= now[0]]

    def _held_jumped(self) -> bool:
        memory, params, before = self._memory, self.params, self._held_before()
        if memory.held_now is None or len(before) < params.fewest_points:
            return False
        noise = bend_sd(np.asarray(before[-params.noise_evals :]))
        least = max(params.jump_nats, params.held_share * abs(before[-1]))
        return memory.held_now[1] - before[-1] > max(params.held_sd * noise, least)

    def _bad(self, frame: StepFrame, level: float) -> Verdict:
        memory, step = self._memory, self._memory.first_step
        now = median([point[1] for point in memory.own[-self.params.grown_points :]] or [level])
        numbers = [("train loss since the resume", now, "nats", f"before it {level:.3f}")]
        held = ""
        if memory.held_now is not None and (before := self._held_before()):
            then, first = before[-1], memory.held_now[1]
            numbers.append((memory.held_key, first, "nats", f"before it {then:.3f}"))
            held = f" {memory.held_key} is {first:.3f}, it was {then:.3f}."
        numbers.append(("steps since the resume", float(frame.step - step), "", "judged for 200"))
        evidence = Evidence(
            rule="resume_jump",
            version=self.version,
            value=now,
            threshold=level + memory.size / 2,
            unit="nats",
            n=len(memory.own),
            onset_step=step,
            onset_at=memory.first_at,
            series=(LOSS, *HELD_OUT, "lr/*", "repeat_share", NORM, UPDATE),
            numbers=tuple(numbers),
            summary=f"The run was resumed at step {step:,}; its train loss is {now:.3f} where the "
            f"attempt before had {level:.3f}.{held}",
            causes=self._causes(now / level if level > 0.0 else 0.0),
            first_action="check that optimizer state, learning-rate schedule and data position "
            "were loaded with the weights.",
            clears="five points in a row near the loss of the attempt before.",
        )
        return said(self, frame, "bad", "warning", "resume_jump", evidence=evidence)

    # -- causes ------------------------------------------------------------------------------------

    def _causes(self, times: float) -> tuple[Cause, ...]:
        memory, params = self._memory, self.params
        before = self._nearest(memory.first_step)
        rate = max((point[2] for point in memory.own), default=memory.lr)
        found: list[Cause] = []
        if before[2] > 0.0 and rate > params.lr_ratio * before[2]:
            text = f"the learning rate is x{rate / before[2]:.3g} of what it was at this step"
            found.append(Cause(text, 2, 2, f"{before[2]:.3g} before, {rate:.3g} now"))
        found += [*self._counted(times), *self._loaded(before, bool(found))]
        if memory.repeats > params.repeat_share:
            text = "the data began again: rows are served that the model has seen"
            found.append(Cause(text, 1, 2, f"{100 * memory.repeats:.0f} % repeats since"))
        if not found:
            same = before[2] > 0.0 and rate > 0.0
            text = "the optimizer's state was lost, or the data order is another"
            why = "learning rate and weights are as before" if same else "nothing else is known"
            found.append(Cause(text, 1 if same else 0, 2, why))
        return tuple(sorted(found, key=lambda cause: -cause.signs_seen / cause.signs_of))

    def _counted(self, times: float) -> list[Cause]:
        """Loss and gradient larger by one whole number, the probe as before: counted so often."""
        params, now = self.params, round(times)
        gradients = [point[5] for point in self._memory.own if point[5] > 0.0]
        usual = [point[5] for point in self._memory.past[-params.last_points :] if point[5] > 0.0]
        if now < 2 or abs(times - now) > params.times_off * now or self._held_jumped():
            return []
        grown = median(gradients) / median(usual) if gradients and usual else 0.0
        agrees = abs(grown - now) < 2 * params.times_off * now
        text = f"the loss is counted {now} times: micro-batches are summed, not averaged"
        why = f"loss x{times:.2f}, gradient norm x{grown:.2f}" if grown else f"loss x{times:.2f}"
        return [Cause(text, 2 if agrees else 1, 2, why)]

    def _loaded(self, before: list[float], other_rate: bool) -> list[Cause]:
        """Other weights, or an optimizer that has forgotten its state."""
        memory, params = self._memory, self.params
        found = []
        if self._other_weights():
            norm = next(point[3] for point in memory.own if point[3] > 0.0)
            why = f"|W| was {before[3]:.4g} before, now {norm:.4g}"
            text = "another checkpoint was loaded, older or not of this run"
            found.append(Cause(text, 2, 2, why))
        updates = [point[4] for point in memory.own if point[4] > 0.0]
        wild = max((point[5] for point in memory.own), default=0.0)
        usual = median([p[5] for p in memory.past[-params.last_points :] if p[5] > 0.0] or [0.0])
        further = before[4] > 0.0 and max(updates, default=0.0) > params.update_ratio * before[4]
        shaken = usual > 0.0 and wild > params.grad_ratio * usual
        if (further or shaken) and not other_rate:
            why = f"updates x{max(updates) / before[4]:.2f}" if further else ""
            why += (", " if why and shaken else "") + (f"gradients x{wild / usual:.1f}" * shaken)
            text = "the optimizer's state was lost: its first steps went astray"
            found.append(Cause(text, 1 + (further and shaken), 2, why))
        return found

    def _other_weights(self) -> bool:
        """Whether the norm of the weights is another than that of the step before the resume."""
        memory = self._memory
        before = self._nearest(memory.first_step)[3]
        now = next((point[3] for point in memory.own if point[3] > 0.0), 0.0)
        if before <= 0.0 or now <= 0.0:
            return False
        grew = self._norm_moves()
        return abs(now - before) > self.params.norm_share * before + 2.0 * grew

    def _norm_moves(self) -> float:
        """How far the norm went between the last two of its samples before the resume."""
        norms = [point[3] for point in self._memory.past if point[3] > 0.0]
        earlier = next((norm for norm in reversed(norms) if norm != norms[-1]), 0.0)
        return abs(norms[-1] - earlier) if earlier else 0.0

    def _nearest(self, step: int) -> list[float]:
        past = [point for point in self._memory.past if point[0] <= step] or self._memory.past
        return past[-1] if past else [0.0] * 6

    def snapshot(self) -> dict[str, Any]:
        return {"memory": asdict(self._memory)}

    def restore(self, state: dict[str, Any]) -> None:
        self._memory = _Memory(**state["memory"])


def _known(now: float | None, before: float) -> float:
    return before if now is None else now
