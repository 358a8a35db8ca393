"""The series that the watch fills by itself, beside the signals of the model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainer_hooks.wire import SeriesSpec, series_key

if TYPE_CHECKING:
    from trainer_hooks.schedule import Turned

_S = SeriesSpec

SPECS: tuple[SeriesSpec, ...] = (
    _S("loss/train", "loss", "train", unit="nat/token", family="loss", better="lower",
       help="training loss of the optimizer step, before its update"),
    _S("loss/heldout", "loss", "heldout", unit="nat/token", family="loss", better="lower",
       help="loss on your validation data"),
    _S("grad_norm/total", "grad_norm", "total", family="gradient",
       help="L2 norm of all gradients, as given to step()"),
    _S("tokens_seen", "tokens_seen", unit="token", family="data",
       help="tokens trained on, over all attempts"),
    _S("step_s", "step_s", unit="s", family="speed", better="lower",
       help="time of one optimizer step, declared phases apart"),
    _S("tokens_per_s", "tokens_per_s", unit="token/s", family="speed", better="higher",
       help="tokens of the step over its time"),
    _S("data_wait_s", "data_wait_s", unit="s", family="data", better="lower",
       help="time in next(loader), summed over the step's micro-batches"),
    _S("data_wait_share", "data_wait_share", family="data", better="lower",
       help="share of the last 100 steps' time spent waiting for data"),
    _S("repeat_share", "repeat_share", family="data", better="lower",
       help="share of the step's rows that were served before, beyond the declared epochs"),
    _S("update_skipped", "update_skipped", family="other",
       help="1 where the optimizer made no step, as mixed precision does on overflow"),
    _S("updates/attempted", "updates", "attempted", family="other",
       help="optimizer steps that were begun, those that were skipped included"),
    _S("updates/applied", "updates", "applied", family="other",
       help="optimizer steps that changed the weights"),
    _S("updates/skipped", "updates", "skipped", family="other",
       help="optimizer steps that mixed precision skipped"),
    _S("loss_scale", "loss_scale", family="other",
       help="the scaler's factor, after the step"),
    _S("closure_calls", "closure_calls", family="other",
       help="how often the optimizer evaluated the loss in one step (L-BFGS)"),
    _S("hook_share", "hook_share", family="speed", better="lower",
       help="the hooks' own share of the last 100 steps' time on the host"),
)  # fmt: skip
"""Their keys are the canonical ones."""


def binomial(name: str, k: int, n: int) -> dict[str, float]:
    """The share of ``k`` in ``n`` and its standard error, under the keys of evaluation ``name``.

    The error is that of (k + 1) / (n + 2) (Agresti and Coull's midpoint, one success and one
    failure added): 0 of 20 is not known for sure.

    Raises:
        ValueError: ``k`` of ``n`` is no share.
    """
    if not 0 <= k <= n or n <= 0:
        raise ValueError(f"{k} of {n} is no share")
    middle = (k + 1) / (n + 2)
    error = math.sqrt(middle * (1 - middle) / n)
    return {series_key("eval", name): k / n, series_key("eval_error", name): error}


def tell_turned(turned: Turned) -> tuple[str, dict[str, Any]]:
    """An interval that the overhead budget changed: words, and data."""
    if turned.interval_steps > turned.asked_steps:
        text = (
            f"{turned.cadence}: a sample about every {turned.interval_steps} steps instead of "
            f"{turned.asked_steps}; one takes {1000 * turned.cost_s:.3g} ms, and the overhead "
            "budget allows no more"
        )
    else:
        text = f"{turned.cadence}: a sample every {turned.asked_steps} steps again"
    return text, {
        "cadence": turned.cadence,
        "asked_steps": turned.asked_steps,
        "interval_steps": turned.interval_steps,
        "cost_s": turned.cost_s,
    }


def interval_spec(cadence: str) -> SeriesSpec:
    """How often a cadence is really sampled, after the overhead budget."""
    return SeriesSpec(
        f"interval/{cadence}",
        "interval",
        cadence,
        unit="step",
        family="other",
        help="steps between two samples, as the overhead budget allows",
    )
