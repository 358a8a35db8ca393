"""The silent plateau: the loss falls less than its own past lets expect, and we could tell."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from monitor.detectors.base import (
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
from monitor.detectors.gate import Gate
from monitor.detectors.mix import NEEDS as MIX_NEEDS
from monitor.detectors.mix import MixWatch
from monitor.detectors.plateau_causes import MEMORISES, Signs
from monitor.detectors.plateau_params import Params
from monitor.detectors.progress import (
    BlockSeries,
    Fit,
    Window,
    fit_decay,
    judge_window,
    stopped_at,
)
from monitor.detectors.robust import median, noise_sd

PREFERRED = ("loss/heldout", "loss/probe", "loss/train")
"""Held-out losses have full power where a batch loss has next to none; they go first."""


@dataclass(slots=True)
class _Curve:
    """One loss series: its blocks, counts per scale, and what was frozen when it fired."""

    blocks: BlockSeries
    counts: dict[str, int] = field(default_factory=dict)
    frozen: dict[str, float] | None = None
    scale: int = 0
    level: float = 0.0
    onset_step: int | None = None
    onset_at: float | None = None
    first: list[float] = field(default_factory=list)
    points: int = 0
    flat_from_start: bool = False
    check_level: bool = False
    jump: list[float] = field(default_factory=list)
    mixed: bool = False


class LossPlateau(Detector):
    """Warns when progress is lost, or never began; info while top-10 accuracy still improves."""

    name: ClassVar[str] = "loss_plateau"
    version: ClassVar[int] = 3
    title: ClassVar[str] = "loss plateau"
    needs: ClassVar[tuple[str, ...]] = (
        *PREFERRED, "lr/*", "tokens_seen", "repeat_share", "effective_lr/*", "top1/probe",
        "top10/probe", "median_rank/probe", *MIX_NEEDS,
    )  # fmt: skip
    # Blocks in a row are counted in here, in both directions.
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=1)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._gate = Gate()
        self._signs = Signs()
        self._curves: dict[str, _Curve] = {}
        self._mix = MixWatch()
        self._anew: list[int] = [0, 0]
        self._tokens: float | None = None
        self._by_tokens: bool | None = None

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge the preferred loss series whenever a block of it is complete."""
        if self._gate.enter(frame):
            self._rewind(frame.step)
        warm_steps = self._gate.steps_to_go(frame.step)
        self._signs.see(frame, warm_steps == 0, self.params.causes)
        self._perhaps_begin_anew(frame)
        tokens = frame.values.get("tokens_seen")
        if tokens is not None and math.isfinite(tokens):
            self._tokens = tokens
        verdicts: list[Verdict] = []
        for key in PREFERRED:
            loss = frame.values.get(key)
            if (
                loss is not None
                and math.isfinite(loss)
                and self._take(frame, key, loss, warm_steps)
            ):
                verdicts += self._judge(frame, key)
        return verdicts

    # -- collecting ----------------------------------------------------------------------------

    def _take(self, frame: StepFrame, key: str, loss: float, warm_steps: int) -> bool:
        """Note a value; True when it completed a block of the series that is judged."""
        curve = self._curve(key)
        curve.points += 1
        if len(curve.first) < (2 if curve.blocks.points_per_block == 1 else 16):
            curve.first.append(loss)
        if warm_steps or self._signs.lr.phase == "warmup":
            return False
        t = self._position(frame.step)
        if not curve.blocks.add(frame.step, frame.t, max(t, 1.0), loss):
            return False
        if curve.check_level:
            self._check_level(curve)
        return bool(curve.blocks.steps) and key == self._judged()

    def _position(self, step: int) -> float:
        """What progress is counted in: tokens, if they are told from the first block on."""
        if self._by_tokens is None:
            self._by_tokens = self._tokens is not None
        return self._tokens if self._by_tokens and self._tokens is not None else step + 1.0

    def _curve(self, key: str) -> _Curve:
        if key not in self._curves:
            size = self.params.train_points if key == "loss/train" else 1
            self._curves[key] = _Curve(BlockSeries(size))
        return self._curves[key]

    def _judged(self) -> str:
        """The most telling series that has enough blocks; else the first there is."""
        enough = self.params.before + self.params.windows[0]
        for key in PREFERRED:
            if key in self._curves and len(self._curves[key].blocks.losses) >= enough:
                return key
        return next((key for key in PREFERRED if key in self._curves), PREFERRED[-1])

    def _rewind(self, first_step: int) -> None:
        """A new attempt goes on from the blocks it owns, if its first block fits on to them."""
        for curve in self._curves.values():
            curve.blocks.cut(first_step)
            self._forget(curve)
            curve.check_level = bool(curve.blocks.losses)

    def _forget(self, curve: _Curve) -> None:
        curve.counts, curve.frozen, curve.scale, curve.jump = {}, None, 0, []
        curve.onset_step = curve.onset_at = None

    def _check_level(self, curve: _Curve) -> None:
        curve.check_level = False
        losses = curve.blocks.losses
        sigma = max(noise_sd(np.asarray(losses[:-1])), 1e-3 * abs(losses[-1]))
        if len(losses) < 2 or abs(losses[-1] - losses[-2]) > self.params.level_jump * sigma:
            last = (curve.blocks.steps[-1], curve.blocks.times[-1])
            t, loss = curve.blocks.ts[-1], losses[-1]
            curve.blocks.clear()
            if curve.blocks.points_per_block == 1:
                curve.blocks.add(*last, t, loss)

    def _perhaps_begin_anew(self, frame: StepFrame) -> None:
        """A step of the schedule or another mix of data makes another curve."""
        declared = any(e.kind == "phase" and e.name == "data_mix" for e in frame.events)
        self._mix.see(frame)
        anew = [self._signs.lr.changes, self._mix.changes]
        if declared or anew != self._anew:
            mixed, self._anew = declared or anew[1] != self._anew[1], anew
            for curve in self._curves.values():
                curve.blocks.clear()
                self._forget(curve)
                curve.mixed = curve.mixed or mixed

    # -- judging -------------------------------------------------------------------------------

    def _judge(self, frame: StepFrame, key: str) -> list[Verdict]:
        curve = self._curves[key]
        if curve.frozen is not None:
            return self._judge_firing(frame, key, curve)
        flat = self._never_began(key, curve)
        if flat is not None and not self._says_enough(curve, key):
            return []
        if flat is not None:
            curve.flat_from_start = True
            return [self._bad(frame, key, curve, "no_progress", flat)]
        if curve.flat_from_start:
            curve.flat_from_start = False
            return [self._verdict(frame, "calm", "info", "progress", None)]
        if self._muted(key, curve):
            return []
        return self._judge_cut(frame, key, curve) or self._judge_scales(frame, key, curve)

    def _muted(self, key: str, curve: _Curve) -> bool:
        if self._signs.lr.phase == "tail":
            return True  # the schedule's end: nothing can move any more, and nothing should
        return curve.blocks.losses[-1] < self.params.memorised_nats

    def _judge_cut(self, frame: StepFrame, key: str, curve: _Curve) -> list[Verdict]:
        """The learning rate was cut off: all since then against all before."""
        cut = self._signs.lr.cut_step
        if self._signs.lr.phase != "cut" or cut is None:
            return []
        params, t_N, loss_N = self.params, *curve.blocks.arrays()
        after = sum(step >= cut for step in curve.blocks.steps)
        if after < params.after_cut or len(t_N) - after < params.before_cut:
            return []
        window = judge_window(t_N, loss_N, after, fit_decay(t_N[:-after], loss_N[:-after]))
        if window is None or not self._is_short(window, params.power_cut, params.power_cut):
            return []
        self._freeze(curve, window, after)
        curve.onset_step, curve.onset_at = cut, self._signs.lr.cut_at
        return [self._bad(frame, key, curve, "plateau", window)]

    def _is_short(self, window: Window, power: float, z: float) -> bool:
        short = window.observed < self.params.observed_share * window.expected
        return short and window.power > power and window.z > z

    def _judge_scales(self, frame: StepFrame, key: str, curve: _Curve) -> list[Verdict]:
        t_N, loss_N = curve.blocks.arrays(self.params.drop_share)
        best: Window | None = None
        judged = False
        for blocks in self.params.windows:
            if len(t_N) - blocks < max(self.params.before, blocks // 2):
                break
            window = judge_window(t_N, loss_N, blocks, fit_decay(t_N[:-blocks], loss_N[:-blocks]))
            if window is None:
                curve.counts[str(blocks)] = 0
                continue
            able = window.power > self.params.power and window.expected > (
                self.params.material * abs(float(loss_N[-1]))
            )
            judged = judged or able
            bad = able and self._is_short(window, self.params.power, self.params.z)
            curve.counts[str(blocks)] = curve.counts.get(str(blocks), 0) + 1 if bad else 0
            if curve.counts[str(blocks)] >= self.params.in_a_row:
                return [self._fire(frame, key, curve, window, blocks)]
            best = window if best is None or window.power > best.power else best
        if not judged:
            return [self._cannot_tell(frame, key, curve, best)]
        if not any(curve.counts.values()):
            return [self._verdict(frame, "calm", "info", "progress", None)]
        return []

    def _freeze(self, curve: _Curve, window: Window, blocks: int) -> None:
        """What a plateau teaches must not become what is expected."""
        curve.frozen, curve.scale = asdict(window.fit), blocks
        curve.level = float(np.median(curve.blocks.losses[-blocks:]))

    def _fire(
        self, frame: StepFrame, key: str, curve: _Curve, window: Window, blocks: int
    ) -> Verdict:
        self._freeze(curve, window, blocks)
        dropped = int(self.params.drop_share * len(curve.blocks.losses))
        self._mark_onset(curve, dropped)
        self._mark_jump(curve, window, dropped)
        return self._bad(frame, key, curve, "plateau", window)

    def _mark_jump(self, curve: _Curve, window: Window, dropped: int) -> None:
        """A loss that jumped up within the window and came back does not fall in it: no wonder."""
        curve.jump, fit = [], window.fit
        for index in range(window.first + dropped, len(curve.blocks.losses)):
            expected, loss = fit.at(curve.blocks.ts[index]), curve.blocks.losses[index]
            high = max(self.params.jump_sd * fit.sigma, self.params.jump_share * expected)
            if loss > expected + high:
                step, at = curve.blocks.steps[index], curve.blocks.times[index]
                curve.jump = [float(step), expected, loss]
                curve.onset_step, curve.onset_at = step, at
                return

    def _mark_onset(self, curve: _Curve, dropped: int) -> None:
        """From where on a curve that stops there fits best."""
        t_N, loss_N = curve.blocks.arrays(self.params.drop_share)
        onset = dropped + stopped_at(t_N, loss_N, self.params.before)
        curve.onset_step, curve.onset_at = curve.blocks.steps[onset], curve.blocks.times[onset]
        if curve.blocks.points_per_block == 1 and onset > 0:
            # An evaluation tells of the steps before it: the first of these may be the first.
            before = onset - 1
            curve.onset_step = curve.blocks.steps[before] + 1
            curve.onset_at = curve.blocks.times[before]

    def _judge_firing(self, frame: StepFrame, key: str, curve: _Curve) -> list[Verdict]:
        t_N, loss_N = curve.blocks.arrays(self.params.drop_share)
        blocks = min(curve.scale, len(t_N))
        window = judge_window(t_N, loss_N, blocks, Fit(**(curve.frozen or {})))
        if window is None or blocks < 3:
            return []
        fallen = curve.level - float(np.median(loss_N[-3:]))
        if fallen > max(3.0 * window.fit.sigma, self.params.recovered_share * window.expected):
            self._forget(curve)
            curve.blocks.cut(-1)
            return [self._verdict(frame, "calm", "info", "progress", None)]
        return [self._bad(frame, key, curve, "plateau", window)]

    def _never_began(self, key: str, curve: _Curve) -> Window | None:
        """Flat since the first values of all, and sure of it: no fit could show that."""
        params, train = self.params, key == "loss/train"
        need = params.no_progress_points if train else params.no_progress_evals
        span = curve.blocks.steps[-1] - (self._gate.run_first_step or 0)
        if curve.points < need or span < params.no_progress_steps or self._gate.restarted:
            return None
        if curve.mixed:
            return None  # its first values were of other data
        t_N, loss_N = curve.blocks.arrays()
        recent_N = loss_N[len(loss_N) // 2 :]
        per_block = noise_sd(loss_N)
        per_point = per_block * math.sqrt(curve.blocks.points_per_block)
        sd = 1.25 * math.hypot(
            per_point / math.sqrt(len(curve.first)), per_block / math.sqrt(len(recent_N))
        )
        fell = median(curve.first) - float(np.median(recent_N))
        share = params.no_progress_share * abs(median(curve.first))
        # Sure that it did not fall opens it; not before it did fall, by twice as much, it ends.
        if fell + 4.0 * sd >= share and not (curve.flat_from_start and fell < 2.0 * share):
            return None
        curve.onset_step, curve.onset_at = curve.blocks.steps[0], curve.blocks.times[0]
        asked = params.no_progress_share * abs(median(curve.first))
        fit = Fit(median(curve.first), 0.0, 1.0, max(per_block, 1e-12))
        return Window(asked, fell, max(sd, 1e-12), 0, fit)

    def _says_enough(self, curve: _Curve, key: str) -> bool:
        """A held-out loss that never fell while the batch loss did is over-fitting, or grokking:
        no lack of progress. It is told only where top-10 accuracy says that it is grokking."""
        if key == "loss/train" or not self._train_learns():
            return True
        return bool(self._signs.still_improving(self.params.causes))

    def _train_learns(self) -> bool:
        """Whether the batch loss fell well below where it began."""
        train = self._curves.get("loss/train")
        if train is None or not train.blocks.losses:
            return False
        begun = median(train.first)
        return train.blocks.losses[-1] < (1.0 - 10 * self.params.no_progress_share) * begun

    # -- words ---------------------------------------------------------------------------------

    def _cannot_tell(
        self, frame: StepFrame, key: str, curve: _Curve, best: Window | None
    ) -> Verdict:
        blocks, params = curve.blocks, self.params
        per_block = (blocks.steps[-1] - blocks.steps[0]) / max(len(blocks.steps) - 1, 1)
        missing = params.before + params.windows[0] + 1 - len(blocks.losses)
        if best is not None and best.power > 0:
            # Power grows with the window as w^1.5: the drop with w, the noise with w^-0.5.
            have = len(blocks.losses) - best.first
            more = have * ((params.power / best.power) ** (2.0 / 3.0) - 1.0)
            missing = max(missing, min(math.ceil(more), 10_000))
        steps = max(int(max(missing, 1) * per_block), 1)
        evidence = Evidence(
            "expected_progress", self.version, n=len(blocks.losses), series=(key,),
            summary=f"needs about {steps:,} more steps, or a larger probe",
        )  # fmt: skip
        return self._verdict(frame, "cannot_tell", "info", "little_power", evidence)

    def _bad(
        self, frame: StepFrame, key: str, curve: _Curve, reason: str, window: Window
    ) -> Verdict:
        improving = self._signs.still_improving(self.params.causes)
        severity: Severity = "info" if improving else "warning"
        if improving:
            reason = "top10_improving"
        onset = curve.onset_step if curve.onset_step is not None else frame.step
        causes = self._signs.causes(onset, self.params.causes)
        if curve.jump:
            step, before, after = curve.jump
            text = f"the aftermath of a loss spike at step {int(step):,}"
            why = f"it jumped from {before:.3f} to {after:.3f} there and has not gained since"
            causes = (Cause(text, 2, 2, why), *(cause for cause in causes if cause.signs_seen))
        if curve.flat_from_start and key != "loss/train" and self._train_learns():
            causes = (MEMORISES, *(cause for cause in causes if cause.signs_seen))
        evidence = Evidence(
            rule=reason,
            version=self.version,
            value=window.observed,
            threshold=self.params.observed_share * window.expected,
            unit="nats",
            n=len(curve.blocks.losses),
            onset_step=onset,
            onset_at=curve.onset_at,
            series=(key, "top1/probe", "top10/probe", "lr/*", "repeat_share"),
            numbers=self._numbers(key, window),
            summary=self._summary(key, curve, window, reason, improving),
            causes=causes,
            first_action="wait: the run is still learning." if improving else _first_action(causes),
            clears=f"{key} below the plateau by half of what its past lets expect.",
        )
        title = "top-1 flat, top-10 still improving: wait" if improving else self.title
        if reason == "no_progress":
            title = "no progress at all"
        return self._verdict(frame, "bad", severity, reason, evidence, title)

    def _numbers(self, key: str, window: Window) -> tuple[tuple[str, float, str, str], ...]:
        return (
            (f"{key} fell by", window.observed, "nats", f"expected {window.expected:.3f}"),
            ("power of the test", window.power, "sd", "needs 4"),
        )

    def _summary(self, key: str, curve: _Curve, window: Window, reason: str, improving: str) -> str:
        since = f"since step {curve.onset_step or 0:,}"
        if not curve.scale:
            text = f"{key} has not fallen by even 0.5 % {since}."
            return f"{text} But {improving} still improves." if improving else text
        moved = "rose" if window.observed < 0 else "fell"
        blocks = min(curve.scale, len(curve.blocks.steps))
        steps = curve.blocks.steps[-1] - curve.blocks.steps[-blocks]
        text = (
            f"{key} {moved} {abs(window.observed):.3f} over the last {steps:,} steps; its past "
            f"lets expect a fall of {window.expected:.3f} ({since})."
        )
        return f"{text} But {improving} still improves." if improving else text

    def _verdict(
        self, frame: StepFrame, judgement: Judgement, severity: Severity, reason: str,
        evidence: Evidence | None, title: str = "",
    ) -> Verdict:  # fmt: skip
        return Verdict(
            self.name, "", judgement, severity, reason, frame.step, frame.t, frame.attempt,
            title or self.title, evidence,
        )  # fmt: skip

    # -- memory --------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "signs": self._signs.snapshot(),
            "curves": {key: asdict(curve) for key, curve in self._curves.items()},
            "mix": self._mix.snapshot(),
            "anew": list(self._anew),
            "tokens": self._tokens,
            "by_tokens": self._by_tokens,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._signs = Signs.restored(state["signs"])
        self._mix.restore(state["mix"])
        self._anew, self._tokens = list(state["anew"]), state["tokens"]
        self._by_tokens = state["by_tokens"]
        self._curves = {
            key: _Curve(**{**curve, "blocks": BlockSeries.restored(curve["blocks"])})
            for key, curve in state["curves"].items()
        }


def _first_action(causes: tuple[Any, ...]) -> str:
    if causes and causes[0].signs_seen:
        return "see whether that is the cause; what was trained since then taught little."
    return "look at learning rate, data and the last changes; compare with an earlier checkpoint."
