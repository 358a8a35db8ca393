"""A store with two months of answers: 60 days of 200 prompts, 2 KB of text each."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator

from monitor.clock import wall_s
from monitor.services.ingest import Ingest
from monitor.services.screening import Parsed, Refusals
from monitor.storage.base import Database
from trainer_hooks.wire import Answer, AttemptStart, RunStart

RUN = "two-months"
DAYS = 60
PROMPTS = 200
TEXT_BYTES = 2_000
LONG_BYTES = 64 * 1024
LONG = "that very long one"
STEPS_A_DAY = 1_000


def fill_answers(database: Database) -> None:
    """One run: each day's sampling, and on the last two days a prompt answered at length too."""
    draw = random.Random(0)
    vocabulary = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in range(3_000)]
    first_at = time.time() - DAYS * 86_400.0
    records = (RunStart(name=RUN, at=first_at), AttemptStart(at=first_at, ordinal=0, first_step=0))
    empty = Parsed(RUN, "a", "s", 0, first_at, 0, (), records, 0, Refusals())
    Ingest(database, wall_s).store(empty)
    for day in range(DAYS):
        at = first_at + 86_400.0 * (day + 0.5)
        answers = list(_sampling(draw, vocabulary, day, at))
        database.write(lambda work, a=answers, t=at: work.answers.add(RUN, "a", a, at=t))


def _sampling(draw: random.Random, vocabulary: list[str], day: int, at: float) -> Iterator[Answer]:
    for number in range(PROMPTS):
        yield _answer(draw, vocabulary, f"prompt {number:03}", day, at, TEXT_BYTES)
    if day >= DAYS - 2:
        yield _answer(draw, vocabulary, LONG, day, at, LONG_BYTES)


def _answer(
    draw: random.Random, vocabulary: list[str], prompt: str, day: int, at: float, size: int
) -> Answer:
    """Words of a prompt's own, of which each day changes a tenth."""
    own = random.Random(prompt)
    tokens = [f"{own.choice(vocabulary)} " for _ in range(size // 6)]
    tokens = [f"{draw.choice(vocabulary)} " if draw.random() < 0.1 else t for t in tokens]
    return Answer(
        f"day-{day:02}", prompt, f"hash of {prompt}", f"Tell me of {prompt}.", "".join(tokens),
        STEPS_A_DAY * (day + 1), at,
        token_ids=[draw.randrange(50_000) for _ in tokens],
        token_texts=tokens,
        token_logprobs=[round(math.log(draw.uniform(0.05, 1.0)), 5) for _ in tokens],
        token_entropies=[round(draw.uniform(0.0, 3.0), 5) for _ in tokens],
        stop_reason="length", max_tokens=len(tokens), tokenizer_hash="words",
        reference_nll=2.5 - day / 100, prompt_set_hash="set", sampling_size=PROMPTS,
    )  # fmt: skip
