"""What real logs hold, each oddity as a small log of its own."""

from __future__ import annotations

import io
import math

import pytest

from monitor.importers import read_log
from monitor.importers.base import Imported
from monitor.importers.names import recognise
from monitor.importers.numbers import NotANumber, read_instant, read_number


def read(text: str) -> Imported:
    return read_log(io.BytesIO(text.encode()))


def table(header: str, *rows: object) -> Imported:
    return read("\n".join([header, *(str(row) for row in rows)]) + "\n")


def steps(imported: Imported) -> list[list[int]]:
    return [[s for f in attempt.frames for s in f.steps] for attempt in imported.attempts]


def cells(imported: Imported, key: str) -> list[object]:
    return [c for a in imported.attempts for f in a.frames for c in f.columns.get(key, [])]


def reasons(imported: Imported) -> dict[str, int]:
    return {left.reason: left.count for left in imported.left_out}


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("2.5", 2.5), (" 2.5 ", 2.5), ("np.float64(2.5)", 2.5), ("numpy.float32(2.5)", 2.5),
        ("tensor(2.5, device='cuda:0')", 2.5), ("array([2.5])", 2.5), ("Decimal('2.5')", 2.5),
        ("1,234.5", 1234.5), ("1e-3", 1e-3), (7, 7.0), ("", None), ("None", None), ("null", None),
        ("N/A", None), ("-", None), (None, None), ("Infinity", math.inf), ("-inf", -math.inf),
    ],
)  # fmt: skip
def test_numbers_as_logs_write_them(cell: object, number: float | None) -> None:
    assert read_number(cell) == number


@pytest.mark.parametrize("cell", ["two", True, [1], {"a": 1}, "1_000", 10**400, "9" * 100, "12%"])
def test_what_is_no_number(cell: object) -> None:
    with pytest.raises(NotANumber):
        read_number(cell)


@pytest.mark.parametrize(
    ("cell", "instant"),
    [
        ("2025-11-29T22:18:01Z", 1764454681.0), ("2025-11-29 22:18:01", 1764454681.0),
        ("0:12:33", 753.0), ("1 day, 0:00:01", 86401.0), ("17.5", 17.5), ("soon", None),
    ],
)  # fmt: skip
def test_instants_as_logs_write_them(cell: str, instant: float | None) -> None:
    assert read_instant(cell) == instant


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("train/loss", "loss/train"), ("lm loss", "loss/train"), ("Train Loss", "loss/train"),
        ("eval/loss", "loss/heldout"), ("validation_loss", "loss/heldout"),
        ("val_loss_g0", "loss/heldout@g0"), ("eval_code_loss", "loss/heldout@code"),
        ("val_top1_g3", "top1/probe@g3"), ("eval_train_loss", "eval_train_loss"),
        ("critic_loss", "critic_loss"), ("learning_rate", "lr/group0"), ("lr-AdamW", "lr/AdamW"),
        ("lr_mult", "lr_mult"), ("train/grad_norm", "grad_norm/total"),
        ("grad_norm_r1", "grad_norm/total@rank1"), ("w_qkv", "weight_norm/attn_qkv"),
        ("ang_fo", "effective_lr/mlp_out"), ("upd_ratio", "update_ratio/total"),
        ("tok/sec", "tokens_per_s"), ("dup", "repeat_share"), ("val_conf", "confidence/probe"),
        ("entropy", "entropy"), ("reward", "reward"), ("val_wer", "val_wer"),
        ("samples_per_s", "samples_per_s"),
    ],
)  # fmt: skip
def test_names_and_the_series_they_are(column: str, key: str) -> None:
    spec = recognise(column).spec
    assert spec is not None
    assert spec.key == key


def test_no_step_column_counts_rows() -> None:
    found = table("epoch,loss", "0,3", "0,2", "1,1")
    assert steps(found) == [[0, 1, 2]]


def test_samples_stand_in_for_steps_and_join_training_and_evaluation_rows() -> None:
    found = table("samples,loss,val_metric", "512,3,", "1024,2,", "1024,,2.5", "1536,1,")
    assert steps(found) == [[0, 1, 2]]
    assert cells(found, "val_metric") == [None, 2.5, None]


def test_lines_printed_twice_count_once() -> None:
    found = table("step,loss", "1,3", "1,3", "2,2", "2,2.5")
    assert cells(found, "loss/train") == [3.0, 2.5]
    assert reasons(found) == {"said twice": 1, "two values for one step: the later taken": 1}


def test_nan_between_measurements_means_not_measured() -> None:
    rows = [f"{s},2.0,{'1.9' if s % 10 == 0 else 'nan'}" for s in range(45)]
    found = table("step,loss,val_loss", *rows)
    assert [c for c in cells(found, "loss/heldout") if c is not None] == [1.9] * 5
    assert reasons(found) == {"nan that says 'not measured' (series 'loss/heldout')": 40}


def test_a_loss_that_turns_nan_and_a_lone_nan_norm_are_facts() -> None:
    rows = [f"{s},{'nan' if s >= 15 else 2.0},{'nan' if s in (1, 9) else 0.5}" for s in range(30)]
    found = table("step,loss,grad_norm", *rows)
    assert cells(found, "loss/train").count("nan") == 15
    assert cells(found, "grad_norm/total").count("nan") == 2
    assert reasons(found) == {}


def test_a_loss_that_is_nan_throughout_is_a_fact() -> None:
    assert cells(table("step,loss", "1,nan", "2,nan"), "loss/train") == ["nan", "nan"]


def test_zero_loss_with_a_nan_gradient_is_kept_as_logged() -> None:
    found = table("step,loss,grad_norm", "1,0.0,nan", "2,0.0,nan")
    assert cells(found, "loss/train") == [0.0, 0.0]
    assert cells(found, "grad_norm/total") == ["nan", "nan"]


def test_a_resume_that_goes_back_is_a_new_attempt() -> None:
    rows = [f"{s},2.0" for s in (*range(100), *range(60, 120))]
    found = table("step,loss", *rows)
    assert [(a.first_step, a.last_step) for a in found.attempts] == [(0, 99), (60, 119)]


def test_two_runs_in_one_file_are_two_attempts() -> None:
    found = table("step,loss", *(f"{s},2.0" for s in (*range(50), *range(30))))
    assert [(a.first_step, a.last_step) for a in found.attempts] == [(0, 49), (0, 29)]


def test_two_writers_in_one_log_are_one_run() -> None:
    lagging = [s for pair in zip(range(10, 200), range(200), strict=False) for s in pair]
    found = table("step,loss", *(f"{s},2.0" for s in lagging))
    assert steps(found) == [list(range(200))]
    assert any("two writers" in note for note in found.notes)


def test_a_late_evaluation_rewinds_nothing() -> None:
    found = table("step,loss,val_loss", "1,3,", "2,2,", "3,2,2.5", "1,,2.9", "4,1,", "2,2,", "5,1,")
    assert steps(found) == [[1, 2, 3, 4, 5]]


def test_steps_that_begin_anew_with_each_epoch_are_added_up() -> None:
    rows = [f"{e + s / 50},{s},2.0" for e in range(3) for s in range(0, 50, 10)]
    found = table("epoch,step,loss", *rows)
    assert steps(found) == [list(range(0, 150, 10))]


def test_steps_that_begin_anew_are_added_up_without_an_epoch_column_too() -> None:
    found = table("step,loss", *(f"{s},2.0" for _ in range(4) for s in range(1, 31)))
    assert steps(found) == [list(range(1, 121))]


def test_a_run_that_starts_at_a_high_step_and_has_uneven_gaps() -> None:
    found = table("step,loss", "130000,2", "130001,2", "130500,2", "130507,2")
    assert steps(found) == [[130000, 130001, 130500, 130507]]


def test_several_tasks_in_one_column_give_the_last_of_each_step() -> None:
    found = table("step,eval_loss", "10,1", "10,5", "20,0.9", "20,4.8")
    assert cells(found, "loss/heldout") == [5.0, 4.8]


def test_a_training_clock_that_is_set_back_goes_on_and_gives_step_times() -> None:
    found = table(
        "step,train_time_ms,loss", "0,0,3", "1,80000,3", "2,500,3", "3,1000,3", "4,1500,2"
    )
    times = found.attempts[0].frames[0].times
    assert times == [0.0, 80.0, 80.0, 80.5, 81.0]
    assert cells(found, "step_s") == [None, 80.0, None, 0.5, 0.5]


def test_step_times_are_added_up_where_there_is_no_clock() -> None:
    found = table("step,step_time_s,loss", "0,0.5,3", "1,0.5,3", "2,20,3", "3,0.5,3")
    times = found.attempts[0].frames[0].times
    assert [b - a for a, b in zip(times, times[1:], strict=False)] == [0.5, 20.0, 0.5]


def test_the_calendar_is_read_under_its_usual_names() -> None:
    for name in ("ts", "Timestamp", "wall_time", "_timestamp", "date"):
        found = table(f"step,{name},loss", "1,2026-01-01T00:00:00Z,3", "2,2026-01-01 00:00:02,3")
        assert found.attempts[0].frames[0].times == [1_767_225_600.0, 1_767_225_602.0], name


def test_a_log_without_a_calendar_ends_when_it_is_said_to() -> None:
    found = read_log(io.BytesIO(b"step,loss\n0,3\n10,2\n"), ended_at=1_760_000_000.0)
    assert found.attempts[0].frames[0].times == [1_759_999_990.0, 1_760_000_000.0]


def test_numbers_of_rl_are_kept_and_judged_as_rl() -> None:
    found = table("step,loss,reward,kl,completion_length", "1,0.0,-0.68,0.01,1759", "2,-0.1,-1,0,1")
    assert found.run_kind == "rl"
    assert cells(found, "completion_length") == [1759.0, 1.0]
