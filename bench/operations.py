"""What operations cost a guest's writes, where the waiting can be computed beforehand.

No guest: an open load over NBD to QEMU's storage daemon, with the operations of `operations/` and
the reckoning of `workload/load_windows.py`. The target of a backup or mirror is an nbdkit that
handles one request after another at a fixed rate, as a slow line does.

A first write to a cluster that is not saved yet copies this cluster itself, outside of the job's
pool of workers (block/copy-before-write.c, cbw_do_copy_before_write; block/block-copy.c). The pool
begins a copy as soon as one has ended (aio_task_pool_wait_slot), each of BLOCK_COPY_MAX_BUFFER,
1 MiB. So at a random moment `workers` copies are at the target, of which the first is half done on
average, and the cluster's own 64 KiB come after them.

A mirror has 16 copies (block/mirror.c, MAX_IN_FLIGHT) of 1 MiB (MAX_IO_BYTES) at its target. With
copy-mode=write-blocking a write is sent there, too, after them; but of a write that fills no whole
granule (64 KiB) in a part that is still to be copied, nothing is sent, because the copy will hold
it (do_sync_target_write, "dirty unaligned padding: ignore it"). So 4 KiB wait only where the copy
is done already, and 64 KiB everywhere.

    .venv/bin/python bench/operations.py DIRECTORY [--json FILE] [--only PART]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from math import comb
from pathlib import Path
from statistics import median
from typing import Any

from pages import record_of
from vdisklab import numbers
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.guest.qemu.daemons import StorageDaemon, start_storage_daemon
from vdisklab.guest.qemu.open_disk import open_disk
from vdisklab.host.ledger import open_ledger
from vdisklab.operations.operation import TARGET, DiskAccess, RunningOperation
from vdisklab.operations.registry import parse_operation
from vdisklab.path.disk_path import parse_path
from vdisklab.powercut.nbd import NbdDisk, nbd_disk
from vdisklab.results.model import Direction
from vdisklab.units import KIB, MIB, SECTOR
from vdisklab.value import replace
from vdisklab.workload.load_windows import LoadWindow, longest_stall
from vdisklab.workload.open_load import GuestRequests, LoggedRequest

SIZE = 512 * MIB
CLUSTER, COPY = 64 * KIB, MIB
RATES = (10 * MIB, 20 * MIB, 40 * MIB)
WORKERS = (1, 16, 64)
MIRROR_RATES = (*RATES, 30 * MIB)
"""The last one was computed before it was measured."""
STALLS = (1.0, 2.0, 4.0)
ROUNDS = 5
NEW_CASES = ((4, 30 * MIB), (32, 15 * MIB))
"""(workers, bytes a second) of backups whose waiting was computed before any was measured."""
BITMAP_ROUNDS, BITMAP_SECONDS = 12, 1.5
MOMENTS = ("nothing", "snapshot", "snapshot:internal", "trim")
MOMENT_ROUNDS, MOMENT_SIZE, TRIMMED = 20, 64 * MIB, 4 * MIB
"""Rounds, the disk's size, and the bytes of each discard; the rear half of the disk is trimmed."""
_TAIL = 0.025

MIRRORED = 16
"""The copies of 1 MiB that a mirror has at its target."""
MOST_WRITES_PER_SECOND, STALLED_PER_SECOND = 8.0, 50.0
FRONT = 1 / 8
"""The share of the disk, from its front, that is copied before writes to it are measured."""
_BEFORE, _DURING = 3.0, 6.0
_QUEUES = 3.0
"""How many times the predicted waiting is measured."""
# QEMU's NBD server takes 16 requests of a client at once (nbd/server.c, MAX_NBD_REQUESTS).
_IN_FLIGHT = 10.0
_SOCKET_BYTES = 8 * MIB
_SNDBUFFORCE = 32  # include/uapi/asm-generic/socket.h
# Until the queue in front of the target is full, a write waits for less.
_SHARE_FILLED = 1.2
_PATH = "raw/writeback/virtio:throttle_iops=999999999"


class Place(Enum):
    """Where writes go: to what a job copies first, or last."""

    FRONT = "front"
    REAR = "rear"


@dataclass
class OpenWriter:
    """Writes to clusters that were not written before, at random moments, whatever the disk does.
    Each write's latency counts from the moment at which it was due."""

    disk: NbdDisk
    rng: random.Random
    rate: float
    place: Place = Place.REAR
    bytes: int = 4 * KIB

    def __post_init__(self) -> None:
        # A job copies from the front, so the clusters of the rear half are saved last.
        count = SIZE // CLUSTER
        front = self.place is Place.FRONT
        clusters = list(range(int(FRONT * count)) if front else range(count // 2, count))
        self.rng.shuffle(clusters)
        self.clusters = iter(clusters)
        self.due: dict[int, float] = {}
        self.done: list[LoggedRequest] = []
        self.next_due = time.monotonic()
        # A daemon that stands still takes nothing from its socket.
        self.disk.connection.setsockopt(socket.SOL_SOCKET, _SNDBUFFORCE, _SOCKET_BYTES)

    def run_until(self, over: Callable[[], bool]) -> None:
        """Sends what is due and takes answers until `over` is true."""
        while not over():
            now = time.monotonic()
            while self.next_due <= now:
                first = next(self.clusters) * CLUSTER // SECTOR
                self.due[self.disk.write(first, self.bytes // SECTOR, 1, fua=False)] = self.next_due
                self.next_due += self.rng.expovariate(self.rate)
            wait = max(0.0, min(self.next_due - now, 0.02))
            if select.select([self.disk.connection], [], [], wait)[0]:
                self._take()

    def drain(self) -> None:
        """Waits for all answers."""
        while self.due:
            self._take()

    def _take(self) -> None:
        due = self.due.pop(self.disk.await_one())
        latency = time.monotonic() - due
        self.done.append(LoggedRequest(due, latency, Direction.WRITE, self.bytes))


@contextmanager
def slow_target(directory: Path, rate: int | None) -> Iterator[Mapping[str, Any]]:
    """A target that takes `rate` bytes a second, one request after another."""
    address = directory / "target.socket"
    limit = () if rate is None else (f"rate={8 * rate}",)
    argv = ("nbdkit", "-f", "-t", "1", "-U", str(address), "--filter=rate", "memory", str(SIZE))
    with subprocess.Popen((*argv, *limit), stderr=subprocess.DEVNULL) as server:
        try:
            while not address.exists():
                time.sleep(0.02)
            yield {"driver": "nbd", "server": {"type": "unix", "path": str(address)}}
        finally:
            server.kill()
            server.wait()
            address.unlink(missing_ok=True)


@dataclass
class Course:
    """One run: the writer, the operation or none, and the moments of its windows."""

    requests: GuestRequests
    before: LoadWindow
    during: LoadWindow

    def latencies(self, window: LoadWindow, after: float = 0.0) -> list[float]:
        """Latencies of the requests that were due in a window, from `after` seconds on."""
        begin = window.begin + after
        return [
            request.latency or 0.0
            for request in self.requests.requests
            if begin <= request.due < window.end
        ]


@contextmanager
def storage(directory: Path) -> Iterator[tuple[StorageDaemon, Disk, NbdDisk]]:
    """A raw disk full of data, opened by a daemon below a throttle filter that limits nothing."""
    image = directory / "disk.raw"
    with image.open("wb") as sink, Path("/dev/urandom").open("rb") as source:
        for _ in range(SIZE // (16 * MIB)):
            sink.write(source.read(16 * MIB))
    path = parse_path(_PATH)
    node = {"driver": "file", "filename": str(image)}
    disk = Disk("bench", SIZE, node, "raw", path.cache, path.attachment)
    name = f"vdisklab-bench-{time.monotonic_ns()}"
    with (
        open_ledger(directory) as ledger,
        start_storage_daemon(ledger, directory, name) as daemon,
        nbd_disk(daemon, disk) as client,
    ):
        yield daemon, disk, client
    image.unlink()


def ordered(
    daemon: StorageDaemon, disk: Disk, text: str, target: Mapping[str, Any], directory: Path
) -> RunningOperation:
    """An operation on what is below the throttle filter, which can be given another child."""
    throttle = disk.names.throttle
    # QEMU mirrors what its device uses; a filter of a backup goes below the throttle filter.
    whole = open_disk(disk)
    below = whole if text.startswith("mirror") else replace(whole, node=disk.names.node)

    def new_image(purpose: str, driver: str) -> Mapping[str, Any]:
        if purpose == TARGET:
            return {"driver": driver, "file": target}
        file = directory / purpose
        with file.open("wb") as sink:
            sink.truncate(SIZE)
        return {"driver": driver, "file": {"driver": "file", "filename": str(file)}}

    def use_node(node: str) -> None:
        options = {"driver": "throttle", "node-name": throttle, "throttle-group": throttle}
        cache = {"cache": {"direct": False, "no-flush": False}, "discard": "ignore"}
        daemon.monitor.execute("blockdev-reopen", {"options": [{**options, **cache, "file": node}]})

    access = DiskAccess(daemon.monitor, lambda _size: None, new_image, use_node)
    return parse_operation(text).on(below, access)


def course(
    directory: Path,
    text: str,
    rate: int | None,
    seed: int,
    queued: float = 0.0,
    *,
    place: Place = Place.REAR,
    size: int = 4 * KIB,
) -> Course:
    """The writes before and during an operation, which is ended early: before its job comes to the
    rear half of the disk. `queued` is the predicted waiting in seconds."""
    half = 0.45 * SIZE / rate if rate else _DURING
    copied = FRONT * SIZE / rate if rate and place is Place.FRONT else 0.0
    seconds = min(half, max(_DURING, _QUEUES * queued) + copied)
    per_second = min(MOST_WRITES_PER_SECOND, _IN_FLIGHT / queued if queued else 1e9)
    with ExitStack() as opened:
        daemon, disk, client = opened.enter_context(storage(directory))
        target = opened.enter_context(slow_target(directory, rate))
        running = ordered(daemon, disk, text, target, directory)
        running.prepare()
        rng = random.Random(seed)  # noqa: S311 - reproducible
        writer = OpenWriter(client, rng, per_second, place, size)
        begin = time.monotonic()
        writer.run_until(lambda: time.monotonic() >= begin + _BEFORE)
        ordered_at = time.monotonic()
        running.start()
        enough = ordered_at + seconds

        def over() -> bool:
            return time.monotonic() >= enough

        writer.run_until(over)
        ended = time.monotonic()
        writer.drain()
        running.undo()
        for node in running.left_nodes:
            daemon.monitor.execute("blockdev-del", {"node-name": node})
        end = time.monotonic()
    requests = GuestRequests(begin, end, True, tuple(writer.done))
    return Course(requests, LoadWindow(begin, ordered_at), LoadWindow(ordered_at, ended))


def stall(directory: Path, seconds: float, seed: int) -> float:
    """The longest stall that is found when QEMU stands still for some seconds."""
    with storage(directory) as (daemon, _, client):
        rng = random.Random(seed)  # noqa: S311 - reproducible
        writer = OpenWriter(client, rng, STALLED_PER_SECOND)
        begin = time.monotonic()
        writer.run_until(lambda: time.monotonic() >= begin + 1.0)
        held = time.monotonic()
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            writer.run_until(lambda: time.monotonic() >= held + seconds)
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        freed = time.monotonic()
        writer.run_until(lambda: time.monotonic() >= freed + 1.0)
        writer.drain()
        end = time.monotonic()
    requests = GuestRequests(begin, end, True, tuple(writer.done))
    return longest_stall(requests, LoadWindow(begin, end))


def p99(latencies: list[float]) -> float:
    """The 99th percentile by nearest rank."""
    return sorted(latencies)[max(0, -(-99 * len(latencies) // 100) - 1)]


def controls(directory: Path) -> Iterator[dict[str, Any]]:
    """A disk that stands still for a known time, and an operation that does nothing."""
    for seconds in STALLS:
        found = [stall(directory, seconds, seed) for seed in range(ROUNDS)]
        yield {"control": "stall", "predicted": seconds, "found": found}
    ratios = []
    for seed in range(ROUNDS):
        run = course(directory, "nothing", None, seed)
        ratios.append(median(run.latencies(run.during)) / median(run.latencies(run.before)))
    yield {"control": "nothing", "predicted": 1.0, "found": ratios}


def backups(directory: Path) -> Iterator[dict[str, Any]]:
    """Three rates, three numbers of workers, with fleecing and without."""
    for rate in RATES:
        for workers in WORKERS:
            for kind in ("backup", "backup:fleecing"):
                yield backup_row(directory, kind, workers, rate)


def new_cases(directory: Path) -> Iterator[dict[str, Any]]:
    """The two backups that were computed first."""
    for workers, rate in NEW_CASES:
        yield backup_row(directory, "backup", workers, rate)


def mirrors(directory: Path) -> Iterator[dict[str, Any]]:
    """Both copy modes: writes of 4 KiB and of 64 KiB before the copy is there, 4 KiB after it."""
    for rate in MIRROR_RATES:
        for mode in ("background", "write-blocking"):
            for place, size in (
                (Place.REAR, 4 * KIB), (Place.REAR, CLUSTER), (Place.FRONT, 4 * KIB),
            ):  # fmt: skip
                yield mirror_row(directory, mode, rate, place, size)


def bitmap(directory: Path) -> Iterator[dict[str, Any]]:
    """The daemon's processor time for a write with a persistent dirty bitmap, by that without."""
    image = directory / "disk.qcow2"
    create = ("qemu-img", "create", "-q", "-f", "qcow2", "-o", "preallocation=full")
    subprocess.run((*create, str(image), str(SIZE)), check=True)
    path = parse_path("qcow2/writeback")
    node = {"driver": "file", "filename": str(image)}
    disk = Disk("bench", SIZE, node, "qcow2", path.cache, path.attachment)
    name = f"vdisklab-bench-{time.monotonic_ns()}"
    rng = random.Random(1)  # noqa: S311 - reproducible
    ratios = []
    with (
        open_ledger(directory) as ledger,
        start_storage_daemon(ledger, directory, name) as daemon,
        nbd_disk(daemon, disk) as client,
    ):
        of = {"node": disk.names.node, "name": "bench"}
        processor_time(daemon, client, rng)
        for _ in range(BITMAP_ROUNDS):
            found = {}
            for kept in rng.sample((True, False), 2):
                if kept:
                    added = {**of, "persistent": True}
                    daemon.monitor.execute("block-dirty-bitmap-add", added)
                found[kept] = processor_time(daemon, client, rng)
                if kept:
                    daemon.monitor.execute("block-dirty-bitmap-remove", of)
            ratios.append(found[True] / found[False])
    image.unlink()
    yield {"control": "bitmap", "predicted": None, "found": ratios}


def moments(directory: Path) -> Iterator[dict[str, Any]]:
    """What writes feel in the second after a snapshot or a trim is ordered, against the same second
    without one, in interleaved rounds."""
    rng = random.Random(1)  # noqa: S311 - reproducible
    found: dict[str, list[float]] = {what: [] for what in MOMENTS}
    for number in range(MOMENT_ROUNDS):
        for what in rng.sample(MOMENTS, len(MOMENTS)):
            found[what].append(longest_wait(directory, what, number))
    still = found.pop("nothing")
    yield {"control": "moment:nothing", "predicted": None, "found": still}
    for what, waits in found.items():
        more = [wait - without for wait, without in zip(waits, still, strict=True)]
        middle = sorted(more)
        # Order statistics: the interval of the median that covers with at least 95 %.
        low, high = middle[_rank_below(len(middle))], middle[-1 - _rank_below(len(middle))]
        yield {
            "control": f"moment:{what}", "predicted": None, "found": waits,
            "longer_by": median(more), "low": low, "high": high,
        }  # fmt: skip


def _rank_below(count: int) -> int:
    """The place (from 0) of the order statistic below which the median lies in 2.5 % at most."""
    place, below = 0, 0.0
    while (below := below + comb(count, place) / 2**count) <= _TAIL:
        place += 1
    return max(0, place - 1)


def longest_wait(directory: Path, what: str, seed: int) -> float:
    """The longest latency of the writes that were due in the second after the order."""
    image = directory / "disk.qcow2"
    create = ("qemu-img", "create", "-q", "-f", "qcow2", "-o", "preallocation=full")
    subprocess.run((*create, str(image), str(MOMENT_SIZE)), check=True)
    path = parse_path("qcow2/writeback/virtio:discard=unmap")
    node = {"driver": "file", "filename": str(image)}
    disk = Disk("bench", MOMENT_SIZE, node, "qcow2", path.cache, path.attachment)
    name, rng = f"vdisklab-bench-{time.monotonic_ns()}", random.Random(seed)  # noqa: S311
    with (
        open_ledger(directory) as ledger,
        start_storage_daemon(ledger, directory, name) as daemon,
        nbd_disk(daemon, disk) as client,
    ):
        writer = OpenWriter(client, rng, STALLED_PER_SECOND)
        clusters = list(range(MOMENT_SIZE // CLUSTER // 2))
        writer.clusters = iter(rng.choices(clusters, k=10_000))
        begin = time.monotonic()
        writer.run_until(lambda: time.monotonic() >= begin + 1.0)
        ordered_at = time.monotonic()
        running = None
        if what == "trim":
            for place in range(MOMENT_SIZE // 2, MOMENT_SIZE, TRIMMED):
                number = client.discard(place // SECTOR, TRIMMED // SECTOR)
                writer.due[number] = ordered_at
        elif what != "nothing":
            access = DiskAccess(daemon.monitor, lambda _size: None)
            running = parse_operation(what).on(open_disk(disk), access)
            running.finish()
        writer.run_until(lambda: time.monotonic() >= ordered_at + 1.0)
        ended = time.monotonic()
        writer.drain()
    for file in (image, *(() if running is None else running.left_files)):
        file.unlink()
    window = LoadWindow(ordered_at, ended)
    waits = [each.latency or 0.0 for each in writer.done if window.begin < each.due < window.end]
    return max(waits)


def processor_time(daemon: StorageDaemon, client: NbdDisk, rng: random.Random) -> float:
    """Ticks of the daemon's processor time for one of many writes of 4 KiB, one after another."""

    def ticks() -> int:
        fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, writes, end = ticks(), 0, time.monotonic() + BITMAP_SECONDS
    while time.monotonic() < end:
        client.write(rng.randrange(SIZE // (4 * KIB)) * 8, 8, 1, fua=False)
        client.await_one()
        writes += 1
    return (ticks() - before) / writes


PARTS: Mapping[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    "controls": controls,
    "backups": backups,
    "new": new_cases,
    "mirrors": mirrors,
    "bitmap": bitmap,
    "moments": moments,
}


def mirror_row(directory: Path, mode: str, rate: int, place: Place, size: int) -> dict[str, Any]:
    """The waiting of writes during a mirror, and what was computed: None for no waiting at all."""
    sent = mode == "write-blocking" and (place is Place.FRONT or size == CLUSTER)
    queued = ((MIRRORED - 0.5) * COPY + size) / rate if sent else 0.0
    text = f"mirror:copy-mode={mode}"
    run = course(directory, text, rate, 1, queued, place=place, size=size)
    copied = FRONT * SIZE / rate if place is Place.FRONT else 0.0
    during = run.latencies(run.during, after=max(copied, _SHARE_FILLED * queued))
    return {
        "operation": text,
        "rate": rate,
        "place": place.value,
        "bytes": size,
        "predicted": queued if sent else None,
        "before": median(run.latencies(run.before)),
        "found": median(during),
        "p99": p99(during),
        "longest_stall": longest_stall(run.requests, run.during),
        "writes": len(during),
    }


def backup_row(directory: Path, kind: str, workers: int, rate: int) -> dict[str, Any]:
    """The waiting of first writes during a backup, and what was computed."""
    queued = ((workers - 0.5) * COPY + CLUSTER) / rate
    run = course(directory, f"{kind}:workers={workers}", rate, workers, queued)
    during = run.latencies(run.during, after=_SHARE_FILLED * queued)
    return {
        "operation": kind,
        "workers": workers,
        "rate": rate,
        "predicted": queued if kind == "backup" else None,
        "before": median(run.latencies(run.before)),
        "found": median(during),
        "p99": p99(during),
        "longest_stall": longest_stall(run.requests, run.during),
        "writes": len(during),
    }


_MOMENTS = {
    "snapshot": "external snapshot",
    "snapshot:internal": "internal snapshot",
    "trim": "trim of 32 MiB in 8 discards",
}


def shown(arguments: list[str]) -> str:
    """A table of the record for a page: `backup`, `mirror` or `moments`."""
    rows = record_of("operations.json")["rows"]
    (part,) = arguments
    tables = {"backup": _shown_backups, "mirror": _shown_mirrors, "moments": _shown_moments}
    heading, lines = tables[part](rows)
    ruled = [heading, ["---"] * len(heading), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)


def _time(seconds: float | None) -> str:
    return numbers.value(seconds, "s")


def _mib(rate: int) -> str:
    return f"{rate // MIB} MiB/s"


def _shown_backups(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    heading = [
        "target", "workers", "computed", "found, median", "with fleecing: median", "p99",
        "longest stall", "writes",
    ]  # fmt: skip
    found = {(row["operation"], row["rate"], row["workers"]): row for row in rows
             if "workers" in row}  # fmt: skip
    return heading, [
        [_mib(rate), str(workers), _time(row["predicted"]), _time(row["found"]),
         *(_time(fleeced[key]) for key in ("found", "p99", "longest_stall")),
         str(fleeced["writes"])]
        for (kind, rate, workers), row in found.items()
        if kind == "backup" and (fleeced := found.get(("backup:fleecing", rate, workers)))
    ]  # fmt: skip


def _shown_mirrors(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    heading = [
        "target", "4 KiB, not copied yet", "64 KiB, not copied yet", "computed",
        "4 KiB, copied already", "computed", "background, all three",
    ]  # fmt: skip
    cases = (("rear", 4096), ("rear", 65536), ("front", 4096))
    found = {(row["operation"].rpartition("=")[2], row["rate"], row["place"], row["bytes"]): row
             for row in rows if "place" in row}  # fmt: skip
    lines = []
    for rate in dict.fromkeys(key[1] for key in found):
        small, large, done = (found["write-blocking", rate, *case] for case in cases)
        calm = [found["background", rate, *case]["found"] for case in cases]
        lines.append(
            [_mib(rate), _time(small["found"]), _time(large["found"]), _time(large["predicted"]),
             _time(done["found"]), _time(done["predicted"]),
             f"{_time(min(calm))} to {_time(max(calm))}"]
        )  # fmt: skip
    return heading, lines


def _shown_moments(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    heading = ["ordered", "longest latency, median", "longer by", "95 % interval"]
    found = {row["control"].removeprefix("moment:"): row for row in rows
             if str(row.get("control")).startswith("moment:")}  # fmt: skip
    nothing = ["nothing", _time(median(found["nothing"]["found"])), "–", "–"]
    return heading, [
        nothing,
        *(
            [said, _time(median(row["found"])), _ms(row["longer_by"]),
             f"{_ms(row['low'])} to {_ms(row['high'])}"]
            for name, said in _MOMENTS.items()
            if (row := found[name])
        ),
    ]  # fmt: skip


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms".replace("-", "\N{MINUS SIGN}")


def main() -> None:
    """Prints a row of JSON for each measurement, and writes all of them to --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=lambda text: Path(text).absolute())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=PARTS, action="append")
    given = parser.parse_args()
    rows = []
    for part in given.only or PARTS:
        # sockets and the daemons' messages go with it
        with tempfile.TemporaryDirectory(dir=given.directory) as directory:
            for row in PARTS[part](Path(directory)):
                rows.append(row)
                print(json.dumps(row), flush=True)
                if given.json is not None:
                    given.json.write_text(
                        json.dumps({"bench": "operations", "rows": rows}, indent=1) + "\n"
                    )


if __name__ == "__main__":
    main()
