"""What guests keep whose storage fails: every row of a matrix, in many runs.

    python bench/failing.py run RUNS.jsonl [--runs 20] [--minutes 9] [--only TEXT] [--dir DIR]
    python bench/failing.py run RUNS.jsonl --only silent --beside 8
    python bench/failing.py record RUNS.jsonl       # writes bench/results/failing.json.gz

`run` adds a line for each run to the file, in rounds over all rows, and goes on where it was; it
needs root. With `--beside N` the rows are dealt out to N processes with guests of their own: while
storage is silent, a guest costs no processor time. `record` writes the machine's facts, each row's
sums and all runs.
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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from machine import machine_facts
from pages import keep_record, record_of
from vdisklab.errors import VdisklabError
from vdisklab.guest.factory import GuestContext
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import cache_directory, open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import RunOutcome
from vdisklab.plan.guest import Accelerator, GuestPlan
from vdisklab.powercut.client_guests import Guests, open_guests
from vdisklab.powercut.failing_runs import FailingImage, FailingRun, failing_image, run_failure
from vdisklab.powercut.failing_verdicts import facts_of
from vdisklab.powercut.storage_failures import STORAGE_FAILURES
from vdisklab.progress import silent
from vdisklab.storage.filesystem import tmpfs
from vdisklab.storage.site import Site, open_site
from vdisklab.units import GIB, MIB

RECORD = "failing.json.gz"

_POLICIES = {
    "report": ":werror=report",
    "stop": ":rerror=stop:werror=stop",
    "enospc": ":werror=enospc",
}
_BUSES = ("virtio", "scsi", "sata")
_FORMATS = ("raw", "qcow2")
_MODELS = tuple(STORAGE_FAILURES)


def rows() -> Iterator[tuple[str, FailureModel]]:
    """The paths and failures, in the order of the table."""
    for model in _MODELS:
        for form in _FORMATS:
            image = f"{form}:preallocation=off/none"
            for bus in _BUSES:
                for options in _POLICIES.values():
                    yield f"{image}/{bus}{options}", model
            yield f"{image}/nvme", model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("file", type=Path)
    running.add_argument("--runs", type=int, default=20)
    running.add_argument("--minutes", type=float, default=9.0)
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
        for row in rows()
        if options.only in " ".join(row)
        and not any(text in " ".join(row) for text in options.without)
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
            frozenset(parse_path(path).attachment.bus for path, _ in wanted),
            site,
            stops_are_errors=False,
        ) as guests,
    ):
        run_rows(site, guests, wanted, options, end)


def run_beside(count: int) -> None:
    """This command in several processes, each with its part of the rows; all add to one file."""
    argv = (sys.executable, *sys.argv)
    running = [subprocess.Popen((*argv, "--part", str(part))) for part in range(count)]
    statuses = [process.wait() for process in running]
    if any(statuses):
        sys.exit(1)


def run_rows(
    site: Site,
    guests: Guests,
    wanted: Sequence[tuple[str, FailureModel]],
    options: argparse.Namespace,
    end: float,
) -> None:
    """Runs rounds until each row has its runs, or the time is up."""
    there = Counter((line["path"], line["model"]) for line in read(options.file))
    images: dict[str, FailingImage] = {}
    with options.file.open("a") as sink, ExitStack() as made:
        for number in range(options.runs):
            for path, model in wanted:
                if there[path, model.value] > number or time.monotonic() > end:
                    continue
                begun = time.monotonic()
                line: dict[str, Any] = {"path": path, "model": model.value, "number": number}
                line |= {"beside": options.beside} if options.beside > 1 else {}
                try:
                    if path not in images:
                        opened = failing_image(site, parse_path(path), f"image{len(images)}")
                        images[path] = made.enter_context(opened)
                    found = run_failure(
                        site, guests.with_disk, images[path], STORAGE_FAILURES[model],
                        name=f"run{len(images)}-{number}", seed=number,
                    )  # fmt: skip
                    line |= asdict(found)
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
    for path, model in rows():
        of_row = [line for line in lines if (line["path"], line["model"]) == (path, model.value)]
        done = [line for line in of_row if "outcome" in line]
        if not done:
            continue
        runs = [_run_of(line) for line in done]
        table.append(
            {
                "path": path,
                "model": model.value,
                "runs": len(runs),
                "outcomes": dict(Counter(run.outcome.value for run in runs)),
                "facts": asdict(facts_of(runs)),
                "runs_a_minute": round(60 * len(runs) / sum(line["seconds"] for line in done), 1),
                "failures": [line["failure"] for line in of_row if "failure" in line],
            }
        )
    return {"bench": "failing", **machine_facts(directory), "rows": table, "runs": list(lines)}


def shown(arguments: Sequence[str]) -> str:
    """The record's table: a row for each bus with its policy, over both formats."""
    del arguments
    lines = [
        "| disk | `--model` | runs, raw + qcow2 | the guest | paused after | program told after "
        "| lost of acknowledged | second fsync said yes, file lost |",
        "|---|---|---|---|---|---|---|---|",
    ]
    done = [line for line in record_of(RECORD)["runs"] if "outcome" in line]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for path, model in rows():
        disk = path.partition("/none/")[2]
        groups.setdefault((disk, model.value), []).extend(
            line for line in done if (line["path"], line["model"]) == (path, model.value)
        )
    for (disk, model_name), of_it in groups.items():
        if not of_it:
            continue
        runs = [_run_of(line) for line in of_it]
        facts = facts_of(runs)
        outcomes = Counter(run.outcome.value for run in runs)
        state = ", ".join(
            word if len(outcomes) == 1 else f"{word} ×{count}" for word, count in outcomes.items()
        )
        counts = Counter(line["path"].partition(":")[0] for line in of_it)
        number = " + ".join(str(counts[form]) for form in _FORMATS)
        lines.append(
            f"| `{disk}` | {model_name} | {number} | {state} | {_seconds(facts.paused_after)} "
            f"| {_seconds(facts.told_after)} | {facts.lost} of {facts.acknowledged} "
            f"| {facts.again_lost} of {facts.again} |"
        )
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g} s"


def _run_of(line: Mapping[str, Any]) -> FailingRun:
    fields = {name: line[name] for name in FailingRun.__dataclass_fields__}
    return FailingRun(**{**fields, "outcome": RunOutcome(line["outcome"])})


if __name__ == "__main__":
    main()
