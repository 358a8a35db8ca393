"""``python -m monitor.cli``: the command line where the ``watchkeeper`` script is not on PATH."""

from __future__ import annotations

import sys

from monitor.cli import main

sys.exit(main())
