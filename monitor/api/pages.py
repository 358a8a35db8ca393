"""The dashboard's pages: templates with nothing in them but the frame; scripts fetch the rest.

Every address in a page is relative (``base`` climbs to the root), so that the dashboard works
under any path a proxy puts it. Adding a page: a template, a script, and one line in ``PAGES``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from fastapi.templating import Jinja2Templates
from starlette.exceptions import HTTPException

from monitor.api.auth import is_reader, tokens_set
from monitor.api.modules import modules_of
from monitor.api.runbook import Runbook, read_runbook
from monitor.api.static import PLOTLY_VERSION
from monitor.errors import NotFound


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
    Page("/settings", "settings", "Settings", "settings"),
    Page("/login", "login", "Sign in"),
)


def pages_router(web: Path, docs: Path) -> APIRouter:
    """All pages."""
    router = APIRouter(include_in_schema=False)
    templates = Jinja2Templates(directory=web / "templates")
    for page in PAGES:
        router.add_api_route(page.path, _show(templates, page), methods=["GET"])
    runbook = Page("/docs/detectors/{name}", "runbook", "Run-book", "alerts")
    router.add_api_route(runbook.path, _show_runbook(templates, runbook, docs), methods=["GET"])
    return router


def needs_login(request: Request) -> None:
    """Send a browser without a session to the login page; that page itself is open.

    Raises:
        HTTPException: a redirect, whose address is relative like all others.
    """
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    if path == "/login" or is_reader(request):
        return
    up = "../" * (path.count("/") - 1) or "./"
    query = urlencode({"next": path.lstrip("/")})
    raise HTTPException(303, headers={"location": f"{up}login?{query}"})


def _context(page: Page, request: Request) -> dict[str, object]:
    return {
        "page": page.template,
        "title": page.title,
        "section": page.section,
        "base": page.base,
        "plotly": PLOTLY_VERSION,
        "modules": modules_of(f"pages/{page.template}.js"),
        "ids": dict(request.path_params),
        "tokens": tokens_set(request),
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
