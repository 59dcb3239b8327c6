"""What is said of numbers from storage on servers."""

from __future__ import annotations

from tests.unit.analysis.diagnostics.test_recorded import example
from tests.unit.analysis.made import cell
from vdisklab.analysis.diagnostics.servers import (
    MANY_RETRANSMITS,
    ClientMemory,
    Retransmits,
    ServerMemory,
    SharedServer,
    UnequalPromises,
    server_diagnostics,
)

CELLS = {
    "local": cell("ext4/raw/none"),
    "nbd": cell("nbd:at=far/raw/none"),
    "nfs": cell("libnfs:at=nas/raw/none"),
    "rbd": cell("rbd:at=ceph/writeback"),
    "dir": cell("dir:at=here/raw/none"),
    "host": cell("host"),
}
FAR = ("host.target.url", None, "nbd://10.0.0.5/x")
NAS = ("host.target.url", None, "nfs://10.0.0.5/export")


def test_local_paths_have_nothing_to_say() -> None:
    runs = [example(name, ()) for name in ("local", "dir", "host")]
    assert server_diagnostics(runs, CELLS) == ()


def test_unequal_promises_stand_beside_each_other() -> None:
    promises, memory = server_diagnostics([example("local", ()), example("nbd", ())], CELLS)
    assert isinstance(promises, UnequalPromises)
    assert memory == ServerMemory(("nbd:at=far",))
    assert "a disk of this host: after the guest's flush" in str(promises)
    assert "nbd:at=far: when the server says so" in str(promises)
    assert "durable" not in str(promises)


def test_one_promise_needs_no_comparison() -> None:
    assert server_diagnostics([example("nbd", ())], CELLS) == (ServerMemory(("nbd:at=far",)),)


def test_librbd_with_writeback_answers_from_this_hosts_memory() -> None:
    found = server_diagnostics([example("rbd", ())], CELLS)
    assert ClientMemory((cell("rbd:at=ceph/writeback"),)) in found


def test_two_targets_on_one_server_or_one_interface() -> None:
    same = server_diagnostics([example("nbd", [FAR]), example("nfs", [NAS])], CELLS)
    assert SharedServer(("libnfs:at=nas", "nbd:at=far"), "the server 10.0.0.5") in same
    wire = ("net.interface", None, "eth0")
    linked = server_diagnostics([example("nbd", [wire]), example("nfs", [wire])], CELLS)
    assert SharedServer(("libnfs:at=nas", "nbd:at=far"), "the interface eth0") in linked


def test_a_wire_that_loses_packets_is_named() -> None:
    for number, said in ((MANY_RETRANSMITS - 1, False), (MANY_RETRANSMITS, True)):
        states = [("net.retransmits", None, str(number)), ("net.round_trip_ms", None, "0.4")]
        found = server_diagnostics([example("nbd", states)], CELLS)
        expected = Retransmits(cell("nbd:at=far/raw/none"), number, "0.4")
        assert (expected in found) is said
        assert "round trip 0.4 ms" in str(expected)
