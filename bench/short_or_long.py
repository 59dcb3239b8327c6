"""Does a short measurement choose the disk path that a long one would choose?

    python bench/short_or_long.py run DATABASE-DIRECTORY [--form NAME...] [--rounds N] [--steady]
    python bench/short_or_long.py keep DATABASE-DIRECTORY [--rounds-in FILE]
    python bench/short_or_long.py report [--rounds-in FILE]
    python bench/pages.py docs/trust.md

Paths {ext4,xfs}/{raw,qcow2}/{none,writeback} are measured in six forms on one host. Each form has
a database, so `run` can be stopped and called again: it continues. It makes one round of
each form in turn, because the speed of a disk drifts within minutes; `--steady` measures on a disk
of a stated speed below the directory (steady_disk.py). A round of all forms takes some 95
minutes, and six sessions run at once on two processors, each in its own directory. `keep` adds a
session's rounds to FILE (bench/results/short-or-long.json.gz), and `report` reads them all.
Ratios are taken within a round, so sessions may be on several hosts; the report names each.

    short      256 MiB, 0.5 s; the burst decides (`bandwidth`)
    sustained  the same runs; what reached the disk decides (`sustained`)
    bounded    256 MiB, 0.5 s, a quarter of the disk in the page cache
    small      128 MiB, twice its bounded memory, 15 s: `long` in small
    long       256 MiB, twice its bounded memory, 60 s: some four passes of the steady disk
    lasting    the same, and of the bounded memory a fifth may be dirty

`lasting` is the reference. A form's choice is the path with its best geometric mean of ratios;
`loss` is how far `lasting` finds that path behind its own best. Single measures are ratios of a
path to raw/none on ext4, in the form over the same in `lasting`: 1 is the same answer. `long` was
the first reference: with control groups of version 1 all of its memory was dirty (memory.stat: 115
of 128 MB), which no host lets happen. `against_long` has the losses by it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import to_builtins

from machine import machine_facts, print_result
from steady_disk import VOLUME, dirty_limit, steady_disk, steady_processor
from vdisklab.analysis.observations import MeasureKey, observe
from vdisklab.errors import EXIT_CELLS_FAILED
from vdisklab.path.disk_path import parse_path
from vdisklab.results.model import Direction, Run
from vdisklab.results.store import open_store

PATHS = "{ext4,xfs}/{raw,qcow2}/{none,writeback}"
BASELINE = "ext4/raw/none"
LONG = "long"
REFERENCE = "lasting"
SHOWN = "ext4/raw/writeback"
MINUTE = ("--size", "256M", "--cache-memory", "128M", "--runtime", "60")
KEPT = Path(__file__).parent / "results" / "short-or-long.json.gz"
ROOM = 5 << 30
"""Bytes of the steady disk: see `vdisklab plan` of the long form."""
STEADY = "steady-disk.json"
"""Beside the databases: the speed that `run` has set and read back."""
ATTEMPTS = 8
"""A bounded QEMU is killed if all its pages are being written to a slow disk (control groups of
version 1 on XFS): its cell is measured again. So is a cell of `long` that was slower than its disk.
"""
SHARE = 0.5
"""Of a processor, for each of several sessions at a time with `--steady`."""
LEAST = 0.95
"""Share of a steady disk's stated speed that a minute of reads must reach, and without a page cache
a minute of writes, too. Below it the processor was the limit: other guests took too much of it."""
RESAMPLES = 2000
LOSS = 0.1
"""A form may lose as much to the reference's best path, in 95 % of the resampled rounds."""
APART = 0.15
"""A single measure may differ by as much from the reference's."""


@dataclass(frozen=True)
class Form:
    """A form of measuring: the database that has it, options of `run`, the metric of writes, and
    how many bytes in the page cache may be dirty, if not all of them.
    """

    database: str
    options: tuple[str, ...]
    writes: str = "sustained"
    dirty: int | None = None


FORMS = {
    "short": Form("short", (), writes="bandwidth"),
    "sustained": Form("short", ()),
    "bounded": Form("bounded", ("--cache-memory", "25%")),
    "small": Form("small", ("--size", "128M", "--cache-memory", "64M", "--runtime", "15")),
    LONG: Form("long", MINUTE),
    REFERENCE: Form("lasting", MINUTE, dirty=(128 << 20) // 5),
}

Grid = Mapping[str, Sequence[Mapping[str, float]]]
"""By path: each round's values, by measure."""


def measure(
    place: Path, directory: Path, names: Iterable[str], rounds: int, runtime: str, *, steady: bool
) -> None:
    """Makes the rounds that are missing, one of each form in turn."""
    forms = {FORMS[name].database: FORMS[name] for name in names}
    for number in range(1, rounds + 1):
        for database, form in forms.items():
            more = [word if word != "60" else runtime for word in form.options]
            command = (
                sys.executable, "-m", "vdisklab", "run", PATHS, "--profile", "short",
                "--page-cache", "cold", "--baseline", BASELINE, "--rounds", str(number),
                "--dir", str(directory), "--db", str(place / f"{database}.sqlite"), *more,
            )  # fmt: skip
            print(f"round {number} of {database}", file=sys.stderr, flush=True)
            for left in reversed(range(ATTEMPTS)):
                with nullcontext() if form.dirty is None else dirty_limit(directory, form.dirty):
                    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
                is_long = steady and database in (LONG, REFERENCE)
                slow = is_long and forget_slow(place / f"{database}.sqlite")
                if (done.returncode != EXIT_CELLS_FAILED and not slow) or not left:
                    done.check_returncode()
                    break
                print("measuring the failed or slow cells again", file=sys.stderr, flush=True)


def note_speed(file: Path) -> None:
    """Writes the speed of disk and processor beside the databases; fails if theirs is another."""
    text = json.dumps({**to_builtins(VOLUME), "processor": SHARE})
    if file.exists() and file.read_text() != text:
        raise SystemExit(f"{file.parent} was measured on a disk of {file.read_text()}, not {text}")
    file.write_text(text)


def forget_slow(database: Path) -> int:
    """Deletes the runs in which something else than the disk was the limit; returns how many."""
    with open_store(str(database), create=False) as store:
        slow = [run.id for run in store.runs() if is_slow(run)]
        for run in slow:
            store.delete_run(run)
    return len(slow)


def is_slow(run: Run) -> bool:
    """True if a rate that goes to the disk is below the least share of the disk's speed."""
    allowed = {"4k": VOLUME.requests * 4096, "1m": VOLUME.bytes}
    direct = parse_path(run.path).cache.direct
    return any(
        sample.value < LEAST * allowed[measured.name.split("-")[1]]
        for measured in run.measurements
        for sample in measured.samples
        if sample.metric == "bandwidth" and ("read" in measured.name or direct)
    )


def values_of(place: Path, form: Form) -> Grid:
    """The rates of all four measures that are the score's, of rounds in which all were measured."""
    with open_store(str(place / f"{form.database}.sqlite"), create=False) as store:
        seen = observe(store.runs())
    keys = {
        name: MeasureKey(name, direction, form.writes if writes else "bandwidth")
        for name in ("seqread-1m-q1", "randread-4k-q1", "seqwrite-1m-q1", "randwrite-4k-q1")
        for writes in ("write" in name,)
        for direction in (Direction.WRITE if writes else Direction.READ,)
    }
    grids = {name: seen.grid(key) for name, key in keys.items()}
    whole = [
        column
        for column in range(len(seen.rounds))
        if all(math.isfinite(grid[row, column]) for grid in grids.values()
               for row in seen.place.values())
    ]  # fmt: skip
    return {
        cell.name: [
            {name: float(grid[row, column]) for name, grid in grids.items()} for column in whole
        ]
        for cell, row in seen.place.items()
    }


@dataclass(frozen=True)
class Ratios:
    """The logarithms of a grid's ratios to the baseline: paths x measures x rounds, NaN without."""

    paths: tuple[str, ...]
    measures: tuple[str, ...]
    logs: npt.NDArray[np.float64]

    @classmethod
    def of(cls, grid: Grid) -> Ratios:
        """The ratios in the rounds that all paths have."""
        count = min(map(len, grid.values()))
        rounds = [grid[BASELINE][number] for number in range(count)]
        measures = tuple(dict.fromkeys(name for values in rounds for name in values))
        values = np.array(
            [
                [[path[number].get(name, 0.0) for number in range(count)] for name in measures]
                for path in grid.values()
            ]
        )
        values[~(values > 0)] = np.nan
        return cls(tuple(grid), measures, np.log(values / values[list(grid).index(BASELINE)]))

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return int(self.logs.shape[2])


def means(ratios: Ratios, rounds: Sequence[int]) -> dict[str, dict[str, float]]:
    """The mean logarithm of each path's ratio to the baseline, by measure and of all (`score`); of
    the paths that have all four measures."""
    logs = ratios.logs[:, :, list(rounds)]
    measured = np.isfinite(logs)
    number = measured.sum(axis=2)
    mean = np.where(measured, logs, 0.0).sum(axis=2) / np.maximum(number, 1)
    whole = (number > 0).sum(axis=1) == 4
    return {
        path: {**dict(zip(ratios.measures, row.tolist(), strict=True)), "score": float(row.mean())}
        for path, row, has_all in zip(ratios.paths, mean, whole, strict=True)
        if has_all
    }


def loss(form: Mapping[str, Mapping[str, float]], long: Mapping[str, Mapping[str, float]]) -> float:
    """How far the reference finds the form's choice behind its best: 0.1 is 10 %."""
    chosen = max(form, key=lambda path: form[path]["score"])
    best = max(each["score"] for each in long.values())
    return 1 - math.exp(long[chosen]["score"] - best)


def compared(grid: Grid, long: Grid, chance: random.Random) -> dict[str, Any]:
    """Ranks, losses over resampled rounds, and each measure's ratio of ratios."""
    both = [Ratios.of(each) for each in (grid, long)]
    of_form, of_long = (means(each, range(each.rounds)) for each in both)
    losses = sorted(
        loss(*(means(each, chance.choices(range(each.rounds), k=each.rounds)) for each in both))
        for _ in range(RESAMPLES)
    )  # fmt: skip
    apart = {
        path: {name: round(math.exp(value - of_long[path][name]), 3)
               for name, value in each.items()}
        for path, each in of_form.items() if path in of_long
    }  # fmt: skip
    singles = [abs(math.log(ratio)) for each in apart.values()
               for name, ratio in each.items() if name != "score"]  # fmt: skip
    within = 1 - statistics.fmean(ratio > math.log(1 + APART) for ratio in singles)
    at_95 = losses[math.ceil(0.95 * RESAMPLES) - 1]
    return {
        "rounds": both[0].rounds,
        "order": sorted(of_form, key=lambda path: -of_form[path]["score"]),
        "chosen": max(of_form, key=lambda path: of_form[path]["score"]),
        "loss": round(loss(of_form, of_long), 3),
        "loss_in_95_percent_at_most": round(at_95, 3),
        "good_enough": at_95 <= LOSS,
        "ratios": {path: {name: round(math.exp(value), 3) for name, value in each.items()}
                   for path, each in of_form.items()},
        "over_reference": apart,
        "single_measures_within_15_percent": round(within, 3),
    }  # fmt: skip


def seconds_of(place: Path, form: Form) -> float:
    """The mean seconds of a run."""
    with open_store(str(place / f"{form.database}.sqlite"), create=False) as store:
        took = [run.wall_seconds or 0.0 for run in store.runs()]
    return statistics.fmean(took)


def kept(file: Path) -> list[dict[str, Any]]:
    """The sessions in the file: the machine, and the seconds of a run and the grid of each form."""
    return list(json.loads(gzip.decompress(file.read_bytes()))) if file.exists() else []


def keep(place: Path, file: Path) -> None:
    """Adds a session's rounds to the file, with the machine and disk that they were measured on."""
    steady = place / STEADY
    measured = {
        name: form for name, form in FORMS.items() if (place / f"{form.database}.sqlite").exists()
    }
    session = {
        "machine": machine_facts(place),
        "steady_disk": json.loads(steady.read_text()) if steady.exists() else None,
        "seconds_per_run": {name: seconds_of(place, form) for name, form in measured.items()},
        "grids": {name: values_of(place, form) for name, form in measured.items()},
    }
    text = json.dumps([*kept(file), session]).encode()
    file.write_bytes(gzip.compress(text, mtime=0))


def report(sessions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All forms beside the reference; the default is the cheapest one that is good enough."""
    grids = {
        name: joined([session["grids"][name] for session in sessions if name in session["grids"]])
        for name in FORMS
        if any(name in session["grids"] for session in sessions)
    }
    found = {name: compared(grid, grids[REFERENCE], random.Random(name))  # noqa: S311
             for name, grid in grids.items()}  # fmt: skip
    seconds = {
        name: round(
            statistics.fmean(
                each["seconds_per_run"][name]
                for each in sessions
                if name in each["seconds_per_run"]
            ),
            2,
        )
        for name in grids
    }
    by_long = {name: compared(grid, grids[LONG], random.Random(name))  # noqa: S311
               for name, grid in grids.items()}  # fmt: skip
    good = [name for name, each in found.items() if each["good_enough"]]
    return {
        "benchmark": "short-or-long",
        "machines": [session["machine"] for session in sessions],
        "steady_disks": [session["steady_disk"] for session in sessions],
        "paths": PATHS,
        "baseline": BASELINE,
        "forms": {name: form.options for name, form in FORMS.items()},
        "seconds_per_run": seconds,
        "cheapest_good_enough": min(good, key=lambda name: seconds[name], default=None),
        **found,
        "against_long": {
            name: {key: each[key] for key in ("loss", "loss_in_95_percent_at_most")}
            for name, each in by_long.items()
        },
    }


def joined(grids: Sequence[Grid]) -> Grid:
    """The rounds of several sessions, one after the other; of those that ended a whole round."""
    most = max(map(len, grids))
    grids = [grid for grid in grids if len(grid) == most and all(grid.values())]
    return {path: [values for grid in grids for values in grid[path]] for path in grids[0]}


@cache
def _recorded() -> dict[str, Any]:
    """The report on the record, which takes seconds."""
    return report(kept(KEPT))


def shown(arguments: Sequence[str]) -> str:
    """A page's table of the record: `forms` with their choices, or `measures` of a cached path."""
    found = _recorded()
    rows = [name for name in FORMS if name in found]
    if arguments == ["measures"]:
        names = ("seqread-1m-q1", "randread-4k-q1", "seqwrite-1m-q1", "randwrite-4k-q1")
        head = "| form | 1M read | 4k read | 1M write | 4k write |"
        ratios = {name: found[name]["ratios"][SHOWN] for name in rows}
        lines = [
            f"| {name} | " + " | ".join(f"×{ratios[name][each]:.2f}" for each in names) + " |"
            for name in rows
        ]
        return "\n".join([head, "|---" * 5 + "|", *lines])
    head = (
        "| form | rounds | seconds for a cell | it picks | which loses, by `lasting` | in 95 % at "
        "most | by `long` | in 95 % at most | measures within 15 % |"
    )
    lines = [
        f"| {name} | {found[name]['rounds']} | {found['seconds_per_run'][name]:.0f} "
        f"| {found[name]['chosen']} | {found[name]['loss']:.1%} "
        f"| {found[name]['loss_in_95_percent_at_most']:.1%} "
        f"| {found['against_long'][name]['loss']:.1%} "
        f"| {found['against_long'][name]['loss_in_95_percent_at_most']:.1%} "
        f"| {found[name]['single_measures_within_15_percent']:.0%} |"
        for name in rows
    ]
    return "\n".join([head, "|---" * 9 + "|", *lines])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("do", choices=("run", "keep", "report"))
    parser.add_argument("place", type=Path, nargs="?", help="directory of the databases")
    parser.add_argument("--form", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--runtime", default="60", help="seconds of the long measurements")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="for the disks")
    parser.add_argument("--steady", action="store_true", help="on a disk of a stated speed")
    parser.add_argument("--rounds-in", type=Path, default=KEPT, help="the rounds of all sessions")
    given = parser.parse_args()
    if given.do == "report":
        print_result(report(kept(given.rounds_in)))
    elif given.place is None:
        parser.error(f"{given.do} needs the directory of the databases")
    else:
        given.place.mkdir(parents=True, exist_ok=True)
        if given.do == "run":
            with ExitStack() as undo:
                directory = given.dir.absolute()
                if given.steady:
                    undo.enter_context(steady_processor(given.place.name, SHARE))
                    directory = undo.enter_context(steady_disk(given.place.absolute(), ROOM))
                    note_speed(given.place / STEADY)
                measure(
                    given.place, directory, given.form, given.rounds, given.runtime,
                    steady=given.steady,
                )  # fmt: skip
        else:
            keep(given.place, given.rounds_in)
