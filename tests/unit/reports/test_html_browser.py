"""Both pages in a real browser, without a window: filters, themes, large charts, flame graphs and
timelines work, nothing is fetched, and nothing is cut on a phone.

Skipped without playwright's Python package or a browser; FTAX_BROWSER names one to use.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ftax_run.account import Event
from ftax_run.page import write_page

from ftax.paper.study_page import describe_study
from ftax.reports.html.page import write_report
from support.report_results import write_results
from support.watched_programs import make_account, make_host

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


@pytest.fixture(scope="module")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two processes, one of which has a device that idles for 40 of 100 us."""
    account = make_account()
    (process,) = account.processes
    long = "long" * 60  # as kernels of C++ have
    events = [*process.timeline, Event("device stream 7", long, 80.0, 100.0)]
    process.timeline = [replace(event, start=1e3 * event.start, end=1e3 * event.end)
                        for event in events]  # fmt: skip
    account.processes.append(make_host())
    target = tmp_path_factory.mktemp("run") / "run.html"
    write_page(account, target)
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
def open_page(browser: Any) -> Iterator[Any]:
    tabs: list[Tab] = []

    def open_one(page: Path, **options: Any) -> Tab:
        tabs.append(Tab(browser, page, **options))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        tab.context.close()


@pytest.fixture
def open_tab(open_page: Any, report: Path) -> Any:
    return partial(open_page, report)


@pytest.fixture
def open_run(open_page: Any, run_page: Path) -> Any:
    return partial(open_page, run_page)


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


# ---- the page of a run ---------------------------------------------------------------------------

LIGHT, DARK = (255, 254, 251), (22, 24, 27)
READ_PIXELS = """canvas => {
  const { width, height } = canvas;
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, width, height);
  const colours = {};
  for (let at = 0; at < data.length; at += 4) {
    const colour = data.slice(at, at + 4).join();
    colours[colour] = (colours[colour] ?? 0) + 1 / (width * height);
  }
  return colours;
}"""


def read_canvas(tab: Any) -> dict[str, float]:
    """The share of each colour in the timeline."""
    return dict(tab.page.eval_on_selector("#timeline canvas", READ_PIXELS))


def list_frames(tab: Any) -> list[tuple[str, float]]:
    """Texts and widths in pixels."""
    script = "all => all.map(node => [node.textContent, node.getBoundingClientRect().width])"
    return [tuple(frame) for frame in tab.page.eval_on_selector_all("#flame .frame", script)]


def test_a_run_is_drawn(open_run, run_page):
    tab = open_run()
    tab.page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    assert [name for name, _ in list_frames(tab)] == [
        "all: 600 µs", "train.py:80 <module>", "train.py:41 step", "nn/loss.py:7 forward",
    ]  # fmt: skip
    assert tab.count("#causes .bar") == 4
    assert tab.count("#lines tbody tr") == 2
    shares = sorted(read_canvas(tab).values())
    assert len(shares) > 10  # letters too
    assert shares[-2] > 0.05  # of idle, kernels and lines beside the empty ground
    assert tab.messages == []
    assert tab.requests == [run_page.as_uri()]


def test_a_click_on_a_frame_makes_it_as_wide_as_the_page(open_run):
    tab = open_run()
    before = dict(list_frames(tab))
    tab.page.click("#flame .frame >> text=nn/loss.py:7")
    after = dict(list_frames(tab))
    whole = before["all: 600 µs"]
    assert before["nn/loss.py:7 forward"] == pytest.approx(whole / 2, abs=2)
    assert set(after.values()) == {whole}
    assert tab.page.evaluate("document.activeElement.textContent") == "nn/loss.py:7 forward"
    tab.page.keyboard.press("Escape")
    assert dict(list_frames(tab)) == before
    tab.page.hover("#flame .frame >> text=train.py:41")
    assert "400 µs an iteration, 67 % of exposed idle" in tab.page.inner_text("#tip")


def test_the_timeline_is_zoomed_by_wheel_and_keys(open_run):
    tab = open_run()
    canvas, button = tab.page.locator("#timeline canvas"), tab.page.locator("#timeline button")
    canvas.scroll_into_view_if_needed()
    whole = read_canvas(tab)
    assert button.is_disabled()
    box = canvas.bounding_box()
    at = (box["x"] + box["width"] - 5, box["y"] + 60)  # stream 7, at the end
    tab.page.mouse.move(*at)
    assert "20 µs from 80 µs\ndevice stream 7" in tab.page.inner_text("#tip")
    tip = tab.page.locator("#tip").bounding_box()
    assert tip["x"] + tip["width"] <= tab.page.viewport_size["width"]
    tab.page.mouse.wheel(0, -300)
    tab.page.wait_for_function("!document.querySelector('#timeline button').disabled")
    assert read_canvas(tab) != whole
    canvas.press("-")
    canvas.press("Escape")
    assert button.is_disabled()
    assert read_canvas(tab) == whole
    assert tab.messages == []


def test_another_process_is_shown(open_run):
    tab = open_run()
    tab.page.select_option("#process", index=1)
    assert "main thread's time" in tab.page.inner_text("#flame h2")
    assert tab.count("#timeline") == 0
    tab.page.keyboard.press("Escape")
    assert tab.messages == []


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_the_timeline_follows_the_theme(open_run, scheme, other):
    tab = open_run(color_scheme=scheme)

    def look() -> tuple[str, set[str]]:
        script = "getComputedStyle(document.body).backgroundColor"
        return tab.page.evaluate(script), set(read_canvas(tab))

    grounds = {"light": f"rgb{LIGHT}", "dark": f"rgb{DARK}"}
    first = look()
    assert first[0] == grounds[scheme]
    tab.page.click("#theme")
    second = look()
    assert second[0] == grounds[other]
    assert len(first[1] & second[1]) < 0.2 * len(first[1])


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_a_run_does_not_scroll_sideways(open_run, width):
    tab = open_run(viewport={"width": width, "height": 844})
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    edges = "all => Math.max(...all.map(node => node.getBoundingClientRect().right))"
    assert tab.page.eval_on_selector_all(".frame, .track i, canvas", edges) <= width
    cut = "all => all.filter(node => node.scrollWidth > node.clientWidth).length"
    assert tab.page.eval_on_selector_all(".bar > *", cut) == 0
    # Where a table does not fit, it scrolls, and its words are whole.
    heights = "all => Math.max(...all.map(node => node.getBoundingClientRect().height))"
    assert tab.page.eval_on_selector_all("#lines tr", heights) < 120


def test_a_run_without_scripts_is_its_report(open_run):
    tab = open_run(java_script_enabled=False)
    assert "Exposed idle by line of the program" in tab.page.inner_text("noscript pre")
    assert tab.count("#flame") == tab.count("#theme") == 0
