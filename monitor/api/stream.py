"""The live stream (server-sent events)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from monitor.api.auth import Reading
from monitor.api.deps import LivePart, WallClock
from monitor.errors import BadRequest, Unavailable
from monitor.services.cursors import Place, decode_cursor
from monitor.services.live import Listener, Live, Message

router = APIRouter(tags=["stream"], dependencies=[Reading])

PING_S = 15.0
GATHER_S = 0.05
DUE_S = 1.0
RUNS_A_TAB = 50
HEADERS = {
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
RESYNC = Message("resync", "{}")
BYE = Message("bye", "{}")
PING = b": ping\n\n" + Message("ping", "{}").encode()
"""A comment for proxies, and an event because scripts never see comments."""


@router.get(
    "/api/v1/stream",
    response_class=StreamingResponse,
    responses={200: {"description": "Events", "content": {"text/event-stream": {}}}},
)
async def stream(
    live: LivePart,
    clock: WallClock,
    run: Annotated[list[str] | None, Query(description="Runs to follow; none: the list.")] = None,
    cursor: Annotated[list[str] | None, Query(description="Where to go on from.")] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Follow runs: `points`, `event`, `phase`, `alert`, `run`; `resync` says to fetch anew."""
    if run and len(run) > RUNS_A_TAB:
        raise BadRequest(f"A stream follows at most {RUNS_A_TAB} runs.")
    given = [last_event_id] if last_event_id else list(cursor or [])
    places, known = _places(given)
    listener = Listener(asyncio.get_running_loop(), None, since=clock())
    if run:
        heads = await run_in_threadpool(live.heads, run)
        listener.places = {one: places.get(one, heads[one]) for one in run}
    lost = bool(given) and (not known or not run)
    body = _events(live, listener, [RESYNC] if lost else [])
    return StreamingResponse(body, media_type="text/event-stream", headers=HEADERS)


def _places(given: list[str]) -> tuple[dict[str, Place], bool]:
    """All places of the cursors given, and whether each of them could be read."""
    places: dict[str, Place] = {}
    known = True
    for text in given:
        found = decode_cursor(text)
        known = known and found is not None
        places.update(found or {})
    return places, known


async def _events(live: Live, listener: Listener, first: list[Message]) -> AsyncIterator[bytes]:
    live.join(listener)
    try:
        yield b": watchkeeper\nretry: 2000\n\n"
        for message in first:
            yield message.encode()
        more = True
        while not live.closed:
            if not more:
                wait_s = DUE_S if listener.dirty else PING_S
                if not await _woken(listener, wait_s) and not listener.dirty:
                    yield PING
            messages, more = await _take(live, listener)
            if messages:
                yield b"".join(message.encode() for message in messages)
        yield BYE.encode()
    finally:
        live.leave(listener)


async def _take(live: Live, listener: Listener) -> tuple[list[Message], bool]:
    """What is new; nothing while the database is away, which is not the tab's concern."""
    listener.woken.clear()
    try:
        return await run_in_threadpool(live.take, listener)
    except Unavailable:
        await asyncio.sleep(DUE_S)
        return [], True


async def _woken(listener: Listener, wait_s: float) -> bool:
    """Whether there is something new; a moment is waited for what comes right behind it."""
    try:
        async with asyncio.timeout(wait_s):
            await listener.woken.wait()
    except TimeoutError:
        return False
    await asyncio.sleep(GATHER_S)
    return True
