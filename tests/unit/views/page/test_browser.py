"""The page in a real browser: headless Chromium, driven by Playwright."""

from __future__ import annotations

import base64
import functools
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    sync_playwright,
)

from tests.conftest import in_ci
from tests.unit.stored import stored
from tests.unit.views.large import hostile, renamed, shapely, shapely_runs
from vdisklab import numbers
from vdisklab.actions.export_data import import_campaigns
from vdisklab.analysis.observations import MeasureKey
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.report import report_on
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.store import open_store
from vdisklab.views.layout import NAMES, WORDS, Column, Table
from vdisklab.views.page.html import FIRST_PAGE, render_page
from vdisklab.views.page.tables import tables_page

IMAGES = Path(__file__).parents[4] / "docs" / "images"

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_CHROMIUM is None and not in_ci(), reason="chromium is not installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=_CHROMIUM, args=list(_ARGUMENTS))
        yield found
        found.close()


@dataclass
class Watched:
    """A page, and what it did that a report must not do."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def goto(self, file: Path) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", self._failed)
        self.page.on("dialog", self._asked)
        self.page.on("request", self._requested)
        self.page.goto(file.as_uri())

    def leave(self) -> None:
        """Ends the watch, and leaves the page as a new one would be."""
        self.page.remove_listener("console", self._said)
        self.page.remove_listener("pageerror", self._failed)
        self.page.remove_listener("dialog", self._asked)
        self.page.remove_listener("request", self._requested)
        self.page.goto("about:blank")
        self.page.set_viewport_size({"width": 1280, "height": 720})
        self.page.emulate_media(media="null", color_scheme="null")

    def _said(self, message: ConsoleMessage) -> None:
        self.complaints.append(message.text)

    def _failed(self, error: Error) -> None:
        self.complaints.append(str(error))

    def _asked(self, dialog: Dialog) -> None:
        self.complaints.append(dialog.message)

    def _requested(self, request: Request) -> None:
        self.requests.append(request.url)


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Page:
    """One for most tests: a new one takes the browser twice as long as to show the report."""
    return browser.new_page()


@functools.cache
def made(kind: str) -> str:
    with hostile() if kind == "hostile" else shapely() as store:
        return render_page(report_on(Analysis.of(store)))


@pytest.fixture
def watched(tab: Page, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Watched]:
    file = tmp_path / "report.html"
    file.write_text(made(getattr(request, "param", "shapely")), encoding="utf-8")
    seen = Watched(tab)
    seen.goto(file)
    yield seen
    seen.leave()
    assert seen.complaints == []
    assert seen.requests == [file.as_uri()]


def column(page: Page, number: int) -> list[str]:
    return page.locator(f"#table tbody tr > :nth-child({number})").all_inner_texts()


def test_the_answer_and_the_first_rows_are_there(watched: Watched) -> None:
    page = watched.page
    assert page.locator("h1").inner_text().startswith("Use ")
    assert page.locator("#table tbody tr").count() == FIRST_PAGE
    assert page.locator("#page").inner_text() == "Page 1 of 5"
    assert page.locator(".chart").count() == 13
    assert page.locator("[data-curves]").count() == 5


def test_sorting_turns_round(watched: Watched) -> None:
    page = watched.page
    page.click("button[data-sort=path]")
    first = column(page, 2)
    assert first == sorted(first)
    page.click("button[data-sort=path]")
    second = column(page, 2)
    assert second == sorted(second, reverse=True)
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("path")


def test_filters_narrow_the_table(watched: Watched) -> None:
    page = watched.page
    page.select_option("select[data-segment='3']", "ide")
    page.select_option("select[data-segment='2']", "none")
    assert page.locator("#count").inner_text() == "5 of 91 cells"
    assert all(path.endswith("/none/ide") for path in column(page, 2))
    page.fill("#search", "xfs")
    assert column(page, 2) == ["xfs/qcow2/none/ide"]
    page.fill("#search", "nothing like it")
    assert page.locator("#table tbody tr").count() == 0


def test_another_metric_brings_its_own_unit_and_order(watched: Watched) -> None:
    page = watched.page
    page.select_option("#metric", "randread-4k-q1/read/latency_p99")
    page.wait_for_function("document.querySelector('#metric-name').textContent.includes('p99')")
    assert column(page, 2)[0] in ("qcow2/unsafe", "raw/unsafe", "raw/unsafe/nvme",
                                  "qcow2/unsafe/nvme")  # fmt: skip
    with shapely() as store:
        found = report_on(Analysis.of(store)).of(
            MeasureKey.parse("randread-4k-q1/read/latency_p99")
        )
    rows = zip(column(page, 2), column(page, 3), strict=True)
    shown = [found[MeasuredCell(path, PageCache(state))] for path, state in rows]
    assert [each.median for each in shown] == sorted(each.median for each in shown)
    first = shown[0]
    scale = numbers.scale(first.median, "s")
    assert column(page, 4)[0] == scale.with_unit(first.median)
    assert column(page, 5)[0] == scale.interval(first.low, first.high)


def test_what_few_cells_have_is_a_dash_in_the_others(tab: Page, tmp_path: Path) -> None:
    runs = list(shapely_runs(3))
    some = [run for run in runs if run.path == "raw/none"]
    others = [run for run in runs if run.path != "raw/none"]
    file = tmp_path / "report.html"
    with stored([*others, *renamed(some, "rare")]) as store:
        file.write_text(render_page(report_on(Analysis.of(store))), encoding="utf-8")
    seen = Watched(tab)
    seen.goto(file)
    seen.page.select_option("#metric", "rare/read/iops")
    seen.page.wait_for_function(
        "document.querySelector('#metric-name').innerText.replaceAll('\u200b', '') == "
        "'rare/read/iops'"
    )
    assert column(seen.page, 2)[0] == "raw/none"
    assert column(seen.page, 4)[:3] == ["5.00 IOPS", "–", "–"]
    seen.leave()
    assert seen.complaints == []


def test_a_click_shows_evidence_and_commands(watched: Watched) -> None:
    page = watched.page
    button = page.locator("tbody th button").first
    button.click()
    details = page.locator("tr.details")
    details.locator("pre").first.wait_for()
    text = details.inner_text()
    assert "qemu-system-x86_64 -machine q35" in text
    assert "host CPU per operation" in text
    assert "O_DIRECT" in text
    button.click()
    assert details.count() == 0


def test_the_keyboard_is_enough(watched: Watched) -> None:
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("tbody th button").nth(1).focus()
    page.keyboard.press("Enter")
    page.locator("tr.details pre").first.wait_for()
    page.locator("#next").focus()
    page.keyboard.press("Enter")
    assert page.locator("#page").inner_text() == "Page 2 of 5"


def test_everything_has_a_name_for_screen_readers(watched: Watched) -> None:
    page = watched.page
    charts = page.locator(".chart")
    for number in range(charts.count()):
        assert len(charts.nth(number).get_attribute("aria-label") or "") > 40
    for control in page.locator("select, input").all():
        assert control.evaluate("element => element.labels.length") == 1
    caption = page.locator("#table caption")
    assert caption.inner_text().startswith("Ranks and “vs baseline” are by overall ratio, ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(watched: Watched, scheme: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    ink, paper = (
        page.evaluate(f"getComputedStyle(document.body).{name}")
        for name in ("color", "backgroundColor")
    )
    assert contrast(ink, paper) > 7
    mark = page.locator(".rows .chosen b").first
    assert contrast(mark.evaluate("element => getComputedStyle(element).color"), paper) > 4.5


def contrast(first: str, second: str) -> float:
    """The ratio of WCAG 2, 1.4.3."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    values = [int(part) / 255 for part in colour.strip("rgb()").split(",")[:3]]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_first_screen_has_verdict_safety_and_configuration(watched: Watched) -> None:
    page = watched.page
    page.set_viewport_size({"width": 1280, "height": 900})
    for part in ("h1", ".answer li", ".copied", ".choice .chosen"):
        box = page.locator(part).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, part
    assert page.locator(".answer li b").all_inner_texts()[:2] == ["Answer.", "Tied."]
    assert page.locator(".copied").first.inner_text().startswith("<disk ")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    caption = page.locator("caption > span").first.bounding_box()
    assert caption is not None
    assert caption["x"] + caption["width"] <= 390
    size = page.locator(".rows .label").first.evaluate("one => getComputedStyle(one).fontSize")
    assert float(size.removesuffix("px")) >= 14


def test_the_caption_is_whole_where_names_are_long(watched: Watched) -> None:
    page = watched.page
    page.set_viewport_size({"width": 1280, "height": 900})
    longest = "document.querySelector('#metric-name').textContent = 'a-long/measure/'.repeat(20)"
    wide = "document.querySelector('tbody th').style.minWidth = '80rem'"
    box = "one => { const {left, right} = one.getBoundingClientRect(); return [left, right]; }"
    for change in (longest, wide):
        page.evaluate(change)
        left, right = page.locator(".scroll:has(#table)").evaluate(box)
        first, last = page.locator("#table caption > span").evaluate(box)
        assert left <= first < last <= right
    assert page.locator("#metric-name").bounding_box()["width"] <= 160  # type: ignore[index]


def test_a_wide_table_of_any_verb_says_that_it_scrolls(browser: Browser, tmp_path: Path) -> None:
    columns = [Column[str](f"column {number}", lambda row: row) for number in range(30)]
    file = tmp_path / "tables.html"
    file.write_text(
        tables_page([Table("Wide", columns, ["a value"]), Table("", columns[:1], ["a"])])
    )
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(file.as_uri())
    page.locator(".scroll.more").wait_for()
    assert page.locator(".scroll.more").count() == 1
    page.close()


def test_on_a_phone_a_table_of_any_verb_has_what_decides_in_sight(
    browser: Browser, tmp_path: Path
) -> None:
    """As many columns as `rank` has, of which a phone shows four; an interval is below its number,
    and a wider screen shows all."""
    columns = [
        Column[str]("path", str, folds=NAMES),
        Column[str]("verdict", lambda _: "worse since 2026-08-01", folds=WORDS),
        *(Column[str](f"median {number}", lambda _: "123", spare=1) for number in range(9)),
        Column[str]("lasting", lambda _: "-29 %", right=True),
        Column[str]("newest against earlier (95 %)", lambda _: "-7.6 % (-22 to 8.7)", right=True),
    ]
    file = tmp_path / "tables.html"
    file.write_text(
        tables_page([Table("One", columns, ["qcow2:preallocation=off/default (cold)"])])
    )
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(file.as_uri())
    box = page.locator(".scroll")
    assert box.evaluate("(box) => box.scrollWidth <= box.clientWidth")
    assert page.locator("th:visible").count() == 4
    assert page.get_by_text("A wider screen shows all 13 columns.").is_visible()
    interval = page.locator("td .whole").get_by_text("(-22 to 8.7)")
    assert interval.evaluate("(each) => each.getClientRects().length") == 1
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.locator("th:visible").count() == 13
    assert not page.get_by_text("A wider screen").is_visible()
    page.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_short_and_the_rest_is_folded(watched: Watched, width: int) -> None:
    page = watched.page
    page.set_viewport_size({"width": width, "height": 900})
    # On a phone, paths take two lines so that their numbers fit beside them; what a pasted disk
    # still needs takes two more, and so does that Salter's scores count bursts. That all rounds lie
    # within so short a time takes five; what of a pasted disk goes into an existing one, three.
    # A load that differs, and which guests' disks can stay, take four.
    longest = 5900 if width == 390 else 5000
    assert page.evaluate("document.documentElement.scrollHeight") <= longest
    assert page.locator("details.figure").count() >= 10


def test_a_link_opens_the_folded_claims(watched: Watched) -> None:
    page = watched.page
    assert not page.locator("#claims table").first.is_visible()
    page.click("nav a[href='#claims']")
    page.locator("#claims details[open]").wait_for()


WITHIN_NAMES = r"""
() => {
  const broken = [];
  for (const name of document.querySelectorAll('.rows .label, #table tbody th, td.said')) {
    const texts = document.createTreeWalker(name, NodeFilter.SHOW_TEXT);
    let before = null;
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      for (let place = 0; place < text.data.length; place++) {
        const range = document.createRange();
        range.setStart(text, place);
        range.setEnd(text, place + 1);
        const box = range.getClientRects()[0];
        const sign = text.data[place];
        // A space at the end of a line has no width.
        const may = before === null || /[\s\/:,–-]/.test(before.sign);
        if (box && box.width && !may && box.top > before.top + 5) broken.push(name.innerText);
        if (box && (box.width || /\s/.test(sign))) before = {top: box.top, sign};
      }
    }
  }
  return broken;
}
"""


@pytest.mark.parametrize("width", [390, 320])
def test_a_name_is_broken_after_a_slash_a_colon_or_a_comma(watched: Watched, width: int) -> None:
    """`preallocation=o` stood above `ff/default`."""
    page = watched.page
    page.set_viewport_size({"width": width, "height": 844})
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.locator(".rows .label").count() > 20
    assert page.evaluate(WITHIN_NAMES) == []


BROKEN = r"""
() => {
  const parts = /(?<![\w-])--?[a-z][\w-]*|\d[\d.,]*(?:(?:e-|[–-])\d[\d.,]*)+|\d \u00a0?%/g;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const broken = [];
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    for (const found of text.data.matchAll(parts)) {
      const range = document.createRange();
      range.setStart(text, found.index);
      range.setEnd(text, found.index + found[0].length);
      const lines = new Set([...range.getClientRects()].map((each) => Math.round(each.bottom)));
      if (lines.size > 1) broken.push(found[0]);
    }
  }
  return broken;
}
"""
"""What of the shown texts is broken in two: options, intervals, dates, numbers from their signs."""


@pytest.mark.parametrize(
    "width",
    [1280, 320, *(pytest.param(width, marks=pytest.mark.nightly) for width in (600, 390, 340))],
)
def test_no_interval_and_no_option_is_broken_at_any_width(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    file = tmp_path / "report.html"
    file.write_text(pictured(tmp_path), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    assert page.evaluate(BROKEN) == []
    page.close()


def test_what_is_folded_is_open_while_it_is_printed(watched: Watched) -> None:
    page = watched.page
    count = page.locator("details:not([open])").count()
    assert count
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() == count


def test_on_a_phone_a_path_has_its_number_and_what_scrolls_says_so(watched: Watched) -> None:
    page = watched.page
    page.set_viewport_size({"width": 390, "height": 844})
    box = page.locator("#cells .scroll")
    seen = box.evaluate(
        "(box) => [...box.querySelectorAll('tbody tr:first-child > .number')]"
        ".map((cell) => cell.getBoundingClientRect().right <= box.getBoundingClientRect().right)"
    )
    assert seen[0]
    page.locator("#cells .scroll.more").wait_for()
    said = box.evaluate("(box) => getComputedStyle(box, '::before').content")
    assert "scroll sideways" in said


def test_no_column_is_cut_on_a_desk(watched: Watched) -> None:
    page = watched.page
    page.set_viewport_size({"width": 1280, "height": 900})
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    widths = "[...document.querySelectorAll('.scroll')].map((e) => e.scrollWidth - e.clientWidth)"
    assert max(page.evaluate(widths)) <= 0


def test_print_leaves_the_controls_out(watched: Watched) -> None:
    page = watched.page
    page.emulate_media(media="print")
    assert not page.locator(".controls").is_visible()
    assert page.locator("#table").is_visible()


@pytest.mark.parametrize("watched", ["hostile"], indirect=True)
def test_poisoned_texts_are_shown_and_not_obeyed(watched: Watched) -> None:
    page = watched.page
    page.locator("tbody th button").first.click()
    page.locator("tr.details pre").first.wait_for()
    assert "window.owned=1" in page.locator("tr.details").inner_text()
    assert "window.owned=1" in page.locator("header").inner_text()
    assert page.evaluate("window.owned") is None
    assert "49" not in page.locator("h1").inner_text()
    assert "49" not in page.locator(".question").inner_text()


def pictured(place: Path) -> str:
    """The page of the README's pictures: of the real campaign that is kept beside them."""
    database = str(place / "pictured.sqlite")
    import_campaigns(database, [IMAGES / "campaign.json.gz"])
    with open_store(database) as store:
        return render_page(report_on(Analysis.of(store)))


_SHOWN = """() => {
    const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const range = document.createRange();
        range.selectNodeContents(walk.currentNode);
        const box = range.getBoundingClientRect(), text = walk.currentNode.data.trim();
        if (text && box.height && box.bottom > 0 && box.bottom < innerHeight) found.push(text);
    }
    return found;
}"""
_TO_THE_CELLS = """async () => {
    document.querySelector("#cells").scrollIntoView({behavior: "instant"});
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
}"""
_DIFFERENCE = """async (files) => {
    const [one, other] = await Promise.all(files.map(async (file) => {
        const image = new Image(), canvas = document.createElement("canvas");
        image.src = "data:image/png;base64," + file;
        await image.decode();
        [canvas.width, canvas.height] = [image.width / 8, image.height / 8];
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0, canvas.width, canvas.height);
        return context.getImageData(0, 0, canvas.width, canvas.height).data;
    }));
    return one.reduce((sum, value, at) => sum + Math.abs(value - other[at]), 0) / one.length;
}"""
"""Of two pictures at an eighth of their size, the mean difference of a colour's 256 steps."""


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_the_pictures_of_the_pages_are_those_of_today(
    scheme: Literal["light", "dark"], browser: Browser, tmp_path: Path
) -> None:
    """script/pictures writes them anew: VDISKLAB_SCREENSHOTS names where. The dark page is the same
    in other colours.
    """
    kept = os.environ.get("VDISKLAB_SCREENSHOTS")
    place = Path(kept or tmp_path)
    file = tmp_path / "report.html"
    file.write_text(pictured(tmp_path), encoding="utf-8")
    shown: dict[str, list[str]] = {}
    empty = browser.new_page()  # the report's own policy allows no pictures
    page = browser.new_page(viewport={"width": 1080, "height": 900})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(file.as_uri())
    assert "under emulation" in page.locator("header").inner_text()
    page.screenshot(path=place / f"report-{scheme}.png")
    shown["report"] = page.evaluate(_SHOWN)
    page.locator("tbody th button").nth(1).click()
    page.locator("tr.details pre").first.wait_for()
    for _ in range(5):  # what comes into view above it gets its true height
        page.evaluate(_TO_THE_CELLS)
    page.screenshot(path=place / f"report-cells-{scheme}.png")
    shown["report-cells"] = page.evaluate(_SHOWN)
    for name in (f"report-{scheme}.png", f"report-cells-{scheme}.png"):
        pictures = [
            base64.b64encode((directory / name).read_bytes()).decode()
            for directory in (place, IMAGES)
        ]
        assert empty.evaluate(_DIFFERENCE, pictures) < 2, f"script/pictures: {name} is old"
    page.close()
    texts = IMAGES / "shown.json"
    if kept:
        texts.write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
    assert shown == json.loads(texts.read_text()), "script/pictures takes the pictures anew"
