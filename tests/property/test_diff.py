"""The word diff: exact whatever the texts, and never slow."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.domain.diff import word_diff, words

TEXTS = st.text(st.sampled_from("ab c\n.é合計\u202e<\x00"), max_size=80)


@given(TEXTS, TEXTS)
def test_the_pieces_join_to_both_texts(left: str, right: str) -> None:
    pieces = word_diff(left, right)
    assert "".join(text for change, text in pieces if change != "add") == left
    assert "".join(text for change, text in pieces if change != "cut") == right


@given(st.text(max_size=200))
def test_words_lose_nothing(text: str) -> None:
    assert "".join(words(text)) == text


def test_one_word_changed_is_one_cut_and_one_add() -> None:
    assert word_diff("the cat sat", "the dog sat") == [
        ("same", "the "),
        ("cut", "cat"),
        ("add", "dog"),
        ("same", " sat"),
    ]


def noise(seed: int, vocabulary: int) -> str:
    draw = random.Random(seed)
    out: list[str] = []
    size = 0
    while size < 64 * 1024:
        word = f"w{draw.randrange(vocabulary)}"
        out.append(word)
        size += len(word) + 1
    return " ".join(out)


@pytest.mark.parametrize("vocabulary", [1, 2, 50, 100_000])
def test_two_texts_of_64_kib_take_less_than_200_ms(vocabulary: int) -> None:
    left, right = noise(1, vocabulary), noise(2, vocabulary)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        word_diff(left, right)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.2, times
