"""``watchkeeper backtest``: what the detectors say of files or stored runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from monitor.cli.logs import add_log_options, open_log, pair, run_name
from monitor.cli.options import add_settings, read_settings
from monitor.cli.store import opened_store
from monitor.domain.alert import Alert, fine_spans
from monitor.domain.words import counted
from monitor.services.backtest import (
    Judged,
    chosen_detectors,
    imported_entries,
    judge,
    stored_entries,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("runs", nargs="+", metavar="RUN|FILE", help="stored runs, or log files")
    parser.add_argument(
        "--detector", action="append", default=[], metavar="NAME", help="only this detector"
    )
    parser.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", type=pair,
        help="another value for a parameter of the detectors",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_log_options(parser)
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Judge each run in turn; 0 whatever the detectors say."""
    detectors = chosen_detectors(options.detector, dict(options.param))
    judged = []
    for name in options.runs:
        path = Path(name)
        if path.is_file():
            entries: Iterable[Any] = imported_entries(open_log(path, options), run_name(path))
            found = judge(run_name(path), entries, detectors)
        else:
            found = _judge_stored(name, detectors, options)
        judged.append(found)
        print_json(found) if options.json else print_table(found)
    if not options.json and len(judged) > 1:
        print_total(judged)
    return 0


def _judge_stored(name: str, detectors: dict[str, Any], options: argparse.Namespace) -> Judged:
    with opened_store(read_settings(options)) as database:
        found = judge(name, stored_entries(database, name), detectors)
        with database.read() as work:
            return replace(found, fine=tuple(fine_spans(work.alerts.labelled(name))))


def as_line(judged: Judged, alert: Alert) -> dict[str, Any]:
    """One alert as it is printed. An alert that lasted to the run's end was never resolved."""
    causes = alert.evidence.get("causes") or ()
    lasted = alert.resolved_reason == "run_ended"
    return {
        "run": judged.run,
        "steps": judged.steps,
        "detector": alert.detector,
        "severity": alert.severity,
        "subject": alert.subject,
        "onset_step": alert.onset_step,
        "opened_step": alert.opened_step,
        "resolved_step": None if lasted else alert.resolved_step,
        "cause": causes[0]["text"] if causes else "unexplained",
        "was_fine": judged.was_fine(alert),
    }


def print_json(judged: Judged) -> None:
    """A line an alert, and one for the run."""
    for alert in judged.alerts:
        print(json.dumps(as_line(judged, alert), ensure_ascii=False))
    last = {"run": judged.run, "steps": judged.steps, "alerts": len(judged.alerts)}
    print(json.dumps(last, ensure_ascii=False))


def print_table(judged: Judged) -> None:
    """Per detector: alerts with onset and delay, and the rate they would be false alarms at."""
    print(f"{judged.run}: {counted(judged.steps, 'step')}")
    if not judged.alerts:
        print("  no alerts")
    for detector in sorted({alert.detector for alert in judged.alerts}):
        own = [alert for alert in judged.alerts if alert.detector == detector]
        loud = sum(alert.severity != "info" for alert in own)
        print(f"  {detector}: {counted(len(own), 'alert')}; if this run was sound, "
              f"{judged.per_10k(loud):.2f} false alarms per 10,000 steps")  # fmt: skip
        for alert in own:
            fine = "; somebody said that this was fine" if judged.was_fine(alert) else ""
            print(f"    {_words(alert)}{fine}")


def _words(alert: Alert) -> str:
    subject = f" {alert.subject}" if alert.subject else ""
    lasted = alert.resolved_step is None or alert.resolved_reason == "run_ended"
    end = "to the end" if lasted else f"to step {alert.resolved_step:,}"
    delay = alert.opened_step - alert.onset_step
    causes = alert.evidence.get("causes") or ()
    cause = causes[0]["text"] if causes else "unexplained"
    return (
        f"{alert.severity}{subject}: since step {alert.onset_step:,}, opened {delay:,} steps later,"
        f" {end}; {cause}"
    )


def print_total(judged: list[Judged]) -> None:
    """All runs together."""
    steps = sum(one.steps for one in judged)
    alerts = [alert for one in judged for alert in one.alerts]
    loud = sum(alert.severity != "info" for alert in alerts)
    rate = 10_000.0 * loud / max(steps, 1)
    print(
        f"{counted(len(judged), 'run')}, {counted(steps, 'step')}: {counted(len(alerts), 'alert')},"
        f" {loud} of them warnings or worse ({rate:.2f} per 10,000 steps)"
    )
