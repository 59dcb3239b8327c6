"""The interface and the connections to a server of storage."""

from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.host.network import Link, link_to, parse_connections
from vdisklab.results.model import IoCounters

# `ss -tinHO` of iproute2 6.1.0, shortened
SS = """\
0 0 127.0.0.1:45678 127.0.0.1:10809 cubic wscale:7,7 rto:204 rtt:0.052/0.031 ato:40 mss:32768 \
bytes_sent:1024 bytes_retrans:512 bytes_received:4096 retrans:0/7 rcv_space:65483
0 0 127.0.0.1:45680 127.0.0.1:10809 cubic rto:204 rtt:0.148/0.06 ato:40 lastsnd:12
garbage

"""


def test_each_connection_has_its_retransmits_and_round_trip() -> None:
    one, two, three = parse_connections(SS)
    assert (one.retransmits, one.round_trip_ms) == (7, 0.052)
    assert (two.retransmits, two.round_trip_ms) == (0, 0.148)
    assert (three.retransmits, three.round_trip_ms) == (0, None)


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
        "net.round_trip_ms": "0.1",
    }  # fmt: skip


def test_a_server_that_nobody_knows_has_no_link() -> None:
    assert link_to(LocalHost(), "no-such-host.invalid", 1) is None
