"""Imports under names that are no disk paths: every verb takes them, and there is a way back."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.cli.test_advice import runs
from vdisklab.actions.import_ import import_files
from vdisklab.cli.shell.main import main
from vdisklab.errors import DatabaseError, PlanError
from vdisklab.results.store import open_store
from vdisklab.value import replace

DATA = Path(__file__).parents[2] / "data"
NAMES = ("my VM at home", "zfs box/2", "raw/nonsense", "VM (cold)")
DOMAIN = """<domain type='kvm'><name>web</name><devices><disk type='file' device='disk'>
<driver name='qemu' type='qcow2' cache='none'/><source file='/nowhere/web.qcow2'/>
<target dev='vda' bus='virtio'/></disk></devices></domain>"""


@pytest.fixture
def measured(url: str, tmp_path: Path) -> str:
    """A measured campaign with three imports under each free name."""
    with open_store(url) as store:
        store.add_together((CAMPAIGN,), list(runs(3)))
    files = [tmp_path / f"{number}.json" for number in range(3)]
    for file in files:
        file.write_text((DATA / "fio" / "read-fio-3.33.json").read_text())
    for name in NAMES:
        import_files(url, files, name, CAMPAIGN.id, "randread-4k-q1")
    return url


# Names are compared in Python; that PostgreSQL stores and deletes them, the tests below show.
@pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)], indirect=True
)
def test_every_verb_takes_a_free_name(
    measured: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web.xml").write_text(DOMAIN)
    for arguments in (
        ["rank"],
        ["rank", "--metric", "randread-4k-q1/read/iops"],
        ["recommend"],
        ["audit", str(tmp_path / "web.xml")],
        ["table"],
        ["table", "--as", "grid"],
        ["claims"],
        ["runs", CAMPAIGN.id],
        ["compare", NAMES[0], "raw/none"],
        ["compare", NAMES[3], NAMES[1]],
        ["report", "-o", str(tmp_path / "report.html")],
        ["report", "--format", "md", "-o", str(tmp_path / "report.md")],
        ["export-data", str(tmp_path / "all.json")],
    ):
        assert main([*arguments, "--db", measured]) in (0, 9, 10), capsys.readouterr().err
        assert "unknown segment" not in capsys.readouterr().err
    report = (tmp_path / "report.md").read_text()
    assert all(name in report for name in NAMES[:3])


def listed(url: str, capsys: pytest.CaptureFixture[str]) -> dict[str, list[tuple[str, int]]]:
    """The runs and rounds of each cell."""
    capsys.readouterr()
    assert main(["runs", CAMPAIGN.id, "--format", "json", "--db", url]) == 0
    cells: dict[str, list[tuple[str, int]]] = {}
    for run in json.loads(capsys.readouterr().out)["runs"]:
        cells.setdefault(run["cell"], []).append((run["run"], run["round"]))
    return cells


def test_what_was_imported_can_be_renamed_and_deleted(
    measured: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = NAMES
    before = listed(measured, capsys)
    run, _ = before[first][0]
    assert main(["runs", "--rename", run, second, "--db", measured]) == 0
    renamed = listed(measured, capsys)
    assert first not in renamed
    assert sorted(round for _, round in renamed[second]) == [1, 2, 3, 4, 5, 6]
    assert main(["runs", "--delete", run, "--yes", "--db", measured]) == 0
    assert "deleted run" in capsys.readouterr().out
    assert len(listed(measured, capsys)[second]) == 5
    assert main(["rank", "--metric", "randread-4k-q1/read/iops", "--db", measured]) == 0
    assert main(["runs", "--rename", CAMPAIGN.id, "at home", "--db", measured]) == 0
    assert "is labelled at home\n" in capsys.readouterr().out
    assert main(["runs", "--rename", second, "on the old disk", "--db", measured]) == 0
    assert "5 runs of" in capsys.readouterr().out
    assert main(["runs", "--delete", "on the old disk", "--yes", "--db", measured]) == 0
    assert "deleted 5 runs of campaign" in capsys.readouterr().out
    assert main(["runs", "--rename", "at home", "at home", "--db", measured]) == 0
    capsys.readouterr()
    assert main(["runs", "--delete", CAMPAIGN.id[:4], "--yes", "--db", measured]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"deleted campaign {CAMPAIGN.id} (at home): ")
    with open_store(measured) as store:
        assert store.campaigns() == ()
        assert list(store.runs()) == []


def test_nothing_is_deleted_or_renamed_by_mistake(
    measured: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = listed(measured, capsys)
    stored, _ = before["raw/none"][0]
    for arguments, status, sentence in (
        (["--delete", "nonesuch"], DatabaseError.exit_code, "no campaign and no run 'nonesuch'"),
        (["--delete", ""], DatabaseError.exit_code, "no campaign and no run ''"),
        (["--delete", "0"], DatabaseError.exit_code, "'0' may be run "),
        (["--delete", CAMPAIGN.id], PlanError.exit_code, "add --yes"),
        (["--rename", stored, "--yes"], PlanError.exit_code, "--rename lacks the new name"),
        (["--rename", stored, "mine"], PlanError.exit_code, "was measured as raw/none"),
        (["--rename", CAMPAIGN.id, " "], PlanError.exit_code, "not a usable name"),
        (["--yes"], PlanError.exit_code, "without --delete"),
        ([CAMPAIGN.id, "--delete", stored], PlanError.exit_code, "cannot be combined"),
    ):
        assert main(["runs", *arguments, "--db", measured]) == status, arguments
        assert sentence in capsys.readouterr().err
    assert listed(measured, capsys) == before


def test_an_id_can_be_named_that_begins_others(url: str) -> None:
    """Ids of imported campaigns are their writer's choice."""
    (first, second, *_) = runs(1)
    with open_store(url) as store:
        clash = replace(first, id=CAMPAIGN.id + "-run")
        store.add_together((CAMPAIGN,), (clash, replace(second, id=CAMPAIGN.id + "-run-2")))
        assert store.matching(CAMPAIGN.id) == ((CAMPAIGN.id,), ())
        assert store.matching(clash.id) == ((), (clash.id,))
        assert store.matching("") == ((), ())


@pytest.mark.parametrize("key", [b"\x03", b"\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_a_question_that_is_not_answered_deletes_nothing(tmp_path: Path, key: bytes) -> None:
    database = str(tmp_path / "lab.sqlite")
    with open_store(database) as store:
        store.add_together((CAMPAIGN,), list(runs(1)))
    arguments = ("runs", "--delete", CAMPAIGN.id, "--db", database)
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, (sys.executable, "-m", "vdisklab", *arguments))  # noqa: S606
    printed = b""
    while b"[y/N]" not in printed:
        printed += os.read(terminal, 1000)
    os.write(terminal, key)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if select.select([terminal], [], [], 5)[0]:
                printed += os.read(terminal, 1000)
            else:  # a terminal that is being set up for the question forgets what was typed before
                os.write(terminal, key)
        except OSError:  # the terminal's end: EIO
            break
    else:
        os.kill(process, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    os.close(terminal)
    assert b"nothing was deleted" in printed
    with open_store(database) as store:
        assert len(list(store.runs())) > 0


def test_an_import_alone_invents_nothing_and_leads_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "lab.sqlite")
    file = DATA / "fio" / "read-fio-3.33.json"
    import_files(url, [file], NAMES[0], None, "randread-4k-q1")
    import_files(url, [file], "raw/writeback", None, "randread-4k-q1")

    def call(*arguments: str) -> str:
        assert main([*arguments, "--db", url]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    lone = " ".join(call("rank").split())
    assert "0 cell" not in lone
    assert "Rank one measure: `vdisklab rank --metric randread-4k-q1/read/bandwidth" in lone
    assert main(["rank", "--metric", "nonsense", "--db", url]) == PlanError.exit_code
    assert "randread-4k-q1/read with /bandwidth, /iops" in capsys.readouterr().err
    metric = ("--metric", "randread-4k-q1/read/iops")
    ranked = call("rank", *metric, "--format", "json")
    assert json.loads(ranked)["cells"]
    assert "bypassed" not in ranked
    assert "Rank one measure" not in ranked, "that is what was asked for"
    assert "bypassed" not in call("rank", *metric)
    call("report", "-o", str(tmp_path / "report.html"), "--format", "html")
    call("report", "-o", str(tmp_path / "report.md"), "--format", "md")
    report = (tmp_path / "report.md").read_text()
    assert "bypassed" not in report
    assert "imported: not known" in report


def test_an_import_shares_no_round_with_another(
    measured: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first run of one machine has nothing to do with the first run of another."""
    capsys.readouterr()
    for arguments, paired in (((NAMES[0], NAMES[1]), False), (("raw/none", "host"), True)):
        assert main(["compare", *arguments, "--format", "json", "--db", measured]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [row["paired"] for row in found["pairs"]] == [paired]
        assert ("share no round" in str(found["sentences"])) is not paired
