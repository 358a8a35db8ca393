"""The answers page in a real browser: pairs and days by keyboard, filters, links, export, text."""

from __future__ import annotations

import csv
import io
import json
import math
import time
import urllib.request
from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.e2e.dashboard_story import BIDI, IMG, SCRIPT, ServerProcess, serving
from trainer_hooks.wire import Answer, AttemptStart, Batch, Frame, Phase, RunStart

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api")

DAY_S = 86_400.0
RUN = "four-days"
NOON = time.time() // DAY_S * DAY_S - 3600.0  # yesterday at 23:00 UTC: today in Kolkata
LINK = "javascript:alert(3)"
FORMULA = '=HYPERLINK("http://x")'
PROMPTS = ("sky", "code", "other", "same", IMG, LINK)


def answer(day: int, prompt: str, text: str, *, nll: float | None = None, **more: Any) -> Answer:
    tokens = [text[i : i + 3] for i in range(0, len(text), 3)]
    return Answer(
        f"day-{day}", prompt, f"h-{prompt}", f"ask {prompt}", text, 100 * (day + 1),
        NOON - DAY_S * (4 - day), token_ids=list(range(len(tokens))), token_texts=tokens,
        token_logprobs=[math.log(0.5)] * len(tokens), stop_reason="end", reference_nll=nll,
        prompt_set_hash="set1", **more,
    )  # fmt: skip


def sampling(day: int) -> list[Answer]:
    """Day by day worse on one prompt, better on another; the third was asked another way last."""
    hot = {"temperature": 0.7} if day == 4 else {}
    return [
        answer(day, "sky", f"the sky is blue {day}", nll=2.0 + 0.5 * day),
        answer(day, "code", f"return items {day}", nll=2.0 - 0.3 * day),
        answer(day, "other", f"one of many {day}", **hot),
        answer(day, "same", "word for word"),
        answer(day, IMG, f"{SCRIPT} {day} {BIDI}"),
        answer(day, LINK, f"{FORMULA if day == 4 else 'plain'}"),
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    """Four days of answers, with none on the third; the loop reported pass@10."""
    with serving(tmp_path_factory.mktemp("answers")) as running:
        start = [RunStart(RUN, time.time(), zone="Asia/Kolkata"), AttemptStart(1, 0, time.time())]
        steps = list(range(1, 501))
        columns: dict[str, Any] = {
            "loss/train": [3.0] * 500,
            "eval/humaneval/pass_at_10": [None] * 499 + [0.25],
            "entropy_minus_nll/probe": [0.1] * 500,
        }
        frame = Frame(steps, [time.time()] * 500, columns)
        records = [*start, *(one for day in (0, 1, 3, 4) for one in sampling(day))]
        records.append(Phase("p1", "sampling", 400, time.time(), 400, time.time()))
        running.post(Batch(RUN, "a1", "s1", 0, time.time(), 500, [frame], records))
        yield running


@pytest.fixture(scope="module")
def browser(browser_launch_args: dict[str, Any]) -> Generator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(**browser_launch_args)
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any, server: ServerProcess) -> Generator[Callable[..., Any]]:
    contexts, complaints = [], []

    def opened(query: str = "", **more: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 1000}, **more})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.goto(f"{server.url}/runs/{RUN}/answers{query}")
        page.wait_for_selector("#pair .text")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def sides(page: Any) -> list[str]:
    return [page.eval_on_selector(f"#{side}", "one => one.value") for side in ("left", "right")]


def wait(page: Any, selector: str, words: str) -> None:
    page.locator(selector).filter(has_text=words).first.wait_for(timeout=10_000)


def test_today_stands_beside_the_day_before_and_any_two_can(open_page: Callable[..., Any]) -> None:
    page = open_page("?prompt=sky")
    assert sides(page) == ["day-3", "day-4"]
    page.select_option("#left", "day-0")
    wait(page, "#pair", "the sky is blue 0")
    assert sides(page) == ["day-0", "day-4"]
    page.wait_for_selector("#strip svg")
    assert "1 day without answers" in page.get_attribute("#strip svg", "aria-label")
    assert "Asia/Kolkata" in page.text_content("#about")


def test_keys_step_through_prompts_and_days(open_page: Callable[..., Any]) -> None:
    page = open_page()
    wait(page, "#prompt", "ask ")
    seen = [page.text_content("#prompt")]
    for _ in range(5):
        page.keyboard.press("n")
        _changed(page, seen[-1])
        seen.append(page.text_content("#prompt"))
    assert set(seen) == {f"ask {prompt}" for prompt in PROMPTS}
    page.keyboard.press("p")
    wait(page, "#prompt", seen[-2])
    page.wait_for_selector("#strip svg")
    page.keyboard.press("[")
    wait(page, "#pair h3", "step 200")
    assert sides(page) == ["day-1", "day-3"]  # over the day that is missing
    page.keyboard.press("]")
    wait(page, "#pair h3", "step 500")
    assert sides(page) == ["day-3", "day-4"]
    page.focus("#left")
    page.keyboard.press("n")  # typed into a field, not at the page
    page.wait_for_timeout(200)
    assert page.text_content("#prompt") == seen[-2]


def _changed(page: Any, before: str) -> None:
    end = time.monotonic() + 10
    while page.text_content("#prompt") == before:
        assert time.monotonic() < end
        page.wait_for_timeout(20)


def test_filters_leave_what_changed_or_got_worse(open_page: Callable[..., Any]) -> None:
    page = open_page()
    names = lambda: [text.strip() for text in page.locator("#list .p").all_text_contents()]  # noqa: E731
    assert set(names()) == {f"ask {prompt}" for prompt in PROMPTS}
    page.click("#filter [data-f=changed]")
    assert "ask same" not in names()
    assert len(names()) == 5
    page.click("#filter [data-f=worse]")
    assert names() == ["ask sky"]
    page.click("#list button")
    wait(page, "#verdict", "Worse: ")
    assert "further from the reference" in page.text_content("#verdict")
    page.click("#filter [data-f=all]")
    page.click("#list button:has-text('ask code')")
    wait(page, "#verdict", "Better: ")
    page.click("#list button:has-text('ask same')")
    wait(page, "#why", "Word for word the same.")


def test_what_is_not_comparable_says_why(open_page: Callable[..., Any]) -> None:
    page = open_page("?prompt=other")
    wait(page, "#verdict", "Not comparable: temperature changed")
    wait(page, "#why", "Not comparable: temperature differ")


def test_the_address_is_a_link_to_what_is_seen(open_page: Callable[..., Any]) -> None:
    page = open_page("?prompt=sky")
    page.select_option("#left", "day-1")
    page.click("#filter [data-f=worse]")
    page.click("#marks [data-m=conf]")
    page.click("#list button")
    wait(page, "#pair", "the sky is blue 1")
    again = open_page(page.url.partition("/answers")[2])
    wait(again, "#pair", "the sky is blue 1")
    assert sides(again) == ["day-1", "day-4"]
    assert again.get_attribute("#filter [data-f=worse]", "aria-pressed") == "true"
    assert again.get_attribute("#marks [data-m=conf]", "aria-pressed") == "true"


def test_export_gives_all_answers_and_no_formula(open_page: Callable[..., Any]) -> None:
    page = open_page()
    links = {
        kind: page.eval_on_selector(f"#export-{kind}", "one => one.href")
        for kind in ("csv", "json")
    }
    with urllib.request.urlopen(links["csv"]) as found:
        rows = list(csv.DictReader(io.StringIO(found.read().decode())))
    assert len(rows) == 4 * len(PROMPTS)
    assert {row["day"] for row in rows if row["sampling"] == "day-4"} == {
        time.strftime("%Y-%m-%d", time.gmtime(NOON + 5.5 * 3600))
    }
    assert "'" + FORMULA in {row["text"] for row in rows}
    assert not [cell for row in rows for cell in row.values() if cell[:1] in tuple("=+@")]
    with urllib.request.urlopen(links["json"]) as found:
        assert FORMULA in {row["text"] for row in json.load(found)["answers"]}


def test_foreign_words_stay_words(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.click("#list button:has-text('onerror')")
    wait(page, "#prompt", IMG)
    assert page.locator("#prompt img, #pair script, #list img").count() == 0
    right = page.locator("#pair .text").nth(1).text_content()
    assert f"{SCRIPT} 4 {BIDI}" in right
    page.click("#list button:has-text('javascript:')")
    wait(page, "#prompt", LINK)
    assert page.locator("#answers a").count() == 0
    assert FORMULA in page.locator("#pair .text").nth(1).text_content()


def test_trends_hold_the_answers_numbers_and_reported_evaluations(
    open_page: Callable[..., Any],
) -> None:
    page = open_page()
    page.wait_for_selector("#trends [data-key='answers/length']")
    wait(page, "#trends h2", "humaneval pass@10")
    assert page.locator("#trends [data-key='entropy_minus_nll/probe']").count() == 1
    page.click("#more-trends summary")
    page.wait_for_selector("#trends-more [data-key='answers/first_token']")
    wait(page, "#trends-more h2", "Ended by themselves")


def test_confidence_is_read_by_pointer_keys_and_ear(open_page: Callable[..., Any]) -> None:
    page = open_page("?prompt=sky")
    wait(page, "#pair", "the sky is blue 4")
    page.hover("#pair > div:nth-child(2) [data-token='1']")
    wait(page, "#conf-note", "confidence 0.500")
    page.focus("#pair > div:nth-child(2) .text")
    page.keyboard.press("ArrowRight")
    wait(page, "#conf-note", "Token 3 of")
    assert "Mean token confidence 0.50" in page.locator("#pair .sr").first.text_content()


def test_a_long_verdict_does_not_widen_a_phone(open_page: Callable[..., Any]) -> None:
    page = open_page(
        "?prompt=sky&left=day-0&right=day-4", viewport={"width": 390, "height": 844}, is_mobile=True
    )
    wait(page, "#verdict", "further from the reference")
    for _ in range(20):
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.wait_for_timeout(50)


def test_a_page_made_narrow_is_never_wider_than_its_screen(open_page: Callable[..., Any]) -> None:
    page = open_page("?prompt=sky&left=day-0&right=day-4", viewport={"width": 800, "height": 844})
    page.wait_for_selector("#trends .chart")
    for width in (700, 560, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
