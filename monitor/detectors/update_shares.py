"""One parameter group under ``dead_update``: what of it a step changes, sample by sample."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.detectors.base import StepFrame


@dataclass(frozen=True, slots=True)
class Params:
    """``zero_samples``: exact zeros in a row (one may be a step that mixed precision skipped); of
    a group that changed before, has a gradient and stands still among others that change, one.
    ``covered``: share of the weights that a step must change; sound runs lie above ``sound``, also
    without decay. ``sound_samples``: a share that was sound so often and is not covered at the next
    sample, at no less than ``rate_kept`` of the learning rate, fell at once: nobody rounds that
    way. ``steady``: a share that stands still below that is a frozen part; it moves by more where
    rounding eats the updates. ``lost`` and ``lost_of_best``: a share that fell this low, also
    against its own best, is rounding. ``part``: one layer of many, a step down of 1 % and of
    ``part_spread`` times what the share varied by before, that stays.
    ``zero_lr_steps``: learning rates of exactly 0 in a row.
    ``skipped_share`` of the last ``skipped_steps``: mixed precision skips one step in hundreds once
    it has found its scale; where half are skipped, half of the compute is lost; ``skipped_clear``
    ends it. ``end_share``: from here on the plan itself may end at 0. ``rate_floor``: a log that
    prints eight decimals shows smaller rates as 0. ``schedule_off``: applied against scheduled
    rate."""

    zero_samples: int = 2
    covered: float = 0.9
    sound: float = 0.98
    sound_samples: int = 2
    rate_kept: float = 0.5
    part: float = 0.01
    part_spread: float = 8.0
    kept_samples: int = 8
    steady: float = 0.02
    steady_samples: int = 3
    lost: float = 0.5
    lost_of_best: float = 0.7
    zero_lr_steps: int = 3
    skipped_steps: int = 50
    skipped_share: float = 0.5
    skipped_clear: float = 0.2
    end_share: float = 0.98
    rate_floor: float = 1e-7
    schedule_off: float = 0.01
    schedule_samples: int = 3


@dataclass(slots=True)
class Group:
    """One parameter group: exact zeros in a row, and its last shares of changed weights.

    ``zero_step``, ``low_step``: the first step that may be spoilt, the one after the last sample
    that was not. ``before``: the share it fell from, 0 while it has not.
    """

    zeros: int = 0
    moved_step: int | None = None
    moved_at: float = 0.0
    zero_step: int = 0
    zero_at: float = 0.0
    steps: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    best: float = 0.0
    before: float = 0.0
    at_once: bool = False
    low_step: int | None = None
    low_at: float = 0.0

    def count_zero(self, frame: StepFrame, ratio: float) -> None:
        """A sample of the size of its update."""
        if ratio != 0.0:
            self.zeros, self.moved_step, self.moved_at = 0, frame.step, frame.t
            return
        if self.zeros == 0:
            self.zero_step, self.zero_at = frame.step, frame.t
            if self.moved_step is not None:
                self.zero_step, self.zero_at = self.moved_step + 1, self.moved_at
        self.zeros += 1

    def note_share(
        self, frame: StepFrame, share: float, rate: float, flows: bool, params: Params
    ) -> None:
        """A sample of the share of its weights that a step changes."""
        keep = params.kept_samples
        if share >= params.covered:
            self.low_step, self.at_once = None, False
        elif self.low_step is None:
            self.low_step, self.low_at = frame.step, frame.t
            if self.steps:
                self.low_step, self.low_at = self.steps[-1] + 1, self.times[-1]
            last = self.shares[-params.sound_samples :]
            kept = not self.rates or rate >= params.rate_kept * self.rates[-1]
            sound = len(last) == params.sound_samples and min(last) >= params.sound
            self.at_once = sound and kept and flows
        self.best = max(self.best, share)
        self.shares, self.rates = [*self.shares, share][-keep:], [*self.rates, rate][-keep:]
        self.steps, self.times = [*self.steps, frame.step][-keep:], [*self.times, frame.t][-keep:]
        self._note_part(share, params)

    def _note_part(self, share: float, params: Params) -> None:
        """A small part went still: the share stepped down, and stays there."""
        if self.before > 0.0:
            if share > self.before - params.part / 2:
                self.before = 0.0
            return
        now, then = self.shares[-params.steady_samples :], self.shares[: -params.steady_samples]
        if len(then) < params.steady_samples:
            return
        fell = min(then) - max(now)
        sudden = fell > max(params.part, params.part_spread * (max(then) - min(then)))
        if sudden and max(now) - min(now) < fell / 4:
            self.before = min(then)
            if self.low_step is None:
                self.low_step = self.steps[-params.steady_samples - 1] + 1
                self.low_at = self.times[-params.steady_samples - 1]

    def why_thin(self, some_sound: bool | None, params: Params) -> str:
        """Frozen: a part stands still, others are sound (None: there are no others). Rounded: it
        fades everywhere."""
        latest = self.shares[-params.steady_samples :]
        still = max(latest) - min(latest) <= params.steady and max(latest) < params.covered
        still = still and len(latest) == params.steady_samples
        if some_sound and (self.at_once or still):
            return "frozen_part"
        if self.fades(params):
            return "rounded_away"
        if self.at_once and some_sound is False:
            return "rounded_away"
        return "frozen_part" if still or self.at_once or self.before > 0.0 else ""

    def fades(self, params: Params) -> bool:
        """Its share fell low, also against its own best: rounding, not freezing."""
        share = self.shares[-1] if self.shares else 1.0
        return share < params.lost and share < params.lost_of_best * self.best
