"""Does a timed replay repeat a recording, on a disk that adds no chance of its own?

    python bench/replay_disk.py pairs WORK APPLICATION REPLAYS    # seven minutes under emulation
    python bench/replay_disk.py again WORK APPLICATION REPLAYS    # of the last recording
    python bench/replay_disk.py rates WORK                        # ten minutes
    python bench/replay_disk.py keep WORK
    python bench/replay_disk.py show
    python bench/replay_disk.py show rates
    python bench/replay_disk.py show earlier

`pairs` of bench/replay.py compares the same on qcow2 in the host's ext4. There two replays of one
load differ: its journal and qcow2's metadata are written at other requests each time, and flushes
meet by chance. Here the guest's disk is a block device without a file system (one_arm.py), which
does one request after another. So a request that comes at another moment than in the recording
waits for another time, and each wrong moment of the replay shows.

There are two kinds of times. `computed`: what the disk's rule says of the moments at which the
requests came, without anything that the machine adds. A replay whose requests come at other moments
or in another order has other times by this rule: before its last faults were mended, that of
PostgreSQL had p50 of ×0.80, and that of `sqlite-large` p95 of ×1.89. The others
are what QEMU measured.

The host of a virtual machine may not run its processors for a while: here for 4 to 15 ms at a
time, every second or two (30 November 2026). A request of 10 ms takes 20 then, and one in a hundred
does. So each run notes when the machine stood still (standstill.c).

`rates` has loads of fio on a disk that takes 0.1 ms: how late does a timed replay begin its
requests, if there are hundreds or thousands in each second?

WORK is to be on tmpfs: QEMU writes a line for each request, and waits for a busy disk to do so.
"""

from __future__ import annotations

import heapq
import re
import signal
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import to_builtins

from machine import machine_facts
from pages import keep_record, record_of
from replay import (
    BEGAN,
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
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.loads.load_file import read_load
from vdisklab.value import replace

RECORD = "replay-disk.json.gz"
LOADS = Path(__file__).with_name("replay-disk.toml")
PATH = "arm/none"
LABEL = "device:at=arm/none"
"""The path's canonical name, in the names of recordings."""
TIMES = DiskTimes(read=10, write=10, flush=40)
RATE = 50_000
RATES = Path(__file__).with_name("replay-rates.fio")
FAST = DiskTimes(read=0.1, write=0.1, flush=0.1)
FAST_RATE = 5_000_000
STANDSTILL = Path(__file__).with_name("standstill.c")
STOOD_STILL = "stood-still"
_LATE_US = 5000
"""As `timed` counts late requests (docs/replay.md)."""
_TIMES = ("p50", "p95", "p99")
_UNTIMED = dict.fromkeys(_TIMES)
_KINDS = ("read", "write", "flush")


def pairs(work: Path, application: str, replays: str) -> None:
    """A recording of an application, and so many timed replays of it, each recorded, too."""
    (work / "place").mkdir(parents=True)
    recorder = Recorder(work)
    profile = profile_of([application], work, LOADS)
    _run(work, "applications", recorder, "--profile", str(profile), "--rounds", "1")
    _choose(recorder, application, work)
    again(work, application, replays)


def _choose(recorder: Recorder, name: str, work: Path) -> None:
    """Makes the recording of that load the one that is replayed."""
    recorder.label = f"{name} {LABEL}"
    for suffix in (".load", BEGAN):
        recorded = recorder.file(1).with_suffix(suffix)
        (work / f"{name}{suffix}").write_bytes(recorded.read_bytes())


def again(work: Path, application: str, replays: str) -> None:
    """Timed replays of the recording in this directory."""
    profile = replays_of([application], work, "timed")
    recorder = Recorder(work, of="replayed-")
    _run(
        work, "timed", recorder, "--profile", str(profile), "--rounds", replays, *LONG_WHOLE
    )  # fmt: skip


def rates(work: Path) -> None:
    """A recording of each load of `RATES`, and a timed replay of it, recorded, too."""
    (work / "place").mkdir(parents=True)
    fast = (FAST, FAST_RATE)
    recorder = Recorder(work)
    _run(work, "loads", recorder, "--profile", str(RATES), "--rounds", "1", disk=fast)
    for name in _loads_at_rates():
        _choose(recorder, name, work)
    profile = replays_of(_loads_at_rates(), work, "timed")
    recorder = Recorder(work, of="replayed-")
    _run(
        work, "timed", recorder, "--profile", str(profile), "--rounds", "1", *LONG_WHOLE, disk=fast
    )


def _loads_at_rates() -> list[str]:
    sections = re.findall(r"^\[(.+)\]$", RATES.read_text(), re.MULTILINE)
    return [name for name in sections if name != "global"]


def _run(
    work: Path,
    name: str,
    recorder: Recorder,
    *arguments: str,
    disk: tuple[DiskTimes, int] = (TIMES, RATE),
) -> None:
    with (
        standstills(work),
        disk_of_one_arm(work, DISK_BYTES, *disk) as disk_file,
        recording(recorder),
    ):
        run(
            work, work / "place", name, "--target", f"arm={disk_file}", *COMMON, *arguments,
            paths=(PATH,),
        )  # fmt: skip


@contextmanager
def standstills(work: Path) -> Iterator[None]:
    """While it is open, notes when the machine stood still; as root, with a C compiler."""
    program = work / "standstill"
    command = ("cc", "-O2", "-pthread", "-o", str(program), str(STANDSTILL))
    subprocess.run(command, check=True, timeout=60)
    with (work / STOOD_STILL).open("a") as notes:
        watcher = subprocess.Popen([program], stdout=notes, start_new_session=True)
        try:
            yield
        finally:
            watcher.terminate()
            ended = watcher.wait(10)
    if ended != -signal.SIGTERM:
        raise SystemExit(f"{program} ended with {ended}")


def computed_us(load: RecordedLoad, times: DiskTimes, rate: int) -> npt.NDArray[np.float64]:
    """How many microseconds each request takes by the disk's rule, if it comes when it is due.

    The arm (one_arm.py) does one request after another, as they come. QEMU sends one flush at a
    time, and none if no write has ended since the last one began (`bdrv_co_flush` in block/io.c).
    """
    takes = {IoKind.READ: times.read, IoKind.WRITE: times.write, IoKind.FLUSH: times.flush}
    requests = list(
        zip(load.due_us.tolist(), load.kind.tolist(), load.length.tolist(), strict=True)
    )
    coming = [(due, number) for number, (due, _, _) in enumerate(requests)]
    ends = np.zeros(len(requests))
    writes_ended: list[float] = []
    before_flush: dict[int, int] = {}
    free = flush_ends = 0.0
    flushed = -1
    while coming:
        now, number = heapq.heappop(coming)
        _, kind, length = requests[number]
        if kind == IoKind.FLUSH:
            written = before_flush.setdefault(number, bisect_right(writes_ended, now))
            if flush_ends > now:
                heapq.heappush(coming, (flush_ends, number))
                continue
            if written == flushed:
                ends[number] = now
                continue
            flushed = written
        free = max(now, free) + (takes[IoKind(kind)] + length / rate) * 1000
        ends[number] = free
        if kind == IoKind.FLUSH:
            flush_ends = free
        elif kind == IoKind.WRITE:
            writes_ended.append(free)
    return ends - load.due_us


def _computed(load: RecordedLoad) -> RecordedLoad:
    took = computed_us(load, TIMES, RATE)
    return replace(load, service_us=np.rint(took).astype(np.int64))


def _described(file: Path) -> dict[str, Any]:
    """What two recordings are compared by, as measured and `computed`. `stood_still`: during how
    many requests the machine did, and for how many seconds in all."""
    load = read_load(file)
    notes = file.parent / STOOD_STILL
    began = int(file.with_suffix(BEGAN).read_text())
    from_us, to_us = np.loadtxt(notes, dtype=np.int64, ndmin=2).reshape(-1, 2).T - began
    order = np.argsort(from_us)
    from_us, to_us = from_us[order], np.maximum.accumulate(to_us[order])
    ends = load.due_us + np.maximum(load.service_us, 0)
    # Standstills that begin before a request ends, less those that end before it begins.
    met = np.searchsorted(from_us, ends) > np.searchsorted(to_us, load.due_us)
    lengths = to_us - np.maximum(from_us, np.concatenate(([from_us.min(initial=0)], to_us[:-1])))
    during = (from_us < ends.max()) & (to_us > 0)
    return {
        **described(load),
        "computed": described(_computed(load)),
        "stood_still": {
            "requests": int(met.sum()),
            "seconds": float(lengths[during].clip(0).sum()) / 1e6,
        },
    }


def keep(work: Path) -> dict[str, Any]:
    """The record with what was measured in that directory: each recording of `pairs/`, with its
    replays, comes after those that the record has already, and `rates/` replaces the record's.

    `earlier` in the record are pairs of a replayer that had faults which were mended since: they
    show that the disk's rule tells a wrong replay.
    """
    before = record_of(RECORD)
    return {
        "machine": machine_facts(work),
        "path": PATH,
        "disk": to_builtins(TIMES) | {"rate": RATE},
        "recordings": [
            *before["recordings"],
            *(pair for pair in _pairs_in(work) if pair not in before["recordings"]),
        ],
        "earlier": before["earlier"],
        "fast_disk": to_builtins(FAST) | {"rate": FAST_RATE},
        "rates": (
            [_at_rate(work / "rates", name) for name in _loads_at_rates()]
            if (work / "rates").exists()
            else before["rates"]
        ),
    }


def _pairs_in(work: Path) -> Iterator[dict[str, Any]]:
    for application in LONG_APPLICATIONS:
        for directory in directories_of(work / "pairs", application):
            if replays := sorted(directory.glob("replayed-*.load")):
                yield {
                    "application": application,
                    "recorded": _described(directory / f"{application}.load"),
                    "replayed": [_described(replay) for replay in replays],
                }


def _at_rate(directory: Path, name: str) -> dict[str, Any]:
    """A load, its replay, and by how many microseconds requests of the replay began too late."""
    recorded = read_load(directory / f"{name}.load")
    (replayed,) = map(read_load, directory.glob(f"replayed-{name}-*.load"))
    begun = [np.sort(load.due_us) - load.due_us.min() for load in (recorded, replayed)]
    fewest = min(map(len, begun))
    late = begun[1][:fewest] - begun[0][:fewest]
    return {
        "load": name,
        "recorded": described(recorded),
        "replayed": described(replayed),
        "late_us": {point: float(np.percentile(late, int(point[1:]))) for point in _TIMES},
        "late_share": float((late > _LATE_US).mean()),
    }


def shown(arguments: list[str]) -> str:
    """The record's table of pairs, of rates, or of earlier pairs."""
    record = record_of(RECORD)
    if arguments == ["earlier"]:
        return "\n".join(_earlier_rows(record["earlier"]))
    if arguments == ["rates"]:
        return "\n".join(_rates_rows(record["rates"]))
    return "\n".join(_rows(record["recordings"]))


def _rates_rows(loads: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """By load: its rate, how late its replay's requests began, and its service times relative to
    the recording's."""
    yield (
        "| load | requests a second | same requests, bytes | length | begun late: p50 | p99 "
        "| over 5 ms late | p50 | p95 | p99 |"
    )
    yield f"{'|---' * 10}|"
    for row in loads:
        recorded, replayed = row["recorded"], row["replayed"]
        reads, again_reads = recorded["read"], replayed["read"]
        same = reads | _UNTIMED == again_reads | _UNTIMED
        yield (
            f"| {row['load']} | {reads['requests'] / recorded['seconds']:,.0f} "
            f"| {_yes(same)} | ×{replayed['seconds'] / recorded['seconds']:.3f} "
            f"| {row['late_us']['p50'] / 1000:.2f} ms | {row['late_us']['p99'] / 1000:.2f} ms "
            f"| {row['late_share']:.1%} | " + " | ".join(_ratios(recorded, replayed, "read")) + " |"
        )


def _rows(recordings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """By pair of a recording and a replay: p50, p95 and p99 of the replay relative to those of the
    recording, of the reads or the writes, whichever are more. The last column is of all requests,
    in the recording and in the replay.
    """
    yield (
        "| application | seconds | same requests, bytes, flushes | length within 1 % | of "
        "| p99 rests on | by the disk's rule: p50 | p95 | p99 | measured: p50 | p95 | p99 "
        "| flushes measured: p50 | p99 | requests while the machine stood still |"
    )
    yield f"{'|---' * 15}|"
    for row in recordings:
        recorded = row["recorded"]
        kind = max(("read", "write"), key=lambda name: recorded[name]["requests"])
        for replayed in row["replayed"]:
            same = all(recorded[name] | _UNTIMED == replayed[name] | _UNTIMED for name in _KINDS)
            is_as_long = abs(replayed["seconds"] / recorded["seconds"] - 1) <= 0.01
            cells = [
                row["application"], f"{recorded['seconds']:.0f}", _yes(same), _yes(is_as_long),
                f"{kind}s", f"{recorded[kind]['requests'] // 100}",
                *_ratios(recorded["computed"], replayed["computed"], kind),
                *_ratios(recorded, replayed, kind),
                *_ratios(recorded, replayed, "flush")[::2],
                ", ".join(_stood_still(each) for each in (recorded, replayed)),
            ]  # fmt: skip
            yield f"| {' | '.join(cells)} |"


def _stood_still(about: Mapping[str, Any]) -> str:
    requests = sum(about[name]["requests"] for name in _KINDS)
    return f"{about['stood_still']['requests'] / requests:.1%}"


def _earlier_rows(recordings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """As `_rows`, of pairs of which only the times by the disk's rule are told."""
    yield "| application | of | by the disk's rule: p50 | p95 | p99 |"
    yield f"{'|---' * 5}|"
    for row in recordings:
        recorded = row["recorded"]
        kind = max(("read", "write"), key=lambda name: recorded[name]["requests"])
        for replayed in row["replayed"]:
            ratios = _ratios(recorded, replayed, kind)
            yield f"| {row['application']} | {kind}s | {' | '.join(ratios)} |"


def _yes(so: bool) -> str:
    return "yes" if so else "**no**"


def _ratios(recorded: Mapping[str, Any], replayed: Mapping[str, Any], kind: str) -> list[str]:
    """p50, p95 and p99 of the replay relative to the recording; those off by over 10 % are bold."""
    if not recorded[kind]["requests"]:
        return ["–"] * len(_TIMES)
    ratios = [replayed[kind][name] / recorded[kind][name] for name in _TIMES]
    return [f"×{ratio:.2f}" if 0.9 <= ratio <= 1.1 else f"**×{ratio:.2f}**" for ratio in ratios]


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
    elif verb == "rates":
        rates(Path(arguments[0]).absolute() / "rates")
    elif verb == "keep":
        keep_record(RECORD, keep(Path(arguments[0])))
    else:
        sys.stdout.write(f"{shown(arguments)}\n")


if __name__ == "__main__":
    main()
