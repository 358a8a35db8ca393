"""The dashboard in a real headless browser against a real server process."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.dashboard_story import BIDI, HOSTILE, IMG, SCRIPT, ServerProcess, Story, serving

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api")

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 1000}
DRAWN = """(step) => {
  const plot = document.querySelector('#c-loss .js-plotly-plot');
  return !!plot && plot.data.some((line) => Math.max(...line.x) >= step);
}"""


@dataclass(slots=True)
class Watched:
    """What a page did that it must not do."""

    offsite: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def nothing(self) -> None:
        assert not self.offsite
        assert not self.complaints
        assert not self.dialogs


@pytest.fixture(scope="module")
def browser(browser_launch_args: dict[str, Any]) -> Generator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(**browser_launch_args)
        yield found
        found.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("dashboard")) as running:
        yield running


@pytest.fixture(scope="module")
def alert(server: ServerProcess) -> str:
    """A run with hostile names and an open alert; the alert's id."""
    story = Story(server, "told", f"told {IMG}")
    story.begin()
    story.sample(100, {"Why?": "the sea is blue", IMG: f"{SCRIPT} one"})
    story.sample(150, {"Why?": "the sky is blue", IMG: f"{SCRIPT} two {BIDI}"})
    story.repeat(200, 240)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = server.get("alerts?run=told&open=true")["alerts"]
        if found:
            return str(found[0]["id"])
        time.sleep(0.2)
    pytest.fail("no alert was opened")


Opener = Callable[..., tuple[Any, Watched]]


@pytest.fixture
def open_page(browser: Any, server: ServerProcess) -> Generator[Opener]:
    contexts = []

    def opened(path: str, at: ServerProcess = server, **more: Any) -> tuple[Any, Watched]:
        context = browser.new_context(**{"viewport": DESK, **more})
        contexts.append(context)
        page, seen = context.new_page(), Watched()
        page.on("request", lambda r: _note_offsite(seen, at.url, r.url))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("console", lambda m: m.type == "error" and seen.complaints.append(m.text))
        page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
        page.goto(at.url + path)
        return page, seen

    yield opened
    for context in contexts:
        context.close()


def until(page: Any, script: str, argument: Any = None, wait_s: float = 10.0) -> None:
    """Ask the page until it says yes; its policy forbids what playwright would wait by."""
    end = time.monotonic() + wait_s
    while not page.evaluate(script, argument):
        assert time.monotonic() < end, f"not within {wait_s} s: {script} {argument}"
        page.wait_for_timeout(20)


def _note_offsite(seen: Watched, base: str, url: str) -> None:
    if not url.startswith((base + "/", "data:", "blob:")):
        seen.offsite.append(url)


def paths(alert: str) -> dict[str, str]:
    """Every page, with what it holds once it is there."""
    return {
        "/": "#live table",
        "/runs/told": "#c-loss .js-plotly-plot",
        "/runs/told/answers": "#pair .text",
        "/alerts": "#alerts h2",
        f"/alerts/{alert}": "#judged .js-plotly-plot",
        "/settings": "#channels li",
        "/login": "#token",
    }


def test_every_page_loads_from_here_alone_and_holds_foreign_words_as_text(
    open_page: Opener, alert: str
) -> None:
    for path, what in paths(alert).items():
        page, seen = open_page(path, color_scheme="light")
        page.wait_for_selector(what, state="attached", timeout=10_000)
        if path == "/runs/told":
            page.click("[data-family=other] summary")
            page.wait_for_selector("[data-family=other] .stage:not(.waiting)")
            page.locator("#rail").scroll_into_view_if_needed()
            page.locator("#rail").click(position={"x": 700, "y": 50})
        page.emulate_media(color_scheme="dark")
        page.wait_for_timeout(200)
        assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
        seen.nothing()


def test_no_address_starts_at_the_root(server: ServerProcess, alert: str) -> None:
    for path in paths(alert):
        with urllib.request.urlopen(server.url + path, timeout=10) as answer:
            html = answer.read().decode()
            policy = answer.headers["content-security-policy"]
        assert not re.search(r"""(?:href|src|action)=["']/""", html), path
        assert " style=" not in html
        assert "unsafe-inline" not in policy
        assert "unsafe-eval" not in policy


def test_a_logged_step_is_drawn_within_two_seconds(
    open_page: Opener, server: ServerProcess
) -> None:
    story = Story(server, "live", "live")
    story.begin()
    page, seen = open_page("/runs/live")
    until(page, DRAWN, 199)
    page.wait_for_selector("#link[data-state=live]", timeout=5_000)
    page.focus("#vitals a:nth-of-type(3)")
    waits = []
    for step in range(200, 206):
        page.wait_for_timeout(700)
        logged = time.monotonic()
        story.send([step])
        until(page, DRAWN, step)
        waits.append(time.monotonic() - logged)
    assert max(waits) <= 2.0, waits
    until(page, "() => document.querySelector('#four').textContent.includes('205')")
    assert page.evaluate("document.activeElement.matches('#vitals a:nth-of-type(3)')")
    seen.nothing()


def test_what_an_alert_costs_grows_while_the_run_goes_on(
    open_page: Opener, server: ServerProcess
) -> None:
    """The alert comes once, when it opens; its cost must not stay that of its first moment."""
    story = Story(server, "dear", "dear")
    story.begin()
    page, seen = open_page("/runs/dear")
    page.wait_for_selector("#link[data-state=live]", timeout=5_000)
    story.repeat(200, 240)
    seconds = r"""() => {
      const said = document.querySelector('#four').textContent;
      return Number((said.match(/Spent since onset.*?([\d.]+) s/) ?? [])[1]);
    }"""
    until(page, f"() => ({seconds})() > 0")
    first = page.evaluate(seconds)
    for step in range(241, 253):
        page.wait_for_timeout(1_000)
        story.repeat(step, step)
    until(page, f"(least) => ({seconds})() >= least", first + 6)
    shown = server.get("alerts?run=dear&open=true")["alerts"][0]
    assert abs(shown["hours_since_onset"] * 3600 - page.evaluate(seconds)) <= 8
    seen.nothing()


def test_acknowledge(open_page: Opener, server: ServerProcess, alert: str) -> None:
    page, seen = open_page("/runs/told")
    page.click("#do button:has-text('Acknowledge')")
    end = time.monotonic() + 10
    while server.get(f"alerts/{alert}")["state"] != "acknowledged":
        assert time.monotonic() < end
        time.sleep(0.1)
    page.wait_for_selector("#do button:has-text('Acknowledge')", state="detached", timeout=5_000)
    page, seen_too = open_page(f"/alerts/{alert}")
    page.wait_for_selector("#text:has-text('acknowledged by dashboard')", timeout=5_000)
    seen.nothing()
    seen_too.nothing()


def test_hostile_answers_are_text(open_page: Opener, alert: str) -> None:
    page, _ = open_page("/runs/told/answers")
    page.wait_for_selector("#pair .text")
    page.keyboard.press("n")
    shown = page.wait_for_selector(f"#prompt:has-text('{IMG}')").text_content()
    assert shown == IMG
    right = page.locator("#pair .text").nth(1).text_content()
    assert all(word in right for word in (SCRIPT, BIDI))
    assert len(HOSTILE) == 3


def test_a_phone_needs_no_sideways_scroll(open_page: Opener, alert: str) -> None:
    for path, what in paths(alert).items():
        page, _ = open_page(path, viewport=PHONE, has_touch=True, is_mobile=True)
        here = what.replace(".js-plotly-plot", ".stage")  # what is out of sight is not drawn
        page.wait_for_selector(here, state="attached")
        page.wait_for_timeout(200)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE["width"], (path, wide)
        if path != "/login":
            bar = page.locator(".nav").bounding_box()
            assert bar["y"] + bar["height"] >= PHONE["height"] - 2


def test_the_keyboard_reaches_everything(open_page: Opener, alert: str) -> None:
    page, _ = open_page("/runs/told")
    page.wait_for_selector("#c-loss .js-plotly-plot")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        place = "document.activeElement.closest('[id]')?.id + ' ' + document.activeElement.tagName"
        reached.add(page.evaluate(place))
    assert {"theme SELECT", "xaxis BUTTON", "c-loss DIV"} <= reached
    page.focus("#c-loss .stage")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#c-loss .out").text_content().startswith("at ")
    page.keyboard.press("Enter")
    assert "Near step" in page.locator("#near").text_content()


def test_zoom_fetches_finer_points_and_log_draws(open_page: Opener, alert: str) -> None:
    page, seen = open_page("/runs/told")
    page.wait_for_selector("#c-loss .js-plotly-plot")
    page.locator("#c-loss .stage").scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    box = page.locator("#c-loss .stage").bounding_box()
    with page.expect_request(lambda r: "from_step=" in r.url):
        page.mouse.move(box["x"] + 100, box["y"] + 80)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 80, steps=4)
        page.mouse.up()
    page.dblclick("#c-loss .stage")
    page.click("#yaxis [data-log='1']")
    page.click("#xaxis [data-x=clock]")
    page.wait_for_timeout(300)
    seen.nothing()


def test_colours_are_chosen_and_kept(open_page: Opener) -> None:
    page, _ = open_page("/", color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.select_option("#theme", "dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    assert light != dark
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_cut_off_says_so_and_comes_back_whole(
    open_page: Opener, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with serving(tmp_path_factory.mktemp("cut")) as server:
        story = Story(server, "cut", "cut")
        story.begin()
        page, _ = open_page("/runs/cut", at=server)
        until(page, DRAWN, 199)
        page.wait_for_selector("#link[data-state=live]", timeout=5_000)
        server.stop()
        page.wait_for_selector("body.cut #cut-banner:not([hidden])", timeout=15_000)
        assert page.locator("#sentence").text_content().startswith("As of ")
        server.start()
        story.send([200, 201, 202])
        # On a slow machine it has found back by itself before anybody could press.
        page.evaluate("document.querySelector('#cut-banner:not([hidden]) a')?.click()")
        page.wait_for_selector("body:not(.cut)", timeout=40_000)
        until(page, DRAWN, 202)
        line = "document.querySelector('#c-loss .js-plotly-plot').data.at(-1)"
        steps = page.evaluate(f"{line}.x.filter((_, i) => {line}.y[i] !== null)")
        assert sorted(set(steps)) == list(range(203))
        assert len(steps) == 203


def test_a_fresh_server_says_what_to_paste(
    open_page: Opener, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with serving(tmp_path_factory.mktemp("fresh")) as server:
        page, seen = open_page("/", at=server)
        page.wait_for_selector("#first-use:not([hidden])", timeout=5_000)
        assert "from trainer_hooks import watch" in page.locator("#paste").text_content()
        Story(server, "first", "first").begin(20)
        page.wait_for_selector("#live table", timeout=10_000)
        seen.nothing()
