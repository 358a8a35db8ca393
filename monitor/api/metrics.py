"""For Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from monitor.api.auth import Reading
from monitor.api.deps import ScrapePart

router = APIRouter(tags=["metrics"], dependencies=[Reading])


@router.get("/metrics", responses={200: {"content": {"text/plain": {}}}})
def metrics(request: Request, scrape: ScrapePart) -> Response:
    """Text 0.0.4, or OpenMetrics where asked for."""
    body, media_type = scrape.render(request.headers.get("accept", ""))
    return Response(body, headers={"content-type": media_type})
