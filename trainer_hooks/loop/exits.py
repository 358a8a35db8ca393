"""How a run ends: normally, by an exception, by Ctrl-C, by SIGTERM, or without a word.

A handler for SIGTERM that was there before still runs, and decides whether training goes on; where
there was none the process ends by the signal, as it would have without us.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from trainer_hooks.wire import EndStatus

Close = Callable[[EndStatus, "str | None"], object]


def status_of(error: type[BaseException] | None) -> tuple[EndStatus, str | None]:
    """How a run ended that this exception left: its status, and the exception's name."""
    if error is None or issubclass(error, GeneratorExit):
        return "finished", None
    if issubclass(error, KeyboardInterrupt):
        return "interrupted", None
    if issubclass(error, SystemExit):
        return "finished", None
    return "failed", error.__name__


class Exits:
    """Sees to it that ``close`` is called once the process ends, whichever way.

    Attributes:
        terminated: a SIGTERM has come; what ends the run from then on is that.
    """

    def __init__(self, close: Close) -> None:
        self.terminated = False
        self._close = close
        self._pid = os.getpid()
        self._earlier: Any = None
        self._installed = False

    def install(self) -> None:
        """Listen for SIGTERM (on the main thread only) and for the interpreter's exit."""
        atexit.register(self._at_exit)
        if "multiprocessing" in sys.modules:
            self._finalize_child()
        if threading.current_thread() is not threading.main_thread():
            return
        earlier = signal.getsignal(signal.SIGTERM)
        if earlier in (signal.SIG_IGN, None):  # ignored on purpose, or not set from Python
            return
        self._earlier = earlier
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._installed = True

    def remove(self) -> None:
        """Stop listening, where nobody else has taken over since."""
        atexit.unregister(self._at_exit)
        on_main = threading.current_thread() is threading.main_thread()
        if self._installed and on_main and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, self._earlier)
            self._installed = False

    def _finalize_child(self) -> None:
        """Children of multiprocessing leave without running ``atexit``."""
        from multiprocessing import parent_process, util

        if parent_process() is not None:
            util.Finalize(None, self._at_exit, exitpriority=100)

    def _at_exit(self) -> None:
        if self._pid == os.getpid():
            self._close(*status_of(getattr(sys, "last_type", None)))

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if self._pid != os.getpid():
            self._pass_on(number, frame)
            return
        self.terminated = True
        if not self._may_go_on():
            self._close("terminated", None)
        self._pass_on(number, frame)

    def _may_go_on(self) -> bool:
        """Whether a handler that is not ours decides; those of other watches only pass it on."""
        other = getattr(self._earlier, "__self__", None)
        return other._may_go_on() if isinstance(other, Exits) else callable(self._earlier)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if callable(self._earlier):
            self._earlier(number, frame)
        else:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), number)
