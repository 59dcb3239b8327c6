"""What a campaign prints at its end: the ranking by what it was measured for, if there is any."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.stored import Database
from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.export_command import ExportCommand
from vdisklab.cli.shell.after_run import analysed, print_overview, print_verdict
from vdisklab.cli.shell.main import main
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import Format, OutputOptions
from vdisklab.path.platforms import Platform
from vdisklab.results.store import open_store
from vdisklab.views.run import next_step


def test_only_failed_cells_are_no_ranking_and_no_error(database: Database) -> None:
    failed = [run for run in campaign_runs() if run.failure is not None]
    database.write(failed)
    console = Console(file=io.StringIO(), width=200)
    with open_store(database.url) as store:
        assert analysed(store, failed[0].campaign, console, failed=len(failed)) is None
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    ways = f"the same command measures again what failed, `vdisklab runs {failed[0].campaign}`"
    assert f"{len(failed)} cells failed; {ways} lists it" in said
    assert "no ranking: " in said
    assert "hint: " in said


def test_cells_that_failed_beside_others_are_told_with_the_way_out(database: Database) -> None:
    database.write(campaign_runs())
    console = Console(file=io.StringIO(), width=200)
    with open_store(database.url) as store:
        assert analysed(store, CAMPAIGN.id, console, failed=1) is not None
    assert isinstance(console.file, io.StringIO)
    assert "1 cell failed; the same command measures again" in console.file.getvalue()


def test_a_search_ends_with_the_ranking_by_its_own_metric(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(file=io.StringIO(), width=200)
    for metric, name in (("randread-4k-q1/read/iops",) * 2, (DEFAULT_METRIC, "overall ratio")):
        with open_store(database.url) as store:
            analysis = Analysis.of(store, [CAMPAIGN.id])
            print_overview(analysis, OutputOptions(form=Format.TABLE), console, metric)
        assert f"Ranking by {name}" in capsys.readouterr().out


def test_a_campaign_ends_with_the_verdict_and_the_next_step(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(file=io.StringIO(), width=200)
    with open_store(database.url) as store:
        analysis = Analysis.of(store, [CAMPAIGN.id])
        print_overview(analysis, OutputOptions(form=Format.TABLE), console, headed=False)
        table = capsys.readouterr().out
        answer = print_verdict(analysis, Format.TABLE, console)
        printed = capsys.readouterr().out
        assert printed.splitlines()[0] not in table, "the verdict is said once, at the end"
        assert print_verdict(analysis, Format.JSON, console) == answer
        assert not capsys.readouterr().out
    assert answer is not None
    path = answer.path
    assert main(["recommend", "--db", database.url, "--format", "json"]) == 0
    sentences = json.loads(capsys.readouterr().out)["sentences"]
    said = " ".join(printed.split())
    lines = [sentence for sentence in sentences if " ".join(sentence.split()) in said]
    assert lines == sentences[: len(lines)]
    assert 2 <= len(lines) <= 5
    export = ExportCommand((path, "--to", "libvirt"))
    assert next_step(export, None) == (
        f"see it: `vdisklab report`; paste it: `vdisklab export {path} --to libvirt`"
    )
    assert next_step(export, None, keeps=True) == (
        f"see it: `vdisklab report`; for a new guest: `vdisklab export {path} --to libvirt`"
    )
    on_device = ExportCommand(("none", "--source", "/dev/my disk"), (Platform.INCUS,))
    assert next_step(on_device, None) == (
        "see it: `vdisklab report`; paste it for QEMU (Incus has no such disk): "
        "`vdisklab export none --source '/dev/my disk'`"
    )
    assert next_step(None, "c0ffee") == "see it: `vdisklab report --campaign c0ffee`"
    for address in ("postgresql://v:PW@db/v", "postgresql://v@db/v?password=PW"):
        said = Named.of(address).in_text(next_step(export, None))
        assert said.count("--db postgresql://v@db/v") == 2
        assert "PW" not in said


def test_the_command_that_continues_is_printed_once(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.write([run for run in campaign_runs() if run.round <= 2])
    console = Console(file=io.StringIO(), width=200)
    with open_store(database.url) as store:
        analysis = Analysis.of(store, [CAMPAIGN.id])
        print_overview(analysis, OutputOptions(form=Format.TABLE), console, headed=False)
        print_verdict(analysis, Format.TABLE, console)
    assert isinstance(console.file, io.StringIO)
    said = " ".join(f"{capsys.readouterr().out} {console.file.getvalue()}".split())
    assert "a rank needs" not in said
    assert said.count("Nothing is shown after 2 rounds") == 1
