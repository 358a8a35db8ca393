"""Answers over HTTP: days by the run's zone, the pair of a day, trends, export, bounds of size."""

from __future__ import annotations

import csv
import io
import math
import time
from datetime import datetime
from typing import Any

import pytest

from monitor.domain.answer_metrics import likeness, measure, of_set, overlap, sketch
from monitor.services.days import day_of
from tests.api.conftest import Running
from tests.fixtures.batches import batch
from trainer_hooks.wire import Answer, AttemptStart, Batch, Frame, Phase, RunStart

WHO = "watchkeeper sample on cpu"
CELLS = ["=1+1", "+1", "-1", "@x", "plain", '<img src=x onerror="alert(1)">', "a\0b"]


def answer(sampling: str, prompt: str, at: float, text: str = "one two", **more: Any) -> Answer:
    words = text.split()
    return Answer(
        sampling, prompt, f"h-{prompt}", f"ask {prompt}", text, int(more.pop("step", 10)), at,
        token_ids=list(range(len(words))), token_texts=words,
        token_logprobs=[math.log(more.pop("p", 0.5))] * len(words), prompt_set_hash="set1",
        stop_reason="end", **more,
    )  # fmt: skip


def store(site: Running, run: str, answers: list[Answer], zone: str = "UTC") -> None:
    start = [RunStart(name=run, at=time.time(), zone=zone), AttemptStart(1, 0, time.time())]
    for seq in range(0, len(answers), 40):
        part = answers[seq : seq + 40]
        said = batch(run, seq, [], records=[*(start if seq == 0 else []), *part])
        assert site.send(said).status_code == 200


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("UTC", "2026-11-30"), ("America/Los_Angeles", "2026-11-30"),
        ("Europe/Amsterdam", "2026-12-01"), ("Asia/Kolkata", "2026-12-01"),
    ],
)  # fmt: skip
def test_a_day_is_a_day_in_the_runs_zone(site: Running, zone: str, day: str) -> None:
    assert day_of(instant("2026-11-30T23:30+00:00"), zone) == day
    run = f"zone-{zone.replace('/', '-')}"
    store(site, run, [answer("s", "a", instant("2026-11-30T23:30+00:00"))], zone)
    (point,) = site.get(f"/api/v1/runs/{run}/answers/trends")["points"]
    assert point["day"] == day


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", range(23)), ("2026-10-25", range(25)), ("2026-11-01", [5])]
)
def test_short_and_long_days_have_one_slot_each(site: Running, day: str, hours: Any) -> None:
    """In Amsterdam the clocks change on these Sundays: 23 and 25 hours."""
    begin = instant(f"{day}T00:00+0{1 if day != '2026-10-25' else 2}:00")
    times = [begin + 3600 * hour for hour in hours]
    run = f"long-{day}"
    store(site, run, [answer(f"s{i}", "a", at) for i, at in enumerate(times)], "Europe/Amsterdam")
    (slot,) = site.get(f"/api/v1/runs/{run}/answers/trends")["days"]
    assert slot["day"] == day
    assert len(slot["samplings"]) == len(times)
    assert slot["shown"] == f"s{len(times) - 1}"  # the last is shown, the others are there


def test_a_missing_day_is_a_gap_and_the_comparison_says_so(site: Running) -> None:
    days = ["2026-11-25", "2026-11-27", "2026-11-30"]
    store(site, "gaps", [answer(f"s{d}", "a", instant(f"{d}T12:00+00:00")) for d in days])
    found = site.get("/api/v1/runs/gaps/answers/trends")["days"]
    assert [(d["day"][-2:], d["shown"] is not None) for d in found] == [
        ("25", True), ("26", False), ("27", True), ("28", False), ("29", False), ("30", True),
    ]  # fmt: skip
    pairs = site.get("/api/v1/runs/gaps/answers")
    assert (pairs["left"]["day"], pairs["right"]["day"]) == ("2026-11-27", "2026-11-30")
    assert pairs["note"] == (
        "no answers on 2026-11-29: compared with 2026-11-27, the nearest day before"
    )


def test_today_is_compared_with_yesterday_not_with_an_hour_ago(site: Running) -> None:
    hours = {"s1": "29T09:00", "s2": "29T20:00", "s3": "30T08:00", "s4": "30T09:00"}
    store(
        site, "hours", [answer(s, "a", instant(f"2026-11-{t}+00:00")) for s, t in hours.items()]
    )  # fmt: skip
    pairs = site.get("/api/v1/runs/hours/answers")
    assert (pairs["left"]["id"], pairs["right"]["id"], pairs["note"]) == ("s2", "s4", "")


def test_trends_hold_the_numbers_of_every_sampling(site: Running) -> None:
    made = []
    for day, text, p, nll in ((1, "a b c d e f", 0.4, 2.0), (2, "a b c", 0.7, 2.5)):
        at = instant(f"2026-11-0{day}T10:00+00:00")
        for prompt in ("x", "y"):
            made.append(
                answer(
                    f"d{day}", prompt, at, text, p=p, step=100 * day, reference_nll=nll,
                    end_token_probs={"0": 0.9, "8": 0.25}, checks={"python": prompt == "x"},
                    token_entropies=[1.5, 0.5],
                )
            )  # fmt: skip
    store(site, "trend", made)
    found = site.get("/api/v1/runs/trend/answers/trends")
    first, second = found["points"]
    assert (first["numbers"]["length"], second["numbers"]["length"]) == (6, 3)
    assert second["numbers"]["confidence"] == pytest.approx(0.7)
    assert second["numbers"]["first_token"] == pytest.approx(0.7)
    assert second["numbers"]["reference_nll"] == 2.5
    assert second["numbers"]["entropy"] == 1.0
    assert second["numbers"]["ends"] == 0.25
    assert second["numbers"]["checks"] == {"python": 0.5}
    assert second["numbers"]["stops"] == {"end": 2}
    assert first["like_before"] is None
    assert second["like_before"] == pytest.approx(0.5, abs=0.3)
    assert {p["prompt_id"]: p["length"] for p in found["prompts"]} == {"x": [6, 3], "y": [6, 3]}
    pairs = {p["prompt_id"]: p for p in site.get("/api/v1/runs/trend/answers")["pairs"]}
    assert pairs["x"]["fate"] == "worse"
    assert pairs["x"]["verdict"].startswith("50 % shorter, surer (0.40 -> 0.70)")


def test_what_is_not_comparable_says_why(site: Running) -> None:
    at = instant("2026-11-01T10:00+00:00")
    store(
        site, "apart",
        [answer("s1", "a", at), answer("s2", "a", at + 90_000, temperature=0.7, batch_size=8)],
    )  # fmt: skip
    (pair,) = site.get("/api/v1/runs/apart/answers")["pairs"]
    assert (pair["comparable"], pair["fate"]) == (False, "apart")
    assert pair["differs"] == ["temperature", "batch size"]
    assert pair["verdict"] == "not comparable: temperature, batch size changed"


def test_no_cell_of_an_export_begins_as_a_formula(site: Running) -> None:
    at = instant("2026-11-01T10:00+00:00")
    store(site, "cells", [answer("s1", f"p{i}", at, text) for i, text in enumerate(CELLS)])
    response = site.client.get("/api/v1/runs/cells/answers/export?format=csv")
    assert response.headers["content-type"].startswith("text/csv")
    assert "attachment" in response.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert [row["text"] for row in rows] == [
        "'=1+1", "'+1", "'-1", "'@x", "plain", '<img src=x onerror="alert(1)">', "a\u2400b",
    ]  # fmt: skip
    assert rows[-1]["sanitized"] == "True"
    plain = site.get("/api/v1/runs/cells/answers/export?sampling=s1")["answers"]
    assert [row["text"] for row in plain[:2]] == ["=1+1", "+1"]
    assert site.get("/api/v1/runs/cells/answers/export?sampling=none") == {"answers": []}


def test_two_hundred_prompts_of_sixty_days_fit_into_a_megabyte(site: Running) -> None:
    text = "word " * 400
    at = instant("2026-09-01T10:00+00:00")
    made = [
        answer(f"d{day:02}", f"p{i:03}", at + 86_400 * day, f"{day} {i} {text}")
        for day in (0, 1)
        for i in range(200)
    ]
    store(site, "large", made)
    sizes = []
    for path in ("answers?brief=true", "answers?prompt=p007", "answers/trends"):
        began = time.monotonic()
        response = site.client.get(f"/api/v1/runs/large/{path}", headers={"accept-encoding": "*"})
        assert response.status_code == 200
        assert time.monotonic() - began < 5.0
        sizes.append(len(response.content))
    assert sizes[0] + sizes[1] < 1_000_000
    (pair,) = site.get("/api/v1/runs/large/answers?prompt=p007")["pairs"]
    assert pair["left"]["text"].startswith("0 7 word")
    brief = site.get("/api/v1/runs/large/answers?brief=true")["pairs"][0]
    assert "text" not in brief["right"]
    assert (brief["right"]["length"], brief["right"]["words"]) == (402, 402)


def test_an_empty_run_has_no_trends(site: Running) -> None:
    assert site.send(batch("bare", 0, [1, 2])).status_code == 200
    found = site.get("/api/v1/runs/bare/answers/trends")
    assert (found["points"], found["days"], found["prompts"]) == ([], [], [])
    assert site.client.get("/api/v1/runs/nobody/answers/trends").status_code == 404


def test_what_two_texts_share() -> None:
    assert overlap("a b c d", "a b c d") == 1.0
    assert overlap("a b", "c d") == 0.0
    assert overlap("", "") == 1.0
    assert overlap("a a b", "a b b") == pytest.approx(2 / 3)
    long = " ".join(f"w{i}" for i in range(100))
    half = " ".join(f"w{i}" for i in range(50, 150))
    assert likeness(sketch(long), sketch(long)) == 1.0
    assert likeness(sketch(long), sketch(half)) == pytest.approx(1 / 3, abs=0.3)
    assert likeness(sketch(""), sketch("a")) == 0.0


def test_absent_is_not_zero() -> None:
    bare = measure(Answer("s", "p", "h", "ask", "two words", 1, 0.0))
    assert (bare.confidence, bare.entropy, bare.reference_nll, bare.ends_mean) == (None,) * 4
    assert bare.length == 2
    assert of_set([]).length is None
    odd = measure(
        Answer("s", "p", "h", "ask", "x", 1, 0.0, token_logprobs=["nan", -1.0], reference_nll="inf")
    )
    assert (odd.first_token, odd.reference_nll) == (None, None)
    assert odd.confidence == pytest.approx(math.exp(-1.0))
    assert measure(Answer("s", "p", "h", "", "<|im_start|>user", 1, 0.0)).templates == 1


def test_every_window_has_its_verdict(site: Running) -> None:
    began = time.time() - 3000
    times, cells, waits, losses, t = [], [], [], [], began
    marks = {}
    for step in range(1, 401):
        inside = 150 <= step < 190
        step_s, wait_s = (0.16, 0.06) if inside else (0.1, 0.001)
        if step in (150, 190, 300, 330):
            marks[step] = t
        t += step_s
        times.append(t)
        cells.append(step_s)
        waits.append(wait_s)
        losses.append(2.0)
    columns: Any = {"step_s": cells, "data_wait_s": waits, "loss/train": losses}
    steps = list(range(1, 401))
    records = [
        RunStart(name="guard", at=began), AttemptStart(1, 0, began),
        Phase("w1", "sampling", 149, marks[150], 189, marks[190], "ck/1", WHO),
        Phase("w2", "sampling", 299, marks[300], 329, marks[330]),
        Phase("w3", "sampling", 390, t),
    ]  # fmt: skip
    said = Batch("guard", "a1", "s0", 0, t, 400, [Frame(steps, times, columns)], records)
    assert site.send(said).status_code == 200
    first, second = site.get("/api/v1/runs/guard/samplings/windows")["windows"]
    assert (first["effect"], first["hurt"], first["lasts"]) == ("starved", True, False)
    assert first["who"] == WHO
    assert "ms for data instead of 1 ms" in first["verdict"]
    assert (second["who"], second["verdict"]) == ("sampling in the loop", "no lasting effect")
