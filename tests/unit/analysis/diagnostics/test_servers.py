"""What is said of numbers from storage on servers."""

from __future__ import annotations

import pytest

from tests.unit.analysis.diagnostics.test_recorded import example
from tests.unit.analysis.made import cell
from vdisklab.analysis.diagnostics.servers import (
    MANY_RETRANSMITS,
    ClaimedNoCache,
    ClientMemory,
    Retransmits,
    ServerMemory,
    SharedServer,
    SmallPackets,
    UnequalPromises,
    server_diagnostics,
)
from vdisklab.answers.loading import with_servers
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts, DurabilityKind, durability
from vdisklab.views.durability import durability_sentence

CELLS = {
    "local": cell("ext4/raw/none"),
    "nbd": cell("nbd:at=far/raw/none"),
    "nfs": cell("libnfs:at=nas/raw/none"),
    "rbd": cell("rbd:at=ceph/writeback"),
    "dir": cell("dir:at=here/raw/none"),
    "host": cell("host"),
    "san": cell("device:at=san/none"),
}
FAR = ("host.target.url", None, "nbd://10.0.0.5/x")
NAS = ("host.target.url", None, "nfs://10.0.0.5/export")


def test_local_paths_have_nothing_to_say() -> None:
    runs = [example(name, ()) for name in ("local", "dir", "host")]
    assert server_diagnostics(runs, CELLS) == ()


def test_unequal_promises_stand_beside_each_other() -> None:
    promises, memory = server_diagnostics([example("local", ()), example("nbd", ())], CELLS)
    assert isinstance(promises, UnequalPromises)
    assert memory == ServerMemory(("far",))
    assert "a disk of this host: after the guest's flush" in str(promises)
    assert "far: when the server says so" in str(promises)
    assert "durable" not in str(promises)


def test_one_promise_needs_no_comparison() -> None:
    assert server_diagnostics([example("nbd", ())], CELLS) == (ServerMemory(("far",)),)


@pytest.mark.parametrize(
    ("transport", "cache", "claims_none"),
    [
        ("iscsi", "write back", False),
        ("iscsi", "write through", True),
        ("multipath over 2 nvme-tcp", "write through", True),
        ("sas", "write through", None),
        ("nvme-pcie", "write through", None),
    ],
)
def test_what_the_server_of_a_device_claims_stays_a_claim(
    transport: str, cache: str, claims_none: bool | None
) -> None:
    """LIO's fileio can claim no write cache and keep what it acknowledged in memory."""
    seen = [("host.device.transport", None, transport), ("host.device.write_cache", None, cache)]
    found = server_diagnostics([example("local", ()), example("san", seen)], CELLS)
    assert (ServerMemory(("san",)) in found) is (claims_none is not None)
    assert (ClaimedNoCache(("san",)) in found) is (claims_none is True)
    unequal = [row for row in found if isinstance(row, UnequalPromises)]
    assert bool(unequal) is (claims_none is not None)
    verdicts = with_servers(CrashVerdicts(), [example("san", seen)], CELLS)
    kept = durability(parse_path("device:at=san/none"), verdicts)
    assert (kept.kind is DurabilityKind.BY_SERVER) is (claims_none is not None)
    if claims_none is not None:
        assert "What the server keeps is unknown here" in durability_sentence(
            "device:at=san/none", kept
        )


def test_librbd_with_writeback_answers_from_this_hosts_memory() -> None:
    found = server_diagnostics([example("rbd", ())], CELLS)
    assert ClientMemory((cell("rbd:at=ceph/writeback"),)) in found


def test_two_targets_on_one_server_or_one_interface() -> None:
    same = server_diagnostics([example("nbd", [FAR]), example("nfs", [NAS])], CELLS)
    assert SharedServer(("far", "nas"), "the server 10.0.0.5") in same
    wire = ("net.interface", None, "eth0")
    linked = server_diagnostics([example("nbd", [wire]), example("nfs", [wire])], CELLS)
    assert SharedServer(("far", "nas"), "the interface eth0") in linked


def test_a_wire_that_loses_packets_is_named() -> None:
    for number, said in ((MANY_RETRANSMITS - 1, False), (MANY_RETRANSMITS, True)):
        states = [("net.retransmits", None, str(number)), ("net.round_trip_ms", None, "0.4")]
        found = server_diagnostics([example("nbd", states)], CELLS)
        expected = Retransmits(cell("nbd:at=far/raw/none"), number, "0.4")
        assert (expected in found) is said
        assert "round trip 0.4 ms" in str(expected)


@pytest.mark.parametrize(
    ("reaches", "mtu_here", "said"),
    [("1500", "9000", True), ("9000", "9000", False), ("65535", "65536", False), ("0", "0", False)],
)
def test_a_way_with_a_smaller_mtu_is_named(reaches: str, mtu_here: str, said: bool) -> None:
    states = [("net.path_mtu", None, reaches), ("net.mtu", None, mtu_here)]
    found = server_diagnostics([example("nbd", states)], CELLS)
    expected = SmallPackets("far", int(reaches), int(mtu_here))
    assert (expected in found) is said
    assert f"of {mtu_here} bytes" in str(expected)
