"""The dashboard's pages: templates with nothing in them but the frame; scripts fetch the rest.

Every address in a page is relative (``base`` climbs to the root), so that the dashboard works
under any path a proxy puts it. Adding a page: a template, a script, and one line in ``PAGES``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import plotly  # type: ignore[import-untyped, unused-ignore]
from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.templating import Jinja2Templates

from monitor.api.runbook import Runbook, read_runbook
from monitor.errors import NotFound

PLOTLY_VERSION: str = plotly.__version__
PLOTLY_FILE = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
_YEAR_S = 31_536_000


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its path, its template under ``pages/`` and which entry of the bar it lights."""

    path: str
    template: str
    title: str
    section: str = ""

    @property
    def base(self) -> str:
        """The way from this page to the root: ``./``, ``../`` or ``../../``."""
        return "../" * (self.path.count("/") - 1) or "./"


PAGES = (
    Page("/", "runs", "Runs", "runs"),
    Page("/runs/{run}", "run", "Run", "runs"),
    Page("/runs/{run}/answers", "answers", "Answers", "answers"),
    Page("/alerts", "alerts", "Alerts", "alerts"),
    Page("/alerts/{alert}", "alert", "Alert", "alerts"),
    Page("/login", "login", "Sign in"),
)


def pages_router(web: Path, docs: Path) -> APIRouter:
    """All pages, and the chart library out of the installed package."""
    router = APIRouter(include_in_schema=False)
    templates = Jinja2Templates(directory=web / "templates")
    for page in PAGES:
        router.add_api_route(page.path, _show(templates, page), methods=["GET"])
    runbook = Page("/docs/detectors/{name}", "runbook", "Run-book", "alerts")
    router.add_api_route(runbook.path, _show_runbook(templates, runbook, docs), methods=["GET"])
    router.add_api_route(f"/static/plotly-{PLOTLY_VERSION}.min.js", _plotly, methods=["GET"])
    return router


def _context(page: Page, request: Request) -> dict[str, object]:
    return {
        "page": page.template,
        "title": page.title,
        "section": page.section,
        "base": page.base,
        "plotly": PLOTLY_VERSION,
        "ids": dict(request.path_params),
        "next": request.query_params.get("next", ""),
        "failed": "failed" in request.query_params,
    }


def _show(templates: Jinja2Templates, page: Page):  # type: ignore[no-untyped-def]
    def show(request: Request) -> HTMLResponse:
        name = f"pages/{page.template}.html"
        return templates.TemplateResponse(request, name, _context(page, request))

    return show


def _show_runbook(templates: Jinja2Templates, page: Page, docs: Path):  # type: ignore[no-untyped-def]
    def show(request: Request, name: str) -> HTMLResponse:
        if not re.fullmatch(r"[a-z0-9_]+", name):
            raise NotFound(f"There is no run-book named {name!r}.")
        book: Runbook = read_runbook(docs / "detectors" / f"{name}.md")
        context = {**_context(page, request), "title": book.title, "book": book}
        return templates.TemplateResponse(request, "pages/runbook.html", context)

    return show


def _plotly() -> FileResponse:
    headers = {"Cache-Control": f"public, max-age={_YEAR_S}, immutable"}
    return FileResponse(PLOTLY_FILE, media_type="text/javascript", headers=headers)
