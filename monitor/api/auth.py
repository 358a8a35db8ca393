"""Who may do what: an ingest token for batches, a read token (or a session got with it) else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from monitor.api.schemas import PROBLEMS
from monitor.clock import Clock, wall_s
from monitor.errors import Unauthorized

COOKIE = "watchkeeper_session"
SESSION_S = 30 * 24 * 3600
_NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Keys:
    """The two tokens (None: that door is open) and the clock that ends sessions.

    A session is an expiry and a nonce, signed with a key made from the read token: it holds in
    every process and after a restart, and ends when the token is changed.
    """

    ingest: str | None = None
    read: str | None = None
    clock: Clock = wall_s

    def may_ingest(self, token: str | None) -> bool:
        return self.ingest is None or _equal(token, self.ingest)

    def may_read(self, token: str | None, session: str | None) -> bool:
        return self.read is None or _equal(token, self.read) or self._holds(session)

    def new_session(self) -> str:
        """A signed session value; 30 days from now it is worth nothing."""
        nonce = base64.urlsafe_b64encode(secrets.token_bytes(_NONCE_BYTES)).decode().rstrip("=")
        words = f"{int(self.clock()) + SESSION_S}.{nonce}"
        return f"{words}.{self._sign(words)}"

    def _holds(self, session: str | None) -> bool:
        words, _, signature = (session or "").rpartition(".")
        if not words or not _equal(signature, self._sign(words)):
            return False
        return float(words.partition(".")[0]) > self.clock()

    def _sign(self, words: str) -> str:
        key = hashlib.sha256(b"watchkeeper session\0" + (self.read or "").encode()).digest()
        return hmac.new(key, words.encode(), hashlib.sha256).hexdigest()


def _equal(given: str | None, wanted: str) -> bool:
    """Compare in constant time, whatever characters were sent."""
    return hmac.compare_digest((given or "").encode("utf-8", "replace"), wanted.encode())


def bearer(request: Request) -> str | None:
    """The token of the Authorization header, if it is one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _keys(request: Request) -> Keys:
    keys: Keys = request.app.state.keys
    return keys


async def require_ingest(request: Request) -> None:
    """Raises ``Unauthorized`` unless the ingest token was sent (or none is set)."""
    if not _keys(request).may_ingest(bearer(request)):
        raise Unauthorized(
            "Batches need the ingest token.", hint="Set WATCHKEEPER_INGEST_TOKEN for the trainer."
        )


def is_reader(request: Request) -> bool:
    """Whether the caller may read: by token, by session, or because no token is set."""
    return _keys(request).may_read(bearer(request), request.cookies.get(COOKIE))


def tokens_set(request: Request) -> dict[str, bool]:
    """Which doors need a token; never the tokens."""
    keys = _keys(request)
    return {"ingest": keys.ingest is not None, "read": keys.read is not None}


async def require_read(request: Request) -> None:
    """Raises ``Unauthorized`` unless ``is_reader``."""
    if not is_reader(request):
        raise Unauthorized(
            "Reading needs the read token.",
            hint="Send it as 'Authorization: Bearer <token>', or log in with a browser at /login.",
        )


Ingesting = Depends(require_ingest)
Reading = Depends(require_read)

router = APIRouter(tags=["login"], responses=PROBLEMS)


class Login(BaseModel):
    """The read token, in a body and never in an address."""

    token: Annotated[str, Field(min_length=1, max_length=4096)]


@router.post("/login", status_code=204)
def log_in(body: Login, request: Request) -> Response:
    """Exchange the read token for a browser session."""
    keys = _keys(request)
    if not keys.may_read(body.token, None):
        raise Unauthorized("This is not the read token.")
    response = Response(status_code=204)
    response.set_cookie(
        COOKIE,
        keys.new_session(),
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=_is_encrypted(request),
    )
    return response


def _is_encrypted(request: Request) -> bool:
    """Whether the browser speaks TLS, if only to a proxy before us: then its origin says so."""
    origin = request.headers.get("origin", "")
    return request.url.scheme == "https" or origin.startswith("https://")


@router.post("/logout", status_code=204)
def log_out() -> Response:
    """End the browser's session."""
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response
