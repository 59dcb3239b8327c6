"""The live page in a real browser: headless Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.conftest import in_ci
from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.stored import Database
from tests.unit.watch.conftest import served
from tests.unit.watch.test_pages import measuring
from vdisklab.progress import Throughput
from vdisklab.value import replace

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_CHROMIUM is None and not in_ci(), reason="chromium is not installed"),
]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(params=[390, 1280])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": request.param, "height": 900})
    opened.set_default_timeout(60_000)
    yield opened
    opened.close()


def test_it_moves_and_leads_to_the_report_at_the_end(page: Page, database: Database) -> None:
    complaints, asked = list[str](), list[str]()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    earlier = replace(CAMPAIGN, id="00ea41e4", started=CAMPAIGN.started - timedelta(days=30))
    old = [
        replace(run, campaign=earlier.id, id=f"{earlier.id}/{index}")
        for index, run in enumerate(campaign_runs())
    ]
    new = [run for run in campaign_runs() if run.round < 4]
    database.write([*old, *new], campaigns=(CAMPAIGN, earlier))
    with served(database.url) as door:
        with measuring() as progress:
            page.goto(door.address)
            page.locator("#moving canvas").wait_for()
            page.wait_for_timeout(1100)  # a value a second is kept
            progress(Throughput(0.0, 0.0))
            page.get_by_text("0 MB/s, 0 IOPS").wait_for()
            page.locator("#moving .line").press("ArrowLeft")
            page.locator("#moving .u-value").filter(has_text="0").first.wait_for()
            shaded = page.evaluate("charts.still([-9, -8, -6, -5, -2, -1], [0, 5, 0, 0, 7, 0])")
            assert shaded == [[-9, -9], [-8, -5], [-2, -1]], "no time in which a byte moved"
            page.locator("#notes-1 summary").press("Enter")
            database.add([run for run in campaign_runs() if run.round == 4])
            page.get_by_text("24 of 90 runs in 4 rounds").wait_for()
            page.locator("#part-trend canvas").wait_for()
            page.locator("#part-trend .line").press("ArrowRight")
            page.locator("#part-trend .u-value").filter(has_text="2026-01-30").wait_for()
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0
            beyond = page.evaluate(
                "[...document.querySelectorAll('#part-ranking .scroll')]"
                ".map(one => one.scrollWidth - one.clientWidth)"
            )
            assert max(beyond) <= 0
        page.wait_for_url(f"**/campaign/{CAMPAIGN.id}")
        page.locator("#table").wait_for()
    assert complaints == []
    assert all(row.startswith((door.address, "data:")) for row in asked)


def test_it_says_that_the_server_is_gone_and_comes_back(
    browser: Browser, database: Database
) -> None:
    page = browser.new_page()
    page.set_default_timeout(60_000)
    with served(database.url) as door:
        page.goto(door.address)
        page.locator("#part-ranking table").first.wait_for()
        page.wait_for_timeout(1500)
    page.get_by_text("No connection").wait_for()
    database.write([], campaigns=())
    with served(database.url, door.port):
        page.get_by_text("Waiting for a campaign").wait_for()
        page.locator("#connection").wait_for(state="hidden")
        page.close()
