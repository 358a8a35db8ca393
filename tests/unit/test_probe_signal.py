"""The probe as a signal: sources, heads apart from bodies, autocast, and refusals."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tests.bench.parts.memory import MIB, peak_mib  # noqa: E402
from trainer_hooks import probe as probe_module  # noqa: E402
from trainer_hooks.probe import Probe, calibration  # noqa: E402
from trainer_hooks.signals import probe as probe_signal  # noqa: E402
from trainer_hooks.signals.base import AsleepError, Subject  # noqa: E402
from trainer_hooks.signals.probe import ProbeSignal  # noqa: E402

pytestmark = pytest.mark.torch
VOCAB = 30


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 8)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(8, VOCAB)

    def hidden(self, ids_BT):
        return self.dropout(self.emb(ids_BT))

    def forward(self, ids_BT):
        return self.head(self.hidden(ids_BT))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def ids():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(VOCAB, (40, 17), generator=generator)


def measured(model, probe):
    signal = ProbeSignal(Subject(model, [], [], {"probe": probe}))
    found = {key: float(value) for key, value in signal.measure(1).items()}
    assert set(found) == {spec.key for spec in signal.specs()}
    return found


def expected(model, inputs, targets):
    model.eval()
    with torch.no_grad():
        found = calibration(model(inputs), targets)
    model.train()
    return {f"{name}/probe": pytest.approx(float(v), rel=1e-5) for name, v in found.items()}


def test_slices_of_rows_give_what_the_whole_batch_gives(model, ids, monkeypatch):
    inputs, targets = ids[:, :-1], ids[:, 1:].clone()
    targets[::3] = -100
    monkeypatch.setattr(probe_signal, "MAX_LOGIT_BYTES", 3 * 16 * VOCAB * 4)
    assert measured(model, Probe(inputs, targets)) == expected(model, inputs, targets)


def test_a_row_whose_logits_are_too_many_is_told_with_what_helps(model, ids, monkeypatch):
    monkeypatch.setattr(probe_signal, "MAX_LOGIT_BYTES", 16 * VOCAB * 4 - 1)
    inputs, targets = ids[:, :-1], ids[:, 1:]
    whole = ProbeSignal(Subject(model, [], [], {"probe": Probe(inputs, targets)}))
    whole.measure(1)
    assert "forward=" in (whole.notice() or "")
    sliced = Probe(inputs[:, :8], targets[:, :8], forward=lambda m, x: (m.hidden(x), m.head))
    small = ProbeSignal(Subject(model, [], [], {"probe": sliced}))
    small.measure(1)
    assert "MiB" not in (small.notice() or "")


@pytest.mark.parametrize("as_weight", [False, True])
def test_hidden_states_and_a_head_give_what_the_model_gives(model, ids, as_weight):
    inputs, targets = ids[:, :-1], ids[:, 1:]
    with torch.no_grad():
        model.head.bias.zero_()
    head = model.head.weight if as_weight else model.head
    probe = Probe(inputs, targets, forward=lambda m, x: (m.hidden(x), head))
    assert measured(model, probe) == expected(model, inputs, targets)


def test_every_source_has_its_own_values(model, ids):
    inputs, targets = ids[:, :-1], ids[:, 1:].clone()
    targets[0] = -100
    sources = ["code" if row % 2 else "prose" for row in range(40)]
    found = measured(model, Probe(inputs, targets, sources=sources))
    code = expected(model, inputs[1::2], targets[1::2])
    assert {key: found[f"{key}@code"] for key in code} == code
    prose = expected(model, inputs[::2], targets[::2])
    assert {key: found[f"{key}@prose"] for key in prose} == prose


def test_the_training_autocast_is_used(model, ids):
    seen = []
    model.head.register_forward_hook(lambda _m, _i, out: seen.append(out.dtype))
    signal = ProbeSignal(Subject(model, [], [], {"probe": Probe(ids[:, :-1], ids[:, 1:])}))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(ids[:, :-1])
    signal.measure(1)
    assert set(seen) == {torch.bfloat16}


def test_without_a_probe_it_says_what_wakes_it(model):
    with pytest.raises(AsleepError) as told:
        ProbeSignal(Subject(model, [], [], {}))
    assert "Probe(" in told.value.wake


def test_a_wholly_masked_probe_is_refused(model, ids):
    with pytest.raises(AsleepError, match="not masked"):
        ProbeSignal(Subject(model, [], [], {"probe": Probe(ids, torch.full_like(ids, -100))}))


def test_buffers_too_large_to_put_back_are_refused(model, ids, monkeypatch):
    model.register_buffer("table", torch.zeros(1000))
    monkeypatch.setattr(probe_signal, "MAX_BUFFER_BYTES", 100)
    with pytest.raises(AsleepError, match="put back"):
        ProbeSignal(Subject(model, [], [], {"probe": Probe(ids, ids)}))


def test_a_target_beyond_the_logits_is_an_error_not_a_crash(model, ids):
    signal = ProbeSignal(Subject(model, [], [], {"probe": Probe(ids, ids + VOCAB)}))
    with pytest.raises(ValueError, match="outside the vocabulary"):
        signal.measure(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_head_apart_takes_no_more_memory_than_the_logits_of_256_tokens(dtype, monkeypatch):
    vocab, width = 20_000, 8
    emb = nn.Embedding(16, width, dtype=dtype)
    model = nn.ModuleDict({"emb": emb, "head": nn.Linear(width, vocab, False, dtype=dtype)})
    ids = torch.arange(1024).view(4, 256) % 16
    forward = lambda m, inputs: (m["emb"](inputs), m["head"])  # noqa: E731
    probe = Probe(ids, ids, forward=forward)
    signal = ProbeSignal(Subject(model, [], [], {"probe": probe}))
    signal.measure(1)
    assert peak_mib(lambda: signal.measure(2)) * MIB <= 256 * vocab * 4
    # On a device the tables of the statistics are larger than in a CPU's cache.
    monkeypatch.setattr(probe_module, "CACHED_SCALARS", probe_module.TABLE_SCALARS)
    assert peak_mib(lambda: signal.measure(3)) * MIB <= 256 * vocab * 4
