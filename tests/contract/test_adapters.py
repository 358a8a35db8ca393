"""Adapters against the real trainers: raw losses, one point a step, how it ended."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import StubServer

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
VOCAB, LENGTH = 16, 8
BROKEN = 3
"""The optimizer step whose loss is NaN."""


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer() as stub:
        yield stub


class Tiny(torch.nn.Module):  # type: ignore[misc]
    """A model whose loss is NaN where a row is all zeros."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emb = torch.nn.Embedding(VOCAB, 8)
        self.lm_head = torch.nn.Linear(8, VOCAB)

    def forward(self, input_ids: Any, labels: Any = None) -> dict[str, Any]:
        logits = self.lm_head(self.emb(input_ids))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), input_ids.flatten())
        return {"loss": loss + loss * (math.nan if bool((input_ids == 0).all()) else 0.0),
                "logits": logits}  # fmt: skip


def rows(steps: int, broken: int | None = None) -> list[dict[str, Any]]:
    """Two rows of one micro-batch each for every optimizer step."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for step in range(1, steps + 1):
        for _ in range(2):
            ids = torch.randint(1, VOCAB, (LENGTH,), generator=generator)
            ids = torch.zeros_like(ids) if step == broken else ids
            found.append({"input_ids": ids, "labels": ids})
    return found


def watch_options(server: StubServer, tmp_path: Path) -> dict[str, Any]:
    return {"server": server.url, "spool_dir": tmp_path / "spool", "every": {"weights": 2},
            "overhead_budget": None}  # fmt: skip


def hugging_face(tmp_path: Path, data: list[Any], **more: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=1, report_to=[],
        gradient_accumulation_steps=2, logging_steps=2, use_cpu=True, disable_tqdm=True,
        num_train_epochs=1, learning_rate=1e-2, logging_nan_inf_filter=True, save_steps=4,
        train_sampling_strategy="sequential", dataloader_pin_memory=False, seed=7, **more,
    )  # fmt: skip
    return transformers.Trainer(model=Tiny(), args=arguments, train_dataset=data)


def test_hugging_face_trainer_gives_raw_losses_where_its_log_hides_a_nan(
    server: StubServer, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    from trainer_hooks.adapters.hf_trainer import watch_trainer

    trainer = hugging_face(tmp_path, rows(5, BROKEN))
    watch_trainer(trainer, **watch_options(server, tmp_path))
    trainer.train()
    got = server.received
    losses = got.series("loss/train")
    assert sorted(losses) == [1, 2, 3, 4, 5]
    assert losses[BROKEN] == "nan"
    assert got.series("tokens_seen")[5] == 5 * 2 * LENGTH
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert all(map(math.isfinite, logged[:1]))
    assert 1 in got.series("grad_norm/total")
    assert 2 in got.series("weight_norm/head")
    assert 4 in got.series("data_wait_s")
    (end,) = got.records("run_end")
    assert end["status"] == "finished"
    phases = [p for p in got.records("phase") if p["name"] == "checkpoint"]
    assert any(str(p["path"]).endswith("checkpoint-4") for p in phases)
    assert got.records("run_start")[0]["planned_steps"] == 5


def test_hugging_face_losses_are_the_same_bit_for_bit_watched_or_not(
    server: StubServer, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    from trainer_hooks.adapters.hf_trainer import watch_trainer

    weights = []
    for watched in (False, True):
        trainer = hugging_face(tmp_path / str(watched), rows(4))
        if watched:
            watch_trainer(trainer, **watch_options(server, tmp_path))
        trainer.train()
        weights.append([p.detach().clone() for p in trainer.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_a_hugging_face_run_that_fails_says_so(server: StubServer, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from trainer_hooks.adapters.hf_trainer import watch_trainer

    trainer = hugging_face(tmp_path, [*rows(2), {"input_ids": torch.ones(3), "labels": None}] * 2)
    watch_trainer(trainer, **watch_options(server, tmp_path))
    with pytest.raises(Exception, match=".*"):
        trainer.train()
    (end,) = server.received.records("run_end")
    assert end["status"] == "failed"


def lightning_parts() -> tuple[Any, Any]:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = Tiny()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.model(**batch)["loss"]

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self.model(**batch)["loss"])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    return lightning, Module


@pytest.mark.filterwarnings("ignore")
def test_lightning_gives_one_weighted_loss_for_each_optimizer_step(
    server: StubServer, tmp_path: Path
) -> None:
    lightning, module = lightning_parts()
    from trainer_hooks.adapters.lightning import WatchCallback

    def fit(steps: int, checkpoint: str | None = None) -> Any:
        callback = WatchCallback(**watch_options(server, tmp_path))
        trainer = lightning.Trainer(
            accelerator="cpu", max_steps=steps, accumulate_grad_batches=2, logger=False,
            default_root_dir=tmp_path, callbacks=[callback], enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False, num_sanity_val_steps=1,
        )  # fmt: skip
        data = torch.utils.data.DataLoader(rows(steps), batch_size=1)
        held = torch.utils.data.DataLoader(rows(1), batch_size=1)
        trainer.fit(module(), data, held, ckpt_path=checkpoint)
        return trainer

    trainer = fit(4)
    got = server.received
    losses = got.series("loss/train")
    assert sorted(losses) == [1, 2, 3, 4]
    with torch.no_grad():
        first = [Tiny()(r["input_ids"][None])["loss"].item() for r in rows(4)[:2]]
    assert losses[1] == pytest.approx(sum(first) / 2, rel=1e-5)
    assert got.series("tokens_seen")[4] == 4 * 2 * LENGTH
    assert 4 in got.series("weight_norm/head")
    assert list(got.series("loss/heldout")) == [4]
    assert got.records("run_end")[0]["status"] == "finished"
    assert {"evaluation"} == {p["name"] for p in got.records("phase")}
    trainer.save_checkpoint(tmp_path / "last.ckpt", weights_only=False)
    fit(6, str(tmp_path / "last.ckpt"))
    assert len({run for run, *_ in got.batches}) == 1
    assert sorted(got.series("loss/train")) == [1, 2, 3, 4, 5, 6]
    assert got.records("attempt_start")[-1]["ordinal"] == 2


def test_accelerate_steps_where_gradients_are_synchronised(
    server: StubServer, tmp_path: Path
) -> None:
    accelerate = pytest.importorskip("accelerate")
    from trainer_hooks.adapters.accelerate import watch_accelerate

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    plain = Tiny()
    model, optimizer, loader = accelerator.prepare(
        plain,
        torch.optim.AdamW(plain.parameters(), lr=1e-2),
        torch.utils.data.DataLoader(rows(4), batch_size=1),
    )
    with watch_accelerate(accelerator, model, optimizer, **watch_options(server, tmp_path)) as w:
        for batch in w.data(loader):
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                norm = None
                if accelerator.sync_gradients:
                    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                w.step(loss, batch["input_ids"].numel(), norm)
    got = server.received
    assert sorted(got.series("loss/train")) == [1, 2, 3, 4]
    assert got.series("tokens_seen")[4] == 4 * 2 * LENGTH
    assert sorted(got.series("grad_norm/total")) == [1, 2, 3, 4]
    assert 2 in got.series("update_ratio/head")
    assert got.records("run_end")[0]["status"] == "finished"
