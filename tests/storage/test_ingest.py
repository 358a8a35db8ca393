"""Ingest on both databases: what is stored, what is refused alone, what is a no-op."""

from __future__ import annotations

import gzip
import json
import math
import struct
import time

import pytest

from monitor.clock import FakeClock
from monitor.errors import Gone, MalformedBody, TooLarge, Unprocessable, UnsupportedCoding
from monitor.services.ingest import Ingest
from monitor.services.reading import Reading
from monitor.services.sealing import Sealer
from monitor.storage.base import Database, Snapshot
from tests.storage.bodies import body

HARD_VALUES = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1]


@pytest.fixture
def ingest(database: Database) -> Ingest:
    return Ingest(database, FakeClock(1000.0))


def seal_and_drop(database: Database, run: str = "r") -> None:
    """Seal everything and let the log go, as with a detection that has kept up."""

    def caught_up(work) -> None:
        work.readers.save_snapshot(Snapshot(run, "detection", work.log.head(run), {}))

    database.write(caught_up)
    sealer = Sealer(database, FakeClock(1000.0), "test")
    while sealer.run_once(run):
        pass


def curve(database: Database, key: str, run: str = "r") -> dict[int, float]:
    found = Reading(database).points(run, [key])
    return {
        int(step): float(value)
        for part in found.series
        for step, value in zip(part.steps, part.values, strict=True)
    }


def bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


@pytest.mark.parametrize("sealed", [False, True])
def test_values_come_back_to_the_bit(database: Database, ingest: Ingest, sealed: bool) -> None:
    ingest.accept(body(columns={"x": HARD_VALUES, "f32": [0.5] * 7}))
    if sealed:
        seal_and_drop(database)
        with database.read() as work:
            assert work.log.read("r", after=0, limit=10) == []
    back = curve(database, "x")
    assert [bits(back[i]) for i in range(7)] == [bits(value) for value in HARD_VALUES]
    assert curve(database, "f32") == dict.fromkeys(range(7), 0.5)


def test_the_names_of_non_finite_numbers_are_understood(database: Database, ingest: Ingest) -> None:
    cells = ["nan", "NaN", "inf", "Infinity", "-inf", "-Infinity", None]
    receipt = ingest.accept(body(columns={"x": cells}))
    assert (receipt.stored, receipt.refused_values) == (6, 0)
    expected = [math.nan, math.nan, math.inf, math.inf, -math.inf, -math.inf]
    assert [bits(v) for v in curve(database, "x").values()] == [bits(v) for v in expected]


def test_a_number_too_large_for_a_float_is_infinity(database: Database, ingest: Ingest) -> None:
    raw = body(columns={"x": [0.25]}).replace(b"0.25", b"1e999")
    assert ingest.accept(raw).stored == 1
    assert curve(database, "x") == {0: math.inf}


def test_bad_values_are_refused_alone_by_frame_series_and_row(
    database: Database, ingest: Ingest
) -> None:
    columns = {
        "good": [1, 2.5, 3, 4],
        "bad": [True, "1.5", [1], {"a": 1}],
        "half": [1, None, "x", 4],
    }
    receipt = ingest.accept(body(columns=columns))
    assert (receipt.stored, receipt.refused_values) == (6, 5)
    places = {(r.frame, r.series, r.row) for r in receipt.refused}
    assert places == {(0, "bad", row) for row in range(4)} | {(0, "half", 2)}
    assert all(refusal.reason for refusal in receipt.refused)
    assert curve(database, "good") == {0: 1.0, 1: 2.5, 2: 3.0, 3: 4.0}
    assert curve(database, "half") == {0: 1.0, 3: 4.0}


@pytest.mark.parametrize("step", [2**63, -1, 1.5, True, "7", None])
def test_a_bad_step_refuses_its_row_alone(database: Database, ingest: Ingest, step) -> None:
    columns = {"x": [1, 2, 3], "y": [4, None, 6]}
    receipt = ingest.accept(body(steps=[1, step, 2**63 - 1], columns=columns))
    assert (receipt.stored, receipt.refused_values) == (4, 1)
    assert [(r.frame, r.series, r.row) for r in receipt.refused] == [(0, None, 1)]
    assert curve(database, "x") == {1: 1.0, 2**63 - 1: 3.0}


def test_a_long_name_and_a_ragged_column_are_refused_alone(
    database: Database, ingest: Ingest
) -> None:
    columns = {"x": [1, 2], "n" * 4096: [1, 2], "é" * 257: [1, 2], "ragged": [1], "": [1, 2]}
    receipt = ingest.accept(body(columns=columns))
    assert (receipt.stored, receipt.refused_values) == (2, 7)
    with database.read() as work:
        assert [series.key for series in work.series.all("r")] == ["x"]


@pytest.mark.parametrize(
    "frame",
    [
        3,
        {"steps": [1]},
        {"steps": [1], "times": [1, 2], "columns": {"x": [1]}},
        {"steps": 1, "times": [], "columns": {}},
        {"steps": [1], "times": ["now"], "columns": {"x": [1]}},
        {"steps": [1], "times": [1e300], "columns": {"x": [1]}},
        {"steps": [], "times": [], "columns": {"x": [1]}},
    ],
)
def test_a_bad_frame_does_not_take_the_good_one_with_it(
    database: Database, ingest: Ingest, frame
) -> None:
    good = {"steps": [5], "times": [5.0], "columns": {"x": [5]}}
    receipt = ingest.accept(body(frames=[frame, good]))
    assert receipt.stored == 1
    assert receipt.refused[0].frame == 0
    assert curve(database, "x") == {5: 5.0}


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "weather"},
        {"no": "kind"},
        7,
        {"kind": "event", "name": "e", "step": -1, "at": 1.0},
        {"kind": "event", "name": "e", "step": 2**63, "at": 1.0},
        {"kind": "event", "name": "e" * 600, "step": 1, "at": 1.0},
        {"kind": "event", "name": "e", "step": 1, "at": "now"},
        {"kind": "event", "name": "e", "step": 1, "at": "nan"},
        {"kind": "attempt_start", "ordinal": 2**40, "first_step": 0, "at": 1.0},
    ],
)
def test_a_bad_record_is_refused_by_its_index(database: Database, ingest: Ingest, record) -> None:
    good = {"kind": "event", "name": "good", "step": 1, "at": 1.0}
    receipt = ingest.accept(body(columns={"x": [1]}, records=[good, record]))
    assert (receipt.stored, receipt.refused_records) == (1, 1)
    assert receipt.refused[0].record == 1
    with database.read() as work:
        assert [event.name for _, event in work.events.events("r")] == ["good"]


def test_series_beyond_the_limit_are_refused_and_the_others_go_on(
    database: Database, ingest: Ingest
) -> None:
    first = {f"s{i}": [1.0] for i in range(9_999)}
    assert ingest.accept(body(0, columns=first)).stored == 9_999
    receipt = ingest.accept(body(1, columns={"s0": [2.0], "new": [1.0], "over": [1.0]}, steps=[1]))
    assert (receipt.stored, receipt.refused_values) == (2, 1)
    assert receipt.refused[0].series == "over"
    assert "10,000" in receipt.refused[0].reason
    assert ingest.accept(body(2, columns={"s5": [3.0]}, steps=[2])).stored == 1


@pytest.mark.parametrize("dropped", [False, True])
def test_a_repeat_is_a_no_op(database: Database, ingest: Ingest, dropped: bool) -> None:
    columns = {"x": [1.0, math.nan, "inf"], "y": [None, 2.0, True]}
    event = {"kind": "event", "name": "e", "step": 1, "at": 1.0}
    raw = body(columns=columns, records=[event])
    first = ingest.accept(raw)
    assert (first.stored, first.refused_values) == (4, 1)
    if dropped:
        seal_and_drop(database)
    with database.read() as work:
        before = (work.log.head("r"), work.log.read("r", after=0, limit=9) == [])
    again = Ingest(database, FakeClock(2000.0)).accept(raw)
    assert (again.stored, again.duplicate, again.held_through) == (0, 5, 0)
    with database.read() as work:
        assert (work.log.head("r"), work.log.read("r", after=0, limit=9) == []) == before
        assert len(work.events.events("r")) == 1
        (account,) = work.log.sources("r")
        assert (account.stored, account.duplicate, account.refused) == (4, 5, 1)


def test_held_through_follows_gaps(ingest: Ingest) -> None:
    held = [
        ingest.accept(body(seq, columns={"x": [1.0]}, steps=[seq])).held_through
        for seq in (0, 2, 3, 5, 1, 4)
    ]
    assert held == [0, 0, 0, 0, 3, 5]


def test_points_out_of_order_are_stored(database: Database, ingest: Ingest) -> None:
    for seq, step in enumerate((5, 9, 6, 7, 8)):
        ingest.accept(body(seq, columns={"x": [float(step)]}, steps=[step]))
    assert curve(database, "x") == {step: float(step) for step in range(5, 10)}


def test_a_lone_leap_is_stored_but_is_not_the_latest_step(
    database: Database, ingest: Ingest
) -> None:
    for seq, step in enumerate((583_599, 583_600, 607_500, 583_601)):
        ingest.accept(body(seq, columns={"x": [1.0]}, steps=[step]))
    with database.read() as work:
        found = work.runs.get("r")
    assert found is not None
    assert found.last_step == 583_601
    assert 607_500 in curve(database, "x")


def test_of_two_values_for_one_point_the_later_sent_wins(
    database: Database, ingest: Ingest
) -> None:
    for seq in (2, 0, 1):
        ingest.accept(body(seq, columns={"x": [float(seq)]}, steps=[7]))
    assert curve(database, "x") == {7: 2.0}
    seal_and_drop(database)
    assert curve(database, "x") == {7: 2.0}
    with database.read() as work:
        assert work.log.sources("r")[0].overwritten == 2


def test_nul_and_lone_surrogates_are_shown_and_said(database: Database, ingest: Ingest) -> None:
    answer = {
        "kind": "answer",
        "sampling_id": "s1",
        "prompt_id": "p",
        "prompt_hash": "h",
        "prompt": "say\x00",
        "text": "a\x00b\ud800",
        "weights_step": 3,
        "at": 4.0,
    }
    start = {"kind": "run_start", "name": "na\x00me", "at": 1.0}
    receipt = ingest.accept(body(columns={"x\x00y": [1.0]}, records=[answer, start]))
    assert (receipt.stored, receipt.refused_records) == (1, 0)
    assert curve(database, "x␀y") == {0: 1.0}
    with database.read() as work:
        (stored,) = work.answers.of_sampling("r", "s1")
        found = work.runs.get("r")
        (entry,) = work.log.read("r", after=0, limit=1)
    assert (stored.text, stored.sanitized, stored.text_bytes) == ("a␀b\ufffd", True, 6)
    assert found is not None
    assert found.name == "na␀me"
    assert entry.note == {"sanitized": True}


def test_a_long_answer_is_cut_at_a_code_point(database: Database, ingest: Ingest) -> None:
    text = "x" + "é" * (200 * 1024)
    answer = {
        "kind": "answer",
        "sampling_id": "s1",
        "prompt_id": "p",
        "prompt_hash": "h",
        "prompt": "",
        "text": text,
        "weights_step": 3,
        "at": 4.0,
    }
    ingest.accept(body(records=[answer]))
    with database.read() as work:
        (stored,) = work.answers.of_sampling("r", "s1")
    assert len(stored.text.encode()) == 256 * 1024 - 1
    assert (stored.truncated, stored.text_bytes) == (True, len(text.encode()))
    assert len(stored.text_sha256) == 64


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", MalformedBody),
        (b"{", MalformedBody),
        (b"\xff\xfe\x00", MalformedBody),
        (b"[" * 20_000, MalformedBody),
        (b'{"run": ' + b"[" * 900 + b"]" * 900 + b"}", Unprocessable),
        (b'{"seq": ' + b"1" * 5_000 + b"}", MalformedBody),
        (b"[]", Unprocessable),
        (b"null", Unprocessable),
        (b"{}", Unprocessable),
        (body(run=""), Unprocessable),
        (body(run="r" * 600), Unprocessable),
        (body(-1), Unprocessable),
        (body(2**63), Unprocessable),
        (body(sent_at="now"), Unprocessable),
        (body(frames=3), Unprocessable),
        (body(records={}), Unprocessable),
        (body(through_step=1.5), Unprocessable),
    ],
)
def test_a_body_that_is_no_batch_is_named_and_nothing_is_stored(
    database: Database, ingest: Ingest, raw: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        ingest.accept(raw)
    with database.read() as work:
        assert work.log.heads() == {}


def test_a_newer_client_with_unknown_fields_is_understood(
    database: Database, ingest: Ingest
) -> None:
    event = {"kind": "event", "name": "e", "step": 1, "at": 1.0, "mood": "good"}
    receipt = ingest.accept(body(columns={"x": [1]}, records=[event], v=2, news=[1]))
    assert (receipt.stored, receipt.refused_records) == (1, 0)


def test_content_codings(ingest: Ingest) -> None:
    raw = body(columns={"x": [1.0, 2.0]})
    half = len(raw) // 2
    members = gzip.compress(raw[:half]) + gzip.compress(raw[half:])
    assert ingest.accept(gzip.compress(raw), "gzip").stored == 2
    assert ingest.accept(members, "GZIP").duplicate == 2
    for cut in (members[:-9], gzip.compress(raw)[:-1], gzip.compress(raw)[:5], b"", b"not gzip"):
        with pytest.raises(MalformedBody):
            ingest.accept(cut, "gzip")
    with pytest.raises(UnsupportedCoding):
        ingest.accept(raw, "br")
    with pytest.raises(TooLarge):
        ingest.accept(b" " * (8 * 1024 * 1024 + 1))


def test_a_deleted_run_is_gone(database: Database, ingest: Ingest) -> None:
    ingest.accept(body(columns={"x": [1.0]}))
    seal_and_drop(database)
    ingest.accept(body(1, columns={"x": [1.0]}, steps=[1]))
    database.write(lambda work: work.runs.delete("r", at=5.0))
    with pytest.raises(Gone):
        ingest.accept(body(2, columns={"x": [1.0]}))
    with database.read() as work:
        assert work.log.heads() == {}
        assert work.series.all("r") == []
        assert work.blocks.summaries("r", [1], first_step=None, last_step=None) == []


def test_records_are_laid_into_their_tables(database: Database, ingest: Ingest) -> None:
    records = [
        {
            "kind": "run_start",
            "name": "tiny",
            "at": 1.0,
            "tags": ["night"],
            "zone": "Mars/Crater",
            "price_per_hour": 2.5,
            "asleep": [{"what": "w", "missing": "m", "wake": "k"}],
        },
        {"kind": "attempt_start", "ordinal": 0, "first_step": 0, "at": 1.0},
        {"kind": "series", "key": "loss/train", "name": "loss", "group": "train", "unit": "nat"},
        {"kind": "phase", "phase_id": "c1", "name": "checkpoint", "begin_step": 4, "begin_at": 2.0},
        {"kind": "heartbeat", "at": 3.0, "step": 4, "produced": 9, "stored": 4, "queued": 5},
    ]
    ingest.accept(body(columns={"loss/train": [1.0]}, records=records, through_step=4))
    done = {
        "kind": "phase",
        "phase_id": "c1",
        "name": "checkpoint",
        "begin_step": 4,
        "begin_at": 2.0,
        "end_step": 4,
        "end_at": 2.5,
        "path": "/c/4",
    }
    end = {"kind": "run_end", "status": "failed", "at": 9.0, "last_step": 6, "error": "ValueError"}
    ingest.accept(body(1, records=[done, end], through_step=6))
    with database.read() as work:
        run = work.runs.get("r")
        (attempt,) = work.runs.attempts("r")
        (series,) = work.series.all("r")
        ((_, phase),) = work.events.phases("r")
        (source,) = work.log.sources("r")
        assert [r.id for r in work.runs.find(states=None, text="NIGHT", limit=5, before=None)] == [
            "r"
        ]
        assert work.runs.live() == []
    assert run is not None
    assert (run.name, run.zone, run.price_per_hour, run.state) == ("tiny", "UTC", 2.5, "failed")
    assert (run.error, run.last_step, run.ended_at) == ("ValueError", 6, 1000.0)
    assert (attempt.id, attempt.status, attempt.last_step) == ("a", "failed", 6)
    assert (series.name, series.group, series.unit) == ("loss", "train", "nat")
    assert (phase.end_step, phase.path) == (4, "/c/4")
    assert (source.through_step, source.client["produced"]) == (6, 9)


def test_a_resume_takes_the_steps_over_and_the_old_tail_stays_a_ghost(
    database: Database, ingest: Ingest
) -> None:
    def start(ordinal: int, first: int) -> dict:
        return {"kind": "attempt_start", "ordinal": ordinal, "first_step": first, "at": 1.0}

    steps = list(range(213))
    ingest.accept(
        body(attempt="a1", steps=steps, columns={"x": [1.0] * 213}, records=[start(0, 0)])
    )
    end = {"kind": "run_end", "status": "failed", "at": 9.0}
    ingest.accept(
        body(attempt="a2", steps=[201, 202], columns={"x": [2.0] * 2}, records=[start(1, 201)])
    )
    ingest.accept(body(1, attempt="a1", records=[end]))
    for sealed in (False, True):
        if sealed:
            seal_and_drop(database)
        found = Reading(database).points("r", ["x"]).series
        shown = [
            (c.attempt, c.ghost, int(c.steps[0]), int(c.steps[-1]), c.total_points) for c in found
        ]
        assert shown == [
            ("a1", False, 0, 200, 201),
            ("a1", True, 201, 212, 12),
            ("a2", False, 201, 202, 2),
        ]
    with database.read() as work:
        run = work.runs.get("r")
    assert run is not None
    assert run.state == "running", "a late end of an old attempt ends nothing"


def test_a_rewind_takes_the_last_step_back(database: Database, ingest: Ingest) -> None:
    def last_step() -> int | None:
        with database.read() as work:
            run = work.runs.get("r")
        assert run is not None
        return run.last_step

    def start(ordinal: int, first: int) -> dict:
        return {"kind": "attempt_start", "ordinal": ordinal, "first_step": first, "at": 1.0}

    ingest.accept(body(attempt="a1", records=[start(0, 0)]))
    assert last_step() is None
    ingest.accept(body(1, attempt="a1", columns={"x": [1.0]}, steps=[212], through_step=212))
    assert last_step() == 212
    ingest.accept(body(attempt="a2", records=[start(1, 201)]))
    assert last_step() == 200
    ingest.accept(body(1, attempt="a2", columns={"x": [1.0]}, steps=[201], through_step=201))
    assert last_step() == 201
    ingest.accept(body(2, attempt="a1", columns={"x": [1.0]}, steps=[213], through_step=213))
    assert last_step() == 201


def test_a_repeat_costs_the_same_whatever_is_stored(database: Database, ingest: Ingest) -> None:
    def cost_s(raw: bytes) -> float:
        took: list[float] = []
        for _ in range(15):
            began = time.thread_time() + time.process_time()
            assert ingest.accept(raw).duplicate == 150
            took.append(time.thread_time() + time.process_time() - began)
        return sorted(took)[7]

    raw = body(0, columns={f"m{i}": [float("nan")] for i in range(150)})
    ingest.accept(raw)
    few = cost_s(raw)
    for seq in range(1, 21):
        steps = list(range(seq * 100, seq * 100 + 100))
        columns = {f"m{i}": [1.0] * 100 for i in range(150)}
        ingest.accept(body(seq, columns=columns, steps=steps))
    seal_and_drop(database)
    assert cost_s(raw) <= 2 * few + 0.002


def test_an_attempt_nobody_announced_is_declared_later(database: Database, ingest: Ingest) -> None:
    ingest.accept(body(1, columns={"x": [1.0]}, steps=[50]))
    start = {"kind": "attempt_start", "ordinal": 3, "first_step": 40, "at": 1.0}
    ingest.accept(body(0, records=[start]))
    with database.read() as work:
        (attempt,) = work.runs.attempts("r")
    assert (attempt.ordinal, attempt.first_step) == (3, 40)


def test_clock_skew_is_noted(database: Database) -> None:
    clock = FakeClock(1000.0)
    Ingest(database, clock).accept(body(0, sent_at=8200.0))
    with database.read() as work:
        run = work.runs.get("r")
    assert run is not None
    assert (run.clock_skew_s, run.last_seen_at) == (7200.0, 1000.0)


def test_numbers_in_json_are_strict(ingest: Ingest) -> None:
    raw = json.loads(body(columns={"x": [1.0]}))
    raw["seq"] = "0"
    with pytest.raises(Unprocessable):
        ingest.accept(json.dumps(raw).encode())
