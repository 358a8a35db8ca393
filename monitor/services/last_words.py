"""When the disk is full nothing can be queued: this one alert leaves straight from memory.

The channels are remembered while they can still be read. One message when it begins, one when there
is room again; each is tried until one channel at least has taken it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from monitor.clock import Clock
from monitor.domain.ids import message_id
from monitor.errors import WatchkeeperError
from monitor.formats import load_format
from monitor.formats.base import AlertText, Message
from monitor.services.delivery import Send, send
from monitor.services.workers import Health
from monitor.storage.base import Channel, Database

LEAST_FREE_BYTES = 32 * 2**20
"""With less than this the next checkpoint of the database may fail."""
DETECTOR = "disk_full"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LastWords:
    """Looks whether there is room, and tells people if there is none.

    ``free_bytes``: what is left where the database lies (None: not on this machine's disk).
    ``place`` names the server to people.
    """

    database: Database
    clock: Clock
    senders: Mapping[str, Send]
    health: Callable[[], Sequence[Health]]
    free_bytes: Callable[[], int | None]
    place: str = ""
    _channels: list[Channel] = field(default_factory=list)
    _full_since: float | None = None
    _told: bool = False

    def run_once(self) -> None:
        """One look. Needs no database once the channels are known."""
        full = self._is_full()
        if full and self._full_since is None:
            self._full_since, self._told = self.clock(), False
        if full and not self._told:
            self._told = self._tell("opened")
        elif not full:
            self._recall()
            if self._full_since is not None and (not self._told or self._tell("resolved")):
                self._full_since, self._told = None, False

    def _recall(self) -> None:
        try:
            with self.database.read() as uow:
                self._channels = [one for one in uow.channels.all() if one.enabled]
        except WatchkeeperError as error:
            log.warning("channels cannot be read: %s", error.detail)

    def _is_full(self) -> bool:
        free = self.free_bytes()
        refused = any(
            one.failures and one.last_error.startswith("DiskFull") for one in self.health()
        )
        return refused or (free is not None and free < LEAST_FREE_BYTES)

    def _tell(self, moment: str) -> bool:
        """Whether somebody has taken it, or there is nobody to take it."""
        message = self._message(moment)
        at, taken = self.clock(), [not self._channels]
        for channel in self._channels:
            made = load_format(channel.format)
            payload = made.render(message, channel.config)
            answer = send(made, channel, message.id, payload, self.senders, at=at)
            taken.append(answer.status is not None and 200 <= answer.status < 300)
        return any(taken)

    def _message(self, moment: str) -> Message:
        began = self._full_since or self.clock()
        name = f"{DETECTOR}:{self.place}:{began:.0f}"
        where = f"Watchkeeper on {self.place}" if self.place else "Watchkeeper"
        over = moment == "resolved"
        text = AlertText(
            f"{where}: {'there is room again' if over else 'no space left for the database'}"
            f"{'' if over else ' - critical'}",
            ()
            if over
            else (
                "Nothing new is stored, judged or told until there is room. Trainers go on, and "
                "keep what they cannot send.",
                "First: free some space where the database lies; then it goes on by itself.",
            ),
        )
        alert = {
            "id": name, "detector": DETECTOR, "subject": "", "severity": "critical",
            "title": "no space left for the database", "opened_at": began,
            "state": "resolved" if over else "firing",
            "resolved_at": self.clock() if over else None,
        }  # fmt: skip
        run = {"id": "", "name": where}
        return Message(message_id(name, "", moment, 0), moment, self.clock(), text, alert, run)
