"""Generation, one prompt at a time, with the probability of every chosen token.

Shapes: T time, V vocabulary, N generated tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainer_hooks.answers.prompts import Decoding, Tokenizer
from trainer_hooks.probe import logits_of

NextLogits = Callable[[Tensor], Tensor]
"""Token ids [1, T] to the logits [V] of the token after them."""

EveryLogits = Callable[[Tensor], Tensor | None]
"""Token ids [1, T] to the logits [T, V] after each of them; None: too long for one pass."""


class OutOfTimeError(Exception):
    """The time for sampling is over: what was begun of an answer is no answer."""


END_PROBABILITY_AT = (0, 8, 32)
"""Positions at which the probability of ending is kept: base models rarely do end."""


@dataclass(slots=True)
class Generated:
    """An answer's tokens. ``logprobs`` [N] are under the untempered model, natural logarithms;
    ``entropies`` [N] (nats) those of the same distributions.
    """

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    stop_reason: str = "length"
    end_probs: dict[str, float] = field(default_factory=dict)


@torch.no_grad()
def generate(
    next_logits: NextLogits,
    prompt_ids: list[int],
    decoding: Decoding,
    tokenizer: Tokenizer,
    device: torch.device,
    until_s: float | None = None,
) -> Generated:
    """Continue ``prompt_ids``; the same arguments give the same answer.

    Randomness comes from a generator of its own, seeded by ``decoding.seed``. The end token is not
    part of the answer.

    Raises:
        OutOfTimeError: ``until_s`` of ``time.perf_counter`` has passed.
    """
    generator = torch.Generator(device=device).manual_seed(decoding.seed)
    ids = torch.tensor([prompt_ids], device=device)
    ends = torch.tensor(list(tokenizer.end_ids), device=device, dtype=torch.long)
    answer = Generated()
    for place in range(decoding.max_tokens):
        if until_s is not None and time.perf_counter() > until_s:
            raise OutOfTimeError
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
        answer.entropies.append(_entropy(logprobs_V))
        ids = torch.cat([ids, ids.new_tensor([[chosen]])], dim=1)
    return answer


def _entropy(logprobs_V: Tensor) -> float:
    """Nats. A token of probability 0 adds nothing."""
    return float(torch.special.entr(logprobs_V.exp()).sum())


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
    next_logits: NextLogits,
    prompt_ids: list[int],
    answer_ids: list[int],
    device: torch.device,
    every_logits: EveryLogits | None = None,
) -> float | None:
    """Mean -ln p per token of a given answer after the prompt (nats); None for an empty one.

    In one pass where ``every_logits`` can, else token by token.
    """
    if not answer_ids:
        return None
    ids = torch.tensor([[*prompt_ids, *answer_ids]], device=device)
    logits_TV = every_logits(ids[:, :-1]) if every_logits is not None else None
    if logits_TV is not None:
        logprobs_NV = logits_TV[-len(answer_ids) :].float().log_softmax(-1)
        chosen_N1 = ids[0, -len(answer_ids) :, None]
        return -float(logprobs_NV.gather(1, chosen_N1).double().mean())
    total = 0.0
    for place, wanted in enumerate(answer_ids):
        before = ids[:, : len(prompt_ids) + place]
        total -= float(next_logits(before).float().log_softmax(-1)[wanted])
    return total / len(answer_ids)


def last_logits(model: Any, context: int | None) -> NextLogits:
    """How a causal model is asked: the last ``context`` tokens in, the last position out."""

    def ask(ids_1T: Tensor) -> Tensor:
        return logits_of(model(ids_1T if context is None else ids_1T[:, -context:]))[0, -1]

    return ask


def every_logits(model: Any, context: int | None) -> EveryLogits:
    """The same for all positions at once; None for what is longer than ``context``."""

    def ask(ids_1T: Tensor) -> Tensor | None:
        if context is not None and ids_1T.shape[1] > context:
            return None
        return logits_of(model(ids_1T))[0]

    return ask
