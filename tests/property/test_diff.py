"""The word diff: exact whatever the texts, and never slow."""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.domain.diff import is_rough, word_diff, words

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


def best_of_three(left: str, right: str) -> float:
    times = []
    for _ in range(3):
        began = time.thread_time()
        word_diff(left, right)
        times.append(time.thread_time() - began)
    return min(times)


def test_long_texts_are_shown_roughly_and_at_once() -> None:
    left = noise(1, 50) * 4
    right = left[:90_000] + "changed" + left[90_000:]
    assert is_rough(left, right)
    assert not is_rough("a", "b")
    pieces = word_diff(left, right)
    assert "".join(text for mark, text in pieces if mark != "add") == left
    assert "".join(text for mark, text in pieces if mark != "cut") == right
    assert sum(len(text) for mark, text in pieces if mark != "same") < 100
    assert best_of_three(left, right) < 0.2
    assert best_of_three(left, left) < 0.01


def test_random_characters_without_a_space_end_too() -> None:
    draw = random.Random(4)
    texts = ["".join(chr(draw.randrange(33, 500)) for _ in range(20_000)) for _ in range(2)]
    assert best_of_three(*texts) < 0.2
    lines = [re.sub(r"(.{80})", r"\1\n", noise(seed, 50) * 2) for seed in (1, 2)]
    assert best_of_three(*lines) < 0.2
    pieces = word_diff(*lines)
    assert "".join(text for mark, text in pieces if mark != "add") == lines[0]


@pytest.mark.parametrize("text", ["👩‍👩‍👧 family", "e\u0301a", "שלום world"])
def test_marks_that_belong_together_stay_together_in_long_texts(text: str) -> None:
    left = "word " * 14_000 + text
    right = "word " * 14_000 + text + " more"
    pieces = word_diff(left, right)
    assert "".join(piece for mark, piece in pieces if mark != "add") == left
    assert "".join(piece for mark, piece in pieces if mark != "cut") == right


@pytest.mark.parametrize(
    ("left", "right", "cut", "add"),
    [
        ("a cafe\u0301s x", "a cafe\u0300s x", "cafe\u0301s", "cafe\u0300s"),
        ("a 👩‍🚀 b", "a 👩‍💻 b", "👩‍🚀", "👩‍💻"),
        ("a 👍🏽 b", "a 👍🏿 b", "👍🏽", "👍🏿"),
        ("🇩🇪🇫🇷", "🇩🇪🇫🇮", "🇫🇷", "🇫🇮"),
        ("यह हिन्दी है", "यह हिन्दू है", "हिन्दी", "हिन्दू"),
        ("שָׁלוֹם x", "שְׁלוֹם x", "שָׁלוֹם", "שְׁלוֹם"),
    ],
)
def test_what_is_seen_as_one_character_is_never_cut(
    left: str, right: str, cut: str, add: str
) -> None:
    pieces = word_diff(left, right)
    assert [text for mark, text in pieces if mark == "cut"] == [cut]
    assert [text for mark, text in pieces if mark == "add"] == [add]


def test_many_marks_on_one_letter_are_no_trap() -> None:
    assert best_of_three("e" + "\u0301" * 60_000, "e" + "\u0300" * 60_000) < 0.2
