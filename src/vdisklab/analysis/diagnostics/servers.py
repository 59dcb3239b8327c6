"""Diagnostics of numbers from storage on servers: what they promise, and what nobody here saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from vdisklab.analysis.diagnostics.diagnostic import Diagnostic
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.durability import CLAIMED, promise_of, promise_of_device
from vdisklab.path.segments import LayerKind
from vdisklab.results.model import Example
from vdisklab.units import counted, named

_LARGEST_PACKET = 65535
"""IP has no larger ones (RFC 791), and the loopback interface has an MTU of 65536."""

MANY_RETRANSMITS = 20
"""Retransmitted segments of one run that are worth a sentence; a healthy wire has a few or none."""


class UnequalPromises(Diagnostic):
    """Targets, as named, on which a write with cache=none is stable at different moments."""

    promises: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        said = "; ".join(f"{target}: {promise}" for target, promise in self.promises)
        return (
            f"With cache=none a write is stable at different moments: {said}. The weaker promise "
            "is the cheaper one: compare the speed of paths only where you would trust both."
        )


class ServerMemory(Diagnostic):
    """Targets on servers, whose memory may have served the numbers."""

    targets: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{named(self.targets)}: the server's memory may have served these numbers, because "
            "O_DIRECT ends at this host. Measure a --size larger than the server's memory."
        )


class ClaimedNoCache(Diagnostic):
    """Devices, as they were named, whose server claims that they have no write cache."""

    targets: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{named(self.targets)}: the server claims that it has no write cache, so no flush is "
            "sent to it, in any cache mode. If it keeps writes in memory all the same, as LIO's "
            "fileio does without O_DSYNC, a power cut there loses them: check its settings."
        )


class ClientMemory(Diagnostic):
    """Cells on librbd with a cache mode that turns its cache on."""

    cells: tuple[MeasuredCell, ...]

    def __str__(self) -> str:
        return (
            f"{named(self.cells)}: librbd's cache follows QEMU's cache mode, so this host's memory "
            "answers writes after the guest's first flush (on Proxmox VE's QEMU from the "
            "beginning), and reads too. Look at cache=none."
        )


class SharedServer(Diagnostic):
    """Several targets on one server, or behind one interface of this host."""

    targets: tuple[str, ...]
    shared: str

    def __str__(self) -> str:
        return (
            f"{named(self.targets)} share {self.shared}: they may reach the same limit, and a "
            "difference between them is not a difference between servers."
        )


class Retransmits(Diagnostic):
    """Segments that were sent again on the connections of a cell: `number` in its last run."""

    cell: MeasuredCell
    number: int
    round_trip_ms: str | None

    def __str__(self) -> str:
        trip = "" if self.round_trip_ms is None else f" (round trip {self.round_trip_ms} ms)"
        return (
            f"{self.cell}: {counted(self.number, 'TCP segment')} had to be sent again in one "
            f"run{trip}: the network loses packets, so this measures the wire. Check cables, "
            "MTU and the switch's counters."
        )


class SmallPackets(Diagnostic):
    """A target, by its name, that packets of the interface's size do not reach (in bytes)."""

    target: str
    reaches: int
    interface: int

    def __str__(self) -> str:
        return (
            f"{self.target}: this host's interface sends packets of {self.interface} bytes, but "
            f"the server is reached only by packets of up to {self.reaches}, so a request takes "
            "more of them. Set the same MTU all the way to the server."
        )


def server_diagnostics(
    runs: Iterable[Example], cells: Mapping[str, MeasuredCell]
) -> tuple[Diagnostic, ...]:
    """What to know of cells on targets that the user named; `cells` are by fingerprint."""
    targets: dict[str, dict[str, str]] = {}
    promises: dict[str, str] = {}
    again: list[Diagnostic] = []
    cached: list[MeasuredCell] = []
    for run in runs:
        cell = cells[run.cell]
        if cell.path is None or cell.path.on_host or not cell.path.has_storage:
            continue
        seen = {name: value for name, _, value in run.checks}
        promise = promise_of(cell.path) or promise_of_device(seen)
        if promise is None:
            promises.setdefault("a disk of this host", "after the guest's flush")
            continue
        layer = cell.path.layers[0]
        target = str(layer.option("at") or layer)  # as it was named
        promises[target] = promise
        targets[target] = seen
        if cell.path.layers[0].kind is LayerKind.RBD and not cell.path.cache.direct:
            cached.append(cell)
        number = int(seen.get("net.retransmits", "0"))
        if number >= MANY_RETRANSMITS:
            again.append(Retransmits(cell, number, seen.get("net.round_trip_ms")))
    if not targets:
        return ()
    claimed = tuple(sorted(target for target in targets if promises[target] == CLAIMED))
    unequal = len(set(promises.values())) > 1
    return (
        *([UnequalPromises(tuple(sorted(promises.items())))] if unequal else []),
        *([ClaimedNoCache(claimed)] if claimed else []),
        ServerMemory(tuple(sorted(targets))),
        *([ClientMemory(tuple(sorted(cached)))] if cached else []),
        *_shared(targets),
        *_small_packets(targets),
        *again,
    )


def _shared(targets: Mapping[str, Mapping[str, str]]) -> Iterable[SharedServer]:
    """The targets on one server; else those behind one interface that is no loopback."""
    servers: dict[str, list[str]] = {}
    links: dict[str, list[str]] = {}
    for target, seen in sorted(targets.items()):
        server = urlsplit(seen.get("host.target.url", "")).hostname
        if server is not None:
            servers.setdefault(f"the server {server}", []).append(target)
        if (link := seen.get("net.interface", "lo")) != "lo":
            links.setdefault(f"the interface {link}", []).append(target)
    for shared, several in (*servers.items(), *links.items()):
        if len(several) > 1:
            yield SharedServer(tuple(several), shared)


def _small_packets(targets: Mapping[str, Mapping[str, str]]) -> Iterable[SmallPackets]:
    for target, seen in sorted(targets.items()):
        reaches, interface_mtu = (int(seen.get(f"net.{name}", "0")) for name in ("path_mtu", "mtu"))
        if 0 < reaches < min(interface_mtu, _LARGEST_PACKET):
            yield SmallPackets(target, reaches, interface_mtu)
