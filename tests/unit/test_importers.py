"""Each foreign format, from small files written as their tools write them."""

from __future__ import annotations

import gzip
import io
import json
import math
from pathlib import Path

import pytest

from monitor.errors import UnreadableLog
from monitor.importers import IMPORTERS, read_log, sniff
from monitor.importers.base import Imported
from monitor.importers.tfrecord import crc32c

FORMATS = Path(__file__).parents[1] / "runs" / "formats"


def read(text: str | bytes, **options: object) -> Imported:
    data = text.encode() if isinstance(text, str) else text
    return read_log(io.BytesIO(data), **options)  # type: ignore[arg-type]


def series(imported: Imported, key: str, attempt: int = 0) -> dict[int, float]:
    """Values of a series by step; absent ones left out."""
    return {
        step: float(cell)
        for frame in imported.attempts[attempt].frames
        for step, cell in zip(
            frame.steps, frame.columns.get(key, [None] * len(frame.steps)), strict=True
        )
        if cell is not None
    }


def reasons(imported: Imported) -> dict[str, int]:
    return {left.reason: left.count for left in imported.left_out}


# -- tables ---------------------------------------------------------------------------------------


def test_a_table_of_usual_names_needs_no_map() -> None:
    found = read(
        "step,tokens,loss,val_loss,lr,grad_norm,step_time_s,w_norm,w_norm_hidden,train_top1,"
        "val_top1,epoch\n"
        "10,1000,2.5,2.6,1e-3,0.9,0.2,12.5,9.5,0.4,0.39,0.5\n"
        "20,2000,2.4,,1e-3,0.8,0.2,12.6,9.6,,,1\n"
    )
    assert found.format == "csv_table"
    assert series(found, "loss/train") == {10: 2.5, 20: 2.4}
    assert series(found, "loss/heldout") == {10: 2.6}
    assert series(found, "lr/group0") == {10: 1e-3, 20: 1e-3}
    assert series(found, "grad_norm/total") == {10: 0.9, 20: 0.8}
    assert series(found, "step_s") == {10: 0.2, 20: 0.2}
    assert series(found, "weight_norm/total") == {10: 12.5, 20: 12.6}
    assert series(found, "weight_norm/hidden") == {10: 9.5, 20: 9.6}
    assert series(found, "top1/train") == {10: 0.4}
    assert series(found, "top1/probe") == {10: 0.39}
    assert series(found, "tokens_seen") == {10: 1000.0, 20: 2000.0}
    assert reasons(found) == {}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_any_usual_delimiter(delimiter: str) -> None:
    found = read("step,loss\n1,2.5\n2,2.4\n".replace(",", delimiter))
    assert series(found, "loss/train") == {1: 2.5, 2: 2.4}


def test_gzip_utf16_and_a_byte_order_mark() -> None:
    text = "step,loss\r\n1,2.5\r\n"
    plain = [gzip.compress(text.encode()), text.encode("utf-16"), b"\xef\xbb\xbf" + text.encode()]
    assert [series(read(data), "loss/train") for data in plain] == [{1: 2.5}] * 3


def test_a_map_wins_over_names() -> None:
    text = "it,myloss,loss,other\n1,2.5,9,7\n2,2.4,9,7\n"
    mapping = {"it": "step", "myloss": "loss/heldout@code", "other": "ignore"}
    found = read(text, mapping=mapping)
    assert series(found, "loss/heldout@code") == {1: 2.5, 2: 2.4}
    assert "other" not in found.columns
    spec = next(spec for spec in found.specs if spec.key == "loss/heldout@code")
    assert (spec.name, spec.group, spec.source, spec.unit) == ("loss", "heldout", "code", "nats")


def test_a_map_of_a_column_that_is_not_there_is_said() -> None:
    found = read("step,loss\n1,2\n", mapping={"lss": "loss/train"})
    assert any("'lss'" in note for note in found.notes)


def test_lines_that_are_no_rows_are_named() -> None:
    found = read("step,loss\n1,2.5\nstep,loss\n2,2.4,9,9\n-3,1\n1.5,1\n4,banana\n5,2.2\n")
    assert series(found, "loss/train") == {1: 2.5, 5: 2.2}
    assert reasons(found) == {
        "the line of names, said again": 1,
        "the line has more cells than there are names": 1,
        "the step is below 0 or beyond all counting": 1,
        "the step is no whole number": 1,
        "not a number (column 'loss')": 1,
        "the row holds no value": 1,
    }


def test_two_columns_of_one_meaning_stay_apart() -> None:
    found = read("step,loss,train_loss\n1,2.5,2.7\n")
    assert series(found, "loss/train") == {1: 2.5}
    assert series(found, "train_loss") == {1: 2.7}


def test_accuracies_in_per_cent_become_shares() -> None:
    found = read("step,val_acc\n1,39.5\n2,41\n")
    assert series(found, "top1/probe") == {1: 0.395, 2: 0.41}


def test_calibration_of_held_out_data_is_that_of_a_probe() -> None:
    found = read("step,val_loss,val_entropy,val_conf,val_ece\n50,2.5,2.25,0.4,0.02\n")
    assert series(found, "loss/probe") == {50: 2.5}
    assert series(found, "entropy_minus_nll/probe") == {50: -0.25}
    assert series(found, "confidence/probe") == {50: 0.4}
    assert "loss/heldout" not in {spec.key for spec in found.specs}


def test_stalls_are_told_from_logged_waits() -> None:
    rows = "".join(f"{s},2,{3000 if s == 30 else 1},200\n" for s in range(40))
    found = read("step,loss,wait_ms,step_ms\n" + rows)
    (stall,) = found.attempts[0].events
    assert (stall.name, stall.step, stall.data["wait_s"]) == ("data_stall", 30, 3.0)


# -- JSON -----------------------------------------------------------------------------------------


def test_lines_of_objects_with_nested_names_and_broken_lines() -> None:
    found = read(
        '{"step": 1, "train": {"loss": 2.5}, "tags": ["a"]}\n\nnot json\n[1]\n'
        '{"step": 2, "train": {"loss": NaN}}\n{"step": 3, "train": {"loss": 2.3'
    )
    assert found.format == "json_lines"
    values = series(found, "loss/train")
    assert values[1] == 2.5
    assert math.isnan(values[2])
    assert reasons(found)["the line is no JSON object"] == 3
    assert reasons(found)["not a number (column 'tags')"] == 1


def test_a_list_of_objects() -> None:
    found = read('[{"step": 1, "loss": 2.5}, 7, {"step": 2, "loss": 2.4}]')
    assert series(found, "loss/train") == {1: 2.5, 2: 2.4}


def test_trainer_state_tells_the_plan_and_leaves_the_summary() -> None:
    history = [
        {"epoch": 0.1, "learning_rate": 5e-5, "loss": 2.5, "grad_norm": "nan", "step": 10},
        {"epoch": 0.1, "eval_loss": 2.6, "eval_code_loss": 1.5, "eval_runtime": 3.0, "step": 10},
        {"epoch": 0.2, "learning_rate": 4e-5, "loss": 2.4, "grad_norm": 0.7, "step": 20},
        {"epoch": 0.2, "train_loss": 2.45, "train_runtime": 9.0, "total_flos": 1, "step": 20},
    ]
    state = {"best_metric": None, "log_history": history, "max_steps": 500, "num_train_epochs": 3}
    found = read(json.dumps(state, indent=2))
    assert found.format == "trainer_state"
    assert series(found, "loss/train") == {10: 2.5, 20: 2.4}
    assert series(found, "loss/heldout") == {10: 2.6}
    assert series(found, "loss/heldout@code") == {10: 1.5}
    assert math.isnan(series(found, "grad_norm/total")[10])
    assert found.facts == {"planned_steps": 500, "declared_epochs": 3.0}
    assert reasons(found) == {"the summary of the whole training": 1}


def test_what_is_learnt_from_answers_is_a_run_of_its_kind() -> None:
    rl = read('{"step": 1, "loss": 0.0, "reward": 0.5, "kl": 0.01, "completion_length": 200}\n')
    dpo = read('{"step": 1, "loss": 0.6, "rewards/margins": 0.5}\n')
    assert (rl.run_kind, dpo.run_kind) == ("rl", "preference")


# -- W&B and Lightning ----------------------------------------------------------------------------


def test_a_chart_exported_from_wandb() -> None:
    found = read(
        '"Step","tiny-1 - train/loss","tiny-1 - train/loss__MIN","tiny-1 - train/loss__MAX",'
        '"tiny-2 - train/loss"\n"1","2.5","2.5","2.5","3"\n"2","2.4","2.4","2.4","3"\n'
    )
    assert found.format == "wandb_csv"
    assert series(found, "loss/train") == {1: 2.5, 2: 2.4}
    assert reasons(found) == {
        "a column of a chart's bounds (__MIN, __MAX)": 2,
        "a column of another run ('tiny-2')": 1,
    }


def test_a_history_written_by_wandb_counts_by_the_optimizers_steps() -> None:
    found = read(
        ",_step,_timestamp,_runtime,train/global_step,train/loss\n"
        "0,0,1760000000.5,1,100,2.5\n1,1,1760000002.5,3,200,2.4\n"
    )
    assert found.format == "wandb_csv"
    assert series(found, "loss/train") == {100: 2.5, 200: 2.4}
    assert found.attempts[0].frames[0].times == [1760000000.5, 1760000002.5]


def test_lightning_metrics() -> None:
    found = read(
        "epoch,lr-AdamW,step,train_loss_epoch,train_loss_step,val_loss\n"
        "0,0.001,,,,\n0,,49,,2.5,\n0,,99,,,2.6\n0,,99,2.55,,\n1,,149,,2.4,\n"
    )
    assert found.format == "lightning_csv"
    assert series(found, "loss/train") == {49: 2.5, 149: 2.4}
    assert series(found, "loss/heldout") == {99: 2.6}
    assert reasons(found) == {
        "a mean over an epoch whose steps are there too": 1,
        "the row has no step": 1,
    }
    assert "lr/AdamW" in {spec.key for spec in found.specs}


# -- TensorBoard ----------------------------------------------------------------------------------


def test_an_event_file_of_both_forms_of_scalars() -> None:
    found = read((FORMATS / "events.out.tfevents.small").read_bytes())
    losses = series(found, "loss/train")
    assert found.format == "tensorboard"
    assert len(losses) == 61
    assert losses[0] == 7.0
    assert math.isnan(losses[60])
    assert series(found, "lr/group0")[59] == pytest.approx(1e-3)
    assert sorted(series(found, "loss/heldout")) == [0, 20, 40]
    assert found.attempts[0].frames[0].times[:2] == [1760000000.0, 1760000002.5]
    assert reasons(found) == {"a summary that is no scalar": 6}


def test_a_damaged_record_is_left_out_and_a_cut_file_read_to_the_cut() -> None:
    data = bytearray((FORMATS / "events.out.tfevents.small").read_bytes())
    whole = read(bytes(data))
    place = data.index(b"train/loss", 2000)
    data[place] ^= 1
    damaged = read(bytes(data))
    assert reasons(damaged)["a record's checksum is wrong"] == 1
    assert damaged.values == whole.values - 1
    cut = read(bytes(data[: len(data) // 2]))
    assert reasons(cut)["cut off inside a record"] == 1
    assert 0 < cut.values < damaged.values


def test_crc32c_is_the_castagnoli_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283


# -- what is no log -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n  \n",
        b"\x00\x01\x02",
        b"1,2,3\n4,5,6\n",
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"log_history": 7}',
        b"[{",
        gzip.compress(b"step,loss\n1,2\n")[:-9],
        b"\x1f\x8b\x08",
        b"step,loss\n",
        b"step,loss\n,\n",
    ],
)
def test_what_is_no_log_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(UnreadableLog) as caught:
        read(data)
    assert caught.value.detail


def test_each_format_of_the_table_has_its_two_functions() -> None:
    from importlib import import_module

    for place in IMPORTERS.values():
        module = import_module(place)
        assert callable(module.recognises)
        assert callable(module.read)


def test_an_unknown_format_by_name_is_refused() -> None:
    with pytest.raises(UnreadableLog):
        read("step,loss\n1,2\n", form="nothing")
    assert sniff(b"step,loss\n1,2\n") == "csv_table"
