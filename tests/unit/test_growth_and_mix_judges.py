"""Logits, rotation, sources and the mix: judged by their own past, not by their level."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from monitor.detectors import load_detector
from monitor.detectors.base import Detector, RunFacts, StepEvent, StepFrame, Verdict

Values = dict[str, float]


def made(name: str, **facts: Any) -> Detector:
    return load_detector(name)(RunFacts("run", "pretrain", facts))


def frames(
    steps: Sequence[int], values: Callable[[int], Values], attempt: str = "a0", ordinal: int = 0
) -> list[StepFrame]:
    return [StepFrame(attempt, ordinal, s, 1000.0 + s, values(s)) for s in steps]


def judged(detector: Detector, given: Sequence[StepFrame]) -> list[Verdict]:
    return [verdict for frame in given for verdict in detector.update(frame)]


def bad(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.judgement == "bad"]


def healthy_loss(step: int) -> float:
    return 2.0 + 4.0 * (step + 20) ** -0.5


# -- logit_growth ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [8.0, 80.0, 800.0])
def test_logits_of_any_level_that_grow_like_the_log_of_the_age_are_calm(level: float) -> None:
    source = random.Random(1)

    def values(step: int) -> Values:
        grown = level * (1.0 + 0.3 * math.log(step + 10)) + source.gauss(0, 0.01)
        return {"logit_max/probe": grown, "attn_logit_max/layer3": grown, "logsumexp/probe": 6.0}

    assert bad(judged(made("logit_growth"), frames(range(0, 8000, 50), values))) == []


def test_a_maximum_that_grows_with_the_age_warns_and_names_the_layer() -> None:
    def values(step: int) -> Values:
        return {"attn_logit_max/layer3": 10.0 + 0.0002 * step**1.4, "loss/probe": 3.0}

    found = bad(judged(made("logit_growth"), frames(range(0, 8000, 50), values)))
    assert (found[0].subject, found[0].severity) == ("attn_logit_max/layer3", "warning")
    assert found[0].evidence is not None
    assert "queries and keys" in found[0].evidence.causes[0].text


def test_growth_while_the_held_out_loss_falls_is_information() -> None:
    def values(step: int) -> Values:
        return {
            "logsumexp/probe": 6.0 + 0.3 * (max(step - 2000, 0) / 500),
            "logit_max/probe": 12.0,
            "loss/probe": healthy_loss(step) - 1e-4 * step,
        }

    found = bad(judged(made("logit_growth"), frames(range(0, 5000, 50), values)))
    assert {v.severity for v in found} == {"info"}
    assert found[0].evidence is not None
    assert "z-loss" in found[0].evidence.causes[0].text


# -- effective_lr_decay ---------------------------------------------------------------------------


def turning(norm: Callable[[int], float], loss: Callable[[int], float] = healthy_loss) -> Any:
    """Two hidden groups whose update is 0.01 of constant size, as their norm grows."""

    def values(step: int) -> Values:
        found = {"lr/all": 1e-3}
        if step % 10 == 0:
            for group in ("mlp_in", "attn_qkv", "head"):
                found[f"weight_norm/{group}"] = norm(step)
                found[f"update_ratio/{group}"] = 0.01 / norm(step)
        if step % 50 == 0:
            found["loss/probe"] = loss(step)
        return found

    return values


def test_rotation_that_halves_at_a_constant_rate_is_told_as_information() -> None:
    given = frames(range(1500), turning(lambda s: 10.0 + s / 100))
    found = bad(judged(made("effective_lr_decay"), given))
    assert {v.severity for v in found} == {"info"}
    assert 1000 <= found[0].step <= 1400
    assert found[0].evidence is not None
    assert found[0].evidence.causes[0].text == "the weight norms outgrew the learning rate"


def test_it_warns_when_progress_is_lost_with_it() -> None:
    def stuck(step: int) -> float:
        return healthy_loss(min(step, 1200))

    given = frames(range(2600), turning(lambda s: 10.0 + s / 100, stuck))
    found = bad(judged(made("effective_lr_decay"), given))
    assert found[-1].severity == "warning"


def test_the_schedules_own_fall_is_no_loss_of_rotation() -> None:
    def values(step: int) -> Values:
        rate = 1e-3 * (1.0 - 0.9 * step / 3000)
        return {"lr/all": rate, "effective_lr/mlp_in": 10 * rate, "effective_lr/attn_o": 8 * rate}

    assert bad(judged(made("effective_lr_decay"), frames(range(3000), values))) == []


def test_embeddings_and_head_are_never_judged() -> None:
    def values(step: int) -> Values:
        return {"lr/all": 1e-3, "effective_lr/head": 1.0 / (step + 1), "effective_lr/emb": 1e-9}

    assert judged(made("effective_lr_decay"), frames(range(2000), values)) == []


@pytest.mark.parametrize(
    ("optimizer", "decay", "words"),
    [
        ("AdamW", 0.1, "turn a matrix by"),
        ("Lion", 0.1, "unknown for this optimizer"),
        ("AdamW", 0.0, "no equilibrium"),
    ],
)
def test_the_plan_is_told_once_and_is_no_alert(optimizer: str, decay: float, words: str) -> None:
    detector = made(
        "effective_lr_decay", optimizer=optimizer, planned_steps=1000,
        config={"weight_decay": decay},
    )  # fmt: skip
    found = judged(detector, frames(range(400), lambda s: {"lr/all": 4e-3}))
    assert [(v.subject, v.judgement) for v in found] == [("plan", "cannot_tell")]
    assert found[0].evidence is not None
    assert words in found[0].evidence.summary


@pytest.mark.parametrize(("optimizer", "decay"), [("AdamW", 1.0), ("MuonH", 0.0), ("AdamW", None)])
def test_no_plan_is_told_where_decay_holds_or_nothing_is_known(
    optimizer: str, decay: float | None
) -> None:
    config = {} if decay is None else {"weight_decay": decay}
    detector = made("effective_lr_decay", optimizer=optimizer, planned_steps=1000, config=config)
    assert judged(detector, frames(range(400), lambda s: {"lr/all": 4e-3})) == []


# -- source_regression ----------------------------------------------------------------------------


def sources(code: Callable[[int], float], share: Callable[[int], float] | None = None) -> Any:
    def values(step: int) -> Values:
        found: Values = {} if share is None else {"source_share@code": share(step)}
        if step % 50 == 0:
            found |= {
                "loss/probe@code": code(step),
                "loss/probe@web": healthy_loss(step) - 1e-3 * step,
                "loss/probe": (code(step) + healthy_loss(step) - 1e-3 * step) / 2,
            }
        return found

    return values


def forgotten(step: int) -> float:
    return healthy_loss(step) + 5e-4 * max(step - 1000, 0)


def test_a_source_that_gets_worse_under_a_better_mean_is_named_with_its_share() -> None:
    given = frames(range(2000), sources(forgotten, lambda s: 0.3 if s < 1000 else 0.05))
    found = bad(judged(made("source_regression"), given))
    assert {v.subject for v in found} == {"code"}
    assert 1100 <= found[0].step <= 1500
    assert found[0].evidence is not None
    assert 951 <= (found[0].evidence.onset_step or 0) <= 1051  # after its best evaluation
    assert "less of code is served" in found[0].evidence.causes[0].text


def test_without_shares_it_does_not_know_why() -> None:
    found = bad(judged(made("source_regression"), frames(range(2000), sources(forgotten))))
    assert found[0].evidence is not None
    assert found[0].evidence.causes[0].text.startswith("unexplained")


def test_sources_that_improve_or_all_get_worse_are_not_its_business() -> None:
    assert bad(judged(made("source_regression"), frames(range(3000), sources(healthy_loss)))) == []

    def all_worse(step: int) -> Values:
        up = healthy_loss(step) + 1e-3 * max(step - 1000, 0)
        return {"loss/probe@a": up, "loss/probe@b": up + 0.1, "loss/probe": up + 0.05}

    assert bad(judged(made("source_regression"), frames(range(0, 3000, 50), all_worse))) == []


# -- data_drift -----------------------------------------------------------------------------------


def mix(begin: int, code: float, length: float = 400.0) -> Any:
    source = random.Random(5)

    def values(step: int) -> Values:
        moved = step >= begin
        share = code if moved else 0.3
        return {
            "source_share@code": max(share + source.gauss(0, 0.03), 0.0),
            "source_share@web": min(1.0 - share + source.gauss(0, 0.03), 1.0),
            "doc_len": source.gauss(length if moved else 400.0, 40.0),
            "batch_unigram_kl": abs(source.gauss(0.02, 0.01)),
        }

    return values


def test_a_source_that_is_dropped_warns_and_the_loader_is_named() -> None:
    given = frames(range(800), mix(400, 0.0))
    stall = StepEvent("event", "data_stall", 1390.0, data={"wait_s": 2.5})
    given[390] = StepFrame("a0", 0, 390, 1390.0, given[390].values, (stall,))
    found = [v for v in bad(judged(made("data_drift"), given)) if v.subject == "code"]
    assert found[0].severity == "warning"
    assert found[0].step < 480
    assert found[0].evidence is not None
    assert 395 <= (found[0].evidence.onset_step or 0) <= 420
    assert "after a 2.5 s stall at step 390" in found[0].evidence.causes[0].text


def test_a_small_shift_is_information_and_noise_is_nothing() -> None:
    found = bad(judged(made("data_drift"), frames(range(800), mix(400, 0.2))))
    assert {v.severity for v in found} == {"info"}
    assert bad(judged(made("data_drift"), frames(range(3000), mix(0, 0.3)))) == []


@pytest.mark.parametrize("seed", range(3))
def test_shares_counted_on_few_rows_are_noise(seed: int) -> None:
    source = random.Random(seed)

    def values(step: int) -> Values:
        rare = sum(source.random() < 0.05 for _ in range(16)) / 16
        return {"source_share@rare": rare, "source_share@web": 1.0 - rare}

    assert bad(judged(made("data_drift"), frames(range(5000), values))) == []


def test_documents_that_shorten_by_half_are_information() -> None:
    found = bad(judged(made("data_drift"), frames(range(800), mix(400, 0.3, 200.0))))
    assert {(v.subject, v.severity) for v in found} == {("doc_len", "info")}


def test_a_declared_change_makes_a_new_reference() -> None:
    given = frames(range(800), mix(400, 0.0))
    told = StepEvent("phase", "data_mix", 1400.0)
    given[400] = StepFrame("a0", 0, 400, 1400.0, given[400].values, (told,))
    assert bad(judged(made("data_drift"), given)) == []


def test_an_undeclared_shift_starts_the_fit_of_the_plateau_anew() -> None:
    source = random.Random(2)

    def values(step: int) -> Values:
        # The new mix is harder: its loss falls from a higher level. No plateau.
        level = healthy_loss(step) if step < 3000 else 0.6 + healthy_loss(step - 2900)
        found = {"batch_unigram_kl": 0.02 if step < 3000 else 0.5}
        if step % 50 == 0:
            found["loss/probe"] = level * source.gauss(1.0, 0.001)
        return found

    def silent(step: int) -> Values:
        return {key: v for key, v in values(step).items() if key == "loss/probe"}

    assert bad(judged(made("loss_plateau"), frames(range(6000), values))) == []
    assert bad(judged(made("loss_plateau"), frames(range(6000), silent)))
