"""A loss that is NaN once, from the loop to the judge: no average of a trainer hides it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from monitor.detectors import load_detector
from monitor.detectors.base import RunFacts, StepFrame
from monitor.domain.block import Ranked, summarise
from tests.fixtures.stub_server import StubServer
from trainer_hooks import watch
from trainer_hooks.wire import from_cell

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
STEPS, WINDOW = 10, 5


class Averaging:
    """A trainer whose log gives means of five steps and puts the last mean where one is NaN."""

    def __init__(self) -> None:
        self.window: list[float] = []
        self.logged: list[float] = []

    def log(self, loss: float) -> None:
        mean = sum(self.window) / len(self.window) if self.window else 1.0
        self.window.append(mean if math.isnan(loss) else loss)
        if len(self.window) == WINDOW:
            self.logged.append(sum(self.window) / WINDOW)
            self.window.clear()


def test_a_nan_that_the_trainers_log_hides_opens_at_its_step(tmp_path: Path) -> None:
    trainer = Averaging()
    with StubServer() as server:
        w = watch(server=server.url, spool_dir=tmp_path)
        for step in range(1, STEPS + 1):
            loss = torch.tensor(math.nan if step == 4 else 1.0)
            trainer.log(loss.item())
            w.step(loss=loss)
        w.close()
        told = server.received.series("loss/train")
    assert trainer.logged == [1.0, 1.0]
    assert told[4] == "nan"
    detector = load_detector("non_finite")(RunFacts("run", "pretrain", {}))
    bad = [
        verdict
        for step, cell in told.items()
        for verdict in detector.update(
            StepFrame("a", 0, step, float(step), {"loss/train": from_cell(cell)})
        )
        if verdict.judgement == "bad"
    ]
    assert bad[0].step == 4
    values = [from_cell(cell) for cell in told.values()][:WINDOW]
    steps = np.arange(1, WINDOW + 1)
    summary = summarise(Ranked(steps, steps.astype(float), np.array(values), np.arange(WINDOW)))
    assert (summary.non_finite, summary.count) == (1, WINDOW)
