"""One transaction as the services see it: all repositories over one connection."""

from __future__ import annotations

from functools import cached_property

from sqlalchemy.engine import Connection

from monitor.storage.alerts import SqlAlerts
from monitor.storage.answers import SqlAnswers
from monitor.storage.blocks import SqlBlocks
from monitor.storage.channels import SqlChannels
from monitor.storage.events import SqlEvents
from monitor.storage.glances import SqlGlances
from monitor.storage.log import SqlLog
from monitor.storage.outbox import SqlOutbox
from monitor.storage.readers import SqlReaders
from monitor.storage.rules import SqlRules
from monitor.storage.runs import SqlRuns
from monitor.storage.series import SqlSeries
from monitor.storage.silences import SqlSilences
from monitor.storage.tunings import SqlTunings


class Work:
    """``base.UnitOfWork`` over a connection that is in a transaction.

    ``appended`` holds the last position this transaction wrote, by run.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.appended: dict[str, int] = {}

    @cached_property
    def runs(self) -> SqlRuns:
        return SqlRuns(self._connection)

    @cached_property
    def log(self) -> SqlLog:
        return SqlLog(self._connection, self.appended)

    @cached_property
    def series(self) -> SqlSeries:
        return SqlSeries(self._connection)

    @cached_property
    def blocks(self) -> SqlBlocks:
        return SqlBlocks(self._connection)

    @cached_property
    def answers(self) -> SqlAnswers:
        return SqlAnswers(self._connection)

    @cached_property
    def events(self) -> SqlEvents:
        return SqlEvents(self._connection)

    @cached_property
    def alerts(self) -> SqlAlerts:
        return SqlAlerts(self._connection)

    @cached_property
    def outbox(self) -> SqlOutbox:
        return SqlOutbox(self._connection)

    @cached_property
    def channels(self) -> SqlChannels:
        return SqlChannels(self._connection)

    @cached_property
    def silences(self) -> SqlSilences:
        return SqlSilences(self._connection)

    @cached_property
    def rules(self) -> SqlRules:
        return SqlRules(self._connection)

    @cached_property
    def tunings(self) -> SqlTunings:
        return SqlTunings(self._connection)

    @cached_property
    def readers(self) -> SqlReaders:
        return SqlReaders(self._connection)

    @cached_property
    def glances(self) -> SqlGlances:
        return SqlGlances(self._connection)
