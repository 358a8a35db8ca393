"""Models that are loaded from a checkpoint: by a function of yours, or from a Hugging Face folder.

Your function takes the checkpoint's path and the device's name and returns the model, or the model
and a tokenizer, or the model and a whole prompt set:

    def load(path, device):
        model = Tiny()
        model.load_state_dict(torch.load(path, map_location="cpu")["model"])
        return model.to(device), MyTokenizer()
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer_hooks.answers.beside.checkpoints import Checkpoint
from trainer_hooks.answers.prompts import PromptSet, Tokenizer
from trainer_hooks.answers.sampler import Sampler
from trainer_hooks.wire import Answer

Load = Callable[[Path, str], Any]


def find_load(spec: str) -> Load:
    """The function behind ``module:function``; the present folder is looked in too.

    Raises:
        ValueError: there is no such function.
    """
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise ValueError(f"{spec!r} is not of the form module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{spec}: {error}") from error
    if not callable(found):
        raise ValueError(f"{spec} is no function")
    load: Load = found
    return load


class ModelAsker:
    """Loads each checkpoint's model, asks it, and lets it go.

    Args:
        prompts: what is asked; None: the set that ``load`` returns with the model.
        device: as torch names it.
        label: as what the answers are told apart from those of another set.
    """

    def __init__(self, load: Load, prompts: PromptSet | None, device: str, label: str) -> None:
        self._load = load
        self._prompts = prompts
        self._device = device
        self._label = label

    def label(self) -> str:
        return self._label

    def where(self) -> str:
        return self._device

    def ask(self, checkpoint: Checkpoint, sampling_id: str) -> list[Answer]:
        """Answers by the weights of the checkpoint.

        Raises:
            ValueError: there is nothing to ask.
            Exception: whatever loading raises.
        """
        try:
            model, prompts = self._open(checkpoint.path)
            sampler = Sampler(model, prompts, sampler="checkpoints")
            return sampler.sample(checkpoint.step, checkpoint.modified_at, sampling_id=sampling_id)
        finally:
            model = None
            gc.collect()

    def _open(self, path: Path) -> tuple[Any, PromptSet]:
        loaded = self._load(path, self._device)
        model, extra = loaded if isinstance(loaded, tuple) else (loaded, None)
        if isinstance(extra, PromptSet) and self._prompts is None:
            return model, extra
        if self._prompts is None:
            raise ValueError("there is nothing to ask: give --prompts, or return a PromptSet")
        if extra is None or isinstance(extra, PromptSet):
            return model, self._prompts
        tokenizer = extra if hasattr(extra, "begin_ids") else HuggingFaceTokenizer(extra)
        return model, replace(self._prompts, tokenizer=tokenizer)


class HuggingFaceTokenizer:
    """A tokenizer of transformers as prompt sets want one."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        begin = tokenizer.bos_token_id
        end = tokenizer.eos_token_id
        ends = [end] if isinstance(end, int) else list(end or [])
        self.begin_ids: Sequence[int] = [begin] if begin is not None else ends[:1]
        self.end_ids: Sequence[int] = ends
        vocab = repr(sorted(tokenizer.get_vocab().items()))
        digest = hashlib.sha256(vocab.encode("utf-8", "replace")).hexdigest()[:16]
        self.name = f"{type(tokenizer).__name__}-{digest}"

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return text

    def chat_ids(self, system: str | None, text: str) -> list[int]:
        """The tokenizer's own chat form, up to where the answer begins."""
        said = [{"role": "system", "content": system}] if system else []
        said.append({"role": "user", "content": text})
        made = self._tokenizer.apply_chat_template(
            said, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return list(made)


def load_hugging_face(path: Path, device: str) -> tuple[Any, Tokenizer]:
    """The model and tokenizer of a Hugging Face folder (or one with a GGUF file), from disk only.

    Raises:
        ValueError: transformers is not installed.
        OSError: the folder holds no model.
    """
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        raise ValueError("--hf needs transformers: pip install transformers") from None
    more: dict[str, Any] = {"local_files_only": True}
    folder = path if path.is_dir() else path.parent
    packed = [path] if path.suffix == ".gguf" else sorted(folder.glob("*.gguf"))
    if packed and not (folder / "config.json").exists():
        more["gguf_file"] = packed[0].name
    tokenizer = AutoTokenizer.from_pretrained(str(folder), **more)
    model = AutoModelForCausalLM.from_pretrained(str(folder), **more)
    return model.to(device).eval(), HuggingFaceTokenizer(tokenizer)
