"""Does a timed replay repeat a recording, on a disk that adds no chance of its own?

    python bench/replay_disk.py pairs WORK APPLICATION REPLAYS    # seven minutes under emulation
    python bench/replay_disk.py again WORK APPLICATION REPLAYS    # of the last recording
    python bench/replay_disk.py keep WORK
    python bench/replay_disk.py show

`pairs` of bench/replay.py compares the same on qcow2 in the host's ext4. There two replays of one
load differ: its journal and qcow2's metadata are written at other requests each time, and flushes
meet by chance. Here the guest's disk is a block device without a file system (one_arm.py), which
does one request after another. So a request that comes at another moment than in the recording
waits for another time, and each wrong moment of the replay shows.

WORK is to be on tmpfs: QEMU writes a line for each request, and waits for a busy disk to do so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from machine import machine_facts
from pages import keep_record, record_of
from replay import (
    COMMON,
    DISK_BYTES,
    LONG_APPLICATIONS,
    LONG_WHOLE,
    Recorder,
    described,
    directories_of,
    profile_of,
    recording,
    replays_of,
    run,
)
from slow_disk import DiskTimes, disk_of_one_arm
from vdisklab.loads.load_file import read_load

RECORD = "replay-disk.json.gz"
LOADS = Path(__file__).with_name("replay-disk.toml")
PATH = "arm/none"
TIMES = DiskTimes(read=10, write=10, flush=40)
RATE = 50_000
_TIMES = ("p50", "p95", "p99")
_UNTIMED = dict.fromkeys(_TIMES)
_KINDS = ("read", "write", "flush")


def pairs(work: Path, application: str, replays: str) -> None:
    """A recording of an application, and so many timed replays of it, each recorded, too."""
    (work / "place").mkdir(parents=True)
    recorder = Recorder(work)
    profile = profile_of([application], work, LOADS)
    _run(work, "applications", recorder, "--profile", str(profile), "--rounds", "1")
    (work / f"{application}.load").write_bytes(recorder.file(1).read_bytes())
    again(work, application, replays)


def again(work: Path, application: str, replays: str) -> None:
    """Timed replays of the recording in this directory."""
    profile = replays_of([application], work, "timed")
    recorder = Recorder(work, of="replayed-")
    _run(
        work, "timed", recorder, "--profile", str(profile), "--rounds", replays, *LONG_WHOLE
    )  # fmt: skip


def _run(work: Path, name: str, recorder: Recorder, *arguments: str) -> None:
    with disk_of_one_arm(work, DISK_BYTES, TIMES, RATE) as disk, recording(recorder):
        run(
            work, work / "place", name, "--target", f"arm={disk}", *COMMON, *arguments,
            paths=(PATH,),
        )  # fmt: skip


def keep(work: Path) -> dict[str, Any]:
    """The record of what was measured: for each recording it and its replays."""
    return {
        "machine": machine_facts(work),
        "path": PATH,
        "disk": asdict(TIMES) | {"rate": RATE},
        "recordings": [
            {
                "application": application,
                "recorded": described(read_load(directory / f"{application}.load")),
                "replayed": [
                    described(read_load(replay))
                    for replay in sorted(directory.glob("replayed-*.load"))
                ],
            }
            for application in LONG_APPLICATIONS
            for directory in directories_of(work / "pairs", application)
            if any(directory.glob("replayed-*.load"))
        ],
    }


def shown(_arguments: list[str]) -> str:
    """The record's table."""
    return "\n".join(_rows(record_of(RECORD)["recordings"]))


def _rows(recordings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """By application: in how many pairs of a recording and a replay each goal is met, how far times
    of the replays are from the recording's, and how far those of two replays are apart.

    Times are those of the reads or the writes, whichever are more, and of flushes.
    """
    yield (
        "| application | seconds | pairs | same requests, bytes, flushes | length within 1 % "
        "| of | p99 rests on | p50 within 10 % | p99 | p50 | p95 | p99 | of flushes: p50 | p99 "
        "| replay to replay: p99 |"
    )
    yield f"{'|---' * 15}|"
    for row in recordings:
        recorded, replayed = row["recorded"], row["replayed"]
        kind = max(("read", "write"), key=lambda name: recorded[name]["requests"])
        same = sum(
            all(recorded[name] | _UNTIMED == each[name] | _UNTIMED for name in _KINDS)
            for each in replayed
        )
        length = sum(abs(each["seconds"] / recorded["seconds"] - 1) <= 0.01 for each in replayed)
        ratios = _ratios(recorded, replayed, kind)
        flushes = _ratios(recorded, replayed, "flush")
        near = {name: sum(map(_is_near, ratios[name])) for name in _TIMES}
        yield (
            f"| {row['application']} | {recorded['seconds']:.0f} | {len(replayed)} | {same} "
            f"| {length} | {kind}s | {recorded[kind]['requests'] // 100} "
            f"| {near['p50']} | {near['p99']} | "
            + " | ".join(_listed(ratios[name]) for name in _TIMES)
            + f" | {_listed(flushes['p50'])} | {_listed(flushes['p99'])} "
            f"| {_apart(ratios['p99'])} |"
        )


def _is_near(ratio: float) -> bool:
    return 0.9 <= ratio <= 1.1


def _ratios(
    recorded: Mapping[str, Any], replayed: Sequence[Mapping[str, Any]], kind: str
) -> dict[str, list[float]]:
    """By percentile, the replays' times relative to the recording's; empty without requests."""
    if not recorded[kind]["requests"]:
        return {name: [] for name in _TIMES}
    return {name: [each[kind][name] / recorded[kind][name] for each in replayed] for name in _TIMES}


def _listed(ratios: Sequence[float]) -> str:
    return ", ".join(f"×{ratio:.2f}" for ratio in ratios) or "–"


def _apart(ratios: Sequence[float]) -> str:
    return f"×{max(ratios) / min(ratios):.2f}" if len(ratios) > 1 else "–"


def main() -> None:
    """Measures, keeps or shows."""
    verb, *arguments = sys.argv[1:]
    if verb in ("pairs", "again"):
        work, application, replays = arguments
        above = Path(work).absolute() / "pairs"
        there = list(directories_of(above, application))
        if verb == "pairs":
            pairs(above / f"{application}.{len(there) + 1}", application, replays)
        else:
            again(there[-1], application, replays)
    elif verb == "keep":
        keep_record(RECORD, keep(Path(arguments[0])))
    else:
        sys.stdout.write(f"{shown(arguments)}\n")


if __name__ == "__main__":
    main()
