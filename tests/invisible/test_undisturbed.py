"""Looking at a model leaves nothing changed: modes, buffers, random states, gradients, losses."""

import random

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from trainer_hooks.answers.prompts import Decoding, Prompt, PromptSet  # noqa: E402
from trainer_hooks.answers.sampler import Sampler  # noqa: E402
from trainer_hooks.loop import undisturbed as module  # noqa: E402
from trainer_hooks.loop.undisturbed import CannotRestoreError, undisturbed  # noqa: E402
from trainer_hooks.probe import Probe  # noqa: E402
from trainer_hooks.signals.base import Subject  # noqa: E402
from trainer_hooks.signals.probe import ProbeSignal  # noqa: E402

pytestmark = pytest.mark.torch
VOCAB = 256


class Noisy(nn.Module):
    """A model that draws random numbers and writes buffers whenever it is called, eval or not."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.3)
        self.frozen = nn.Dropout(0.3).eval()
        self.head = nn.Linear(8, VOCAB)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3), persistent=False)

    def forward(self, ids_BT):
        self.calls += 1
        self.last = torch.rand(3)  # a new tensor under the old name
        random.random()
        hidden = self.norm(self.emb(ids_BT).flatten(0, 1)).view(*ids_BT.shape, 8)
        return self.head(self.frozen(self.dropout(hidden)))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Noisy()


def ids(seed=0):
    return torch.randint(VOCAB, (4, 9), generator=torch.Generator().manual_seed(seed))


def state_of(model):
    return {
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate(),
        "modes": [m.training for m in model.modules()],
        "values": {n: t.clone().tolist() for n, t in model.state_dict().items()},
        "last": (id(model.last), model.last.tolist()),
        "grads": [None if p.grad is None else p.grad.tolist() for p in model.parameters()],
        "grad_mode": torch.is_grad_enabled(),
    }


def probe_once(model):
    subject = Subject(model, [], [], {"probe": Probe(ids(), ids(1))})
    ProbeSignal(subject).measure(1)


def sample_once(model):
    decodings = [Decoding(max_tokens=4), Decoding(0.8, seed=3, max_tokens=4)]
    Sampler(model, PromptSet([Prompt("a", "abc", reference="d")], decodings=decodings)).sample(
        1, 0.0
    )


@pytest.mark.parametrize("look", [probe_once, sample_once])
def test_a_look_changes_nothing(model, look):
    model(ids()).sum().backward()
    before = state_of(model)
    look(model)
    assert state_of(model) == before


@pytest.mark.parametrize("look", [probe_once, sample_once])
def test_a_look_that_fails_changes_nothing(model, look, monkeypatch):
    before = state_of(model)

    def broken(_ids):
        torch.rand(3)
        model.calls += 1
        raise RuntimeError("out of memory")

    monkeypatch.setattr(model, "forward", broken)
    with pytest.raises(RuntimeError):
        look(model)
    monkeypatch.undo()
    assert state_of(model) == before


@pytest.mark.parametrize("look", [probe_once, sample_once])
def test_the_next_twenty_losses_are_the_same_bit_for_bit(look):
    def losses(looked):
        torch.manual_seed(0)
        random.seed(0)
        model = Noisy()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        found = []
        for step in range(25):
            if looked and step == 5:
                look(model)
            loss = nn.functional.cross_entropy(model(ids(step)).flatten(0, 1), ids(step).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item().hex())
        return found

    assert losses(True) == losses(False)


def test_two_looks_give_the_same(model):
    sampler = Sampler(model, PromptSet([Prompt("a", "abc")], decodings=[Decoding(0.8, seed=3)]))
    first, second = sampler.sample(1, 0.0), sampler.sample(1, 0.0)
    assert [a.token_ids for a in first] == [a.token_ids for a in second]
    assert [a.token_logprobs for a in first] == [a.token_logprobs for a in second]


def test_numpy_randomness_is_put_back(model):
    numpy = pytest.importorskip("numpy")
    numpy.random.seed(0)
    with undisturbed(model):
        inside = numpy.random.random()
    assert numpy.random.random() == inside


def test_eval_of_the_model_itself_is_not_called(model, monkeypatch):
    monkeypatch.setattr(model, "eval", lambda: pytest.fail("eval() may merge weights"))
    probe_once(model)


def test_more_buffers_than_can_be_put_back_are_refused(model, monkeypatch):
    monkeypatch.setattr(module, "MAX_BUFFER_BYTES", 10)
    with pytest.raises(CannotRestoreError, match="buffers"), undisturbed(model):
        pytest.fail("nothing may be measured")


def losses_of(folder, sample_at, steps=31):
    """Bits of the losses of a small model with dropout, sampled by its watch at one step."""
    from trainer_hooks import watch

    torch.manual_seed(3)
    random.seed(3)
    model = Noisy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    prompts = PromptSet([Prompt("a", "ab", reference="cd")], decodings=[
        Decoding(max_tokens=4), Decoding(0.8, seed=5, max_tokens=4),
    ])  # fmt: skip
    found = []
    w = watch(
        model, optimizer, server="http://127.0.0.1:9", spool_dir=folder, prompts=prompts,
        every={"weights": 0, "probe": 0},
    )  # fmt: skip
    for step in range(steps):
        inputs = torch.randint(VOCAB, (4, 9))
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), inputs.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        w.step(loss=loss)
        found.append(float(loss.detach()).hex())
        if step == sample_at:
            cached = [p.grad.clone() for p in model.parameters()]
            w.sample_answers()
            assert all(
                torch.equal(a, p.grad) for a, p in zip(cached, model.parameters(), strict=True)
            )
            assert model.training
            assert not model.frozen.training
    w.close(timeout_s=0.5)
    assert w.tally().hook_errors == 0
    return found


def test_sampling_in_the_loop_leaves_the_next_twenty_losses_as_they_were(tmp_path):
    plain = losses_of(tmp_path / "plain", None)
    assert losses_of(tmp_path / "sampled", 10) == plain
    assert len(set(plain[11:])) == 20


def test_sampling_that_takes_too_long_waits_and_says_so_once(tmp_path):
    from tests.fixtures.stub_server import StubServer
    from trainer_hooks import watch

    torch.manual_seed(0)
    model = Noisy()
    prompts = PromptSet([Prompt("a", "ab")], decodings=[Decoding(max_tokens=100_000)])
    with StubServer() as server:
        with watch(
            model, torch.optim.SGD(model.parameters(), lr=0.1), server=server.url,
            spool_dir=tmp_path, prompts=prompts, every={"answers": 1, "weights": 0, "probe": 0},
        ) as w:  # fmt: skip
            for _ in range(20):
                w.step(loss=1.0)
        assert server.received.records("answer") == []
        assert [e["name"] for e in server.received.records("event")] == ["answers_postponed"]
