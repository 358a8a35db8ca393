"""A run with hooks gives the same losses as one without, bit for bit, whatever the server does."""

import functools
import random
import socket
import threading

import pytest

torch = pytest.importorskip("torch")

from trainer_hooks import watch  # noqa: E402
from trainer_hooks.zoo import run as zoo  # noqa: E402
from trainer_hooks.zoo.faults.base import Fault  # noqa: E402
from trainer_hooks.zoo.run import run_zoo  # noqa: E402

pytestmark = pytest.mark.torch
STEPS = 45


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Everything happens several times within a short run."""
    for name, every in (("weights", 7), ("probe", 9), ("held_out", 10), ("answers", 22)):
        monkeypatch.setattr(Fault, f"{name}_every", every)
    monkeypatch.setattr(zoo, "CHECKPOINT_EVERY", 20)
    monkeypatch.setattr(zoo, "PROBE_ROWS", 16)


@pytest.fixture(scope="module")
def plain():
    """Losses without hooks, by fault."""
    return functools.cache(lambda fault: hexes(run_zoo(fault, seed=1, onset=20, steps=STEPS)))


def hexes(losses):
    return [loss.hex() for loss in losses]


def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def mute_server():
    """Takes connections and never answers."""
    held = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        done = threading.Event()

        def accept():
            while not done.is_set():
                try:
                    held.append(listening.accept()[0])
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        done.set()
        thread.join()
        for connection in held:
            connection.close()


def watched(fault, server, folder):
    """Losses with hooks, and the watch."""
    made = []

    def make(model, optimizer, **facts):
        made.append(
            watch(
                model,
                optimizer,
                name="invisible",
                run=f"invisible-{fault}",
                server=server,
                spool_dir=folder,
                overhead_budget=0.9,
                **facts,
            )
        )
        return made[0]

    losses = run_zoo(fault, seed=1, onset=20, steps=STEPS, watch=make, checkpoints=folder)
    return hexes(losses), made[0]


@pytest.mark.parametrize("fault", ["healthy", "stale_loader", "nan_loss", "dropout_in_eval"])
def test_losses_with_and_without_hooks_are_the_same_bit_for_bit(plain, fault, tmp_path):
    losses, watching = watched(fault, f"http://127.0.0.1:{closed_port()}", tmp_path)
    assert losses == plain(fault)
    tally = watching.tally()
    assert tally.hook_errors == 0
    assert tally.dropped == 0
    assert tally.produced > STEPS * 8
    assert tally.produced == tally.spooled


def test_a_server_that_never_answers_changes_nothing_either(plain, mute_server, tmp_path):
    losses, watching = watched("healthy", mute_server, tmp_path)
    assert losses == plain("healthy")
    assert watching.tally().hook_errors == 0


def test_random_states_after_a_watched_run_are_those_after_a_plain_one(tmp_path):
    states = []
    for server in (None, f"http://127.0.0.1:{closed_port()}"):
        random.seed(5)
        if server is None:
            run_zoo("healthy", seed=1, steps=STEPS)
        else:
            watched("healthy", server, tmp_path)
        states.append((torch.get_rng_state().tolist(), random.getstate()))
    assert states[0] == states[1]
