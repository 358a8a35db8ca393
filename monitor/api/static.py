"""Files of the dashboard: ours are asked for anew each time and answered "not modified"; the chart
library carries its version in its name and is kept for ever."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import plotly  # type: ignore[import-untyped, unused-ignore]
from fastapi import APIRouter, Request, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PLOTLY_VERSION: str = plotly.__version__
PLOTLY_FILE = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
_YEAR_S = 31_536_000

router = APIRouter(include_in_schema=False)


class Static(StaticFiles):
    """Files with an ETag, asked for anew each time: an upgrade is seen at once."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "no-cache"
        return response


@router.get(f"/static/plotly-{PLOTLY_VERSION}.min.js")
def plotly_script(request: Request) -> Response:
    """plotly.js out of the installed package, packed once."""
    headers = {"cache-control": f"public, max-age={_YEAR_S}, immutable", "vary": "accept-encoding"}
    packed = "gzip" in request.headers.get("accept-encoding", "").lower()
    if packed:
        headers["content-encoding"] = "gzip"
    body = _packed() if packed else PLOTLY_FILE.read_bytes()
    return Response(body, media_type="text/javascript", headers=headers)


@cache
def _packed() -> bytes:
    return gzip.compress(PLOTLY_FILE.read_bytes(), 6, mtime=0)
