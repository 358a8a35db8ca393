"""What the store offers, as protocols. Services and the API know these; nothing here knows SQL.

A ``UnitOfWork`` is one transaction. ``Database.write`` runs a function in one and commits it (on
SQLite by the one writer thread, several functions to a commit, each behind its own savepoint, so a
function must do no I/O of its own and may be called again); ``Database.read`` gives a consistent
snapshot. Repositories never commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from monitor.domain.alert import Alert, AlertChange
from monitor.domain.block import Block, Bucket
from monitor.domain.log import EntryKind, LogEntry
from monitor.domain.rule import Rule
from monitor.domain.run import Attempt, Run, RunState
from monitor.domain.series import Series
from monitor.domain.silence import Silence
from monitor.domain.tuning import Tuning
from trainer_hooks.wire import Answer, Event, Phase, RunStart, SeriesSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch went. ``pos`` is None for a repeat: it was held, and nothing changed."""

    pos: int | None
    held_through: int


@dataclass(frozen=True, slots=True)
class SourceState:
    """One process's account: ``held_through`` is the highest seq below which nothing is missing."""

    run: str
    attempt: str
    source: str
    held_through: int
    through_step: int | None
    last_seen_at: float
    stored: int
    duplicate: int
    refused: int
    overwritten: int
    client: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A reader's place in a run's log. ``epoch`` is the fence: it grows with every new holder."""

    run: str
    reader: str
    pos: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A reader's memory as of ``pos``: whoever restores it replays the log from there, muted."""

    run: str
    reader: str
    pos: int
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Channel:
    """A place messages go to. ``config`` may hold secrets: it is never shown or logged."""

    id: str
    name: str
    format: str
    config: dict[str, Any]
    enabled: bool = True
    disabled_reason: str = ""


OutboxState = Literal["waiting", "sending", "held", "sent", "folded", "gave_up", "cancelled"]
"""``held``: kept back until ``due_at`` for the reason in ``held``; ``folded``: said in another
message, ``folded_into``."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One message to one channel. ``id`` is the webhook-id, the same on every try.

    ``payload`` is frozen at the first claim and sent byte for byte on every retry.
    """

    id: str
    run: str
    alert: str
    channel: str
    moment: str
    created_at: float
    due_at: float
    state: OutboxState = "waiting"
    tries: int = 0
    payload: bytes | None = None
    claimed_by: str | None = None
    claimed_until: float | None = None
    settled_at: float | None = None
    last_status: int | None = None
    last_error: str = ""
    detector: str = ""
    severity: str = ""
    held: str = ""
    folded_into: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryTry:
    """One try at a message: what the receiver said and how long it took."""

    message: str
    at: float
    status: int | None
    latency_s: float
    error: str = ""


class Runs(Protocol):
    def get(self, run: str) -> Run | None: ...
    def find(
        self, *, states: Sequence[RunState] | None, text: str, limit: int, before: float | None
    ) -> list[Run]:
        """Newest first; ``text`` is a plain substring of name, id or tag; ``before`` pages."""
        ...

    def live(self) -> list[Run]: ...
    def ensure(self, run: str, *, at: float) -> Run:
        """The run, created bare if it is unknown. Raises ``Gone`` if it was deleted."""
        ...

    def describe(self, run: str, start: RunStart, *, at: float) -> None:
        """Take over facts (a later RunStart of the same run replaces what it says)."""
        ...

    def touch(self, run: str, *, at: float, last_step: int | None, skew_s: float) -> None: ...
    def set_state(self, run: str, state: RunState, *, at: float, error: str | None) -> None: ...
    def delete(self, run: str, *, at: float) -> None:
        """Forget everything but the tombstone."""
        ...

    def attempts(self, run: str) -> list[Attempt]: ...
    def begin_attempt(self, attempt: Attempt) -> bool:
        """Store an attempt; False if it is known (its fields are then completed, not replaced)."""
        ...

    def infer_attempt(self, run: str, attempt: str, *, at: float, first_step: int) -> bool:
        """Store an attempt whose start was not heard; False if it is known."""
        ...

    def end_attempt(
        self, run: str, attempt: str, *, at: float, status: str, last_step: int | None
    ) -> None: ...


class Log(Protocol):
    def append_batch(self, entry: LogEntry, *, values: int, refused: int) -> Appended:
        """Append unless (run, attempt, source, seq) is held; the position is assigned here."""
        ...

    def lock(self, run: str) -> None:
        """Keep other writers of this run out until the transaction ends."""
        ...

    def append_note(self, run: str, kind: EntryKind, note: dict[str, Any], *, at: float) -> int: ...
    def head(self, run: str) -> int:
        """The last position (0: the log is empty)."""
        ...

    def heads(self) -> dict[str, int]:
        """Last positions of all runs that are not deleted."""
        ...

    def read(self, run: str, *, after: int, limit: int, max_bytes: int = ...) -> list[LogEntry]: ...
    def backlog(self, run: str, *, after: int) -> tuple[int, int, float | None]:
        """What lies after a position: entries, points, and the instant of the oldest."""
        ...

    def first(self, run: str) -> int:
        """The lowest position still kept (head + 1 if none)."""
        ...

    def drop_through(self, run: str, pos: int) -> int: ...
    def sources(self, run: str) -> list[SourceState]: ...
    def note_client(self, run: str, attempt: str, source: str, counts: dict[str, Any]) -> None: ...
    def note_overwritten(self, run: str, attempt: str, source: str, count: int) -> None: ...


class SeriesTable(Protocol):
    def all(self, run: str) -> list[Series]: ...
    def named(self, run: str, keys: Sequence[str]) -> list[Series]:
        """Those of the keys that the run has."""
        ...

    def ensure(self, run: str, specs: Iterable[SeriesSpec]) -> dict[str, Series]:
        """Series by key, created or completed. Raises ``TooManySeries`` above the limit."""
        ...


class Blocks(Protocol):
    def add(self, run: str, blocks: Sequence[Block], buckets: Sequence[Bucket]) -> None: ...
    def summaries(
        self, run: str, series: Sequence[int], *, first_step: int | None, last_step: int | None
    ) -> list[Block]:
        """Blocks without bodies that touch the range."""
        ...

    def bodies(self, ids: Sequence[int]) -> list[Block]: ...
    def buckets(
        self, run: str, series: Sequence[int], *, first_step: int | None, last_step: int | None
    ) -> list[Bucket]: ...
    def open(self, run: str) -> list[Block]:
        """Blocks that may still be merged, without bodies: tails of all series, and patches."""
        ...

    def last_steps(self, run: str, series: Sequence[int]) -> dict[tuple[int, str], int]:
        """The highest sealed step by (series, attempt)."""
        ...

    def tail_tiers(self, run: str) -> list[Block]:
        """Small blocks that are due for merging, bodies included."""
        ...

    def bucket_rows(
        self, run: str, series: int, attempt: str, *, first_step: int, last_step: int
    ) -> list[tuple[Any, ...]]:
        """Bare (first_step, first_time, count, non_finite, low, high, mean) of many buckets."""
        ...

    def clear_buckets(self, run: str, ranges: Sequence[tuple[int, str, int, int]]) -> None:
        """Delete buckets by (series, attempt, first step from, first step to)."""
        ...

    def replace(self, run: str, old: Sequence[int], new: Sequence[Block]) -> None: ...
    def replace_buckets(
        self,
        run: str,
        series: int,
        attempt: str,
        first_step: int,
        last_step: int,
        buckets: Sequence[Bucket],
    ) -> None: ...


class Glances(Protocol):
    """What a list of runs shows of each, asked for all of them at once."""

    def bounds(self, runs: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The first position each run's log still holds (after the head: none), and its head."""
        ...

    def attempts(self, runs: Sequence[str]) -> dict[str, list[Attempt]]:
        """By ordinal."""
        ...

    def checkpoints(self, runs: Sequence[str]) -> dict[str, list[tuple[str, Phase]]]:
        """Phases of that name, with their attempts."""
        ...

    def lines(
        self, runs: Sequence[str], key: str, *, points: int
    ) -> dict[str, list[tuple[int, float]]]:
        """(first step, mean) of about so many sealed buckets by step, spread over all steps."""
        ...

    def lasts(
        self, runs: Sequence[str], keys: Sequence[str] | None = None
    ) -> dict[str, list[tuple[str, Bucket]]]:
        """The last sealed bucket of each series (None: of all) and attempt, with its key."""
        ...


class Answers(Protocol):
    def add(self, run: str, attempt: str, answers: Sequence[Answer], *, at: float) -> int: ...
    def samplings(self, run: str) -> list[dict[str, Any]]:
        """Each sampling: id, weights_step, at, attempt, count, prompt_set_hash; oldest first."""
        ...

    def of_sampling(self, run: str, sampling: str, prompt: str | None = None) -> list[Answer]:
        """Its answers by prompt, or that to one prompt alone."""
        ...

    def numbers(self, run: str) -> list[tuple[str, str, dict[str, Any]]]:
        """(sampling, prompt, numbers) of all answers, without their texts.

        The numbers are those of ``domain.answer_metrics.AnswerMetrics``, and ``sketch``.
        """
        ...


class Events(Protocol):
    """Events and phases, laid out of the log so that they outlive it."""

    def add_event(self, run: str, attempt: str, event: Event, *, pos: int) -> None: ...
    def add_phase(self, run: str, attempt: str, phase: Phase, *, pos: int) -> None:
        """Store a phase; its second message (same ``phase_id``) completes the first."""
        ...

    def events(self, run: str, *, limit: int = ...) -> list[tuple[str, Event]]: ...
    def phases(self, run: str, *, limit: int = ...) -> list[tuple[str, Phase]]: ...


class Alerts(Protocol):
    def get(self, alert: str) -> Alert | None: ...
    def of_run(self, run: str, *, open_only: bool = ...) -> list[Alert]: ...
    def find(self, *, open_only: bool, run: str | None, limit: int) -> list[Alert]: ...
    def open_counts(self) -> dict[str, dict[str, int]]:
        """Open alerts by run and severity."""
        ...

    def save(self, alert: Alert, change: AlertChange | None) -> None: ...
    def changes(self, alert: str) -> list[AlertChange]: ...
    def of_incident(self, incident: str) -> list[Alert]: ...
    def of_detector(self, run: str, detector: str, *, since: float) -> list[Alert]:
        """Those of one rule and run that opened since an instant."""
        ...

    def history(self, run: str, *, limit: int) -> list[AlertChange]:
        """Changes of all alerts of a run, newest first."""
        ...

    def labelled(self, run: str) -> list[Alert]:
        """Those a person closed with the word that this was fine."""
        ...


class Outbox(Protocol):
    def enqueue(self, rows: Sequence[OutboxRow]) -> None:
        """Insert rows; one whose id is held is left as it is (a replay tells nothing twice)."""
        ...

    def claim(self, *, owner: str, now: float, lease_s: float, limit: int) -> list[OutboxRow]:
        """Take due rows (waiting, or sending with a lapsed claim) by conditional UPDATE.

        In order per (channel, alert): a later message waits until the earlier is settled.
        """
        ...

    def freeze(self, message: str, payload: bytes) -> None: ...
    def settle(
        self,
        message: str,
        *,
        owner: str,
        state: OutboxState,
        at: float,
        due_at: float | None,
        attempt: DeliveryTry | None,
    ) -> bool:
        """Write down how a try ended; False if the claim is no longer ours."""
        ...

    def note_try(self, attempt: DeliveryTry) -> None:
        """Write down a try that did not settle its message."""
        ...

    def cancel(self, alert: str, *, moment: str, at: float) -> int:
        """Withdraw messages of this alert that no try was made for."""
        ...

    def of_alert(self, alert: str) -> list[tuple[OutboxRow, list[DeliveryTry]]]: ...
    def get(self, message: str) -> OutboxRow | None: ...
    def lock(self) -> None:
        """Let no other process decide about messages until this transaction ends."""
        ...

    def of_rule(self, channel: str, detector: str, *, run: str | None) -> list[OutboxRow]:
        """Messages of one rule to one channel, of all runs or of one: those that have not left,
        and those that left in the last hour."""
        ...

    def tries(self, message: str) -> list[DeliveryTry]:
        """Tries at a message that were written down, in order."""
        ...

    def folded(self, message: str) -> list[OutboxRow]:
        """What was folded into a message, in order."""
        ...

    def hold(self, message: str, *, owner: str, until: float, why: str) -> bool:
        """Give a claimed message back untried, to be looked at again then."""
        ...

    def postpone(self, channel: str, *, until: float) -> int:
        """Let nothing that waits for a channel leave before then; what waits keeps its order."""
        ...

    def fold(self, messages: Sequence[str], *, into: str, at: float) -> int:
        """Mark messages that have not left as said in another one."""
        ...

    def fold_held(self, channel: str, *, why: str, into: str, at: float) -> int:
        """Mark what a channel holds back for this reason as said in a message."""
        ...

    def release(self, *, at: float, alert: str | None = None) -> int:
        """Look at what is held again at once (of one alert, or of all)."""
        ...

    def counts(self) -> dict[str, int]: ...
    def oldest_waiting(self) -> float | None: ...


class Channels(Protocol):
    def all(self) -> list[Channel]: ...
    def get(self, channel: str) -> Channel | None: ...
    def save(self, channel: Channel) -> None: ...
    def delete(self, channel: str) -> bool:
        """Forget it; False if there is none. Messages to it that wait are then cancelled."""
        ...

    def disable(self, channel: str, reason: str) -> None: ...


class Silences(Protocol):
    def all(self) -> list[Silence]: ...
    def save(self, silence: Silence) -> None: ...
    def delete(self, silence: str) -> bool:
        """False if there is none of this id."""
        ...


class Rules(Protocol):
    def all(self) -> list[Rule]: ...
    def save(self, rule: Rule, *, at: float) -> None: ...
    def delete(self, rule: str) -> bool:
        """False if there is none of this id."""
        ...


class Tunings(Protocol):
    """Parameters of detectors that people have set, by detector."""

    def all(self) -> dict[str, Tuning]: ...
    def save(self, tuning: Tuning) -> None:
        """Without parameters: forget it, the detector judges as shipped."""
        ...


class Readers(Protocol):
    def open(self, run: str, reader: str, *, owner: str, lease_s: float) -> Cursor | None:
        """Take the reader for ``owner`` (database clock), or None while another holds the lease.

        A new holder gets a new epoch; the same owner asking again keeps its epoch.
        """
        ...

    def move(self, cursor: Cursor, pos: int) -> Cursor:
        """Move in the transaction of the effects. Raises ``Fenced`` if another has taken over."""
        ...

    def release(self, run: str, reader: str, *, owner: str) -> None:
        """Let a lease go before it lapses."""
        ...

    def positions(self, run: str) -> dict[str, int]: ...
    def save_snapshot(self, snapshot: Snapshot) -> None: ...
    def load_snapshot(self, run: str, reader: str) -> Snapshot | None: ...
    def snapshot_pos(self, run: str, reader: str) -> int | None:
        """Where a snapshot stands, without loading it."""
        ...


class Fenced(Exception):
    """Another process has taken this reader over: roll back and let it go."""


class UnitOfWork(Protocol):
    @property
    def runs(self) -> Runs: ...
    @property
    def log(self) -> Log: ...
    @property
    def series(self) -> SeriesTable: ...
    @property
    def blocks(self) -> Blocks: ...
    @property
    def glances(self) -> Glances: ...
    @property
    def answers(self) -> Answers: ...
    @property
    def events(self) -> Events: ...
    @property
    def alerts(self) -> Alerts: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def channels(self) -> Channels: ...
    @property
    def silences(self) -> Silences: ...
    @property
    def rules(self) -> Rules: ...
    @property
    def tunings(self) -> Tunings: ...
    @property
    def readers(self) -> Readers: ...


class Database(Protocol):
    @property
    def dialect(self) -> Literal["sqlite", "postgresql"]: ...
    def write(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run in one transaction and commit. Raises ``Unavailable`` when the database is away."""
        ...

    def read(self) -> AbstractContextManager[UnitOfWork]: ...
    def on_append(self, callback: Callable[[str, int], None]) -> None:
        """Call back with (run, position) after each commit that moved a log.

        On PostgreSQL also for the commits of other processes (LISTEN/NOTIFY). Called from a thread
        of the store: return at once.
        """
        ...

    def begin_serving(self) -> None:
        """This process is a server. SQLite has one: a second is refused with ``InUse``, and what a
        dead one had claimed is free at once. PostgreSQL is shared; claims lapse there.
        """
        ...

    def size_bytes(self) -> int: ...
    def close(self) -> None: ...
