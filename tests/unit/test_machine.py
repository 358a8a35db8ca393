"""What is told of the machine: files as the kernel writes them, a driver library that answers."""

import ctypes

import pytest

from trainer_hooks.loop.series import binomial
from trainer_hooks.machine import flops, process
from trainer_hooks.machine.nvml import Nvml, NvmlError
from trainer_hooks.wire import Asleep


def test_pressure_is_the_share_of_the_last_ten_seconds(tmp_path):
    (tmp_path / "io").write_text(
        "some avg10=12.50 avg60=3.00 avg300=1.00 total=9\n"
        "full avg10=1.00 avg60=0 avg300=0 total=1\n"
    )
    assert process.pressure("io", tmp_path) == pytest.approx(0.125)
    assert process.pressure("cpu", tmp_path) is None
    (tmp_path / "cpu").write_text("unheard of")
    assert process.pressure("cpu", tmp_path) is None


def test_resident_memory_counts_pages(tmp_path):
    (tmp_path / "statm").write_text("1000 250 30 1 0 500 0")
    assert process.rss_bytes(tmp_path / "statm") == 250 * 4096
    assert process.rss_bytes(tmp_path / "none") is None


def test_the_disk_of_a_folder_that_is_not_there_yet(tmp_path):
    assert process.disk_free_bytes(tmp_path / "a" / "b") > 0


@pytest.mark.parametrize(
    ("card", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
        ("NVIDIA H200", 989),
        ("NVIDIA RTX PRO 6000 Blackwell", None),
        ("Tesla T4", None),
    ],
)
def test_peaks_by_the_cards_name(card, peak):
    assert flops.peak_tflops(card) == peak


def test_utilisation_of_a_known_case():
    mfu = flops.make_mfu(6e9, None, ["NVIDIA A100-SXM4-80GB"] * 8, 8)
    assert isinstance(mfu, flops.Mfu)
    # 8 cards, 312e12 each: 208,000 tokens/s of a 1B model are half of what they can do.
    assert mfu.of(208_000) == pytest.approx(0.5)


def test_an_unknown_card_sleeps_until_its_peak_is_given():
    asleep = flops.make_mfu(6e9, None, ["NVIDIA RTX PRO 6000"], 1)
    assert isinstance(asleep, Asleep)
    assert "peak_tflops" in asleep.wake
    given = flops.make_mfu(6e9, 500.0, [], 1)
    assert isinstance(given, flops.Mfu)
    assert given.peak_flops == 500e12


@pytest.mark.torch
def test_an_input_embedding_of_its_own_is_not_multiplied():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 10, bias=False))
    assert flops.flops_per_token(model, None) == 6 * 40
    model[1].weight = model[0].weight
    assert flops.flops_per_token(model, None) == 6 * 40
    assert flops.flops_per_token(model, 7) == 42


class Driver:
    """A library that answers as the driver's does: a status, and values by reference."""

    def __init__(self, cards=1):
        self.cards = cards

    def nvmlInit_v2(self):
        return 0

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = self.cards
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        return 0

    def nvmlDeviceGetTemperature(self, handle, sensor, value):
        value._obj.value = 71
        return 0

    def nvmlDeviceGetPowerUsage(self, handle, value):
        value._obj.value = 350_000
        return 0

    def nvmlDeviceGetClockInfo(self, handle, clock, value):
        value._obj.value = 1_410
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle, rates):
        rates._obj.gpu = 97
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle, memory):
        memory._obj.used = 5 * 2**30
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, value):
        value._obj.value = 0x4 | 0x40
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, found):
        found[0].pid, found[0].used = 1, 2**30
        ctypes.memset(ctypes.byref(found[1]), 0xFF, ctypes.sizeof(found[1]))
        count._obj.value = 2
        return 0


def test_a_cards_figures_in_their_units():
    found = Nvml(Driver()).read()
    assert found == {
        "gpu_util/0": 0.97,
        "gpu_memory_bytes/0": 5 * 2**30,
        "gpu_temperature_c/0": 71,
        "gpu_power_w/0": 350,
        "gpu_sm_clock_hz/0": 1.41e9,
        "gpu_throttle/0": 1,
        "gpu_other_process/0": 2**30,
    }
    assert {spec.key for spec in Nvml(Driver()).specs()} == set(found)


def test_what_a_card_does_not_tell_is_absent():
    class Old(Driver):
        @property
        def nvmlDeviceGetPowerUsage(self):
            raise AttributeError

        def nvmlDeviceGetClockInfo(self, *_):
            return 3

    found = Nvml(Old()).read()
    assert "gpu_power_w/0" not in found
    assert "gpu_sm_clock_hz/0" not in found
    assert "gpu_util/0" in found


def test_no_card_is_said():
    with pytest.raises(NvmlError, match="no card"):
        Nvml(Driver(cards=0))


def test_an_evaluation_has_its_binomial_error():
    found = binomial("mmlu", 30, 100)
    assert found["eval/mmlu"] == pytest.approx(0.3)
    assert found["eval_error/mmlu"] == pytest.approx(0.046, abs=0.001)
    assert binomial("none", 0, 20)["eval_error/none"] > 0.04
    for k, n in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="no share"):
            binomial("x", k, n)
