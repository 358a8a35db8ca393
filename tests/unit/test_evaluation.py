"""pass@k as the user's own evaluation reports it."""

from __future__ import annotations

import itertools
import random
from statistics import fmean

import pytest

from trainer_hooks.loop.evaluation import evaluated, pass_chance


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (6, 0, 2), (6, 6, 4), (7, 3, 7)])
def test_it_is_the_share_of_all_choices_of_k_tries_that_hold_a_pass(n: int, c: int, k: int) -> None:
    tries = [True] * c + [False] * (n - c)
    choices = list(itertools.combinations(tries, k))
    assert pass_chance(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_it_is_unbiased_and_the_naive_one_is_not() -> None:
    """Problems whose tries pass with p = 0.1: pass@5 is 1 - 0.9^5 = 0.41."""
    draw = random.Random(0)
    counts = [sum(draw.random() < 0.1 for _ in range(10)) for _ in range(20_000)]
    assert fmean(pass_chance(10, c, 5) for c in counts) == pytest.approx(1 - 0.9**5, abs=0.01)
    assert fmean(1 - (1 - c / 10) ** 5 for c in counts) < 1 - 0.9**5 - 0.03


def test_problems_with_tries_are_filed_by_k() -> None:
    found = evaluated("humaneval", [0, 3, 10, 1], 10)
    assert found["eval/humaneval/pass_at_1"] == pytest.approx(0.35)
    assert found["eval/humaneval/pass_at_10"] == pytest.approx(0.75)
    assert found["eval_error/humaneval/pass_at_10"] == pytest.approx(0.25)
    assert set(evaluated("few", [1, 0], 4, (1, 4, 10))) == {
        "eval/few/pass_at_1", "eval_error/few/pass_at_1", "eval/few/pass_at_4",
        "eval_error/few/pass_at_4",
    }  # fmt: skip
    assert evaluated("plain", 3, 4)["eval/plain"] == 0.75


def test_counts_that_are_none_are_refused() -> None:
    for wrong in ([11], [-1], []):
        with pytest.raises(ValueError, match=r"pass@|no problem"):
            evaluated("x", wrong, 10)
    with pytest.raises(ValueError, match="at least one"):
        evaluated("x", [1], 10, (0,))
