"""`trend` over real databases: campaigns of one plan, month by month."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
import typer

from tests.unit.analysis.made import CAMPAIGN, HOST, START, campaign_runs, under
from tests.unit.cli.test_widths import require_whole
from tests.unit.stored import Database
from vdisklab.actions.measure import Measured
from vdisklab.analysis.distributions import t_isf
from vdisklab.analysis.level_changes import ChangeKind, LevelChange
from vdisklab.analysis.trend import TrendVerdict
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.figures import campaign_names
from vdisklab.answers.report import report_on
from vdisklab.answers.trend import (
    TOGETHER,
    ClockWentBack,
    FromTheFuture,
    LongPause,
    NoiseLasts,
    OtherHosts,
    RanOtherwise,
    answer_trend,
    trend_of,
)
from vdisklab.cli import trend as verb
from vdisklab.cli.shell.main import main
from vdisklab.documents import document
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_CLAIM_FAILS, EXIT_INTERRUPTED, PlanError
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.run_request import RunRequest
from vdisklab.results.model import Campaign, Check, Failure, FailureKind, RanUnder, Run
from vdisklab.value import replace
from vdisklab.views.charts.figures import figures
from vdisklab.views.choice import MOST_CHARACTERS
from vdisklab.views.layout import Column, Table
from vdisklab.views.report import answer_sentences, page_headline, page_lines
from vdisklab.views.terminal import lines_of
from vdisklab.views.trend import headline, junit_xml, tables

MONTH = timedelta(days=30)


def month(number: int, host: str = "6.1.0-30") -> Campaign:
    facts = replace(HOST, kernel=host, more={"microcode": "0x1"})
    return replace(
        CAMPAIGN, id=f"ca{number:06x}", started=START + number * MONTH, host=facts, label=""
    )


@cache
def runs(number: int, level: float, path: str | None = None) -> tuple[Run, ...]:
    """The made-up runs of a campaign, with the level of all paths, or of one."""
    found = []
    for run in campaign_runs(campaign=f"ca{number:06x}", seed=number):
        factor = level if path in (None, run.path) else 1.0
        measured = tuple(
            replace(
                measurement,
                samples=tuple(
                    replace(
                        s, value=s.value / factor if "latency" in s.metric else s.value * factor
                    )
                    for s in measurement.samples
                ),
            )
            for measurement in run.measurements
        )
        # The first half byte of an id is its round; no campaign has sixteen.
        found.append(replace(run, id=f"{number:02x}{run.id}", measurements=measured))
    return tuple(found)


def levels(count: int, spread: float = 0.02, seed: int = 3) -> list[float]:
    return list(map(float, np.exp(np.random.default_rng(seed).normal(0, spread, count))))


def fill(
    database: Database,
    values: Sequence[float],
    *,
    path: str | None = None,
    host: Callable[[int], str] = lambda _: "6.1.0-30",
) -> None:
    database.write(
        (run for number, value in enumerate(values) for run in runs(number, value, path)),
        campaigns=[month(number, host(number)) for number in reversed(range(len(values)))],
    )


def test_a_change_of_ten_per_cent_against_quiet_campaigns_is_shown(database: Database) -> None:
    fill(
        database,
        [*levels(6, 0.01), 0.5],
        host=lambda number: "6.12.0" if number == 6 else "6.1.0-30",
    )
    with database.open() as results:
        answer = answer_trend(results)
    assert answer.verdict is TrendVerdict.WORSE
    assert answer.exceeded
    first = answer.paths[0]
    assert first.path == TOGETHER
    assert first.newest.change.low is not None
    assert first.newest.change.high is not None
    assert first.newest.change.low < 0.5 / np.mean(levels(6, 0.01)) < first.newest.change.high
    assert [(row.fact, row.after) for row in answer.changed] == [("kernel", "6.12.0")]
    assert headline(answer).startswith("Worse: campaign ca000006 of ")
    assert answer.dated
    assert answer.shifts == ()


def test_the_spread_between_campaigns_is_the_noise(database: Database) -> None:
    """Rounds agree to 1 %, campaigns differ by 15 %: one at 0.9 is nothing new."""
    fill(database, [*levels(6, 0.15), 0.9])
    with database.open() as results:
        answer = answer_trend(results)
    assert answer.verdict is TrendVerdict.NONE_SHOWN
    assert not answer.exceeded
    assert headline(answer).startswith("No change shown")


def test_one_path_alone_is_named(database: Database) -> None:
    fill(database, [*[1.0] * 6, 0.3], path="raw/none")
    with database.open() as results:
        answer = answer_trend(results)
        alone = answer_trend(results, ["raw/none"])
    assert [row.path for row in answer.paths if row.exceeds][-1] == "raw/none"
    assert [row.path for row in alone.paths] == ["raw/none"]
    assert "raw/none" in headline(answer)


def test_two_tables_say_with_what_they_compare_and_the_worst_path_is_first(
    database: Database,
) -> None:
    """After a step the newest campaign adds nothing to it: each table has the number that it
    names, and the narrowest terminal has the whole names of the paths that changed."""
    fill(database, [*levels(7, 0.01), *[0.6] * 4], path="raw/none")
    with database.open() as results:
        answer = answer_trend(results)
    newest, dated = tables(answer)
    assert answer.shifts
    assert {column.heading for column in newest.columns}.isdisjoint(
        column.heading for column in dated.columns if column.title != "path"
    )
    assert any(note.startswith("Lasting: ") for note in newest.notes)
    assert [row.path for row in answer.paths][:2] == [TOGETHER, "raw/none"]
    lines = [line.plain for line in lines_of(dated, 60)]
    assert max(map(len, lines[lines.index("") :])) <= 60
    assert any(line.startswith((" all paths ", " raw/none ")) for line in lines)


@pytest.mark.parametrize(("lasts", "title"), [(True, "its level"), (False, "earlier")])
def test_the_newest_is_compared_with_what_its_column_says(
    database: Database, lasts: bool, title: str
) -> None:
    """One name stood for two: all earlier campaigns, and those since a dated change."""
    fill_some_slower(database, 14 if lasts else 7)
    with database.open() as results:
        answer = answer_trend(results)
    assert any(row.lasting is not None for row in answer.paths) is lasts
    (table, *_) = tables(answer)
    headings = [column.heading for column in table.columns if column.heading.startswith("newest")]
    assert headings == [f"newest against {title} (95 %)"]
    if not lasts:
        return
    said = next(note for note in table.notes if note.startswith("Lasting: "))
    assert "Newest against its level: " in said
    fewer = {len(row.newest.earlier) for row in answer.paths if row.lasting is not None}
    assert max(fewer) < 13


def test_a_change_that_is_not_known_has_no_p(database: Database) -> None:
    fill(database, [*levels(3, 0.3), 1.0])
    with database.open() as results:
        (table, *_) = tables(answer_trend(results))
    by_title: dict[str, Column[Any]] = {column.heading: column for column in table.columns}
    shown = [
        (by_title["newest against earlier (95 %)"].show(row), by_title["p"].show(row))
        for row in table.rows
    ]
    assert ("not known", "–") in shown
    assert all((change == "not known") == (p == "–") for change, p in shown)


def fill_some_slower(database: Database, count: int, *, back: int = 99) -> None:
    """Months of which two of five paths are slower from the eighth on, until one month."""
    noise = np.exp(np.random.default_rng(5).normal(0, 0.03, count))

    def month_of(number: int) -> Iterator[Run]:
        lost = 0.4 if 8 <= number < back else 1.0
        levels_of = {
            factor: {run.id: run for run in runs(number, factor * float(noise[number]))}
            for factor in {1.0, lost}
        }
        for run in runs(number, 1.0):
            factor = lost if run.path in ("host", "raw/none") else 1.0
            yield levels_of[factor][run.id]

    database.write(
        (run for number in range(count) for run in month_of(number)),
        campaigns=[month(number) for number in reversed(range(count))],
    )


@pytest.mark.parametrize(
    "newest", [9, 11, 16, *(pytest.param(each, marks=pytest.mark.nightly) for each in (10, 13))]
)
def test_a_loss_that_alarmed_stands_as_long_as_it_lasts(database: Database, newest: int) -> None:
    """The look after it compares with a campaign that is slow itself, and would show nothing."""
    fill_some_slower(database, newest + 1)
    with database.open() as results:
        answer = answer_trend(results)
    assert (answer.verdict, answer.exceeded) == (TrendVerdict.WORSE, True)
    worse = {row.path: row for row in answer.paths if row.verdict is TrendVerdict.WORSE}
    assert {"host", "raw/none"} == worse.keys() - {TOGETHER}
    assert worse["raw/none"].since == "ca000008"
    assert worse["raw/none"].lasting == pytest.approx(0.4, abs=0.04)
    assert headline(answer).startswith("Worse: 2 of 5 paths are slower since 2026-10-27: ")
    table: Table[Any] = next(tables(answer))
    verdicts = {row.path: table.columns[1].show(row) for row in answer.paths}
    assert verdicts["raw/none"] == "worse since 2026-10-27"
    assert verdicts["qcow2/directsync"] == "no change shown"
    shown = list(tables(answer))
    require_whole(shown, document(answer))
    dated = {shift.path for shift in answer.shifts}
    stands = "the loss since 2026-10-27 stands, which these campaigns do not date yet"
    assert (stands in shown[1].title) == bool(worse.keys() - dated), shown[1].title
    assert dated or shown[1].title.startswith("No lasting change dated in ")


def test_a_loss_that_is_gone_alarms_no_more(database: Database) -> None:
    fill_some_slower(database, 11, back=10)
    with database.open() as results:
        answer = answer_trend(results)
    assert answer.verdict is not TrendVerdict.WORSE
    assert not answer.exceeded


def test_better_is_no_alarm(database: Database) -> None:
    fill(database, [*levels(6, 0.01), 2.5])
    with database.open() as results:
        answer = answer_trend(results, measure="randread-4k-q1/read/latency_p99")
    assert answer.verdict is TrendVerdict.BETTER
    assert not answer.exceeded


def test_two_campaigns_say_how_many_are_missing(database: Database) -> None:
    fill(database, [1.0, 0.5])
    with database.open() as results:
        answer = answer_trend(results)
    assert answer.verdict is TrendVerdict.TOO_FEW
    assert not answer.exceeded
    assert "vdisklab run --again ca000001" in headline(answer)


def test_a_shift_is_dated_and_the_newest_is_judged_by_what_came_after_it(
    database: Database,
) -> None:
    values = [value * (0.6 if number >= 7 else 1) for number, value in enumerate(levels(13, 0.01))]
    fill(database, values, host=lambda number: "6.12.0" if number >= 7 else "6.1.0-30")
    with database.open() as results:
        answer = answer_trend(results)
    shift = answer.shifts[0]
    assert (shift.path, shift.before, shift.after) == (TOGETHER, "ca000006", "ca000007")
    assert shift.change.ratio == pytest.approx(0.6, abs=0.05)
    assert [row.fact for row in shift.changed] == ["kernel"]
    assert shift.kind is ChangeKind.STEP
    assert answer.paths[0].newest.earlier == (7, 8, 9, 10, 11)
    assert answer.paths[0].newest.verdict is TrendVerdict.NONE_SHOWN
    assert answer.paths[0].lasting == shift.change.ratio
    assert answer.verdict is TrendVerdict.WORSE, "the loss lasts"
    assert answer.exceeded
    assert headline(answer).startswith("Worse: all 5 paths together are between ")
    assert "slower since the step between 2026-08-28 and 2026-09-27" in headline(answer)
    require_whole(list(tables(answer)), document(answer))
    (suite,) = Xml.fromstring(junit_xml(answer))  # noqa: S314 - our own
    for failure in suite.iter("failure"):
        # The loss that fails the case, not how the newest campaign compares with those after it.
        assert re.match(r"worse since 2026-09-27: -\d+ %", failure.get("message") or "")
        changed = "Between 2026-08-28 and 2026-09-27: kernel: 6.1.0-30 → 6.12.0"
        assert (failure.text or "").endswith(changed)
    assert len(list(suite.iter("failure"))) == len(answer.paths)


def test_a_slow_decline_is_called_one(database: Database) -> None:
    fill(database, [level * 0.95**number for number, level in enumerate(levels(20, 0.01))])
    with database.open() as results:
        answer = answer_trend(results)
    shift = answer.shifts[0]
    assert shift.kind is ChangeKind.LINE
    assert shift.each == pytest.approx(0.95, abs=0.01)
    assert answer.verdict is TrendVerdict.WORSE
    assert answer.exceeded
    assert "all 5 paths together decline by " in headline(answer)
    require_whole(list(tables(answer)), document(answer))


def test_a_mean_that_some_paths_carry_is_not_called_all_of_them(database: Database) -> None:
    """Two of five paths declined, and `all 5 paths together` did."""

    def month_of(number: int) -> Iterator[Run]:
        level = levels(20, 0.01)[number]
        slow = {run.id: run for run in runs(number, level * 0.95**number)}
        for run in runs(number, level):
            yield slow[run.id] if run.path in ("host", "raw/none") else run

    database.write(
        (run for number in range(20) for run in month_of(number)),
        campaigns=[month(number) for number in reversed(range(20))],
    )
    with database.open() as results:
        answer = answer_trend(results)
    first, *rows = answer.paths
    assert (first.path, first.verdict) == (TOGETHER, TrendVerdict.WORSE)
    # As if no path had shown by itself what they show together.
    unshown = (
        replace(row, lasting=None, newest=replace(row.newest, change=LevelChange(row.lasting)))
        for row in rows
        if row.lasting is not None
    )
    steady = (row for row in rows if row.lasting is None)
    said = headline(replace(answer, paths=(first, *unshown, *steady)))
    assert said.startswith("Worse: the mean of 5 paths ")
    assert re.search(
        r" \(host, raw/none carry it: -\d+ %(?: to -\d+ %)?; the 3 others: \+\S+ % to \+\S+ %\); "
        r"no path shows that by itself yet$",
        said,
    )
    # Below what --worse allows, paths differ by chance.
    assert headline(replace(answer, allowed=0.9)).count("mean of") == 0


def test_no_change_is_said_without_an_interval_that_excludes_none(database: Database) -> None:
    fill(database, [*levels(12, 0.03)])
    with database.open() as results:
        answer = answer_trend(results)
    assert answer.verdict is TrendVerdict.NONE_SHOWN
    assert headline(answer).startswith("No change shown: campaign ")
    assert " between " not in headline(answer)
    for row in answer.paths:
        assert row.newest.change.low is not None
        assert row.newest.change.high is not None
        assert row.newest.change.low < 1 < row.newest.change.high


def test_a_loss_that_lasts_is_dated_in_eight_campaigns(database: Database) -> None:
    """Five campaigns, then three that are 20 % slower, at 3 % noise: nothing was said of most."""
    before, after = levels(5, 0.03, 11), levels(3, 0.03, 111)
    fill(database, [*before, *(0.8 * level for level in after)], path="raw/none")
    with database.open() as results:
        answer = answer_trend(results, ["raw/none"])
    assert answer.exceeded
    (shift,) = answer.shifts
    assert shift.kind is ChangeKind.STEP
    assert shift.change.ratio == pytest.approx(0.8, abs=0.05)
    assert headline(answer).startswith("Worse: raw/none is ")


def test_paths_that_show_a_loss_only_together_say_so(database: Database) -> None:
    """The table said `no change shown` of each path below a headline of 19 % for all."""
    before, after = levels(5, 0.03, 1), levels(3, 0.03, 101)
    fill(database, [*before, *(0.8 * level for level in after)])
    with database.open() as results:
        answer = answer_trend(results)
    first, *others = answer.paths
    assert (first.path, first.verdict) == (TOGETHER, TrendVerdict.WORSE)
    assert "by itself" not in headline(answer), "each path shows it"
    unshown = [replace(row.newest, verdict=TrendVerdict.NONE_SHOWN) for row in others]
    alone = [
        replace(row, newest=newest, lasting=None, since=None, exceeds=False)
        for row, newest in zip(others, unshown, strict=True)
    ]
    wide = replace(answer.shifts[0].change, low=0.5, high=1.1)
    unsure = replace(answer, shifts=(replace(answer.shifts[0], change=wide), *answer.shifts[1:]))
    assert re.fullmatch(
        r"Worse: all 5 paths together are \d+ % slower since the step between .*", headline(unsure)
    ), "no interval denies the headline"
    together = replace(answer, paths=(first, *alone))
    assert headline(together) == f"{headline(answer)}; no path shows that by itself yet"


def test_what_cannot_be_seen_is_said_where_nothing_is_shown(database: Database) -> None:
    """Campaigns that vary by 60 % show no loss of 5 %, and JUnit's sentence is whole."""
    fill(database, [*levels(6, 0.6), 1.5])
    with database.open() as results:
        answer = answer_trend(results)
    assert answer.verdict is TrendVerdict.NONE_SHOWN
    assert not answer.exceeded
    newest = answer.paths[0].newest
    least = newest.least_loss
    assert least is not None
    unseen = (
        r"; a loss below (\S+) % in one campaign, so also one of 5 % \(--worse\), cannot be seen, "
        r"as these vary by "
    )
    said = re.search(unseen, headline(answer))
    assert said is not None
    assert least <= float(said[1]) / 100 < 1
    (table, *_) = tables(answer)
    (way,) = [line for line in table.intro if "--worse" in line]  # the headline has said the rest
    assert re.fullmatch(
        r"Not even 60 campaigns would show a loss of 5 % \(--worse\) in one campaign, as much as "
        r"these vary; 6 more would show one of [\d.]+ %: `vdisklab run --again ca000006`\.",
        way,
    )
    junit = junit_xml(answer)
    assert "not known against" not in junit
    case = r"no change shown: (no change is known|\S+ %.*) against 6 earlier campaigns"
    assert re.search(case + unseen, junit)
    fill(database, [*levels(24, 0.002), 1.0])
    with database.open() as results:
        answer = answer_trend(results, worse=0.5)
    assert answer.paths[0].newest.least_loss is not None
    assert answer.paths[0].newest.least_loss < 0.5
    (table, *_) = tables(answer)
    assert not any("more campaign" in line for line in table.intro)
    assert not any("cannot be seen" in line for line in table.intro)
    assert "cannot be seen" not in junit_xml(answer).rpartition("</testcase>")[0]


def test_campaigns_that_would_show_the_loss_are_not_said_to_be_too_few(database: Database) -> None:
    fill(database, levels(24, 0.002))
    with database.open() as results:
        answer = answer_trend(results)
    has = len(answer.paths[0].newest.earlier)
    row = answer.paths[0]
    # As if the newest campaign alone had varied.
    newest = replace(row.newest, change=replace(row.newest.change, low=0.8))
    varied = replace(answer, needed=has, paths=(replace(row, newest=newest),))
    (table, *_) = tables(varied)
    (way,) = [line for line in table.intro if "To see a loss" in line]
    assert "takes 1 more campaign, if all vary as these do" in way


def test_few_campaigns_say_how_many_more_show_the_loss_that_is_asked_for(
    database: Database,
) -> None:
    fill(database, levels(5, 0.003))
    with database.open() as results:
        answer = answer_trend(results, worse=0.15)
    (table, *_) = tables(answer)
    (way,) = [line for line in table.intro if "more campaign" in line]
    said = re.fullmatch(
        r"To see a loss of 15 % \(--worse\) in one campaign takes (\d+) more campaigns?, if all "
        r"vary as these do: `vdisklab run --again ca000004`\.",
        way,
    )
    assert said is not None
    assert answer.needed is not None
    assert answer.needed == 4 + int(said[1])
    (spread,) = [row.newest.spread for row in answer.paths if row.path == TOGETHER]
    assert spread is not None
    # 2.5 % of 24 looks, half of it for all paths together; one campaign fewer does not show it.
    for earlier, shown in ((answer.needed, True), (answer.needed - 1, False)):
        half = float(t_isf(0.05 / 24 / 4, earlier - 1)) * spread * math.sqrt(1 + 1 / earlier)
        assert (math.exp(-half) >= 0.85) is shown


def test_an_interval_that_begins_below_the_limit_is_not_said_to_be_above_it(
    database: Database,
) -> None:
    """ "between 1.9 and 49 % slower" was followed by "That is more than 5 %"."""
    fill(database, [*levels(5, 0.01), 0.7])
    with database.open() as results:
        answer, sure = answer_trend(results, worse=0.2), answer_trend(results)
    assert answer.exceeded
    assert sure.exceeded
    (line,) = [line for line in next(iter(tables(sure))).intro if "exit status is 9" in line]
    assert line == "That is more than 5 % (--worse), so the exit status is 9."
    high = max(row.newest.change.high or 0 for row in answer.paths if row.exceeds)
    said = next(line for line in next(iter(tables(answer))).intro if "exit status is 9" in line)
    assert high >= 0.8
    assert said == (
        "That may be less, but the estimate is more than 20 % (--worse), so the exit status is 9."
    )


def test_campaigns_with_an_added_path_are_compared_with_those_before(database: Database) -> None:
    """And with nothing that was measured in another way, or has no path in common."""
    cells = [*sorted({run.path for run in runs(0, 1.0)} - {"raw/none"}), "raw/none"]
    few = {**CAMPAIGN.plan, "cells": cells[:-1]}
    more = {**CAMPAIGN.plan, "cells": cells}
    other = {**CAMPAIGN.plan, "cells": ["lvm/none"]}
    campaigns = [
        replace(month(number), plan=more if number > 6 else few if number else other)
        for number in reversed(range(9))
    ]
    database.write(
        [
            run for number, level in enumerate(levels(9)) for run in runs(number, level)
            if number > 6 or run.path != cells[-1]
        ],
        campaigns=campaigns,
    )  # fmt: skip
    with database.open() as results:
        answer = answer_trend(results)
    assert [campaign.id for campaign in answer.campaigns] == [
        f"ca{number:06x}" for number in range(1, 9)
    ]
    assert answer.dated
    assert answer.paths[0].path == TOGETHER
    assert None not in answer.paths[0].levels
    (added,) = [row for row in answer.paths if row.path == cells[-1]]
    assert added.newest.verdict is TrendVerdict.TOO_FEW
    assert answer.paths[0].newest.verdict is TrendVerdict.NONE_SHOWN


def refused(database: Database, names: Sequence[str] = ()) -> PlanError:
    with database.open() as results, pytest.raises(PlanError) as caught:
        answer_trend(results, campaigns=names)
    return caught.value


def test_the_first_campaign_is_no_error_and_names_the_command_that_measures_another(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A monthly job's first month passes, and has its file."""
    fill(database, [1.0])
    with database.open() as results:
        answer = answer_trend(results)
        assert trend_of(results, ["ca000000"]) is None
    assert answer.verdict is TrendVerdict.TOO_FEW
    assert headline(answer).startswith("Nothing to compare yet: campaign ca000000 is the only one")
    assert headline(answer).endswith("measure it anew: `vdisklab run --again ca000000`")
    (table,) = tables(answer)
    assert not any("Lasting changes" in note for note in table.notes)
    require_whole([table], document(answer))
    file, copy = tmp_path / "trend.xml", tmp_path / "copy.sqlite"
    shutil.copy(database.file, copy)
    assert main(["trend", "--db", str(copy), "--junit", str(file)]) == 0
    assert "Nothing to compare yet" in capsys.readouterr().out
    (suite,) = Xml.fromstring(file.read_text())  # noqa: S314 - our own
    assert suite.get("skipped") == suite.get("tests") == str(len(answer.paths))
    said = [skipped.get("message") or "" for skipped in suite.iter("skipped")]
    assert len(set(said)) == 1
    assert said[0].endswith(": no earlier campaign. Measured under emulation (TCG)")
    for once in ("Nothing to compare yet", "vdisklab doctor"):
        assert file.read_text().count(once) == (suite[-1].text or "").count(once) == 1
    assert f"run --again ca000000 --db {copy}`" in file.read_text()


def test_a_campaign_whose_directory_is_gone_says_what_is_needed_first(database: Database) -> None:
    fill(database, [1.0])
    gone = replace(CAMPAIGN, id="cb000000", plan={**CAMPAIGN.plan, "directory": "/root/qs"})
    begun = replace(month(1), id="cb000001")  # of the plan of one that has runs
    database.write((), campaigns=[gone, begun])
    with database.open() as results:
        with pytest.raises(PlanError, match="campaign cb000001 has no run yet"):
            answer_trend(results, campaigns=["cb000001"])
        with pytest.raises(PlanError) as caught:
            answer_trend(results, campaigns=["cb000000"], machine=HOST.machine_id)
    assert str(caught.value) == "campaign cb000000 has no run yet"
    assert str(caught.value.hint).startswith("measure it anew, once its work directory /root/qs is")


def test_another_host_of_the_same_name_measures_its_own_campaigns(database: Database) -> None:
    """`run --again` would fail here, so the sentence says where it works."""
    fill(database, [1.0, 0.9])
    with database.open() as results:
        said = headline(answer_trend(results, campaigns=["ca000000"], machine="f" * 16))
    assert said.endswith(
        f"measure it anew on its own host, another machine named {HOST.hostname}: "
        "`vdisklab run --again ca000000`"
    )
    with database.open() as results:
        there, here = (answer_trend(results, machine=m) for m in ("f" * 16, HOST.machine_id))
    assert (there.elsewhere, here.elsewhere) == (True, False)
    assert "its own host, not this one, runs `vdisklab run --again" in headline(there)
    assert "its own host" not in headline(here)
    for answer, where in ((there, ", on its own host"), (here, "")):
        (table, *_) = tables(replace(answer, exceeded=True))
        again = f"To measure again before believing it{where}: `vdisklab trend --confirm`."
        assert again in table.intro


def test_changed_facts_are_in_their_words(database: Database) -> None:
    """Unmeasured keys are no change; each change says what it was and is."""
    fill(
        database,
        [1.0, 1.0, 1.0, 1.0, 0.7],
        host=lambda number: "6.1.0-31" if number == 4 else "6.1.0-30",
    )
    with database.open() as results:
        answer = answer_trend(results)
    assert [(change.fact, change.before, change.after) for change in answer.changed] == [
        ("kernel", "6.1.0-30", "6.1.0-31")
    ]
    table, *_ = tables(answer)
    assert (
        "Changed on the host since the campaign before: kernel: 6.1.0-30 → 6.1.0-31." in table.intro
    )
    unknown = replace(month(5), host=replace(HOST, kernel="6.1.0-31", more={}))
    database.write(
        (run for number in range(6) for run in runs(number, 1.0)),
        campaigns=[unknown, *(month(number, "6.1.0-31") for number in reversed(range(5)))],
    )
    with database.open() as results:
        newest = answer_trend(results)
    assert newest.changed == (), "the microcode is not known any more, which is no change"


def test_a_path_that_was_not_measured_again_is_no_change_of_the_host(database: Database) -> None:
    """Its states are its own: a thin image is not mapped, whatever the host does."""

    def campaign(number: int, layout: str) -> list[Run]:
        found = list(runs(number, 1.0))
        left_out = found[0].cell
        return [
            replace(
                run,
                checks=(
                    Check("host.image.mapped", None, "0" if run.cell == left_out else "268435456"),
                    Check("host.mount", None, layout),
                ),
            )
            for run in found
            if number < 5 or run.cell != left_out
        ]

    def changed(layout: str) -> list[str]:
        database.write(
            (
                run
                for number in range(6)
                for run in campaign(number, layout if number == 5 else "rw")
            ),
            campaigns=[month(number) for number in reversed(range(6))],
        )
        with database.open() as results:
            return [change.fact for change in answer_trend(results).changed]

    assert changed("rw") == []
    assert changed("rw,noatime") == ["host.mount"]


def test_each_campaign_of_a_trend_has_a_label_of_its_own(database: Database) -> None:
    """Days, else minutes, else the id: two points of one label would lie on each other."""
    fill(database, [1.0] * 5)
    with database.open() as results:
        answer = answer_trend(results)
    minute = timedelta(minutes=1)
    starts = [START, START + MONTH, START + MONTH + minute, START + 2 * MONTH, START + 2 * MONTH]
    alike = [
        replace(campaign, started=start)
        for campaign, start in zip(answer.campaigns, starts, strict=True)
    ]
    labels = campaign_names(replace(answer, campaigns=tuple(alike)))
    assert len(set(labels)) == 5
    day = f"{START + 2 * MONTH:%Y-%m-%d}"
    assert labels == [
        f"{START:%Y-%m-%d}",
        *(f"{start:%Y-%m-%d %H:%M}" for start in starts[1:3]),
        *(f"{day} {campaign.id}" for campaign in alike[3:]),
    ]


def test_campaigns_of_two_hosts_or_plans_are_not_compared(database: Database) -> None:
    elsewhere = replace(HOST, machine_id="f" * 16, hostname="bench2")
    other_plan = {**CAMPAIGN.plan, "size_bytes": 1 << 30}
    campaigns = [
        replace(month(2), host=elsewhere), replace(month(3), plan=other_plan), month(1), month(0),
    ]  # fmt: skip
    database.write([run for number in range(4) for run in runs(number, 1.0)], campaigns=campaigns)
    for name, what in (("ca000002", "another host"), ("ca000003", "another plan")):
        error = refused(database, ["ca000000", name])
        assert what in str(error)
        assert f"`vdisklab rank --campaign {name}`" in (error.hint or "")
    with database.open() as results:
        answer = answer_trend(results, campaigns=["ca000001"])
    assert [campaign.id for campaign in answer.campaigns] == ["ca000000", "ca000001"]


def test_hosts_of_one_name_are_told_apart_as_runs_does(database: Database) -> None:
    elsewhere = replace(month(2), host=replace(HOST, machine_id="f" * 16))
    database.write(
        [*runs(1, 1.0), *runs(2, 1.0)],
        campaigns=[replace(elsewhere, plan={**CAMPAIGN.plan, "size_bytes": 1 << 30}), month(1)],
    )
    with database.open() as results:
        (only,) = (str(each) for each in answer_trend(results).findings)
    assert f"the only one of its plan on {HOST.hostname}-ffffffff, and" in only


def test_campaigns_under_another_accelerator_are_named_and_not_compared(
    database: Database,
) -> None:
    """A host that got KVM had no trend any more: its first campaigns were emulated."""
    kvm = RanUnder(Accelerator.KVM)
    made = [run for number in range(3) for run in runs(number, 1.0)]
    made += [under(kvm, run) for number in (3, 4) for run in runs(number, 1.0) if run.accelerator]
    database.write(made, campaigns=[month(number) for number in reversed(range(5))])
    with database.open() as results:
        answer = answer_trend(results)
        assert [campaign.id for campaign in answer.campaigns] == ["ca000003", "ca000004"]
        (said,) = [str(each) for each in answer.findings if isinstance(each, RanOtherwise)]
        assert "3 campaigns of the same plan (ca000002, ca000001, ca000000)" in said
        assert "`vdisklab trend --campaign ca000002` shows the newest of them" in said
        assert len(answer_trend(results, campaigns=["ca000002"]).campaigns) == 3
    error = refused(database, ["ca000004", "ca000002"])
    assert "another accelerator" in str(error)


def test_another_seed_and_more_rounds_are_the_same_plan(database: Database) -> None:
    campaigns = [
        replace(month(number), plan={**CAMPAIGN.plan, "seed": number, "rounds": 3 + number})
        for number in reversed(range(3))
    ]
    database.write([run for number in range(3) for run in runs(number, 1.0)], campaigns=campaigns)
    with database.open() as results:
        assert len(answer_trend(results).campaigns) == 3


def test_another_host_of_the_same_plan_is_named(database: Database) -> None:
    elsewhere = replace(month(2), host=replace(HOST, machine_id="f" * 16, hostname="bench2"))
    campaigns = [month(4), month(3), elsewhere, month(1)]
    database.write(
        [run for number in (1, 2, 3, 4) for run in runs(number, 1.0)], campaigns=campaigns
    )
    with database.open() as results:
        answer = answer_trend(results)
    assert answer.findings == (OtherHosts(("bench2",), "ca000002"),)


def test_other_hosts_of_one_name_are_told_apart(database: Database) -> None:
    hosts = [
        replace(HOST, machine_id=letter * 16, hostname="vm") for letter in ("e", "f", "f", "d")
    ]
    campaigns = [replace(month(4 - place), host=host) for place, host in enumerate(hosts)]
    database.write(
        [run for number in (1, 2, 3, 4) for run in runs(number, 1.0)], campaigns=campaigns
    )
    with database.open() as results:
        findings = answer_trend(results).findings
    (found,) = [each for each in findings if isinstance(each, OtherHosts)]
    assert found == OtherHosts(("vm-ffffffff", "vm-dddddddd"), "ca000003")
    assert "2 other hosts: vm-ffffffff" in str(found)


def test_a_clock_that_went_back_is_said(database: Database) -> None:
    campaigns = [month(2), month(0), month(1)]  # month 0 was stored after month 1
    database.write([run for number in range(3) for run in runs(number, 1.0)], campaigns=campaigns)
    with database.open() as results:
        answer = answer_trend(results)
    assert answer.findings == (ClockWentBack("ca000000", "ca000001"),)
    assert "clock went back" in str(answer.findings[0])
    late = replace(month(2), started=datetime(2999, 1, 1, tzinfo=START.tzinfo))
    database.write(
        [run for number in range(3) for run in runs(number, 1.0)],
        campaigns=[late, month(1), month(0)],
    )
    with database.open() as results:
        (found,) = answer_trend(results).findings
    assert isinstance(found, FromTheFuture)


@pytest.mark.parametrize(("months", "said"), [((0, 1, 2, 3, 9), True), ((0, 1, 2, 3, 5), False)])
def test_months_that_are_missing_are_said(
    database: Database, months: Sequence[int], said: bool
) -> None:
    """One missing campaign is not a long pause, and campaigns named by the user have no pauses."""
    database.write(
        (run for number in months for run in runs(number, 1.0)),
        campaigns=[month(number) for number in reversed(months)],
    )
    with database.open() as results:
        answer = answer_trend(results)
        chosen = answer_trend(results, campaigns=[each.id for each in answer.campaigns])
    pauses = [each for each in answer.findings if isinstance(each, LongPause)]
    assert len(pauses) == said
    if said:
        before, after = (f"{month(number).started:%Y-%m-%d}" for number in (3, 9))
        assert f"between {before} and {after}, for 180 days, where 30 are usual" in str(pauses[0])
    assert not any(isinstance(each, LongPause) for each in chosen.findings)


def test_a_path_without_numbers_in_the_newest_campaign_is_not_judged(database: Database) -> None:
    values = [1.0, 1.01, 0.99, 1.0]
    kept = (
        run
        for number, value in enumerate(values)
        for run in runs(number, value)
        if number < 3 or run.path != "raw/none"
    )
    database.write(kept, campaigns=[month(number) for number in reversed(range(4))])
    with database.open() as results:
        rows = {row.path: row for row in answer_trend(results).paths}
    assert rows["raw/none"].newest.verdict is TrendVerdict.NOT_MEASURED
    assert rows["raw/none"].levels[-1] is None
    assert rows[TOGETHER].newest.verdict is TrendVerdict.NONE_SHOWN


def fill_but_for(database: Database, lacking: str, *, failed: bool, planned: bool = True) -> None:
    """Four months, in the last of which a path has failed, or was not begun."""

    def kept() -> Iterator[Run]:
        for number, value in enumerate([1.0, 1.01, 0.99, 1.0]):
            for run in runs(number, value):
                if number < 3 or run.path != lacking:
                    yield run
                elif failed:
                    failure = Failure(FailureKind.WORKLOAD, "fio ended")
                    yield replace(run, measurements=(), failure=failure)

    well = (run for run in runs(3, 1.0) if run.failure is None)
    every = list(dict.fromkeys(run.measured_cell.label for run in well))
    campaigns = [
        replace(month(number), plan={**CAMPAIGN.plan, "cells": every})
        for number in reversed(range(4))
    ]
    cells = [cell for cell in every if planned or cell != lacking]
    newest = replace(campaigns[0], plan={**CAMPAIGN.plan, "cells": cells})
    database.write(kept(), campaigns=[newest, *campaigns[1:]])


@pytest.mark.parametrize("failed", [True, False])
def test_what_was_asked_for_and_not_measured_is_the_last_line_and_status_8(
    database: Database, call: Callable[..., tuple[int, str]], tmp_path: Path, failed: bool
) -> None:
    fill_but_for(database, "raw/none", failed=failed)
    junit = tmp_path / "trend.xml"
    status, text = call("--junit", str(junit))
    assert status == EXIT_CELLS_FAILED
    last = " ".join(text.split()).rpartition("Not measured: ")[2]
    assert last.startswith("raw/none: no run in campaign ca000003 succeeded, so the exit status")
    assert "vdisklab run --again ca000003" in last
    suite = Xml.parse(junit).getroot()[0]  # noqa: S314 - our own
    assert [case.get("name") for case in suite if case.find("error") is not None] == ["raw/none"]
    assert int(suite.get("tests", "0")) == len(suite.findall("testcase"))
    assert suite.get("errors") == "1"
    status, text = call("--format", "json")
    assert (status, json.loads(text)["not_measured"]) == (EXIT_CELLS_FAILED, ["raw/none"])
    assert call("raw/none")[0] == EXIT_CELLS_FAILED
    assert call("qcow2/directsync")[0] == 0  # which is all that was asked for


def test_a_path_that_the_plan_left_out_was_not_asked_for(
    database: Database, call: Callable[..., tuple[int, str]]
) -> None:
    fill_but_for(database, "raw/none", failed=False, planned=False)
    assert call()[0] == 0
    assert call("raw/none")[0] == EXIT_CELLS_FAILED


@pytest.fixture
def call(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs the verb: exit status and what is printed."""
    monkeypatch.setenv("COLUMNS", "80")
    app = typer.Typer()
    app.command()(verb.trend)

    def run(*arguments: str) -> tuple[int, str]:
        status = typer.main.get_command(app).main(
            [*arguments, "--db", database.url], standalone_mode=False
        )
        return int(status or 0), capsys.readouterr().out

    return run


def test_the_exit_status_and_all_formats(
    database: Database, call: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    fill(database, [*levels(6, 0.01), 0.5])
    junit = tmp_path / "trend.xml"
    status, shown = call("--junit", str(junit))
    assert status == EXIT_CLAIM_FAILS
    assert "Worse: campaign ca000006" in shown
    assert call("--worse", "70%")[0] == 0
    status, text = call("--format", "json")
    assert status == EXIT_CLAIM_FAILS
    document = json.loads(text)
    assert document["format"] == "vdisklab.trend/1"
    assert document["exceeded"] is True
    assert document["sentences"][0].startswith("Worse: campaign ca000006")
    status, text = call("--format", "csv")
    header, first = text.splitlines()[:2]
    assert "newest.change.ratio" in header.split(",")
    assert first.startswith("all paths,worse,")
    suite = Xml.parse(junit).getroot()[0]  # noqa: S314 - our own
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert len(failed) == int(suite.get("failures", "0"))
    assert TOGETHER in failed


def test_the_command_that_confirms_asks_the_same(
    database: Database, call: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database, [*levels(6, 0.01), 0.5])
    asked = ("raw/none", "--worse", "1%", "--campaign", "ca000006")
    shown = (*asked, "--wide", "--why", "--format", "json")  # these measure nothing
    monkeypatch.setattr("sys.argv", ["vdisklab", "trend", *shown])
    (said,) = (
        sentence
        for sentence in json.loads(call(*shown)[1])["sentences"]
        if "before believing" in sentence
    )
    assert f"`vdisklab trend {' '.join(asked)} --confirm`" in said


@pytest.mark.parametrize(("level", "status"), [(0.5, EXIT_CLAIM_FAILS), (1.0, 0)])
def test_confirm_measures_again_before_the_verdict(
    database: Database,
    call: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
    level: float,
    status: int,
) -> None:
    """Both campaigns must be worse; the suspected one is none of the earlier ones."""
    fill(database, [*levels(6, 0.01), 0.5])
    asked: list[str | None] = []

    def again(store: object, request: RunRequest) -> RunRequest:
        del store
        asked.append(request.again)
        return replace(request, again=None, paths=("raw/none",), rounds=4)

    def measured(*_: object, **__: object) -> Measured:
        with database.open() as store:
            store.add_campaign(month(7))
        database.add(runs(7, level))
        return Measured("ca000007", runs=24)

    monkeypatch.setattr(verb, "repeated", again)
    monkeypatch.setattr(verb, "measure", measured)
    ended, text = call("--confirm", "--format", "json")
    answer = json.loads(text)
    assert (ended, asked) == (status, ["ca000006"])
    assert answer["repeats"] == "ca000006"
    assert answer["confirmed"] is (status == EXIT_CLAIM_FAILS)
    assert answer["paths"][0]["newest"]["earlier"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("lacking", [("raw/none",), None])
def test_a_repeat_that_failed_on_the_suspected_path_confirms_nothing(
    database: Database,
    call: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
    lacking: tuple[str, ...] | None,
) -> None:
    """None stands for all paths: every run of the repeat failed."""
    fill(database, [*levels(6, 0.01), 0.3], path="raw/none")

    def measured(*_: object, **__: object) -> Measured:
        with database.open() as store:
            store.add_campaign(month(7))
        database.add(
            replace(run, measurements=(), failure=Failure(FailureKind.WORKLOAD, "fio ended"))
            if lacking is None or run.path in lacking
            else run
            for run in runs(7, 1.0)
        )
        return Measured("ca000007", runs=24, failed=4)

    monkeypatch.setattr(verb, "repeated", lambda _, request: replace(request, again=None))
    monkeypatch.setattr(verb, "measure", measured)
    ended, text = call("--confirm", "--format", "json")
    answer = json.loads(text)
    assert ended == EXIT_CELLS_FAILED
    assert (answer["repeats"], answer["confirmed"]) == ("ca000006", None)
    said = " ".join(answer["sentences"])
    assert "ca000006 looked worse, which could not be confirmed: ca000007 repeats it, but" in said
    assert "has no numbers of raw/none" in said or lacking is None


def test_an_interrupted_confirmation_has_no_verdict(
    database: Database,
    call: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(database, [*levels(6, 0.01), 0.5])
    monkeypatch.setattr(verb, "repeated", lambda _, request: replace(request, again=None))
    monkeypatch.setattr(verb, "measure", lambda *_, **__: Measured(interrupted=True))
    assert call("--confirm") == (EXIT_INTERRUPTED, "")


def test_a_quiet_newest_campaign_needs_no_confirmation(
    database: Database,
    call: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(database, levels(6, 0.01))

    def never(*_: object) -> RunRequest:
        raise AssertionError

    monkeypatch.setattr(verb, "repeated", never)
    assert call("--confirm")[0] == 0


def test_hostile_names_leave_junit_well_formed(database: Database) -> None:
    fill(database, [1.0, 1.0])
    with database.open() as results:
        answer = answer_trend(results)
    hostile = replace(answer.campaigns[-1].host, hostname='<b>"&\x1b[31m￾')
    campaign = replace(answer.campaigns[-1], host=hostile)
    text = junit_xml(replace(answer, campaigns=(*answer.campaigns[:-1], campaign)))
    (suite,) = Xml.fromstring(text)  # noqa: S314 - our own
    assert suite.get("skipped") == str(len(answer.paths))


def test_the_report_draws_the_levels_and_says_the_verdict(database: Database) -> None:
    values = [*levels(8, 0.01), *(0.6 * level for level in levels(4, 0.01, 4))]
    fill(database, values, host=lambda number: "6.12.0" if number >= 8 else "6.1.0-30")
    with database.open() as results:
        answer = answer_trend(results)
        report = report_on(Analysis.of(results, [answer.campaigns[-1].id]))
        early = report_on(Analysis.of(results, [answer.campaigns[0].id]))
    assert report.trend == answer
    (figure,) = [figure for figure in figures(report) if figure.key == "trend"]
    (lines,) = figure.curves
    assert lines.lines[0] == TOGETHER
    assert list(lines.data[1]) == list(answer.paths[0].levels)
    assert lines.ticks[0] == "2026-03-01"
    assert not lines.log
    assert headline(answer) in figure.note
    assert "One lasting change dated in 12 campaigns" in figure.note
    assert "kernel" in figure.note
    # The first screen has it, too: what the answer says holds for a host that has changed.
    over_time = dict(page_lines(report))["Over time"]
    assert over_time.startswith("The host has become slower: all 5 paths together are ")
    assert over_time in answer_sentences(report)
    large = page_headline(report)
    assert large.endswith("; this host has got slower")
    assert len(large) <= MOST_CHARACTERS
    assert "slower" not in page_headline(early)
    assert "Over time" not in dict(page_lines(early))
    assert early.trend is None, "nothing is compared with what came later"
    assert not [figure for figure in figures(early) if figure.key == "trend"]


def test_one_share_of_changes_dated_by_chance_is_named(database: Database) -> None:
    """A host whose noise lasts has another share than most: both on one screen read as an error."""
    fill(database, [value * (0.6 if number >= 7 else 1) for number, value in enumerate(levels(13))])
    with database.open() as results:
        found = answer_trend(results)
    assert found.shifts
    for answer, share in ((found, "fifty"), (replace(found, findings=(NoiseLasts(),)), "ten")):
        shown = " ".join(note for table in tables(answer) for note in table.notes)
        assert re.findall(r"one of (\w+)", shown) == [share]


def test_paths_that_the_newest_campaign_lacks_are_not_counted(database: Database) -> None:
    """No alarm would be read as that all paths are as fast as before."""
    lacking = ("raw/none", "qcow2/directsync")
    database.write(
        (
            run
            for number, value in enumerate(levels(8, 0.01))
            for run in runs(number, value)
            if number < 7 or run.path not in lacking
        ),
        campaigns=[month(number) for number in reversed(range(8))],
    )
    with database.open() as results:
        answer = answer_trend(results)
    unknown = "Nothing is known of qcow2/directsync, raw/none: campaign ca000007 has no numbers"
    said = headline(answer)
    assert " on the 3 of 5 paths that it measured, together" in said
    assert "all 5 paths" not in said
    assert any(unknown in line for table in tables(answer) for line in table.intro)
    xml = junit_xml(answer)
    assert unknown in xml
    assert "<system-out>of 3 of 5 paths: no change shown" in xml
    assert xml.count("<skipped ") == len(lacking)
