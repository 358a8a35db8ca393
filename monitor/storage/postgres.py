"""PostgreSQL: a pool of connections, and LISTEN/NOTIFY between processes."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from monitor.errors import DiskFull, Unavailable
from monitor.storage.base import UnitOfWork
from monitor.storage.quiet import hide_rows
from monitor.storage.tasks import Task
from monitor.storage.watchers import Callback, Watchers
from monitor.storage.work import Work

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CHANNEL = "watchkeeper_log"
_POOL = 10
_GROUP_MAX = 64
_POOL_WAIT_S = 2.0
_TRIES = 3
_RECONNECT_S = 1.0
_LOOK_S = 0.5
_DISK_FULL = "53100"
_COLLIDED = frozenset({"40001", "40P01"})  # could not serialize; deadlock
_CLOSED = Unavailable("The database is closed.")


class PostgresDatabase:
    """``base.Database`` on a PostgreSQL server.

    Writers of this process take turns, and whoever's turn it is commits for all that wait: one
    transaction, one wait for the disk. Several processes share the work run by run.
    """

    dialect: Literal["postgresql"] = "postgresql"

    def __init__(self, url: str) -> None:
        hide_rows()
        self._engine = sa.create_engine(
            url,
            pool_size=_POOL,
            max_overflow=_POOL,
            pool_timeout=_POOL_WAIT_S,
            # Secrets of channels are values: neither a log nor an error shows them.
            hide_parameters=True,
            connect_args={"connect_timeout": 5},
        )
        self._reading = self._engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        plain = make_url(url).set(drivername="postgresql")
        self._listener = _Listener(plain.render_as_string(hide_password=False), self._heads)
        self._tasks: deque[Task] = deque()
        self._leading = threading.Lock()
        self._leader = 0
        self._closed = False

    def write(self, work: Callable[[UnitOfWork], T]) -> T:
        if self._leader == threading.get_ident():
            raise RuntimeError("a write inside a write: use the unit of work that was handed in")
        task = Task(work)
        self._tasks.append(task)
        with self._leading:
            # Whoever held this before may have done ours in his transaction.
            if not task.future.done():
                self._leader = threading.get_ident()
                try:
                    self._commit_group(self._gather())
                finally:
                    self._leader = 0
        result: T = task.future.result()
        return result

    def _gather(self) -> list[Task]:
        tasks: list[Task] = []
        while self._tasks and len(tasks) < _GROUP_MAX:
            tasks.append(self._tasks.popleft())
        return tasks

    def _commit_group(self, tasks: list[Task]) -> None:
        """Commit what has come together at once; where one of them fails, each by itself."""
        try:
            results = self._commit([task.work for task in tasks])
        except BaseException as error:
            if len(tasks) > 1 and not isinstance(error, Unavailable):
                for task in tasks:
                    self._commit_group([task])
                return
            # A database that is away is away for all: nobody waits for it once more.
            for task in tasks:
                task.future.set_exception(error)
            return
        for task, result in zip(tasks, results, strict=True):
            task.future.set_result(result)

    def _commit(self, works: list[Callable[[UnitOfWork], Any]]) -> list[Any]:
        for left in reversed(range(_TRIES)):
            if self._closed:
                raise _CLOSED
            try:
                return self._commit_once(works)
            except _Again as error:
                if left == 0:
                    raise Unavailable("The database is not there.") from error.__cause__
        raise AssertionError("the last try returns or raises")

    def _commit_once(self, works: list[Callable[[UnitOfWork], Any]]) -> list[Any]:
        committing = False
        try:
            with self._engine.connect() as connection:
                with connection.begin() as transaction:
                    unit = Work(connection)
                    results = [work(unit) for work in works]
                    _notify(connection, unit.appended)
                    committing = True
                    transaction.commit()
                return results
        except (DBAPIError, PoolTimeout) as error:
            if not committing and _worth_another_try(error):
                raise _Again from error
            raise translated(error) from error

    @contextmanager
    def read(self) -> Iterator[UnitOfWork]:
        if self._closed:
            raise _CLOSED
        try:
            with self._connect_for_reading() as connection, connection.begin():
                yield Work(connection)
        except (DBAPIError, PoolTimeout) as error:
            raise translated(error) from error

    def _connect_for_reading(self) -> Connection:
        """A connection that answers: one the server has closed meanwhile is replaced."""
        for _ in range(_POOL):
            connection = self._reading.connect()
            try:
                with connection.begin():
                    connection.exec_driver_sql("SELECT 1")
            except DBAPIError as error:
                connection.close()
                if not error.connection_invalidated:
                    raise
            else:
                return connection
        return self._reading.connect()

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A connection in a transaction that no other process migrates beside."""
        try:
            with self._engine.begin() as connection:
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7703114051)")
                yield connection
        except (DBAPIError, PoolTimeout) as error:
            raise translated(error) from error

    def on_append(self, callback: Callback) -> None:
        self._listener.add(callback)

    def _heads(self) -> dict[str, int]:
        with self.read() as work:
            return work.log.heads()

    def begin_serving(self) -> None:
        """Nothing to do: several servers may share the work."""

    def size_bytes(self) -> int:
        with self._engine.connect() as connection:
            query = "SELECT pg_database_size(current_database())"
            return int(connection.exec_driver_sql(query).scalar_one())

    def close(self) -> None:
        """Let go of every connection. More calls do nothing."""
        if not self._closed:
            self._closed = True
            self._listener.close()
            self._engine.dispose()


class _Again(Exception):
    """The transaction came to nothing through no fault of its own."""


class _Listener:
    """Hears of the commits of all processes on a connection of its own."""

    def __init__(self, address: str, heads: Callable[[], dict[str, int]]) -> None:
        self._address = address
        self._heads = heads
        self._watchers = Watchers()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._listening = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, callback: Callback) -> None:
        self._watchers.add(callback)
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="store-ear", daemon=True)
                self._thread.start()
        self._listening.wait(5.0)

    def _run(self) -> None:
        missed = False
        while not self._stop.is_set():
            try:
                self._listen(missed)
            except (psycopg.Error, Unavailable) as error:
                logger.warning("listening to the database was cut off: %s", error)
            missed = True
            self._stop.wait(_RECONNECT_S)

    def _listen(self, missed: bool) -> None:
        with psycopg.connect(self._address, autocommit=True, connect_timeout=5) as connection:
            connection.execute(f"LISTEN {_CHANNEL}")
            self._listening.set()
            if missed:
                self._watchers.tell(self._heads())
            while not self._stop.is_set():
                for notice in connection.notifies(timeout=_LOOK_S):
                    self._watchers.tell(json.loads(notice.payload))

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def _notify(connection: Connection, appended: dict[str, int]) -> None:
    for run, pos in appended.items():
        payload = json.dumps({run: pos}, ensure_ascii=False)
        connection.exec_driver_sql("SELECT pg_notify(%s, %s)", (_CHANNEL, payload))


def _code(error: Exception) -> str:
    original = getattr(error, "orig", None)
    return str(getattr(original, "sqlstate", None) or "")


def _worth_another_try(error: Exception) -> bool:
    return isinstance(error, DBAPIError) and (
        error.connection_invalidated or _code(error) in _COLLIDED
    )


def translated(error: Exception) -> Exception:
    """What the caller is told: a database that is busy, away or full is not his fault."""
    if isinstance(error, PoolTimeout):
        return Unavailable("The database has no connection free.")
    if _code(error) == _DISK_FULL:
        return DiskFull("No space is left for the database.", retry_after_s=30.0)
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    original = getattr(error, "orig", None)
    if lost or isinstance(original, psycopg.OperationalError):
        return Unavailable("The database is not there.")
    return error
