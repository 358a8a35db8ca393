"""Run facts: what was trained, with what, where. Collected off the training thread."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from typing import Any

from trainer_hooks.wire import RunStart

GIT_TIMEOUT_S = 5.0
MAX_DIFF_BYTES = 64 * 1024 * 1024
PACKAGES = (
    "accelerate",
    "bitsandbytes",
    "datasets",
    "deepspeed",
    "flash-attn",
    "lightning",
    "liger-kernel",
    "numpy",
    "peft",
    "pytorch-lightning",
    "tokenizers",
    "torch",
    "torchtitan",
    "transformer-engine",
    "transformers",
    "triton",
    "trl",
    "watchkeeper",
    "xformers",
)


def complete(facts: RunStart) -> RunStart:
    """The same facts with all that takes a while to find out: git, packages, host, GPUs."""
    commit, diff = git_state()
    return replace(
        facts,
        git_commit=commit,
        git_diff_sha256=diff,
        packages=package_versions(),
        host=facts.host or socket.gethostname(),
        gpus=gpu_names(),
    )


def git_state(folder: str | None = None) -> tuple[str | None, str | None]:
    """Commit and SHA-256 of the uncommitted changes (None if clean); of the current folder."""
    commit = _git(["rev-parse", "HEAD"], folder)
    if commit is None:
        return None, None
    diff = _git(["diff", "HEAD", "--no-ext-diff", "--no-color"], folder)
    changed = hashlib.sha256(diff[:MAX_DIFF_BYTES]).hexdigest() if diff else None
    return commit.decode("ascii", "replace").strip(), changed


def _git(words: list[str], folder: str | None) -> bytes | None:
    git = shutil.which("git")
    if git is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, no shell
            [git, *words],
            cwd=folder,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=GIT_TIMEOUT_S,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def package_versions(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Versions of those that are installed, and Python's own."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def gpu_names() -> list[str]:
    """Names of the CUDA devices, if this process uses them already: none is woken for it."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def count_parameters(model: Any) -> int | None:
    """Parameters in all, each counted once; from shapes only."""
    if not hasattr(model, "parameters"):
        return None
    return sum(int(parameter.numel()) for parameter in model.parameters())
