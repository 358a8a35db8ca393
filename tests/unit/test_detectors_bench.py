"""The detectors' benchmark counts what it says it counts."""

import numpy as np
import pytest

from tests.bench.parts.baselines import BASELINES, Curve
from tests.bench.parts.cases import RUNS, Case, half_of, recorded, source_of, split
from tests.bench.parts.scoring import Outcome, figures, figures_of, upper_bound
from tests.bench.parts.variants import VARIANTS, dropped, shuffled
from tests.bench.parts.zoo_truth import EXPECTED, Expected
from tests.fixtures.traces import Told, judge

STALE = RUNS / "zoo" / "stale16.csv.gz"


def told(detector="loss_spike", onset=500, opened=503, severity="warning", cause=""):
    return Told(detector, "", severity, "", onset, opened, "firing", None, "", cause)


def outcome(*alerts, onset=None, healthy=1000, others=None, **more):
    expected = Expected(5, ("loss_spike",), "bad batch") if onset is not None else None
    case = Case("a", "s", "judgement", "recorded", list, healthy, onset, expected, **more)
    return Outcome(case, list(alerts), 1, 1000, others=others or {})


def test_every_recorded_run_belongs_to_one_half():
    named = [*split()["development"], *split()["judgement"]]
    assert len(set(named)) == len(named)
    assert {source_of(path) for path in RUNS.rglob("*.csv.gz")} == set(named)


def test_both_halves_hold_healthy_steps():
    paths = [RUNS / f"bench/more/{name}.csv.gz" for name in
             ("healthy_seqaeon_sweep_p27_0", "healthy_mlperf51_dell_llama31_8b")]  # fmt: skip
    found = list(recorded(paths))
    assert [case.half for case in found] == ["judgement", "development"]
    assert [case.healthy_steps for case in found] == [905, 192]
    assert half_of("nobody/knows") == "judgement"


def test_what_counts_as_a_false_alarm():
    before = outcome(told(opened=400), told(opened=450, severity="info"), onset=500)
    sound = outcome(told(severity="critical"), told("data_stall"))
    summed = figures([before, sound])
    assert (summed["false_alarms"], summed["false_alarms_critical"]) == (3, 1)
    assert summed["false_alarms_per_10k"] == pytest.approx(15.0)


def test_of_a_run_of_the_zoo_what_tells_of_the_machine_is_counted_apart():
    case = Case("a", "zoo healthy", "judgement", "zoo", list, 800)
    one = Outcome(case, [told("data_stall"), told("slow_drift")], 1, 800)
    summed = figures([one])
    assert (summed["false_alarms"], summed["of_the_machine"]) == (1, 1)


@pytest.mark.parametrize(
    ("alert", "caught", "in_time"),
    [
        (told(), True, True),
        (told(onset=420), True, True),
        (told(onset=380), False, True),  # its onset is 12 % of the run off
        (told(opened=506), False, False),
        (told(opened=499), False, False),
        (told("slow_drift"), False, False),
    ],
)
def test_what_counts_as_caught(alert, caught, in_time):
    one = outcome(alert, onset=500)
    assert (one.caught is not None, bool(one.in_time)) == (caught, in_time)


def test_unexplained_is_a_wrong_cause():
    right = outcome(told(cause="a bad batch"), onset=500)
    wrong = outcome(told(cause="unexplained: bad batch or not"), onset=500)
    assert figures([right, wrong])["right_cause_share"] == 0.5
    assert all(expected.cause for expected in EXPECTED.values())


def test_the_bound_on_a_rate_that_was_never_seen():
    assert upper_bound(0) == pytest.approx(2.9957, abs=1e-3)
    assert upper_bound(3) == pytest.approx(7.7537, abs=1e-3)


def noisy(steps=1500):
    noise = np.random.default_rng(0).normal(0.0, 0.02, steps)
    values = 2.0 + 2.0 * np.exp(-np.arange(steps) / 300.0) + noise
    return [(step, float(value)) for step, value in enumerate(values)]


def raised(points, begin, end, by):
    return tuple((s, v * by if begin <= s < end else v) for s, v in points)


def test_the_rules_of_others():
    spike = Curve(raised(noisy(), 900, 901, 1.5), ())
    assert BASELINES["z above 6 of 128"](spike) == [900]
    assert BASELINES["OLMo-core 6 sigma"](spike) == [900]
    assert BASELINES["KillLossSpike"](spike) == []
    doubled = Curve(raised(noisy(), 900, 960, 2.5), ())
    assert BASELINES["KillLossSpike"](doubled) == [904]
    assert len(BASELINES["not 0.1 % lower in 10"](Curve(tuple(noisy()), ()))) > 100
    flat = Curve(tuple((s, 2.0) for s in range(1500)), ())
    assert BASELINES["no new best mean in 500"](flat) == [500]
    gradient = tuple((s, 0.5 + 0.1 * ((s * 7919) % 11) / 11) for s in range(500))
    assert BASELINES["ZClip z above 2.5"](Curve((), raised(gradient, 300, 301, 20.0))) == [300]


def test_a_baseline_is_asked_only_where_it_could_judge():
    found = outcome(onset=500, others={"rule": [400, 502]})
    absent = outcome()
    whole = figures_of("rule", [found, absent])
    assert (whole["false_alarms"], whole["healthy_steps"], whole["recall"]) == (1, 1000, 1.0)


@pytest.fixture(scope="module")
def stale():
    (case,) = recorded([STALE])
    return case.log()


def test_delivery_and_restarts_change_no_verdict(stale):
    plain = judge(stale)
    assert any(one.detector == "stale_data" for one in plain)
    through = [entry.through_step for entry in shuffled(stale)]
    assert len(through) > 20
    assert len(set(through)) < len(through)  # some came before those they follow
    for name in ("delivery shuffled", "restart in the middle"):
        assert sorted(map(str, VARIANTS[name](stale))) == sorted(map(str, plain))


def test_a_fifth_of_the_points_is_lost(stale):
    def points(log):
        return sum(
            int(column.present.sum()) if column.present is not None else len(frame.steps)
            for entry in log
            for frame in entry.frames
            for column in frame.columns.values()
        )

    assert points(dropped(stale)) == pytest.approx(0.8 * points(stale), rel=0.02)
    assert any(
        one.detector == "stale_data" for one in VARIANTS["20 % of the points dropped"](stale)
    )
