"""``watchkeeper import``: bring a training log of another tool in, as a run of the past."""

from __future__ import annotations

import argparse
import sys
import uuid
from pathlib import Path

from monitor.cli.logs import add_log_options, open_log, run_name
from monitor.cli.options import add_settings, read_settings
from monitor.cli.store import opened_store
from monitor.clock import wall_s
from monitor.domain.alert import Alert
from monitor.domain.words import counted
from monitor.importers.base import Imported
from monitor.services.detection import Detection
from monitor.services.importing import import_run
from monitor.services.ingest import Ingest
from monitor.storage.base import Database


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the log, gzipped or not")
    parser.add_argument("--run", metavar="NAME", help="name of the run (default: the file's name)")
    add_log_options(parser)
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Import and judge; 0 when something was taken.

    The run's id follows from its name: the same file under the same name again changes nothing.
    """
    imported = open_log(options.file, options)
    name = options.run or run_name(options.file)
    tell(imported)
    with opened_store(read_settings(options)) as database:
        ingest = Ingest(database, wall_s)
        counts = import_run(imported, ingest.accept, run=run_id(name), name=name)
        alerts = judged(database, run_id(name))
    print(
        f"Run {run_id(name)}: {counts.stored:,} values stored, {counts.duplicate:,} held already, "
        f"{counts.refused:,} refused; {counted(len(alerts), 'alert')}, nobody told."
    )
    for alert in sorted(alerts, key=lambda one: one.onset_step):
        subject = f" ({alert.subject})" if alert.subject else ""
        print(f"  {alert.severity}: {alert.title}{subject}, since step {alert.onset_step:,}")
    return 0 if counts.stored or counts.duplicate else 1


def judged(database: Database, run: str) -> list[Alert]:
    """Judge the run now, unless a server has it in hand already; its alerts."""
    detection = Detection(database, wall_s, f"import:{uuid.uuid4().hex[:8]}")
    while detection.run_once(run):
        pass
    detection.close()
    with database.read() as work:
        return work.alerts.of_run(run)


def run_id(name: str) -> str:
    """The id of an imported run: its name where that may be part of an address, else a hash."""
    plain = all(c.isascii() and (c.isalnum() or c in "._-") for c in name) and name[0] not in ".-"
    return name if plain and len(name) <= 128 else uuid.uuid5(uuid.NAMESPACE_URL, name).hex


def tell(imported: Imported) -> None:
    """How the log was read, and what of it was not taken, on standard error."""
    out = sys.stderr
    print(f"Read as {imported.format}: {imported.rows:,} rows, {imported.values:,} values,"
          f" {counted(len(imported.attempts), 'attempt')}.", file=out)  # fmt: skip
    for column, series in imported.columns.items():
        print(f"  {column} -> {series}", file=out)
    for note in imported.notes:
        print(f"  note: {note}", file=out)
    for left in imported.left_out:
        print(
            f"  left out: {left.reason} ({left.count:,}, first in row {left.first_row})", file=out
        )
