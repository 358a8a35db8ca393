"""Reading back over HTTP what was sent over HTTP, on both databases."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.api.conftest import Running
from tests.fixtures.batches import batch, opening
from trainer_hooks.wire import Answer, AttemptStart, Event, Heartbeat, Phase, RunEnd


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"a bare {name} in an answer")

    return json.loads(text, parse_constant=refuse)


def test_a_run_is_listed_with_its_numbers(server: Running) -> None:
    receipt = server.send(batch("r", 0, list(range(300)), records=opening("r"))).json()
    assert receipt["stored"] == 300
    (run,) = server.get("/api/v1/runs")["runs"]
    assert (run["id"], run["name"], run["state"]) == ("r", "tiny", "running")
    assert run["health"] == "healthy"
    assert run["last_step"] == 299
    assert run["planned_steps"] == 1000
    assert run["finish_at"] == pytest.approx(run["last_seen_at"] + 701, rel=1e-6)
    assert run["cost_so_far"] >= 0
    assert run["spark"]["steps"][0] == 0
    assert 20 < len(run["spark"]["steps"]) <= 121
    detail = server.get("/api/v1/runs/r")
    assert detail["facts"]["price_per_hour"] == 2.0
    assert [(a["id"], a["first_step"], a["before_step"]) for a in detail["attempts"]] == [
        ("a1", 0, None)
    ]
    assert detail["accounts"]["stored"] == 300
    (series,) = server.get("/api/v1/runs/r/series")["series"]
    assert (series["key"], series["last_step"]) == ("loss/train", 299)


def test_a_repeat_is_answered_alike_and_changes_nothing(server: Running) -> None:
    one = batch("r", 0, [1, 2, 3], records=opening("r"), at=5.0)
    assert server.send(one).json()["stored"] == 3
    again = server.send(one).json()
    assert (again["stored"], again["duplicate"]) == (0, 3)
    assert server.get("/api/v1/runs/r")["accounts"]["duplicate"] == 3


def test_errors_that_were_caught_in_the_hooks_are_told_by_the_newest_heartbeat(
    server: Running,
) -> None:
    server.send(batch("r", 0, [1], records=[*opening("r"), Heartbeat(1.0, 1, 1, hook_errors=1)]))
    assert server.get("/api/v1/runs/r")["accounts"]["hook_errors"] == 1
    server.send(batch("r", 1, [2], records=[Heartbeat(2.0, 2, 2, hook_errors=4)]))
    assert server.get("/api/v1/runs/r")["accounts"]["hook_errors"] == 4


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", '"nan"', '"-inf"'])
def test_numbers_that_are_none_are_read_everywhere(server: Running, word: str) -> None:
    text = (
        '{"v":1,"run":"r","attempt":"a1","source":"s","seq":0,"sent_at":1.0,"through_step":3,'
        '"frames":[{"steps":[1,2,3],"times":[1.0,2.0,3.0],'
        f'"columns":{{"loss/train":[1.5,2.5,{word}]}}}}],"records":[]}}'
    )
    answer = server.client.post(
        "/api/v1/batches", content=text, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["stored"] == 3
    points = server.client.get("/api/v1/runs/r/points?key=loss/train")
    value = strict(points.text)["series"][0]["values"][-1]
    assert value in {"nan", "inf", "-inf"}
    assert not math.isfinite(float(value))
    for path in ("/api/v1/runs", "/api/v1/runs/r", "/api/v1/runs/r/series"):
        answer = server.client.get(path)
        assert answer.status_code == 200
        strict(answer.text)
    assert server.client.get("/metrics").status_code == 200


def test_a_rewind_leaves_a_ghost(server: Running) -> None:
    server.send(batch("r", 0, list(range(1, 213)), records=opening("r", first_step=1)))
    again = [AttemptStart(1, 201, 1.0, parent="a1", reason="resume")]
    steps = list(range(201, 221))
    server.send(
        batch("r", 0, steps, records=again, attempt="a2", columns={"loss/train": [9.0] * 20})
    )
    found = server.get("/api/v1/runs/r/points?key=loss/train")
    parts = {(one["attempt"], one["ghost"]): one["steps"] for one in found["series"]}
    assert parts[("a1", False)] == list(range(1, 201))
    assert parts[("a1", True)] == list(range(201, 213))
    assert parts[("a2", False)] == steps
    assert server.get("/api/v1/runs")["runs"][0]["last_step"] == 220


def test_events_and_phases_are_listed(server: Running) -> None:
    records = [
        *opening("r"),
        Event("data_stall", 3, 1.0, "waited", {"wait_s": 4.1, "usual_s": 0.01}),
        Phase("p1", "checkpoint", 4, 1.0, path="/ckpt/4"),
        Phase("p1", "checkpoint", 4, 1.0, 4, 2.0, path="/ckpt/4"),
    ]
    server.send(batch("r", 0, [1, 2, 3, 4], records=records))
    found = server.get("/api/v1/runs/r/events")
    assert [(e["name"], e["step"], e["data"]["wait_s"]) for e in found["events"]] == [
        ("data_stall", 3, 4.1)
    ]
    assert [(p["phase_id"], p["end_step"]) for p in found["phases"]] == [("p1", 4)]
    detail = server.get("/api/v1/runs/r")
    assert detail["last_checkpoint"] == {"step": 4, "at": 2.0, "path": "/ckpt/4"}


def sampled(sampling: str, text: str, step: int) -> Answer:
    return Answer(
        sampling, "p", "h", "Why?", text, step, 86_400.0 * step,
        token_logprobs=[-0.5] * len(text.split()), end_token_probs={},
    )  # fmt: skip


def test_answers_are_paired_with_a_diff(server: Running) -> None:
    answers = [sampled("s1", "the cat sat on a mat", 1), sampled("s2", "the dog sat", 2)]
    server.send(batch("r", 0, [1], records=[*opening("r"), *answers]))
    found = server.get("/api/v1/runs/r/samplings")["samplings"]
    assert [(s["id"], s["day"]) for s in found] == [("s1", "1970-01-02"), ("s2", "1970-01-03")]
    pairs = server.get("/api/v1/runs/r/answers")["pairs"]
    assert len(pairs) == 1
    assert pairs[0]["comparable"] is True
    assert pairs[0]["verdict"] == "50 % shorter"
    assert ["cut", "cat"] in pairs[0]["diff"]
    assert pairs[0]["right"]["length"] == 3
    chosen = server.get("/api/v1/runs/r/answers?left=s2&right=s1")
    assert chosen["left"]["id"] == "s2"
    assert server.client.get("/api/v1/runs/r/answers?left=zz").status_code == 404


def test_a_run_ends_and_can_be_forgotten(server: Running) -> None:
    server.send(batch("r", 0, [1], records=opening("r")))
    server.send(batch("r", 1, [2], records=[RunEnd("finished", 3.0, 2)]))
    assert server.get("/api/v1/runs")["runs"][0]["health"] == "finished"
    assert server.get("/api/v1/runs?state=running")["runs"] == []
    assert server.client.delete("/api/v1/runs/r").status_code == 204
    assert server.client.get("/api/v1/runs/r").status_code in {404, 410}
    assert server.get("/api/v1/runs")["runs"] == []
    assert server.send(batch("r", 2, [3])).status_code == 410


ODD = [
    "' OR 1=1 --", "100%", "_", "\\", ";", '"', "a b", "合計", "p(x|y)", "../x", "<script>",
    "%00", "\u202eabc", "😀", "x" * 500, "loss/train'", "*", "?", "NULL", "{{7*7}}",
    "a\x00b", "\r\nx: y",
]  # fmt: skip


def test_odd_strings_are_plain_data_in_every_parameter(server: Running) -> None:
    server.send(batch("r", 0, [1], records=opening("r", name="is 100% _ done")))
    server.send(batch("other", 0, [1], records=opening("other", name="is 1000 done")))
    found = server.get("/api/v1/runs", params={"q": "100%"})["runs"]
    assert [run["id"] for run in found] == ["r"]
    for text in ODD:
        tries = [
            ("/api/v1/runs", {"q": text}),
            ("/api/v1/runs", {"state": text}),
            ("/api/v1/runs/r/points", {"key": text}),
            ("/api/v1/runs/r/points", {"key": "loss/train", "from_step": text}),
            ("/api/v1/runs/r/answers", {"left": text}),
            ("/api/v1/alerts", {"run": text}),
            ("/api/v1/alerts", {"open": text}),
            ("/api/v1/alerts", {"limit": text}),
        ]
        for path, params in tries:
            answer = server.client.get(path, params=params)
            assert answer.status_code in {200, 400, 404, 422}, (path, params, answer.text)
    assert len(server.get("/api/v1/runs")["runs"]) == 2
