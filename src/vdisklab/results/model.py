"""Results as immutable values, independent of how they are stored.

    Campaign 1─n Run 1─n Measurement 1─n Sample

A Run is one cell (disk path and page-cache state) in one round: one fresh attach of the disk.
It is the unit of replication. Its Measurements are the programs that ran in that attach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.value import HIDDEN, Value, field

HALF_BIN = 1 / 128
"""fio reports percentiles as middles of bins, which are as wide as 1/64 to 1/128 of their values
(FIO_IO_U_PLAT_BITS in stat.h: 6)."""

_TIMES = ("read_seconds", "write_seconds", "flush_seconds")
GATE = ".gate."
"""Part of the name of a gate's check, MEASUREMENT.gate.NAME: a condition without which a number is
not the disk's."""

BEGUN_LATE = "share of requests begun over 5 ms late"
"""The gate that a replay at recorded times misses on a path that does not keep up."""

REPEATED = "requests at QEMU ÷ requests replayed"
"""The gate that a replay misses if the guest's kernel splits or joins its requests."""

OWN_FACTS = "/etc/vdisklab/facts"
"""The administrator's file of facts, NAME=VALUE in each line, such as rack=A3."""

WITHOUT_FLUSHES = "without_flushes"
"""The fact why the file system of a campaign's directory sends no flushes."""

FILE_SYSTEM = "file_system"
"""The fact which file system a campaign's directory is on."""

MAY_BE_DIRTY = ", all of which may be dirty"
"""The end of what is read back of a memory for pages, where control groups of version 1 hold it."""

ZFS_FUSE = "zfs-fuse"
"""The fact `zfs` of a host whose ZFS is not the kernel's, in place of a version."""


class Better(StrEnum):
    """Whether higher or lower values of a metric are better."""

    HIGHER = "higher"
    LOWER = "lower"


class Observer(StrEnum):
    """Who counted requests; the fields of `Evidence` have the same names."""

    GUEST = "guest"
    QEMU = "qemu"
    DEVICE = "device"


class Direction(StrEnum):
    """The kind of the counted operations; `none` if the program does not separate them."""

    READ = "read"
    WRITE = "write"
    TRIM = "trim"
    NONE = "none"


class Metric(Value):
    """A quantity: its name, its SI unit (or `1` for a ratio), and which way is better.

    A metric with a `step` is zero in many good runs (no stall, no flush). The step is the smallest
    value above zero that its programs tell from zero; `analysis.observations.logarithms` says how
    such values are compared. `rounding` is the share by which a reported value may differ from the
    measured one.
    """

    name: str
    unit: str
    better: Better
    step: float | None = None
    rounding: float = 0.0

    @property
    def shown_unit(self) -> str:
        """The unit in tables: IOPS for requests per second, the stored unit for everything else."""
        return "IOPS" if self.name == "iops" else self.unit


DURING_WINDOWS = ("before", "during", "after")
"""How the names of an operation's three measurements end, in order."""

SETTLE = "settle"
"""The step in which a new disk is written at random until it is as fast as it stays."""

LIFE_STEPS = ("make", "attach", "first-write", SETTLE, "reset", "delete")
"""The names of the measurements of a disk that is made from a template, in order."""

BENEATH, NO_DATA = "life.beneath", "no data"
"""The check that says what a disk's template has where the disk is first written; it is NO_DATA
if all of the template is zeros."""

SETTLED = "life.settled"
"""The check that says why it is not known when a disk is as fast as it stays; empty if it is."""

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("bandwidth", "B/s", Better.HIGHER),
        # Bytes written, by the seconds of the run and of the host's sync after it.
        Metric("sustained", "B/s", Better.HIGHER),
        Metric("iops", "1/s", Better.HIGHER),
        Metric("latency_mean", "s", Better.LOWER),
        Metric("latency_p50", "s", Better.LOWER, rounding=HALF_BIN),
        Metric("latency_p99", "s", Better.LOWER, rounding=HALF_BIN),
        Metric("latency_p99.9", "s", Better.LOWER, rounding=HALF_BIN),
        Metric("latency_max", "s", Better.LOWER),
        Metric("duration", "s", Better.LOWER),
        # The smallest bandwidth of a whole second, and the longest time without a completion.
        Metric("worst_second", "B/s", Better.HIGHER, step=4096),
        # Logs have windows of 0.1 s and more.
        Metric("longest_stall", "s", Better.LOWER, step=0.1),
        Metric("latency_p95", "s", Better.LOWER, rounding=HALF_BIN),
        # of fsync and similar calls, which the latency of writes does not include
        Metric("sync_mean", "s", Better.LOWER),
        Metric("sync_p99", "s", Better.LOWER, rounding=HALF_BIN),
        Metric("sync_max", "s", Better.LOWER),
        Metric("transactions", "1/s", Better.HIGHER),
        # growth of the image: on the host's file system, and in its format's own map
        Metric("allocated", "B", Better.LOWER, step=4096),
        Metric("mapped", "B", Better.LOWER, step=4096),
        # requested by the guest from QEMU
        Metric("flushes", "1", Better.LOWER, step=1),
        # writes of the program in the guest, QEMU's fsync and fdatasync calls, the device's flushes
        Metric("writes", "1", Better.LOWER, step=1),
        Metric("host_syncs", "1", Better.LOWER, step=1),
        Metric("device_flushes", "1", Better.LOWER, step=1),
        # given back by deleting: in the guest's file system, in the image, at the host's devices
        *(
            Metric(f"freed_{where}", "B", Better.HIGHER, step=4096)
            for where in ("guest", "image", "device")
        ),
        # of an operation on a running guest's disk: what it copied, how long QEMU stopped the guest
        Metric("copied", "B", Better.LOWER, step=1),
        Metric("paused", "s", Better.LOWER, step=0.001),
        # of a disk that is made from a template: bytes that wait in the host's memory (the most),
        # bytes that no longer share their place, space that deleting gave back, and when
        # ready: from the order to make it until its first flush was answered
        # unit: what a clone's layer shares or copies as a whole
        Metric("ready", "s", Better.LOWER),
        Metric("unwritten", "B", Better.LOWER, step=4096),
        Metric("unshared", "B", Better.LOWER, step=4096),
        Metric("unit", "B", Better.LOWER, step=512),
        Metric("given_back", "B", Better.HIGHER, step=4096),
        Metric("space_back", "s", Better.LOWER),
        # of a guest whose system is on the measured disk
        Metric("boot_time", "s", Better.LOWER),
        Metric("shutdown_time", "s", Better.LOWER),
        # bonnie++'s own tests, in addition to its block writes and reads (bandwidth)
        Metric("per_char", "B/s", Better.HIGHER),
        Metric("rewrite", "B/s", Better.HIGHER),
        Metric("seeks", "1/s", Better.HIGHER),
        Metric("seq_create", "1/s", Better.HIGHER),
        Metric("seq_stat", "1/s", Better.HIGHER),
        Metric("seq_delete", "1/s", Better.HIGHER),
        Metric("random_create", "1/s", Better.HIGHER),
        Metric("random_stat", "1/s", Better.HIGHER),
        Metric("random_delete", "1/s", Better.HIGHER),
        # its %CP: the share of one processor's time that each of its tests took
        *(
            Metric(f"{test}_cpu", "1", Better.LOWER, step=0.01)
            for test in (
                "per_char",
                "bandwidth",
                "rewrite",
                "seeks",
                "seq_create",
                "seq_stat",
                "seq_delete",
                "random_create",
                "random_stat",
                "random_delete",
            )
        ),
    )
}


class Sample(Value):
    """One number that a program reported. A quantity that was not measured has no Sample."""

    metric: str
    direction: Direction
    value: float


class Series(Value):
    """A metric over time: its mean in each interval of `interval` seconds from the start."""

    metric: str
    direction: Direction
    interval: float
    values: tuple[float, ...]


class IoCounters(Value):
    """Bytes and operations that one observer counted during a measurement.

    `*_seconds` are the sums of the times that its operations took, from a request to its answer;
    None if it did not take them.
    """

    read_bytes: int
    write_bytes: int
    read_operations: int
    write_operations: int
    flush_operations: int | None = None
    read_seconds: float | None = None
    write_seconds: float | None = None
    flush_seconds: float | None = None

    def since(self, before: IoCounters) -> IoCounters:
        """The difference to an earlier state of the same counters."""
        return IoCounters(
            self.read_bytes - before.read_bytes,
            self.write_bytes - before.write_bytes,
            self.read_operations - before.read_operations,
            self.write_operations - before.write_operations,
            None
            if self.flush_operations is None or before.flush_operations is None
            else self.flush_operations - before.flush_operations,
            _passed(before.read_seconds, self.read_seconds),
            _passed(before.write_seconds, self.write_seconds),
            _passed(before.flush_seconds, self.flush_seconds),
        )

    @property
    def mean_seconds(self) -> tuple[float | None, float | None, float | None]:
        """The mean time of a read, a write and a flush; None without any, or if unknown."""
        counted = (self.read_operations, self.write_operations, self.flush_operations)
        times = (self.read_seconds, self.write_seconds, self.flush_seconds)
        reads, writes, flushes = (
            seconds / number if number and seconds is not None else None
            for number, seconds in zip(counted, times, strict=True)
        )
        return reads, writes, flushes

    @staticmethod
    def total(counts: Sequence[IoCounters | None]) -> IoCounters | None:
        """The sum of several counters; None if there are none, or one is unknown."""
        counted = [count for count in counts if count is not None]
        if not counted or len(counted) < len(counts):
            return None
        flushes = [count.flush_operations for count in counted]
        return IoCounters(
            sum(count.read_bytes for count in counted),
            sum(count.write_bytes for count in counted),
            sum(count.read_operations for count in counted),
            sum(count.write_operations for count in counted),
            None if None in flushes else sum(count or 0 for count in flushes),
            *(_sum([getattr(count, name) for count in counted]) for name in _TIMES),
        )


def _passed(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before


def _sum(seconds: Sequence[float | None]) -> float | None:
    measured = [number for number in seconds if number is not None]
    return sum(measured) if len(measured) == len(seconds) else None


class Evidence(Value):
    """What each observer counted while the program ran; None if it could not count.

    After a program that wrote, the host brings the image's dirty pages to the device.
    """

    guest: IoCounters | None = None
    qemu: IoCounters | None = None
    device: IoCounters | None = None
    host_cpu_seconds: float | None = None
    """CPU time of QEMU or, on the host, of the program."""
    resident_before: float | None = None
    """The share (0 to 1) of the image that was in the host's page cache when the measurement began.
    """
    resident_after: float | None = None
    """The same when it ended."""
    allocated_before: int | None = None
    """Bytes that the image occupied on the host."""
    allocated_after: int | None = None
    """The same when it ended."""
    steal_seconds: float | None = None
    """CPU time that the hypervisor took from all CPUs."""
    sync_seconds: float | None = None
    """How long the host took to bring the dirty pages to the device. None if nothing was written,
    if the host has no file of the image, or before vdisklab did so.
    """
    sync_bytes: int | None = None
    """What the device wrote meanwhile."""


class Member(Value):
    """One of several guests that ran the same program at once, and its numbers in the seconds in
    which all guests ran.
    """

    number: int
    """From 1."""
    start: float
    """In seconds after the first guest's."""
    iops: float
    latency_mean: float
    """In seconds, from the moment at which a request was due, as all latencies here."""
    latency_p50: float
    latency_p99: float
    latency_max: float
    offered: int | None
    """How many requests were due. None for a closed load, in which the next request waits for the
    one before.
    """
    served: int
    """How many of them were completed."""
    evidence: Evidence = Evidence()


class HostLoad(Value):
    """How busy the host was in some seconds; shares of 0 to 1, None where it has no counter.

    `cpu` is the share of all CPUs' time that was used or stolen, `steal` the share that the
    hypervisor took. `device` is the share of the time in which the device had a request, `queue`
    the mean number of them. `thread` is QEMU's busiest thread, as `name of guest N`, and
    `thread_cpu` its share of one CPU.
    """

    cpu: float | None = None
    steal: float | None = None
    device: float | None = None
    queue: float | None = None
    thread: str | None = None
    thread_cpu: float | None = None


class GuestGroup(Value):
    """Guests that ran at once: `seconds` is how long all of them ran and were counted."""

    seconds: float
    members: tuple[Member, ...]
    load: HostLoad = HostLoad()


class Measurement(Value):
    """One program's run: its command, its output, and the parsed numbers."""

    name: str
    program: str
    command: str
    samples: tuple[Sample, ...]
    evidence: Evidence
    started: datetime
    """The time of its file, for an imported measurement."""
    wall_seconds: float | None
    """None for an imported measurement."""
    measured_seconds: float | None
    """The seconds of which the numbers are."""
    raw: str
    """What the program printed."""
    series: tuple[Series, ...] = ()
    group: GuestGroup | None = None
    """The guests, if several ran at once; then samples and evidence are of all of them."""


class Check(Value):
    """A state that the numbers rely on: the requested value and the value read back.

    `requested` is None for a state that is only recorded, because the path does not decide it.
    """

    name: str
    requested: str | None
    observed: str

    @property
    def confirmed(self) -> bool:
        """True when the value read back is the requested one, or none was requested."""
        return self.requested is None or self.requested == self.observed


MISSED, NOT_MET = "missed", "not met"
"""How the observed value of a gate begins that is missed, or not met and only said."""


class GateCount(Value):
    """In how many of a cell's `runs` a gate of a measurement was not met, and a value seen.

    `only_said` is True for a gate that does not decide whether the cell is ranked.
    """

    cell: str
    measurement: str
    gate: str
    runs: int
    of: int
    seen: str
    only_said: bool


class FailureKind(StrEnum):
    """Why a cell has no numbers."""

    STATE = "state"  # a state could not be confirmed
    STORAGE = "storage"
    GUEST = "guest"
    WORKLOAD = "workload"
    TOO_SLOW = "too-slow"  # a measurement did not end in time
    INTERNAL = "internal"  # a bug in vdisklab


class Failure(Value):
    """Why a run failed: a sentence, the way out, then the last lines of the guest's console."""

    kind: FailureKind
    message: str

    @property
    def sentence(self) -> str:
        """The first line, for tables and diagnostics; `show` prints the whole message."""
        return self.message.partition("\n")[0]


class HostFacts(Value):
    """The facts of a machine that influence numbers. Unknown facts are absent from `more`.

    For imported results nothing else is known: texts are empty, numbers None.
    """

    hostname: str
    machine_id: str
    kernel: str
    cpu: str
    cpus: int | None
    memory_bytes: int | None
    qemu: str | None
    fio: str | None
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_zfs_fuse(self) -> bool:
        """True if ZFS is zfs-fuse; False if it is the kernel's, or unknown."""
        return self.more.get("zfs") == ZFS_FUSE

    @property
    def without_flushes(self) -> str | None:
        """Why the campaign's directory lies on a file system that sends no flushes; else None."""
        return self.more.get(WITHOUT_FLUSHES)

    @property
    def file_system(self) -> str | None:
        """The file system that the campaign's directory is on; None if that is not known."""
        return self.more.get(FILE_SYSTEM)


class Origin(StrEnum):
    """Where the numbers come from."""

    GUEST = "guest"
    HOST = "host"
    LAB = "lab"
    IMPORTED = "imported"


class RanUnder(Value):
    """What ran a guest: `kvm` or `tcg`. Runs of different ones are never ranked together.

    `emulated`: under KVM in a host that is emulated itself, which proves that code works. TCG is
    slow in any host.
    """

    accelerator: str
    emulated: bool = False

    @classmethod
    @cache
    def of(cls, accelerator: str, *, emulated: bool) -> RanUnder:
        """The value for an accelerator in a host that may be emulated."""
        return cls(accelerator, emulated and accelerator != "tcg")

    def __str__(self) -> str:
        return f"{self.accelerator} in an emulated host" if self.emulated else self.accelerator

    @property
    def phrase(self) -> str:
        """`under KVM`, for messages."""
        if self.accelerator == "tcg":
            return "under emulation"
        return "under KVM in an emulated host" if self.emulated else "under KVM"


GUEST_ARCHITECTURE = "guest.architecture"
"""The check of a run whose guest has another architecture than the host."""


class Campaign(Value):
    """One plan on one host. `fingerprint` is the plan's: the same plan continues the campaign."""

    id: str
    fingerprint: Annotated[str, HIDDEN]
    plan: Annotated[Mapping[str, Any], HIDDEN]
    host: HostFacts
    started: datetime
    label: str = ""

    @property
    def guest_arch(self) -> str | None:
        """The architecture of the guests, if it is not the host's."""
        return self.plan.get("guest_arch")

    @property
    def cells(self) -> tuple[MeasuredCell, ...]:
        """The planned cells."""
        return tuple(map(MeasuredCell.parse, self.plan.get("cells", ())))


class RunOutline(Value, kw_only=True):
    """One cell in one round, measured or failed, without its numbers: cheap to load."""

    id: str
    campaign: str
    cell: str
    """The cell's fingerprint."""
    path: str
    page_cache: PageCache
    round: int
    """From 1."""
    position: int
    """The place within the round's random order, from 1."""
    origin: Origin
    started: datetime
    wall_seconds: float | None
    accelerator: str | None
    """`kvm` or `tcg`; None without a guest."""
    emulated: bool = False
    """True if the host itself is emulated. Documents call `is_emulated` so."""
    medium: str | None
    """The device below the work directory."""
    failure: Failure | None = None

    @property
    def is_emulated(self) -> bool:
        """True if no real CPU ran it directly: under TCG, and in a host that is emulated itself."""
        return self.emulated or self.accelerator == "tcg"

    @property
    def ran_under(self) -> RanUnder | None:
        """What ran the guest; None without one."""
        if self.accelerator is None:
            return None
        return RanUnder.of(self.accelerator, emulated=self.emulated)

    @property
    def measured_cell(self) -> MeasuredCell:
        """Path and page-cache state as one value."""
        return MeasuredCell(self.path, self.page_cache)


class Run(RunOutline, kw_only=True):
    """A run with its numbers; `commands` are those that were run, as one would type them."""

    checks: tuple[Check, ...] = ()
    commands: tuple[str, ...] = ()
    measurements: tuple[Measurement, ...] = ()

    @property
    def guest_arch(self) -> str | None:
        """The guest's architecture, if it is not the host's."""
        return next((c.observed for c in self.checks if c.name == GUEST_ARCHITECTURE), None)


class CellSums(Value):
    """Counts summed over all runs of a cell in one measurement; None if nothing counted them.

    They are QEMU's, or the program's own without a guest; `device_*` are the host device's.
    """

    cell: str
    """The cell's fingerprint."""
    measurement: str
    operations: int | None
    flushes: int | None
    device_flushes: int | None
    requested_bytes: int | None
    device_bytes: int | None
    cpu_seconds: float | None
    read_requested: int | None = None
    """Bytes, of measurements with both counts."""
    read_reached: int | None = None
    """Bytes at the device, of those measurements that requested anything; of each no more than it
    requested, because the rest was for others."""
    write_requested: int | None = None
    """As for reads."""
    write_reached: int | None = None
    """As for reads."""
    grown: int | None = None
    """The most bytes that an image grew in one measurement."""
    busy_seconds: float | None = None
    """The times of all requests at QEMU, added up; of measurements with a known length."""
    busy_of: float | None = None
    """The length of these measurements."""


class RunSums(Value):
    """The host's CPU seconds and the operations of one run; `cell` is the fingerprint."""

    campaign: str
    round: int
    cell: str
    cpu_seconds: float
    operations: int


class TimedMeasurement(Value):
    """The times of a measurement in seconds: how long it took, how much of that its program
    counted, and how much CPU time was stolen meanwhile. `cell` is the fingerprint.
    """

    cell: str
    measurement: str
    wall_seconds: float | None
    measured_seconds: float | None
    steal_seconds: float | None


class Example(Value):
    """The newest measured run of a cell (a fingerprint), with its commands and checked states."""

    cell: str
    run: str
    round: int
    started: datetime
    ran_under: RanUnder | None
    medium: str | None
    commands: tuple[str, ...]
    checks: tuple[tuple[str, str | None, str], ...]
    measurements: tuple[tuple[str, str], ...]


class RunSeries(Value):
    """The bandwidth over time of one measurement of one run; `cell` is the fingerprint."""

    campaign: str
    cell: str
    round: int
    measurement: str
    series: Series
