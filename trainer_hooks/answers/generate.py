"""Generation, one prompt at a time, with the probability of every chosen token.

Shapes: T time, V vocabulary, N generated tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainer_hooks.answers.prompts import Decoding, Tokenizer
from trainer_hooks.probe import logits_of

NextLogits = Callable[[Tensor], Tensor]
"""Token ids [1, T] to the logits [V] of the token after them."""

END_PROBABILITY_AT = (0, 8, 32)
"""Positions at which the probability of ending is kept: base models rarely do end."""


@dataclass(slots=True)
class Generated:
    """An answer's tokens. ``logprobs`` [N] are under the untempered model, natural logarithms."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: str = "length"
    end_probs: dict[str, float] = field(default_factory=dict)


@torch.no_grad()
def generate(
    next_logits: NextLogits,
    prompt_ids: list[int],
    decoding: Decoding,
    tokenizer: Tokenizer,
    device: torch.device,
) -> Generated:
    """Continue ``prompt_ids``; the same arguments give the same answer.

    Randomness comes from a generator of its own, seeded by ``decoding.seed``. The end token is not
    part of the answer.
    """
    generator = torch.Generator(device=device).manual_seed(decoding.seed)
    ids = torch.tensor([prompt_ids], device=device)
    ends = torch.tensor(list(tokenizer.end_ids), device=device, dtype=torch.long)
    answer = Generated()
    for place in range(decoding.max_tokens):
        logprobs_V = next_logits(ids).float().log_softmax(-1)
        if place in END_PROBABILITY_AT and len(ends):
            answer.end_probs[str(place)] = float(logprobs_V[ends].exp().sum())
        if not bool(torch.isfinite(logprobs_V.max())):
            answer.stop_reason = "non_finite"
            break
        chosen = _choose(logprobs_V, decoding, generator)
        if chosen in tokenizer.end_ids:
            answer.stop_reason = "end"
            break
        answer.ids.append(chosen)
        answer.logprobs.append(float(logprobs_V[chosen]))
        ids = torch.cat([ids, ids.new_tensor([[chosen]])], dim=1)
    return answer


def _choose(logprobs_V: Tensor, decoding: Decoding, generator: torch.Generator) -> int:
    """The likeliest token at temperature 0, else one of the nucleus of mass ``top_p``."""
    if decoding.temperature == 0:
        return int(logprobs_V.argmax())
    probs_V, order_V = (logprobs_V / decoding.temperature).softmax(-1).sort(descending=True)
    before_V = probs_V.cumsum(-1) - probs_V
    kept_V = probs_V.masked_fill(before_V >= decoding.top_p, 0.0)
    return int(order_V[torch.multinomial(kept_V, 1, generator=generator)])


@torch.no_grad()
def reference_nll(
    next_logits: NextLogits, prompt_ids: list[int], answer_ids: list[int], device: torch.device
) -> float | None:
    """Mean -ln p per token of a given answer after the prompt (nats); None for an empty one."""
    if not answer_ids:
        return None
    total = 0.0
    for place, wanted in enumerate(answer_ids):
        ids = torch.tensor([prompt_ids + answer_ids[:place]], device=device)
        total -= float(next_logits(ids).float().log_softmax(-1)[wanted])
    return total / len(answer_ids)


def last_logits(model: Any, context: int | None) -> NextLogits:
    """How a causal model is asked: the last ``context`` tokens in, the last position out."""

    def ask(ids_1T: Tensor) -> Tensor:
        return logits_of(model(ids_1T if context is None else ids_1T[:, -context:]))[0, -1]

    return ask
