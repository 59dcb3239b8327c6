"""Do searches of disks with known capacity find it, and are three traps caught?

    .venv/bin/python bench/density.py --simulate
    sudo .venv/bin/python bench/density.py --campaigns 4 --dir /srv/work
    .venv/bin/python bench/density.py --traps
    sudo .venv/bin/python bench/density.py --real-traps --dir /srv/work

Results are added to bench/results/density.json. A campaign searches a disk that vdisklab serves at
a known rate, with micro guests of 128 MiB; the numbers say nothing about any disk's speed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from machine import machine_facts
from search import wilson
from vdisklab.actions.guest_capacity import campaign_of, search_known
from vdisklab.actions.measure import measure
from vdisklab.analysis.capacity import capacity, next_steps
from vdisklab.campaign.measure_group import require_together
from vdisklab.campaign.measured_evidence import StateError
from vdisklab.errors import PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.density_request import DensityRequest
from vdisklab.progress import Event, MeasurementStarted, RunFinished
from vdisklab.results.model import Direction, Member, Run
from vdisklab.results.store import open_store
from vdisklab.storage.logged_disk import rated_disk
from vdisklab.storage.site import open_site
from vdisklab.units import MIB
from vdisklab.views.density import SHOWS_DRIFT
from vdisklab.workload.open_load import GuestRequests, LoggedRequest, common_window, window_numbers

RESULTS = Path(__file__).parent / "results" / "density.json"
CAPACITIES = (2, 3, 4, 5, 6)
WORLDS = {
    **{f"slope of {width} guests": (width, 0.0, 0.0) for width in (0.03, 0.3, 1, 2, 3, 5)},
    **{f"rounds differ by {drift:.0%}": (0.15, drift, 0.0) for drift in (0.05, 0.15)},
    **{
        f"rounds differ by {drift:.0%}, of which {lasts:.0%} lasts": (0.15, drift, lasts)
        for drift in (0.05, 0.15)
        for lasts in (0.6, 0.9)
    },
}
"""The slope in guests, how much the limit differs from round to round, and what part of that lasts
into the next."""
SEARCHES, MOST = 60, 24


def simulate(
    searches: int = SEARCHES, narrow: tuple[int | None, ...] = (None, 4)
) -> list[dict[str, Any]]:
    """The share of simulated searches whose interval has the true number of guests: with five
    repeats, and until the interval spans so many guests."""
    rows = []
    for world, (width, drift, lasts) in WORLDS.items():
        for span in narrow:
            found = [_searched(number, width, drift, lasts, span) for number in range(searches)]
            covered, exact, spans, runs, said = zip(*found, strict=True)
            missed = [told for held, told in zip(covered, said, strict=True) if not held]
            rows.append(
                {
                    "world": world, "narrow": span, "searches": searches,
                    "covered": sum(covered) / searches, "exact": sum(exact) / searches,
                    "mean_width": sum(spans) / searches, "mean_runs": sum(runs) / searches,
                    "said_to_last": sum(said) / searches,
                    "said_of_missed": sum(missed) / len(missed) if missed else None,
                }
            )  # fmt: skip
    return rows


def _searched(
    seed: int, width: float, drift: float, lasts: float, narrow: int | None
) -> tuple[bool, bool, int, int, bool]:
    """Whether a search's interval holds the true number, whether it is found; span and runs; and
    whether the answer says that differences between rounds last."""
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    limit, round, state = chance.uniform(1, 0.8 * MOST), 0, chance.gauss(0, 1)
    outcomes: dict[int, dict[int, bool]] = {}
    while steps := next_steps(outcomes, MOST, narrow=narrow):
        state = lasts * state + math.sqrt(1 - lasts**2) * chance.gauss(0, 1)
        round, here = round + 1, limit * math.exp(drift * state)
        for guests in steps:
            exponent = max(-60.0, min(60.0, (guests - here) / width))
            outcomes.setdefault(guests, {})[round] = chance.random() < 1 / (1 + math.exp(exponent))
    answer, runs = capacity(outcomes, MOST), sum(map(len, outcomes.values()))
    if answer is None:
        return limit < 1, limit < 1, 0, runs, False
    held = answer.low <= int(limit) <= answer.high
    said = answer.lasts >= SHOWS_DRIFT
    return held, answer.guests == int(limit), answer.high - answer.low, runs, said


def campaigns(count: int, directory: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Searches of disks that carry 2 to 6 guests, in turn."""
    request = DensityRequest(directory=directory, guest_cpus=1, guest_memory=128 * MIB)
    done = [row["capacity"] for row in stored().get("campaigns", ())]
    for _ in range(count):
        guests = min(CAPACITIES, key=done.count)
        done.append(guests)
        began = time.monotonic()
        failures: list[str] = []

        def note(event: Event, failures: list[str] = failures) -> None:
            if isinstance(event, RunFinished) and event.failure is not None:
                failures.append(event.failure.partition("\n")[0])

        _, answer = search_known(request, guests, guests + 1, note, repeats=repeats)
        path = answer.paths[0] if answer is not None else None
        carried = None if path is None else path.capacity
        yield {
            "capacity": guests,
            "found": None if carried is None else carried.guests,
            "low": None if carried is None else carried.low,
            "high": None if carried is None else carried.high,
            "covered": carried is not None and carried.low <= guests <= carried.high,
            "steps": [] if path is None else [[step.guests, step.passed, round(step.worst, 4),
                                               round(step.iops, 1)] for step in path.steps],
            "repeats": repeats,
            "failed_runs": failures,
            "seconds": round(time.monotonic() - began),
        }  # fmt: skip


def traps() -> dict[str, Any]:
    """Each of three traps, and how it is caught."""
    return {"coordinated_omission": _omission(), "thin_images": _thin(), "stagger": _stagger()}


def _omission() -> dict[str, Any]:
    """A disk that stops for a second: seen from when requests were due, and from their start."""
    due = [number / 100 for number in range(1000)]
    honest, closed, free = [], [], 0.0
    for moment in due:
        start = max(moment, free)
        took = 1.0 if 5.0 <= start < 5.01 else 0.001
        free = start + took
        honest.append(LoggedRequest(moment, free - moment, Direction.WRITE, 4096))
        closed.append(LoggedRequest(start, took, Direction.WRITE, 4096))
    numbers = {}
    for name, requests in (("from_due", honest), ("from_start", closed)):
        guest = GuestRequests(0.0, 10.0, True, tuple(requests))
        numbers[name] = window_numbers([guest], common_window([guest], 10.0)).percentile(0.99)
    return {**numbers, "caught": numbers["from_due"] > 100 * numbers["from_start"]}


def _thin() -> dict[str, Any]:
    try:
        campaign_of(DensityRequest(paths=("qcow2:preallocation=off/none",), load=100))
    except PlanError as error:
        return {"caught": True, "sentence": str(error)}
    return {"caught": False}


def _stagger() -> dict[str, Any]:
    guests = [GuestRequests(start, start + 10.5, True, ()) for start in (0.0, 1.0)]
    try:
        require_together(guests, common_window(guests, 10.0), 0.5, 10.0)
    except StateError as error:
        return {"caught": True, "sentence": str(error)}
    return {"caught": False}


OPEN, CLOSED = "open", "closed"
_PROFILE = """
name = "trap"
title = "One load"
[[measurement]]
name = "writes"
program = "fio"
rw = "randwrite"
bs = "4k"
"""
_STALL, _STALL_AFTER = (
    1.0,
    6.0,
)  # into the step: 2.2 s until the release of one guest, then the ramp


def real_traps(directory: Path) -> dict[str, Any]:
    """The traps with real guests: a disk that stalls for a second, and a guest that starts late."""
    loads = {name: _stalled(directory, name) for name in (OPEN, CLOSED)}
    return {
        "coordinated_omission": {
            **{f"{name}_p99": load.latency_p99 for name, load in loads.items()},
            **{f"{name}_max": load.latency_max for name, load in loads.items()},
            "caught": loads[OPEN].latency_p99 > 10 * loads[CLOSED].latency_p99,
        },
        "stagger": _late(directory),
    }


def _stalled(directory: Path, load: str) -> Member:
    """A guest on a disk of 400 requests a second that completes none for a second."""
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, directory.absolute()) as site,
        rated_disk(site, "trap", 512 * MIB, 400) as device,
    ):
        server = _process(f"--marker={site.directory.name}-trap")
        rate = "rate_iops = 100\n" if load == OPEN else ""
        run = _one_run(
            directory, _PROFILE + rate, 1, lambda: _pause(server), _STALL_AFTER,
            paths=("ext4/raw/none",), devices=(device,), runtime=8.0, ramp=1.0,
        )  # fmt: skip
    group = run.measurements[0].group
    assert group is not None
    return group.members[0]


def _late(directory: Path) -> dict[str, Any]:
    """Two guests, of which the second stands still while both are released."""
    mark = f"{directory.absolute()}/"

    def pause() -> None:
        _pause(_process(mark, newest=True), 2.5)

    run = _one_run(
        directory, _PROFILE + "rate_iops = 40\n", 2, pause,
        1.9, paths=("raw/none",), runtime=2.0, ramp=0.5,
    )  # fmt: skip
    said = None if run.failure is None else run.failure.sentence
    return {"caught": said is not None and "not all started" in said, "sentence": said}


def _one_run(
    directory: Path, profile: str, guests: int, trouble: Callable[[], None], after: float,
    **options: Any,  # noqa: ANN401
) -> Run:  # fmt: skip
    """A run of one measurement, in which `trouble` happens so long after it is announced."""
    timers: list[threading.Timer] = []

    def begin(event: Event) -> None:
        if isinstance(event, MeasurementStarted):
            timers.append(threading.Timer(after, trouble))
            timers[-1].start()

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "trap.toml")
        file.write_text(profile)
        request = DensityRequest(
            directory=directory, profile=str(file), guests=(str(guests),), rounds=1, guest_cpus=1,
            guest_memory=128 * MIB, size_bytes=16 * MIB, baseline="none", **options,
        )  # fmt: skip
        with open_store(f"sqlite:///{scratch}/trap.sqlite") as store:
            measure(store, request, begin)
            (run,) = store.runs()
    for timer in timers:
        timer.join()
    return run


def _pause(pid: int, seconds: float = _STALL) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def _process(mark: str, *, newest: bool = False) -> int:
    """The process whose command line has the mark; the newest QEMU among them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments = file.read_text(errors="replace")
            if mark in arguments and (not newest or arguments.startswith("qemu-system")):
                found.append(int(file.parent.name))
    return max(found)


def shown(arguments: Sequence[str]) -> str:
    """The table of the simulated searches in the record."""
    del arguments
    rows = stored()["simulation"]
    spans = list(dict.fromkeys(row["narrow"] for row in rows))
    by_world: dict[str, list[str]] = {}
    for row in rows:
        low, high = wilson(row["covered"], row["searches"])
        by_world.setdefault(row["world"], []).append(
            f"{100 * row['covered']:.0f} ({100 * low:.0f}–{100 * high:.0f}) in "
            f"{row['mean_width']:.1f}, {row['mean_runs']:.0f} runs"
        )
    titles = ["5 repeats" if span is None else f"--precision {span}" for span in spans]
    lines = [
        ["limit", *titles],
        ["---"] * (1 + len(spans)),
        *([k, *v] for k, v in by_world.items()),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def stored() -> dict[str, Any]:
    """The results so far."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def store(**parts: object) -> None:
    """Replaces parts of the results."""
    RESULTS.write_text(
        json.dumps(stored() | {"machine": machine_facts(Path())} | parts, indent=1) + "\n"
    )


def main() -> None:
    """Runs the parts that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--traps", action="store_true")
    parser.add_argument("--real-traps", action="store_true")
    parser.add_argument("--campaigns", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dir", type=Path, default=Path())
    options = parser.parse_args()
    if options.simulate:
        store(simulation=simulate())
    if options.traps:
        store(traps=traps())
    if options.real_traps:
        store(real_traps=real_traps(options.dir))
    for row in campaigns(options.campaigns, options.dir, options.repeats):
        store(campaigns=[*stored().get("campaigns", ()), row])
        print(json.dumps(row))


if __name__ == "__main__":
    main()
