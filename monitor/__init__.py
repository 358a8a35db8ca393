"""The server: ingest stores once, detectors judge, alerts change state, the outbox tells."""

from __future__ import annotations

__version__ = "0.1.0"
