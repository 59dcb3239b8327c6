"""What guests keep whose storage fails: every row of a matrix, in many runs.

    python bench/failing.py run RUNS.jsonl [--runs 20] [--minutes 9] [--only TEXT] [--dir DIR]
    python bench/failing.py run RUNS.jsonl --only silent --beside 8
    python bench/failing.py run RUNS.jsonl --set lengths --runs 5 --beside 12
    python bench/failing.py run RUNS.jsonl --set systems --runs 10
    python bench/failing.py record RUNS.jsonl       # writes bench/results/failing.json.gz

`run` adds a line for each run to the file, in rounds over all rows, and goes on where it was; it
needs root. With `--beside N` the rows are dealt out to N processes with guests of their own: while
storage is silent, a guest costs no processor time. `--set` chooses the rows: the matrix of disks,
policies and failures on ext4; silence of other lengths; other file systems and clients; or a
failure that ends after a number of requests. `record` writes the machine's facts, each row's sums
and all runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from machine import machine_facts
from pages import keep_record, record_of
from vdisklab.campaign.prepared_data import kept_or_made
from vdisklab.errors import VdisklabError
from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.qemu.command_line import CarriedDisk
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.state_directory import cache_directory
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import ClientKind, RunOutcome
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut.client_guests import Guests, open_guests
from vdisklab.powercut.failing_runs import FailingImage, FailingRun, failing_image, run_failure
from vdisklab.powercut.failing_verdicts import facts_of
from vdisklab.powercut.postgresql import CLUSTER
from vdisklab.powercut.storage_failures import STORAGE_FAILURES, StorageFailure
from vdisklab.progress import silent
from vdisklab.storage.filesystem import tmpfs
from vdisklab.storage.site import Site, open_site
from vdisklab.units import GIB, MIB, counted

RECORD = "failing.json.gz"

_POLICIES = {
    "report": ":werror=report",
    "stop": ":rerror=stop:werror=stop",
    "enospc": ":werror=enospc",
}
_BUSES = ("virtio", "scsi", "sata")
_FORMATS = ("raw", "qcow2")
_MODELS = tuple(STORAGE_FAILURES)


_LENGTHS = (5, 100, 200)
"""Seconds of silence besides the 35 s of the matrix."""
_REQUESTS = (1, 10, 100)
"""After so many failed requests the storage is good again."""
_SYSTEMS = ("xfs", "btrfs")
_CLIENTS = (ClientKind.SQLITE_WAL, ClientKind.POSTGRESQL)
_SHORT = (FailureModel.STORAGE_ERROR, FailureModel.STORAGE_FULL)
_RAW = "raw:preallocation=off/none"


@dataclass(frozen=True, slots=True)
class Row:
    """What is run many times; the defaults are left out of a run's line."""

    path: str
    model: FailureModel
    client: ClientKind = ClientKind.FILES
    failing_seconds: int | None = None
    failing_requests: int | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The row as its runs' lines name it."""
        facts: dict[str, Any] = {"path": self.path, "model": self.model.value}
        if self.client is not ClientKind.FILES:
            facts["client"] = self.client.value
        if self.failing_seconds is not None:
            facts["failing_seconds"] = self.failing_seconds
        if self.failing_requests is not None:
            facts["failing_requests"] = self.failing_requests
        return facts

    @property
    def failure(self) -> StorageFailure:
        """How its storage fails."""
        return STORAGE_FAILURES[self.model].lasting(self.failing_seconds, self.failing_requests)

    def has(self, line: Mapping[str, Any]) -> bool:
        """True for a line of one of its runs."""
        return all(line.get(name) == value for name, value in {**_NO_FACTS, **self.facts}.items())


_NO_FACTS = {"client": None, "failing_seconds": None, "failing_requests": None}


def matrix() -> Iterator[Row]:
    """Every disk, policy and failure, in the order of the table."""
    for model in _MODELS:
        for form in _FORMATS:
            image = f"{form}:preallocation=off/none"
            for bus in _BUSES:
                for options in _POLICIES.values():
                    yield Row(f"{image}/{bus}{options}", model)
            yield Row(f"{image}/nvme", model)


def lengths() -> Iterator[Row]:
    """Silence of other lengths. The policy has no part in it: QEMU is answered nothing."""
    silent_for = FailureModel.STORAGE_SILENT
    for seconds in _LENGTHS:
        for bus in _BUSES:
            yield Row(f"{_RAW}/{bus}:werror=enospc", silent_for, failing_seconds=seconds)
        yield Row(f"{_RAW}/nvme", silent_for, failing_seconds=seconds)


def systems() -> Iterator[Row]:
    """Other file systems of the guest's."""
    for model in _SHORT:
        for kind in _SYSTEMS:
            for options in _POLICIES.values():
                yield Row(f"{_RAW}/virtio:guest_fs={kind}{options}", model)


def clients() -> Iterator[Row]:
    """Databases."""
    for model in _SHORT:
        for client in _CLIENTS:
            for policy in ("report", "stop"):
                yield Row(f"{_RAW}/virtio{_POLICIES[policy]}", model, client)


def requests() -> Iterator[Row]:
    """Errors that end after a number of requests."""
    for count in _REQUESTS:
        for options in _POLICIES.values():
            path = f"{_RAW}/virtio{options}"
            yield Row(path, FailureModel.STORAGE_ERROR, failing_requests=count)


SETS = {each.__name__: each for each in (matrix, lengths, systems, clients, requests)}


def rows() -> Iterator[Row]:
    """The rows of all sets."""
    for each in SETS.values():
        yield from each()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("file", type=Path)
    running.add_argument("--runs", type=int, default=20)
    running.add_argument("--minutes", type=float, default=9.0)
    running.add_argument("--set", choices=SETS, default="matrix")
    running.add_argument("--only", default="")
    running.add_argument("--without", action="append", default=[])
    running.add_argument("--dir", type=Path, default=Path())
    running.add_argument("--beside", type=int, default=1)
    running.add_argument("--part", type=int, default=None)
    recording = verbs.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("--dir", type=Path, default=Path())
    options = parser.parse_args()
    if options.verb == "record":
        keep_record(RECORD, record(read(options.file), options.dir.absolute()))
        return
    if options.beside > 1 and options.part is None:
        run_beside(options.beside)
        return
    wanted = [
        row
        for row in SETS[options.set]()
        if options.only in _named(row) and not any(text in _named(row) for text in options.without)
    ][options.part or 0 :: options.beside]
    end = time.monotonic() + options.minutes * 60
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, options.dir.absolute()) as outer,
        tmpfs(outer, "memory", 2 * GIB) as memory,
        open_site(LocalHost(), ledger, memory.path) as site,
        open_guests(
            GuestContext(LocalHost(), ledger, cache_directory(), silent),
            GuestPlan(memory_bytes=512 * MIB, accelerator=Accelerator.TCG),
            frozenset(parse_path(row.path).attachment.bus for row in wanted),
            site,
            _carried(outer, wanted),
            stops_are_errors=False,
        ) as guests,
    ):
        run_rows(site, guests, wanted, options, end)


def _named(row: Row) -> str:
    return " ".join(str(fact) for fact in row.facts.values())


def _carried(site: Site, wanted: Sequence[Row]) -> tuple[CarriedDisk, ...]:
    """The empty cluster of a guest with PostgreSQL."""
    if not any(row.client is ClientKind.POSTGRESQL for row in wanted):
        return ()
    cluster = kept_or_made(site, cache_directory() / "data", CLUSTER)
    return (CarriedDisk(CLUSTER.name, cluster.disk),)


def run_beside(count: int) -> None:
    """This command in several processes, each with its part of the rows; all add to one file."""
    argv = (sys.executable, *sys.argv)
    running = [subprocess.Popen((*argv, "--part", str(part))) for part in range(count)]
    statuses = [process.wait() for process in running]
    if any(statuses):
        sys.exit(1)


def run_rows(
    site: Site, guests: Guests, wanted: Sequence[Row], options: argparse.Namespace, end: float
) -> None:
    """Runs rounds until each row has its runs, or the time is up."""
    done = read(options.file)
    there = {row: sum(row.has(line) for line in done) for row in wanted}
    images: dict[tuple[str, ClientKind], FailingImage] = {}
    with options.file.open("a") as sink, ExitStack() as made:
        for number in range(options.runs):
            for row in wanted:
                if there[row] > number or time.monotonic() > end:
                    continue
                begun = time.monotonic()
                line: dict[str, Any] = {**row.facts, "number": number}
                line |= {"beside": options.beside} if options.beside > 1 else {}
                try:
                    kind = row.path, row.client
                    if kind not in images:
                        name = f"image{len(images)}"
                        opened = failing_image(site, parse_path(row.path), name, row.client)
                        images[kind] = made.enter_context(opened)
                    found = run_failure(
                        site, guests.with_disk, images[kind], row.failure,
                        name=f"run{wanted.index(row)}-{number}", seed=number,
                    )  # fmt: skip
                    line |= to_builtins(found)
                except VdisklabError as error:
                    line["failure"] = error.message
                line["seconds"] = round(time.monotonic() - begun, 2)
                line["load"] = float(Path("/proc/loadavg").read_text().split()[0])
                sink.write(json.dumps(line) + "\n")
                sink.flush()


def read(file: Path) -> list[dict[str, Any]]:
    """The runs so far."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


def record(lines: Sequence[Mapping[str, Any]], directory: Path) -> dict[str, Any]:
    """All runs, and the sums of each row."""
    table = []
    for row in rows():
        of_row = [line for line in lines if row.has(line)]
        done = [line for line in of_row if "outcome" in line]
        if not done:
            continue
        runs = [_run_of(line) for line in done]
        table.append(
            {
                **row.facts,
                "runs": len(runs),
                "outcomes": dict(Counter(run.outcome.value for run in runs)),
                "facts": to_builtins(facts_of(runs)),
                "runs_a_minute": round(60 * len(runs) / sum(line["seconds"] for line in done), 1),
                "failures": [line["failure"] for line in of_row if "failure" in line],
            }
        )
    return {"bench": "failing", **machine_facts(directory), "rows": table, "runs": list(lines)}


def shown(arguments: Sequence[str]) -> str:
    """The table of a set of rows, the matrix by default: a line for each disk and failure.

    With `attempts` a sentence on the attempts that came to nothing.
    """
    name = arguments[0] if arguments else "matrix"
    if name == "attempts":
        return attempts(record_of(RECORD)["runs"])
    number = "runs, raw + qcow2" if name == "matrix" else "runs"
    lines = [
        f"| disk | the storage | {number} | the guest | paused after | program told after "
        "| lost of acknowledged | second fsync said yes, file lost |",
        "|---|---|---|---|---|---|---|---|",
    ]
    done = [line for line in record_of(RECORD)["runs"] if "outcome" in line]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in SETS[name]():
        found = [line for line in done if row.has(line)]
        groups.setdefault((_disk(row), _storage(row)), []).extend(found)
    for (disk, storage), of_it in groups.items():
        if not of_it:
            continue
        runs = [_run_of(line) for line in of_it]
        facts = facts_of(runs)
        outcomes = Counter(run.outcome.value for run in runs)
        state = ", ".join(
            word if len(outcomes) == 1 else f"{word} ×{count}" for word, count in outcomes.items()
        )
        counts = Counter(line["path"].partition(":")[0] for line in of_it)
        number = " + ".join(str(counts[form]) for form in _FORMATS if counts[form])
        lines.append(
            f"| {disk} | {storage} | {number} | {state} | {_seconds(facts.paused_after)} "
            f"| {_seconds(facts.told_after)} | {facts.lost} of {facts.acknowledged} "
            f"| {facts.again_lost} of {facts.again} |"
        )
    return "\n".join(lines)


_REASONS = {
    "mount namespace": "another program on the same machine held a mount of theirs",
    "clock": "the guest's clock ran ahead while it booted",
}


def attempts(lines: Sequence[Mapping[str, Any]]) -> str:
    """How many attempts came to nothing, and why."""
    failures = [line["failure"] for line in lines if "failure" in line]
    reasons = Counter(
        next((said for part, said in _REASONS.items() if part in failure), failure)
        for failure in failures
    )
    why = ", ".join(f"{count} because {reason}" for reason, count in reasons.most_common())
    return (
        f"{len(failures)} of {len(lines)} attempts came to nothing, are in the record with their "
        f"reason, and were made again: {why}."
    )


def _disk(row: Row) -> str:
    disk = f"`{row.path.partition('/none/')[2]}`"
    return disk if row.client is ClientKind.FILES else f"{disk}, {row.client}"


def _storage(row: Row) -> str:
    if row.failing_seconds is not None:
        return f"{row.model}, {row.failing_seconds} s"
    if row.failing_requests is not None:
        return f"{row.model}, {counted(row.failing_requests, 'request')}"
    return row.model.value


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g} s"


def _run_of(line: Mapping[str, Any]) -> FailingRun:
    fields = {name: line[name] for name in FailingRun.__struct_fields__}
    return FailingRun(**{**fields, "outcome": RunOutcome(line["outcome"])})


if __name__ == "__main__":
    main()
