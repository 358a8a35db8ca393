"""From the call of a run's page to its first chart, in a real browser, over a store that is full.

    python -m tests.bench.page [--runs 30] [--points 20000] [--times 5] [--folder FOLDER]

``--folder`` keeps the store for the next time. The list of runs is asked for first, right after
the server's start; then the page of a run is opened with an empty cache. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from monitor.storage.engine import open_database
from monitor.storage.migrate import upgrade
from tests.bench.parts.server import Server, serving
from tests.bench.parts.store import fill

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WATCH = """
const seen = (name) => name in window.__seen || (window.__seen[name] = performance.now());
window.__seen = {};
new MutationObserver(() => {
  const has = (name) => document.querySelector(`#c-loss ${name}`) !== null;
  if (has('.stage')) seen('frame');
  if (has('path.quick') || has('path.js-line')) seen('line');
  if (has('path.js-line')) seen('full');
}).observe(document, { childList: true, subtree: true });
"""


def ready(folder: Path, runs: int, points: int) -> None:
    """Fill the store once."""
    if (folder / "watchkeeper.db").exists():
        return
    database = open_database(f"sqlite:///{folder / 'watchkeeper.db'}")
    upgrade(database)
    fill(database, runs, points)
    database.close()


def fetch(server: Server, path: str) -> tuple[float, float, bytes]:
    """Wall and server's processor time of a request, milliseconds, and the answer."""
    cpu, began = server.cpu_s(), time.perf_counter()
    with urllib.request.urlopen(f"http://{server.host}:{server.port}{path}") as answer:
        body = answer.read()
    return (time.perf_counter() - began) * 1e3, (server.cpu_s() - cpu) * 1e3, body


def look(browser: Browser, server: Server, run: str) -> dict[str, float]:
    """Open a run's page with an empty cache: milliseconds until what is there."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(f"http://{server.host}:{server.port}/runs/{run}", wait_until="commit")
    page.locator("#c-loss .stage path.js-line").first.wait_for(state="attached", timeout=60_000)
    found: dict[str, float] = page.evaluate("window.__seen")
    found |= page.evaluate(
        """Object.fromEntries(performance.getEntriesByType('resource')
          .filter((one) => /plotly-|api.v1|run.js/.test(one.name))
          .map((one) => [one.name.replace(/.*(static|v1)./, '').slice(0, 40), one.responseEnd]))"""
    )
    context.close()
    return found


def measure(server: Server, times: int) -> dict[str, Any]:
    wall, cpu, body = fetch(server, "/api/v1/runs?limit=500")
    found: dict[str, Any] = {"list_cold_ms": round(wall), "list_cold_cpu_ms": round(cpu)}
    runs = [one["id"] for one in json.loads(body)["runs"]]
    found |= {"runs": len(runs), "list_bytes": len(body)}
    found["list_warm_ms"] = round(
        statistics.median(fetch(server, "/api/v1/runs?limit=500")[0] for _ in range(times))
    )
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, chromium_sandbox=False, args=["--disable-gpu"]
        )
        looks = [look(browser, server, runs[i % len(runs)]) for i in range(times)]
        browser.close()
    for name in ("frame", "line", "full"):
        found[f"{name}_ms"] = round(statistics.median(one[name] for one in looks))
    found["line_best_ms"] = round(min(one["line"] for one in looks))
    found["resources_ms"] = {k: round(v) for k, v in looks[-1].items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        ready(folder, args.runs, args.points)
        before = round(os.getloadavg()[0], 1)
        with serving(folder) as server:
            found = measure(server, args.times)
    loads = {"load_before": before, "load_after": round(os.getloadavg()[0], 1)}
    sys.stdout.write(json.dumps({"bench": "page", **found, **loads}) + "\n")


if __name__ == "__main__":
    main()
