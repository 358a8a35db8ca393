"""``create_app``: the only place where the parts meet."""

from __future__ import annotations
