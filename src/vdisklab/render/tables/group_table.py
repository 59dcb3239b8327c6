"""The guests that were measured at once, each with its numbers, and how busy the host was."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab.analysis.guest_groups import jain
from vdisklab.render import numbers
from vdisklab.render.tables.layout import Column, Table
from vdisklab.results.model import GuestGroup, Member


def group_table(name: str, group: GuestGroup) -> Table[Member]:
    """One row for each guest."""
    columns = (
        Column[Member]("guest", lambda member: str(member.number), right=True),
        Column[Member]("started", lambda member: f"+{member.start:.2f} s", right=True),
        Column[Member]("IOPS", lambda member: numbers.value(member.iops, "1/s"), right=True),
        Column[Member]("p50", lambda member: numbers.value(member.latency_p50, "s"), right=True),
        Column[Member]("p99", lambda member: numbers.value(member.latency_p99, "s"), right=True),
        Column[Member]("max", lambda member: numbers.value(member.latency_max, "s"), right=True),
        Column[Member]("served", _served, right=True),
        Column[Member]("host CPU", _cpu, right=True),
    )
    title = f"Guests of {name}: {group.seconds:.1f} s in which all ran"
    return Table(title, columns, group.members, tuple(_notes(group)))


def _served(member: Member) -> str:
    if member.offered is None:
        return str(member.served)
    return f"{member.served} of {member.offered}"


def _cpu(member: Member) -> str:
    seconds = member.evidence.host_cpu_seconds
    return numbers.MISSING if seconds is None else f"{seconds:.1f} s"


def _notes(group: GuestGroup) -> Iterator[str]:
    load = group.load
    yield f"fairness (Jain): {jain([member.iops for member in group.members]):.3f}"
    if load.cpu is not None and load.steal is not None:
        yield f"the host's CPUs: {load.cpu:.0%} used, {load.steal:.0%} taken by the hypervisor"
    if load.device is not None and load.queue is not None:
        yield f"the device: busy {load.device:.0%} of the time, {load.queue:.1f} requests at once"
    if load.thread_cpu is not None:
        yield f"QEMU's busiest thread: {load.thread}, {load.thread_cpu:.0%} of a CPU"
