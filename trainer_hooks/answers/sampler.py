"""Sampled answers in the training loop: same prompts, same decoding, nothing disturbed."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

from trainer_hooks.answers.generate import Generated, generate, last_logits, reference_nll
from trainer_hooks.answers.prompts import Decoding, Prompt, PromptSet, prompt_hash
from trainer_hooks.loop.undisturbed import undisturbed
from trainer_hooks.wire import MAX_ANSWER_BYTES, Answer, to_cell


class Sampler:
    """Asks a model every prompt of a set.

    Args:
        model: a causal model, ids [1, T] -> logits [1, T, V] (or ``.logits``, or first of a tuple).
        prompt_set: what is asked, and how long an input may be.
    """

    def __init__(self, model: Any, prompt_set: PromptSet) -> None:
        self._model = model
        self._set = prompt_set
        self._context = prompt_set.context or _context_of(model)

    def sample(self, step: int, at: float, tokens_seen: int | None = None) -> list[Answer]:
        """One answer per prompt and decoding, by the weights of ``step``, at instant ``at`` (UTC).

        Modes, buffers and random states are as before when it returns, also by an exception.
        """
        sampling_id = uuid.uuid4().hex
        with undisturbed(self._model):
            return [
                self._answer(sampling_id, prompt, decoding, step, at, tokens_seen)
                for prompt in self._set.prompts
                for decoding in self._set.decodings
            ]

    def _answer(
        self,
        sampling_id: str,
        prompt: Prompt,
        decoding: Decoding,
        step: int,
        at: float,
        tokens_seen: int | None,
    ) -> Answer:
        parameter = next(iter(self._model.parameters()))
        tokenizer = self._set.tokenizer
        ask = last_logits(self._model, self._context)
        prompt_ids = [*tokenizer.begin_ids, *tokenizer.encode(prompt.text)]
        made = generate(ask, prompt_ids, decoding, tokenizer, parameter.device)
        nll = None
        if prompt.reference is not None:
            wanted = tokenizer.encode(prompt.reference)
            nll = reference_nll(ask, prompt_ids, wanted, parameter.device)
        text, whole = cut_text(tokenizer.decode(made.ids))
        return Answer(
            sampling_id=sampling_id,
            prompt_id=_answer_name(prompt, decoding, self._set),
            prompt_hash=prompt_hash(prompt),
            prompt=prompt.text,
            text=text,
            weights_step=step,
            at=at,
            token_ids=made.ids,
            token_texts=self._token_texts(made),
            token_logprobs=[to_cell(value) for value in made.logprobs],
            stop_reason=made.stop_reason,
            temperature=decoding.temperature,
            top_p=decoding.top_p,
            seed=decoding.seed,
            max_tokens=decoding.max_tokens,
            dtype=str(parameter.dtype).removeprefix("torch."),
            tokenizer_hash=tokenizer.name,
            model_label=type(self._model).__name__,
            prompt_set_hash=self._set.hash,
            tokens_seen=tokens_seen,
            reference_nll=None if nll is None else to_cell(nll),
            end_token_probs={k: v for k, v in made.end_probs.items() if v == v},
            truncated=len(text.encode()) < len(whole),
            text_bytes=len(whole),
            text_sha256=hashlib.sha256(whole).hexdigest(),
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
