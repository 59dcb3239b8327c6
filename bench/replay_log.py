"""Compares the states that vdisklab rebuilds from a recording with those of xfstests' replay-log.

    python bench/replay_log.py [--replay-log PROGRAM] [--dir DIR] [--states N] [PATHS...]

xfstests' src/log-writes has an independent reader of dm-log-writes' format, `replay-log`, by which
many file systems are tested. For each path a run is recorded, as `vdisklab powercut` does. Both
programs count the log's entries, and rebuild the disk at each flush, up to --states of them evenly
spread, and at the end; each byte of the two disks is compared. Needs root, and the program on PATH
or by name. Exit status 1 if a byte or a number differs.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from machine import machine_facts, print_result
from vdisklab.errors import VdisklabError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.client import Load
from vdisklab.powercut.crash_states import CrashState, Epoch
from vdisklab.powercut.rebuild import open_rebuilder
from vdisklab.powercut.recordings import RunSpec, open_recording
from vdisklab.powercut.session import PowerCutSession, open_session
from vdisklab.storage.write_log import Log, read_log

PATHS = ("ext4/raw/none", "xfs/raw/none", "ext4/qcow2/none", "xfs/qcow2/none")
PROGRAM = "replay-log"
_CHUNK = 16 << 20
_SECONDS = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replay-log", default=PROGRAM)
    parser.add_argument("--dir", type=Path, default=Path())
    parser.add_argument("--states", type=int, default=200)
    parser.add_argument("paths", nargs="*", default=PATHS)
    wanted = parser.parse_args()
    directory = wanted.dir.absolute()
    with (
        open_ledger() as ledger,
        open_session(LocalHost(), ledger, directory, workers=1) as session,
    ):
        found = {
            path: compare(session, path, wanted.replay_log, wanted.states) for path in wanted.paths
        }
    print_result({"bench": "replay_log", **machine_facts(directory), "paths": found})
    wrong = (
        path["differing_states"] or path["entries"] != path["their_entries"]
        for path in found.values()
    )
    return int(any(wrong))


def compare(session: PowerCutSession, path: str, program: str, states: int) -> dict[str, Any]:
    """Numbers of entries and states, and how many states differ."""
    recording = session.record(RunSpec(parse_path(path), Load(ClientKind.FLUSHES, writes=120)))
    try:
        opened = open_recording(recording.directory)
        log, size = read_log(opened.log), opened.trace.disk_size
        marks = [number for number, entry in enumerate(log.entries) if entry.flushes]
        chosen = [*marks[:: -(-len(marks) // states)], len(log.entries)]
        work = session.site.directory / "both"
        work.mkdir()
        try:
            differing = differing_states(log, chosen, size, work, program)
        finally:
            shutil.rmtree(work)
        return {
            "entries": len(log.entries),
            "their_entries": number_of_entries(program, log.path),
            "flushes": len(marks),
            "states_compared": len(chosen),
            "bytes_of_a_state": size,
            "differing_states": differing,
        }
    finally:
        recording.remove()


def differing_states(
    log: Log, positions: Sequence[int], size: int, work: Path, program: str
) -> int:
    """How many of the states before these log positions are not the same bytes on both disks."""
    differing = done = 0
    theirs = work / "theirs"
    with open_rebuilder(work, log, size) as ours:
        with theirs.open("wb") as disk:
            disk.truncate(size)
        for position in positions:
            if position > done:
                count = ("--start-entry", str(done), "--limit", str(position - done))
                run(program, "--log", str(log.path), "--replay", str(theirs), *count)
                done = position
            state = ours.build(Epoch(0, position, position, ()), CrashState(0))
            differing += not same_bytes(state, theirs)
        # What compares must be able to fail: halfway the disk was another one.
        halfway = positions[len(positions) // 2]
        if same_bytes(ours.build(Epoch(0, halfway, halfway, ()), CrashState(0)), theirs):
            raise SystemExit("the comparison finds no difference where there is one")
    return differing


def same_bytes(first: Path, second: Path) -> bool:
    """True if two files have the same size and bytes."""
    if first.stat().st_size != second.stat().st_size:
        return False
    left, right = (np.memmap(file, np.uint8, mode="r") for file in (first, second))
    places = range(0, len(left), _CHUNK)
    return all(
        np.array_equal(left[place : place + _CHUNK], right[place : place + _CHUNK])
        for place in places
    )


def number_of_entries(program: str, log: Path) -> int:
    """The number of entries that replay-log finds."""
    return int(run(program, "--log", str(log), "--num-entries").split()[-1])


def run(*command: str) -> str:
    """What a program printed. Raises CalledProcessError."""
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=_SECONDS
    ).stdout


if __name__ == "__main__":
    try:
        sys.exit(main())
    except VdisklabError as error:
        raise SystemExit(f"{error}\n{error.hint or ''}") from error
