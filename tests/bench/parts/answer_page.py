"""The answers page over a full store, in a real browser: how soon, and how much is sent."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser, sync_playwright

from monitor.domain.diff import word_diff
from monitor.storage.engine import open_database
from monitor.storage.migrate import upgrade
from tests.bench.parts.answer_store import DAYS, LONG, RUN, fill_answers
from tests.bench.parts.server import Server, serving

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WATCH = """
window.__seen = {};
const seen = (name) => name in window.__seen || (window.__seen[name] = performance.now());
new MutationObserver(() => {
  if (document.querySelector('#list button')) seen('list');
  if (document.querySelector('#pair .text .tok')) seen('pair');
  if (document.querySelector('#trends .js-line, #trends path.js-line')) seen('trends');
}).observe(document, { childList: true, subtree: true });
"""


def ready(folder: Path) -> None:
    """Fill the store once."""
    if (folder / "watchkeeper.db").exists():
        return
    database = open_database(f"sqlite:///{folder / 'watchkeeper.db'}")
    upgrade(database)
    fill_answers(database)
    database.close()


def page_figures(folder: Path, times: int) -> dict[str, Any]:
    """First content (ms), what a first visit is sent (KB), and what a long diff takes (ms)."""
    ready(folder)
    with serving(folder) as server, sync_playwright() as playwright:
        fetch(server, "/api/v1/runs")
        diff_s, texts = long_pair(server, times)
        browser = playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, BROWSERS)), None),
            chromium_sandbox=False,
            args=["--disable-gpu"],
        )
        before = server.cpu_s()
        looks = [look(browser, server) for _ in range(times)]
        page_cpu_ms = 1e3 * (server.cpu_s() - before) / times
        browser.close()
    middle = {name: statistics.median(one[name] for one in looks) for name in looks[0]}
    return {
        "page_ms": round(middle["pair"]),
        "list_ms": round(middle["list"]),
        "trends_ms": round(middle["trends"]),
        "page_server_cpu_ms": round(page_cpu_ms),
        "page_kb": round(middle["kb"]),
        "drawing_library_kb": round(middle["library_kb"]),
        "diff_ms": round(1e3 * alone_s(*texts), 1),
        "long_pair_server_cpu_ms": round(1e3 * diff_s),
        "load": round(os.getloadavg()[0], 1),
    }


def long_pair(server: Server, times: int) -> tuple[float, tuple[str, str]]:
    """Server's processor time for the pair of 2 x 64 KiB (s), and its texts."""
    left, right = f"day-{DAYS - 2:02}", f"day-{DAYS - 1:02}"
    path = f"/api/v1/runs/{RUN}/answers?left={left}&right={right}&prompt={quote(LONG)}"
    spent = []
    for _ in range(times):
        before = server.cpu_s()
        body = fetch(server, path)
        spent.append(server.cpu_s() - before)
    (pair,) = json.loads(body)["pairs"]
    return statistics.median(spent), (pair["left"]["text"], pair["right"]["text"])


def alone_s(left: str, right: str) -> float:
    """Processor time of the diff by itself: the best of five."""
    spent = []
    for _ in range(5):
        before = time.process_time()
        word_diff(left, right)
        spent.append(time.process_time() - before)
    return min(spent)


def fetch(server: Server, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{server.host}:{server.port}{path}", timeout=120) as said:
        body: bytes = said.read()
    return body


def look(browser: Browser, server: Server) -> dict[str, float]:
    """Open the page with an empty cache: ms until what is there, and kilobytes over the wire."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")
    names: dict[str, str] = {}
    sizes: dict[str, float] = {}
    wire.on(
        "Network.responseReceived", lambda e: names.update({e["requestId"]: e["response"]["url"]})
    )
    wire.on(
        "Network.loadingFinished", lambda e: sizes.update({e["requestId"]: e["encodedDataLength"]})
    )
    page.add_init_script(WATCH)
    page.goto(f"http://{server.host}:{server.port}/runs/{RUN}/answers", wait_until="commit")
    page.locator("#pair .text .tok").first.wait_for(state="attached", timeout=60_000)
    page.locator("#trends path.js-line").first.wait_for(state="attached", timeout=60_000)
    page.wait_for_timeout(300)
    found: dict[str, float] = page.evaluate("window.__seen")
    library = sum(size for one, size in sizes.items() if "plotly" in names.get(one, ""))
    context.close()
    return found | {
        "kb": (sum(sizes.values()) - library) / 1000,
        "library_kb": library / 1000,
    }
