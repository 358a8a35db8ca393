"""All routes. Adding one: a file with a ``router``, and a line here."""

from __future__ import annotations

from fastapi import APIRouter

from monitor.api import (
    alerts,
    answers,
    auth,
    channels,
    detectors,
    health,
    incidents,
    ingest,
    metrics,
    points,
    rules,
    runs,
    silences,
    static,
    stream,
)

ROUTERS: tuple[APIRouter, ...] = (
    ingest.router,
    runs.router,
    points.router,
    alerts.router,
    incidents.router,
    silences.router,
    rules.router,
    detectors.router,
    answers.router,
    channels.router,
    stream.router,
    metrics.router,
    health.router,
    auth.router,
    static.router,
)
