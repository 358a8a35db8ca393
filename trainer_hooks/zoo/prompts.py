"""What the zoo's model is asked at each sampling."""

from __future__ import annotations

from trainer_hooks.answers.prompts import ByteTokenizer, Decoding, Prompt, PromptSet
from trainer_hooks.zoo.model import CONTEXT

PROMPTS = (
    Prompt("import", "import ", reference="sys\nimport os\n"),
    Prompt("define", "def __init__(self", reference=", name):\n"),
    Prompt("condition", "    if not ", reference="isinstance("),
    Prompt("docstring", '    """Return the '),
    Prompt("raise", "        raise ", reference="ValueError("),
)


def zoo_prompts() -> PromptSet:
    """Five short beginnings of Python and the empty prompt, greedy and drawn with a seed."""
    decodings = (Decoding(max_tokens=48), Decoding(temperature=0.7, seed=7, max_tokens=48))
    return PromptSet(PROMPTS, ByteTokenizer(), decodings, context=CONTEXT)
