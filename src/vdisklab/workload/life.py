"""The life of a disk: a first write and a flush, and random writes until the rate is settled.

The campaign makes and deletes the disks; only these two programs run on them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator

from vdisklab.errors import WorkloadError
from vdisklab.plan.profile import LIFE, MeasurementPlan
from vdisklab.units import KIB, MIB, counted, in_percent, parse_size
from vdisklab.value import Value
from vdisklab.workload import program

PROGRAM = LIFE

BLOCK = 4 * KIB
"""Bytes of each write."""

CLUSTER = 64 * KIB
"""Bytes of a cluster of qcow2, and of LVM's and ZFS's smallest units, unless they are told else."""

LEAST_DISK = 16 * MIB
"""Bytes of the smallest disk whose life is measured, as `--size` allows."""

_TIMEOUT = 600.0
_EXPECTED = 2.5
"""Seconds of all steps but the settling, and of starting fio twice."""
_WITHIN = 0.9
_SHARES = 8
_STEPS = 64
_FEWEST_WRITES = 8 * _SHARES
_LINE = re.compile(r"^([0-9]{1,12}), ([0-9]{1,15}), 1, ", re.MULTILINE)


def _size(text: str) -> str:
    parse_size(text)
    return text


class LifeSettings(program.Settings):
    """Settings of a life: whether guests use the disks, and the part of the disk that is written
    until the rate is settled."""

    guest: bool = True
    span: Annotated[str, AfterValidator(_size)] = "64M"


class Life(program.Workload):
    """fio in a guest, qemu-io on the host."""

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """The random writes until the rate is settled, or the first write on the host."""
        settings = program.read_settings(plan, LifeSettings)
        program.require_room(plan, LEAST_DISK, subject.size, or_less="")
        if not settings.guest:
            return program.Script(first_write_on_host(written_at(subject.size)), 0.0, _TIMEOUT)
        found = subject.written_at
        offset = written_at(subject.size) if found is None else found
        return script_in_guest(plan, subject, timing, offset)

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """Always raises WorkloadError: each step of a disk's life has its own output."""
        del output
        raise WorkloadError(f"measurement {plan.name!r} is a life of several steps")


def script_in_guest(
    plan: MeasurementPlan, subject: program.Subject, timing: program.Timing, offset: int
) -> program.Script:
    """The first write at `offset`, and the random writes there until the rate is settled."""
    settings = program.read_settings(plan, LifeSettings)
    log = f"{subject.scratch}/{plan.name}{subject.mark}"
    span = min(int(parse_size(settings.span)), subject.size // 2) // BLOCK * BLOCK
    begin = min(offset, (subject.size - span) // BLOCK * BLOCK)
    place = ("--name=settle", f"--filename={subject.path}", f"--offset={begin}")
    command = (
        "fio", *place, f"--size={span}", "--rw=randwrite", f"--bs={BLOCK}",
        "--ioengine=psync", "--direct=1", "--norandommap=1", "--randrepeat=0", "--time_based=1",
        f"--runtime={round(timing.runtime * 1000)}ms", "--disable_slat=1", "--disable_clat=1",
        f"--write_lat_log={log}", "--output-format=json", "--eta=never",
    )  # fmt: skip
    return program.Script(
        command,
        timing.runtime + _EXPECTED,
        timing.runtime + _TIMEOUT,
        prepare=(program.SideCommand(first_write(subject.path, offset), _TIMEOUT),),
        collect=(f"{log}_lat.1.log",),
    )


def written_at(size: int) -> int:
    """Where the search for data begins in a template of `size` bytes, for the first write; not at
    the beginning of a cluster. The default template has data there."""
    return size // 4 // MIB * MIB + BLOCK


def first_write(device: str, offset: int) -> tuple[str, ...]:
    """The program in a guest that writes one block and flushes."""
    return (
        "fio", "--name=first", f"--filename={device}", f"--offset={offset}",
        f"--size={BLOCK}", "--rw=write", f"--bs={BLOCK}", "--ioengine=psync", "--direct=1",
        "--end_fsync=1", "--output-format=json", "--eta=never",
    )  # fmt: skip


def first_write_on_host(offset: int) -> tuple[str, ...]:
    """qemu-io's commands for the same, without the image's name."""
    return ("qemu-io", "-c", f"write -q -P 165 {offset} {BLOCK}", "-c", "flush")


class Settled(Value):
    """When a disk was as fast as it stays, in seconds after the first write, and that rate in
    writes per second."""

    seconds: float
    iops: float


class Unsettled(Value):
    """Why it cannot be told when a disk is as fast as it stays, as a clause."""

    why: str


def read_latencies(log: str) -> list[float]:
    """The seconds that each write took, in order, from fio's latency log."""
    return [int(took) / 1e9 for _, took in _LINE.findall(log)]


def settled(latencies: Sequence[float]) -> Settled | Unsettled:
    """When the rate came to stay within 10 % of the last eighth's; one write follows the other.

    Rates are those of an eighth of all writes, so that single slow ones do not count. Unsettled if
    there are too few writes, or if the rate still rose in the last quarter.
    """
    count = len(latencies)
    if count < _FEWEST_WRITES:
        return Unsettled(
            f"only {counted(count, 'write')} ended, and a rate is taken of {_FEWEST_WRITES}"
        )
    length = count // _SHARES
    last = _rate(latencies[-length:])
    before = _rate(latencies[-2 * length : -length])
    if before < _WITHIN * last:
        return Unsettled(f"the rate still rose at the end, by {in_percent(last / before - 1)}")
    begin = 0
    for start in range(0, count - length + 1, max(1, count // _STEPS)):
        if _rate(latencies[start : start + length]) < _WITHIN * last:
            begin = start + length
    return Settled(sum(latencies[:begin]), last)


def _rate(latencies: Sequence[float]) -> float:
    total = sum(latencies)
    if total <= 0:
        raise WorkloadError("fio's log has writes that took no time")
    return len(latencies) / total
