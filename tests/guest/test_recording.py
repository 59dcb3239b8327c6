"""Real guests are recorded: on each bus exactly what fio in the guest did, and nothing stays on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.guest.rig import Agent, disk, running
from tests.guest.test_guest_boot import FIND, facts, image_for
from vdisklab.actions.clean import remove_leftovers
from vdisklab.errors import GuestError, PlanError, WorkloadError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import leftovers, open_ledger
from vdisklab.inspection.existing_guests import process_monitor
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.path.segments import Bus
from vdisklab.recording.guests import RunningGuest, find_guest
from vdisklab.recording.recorder import LOG_LIMIT, NotTraced, Wait, find_disk, record_disk
from vdisklab.recording.statistics import count_disk

pytestmark = pytest.mark.guest

SIZE = 64 << 20
DISKS = {"dv": "virtio", "ds": "scsi", "dt": "scsi", "dn": "nvme", "da": "sata"}


@dataclass(frozen=True)
class Running:
    agent: Agent
    guest: RunningGuest

    def record(self, name: str, seconds: float = 3, limit: int = LOG_LIMIT) -> RecordedLoad:
        found, events, qemu = find_disk(LocalHost(), self.guest, name)
        assert not isinstance(events, NotTraced)
        wait = Wait(seconds, limit, lambda: False)
        with open_ledger() as ledger:
            made = record_disk(
                LocalHost(), ledger, self.guest, found, events=events, qemu=qemu, wait=wait
            )
        assert isinstance(made, RecordedLoad)
        return made

    def fio(self, serial: str, *words: str) -> dict[str, Any]:
        device = facts(self.agent, FIND, serial, "60")["device"]
        status, out, err = self.agent.run(
            "/usr/bin/fio", "--name=x", f"--filename={device}", "--direct=1", *words,
            "--output-format=json",
        )  # fmt: skip
        assert status == 0, err
        (job,) = json.loads(out)["jobs"]
        return dict(job)

    def events_on(self) -> list[str]:
        with process_monitor(Path(self.guest.socket), self.guest.user) as monitor:
            states = monitor.execute("trace-event-get-state", {"name": "*"})
        return [each["name"] for each in states if each["state"] == "enabled"]


@pytest.fixture(scope="module")
def always_on(request: pytest.FixtureRequest) -> list[str]:
    """Debian's QEMU has some events on from its start."""
    found: list[str] = request.getfixturevalue("web").events_on()
    return found


@pytest.fixture(scope="module")
def web(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("web")

    def made(name: str) -> Path:
        file = directory / f"{name}.raw"
        with file.open("wb") as stream:
            stream.truncate(SIZE)
        return file

    devices = [
        "-name", "guest=vdisklab-test-web,debug-threads=on", "-msg", "timestamp=on",
        *disk(0, made("v"), "virtio-blk-pci,serial=on-dv,id=dv"),
        *disk(1, made("w"), "virtio-blk-pci,serial=on-dw,id=dw"),
        "-device", "virtio-scsi-pci,id=scsi",
        *disk(2, made("s"), "scsi-hd,bus=scsi.0,serial=on-ds,id=ds"),
        *disk(3, made("t"), "scsi-hd,bus=scsi.0,serial=on-dt,id=dt,dpofua=on"),
        *disk(4, made("n"), "nvme,serial=on-dn,id=dn"),
        *disk(5, made("a"), "ide-hd,bus=ide.0,serial=on-da,id=da"),
        "-qmp", f"unix:{directory}/qmp,server=on,wait=off",
    ]  # fmt: skip
    with running(image_for(cache, frozenset(Bus)), directory / "console", *devices) as agent:
        agent.run("/usr/lib/vdisklab/load-drivers", "60")
        for name in DISKS:
            agent.run(FIND, f"on-{name}", "60")
        yield Running(agent, find_guest(LocalHost(), "vdisklab-test-web"))


@pytest.fixture(autouse=True)
def own_state(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(state))


@pytest.mark.parametrize("name", DISKS)
def test_a_recording_has_exactly_what_fio_in_the_guest_did(
    web: Running, always_on: list[str], name: str
) -> None:
    did: dict[str, Any] = {}

    def work() -> None:
        time.sleep(1)
        did.update(
            web.fio(f"on-{name}", "--ioengine=libaio", "--rw=randrw", "--bsrange=4k-64k",
                    "--size=8M", "--iodepth=4", "--fsync=8")
        )  # fmt: skip

    worker = Thread(target=work)
    worker.start()
    made = web.record(name, seconds=6)
    worker.join()
    for kind, key in ((IoKind.READ, "read"), (IoKind.WRITE, "write")):
        chosen = made.kind == kind
        assert int(chosen.sum()) == did[key]["total_ios"]
        assert int(made.length[chosen].sum()) == did[key]["io_bytes"]
        assert made.is_timed[chosen].all()
    assert int((made.kind == IoKind.FLUSH).sum()) == did["sync"]["total_ios"]
    assert (made.source.bus, made.source.lost) == (DISKS[name], 0)
    assert (made.source.disk_bytes, made.source.logical_block) == (SIZE, 512)
    assert web.events_on() == always_on


def test_two_disks_at_once_are_told_apart(web: Running) -> None:
    def work(serial: str, size: str) -> None:
        time.sleep(1)
        web.fio(serial, "--ioengine=psync", "--rw=write", "--bs=64k", f"--size={size}")

    # The agent answers one at a time, so the other disk's work is a part of the guest's shell.
    other = Thread(target=work, args=("on-dw", "16M"))
    other.start()
    with pytest.raises(WorkloadError, match="asked nothing of dv"):
        web.record("dv", seconds=4)
    other.join()


def test_a_log_has_a_limit(web: Running, always_on: list[str]) -> None:
    worker = Thread(
        target=web.fio,
        args=("on-dv", "--ioengine=psync", "--rw=randread", "--bs=4k", "--size=16M"),
    )
    started = time.monotonic()
    worker.start()
    made = web.record("dv", seconds=60, limit=20_000)
    worker.join()
    assert time.monotonic() - started < 50
    assert any("the log reached" in note for note in made.source.notes)
    assert 0 < len(made) < 4096
    assert web.events_on() == always_on


def test_a_killed_recording_leaves_nothing_on(web: Running, always_on: list[str]) -> None:
    """SIGKILL of vdisklab: its guard switches the events off, `clean` removes the log."""
    command = [sys.executable, "-m", "vdisklab", "record", web.guest.name, "--disk", "dv",
               "--for", "60", "-o", os.devnull]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while web.events_on() == always_on:
            assert time.monotonic() < deadline, "it did not begin"
            time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
    while web.events_on() != always_on:
        assert time.monotonic() < deadline + 30, "the guard did nothing"
        time.sleep(0.3)
    with leftovers() as ledgers:
        kinds = {entry.kind for ledger in ledgers for entry in ledger.entries}
    assert kinds == {"directory", "file", "trace of guest"}
    assert len(list(remove_leftovers(LocalHost()))) == 3
    assert list((Path(os.environ["VDISKLAB_STATE"]) / "recordings").iterdir()) == []


def test_statistics_where_requests_cannot_be_traced(web: Running) -> None:
    found, _, _ = find_disk(LocalHost(), web.guest, "dv")
    worker = Thread(
        target=web.fio, args=("on-dv", "--ioengine=psync", "--rw=write", "--bs=4k", "--size=1M")
    )
    worker.start()
    with open_ledger() as ledger:
        counted = count_disk(
            LocalHost(), ledger, web.guest, found, Wait(4, LOG_LIMIT, lambda: False)
        )
    worker.join()
    assert sum(each.counts.writes for each in counted.seconds) == 256
    (writes,) = (each for each in counted.latencies if each.kind == "write")
    assert sum(writes.counts) == 256


def test_a_paused_guest_and_an_unclear_disk_are_sentences(web: Running) -> None:
    with pytest.raises(PlanError, match=r"has 6 disks|has 7 disks"):
        find_disk(LocalHost(), web.guest, None)
    with process_monitor(Path(web.guest.socket), web.guest.user) as monitor:
        monitor.execute("stop")
    try:
        with pytest.raises(GuestError, match=r"does not run at the moment \(paused\)"):
            find_disk(LocalHost(), web.guest, "dv")
    finally:
        with process_monitor(Path(web.guest.socket), web.guest.user) as monitor:
            monitor.execute("cont")


def test_a_monitor_in_use_is_a_sentence(web: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vdisklab.recording.guests._BUSY_SECONDS", 1.0)
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(web.guest.socket)
        with pytest.raises(GuestError, match="another program holds the monitor"):
            find_disk(LocalHost(), web.guest, "dv")
