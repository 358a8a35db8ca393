"""One row a step: what the loop gives, what the signals measure, what the clock says."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from trainer_hooks.data import RepeatMeter, Stall, WaitMeter, find_tokens, hash_rows
from trainer_hooks.feed.sample import Sample, chosen_rows, copy_rows
from trainer_hooks.feed.settings import Feed
from trainer_hooks.loop.instruments import Instruments
from trainer_hooks.loop.link import Link
from trainer_hooks.loop.pending import Reader, Waiting
from trainer_hooks.loop.ranks import RankTeam, batch_hash
from trainer_hooks.loop.series import tell_turned
from trainer_hooks.loop.stepping import (
    MicroBatches,
    StepClock,
    are_plain,
    is_non_finite,
    split_scalars,
    whole_here,
)
from trainer_hooks.post.frames import Row
from trainer_hooks.schedule import Schedule
from trainer_hooks.signals.base import UNDEFINED
from trainer_hooks.wire import Event

OWN_COST_STEPS = 50
READ_S = 1.0
"""What waits on a device is fetched this often at least: a loop of slow steps has few due ones."""
AUTO = "auto"


class Recorder:
    """Assembles rows and hands complete ones to the link.

    Attributes:
        done: completed optimizer steps.
        tokens_seen: tokens trained on, over all attempts.
    """

    def __init__(
        self,
        link: Link,
        schedule: Schedule,
        instruments: Instruments,
        declared_epochs: float,
        feed: Feed | None = None,
        team: RankTeam | None = None,
        scaler: Any = None,
    ) -> None:
        self.done = link.start_step
        self.tokens_seen = link.start_tokens
        self.waits = WaitMeter()
        self.clock = StepClock()
        self.micro = MicroBatches()
        self._link = link
        self._schedule = schedule
        self._instruments = instruments
        self._repeats = RepeatMeter(declared_epochs)
        self._reader = Reader(self._complete)
        self._feed = feed or Feed()
        self.team = team
        self._hashes: list[Any] = []
        self._fed: list[Sample] = []
        self._logged: dict[str, Any] = {}
        self._scaler = scaler
        self._has_skipped = False
        self._said_plain_mean = False
        self._has_blamed = False
        self._counted_s = 0.0
        self._judged_keys: frozenset[str] = frozenset()
        self._read_at_s = time.monotonic()
        # From the step before the first: a packed copy of one row would be one too many.
        schedule.sampled("step", self.done, 0.0)

    def step(
        self, number: int, loss: Any, tokens: int | None, grad_norm: Any, *, hook_s: float
    ) -> None:
        """Optimizer step ``number`` is done; the hooks took ``hook_s`` since the one before."""
        began_s = time.perf_counter()
        row = Waiting(number, time.time(), self._link.attempt, {})
        self.done = number
        skipped = self._instruments.was_skipped
        grad_norm = whole_here(grad_norm)
        measured = self._instruments.measure(number, grad_norm)
        row.sampled = len(measured) > 0
        split_scalars(measured, row.cells, row.tensors)
        tokens = self._add_given(row, loss, tokens, grad_norm)
        self._add_times(row, tokens, hook_s, began_s)
        self._add_own(row, bool(measured), skipped)
        row.hashes, self._hashes = self._hashes, []
        row.fed, self._fed = self._fed, []
        self._add_ranks(row)
        self._reader.add(row)
        if self._reader.is_waiting:
            self._read_device(number)
        self._link.reached(number, self.tokens_seen)

    def _read_device(self, number: int) -> None:
        """Take what arrived from a device, and send for what waits there since."""
        now_s = time.monotonic()
        is_due = self._schedule.due("step", number)
        if not is_due and now_s - self._read_at_s < READ_S:
            return
        self._read_at_s = now_s
        self._reader.turn()
        if is_due:
            self._schedule.sampled("step", number, 0.0)

    def served(self, batch: Any, fingerprint: Any) -> None:
        """The loader gave a batch: hash its rows where they lie, and keep a bounded sample."""
        self._keep_sample(batch)
        if fingerprint is None:
            return
        rows = find_tokens(batch) if fingerprint == AUTO else fingerprint(batch)
        if rows is not None and len(rows):
            self._hashes.append(hash_rows(rows))

    def _keep_sample(self, batch: Any) -> None:
        """On a device only a view is kept here: the packed copy takes it along."""
        feed = self._feed
        tokens = find_tokens(batch)
        rows_BT = None if tokens is None else chosen_rows(tokens, feed.rows_hold)
        if rows_BT is not None and rows_BT.device.type == "cpu":
            rows_BT = copy_rows(rows_BT)
        elif rows_BT is not None:
            rows_BT = chosen_rows(tokens, feed.rows_hold // 8).long().clone()
        sources = () if feed.sources is None else tuple(feed.sources(batch))
        if rows_BT is not None or sources:
            self._fed.append(Sample(rows_BT, sources))

    def log(self, values: Mapping[str, Any]) -> None:
        """Values that go with the next step."""
        self._logged.update(values)

    def predicted(self, logits: Any, targets: Any, **options: Any) -> None:
        """Predictions of the coming step's batch, where they are due."""
        step = self.done + 1
        if not self._schedule.due("train_batch", step):
            return
        from trainer_hooks.signals.training_batch import specs, training_batch

        began_s = time.perf_counter()
        if not self._judged_keys:
            found = specs()
            self._judged_keys = frozenset(spec.key for spec in found)
            self._link.open().intake.declare(found)
        self._logged.update(training_batch(logits, targets, **options))
        self._schedule.sampled("train_batch", step, time.perf_counter() - began_s)

    def put_late(self, step: int, values: Mapping[str, Any]) -> None:
        """Values of another step than the coming one; they complete nothing."""
        row = Waiting(step, time.time(), self._link.attempt, {}, through=False)
        split_scalars(dict(values), row.cells, row.tensors)
        if row.tensors:
            self._reader.add(row)
        else:
            self._complete(row)

    def resume(self, step: int, tokens_seen: int) -> None:
        """Go on from here: what was begun of a step is no longer part of one."""
        self._reader.drain()
        self.done, self.tokens_seen = step, tokens_seen
        self.clock, self.micro = StepClock(), MicroBatches()
        self._schedule.resume(step)
        self._hashes, self._fed, self._logged = [], [], {}

    def drain(self) -> None:
        """The end: everything that waits for a device, and what was logged after the last step."""
        self._reader.drain()
        if self._logged:
            logged, self._logged = self._logged, {}
            self.put_late(self.done, logged)

    def _add_given(self, row: Waiting, loss: Any, tokens: int | None, grad_norm: Any) -> int | None:
        """What the loop says; returns the step's tokens, given or counted by micro-batches."""
        mean, counted = self.micro.take()
        if self.micro.is_plain_mean and not self._said_plain_mean:
            self._said_plain_mean = True
            text = "losses of micro-batches count alike: their tokens are not known"
            self._note(row, text, {"weighting": "micro_batch"})
        loss = mean if loss is None else loss
        tokens = counted if tokens is None else tokens
        logged, self._logged = self._logged, {}
        given: dict[str, Any] = {}
        if loss is not None:
            given["loss/train"] = loss
        if grad_norm is not None:
            given["grad_norm/total"] = grad_norm
        for key in given:
            logged.pop(key, None)
        # What the loop says wins over what a signal measured.
        for key in [k for k in (*row.cells, *row.tensors) if k in given or k in logged]:
            row.cells.pop(key, None)
            row.tensors.pop(key, None)
        if are_plain(logged):  # the hot path, hundreds of floats: they are not copied once more
            logged.update(row.cells)
            row.cells = logged
        else:
            split_scalars(logged, row.cells, row.tensors)
        split_scalars(given, row.cells, row.tensors)
        if tokens is not None:
            self.tokens_seen += int(tokens)
            row.cells["tokens_seen"] = self.tokens_seen
        return tokens

    def _add_times(self, row: Waiting, tokens: int | None, hook_s: float, began_s: float) -> None:
        now_s = time.perf_counter()
        step_s = self.clock.end_step(now_s)
        # What was measured here belongs to this step, and not once more to the next.
        counted_s, self._counted_s = self._counted_s, now_s - began_s
        hook_s += self._counted_s - counted_s
        fetched = self.waits.fetched
        wait_s, share, stall = self.waits.end_step(step_s)
        if fetched:
            row.cells["data_wait_s"] = wait_s
        if step_s is None:
            return
        self._schedule.stepped(row.step, step_s, hook_s)
        for turned in self._schedule.take_news():
            self._note(row, *tell_turned(turned))
        row.cells["step_s"] = step_s
        if fetched and share is not None:
            row.cells["data_wait_share"] = share
        if tokens is not None and step_s > 0:
            row.cells["tokens_per_s"] = tokens / step_s
        if stall is not None:
            self._tell_stall(row, stall)

    def _tell_stall(self, row: Waiting, stall: Stall) -> None:
        text = f"the loop waited {stall.wait_s:.2f} s for data (usually {stall.usual_s:.3f} s)"
        data: dict[str, Any] = {"wait_s": stall.wait_s, "usual_s": stall.usual_s}
        self._link.note(Event("data_stall", row.step, row.at, text, data))

    def _add_ranks(self, row: Waiting) -> None:
        """What the ranks are alike in, and what not; an error ends the comparison."""
        if self.team is None:
            return
        wait_s, step_s = row.cells.get("data_wait_s", math.nan), row.cells.get("step_s")
        try:
            row.cells.update(self.team.step(row.step, batch_hash(row.hashes), step_s, wait_s))
        except Exception:
            self.team = None
            raise

    def _add_own(self, row: Waiting, sampled: bool, skipped: bool) -> None:
        """What the hooks cost and how often they look, when they looked or now and then."""
        if skipped:
            row.cells["update_skipped"] = 1.0
            self._has_skipped = True
        if self._has_skipped or self._scaler is not None:
            self._add_updates(row)
        calls = self._instruments.take_closure_calls()
        if calls is not None:
            row.cells["closure_calls"] = calls
        if not sampled and row.step % OWN_COST_STEPS:
            return
        share = self._schedule.hook_share
        if share is not None:
            row.cells["hook_share"] = share
        for cadence in self._instruments.cadences:
            row.cells[f"interval/{cadence}"] = float(self._schedule.interval(cadence))

    def _add_updates(self, row: Waiting) -> None:
        """Steps of the loop against steps of the weights, and the scaler's factor."""
        attempted, applied = self._instruments.attempted, self._instruments.applied
        row.cells["updates/attempted"] = attempted
        row.cells["updates/applied"] = applied
        row.cells["updates/skipped"] = attempted - applied
        # What get_scale() gives, without waiting for the device it lies on.
        scale = getattr(self._scaler, "_scale", None)
        if scale is not None:
            split_scalars({"loss_scale": scale.clone()}, row.cells, row.tensors)

    def _note(self, row: Waiting, text: str, data: dict[str, Any]) -> None:
        self._link.note(Event("note", row.step, row.at, text, data))

    def _blame(self, row: Waiting, broken: bool) -> None:
        """Which gradients are not finite, once for every row of such steps."""
        if not (broken or self._has_blamed):
            return
        norms = [v for key, v in row.cells.items() if key.startswith("grad_norm/")]
        if not norms:
            return
        if all(map(math.isfinite, norms)):
            self._has_blamed = False
            return
        if self._has_blamed:
            return
        names = self._instruments.blame(row.step)
        if names:
            self._has_blamed = True
            text = f"gradients that are not finite: {', '.join(names)}"
            self._note(row, text, {"parameters": ", ".join(names)})

    def _complete(self, row: Waiting) -> None:
        """All values of a row are on the host."""
        if row.sampled:
            if changed := self._instruments.read(row.cells):
                self._link.open().intake.declare(changed)
            for key in [k for k, v in row.cells.items() if v == UNDEFINED and _is_ratio(k)]:
                del row.cells[key]
        if row.cells.get("judged_tokens/train") == 0:  # no token counts: that is no value, not NaN
            row.cells = {k: v for k, v in row.cells.items() if k not in self._judged_keys}
        broken = is_non_finite(row.cells)
        self._blame(row, broken)
        hashes = [value for part in row.hashes for value in part]
        share = self._repeats.share(hashes)
        if share is not None:
            row.cells["repeat_share"] = share
        done = Row(row.attempt, row.step, row.at, row.cells, row.through, row.fed)
        self._link.put(done, urgent=broken)


def _is_ratio(key: str) -> bool:
    return key.startswith("update_ratio/")
