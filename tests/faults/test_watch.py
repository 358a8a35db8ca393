"""The watch in real loops: what arrives, what is refused a way into the loop, and resuming."""

from __future__ import annotations

import copy
import logging
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import StubServer
from trainer_hooks import watch
from trainer_hooks.loop.inert import InertWatch

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer() as stub:
        yield stub


def tiny() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def one_step(model: Any, optimizer: Any) -> Any:
    loss = model(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def test_three_lines_give_the_signals_of_a_model(server: StubServer, tmp_path: Path) -> None:
    model, optimizer = tiny()
    losses = []
    with watch(
        model, optimizer, server=server.url, spool_dir=tmp_path, every={"weights": 5},
        overhead_budget=None,
    ) as w:  # fmt: skip
        for batch in w.data([torch.arange(8).reshape(2, 4) + 8 * i for i in range(20)]):
            losses.append(one_step(model, optimizer))
            w.step(loss=losses[-1], tokens=batch.numel(), grad_norm=torch.tensor(2.5))
    got = server.received
    expected = {i: loss.item() for i, loss in enumerate(losses, 1)}
    assert got.series("loss/train") == expected
    assert got.series("tokens_seen") == {i: 8 * i for i in range(1, 21)}
    assert set(got.series("grad_norm/total").values()) == {2.5}
    assert set(got.series("repeat_share").values()) == {0.0}
    assert sorted(got.series("step_s")) == list(range(2, 21))
    assert sorted(got.series("data_wait_share")) == list(range(2, 21))
    names = {key for _, key, _ in got.values()}
    for family in ("weight_norm/", "update_ratio/", "effective_lr/", "lr/", "grad_norm/"):
        assert any(name.startswith(family) for name in names), (family, names)
    assert sorted(got.series("weight_norm/total")) == [1, 5, 10, 15, 20]
    assert set(got.series("interval/weights").values()) == {5.0}
    assert "hook_share" in names
    specs = {r["key"] for r in got.records("series")}
    assert names <= specs
    (facts,) = got.records("run_start")[:1]
    asleep = {entry["what"]: entry["wake"] for entry in facts["asleep"]}
    assert {"probe", "cost", "plan and finish date", "sampled answers"} <= set(asleep)
    assert facts["optimizer"] == "AdamW"
    assert facts["params_total"] == 20
    server_knows = got.records("run_start")[-1]
    # A build says more of itself ("+cu130") than its package does.
    assert server_knows["packages"]["torch"].split("+")[0] == torch.__version__.split("+")[0]


def test_what_is_asleep_is_said_at_start(
    tmp_path: Path, server: StubServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trainer_hooks")
    watch(server=server.url, spool_dir=tmp_path).close()
    assert "watch(..., price_per_hour=2.10)" in caplog.text


def test_stale_rows_and_a_stall_are_seen(server: StubServer, tmp_path: Path) -> None:
    def loader() -> Iterator[Any]:
        for i in range(40):
            if i == 30:
                time.sleep(0.3)
            yield {"input_ids": torch.arange(16).reshape(2, 8) + 16 * (i if i < 30 else i % 2)}

    with watch(server=server.url, spool_dir=tmp_path) as w:
        for _ in w.data(loader()):
            time.sleep(0.002)
            w.step(loss=1.0)
    shares = server.received.series("repeat_share")
    assert {shares[s] for s in range(1, 31)} == {0.0}
    assert {shares[s] for s in range(31, 41)} == {1.0}
    (stall,) = [e for e in server.received.records("event") if e["name"] == "data_stall"]
    assert stall["step"] == 31
    assert stall["data"]["wait_s"] >= 0.3


def test_a_signal_that_raises_is_switched_off_and_training_goes_on(
    server: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    from trainer_hooks.signals.weights import Weights

    def broken(self: Any, step: int) -> Any:
        raise ZeroDivisionError("in a hook")

    monkeypatch.setattr(Weights, "measure", broken)
    model, optimizer = tiny()
    with watch(
        model, optimizer, server=server.url, spool_dir=tmp_path, every={"weights": 1},
        overhead_budget=None,
    ) as w:  # fmt: skip
        for _ in range(10):
            w.step(loss=one_step(model, optimizer))
    assert len(server.received.series("loss/train")) == 10
    (event,) = [e for e in server.received.records("event") if e["name"] == "signal_off"]
    assert event["data"]["signal"] == "weights"
    assert server.received.records("heartbeat")[-1]["hook_errors"] == 3
    assert caplog.text.count("Traceback") == 1
    assert "lr/group0" in {key for _, key, _ in server.received.values()}


@pytest.mark.parametrize(
    "misuse",
    [
        lambda w: w.step(loss=torch.ones(3)),
        lambda w: w.step(loss=1.0, tokens="many"),
        lambda w: w.log(7),
        lambda w: w.log_heldout(object(), step="x"),
        lambda w: w.load_state_dict({"run": "x"}),
        lambda w: w.micro("loss"),
        lambda w: list(w.data([torch.ones(2, 3, dtype=torch.complex64)])),
        lambda w: list(w.data([1, 2], fingerprint=lambda batch: 1 / 0)),
    ],
)
def test_misuse_is_counted_and_never_raised(
    misuse: Any, server: StubServer, tmp_path: Path
) -> None:
    with watch(server=server.url, spool_dir=tmp_path) as w:
        w.step(loss=1.0)
        misuse(w)
        w.step(loss=2.0)
    got = set(server.received.series("loss/train").values())
    assert {1.0, 2.0} <= got
    beat = server.received.records("heartbeat")[-1]
    assert beat["hook_errors"] + beat["dropped"] >= 1


def test_a_loss_keeps_no_graph_alive(server: StubServer, tmp_path: Path) -> None:
    import gc
    import weakref

    model, optimizer = tiny()
    with watch(model, optimizer, server=server.url, spool_dir=tmp_path) as w:
        loss = one_step(model, optimizer)
        graph = weakref.ref(loss)
        w.step(loss=loss)
        del loss
        gc.collect()
        assert graph() is None


def test_accumulated_losses_are_weighted_by_tokens(server: StubServer, tmp_path: Path) -> None:
    with watch(server=server.url, spool_dir=tmp_path) as w:
        for loss, tokens in ((1.0, 10), (2.0, 10), (3.0, 10), (6.0, 70)):
            w.micro(torch.tensor(loss), tokens)
        w.step()
        for loss in (1.0, 2.0, 3.0, 6.0):
            w.micro(loss)
        w.step()
    assert server.received.series("loss/train") == {1: pytest.approx(4.8), 2: pytest.approx(3.0)}
    assert server.received.series("tokens_seen") == {1: 100}


def test_a_step_that_mixed_precision_skipped_is_said(server: StubServer, tmp_path: Path) -> None:
    model, optimizer = tiny()
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    with watch(
        model, optimizer, server=server.url, spool_dir=tmp_path, every={"weights": 1},
        overhead_budget=None,
    ) as w:  # fmt: skip
        for factor in (1.0, float("inf"), 1.0):
            loss = (model(torch.ones(2, 4)) * factor).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            w.step(loss=loss)
    assert server.received.series("update_skipped") == {2: 1.0}
    assert server.received.series("loss/train")[2] in ("inf", "nan")


def test_copies_of_model_and_watch_watch_nothing(server: StubServer, tmp_path: Path) -> None:
    model, optimizer = tiny()
    with watch(model, optimizer, server=server.url, spool_dir=tmp_path) as w:
        model.watch = w
        twin = copy.deepcopy(model)
        assert isinstance(twin.watch, InertWatch)
        copy.deepcopy(optimizer)
        stub = pickle.loads(pickle.dumps(w))  # noqa: S301 - our own bytes
        stub.step(loss=1.0)
        with stub.phase("note"), stub:
            assert list(stub.data([1, 2])) == [1, 2]
        del model.watch
        w.step(loss=one_step(model, optimizer))
    assert list(server.received.series("loss/train")) == [1]


def test_only_the_first_rank_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")
    assert isinstance(watch(spool_dir=tmp_path), InertWatch)


def test_resume_through_the_checkpoint(server: StubServer, tmp_path: Path) -> None:
    options: Any = {"server": server.url, "spool_dir": tmp_path, "name": "tiny"}
    with watch(**options) as first:
        for _ in range(10):
            first.step(loss=1.0, tokens=5)
        saved = first.state_dict()
        for _ in range(3):
            first.step(loss=1.0, tokens=5)
    with watch(**options) as second:
        second.load_state_dict(saved)
        for _ in range(5):
            second.step(loss=2.0, tokens=5)
    assert first.run == second.run
    assert {b["run"] for b in server.received.batches.values()} == {first.run}
    starts = {r["ordinal"]: r for r in server.received.records("attempt_start")}
    assert (starts[1]["first_step"], starts[1]["parent"]) == (0, None)
    assert (starts[2]["first_step"], starts[2]["parent"]) == (11, saved["attempt"])
    values = server.received.values()
    second_steps = [s for a, k, s in values if k == "loss/train" and a != saved["attempt"]]
    assert sorted(second_steps) == [11, 12, 13, 14, 15]
    assert max(v[0] for (a, k, s), v in values.items() if k == "tokens_seen") == 75


def test_resume_through_a_state_file(server: StubServer, tmp_path: Path) -> None:
    options: Any = {"server": server.url, "spool_dir": tmp_path, "state_file": tmp_path / "s.json"}
    with watch(**options) as first:
        for _ in range(4):
            first.step(loss=1.0)
    with watch(**options) as second:
        second.step(loss=2.0)
        second.step(loss=2.0)
    assert first.run == second.run
    starts = sorted(
        (r["ordinal"], r["first_step"]) for r in server.received.records("attempt_start")
    )
    assert starts[0] == (1, 0)
    assert starts[-1] == (2, 5)


def test_a_loop_that_goes_back_makes_a_new_attempt(server: StubServer, tmp_path: Path) -> None:
    with watch(server=server.url, spool_dir=tmp_path) as w:
        for step in (1, 2, 3, 4, 5, 3, 4, 5, 6):
            w.step(loss=float(step), step=step)
    starts = sorted(
        {
            (r["ordinal"], r["first_step"], r["reason"])
            for r in server.received.records("attempt_start")
        }
    )
    assert starts == [(1, 0, ""), (2, 3, "rewind")]
    by_attempt: dict[str, list[int]] = {}
    for attempt, key, step in server.received.values():
        if key == "loss/train":
            by_attempt.setdefault(attempt, []).append(step)
    assert sorted(map(sorted, by_attempt.values())) == [[1, 2, 3, 4, 5], [3, 4, 5, 6]]


def test_phases_events_and_late_evaluations(server: StubServer, tmp_path: Path) -> None:
    with watch(server=server.url, spool_dir=tmp_path) as w:
        for _ in range(3):
            w.step(loss=1.0)
        with w.phase("evaluation"):
            time.sleep(0.2)
            w.log_heldout(torch.tensor(2.5))
        with pytest.raises(ValueError, match="mine"), w.phase("checkpoint", path=tmp_path / "c.pt"):
            raise ValueError("mine")
        w.event("note", "batch size doubled")
        w.log({"mine/a": 1})
        w.step(loss=1.0)
        w.log({"mine/late": 7.0}, step=2)
    got = server.received
    assert got.series("loss/heldout") == {3: 2.5}
    assert got.series("mine/a") == {4: 1}
    assert got.series("mine/late") == {2: 7.0}
    assert got.series("step_s")[4] < 0.15
    phases: dict[str, list[Any]] = {}
    for record in got.records("phase"):
        phases.setdefault(record["name"], []).append(record)
    begun, over = phases["evaluation"]
    assert begun["end_at"] is None
    assert over["end_at"] - over["begin_at"] >= 0.2
    assert begun["phase_id"] == over["phase_id"]
    assert phases["checkpoint"][1]["path"].endswith("c.pt")
    assert [e["text"] for e in got.records("event")] == ["batch size doubled"]


def test_answers_are_sampled_when_due(server: StubServer, tmp_path: Path) -> None:
    from trainer_hooks.zoo.model import TinyGPT
    from trainer_hooks.zoo.prompts import zoo_prompts

    torch.manual_seed(0)
    model = TinyGPT()
    optimizer = torch.optim.AdamW(model.parameters())
    with watch(
        model, optimizer, server=server.url, spool_dir=tmp_path, prompts=zoo_prompts(),
        every={"answers": 2, "weights": 0, "probe": 0}, answers_share=None,
    ) as w:  # fmt: skip
        w.step(loss=1.0)
        w.step(loss=1.0)
    answers = server.received.records("answer")
    assert {a["weights_step"] for a in answers} == {1, 2}
    assert len({a["sampling_id"] for a in answers}) == 2
    assert "sampling" in {p["name"] for p in server.received.records("phase")}


def test_an_address_that_is_none_does_not_stop_training(tmp_path: Path) -> None:
    model, optimizer = tiny()
    with watch(model, optimizer, server="ftp://nowhere", spool_dir=tmp_path) as w:
        for _ in range(3):
            w.step(loss=one_step(model, optimizer))
        assert w.state_dict()["step"] <= 3
        w.log({"a": 1.0})


def test_watching_without_a_model_loads_no_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from trainer_hooks import watch\n"
        "w = watch(server='http://127.0.0.1:9', spool_dir=sys.argv[1])\n"
        "w.log({'a': 1.0}); w.step(loss=1.0); w.close(timeout_s=1)\n"
        "print([m for m in ('torch', 'numpy', 'httpx', 'pydantic') if m in sys.modules])"
    )
    args = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(args, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "first", ["import trainer_hooks.watch", "from trainer_hooks.watch import Watch"]
)
def test_watch_is_callable_in_whatever_order_it_is_imported(first: str, tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        f"import sys\n{first}\nfrom trainer_hooks import watch\n"
        "print(type(watch(spool_dir=sys.argv[1])).__name__)"
    )
    args = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(args, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "Watch"
