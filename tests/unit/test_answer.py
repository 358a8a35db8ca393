"""Answers side by side: pairing, what differs, and the verdict's words."""

from __future__ import annotations

import math
from dataclasses import replace

from monitor.domain.answer import pair_up, traits, verdict, what_differs
from trainer_hooks.wire import Answer


def answer(text: str, *, prompt: str = "p1", chance: float = 0.5, n: int = 10) -> Answer:
    return Answer(
        sampling_id="s", prompt_id=prompt, prompt_hash="h", prompt="Why?", text=text,
        weights_step=1, at=0.0, token_ids=list(range(n)),
        token_logprobs=[math.log(chance)] * n, tokenizer_hash="t",
    )  # fmt: skip


def test_shorter_and_surer_is_said_with_both_numbers() -> None:
    before = answer("a b c", chance=0.41, n=100)
    after = answer("a b", chance=0.62, n=62)
    assert verdict(before, after) == "38 % shorter, surer (0.41 -> 0.62)"


def test_the_same_answer_is_said_to_be_the_same() -> None:
    assert verdict(answer("x"), answer("x")) == "the same answer"
    assert verdict(answer("x"), answer("y")) == "much the same"


def test_another_tokenizer_or_decoding_is_said_and_not_compared() -> None:
    other = replace(answer("x"), tokenizer_hash="u", temperature=0.7)
    assert what_differs(answer("x"), other) == ("tokenizer", "temperature")
    (pair,) = pair_up([answer("x")], [other])
    assert not pair.comparable
    assert pair.verdict == "not comparable: tokenizer, temperature changed"


def test_a_prompt_that_only_one_sampling_has_keeps_its_place() -> None:
    pairs = pair_up([answer("x", prompt="old")], [answer("y", prompt="new")])
    assert [(p.prompt_id, p.left is None, p.right is None) for p in pairs] == [
        ("new", True, False),
        ("old", False, True),
    ]


def test_repetition_is_the_share_of_stretches_said_before() -> None:
    assert traits(answer("a b c d e f g h")).repetition == 0
    assert traits(answer("a b c d " * 10)).repetition > 0.8


def test_token_probabilities_that_are_no_numbers_do_not_reach_the_mean() -> None:
    odd = replace(answer("x"), token_logprobs=["nan", "-inf", math.log(0.5)])
    assert traits(odd).confidence == 0.25
    assert traits(replace(answer("x"), token_logprobs=["nan"])).confidence is None
