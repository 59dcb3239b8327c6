"""The pages and events of a real server."""

from __future__ import annotations

import html
import itertools
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from urllib.request import urlopen

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.stored import Database
from tests.unit.views.large import hostile
from tests.unit.watch.visitor import ask
from vdisklab.cli.shell.verbs import naming_options
from vdisklab.host.progress_file import progress_file
from vdisklab.progress import (
    CampaignStarted,
    MeasurementStarted,
    Progress,
    RunStarted,
    Throughput,
    silent,
)
from vdisklab.value import replace
from vdisklab.watch.app import make_app
from vdisklab.watch.door import Door, make_door
from vdisklab.watch.verb import naming


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))


@contextmanager
def measuring(campaign: str = CAMPAIGN.id) -> Iterator[Progress]:
    with progress_file(silent) as progress:
        progress(CampaignStarted(campaign, 90, 0, 600.0, ""))
        progress(RunStarted("raw/none", 2, 9, 1, 10))
        progress(MeasurementStarted("randread-4k-q1", 10.0))
        progress(Throughput(5e6, 1220.0))
        yield progress


@contextmanager
def running_elsewhere(campaign: str) -> Iterator[None]:
    """Another process that measures a campaign."""
    code = (
        "import sys\n"
        "from vdisklab.host.progress_file import progress_file\n"
        "from vdisklab.progress import CampaignStarted, silent\n"
        "with progress_file(silent) as progress:\n"
        "    progress(CampaignStarted(sys.argv[1], 90, 0, 600.0, ''))\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, campaign], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            process.stdin.close()


def events(door: Door, seconds: float) -> Iterator[dict[str, object]]:
    """The events of some seconds."""
    end = time.monotonic() + seconds
    with urlopen(f"{door.address}events", timeout=20) as stream:  # noqa: S310 - our own server
        while time.monotonic() < end:
            line = stream.readline()
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def page(database: Database, target: str = "/") -> str:
    answered = ask(make_app(database.url, make_door("127.0.0.1"), naming(None)), target)
    assert answered.status == 200
    return answered.text


def test_opened_in_mid_run_it_shows_all_from_the_start(database: Database) -> None:
    with measuring():
        text = page(database)
    assert "is being measured" in text
    assert "round 2 of 9, cell 1 of 10" in text
    assert "(provisional)" in text
    assert "95 %: " in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "5 MB/s, 1220 IOPS" in text


def test_after_the_end_it_leads_to_the_report(database: Database) -> None:
    text = page(database)
    assert "nothing measures it now" in text
    assert "(provisional)" not in text
    assert f'href="/campaign/{CAMPAIGN.id}"' in text
    report = page(database, f"/campaign/{CAMPAIGN.id}")
    assert '<table id="table">' in report


def test_it_says_emulation_and_what_to_do_next(database: Database) -> None:
    text = html.unescape(page(database))
    assert "Measured under emulation (TCG)" in text
    assert "vdisklab doctor on bench1 says what KVM needs there" in re.sub(r"<[^>]*>", "", text)
    assert "Next.</b> Paste the configuration below" in text
    assert "To paste: <code>raw/none</code>" in text
    assert '<driver name="qemu" type="raw" cache="none"' in re.sub(r"</?span[^>]*>", "", text)
    with measuring():
        text = page(database)
    assert "Next.</b> Leave it running" in text
    assert "To paste" not in text


def test_two_campaigns_that_run_are_both_shown(database: Database) -> None:
    other = replace(CAMPAIGN, id="00ea41e4", label="second")
    database.write(campaign_runs(), campaigns=(CAMPAIGN, other))
    app = make_app(database.url, make_door("127.0.0.1"), naming(None))
    with running_elsewhere(other.id), measuring():
        text = ask(app).text
    assert f"Campaign {CAMPAIGN.id}" in text
    assert "Campaign 00ea41e4 second is being measured" in text
    assert text.count("is being measured") == 2


def test_too_few_rounds_are_named(database: Database) -> None:
    database.write([run for run in campaign_runs() if run.round <= 2])
    with measuring():
        assert "2 of 3 rounds that a ranking needs" in page(database)


def test_a_failed_cell_has_its_sentence_and_an_empty_database_a_page(database: Database) -> None:
    failed = [run for run in campaign_runs() if run.failure is not None]
    text = page(database)
    assert all(run.failure.sentence[:20] in text for run in failed if run.failure)
    database.write([], campaigns=())
    assert "Waiting for a campaign" in page(database)


def test_a_campaign_of_another_database_is_named(database: Database) -> None:
    with measuring("0badc0de"):
        assert "campaign 0badc0de, which is not in this database" in page(database)


def test_a_campaign_that_vanishes_is_said_and_the_page_goes_on(
    database: Database, serving: Callable[[str], Door]
) -> None:
    door, texts = serving(database.url), []
    with measuring():
        for event in events(door, 90):
            texts.append(json.dumps(event))
            if len(texts) == 1:
                database.write([], campaigns=())
            if len(texts) == 2:
                database.file.unlink()
            if "ere is no database" in texts[-1]:
                break
    assert "not in this database" in "".join(texts)
    assert "ere is no database" in texts[-1]


def test_in_n_seconds_at_most_n_events_come_and_only_with_news(
    database: Database, serving: Callable[[str], Door]
) -> None:
    door, ended = serving(database.url), Event()

    def move(progress: Progress) -> None:
        for moved in itertools.count():
            if ended.wait(0.02):
                return
            progress(Throughput(moved * 1e6, None))

    with measuring() as progress:
        mover = Thread(target=move, args=[progress])
        mover.start()
        begun, taken, came = time.monotonic(), 0.0, []
        for event in itertools.islice(events(door, 60), 4):
            came.append(event)
            taken = time.monotonic() - begun
        ended.set()
        mover.join()
    assert len(came) == 4 <= taken
    first, *later = came
    assert set(first["parts"]) >= {"head", "now", "ranking", "past"}  # type: ignore[call-overload]
    assert all(event["parts"] == {} for event in later)


def test_a_page_that_never_reads_does_not_delay_what_is_stored(
    database: Database, serving: Callable[[str], Door]
) -> None:
    door = serving(database.url)
    runs = [run for run in campaign_runs() if run.round == 1]
    database.write([run for run in campaign_runs() if run.round > 1])
    silent_visitors = [socket.create_connection((door.host, door.port)) for _ in range(5)]
    try:
        for visitor in silent_visitors:
            visitor.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with database.open() as store, measuring() as progress:
            slowest = 0.0
            for run in runs:
                begun = time.monotonic()
                store.add_run(run)
                progress(Throughput(1e6, None))
                slowest = max(slowest, time.monotonic() - begun)
                time.sleep(0.1)
    finally:
        for visitor in silent_visitors:
            visitor.close()
    assert slowest < 5  # the writer's patience with a lock is 10 s


def test_hostile_names_are_text() -> None:
    with hostile() as store:
        app = make_app(str(store), make_door("127.0.0.1"), naming(None))
        text = ask(app).text
        report = ask(app, f"/campaign/{store.campaigns()[0].id}")
    assert text.count("<script") == 2  # the page's own
    assert "<img" not in text
    assert report.status == 200


def test_commands_name_the_database_and_the_campaign(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every page, in every document and error; by its whole path, as a reader is elsewhere."""
    monkeypatch.chdir(database.file.parent)
    before = CAMPAIGN.started - timedelta(days=1)
    others = [replace(CAMPAIGN, id=f"00ea41{index:02}", started=before) for index in range(51)]
    database.write(campaigns=(CAMPAIGN, *others))
    app = make_app(database.url, make_door("127.0.0.1"), naming(database.file.name))
    named = f"--db {database.file}"
    targets = ["/", f"/campaign/{CAMPAIGN.id}"]
    for target in targets:
        shown = re.sub(r"</?span[^>]*>", "", html.unescape(ask(app, target).text))
        commands = re.findall(r"(?:<code>|`)(vdisklab [a-z][^`<\n]*)", shown)
        takes = [command for command in commands if "--db" in naming_options(command.split()[1])]
        assert takes
        assert all(named in row for row in takes)
        narrow = [row for row in takes if "--campaign" in naming_options(row.split()[1])]
        assert all(
            (f"--campaign {CAMPAIGN.id}" in row) == (CAMPAIGN.id in target) for row in narrow
        )


@pytest.mark.parametrize("runs", [1, 2])
def test_the_levels_of_earlier_campaigns_are_drawn_in_mid_run(
    database: Database, runs: int
) -> None:
    earlier = replace(CAMPAIGN, id="00ea41e4", started=CAMPAIGN.started - timedelta(days=30))
    every = [run for run in campaign_runs() if run.failure is None]
    old = [
        replace(run, campaign=earlier.id, id=f"{earlier.id}/{index}")
        for index, run in enumerate(every)
    ]
    new = [run for run in every if run.round <= runs]
    database.write([*old, *new], campaigns=(CAMPAIGN, earlier))
    with measuring():
        shown = html.unescape(page(database))
    (curves,) = re.findall(r'data-curves="(\{.*?\})"', shown)
    drawn = json.loads(curves)
    assert [name for _, name in drawn["ticks"]] == ["2026-01-30", "2026-03-01"]
    assert len(drawn["data"]) == len(drawn["lines"]) + 1
    assert all(level is not None for line in drawn["data"] for level in line)
    assert "This host over time (provisional)" in shown
    database.write(new)
    assert "data-curves" not in page(database)


@pytest.mark.parametrize("target", ["/campaign/none", "/static/../x", "/static/none", "/nothing"])
def test_what_is_not_there_is_not_found(database: Database, target: str) -> None:
    assert ask(make_app(database.url, make_door("127.0.0.1"), naming(None)), target).status == 404


ROUTES = ["/", "/campaign/", "/static/", "/favicon.ico", "/events/", "/metrics"]


def test_no_request_is_an_error_of_the_server(tmp_path: Path) -> None:
    database = Database(tmp_path / "fuzzed.sqlite")
    database.write([run for run in campaign_runs() if run.round == 1])
    app = make_app(database.url, make_door("127.0.0.1"), naming(None))

    @settings(max_examples=4 * settings().max_examples, deadline=None, database=None)
    @given(
        st.sampled_from(ROUTES),
        st.text(st.characters(codec="latin-1"), max_size=40),
        st.sampled_from(["GET", "HEAD", "POST", "get", "OPTIONS"]),
        st.dictionaries(
            st.sampled_from(["cookie", "accept", "range", "authorization", "content-length"]),
            st.text(st.characters(codec="latin-1"), max_size=40),
        ),
    )
    def fuzzed(route: str, rest: str, method: str, headers: dict[str, str]) -> None:
        answered = ask(app, route + rest, method=method, headers=headers)
        assert answered.status < 500

    fuzzed()
