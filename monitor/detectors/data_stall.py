"""Data stall: the loop waits for its loader; and what a stall did to the loss afterwards."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.aftermath import HELDOUT, Aftermath, AftermathParams, Finding
from monitor.detectors.base import Cause, Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.gate import Gate, LrWatch
from monitor.detectors.robust import median
from monitor.detectors.saying import finite, said, unsure
from monitor.domain.words import duration_text

ANNOUNCED = frozenset({"evaluation", "checkpoint", "sampling"})
AFTER = "after a stall"
USUAL_EVERY = 10
"""Steps between two looks at what a wait usually takes."""


@dataclass(frozen=True, slots=True)
class Params:
    """``enter`` and ``leave``: share of the time of the last ``window`` steps spent waiting.
    ``without_worst``: one long wait is an event, not starvation; without it the share must still be
    this high. ``least_lost_s``: since its onset it has cost that much; a machine that shares its
    processors makes steps of milliseconds wait for some. ``least``: fewer waits than this say
    nothing. ``notable_steps``: a stall this many times the usual step is followed up.
    ``worth_saying_s``: one that cost less and did no harm is not mentioned. ``near_steps``: how far
    back a sampling may lie to be named. ``giant_s`` and ``giant_steps``: a single wait beyond both
    is told by itself, once."""

    enter: float = 0.05
    leave: float = 0.02
    without_worst: float = 0.02
    least_lost_s: float = 0.5
    window: int = 100
    least: int = 20
    notable_steps: float = 1.0
    worth_saying_s: float = 5.0
    near_steps: int = 100
    giant_s: float = 60.0
    giant_steps: float = 50.0
    most_infos: int = 2
    after: AftermathParams = field(default_factory=AftermathParams)


@dataclass(slots=True)
class _Memory:
    """``waits``: [step, t, wait_s, step_s] of the last steps that were no announced phase."""

    waits: list[list[float]] = field(default_factory=list)
    wait_sum: float = 0.0
    span_sum: float = 0.0
    usual_s: float | None = None
    onset: list[float] | None = None
    lost_s: float = 0.0
    stalls: list[float] = field(default_factory=list)
    """Steps of the long waits since the onset: their rhythm."""
    open: bool = False
    telling: bool = False
    paused: bool = False
    skip: int = 0
    sampled_step: int | None = None
    pressure: dict[str, float] = field(default_factory=dict)
    infos: int = 0
    was_starved: bool = False
    told_once: bool = False
    told_missing: bool = False


class DataStall(Detector):
    """Warns when more than 5 % of the time is waiting; and when progress fell after a stall."""

    name: ClassVar[str] = "data_stall"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "the loop waits for data"
    needs: ClassVar[tuple[str, ...]] = (
        "data_wait_s", "data_wait_share", "step_s", "loss/train", *HELDOUT, "lr/*", "pressure_*",
    )  # fmt: skip
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=3)

    @classmethod
    def hold_of(cls, subject: str) -> Hold:
        """What was said of a single stall is said once."""
        return Hold(k=1, m=1, calm=1) if subject == AFTER else cls.hold

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._kind = facts.kind
        self._gate = Gate()
        self._lr = LrWatch()
        self._memory = _Memory()
        self._after = Aftermath()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Take the step's wait and losses."""
        if self._gate.enter(frame):
            self._memory.waits, self._memory.onset, self._memory.telling = [], None, False
            self._memory.wait_sum = self._memory.span_sum = 0.0
            self._after.rewind(frame.step)
        self._lr.see(frame)
        block = self._after.see(frame)
        self._note(frame)
        verdicts = self._follow_up(frame, block)
        if self._take_wait(frame):
            verdicts += [*self._giant(frame), *self._starved(frame)]
        return verdicts

    # -- what comes in ----------------------------------------------------------------------------

    def _note(self, frame: StepFrame) -> None:
        memory = self._memory
        for key in frame.values:
            value = finite(frame, key) if key.startswith("pressure_") else None
            if value is not None:
                memory.pressure[key] = value
        for event in frame.events:
            if event.name in ANNOUNCED and event.kind in ("phase", "phase_end"):
                memory.paused = event.kind == "phase"
                memory.skip = 2  # the wait of the next step may hold its end
                if event.name == "sampling":
                    memory.sampled_step = frame.step
            elif event.name == "data_stall":
                self._stall(frame, float(event.data.get("wait_s") or 0.0))

    def _stall(self, frame: StepFrame, wait_s: float) -> None:
        step_s = median([row[3] for row in self._memory.waits])
        announced = self._memory.paused or self._memory.skip > 0
        warm = not self._gate.steps_to_go(frame.step)
        if warm and not announced and wait_s >= self.params.notable_steps * step_s:
            self._after.begin(frame.step, frame.t, wait_s, self._lr.changes)

    def _take_wait(self, frame: StepFrame) -> bool:
        memory = self._memory
        wait_s, step_s = finite(frame, "data_wait_s"), finite(frame, "step_s")
        if wait_s is None:
            return False
        if step_s is None or step_s <= 0.0:
            return False
        if memory.paused or memory.skip > 0:
            memory.skip = max(0, memory.skip - 1)
            return False
        memory.waits.append([float(frame.step), frame.t, wait_s, step_s])
        memory.wait_sum += wait_s
        memory.span_sum += max(step_s, wait_s)
        if len(memory.waits) > self.params.window:
            gone = memory.waits.pop(0)
            memory.wait_sum -= gone[2]
            memory.span_sum -= max(gone[3], gone[2])
        return True

    def _giant(self, frame: StepFrame) -> list[Verdict]:
        """One wait as long as many steps: told by itself, since nothing may follow from it."""
        memory, params = self._memory, self.params
        wait_s = memory.waits[-1][2]
        if wait_s <= params.giant_s:
            return []
        before = memory.waits[:-1]
        usual = median([row[3] for row in before])
        long = wait_s > params.giant_steps * usual
        if len(before) < 5 or not long or memory.infos >= params.most_infos:
            return []
        memory.infos += 1
        memory.told_once = True
        text = f"The loop waited {duration_text(wait_s)} for one batch at step {frame.step:,}; a "
        evidence = Evidence(
            rule="single_stall",
            version=self.version,
            value=wait_s,
            threshold=max(params.giant_s, params.giant_steps * usual),
            unit="s",
            n=1,
            onset_step=frame.step,
            onset_at=frame.t,
            series=("data_wait_s", "step_s"),
            numbers=(("waited", wait_s, "s", f"usual step {usual:.2f} s"),),
            summary=f"{text}step takes {usual:.2f} s otherwise. Whether it did lasting harm is "
            "said when the losses after it tell.",
            causes=(Cause("unexplained", 0, 1, "one stall has no pattern"),),
            first_action="look at the storage and the loader's workers at that time.",
            clears="said once.",
        )
        title = f"the loader stalled for {duration_text(wait_s)}"
        return [
            said(self, frame, "bad", "info", "single_stall", subject=AFTER, title=title,
                 evidence=evidence)
        ]  # fmt: skip

    # -- starvation -------------------------------------------------------------------------------

    def _starved(self, frame: StepFrame) -> list[Verdict]:
        memory, params = self._memory, self.params
        if len(memory.waits) < params.least:
            if memory.told_missing:
                return []
            memory.told_missing = True
            return [unsure(self, frame, f"needs about {params.least} more steps")]
        if self._gate.steps_to_go(frame.step):
            return []
        share = memory.wait_sum / max(memory.span_sum, 1e-9)
        if memory.onset is not None:
            memory.lost_s += max(0.0, memory.waits[-1][2] - (memory.usual_s or 0.0))
            if _is_long(memory.waits[-1]):
                memory.stalls = [*memory.stalls, memory.waits[-1][0]][-32:]
        if share < params.leave:
            if memory.usual_s is None or frame.step % USUAL_EVERY == 0:
                memory.usual_s = median([row[2] for row in memory.waits])
            memory.onset, memory.telling = None, False
            return [said(self, frame, "calm", "info", "fed")] if memory.open else []
        return self._costly(frame, share) if share > params.enter else []

    def _costly(self, frame: StepFrame, share: float) -> list[Verdict]:
        """Starved, and not by one long wait: that is told once it has cost something."""
        memory, waits = self._memory, [row[2] for row in self._memory.waits]
        worst = max(waits)
        others = self.params.without_worst * max(memory.span_sum - worst, 1e-9)
        if memory.wait_sum - worst <= others:
            return []
        if memory.onset is None:
            self._begin(waits)
        if memory.lost_s < self.params.least_lost_s:
            return []
        if not memory.telling and memory.onset is not None:
            memory.telling = memory.was_starved = True
            at = (int(memory.onset[0]), memory.onset[1])
            self._after.begin(*at, memory.lost_s, self._lr.changes)
        memory.open = True
        evidence = self._evidence(frame, share)
        return [said(self, frame, "bad", "warning", "starved", evidence=evidence)]

    def _begin(self, waits: list[float]) -> None:
        """The onset is the first wait of the window that stands out of what was usual before."""
        memory = self._memory
        usual = memory.usual_s if memory.usual_s is not None else min(waits)
        step_s = median([row[3] for row in memory.waits])
        stalled = max(5.0 * usual, 0.5 * step_s, 0.05)
        above = [row for row in memory.waits if row[2] > stalled] or [
            row for row in memory.waits if row[2] > max(3.0 * usual, self.params.enter * row[3])
        ]
        memory.onset = above[0] if above else memory.waits[0]
        memory.lost_s = sum(max(0.0, row[2] - usual) for row in above)
        memory.stalls = [row[0] for row in above if _is_long(row)][-32:]

    def _evidence(self, frame: StepFrame, share: float) -> Evidence:
        memory, onset = self._memory, self._memory.onset or self._memory.waits[0]
        long = [row for row in memory.waits if _is_long(row)]
        self._after.last_step = max(self._after.last_step, frame.step)
        usual = memory.usual_s or 0.0
        return Evidence(
            rule="wait_share",
            version=self.version,
            value=share,
            threshold=self.params.enter,
            unit="share of time",
            n=len(memory.waits),
            onset_step=int(onset[0]),
            onset_at=onset[1],
            series=("data_wait_s", "data_wait_share", "step_s", "tokens_per_s"),
            numbers=(
                ("time spent waiting", 100 * share, "%", f"usual wait {1e3 * usual:.1f} ms"),
                ("time lost", memory.lost_s, "s", "since the onset"),
                ("stalls", float(len(long)), "", f"last {len(memory.waits)} steps"),
            ),
            summary=f"{100 * share:.0f} % of the last {len(memory.waits)} steps' time was waiting "
            f"for data, in {len(long)} stalls; {duration_text(memory.lost_s)} lost since step "
            f"{int(onset[0]):,}. Announced evaluations and checkpoints are not counted.",
            causes=self._causes(frame, len(long)),
            first_action="look at the loader: workers, prefetch, the disk or the network share.",
            clears=f"less than {100 * self.params.leave:.0f} % over {self.params.window} steps.",
        )

    def _causes(self, frame: StepFrame, long: int) -> tuple[Cause, ...]:
        memory, found = self._memory, []
        for what, words in (("io", "the disk or network share"), ("cpu", "the processors")):
            busy = memory.pressure.get(f"pressure_{what}", 0.0)
            if busy > 0.1:
                why = f"tasks waited for it {100 * busy:.0f} % of the time (pressure_{what})"
                found.append(Cause(f"{words} cannot keep up", 1, 1, why))
        sampled = memory.sampled_step
        if sampled is not None and frame.step - sampled <= self.params.near_steps:
            text = f"the sampling of answers at step {sampled:,} took the loader's processors"
            found.append(Cause(text, 1, 2, "it ran just before"))
        pattern = _pattern(memory.stalls, long / len(memory.waits))
        # A rhythm says more than a busy machine, which slows the loader without one.
        return (pattern, *found) if pattern.signs_seen else (*found, pattern)

    # -- what it did afterwards -------------------------------------------------------------------

    def _follow_up(self, frame: StepFrame, block: bool) -> list[Verdict]:
        memory, after = self._memory, self._after
        if memory.told_once:
            memory.told_once = False
            return [said(self, frame, "calm", "info", "said_once", subject=AFTER)]
        # While it still waits there is no afterwards; and rewards are no losses.
        if not block or not after.watching or memory.onset is not None or self._kind == "rl":
            return []
        finding = after.judge(self._lr.changes, self.params.after)
        if finding.outcome == "fell":
            after.fell = True
            return [self._fell(frame, finding)]
        if finding.outcome == "as_before":
            return self._as_before(frame, finding)
        if finding.outcome == "cannot_tell" and not after.fell:
            missing = f"what the stall at step {after.first_step or 0:,} did: {finding.missing}"
            after.end()
            return [unsure(self, frame, missing, AFTER)]
        return []

    def _as_before(self, frame: StepFrame, finding: Finding) -> list[Verdict]:
        memory, after = self._memory, self._after
        if after.fell:
            after.end()
            return [said(self, frame, "calm", "info", "progress_again", subject=AFTER)]
        dear = after.wait_s >= self.params.worth_saying_s or memory.was_starved
        evidence = self._after_evidence(finding, "no_lasting_effect")
        after.end()
        memory.was_starved = False
        if not dear or memory.infos >= self.params.most_infos:
            return []
        memory.infos += 1
        memory.told_once = True
        return [
            said(self, frame, "bad", "info", "no_lasting_effect", subject=AFTER,
                 title="a loader stall had no lasting effect", evidence=evidence)
        ]  # fmt: skip

    def _fell(self, frame: StepFrame, finding: Finding) -> Verdict:
        evidence = self._after_evidence(finding, "progress_fell")
        title = "progress fell after a loader stall"
        return said(
            self, frame, "bad", "warning", "progress_fell", subject=AFTER, title=title,
            evidence=evidence,
        )  # fmt: skip

    def _after_evidence(self, finding: Finding, rule: str) -> Evidence:
        after = self._after
        step, fell = after.first_step or 0, rule == "progress_fell"
        lost = 1.0 - finding.observed / finding.expected if finding.expected > 0 else 0.0
        words = (
            f"Progress fell {100 * min(lost, 1.0):.0f} % after the stall at step {step:,}"
            if fell
            else f"The stall at step {step:,} had no lasting effect"
        )
        verb = "fell" if finding.observed >= 0 else "rose"
        return Evidence(
            rule=rule,
            version=self.version,
            value=finding.observed,
            threshold=self.params.after.lost_share * finding.expected,
            unit="nats",
            n=finding.blocks,
            onset_step=step,
            onset_at=after.at,
            series=(finding.key, "data_wait_s", "repeat_share"),
            numbers=(
                (
                    "drop since the stall",
                    finding.observed,
                    "nats",
                    f"expected {finding.expected:.3f}",
                ),
                ("waited", after.wait_s, "s", f"from step {step:,}"),
            ),  # fmt: skip
            summary=f"{words}: {finding.key} {verb} {abs(finding.observed):.3f} nats over "
            f"{finding.blocks} evaluations since, expected was {finding.expected:.3f}. The stall "
            f"cost {duration_text(after.wait_s)}.",
            causes=(
                Cause(
                    f"what the loader served after its stall at step {step:,}: a shard begun "
                    "again, or a source dropped from the mix",
                    signs_seen=1,
                    signs_of=2,
                    why="stale_data and the mix of sources would say which",
                ),
            )
            if fell
            else (),
            first_action="look at repeat_share and at the mix after that step." if fell else "",
            clears="half of the expected progress again." if fell else "said once.",
        )

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "lr": self._lr.snapshot(),
            "memory": asdict(self._memory),
            "after": self._after.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate, self._lr = Gate(**state["gate"]), LrWatch(**state["lr"])
        self._memory = _Memory(**state["memory"])
        self._after = Aftermath.restored(state["after"])


def _is_long(row: list[float]) -> bool:
    """Whether a wait was most of its step, and no trifle."""
    return row[2] > 0.5 * row[3] and row[2] > 0.05


def _pattern(stalls: list[float], share_of_steps: float) -> Cause:
    """What the stalls themselves look like: on every step, evenly spaced, or neither."""
    if share_of_steps > 0.5 or not stalls:
        text = "the loader is too slow on average: too few workers, slow decoding or slow storage"
        return Cause(text, signs_seen=1, signs_of=1, why="nearly every step waits")
    gaps = [b - a for a, b in zip(stalls, stalls[1:], strict=False)]
    even = len(gaps) >= 2 and max(gaps) - min(gaps) <= 0.1 * median(gaps) + 1
    if even:
        text = f"something in the loader blocks every {median(gaps):.0f} steps: the next shard, a "
        text += "refilled shuffle buffer, a worker that starts again"
        return Cause(text, signs_seen=1, signs_of=1, why="the stalls are evenly spaced")
    few = len(gaps) < 2
    why = "too few stalls yet for a rhythm" if few else "the stalls have no rhythm"
    return Cause("unexplained", signs_seen=0, signs_of=1, why=f"{why}; nothing else was seen")
