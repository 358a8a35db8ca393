"""What the zoo's model is asked at each sampling."""

from __future__ import annotations

from trainer_hooks.answers.prompts import ByteTokenizer, Decoding, Prompt, PromptSet
from trainer_hooks.zoo.corpus import Corpus, standard_library
from trainer_hooks.zoo.model import CONTEXT

PROMPTS = (
    Prompt("import", "import ", reference="sys\nimport os\n"),
    Prompt("define", "def __init__(self", reference=", name):\n"),
    Prompt("condition", "    if not ", reference="isinstance("),
    Prompt("docstring", '    """Return the '),
    Prompt("raise", "        raise ", reference="ValueError("),
)

HELD_OUT_PROMPTS = 32
PROMPT_BYTES = 24
REFERENCE_BYTES = 32
ANSWER_TOKENS = 40


def zoo_prompts() -> PromptSet:
    """Five short beginnings of Python and the empty prompt, greedy and drawn with a seed."""
    decodings = (Decoding(max_tokens=48), Decoding(temperature=0.7, seed=7, max_tokens=48))
    return PromptSet(PROMPTS, ByteTokenizer(), decodings, context=CONTEXT)


def held_out_prompts(corpus: Corpus | None = None) -> PromptSet:
    """A line from the middle of each of 32 held-out documents, and how that document goes on.

    Too many to be asked in the loop of so short a run: for the checkpoints, beside it.
    """
    documents = (corpus or standard_library()).held_out[:HELD_OUT_PROMPTS]
    decodings = (
        Decoding(max_tokens=ANSWER_TOKENS),
        Decoding(temperature=0.7, seed=7, max_tokens=ANSWER_TOKENS),
    )
    prompts = [_middle(f"held-out {n}", text) for n, text in enumerate(documents)]
    return PromptSet(prompts, ByteTokenizer(), decodings, context=CONTEXT)


def _middle(name: str, document: bytes) -> Prompt:
    start = document.find(b"\n", len(document) // 2) + 1
    cut = start + PROMPT_BYTES
    asked, reference = document[start:cut], document[cut : cut + REFERENCE_BYTES]
    return Prompt(name, asked.decode("utf-8", "replace"), reference.decode("utf-8", "replace"))
