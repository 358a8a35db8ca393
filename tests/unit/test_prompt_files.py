"""Prompt sets in files, personas, checks of code that run nothing."""

import builtins
import json

import pytest

pytest.importorskip("torch")

from trainer_hooks.answers.checks import (  # noqa: E402
    Checks,
    closes_its_brackets,
    parses_as_python,
)
from trainer_hooks.answers.prompts import Prompt, PromptSet, prompt_hash  # noqa: E402
from trainer_hooks.answers.sampler import prompt_tokens  # noqa: E402

pytestmark = pytest.mark.torch

YAML = """
name: daily
prompts:
  - {id: sky, text: "Why is the sky blue?", reference: "Air scatters blue light most."}
  - id: reverse
    text: "def reverse(items):"
    checks: {python: true, brackets: true, pattern: "return"}
personas:
  - {id: curt, system: "Answer in one sentence."}
decodings:
  - {max_tokens: 96}
  - {temperature: 0.7, seed: 17, max_tokens: 96}
"""


@pytest.fixture
def yaml_file(tmp_path):
    path = tmp_path / "daily.yaml"
    path.write_text(YAML)
    return path


def test_a_set_is_read_from_yaml_with_personas_and_checks(yaml_file):
    found = PromptSet.from_file(yaml_file)
    assert [p.id for p in found.prompts] == [
        "empty", "sky", "reverse", "sky (curt)", "reverse (curt)",
    ]  # fmt: skip
    assert found.prompts[3].system == "Answer in one sentence."
    assert found.prompts[2].checks == Checks(pattern="return", python=True, brackets=True)
    assert found.size == 10


def test_the_same_set_as_json_has_the_same_hash(yaml_file, tmp_path):
    yaml = pytest.importorskip("yaml")
    path = tmp_path / "daily.json"
    path.write_text(json.dumps(yaml.safe_load(YAML)))
    assert PromptSet.from_file(path).hash == PromptSet.from_file(yaml_file).hash


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Answer in one sentence", "Answer in two sentences"),
        ("python: true", "python: false"),
        ("Air scatters", "Water scatters"),
        ("seed: 17", "seed: 18"),
    ],
)
def test_any_change_of_the_set_is_another_version(yaml_file, old, new):
    before = PromptSet.from_file(yaml_file).hash
    yaml_file.write_text(YAML.replace(old, new))
    assert PromptSet.from_file(yaml_file).hash != before


def test_without_pyyaml_the_error_says_what_to_do(yaml_file, monkeypatch):
    imported = builtins.__import__

    def without_yaml(name, *args, **options):
        if name == "yaml":
            raise ImportError(name)
        return imported(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    with pytest.raises(ValueError, match="pip install pyyaml, or write the same as JSON"):
        PromptSet.from_file(yaml_file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "no mapping"),
        ("prompt: []\n", "unknown: prompt"),
        ("personas: []\n", "prompts is missing"),
        ("prompts:\n  - {id: 3, text: x}\n", "id of a prompt is text"),
        ("prompts:\n  - {id: a, text: x, checks: {pattern: '('}}\n", "pattern '\\('"),
        ("prompts: [\n", "not a prompt set"),
    ],
)
def test_a_file_that_is_no_set_is_refused_with_the_place(tmp_path, text, said):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        PromptSet.from_file(path)


@pytest.mark.parametrize(
    ("code", "parses"),
    [
        ("def f(x):\n    return x\n", True),
        ("def f(x):\n    return x\n\ndef g(", True),  # only the cut last line is broken
        ("def f(x:\n    return x\n", False),
        ("", False),
        ("Sure:\n```python\nx = 1\n```\nThat is it.", True),
        ("x = 1\0", False),
        ("(" * 5000, False),
        ('print("never run")', True),
    ],
)
def test_code_is_parsed_and_never_run(code, parses, capsys):
    assert parses_as_python(code) is parses
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "closed"), [("f(a[1], {})", True), ("f(a[1)]", False), ("((", False), (")", False)]
)
def test_brackets_close_in_order(text, closed):
    assert closes_its_brackets(text) is closed


def test_checks_look_at_prompt_and_answer_together():
    checks = Checks(pattern="return", python=True)
    assert checks.run("def f(x):", "\n    return x") == {"python": True, "pattern": True}
    assert checks.run("def return_(x):", "\n    pass") == {"python": True, "pattern": False}


def test_a_persona_goes_before_the_prompt_and_makes_it_another_prompt():
    plain, curt = Prompt("a", "x"), Prompt("a", "x", system="Be curt.")
    prompts = PromptSet([plain])
    assert bytes(prompt_tokens(curt, prompts)) == b"\0Be curt.\n\nx"
    assert prompt_hash(plain) != prompt_hash(curt)
