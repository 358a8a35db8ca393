"""The process that loads Apprise, sends one message and says in JSON what came of it."""

from __future__ import annotations

import json
import logging
import socket
import sys
from importlib import import_module
from typing import Any

from monitor.senders.addresses import NotAllowed, check, resolve

TIMEOUT_S = 10.0
KEPT_LOG_CHARS = 200
SHORTEST_BODY = 40


def main() -> None:
    """Orders on standard input: ``{url, allow, title, lines, kind}``, or ``only_look``."""
    told = _send(json.load(sys.stdin))
    sys.stdout.write(json.dumps(told))


def _send(orders: dict[str, Any]) -> dict[str, Any]:
    apprise: Any = import_module("apprise")
    socket.setdefaulttimeout(TIMEOUT_S)
    service = apprise.Apprise.instantiate(orders["url"], suppress_exceptions=True)
    if service is None:
        return {"sent": False, "refused": True, "said": "Apprise does not know such an address"}
    if orders.get("only_look"):
        return _look(str(getattr(service, "host", "") or ""), orders["allow"])
    guard = Guard(orders["allow"])
    # Audit hooks cannot be taken off again, and see what every library does.
    sys.addaudithook(guard)
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as captured:
        sent = service.notify(
            title=orders["title"],
            body=_fitted(orders["lines"], int(service.body_maxlen), orders["title"]),
            notify_type=apprise.NotifyType(orders["kind"]),
            body_format=apprise.NotifyFormat.TEXT,
            overflow=apprise.OverflowMode.TRUNCATE,
        )
        said = " ".join(captured.getvalue().split())[:KEPT_LOG_CHARS]
    if guard.refused:
        return {"sent": False, "refused": True, "said": guard.refused}
    return {"sent": bool(sent), "said": said or ("accepted" if sent else "")}


def _look(host: str, allow: list[str]) -> dict[str, Any]:
    """Whether the address names a host that may not be gone to. Often it names none."""
    try:
        check(resolve(host, 0), allow)
    except NotAllowed as error:
        return {"sent": False, "refused": True, "said": str(error)}
    except (OSError, ValueError):
        return {"sent": True}
    return {"sent": True}


def _fitted(lines: list[str], room: int, title: str) -> str:
    """The lines from the first on while they fit; a service of short messages shows the title."""
    kept = list(lines)
    while kept and len("\n".join(kept)) > max(room - len(title) - 2, SHORTEST_BODY):
        kept.pop()
    return "\n".join(kept) or title


class Guard:
    """Lets this process talk to allowed addresses only, and start nothing.

    It looks at the address of every single connection, so neither a second look-up nor a redirect
    leads inside.
    """

    def __init__(self, allow: list[str]) -> None:
        self.refused = ""
        self._allow = allow

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook (PEP 578)."""
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            self._look_at(arguments[1])
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"):
            self._stop("this Apprise service starts a program, which it may not")

    def _look_at(self, target: Any) -> None:
        if not isinstance(target, tuple):
            self._stop("this Apprise service talks to this machine, which it may not")
        try:
            check([str(target[0])], self._allow)
        except NotAllowed as error:
            self._stop(str(error))
        except ValueError:
            self._stop("a connection by name cannot be checked")

    def _stop(self, why: str) -> None:
        self.refused = why
        raise PermissionError(why)


if __name__ == "__main__":
    main()
