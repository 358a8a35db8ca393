"""Prompt sets from files: JSON always, YAML where PyYAML is installed.

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

Every prompt is asked plainly; with ``personas`` also once by each of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer_hooks.answers.checks import Checks
from trainer_hooks.answers.prompts import Decoding, Prompt, PromptSet, Tokenizer

MAX_BYTES = 4 * 1024 * 1024
YAML_NAMES = {".yaml", ".yml"}
_KNOWN = {"prompts", "personas", "decodings", "context", "chat", "name", "version"}


def read_prompt_set(path: Path, tokenizer: Tokenizer) -> PromptSet:
    """The set in a file.

    Raises:
        ValueError: the file is not of that form; the message names the place.
        OSError: it cannot be read.
    """
    plain = _load(path)
    try:
        return _prompt_set(plain, tokenizer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} is not a prompt set: {why}") from error


def _load(path: Path) -> Any:
    data = path.read_bytes()
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path} is not a prompt set: it is larger than 4 MiB")
    try:
        if path.suffix.lower() in YAML_NAMES:
            return _load_yaml(data, path)
        return json.loads(data)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a prompt set: {error}") from error


def _load_yaml(data: bytes, path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        hint = "pip install pyyaml, or write the same as JSON"
        raise ValueError(f"{path} is YAML, which needs PyYAML: {hint}") from None
    try:
        return yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not a prompt set: {error}") from error


def _prompt_set(plain: Any, tokenizer: Tokenizer) -> PromptSet:
    if not isinstance(plain, Mapping):
        raise TypeError("it is no mapping with 'prompts' in it")
    strange = sorted(str(name) for name in plain.keys() - _KNOWN)
    if strange:
        raise ValueError(f"unknown: {', '.join(strange)}")
    prompts = [_prompt(entry) for entry in plain["prompts"]]
    for persona in plain.get("personas") or []:
        prompts += [_asked_by(prompt, persona) for prompt in prompts if prompt.system is None]
    return PromptSet(
        prompts,
        tokenizer,
        [Decoding(**decoding) for decoding in plain.get("decodings") or [{}]],
        plain.get("context"),
        bool(plain.get("chat", False)),
    )


def _prompt(entry: Mapping[str, Any]) -> Prompt:
    fields = dict(entry)
    checks = fields.pop("checks", None)
    prompt = Prompt(**fields, checks=Checks(**checks) if checks else None)
    for name in ("id", "text"):
        if not isinstance(getattr(prompt, name), str):
            raise TypeError(f"{name} of a prompt is text, not {getattr(prompt, name)!r}")
    return prompt


def _asked_by(prompt: Prompt, persona: Mapping[str, Any]) -> Prompt:
    return replace(prompt, id=f"{prompt.id} ({persona['id']})", system=str(persona["system"]))
