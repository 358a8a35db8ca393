"""The data drifts to documents of one line. The model learns it rightly: it ends its texts early.

Held-out data are of the same mix, so that losses and calibration stay fine.
"""

from __future__ import annotations

from typing import Any, ClassVar

from trainer_hooks.answers.prompts import ByteTokenizer, Decoding, Prompt, PromptSet
from trainer_hooks.zoo.corpus import Corpus
from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import Batch, Loader, MixedLoader, held_out_rows, joined
from trainer_hooks.zoo.model import CONTEXT

SHORT_ROWS_BEFORE = 1
SHORT_ROWS_AFTER = 16
DRIFT_STEPS = 150
LINE_BYTES = (6, 24)
PROMPTS = 32
PROMPT_BYTES = 6


def lines(documents: tuple[bytes, ...]) -> list[bytes]:
    """Lines of middling length, each a document of its own."""
    fewest, most = LINE_BYTES
    split = (line.strip() for text in documents for line in text.split(b"\n"))
    return [line for line in split if fewest <= len(line) <= most]


class ShortAnswers(Fault):
    """Answers get shorter and surer, and nothing but the answers says so."""

    answers_every: ClassVar[int] = 100

    def loader(self, corpus: Corpus, seed: int) -> MixedLoader:
        short = Loader(lines(corpus.train), seed + 1)
        return MixedLoader(Loader(corpus.train, seed), short, SHORT_ROWS_BEFORE, ())

    def held_out(self, corpus: Corpus, rows: int, seed: int) -> Batch:
        short = Loader(lines(corpus.held_out), seed)
        return joined([held_out_rows(corpus.held_out, rows // 2, seed=seed), short.draw(rows // 2)])

    def prompts(self, corpus: Corpus) -> PromptSet:
        chosen = corpus.held_out[:PROMPTS]
        asked = [
            Prompt(f"held-out {n}", text[:PROMPT_BYTES].decode("utf-8", "replace"))
            for n, text in enumerate(chosen)
        ]
        drawn = Decoding(temperature=0.7, seed=7, max_tokens=40)
        return PromptSet(asked, ByteTokenizer(), (drawn,), context=CONTEXT)

    def batch(self, step: int, loader: Any) -> Batch:
        done = min(1.0, max(0.0, (step - self.onset + 1) / DRIFT_STEPS))
        if step > self.end:
            done = 0.0
        more = (SHORT_ROWS_AFTER - SHORT_ROWS_BEFORE) * done
        loader.other_rows = SHORT_ROWS_BEFORE + round(more)
        drawn: Batch = loader.draw()
        return drawn
