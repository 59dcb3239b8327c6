"""Mistakes that new users made: the hint names what they meant."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path
from typing import NoReturn

import pytest
from rich.console import Console

from vdisklab.actions.measure import Measured
from vdisklab.cli.shell import plan_campaigns
from vdisklab.cli.shell.main import main
from vdisklab.cli.shell.run_campaigns import _print_end as print_end
from vdisklab.errors import DatabaseError, LayersMissingError
from vdisklab.host.ledger import PROGRAM_MARK, Ledger, leftovers_sentence, open_ledger
from vdisklab.host.plan_locks import process_measuring, processes_measuring
from vdisklab.results.database import driver_errors_as_sentences, parse_address
from vdisklab.results.store import open_store


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    (tmp_path / "images").mkdir()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("run plan.toml", "a plan file is named with --plan plan.toml"),
        ("run ../plans/plan.toml", "a plan file is named with --plan ../plans/plan.toml"),
        ("run /root/plan.toml", "a plan file is named with --plan /root/plan.toml"),
        ("run ext4/plan.toml", "a plan file is named with --plan ext4/plan.toml"),
        ("run ./web.qcow2", "its image is made is named with --dir DIR"),
        ("plan mine.fio", "a job file is named with --profile mine.fio"),
        ("run server:10809", "--target NAME=nbd://HOST:PORT/EXPORT"),
        ("run 10.0.0.5:10809/none", "--target NAME=nbd://HOST:PORT/EXPORT"),
        ("run host:10809", "--target NAME=nbd://HOST:PORT/EXPORT"),
        ("run raw/none --target 10.0.0.5:10809", "--target NAME=nbd://10.0.0.5:10809/EXPORT"),
        ("run raw/none/virtio:iothreads=on", "iothread=on is possible"),
        ("run nas/raw/none --destroy --rounds 3", "write --destroy DEVICE|NAME --rounds …"),
        ("run raw/none --dir --rounds 3", "write --dir DIR --rounds …"),
        ("run raw/none --dir imagse", "images? Else: mkdir -p"),
        ("run raw/none --runtime 99999999", "at most 86400 s"),
        ("export raw/none --size 99999999T", "write a size from 1 to 1024T"),
        ("density raw/none --load 9iops --until latency_p99<=10", "write latency_p99<=10ms"),
    ],
)
def test_the_hint_names_what_was_meant(
    arguments: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) in (2, 3)
    error, _, said = capsys.readouterr().err.partition("hint: ")
    assert hint in said
    assert "e+0" not in error


@pytest.mark.parametrize("old", [None, "yesterday's"])
@pytest.mark.parametrize(
    "arguments",
    [
        "claims --junit FILE --campaign none",
        "claims --junit FILE --hosts all",
        "claims --junit FILE --run --only etcd --size 1K",
        "trend --junit FILE --campaign none",
        "trend --junit FILE",
        "report --output FILE --campaign none",
        "report --output FILE --format parquet --campaign none",
        "run nonsense --stream FILE",
        "run raw/none --profile none --stream FILE",
        "run raw/none --dir none --stream FILE",
        "export-data FILE.json.gz --campaign none",
        "export-data FILE",
        "import other.file --output FILE",
        "record none --output FILE",
    ],
)
def test_a_refused_command_writes_no_file(
    arguments: str, old: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").mkdir()
    database = str(tmp_path / "state" / "results.sqlite")
    monkeypatch.setenv("VDISKLAB_DB", database)
    with open_store(database):
        pass
    (tmp_path / "other.file").write_text("no trace")
    (file,) = [tmp_path / word for word in arguments.split() if word.startswith("FILE")]
    if old is not None:
        file.write_text(old)
    there = set(tmp_path.iterdir())
    assert main(arguments.split()) in (2, 3, 6, 7)
    assert set(tmp_path.iterdir()) == there
    assert (file.read_text() if old is not None else None) == old


def test_paths_that_lack_their_layers_have_the_whole_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise LayersMissingError("ext4 needs root", hint="leave out ext4/", paths=["raw/none"])

    monkeypatch.setattr(plan_campaigns, "plan_campaigns", refused)
    assert main(["plan", "ext4/raw/none", "--rounds", "3", "xfs/raw/none"]) == 3
    said = capsys.readouterr().err
    assert "hint: leave out ext4/: `vdisklab plan raw/none --rounds 3`\n" in said


def test_a_bare_port_is_one_of_this_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--port", "8091", "--db", "none.sqlite"]) != 0
    said = capsys.readouterr().err
    assert "--port is called --listen" in said
    assert "there is no database" in said


def test_a_database_of_another_user_is_called_unreadable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = tmp_path / "theirs.sqlite"
    database.touch()
    refused = sqlite3.OperationalError("unable to open database file")
    refused.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    address = parse_address(str(database))
    with (
        pytest.raises(DatabaseError, match="cannot be opened"),
        driver_errors_as_sentences(address),
    ):
        raise refused
    monkeypatch.setattr(os, "access", lambda *_: False)  # root reads every file
    with (
        pytest.raises(DatabaseError, match="cannot be read by this user"),
        driver_errors_as_sentences(address),
    ):
        raise refused


def killed_run() -> Ledger:
    """The ledger of a run that was killed while it measured."""
    with open_ledger() as ledger:
        for number in range(5):
            ledger.add("mount", f"/srv/m{number}")
        ledger.add("process", f"{PROGRAM_MARK}1a2b")
    return ledger


def test_what_a_killed_run_left_is_named_with_the_command_that_removes_it() -> None:
    assert leftovers_sentence() is None
    killed_run()
    said = leftovers_sentence() or ""
    assert said.startswith("an earlier run left programs that run 1a2b started, mount ")
    assert said.endswith("and 3 more behind: `vdisklab clean` removes what it left")


def test_what_an_interrupted_run_could_not_remove_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As an image beside a server that is gone."""
    console = Console(stderr=True, width=500)
    print_end(console, [Measured("3f2a", runs=2, interrupted=True)], [])
    assert "left" not in capsys.readouterr().err
    killed_run()
    print_end(console, [Measured("3f2a", runs=2, interrupted=True)], [])
    assert "warning: this run, or an earlier one, left programs that run 1a2b started, mount " in (
        capsys.readouterr().err
    )


def test_another_campaign_on_this_host_is_noticed(tmp_path: Path) -> None:
    locks = tmp_path / "state" / "measuring"
    assert processes_measuring(beside="mine") == ()
    locks.mkdir(parents=True)
    for name in ("mine", "theirs", "ended"):
        (locks / name).write_text("4711")
    with (locks / "mine").open() as mine, (locks / "theirs").open() as theirs:
        for lock in (mine, theirs):
            fcntl.flock(lock, fcntl.LOCK_EX)
        assert processes_measuring(beside="mine") == ("4711",)
        assert [process_measuring(name) for name in ("mine", "ended")] == ["4711", None]
