"""The page in a real browser, without a window: filters, themes and large charts work, nothing is
fetched, and nothing is cut on a phone.

Skipped without playwright's Python package or a browser; FTAX_BROWSER names one to use.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ftax.paper.study_page import describe_study
from ftax.reports.html.page import write_report
from support.report_results import write_results

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE = {"width": 390, "height": 844}


def find_browser(playwright: Any) -> str | None:
    """FTAX_BROWSER, playwright's own Chromium, or one of the system."""
    own = playwright.chromium.executable_path
    found = [os.environ.get("FTAX_BROWSER"), own if Path(own).exists() else None]
    found += [shutil.which(name) for name in NAMES]
    return next((path for path in found if path), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        path = find_browser(playwright)
        if path is None:
            pytest.skip("no browser: install Chromium, or name one in FTAX_BROWSER")
        # Containers run as root, where Chromium's sandbox does not start; the page is our own.
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_results(tmp_path_factory.mktemp("results"))
    target = tmp_path_factory.mktemp("page") / "report.html"
    write_report([folder], target, describe_study=describe_study)
    return target


class Tab:
    """A tab with the report, and what went wrong or out in it."""

    def __init__(self, browser: Any, report: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(report.as_uri())

    def count(self, selector: str) -> int:
        """How many elements there are that can be seen."""
        # A closed <details> is known to the one, a picture that is not displayed to the other.
        seen = "node => node.checkVisibility() && node.getClientRects().length"
        script = f"all => all.filter({seen}).length"
        return int(self.page.eval_on_selector_all(selector, script))


@pytest.fixture
def open_tab(browser: Any, report: Path) -> Iterator[Any]:
    tabs: list[Tab] = []

    def open_one(**options: Any) -> Tab:
        tabs.append(Tab(browser, report, **options))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        tab.context.close()


def test_nothing_is_said_and_nothing_fetched(open_tab, report):
    tab = open_tab()
    tab.page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    assert tab.count("svg.plot[role] use") > 400
    assert tab.count(".bar") > 20
    assert tab.messages == []
    assert tab.requests == [report.as_uri()]
    assert tab.page.evaluate("window.ran") is None


@pytest.mark.parametrize("options", [{"viewport": PHONE, "is_mobile": True}, {}])
def test_a_headline_and_a_chart_are_on_the_first_screen(open_tab, options):
    tab = open_tab(**options)
    height = tab.page.viewport_size["height"]
    for what in (".headline", ".bars"):
        box = tab.page.locator(what).first.bounding_box()
        assert box["y"] + box["height"] <= height, what
    assert tab.page.locator(".headline").inner_text().endswith("is framework tax.")


def test_filters_change_what_is_shown(open_tab):
    tab = open_tab()
    lines, rows = "#latency g.line use", "table.filtered tbody tr"
    tab.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    every, all_rows = tab.count(lines), tab.count(rows)
    tab.page.uncheck("input[name=dtype][value=fp16]")
    some = tab.count(lines)
    assert 0 < some < every
    assert 0 < tab.count(rows) < all_rows
    assert tab.count("#latency > .legend li") < tab.page.locator("#latency > .legend li").count()
    tab.page.uncheck("input[name=runtime][value=eager]")
    assert 0 < tab.count(lines) < some
    tab.page.select_option("#filter-model", "gpt2")
    assert tab.count("#latency figure") == 1
    assert tab.page.inner_text("#measurements .status").endswith("latencies shown.")
    for box in ("torchscript", "cuda-graph", "onnxruntime", "flat"):
        tab.page.uncheck(f"input[name=runtime][value={box}]")
    assert tab.count("#latency figure") == 0
    tab.page.click("#measurements button[type=reset]")
    tab.page.wait_for_function("() => !document.querySelector('#latency figure[hidden]')")
    assert (tab.count(lines), tab.count(rows)) == (every, all_rows)
    assert tab.messages == []


def test_verdicts_can_be_filtered(open_tab):
    tab = open_tab()
    assert tab.count(".verdict") == 2
    tab.page.uncheck("input[name=today][value=holds]")
    assert tab.page.locator(".verdict:not([hidden]) summary").inner_text().startswith("c is flat")
    assert tab.page.inner_text("#claims .status") == "1 of 2 claims shown."
    assert tab.count("#figures figure") > 10  # no figure goes with a verdict


def test_a_chart_says_which_record_the_nearest_mark_is_from(open_tab):
    tab = open_tab()
    tab.page.evaluate("document.getElementById('latency').open = true")
    mark = tab.page.locator("#latency figure use").last
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    tab.page.mouse.move(box["x"] + 9, box["y"] - 4)  # beside it
    tab.page.wait_for_selector("#tip:not([hidden])")
    assert "sweep/cells.jsonl:" in tab.page.inner_text("#tip")
    tab.page.mouse.move(2, 2)
    assert not tab.page.locator("#tip").is_visible()


def test_a_chart_can_be_as_large_as_the_window(open_tab):
    tab = open_tab()
    figure = tab.page.locator("#figures figure").first
    figure.hover()
    small = figure.locator("svg").bounding_box()["width"]
    figure.locator("button").click()
    large = tab.page.locator("dialog svg.plot[role]")
    assert large.bounding_box()["width"] > 2 * small
    large.locator("use").first.hover(force=True)
    assert "measured here" in tab.page.inner_text("dialog #tip")
    tab.page.keyboard.press("Escape")
    assert not large.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_button(open_tab, scheme):
    tab = open_tab(color_scheme=scheme)

    def look() -> tuple[str, str]:
        script = "getComputedStyle(document.body).backgroundColor"
        text = "getComputedStyle(document.querySelector('.across text')).fill"
        return tab.page.evaluate(script), tab.page.evaluate(text)

    light, dark = "rgb(255, 254, 251)", "rgb(22, 24, 27)"
    first = look()
    assert first[0] == (light if scheme == "light" else dark)
    tab.page.click("#theme")
    second = look()
    assert second[0] == (dark if scheme == "light" else light)
    assert first[1] != second[1]  # charts follow
    assert tab.messages == []


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_is_cut_and_nothing_scrolls_sideways(open_tab, width):
    tab = open_tab(viewport={"width": width, "height": 844})
    tab.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    cut = """all => all.filter(node => node.scrollWidth > node.clientWidth)
      .map(node => node.getAttribute('aria-label'))"""
    tables = tab.page.eval_on_selector_all(".scroll", cut)
    # A model whose name is a script leaves its table no room.
    assert [name for name in tables if not name.startswith("Measurements of")] == []
    assert width > 800 or tables == []
    edges = "all => Math.max(...all.map(node => node.getBoundingClientRect().right))"
    assert tab.page.eval_on_selector_all("svg.plot, .track i", edges) <= width


def test_a_link_opens_what_it_leads_to(open_tab):
    tab = open_tab()
    assert tab.count("#records tr") == 0
    tab.page.click("article .ref >> nth=0")
    tab.page.wait_for_function("document.getElementById('records').open")
    assert tab.page.locator("tr:target th").inner_text() == "receipts.jsonl:1"


def test_without_scripts_all_is_there_but_filters(open_tab):
    tab = open_tab(java_script_enabled=False)
    assert tab.page.locator("#receipts .bars").first.is_visible()
    assert tab.page.locator("#figures svg.plot[role]").first.is_visible()
    assert tab.page.locator("#figures use > title").first.text_content()
    assert not tab.page.locator("form").first.is_visible()
    tab.page.click("#numbers ~ details >> nth=0 >> summary")
    assert tab.page.locator("#numbers ~ details >> nth=0 >> table").is_visible()


def test_on_paper_the_page_is_light(open_tab):
    tab = open_tab(color_scheme="dark")
    tab.page.emulate_media(media="print")
    script = "getComputedStyle(document.body).backgroundColor"
    assert tab.page.evaluate(script) == "rgb(255, 254, 251)"
    assert not tab.page.locator("#theme").is_visible()
    tab.page.emulate_media(media="screen")
    assert tab.page.evaluate(script) == "rgb(22, 24, 27)"
