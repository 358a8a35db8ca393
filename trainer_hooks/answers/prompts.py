"""A prompt set: what is asked each time, and how the answers are drawn.

It is pinned: two samplings are comparable only where the set's hash is the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trainer_hooks.answers.checks import Checks


class Tokenizer(Protocol):
    """What generation needs of a tokenizer. Token ids are int."""

    begin_ids: Sequence[int]
    """Put before every prompt; the empty prompt is these alone, so at least one is needed."""

    end_ids: Sequence[int]
    """Any of these ends an answer."""

    name: str
    """Told with every answer, as part of what makes two of them comparable."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...


class ByteTokenizer:
    """Bytes of UTF-8 as tokens; byte 0 begins and ends a text."""

    begin_ids: Sequence[int] = (0,)
    end_ids: Sequence[int] = (0,)
    name = "bytes"

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "replace"))

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. ``reference`` is an answer known to be good: its loss is free of chance.

    ``system`` is a persona or system prompt: it goes before the text, by the tokenizer's own chat
    form where it has one. ``checks`` are asked of every answer.
    """

    id: str
    text: str
    reference: str | None = None
    system: str | None = None
    checks: Checks | None = None


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a token is chosen: the likeliest at temperature 0, else drawn with ``seed``."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    max_tokens: int = 64


EMPTY = Prompt(id="empty", text="")
"""In every set: what leaks into the start of documents shows nowhere else."""


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts and decodings; every prompt is answered once for each decoding.

    ``context`` is the longest input the model takes, in tokens; longer ones lose their beginning.
    None: what the model's ``config`` says, else no bound. ``chat``: prompts are put in the
    tokenizer's chat form (those of base models are not).

    Raises:
        ValueError: two prompts with one id, a tokenizer without a begin token, or no decoding.
    """

    prompts: Sequence[Prompt]
    tokenizer: Tokenizer = field(default_factory=ByteTokenizer)
    decodings: Sequence[Decoding] = (Decoding(),)
    context: int | None = None
    chat: bool = False

    def __post_init__(self) -> None:
        chosen = tuple(self.prompts)
        if not any(prompt.text == "" for prompt in chosen):
            chosen = (EMPTY, *chosen)
        if len({prompt.id for prompt in chosen}) < len(chosen):
            raise ValueError("two prompts of the set have the same id")
        if not self.tokenizer.begin_ids:
            raise ValueError("the empty prompt needs a begin token")
        if not self.decodings:
            raise ValueError("a prompt set needs at least one decoding")
        object.__setattr__(self, "prompts", chosen)
        object.__setattr__(self, "decodings", tuple(self.decodings))

    @property
    def hash(self) -> str:
        """SHA-256 (first 16 hex digits) of prompts, decodings, context and the tokenizer's name."""
        return _digest(
            {
                "prompts": [_prompt_plain(p) for p in self.prompts],
                "decodings": [
                    [d.temperature, d.top_p, d.seed, d.max_tokens] for d in self.decodings
                ],
                "context": self.context,
                "tokenizer": self.tokenizer.name,
                **({"chat": True} if self.chat else {}),
            }
        )

    @property
    def size(self) -> int:
        """Answers of one sampling."""
        return len(self.prompts) * len(self.decodings)

    @classmethod
    def from_file(cls, path: Path, tokenizer: Tokenizer | None = None) -> PromptSet:
        """Read a file of JSON, or of YAML where PyYAML is installed; see ``docs/answers.md``.

        Raises:
            ValueError: the file is not of that form, or there is no PyYAML to read it with.
            OSError: it cannot be read.
        """
        from trainer_hooks.answers.files import read_prompt_set

        return read_prompt_set(path, tokenizer or ByteTokenizer())

    from_json = from_file


def prompt_hash(prompt: Prompt) -> str:
    """What is asked, as 16 hex digits: an edited prompt is another prompt under the same id."""
    return _digest(_prompt_plain(prompt)[1:])


def _prompt_plain(prompt: Prompt) -> list[Any]:
    """All that makes a prompt what it is; what it does not use changes no hash."""
    rest: dict[str, Any] = {}
    if prompt.system is not None:
        rest["system"] = prompt.system
    if prompt.checks is not None:
        rest["checks"] = asdict(prompt.checks)
    return [prompt.id, prompt.text, prompt.reference, *([rest] if rest else [])]


def _digest(plain: Any) -> str:
    text = json.dumps(plain, ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
