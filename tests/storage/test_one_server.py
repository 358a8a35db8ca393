"""SQLite has one server process; what a dead one had claimed is free at once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import pytest

from monitor.errors import InUse
from monitor.storage.base import Database
from monitor.storage.engine import open_database


@pytest.fixture
def again(sqlite_url: str) -> Generator[Database]:
    with closing(open_database(sqlite_url)) as opened:
        yield opened


def test_a_second_server_on_sqlite_is_refused_until_the_first_is_gone(
    sqlite_url: str, again: Database
) -> None:
    with closing(open_database(sqlite_url)) as first:
        first.begin_serving()
        with pytest.raises(InUse, match=r"watchkeeper\.db"):
            again.begin_serving()
    again.begin_serving()


def test_a_new_server_on_sqlite_does_not_wait_for_a_dead_ones_lease(
    sqlite_url: str, again: Database
) -> None:
    with closing(open_database(sqlite_url)) as first:
        first.write(lambda uow: uow.runs.ensure("run", at=1.0))
        first.write(lambda uow: uow.readers.open("run", "sealer", owner="dead", lease_s=600.0))
        other = first.write(
            lambda uow: uow.readers.open("run", "sealer", owner="new", lease_s=600.0)
        )
        assert other is None
    again.begin_serving()
    taken = again.write(lambda uow: uow.readers.open("run", "sealer", owner="new", lease_s=600.0))
    assert taken is not None
    assert taken.epoch == 2
