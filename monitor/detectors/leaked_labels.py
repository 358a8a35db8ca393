"""Fresh rows that are predicted far better than held-out ones: the answers stand in the inputs.

A model memorises rows it sees again; rows that it sees for the first time it knows no better than
held-out ones. Where it does, and rows are counted, the targets leak: not shifted by one, copied
into the inputs, or unmasked.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.detectors.base import Cause, Evidence


@dataclass(frozen=True, slots=True)
class LeakParams:
    """``share``: of the held-out loss, below which no train loss on fresh rows lies by itself, nor
    ``apart_nats`` below it. ``evals_in_a_row``: two. ``together_share``: up to here they were
    alike. ``repeats``: rows count as fresh below this share of repeats. ``points``: of the
    train loss between two evaluations."""

    share: float = 0.25
    apart_nats: float = 1.0
    evals_in_a_row: int = 2
    together_share: float = 0.75
    repeats: float = 0.01
    points: int = 16


def floor(held: float, params: LeakParams) -> float:
    """No train loss on fresh rows lies below this by itself, in nats."""
    return min(params.share * held, held - params.apart_nats)


def leaked(
    step: int, at: float, held: float, train: float, n: int, version: int, params: LeakParams
) -> Evidence:
    """What is said of it; ``step`` and ``at`` of the onset, losses in nats."""
    cause = Cause(
        "the targets stand in the inputs: labels that are not shifted by one, or an answer that "
        "leaks into its prompt",
        2, 2, "no row was served twice, so none was memorised",
    )  # fmt: skip
    return Evidence(
        rule="leaked_labels",
        version=version,
        value=train,
        threshold=floor(held, params),
        unit="nats",
        n=n,
        onset_step=step,
        onset_at=at,
        series=("loss/train", "loss/heldout", "loss/probe", "repeat_share"),
        numbers=(
            ("train loss on fresh rows", train, "nats", ""),
            ("held-out loss", held, "nats", ""),
        ),
        summary=f"Train loss is {train:.3f} on rows that were never served before, the held-out "
        f"loss {held:.3f}: no model knows fresh rows that much better.",
        causes=(cause,),
        first_action="print one batch: are targets the inputs shifted by one, and is the prompt's "
        "answer masked in the inputs?",
        clears="two evaluations with the two losses alike.",
    )
