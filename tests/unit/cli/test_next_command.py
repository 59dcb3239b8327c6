"""`rank` and `recommend` end with the one command that applies the answer, and it runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.cli.test_advice import SPEEDS, runs
from tests.unit.stored import Database
from vdisklab.cli.shell.main import main
from vdisklab.host.facts import machine_id
from vdisklab.value import replace

TIED = {**dict.fromkeys(("raw/none", "qcow2/none", "raw/none/scsi"), 0.8), "host": 1.0}


def last_lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """The whole answer as one line, and its last line."""
    assert main(arguments) == 0
    out = capsys.readouterr().out
    return " ".join(out.split()), out.rstrip().splitlines()[-1]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("verb", ["rank", "recommend", "rank --bars", "rank --why"])
def test_an_answer_ends_with_the_command_that_applies_it(
    verb: str, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.write(runs(speeds=SPEEDS | {"qcow2/none": 0.5}))
    said, command = last_lines(capsys, *verb.split())
    assert said.startswith("Use raw/none: it is the best")
    assert said.endswith(
        "* For a new guest, this prints the configuration of raw/none: "
        "vdisklab export raw/none --to libvirt"
    )
    assert main(shlex.split(command)[1:]) == 0
    assert 'cache="none"' in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["rank", "recommend"])
def test_a_tie_names_the_verb_for_existing_disks_and_the_platform_that_is_here(
    verb: str,
    database: Database,
    programs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (programs / "incus").write_text("#!/bin/sh\nexit 1\n")
    (programs / "incus").chmod(0o755)
    here = replace(CAMPAIGN, host=replace(CAMPAIGN.host, machine_id=machine_id()))
    database.write(runs(3, TIED, noise=0.1), campaigns=[here])
    said, command = last_lines(capsys, verb)
    assert said.startswith("Take ")
    assert (
        "For a disk that a guest has, ask `vdisklab advise GUEST`. For a new guest, this prints"
        in said
    )
    assert command.endswith(" --to incus")
    assert main(shlex.split(command)[1:]) == 0


@pytest.mark.usefixtures("programs")
def test_disks_of_another_host_are_asked_about_there(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.write(runs(3, TIED, noise=0.1))
    said, command = last_lines(capsys, "recommend")
    assert f"ask `vdisklab advise GUEST` on {CAMPAIGN.host.hostname}. " in said
    assert command.endswith(" --to libvirt")


@pytest.mark.parametrize(
    ("speeds", "arguments"),
    [
        ({"raw/none": 0.8, "host": 1.0}, ["recommend"]),
        ({"raw/unsafe": 0.8, "qcow2/unsafe": 0.8}, ["recommend", "--unsafe"]),
    ],
)
def test_what_is_no_answer_has_no_such_command(
    speeds: dict[str, float],
    arguments: list[str],
    database: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One path alone, and paths that all lose flushed data."""
    database.write(runs(3, speeds, noise=0.1))
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith(("Nothing to compare", "No difference shown"))
    assert "vdisklab export" not in out
