"""A model is asked the prompts of a set: same prompts, same decoding, nothing disturbed."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any

import torch

from trainer_hooks.answers.generate import (
    Generated,
    OutOfTimeError,
    every_logits,
    generate,
    last_logits,
    reference_nll,
)
from trainer_hooks.answers.prompts import Decoding, Prompt, PromptSet, prompt_hash
from trainer_hooks.loop.undisturbed import undisturbed
from trainer_hooks.wire import MAX_ANSWER_BYTES, Answer, to_cell

log = logging.getLogger("trainer_hooks")


@dataclass(frozen=True, slots=True)
class _Moment:
    """One sampling: its id, by which weights and when; ``until_s`` on the monotonic clock."""

    sampling_id: str
    step: int
    at: float
    tokens_seen: int | None
    until_s: float | None


class Sampler:
    """Asks a model every prompt of a set.

    Args:
        model: a causal model, ids [1, T] -> logits [1, T, V] (or ``.logits``, or first of a tuple).
        prompt_set: what is asked, and how long an input may be.
        sampler: who asks, as it travels: ``loop`` or ``checkpoints``.
        model_label: what the model is called; None: its class.
    """

    def __init__(
        self,
        model: Any,
        prompt_set: PromptSet,
        *,
        sampler: str = "loop",
        model_label: str | None = None,
    ) -> None:
        self._model = model
        self._set = prompt_set
        self._context = prompt_set.context or _context_of(model)
        self._sampler = sampler
        self._label = model_label or type(model).__name__

    def sample(
        self,
        step: int,
        at: float,
        tokens_seen: int | None = None,
        *,
        sampling_id: str | None = None,
        limit_s: float | None = None,
    ) -> list[Answer]:
        """One answer per prompt and decoding, by the weights of ``step``, at instant ``at`` (UTC).

        Modes, buffers and random states are as before when it returns, also by an exception. Where
        ``limit_s`` is over before the last answer, those that are whole are given.
        """
        until_s = None if limit_s is None else time.perf_counter() + limit_s
        moment = _Moment(sampling_id or uuid.uuid4().hex, step, at, tokens_seen, until_s)
        answers: list[Answer] = []
        with undisturbed(self._model):
            try:
                for prompt in self._set.prompts:
                    for decoding in self._set.decodings:
                        answers.append(self._answer(moment, prompt, decoding))
            except OutOfTimeError:
                log.warning(
                    "%d of %d answers before the time was over", len(answers), self._set.size
                )
        return answers

    def estimate_s(self) -> float:
        """About how long a sampling takes at most (s): one pass, times all tokens there may be."""
        ids = torch.tensor([list(self._set.tokenizer.begin_ids)], device=self._device())
        with undisturbed(self._model):
            began_s = time.perf_counter()
            float(last_logits(self._model, self._context)(ids).sum())
            pass_s = time.perf_counter() - began_s
        return pass_s * len(self._set.prompts) * sum(d.max_tokens for d in self._set.decodings)

    def _device(self) -> torch.device:
        device: torch.device = next(iter(self._model.parameters())).device
        return device

    def _answer(self, moment: _Moment, prompt: Prompt, decoding: Decoding) -> Answer:
        tokenizer, device = self._set.tokenizer, self._device()
        ask = last_logits(self._model, self._context)
        prompt_ids = prompt_tokens(prompt, self._set)
        made = generate(ask, prompt_ids, decoding, tokenizer, device, moment.until_s)
        nll = None
        if prompt.reference is not None:
            whole_pass = every_logits(self._model, self._context)
            wanted = tokenizer.encode(prompt.reference)
            nll = reference_nll(ask, prompt_ids, wanted, device, whole_pass)
        text, whole = cut_text(tokenizer.decode(made.ids))
        return replace(
            answer_frame(prompt, decoding, self._set, moment.step, moment.at),
            sampling_id=moment.sampling_id,
            text=text,
            token_ids=made.ids,
            token_texts=self._token_texts(made),
            token_logprobs=[to_cell(value) for value in made.logprobs],
            token_entropies=[to_cell(value) for value in made.entropies],
            stop_reason=made.stop_reason,
            dtype=str(next(iter(self._model.parameters())).dtype).removeprefix("torch."),
            model_label=self._label,
            tokens_seen=moment.tokens_seen,
            reference_nll=None if nll is None else to_cell(nll),
            end_token_probs={k: v for k, v in made.end_probs.items() if v == v},
            checks=prompt.checks.run(prompt.text, text) if prompt.checks else {},
            truncated=len(text.encode()) < len(whole),
            text_bytes=len(whole),
            text_sha256=hashlib.sha256(whole).hexdigest(),
            sampler=self._sampler,
        )

    def _token_texts(self, made: Generated) -> list[str]:
        """Each token's share of the text: what it adds to the decoding of those before it.

        Tokens may hold parts of a character; such a part adds nothing until its last one does.
        """
        texts: list[str] = []
        before = ""
        for end in range(1, len(made.ids) + 1):
            now = self._set.tokenizer.decode(made.ids[:end])
            settled = now if end == len(made.ids) else now.rstrip("\ufffd")
            added = settled[len(before) :] if settled.startswith(before) else ""
            texts.append(added)
            before += added
        return texts


def answer_frame(
    prompt: Prompt, decoding: Decoding, prompt_set: PromptSet, step: int, at: float
) -> Answer:
    """What of an answer is known before it is given: what was asked, and how."""
    return Answer(
        sampling_id="",
        prompt_id=_answer_name(prompt, decoding, prompt_set),
        prompt_hash=prompt_hash(prompt),
        prompt=prompt.text,
        system=prompt.system,
        text="",
        weights_step=step,
        at=at,
        temperature=decoding.temperature,
        top_p=decoding.top_p,
        seed=decoding.seed,
        max_tokens=decoding.max_tokens,
        tokenizer_hash=prompt_set.tokenizer.name,
        prompt_set_hash=prompt_set.hash,
        sampling_size=prompt_set.size,
    )


def prompt_tokens(prompt: Prompt, prompt_set: PromptSet) -> list[int]:
    """The prompt as the model sees it: in the tokenizer's chat form, or plainly after the begin."""
    tokenizer = prompt_set.tokenizer
    chat = getattr(tokenizer, "chat_ids", None)
    if prompt_set.chat and chat is not None:
        return list(chat(prompt.system, prompt.text))
    text = prompt.text if prompt.system is None else f"{prompt.system}\n\n{prompt.text}"
    return [*tokenizer.begin_ids, *tokenizer.encode(text)]


def cut_text(text: str) -> tuple[str, bytes]:
    """The text as it is sent, at most 256 KiB and cut at a code point, and all its bytes."""
    whole = text.encode("utf-8", "replace")
    if len(whole) <= MAX_ANSWER_BYTES:
        return whole.decode("utf-8"), whole
    return whole[:MAX_ANSWER_BYTES].decode("utf-8", "ignore"), whole


def _answer_name(prompt: Prompt, decoding: Decoding, prompt_set: PromptSet) -> str:
    """The prompt's id; where a set has several decodings, with the temperature and the seed."""
    if len(prompt_set.decodings) == 1:
        return prompt.id
    if decoding.temperature == 0:
        return f"{prompt.id} (greedy)"
    return f"{prompt.id} (T={decoding.temperature:g}, seed {decoding.seed})"


def _context_of(model: Any) -> int | None:
    """The longest input by what the usual configurations call it."""
    config = getattr(model, "config", None)
    for name in ("max_position_embeddings", "n_positions", "block_size", "max_seq_len"):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    return None
