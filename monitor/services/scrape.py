"""What Prometheus is shown: live runs' newest values, open alerts, and the server's own health.

A custom collector over the store: nothing is kept between scrapes, so a run that ended leaves by
itself. Labels are run, signal, group and source only, and there is a hard cap on samples, said by
``watchkeeper_scrape_truncated``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from monitor.clock import Clock, wall_s
from monitor.domain.run import LIVE_STATES, Run
from monitor.errors import WatchkeeperError
from monitor.services.latest import Latest
from monitor.services.workers import Health
from monitor.storage.base import Database, UnitOfWork

LARGEST_SCRAPE = 2_000
NEWEST_RUNS = 50
LEAVES_AFTER_S = 300.0
LONGEST_LABEL = 200
_log = logging.getLogger("monitor.scrape")


@dataclass(slots=True)
class Scrape:
    """The collector. ``workers`` tells how the process's own threads are."""

    database: Database
    latest: Latest
    workers: Callable[[], Iterable[Health]]
    streams: Callable[[], int]
    clock: Clock = wall_s
    version: str = ""

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body, and the media type it is written in, for an Accept header."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Once(list(self.collect())))
        encoder, content_type = choose_encoder(accept)
        return encoder(registry), content_type

    def collect(self) -> Iterator[Metric]:
        """All metrics of one scrape. While the database is away the process speaks for itself."""
        build = GaugeMetricFamily("watchkeeper_build", "The program.", labels=["version"])
        build.add_metric([self.version], 1)
        yield build
        up = GaugeMetricFamily("watchkeeper_database_up", "1 if the database answers.")
        try:
            with self.database.read() as uow:
                metrics = [*self._runs(uow), *self._alerts(uow), *self._queues(uow)]
        except WatchkeeperError as error:
            _log.warning("scrape: %s", error.detail)
            metrics = []
            up.add_metric([], 0)
        else:
            up.add_metric([], 1)
        yield up
        yield from metrics
        yield from self._process()

    def _runs(self, uow: UnitOfWork) -> Iterator[Metric]:
        now = self.clock()
        runs = [r for r in uow.runs.live() if r.state != "lost" or _fresh(r, now)]
        state = GaugeMetricFamily("watchkeeper_runs", "Live runs by state.", labels=["state"])
        for name in sorted(LIVE_STATES):
            state.add_metric([name], sum(run.state == name for run in runs))
        yield state
        yield from _facts(runs)
        yield from self._signals(uow, runs)

    def _signals(self, uow: UnitOfWork, runs: list[Run]) -> Iterator[Metric]:
        values = GaugeMetricFamily(
            "watchkeeper_signal",
            "Newest value of each series of live runs.",
            labels=["run", "signal", "group", "source"],
        )
        samples = self._samples(uow, runs)
        for labels, value in islice(samples, LARGEST_SCRAPE):
            values.add_metric(labels, value)
        truncated = int(next(samples, None) is not None)
        yield values
        cut = GaugeMetricFamily(
            "watchkeeper_scrape_truncated", f"1 if more than {LARGEST_SCRAPE} series were live."
        )
        cut.add_metric([], truncated)
        yield cut

    def _samples(
        self, uow: UnitOfWork, runs: Iterable[Run]
    ) -> Iterator[tuple[tuple[str, ...], float]]:
        """Labels and newest value of every series; runs nobody gets to are not looked at."""
        for run in runs:
            recent = self.latest.of(uow, run.id).values
            for series in uow.series.all(run.id):
                last = recent.get(series.key)
                if last is not None:
                    names = (run.id, series.name, series.group, series.source)
                    yield tuple(name[:LONGEST_LABEL] for name in names), last.value

    def _alerts(self, uow: UnitOfWork) -> Iterator[Metric]:
        counts: dict[tuple[str, str, str], int] = {}
        for alert in uow.alerts.find(open_only=True, run=None, limit=LARGEST_SCRAPE):
            key = (alert.detector, alert.severity, str(alert.state))
            counts[key] = counts.get(key, 0) + 1
        metric = GaugeMetricFamily(
            "watchkeeper_alerts_open",
            "Open alerts.",
            labels=["detector", "severity", "state"],
        )
        for key, count in sorted(counts.items()):
            metric.add_metric(list(key), count)
        yield metric

    def _queues(self, uow: UnitOfWork) -> Iterator[Metric]:
        outbox = GaugeMetricFamily("watchkeeper_outbox", "Messages by state.", labels=["state"])
        for state, count in sorted(uow.outbox.counts().items()):
            outbox.add_metric([state], count)
        yield outbox
        oldest = uow.outbox.oldest_waiting()
        age = GaugeMetricFamily(
            "watchkeeper_outbox_oldest_seconds", "Age of the oldest message not yet delivered."
        )
        age.add_metric([], 0.0 if oldest is None else max(0.0, self.clock() - oldest))
        yield age
        lag = GaugeMetricFamily(
            "watchkeeper_reader_lag_entries",
            "Log entries of live and of the newest runs that a reader has not worked off.",
            labels=["reader"],
        )
        for reader, entries in sorted(_lags(uow).items()):
            lag.add_metric([reader], entries)
        yield lag

    def _process(self) -> Iterator[Metric]:
        failures = GaugeMetricFamily(
            "watchkeeper_worker_failures", "Failed rounds in a row.", labels=["worker"]
        )
        last = GaugeMetricFamily(
            "watchkeeper_worker_round_seconds", "Time of the last round.", labels=["worker"]
        )
        rounds = CounterMetricFamily("watchkeeper_worker_rounds", "Rounds done.", labels=["worker"])
        for health in self.workers():
            failures.add_metric([health.name], health.failures)
            last.add_metric([health.name], health.last_round_s)
            rounds.add_metric([health.name], health.rounds)
        streams = GaugeMetricFamily("watchkeeper_streams", "Open live streams.")
        streams.add_metric([], self.streams())
        yield from (failures, last, rounds, streams)


@dataclass(frozen=True, slots=True, eq=False)
class _Once:
    """A collector that was asked already."""

    metrics: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _fresh(run: Run, now: float) -> bool:
    return now - run.last_seen_at < LEAVES_AFTER_S


def _facts(runs: Iterable[Run]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "watchkeeper_run", "A live run.", labels=["run", "name", "kind", "state"]
    )
    seen = GaugeMetricFamily(
        "watchkeeper_last_report_timestamp_seconds",
        "When something of the run arrived last.",
        labels=["run"],
    )
    step = GaugeMetricFamily("watchkeeper_last_step", "Last step of the run.", labels=["run"])
    for run in runs:
        info.add_metric([run.id, run.name[:LONGEST_LABEL], run.kind, run.state], 1)
        seen.add_metric([run.id], run.last_seen_at)
        if run.last_step is not None:
            step.add_metric([run.id], run.last_step)
    yield from (info, seen, step)


def _lags(uow: UnitOfWork) -> dict[str, int]:
    lags: dict[str, int] = {"detection": 0, "sealer": 0}
    # A run that has just ended still has its last entries judged.
    newest = uow.runs.find(states=None, text="", limit=NEWEST_RUNS, before=None)
    runs = {run.id for run in (*uow.runs.live(), *newest)}
    for run in runs:
        head = uow.log.head(run)
        positions = uow.readers.positions(run)
        for reader in lags:
            lags[reader] += max(0, head - positions.get(reader, 0))
    return lags
