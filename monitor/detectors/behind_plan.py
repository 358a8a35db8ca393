"""Behind plan: the run will end later, and cost more, than was planned."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import Cause, Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.elapsed import Elapsed
from monitor.detectors.saying import finite, said, unsure
from monitor.domain.words import duration_text

PLANNED_HOURS = "planned_hours"
"""Entry of the run's config: how long the whole run was meant to take."""


@dataclass(frozen=True, slots=True)
class Params:
    """``late_share`` and ``late_s``: later than planned by a tenth and by half an hour. Without
    ``planned_hours`` the plan is what the run itself promised at ``promise_share`` of its way, by
    its pace since ``begin_share`` (the first steps compile and fill caches). The forecast is that
    of the last ``recent_share`` of the time, at least ``recent_s``: stalls, restarts and
    evaluations are in it, for they are in the bill. ``judge_share``: how often it is judged."""

    late_share: float = 0.1
    calm_share: float = 0.05
    late_s: float = 1800.0
    begin_share: float = 0.02
    promise_share: float = 0.1
    recent_share: float = 0.2
    recent_s: float = 3600.0
    judge_share: float = 0.005


@dataclass(slots=True)
class _Memory:
    first_step: int | None = None
    begin: list[float] | None = None
    promised_s: float | None = None
    """Marks along the way: [seconds, progress 0..1, step, t], at most a few hundred."""
    marks: list[list[float]] = field(default_factory=list)
    open: bool = False
    told: bool = False
    restarts: int = 0
    attempt: str = ""
    slow_wait: float = 0.0


class BehindPlan(Detector):
    """Warns when the forecast end lies a tenth, and half an hour, beyond the plan."""

    name: ClassVar[str] = "behind_plan"
    title: ClassVar[str] = "behind plan"
    needs: ClassVar[tuple[str, ...]] = ("loss/train", "step_s", "tokens_seen", "data_wait_share")
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=2, m=2, calm=3)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._facts = facts
        self._memory = _Memory()
        self._elapsed = Elapsed()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge about two hundred times along the planned way."""
        now_s = self._elapsed.see(frame.t)
        memory = self._memory
        if memory.first_step is None:
            memory.first_step = frame.step
        if frame.attempt != memory.attempt:
            memory.restarts += int(memory.attempt != "")
            memory.attempt = frame.attempt
        waited = finite(frame, "data_wait_share")
        memory.slow_wait = memory.slow_wait if waited is None else waited
        progress = self._progress(frame)
        if progress is None:
            return []
        last = memory.marks[-1] if memory.marks else None
        # Going back loses ground, but the clock runs on: marks keep their order by time.
        if last is not None and abs(progress - last[1]) < self.params.judge_share:
            return []
        memory.marks.append([now_s, progress, float(frame.step), frame.t])
        del memory.marks[:-400]
        return self._judge(frame, now_s, progress)

    def _progress(self, frame: StepFrame) -> float | None:
        facts = self._facts.facts
        steps, tokens = facts.get("planned_steps"), facts.get("planned_tokens")
        if steps:
            return frame.step / float(steps)
        seen = finite(frame, "tokens_seen")
        return seen / float(tokens) if tokens and seen is not None else None

    def _judge(self, frame: StepFrame, now_s: float, progress: float) -> list[Verdict]:
        memory, params = self._memory, self.params
        if memory.begin is None and progress >= params.begin_share:
            memory.begin = [now_s, progress]
        plan_s = self._plan_s(now_s, progress)
        if plan_s is None:
            if memory.told:
                return []
            memory.told = True
            needed = (
                f"needs {100 * params.promise_share:.0f} % of the way (or config planned_hours)"
            )
            return [unsure(self, frame, needed)]
        pace = self._pace(now_s, progress)
        if pace is None or progress >= 1.0:
            return []
        forecast_s = now_s + (1.0 - progress) / pace
        late_s = forecast_s - plan_s
        if late_s > max(params.late_s, params.late_share * plan_s):
            memory.open = True
            evidence = self._evidence(frame, plan_s, forecast_s, progress, pace)
            return [said(self, frame, "bad", "warning", "late", evidence=evidence)]
        if late_s < params.calm_share * plan_s:
            return [said(self, frame, "calm", "info", "in_time")]
        return []

    def _plan_s(self, now_s: float, progress: float) -> float | None:
        """How long the whole run should take, seconds."""
        config = self._facts.facts.get("config") or {}
        hours = config.get(PLANNED_HOURS)
        if isinstance(hours, int | float) and math.isfinite(hours) and hours > 0:
            return float(hours) * 3600.0
        memory = self._memory
        if memory.promised_s is None and memory.begin and progress >= self.params.promise_share:
            begun_s, begun = memory.begin
            if progress > begun and now_s > begun_s:
                pace = (progress - begun) / (now_s - begun_s)
                memory.promised_s = now_s + (1.0 - progress) / pace
        return memory.promised_s

    def _pace(self, now_s: float, progress: float) -> float | None:
        """Progress a second over the recent past; None: none was made."""
        back = now_s - max(self.params.recent_s, self.params.recent_share * now_s)
        marks = self._memory.marks
        start = next((mark for mark in marks if mark[0] >= back), marks[0])
        if start[0] >= now_s or progress <= start[1]:
            return None
        return (progress - start[1]) / (now_s - start[0])

    def _evidence(
        self, frame: StepFrame, plan_s: float, forecast_s: float, progress: float, pace: float
    ) -> Evidence:
        late_s, facts = forecast_s - plan_s, self._facts.facts
        price, currency = facts.get("price_per_hour"), str(facts.get("currency") or "USD")
        money = f" and {late_s / 3600 * float(price):,.2f} {currency} dearer" if price else ""
        declared = self._memory.promised_s is None
        whose = "planned" if declared else "its own pace in the first tenth promised"
        whose_words = "planned" if declared else "promised by its first tenth"
        onset = self._onset(plan_s)
        return Evidence(
            rule="finish_forecast",
            version=self.version,
            value=forecast_s,
            threshold=plan_s + max(self.params.late_s, self.params.late_share * plan_s),
            unit="s",
            n=len(self._memory.marks),
            onset_step=int(onset[2]),
            onset_at=onset[3],
            series=("tokens_per_s", "step_s", "data_wait_share"),
            numbers=(
                ("the whole run", forecast_s / 3600, "h", f"{plan_s / 3600:.1f} h {whose}"),
                ("done", 100 * progress, "%", ""),
            ),
            summary=f"At the recent pace the run takes {duration_text(forecast_s)} in all, where "
            f"{duration_text(plan_s)} was {whose_words}: {duration_text(late_s)} later{money}.",
            causes=self._causes(),
            first_action="see throughput_drop, data_stall and straggler; or accept the new date.",
            clears=f"a forecast within {100 * self.params.calm_share:.0f} % of the plan.",
        )

    def _onset(self, plan_s: float) -> list[float]:
        """Where the run last was on its way: the last mark not behind the plan's straight line."""
        on_time = [mark for mark in self._memory.marks if mark[0] <= mark[1] * plan_s * 1.02]
        return on_time[-1] if on_time else self._memory.marks[0]

    def _causes(self) -> tuple[Cause, ...]:
        memory, found = self._memory, []
        if memory.slow_wait > 0.05:
            why = f"data_wait_share is {memory.slow_wait:.2f}"
            found.append(Cause("the loop waits for its loader", 1, 1, why))
        if memory.restarts:
            why = f"{memory.restarts} so far; steps made again and time between attempts count"
            found.append(Cause("restarts", 1, 2, why))
        if not found:
            why = "neither waits for data nor restarts; see throughput_drop"
            found.append(Cause("unexplained: steps simply take longer", 0, 1, why))
        return tuple(found)

    def snapshot(self) -> dict[str, Any]:
        return {"memory": asdict(self._memory), "elapsed": asdict(self._elapsed)}

    def restore(self, state: dict[str, Any]) -> None:
        self._memory = _Memory(**state["memory"])
        self._elapsed = Elapsed(**state["elapsed"])
