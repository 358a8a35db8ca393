"""The door: hosts, origins, content types, tokens in addresses, and headers on every answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Request
from starlette.responses import JSONResponse

from monitor.api.auth import COOKIE, SESSION_S, Keys, require_ingest, require_read, router
from monitor.api.guard import Guard
from monitor.api.problems import install
from monitor.clock import FakeClock


def small_app(keys: Keys | None = None) -> FastAPI:
    app = FastAPI()
    app.state.keys = keys or Keys()
    app.add_middleware(Guard, names=["watch.example.org", "10.1.2.3"], prefix="/monitor")
    install(app)
    app.include_router(router)

    @app.get("/read", dependencies=[Depends(require_read)])
    def read() -> JSONResponse:
        return JSONResponse({"ok": True})

    @app.post("/write", dependencies=[Depends(require_ingest)])
    def write() -> JSONResponse:
        return JSONResponse({"ok": True})

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("secret detail")

    return app


def call(app: FastAPI, method: str, url: str, **more: Any) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, url, **more)

    return asyncio.run(go())


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8765", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:8765", 200),
        ("[::1]", 200),
        ("watch.example.org", 200),
        ("10.1.2.3:80", 200),
        ("evil.example.org", 403),
        ("localhost.evil.org", 403),
        ("127.0.0.1.evil.org", 403),
        ("", 403),
    ],
)
def test_only_known_host_names_are_answered(host: str, status: int) -> None:
    answer = call(small_app(), "GET", "/read", headers={"host": host})
    assert answer.status_code == status
    if status == 403:
        assert "WATCHKEEPER_ALLOWED_HOSTS" in answer.json()["hint"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost"}, 200),
        ({"origin": "http://localhost", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "https://localhost:444", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://localhost:9999"}, 403),
        ({"origin": "http://evil.example.org"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 200),
    ],
)
def test_other_pages_change_nothing(headers: dict[str, str], status: int) -> None:
    answer = call(small_app(), "POST", "/write", headers=JSON | headers, content=b"{}")
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ],
)
def test_only_json_bodies_are_taken(kind: str, status: int) -> None:
    answer = call(small_app(), "POST", "/write", headers={"content-type": kind}, content=b"{}")
    assert answer.status_code == status


def test_a_nul_in_an_address_is_refused() -> None:
    for path in ("/read?q=a%00b", "/read%00"):
        assert call(small_app(), "GET", path).status_code == 400


def test_a_token_in_an_address_is_refused_and_not_repeated() -> None:
    for name in ("token", "access_token", "TOKEN"):
        answer = call(small_app(), "GET", f"/read?{name}=hunter2")
        assert answer.status_code == 400
        assert "hunter2" not in answer.text


KEYS = Keys(ingest="in-token", read="read-token")


@pytest.mark.parametrize(
    ("method", "path", "token", "status"),
    [
        ("POST", "/write", "in-token", 200),
        ("POST", "/write", "read-token", 401),
        ("POST", "/write", "", 401),
        ("POST", "/write", None, 401),
        ("GET", "/read", "read-token", 200),
        ("GET", "/read", "in-token", 401),
        ("GET", "/read", "read-token2", 401),
        ("GET", "/read", None, 401),
    ],
)
def test_each_token_opens_its_own_door(
    method: str, path: str, token: str | None, status: int
) -> None:
    headers = dict(JSON)
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    answer = call(small_app(KEYS), method, path, headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"


def test_without_tokens_both_doors_are_open() -> None:
    assert call(small_app(), "GET", "/read").status_code == 200
    assert call(small_app(), "POST", "/write", headers=JSON).status_code == 200


def test_a_browser_exchanges_the_token_for_a_session_that_ends() -> None:
    clock = FakeClock(1000.0)
    app = small_app(Keys(read="read-token", clock=clock))
    assert call(app, "POST", "/login", json={"token": "wrong"}).status_code == 401
    answer = call(app, "POST", "/login", json={"token": "read-token"})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    session = answer.cookies[COOKIE]
    assert "read-token" not in session
    held = {"cookie": f"{COOKIE}={session}"}
    assert call(app, "GET", "/read", headers=held).status_code == 200
    forged = {"cookie": f"{COOKIE}=9999999999.{session.partition('.')[2]}"}
    assert call(app, "GET", "/read", headers=forged).status_code == 401
    clock.advance(SESSION_S + 1)
    assert call(app, "GET", "/read", headers=held).status_code == 401
    renamed = small_app(Keys(read="another", clock=FakeClock(1000.0)))
    assert call(renamed, "GET", "/read", headers=held).status_code == 401


def test_behind_a_tls_proxy_the_session_is_for_tls_only() -> None:
    app = small_app(Keys(read="read-token"))
    for origin, secure in (("https://localhost", True), ("http://localhost", False)):
        headers = {"origin": origin}
        answer = call(app, "POST", "/login", json={"token": "read-token"}, headers=headers)
        assert answer.status_code == 204
        assert ("secure" in answer.headers["set-cookie"].lower()) is secure


@pytest.mark.parametrize("path", ["/read", "/nothing", "/broken", "/read?token=x"])
def test_every_answer_carries_the_security_headers(path: str) -> None:
    answer = call(small_app(), "GET", path)
    policy = answer.headers["content-security-policy"]
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("DELETE", "/read", 405), ("GET", "/broken", 500)],
)
def test_every_error_is_a_problem_document(method: str, path: str, status: int) -> None:
    answer = call(small_app(), method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert {"type", "title", "detail", "instance", "hint"} <= body.keys()
    assert "secret detail" not in answer.text


def test_a_body_that_says_no_length_is_weighed_as_it_comes() -> None:
    app = small_app()

    @app.post("/body")
    async def take(request: Request) -> JSONResponse:
        return JSONResponse({"bytes": len(await request.body())})

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(9):
            yield b" " * 1024 * 1024

    answer = call(app, "POST", "/body", headers=JSON, content=pieces())
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_prefix_may_be_passed_on_or_stripped() -> None:
    assert call(small_app(), "GET", "/monitor/read").status_code == 200
    assert call(small_app(), "GET", "/read").status_code == 200
    assert call(small_app(), "GET", "/monitoring/read").status_code == 404
