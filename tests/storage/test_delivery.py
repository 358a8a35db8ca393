"""Delivery against a real receiver on loopback that answers by a script."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from monitor.clock import FakeClock
from monitor.domain.alert import Alert
from monitor.senders.http import HttpSender
from monitor.services.delivery import MOST_TRIES, Delivery
from monitor.storage.base import Channel, Database, DeliveryTry, OutboxRow

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


@dataclass
class Receiver:
    """Answers each POST by the next step of its script: a status, with headers, or a function."""

    script: list[Any] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers["content-length"])
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.got.append((headers, handler.rfile.read(length)))
        step = self.script.pop(0) if self.script else 200
        if callable(step):
            step(handler)
            return
        status, extra, body = step if isinstance(step, tuple) else (step, {}, b"")
        handler.send_response(status)
        for name, value in extra.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


@pytest.fixture
def receiver() -> Generator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.answer(self)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}/hook/marker-of-the-secret-address"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


def cut(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def an_alert(number: int = 1, state: str = "firing") -> Alert:
    alert = Alert(
        id=f"alert{number}", run="run", detector="stale_data", subject="", episode=number,
        state="firing", severity="critical", title="stale data", attempt="a0", onset_step=41203,
        onset_at=11_520.0, opened_step=41207, opened_at=11_530.0, last_step=41300,
        evidence={"summary": "18 % of the rows were served before.", "value": "nan"},
    )  # fmt: skip
    return replace(alert, state=state)  # type: ignore[arg-type]


def a_row(number: int = 1, moment: str = "opened") -> OutboxRow:
    return OutboxRow(
        f"msg_{number}_{moment}", "run", f"alert{number}", "hook", moment, 100.0, 100.0
    )


def prepare(database: Database, receiver: Receiver, *rows: OutboxRow) -> None:
    def work(uow: Any) -> None:
        uow.runs.ensure("run", at=100.0)
        config = {"url": receiver.url, "secret": SECRET}
        uow.channels.save(Channel("hook", "hook", "generic", config))
        for number in {int(row.alert.removeprefix("alert")) for row in rows}:
            uow.alerts.save(an_alert(number), None)
        uow.outbox.enqueue(rows)

    database.write(work)


def state_of(database: Database, number: int = 1) -> tuple[OutboxRow, list[DeliveryTry]]:
    with database.read() as uow:
        return uow.outbox.of_alert(f"alert{number}")[0]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(time.time())


@pytest.fixture
def delivery(database: Database, clock: FakeClock) -> Delivery:
    sender = HttpSender(allow_private=["127.0.0.0/8"])
    return Delivery(database, clock, "one", sender, base_url="http://box:8765", seed=1)


def drain(delivery: Delivery) -> None:
    while delivery.run_once():
        pass


def test_the_receiver_can_check_the_signature(
    database: Database, delivery: Delivery, receiver: Receiver
) -> None:
    prepare(database, receiver, a_row())
    drain(delivery)
    ((headers, body),) = receiver.got
    said = Webhook(SECRET).verify(body, headers)
    assert headers["webhook-id"] == "msg_1_opened"
    assert said["type"] == "alert.opened"
    assert said["data"]["headline"] == "run: stale data since step 41,203 (03:12) - critical"
    assert said["data"]["link"] == "http://box:8765/alerts/alert1"
    assert said["data"]["alert"]["evidence"]["value"] == "nan"
    row, (tried,) = state_of(database)
    assert (row.state, tried.status, tried.error) == ("sent", 200, "")


def test_a_failure_is_tried_again_with_the_same_id_and_bytes(
    database: Database, delivery: Delivery, receiver: Receiver, clock: FakeClock
) -> None:
    prepare(database, receiver, a_row())
    receiver.script = [500, cut, 200]
    for _ in range(3):
        drain(delivery)
        clock.advance(60.0)
        # What is known has changed meanwhile; what is said has not.
        database.write(lambda uow: uow.alerts.save(replace(an_alert(), last_step=99_999), None))
    assert len({body for _, body in receiver.got}) == 1
    assert {headers["webhook-id"] for headers, _ in receiver.got} == {"msg_1_opened"}
    assert len({headers["webhook-timestamp"] for headers, _ in receiver.got}) == 3
    row, tries = state_of(database)
    assert [tried.status for tried in tries] == [500, None, 200]
    assert tries[1].error.startswith("connection failed")
    assert (row.state, row.tries) == ("sent", 3)


@pytest.mark.parametrize(
    "answer",
    [
        (429, {"retry-after": "38"}, b""),
        (429, {"retry-after": "38.0"}, b""),
        (429, {}, json.dumps({"retry_after": 38}).encode()),
        (503, {"retry-after": "38"}, b"<html>"),
    ],
)
def test_it_comes_back_when_the_receiver_said(
    database: Database, delivery: Delivery, receiver: Receiver, clock: FakeClock, answer: Any
) -> None:
    prepare(database, receiver, a_row())
    receiver.script = [answer]
    drain(delivery)
    clock.advance(37.9)
    drain(delivery)
    assert len(receiver.got) == 1
    clock.advance(2.0)
    drain(delivery)
    assert state_of(database)[0].state == "sent"


def test_nobody_hears_of_the_end_of_what_was_never_told(
    database: Database, delivery: Delivery, receiver: Receiver
) -> None:
    """The opening was being prepared while the alert closed: neither message leaves."""
    prepare(database, receiver, a_row(1), a_row(1, "resolved"))
    database.write(lambda uow: uow.alerts.save(an_alert(1, "resolved"), None))
    drain(delivery)
    with database.read() as uow:
        states = {row.moment: row.state for row, _ in uow.outbox.of_alert("alert1")}
    assert states == {"opened": "cancelled", "resolved": "cancelled"}
    assert receiver.got == []


def test_gone_switches_the_channel_off(
    database: Database, delivery: Delivery, receiver: Receiver
) -> None:
    prepare(database, receiver, a_row(1), a_row(2))
    receiver.script = [410]
    drain(delivery)
    with database.read() as uow:
        (channel,) = uow.channels.all()
    assert (channel.enabled, "410" in channel.disabled_reason) == (False, True)
    assert state_of(database)[0].state == "gave_up"
    assert (state_of(database, 2)[0].state, len(receiver.got)) == ("cancelled", 1)


@pytest.mark.parametrize("status", [302, 400, 404, 413])
def test_an_answer_that_will_not_change_is_not_asked_for_again(
    database: Database, delivery: Delivery, receiver: Receiver, clock: FakeClock, status: int
) -> None:
    prepare(database, receiver, a_row())
    receiver.script = [(status, {"location": receiver.url}, b"")]
    drain(delivery)
    clock.advance(3600.0)
    drain(delivery)
    row, (tried,) = state_of(database)
    assert (row.state, tried.status, len(receiver.got)) == ("gave_up", status, 1)


def test_it_gives_up_in_the_end_and_says_it_once_more_hours_later(
    database: Database, delivery: Delivery, receiver: Receiver, clock: FakeClock
) -> None:
    prepare(database, receiver, a_row())
    receiver.script = [500] * MOST_TRIES
    for _ in range(20):
        drain(delivery)
        clock.advance(600.0)
    row, tries = state_of(database)
    assert (row.state, len(tries), len(receiver.got)) == ("gave_up", MOST_TRIES, MOST_TRIES)
    for _ in range(30):
        drain(delivery)
        clock.advance(600.0)
    assert len(receiver.got) == MOST_TRIES + 1
    assert json.loads(receiver.got[-1][1])["type"] == "alert.reminder"


def test_who_keeps_asking_to_wait_is_given_up_after_ten_minutes(
    database: Database, delivery: Delivery, receiver: Receiver, clock: FakeClock
) -> None:
    prepare(database, receiver, a_row())
    receiver.script = [(429, {"retry-after": "2280"}, b"")] * 5
    for _ in range(14):
        drain(delivery)
        clock.advance(50.0)
    row, tries = state_of(database)
    assert (row.state, [tried.status for tried in tries]) == ("gave_up", [429, 429])


def test_twenty_eight_alerts_to_one_that_takes_five_in_two_seconds(
    database: Database, delivery: Delivery, receiver: Receiver, clock: FakeClock
) -> None:
    taken: list[float] = []
    order: list[str] = []

    def limited(handler: BaseHTTPRequestHandler) -> None:
        lately = [at for at in taken if clock() - at < 2.0]
        status = 429 if len(lately) >= 5 else 200
        if status == 200:
            taken.append(clock())
            order.append(receiver.got[-1][0]["webhook-id"])
        handler.send_response(status)
        handler.send_header("content-length", "0")
        if status == 429:
            handler.send_header("retry-after", f"{2.0 - (clock() - lately[0]):.2f}")
        handler.end_headers()

    prepare(database, receiver, *(a_row(number) for number in range(1, 29)))
    receiver.script = [limited] * 2000
    for _ in range(200):
        drain(delivery)
        clock.advance(0.5)
    assert {state_of(database, number)[0].state for number in range(1, 29)} == {"sent"}
    assert order == [f"msg_{number}_opened" for number in range(1, 29)]
    assert len(receiver.got) <= 28 + 28 // 5 + 1  # one refusal a pause, not one a message


def test_pauses_grow(
    database: Database, delivery: Delivery, receiver: Receiver, clock: FakeClock
) -> None:
    prepare(database, receiver, a_row())
    receiver.script = [500] * 4
    pauses = []
    for _ in range(4):
        drain(delivery)
        due = state_of(database)[0].due_at
        pauses.append(due - clock())
        clock.now_s = due
    assert all(
        4.6 * after > later > 1.9 * after for after, later in zip(pauses, pauses[1:], strict=False)
    )


def test_a_message_that_left_but_was_not_settled_is_sent_again_unchanged(
    database: Database, clock: FakeClock, receiver: Receiver
) -> None:
    """The process dies between the receiver's answer and our note of it."""
    prepare(database, receiver, a_row())
    send = HttpSender(allow_private=["127.0.0.0/8"])

    def dying(*args: Any, **options: Any) -> Any:
        send(*args, **options)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Delivery(database, clock, "dead", dying).run_once()
    successor = Delivery(database, clock, "next", send)
    drain(successor)
    assert len(receiver.got) == 1  # the claim of the dead one holds for a while
    clock.advance(61.0)
    drain(successor)
    assert len(receiver.got) == 2
    assert receiver.got[0][1] == receiver.got[1][1]
    assert receiver.got[0][0]["webhook-id"] == receiver.got[1][0]["webhook-id"]


def test_an_episode_that_is_over_sends_nothing(
    database: Database, delivery: Delivery, receiver: Receiver
) -> None:
    prepare(database, receiver, a_row())
    database.write(lambda uow: uow.alerts.save(an_alert(state="resolved"), None))
    drain(delivery)
    assert receiver.got == []
    assert state_of(database)[0].state == "cancelled"


def test_the_opening_comes_before_the_end(
    database: Database, delivery: Delivery, receiver: Receiver, clock: FakeClock
) -> None:
    prepare(database, receiver, a_row(), a_row(1, "resolved"), a_row(2))
    receiver.script = [500]
    drain(delivery)
    clock.advance(30.0)
    drain(delivery)
    order = [headers["webhook-id"] for headers, _ in receiver.got]
    assert order.index("msg_1_resolved") > len(order) - 1 - order[::-1].index("msg_1_opened")
    assert "msg_2_opened" in order


def test_two_processes_share_the_work(
    database: Database, clock: FakeClock, receiver: Receiver
) -> None:
    prepare(database, receiver, *(a_row(number) for number in range(1, 21)))
    send = HttpSender(allow_private=["127.0.0.0/8"])
    both = [Delivery(database, clock, name, send) for name in ("one", "two")]
    threads = [threading.Thread(target=drain, args=(one,)) for one in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert sorted(headers["webhook-id"] for headers, _ in receiver.got) == sorted(
        f"msg_{number}_opened" for number in range(1, 21)
    )


def test_a_channel_without_a_usable_secret_gives_up_and_says_so(
    database: Database, delivery: Delivery, receiver: Receiver
) -> None:
    prepare(database, receiver, a_row())
    database.write(
        lambda uow: uow.channels.save(Channel("hook", "hook", "generic", {"url": receiver.url}))
    )
    drain(delivery)
    row, (tried,) = state_of(database)
    assert (row.state, tried.error) == ("gave_up", "the channel is not set up (KeyError)")


def test_the_address_is_nowhere_in_what_is_logged_or_stored(
    database: Database,
    delivery: Delivery,
    receiver: Receiver,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    prepare(database, receiver, a_row(1), a_row(2))
    receiver.script = [500, cut, 404]
    for _ in range(4):
        drain(delivery)
        clock.advance(100.0)
    assert "marker-of-the-secret" not in caplog.text
    stored = [tried.error for number in (1, 2) for tried in state_of(database, number)[1]]
    assert not any("marker" in error or "127.0.0.1" in error for error in stored)
