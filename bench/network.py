"""A server that is a known time slower: is that measured, and is an unsteady one known?

    chrt -r 1 .venv/bin/python bench/network.py [--rounds 6] [--dir DIR] [--keep]

nbdkit serves four disks from memory and waits 0, 1, 5 and 20 ms before each read and write (its
filter `delay`; it cannot delay a flush). One campaign measures all, one request at a time. Before
each round a client of NBD without QEMU asks the same servers: it is the witness of how long they
really wait, because a sleep ends late. nbdkit's log is the witness of what arrived.

Expected is that wait plus the local cost: what the disk without a delay takes on the same path in
the same rounds. The guest's time is fio's median request; QEMU's is its own count of the same
requests, a mean, and tells the guest's part apart.

A fifth disk waits 5 ms as well, and now and then its server stands still most of each tenth of a
second, in phases that have nothing to do with rounds: its interval must be wider, and it must not
rank above the steady one.

`chrt -r 1` (real time) because on a machine that does something else all that sleeps wakes late:
at a load of 20 on two processors the witness itself saw 7.5 ms of 5.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from socket import AF_UNIX, socket
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers.daemon import Server
from tests.servers.nbd import nbdkit, requests

from machine import machine_facts, print_result
from pages import keep_record, record_of
from vdisklab.cli.shell.main import main as vdisklab
from vdisklab.powercut.nbd import NbdDisk
from vdisklab.powercut.sectors import Extent
from vdisklab.results.model import Run
from vdisklab.results.store import open_store

RECORD = "network.json.gz"
DELAYS = {"d0": 0, "d1": 1, "d5": 5, "d20": 20}
"""The milliseconds that each disk's server waits."""

UNSTEADY, STEADY = "unsteady", "d5"
_PROFILE = """
name = "one-request"
title = "One request at a time"
[[measurement]]
name = "read"
program = "fio"
rw = "randread"
bs = "4k"
[[measurement]]
name = "write"
program = "fio"
rw = "randwrite"
bs = "4k"
"""
_SIZE = "64M"
_PHASE = (8.0, 25.0)  # seconds; a run takes about as long
_STANDS, _RUNS = 0.06, 0.04


@contextmanager
def disks(directory: Path) -> Iterator[dict[str, Server]]:
    """The servers by name, among them the unsteady one."""
    with ExitStack() as stack:
        served = {}
        for name, delay in (DELAYS | {UNSTEADY: DELAYS[STEADY]}).items():
            place = directory / name
            place.mkdir()
            waits = (f"rdelay={delay}ms", f"wdelay={delay}ms", f"logfile={place / 'requests'}")
            server = nbdkit(place, "memory", _SIZE, *waits, filters=["log", "delay"])
            served[name] = stack.enter_context(server)
        stack.enter_context(_unsteady(served[UNSTEADY]))
        yield served


@contextmanager
def _unsteady(server: Server) -> Iterator[None]:
    """Lets a server stand still most of each tenth of a second, in phases of random length."""
    ended, chance = threading.Event(), random.Random(44)  # noqa: S311 - reproducible, not secret

    def trouble() -> None:
        while not ended.wait(chance.uniform(*_PHASE)):
            for _ in range(int(chance.uniform(*_PHASE) / (_STANDS + _RUNS))):
                server.pause()
                stopped = ended.wait(_STANDS)
                server.resume()
                if stopped or ended.wait(_RUNS):
                    return

    thread = threading.Thread(target=trouble)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def campaign(directory: Path, served: Mapping[str, Server], rounds: int) -> Path:
    """The database of a campaign over all disks, which continues with each further round."""
    profile, database = directory / "profile.toml", directory / "network.sqlite"
    profile.write_text(_PROFILE)
    targets = [w for name, row in served.items() for w in ("--target", f"{name}={row.url}")]
    status = vdisklab(
        ["run", f"{{{','.join(served)}}}/raw/none", *targets, "--profile", str(profile),
         "--rounds", str(rounds), "--runtime", "3s", "--ramp", "1s", "--size", "32M",
         "--baseline", "none", "--dir", str(directory / "work"), "--db", str(database)]
    )  # fmt: skip
    if status != 0:
        raise SystemExit(f"the campaign ended with {status}")
    return database


def witnessed(served: Mapping[str, Server]) -> dict[str, dict[str, float]]:
    """The median milliseconds of a request to each steady server now, without QEMU."""
    return {name: _witness(served[name].directory / "nbd.sock") for name in DELAYS}


_FIRST = 100_000
"""A sector behind those that the campaign uses, which must find its own all zero."""


def _witness(place: Path) -> dict[str, float]:
    disk = NbdDisk(socket(AF_UNIX))
    connection = socket(AF_UNIX)
    connection.connect(str(place))
    disk.go_on_with(connection, "")
    times: dict[str, list[float]] = {"read": [], "write": []}
    for number in range(50):
        part = Extent(_FIRST + 8 * number, 8)
        begin = perf_counter()
        disk.read(part)
        middle = perf_counter()
        disk.write(part.first, part.count, number, fua=False)
        disk.await_one()
        times["read"].append(1000 * (middle - begin))
        times["write"].append(1000 * (perf_counter() - middle))
    disk.disconnect()
    connection.close()
    return {name: statistics.median(taken) for name, taken in times.items()}


Times = dict[str, dict[str, dict[str, list[float]]]]
"""Milliseconds by target, measurement and observer, one for each round."""


def latencies(runs: Sequence[Run]) -> Times:
    """What the guest saw (median and mean) and what QEMU counted (mean)."""
    found: Times = {}
    for each in runs:
        target = each.path.partition("at=")[2].partition("/")[0]
        for measurement in each.measurements:
            seen = {s.metric.removeprefix("latency_"): s.value for s in measurement.samples}
            counted = measurement.evidence.qemu
            assert counted is not None
            reads, writes, _ = counted.mean_seconds
            qemu = reads if measurement.name == "read" else writes
            assert qemu is not None
            row = found.setdefault(target, {}).setdefault(measurement.name, {})
            for name, value in (("guest", seen["p50"]), ("mean", seen["mean"]), ("qemu", qemu)):
                row.setdefault(name, []).append(1000 * value)
    return found


def ratios(
    found: Times, witness: Sequence[Mapping[str, Mapping[str, float]]]
) -> list[dict[str, Any]]:
    """By delay and measurement: what each observer saw, and its ratio to what was expected."""
    rows = []
    for name, delay in DELAYS.items():
        for measurement, seen in found[name].items():
            waits, without = (
                statistics.median(row[disk][measurement] for row in witness)
                for disk in (name, "d0")
            )
            row = {"delay": delay, "measurement": measurement, "witness": round(waits, 3)}
            for observer, values in seen.items():
                local = statistics.median(found["d0"][measurement][observer])
                expected = waits - without + local
                measured = statistics.median(values)
                row[observer] = {
                    "measured": round(measured, 3), "expected": round(expected, 3),
                    "lowest": round(min(values), 3), "highest": round(max(values), 3),
                    "ratio": round(measured / expected, 3),
                    "to_nominal": round(measured / (delay + local), 3),
                }  # fmt: skip
            rows.append(row)
    return rows


def ranked(database: Path) -> dict[str, dict[str, Any]]:
    """The place, and the median with its interval, that `vdisklab rank` gives each disk."""
    with redirect_stdout(printed := StringIO()):
        vdisklab(["rank", "--db", str(database), "--format", "json"])
    cells = json.loads(printed.getvalue())["cells"]
    return {
        cell["cell"].partition("at=")[2].partition("/")[0]: {
            "place": cell["place"], **next(iter(cell["medians"].values()))
        }
        for cell in cells
    }  # fmt: skip


def faults(record: Mapping[str, Any]) -> Iterator[str]:
    """What is not as it must be."""
    for row in record["ratios"]:
        if row["delay"] >= 5 and not 0.95 <= (ratio := row["guest"]["ratio"]) <= 1.1:
            yield f"{row['measurement']} at {row['delay']} ms: {ratio}"
    steady, unsteady = (record["ranked"][name] for name in (STEADY, UNSTEADY))
    if unsteady["high"] / unsteady["low"] <= steady["high"] / steady["low"]:
        yield "the unsteady server's interval is no wider"
    if unsteady["place"]["best"] < steady["place"]["best"]:
        yield "the unsteady server ranks above the steady one"


def shown(arguments: list[str]) -> str:
    """A table of the record: `ratios`, or the `unsteady` server beside the steady one."""
    record = record_of(RECORD)
    if arguments == ["unsteady"]:
        lines = ["| server | rank | score, 95 % |", "|---|---|---|"]
        for name, what in ((STEADY, "5 ms"), (UNSTEADY, "5 ms, and now and then it stands still")):
            seen = record["ranked"][name]
            place = "–".join(dict.fromkeys(str(seen["place"][end]) for end in ("best", "worst")))
            lines.append(f"| {what} | {place} | {seen['low']:.3g}–{seen['high']:.3g} |")
        return "\n".join(lines)
    lines = [
        "| delay | request | server waits | QEMU counts | guest sees | expected | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in record["ratios"]:
        qemu, guest = row["qemu"]["measured"], row["guest"]
        lines.append(
            f"| {row['delay']} ms | {row['measurement']} | {row['witness']:.2f} ms | {qemu:.2f} ms "
            f"| {guest['measured']:.2f} ms | {guest['expected']:.2f} ms | {guest['ratio']:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measures, prints, and says by its exit status whether the ratios are right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--dir", type=Path, default=Path())
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        directory = Path(name).absolute()
        (directory / "work").mkdir()
        with disks(directory) as served:
            witness = []
            database = Path()
            for rounds in range(1, options.rounds + 1):
                witness.append(witnessed(served))
                database = campaign(directory, served, rounds)
            arrived = {row: requests(server.directory) for row, server in served.items()}
        with open_store(str(database)) as store:
            found = latencies(list(store.runs()))
        record = {
            "machine": machine_facts(directory), "ratios": ratios(found, witness),
            "arrived": arrived,
            "unsteady": {row: found[row] for row in (STEADY, UNSTEADY)},
            "ranked": ranked(database),
        }  # fmt: skip
    if options.keep:
        keep_record(RECORD, record)
    print_result(record)
    raise SystemExit("; ".join(faults(record)) or 0)


if __name__ == "__main__":
    main()
