"""Any server that speaks the completions protocol of OpenAI, with log-probabilities.

``POST <base>/completions`` with ``logprobs``; the reference answers are read with ``echo``, where
the server offers it. What a server does not say stays unsaid: absent is not zero.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Any

from trainer_hooks.answers.beside.checkpoints import Checkpoint
from trainer_hooks.answers.prompts import Decoding, Prompt, PromptSet
from trainer_hooks.answers.sampler import answer_frame, cut_text
from trainer_hooks.wire import Answer, Number, to_cell

log = logging.getLogger("trainer_hooks")

TIMEOUT_S = 120.0
TOP_LOGPROBS = 5
STOPS = {"stop": "end", "length": "length"}


class EndpointError(Exception):
    """The server would not answer, or answered something else."""


class EndpointAsker:
    """Asks a completions server; see ``jobs.Asker``.

    Args:
        base: the address up to ``/v1``.
        model: the model's name as that server knows it.
        prompts: what is asked; the server's tokenizer is its own, so the set's is not used.
        begin: text sent in place of the empty prompt, which many servers refuse.
    """

    def __init__(
        self,
        base: str,
        model: str,
        prompts: PromptSet,
        *,
        key: str | None = None,
        begin: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._url = base.rstrip("/") + "/completions"
        self._model = model
        self._set = prompts
        self._begin = begin
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._can_echo = True

    def label(self) -> str:
        return f"{self._set.hash}:{self._model}"

    def where(self) -> str:
        return f"model {self._model} at an endpoint"

    def ask(self, checkpoint: Checkpoint, sampling_id: str) -> list[Answer]:
        """All answers that could be had.

        Raises:
            EndpointError: not even one.
        """
        answers: list[Answer] = []
        trouble: EndpointError | None = None
        for prompt in self._set.prompts:
            nll = self._reference_nll(prompt)
            for decoding in self._set.decodings:
                try:
                    answer = self._answer(prompt, decoding, checkpoint)
                except EndpointError as error:
                    trouble = error
                    log.warning("prompt %s: %s", prompt.id, error)
                    continue
                answers.append(replace(answer, sampling_id=sampling_id, reference_nll=nll))
        if not answers:
            raise trouble or EndpointError("there is nothing to ask")
        return answers

    def _answer(self, prompt: Prompt, decoding: Decoding, checkpoint: Checkpoint) -> Answer:
        choice = self._complete(
            {
                "prompt": self._text(prompt),
                "max_tokens": decoding.max_tokens,
                "temperature": decoding.temperature,
                "top_p": decoding.top_p,
                "seed": decoding.seed,
                "logprobs": TOP_LOGPROBS,
            }
        )
        text, whole = cut_text(str(choice.get("text") or ""))
        texts, logprobs = _tokens(choice)
        reason = str(choice.get("finish_reason") or "")
        return replace(
            answer_frame(prompt, decoding, self._set, checkpoint.step, checkpoint.modified_at),
            text=text,
            token_texts=texts,
            token_logprobs=logprobs,
            stop_reason=STOPS.get(reason, reason),
            model_label=self._model,
            tokenizer_hash=f"of {self._model}",
            checks=prompt.checks.run(prompt.text, text) if prompt.checks else {},
            truncated=len(text.encode()) < len(whole),
            text_bytes=len(whole),
            text_sha256=hashlib.sha256(whole).hexdigest(),
            sampler="endpoint",
        )

    def _text(self, prompt: Prompt) -> str:
        asked = prompt.text if prompt.system is None else f"{prompt.system}\n\n{prompt.text}"
        return asked or self._begin

    def _reference_nll(self, prompt: Prompt) -> Number | None:
        """Mean -ln p per token of the reference after the prompt; None where nobody can say."""
        before = self._text(prompt)
        if not prompt.reference or not before or not self._can_echo:
            return None
        asked = {
            "prompt": before + prompt.reference, "max_tokens": 1, "echo": True, "logprobs": 1,
            "temperature": 0.0,
        }  # fmt: skip
        try:
            logprobs = _after(self._complete(asked), len(before), len(asked["prompt"]))  # type: ignore[arg-type]
        except EndpointError as error:
            log.warning("no reference answers from this server: %s", error)
            self._can_echo = False
            return None
        return to_cell(-math.fsum(logprobs) / len(logprobs)) if logprobs else None

    def _complete(self, asked: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps({"model": self._model, "n": 1, **asked}).encode()
        request = urllib.request.Request(self._url, body, self._headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310
                choice = json.load(answer)["choices"][0]
        except urllib.error.HTTPError as error:
            raise EndpointError(
                f"{error.code}: {error.read(300).decode(errors='replace')}"
            ) from None
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise EndpointError(f"{type(error).__name__}: {error}") from None
        if not isinstance(choice, dict):
            raise EndpointError("the choice is no object")
        return choice


def _tokens(choice: dict[str, Any]) -> tuple[list[str], list[Number]]:
    """Texts and log-probabilities of the tokens; both empty where the server sent none."""
    said = choice.get("logprobs") or {}
    texts = [str(token) for token in said.get("tokens") or []]
    logprobs = said.get("token_logprobs") or []
    if len(texts) != len(logprobs) or None in logprobs:
        return [], []
    return texts, [to_cell(float(value)) for value in logprobs]


def _after(choice: dict[str, Any], start: int, end: int) -> list[float]:
    """Log-probabilities of the tokens that begin in these places of the echoed text."""
    said = choice.get("logprobs") or {}
    places, logprobs = said.get("text_offset") or [], said.get("token_logprobs") or []
    if len(places) != len(logprobs):
        return []
    inside = [p for place, p in zip(places, logprobs, strict=True) if start <= place < end]
    return [float(p) for p in inside] if None not in inside else []
