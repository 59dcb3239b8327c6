"""What the edge prints when there is nothing to run, or a file is not there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from vdisklab.cli.shell.main import app_for, build_app, main
from vdisklab.cli.shell.verbs import listed_verbs, verb_files
from vdisklab.errors import (
    EXIT_CELLS_FAILED,
    EXIT_CLAIM_OPEN,
    EXIT_INTERRUPTED,
    DatabaseError,
    DirtyHostError,
    HostError,
    PlanError,
)

CAMPAIGN = Path(__file__).parents[4] / "docs" / "images" / "campaign.json.gz"


def test_without_a_verb_the_help_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr()
    assert "error" not in said.err
    assert "doctor" in said.out


def test_an_interrupt_while_the_verbs_are_gathered_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vdisklab.cli.shell.main.build_app", interrupted)
    assert main(["doctor"]) == EXIT_INTERRUPTED


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--plan", "absent.toml"],
        ["plan", "raw", "--profile", "absent.toml"],
        ["plan", "default", "--on", "/dev/absent"],
    ],
)
def test_a_file_that_is_not_there_has_a_way_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    assert main(arguments) in (2, 3)
    said = capsys.readouterr().err
    assert "absent" in said
    assert "\nhint: name " in said


def test_a_plan_as_csv_says_beside_it_what_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    paths = [
        "raw/writeback",
        "qcow2/writeback",
        "--age",
        "rewrites=1,snapshots=1",
        "--baseline",
        "none",
    ]
    given = [*paths, "--dir", str(tmp_path), "--format", "csv"]
    assert main(["plan", *given]) == EXIT_CELLS_FAILED, "as `run` would end"
    answer = capsys.readouterr()
    assert "raw/writeback" not in answer.out
    assert "dropped raw/writeback: --age rewrites=1,snapshots=1: only qcow2" in answer.err


def test_a_plan_says_that_a_server_is_out_of_reach_or_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    given = ["--dir", str(tmp_path), "--target", f"far=nbd+unix:///?socket={tmp_path}/none"]
    assert main(["plan", "raw/none", "far/raw/none", *given]) == EXIT_CELLS_FAILED
    assert "dropped far/raw/none: target far (nbd+unix:" in capsys.readouterr().out
    assert main(["plan", "raw/none", *given]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "warning: no path is on target far (nbd+unix:" in out
    assert "so it is not measured: name one, such as far/raw/none" in out


def test_what_stays_always_has_a_way_out() -> None:
    assert "vdisklab clean" in (DirtyHostError("it stays").hint or "")


# The program as it is when a signal arrives: while it loads, or where a verb begins.
_LOADING = """
import builtins, os, signal
found = builtins.__import__
def slow(name, *rest):
    if name == "typer":
        os.kill(os.getpid(), signal.SIGINT)
    return found(name, *rest)
builtins.__import__ = slow
from vdisklab.__main__ import main
raise SystemExit(main())
"""
_RUNNING = """
import os, signal
signal.signal(signal.SIGHUP, signal.{disposition})
from vdisklab.cli.shell import main
main.typer.echo = lambda text: os.kill(os.getpid(), signal.SIGHUP)
raise SystemExit(main.main(["--version"]))
"""


def status(program: str) -> tuple[int, str]:
    """The exit status of a Python program, and what it says of what went wrong."""
    # Where the tests run in the background, as of a script, they would hand on an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    return ended.returncode, ended.stderr


def test_an_interrupt_while_the_program_loads_is_no_traceback() -> None:
    assert status(_LOADING) == (130, "")


@pytest.mark.parametrize(("disposition", "ends"), [("SIG_DFL", 130), ("SIG_IGN", 0)])
def test_a_hangup_ends_the_program_unless_nohup_keeps_it(disposition: str, ends: int) -> None:
    ended, said = status(_RUNNING.format(disposition=disposition))
    assert ended == ends
    assert "Traceback" not in said


def test_a_value_that_is_none_of_a_list_is_told_in_plain_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "raw", "--format", "xml"]) == 2
    said = capsys.readouterr().err
    assert "error: Invalid value for '--format': 'xml' is not one of" in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("plan", "raw/none", "--rounds", "abc"), "'--rounds': a whole number is expected"),
        (("plan", "raw/none", "--rounds", "2.5"), "'--rounds': a whole number is expected"),
    ],
)
def test_a_wrong_number_is_told_in_our_words(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    assert main(list(arguments)) == PlanError.exit_code
    said = capsys.readouterr().err
    assert expected in said
    assert "Input should" not in said
    verb = " ".join(word for word in arguments[:2] if word != "raw/none")
    assert f"hint: `vdisklab {verb} --help` shows what it takes" in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("--lab-disks", "99"),
            "error: --lab-disks is 99\nhint: write a whole number from 0 to 16",
        ),
        (("--lab-cpus", "0"), "error: --lab-cpus is 0\nhint: write a whole number from 1 to 64"),
    ],
)
def test_a_number_outside_its_limits_is_told_with_them(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    assert main(["lab", "shell", *arguments]) == PlanError.exit_code
    assert expected in capsys.readouterr().err


def test_an_unknown_verb_is_answered_with_the_list_of_verbs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["frobnicate"]) == PlanError.exit_code
    assert "hint: `vdisklab --help` lists the verbs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--pareto", "`vdisklab rank --help` shows what it takes"),
        ("--json", "write --format json; `vdisklab rank --help` shows what it takes"),
    ],
)
def test_a_wrong_option_is_answered_with_the_help_of_its_verb(
    option: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rank", option]) == PlanError.exit_code
    assert f"hint: {hint}\n" in capsys.readouterr().err


# Calls whose standard output is closed, full or without a reader. Each is a process that begins
# with the modules loaded, which is most of the work, and ends as Python does.
_CALLS = """
import importlib, json, os, sys, tempfile
from vdisklab.__main__ import main
import vdisklab.cli.shell.main
from vdisklab.cli.shell.verbs import verb_files
ended, calls = [], json.loads(sys.argv[1])
for words, _ in calls:
    importlib.import_module(verb_files()[words[0]].module)
for words, output in calls:
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            sys.argv = ["vdisklab", *words]
            os.dup2(said.fileno(), 2)
            if output == "closed":
                os.close(1)
                sys.stdout = sys.__stdout__ = None
            elif output == "no reader":
                reading, writing = os.pipe()
                os.close(reading)
                os.dup2(writing, 1)
            else:
                os.dup2(os.open(output, os.O_WRONLY), 1)
            raise SystemExit(main())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        ended.append((status, said.read().decode()))
print(json.dumps(ended))
"""
_CLOSED = "error: the answer cannot be written: standard output is closed\n"


@pytest.fixture(scope="module")
def ends(_made_up: Path) -> dict[tuple[str, str], tuple[int, str]]:
    """The exit status and the errors of command lines, each with its kind of standard output.

    All from one process, since most of the time goes into its start.
    """
    short = ("profiles", "profiles --format json", "rank --help")
    long = (
        f"{verb} --db {_made_up}" for verb in ("rank", "report --format csv -o -", "export-data -")
    )
    calls = [
        *((verb, output) for verb in short for output in ("closed", "/dev/full")),
        *((verb, output) for verb in long for output in ("no reader", "/dev/full")),
        ("profiles absent", "/dev/full"),
    ]
    given = json.dumps([(arguments.split(), output) for arguments, output in calls])
    ended = subprocess.run(
        [sys.executable, "-c", _CALLS, given],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    found = [(status, said) for status, said in json.loads(ended.stdout)]
    return dict(zip(calls, found, strict=True))


Ends = Mapping[tuple[str, str], tuple[int, str]]


def test_a_closed_standard_output_is_one_sentence(ends: Ends) -> None:
    closed = [end for (_, output), end in ends.items() if output == "closed"]
    assert len(closed) == 3
    for status, said in closed:
        assert status == HostError.exit_code
        error, hint = said.splitlines(keepends=True)
        assert error == _CLOSED
        assert hint.startswith("hint: ")


def test_a_full_standard_output_is_one_sentence(ends: Ends) -> None:
    full = {arguments: end for (arguments, output), end in ends.items() if output == "/dev/full"}
    assert len(full) == 7
    for arguments, (status, said) in full.items():
        if arguments == "profiles absent":  # a verb's own error keeps its sentence and its status
            assert status == PlanError.exit_code
            assert "standard output" not in said
            continue
        assert status == HostError.exit_code
        error, hint = said.splitlines()
        assert error.endswith(" cannot be written: No space left on device")
        assert hint.startswith("hint: ")


def test_without_a_reader_a_verb_ends_quietly(ends: Ends) -> None:
    quiet = [end for (_, output), end in ends.items() if output == "no reader"]
    assert quiet == [(0, "")] * 3


def test_a_start_of_its_own_ends_alike() -> None:
    ended = in_shell(f"{sys.executable} -m vdisklab profiles >&-")
    assert ended.returncode == HostError.exit_code
    assert ended.stderr.startswith(_CLOSED)
    ended = in_shell(f"{sys.executable} -m vdisklab profiles | true; echo ${{PIPESTATUS[0]}}")
    assert (ended.stdout, ended.stderr) == ("0\n", "")


LONG = "x" * 300


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["rank", "--db", LONG], 7, "File name too long"),
        (["import", LONG], 2, "File name too long"),
        (["import", "absent"], 2, "there is no file absent"),
        (["import", ""], 2, "the name of a file is empty"),
        (["import", "."], 2, "is a directory"),
        (["import", "https://example.org/x.json"], 2, "hint: download it first: curl -LO https://"),
        (["import", str(CAMPAIGN), "--db", "absent/x.db"], 7, "create it first: mkdir -p absent"),
        (["rank", "--db", "/dev/null"], 7, "is a device, and a database is a file"),
        (["rank", "--db", str(CAMPAIGN)], 7, "--db NEW.sqlite"),
        (["run", "raw/none", "--on", "/dev/absent"], 3, "/dev/absent cannot be used: No such file"),
        (["run", "raw/none", "--dir", f"/{LONG}"], 3, "File name too long"),
        (["rank", "--db", "y" * 400_000], 7, "characters left out"),
    ],
)  # fmt: skip
def test_a_name_that_cannot_be_used_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    assert main(arguments) == status
    error = capsys.readouterr().err
    assert told in error
    assert "hint: " in error
    assert len(error) < 5000
    assert not (tmp_path / "absent").exists()


def test_standard_input_is_a_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with CAMPAIGN.open() as given:
        monkeypatch.setattr("sys.stdin", given)
        assert main(["import", "-", "--db", str(tmp_path / "copy.sqlite")]) == 0
    assert capsys.readouterr().out.startswith("imported campaign ")


def test_an_error_calls_standard_input_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/null").open() as empty:
        monkeypatch.setattr("sys.stdin", empty)
        assert main(["import", "-", "--db", str(tmp_path / "copy.sqlite")]) == 6
    assert capsys.readouterr().err.startswith("error: standard input: the file is empty\n")


def test_claims_before_anything_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    assert main(["claims"]) == EXIT_CLAIM_OPEN
    assert "56 not measured" in capsys.readouterr().out
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["rank"],
        ["table"],
        ["recommend"],
        ["compare", "raw/none", "host"],
        ["report", "-o", "-"],
        ["claims"],
        ["claims", "--hosts", "all"],
        ["audit", "DOMAIN"],
        ["advise", "DOMAIN"],
        ["export", "raw/none", "--to", "qemu", "--need", "durable"],
        ["show", "a"],
        ["runs"],
        ["runs", "--delete", "a", "--yes"],
        ["export-data", "-"],
    ],
    ids=" ".join,
)
def test_a_database_that_is_named_must_exist(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --db, verbs that can answer from nothing do: claims, audit, advise and export."""
    domain = tmp_path / "guest.xml"
    domain.write_text(
        "<domain type='kvm'><name>a</name><devices><disk type='file' device='disk'>"
        "<source file='/nowhere.img'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    arguments = [str(domain) if word == "DOMAIN" else word for word in arguments]
    missing = tmp_path / "typo.sqlite"
    assert main([*arguments, "--db", str(missing)]) == DatabaseError.exit_code
    assert f"error: there is no database {missing}\n" in capsys.readouterr().err
    assert not missing.exists()


def in_shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=600, check=False
    )


def leaves(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    for name, verb in group.commands.items():
        if hasattr(verb, "commands"):
            yield from leaves(verb, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", verb


def test_help_is_wrapped_once_and_examples_stay_whole_at_80_columns() -> None:
    for name, verb in leaves(typer.main.get_command(build_app())):
        for paragraph in verb.help.split("\n\n"):
            assert "\n" not in paragraph, name
            if paragraph.startswith(("  vdisklab ", "Example: ")):
                assert len(paragraph) <= 78, f"{name}: {paragraph}"


def test_a_name_that_no_file_system_takes_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Like a directory that may not be searched: asking for such a file fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    name = "a" * 300
    domain = tmp_path / "web.xml"
    domain.write_text(
        "<domain type='kvm'><name>web</name><devices><disk type='file' device='disk'>"
        "<driver name='qemu' type='qcow2' cache='none'/>"
        f"<source file='/{name}/{name}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    for arguments, status in (
        (["audit", name], PlanError.exit_code),
        (["audit", str(domain)], 0),
        (["advise", name], PlanError.exit_code),
        (["advise", str(domain)], 0),
        (["import", name, name + "b"], PlanError.exit_code),
        (["powercut", "ext4/raw/none", "--dir", name], HostError.exit_code),
        (["lab", "job", str(domain), "--carry", name], PlanError.exit_code),
    ):
        assert main(arguments) == status, (arguments[0], capsys.readouterr().err[-400:])
        assert len(capsys.readouterr().err) < 5000


def test_the_list_of_verbs_is_shown_without_loading_them() -> None:
    lists = [
        {name: command.get_short_help_str(200) for name, command in group.commands.items()}
        for app in (build_app(), app_for(["--help"], {}))
        if isinstance(group := typer.main.get_command(app), typer.core.TyperGroup)
    ]
    assert lists[0] == lists[1]
    assert list(lists[1]) == [verb.file.name for verb in listed_verbs()]
    assert set(lists[0]) == set(verb_files())


def test_a_verb_to_complete_is_loaded() -> None:
    app = app_for([], {"_VDISKLAB_COMPLETE": "complete_bash", "COMP_WORDS": "vdisklab rank --m"})
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    assert list(group.commands) == ["rank"]
    assert group.commands["rank"].params
    app = app_for([], {"_VDISKLAB_COMPLETE": "complete_bash", "COMP_WORDS": "vdisklab run"})
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    assert {"run", "runs"} < set(group.commands)
