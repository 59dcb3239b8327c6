"""RocksDB: db_bench's commands, recorded answers, and mutilated ones."""

from __future__ import annotations

import pytest

from tests.unit.workload.recorded import recorded
from vdisklab.errors import PlanError, WorkloadError
from vdisklab.path.disk_path import parse_path
from vdisklab.plan.profile import MeasurementPlan, Setting
from vdisklab.results.model import Direction, Evidence, IoCounters
from vdisklab.units import GIB, MIB
from vdisklab.workload.program import Around, Outputs, Subject, Timing
from vdisklab.workload.rocksdb import Rocksdb

PROGRAM = Rocksdb()
PLACE = Subject("/mnt/x", 1900 * MIB, is_device=False, is_directory=True, memory=256 * MIB,
                disk_size=2 * GIB)  # fmt: skip
NAMES = ("fillsync", "readrandom", "readwhilewriting")


def plan(benchmark: str, **settings: Setting) -> MeasurementPlan:
    return MeasurementPlan("one", "rocksdb", {"benchmark": benchmark, **settings}, "ext4")


def said(benchmark: str) -> Outputs:
    return Outputs(recorded(f"db_bench-7.8.3-{benchmark}.log"))


def test_reads_are_of_four_guest_memories_on_a_copy() -> None:
    made = PROGRAM.script(plan("readrandom"), PLACE, Timing(20, 5))
    (copy,) = made.prepare
    keys = int(copy.command[-1])
    assert copy.command[3:6] == ("copy", "/mnt/x", f"rocksdb-{keys}")
    assert keys * 450 == pytest.approx(4 * 256 * MIB, rel=0.001)
    assert {"--duration=20", "--use_existing_db=1", f"--num={keys}"} <= set(made.command)
    assert "--duration=5" in made.warm[0].command


def test_synced_writes_begin_with_an_empty_database() -> None:
    made = PROGRAM.script(plan("fillsync"), PLACE, Timing(20, 5))
    assert made.prepare[0].command[3:] == ("new", "/mnt/x")
    assert "--use_existing_db=0" in made.command


def test_a_disk_too_small() -> None:
    with pytest.raises(PlanError, match=r"'one' needs .* MiB and the disk has room for"):
        PROGRAM.script(plan("readrandom", keys=10_000_000), PLACE, Timing(20, 5))


@pytest.mark.parametrize(
    ("benchmark", "direction", "rate", "p99"),
    [
        ("fillsync", Direction.WRITE, 1999 / 4.019, 20404.0e-6),
        ("readrandom", Direction.READ, 85999 / 3.020, 13.84e-6),
        ("readwhilewriting", Direction.READ, 38998 / 3.138, 35.27e-6),
    ],
)
def test_rates_and_latencies(benchmark: str, direction: Direction, rate: float, p99: float) -> None:
    outcome = PROGRAM.parse(plan(benchmark), said(benchmark))
    found = {sample.metric: sample.value for sample in outcome.samples}
    assert {sample.direction for sample in outcome.samples} == {direction}
    assert found["transactions"] == pytest.approx(rate)
    assert found["latency_p99"] == pytest.approx(p99)
    assert found["latency_p50"] < found["latency_p99"] < found["latency_max"]


def test_writes_that_were_not_synced_are_refused() -> None:
    text = said("fillsync").stdout.replace("1999 syncs", "3 syncs")
    with pytest.raises(WorkloadError, match="synced 3 of 1999 writes"):
        PROGRAM.parse(plan("fillsync"), Outputs(text))


def test_threads_that_wait_are_synced_together() -> None:
    text = said("fillsync").stdout.replace("1999 syncs", "500 syncs")
    assert PROGRAM.parse(plan("fillsync", threads=4), Outputs(text)).samples
    with pytest.raises(WorkloadError, match="synced 500 of 1999 writes"):
        PROGRAM.parse(plan("fillsync", threads=2), Outputs(text))


@pytest.mark.parametrize("benchmark", NAMES)
def test_cut_off_anywhere_it_is_refused_or_right(benchmark: str) -> None:
    whole = PROGRAM.parse(plan(benchmark), said(benchmark))
    text = said(benchmark).stdout
    for end in range(0, len(text), 23):
        try:
            part = PROGRAM.parse(plan(benchmark), Outputs(text[:end]))
        except WorkloadError:
            continue
        assert part.samples == whole.samples


def test_another_benchmarks_output_is_refused() -> None:
    with pytest.raises(WorkloadError, match="did not finish"):
        PROGRAM.parse(plan("fillsync"), said("readrandom"))


def test_a_disk_that_swallows_flushes_misses_the_gate() -> None:
    outcome = PROGRAM.parse(plan("fillsync"), said("fillsync"))
    for flushes, met in ((1999, True), (100, False)):
        evidence = Evidence(qemu=IoCounters(0, 0, 0, 0, flushes))
        around = Around(evidence, 256 * MIB, 20, parse_path("raw/none"))
        (gate,) = PROGRAM.gates(plan("fillsync"), outcome, around)
        assert gate.met is met
