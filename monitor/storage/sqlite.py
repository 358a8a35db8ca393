"""SQLite: one writer thread with group commit, and read-only connections for everybody else."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from monitor.errors import DiskFull, Unavailable
from monitor.storage.alone import FileLock, take_back_claims
from monitor.storage.base import UnitOfWork
from monitor.storage.quiet import hide_rows
from monitor.storage.tasks import Task
from monitor.storage.watchers import Callback, Watchers
from monitor.storage.work import Work

T = TypeVar("T")

_GROUP_MAX = 128
_BUSY_MS = 3_000
_READERS = 16
_POOL_WAIT_S = 2.0
_CLOSED = Unavailable("The database is closed.")


class SqliteDatabase:
    """``base.Database`` on one file.

    Writes queue for a single thread, which runs what has come together, each function behind its
    own savepoint, and commits once: a commit waits for the disk, and so do many at its price.
    """

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, url: str) -> None:
        self._path = Path(make_url(url).database or "")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer_engine = _engine(url, pool_size=1, overflow=1, reading=False)
        self._reader_engine = _engine(url, pool_size=_READERS, overflow=0, reading=True)
        self._watchers = Watchers()
        self._alone = FileLock(self._path.with_name(self._path.name + ".lock"))
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def write(self, work: Callable[[UnitOfWork], T]) -> T:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a write inside a write: use the unit of work that was handed in")
        task = Task(work)
        with self._lock:
            if self._closed:
                raise _CLOSED
            self._start()
            self._tasks.put(task)
        result: T = task.future.result()
        return result

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        going_on = True
        while going_on:
            tasks, going_on = self._gather()
            if tasks:
                self._commit_group(tasks)

    def _gather(self) -> tuple[list[Task], bool]:
        """What has come together; False once the queue has been closed."""
        first = self._tasks.get()
        if first is None:
            return [], False
        tasks = [first]
        while len(tasks) < _GROUP_MAX:
            try:
                more = self._tasks.get_nowait()
            except queue.Empty:
                break
            if more is None:
                return tasks, False
            tasks.append(more)
        return tasks, True

    def _commit_group(self, tasks: list[Task]) -> None:
        appended: dict[str, int] = {}
        try:
            with self._writer_engine.begin() as connection:
                for task in tasks:
                    appended |= _run_behind_savepoint(connection, task)
        except BaseException as error:
            # Nothing of this group is on disk: nobody may believe otherwise.
            told = translated(error)
            for task in tasks:
                task.future.set_exception(told)
            return
        for task in tasks:
            if task.error is None:
                task.future.set_result(task.result)
            else:
                task.future.set_exception(task.error)
        self._watchers.tell(appended)

    @contextmanager
    def read(self) -> Iterator[UnitOfWork]:
        if self._closed:
            raise _CLOSED
        with _connected(self._reader_engine) as connection:
            yield Work(connection)

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A connection in a write transaction of its own, for the schema alone."""
        try:
            with self._writer_engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise translated(error) from error

    def on_append(self, callback: Callback) -> None:
        self._watchers.add(callback)

    def begin_serving(self) -> None:
        self._alone.take()
        with self._writer_engine.begin() as connection:
            take_back_claims(connection)

    def size_bytes(self) -> int:
        files = (self._path, self._path.with_name(self._path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Finish what is queued, then let go. More calls do nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._tasks.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()
        self._reader_engine.dispose()
        self._writer_engine.dispose()
        self._alone.release()


def _run_behind_savepoint(connection: Connection, task: Task) -> dict[str, int]:
    """Run one function; what it did is undone if it raises. Returns what it appended."""
    connection.exec_driver_sql("SAVEPOINT task")
    work = Work(connection)
    task.result = task.error = None
    try:
        task.result = task.work(work)
    except OperationalError:
        raise  # the disk or a lock: the whole group is lost with it
    except BaseException as error:
        connection.exec_driver_sql("ROLLBACK TO task")
        task.error = error
    connection.exec_driver_sql("RELEASE task")
    return work.appended if task.error is None else {}


@contextmanager
def _connected(engine: Engine) -> Iterator[Connection]:
    try:
        with engine.connect() as connection, connection.begin():
            yield connection
    except (DBAPIError, PoolTimeout) as error:
        raise translated(error) from error


def translated(error: BaseException) -> BaseException:
    """What the caller is told: a database that is busy, away or full is not his fault."""
    if isinstance(error, PoolTimeout):
        return Unavailable("Too many readers at once.")
    if not isinstance(error, OperationalError):
        return error
    if "full" in str(error.orig):
        return DiskFull("No space is left for the database.", retry_after_s=30.0)
    return Unavailable(f"The database cannot be used now: {error.orig}.")


def _engine(url: str, *, pool_size: int, overflow: int, reading: bool) -> Engine:
    hide_rows()
    engine = sa.create_engine(
        url,
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=overflow,
        pool_timeout=_POOL_WAIT_S,
        # Secrets of channels are values: neither a log nor an error shows them.
        hide_parameters=True,
        # The driver begins nothing by itself: ``_begin`` says which kind of transaction it is.
        connect_args={"isolation_level": None, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_size = -16384")
        if reading:
            connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
        if reading:
            # A deferred transaction takes its snapshot at the first look.
            connection.exec_driver_sql("SELECT 1 FROM sqlite_schema LIMIT 1").close()

    return engine
