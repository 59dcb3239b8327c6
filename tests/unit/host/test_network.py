"""The interface and the connections to a server of storage."""

from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.host.network import (
    Link,
    NfsCount,
    link_to,
    parse_connections,
    parse_mountstats,
)
from vdisklab.results.model import IoCounters

# `ss -tinHO` of iproute2 6.1.0, shortened
SS = """\
0 0 127.0.0.1:45678 127.0.0.1:10809 cubic wscale:7,7 rto:204 rtt:0.052/0.031 ato:40 mss:32768 \
pmtu:65535 bytes_sent:1024 bytes_retrans:512 bytes_received:4096 retrans:0/7 minrtt:0.011
0 0 127.0.0.1:45680 127.0.0.1:10809 cubic rto:204 rtt:0.148/0.06 ato:40 lastsnd:12
garbage

"""


def test_each_connection_has_its_retransmits_and_round_trip() -> None:
    first, second, third = parse_connections(SS)
    assert (first.retransmits, first.round_trip_ms) == (7, 0.052)
    assert (second.retransmits, second.round_trip_ms) == (0, 0.148)
    assert (third.retransmits, third.round_trip_ms) == (0, None)
    assert (first.path_mtu, second.path_mtu) == (65535, None)
    assert (first.least_trip_ms, second.least_trip_ms) == (0.011, None)


def test_an_interface_counts_what_it_received_as_reads(tmp_path: Path) -> None:
    statistics = tmp_path / "eth0" / "statistics"
    statistics.mkdir(parents=True)
    for number, name in enumerate(("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"), 1):
        (statistics / name).write_text(f"{number}\n")
    link = Link("eth0", ("10.0.0.5",), 10809)
    assert link.counters(tmp_path) == IoCounters(1, 2, 3, 4, None)
    (statistics / "rx_bytes").unlink()
    assert link.counters(tmp_path) is None


def test_what_the_kernel_says_of_the_connections_is_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ss"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{SS}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    link = Link("lo", ("127.0.0.1",), 1)
    seen = {check.name: check.observed for check in link.connections(LocalHost())}
    assert seen == {
        "net.interface": "lo", "net.connections": "3", "net.retransmits": "7",
        "net.round_trip_ms": "0.1", "net.least_round_trip_ms": "0.011", "net.path_mtu": "65535",
        "net.mtu": "65536",
    }  # fmt: skip
    # A mount's connection is older than the cell: what it had sent again before is not the cell's.
    assert link.retransmits(LocalHost()) == 7
    for before, number in ((5, "2"), (9, "0")):
        states = link.connections(LocalHost(), before)
        assert next(state for state in states if state.name == "net.retransmits").observed == number


def test_a_server_that_nobody_knows_has_no_link() -> None:
    assert link_to(LocalHost(), "no-such-host.invalid", 1) is None


# /proc/self/mountstats of Linux 6.1, shortened: two mounts, statvers 1.1
MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device nas:/export mounted on /mnt/nas with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,sync
\tbytes:\t0 0 4096 8192 4096 8192 0 2
\tper-op statistics
\t        READ: 10 10 0 1600 45000 3 25 30 0
\t       WRITE: 20 22 0 90000 2800 5 60 70 0
\t      COMMIT: 0 0 0 0 0 0 0 0 0
device nas:/other mounted on /mnt/nas2 with fstype nfs statvers=1.1
\tper-op statistics
\t        READ: 99 99 0 1 1 1 99 99
"""


def test_the_operations_of_an_nfs_mount_are_counted(tmp_path: Path) -> None:
    counts = parse_mountstats(MOUNTSTATS, Path("/mnt/nas"))
    assert counts["WRITE"] == NfsCount(20, 22, 60)
    assert parse_mountstats(MOUNTSTATS, Path("/mnt/nas2")) == {"READ": NfsCount(99, 99, 99)}
    assert parse_mountstats(MOUNTSTATS, Path("/mnt")) == {}
    table = tmp_path / "mountstats"
    table.write_text(MOUNTSTATS)
    link = Link("eth0", ("10.0.0.5",), 2049, Path("/mnt/nas"))
    assert link.operations(table) == counts
    assert Link("eth0", ("10.0.0.5",), 2049).operations(table) == {}


def test_only_what_was_done_meanwhile_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"READ": NfsCount(10, 10, 25), "WRITE": NfsCount(30, 33, 90)}
    link = Link("eth0", ("10.0.0.5",), 2049, Path("/mnt/nas"))
    monkeypatch.setattr(Link, "operations", lambda _self: now)
    before = {"READ": NfsCount(10, 10, 25), "WRITE": NfsCount(20, 22, 60)}
    (written,) = link.operations_since(before)
    assert (written.name, written.observed) == ("nfs.WRITE", "10 (1 sent again, 3 ms each)")
