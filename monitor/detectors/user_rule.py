"""Rules people write themselves, judged by the engine that judges everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import Detector, Evidence, Hold, Judgement, RunFacts, StepFrame, Verdict
from monitor.domain.rule import PER_STEPS, Read, Rule, read
from monitor.domain.series import matches
from trainer_hooks.wire import from_cell, to_cell

USER_RULE = "user_rule"
SEPARATOR = ": "
"""Between the rule's id and the series key in a subject."""
TREND_EVERY = 10
"""A trend is looked at so many times a window: a slope moves slowly."""


@dataclass(slots=True)
class _Line:
    """What is remembered of one series for one rule; ``since``: the first bad point in a row."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    count: int = 0
    since: int | None = None
    since_at: float | None = None


class UserRule(Detector):
    """All rules that concern the run. ``compile_rules`` gives the class its ``rules``."""

    name: ClassVar[str] = USER_RULE
    title: ClassVar[str] = "a rule of yours"
    needs: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    rules: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, facts: RunFacts, params: Any = None) -> None:
        self._facts = facts
        self._lines: dict[tuple[str, str], _Line] = {}
        self._attempt = ""

    @classmethod
    def knows(cls, subject: str) -> bool:
        """Whether a rule in force may have opened an alert of this subject."""
        name, _, key = subject.partition(SEPARATOR)
        return any(rule.id == name and matches(key, (rule.series,)) for rule in cls.rules)

    @classmethod
    def hold_of(cls, subject: str) -> Hold:
        name = subject.partition(SEPARATOR)[0]
        for rule in cls.rules:
            if rule.id == name:
                return Hold(rule.k, rule.m, rule.calm, rule.for_s, rule.calm_s)
        return cls.hold

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge each series of the step by each rule for it."""
        if frame.attempt != self._attempt:
            self._lines, self._attempt = {}, frame.attempt
        tags = self._facts.facts.get("tags") or ()
        verdicts = []
        for rule in self.rules:
            if not rule.concerns(self._facts.run, tags):
                continue
            for key, value in frame.values.items():
                if matches(key, (rule.series,)):
                    verdicts += self._judge(frame, rule, key, value)
        return verdicts

    def _judge(self, frame: StepFrame, rule: Rule, key: str, value: float) -> list[Verdict]:
        line = self._lines.setdefault((rule.id, key), _Line())
        line.steps.append(frame.step)
        line.values.append(value)
        line.count += 1
        del line.steps[: -rule.span], line.values[: -rule.span]
        if rule.kind == "trend" and line.count % max(1, rule.window // TREND_EVERY):
            return []
        found = read(rule, line.steps, line.values)
        if found.reading == "bad" and line.since is None:
            line.since, line.since_at = frame.step, frame.t
        elif found.reading == "calm":
            line.since = line.since_at = None
        if found.reading == "between":
            return []
        return [self._verdict(frame, rule, key, found, line)]

    def _verdict(self, frame: StepFrame, rule: Rule, key: str, found: Read, line: _Line) -> Verdict:
        judgement: Judgement = "cannot_tell"
        if found.reading in ("bad", "calm"):
            judgement = "bad" if found.reading == "bad" else "calm"
        reason = {"bad": rule.kind, "calm": "back", "no_data": "no_data"}[found.reading]
        evidence = None if judgement == "calm" else _evidence(rule, key, found, line)
        return Verdict(
            self.name, f"{rule.id}{SEPARATOR}{key}", judgement, rule.severity, reason, frame.step,
            frame.t, frame.attempt, rule.name, evidence,
        )  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        lines = [
            {**asdict(line), "place": list(place), "values": [to_cell(v) for v in line.values]}
            for place, line in self._lines.items()
        ]
        return {"attempt": self._attempt, "lines": lines}

    def restore(self, state: dict[str, Any]) -> None:
        self._attempt = state["attempt"]
        self._lines = {
            tuple(saved["place"]): _Line(
                list(saved["steps"]), [from_cell(cell) for cell in saved["values"]], saved["count"],
                saved["since"], saved["since_at"],
            )
            for saved in state["lines"]
        }  # fmt: skip


def compile_rules(rules: Sequence[Rule]) -> type[UserRule]:
    """The detector of these rules; those that are switched off are not in it."""
    chosen = tuple(rule for rule in rules if rule.enabled)
    needs = tuple(dict.fromkeys(rule.series for rule in chosen))

    class Compiled(UserRule):
        pass

    Compiled.rules, Compiled.needs = chosen, needs
    return Compiled


def _evidence(rule: Rule, key: str, found: Read, line: _Line) -> Evidence:
    per = f" per {PER_STEPS:,.0f} steps" if rule.kind == "trend" else ""
    if found.value is None:
        return Evidence(
            rule=rule.id, version=1, n=found.skipped, series=(key,),
            summary=f"{key}: no data, {found.skipped} of {found.skipped} points are not finite",
        )  # fmt: skip
    what = "slope" if rule.kind == "trend" else "mean" if rule.window > 1 else ""
    points = f" ({what} of {found.used} points" if what else ""
    points += f", {found.skipped} not finite" if what and found.skipped else ""
    points += ")" if what else ""
    held = f" for {rule.calm_s:g} s" if rule.calm_s else f" for {rule.calm} points in a row"
    return Evidence(
        rule=rule.id,
        version=1,
        value=found.value,
        threshold=rule.value,
        n=found.used,
        onset_step=line.since,
        onset_at=line.since_at,
        series=(key,),
        numbers=((f"{key}{per}", found.value, "", f"{rule.direction} {rule.value:g}"),),
        summary=f"{key} is {found.value:.6g}{per}{points}, {rule.direction} {rule.value:g} since "
        f"step {line.since or 0:,}.",
        first_action="look at the chart; this rule is one of yours.",
        clears=f"{'below' if rule.direction == 'above' else 'above'} {rule.clears_at:g}{held}.",
    )
