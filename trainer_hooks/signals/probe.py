"""Calibration, accuracy and logits on the fixed held-out probe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from trainer_hooks.loop.undisturbed import MAX_BUFFER_BYTES, buffer_bytes, undisturbed
from trainer_hooks.probe import NoLogitsError, Probe, forward_slices, summarise, token_statistics
from trainer_hooks.signals.base import AsleepError, Signal, Subject
from trainer_hooks.signals.groups import unwrapped
from trainer_hooks.wire import SeriesSpec, series_key

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Measured

MAX_LOGIT_BYTES = 64 * 1024 * 1024
CPU_LOGIT_BYTES = 24 * 1024 * 1024
"""Below what a C library gives back to the system at once: fresh pages cost time."""
WAKE_FORWARD = "Probe(..., forward=lambda model, inputs: (hidden, model.lm_head))"
WAKE = "watch(..., probe=Probe(inputs_BT, targets_BT))"

STATISTICS: dict[str, tuple[str, str, str, str]] = {
    "loss": ("nat/token", "loss", "lower", "mean -ln p of the true token on the fixed probe"),
    "top1": ("", "accuracy", "higher", "share of tokens whose true token is ranked first"),
    "top10": ("", "accuracy", "higher", "share of tokens whose true token is among the first ten"),
    "median_rank": ("", "accuracy", "lower", "median rank of the true token, 1 is best"),
    "entropy": ("nat/token", "calibration", "", "mean entropy of the predicted distribution"),
    "confidence": ("", "calibration", "", "mean probability of the likeliest token"),
    "entropy_minus_nll": (
        "nat/token",
        "calibration",
        "",
        "mean entropy minus mean loss: 0 when calibrated, below 0 when surer than right",
    ),
    "ece": ("", "calibration", "lower", "expected calibration error over 15 bins"),
    "logit_scale": ("", "logits", "", "root mean square of the logits, centred by token"),
    "logit_shift": ("", "logits", "", "mean logit, which softmax does not see"),
    "logsumexp": ("", "logits", "", "mean ln of the sum of exponentials of the logits"),
    "logit_max": ("", "logits", "", "largest logit on the probe"),
}


class ProbeSignal(Signal):
    """Measures the probe in evaluation mode under the training autocast; changes nothing."""

    name: ClassVar[str] = "probe"
    cadence: ClassVar[str] = "probe"

    def __init__(self, subject: Subject) -> None:
        given = subject.extras.get("probe")
        if given is None:
            raise AsleepError("a fixed held-out batch", WAKE)
        if buffer_bytes(subject.model) > MAX_BUFFER_BYTES:
            raise AsleepError(
                "buffers small enough to be put back after a look (128 MiB in all)",
                "keep large tables out of the model's buffers",
            )
        self._model = unwrapped(subject.model)
        self._probe = probe_on_device(given, subject.model)
        self._autocast = TrainingAutocast(subject)
        self._rows: int | None = None
        self._row_bytes = 0
        self._targets = self._probe.targets_BT.reshape(-1)
        judged = self._targets != self._probe.ignore_index
        # The same on the host: what a slice holds is then known without waiting for the device.
        self._judged_host = judged.cpu()
        self._chosen: dict[tuple[int, int], Tensor] = {}
        if not bool(self._judged_host.any()):
            raise AsleepError("a probe with a target that is not masked", WAKE)
        self._highest_target = int(self._targets[judged].max())
        self._sources = self._source_places()

    def specs(self) -> list[SeriesSpec]:
        return [
            SeriesSpec(
                key=series_key(name, "probe", source),
                name=name,
                group="probe",
                source=source,
                unit=unit,
                family=family,
                better=better,  # type: ignore[arg-type]
                help=text,
            )
            for source in ("", *self._sources)
            for name, (unit, family, better, text) in STATISTICS.items()
        ]

    def measure(self, step: int) -> Measured:
        with undisturbed(self._model), self._autocast.again(), uncompiled():
            try:
                per_token = self._per_token()
            except NoLogitsError:
                raise AsleepError("no_logits", WAKE_FORWARD) from None
        found = {series_key(name, "probe"): v for name, v in summarise(per_token).items()}
        for source, places in self._sources.items():
            chosen = {name: value[places] for name, value in per_token.items()}
            for name, value in summarise(chosen).items():
                found[series_key(name, "probe", source)] = value
        return found

    def notice(self) -> str | None:
        if self._row_bytes > MAX_LOGIT_BYTES:
            return (
                f"one row of the probe takes {self._row_bytes >> 20} MiB of logits; less with "
                f"{WAKE_FORWARD}"
            )
        if self._autocast.has_seen:
            return None
        return (
            "not observed: the model was compiled before the watch was attached, or is not called; "
            "the probe does not know its autocast"
        )

    def _per_token(self) -> dict[str, Tensor]:
        """Statistics of the judged tokens, slice by slice: never all logits at once."""
        parts: list[dict[str, Tensor]] = []
        place = 0
        for logits_NV in self._logits():
            here = slice(place, place + len(logits_NV))
            place = here.stop
            chosen = self._chosen_in(here)
            if len(chosen) == 0:
                continue
            targets_N = self._targets[here]
            if len(chosen) < len(logits_NV):
                logits_NV, targets_N = logits_NV[chosen], targets_N[chosen]
            parts.append(token_statistics(logits_NV, targets_N, self._vocab(logits_NV)))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _chosen_in(self, here: slice) -> Tensor:
        """Places of the judged tokens in a slice: a mask on the device would be waited for."""
        key = here.start, here.stop
        if key not in self._chosen:
            places = self._judged_host[here].nonzero().squeeze(1)
            self._chosen[key] = places.to(self._targets.device)
        return self._chosen[key]

    def _logits(self) -> Iterator[Tensor]:
        if self._rows is None:
            self._rows = self._learn_rows()
        return forward_slices(self._model, self._probe, self._rows)

    def _learn_rows(self) -> int:
        """How many rows go through the model at once: one row is tried first."""
        first = replace(
            self._probe,
            inputs_BT=self._probe.inputs_BT[:1],
            targets_BT=self._probe.targets_BT[:1],
        )
        parts = [part.numel() * 4 for part in forward_slices(self._model, first, 1)]
        bytes_per_row = sum(parts)
        self._row_bytes = max(parts, default=0)
        on_cpu = self._targets.device.type == "cpu"
        bound = min(MAX_LOGIT_BYTES, CPU_LOGIT_BYTES) if on_cpu else MAX_LOGIT_BYTES
        return max(1, bound // max(1, bytes_per_row))

    def _vocab(self, logits_NV: Tensor) -> int:
        """The width without padding; a target beyond it would be an assertion on the device."""
        width = self._probe.vocab or logits_NV.shape[-1]
        if self._highest_target >= width:
            raise ValueError(f"target {self._highest_target} lies outside the vocabulary ({width})")
        return width

    def _source_places(self) -> dict[str, Tensor]:
        """For each source, which of the judged tokens are its own; sources with none are left out.

        As numbers: a mask is waited for, each time it is used on a device.

        Raises:
            ValueError: not one source per row.
        """
        sources = self._probe.sources
        if sources is None:
            return {}
        rows = self._probe.targets_BT.shape[0]
        if len(sources) != rows:
            raise ValueError(f"the probe has {rows} rows and {len(sources)} sources")
        judged_BT = self._judged_host.reshape(rows, -1)
        found = {}
        for source in dict.fromkeys(sources):
            own_B = torch.tensor([name == source for name in sources])
            places = own_B[:, None].expand_as(judged_BT)[judged_BT].nonzero().squeeze(1)
            if len(places):
                found[source] = places.to(self._targets.device)
        return found


def probe_on_device(probe: Probe, model: Any) -> Probe:
    """The probe where the model is, copied once."""
    parameter = next(iter(model.parameters()), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    inputs = probe.inputs_BT.to(device) if hasattr(probe.inputs_BT, "to") else probe.inputs_BT
    return replace(probe, inputs_BT=inputs, targets_BT=probe.targets_BT.to(device))


class TrainingAutocast:
    """Sees once under which autocast the training forward runs, and measures under the same."""

    def __init__(self, subject: Subject) -> None:
        parameter = next(iter(subject.model.parameters()), None)
        self._device = "cpu" if parameter is None else parameter.device.type
        self._seen: tuple[bool, torch.dtype] | None = None
        self._handle: Any = None
        if hasattr(subject.model, "register_forward_pre_hook"):
            self._handle = subject.model.register_forward_pre_hook(self._look)

    def _look(self, module: Any, _inputs: Any) -> None:
        """Written at every training forward and never read here: compiling it breaks no graph,
        and no guard depends on it."""
        if module.training:
            self._seen = (
                torch.is_autocast_enabled(self._device),
                torch.get_autocast_dtype(self._device),
            )

    @property
    def has_seen(self) -> bool:
        """Whether there was a training forward, or nothing to listen to."""
        return self._seen is not None or self._handle is None

    def again(self) -> AbstractContextManager[Any]:
        if self._seen is None:
            return nullcontext()
        if self._handle is not None and "torch._dynamo" not in sys.modules:
            # A compiled model would be compiled anew for a hook less.
            self._handle.remove()
            self._handle = None
        enabled, dtype = self._seen
        return torch.autocast(self._device, dtype=dtype, enabled=enabled)


def uncompiled() -> AbstractContextManager[Any]:
    """No compilation for a look in another mode and shape: it would take longer than all looks."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance
