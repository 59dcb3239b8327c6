"""Inside the lab: SIGKILL at each program that makes, clones, uses or removes a volume.

    python3 lab_life_killed.py DIRECTORY [WAY[:FIRST]...]

Programs of the same names, first on PATH, kill vdisklab when the n-th command begins that names the
template's or a disk's volume and changes something, from the FIRST on; the command is still carried
out, while `clean` begins. After it nothing may be left, and the template's checksum must be as
before. Prints a line for each kill and each way; the exit status is 0 if all was so.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from vdisklab.cli.shell.main import main
from vdisklab.host.state_directory import state_directory

WORK = Path(sys.argv[1])
PATHS = {"thin-snapshot": "lvmthin/none", "zvol-clone": "zvol/none", "zfs-clone": "zfs/raw/none"}
PROGRAMS = ("zfs", "lvcreate", "lvremove", "qemu-io", "qemu-img", "cp")
FAKES, STEPS = WORK / "bin", WORK / "steps"
FAKE = """#!/bin/sh
case "$*" in
"get "*|"list "*) ;;
*made-*|*template-*)
    said="${0##*/} $*"
    # What is busy for a moment is tried again: that is one step.
    if [ "$(tail -n 1 %(steps)s)" != "$said" ]; then
        echo "$said" >>%(steps)s
        [ "$(wc -l <%(steps)s)" != "$DOOMED_STEP" ] || kill -KILL "$DOOMED"
    fi ;;
esac
exec %(real)s "$@"
"""


def fake_programs() -> None:
    """Puts a program of each name first on PATH."""
    FAKES.mkdir()
    for name in PROGRAMS:
        real = said("sh", "-c", f"command -v {name}").strip()
        (FAKES / name).write_text(FAKE % {"steps": STEPS, "real": real})
        (FAKES / name).chmod(0o755)


def said(*argv: str) -> str:
    """What a program prints. Raises CalledProcessError."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def ran(*argv: str, step: int = 0) -> int:
    """How vdisklab ended, as a wait status. A fork of this process: loading it takes seconds."""
    child = os.fork()
    if child == 0:
        log = os.open(WORK / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ |= {
            "PATH": f"{FAKES}:{os.environ['PATH']}",
            "DOOMED": str(os.getpid()),
            "DOOMED_STEP": str(step),
        }
        sys.argv = ["vdisklab", *argv]
        os._exit(main())
    return os.waitpid(child, 0)[1]


def campaign(way: str, template: Path) -> Sequence[str]:
    """The arguments of `run`."""
    return (
        "run", PATHS[way], "--made", way, "--profile", "life-host", "--from", str(template),
        "--rounds", "1", "--dir", str(WORK), "--db", str(WORK / "killed.sqlite"),
    )  # fmt: skip


def left() -> list[str]:
    """Groups, pools, mapped and loop devices, mounts, directories and entries of vdisklab."""
    asked = (
        ("vgs", "--noheadings", "-o", "vg_name"), ("zpool", "list", "-H", "-o", "name"),
        ("dmsetup", "ls"), ("losetup", "-a"),
    )  # fmt: skip
    found = [line for argv in asked for line in said(*argv).splitlines()]
    found += [str(each) for each in WORK.glob("vdisklab-*")]
    found += [str(each) for each in (state_directory() / "ledger").glob("*")]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [line for line in mounts if "vdisklab-" in line]
    return [line.strip() for line in found if line.strip() not in ("", "No devices found")]


def killed(way: str, first: int, template: Path) -> int:
    """Kills a campaign at each step from the first, until one has no such step; the bad ends."""
    begin, bad = time.monotonic(), 0
    before = hashlib.sha256(template.read_bytes()).hexdigest()
    for step in count(first):
        STEPS.write_text("")
        (WORK / "killed.sqlite").unlink(missing_ok=True)
        ended = ran(*campaign(way, template), step=step)
        was_killed = os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL
        wrong = [] if was_killed or ended == 0 else [f"run ended with {ended}: {said_last()}"]
        if was_killed:
            wrong += ["nothing was left to clean"] * (not left())
            wrong += [said_last()] * (ran("clean") != 0)
        wrong += [f"left {each}" for each in left()]
        if hashlib.sha256(template.read_bytes()).hexdigest() != before:
            wrong.append("the template has changed")
        bad += bool(wrong)
        command = STEPS.read_text().splitlines()[step - 1] if was_killed else "not killed"
        print(f"  {step} {command}: {'; '.join(wrong) or 'ok'}", flush=True)
        if not was_killed:
            break
    print(
        f"{'FAILED' if bad else 'ok'} {way}: killed at each of {step - first} commands, each time "
        f"followed by clean; the template's checksum as before ({time.monotonic() - begin:.0f} s)",
        flush=True,
    )
    return bad


def said_last() -> str:
    """What vdisklab printed."""
    return (WORK / "log").read_text()


def all_killed() -> int:
    """The exit status."""
    fake_programs()
    template = WORK / "golden.raw"
    template.write_bytes(os.urandom(8 << 20) + bytes(8 << 20))
    named = [word.partition(":") for word in sys.argv[2:] or PATHS]
    return int(sum(killed(way, int(first or 1), template) for way, _, first in named) > 0)


if __name__ == "__main__":
    sys.exit(all_killed())
