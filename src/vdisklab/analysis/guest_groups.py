"""Several guests measured at once: whether a step passes, fairness, and what limited it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from vdisklab.as_text import AsText
from vdisklab.errors import PlanError
from vdisklab.results.model import Evidence, GuestGroup, Member, Sample
from vdisklab.units import in_percent, parse_duration
from vdisklab.value import Value

LEAST_SERVED = 0.99
"""A step fails if less than this share of the requests that were due was completed."""

_CRITERION = re.compile(r"(latency_(?:mean|p50|p99|max))\s*<=\s*(\S.*)")
_FULL = 0.9
_STOLEN = 0.05
FROM_MEMORY = 0.5
"""If less than this share of the bytes reached the device, the host's memory was measured."""


class Criterion(AsText, Value):
    """The limit that each guest must meet: a latency of `Member`, and its maximum in seconds."""

    metric: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.metric}<={self.seconds * 1000:g}ms"

    def value_of(self, member: Member) -> float:
        """The guest's own value, in seconds."""
        return float(getattr(member, self.metric))


def parse_criterion(text: str) -> Criterion:
    """The criterion in a text such as `latency_p99<=5ms`. Raises PlanError."""
    match = _CRITERION.fullmatch(text.strip())
    if match is None:
        raise PlanError(
            f"{text!r} is not a limit for a latency",
            hint="write --until 'latency_p99<=5ms'; latency_mean, latency_p50 and latency_max are "
            "possible, too",
        )
    if re.search("[0-9] *$", match[2]):
        raise PlanError(
            f"{text!r} has a time without a unit",
            hint=f"write {match[1]}<={match[2].strip()}ms, or a number with s",
        )
    seconds = parse_duration(match[2])
    if seconds <= 0:
        raise PlanError(f"{text!r}: a request cannot take 0 s", hint="write a time above zero")
    return Criterion(match[1], seconds)


def jain(rates: Sequence[float]) -> float:
    """Jain's fairness index: 1 if all rates are equal, 1/n if one guest gets everything.

    (sum of x)² / (n · sum of x²): Jain, Chiu, Hawe, DEC-TR-301 (1984). 1 for rates that are all 0.
    """
    largest = max(rates)
    if not largest:
        return 1.0
    shares = [rate / largest for rate in rates]  # the squares of rates may be too large
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


class GroupStep(Value):
    """One run of a number of guests."""

    guests: int
    passed: Annotated[bool, "the worst guest met the limit, and nearly all requests were completed"]
    worst: Annotated[float, "seconds: the value of the limit's latency in the worst guest"]
    served: Annotated[
        float | None, "completed over due requests in the worst guest; null for a closed load"
    ]
    iops: Annotated[float, "requests per second of all guests"]
    fairness: Annotated[float, "Jain's index of the guests' rates"]
    cpu_for_each: Annotated[float | None, "CPUs that each guest's QEMU used on average"]
    p99: Annotated[
        float | None, "seconds: of all guests' requests together, in the slower direction"
    ]


def judge(group: GuestGroup, criterion: Criterion, samples: Sequence[Sample] = ()) -> GroupStep:
    """Whether each guest by itself met the criterion, with nearly all of its requests completed.

    `samples` are the numbers over all guests' requests.
    """
    worst = max(criterion.value_of(member) for member in group.members)
    shares = [
        member.served / member.offered
        for member in group.members
        if member.offered is not None and member.offered > 0
    ]
    served = min(shares, default=None)
    seconds = [member.evidence.host_cpu_seconds for member in group.members]
    cpu_times = [used for used in seconds if used is not None]
    return GroupStep(
        guests=len(group.members),
        passed=worst <= criterion.seconds and (served is None or served >= LEAST_SERVED),
        worst=worst,
        served=served,
        iops=sum(member.iops for member in group.members),
        fairness=jain([member.iops for member in group.members]),
        cpu_for_each=sum(cpu_times) / len(cpu_times) / group.seconds
        if cpu_times and group.seconds
        else None,
        p99=max(
            (sample.value for sample in samples if sample.metric == "latency_p99"), default=None
        ),
    )


class LimitedBy(StrEnum):
    """The resource that was saturated when a step failed, or the reason why the search ended."""

    CPUS = "the host's CPUs"
    THREAD = "one of QEMU's threads"
    DEVICE = "the device"
    PAGE_CACHE = "the page cache"
    MEMORY = "memory for more guests"
    MOST = "--most"
    UNFINISHED = "the search did not end"
    UNKNOWN = "unknown (no counted resource was saturated)"


class Bottleneck(Value):
    """The resource that limited a step, and the numbers that show it."""

    limit: LimitedBy
    evidence: str


def share_on_device(evidence: Evidence) -> float | None:
    """Of the bytes that all guests wrote, the share that had reached the device when they ended.

    None if nothing was written, or the device's counters are not known.
    """
    if evidence.guest is None or evidence.device is None or not evidence.guest.write_bytes:
        return None
    return min(1.0, evidence.device.write_bytes / evidence.guest.write_bytes)


def bottleneck(group: GuestGroup, evidence: Evidence) -> Bottleneck:
    """The resource that limited a step. CPUs are tested first: without free CPUs, nothing else
    reaches its limit.
    """
    load = group.load
    if load.steal is not None and load.steal >= _STOLEN:
        return Bottleneck(LimitedBy.CPUS, f"the hypervisor stole {in_percent(load.steal)}")
    if load.cpu is not None and load.cpu >= _FULL:
        return Bottleneck(LimitedBy.CPUS, f"{in_percent(load.cpu)} used")
    if load.thread_cpu is not None and load.thread_cpu >= _FULL:
        return Bottleneck(
            LimitedBy.THREAD,
            f"{load.thread or 'a thread of QEMU'}: {in_percent(load.thread_cpu)} of a CPU",
        )
    if load.device is not None and load.device >= _FULL:
        queue = "" if load.queue is None else f", {load.queue:.1f} requests at once"
        return Bottleneck(LimitedBy.DEVICE, f"busy {in_percent(load.device)} of the time{queue}")
    requested, moved = evidence.guest, evidence.device
    if requested is not None and moved is not None:
        wanted = requested.read_bytes + requested.write_bytes
        if wanted and (moved.read_bytes + moved.write_bytes) / wanted < FROM_MEMORY:
            share = 1 - (moved.read_bytes + moved.write_bytes) / wanted
            return Bottleneck(
                LimitedBy.PAGE_CACHE, f"{in_percent(share)} of the bytes never reached the device"
            )
    return Bottleneck(LimitedBy.UNKNOWN, "")
