"""What disks made from a template cost, from stored runs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest

from tests.unit.cli.test_widths import require_whole
from tests.unit.results.values import BROKEN, a_campaign, a_measurement, a_run
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.life import LifeAnswer, stored_lives
from vdisklab.answers.report import report_on
from vdisklab.cli.shell.main import main
from vdisklab.documents import document, schemas
from vdisklab.errors import PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import (
    SETTLED,
    Campaign,
    Check,
    Direction,
    Evidence,
    IoCounters,
    Measurement,
    Sample,
)
from vdisklab.results.store import Store, open_store
from vdisklab.value import replace
from vdisklab.views.charts.figures import figures
from vdisklab.views.charts.rows import page_rows
from vdisklab.views.life import headline, next_step, short_headline, tables
from vdisklab.views.report import page_headline, question
from vdisklab.views.report_files import ReportFormat, build
from vdisklab.views.terminal import lines_of

MIB = 1 << 20
COPY = "xfs/raw/none/virtio:made=cp"
REFLINK = "xfs/raw/none/virtio:made=reflink"
TEN = "xfs/raw/none/virtio:guests=10:made=reflink"
EMPTY_DISK = "xfs/raw/none/virtio:made=create"
BROKEN_WAY = "btrfs/raw/none/virtio:made=dd"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/n.sqlite") as opened:
        yield opened


def step(name: str, written: int = 0, **numbers: float) -> Measurement:
    device = IoCounters(read_bytes=0, write_bytes=written, read_operations=0, write_operations=1)
    samples = tuple(Sample(metric, Direction.NONE, value) for metric, value in numbers.items())
    evidence = Evidence(device=device)
    return replace(a_measurement(), name=name, samples=samples, evidence=evidence)


@pytest.fixture
def campaign(store: Store) -> Campaign:
    """A copy whose first flush writes 64 MiB, a reflink, ten of them, and a way that fails."""
    plan = {
        "seed": 1, "cells": [COPY, REFLINK, TEN, BROKEN_WAY], "measurements": [],
        "size_bytes": 64 * MIB,
    }  # fmt: skip
    campaign = a_campaign(plan=plan)
    store.add_campaign(campaign)
    for round in (1, 2, 3):
        for path, factor in ((COPY, 10), (REFLINK, 1), (TEN, 5)):
            seconds = round * factor / 100
            waiting = 64 * MIB if path == COPY else 0
            shared = {} if path == COPY else {"unshared": 4096.0}
            parts = (
                step("make", 7, duration=seconds, allocated=waiting),
                step("attach", duration=0.01),
                step("first-write", waiting, duration=seconds, unwritten=waiting, allocated=4096,
                     ready=2 * seconds + 0.01, sync_max=seconds / 2, **shared),
                step("settle", iops=300),
                step("reset", duration=0.5),
                step("delete", duration=0.1, given_back=waiting),
            )  # fmt: skip
            fingerprint = MeasuredCell(path).fingerprint
            store.add_run(
                a_run(campaign, path=path, cell=fingerprint, round=round, measurements=parts)
            )
    fingerprint = MeasuredCell(BROKEN_WAY).fingerprint
    store.add_run(
        a_run(campaign, path=BROKEN_WAY, cell=fingerprint, failure=BROKEN, measurements=())
    )
    return campaign


def test_the_soonest_ready_comes_first_and_what_was_counted_says_why(
    store: Store, campaign: Campaign
) -> None:
    answer = stored_lives(store, None)
    assert answer.campaign == campaign.id
    reflink, copy, broken, ten = answer.lives
    assert (reflink.path, reflink.made, reflink.disks) == ("xfs/raw/none", "reflink", 1)
    assert reflink.ready == pytest.approx(0.05)
    assert reflink.each_second == pytest.approx(50)
    assert reflink.why == "unshare 4.0 KiB"
    assert ten.disks == 10
    assert ten.each_second == pytest.approx(100)
    assert copy.why == "write 64.0 MiB still in memory"
    assert copy.flush == pytest.approx(0.1)
    assert copy.given_back == 64 * MIB
    assert copy.space_back is None
    assert copy.seconds("settle") is None, "a rate that did not settle has no time"
    assert (broken.ready, broken.failed, broken.failure is None) == (None, 1, False)
    assert headline(answer) == (
        "xfs/raw/none by reflink is ready first of 2 disks (95 %), after 50.0 ms. "
        "It is made in 20.0 ms; its first write and flush take 20.0 ms. 10 at once are made in "
        "100 ms (100 disks a second), and the last is ready after 210 ms. A full copy there takes "
        "200 ms to make, and its first write and flush take 200 ms: 64.0 MiB of the copy were "
        "still in the host's memory, and the flush wrote them."
    )
    times, counts = tables(answer)
    assert counts.intro == (
        "What the first flush had to do besides writing 4 KiB: write 64.0 MiB still in memory "
        "(cp on xfs/raw/none: 200 ms); unshare 4.0 KiB (reflink on xfs/raw/none: 20.0 ms).",
    )
    notes = times.notes
    assert any("the rate had not settled" in note for note in notes)
    assert any("not all of its space came back" in note for note in notes)
    assert any("dd on btrfs/raw/none failed" in note for note in notes)
    of = f"--campaign {campaign.id}"  # a newer campaign may be of other measurements
    assert f"compare two of them: `vdisklab compare {REFLINK} {COPY} {of}`" in notes
    assert any(f"`vdisklab rank --metric ready --guests 10 {of}`" in note for note in notes)


def test_the_report_answers_about_lives_with_a_bar_of_steps(
    store: Store, campaign: Campaign
) -> None:
    report = report_on(Analysis.of(store, [campaign.id]))
    assert question(report).startswith("What does it cost to make a guest's disk on ")
    assert page_headline(report) == "reflink is ready first, after 50.0 ms"
    assert report.recommendation is None
    assert report.configurations == ()
    (figure,) = figures(report)
    assert figure.parts == ("make", "attach", "first write and flush", "reset", "delete")
    drawn = [
        "xfs/raw/none by reflink", "xfs/raw/none by cp", "xfs/raw/none by reflink, 10 at once",
    ]  # fmt: skip
    assert [bar.label for bar in figure.bars] == [*drawn, *drawn]
    assert figure.bars[0].parts == pytest.approx((20, 10, 20, 0, 0))
    assert figure.bars[3].parts == pytest.approx((0, 0, 0, 500, 100))
    assert "Failed, and without a bar: btrfs/raw/none by dd." in figure.note
    assert "3 disks had not settled within the runtime" in figure.note
    ready, after = page_rows(figure.bars, figure.unit, shared=figure.shared)
    assert [part["x"] for part in ready["bars"][1]["parts"]][:3] == ["0.00%", "48.78%", "51.22%"]
    assert [group["name"] for group in (ready, after)] == ["until the disk is ready", "after that"]


def test_the_page_has_the_tables_and_says_why_the_first_flush_is_slow(
    store: Store, campaign: Campaign
) -> None:
    page = build(report_on(Analysis.of(store, [campaign.id])), ReportFormat.HTML).decode()
    assert "Why the first flush is slow.</b> What the first flush had to do" in page
    assert "the answer above" not in page
    ranks = f"vdisklab rank --metric ready --guests 10 --campaign {campaign.id}"
    assert f"<code>{ranks}</code> tells" in re.sub("</?span[^>]*>", "", page)
    assert "write 64.0 MiB still in memory</td>" in page
    assert page.count("settled after") > 1


def test_no_way_is_called_the_first_before_that_is_shown(store: Store, campaign: Campaign) -> None:
    answer = stored_lives(store, None)
    assert answer.first == (REFLINK,)
    tie = replace(answer, first=(REFLINK, COPY))
    assert headline(tie).startswith(
        "Which disk is ready first is not shown in 3 rounds; candidates are xfs/raw/none by "
        "reflink, xfs/raw/none by cp. The soonest by the median is xfs/raw/none by reflink: it is "
        "made in 20.0 ms;"
    )
    assert short_headline(tie) == "Not shown which is ready first: reflink, cp"
    few = replace(answer, first=(), lives=tuple(replace(life, runs=2) for life in answer.lives))
    assert headline(few).startswith("In 2 rounds: xfs/raw/none by reflink is made in 20.0 ms;")
    assert short_headline(few) == "reflink was ready first in 2 rounds, after 50.0 ms"


def test_a_tie_is_found_by_the_intervals_of_the_ranks(store: Store) -> None:
    """The same times in another order in each round: neither is shown to be faster."""
    plan = {"seed": 1, "cells": [COPY, REFLINK], "measurements": [], "size_bytes": 64 * MIB}
    campaign = a_campaign(plan=plan)
    store.add_campaign(campaign)
    for round in (1, 2, 3, 4):
        for path in (COPY, REFLINK):
            ready = 2.0 if (path == COPY) == (round % 2 == 0) else 1.0
            parts = (step("make", duration=0.1), step("first-write", duration=0.1, ready=ready))
            fingerprint = MeasuredCell(path).fingerprint
            run = a_run(campaign, path=path, cell=fingerprint, round=round, measurements=parts)
            store.add_run(run)
    answer = stored_lives(store, None)
    assert sorted(answer.first) == sorted((COPY, REFLINK))
    assert "is not shown in 4 rounds" in headline(answer)


def test_a_spreadsheet_gets_each_life_once_with_a_column_for_each_step(
    store: Store, campaign: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["life", "--format", "csv", "--db", f"{tmp_path}/n.sqlite"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["cell"] for row in rows] == [REFLINK, COPY, BROKEN_WAY, TEN]
    assert [row["steps.reset.seconds"] for row in rows] == ["0.5", "0.5", "", "0.5"]
    assert rows[1]["steps.first-write.written"] == str(float(64 * MIB))


def test_what_a_first_write_had_to_do_is_never_cut(store: Store, campaign: Campaign) -> None:
    """An overlay with subclusters on xfs: the longest path, and two numbers."""
    answer = stored_lives(store, None)
    why = "allocate 4.0 KiB in the image, 1.0 MiB on the host"
    path = "xfs/qcow2:cluster_size=128k:extended_l2=on/none"
    life = replace(answer.lives[0], path=path, made="overlay:depth=2", why=why)
    _, counts = tables(replace(answer, lives=(life, *answer.lives)))
    for width in (80, 100, 120):
        shown = [line.plain for line in lines_of(counts, width)]
        assert "extra work at" in " ".join(shown)
        place = max(line.find("extra work at") for line in shown)
        said = " ".join(" ".join(line[place:] for line in shown).split())
        assert why in said, width


def test_a_run_ends_with_the_next_command(store: Store, campaign: Campaign) -> None:
    answer = stored_lives(store, None)
    (line,) = next_step(answer)
    assert f"`vdisklab report --campaign {campaign.id}`" in line
    assert f"`vdisklab recommend --need disposable --guests 10 --campaign {campaign.id}`" in line
    alone = replace(answer, lives=tuple(life for life in answer.lives if life.disks == 1))
    (line,) = next_step(alone)
    assert f"`vdisklab recommend --need disposable --campaign {campaign.id}`" in line


@pytest.fixture
def at_once(store: Store) -> Campaign:
    """A copy, which is the baseline, and a reflink: one disk, and ten at once, of which the copies
    are sooner ready."""
    paths = {
        (number, way): f"xfs/raw/none/virtio:guests={number}:made={way}"
        for number in (1, 10)
        for way in ("cp", "reflink")
    }
    plan = {
        "seed": 1, "cells": [*paths.values()], "baseline": paths[1, "cp"], "measurements": [],
        "size_bytes": 64 * MIB,
    }  # fmt: skip
    campaign = a_campaign(plan=plan)
    store.add_campaign(campaign)
    for round in range(1, 6):
        for (number, way), path in paths.items():
            slow = (way == "cp") == (number == 1)
            seconds = number * (10 if slow else 1) * (1 + round / 100)
            steps = (
                step("make", duration=seconds),
                step("first-write", duration=seconds, ready=2 * seconds),
            )
            fingerprint = MeasuredCell(path).fingerprint
            store.add_run(
                a_run(campaign, path=path, cell=fingerprint, round=round, measurements=steps)
            )
    return campaign


def test_disks_made_at_once_are_compared_with_as_many(
    store: Store, at_once: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str, status: int = 0) -> str:
        assert main([*arguments, "--db", f"{tmp_path}/n.sqlite"]) == status
        printed = capsys.readouterr()
        return " ".join((printed.out + printed.err).split())

    metric = ("--metric", "ready")
    for verb in (("rank",), ("rank", *metric), ("recommend", "--need", "disposable")):
        for number, best in ((1, "reflink"), (10, "cp")):
            answer = said(*verb, "--guests", str(number), "--why")
            assert answer.startswith(f"Use xfs/raw/none/virtio:guests={number}:made={best}: it is")
            assert f"guests={11 - number}:" not in answer
            assert "has no numbers" not in answer, "of the baseline"
    assert "10 disks were made at once: a time is that of the last" in said(
        "rank", "--guests", "10"
    )
    for verb in (("rank", *metric), ("recommend", "--need", "disposable")):
        fewest = said(*verb, "--why")
        assert fewest.startswith("Use xfs/raw/none/virtio:guests=1:made=reflink: it is")
        assert "This is about disks made alone; about 10 at once: " in fewest
        assert f"vdisklab {' '.join(verb)} --guests 10 --db" in fewest
    assert "was measured with --guests 3 hint: measured were 1, 10" in said(
        "rank", "--guests", "3", status=2
    )


def test_disks_at_once_are_no_search_of_how_many_guests_a_path_carries(
    store: Store, at_once: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = ("--db", f"{tmp_path}/n.sqlite")
    assert main(["recommend", "--guests", "10", *db]) == 0
    assert "guests=10:made=cp" in capsys.readouterr().out.splitlines()[0]
    assert main(["recommend", "--guests", "7", *db]) != 0
    assert "no search of how many guests" in capsys.readouterr().err
    assert main(["recommend", "--guests", "7", "--need", "disposable", *db]) != 0
    assert "no path was measured with --guests 7" in capsys.readouterr().err


def test_why_a_disk_has_no_time_until_it_is_settled_is_said(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten disks settled in two of three rounds only: they have the rounds, but not the numbers."""
    plan = {
        "seed": 1, "cells": [COPY, REFLINK, EMPTY_DISK], "baseline": COPY, "measurements": [],
        "size_bytes": 64 * MIB,
    }  # fmt: skip
    campaign = a_campaign(plan=plan)
    store.add_campaign(campaign)
    why = "the rate still rose at the end, by 30 %"
    for round in (1, 2, 3):
        for path in (COPY, REFLINK):
            rises = path == REFLINK and round == 3
            parts = (
                step("make", duration=0.1),
                step("first-write", duration=0.1, ready=0.3),
                step("settle") if rises else step("settle", duration=0.5 + round / 10, iops=100),
            )
            checks = (Check(SETTLED, None, why if rises else ""),)
            fingerprint = MeasuredCell(path).fingerprint
            store.add_run(
                a_run(
                    campaign,
                    path=path,
                    cell=fingerprint,
                    round=round,
                    measurements=parts,
                    checks=checks,
                )
            )
    answer = stored_lives(store, None)
    assert [life.unsettled for life in answer.lives] == [None, f"in 1 of 3 rounds {why}", None]
    notes = next(tables(answer)).notes
    assert (
        f"no time “settled after” of reflink on xfs/raw/none: in 1 of 3 rounds {why}; choose a "
        "longer --runtime"
    ) in notes
    db = ("--db", f"{tmp_path}/n.sqlite")
    for metric in ("settle/none/duration", "overall"):
        assert main(["rank", "--why", "--metric", metric, *db]) == 0
        said = " ".join(capsys.readouterr().out.split())
        key = "settle/none/duration" if metric != "overall" else "settle/none/iops"
        assert (
            f"{REFLINK}: measured in 3 rounds, but {key} has a number in fewer than 3, which a "
            "rank needs. Its rate did not settle:"
        ) in said
        assert "measured in 2 rounds" not in said
        assert "--rounds 3 or more" not in said, "it does not help"


def test_all_that_is_shown_is_in_its_document(store: Store, campaign: Campaign) -> None:
    answer = stored_lives(store, campaign.id)
    found = document(answer)
    require_whole(list(tables(answer)), found)
    schema = schemas([LifeAnswer])[LifeAnswer.FORMAT]
    jsonschema.Draft202012Validator(schema).validate(found)


def test_without_such_disks_the_hint_measures_some(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PlanError) as caught:
        stored_lives(store, None)
    assert caught.value.hint is not None
    assert "--profile life" in caught.value.hint
    assert main(["life", "--db", f"{tmp_path}/n.sqlite"]) != 0
    assert "no disks that were made from a template" in capsys.readouterr().err


@pytest.fixture
def ways(store: Store) -> Campaign:
    """Five rounds of a copy, which is the baseline, a reflink and an empty disk, the fastest."""
    cells = [COPY, REFLINK, EMPTY_DISK]
    plan = {
        "seed": 1, "cells": cells, "baseline": COPY, "measurements": [], "size_bytes": 64 * MIB,
    }  # fmt: skip
    campaign = a_campaign(plan=plan)
    store.add_campaign(campaign)
    for round in range(1, 6):
        for path, factor in ((COPY, 10.0), (REFLINK, 1.0), (EMPTY_DISK, 0.1)):
            seconds = factor * (1 + round / 100)
            steps = tuple(step(name, duration=seconds) for name in ("make", "attach", "delete"))
            fingerprint = MeasuredCell(path).fingerprint
            store.add_run(
                a_run(campaign, path=path, cell=fingerprint, round=round, measurements=steps)
            )
    return campaign


def test_a_disk_without_the_template_is_no_choice(
    store: Store, ways: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = ("--db", f"{tmp_path}/n.sqlite")
    for verb in ("recommend", "rank"):
        assert main([verb, *db]) == 0
        first = capsys.readouterr().out.splitlines()[0]
        assert first.startswith(f"Use {REFLINK}"), verb


def test_what_is_recommended_for_disposable_disks_is_a_way_of_making_them(
    store: Store, ways: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = ("--db", f"{tmp_path}/n.sqlite")
    assert main(["recommend", "--need", "disposable", "--why", *db]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Use {REFLINK}" in said
    assert "the geometric mean of 3 times: " in said
    assert "QEMU's default cache mode was not measured" not in said, "it is no way of making a disk"


def test_the_table_of_speeds_names_the_verb_that_shows_lives(
    store: Store, ways: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "--why", "--db", f"{tmp_path}/n.sqlite"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert " life --db " in said


def test_lives_of_another_campaign_are_named_for_disposable_disks(
    store: Store, ways: Campaign, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = ["raw/none", "raw/unsafe"]
    plan = {"seed": 1, "cells": paths, "baseline": paths[0], "measurements": []}
    newest = replace(a_campaign(plan=plan, id="newest"), started=ways.started + timedelta(days=1))
    store.add_campaign(newest)
    for round in range(1, 6):
        for path in paths:
            run = a_run(newest, path=path, cell=MeasuredCell(path).fingerprint, round=round)
            store.add_run(run)
    db = ("--db", f"{tmp_path}/n.sqlite")
    there = f"recommend --need disposable --campaign {ways.id}"
    for needs, named in (((), False), (("--need", "disposable"), True)):
        assert main(["recommend", "--why", *needs, *db]) == 0
        assert (there in " ".join(capsys.readouterr().out.split())) is named


def test_a_disk_that_failed_in_its_guest_was_not_without_one(
    store: Store, campaign: Campaign
) -> None:
    """Nor is it said of its rate that it had not settled."""
    answer = stored_lives(store, None)
    assert answer.lives[2].failure is not None
    assert all(life.in_guests for life in answer.lives)
    notes = [note for table in tables(answer) for note in table.notes]
    assert not any("no guest" in note for note in notes)
    assert not any("btrfs" in note and "had not settled" in note for note in notes)
    measured = {"name": "life", "program": "life", "settings": {"guest": False}}
    alone = replace(a_campaign(plan=dict(campaign.plan, measurements=[measured])), id="f" * 8)
    store.add_campaign(alone)
    fingerprint = MeasuredCell(BROKEN_WAY).fingerprint
    store.add_run(a_run(alone, path=BROKEN_WAY, cell=fingerprint, failure=BROKEN, measurements=()))
    assert not any(life.in_guests for life in stored_lives(store, alone.id).lives)
