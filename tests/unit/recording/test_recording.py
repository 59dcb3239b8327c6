"""Which guest, which disk, which requests of a log; and virsh, as a fake program on PATH."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from vdisklab.actions.record import file_name
from vdisklab.errors import GuestError, HostError, PlanError, RefusedError, WorkloadError
from vdisklab.host.command import LocalHost
from vdisklab.loads.load import IoKind
from vdisklab.loads.qemu_trace.trace_log import TraceLog, bus_of
from vdisklab.loads.requests import Requests
from vdisklab.recording.guest_disks import (
    DiskCounts,
    RecordableDisk,
    choose_disk,
    counts_of,
    disks_of,
)
from vdisklab.recording.guests import RunningGuest, find_guest, of_detail, open_monitor
from vdisklab.recording.recorder import place_of, require_seconds
from vdisklab.recording.statistics import CountedLatency
from vdisklab.recording.tracing import available_events, switch_off

GUEST = RunningGuest("web01", 1, "77", 0, domain="web01", uri="qemu:///system")


class Answers:
    """A monitor that answers from a table."""

    def __init__(self, **answers: Any) -> None:  # noqa: ANN401 - JSON
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._answers = answers

    def execute(self, command: str, arguments: Any = None, *, timeout: float = 30.0) -> Any:  # noqa: ANN401
        del timeout
        self.asked.append((command, dict(arguments or {})))
        answer = self._answers.get(command.replace("-", "_"))
        answer = answer(**(arguments or {})) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer


def disk(name: str, file: str, kind: str = "virtio-blk-device") -> RecordableDisk:
    return RecordableDisk(
        f"/machine/peripheral/{name}", kind, bus_of(kind), 1 << 30, 512, (name, file)
    )


TWO = (disk("virtio-disk0", "/srv/a.qcow2"), disk("virtio-disk1", "/srv/b.qcow2"))


def test_a_disk_is_named_as_libvirt_qemu_or_the_file_system_does() -> None:
    targets = {"vda": "/srv/a.qcow2", "vdb": "/srv/b.qcow2"}
    for wanted in ("vdb", "virtio-disk1", "/srv/b.qcow2"):
        found = choose_disk(TWO, wanted, targets, "web01")
        assert (found.device, found.name) == (TWO[1].device, "vdb")
    assert choose_disk(TWO[:1], None, targets, "web01").name == "vda"
    assert choose_disk(TWO[:1], None, {}, "web01") == TWO[0]


@pytest.mark.parametrize(
    ("disks", "wanted", "said", "hint"),
    [
        ((), None, "guest web01 has no hard disk", "name another guest"),
        (TWO, None, "guest web01 has 2 disks: vda, virtio-disk1", "name one: --disk vda"),
        (TWO, "sda", "guest web01 has no disk called sda", "its disks are vda, virtio-disk1"),
    ],
)
def test_an_unclear_disk_is_a_sentence(
    disks: tuple[RecordableDisk, ...], wanted: str | None, said: str, hint: str
) -> None:
    with pytest.raises(PlanError) as refused:
        choose_disk(disks, wanted, {"vda": "/srv/a.qcow2"}, "web01")
    assert (refused.value.message, refused.value.hint) == (said, hint)


def test_qemu_s_own_words_for_disks_are_read() -> None:
    def property_of(path: str, property: str) -> object:
        kinds = {"disk0": "virtio-blk-device", "cd": "ide-cd"}
        name = path.split("/")[3]
        if property == "type":
            return kinds[name]
        return RefusedError("no such property") if name == "cd" else 4096

    monitor = Answers(
        query_block=[
            {"device": "drive0", "qdev": "/machine/peripheral/disk0/virtio-backend",
             "inserted": {"file": "/srv/a", "node-name": "n0", "image": {"virtual-size": 1 << 20}}},
            {"device": "", "qdev": "cd", "inserted": {"file": "/srv/cd.iso"}},
            {"device": "floppy0", "inserted": None},
            {"device": "pflash0", "inserted": {"file": "/usr/share/OVMF"}},
            "strange",
        ],
        qom_get=property_of,
    )  # fmt: skip
    (found,) = disks_of(monitor)
    assert found.names == ("disk0", "drive0", "n0", "/srv/a")
    assert (found.size_bytes, found.logical_block) == (1 << 20, 4096)
    assert found.bus is bus_of("virtio-blk-device")


def test_a_disk_without_an_id_is_called_as_its_drive() -> None:
    """As `-drive if=virtio` makes it."""
    place = "/machine/peripheral-anon/device[0]/virtio-backend"
    inserted = {"file": "/srv/a", "node-name": "#block123"}
    monitor = Answers(
        query_block=[{"device": "virtio0", "qdev": place, "inserted": inserted}],
        qom_get=lambda property, **_: "virtio-blk-device" if property == "type" else 512,
    )
    (found,) = disks_of(monitor)
    assert found.names == ("virtio0", "#block123", "device[0]", "/srv/a")


def test_a_disk_that_was_unplugged_is_a_sentence() -> None:
    with pytest.raises(GuestError, match="the guest has no disk virtio-disk0 any more"):
        counts_of(Answers(query_blockstats=[]), TWO[0])
    broken = [{"qdev": "virtio-disk0", "stats": {"rd_operations": "many"}}]
    with pytest.raises(GuestError, match="QEMU counts no requests of virtio-disk0"):
        counts_of(Answers(query_blockstats=broken), TWO[0])


def trace(*places: tuple[str, int, int]) -> TraceLog:
    """A log with places that read and write so many bytes."""
    requests = Requests()
    for place, read, written in places:
        for kind, length in ((IoKind.READ, read), (IoKind.WRITE, written)):
            if length:
                requests.begin(place, None, 0, kind, length=length)
    return TraceLog(requests, timestamps=True, lines=9, strange=0)


def counts(read: int, written: int, flushes: int = 0) -> DiskCounts:
    return DiskCounts(bool(read), read, bool(written), written, flushes)


MB = 10_000_000


def test_a_log_s_disk_is_the_one_whose_bytes_qemu_counted() -> None:
    log = trace(("0x1", 5 * MB, 0), ("0x2", 50 * MB, 9 * MB))
    assert (
        place_of(log, counts(50 * MB, 9 * MB - 4096), TWO[0], GUEST) is log.requests.places["0x2"]
    )
    only = trace(("0x1", 4096, 0))
    assert len(place_of(only, None, TWO[0], GUEST)) == 1


@pytest.mark.parametrize(
    ("log", "counted", "said"),
    [
        (trace(), counts(MB, 0), "guest web01 asked nothing of virtio-disk0 while it was recorded"),
        (trace(("0x9", MB, 0)), counts(0, 0), "guest web01 asked nothing of virtio-disk0 while"),
        (
            trace(("0x1", 9 * MB, 0)),
            counts(MB, 0),
            "cannot be told from those of the guest's other",
        ),
        (trace(("0x1", MB, 0), ("0x2", MB, 0)), counts(MB, 0), "cannot be told from those"),
        (trace(("0x1", MB, 0), ("0x2", 9, 0)), None, "ended before its disks could be told apart"),
    ],
)
def test_requests_of_another_disk_are_never_taken(
    log: TraceLog, counted: DiskCounts | None, said: str
) -> None:
    with pytest.raises(WorkloadError, match=said):
        place_of(log, counted, TWO[0], GUEST)


def test_a_qemu_without_the_events_has_none() -> None:
    def state(name: str) -> object:
        return {
            "a": [{"name": "a", "state": "disabled"}],
            "b": [{"name": "b", "state": "unavailable"}],
        }.get(name, RefusedError(f'unknown event "{name}"'))

    monitor = Answers(trace_event_get_state=state)
    assert available_events(monitor, ["a", "b", "c"]) == ("a",)


def test_events_of_another_recording_are_left_alone() -> None:
    monitor = Answers(trace_event_get_state=[{"name": "a", "state": "enabled"}])
    with pytest.raises(GuestError, match="another program traces this guest already"):
        available_events(monitor, ["a"])
    assert [command for command, _ in monitor.asked] == ["trace-event-get-state"]


def test_an_event_that_stays_on_is_noticed() -> None:
    monitor = Answers(
        trace_event_get_state=[{"name": "a", "state": "enabled"}], human_monitor_command=""
    )
    with pytest.raises(GuestError, match="QEMU did not switch a off"):
        switch_off(monitor, ["a"])
    assert ("human-monitor-command", {"command-line": "logfile /dev/null"}) in monitor.asked


def test_a_ledger_s_note_leads_back_to_the_guest() -> None:
    assert of_detail(GUEST.detail) == GUEST
    for broken in ({}, {**GUEST.detail, "pid": "½"}, {**GUEST.detail, "user": "-1"}):
        with pytest.raises(HostError, match="damaged"):
            of_detail(broken)


def test_a_process_that_has_ended_is_no_guest() -> None:
    assert not RunningGuest("x", 1 << 30, "", 0).is_running
    assert not RunningGuest("x", 1, "1", 0).is_running  # another process has the number


def test_a_name_that_nobody_has_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as refused:
        find_guest(LocalHost(), "nobody-has-this", processes=tmp_path)
    assert refused.value.message == (
        "no running guest is called nobody-has-this; no guest runs on this host"
    )


@pytest.fixture
def virsh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virsh that prints a file, and notes its arguments in another."""
    program = tmp_path / "virsh"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\ncat {tmp_path}/prints\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_libvirt_carries_commands(virsh: Path) -> None:
    (virsh / "prints").write_text('{"return": [7], "id": "libvirt-9"}\n')
    with open_monitor(LocalHost(), GUEST) as monitor:
        assert monitor.execute("query-block", {"a": 1}) == [7]
    said = (virsh / "said").read_text().splitlines()
    assert said[:-1] == ["--connect", "qemu:///system", "qemu-monitor-command", "web01"]
    assert json.loads(said[-1]) == {"execute": "query-block", "arguments": {"a": 1}}


@pytest.mark.parametrize(
    ("printed", "error", "said"),
    [
        ('{"error": {"class": "GenericError", "desc": "no"}}', RefusedError, "QEMU refused: no"),
        ('{"id": 1}', RefusedError, "an answer without `return`"),
        ("[" * 100_000, GuestError, "virsh printed no JSON for query-block"),
        ("", GuestError, "virsh printed no JSON"),
    ],
)
def test_what_libvirt_refuses_is_a_sentence(
    virsh: Path, printed: str, error: type[GuestError], said: str
) -> None:
    (virsh / "prints").write_text(printed)
    with open_monitor(LocalHost(), GUEST) as monitor, pytest.raises(error, match=said):
        monitor.execute("query-block")


def test_a_monitor_where_others_wait_already_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vdisklab.recording.guests._BUSY_SECONDS", 0.0)
    file = tmp_path / "qmp"
    guest = RunningGuest("web01", 1, "77", os.geteuid(), socket=str(file))
    with socket.socket(socket.AF_UNIX) as monitor, socket.socket(socket.AF_UNIX) as waiting:
        monitor.bind(str(file))
        monitor.listen(0)
        waiting.connect(str(file))
        with (
            pytest.raises(GuestError, match="another program holds the monitor of web01"),
            open_monitor(LocalHost(), guest),
        ):
            pass


def test_a_domain_that_is_shut_off_is_a_sentence(virsh: Path, tmp_path: Path) -> None:
    (virsh / "prints").write_text("shut off\n\n")
    with pytest.raises(PlanError) as refused:
        find_guest(LocalHost(), "web01", processes=tmp_path / "none")
    assert refused.value.message == "guest web01 does not run: libvirt says shut off"
    assert refused.value.hint == "virsh start web01"


def test_percentiles_of_a_histogram_are_upper_bounds() -> None:
    found = CountedLatency("read", (1000, 2000, 4000), (90, 5, 4, 1))
    assert found.percentile(0.5) == pytest.approx(1e-6)
    assert found.percentile(0.99) == pytest.approx(4e-6)
    assert found.percentile(1.0) is None
    assert CountedLatency("read", (1000,), (0, 0)).percentile(0.5) is None


def test_a_file_is_named_for_guest_and_disk() -> None:
    assert file_name("web01", "vda") == "web01-vda.load"
    assert file_name("/run/../x y", "é") == "run-..-x-y.load"


@pytest.mark.parametrize("seconds", [0, 0.5, 1e9])
def test_a_recording_has_a_time(seconds: float) -> None:
    with pytest.raises(PlanError):
        require_seconds(seconds)
