"""Dead update: step() changed nothing, or less and less, though training seems to go on."""

from __future__ import annotations

from dataclasses import asdict
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
from monitor.detectors.gate import Gate, LrWatch
from monitor.detectors.saying import by_group, finite, said
from monitor.detectors.update_shares import Group, Params

SPARSE = frozenset({"emb", "emb_head", "head", "router"})
"""Rows of these may rightly go without an update: tokens (or experts) that did not occur."""


class DeadUpdate(Detector):
    """Critical where a step changes nothing at all; a warning for a part of the model."""

    name: ClassVar[str] = "dead_update"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "updates that change nothing"
    needs: ClassVar[tuple[str, ...]] = (
        "update_ratio/*", "update_coverage/*", "update_skipped", "lr/*", "lr_scheduled/*",
        "grad_norm/*",
    )  # fmt: skip
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=2)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._facts = facts
        self._gate = Gate()
        self._lr = LrWatch()
        self._groups: dict[str, Group] = {}
        self._grads: dict[str, float] = {}
        self._zero_lr = 0
        self._off = 0
        self._bad: list[str] = []
        self._skipped: list[list[float]] = []
        self._skips_since: list[float] | None = None

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge the learning rate of every step, and the updates where they were measured."""
        if self._gate.enter(frame):
            self._groups, self._grads, self._zero_lr, self._off = {}, {}, 0, 0
            self._skipped, self._skips_since = [], None
        self._lr.see(frame)
        self._grads.update(by_group(frame, "grad_norm"))
        verdicts = [*self._rate(frame), *self._schedule(frame)]
        skipped = bool(finite(frame, "update_skipped"))
        verdicts += self._skips(frame, skipped)
        if skipped:
            return verdicts
        dead = "learning rate" in self._bad
        if not dead:
            verdicts += self._updates(frame)
        coverage = by_group(frame, "update_coverage")
        return verdicts if dead else verdicts + self._coverage(frame, coverage)

    # -- the learning rate ----------------------------------------------------------------------

    def _rate(self, frame: StepFrame) -> list[Verdict]:
        rates = by_group(frame, "lr")
        if not rates:
            return []
        if max(rates.values()) > 0.0:
            self._zero_lr = 0
            return self._over(frame, "learning rate")
        self._zero_lr += 1
        if self._zero_lr < self.params.zero_lr_steps or not self._unplanned_zero(frame.step):
            return []
        onset = frame.step - self._zero_lr + 1 if self._lr.cut_step is None else self._lr.cut_step
        was = f"it was {self._lr.peak:.2g}" if self._lr.peak else "it never was above 0"
        cause = Cause("the scheduler is at its end or was set to 0", 1, 1, f"{was} at its peak")
        evidence = Evidence(
            rule="zero_learning_rate",
            version=self.version,
            value=0.0,
            threshold=0.0,
            n=self._zero_lr,
            onset_step=onset,
            onset_at=self._lr.cut_at if self._lr.cut_at is not None else frame.t,
            series=("lr/*", "update_ratio/*", "loss/train"),
            numbers=(("learning rate", 0.0, "", was),),
            summary=f"The learning rate is 0 since step {onset:,} ({was}), before the planned end. "
            "Steps are made and paid for, and nothing is learnt; the loss only shows its noise.",
            causes=(cause,),
            first_action="look at the scheduler's total steps and at what a resume restored.",
            clears="a learning rate above 0.",
        )
        return [self._open(frame, "learning rate", "critical", "zero_learning_rate", evidence)]

    def _unplanned_zero(self, step: int) -> bool:
        planned = self._facts.facts.get("planned_steps")
        if self._lr.peak < self.params.rate_floor:
            return False
        if planned:
            return step < self.params.end_share * float(planned)
        return self._lr.was_cut

    def _schedule(self, frame: StepFrame) -> list[Verdict]:
        planned, applied = by_group(frame, "lr_scheduled"), by_group(frame, "lr")
        gaps = {
            group: applied[group] / rate - 1.0
            for group, rate in planned.items()
            if group in applied and rate > 0.0
        }
        if not gaps:
            return []
        group = max(gaps, key=lambda one: abs(gaps[one]))
        off = gaps[group]
        if abs(off) <= self.params.schedule_off:
            self._off = 0
            return self._over(frame, "schedule")
        self._off += 1
        if self._off < self.params.schedule_samples:
            return []
        evidence = Evidence(
            rule="schedule",
            version=self.version,
            value=off,
            threshold=self.params.schedule_off,
            unit="relative",
            n=self._off,
            onset_step=frame.step - self._off + 1,
            series=(f"lr/{group}", f"lr_scheduled/{group}"),
            numbers=(("applied rate", applied[group], "", f"scheduled: {planned[group]:.3g}"),),
            summary=f"The rate applied to {group} is {100 * off:+.1f} % off the schedule "
            f"({applied[group]:.3g} against {planned[group]:.3g}).",
            causes=(
                Cause(
                    "the optimizer's groups were replaced after the scheduler was made, or a "
                    "resume restored one and not the other",
                    0,
                    1,
                    "unexplained by other signals",
                ),
            ),  # fmt: skip
            first_action="compare optimizer.param_groups with scheduler.get_last_lr().",
            clears="the two within 1 %.",
        )
        return [self._open(frame, "schedule", "warning", "off_schedule", evidence)]

    # -- steps without an update ------------------------------------------------------------------

    def _skips(self, frame: StepFrame, skipped: bool) -> list[Verdict]:
        """The share of the last steps at which no optimizer had anything to do."""
        if not skipped and not self._skipped:
            return []  # nothing was ever skipped: most runs
        if not skipped and not by_group(frame, "lr"):
            return []
        params = self.params
        self._skipped.append([frame.step, frame.t, int(skipped)])
        del self._skipped[: -params.skipped_steps]
        if self._gate.steps_to_go(frame.step):
            return []
        share = sum(one[2] for one in self._skipped) / params.skipped_steps
        if share < params.skipped_share and not (
            "skipped steps" in self._bad and share > params.skipped_clear
        ):
            self._skips_since = None
            if share == 0.0:
                self._skipped = []
            return self._over(frame, "skipped steps")
        if self._skips_since is None:
            self._skips_since = next(one[:2] for one in self._skipped if one[2])
        step, at = self._skips_since
        cause = Cause(
            "optimizer steps are made without gradients or skipped: gradients thrown away, a loss "
            "scale that never settles, or accumulation that never completes", 2, 2,
            f"{100 * share:.0f} % of the last {params.skipped_steps} steps",
        )  # fmt: skip
        evidence = Evidence(
            rule="skipped_steps",
            version=self.version,
            value=share,
            threshold=params.skipped_share,
            unit="share of steps",
            n=params.skipped_steps,
            onset_step=int(step),
            onset_at=at,
            series=("update_skipped", "loss_scale", "grad_norm/total", "loss/train"),
            numbers=(("steps without an update", 100 * share, "%", "of the last steps"),),
            summary=f"{100 * share:.0f} % of the last {params.skipped_steps} steps changed "
            f"nothing, since step {int(step):,}: their batches were computed and thrown away.",
            causes=(cause,),
            first_action="see where the gradients go between backward() and step(), and what the "
            "loss scale does.",
            clears=f"less than {100 * params.skipped_clear:.0f} % of the steps.",
        )
        return [self._open(frame, "skipped steps", "warning", "steps_skipped", evidence)]

    # -- updates of exactly zero ----------------------------------------------------------------

    def _updates(self, frame: StepFrame) -> list[Verdict]:
        ratios = by_group(frame, "update_ratio")
        if not ratios or (self._lr.value is None and self._gate.steps_to_go(frame.step)):
            return []
        if self._lr.value == 0.0:
            return []
        for group, ratio in ratios.items():
            self._groups.setdefault(group, Group()).count_zero(frame, ratio)
        dead = [group for group in ratios if self._is_dead(group, ratios)]
        if dead and len(dead) == len(ratios):
            return [self._zero(frame, "total", "critical", "nothing_changed")]
        verdicts = self._over(frame, "total")
        for group in ratios:
            if group in dead:
                verdicts.append(self._zero(frame, group, "warning", "group_unchanged"))
            elif group != "total" and f"{group} coverage" not in self._bad:
                verdicts += self._over(frame, group)
        return verdicts

    def _is_dead(self, group: str, ratios: dict[str, float]) -> bool:
        """Still for two samples; for one, where only this group stands still and should not."""
        held = self._groups[group]
        if held.zeros >= self.params.zero_samples:
            return True
        others = any(ratio > 0.0 for name, ratio in ratios.items() if name != group)
        flows = self._grads.get(group, self._grads.get("total", 0.0)) > 0.0
        return held.zeros > 0 and held.moved_step is not None and others and flows

    def _zero(self, frame: StepFrame, group: str, severity: Severity, reason: str) -> Verdict:
        held = self._groups.get(group) or next(iter(self._groups.values()))
        whole = reason == "nothing_changed"
        samples = "sample" if held.zeros == 1 else f"{held.zeros} samples"
        evidence = Evidence(
            rule="zero_update",
            version=self.version,
            value=0.0,
            threshold=0.0,
            n=held.zeros,
            onset_step=held.zero_step,
            onset_at=held.zero_at,
            series=(f"update_ratio/{group}", f"update_coverage/{group}", f"grad_norm/{group}"),
            numbers=(("update over weights", 0.0, "", f"samples in a row: {held.zeros}"),),
            summary=f"{'The optimizer' if whole else f'The group {group}'} changed "
            f"{'no weight at all' if whole else 'not at all'} in the last "
            f"{samples}, since step {held.zero_step:,}, at a learning rate of "
            f"{self._lr.value or 0.0:.3g}.",
            causes=self._zero_causes(group, whole),
            first_action="see that optimizer.step() is reached and that every parameter is in one "
            "of its groups.",
            clears="an update above 0.",
        )
        return self._open(frame, "" if whole else group, severity, reason, evidence)

    def _zero_causes(self, group: str, whole: bool) -> tuple[Cause, ...]:
        grad = self._grads.get(group)
        if any(one.fades(self.params) for name, one in self._groups.items() if name != group):
            why = "of other groups, too, a step changes ever fewer weights"
            return (Cause(ROUNDING, 1, 1, why),)
        no_grad = Cause(
            "no gradient reaches these weights: detached, frozen by accident, or not in the graph",
            signs_seen=int(grad == 0.0),
            signs_of=1,
            why="their gradient norm is 0"
            if grad == 0.0
            else "their gradient norm is not known"
            if grad is None
            else "they have a gradient",
        )
        skipped = Cause(
            "step() is skipped every time (loss scale, or accumulation that never completes)"
            if whole
            else "these parameters were never given to the optimizer",
            signs_seen=int(bool(grad)),
            signs_of=1,
            why=f"their gradient norm is {grad:.3g}" if grad else "",
        )
        return (skipped, no_grad) if grad else (no_grad, skipped)

    # -- the share of weights that change ---------------------------------------------------------

    def _coverage(self, frame: StepFrame, coverage: dict[str, float]) -> list[Verdict]:
        whole = coverage.keys() == {"total"}  # else its parts say it, without the sparse ones
        dense = [g for g in coverage if whole or (g not in SPARSE and g != "total")]
        rate, flows = self._lr.value or 0.0, self._grads.get("total", 1.0) > 0.0
        parts = [share for group, share in coverage.items() if group != "total"]
        some_sound = any(share >= self.params.sound for share in parts) if len(parts) > 1 else None
        verdicts = []
        for group in dense:
            held = self._groups.setdefault(group, Group())
            held.note_share(frame, coverage[group], rate, flows, self.params)
            verdicts += self._judge_share(frame, group, held, some_sound)
        return verdicts

    def _judge_share(
        self, frame: StepFrame, group: str, held: Group, some_sound: bool | None
    ) -> list[Verdict]:
        subject = f"{group} coverage"
        if self._gate.steps_to_go(frame.step) or self._lr.phase == "tail" or self._lr.value == 0.0:
            return []  # with hardly any rate left, rounding takes updates in every sound run
        reason = held.why_thin(some_sound, self.params)
        if reason:
            return [self._thin(frame, subject, held, reason)]
        return self._over(frame, subject) if held.shares[-1] >= self.params.covered else []

    def _thin(self, frame: StepFrame, subject: str, held: Group, reason: str) -> Verdict:
        share, group = held.shares[-1], subject.removesuffix(" coverage")
        frozen = reason == "frozen_part"
        what = (
            f"where it was {100 * held.best:.0f} %: {100 * (1 - share):.0f} % are never updated"
            if frozen
            else f"after {100 * held.best:.0f} % at its best: ever more updates are too small to "
            "change their weight"
        )
        evidence = Evidence(
            rule=reason,
            version=self.version,
            value=share,
            threshold=self.params.covered if frozen else self.params.lost,
            unit="share of weights",
            n=len(held.shares),
            onset_step=held.low_step if held.low_step is not None else held.steps[-1],
            onset_at=held.low_at if held.low_step is not None else held.times[-1],
            series=(f"update_coverage/{group}", f"update_ratio/{group}", f"weight_norm/{group}"),
            numbers=(
                ("weights changed by a step", 100 * share, "%", f"best {100 * held.best:.0f} %"),
            ),
            summary=f"A step changes {100 * share:.0f} % of the weights of {group}, {what}. "
            "The loss does not show it.",
            causes=_thin_causes(frozen, held.best >= self.params.sound),
            first_action="print the trainable parameters that are in no optimizer group."
            if frozen
            else "keep fp32 master weights, or round stochastically.",
            clears=f"{100 * self.params.covered:.0f} % of the weights changed.",
        )
        return self._open(frame, subject, "warning", reason, evidence)

    # -- saying it --------------------------------------------------------------------------------

    def _open(
        self, frame: StepFrame, subject: str, severity: Severity, reason: str, evidence: Evidence
    ) -> Verdict:
        key = subject or "total"
        if key not in self._bad:
            self._bad.append(key)
        return said(
            self, frame, "bad", severity, reason, subject=subject, evidence=evidence,
            title=_title(reason, subject.removesuffix(" coverage")),
        )  # fmt: skip

    def _over(self, frame: StepFrame, key: str) -> list[Verdict]:
        """Calm words, only where there was something to be calm about."""
        if key not in self._bad:
            return []
        subject = "" if key == "total" else key
        return [said(self, frame, "calm", "info", "changes_again", subject=subject)]

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "lr": self._lr.snapshot(),
            "groups": {name: asdict(group) for name, group in self._groups.items()},
            "grads": dict(self._grads),
            "zero_lr": self._zero_lr,
            "off": self._off,
            "bad": list(self._bad),
            "skipped": [list(one) for one in self._skipped],
            "skips_since": self._skips_since,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate, self._lr = Gate(**state["gate"]), LrWatch(**state["lr"])
        self._groups = {name: Group(**group) for name, group in state["groups"].items()}
        self._grads = dict(state["grads"])
        self._zero_lr, self._off = state["zero_lr"], state["off"]
        self._bad = list(state["bad"])
        self._skipped = [list(one) for one in state["skipped"]]
        self._skips_since = state["skips_since"]


def _thin_causes(frozen: bool, was_whole: bool) -> tuple[Cause, ...]:
    steady, fades = (
        "the share is steady, others are whole",
        "the share falls as updates get smaller",
    )
    text = "a layer was frozen, cut off from the gradient, or lost by the optimizer"
    if not was_whole:
        text = "a layer was never given to the optimizer (or its gradient is cut off)"
    left_out = Cause(text, int(frozen), 1, steady if frozen else "nothing frozen fades")
    rounding = Cause(ROUNDING, int(not frozen), 1, steady if frozen else fades)
    return (left_out, rounding) if frozen else (rounding, left_out)


ROUNDING = "weights are kept in bfloat16 without a master copy: small updates round to nothing"


def _title(reason: str, group: str) -> str:
    """What a phone shows in one line."""
    titles = {
        "steps_skipped": "most steps change nothing",
        "nothing_changed": "steps change no weight at all",
        "group_unchanged": f"steps do not change {group}",
        "zero_learning_rate": "the learning rate is 0",
        "off_schedule": "the learning rate is off its schedule",
        "frozen_part": f"part of {group} is never updated",
        "rounded_away": f"small updates of {group} are rounded away",
    }
    return titles.get(reason, DeadUpdate.title)
