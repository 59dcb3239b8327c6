"""`vdisklab lab` as a user meets it, with our own programs in place of QEMU and apt."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.results.values import a_campaign, a_run
from vdisklab.cli.shell.main import main
from vdisklab.errors import DatabaseError, GuestError, HostError, PlanError, VdisklabError
from vdisklab.host import waiting
from vdisklab.host.command import LocalHost
from vdisklab.lab import lab_image as image
from vdisklab.lab import lab_job
from vdisklab.lab import lab_machine as machine
from vdisklab.results.exchange import read_export, write_run
from vdisklab.results.model import Campaign, Origin
from vdisklab.results.store import open_store

APT_GET = r"""
import sys
if "indextargets" in sys.argv: print("Debian|http://deb.example/debian/|bookworm|main")
"""
APT_CACHE = "print('Package: lvm2\\nVersion: 1')"
# Truncates what it is told to make: the last path of mke2fs, or of qemu-img create.
MAKER = "import sys; open([w for w in sys.argv if '/' in w and '.' in w][-1], 'w').close()"

# Says it is up, runs what VDISKLAB_FAKE_LAB tells (Python), and ends the job. Its monitor answers
# every command with `answer`.
QEMU = r"""
import json, os, socket, sys, threading, time
words = " ".join(sys.argv)
if "--version" in words:
    print("QEMU emulator version 7.2.0"); raise SystemExit
def port(name): return words.split(f"file,id={name},path=")[1].split()[0]
def say(line): open(port("job"), "a").write(line + "\n")
def give(file): open(port("runs"), "a").write(open(file).read())
def up(): say("@lab up 41.5")
def done(status=0): say(f"@lab done {status} 900.0")
def pulse():
    while True:
        open(port("pulse"), "a").write("\n"); time.sleep(0.1)
def beat(): threading.Thread(target=pulse, daemon=True).start()
answer, connected = {"status": "running"}, threading.Event()
def monitor():
    line = socket.socket(fileno=int(words.split("id=ours,fd=")[1].split()[0]))
    def send(**message): line.sendall(json.dumps(message).encode() + b"\n")
    send(QMP={"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": ""},
              "capabilities": []})
    while request := line.recv(1 << 16):  # each waits for the answer to the one before
        request = json.loads(request)
        connected.set()
        if request["execute"] == "system_powerdown":
            open(port("pulse"), "a").write("\n")
        if request["execute"] == "inject-nmi":
            console = words.split("-serial file:")[1].split()[0]
            open(console, "a").write("Kernel panic: NMI\n")
        registers = request["execute"] == "human-monitor-command" and "RIP=0000002a"
        send(**{"return": registers or answer, "id": request.get("id")})
threading.Thread(target=monitor, daemon=True).start()
does = os.environ["VDISKLAB_FAKE_LAB"]
if not does.startswith("sys."): connected.wait(10) and time.sleep(0.2)
exec(does)
"""

Lab = Callable[..., int]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with the fakes before what is really there."""
    place = tmp_path / "bin"
    place.mkdir()
    for name, text in {
        "apt-get": APT_GET, "apt-cache": APT_CACHE, "mke2fs": MAKER, "qemu-img": MAKER,
        "qemu-system-x86_64": QEMU,
    }.items():  # fmt: skip
        (place / name).write_text(f"#!{sys.executable} -S\n{text}")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("VDISKLAB_DB", raising=False)
    return place


@pytest.fixture
def built(programs: Path, tmp_path: Path) -> Path:
    """A lab image that is whole, as far as its manifest tells."""
    place = tmp_path / "state/cache/lab" / image._key(LocalHost())
    place.mkdir(parents=True)
    for name in image._FILES:
        (place / name).write_text(name)
    files = {name: image._digest(place / name) for name in image._FILES}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    manifest = {"kernel": "6.1", "python": python, "files": files}
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


@pytest.fixture
def lab(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Runs `lab run` with a lab that does what the text says; nothing may stay behind.

    Nobody unpacks what is carried in, so the packages, a hundred MB, and our own files, which would
    be compiled each time, are left out.
    """
    carried = tmp_path / "carried"
    carried.mkdir()
    monkeypatch.setattr(machine, "needed_distributions", tuple)
    monkeypatch.setattr("vdisklab.__file__", str(carried / "__init__.py"))

    def run(does: str, *arguments: str) -> int:
        monkeypatch.setenv("VDISKLAB_FAKE_LAB", does)
        status = main(["lab", "run", "lvm/none", "--lab-accelerator", "tcg", *arguments])
        assert not list((tmp_path / "state/ledger").glob("*")), "the ledger is not empty"
        assert [p.name for p in built.parent.iterdir()] == [built.name], "files are left"
        return status

    return run


def measured(tmp_path: Path, rounds: int = 1, campaign: Campaign | None = None) -> Path:
    """Runs as the lab writes them to its serial port."""
    file = tmp_path / "runs.jsonl"
    campaign = campaign or a_campaign()
    with file.open("w") as lines:
        for round in range(1, rounds + 1):
            write_run(lines, campaign, a_run(campaign, round=round))
    return file


def test_runs_come_back_and_are_said_to_be_the_labs(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = measured(tmp_path)
    does = f"up(); say('building lvm'); give({str(file)!r}); done(8)"
    assert lab(does) == 8, "cells that failed in the lab failed"
    out, err = capsys.readouterr()
    assert "building lvm" in err
    assert "the lab, an emulated host, was up after" in err
    assert "not a measure of speed" in " ".join(out.split())
    with open_store(str(tmp_path / "state/vdisklab.sqlite")) as store:
        assert [run.origin for run in store.runs()] == [Origin.LAB]


def test_a_lab_that_dies_loses_no_run_and_the_same_command_continues(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = a_campaign()
    first = str(measured(tmp_path, 2, campaign))
    dies = f"up(); give({first!r}); time.sleep(1); os.kill(os.getpid(), 9)"
    assert lab(dies) == GuestError.exit_code
    err = capsys.readouterr().err
    assert "QEMU was killed by signal 9" in err
    assert "the same command continues" in err
    with open_store(str(tmp_path / "state/vdisklab.sqlite")) as store:
        assert len(list(store.runs())) == 2
        (stored,) = store.campaigns()
    carried = tmp_path / "carried.json"
    looks = (
        "code = words.split('file=')[2].split(',')[0];"
        f"open({str(carried)!r}, 'w').write(open(os.path.dirname(code) + '/earlier.json').read());"
    )
    third = tmp_path / "third.jsonl"
    with third.open("w") as line:
        write_run(line, stored, a_run(campaign, round=3))
    assert lab(f"{looks} up(); give({str(third)!r}); done()") == 0
    (sent,) = read_export(carried.read_bytes(), name="carried").campaigns
    assert [run.round for run in sent.runs] == [1, 2]
    with open_store(str(tmp_path / "state/vdisklab.sqlite")) as store:
        assert [run.round for run in store.runs()] == [1, 2, 3]
        assert store.campaigns() == (stored,), "nothing is marked twice"
    capsys.readouterr()
    assert lab(f"{looks} up(); done(8)") == 8, "all is measured but what is left out there"
    assert "measured nothing" not in capsys.readouterr().err
    assert lab(f"{looks} up(); done(3)") == GuestError.exit_code
    assert lab(f"{looks} up(); done()", "--rounds", "9") == GuestError.exit_code
    assert "No such file" in capsys.readouterr().err, "another command begins its own campaign"


def test_what_a_dead_lab_left_is_stored(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab_job, "_QUIET_SECONDS", 0.5)
    console = "open(words.split('-serial file:')[1].split()[0], 'w')"
    resets = "open(words.split('-D ')[1].split()[0], 'w')"
    does = f"up(); {console}.write('BUG: soft lockup'); {resets}.write('Triple fault');"
    does += "answer['status'] = 'shutdown'; time.sleep(60)"
    assert lab(does) == GuestError.exit_code
    err = " ".join(capsys.readouterr().err.split())
    assert "the lab ended before its job did: it shut down, or its kernel" in err
    assert "BUG: soft lockup" in err
    (record,) = (tmp_path / "state/lab-failures").iterdir()
    assert str(record) in err
    for arguments in ("BUG: soft lockup", "Triple fault", "@lab up", "RIP=0000002a"):
        assert arguments in record.read_text()


def test_a_lab_that_stands_still_is_ended_with_a_trace_of_its_kernel(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab_job, "_PULSE_SECONDS", 0.5)
    monkeypatch.setattr(lab_job, "_TRACE_SECONDS", 0.5)
    assert lab("up(); beat(); time.sleep(2); done(); time.sleep(1)") == GuestError.exit_code
    assert "measured nothing" in capsys.readouterr().err, "a lab with a pulse is not ended"
    paused = "up(); answer['status'] = 'paused'; time.sleep(2); done(); time.sleep(1)"
    assert lab(paused) == GuestError.exit_code
    assert "measured nothing" in capsys.readouterr().err, "nor one that somebody has paused"
    with monkeypatch.context() as lost:
        lost.setattr(lab_job, "_PULSE_SECONDS", 1.5)
        lost.setattr(lab_job, "_NUDGE_SECONDS", 0.3)
        assert lab("up(); time.sleep(2.5); done(); time.sleep(1)") == GuestError.exit_code
    assert "measured nothing" in capsys.readouterr().err, "nor one that an interrupt wakes"
    began = time.monotonic()
    with monkeypatch.context() as busy:
        busy.setattr(waiting, "seconds_without_cpu", lambda _pid: time.monotonic() - began)
        assert lab("up(); time.sleep(2); done(); time.sleep(1)") == GuestError.exit_code
    assert "measured nothing" in capsys.readouterr().err, "nor one that waits for a CPU"
    assert lab("up(); time.sleep(60)") == GuestError.exit_code
    err = capsys.readouterr().err
    assert "has been stuck for" in err
    assert "Kernel panic: NMI" in err


def test_the_answer_as_json(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab(f"up(); give({str(measured(tmp_path))!r}); done()", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["caveats"]["lab"] is True


@pytest.mark.parametrize(
    ("does", "status", "said"),
    [
        ("sys.stderr.write('no such device'); sys.exit(1)", GuestError, "ended before it was up"),
        ("sys.stderr.write('no such device'); sys.exit(1)", GuestError, "no such device"),
        ("sys.exit(1)", GuestError, "QEMU ended with status 1"),
        ("sys.exit(0)", GuestError, "choose a --lab-memory"),
        ("up(); sys.exit(0)", GuestError, "QEMU ended with status 0"),
        (
            "up(); done(3); answer['status'] = 'shutdown'; time.sleep(60)",
            GuestError,
            "ended with 3",
        ),
        ("up(); say('building')", GuestError, "ended before its job did"),
        ("up(); done(3)", GuestError, "ended with 3 and measured nothing"),
        ("up(); give('/dev/null'); done(3)", GuestError, "ended with 3 and measured nothing"),
        (
            "up(); open('x','w').write('no\\n'); give('x'); done()",
            DatabaseError,
            "a run from the lab is damaged",
        ),
    ],
)
def test_a_lab_that_goes_wrong_ends_in_a_sentence(
    lab: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    does: str,
    status: type[GuestError],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lab(does) == status.exit_code
    err = capsys.readouterr().err
    assert said in err
    assert "bug" not in err


@pytest.mark.parametrize("before", ["", "up();"])
def test_a_silent_lab_is_given_up(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], before: str
) -> None:
    monkeypatch.setattr(lab_job, "_SILENCE_SECONDS", 0.5 if before else 60)
    monkeypatch.setattr(lab_job, "_TRACE_SECONDS", 0.5)
    boot = 60 if before else 0.5
    monkeypatch.setattr(lab_job, "_BOOT_SECONDS", dict.fromkeys(lab_job._BOOT_SECONDS, boot))
    assert lab(f"{before}time.sleep(60)") == GuestError.exit_code
    err = capsys.readouterr().err
    assert ("has printed nothing" if before else "did not come up") in err
    assert "try again when it is idle" in err


def test_no_room_is_told_before_and_while_it_runs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab_job, "_SPARE_ROOM", 1 << 60)
    assert lab("up(); import time; time.sleep(60)") == HostError.exit_code
    assert "has filled" in capsys.readouterr().err
    monkeypatch.setattr(machine, "_LEAST_ROOM", 1 << 60)
    assert lab("raise SystemExit") == HostError.exit_code
    err = capsys.readouterr().err
    assert "the lab needs at least" in err
    assert "hint: free some space" in err


def test_a_database_that_cannot_be_written_is_told_at_once(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "damaged").write_text("this is no database")
    assert lab("1 / 0", "--db", str(tmp_path / "damaged")) == DatabaseError.exit_code
    assert lab("1 / 0", "--lab-memory", "much") == PlanError.exit_code
    assert "bug" not in capsys.readouterr().err


def test_a_directory_that_is_missing(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab("1 / 0", "--dir", "/nowhere") == HostError.exit_code
    assert "hint: name another directory" in capsys.readouterr().err


def test_a_lab_that_is_not_built_half_built_or_damaged(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (built / "vmlinuz").write_text("other")
    assert main(["lab", "shell"]) == HostError.exit_code
    assert "vdisklab lab build --again" in capsys.readouterr().err
    (built / "manifest.json").unlink()
    assert main(["lab", "run", "lvm/none"]) == HostError.exit_code
    assert "vdisklab lab build --again" in capsys.readouterr().err
    built.rename(built.with_name(".building-1"))
    assert main(["lab", "run", "lvm/none"]) == HostError.exit_code
    assert "hint: vdisklab lab build\n" in capsys.readouterr().err


def test_building_needs_room_and_its_programs(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (programs / "mmdebstrap").write_text("#!/bin/sh\necho 'E: no network' >&2; exit 25\n")
    (programs / "mmdebstrap").chmod(0o755)
    (programs / "unshare").write_text('#!/bin/sh\nshift 2; exec "$@"\n')
    (programs / "unshare").chmod(0o755)
    assert main(["lab", "build"]) == HostError.exit_code
    err = capsys.readouterr().err
    assert "the lab's packages cannot be installed: E: no network" in err
    assert "apt-get update" in err
    monkeypatch.setattr(image, "_BUILD_ROOM", 1 << 60)
    assert main(["lab", "build"]) == HostError.exit_code
    assert "hint: free some space" in capsys.readouterr().err
    state = Path(os.environ["VDISKLAB_STATE"])
    assert [path.name for path in (state / "cache/lab").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["ext4/nonesuch"], PlanError, "unknown segment 'nonesuch'"),
        (["--bogus"], PlanError, "No such option: --bogus"),
        (["--plan", "/nonesuch.toml"], PlanError, "the plan file /nonesuch.toml cannot be read"),
        (["--size", "5x"], PlanError, "'5x' is not a size"),
        (["--guest", "/nonesuch"], HostError, "the guest's image /nonesuch cannot be read"),
    ],
)
def test_what_no_host_could_measure_is_told_before_the_lab_boots(
    lab: Lab,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: type[VdisklabError],
    said: str,
) -> None:
    assert lab("raise SystemExit('booted')", *arguments) == status.exit_code
    err = capsys.readouterr().err
    assert said in err
    assert "hint: " in err
    assert "the lab" not in err, "nothing was started"


def test_a_missing_diskspd_is_told_before_the_lab_boots(
    lab: Lab, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (programs / "qemu-img").write_text('#!/bin/sh\necho \'{"format": "qcow2"}\'\n')
    (image := tmp_path / "windows.qcow2").touch()
    arguments = ("--guest", str(image), "--diskspd", "/nonesuch.exe")
    assert lab("raise SystemExit('booted')", *arguments) == HostError.exit_code
    assert "/nonesuch.exe" in capsys.readouterr().err


def test_disks_that_no_file_system_holds(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab("", "--lab-disk-size", "8000000T") == HostError.exit_code
    err = capsys.readouterr().err
    assert "cannot be created for the lab" in err
    assert "--lab-disk-size" in err


def test_a_script_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "job", str(tmp_path / "none")]) == HostError.exit_code
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert main(["lab", "job", str(tmp_path / "binary")]) == HostError.exit_code
    missing, hint, binary, _ = capsys.readouterr().err.splitlines()
    assert (
        missing
        == f"error: the script {tmp_path / 'none'} cannot be read: No such file or directory"
    )
    assert hint == "hint: name a script for /bin/sh, in UTF-8"
    assert binary.endswith("is not UTF-8 text")
