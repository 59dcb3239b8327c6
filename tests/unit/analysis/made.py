"""Made-up numbers and runs for the tests of analysis, report and command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from vdisklab.analysis.observations import Floats, MeasureKey, Observations, Round, from_numbers
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import (
    Campaign,
    Check,
    Direction,
    Evidence,
    Failure,
    FailureKind,
    HostFacts,
    IoCounters,
    Measurement,
    Origin,
    RanUnder,
    Run,
    Sample,
)
from vdisklab.value import replace

IOPS = MeasureKey("randread-4k-q1", Direction.READ, "iops")
P99 = MeasureKey("randread-4k-q1", Direction.READ, "latency_p99")
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def under(ran_under: RanUnder, run: Run) -> Run:
    """The run as it would be stored if this had run its guest."""
    return replace(run, accelerator=ran_under.accelerator, emulated=ran_under.emulated)


def cell(label: str) -> MeasuredCell:
    """The cell that has this label."""
    return MeasuredCell.parse(label)


def labelled(numbers: Mapping[tuple[str, int, MeasureKey], float]) -> Observations:
    """Observations of (cell's label, number of a round of campaign c, measure) -> value."""
    return from_numbers(
        {
            (cell(label), Round("c", round), key): value
            for (label, round, key), value in numbers.items()
        }
    )


def observed(grids: Mapping[MeasureKey, Floats]) -> Observations:
    """Observations of cells c00, c01, … in rounds 1, 2, …; NaN is missing."""
    return from_numbers(
        {
            (cell(f"c{row:02d}"), Round("c", int(column) + 1), measure): float(grid[row, column])
            for measure, grid in grids.items()
            for row, column in zip(*np.nonzero(np.isfinite(grid)), strict=True)
        }
    )


def drifting(
    rng: np.random.Generator, level: Sequence[float], rounds: int, noise: float = 0.03
) -> Floats:
    """Cells x rounds with log-normal noise and a random walk that touches all cells alike."""
    drift = np.cumsum(rng.normal(0, 0.15, rounds))
    logs = np.log(np.array(level))[:, None] + drift
    values: Floats = np.exp(logs + rng.normal(0, noise, (len(level), rounds)))
    return values


HOST = HostFacts(
    hostname="bench1",
    machine_id="0123456789abcdef",
    kernel="6.1.0-30-amd64",
    cpu="Xeon",
    cpus=2,
    memory_bytes=8 << 30,
    qemu="7.2.15",
    fio="3.33",
)

CAMPAIGN = Campaign(
    id="c0ffee01",
    fingerprint="f" * 16,
    plan={"baseline": "host", "size_bytes": 1 << 28, "runtime": 2.0, "measurements": []},
    host=HOST,
    started=START,
    label="first light",
)

SPEED = {
    "seqread-1m-q1": (Direction.READ, 400e6),
    "randread-4k-q1": (Direction.READ, 20e6),
    "seqwrite-1m-q1": (Direction.WRITE, 300e6),
    "randwrite-4k-q1": (Direction.WRITE, 30e6),
}
CELLS = {
    ("host", "bypassed"): 1.0,
    ("raw/none", "bypassed"): 0.8,
    ("raw/writeback", "cold"): 0.79,
    ("raw/writeback", "warm"): 1.9,
    ("qcow2/directsync", "bypassed"): 0.3,
}


def campaign_runs(rounds: int = 4, campaign: str = CAMPAIGN.id, seed: int = 5) -> Iterator[Run]:
    """Runs of five cells, under emulation, and one that failed in every round."""
    rng = np.random.default_rng(seed)
    clock = START
    for round in range(1, rounds + 1):
        drift = float(np.exp(rng.normal(0, 0.1)))
        for position, ((path, state), speed) in enumerate(CELLS.items(), start=1):
            clock += timedelta(seconds=10)
            factor = speed * drift * float(np.exp(rng.normal(0, 0.01)))
            yield _run(campaign, path, state, round, position, clock, factor)
        clock += timedelta(seconds=10)
        yield _failed(campaign, round, len(CELLS) + 1, clock)


def _run(
    campaign: str, path: str, state: str, round: int, position: int, clock: datetime, factor: float
) -> Run:
    from_memory = state == "warm"
    return Run(
        id=f"{round:02x}{position:02x}abcd",
        campaign=campaign,
        cell=f"{path}|{state}",
        path=path,
        page_cache=PageCache(state),
        round=round,
        position=position,
        origin=Origin.HOST if path == "host" else Origin.GUEST,
        started=clock,
        wall_seconds=9.5,
        accelerator=None if path == "host" else "tcg",
        medium="Samsung SSD 840",
        checks=(Check("O_DIRECT", "on", "on"), Check("write cache", "write back", "write back")),
        commands=("qemu-system-x86_64 -machine q35", "blockdev-add {...}"),
        measurements=tuple(
            _measurement(name, direction, value * factor, clock, in_memory=from_memory)
            for name, (direction, value) in SPEED.items()
        ),
    )


def _measurement(
    name: str, direction: Direction, bandwidth: float, clock: datetime, *, in_memory: bool
) -> Measurement:
    done = int(bandwidth * 2)
    size = 4096 if "4k" in name else 1 << 20
    reading = direction is Direction.READ

    def counted(share: float) -> IoCounters:
        moved = int(done * share)
        return IoCounters(
            read_bytes=moved if reading else 0,
            write_bytes=0 if reading else moved,
            read_operations=moved // size if reading else 0,
            write_operations=0 if reading else moved // size,
            flush_operations=3,
        )

    return Measurement(
        name=name,
        program="fio",
        command=f"fio --name={name} --bs={size}",
        samples=(
            Sample("bandwidth", direction, bandwidth),
            Sample("iops", direction, bandwidth / size),
            Sample("latency_p99", direction, 2 * size / bandwidth),
        ),
        evidence=Evidence(
            guest=counted(1.0),
            qemu=counted(1.0),
            device=counted(0.03 if in_memory and reading else 1.0),
            host_cpu_seconds=0.5,
            resident_before=1.0 if in_memory else 0.0,
            resident_after=1.0 if in_memory else 0.1,
            allocated_before=1 << 28,
            allocated_after=1 << 28,
        ),
        started=clock,
        wall_seconds=2.2,
        measured_seconds=2.0,
        raw='{"fio version": "fio-3.33"}\n',
    )


def _failed(campaign: str, round: int, position: int, clock: datetime) -> Run:
    return Run(
        id=f"{round:02x}ffdead",
        campaign=campaign,
        cell="qcow2/none:bad",
        path="qcow2/none",
        page_cache=PageCache.BYPASSED,
        round=round,
        position=position,
        origin=Origin.GUEST,
        started=clock,
        wall_seconds=1.0,
        accelerator="tcg",
        medium=None,
        failure=Failure(FailureKind.STATE, "O_DIRECT asked for, but \x1b[31mnot\x1b[0m seen"),
    )
