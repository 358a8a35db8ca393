"""What is due at which step: as asked, within the overhead budget, and alike on all ranks."""

import random

import pytest

from trainer_hooks.loop.device_clock import DeviceClock
from trainer_hooks.schedule import HEADROOM, SHARED, Schedule

STEP_S = 0.1


class Loop:
    """Steps of a known length whose samples cost what the test says; time is added up, not kept."""

    def __init__(self, schedule, costs_s, *, always_s=0.0):
        self.schedule, self.costs_s, self.always_s = schedule, costs_s, always_s
        self.done = 0
        self.own_s = self.spent_s = 0.0
        self.sampled = {name: [] for name in costs_s}
        self.shares = []
        """The hooks' share of the time since the start, after each step."""

    def run(self, steps, step_s=STEP_S):
        for step in range(self.done + 1, self.done + steps + 1):
            due = [name for name in self.costs_s if self.schedule.due(name, step)]
            hook_s = self.always_s + sum(self.costs_s[name] for name in due)
            for name in due:
                self.schedule.sampled(name, step, self.costs_s[name])
                self.sampled[name].append(step)
            self.schedule.stepped(step, step_s + hook_s, hook_s)
            self.own_s += step_s
            self.spent_s += hook_s
            self.shares.append(self.spent_s / self.own_s)
        self.done += steps
        return self


def test_due_on_multiples_and_at_the_start():
    loop = Loop(Schedule({"weights": 10}, None), {"weights": 0.001}).run(40)
    assert loop.sampled["weights"] == [1, 10, 20, 30, 40]


def test_the_budget_widens_intervals_and_they_come_back():
    schedule = Schedule({"weights": 10}, 0.01)
    loop = Loop(schedule, {"weights": 0.05}).run(399)
    # 50 ms each 10 steps of 100 ms would be 5 %
    assert 50 <= schedule.interval("weights") <= 70
    before = loop.spent_s
    loop.run(1000)
    assert loop.spent_s - before <= 0.012 * 1000 * STEP_S
    loop.costs_s["weights"] = 0.001
    loop.run(600)
    assert schedule.interval("weights") == 10


def test_the_first_sample_is_paid_before_the_second_is_taken():
    loop = Loop(Schedule({"probe": 50}, 0.01), {"probe": 1.3}).run(1)
    loop.costs_s["probe"] = 0.7  # the first one also warmed up
    loop.run(6000)
    first, second, *rest = loop.sampled["probe"]
    assert first == 1
    assert second == pytest.approx((1.3 + 1.3) / (HEADROOM * 0.01 * STEP_S), rel=0.1)
    assert len(rest) >= 3
    assert max(loop.shares[second - 1 :]) <= 0.01
    assert all(step % 50 == 0 for step in (second, *rest))


def test_a_dear_cadence_does_not_starve_a_cheap_one():
    schedule = Schedule({"weights": 50, "probe": 50}, 0.01)
    loop = Loop(schedule, {"weights": 0.01, "probe": 0.5}).run(4000)
    assert len(loop.sampled["weights"]) >= 80
    assert schedule.interval("weights") == 50
    assert 4 <= len(loop.sampled["probe"]) <= 8
    assert 0.005 <= loop.shares[-1] <= 0.01


def test_what_the_hooks_take_at_every_step_counts_too():
    loop = Loop(Schedule({"weights": 10}, 0.01), {"weights": 0.02}, always_s=0.0004).run(4000)
    assert 0.007 <= loop.shares[-1] <= 0.01


def test_a_little_is_sampled_even_where_every_step_takes_the_budget():
    loop = Loop(Schedule({"weights": 10}, 0.01), {"weights": 0.02}, always_s=0.002).run(4000)
    assert len(loop.sampled["weights"]) >= 60


def test_a_cost_that_rises_is_paid_at_once():
    schedule = Schedule({"weights": 10}, 0.01)
    loop = Loop(schedule, {"weights": 0.001}).run(2000)
    assert schedule.interval("weights") == 10
    before, loop.costs_s["weights"] = loop.spent_s, 0.1
    loop.run(4000)
    assert loop.spent_s - before <= 0.01 * 4000 * STEP_S + 0.1


def test_slower_steps_bring_samples_back():
    schedule = Schedule({"weights": 10}, 0.01)
    loop = Loop(schedule, {"weights": 0.05}).run(500)
    assert schedule.interval("weights") > 10
    loop.run(500, step_s=1.0)
    assert schedule.interval("weights") == 10


def test_a_widened_interval_is_told_once_and_its_return_too():
    schedule = Schedule({"weights": 10, "probe": 10}, 0.01)
    loop = Loop(schedule, {"weights": 0.05, "probe": 0.0001}).run(1000)
    told = schedule.take_news()
    assert {one.cadence for one in told} == {"weights"}
    assert 1 <= len(told) <= 2
    assert told[-1].asked_steps == 10
    assert 50 <= told[-1].interval_steps <= 140
    assert told[-1].cost_s == 0.05
    loop.run(2000)
    assert schedule.take_news() == []
    loop.costs_s["weights"] = 0.0001
    loop.run(1000)
    assert schedule.take_news()[-1].interval_steps <= 10
    loop.run(1000)
    assert schedule.take_news() == []


@pytest.mark.parametrize("every", [1, 2, 3, 10])
def test_what_keeps_its_interval_has_nothing_to_tell(every):
    schedule = Schedule({"weights": every, "step": every}, 0.01)
    loop = Loop(schedule, {"weights": 0.0001, "step": 0.0}).run(100)
    schedule.resume(97)
    loop.run(10)
    assert schedule.take_news() == []


def test_zero_switches_off():
    assert not Schedule({"probe": 0}).due("probe", 100)


def test_no_budget_no_bound():
    loop = Loop(Schedule({"probe": 10}, None), {"probe": 5.0}).run(100)
    assert loop.sampled["probe"] == [1, *range(10, 101, 10)]


def test_after_a_rewind_the_next_step_is_looked_at():
    schedule = Schedule({"weights": 10}, 0.01)
    Loop(schedule, {"weights": 0.5}).run(200)
    schedule.resume(100)
    assert schedule.due("weights", 101)


class Ranks:
    """Schedules of one model in parts: their figures meet in every collective, as means, and what
    was agreed on there holds one collective later."""

    def __init__(self, clocks):
        self.clocks = clocks
        self.all = [Schedule({"weights": 10, "probe": 20}, 0.01) for _ in clocks]
        for schedule in self.all:
            schedule.is_shared = True
        self.agreed = None
        self.due = []

    def run(self, steps):
        for step in range(1, steps + 1):
            asked = [[n for n in SHARED if one.due(n, step)] for one in self.all]
            assert asked == [asked[0]] * len(self.all), f"step {step}: ranks differ"
            if asked[0]:
                self.meet()
                self.due.append((step, asked[0]))
            for one, clock in zip(self.all, self.clocks, strict=True):
                costs_s = {name: clock() for name in asked[0]}
                for name, cost_s in costs_s.items():
                    one.sampled(name, step, cost_s)
                hook_s = sum(costs_s.values())
                one.stepped(step, clock() + hook_s, hook_s)
        return self

    def meet(self):
        figures = [one.proposals() for one in self.all]
        means = [sum(column) / len(column) for column in zip(*figures, strict=True)]
        if self.agreed is not None:
            for one in self.all:
                one.agree(self.agreed)
        self.agreed = means


@pytest.mark.parametrize("seed", range(5))
def test_what_is_due_never_depends_on_one_ranks_clock(seed):
    chance = random.Random(seed)

    def clock(scale):
        return lambda: scale * chance.expovariate(1.0)

    ranks = Ranks([clock(scale) for scale in (0.001, 0.1, 10.0, 0.5)]).run(2000)
    assert 2 <= len(ranks.due) < 100  # samples as dear as steps are stretched, by all alike


def test_ranks_widen_together_and_come_back_together():
    ranks = Ranks([lambda: 0.1, lambda: 0.1]).run(3000)
    late = [step for step, names in ranks.due if step > 1000 and "weights" in names]
    assert len(late) <= 0.01 * 2000
    for one in ranks.all:
        one.agree([1.0] * len(SHARED))
        assert one.due("weights", 10_000)
        one.sampled("weights", 10_000, 0.0)
        assert [step for step in range(10_001, 10_021) if one.due("weights", step)][0] == 10_010


class FakeDevice:
    """A device that works through a queue by a clock of its own; events pass when it gets there."""

    def __init__(self):
        self.queued_s = 0.0
        self.now_s = 0.0

    def mark(self):
        return FakeEvent(self, self.queued_s)


class FakeEvent:
    def __init__(self, device, at_s):
        self.device, self.at_s = device, at_s

    def query(self):
        return self.device.now_s >= self.at_s

    def elapsed_time(self, later):
        return 1000 * (later.at_s - self.at_s)


def test_what_a_sample_takes_on_its_device_is_read_later_and_without_waiting():
    device = FakeDevice()
    clock = DeviceClock(device.mark)
    began = clock.begin()
    device.queued_s += 0.3  # 300 ms of work were queued in 20 ms
    clock.end("probe", began, 0.02)
    assert clock.take() == {}
    device.now_s = 1.0
    assert clock.take() == {"probe": pytest.approx(0.28)}
    assert clock.take() == {}


def test_a_sample_that_the_host_is_slower_at_costs_what_the_host_took():
    device = FakeDevice()
    clock = DeviceClock(device.mark)
    clock.end("weights", clock.begin(), 0.02)
    assert clock.take() == {"weights": 0.0}


def test_a_stream_that_is_recorded_into_a_graph_is_not_timed():
    clock = DeviceClock(lambda: None)
    clock.end("weights", clock.begin(), 0.02)
    assert clock.take() == {}


def test_a_cost_that_is_known_later_is_paid_too():
    schedule = Schedule({"probe": 10}, 0.01)
    own_s = spent_s = 0.0
    for step in range(1, 4001):
        due = schedule.due("probe", step)
        if due:
            schedule.sampled("probe", step, 0.02)
            schedule.owes("probe", 0.28)
            spent_s += 0.3
        # The device's part makes the step longer, and is no hook's time on the host.
        schedule.stepped(step, STEP_S + (0.3 if due else 0), 0.02 if due else 0)
        own_s += STEP_S
    assert 0.005 <= spent_s / own_s <= 0.01
