"""What real logs hold that looks odd and is sound: nobody is woken."""

import math
import random
from functools import cache
from pathlib import Path

import pytest

from monitor.importers import read_log
from monitor.services.backtest import imported_entries
from tests.fixtures.traces import Row, entries, judge

RUNS = Path(__file__).parents[1] / "runs"
STEPS = 2400

REAL = {
    "fp16 steps are skipped evenly by design": (
        "dschat_sft_opt1p3b", "dschat_dpo_opt350m", "dschat_rm_opt350m",
    ),
    "a policy's loss is about 0 and reward tells the story": (
        "dschat_ppo_opt1p3b", "verl_opd_cr3q4lay", "verl_opd_5qinw90x",
    ),
    "batches grouped by length swing with a fixed period": ("hf_qlora_10k",),
    "losses are smoothed by their author": ("seqaeon_sweep_p27_1", "seqaeon_mst_sweep_0"),
    "few rows, uneven gaps": (
        "mlperf51_krai_llama2_70b_lora", "mlperf51_nv_llama31_405b", "hf_nsllm",
        "mlperf51_amd_llama31_8b",
    ),
}  # fmt: skip


def loud(told):
    return [(t.detector, t.subject, t.opened) for t in told if t.severity != "info"]


@pytest.mark.parametrize(
    "name", [name for names in REAL.values() for name in names], ids=lambda name: name
)
def test_real_runs(name: str) -> None:
    with (RUNS / f"bench/more/healthy_{name}.csv.gz").open("rb") as stream:
        assert loud(judge(imported_entries(read_log(stream), name))) == []


@cache
def noise() -> tuple[float, ...]:
    chance = random.Random(5)
    return tuple(chance.gauss(0.0, 0.02) for _ in range(STEPS))


def falling(step: int) -> float:
    """A loss as of a language model, in nats."""
    return 1.8 + 6.0 * (step + 50) ** -0.4 + noise()[step]


def run(**columns) -> list[Row]:
    """Rows of columns given as functions of the step; names have ``__`` for the slash."""
    keys = {name.replace("__", "/"): given for name, given in columns.items()}
    return [
        Row(step, float(step), {key: given(step) for key, given in keys.items()})
        for step in range(STEPS)
    ]


def rate(step: int) -> float:
    return 3e-4 * min(1.0, step / 100)


def staircase(step: int) -> float:
    """Down by a step at each epoch's border."""
    return 2.6 - 0.25 * (step // 400) ** 0.7 + noise()[step]


def rising_within_epochs(step: int) -> float:
    """Down at each border, and up again a little within the epoch: harder rows come last."""
    return 2.6 - 0.25 * (step // 400) ** 0.7 + 0.06 * (step % 400) / 400 + noise()[step]


def too_high_at_epoch_ends(step: int) -> float:
    """48 micro-steps divided by 32: an artefact of x1.5 at every epoch's last step."""
    return falling(step) * (1.5 if step % 400 == 399 else 1.0)


SYNTHETIC = {
    "a staircase at the borders of epochs": {"loss__train": staircase, "lr__all": rate},
    "rises within each epoch": {"loss__train": rising_within_epochs, "lr__all": rate},
    "an artefact at every epoch's end": {"loss__train": too_high_at_epoch_ends, "lr__all": rate},
    "a gradient norm that rises all run": {
        "loss__train": falling,
        "grad_norm__total": lambda step: (0.5 + 0.25 * step / STEPS) * math.exp(5 * noise()[step]),
    },
    "lone gradient norms of twenty times the median": {
        "loss__train": falling,
        "grad_norm__total": lambda step: 0.5 * (20.0 if step % 317 == 200 else 1.0),
    },
    "a learning rate of 0 in the first row": {
        "loss__train": falling,
        "lr__all": lambda step: 0.0 if step == 0 else 3e-4,
    },
    "bits per character": {"loss__train": lambda step: falling(step) / 4.2, "lr__all": rate},
    "a policy's loss of exactly 0": {
        "loss__train": lambda step: 0.0 if step % 5 else noise()[step],
        "lr__all": rate,
    },
}


KNOWN: dict[str, str] = {}


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(name, marks=pytest.mark.xfail(reason=KNOWN[name], strict=True))
        if name in KNOWN
        else name
        for name in SYNTHETIC
    ],
)
def test_made_ones(story: str) -> None:
    facts = {"run_kind": "rl"} if story.startswith("a policy") else None
    assert loud(judge(entries(run(**SYNTHETIC[story]), facts=facts))) == []


def test_evaluations_within_the_step_time_are_no_slowdown() -> None:
    """20.4 s instead of 0.41 s at every 250th step, and single steps of half a minute."""

    def step_s(step: int) -> float:
        return 20.4 if step % 250 == 0 else 33.0 if step in (700, 1733) else 0.41

    clock, rows = 0.0, []
    for step in range(STEPS):
        clock += step_s(step)
        values = {"loss/train": falling(step), "step_s": step_s(step),
                  "tokens_per_s": 4096 / step_s(step), "lr/all": rate(step)}  # fmt: skip
        rows.append(Row(step, clock, values))
    assert loud(judge(entries(rows))) == []


@pytest.mark.parametrize("every", [1, 7, 50])
def test_any_cadence_and_an_odd_last_gap(every: int) -> None:
    rows = [row for row in run(loss__train=falling, lr__all=rate) if row.step % every == 0]
    assert loud(judge(entries([*rows, Row(9_999, 9_999.0, {"loss/train": 2.0})]))) == []


def test_a_run_whose_log_begins_at_step_130_000() -> None:
    rows = [
        Row(130_000 + row.step, row.t, {**row.values, "loss/train": 1.9 + noise()[row.step]})
        for row in run(loss__train=falling, lr__all=lambda step: 1e-5)
    ]
    told = [t for t in judge(entries(rows)) if t.detector in ("loss_spike", "divergence")]
    assert told == []
