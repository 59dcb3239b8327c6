"""The network between this host and a server of storage: its interface, and its connections."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from vdisklab.errors import VdisklabError
from vdisklab.host.command import Host
from vdisklab.results.model import Check, IoCounters
from vdisklab.units import whole_number
from vdisklab.value import Value

_INTERFACES = Path("/sys/class/net")


_RETRANSMITS = re.compile(r"\bretrans:\d+/(\d+)")
_ROUND_TRIP = re.compile(r"\brtt:([0-9.]+)/")
_LEAST_TRIP = re.compile(r"\bminrtt:([0-9.]+)")
_PATH_MTU = re.compile(r"\bpmtu:(\d+)")
_NFS_OPERATIONS = ("READ", "WRITE", "COMMIT")


class Link(Value):
    """The way to a server: this host's interface, and the server's addresses and port.

    `mount` is a directory that the kernel's NFS client has mounted from it.
    """

    interface: str
    addresses: tuple[str, ...]
    port: int | None
    mount: Path | None = None

    def counters(self, interfaces: Path = _INTERFACES) -> IoCounters | None:
        """Bytes and packets that the interface has received (as reads) and sent (as writes).

        Of all programs: the kernel does not count them by server
        (Documentation/ABI/testing/sysfs-class-net-statistics).
        """
        statistics = interfaces / self.interface / "statistics"
        names = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets")
        try:
            received, sent, packets_in, packets_out = (
                int((statistics / name).read_text()) for name in names
            )
        except (OSError, ValueError):
            return None
        return IoCounters(received, sent, packets_in, packets_out, None)

    def retransmits(self, host: Host) -> int:
        """The segments that the connections open now have sent again since they began."""
        return sum(
            connection.retransmits for connection in parse_connections("".join(self._listed(host)))
        )

    def connections(self, host: Host, before: int = 0) -> tuple[Check, ...]:
        """The state of the TCP connections to the server now: their number, segments sent again
        beyond the `before` of a mount's or session's older days, and the mean round trip in
        milliseconds. Empty without `ss`.
        """
        text = "".join(self._listed(host))
        open_now = list(parse_connections(text))
        if not open_now:
            return ()
        again = sum(connection.retransmits for connection in open_now)
        trips = [
            connection.round_trip_ms
            for connection in open_now
            if connection.round_trip_ms is not None
        ]
        least = [
            connection.least_trip_ms
            for connection in open_now
            if connection.least_trip_ms is not None
        ]
        largest = [
            connection.path_mtu for connection in open_now if connection.path_mtu is not None
        ]
        interface_mtu = ""
        with suppress(OSError):
            interface_mtu = (_INTERFACES / self.interface / "mtu").read_text().strip()
        return (
            Check("net.interface", None, self.interface),
            Check("net.connections", None, str(len(open_now))),
            Check("net.retransmits", None, str(max(0, again - before))),
            *(
                [Check("net.round_trip_ms", None, f"{sum(trips) / len(trips):.3g}")]
                if trips
                else []
            ),
            *([Check("net.least_round_trip_ms", None, f"{min(least):.3g}")] if least else []),
            *([Check("net.path_mtu", None, str(min(largest)))] if largest else []),
            *([Check("net.mtu", None, interface_mtu)] if interface_mtu else []),
        )

    def operations(self, table: Path = Path("/proc/self/mountstats")) -> Mapping[str, NfsCount]:
        """What the kernel's NFS client has done since the mount, by operation."""
        if self.mount is None:
            return {}
        try:
            return parse_mountstats(table.read_text(errors="surrogateescape"), self.mount)
        except OSError:
            return {}

    def operations_since(self, before: Mapping[str, NfsCount]) -> tuple[Check, ...]:
        """The operations of NFS since then, and how many were sent again."""
        now = self.operations()
        return tuple(
            Check(f"nfs.{name}", None, f"{done} ({again} sent again, {trip:.3g} ms each)")
            for name in _NFS_OPERATIONS
            if name in now
            and (done := now[name].done - before.get(name, _NEVER).done) > 0
            and (again := now[name].sent - before.get(name, _NEVER).sent - done) >= 0
            and (trip := (now[name].trips_ms - before.get(name, _NEVER).trips_ms) / done) >= 0
        )

    def _listed(self, host: Host) -> Iterator[str]:
        for address in self.addresses:
            ends = f"[{address}]" if ":" in address else address
            where = ends if self.port is None else f"{ends}:{self.port}"
            with suppress(VdisklabError):
                yield host.run("ss", "-tinHO", "state", "established", "dst", where).stdout


class Connection(Value):
    """One TCP connection as the kernel describes it (tcp(7), TCP_INFO).

    A server that is slow acknowledges a request with its answer, so that the mean round trip has
    the server's time in it, too; the least one is the network's.
    """

    retransmits: int
    round_trip_ms: float | None
    least_trip_ms: float | None = None
    path_mtu: int | None = None


def parse_connections(text: str) -> Iterator[Connection]:
    """The connections in the output of `ss -tinHO`, one on each line."""
    for line in text.splitlines():
        if not line.strip():
            continue
        again, trip = _RETRANSMITS.search(line), _ROUND_TRIP.search(line)
        least, largest = _LEAST_TRIP.search(line), _PATH_MTU.search(line)
        yield Connection(
            int(again[1]) if again else 0,
            float(trip[1]) if trip else None,
            float(least[1]) if least else None,
            int(largest[1]) if largest else None,
        )


class NfsCount(Value):
    """One operation of an NFS mount: requests done and sent, and the sum of their round trips."""

    done: int
    sent: int
    trips_ms: int


_NEVER = NfsCount(0, 0, 0)


def parse_mountstats(text: str, mount: Path) -> Mapping[str, NfsCount]:
    """The operations of one mount in /proc/self/mountstats.

    net/sunrpc/stats.c, rpc_clnt_show_stats: name, operations, transmissions, time-outs, bytes sent,
    bytes received, then milliseconds of queueing, round trip and execution.
    """
    _, found, ours = text.partition(f" mounted on {mount} with fstype nfs")
    if not found:
        return {}
    lines = (line.split() for line in ours.partition("\ndevice ")[0].splitlines())
    counts: dict[str, NfsCount] = {}
    for name, *columns in filter(None, lines):
        numbers = list(map(whole_number, columns[:8]))
        match numbers:
            case [int(done), int(sent), int(), int(), int(), int(), int(trips), int()]:
                if name.endswith(":"):
                    counts[name.rstrip(":")] = NfsCount(done, sent, trips)
            case _:
                pass
    return counts


def link_to(host: Host, server: str, port: int | None, mount: Path | None = None) -> Link | None:
    """The link to a server, by its name or address; None if this host knows no way to it."""
    try:
        found = socket.getaddrinfo(server, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    addresses = tuple(dict.fromkeys(str(address[4][0]) for address in found))
    interface = next(_interfaces(host, addresses), None)
    return None if interface is None else Link(interface, addresses, port, mount)


def _interfaces(host: Host, addresses: Iterable[str]) -> Iterator[str]:
    for address in addresses:
        with suppress(VdisklabError, ValueError, KeyError, IndexError):
            yield str(json.loads(host.run("ip", "-json", "route", "get", address).stdout)[0]["dev"])
