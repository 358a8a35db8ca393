"""What the hooks may know of the data: its special tokens, its templates, where rows come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

TEMPLATES = ("<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "[INST]", "### Instruction")
"""Marks of chat templates. Some occur in ordinary text too: what counts is a share that changes."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What wakes the signals of what is fed; all of it is optional.

    Args:
        templates: strings (they need ``encode``) or sequences of token ids, in place of the list.
        encode: text -> token ids, without special tokens added, such as ``tokenizer.encode``.
        eos: the id that ends a document.
        pad: the id of padding.
        sources: batch -> the name of each row's source.
        rows_hold: tokens of a batch that are looked at: whole rows, evenly spread, up to this many.
    """

    templates: Sequence[str | Sequence[int]] = TEMPLATES
    encode: Callable[[str], Sequence[int]] | None = None
    eos: int | None = None
    pad: int | None = None
    sources: Callable[[Any], Sequence[str]] | None = None
    rows_hold: int = 32_768

    def patterns(self) -> list[list[int]]:
        """Each template as token ids; strings are left out where nothing encodes them."""
        found = []
        for template in self.templates:
            if not isinstance(template, str):
                found.append([int(token) for token in template])
            elif self.encode is not None:
                found.append([int(token) for token in self.encode(template)])
        return [pattern for pattern in found if pattern]
