"""The page in a real browser, without a window: charts are drawn, filters and themes work, nothing
is fetched, and a phone has nothing to scroll sideways.

Skipped without playwright's Python package or a browser; FTAX_BROWSER names one to use.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ftax.reports.html.page import write_report
from support.report_results import write_results

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE = {"width": 375, "height": 740}


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
    write_report([folder], target)
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

    def show_all(self) -> None:
        """Bring each chart into view, so that it is drawn as it is now."""
        for chart in self.page.query_selector_all("figure:not([hidden]) [data-chart]"):
            chart.scroll_into_view_if_needed()
            self.page.wait_for_function("place => place.dataset.state === 'drawn'", arg=chart)

    def count(self, selector: str) -> int:
        """How many elements there are that can be seen."""
        script = "all => all.filter(node => node.checkVisibility()).length"
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


def test_charts_are_drawn_without_a_message_and_without_network(open_tab, report):
    tab = open_tab()
    tab.show_all()
    kinds = tab.page.eval_on_selector_all("[data-chart]", "all => all.map(n => n.dataset.chart)")
    assert set(kinds) == {"ladder", "runtimes", "latency", "overhead", "work", "knee"}
    for kind in set(kinds):
        marks = "path.point" if kind != "ladder" else "g.point path"
        assert tab.count(f"[data-chart={kind}] {marks}, [data-chart={kind}] g.point path") > 0, kind
    assert tab.messages == []
    assert tab.requests == [report.as_uri()]
    assert tab.page.evaluate("window.ran") is None


def test_latencies_have_whiskers(open_tab):
    tab = open_tab()
    tab.show_all()
    assert tab.count("[data-chart=latency] g.errorbar path") > 100
    assert tab.count("[data-chart=ladder] g.errorbar path") > 5


def test_filters_change_what_is_drawn(open_tab):
    tab = open_tab()
    tab.show_all()
    drawn = "[data-chart=latency] path.point"
    everything, rows = tab.count(drawn), tab.page.locator("#numbers ~ details tr:not([hidden])")
    all_rows = rows.count()
    tab.page.uncheck("input[name=dtype][value=fp16]")
    tab.show_all()
    some = tab.count(drawn)
    assert 0 < some < everything
    assert rows.count() < all_rows
    tab.page.uncheck("input[name=runtime][value=eager]")
    tab.show_all()
    assert 0 < tab.count(drawn) < some
    tab.page.select_option("#filter-model", "gpt2")
    assert tab.count("[data-chart=latency]") == 1
    assert "latencies shown" in tab.page.inner_text("#shown")
    for box in ("torchscript", "cuda-graph", "onnxruntime", "flat"):
        tab.page.uncheck(f"input[name=runtime][value={box}]")
    tab.show_all()
    assert tab.count(drawn) == 0
    tab.page.click("#filters button[type=reset]")
    tab.show_all()
    assert tab.count(drawn) == everything
    assert tab.messages == []


def test_a_chart_says_which_record_a_point_is_from(open_tab):
    tab = open_tab()
    tab.show_all()
    points = tab.page.locator("[data-chart=latency] path.point")
    points.last.scroll_into_view_if_needed()
    points.last.hover(force=True)
    tab.page.wait_for_selector("g.hovertext")
    assert "sweep/cells.jsonl:" in tab.page.locator("g.hovertext").first.text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_button(open_tab, scheme):
    tab = open_tab(color_scheme=scheme)
    tab.show_all()

    def look() -> tuple[str, str]:
        script = "getComputedStyle(document.body).backgroundColor"
        text = "getComputedStyle(document.querySelector('.xtick text')).fill"
        return tab.page.evaluate(script), tab.page.evaluate(text)

    light, dark = "rgb(255, 254, 251)", "rgb(22, 24, 27)"
    first = look()
    assert first[0] == (light if scheme == "light" else dark)
    tab.page.click("#theme")
    tab.show_all()
    second = look()
    assert second[0] == (dark if scheme == "light" else light)
    assert first[1] != second[1]  # charts follow
    assert tab.messages == []


@pytest.mark.parametrize("opened", [False, True])
def test_a_phone_has_nothing_to_scroll_sideways(open_tab, opened):
    tab = open_tab(viewport=PHONE, has_touch=True, is_mobile=True)
    tab.show_all()
    if opened:
        tab.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    widths = tab.page.eval_on_selector_all(
        "svg.main-svg", "all => all.map(svg => svg.getBoundingClientRect().right)"
    )
    assert max(widths) <= PHONE["width"]


def test_a_link_opens_what_it_leads_to(open_tab):
    tab = open_tab()
    assert tab.count("#records tr") == 0
    tab.page.click("article .ref >> nth=0")
    tab.page.wait_for_function("document.getElementById('records').open")
    assert tab.page.locator("tr:target").get_attribute("data-record") == "receipts.jsonl:1"


def test_without_scripts_the_tables_are_there(open_tab):
    tab = open_tab(java_script_enabled=False)
    assert tab.page.locator("text=Charts need scripts").is_visible()
    assert tab.page.locator("#receipts table").first.is_visible()
    assert not tab.page.locator("#filters").is_visible()
    assert not tab.page.locator("[data-chart]").first.is_visible()
    tab.page.click("#numbers ~ details >> nth=0 >> summary")
    assert tab.page.locator("#numbers ~ details >> nth=0 >> table").is_visible()


def test_on_paper_the_page_is_light_and_every_chart_is_drawn(open_tab):
    tab = open_tab(color_scheme="dark")
    tab.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    tab.page.emulate_media(media="print")
    script = "getComputedStyle(document.body).backgroundColor"
    assert tab.page.evaluate(script) == "rgb(255, 254, 251)"
    assert tab.page.evaluate(
        "[...document.querySelectorAll('[data-chart]')].every(n => n.querySelector('svg'))"
    )
    assert not tab.page.locator("#theme").is_visible()
    tab.page.emulate_media(media="screen")
    tab.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert tab.page.evaluate(script) == "rgb(22, 24, 27)"
