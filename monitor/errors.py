"""Every error the server tells somebody about.

WatchkeeperError (500)
├── BadRequest (400)
│   ├── MalformedBody            not JSON, not gzip, cut off
│   └── UnknownFilter (422)      a value outside its fixed list
├── Unprocessable (422)          a batch whose envelope cannot be understood
│   ├── UnreadableLog            a file that is no training log we know
│   └── InvalidChannel           a channel's form is not filled in as it must be
├── Unauthorized (401)
├── Forbidden (403)              host or origin not allowed
├── NotFound (404)
├── Conflict (409)
├── Gone (410)                   the run was deleted
├── TooLarge (413)
├── UnsupportedCoding (415)
├── TooManySeries (422)
├── Unavailable (503)            database away or busy; come back after `retry_after_s`
│   └── DiskFull (507)
├── UnsafeSettings               refused at start: exit status 2
├── InUse                        another server process has the database
└── SchemaTooNew                 the database belongs to a newer program
"""

from __future__ import annotations

from typing import ClassVar


class WatchkeeperError(Exception):
    """Base of all. `status` is the HTTP status, `hint` tells the reader what to do about it."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Something broke on our side"

    def __init__(self, detail: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint
        self.retry_after_s = retry_after_s


class BadRequest(WatchkeeperError):
    status = 400
    title = "The request cannot be understood"


class MalformedBody(BadRequest):
    title = "The body cannot be read"


class UnknownFilter(BadRequest):
    status = 422
    title = "No such value for this parameter"


class Unprocessable(WatchkeeperError):
    status = 422
    title = "The batch cannot be understood"


class UnreadableLog(Unprocessable):
    title = "This file cannot be read as a training log"


class InvalidChannel(Unprocessable):
    title = "This channel cannot be set up so"


class TooManySeries(Unprocessable):
    title = "This run has as many series as it may have"


class Unauthorized(WatchkeeperError):
    status = 401
    title = "A token is needed"


class Forbidden(WatchkeeperError):
    status = 403
    title = "Not allowed"


class NotFound(WatchkeeperError):
    status = 404
    title = "There is no such thing"


class Conflict(WatchkeeperError):
    status = 409
    title = "Not in this state"


class Gone(WatchkeeperError):
    status = 410
    title = "This run was deleted"


class TooLarge(WatchkeeperError):
    status = 413
    title = "Too large"


class UnsupportedCoding(WatchkeeperError):
    status = 415
    title = "This content type or coding is not understood"


class Unavailable(WatchkeeperError):
    status = 503
    title = "Not available right now"

    def __init__(self, detail: str, *, hint: str = "", retry_after_s: float | None = 2.0) -> None:
        super().__init__(detail, hint=hint, retry_after_s=retry_after_s)


class DiskFull(Unavailable):
    status = 507
    title = "No space left on the server's disk"


class UnsafeSettings(WatchkeeperError):
    title = "These settings would not be safe"


class InUse(WatchkeeperError):
    title = "Another process has the database"


class SchemaTooNew(WatchkeeperError):
    title = "The database belongs to a newer program"
