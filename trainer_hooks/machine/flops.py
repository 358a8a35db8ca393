"""Model FLOPs utilisation, and what cards can do at best.

Peak dense BF16 rates from torchtitan ``tools/utils.py`` (b5bcd76c) and nanochat ``common.py``
(92d63d4e). 6 N FLOPs a token: PaLM, arXiv 2204.02311, appendix B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_hooks.wire import Asleep, SeriesSpec

# The first name found in the card's own wins: longer ones come before those they contain.
PEAK_TFLOPS: dict[str, float] = {
    "GB300": 2500, "GB200": 2500, "B300": 2250, "B200": 2250, "H200": 989,
    "H100 NVL": 835, "H100 PCIe": 756, "H100": 989, "H20": 148, "A100": 312,
    "L40S": 362, "L4": 121, "A40": 149.7, "A30": 165, "A6000": 154.85,
    "5090": 209.5, "4090": 165.2, "3090": 71,
    "MI355X": 2500, "MI300X": 1300, "MI250X": 191.5,
}  # fmt: skip
"""Dense BF16, in 1e12 FLOPs a second; of an MI250X one of its two dies, which is one device."""

WAKE = "watch(..., peak_tflops=503.8)"


def peak_tflops(card: str) -> float | None:
    """The peak of a card by its name; None where it is in no table: unknown is not zero."""
    words = card.replace("-", " ")
    return next((peak for name, peak in PEAK_TFLOPS.items() if _is_in(name, words)), None)


def _is_in(name: str, words: str) -> bool:
    """As whole words: an L40 is no L4."""
    return f" {name.lower()} " in f" {words.lower()} "


def flops_per_token(model: Any, params_active: int | None) -> float | None:
    """6 for each parameter that a token meets; an input embedding of its own is a look-up."""
    if params_active is not None:
        return 6.0 * params_active
    if not hasattr(model, "parameters"):
        return None
    total = sum(int(parameter.numel()) for parameter in model.parameters())
    looked_up = _embedding_size(model)
    return 6.0 * (total - looked_up)


def _embedding_size(model: Any) -> int:
    """Scalars of embeddings that no linear layer shares."""
    modules = list(model.modules()) if hasattr(model, "modules") else []
    multiplied = {id(m.weight) for m in modules if type(m).__name__ == "Linear"}
    tables = {
        id(m.weight): int(m.weight.numel())
        for m in modules
        if type(m).__name__ == "Embedding" and id(m.weight) not in multiplied
    }
    return sum(tables.values())


@dataclass(frozen=True, slots=True)
class Mfu:
    """Share of the cards' peak that goes into the model: tokens/s x FLOPs a token / peak."""

    flops_per_token: float
    peak_flops: float

    def of(self, tokens_per_s: float) -> float:
        """The share, 0 to 1."""
        return tokens_per_s * self.flops_per_token / self.peak_flops


def make_mfu(flops: float | None, peak: float | None, cards: list[str], world: int) -> Mfu | Asleep:
    """The meter, or why there is none. ``peak``: of one card, in 1e12 FLOPs a second."""
    if flops is None:
        missing = "the FLOPs of a token"
        return Asleep("mfu", missing, "watch(..., flops_per_token=6 * active_parameters)")
    found = peak if peak is not None else peak_tflops(cards[0]) if cards else None
    if found is None:
        missing = f"the peak of {cards[0]}" if cards else "a card whose peak is known"
        return Asleep("mfu", missing, WAKE)
    return Mfu(flops, found * 1e12 * max(1, world))


def spec() -> SeriesSpec:
    """What it is."""
    text = "model FLOPs utilisation: share of the cards' dense BF16 peak"
    return SeriesSpec("mfu", "mfu", family="speed", better="higher", help=text)
