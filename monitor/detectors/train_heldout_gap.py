"""Train and held-out loss part ways: over-fitting, or data that is too easy to be new."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from monitor.detectors.base import (
    WARMUP_STEPS,
    Cause,
    Detector,
    Evidence,
    Hold,
    Judgement,
    RunFacts,
    Severity,
    StepFrame,
    Verdict,
)
from monitor.detectors.companions import SLOW_NEEDS, CompanionParams, Companions
from monitor.detectors.evaluation_jump import EvaluationJump, JumpParams, changed
from monitor.detectors.gate import Gate
from monitor.detectors.leaked_labels import LeakParams, floor, leaked
from monitor.detectors.robust import MAD_TO_SD, bend_sd, median
from monitor.detectors.saying import said

TRAIN = "loss/train"
HELD_OUT = ("loss/heldout", "loss/probe")
NO_TOP1 = -1.0


@dataclass(frozen=True, slots=True)
class Params:
    """``evals``: a held-out curve is judged from its eighth value on. ``rise_nats``,
    ``rise_share``, ``rise_sd``: above its best by all three the held-out loss has turned; sound
    fine-tunes end 1 % above their best. ``evals_in_a_row``: three. ``train_share``: and the train
    loss went on falling meanwhile, by 1 % at least. ``jump_nats``, ``jump_sd``: a gap that opens
    within two evaluations by more than both, while the train loss falls ``train_fell_nats``.
    ``jump_past``: the evaluations after the warm-up whose steps say what is usual, at least
    ``jump_fewest``. ``jump_evals``: it stays open for so many: one evaluation after few or easy
    batches is luck. ``jump_points``: batches the train loss between two must be the median of.
    ``learnt_top1``, ``learnt_share``: a held-out loss that never fell is no over-fitting: the model
    memorises, and may grok yet. ``metric_gain``: accuracy that rose so much since the loss turned:
    worse by loss, not by metric. ``kept_evals``: looked back on."""

    evals: int = 8
    rise_nats: float = 0.03
    rise_share: float = 0.02
    rise_sd: float = 4.0
    evals_in_a_row: int = 3
    train_share: float = 0.01
    jump_nats: float = 0.15
    jump_sd: float = 5.0
    train_fell_nats: float = 0.10
    jump_evals: int = 2
    jump_past: int = 25
    jump_fewest: int = 3
    jump_points: int = 16
    train_points: int = 50
    learnt_top1: float = 0.30
    learnt_share: float = 0.15
    metric_gain: float = 0.02
    kept_evals: int = 32
    first_points: int = 8
    companions: CompanionParams = field(default_factory=CompanionParams)
    evaluation: JumpParams = field(default_factory=JumpParams)
    leak: LeakParams = field(default_factory=LeakParams)


@dataclass(frozen=True, slots=True)
class _Eval:
    """One evaluation and the batches since the one before. ``top1``: -1 where it is not told."""

    step: int
    t: float
    held: float
    train: float
    points: int
    top1: float

    @property
    def gap(self) -> float:
        return self.held - self.train


@dataclass(slots=True)
class _Memory:
    first: list[float] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    evals: list[_Eval] = field(default_factory=list)
    seen: int = 0
    key: str = ""
    best: _Eval | None = None
    above: int = 0
    top1_best: float = NO_TOP1
    open: str = ""
    onset_step: int | None = None
    onset_at: float | None = None
    gap_before: float = 0.0


class TrainHeldoutGap(Detector):
    """Warns when the held-out loss turns while the train loss falls, or their gap jumps open."""

    name: ClassVar[str] = "train_heldout_gap"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "train and held-out loss part"
    needs: ClassVar[tuple[str, ...]] = (
        TRAIN, *HELD_OUT, "loss/heldout@*", "loss/probe@*", "top1/probe", "top1/probe@*",
        *SLOW_NEEDS,
    )  # fmt: skip
    kinds: ClassVar[tuple[str, ...]] = ("pretrain", "continued", "sft", "other")
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=2)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._facts = facts
        self._gate = Gate()
        self._companions = Companions(self.params.companions)
        self._memory = _Memory()
        self._jump = EvaluationJump()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge each evaluation against the batches since the one before."""
        self._companions.see(frame)
        entered, mixed = self._gate.enter(frame), self._companions.mixed_at(frame.step)
        if entered:
            self._jump.rewind(frame.step)
        if mixed:
            self._jump = EvaluationJump()
        if entered or mixed:
            self._memory = _Memory(first=self._memory.first)
        self._note_train(frame)
        verdicts = self._judge_evaluation(frame)
        held = self._held(frame)
        if held is None or not self._memory.train:
            return verdicts
        self._note_eval(frame, held)
        self._memory.above = self._memory.above + 1 if self._has_turned() else 0
        warm = self._gate.steps_to_go(frame.step)
        if not warm and (self._leaks() or self._memory.open == "leaked"):
            return [*verdicts, *self._judge_leak(frame)]
        if warm or self._memory.seen < self.params.evals:
            return [*verdicts, self._too_early(frame, warm)]
        return verdicts + self._judge(frame)

    def _judge_evaluation(self, frame: StepFrame) -> list[Verdict]:
        """Whether the user's validation parts from the probe, which has the same weights."""
        jump, was_open = self._jump, self._jump.size > 0.0
        if not jump.see(frame, self.params.evaluation) or self._gate.steps_to_go(frame.step):
            return []
        if jump.judge(self.params.evaluation):
            return [said(
                self, frame, "bad", "warning", "evaluation_changed", subject="evaluation",
                title="the evaluation changed", evidence=changed(jump, self.version),
            )]  # fmt: skip
        calm = said(self, frame, "calm", "info", "agree", subject="evaluation")
        return [calm] if was_open else []

    def _leaks(self) -> bool:
        """Whether fresh rows are predicted far better than held-out ones."""
        params, evals = self.params.leak, self._memory.evals
        late = evals[-params.evals_in_a_row :]
        if len(evals) <= len(late) or not self._companions.are_rows_fresh(params.repeats):
            return False
        return all(
            one.points >= params.points and one.train < floor(one.held, params) for one in late
        )

    def _judge_leak(self, frame: StepFrame) -> list[Verdict]:
        memory, params = self._memory, self.params.leak
        alike = [e for e in memory.evals if e.train > params.together_share * e.held]
        if memory.open == "leaked" and alike and alike[-1] is memory.evals[-1]:
            memory.open, memory.onset_step, memory.onset_at = "", None, None
            return [self._verdict(frame, "calm", "info", "together", None)]
        if memory.open != "leaked":
            first = alike[-1] if alike else memory.evals[0]
            memory.open, memory.onset_step, memory.onset_at = "leaked", first.step + 1, first.t
        now, onset = memory.evals[-1], memory.onset_step or frame.step
        at = memory.onset_at if memory.onset_at is not None else frame.t
        evidence = leaked(
            onset, at, now.held, now.train, memory.seen, self.version, self.params.leak
        )
        return [said(
            self, frame, "bad", "warning", "leaked_labels", title="the labels leak",
            evidence=evidence,
        )]  # fmt: skip

    def _note_train(self, frame: StepFrame) -> None:
        loss, memory = frame.values.get(TRAIN), self._memory
        if loss is None or not math.isfinite(loss):
            return
        if len(memory.first) < self.params.first_points:
            memory.first.append(loss)
        memory.train.append(loss)
        del memory.train[: -self.params.train_points]

    def _held(self, frame: StepFrame) -> float | None:
        """The held-out loss of this step: one series all along, or the mean over its sources."""
        for key in HELD_OUT:
            value = _mean(frame, key) if self._memory.key in ("", key) else None
            if value is not None:
                self._memory.key = key
                return value
        return None

    def _note_eval(self, frame: StepFrame, held: float) -> None:
        memory, top1 = self._memory, _mean(frame, "top1/probe")
        top1 = NO_TOP1 if top1 is None else top1
        now = _Eval(
            frame.step, frame.t, held, median(memory.train), len(memory.train), top1
        )  # fmt: skip
        memory.evals.append(now)
        del memory.evals[: -self.params.kept_evals]
        memory.seen += 1
        memory.top1_best = max(memory.top1_best, top1)
        if memory.best is None or held < memory.best.held:
            memory.best = now
        if len(memory.train) >= self.params.jump_points:
            memory.train = []  # the next evaluation has batches of its own

    def _too_early(self, frame: StepFrame, warm: int) -> Verdict:
        memory, missing = self._memory, max(self.params.evals - self._memory.seen, 0)
        span = memory.evals[-1].step - memory.evals[0].step
        steps = max(warm, missing * span // max(len(memory.evals) - 1, 1), 1)
        evidence = Evidence(
            "warm_up", self.version, n=memory.seen, series=(memory.key,),
            summary=f"needs about {steps:,} more steps ({missing} evaluations)",
        )  # fmt: skip
        return self._verdict(frame, "cannot_tell", "info", "warm_up", evidence)

    # -- judging ---------------------------------------------------------------------------------

    def _judge(self, frame: StepFrame) -> list[Verdict]:
        memory = self._memory
        turned = memory.above > 0
        if memory.above >= self.params.evals_in_a_row:
            if memory.open != "overfit":
                self._mark_turn()
            return [self._bad(frame, "overfit")]
        if memory.open != "overfit" and self._has_jumped():
            return [self._bad(frame, memory.open)]
        if memory.open and self._still_open(turned):
            return [self._bad(frame, memory.open)]
        if turned:
            return []
        memory.open, memory.onset_step, memory.onset_at = "", None, None
        return [self._verdict(frame, "calm", "info", "together", None)]

    def _rise_limit(self) -> float:
        """How far above its best the held-out loss must be to have turned."""
        params, best = self.params, self._memory.best
        noise = bend_sd(np.asarray([one.held for one in self._memory.evals[-16:]]))
        level = best.held if best else 0.0
        return max(params.rise_nats, params.rise_share * level, params.rise_sd * noise)

    def _has_turned(self) -> bool:
        memory, best = self._memory, self._memory.best
        if best is None:
            return False
        now = memory.evals[-1]
        fell = now.train < best.train - self.params.train_share * abs(best.train)
        return fell and now.held > best.held + self._rise_limit()

    def _mark_turn(self) -> None:
        """It turned after its best evaluation: as far as is remembered."""
        memory = self._memory
        best = memory.best or memory.evals[0]
        later = [one for one in memory.evals if one.step > best.step]
        begin = best if later else memory.evals[-1]
        memory.open, memory.onset_step, memory.onset_at = "overfit", begin.step + 1, begin.t
        memory.gap_before = best.gap

    def _has_jumped(self) -> bool:
        """The gap opened within two evaluations, by a fall of the train loss, and stays open."""
        params, evals, stays = self.params, self._memory.evals, self.params.jump_evals
        if len(evals) < params.evals or evals[-1].points < params.jump_points:
            return False
        if not self._has_learnt():
            return False
        warm = (self._gate.run_first_step or 0) + WARMUP_STEPS
        past = [one for one in evals[: -1 - stays] if one.step >= warm][-params.jump_past :]
        steps = [b.gap - a.gap for a, b in zip(past, past[1:], strict=False)]
        if len(steps) < params.jump_fewest:
            return False
        usual = median(steps)
        sd = max(MAD_TO_SD * median([abs(step - usual) for step in steps]), abs(usual), 0.01)
        limit = max(params.jump_nats, params.jump_sd * sd)
        for back in (stays, stays + 1):
            before = evals[-1 - back]
            later = [(one, back - i) for i, one in enumerate(reversed(evals[-stays:]))]
            if all(
                one.gap - before.gap - count * usual > limit
                and before.train - one.train > params.train_fell_nats
                for one, count in later
            ):
                self._mark_jump(before)
                return True
        return False

    def _mark_jump(self, before: _Eval) -> None:
        memory, params, best = self._memory, self.params, self._memory.best
        level = best.held if best else 0.0
        if memory.evals[-1].held > level + max(params.rise_nats, params.rise_share * level):
            self._mark_turn()  # the held-out loss went up as well: more than easy batches
        elif not memory.open:
            memory.open, memory.onset_step, memory.onset_at = "jump", before.step + 1, before.t
            memory.gap_before = before.gap

    def _still_open(self, turned: bool) -> bool:
        memory = self._memory
        if memory.open == "jump":
            return memory.evals[-1].gap > memory.gap_before + self.params.jump_nats / 2
        best = memory.best or memory.evals[-1]
        return turned or memory.evals[-1].held > best.held + self._rise_limit() / 2

    def _has_learnt(self) -> bool:
        """Whether the held-out loss ever fell: where it never did, the model memorises."""
        memory, best = self._memory, self._memory.best
        if memory.top1_best >= self.params.learnt_top1:
            return True
        return best is not None and best.held < (1.0 - self.params.learnt_share) * max(memory.first)

    def _better_by_metric(self) -> bool:
        best = self._memory.best
        latest = [one.top1 for one in self._memory.evals[-3:] if one.top1 >= 0.0]
        if best is None or best.top1 < 0.0 or not latest:
            return False
        return median(latest) > best.top1 + self.params.metric_gain

    # -- words -----------------------------------------------------------------------------------

    def _bad(self, frame: StepFrame, reason: str) -> Verdict:
        memory, now = self._memory, self._memory.evals[-1]
        best = memory.best or now
        learnt, better = self._has_learnt(), self._better_by_metric()
        severity: Severity = "warning" if learnt and not better else "info"
        onset = memory.onset_step if memory.onset_step is not None else frame.step
        opened = f"the gap opened from {memory.gap_before:.2f} to {now.gap:.2f} nats"
        if reason == "overfit":
            text = (
                f"Held-out loss {now.held:.3f} rose above its best ({best.held:.3f} at step "
                f"{best.step:,}) while the train loss fell from {best.train:.3f} to "
                f"{now.train:.3f}: {opened}."
            )
        else:
            text = f"Train loss fell to {now.train:.3f}, the held-out loss did not: {opened}."
        if not learnt:
            text += " The held-out loss never fell: the model memorises; it may generalise yet."
        elif better:
            text += f" Worse by loss, not by accuracy ({100 * now.top1:.1f} % and rising)."
        evidence = Evidence(
            rule=reason,
            version=self.version,
            value=now.held - best.held if reason == "overfit" else now.gap - memory.gap_before,
            threshold=self._rise_limit() if reason == "overfit" else self.params.jump_nats,
            unit="nats",
            n=memory.seen,
            onset_step=onset,
            onset_at=memory.onset_at,
            series=(TRAIN, memory.key, "top1/probe", "repeat_share"),
            numbers=(
                ("held-out loss", now.held, "nats", f"best {best.held:.3f}"),
                ("train loss", now.train, "nats", f"was {best.train:.3f} then"),
            ),
            summary=text,
            causes=self._causes(onset, reason),
            first_action=f"the checkpoint nearest to step {best.step:,} is the better model; look "
            "for repeated data, and for too many passes over too little.",
            clears="two evaluations with the held-out loss near its best, or the gap closed again.",
        )
        return self._verdict(frame, "bad", severity, reason, evidence)

    def _causes(self, onset: int, reason: str) -> tuple[Cause, ...]:
        seen = [c for c in self._companions.causes(onset) if c.signs_seen]
        data = [c for c in seen if "stale" in c.text or "mix" in c.text or "resumed" in c.text]
        if data:
            return tuple(data)
        if reason == "jump":
            text = "batches became easy all at once: a template, a leak of held-out data, copies"
            why = "the train loss fell at once, no repeats were counted"
            return (Cause(text, 1, 2, why),)
        epochs = float(self._facts.facts.get("declared_epochs") or 1.0)
        text = "the model over-fits: more passes over the data than it has to teach"
        why = f"{epochs:g} epochs declared" if epochs > 1.0 else "no repeats were counted"
        return (Cause(text, 2 if epochs > 1.0 else 1, 2, why),)

    def _verdict(
        self, frame: StepFrame, judgement: Judgement, severity: Severity, reason: str,
        evidence: Evidence | None,
    ) -> Verdict:  # fmt: skip
        return Verdict(
            self.name, "", judgement, severity, reason, frame.step, frame.t, frame.attempt,
            self.title, evidence,
        )  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "companions": self._companions.snapshot(),
            "memory": asdict(self._memory),
            "jump": self._jump.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._companions.restore(state["companions"])
        self._jump = EvaluationJump(**state["jump"])
        memory = dict(state["memory"])
        memory["evals"] = [_Eval(**one) for one in memory["evals"]]
        memory["best"] = _Eval(**memory["best"]) if memory["best"] else None
        self._memory = _Memory(**memory)


def _mean(frame: StepFrame, key: str) -> float | None:
    """A series of this step, or the mean over its sources; None where there is neither."""
    value = frame.values.get(key)
    if value is not None:
        return value if math.isfinite(value) else None
    parts = [v for name, v in frame.values.items() if name.startswith(f"{key}@")]
    parts = [part for part in parts if math.isfinite(part)]
    return sum(parts) / len(parts) if parts else None
