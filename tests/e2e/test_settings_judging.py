"""Detector parameters, silences and own rules on the settings page, in a real browser."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pytest

from tests.e2e.dashboard_story import IMG, ServerProcess, Story, serving

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api")

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 1000}


@pytest.fixture
def house(tmp_path: Any) -> Generator[ServerProcess]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def page(
    house: ServerProcess, browser_launch_args: dict[str, Any], complaints: list[str]
) -> Generator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(**browser_launch_args)
        made = browser.new_page(viewport=DESK, timezone_id="Europe/Amsterdam")
        made.on("pageerror", lambda error: complaints.append(str(error)))
        made.on("dialog", lambda dialog: complaints.append(dialog.message))
        yield made
        browser.close()


def alerts(house: ServerProcess, run: str, open_only: bool = False) -> list[dict[str, Any]]:
    query = f"alerts?run={run}&open=true" if open_only else f"alerts?run={run}"
    return list(house.get(query)["alerts"])


def until_alert(house: ServerProcess, run: str) -> dict[str, Any]:
    end = time.monotonic() + 30
    while not (found := alerts(house, run)):
        assert time.monotonic() < end, "no alert came"
        time.sleep(0.05)
    return found[0]


def test_a_parameter_is_tried_on_stored_runs_and_then_switched_on(
    house: ServerProcess, page: Any, complaints: list[str]
) -> None:
    stale, sound = Story(house, "stale", f"night {IMG}"), Story(house, "sound", "day")
    stale.begin()
    stale.repeat(200, 230)
    sound.begin()
    assert until_alert(house, "stale")["severity"] == "critical"

    page.goto(f"{house.url}/settings")
    page.select_option("#choose-judge select", "stale_data")
    page.fill("#judge-form input[name=batches_bad]", "none")
    page.click("text=Try it on stored runs")
    page.wait_for_selector("#judge-form [role=alert]:not([hidden])")
    assert "batches_bad cannot be 'none'" in page.inner_text("#judge-form [role=alert]")
    assert page.is_disabled("#judge-form >> text=Switch on")

    page.fill("#judge-form input[name=batches_bad]", "5")
    page.fill("#judge-form input[name=repeat_share]", "2")
    page.click("text=Try it on stored runs")
    page.wait_for_selector("[data-run=stale]")
    said = page.inner_text("#judge-form .total")
    assert said == "2 runs: warnings and critical alerts 1 now, 0 with the change."
    row = page.locator("[data-run=stale] td").all_inner_texts()
    assert "critical since step 200" in row[0]
    assert "info since step 200" in row[1]
    assert f"night {IMG}" in page.inner_text("[data-run=stale] th")
    assert page.locator("[data-run=sound] td").all_inner_texts() == ["no alert", "the same"]

    page.click("#judge-form >> text=Switch on")
    page.wait_for_selector("[data-judge=stale_data]")
    assert "repeat_share 2 (shipped: 0.05)" in page.inner_text("[data-judge=stale_data]")
    after = Story(house, "after", "after")
    after.begin()
    after.repeat(200, 230)
    assert until_alert(house, "after")["severity"] == "info"

    house.stop()
    house.start()
    again = Story(house, "again", "again")
    again.begin()
    again.repeat(200, 230)
    assert until_alert(house, "again")["severity"] == "info"
    page.goto(f"{house.url}/settings")
    page.select_option("#choose-judge select", "stale_data")
    assert page.input_value("#judge-form input[name=repeat_share]") == "2"
    page.click("#judge-form button:text-is('As shipped')")
    page.wait_for_selector("text=All detectors judge as shipped")
    assert complaints == []


def test_a_changed_value_must_be_tried_before_it_is_switched_on(
    house: ServerProcess, page: Any, complaints: list[str]
) -> None:
    page.goto(f"{house.url}/settings")
    page.select_option("#choose-judge select", "loss_spike")
    page.click("text=Try it on stored runs")
    page.wait_for_selector("text=No run is stored yet")
    assert page.is_enabled("#judge-form >> text=Switch on")
    page.fill("#judge-form input[name='heat.z']", "7")
    assert page.is_disabled("#judge-form >> text=Switch on")
    page.set_viewport_size(PHONE)
    for name in page.eval_on_selector_all(
        "#choose-judge option", "all => all.map(one => one.value).filter(Boolean)"
    ):
        page.select_option("#choose-judge select", name)
        unnamed = page.eval_on_selector_all(
            "#judge-form input", "all => all.filter(one => !one.labels.length).length"
        )
        assert unnamed == 0, name
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
    assert complaints == []


def test_a_silence_by_the_week_and_one_for_once(
    house: ServerProcess, page: Any, complaints: list[str]
) -> None:
    page.goto(f"{house.url}/settings")
    page.wait_for_selector("text=Nothing is silenced")
    page.click("text=Add a silence")
    assert page.input_value("#new-silence input[name=zone]") == "Europe/Amsterdam"
    page.click("#new-silence button[type=submit]")
    page.wait_for_selector("#new-silence [role=alert]:not([hidden])")
    page.fill("#new-silence input[name=begin]", "22:00")
    page.fill("#new-silence input[name=end]", "07:00")
    page.check("#new-silence input[name=days][value='5']")
    page.fill("#new-silence input[name=comment]", f"weekend {IMG}")
    page.click("#new-silence button[type=submit]")
    page.wait_for_selector("[data-silence]")
    shown = page.inner_text("[data-silence]")
    assert "22:00\u201307:00, Sat, Europe/Amsterdam" in shown
    assert f"weekend {IMG}" in shown
    (held,) = house.get("silences")["silences"]
    assert (held["zone"], held["days"], held["begin"]) == ("Europe/Amsterdam", [5], "22:00")

    page.click("text=Add a silence")
    page.select_option("#new-silence select[name=kind]", "once")
    page.fill("#new-silence input[name=from]", "2030-03-31T01:00")
    page.fill("#new-silence input[name=to]", "2030-03-31T04:00")
    page.fill("#new-silence input[name=run]", "stale")
    page.click("#new-silence button[type=submit]")
    page.wait_for_selector("text=run stale")
    once = next(one for one in house.get("silences")["silences"] if one["run"] == "stale")
    assert once["ends_at"] - once["starts_at"] == 2 * 3600  # the clocks go forward that night
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for _ in range(2):
        page.click("#silences button >> nth=0")
        page.wait_for_timeout(200)
    page.wait_for_selector("text=Nothing is silenced")
    assert complaints == []


def test_a_rule_of_ones_own_from_its_form_to_its_alert(
    house: ServerProcess, page: Any, complaints: list[str]
) -> None:
    page.goto(f"{house.url}/settings")
    assert "not set: anybody" in page.inner_text("text=WATCHKEEPER_READ_TOKEN >> xpath=../..")
    page.click("text=Add a rule")
    page.click("#new-rule button[type=submit]")
    page.wait_for_selector("#new-rule [role=alert]:not([hidden])")
    page.fill("#new-rule input[name=series]", "loss/train")
    page.fill("#new-rule input[name=value]", "1.5")
    page.fill("#new-rule input[name=clear]", "1.4")
    page.fill("#new-rule input[name=name]", f"too high {IMG}")
    page.click("#new-rule button[type=submit]")
    page.wait_for_selector("[data-rule]")
    shown = page.inner_text("[data-rule]")
    assert f"too high {IMG}" in shown
    assert "warning when it is above 1.50, calm again below 1.40; all runs" in shown
    story = Story(house, "ruled", "ruled")
    story.begin(last=20)
    opened = until_alert(house, "ruled")
    assert (opened["detector"], opened["title"]) == ("user_rule", f"too high {IMG}")
    page.click("[data-rule] >> text=Switch off")
    page.wait_for_selector("[data-rule] .tag.done")
    end = time.monotonic() + 20
    while alerts(house, "ruled", open_only=True):
        assert time.monotonic() < end, "the alert of a rule that is off stays open"
        time.sleep(0.1)
    page.set_viewport_size(PHONE)
    page.click("text=Add a rule")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.click("[data-rule] >> text=Delete")
    page.wait_for_selector("text=No rule of your own yet")
    assert complaints == []
