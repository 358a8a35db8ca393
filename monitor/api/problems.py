"""Every error as problem details (RFC 9457), whatever raised it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from monitor.errors import WatchkeeperError
from trainer_hooks.wire import to_plain

MEDIA_TYPE = "application/problem+json"
SHOWN_ERRORS = 20
_log = logging.getLogger("monitor.api")


class ProblemResponse(JSONResponse):
    """A problem document; nothing in it is taken from a traceback."""

    media_type = MEDIA_TYPE


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    instance: str,
    hint: str = "",
    errors: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
) -> ProblemResponse:
    """One problem document. ``type`` is about:blank: status and title say all there is."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": instance,
        "hint": hint,
    }
    if errors:
        body["errors"] = to_plain(list(errors))
    return ProblemResponse(_clean(body), status_code=status, headers=dict(headers or {}))


def unexpected(instance: str) -> ProblemResponse:
    """What a reader is told of an error nobody foresaw (the log has the rest)."""
    return problem(
        500,
        WatchkeeperError.title,
        "The server could not answer this.",
        instance=instance,
        hint="The server's log says more.",
    )


def of_known(error: WatchkeeperError, instance: str) -> ProblemResponse:
    """The problem document of one of our own errors."""
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return problem(
        error.status, error.title, error.detail, instance=instance, hint=error.hint, headers=headers
    )


def install(app: FastAPI) -> None:
    """Register the handlers. What none of them knows is caught by the outermost middleware."""
    app.add_exception_handler(WatchkeeperError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ResponseValidationError, _ours)


async def _known(request: Request, error: Exception) -> ProblemResponse:
    if not isinstance(error, WatchkeeperError):
        raise error
    if error.status >= 500:
        _log.warning("%s %s: %s", request.method, request.url.path, error.detail)
    return of_known(error, request.url.path)


async def _invalid(request: Request, error: Exception) -> ProblemResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    found = [
        {"where": ".".join(str(part) for part in item["loc"]), "what": item["msg"]}
        for item in error.errors()[:SHOWN_ERRORS]
    ]
    broken = any(item["type"] == "json_invalid" for item in error.errors())
    return problem(
        400 if broken else 422,
        "The body cannot be read" if broken else "A value is not as it must be",
        "; ".join(f"{item['where']}: {item['what']}" for item in found),
        instance=request.url.path,
        errors=found,
    )


async def _http(request: Request, error: Exception) -> ProblemResponse:
    if not isinstance(error, HTTPException):
        raise error
    try:
        title = HTTPStatus(error.status_code).phrase
    except ValueError:
        title = "Error"
    return problem(
        error.status_code,
        title,
        str(error.detail or title),
        instance=request.url.path,
        headers=error.headers,
    )


async def _ours(request: Request, error: Exception) -> ProblemResponse:
    _log.error("%s: the answer is not as declared: %s", request.url.path, error)
    return unexpected(request.url.path)


def _clean(value: Any) -> Any:
    """Lone surrogates cannot be encoded; they are shown as U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
