"""The report in every format, and nothing of others' texts obeyed in any."""

from __future__ import annotations

import html
import io
import itertools
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest
from pyarrow import parquet

from tests.unit.analysis.made import CAMPAIGN, campaign_runs, cell
from tests.unit.stored import Database, stored
from tests.unit.views.large import hostile, renamed, shapely, shapely_runs
from vdisklab.analysis.diagnostics.ranked import FailedCell
from vdisklab.analysis.score import NoScore
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.export import configurations_of
from vdisklab.answers.report import Figure, ReportAnswer, report_on
from vdisklab.cli.shell.main import main
from vdisklab.errors import DatabaseError, HostError, PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.platforms.registry import forms
from vdisklab.results.model import Direction
from vdisklab.results.power_cut import PowerCut
from vdisklab.value import replace
from vdisklab.views.charts.figures import figures
from vdisklab.views.charts.lines import sweep_figures
from vdisklab.views.page.html import driver_settings, page_file, page_style, render_page
from vdisklab.views.report import (
    answer_sentences,
    claims_table,
    diagnostic_sentences,
    diagnostics_by_cell,
    headline,
)
from vdisklab.views.report_files import ReportFormat, _prose, build

QUICKSTART = Path(__file__).parents[4] / "docs/images/quickstart.json.gz"
LONGEST_TITLE = 20
"""Of a vertical axis, in characters: a chart is 220 pixels high, of which some 170 are the axis."""


@pytest.fixture(scope="module")
def contents() -> ReportAnswer:
    with shapely() as store:
        return report_on(Analysis.of(store))


@pytest.fixture(scope="module")
def poisoned() -> ReportAnswer:
    with hostile() as store:
        return report_on(Analysis.of(store))


class Tags(HTMLParser):
    """What a browser would make of a page: its elements with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_every_figure_of_the_articles_is_there_or_says_what_to_do(contents: ReportAnswer) -> None:
    found = {figure.key: figure for figure in figures(contents)}
    assert list(found) == [
        "baseline", "cache-methods", "storage-methods", "ide", "top-read", "top-write",
        "top-overall", "guest-host", "thin", "safety", "trade-offs", "over-time", "latency",
        "published",
    ]  # fmt: skip
    for figure in found.values():
        drawn = bool(figure.curves or figure.bars)
        assert drawn == (figure.missing is None), figure.key
        if drawn and not figure.key.startswith("over-time"):
            assert "under emulation" in figure.alt, figure.key
        if drawn:
            assert len(figure.alt) > 40, figure.key


def test_a_guest_as_baseline_is_not_drawn_as_the_host_itself(contents: ReportAnswer) -> None:
    guests = [each for each in contents.summaries[contents.measure] if not each.on_host]
    of_a_guest = replace(contents, ranked=replace(contents.ranked, baseline=guests[0]))
    (figure,) = [each for each in figures(of_a_guest) if each.key == "baseline"]
    assert figure.bars == ()
    assert figure.missing is not None


def over_time(contents: ReportAnswer) -> Figure:
    (figure,) = [each for each in figures(contents) if each.key == "over-time"]
    return figure


def test_stalls_are_marked_and_told(contents: ReportAnswer) -> None:
    curves = over_time(contents).curves
    for lines in curves:
        assert set(lines.lines) == {each.label for each in contents.featured}
    assert {lines.panel: lines.gaps for lines in curves if lines.gaps} == {
        "seqwrite-1m-q1": ((3.0, 4.0),)
    }
    assert "1 stalled second in 5 runs" in over_time(contents).alt


def test_rest_seen_from_outside_is_not_called_a_stall(contents: ReportAnswer) -> None:
    outside = tuple(replace(each, direction=Direction.NONE) for each in contents.bandwidth_series)
    figure = over_time(replace(contents, bandwidth_series=outside))
    assert [lines.gaps for lines in figure.curves] == [()] * len(figure.curves)
    assert "stalled" not in figure.alt
    assert "worst" not in figure.alt
    assert "has no marks" in (figure.note or "")


def test_without_series_the_figure_says_what_to_do(contents: ReportAnswer) -> None:
    bare = replace(contents, bandwidth_series=())
    figure = over_time(bare)
    assert figure.curves == ()
    assert "vdisklab run" in (figure.missing or "")


def test_claims_and_published_numbers_stand_in_the_page(contents: ReportAnswer) -> None:
    page = html.unescape(render_page(contents))
    assert "checked with your numbers" in page
    table = claims_table(contents)
    assert table is not None
    for row in table.rows:
        assert row.sentence in page
        assert row.verdict in re.sub("<[^>]*>", "", page)
    assert contents.published
    for answer in contents.published:
        assert answer.table.machine in re.sub("<[^>]*>", "", page)
    assert 'id="figure-published"' in page


def test_a_page_says_how_its_cells_were_measured(contents: ReportAnswer) -> None:
    every = "measured every cell once"
    assert set(contents.measured.values()) == {contents.ranked.rounds}
    assert every in render_page(contents)
    fewer = [run for run in shapely_runs() if run.path != "raw/none" or run.round < 3]
    with stored(fewer) as store:
        uneven = report_on(Analysis.of(store))
    page = render_page(uneven)
    assert every not in page
    assert "The cells have different numbers of rounds" in page
    race = {"margin": 0.1, "confidence": 0.95, "metric": "score", "needs": [], "shortlist": False}
    terms = {**CAMPAIGN.plan, "race": {**race, "rounds": 9}}
    raced = replace(uneven.ranked, campaigns=(replace(CAMPAIGN, plan=terms),))
    page = render_page(replace(uneven, ranked=raced))
    assert every not in page
    assert "the paths that were still in the race" in page


def test_published_numbers_without_a_counterpart_are_counted() -> None:
    with stored([run for run in shapely_runs() if run.path != "raw/none"]) as store:
        found = report_on(Analysis.of(store))
    page = html.unescape(render_page(found))
    for answer in found.published:
        missing = len(answer.comparison.rows) - len(answer.comparison.compared)
        assert missing > 0
        assert f"{missing} of its numbers were not measured here" in page
    assert "not measured</td>" not in page


def test_diagnostics_are_shown_with_their_numbers() -> None:
    runs = [
        replace(run, measurements=run.measurements[:2]) if run.path == "qcow2/unsafe" else run
        for run in shapely_runs()
    ]
    with stored(runs) as store:
        found = report_on(Analysis.of(store))
    assert any(isinstance(each, NoScore) for each in found.findings)
    page = render_page(found)
    assert "qcow2/unsafe (cold): no overall ratio, as it lacks" in html.unescape(page)
    assert diagnostics_by_cell(found)["qcow2/unsafe (cold)"]


def test_very_many_findings_of_a_kind_are_counted(contents: ReportAnswer) -> None:
    many = tuple(FailedCell(cell(f"raw/none/{n}"), 1, "guest", "it failed") for n in range(1000))
    said = diagnostic_sentences(replace(contents, findings=many))
    assert len([each for each in said if "it failed" in each]) < 10
    assert any("994 more" in each for each in said)


def test_a_figure_tells_its_numbers_to_who_cannot_see_it(contents: ReportAnswer) -> None:
    page = html.unescape(render_page(contents))
    for figure in figures(contents):
        for lines in figure.curves:
            assert f'role="img" aria-label="{lines.alt or figure.alt}"' in page


def test_the_page_refers_to_nothing_outside(contents: ReportAnswer) -> None:
    page = render_page(contents)
    for tag, attributes in Tags(page).found:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base"), tag
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]


def test_no_line_of_the_first_screen_begins_with_a_percent_sign(
    contents: ReportAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (("Doubt", "the first is ×1.28 as good (95 %: 0.788–2.08), by `at 95 %`"),)
    monkeypatch.setattr("vdisklab.views.page.html.page_lines", lambda _: lines)
    monkeypatch.setattr(
        "vdisklab.views.page.html.page_headline", lambda _: "Change to raw/none: +35 % (12–60)"
    )
    page = build(contents, ReportFormat.HTML).decode()
    assert "Change to raw/<wbr>none: +35\N{NO-BREAK SPACE}% (" in page
    assert '(<span class="whole">12–60</span>)</h1>' in page
    assert "(95\N{NO-BREAK SPACE}%: <span" in page
    assert '<span class="whole">0.788–2.08</span>), by <code>at 95 %</code>' in page


def test_a_page_of_poisoned_texts_has_the_same_elements(
    contents: ReportAnswer, poisoned: ReportAnswer
) -> None:
    page = render_page(poisoned)
    tags = {tag for tag, _ in Tags(page).found}
    assert tags == {tag for tag, _ in Tags(render_page(contents)).found}
    assert len(re.findall("</script", page)) == 5
    for tag, attributes in Tags(page).found:
        assert not [name for name in attributes if name.startswith("on")], tag
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_csv_runs_no_formula() -> None:
    with stored(renamed(list(shapely_runs(3)), "=HYPERLINK(1)")) as store:
        text = build(report_on(Analysis.of(store)), ReportFormat.CSV).decode()
    assert "'=HYPERLINK(1)/read/iops" in text
    assert not re.search(r"(^|,)=", text, re.MULTILINE)


def test_the_answer_has_a_mark_and_a_colour_that_nothing_else_has(contents: ReportAnswer) -> None:
    """In lines as in bars; a rule or a stroke of another meaning has another colour."""
    assert contents.answer is not None
    page = html.unescape(render_page(contents))
    curves = [json.loads(found) for found in re.findall(r'data-curves="(\{.*?\})"', page)]
    marked = [drawn["lines"][drawn["answer"]] for drawn in curves if "answer" in drawn]
    assert set(marked) == {contents.answer.label}
    assert len(marked) == sum(contents.answer.label in drawn["lines"] for drawn in curves)
    assert "<b>★ answer</b>" in page
    assert "★ and orange: the answer above." in page
    coloured = re.findall(
        r"(?:^|\})([^{}]+)\{[^{}]*var\(--highlight\)", page_style() + page_style("live.css")
    )
    assert coloured
    for selector in coloured:
        assert re.search(r"\.(answer|chosen)\b", selector), selector
    assert page_file("charts.js").count("--highlight") == 1
    assert "--highlight" not in page_file("page.js") + page_file("live.js")


def test_the_answer_stands_once_above_the_figures(contents: ReportAnswer) -> None:
    page = html.unescape(re.sub("<[^>]+>", "", render_page(contents).partition("<header>")[2]))
    above, _, _ = page.partition("Ranks and “vs baseline” are by")
    assert above.replace("\N{NO-BREAK SPACE}", " ").count(headline(contents)) == 1


def test_titles_of_axes_fit_beside_them(contents: ReportAnswer) -> None:
    drawn = [lines for figure in figures(contents) for lines in figure.curves]
    assert len(drawn) > 3
    assert all(len(lines.y) <= LONGEST_TITLE for lines in drawn)


def test_markdown_makes_no_elements(poisoned: ReportAnswer) -> None:
    text = build(poisoned, ReportFormat.MARKDOWN).decode()
    assert "<script" not in text
    assert "<img" not in text
    assert "\x1b" not in text
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) == 2
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_markdown_marks_what_is_code_as_code(contents: ReportAnswer) -> None:
    """Whatever program it is of, also in the warning; and nothing else is made unreadable."""
    text = build(contents, ReportFormat.MARKDOWN).decode()
    warning = next(line for line in text.splitlines() if line.startswith("**Under emulation (TCG)"))
    assert "`vdisklab doctor`" in warning
    assert "\\`" not in text
    assert "\\(" not in text
    assert text.count(headline(contents)) == 1


def test_a_backquote_from_outside_makes_no_code() -> None:
    assert _prose("a `b` <c") == "a `b` &lt;c"
    assert _prose("(as `sudo mount -a`)") == "(as `sudo mount -a`)"
    assert _prose("a ` b `vdisklab rank`") == "a \\` b \\`vdisklab rank\\`"
    assert _prose("`<script>` x_y _z_") == "\\`&lt;script&gt;\\` x_y \\_z\\_"


def test_the_configurations_of_the_page_are_those_of_json(contents: ReportAnswer) -> None:
    found = json.loads(build(contents, ReportFormat.JSON))["configurations"]
    page = build(contents, ReportFormat.HTML).decode()
    shown = re.findall(r"<summary>([^<]*)</summary><pre [^>]*>(.*?)</pre>", page, re.DOTALL)
    assert {"libvirt: the disk", "QEMU"} <= {title for title, _ in shown}
    plain = [(title, html.unescape(re.sub("<[^>]+>", "", text))) for title, text in shown]
    assert [(row["title"], row["text"]) for row in found] == plain


@pytest.mark.parametrize("path", ["raw/none/virtio:iothread=on", "raw/writeback"])
def test_a_configuration_to_paste_says_what_export_says(
    contents: ReportAnswer, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cell, campaign = MeasuredCell.parse(path), contents.ranked.campaigns[0]
    found = {each.title: each.notes for each in configurations_of(cell, campaign)}
    for form in (form for form in forms().values() if form.title in found):
        assert main(["export", path, "--to", form.name]) == 0
        notes = [line.removeprefix("note: ") for line in capsys.readouterr().err.splitlines()]
        # The page's element takes the place of a disk: it is not attached beside that.
        notes = [note for note in notes if not note.startswith("attach it with: ")]
        assert list(found[form.title]) == notes
    every_note = list(itertools.chain.from_iterable(found.values()))
    assert "discard=ignore cannot be expressed here: KubeVirt passes discards on" in every_note
    page = replace(contents, configurations=tuple(configurations_of(cell, campaign)))
    text = html.unescape(re.sub("<[^>]+>", "", build(page, ReportFormat.HTML).decode()))
    for note in every_note:
        assert note.replace("`", "") in text


def test_a_disk_that_the_guest_has_keeps_all_but_the_settings_of_the_path(
    contents: ReportAnswer, tmp_path: Path
) -> None:
    """Pasted whole, the element took a guest's discard="unmap", address and name from it."""
    campaign = contents.ranked.campaigns[0]

    def settings(path: str) -> str:
        return driver_settings(configurations_of(MeasuredCell.parse(path), campaign))

    assert settings("raw/none") == 'cache="none" io="threads"'
    assert settings("raw/none/virtio:discard=unmap").endswith('discard="unmap"')
    assert driver_settings(()) == ""
    db, page = str(tmp_path / "lab.sqlite"), tmp_path / "report.html"
    assert main(["import", str(QUICKSTART), "--db", db]) == 0
    assert main(["report", "-o", str(page), "--db", db]) == 0
    assert (
        'A disk that the guest has, if its image is raw: change only cache="none" io="threads" in '
        "its <driver> line; keep its target, discard, address and alias. For a new disk: put in "
        "the whole element (libvirt: virsh edit GUEST), with your own target"
    ) in html.unescape(re.sub("<[^>]+>", "", page.read_text()))


def test_json_and_parquet_hold_every_median(contents: ReportAnswer) -> None:
    found = json.loads(build(contents, ReportFormat.JSON))
    table = parquet.read_table(io.BytesIO(build(contents, ReportFormat.PARQUET)))
    count = sum(map(len, contents.summaries.values()))
    assert table.num_rows == len(found["values"]) == count
    first = table.slice(0, 1).to_pylist()[0]
    assert first == {key: found["values"][0][key] for key in first}
    headline = found["sentences"][0]
    assert headline.startswith(f"Use {found['recommendation']['path']}")


def test_without_pyarrow_only_parquet_is_refused(
    contents: ReportAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HostError, match="pyarrow, which is not installed"):
        build(contents, ReportFormat.PARQUET)
    assert build(contents, ReportFormat.HTML)
    assert build(contents, ReportFormat.CSV)


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("form", ["html", "csv", "json", "parquet", "md"])
def test_the_verb_writes_one_file(
    tmp_path: Path, form: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    target = tmp_path / f"out.{form}"
    assert main(["report", "--format", form, "--output", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert target.stat().st_size > 500
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_only_failed_cells_end_in_a_sentence(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.write(run for run in campaign_runs() if run.failure is not None)
    assert main(["report"]) == PlanError.exit_code
    assert "every run failed" in capsys.readouterr().err


def test_an_empty_database_ends_in_a_sentence(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.write((), campaigns=())
    assert main(["report"]) == DatabaseError.exit_code
    assert "measure something" in capsys.readouterr().err


def test_one_cell_makes_a_page_that_says_so() -> None:
    with stored(run for run in campaign_runs() if run.path == "raw/none") as store:
        page = render_page(report_on(Analysis.of(store)))
    assert "No answer yet" in page
    assert "Nothing can be recommended yet" in page


@pytest.mark.usefixtures("database")
def test_a_place_that_cannot_be_written_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["report", "--format", "md", "-o", str(tmp_path / "none" / "x.md")]
    assert main(arguments) == HostError.exit_code
    assert "cannot be written" in capsys.readouterr().err


def test_the_axis_of_safety_is_that_of_the_verdicts() -> None:
    cut = PowerCut(
        id="aa", fingerprint="f", path="raw/none", client="flushes", access="nbd",
        host=CAMPAIGN.host, started=CAMPAIGN.started, wall_seconds=1.0, survives=False, claim="…",
        states=60, possible=60.0, exhaustive=True, acknowledged=8, flushes=3, leaked_states=0,
        repaired_states=0, post_recovery_states=2, outcomes={"lost": 2, "kept": 58},
        settings={}, observed={},
    )  # fmt: skip
    cuts = (
        cut,
        replace(cut, id="bb", path="raw/writeback", survives=True, outcomes={"kept": 60}),
        replace(cut, id="cc", path="raw/writeback", client="never"),
    )
    with stored(shapely_runs(), power_cuts=cuts) as store:
        contents = report_on(Analysis.of(store))
    (figure,) = [each for each in figures(contents) if each.key == "safety"]
    told = figure.alt
    assert "lost flushed data, tested" in told
    assert "kept all that was flushed, tested" in told
    assert "safe once flushed, not tested" in told
    arguments = " ".join(answer_sentences(contents))
    assert (
        "raw/writeback kept every write that the guest had flushed in all 60 power cuts"
        in arguments
    )
    assert "Unflushed data were lost in 2 of 60 power cuts" in arguments


def test_an_option_of_which_there_are_several_numbers_has_a_curve(contents: ReportAnswer) -> None:
    cells = [cell(f"qcow2:backing={depth}/none") for depth in (0, 2, 8)]
    summaries = {
        key: dict(zip(cells, by_cell.values(), strict=False))
        for key, by_cell in contents.summaries.items()
    }
    levels = summaries[contents.measure]
    swept = replace(contents, summaries=cast(Any, summaries), levels=cast(Any, levels))
    (figure,) = sweep_figures(swept)
    assert figure.key == "sweep-backing"
    assert "backing=8" in figure.cells[-1]
    assert "relative to the lowest backing" in figure.alt
    assert len(figure.curves[0].y) <= LONGEST_TITLE
    assert "under emulation" in figure.alt
    assert list(sweep_figures(contents)) == []
