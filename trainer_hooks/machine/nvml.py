"""Facts of NVIDIA cards from the driver's own library, where it is installed. No package needed.

Structures and numbers as in the public header ``nvml.h``.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

from trainer_hooks.wire import SeriesSpec, series_key

LIBRARY = "libnvidia-ml.so.1"
_TEMPERATURE_GPU = 0
_CLOCK_SM = 1
_SLOWED_DOWN = 0x8 | 0x20 | 0x40 | 0x80
"""Hardware slowdown, thermal by software or hardware, power brake; power capping is ordinary."""
_MAX_PROCESSES = 128


class NvmlError(Exception):
    """The library is not there, or says no."""


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]  # fmt: skip


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]  # fmt: skip


@dataclass(slots=True)
class Nvml:
    """The cards this process may see, by index. Reads only.

    Raises:
        NvmlError: there is no driver, or no card.
    """

    library: Any = None
    handles: list[Any] | None = None

    def __post_init__(self) -> None:
        try:
            self.library = self.library or ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NvmlError(str(error)) from error
        self._ask("nvmlInit_v2")
        count = ctypes.c_uint()
        self._ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self.handles = [self._handle(index) for index in range(count.value)]
        if not self.handles:
            raise NvmlError("there is no card")

    def read(self) -> dict[str, float]:
        """Every figure of every card under its series' key; what a card does not tell is absent."""
        found: dict[str, float] = {}
        for index, handle in enumerate(self.handles or []):
            for name, ask in _FIGURES.items():
                try:
                    found[series_key(name, str(index))] = ask(self, handle)
                except NvmlError:
                    continue
        return found

    def specs(self) -> list[SeriesSpec]:
        """What they are."""
        return [
            SeriesSpec(series_key(name, str(i)), name, str(i), unit=unit, family="other", help=text)
            for i in range(len(self.handles or []))
            for name, (unit, text) in _HELP.items()
        ]

    def _handle(self, index: int) -> Any:
        handle = ctypes.c_void_p()
        self._ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def _ask(self, function: str, *arguments: Any) -> None:
        try:
            answer = getattr(self.library, function)(*arguments)
        except AttributeError as error:
            raise NvmlError(f"the driver has no {function}") from error
        if answer != 0:
            raise NvmlError(f"{function} says {answer}")

    def _number(self, function: str, handle: Any, *before: Any, wide: bool = False) -> float:
        value = ctypes.c_ulonglong() if wide else ctypes.c_uint()
        self._ask(function, handle, *before, ctypes.byref(value))
        return float(value.value)

    def _memory(self, handle: Any) -> float:
        memory = _Memory()
        self._ask("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        return float(memory.used)

    def _utilization(self, handle: Any) -> float:
        rates = _Utilization()
        self._ask("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(rates))
        return float(rates.gpu) / 100

    def _others(self, handle: Any) -> float:
        """Bytes held by processes that are not this one."""
        count, found = ctypes.c_uint(_MAX_PROCESSES), (_Process * _MAX_PROCESSES)()
        self._ask("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
        unknown = 2**64 - 1  # what a container may not see
        others = [p.used for p in found[: count.value] if p.pid != os.getpid()]
        return float(sum(used for used in others if used != unknown))

    def _throttled(self, handle: Any) -> float:
        name = "nvmlDeviceGetCurrentClocksThrottleReasons"
        return float(bool(int(self._number(name, handle, wide=True)) & _SLOWED_DOWN))


_FIGURES: dict[str, Any] = {
    "gpu_util": Nvml._utilization,
    "gpu_memory_bytes": Nvml._memory,
    "gpu_temperature_c": lambda nvml, handle: nvml._number(
        "nvmlDeviceGetTemperature", handle, ctypes.c_uint(_TEMPERATURE_GPU)
    ),
    "gpu_power_w": lambda nvml, handle: nvml._number("nvmlDeviceGetPowerUsage", handle) / 1e3,
    "gpu_sm_clock_hz": lambda nvml, handle: nvml._number(
        "nvmlDeviceGetClockInfo", handle, ctypes.c_uint(_CLOCK_SM)
    ) * 1e6,
    "gpu_throttle": Nvml._throttled,
    "gpu_other_process": Nvml._others,
}  # fmt: skip

_HELP = {
    "gpu_util": ("", "share of the time a kernel ran on the card"),
    "gpu_memory_bytes": ("byte", "memory in use on the card"),
    "gpu_temperature_c": ("C", "temperature of the card"),
    "gpu_power_w": ("W", "power the card draws"),
    "gpu_sm_clock_hz": ("Hz", "clock of the card's processors"),
    "gpu_throttle": ("", "1 where heat or a fault of the power supply slows the card"),
    "gpu_other_process": ("byte", "memory that other processes hold on the card"),
}
