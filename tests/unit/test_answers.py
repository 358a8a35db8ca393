"""Generation with probabilities, pinned decoding, prompt sets and their hashes."""

import json
import math
import time

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from trainer_hooks.answers.generate import (  # noqa: E402
    every_logits,
    generate,
    last_logits,
    reference_nll,
)
from trainer_hooks.answers.prompts import (  # noqa: E402
    ByteTokenizer,
    Decoding,
    Prompt,
    PromptSet,
    prompt_hash,
)
from trainer_hooks.answers.sampler import Sampler, cut_text  # noqa: E402
from trainer_hooks.wire import MAX_ANSWER_BYTES  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


class NextByte(nn.Module):
    """Says the byte after the last one, with a known probability; the end after ``z``."""

    def __init__(self, sureness=4.0):
        super().__init__()
        self.sureness = nn.Parameter(torch.tensor(sureness))

    def forward(self, ids_BT):
        following = torch.where(ids_BT == ord("z"), 0, (ids_BT + 1) % 256)
        return nn.functional.one_hot(following, 256) * self.sureness


def sure(sureness=4.0):
    return sureness - math.log(math.exp(sureness) + 255)


def test_greedy_answers_carry_the_probability_of_each_token():
    made = generate(
        last_logits(NextByte(), None), [97], Decoding(max_tokens=3), ByteTokenizer(), CPU
    )
    assert bytes(made.ids) == b"bcd"
    assert made.logprobs == pytest.approx([sure()] * 3, rel=1e-5)
    assert made.stop_reason == "length"


def test_the_end_token_ends_an_answer_and_is_not_part_of_it():
    made = generate(last_logits(NextByte(), None), [120], Decoding(), ByteTokenizer(), CPU)
    assert bytes(made.ids) == b"yz"
    assert made.stop_reason == "end"


def test_the_probability_of_ending_is_kept_at_fixed_positions():
    made = generate(last_logits(NextByte(), None), [122], Decoding(), ByteTokenizer(), CPU)
    assert made.end_probs == {"0": pytest.approx(math.exp(sure()), rel=1e-5)}


def test_drawn_answers_depend_on_the_seed_alone():
    ask = last_logits(NextByte(1.0), None)

    def draw(seed):
        return generate(
            ask, [97], Decoding(0.9, seed=seed, max_tokens=20), ByteTokenizer(), CPU
        ).ids

    first = draw(1)
    torch.manual_seed(99)
    assert draw(1) == first
    assert draw(2) != first


def test_probabilities_are_those_of_the_untempered_model():
    ask = last_logits(NextByte(), None)
    made = generate(ask, [97], Decoding(0.01, seed=1, max_tokens=2), ByteTokenizer(), CPU)
    assert made.logprobs == pytest.approx([sure()] * 2, rel=1e-5)


def test_a_nucleus_leaves_the_tail_out():
    ask = last_logits(NextByte(8.0), None)
    made = generate(
        ask, [97], Decoding(1.0, top_p=0.5, seed=3, max_tokens=20), ByteTokenizer(), CPU
    )
    assert bytes(made.ids) == bytes(range(98, 118))


def test_a_broken_model_answers_nothing_and_says_why():
    made = generate(last_logits(NextByte(math.nan), None), [97], Decoding(), ByteTokenizer(), CPU)
    assert (made.ids, made.stop_reason) == ([], "non_finite")


def test_the_loss_of_a_reference_answer_has_no_chance_in_it():
    ask = last_logits(NextByte(), None)
    right = reference_nll(ask, [97], list(b"bcd"), CPU)
    half = reference_nll(ask, [97], list(b"bX"), CPU)
    assert right == pytest.approx(-sure(), rel=1e-5)
    assert half == pytest.approx(-sure() + 2, rel=1e-5)
    assert reference_nll(ask, [97], [], CPU) is None


def test_every_set_holds_the_empty_prompt_once():
    assert [p.id for p in PromptSet([Prompt("a", "x")]).prompts] == ["empty", "a"]
    assert [p.id for p in PromptSet([Prompt("none", "")]).prompts] == ["none"]


def test_the_hash_names_what_is_asked_and_how():
    plain = PromptSet([Prompt("a", "x")])
    assert plain.hash == PromptSet([Prompt("a", "x")]).hash
    others = [
        PromptSet([Prompt("a", "y")]),
        PromptSet([Prompt("a", "x", reference="r")]),
        PromptSet([Prompt("a", "x")], decodings=[Decoding(temperature=0.7)]),
        PromptSet([Prompt("a", "x")], decodings=[Decoding(seed=1)]),
    ]
    assert len({plain.hash, *(s.hash for s in others)}) == 5
    assert prompt_hash(Prompt("a", "x")) == prompt_hash(Prompt("b", "x"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompts": [Prompt("a", "x"), Prompt("a", "y")]},
        {"prompts": [], "decodings": ()},
    ],
)
def test_impossible_sets_are_refused(wrong):
    with pytest.raises(ValueError, match="prompt"):
        PromptSet(**wrong)


def test_sets_are_read_from_json(tmp_path):
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps({"prompts": [{"id": "a", "text": "x"}], "decodings": [{"seed": 3}]}))
    assert (
        PromptSet.from_json(path).hash
        == PromptSet([Prompt("a", "x")], decodings=[Decoding(seed=3)]).hash
    )
    path.write_text('{"prompts": [{"name": "a"}]}')
    with pytest.raises(ValueError, match="not a prompt set"):
        PromptSet.from_json(path)


def test_answers_hold_all_that_makes_them_comparable():
    prompts = PromptSet([Prompt("abc", "abc", reference="def")], decodings=[Decoding(max_tokens=4)])
    empty, answer = Sampler(NextByte(), prompts).sample(step=7, at=12.5, tokens_seen=70)
    assert (empty.prompt, answer.prompt_id) == ("", "abc")
    assert answer.text == "defg"
    assert "".join(answer.token_texts) == answer.text
    assert len(answer.token_logprobs) == len(answer.token_ids) == 4
    assert (answer.weights_step, answer.at, answer.tokens_seen) == (7, 12.5, 70)
    assert answer.prompt_set_hash == prompts.hash
    assert answer.reference_nll == pytest.approx(-sure(), rel=1e-5)
    assert answer.sampling_id == empty.sampling_id
    assert not answer.truncated
    assert answer.text_bytes == 4


def test_tokens_that_hold_parts_of_a_character_join_to_the_text():
    class Spell(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(9.0))

        def forward(self, ids_BT):
            word = [*"aé√!".encode(), 0]
            place = min(ids_BT.shape[1] - 1, len(word) - 1)
            wanted = torch.tensor(word[place])
            return nn.functional.one_hot(wanted, 256).expand(*ids_BT.shape, 256) * self.scale

    (answer,) = Sampler(Spell(), PromptSet([])).sample(1, 0.0)
    assert answer.text == "aé√!"
    assert answer.token_texts == ["a", "", "é", "", "", "√", "!"]


def test_answers_of_several_decodings_have_names_of_their_own():
    decodings = [Decoding(max_tokens=1), Decoding(0.7, seed=5, max_tokens=1)]
    answers = Sampler(NextByte(), PromptSet([Prompt("a", "x")], decodings=decodings)).sample(1, 0.0)
    assert len({a.prompt_id for a in answers}) == 4
    assert {a.temperature for a in answers} == {0.0, 0.7}


def test_long_text_is_cut_at_a_character():
    text, whole = cut_text("é" * MAX_ANSWER_BYTES)
    assert len(text.encode()) == MAX_ANSWER_BYTES
    assert len(whole) == 2 * MAX_ANSWER_BYTES
    short, _ = cut_text("x" + "é" * MAX_ANSWER_BYTES)
    assert len(short.encode()) == MAX_ANSWER_BYTES - 1


def test_the_input_never_grows_beyond_the_context():
    lengths = []

    class Counting(NextByte):
        def forward(self, ids_BT):
            lengths.append(ids_BT.shape[1])
            return super().forward(ids_BT)

    decodings = [Decoding(max_tokens=10)]
    prompts = PromptSet([Prompt("a", "abcdefgh")], decodings=decodings, context=5)
    Sampler(Counting(), prompts).sample(1, 0.0)
    assert max(lengths) == 5


def test_entropies_are_those_of_the_distributions_tokens_come_from():
    (made,) = Sampler(NextByte(), PromptSet([], decodings=[Decoding(max_tokens=2)])).sample(1, 0.0)
    p = math.exp(sure())
    rest = (1 - p) / 255
    wanted = -p * math.log(p) - 255 * rest * math.log(rest)
    assert made.token_entropies == pytest.approx([wanted] * 2, rel=1e-4)


def test_the_reference_in_one_pass_is_that_of_token_by_token():
    model = NextByte()
    ask = last_logits(model, None)
    slow = reference_nll(ask, [97], list(b"bXd"), CPU)
    fast = reference_nll(ask, [97], list(b"bXd"), CPU, every_logits(model, None))
    assert fast == pytest.approx(slow, rel=1e-6)
    assert every_logits(model, 3)(torch.zeros(1, 4, dtype=torch.long)) is None


def test_when_the_time_is_over_only_whole_answers_are_given():
    class Slow(NextByte):
        def forward(self, ids_BT):
            time.sleep(0.02)
            return super().forward(ids_BT)

    prompts = PromptSet([Prompt("a", "a"), Prompt("b", "b")], decodings=[Decoding(max_tokens=5)])
    sampler = Sampler(Slow(), prompts)
    made = sampler.sample(1, 0.0, limit_s=0.2)
    assert 0 < len(made) < 3
    assert {answer.sampling_size for answer in made} == {3}
    assert all(len(answer.token_ids) == 5 or answer.stop_reason == "end" for answer in made)
    assert sampler.estimate_s() == pytest.approx(0.02 * 15, rel=0.8)


def test_a_sampling_may_be_given_its_name():
    (made,) = Sampler(NextByte(), PromptSet([])).sample(1, 0.0, sampling_id="abc")
    assert (made.sampling_id, made.sampler) == ("abc", "loop")
