"""The one wire schema: what the hooks send and the server validates, as the very same classes.

Plain frozen dataclasses of the standard library, so that a training process loads nothing for
them. A batch is columnar: a *frame* holds the steps that share one cadence and one list of values
per series. Records are everything that is not a number at a step.

Numbers: a finite float, or one of the strings ``"nan"``, ``"inf"``, ``"-inf"`` (a non-finite number
is a fact, and JSON has no word for it), or ``null`` where the series has no value at that step.
Instants are seconds since 1970-01-01 UTC; durations come from a monotonic clock.

Unknown fields are ignored by the server, so that a newer client may talk to an older server.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

WIRE_VERSION = 1

MAX_NAME_BYTES = 512
MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_ANSWER_BYTES = 256 * 1024
MAX_SERIES_PER_RUN = 10_000
MAX_STEP = 2**63 - 1

NonFinite = Literal["nan", "inf", "-inf"]
Number = float | NonFinite
Cell = Number | None
Scalar = str | int | float | bool | None

RunKind = Literal["pretrain", "continued", "sft", "preference", "rl", "other"]
EndStatus = Literal["finished", "failed", "interrupted", "terminated"]
PhaseName = Literal["evaluation", "checkpoint", "sampling", "data_mix", "note"]


@dataclass(frozen=True, slots=True)
class Frame:
    """Values of series that share one cadence.

    ``steps`` [S] and ``times`` [S] (seconds, UTC) name the rows; each column of ``columns`` is a
    list [S] under its series key. The step is that of the weights the value was measured on.
    """

    steps: list[int]
    times: list[float]
    columns: dict[str, list[Cell]]


@dataclass(frozen=True, slots=True)
class Asleep:
    """A signal or rule that cannot work yet: what is missing, and the line that wakes it."""

    what: str
    missing: str
    wake: str


@dataclass(frozen=True, slots=True)
class RunStart:
    """Facts of a run. Plan, cost, comparisons and causes live on them; absent is not zero."""

    name: str
    at: float
    run_kind: RunKind = "pretrain"
    tags: list[str] = field(default_factory=list)
    config: dict[str, Scalar] = field(default_factory=dict)
    git_commit: str | None = None
    git_diff_sha256: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    host: str | None = None
    gpus: list[str] = field(default_factory=list)
    world_size: int = 1
    seeds: dict[str, int] = field(default_factory=dict)
    dataset_hash: str | None = None
    planned_steps: int | None = None
    planned_tokens: int | None = None
    sequence_length: int | None = None
    params_active: int | None = None
    params_total: int | None = None
    price_per_hour: float | None = None
    currency: str = "USD"
    zone: str = "UTC"
    declared_epochs: float = 1.0
    optimizer: str | None = None
    asleep: list[Asleep] = field(default_factory=list)
    kind: Literal["run_start"] = "run_start"


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """A process begins (or begins again) at ``first_step``. Only the client declares this."""

    ordinal: int
    first_step: int
    at: float
    parent: str | None = None
    reason: str = ""
    kind: Literal["attempt_start"] = "attempt_start"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How this attempt, and with it the run, ended. ``error`` is the exception's type name only."""

    status: EndStatus
    at: float
    last_step: int | None = None
    error: str | None = None
    kind: Literal["run_end"] = "run_end"


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """What a column is. ``key`` is its column name; name, group and source are never split from it.

    ``family`` groups the charts, ``better`` says which direction is good (empty: neither).
    """

    key: str
    name: str
    group: str = ""
    source: str = ""
    unit: str = ""
    family: str = "other"
    help: str = ""
    better: Literal["", "lower", "higher"] = ""
    kind: Literal["series"] = "series"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a step, said by the hooks: a stall, a note, a disabled signal."""

    name: str
    step: int
    at: float
    text: str = ""
    data: dict[str, Scalar] = field(default_factory=dict)
    kind: Literal["event"] = "event"


@dataclass(frozen=True, slots=True)
class Phase:
    """A declared stretch that is not ordinary training. Sent when it begins and again when it ends.

    Both messages carry the same ``phase_id``; the second has ``end_step`` and ``end_at``.
    """

    phase_id: str
    name: PhaseName
    begin_step: int
    begin_at: float
    end_step: int | None = None
    end_at: float | None = None
    path: str | None = None
    text: str = ""
    kind: Literal["phase"] = "phase"


@dataclass(frozen=True, slots=True)
class Answer:
    """One sampled answer, with all that makes it comparable to another one.

    ``token_logprobs`` [N] are natural logarithms of the chosen tokens' probabilities under the
    untempered model; ``token_texts`` [N] join to ``text``. ``text`` over 256 KiB is cut at a code
    point: ``truncated`` is set, ``text_bytes`` and ``text_sha256`` are those of the whole. They are
    those of the original too where the server had to replace what no database holds (NUL, lone
    surrogates) and set ``sanitized``.

    ``token_entropies`` [N] (nats) are those of the distributions the tokens were chosen from, empty
    where nobody knows them. ``checks`` are named questions about the text that run nothing of it
    (does it parse, are its brackets closed), and what came of them. ``sampling_size`` is how many
    answers the whole sampling has (0: not said); ``sampler`` says who asked: ``loop``,
    ``checkpoints``, ``endpoint``.
    """

    sampling_id: str
    prompt_id: str
    prompt_hash: str
    prompt: str
    text: str
    weights_step: int
    at: float
    token_ids: list[int] = field(default_factory=list)
    token_texts: list[str] = field(default_factory=list)
    token_logprobs: list[Number] = field(default_factory=list)
    system: str | None = None
    stop_reason: str = ""
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    max_tokens: int = 0
    dtype: str = ""
    tokenizer_hash: str = ""
    model_label: str = ""
    prompt_set_hash: str = ""
    tokens_seen: int | None = None
    reference_nll: Number | None = None
    end_token_probs: dict[str, float] = field(default_factory=dict)
    truncated: bool = False
    text_bytes: int = 0
    text_sha256: str = ""
    sanitized: bool = False
    token_entropies: list[Number] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)
    batch_size: int = 1
    sampling_size: int = 0
    sampler: str = ""
    kind: Literal["answer"] = "answer"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Proof of life from the sender thread, with the client's own account, counted in values.

    produced = stored + duplicate + refused + queued + spooled + dropped, always.
    """

    at: float
    step: int | None = None
    produced: int = 0
    stored: int = 0
    duplicate: int = 0
    refused: int = 0
    queued: int = 0
    spooled: int = 0
    dropped: int = 0
    hook_errors: int = 0
    kind: Literal["heartbeat"] = "heartbeat"


Record = RunStart | AttemptStart | RunEnd | SeriesSpec | Event | Phase | Answer | Heartbeat

RECORD_TYPES: dict[str, type] = {
    "run_start": RunStart,
    "attempt_start": AttemptStart,
    "run_end": RunEnd,
    "series": SeriesSpec,
    "event": Event,
    "phase": Phase,
    "answer": Answer,
    "heartbeat": Heartbeat,
}


@dataclass(frozen=True, slots=True)
class Batch:
    """What one POST carries. (run, attempt, source, seq) names it for ever: a repeat is a no-op.

    ``source`` is one process. ``seq`` counts that source's batches from 0. ``through_step`` is the
    last step of which this source has sent everything, in this batch or an earlier one. A
    ``bystander`` is no part of the training: it can be heard while the run is silent.
    """

    run: str
    attempt: str
    source: str
    seq: int
    sent_at: float
    through_step: int | None = None
    frames: list[Frame] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    v: int = WIRE_VERSION
    bystander: bool = False


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """A value or record the server did not take, and why. ``row`` and ``series`` may be absent."""

    reason: str
    frame: int | None = None
    series: str | None = None
    row: int | None = None
    record: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The server's answer to a batch, counted in values (non-null cells).

    ``refused`` lists at most 100 refusals; ``refused_values`` counts them all. ``overwritten``
    counts those of ``stored`` that replaced an earlier value of the same point.
    """

    run: str
    seq: int
    held_through: int
    stored: int = 0
    duplicate: int = 0
    overwritten: int = 0
    refused_values: int = 0
    refused_records: int = 0
    refused: list[RefusedValue] = field(default_factory=list)


def series_key(name: str, group: str = "", source: str = "") -> str:
    """Join name, group and source for display and as a column key; nothing ever splits it again.

    >>> series_key("loss", "probe", "code")
    'loss/probe@code'
    """
    key = f"{name}/{group}" if group else name
    return f"{key}@{source}" if source else key


def to_cell(value: float) -> Number:
    """A float as it travels: itself where finite, else its name."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def from_cell(cell: Number) -> float:
    """The float a cell stands for (``float`` knows the three names).

    Raises:
        ValueError: the string is no number's name.
    """
    return float(cell)


def to_plain(value: Any) -> Any:
    """Dataclasses, lists and dicts as plain JSON values; non-finite floats as their names."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, float):
        return to_cell(value)
    return value


def encode(batch: Batch) -> bytes:
    """A batch as UTF-8 JSON. Lone surrogates become U+FFFD: they are not text on any wire."""
    text = json.dumps(to_plain(batch), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
