"""Real guests are recorded: on each bus exactly what fio in the guest did, and nothing stays on.

Most of it is tried on a guest that is a boot sector: it reads and writes a sector, and waits 2 ms.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest

from tests.guest.rig import Agent, disk, running
from tests.guest.test_guest_boot import FIND, facts, image_for
from vdisklab.actions.clean import remove_leftovers
from vdisklab.cli.shell.main import main
from vdisklab.errors import GuestError, WorkloadError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.inspection.existing_guests import process_monitor
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.loads.load_file import read_load
from vdisklab.path.segments import Bus
from vdisklab.recording.guests import RunningGuest, find_guest
from vdisklab.recording.recorder import LOG_LIMIT, NotTraced, Wait, find_disk, record_disk

pytestmark = pytest.mark.guest

SIZE = 64 << 20
BOOT_SECTOR = bytes.fromhex(
    "31c0 8ec0 8ed8"  # xor ax,ax; mov es,ax; mov ds,ax
    "bb0080 b80102 b90200 ba8000 cd13"  # read the second sector (int 13h)
    "bb0080 b80103 b90300 ba8000 cd13"  # write the third
    "b486 31c9 bad007 cd15"  # wait for 2 ms (int 15h)
    "ebd9"  # again
)
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

    def fio(self, serial: str, *arguments: str) -> dict[str, Any]:
        device = facts(self.agent, FIND, serial, "60")["device"]
        status, out, err = self.agent.run(
            "/usr/bin/fio", "--name=x", f"--filename={device}", "--direct=1", *arguments,
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
        *disk(6, made("m"), "nvme,serial=on-dm,id=dm"),
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


def test_write_zeroes_of_a_virtio_disk_are_no_riddle(web: Running) -> None:
    """mkfs zeroes its tables of inodes: QEMU counts their bytes, and does not log them."""

    def work() -> None:
        time.sleep(1)
        device = facts(web.agent, FIND, "on-dv", "60")["device"]
        status, _, err = web.agent.run(
            "/usr/sbin/mkfs.ext4", "-q", "-F", "-b", "1024", "-g", "8192", "-E",
            "nodiscard,lazy_itable_init=0", device,
        )  # fmt: skip
        assert status == 0, err

    worker = Thread(target=work)
    worker.start()
    made = web.record("dv", seconds=5)
    worker.join()
    assert int((made.kind == IoKind.WRITE).sum()) > 5
    assert made.source.lost == 0
    assert any("discards, write-zeroes or queries" in note for note in made.source.notes)


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


def test_two_busy_nvme_disks_are_not_told_apart(web: Running) -> None:
    other = Thread(
        target=web.fio, args=("on-dm", "--ioengine=psync", "--rw=write", "--bs=64k", "--size=4M")
    )
    other.start()
    found, events, qemu = find_disk(LocalHost(), web.guest, "dn")
    assert not isinstance(events, NotTraced)
    wait = Wait(4, LOG_LIMIT, lambda: not other.is_alive())
    with open_ledger() as ledger:
        made = record_disk(
            LocalHost(), ledger, web.guest, found, events=events, qemu=qemu, wait=wait
        )
    other.join()
    assert isinstance(made, NotTraced)
    assert made.why.endswith("several nvme disks apart, and dm worked, too")


@dataclass
class Tiny:
    """The guest that is a boot sector."""

    process: subprocess.Popen[bytes]
    name: str
    directory: Path

    @property
    def guest(self) -> RunningGuest:
        return find_guest(LocalHost(), self.name)

    def record(self, seconds: float, limit: int = LOG_LIMIT) -> RecordedLoad:
        return Running(cast(Agent, None), self.guest).record("vd0", seconds, limit)

    def states(self) -> set[str]:
        with process_monitor(self.directory / "qmp", os.geteuid()) as monitor:
            states = monitor.execute("trace-event-get-state", {"name": "virtio_blk_*"})
        return {each["name"] for each in states if each["state"] == "enabled"}

    def command(self, *arguments: str) -> None:
        with process_monitor(self.directory / "qmp", os.geteuid()) as monitor:
            for word in arguments:
                monitor.execute(word)


@pytest.fixture
def tiny(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tiny]:
    (tmp_path / "disk").write_bytes(
        (BOOT_SECTOR.ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0")
    )
    name = f"vdisklab-test-{secrets.token_hex(4)}"
    times = ("-msg", "timestamp=on") if getattr(request, "param", True) else ()
    process = subprocess.Popen(
        ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-accel", "tcg", "-m", "32",
         "-name", f"guest={name},debug-threads=on", *times,
         "-drive", f"if=none,id=d0,file={tmp_path}/disk,format=raw",
         "-device", "virtio-blk-pci,drive=d0,id=vd0",
         "-qmp", f"unix:{tmp_path}/qmp,server=on,wait=off"],
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "qmp").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2)  # its firmware
        yield Tiny(process, name, tmp_path)
    finally:
        process.kill()
        process.wait()


def recordings(directory: Path) -> list[Path]:
    return list((directory / "recordings").iterdir())


@pytest.mark.parametrize("tiny", [True, False], indirect=True, ids=["times", "no-times"])
def test_a_boot_sector_reads_and_writes_in_turns(
    tiny: Tiny, state: Path, request: pytest.FixtureRequest
) -> None:
    made = tiny.record(3)
    reads, writes = made.kind == IoKind.READ, made.kind == IoKind.WRITE
    assert int(reads.sum()) > 5
    assert abs(int(reads.sum()) - int(writes.sum())) <= 1
    assert set(made.offset[reads].tolist()) == {512}
    assert set(made.offset[writes].tolist()) == {1024}
    assert int((made.kind == IoKind.FLUSH).sum()) == 0
    timed = request.node.callspec.params["tiny"]
    # Without times, a request in flight at an end cannot be told from a lost one.
    assert made.source.lost is not None
    assert made.source.lost <= (0 if timed else 1)
    assert made.is_timed[:-2].all() if timed else not made.is_timed.any()
    assert made.source.resolution_us == (1 if timed else 4000)
    assert (tiny.states(), recordings(state)) == (set(), [])


def test_a_log_has_a_limit(tiny: Tiny, state: Path) -> None:
    started = time.monotonic()
    made = tiny.record(60, limit=24_000)
    assert time.monotonic() - started < 30
    assert any("the log reached" in note for note in made.source.notes)
    assert len(made) > 5
    assert (tiny.states(), recordings(state)) == (set(), [])


def recorder(tiny: Tiny, output: str, seconds: str = "60") -> subprocess.Popen[str]:
    """`vdisklab record`, once the events are on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vdisklab", "record", tiny.name, "--for", seconds, "-o", output],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tiny.directory,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while "virtio_blk_req_complete" not in tiny.states():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it did not begin"
        time.sleep(0.3)
    return process


def test_a_killed_recording_leaves_nothing_on(tiny: Tiny, state: Path) -> None:
    """SIGKILL of vdisklab: its guard switches the events off, `clean` removes the log."""
    with recorder(tiny, "/dev/null") as process:
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while tiny.states():
        assert time.monotonic() < deadline, "the guard did nothing"
        time.sleep(0.3)
    assert len(recordings(state)) == 1
    kinds = [entry.kind for entry in remove_leftovers(LocalHost())]
    assert kinds == ["trace of guest", "file", "directory"]
    assert recordings(state) == []


def test_clean_switches_off_what_the_guard_could_not(tiny: Tiny, state: Path) -> None:
    with recorder(tiny, "/dev/null") as process:
        (guard,) = (
            int(each.name)
            for each in Path("/proc").glob("[0-9]*")
            if "recording.guard" in (text := cmdline(each)) and tiny.name in text
        )  # fmt: skip
        os.kill(guard, signal.SIGKILL)
        process.send_signal(signal.SIGKILL)
    time.sleep(1)
    assert tiny.states()
    assert len(list(remove_leftovers(LocalHost()))) == 3
    assert (tiny.states(), recordings(state)) == (set(), [])


def cmdline(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_ctrl_c_keeps_what_was_recorded(tiny: Tiny, state: Path) -> None:
    with recorder(tiny, "x.load") as process:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "the recording was ended after" in printed
    assert len(read_load(tiny.directory / "x.load")) > 2
    assert (tiny.states(), recordings(state)) == (set(), [])


def test_a_guest_that_ends_is_kept_so_far(tiny: Tiny, state: Path) -> None:
    with recorder(tiny, "x.load") as process:
        time.sleep(1)
        tiny.process.kill()
        tiny.process.wait()
        printed, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    assert "the guest stopped, or was moved away" in printed
    assert len(read_load(tiny.directory / "x.load")) > 2
    assert recordings(state) == []


def test_two_recordings_at_once_are_a_sentence(tiny: Tiny) -> None:
    with recorder(tiny, "/dev/null") as process:
        with pytest.raises(GuestError, match="another program traces this guest already"):
            find_disk(LocalHost(), tiny.guest, None)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert tiny.states() == set()


def test_statistics_where_qemu_has_no_events(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program answers at QEMU's socket, and refuses trace events as a QEMU without them does."""
    monkeypatch.chdir(tiny.directory)
    with without_events(tiny.directory / "qmp"):
        assert main(["record", tiny.name, "--for", "1h", "-o", "x.load"]) == WorkloadError.exit_code
        assert "vd0 of" in capsys.readouterr().err
        assert main(["record", tiny.name, "--for", "3s", "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert "counters are read instead, and no file is written" in " ".join(printed.err.split())
    answer = json.loads(printed.out)
    assert answer["only_statistics"] == "this QEMU has no trace event virtio_blk_handle_read"
    writes = sum(each["writes"] for each in answer["statistics"])
    assert writes > 5
    (latency,) = (each for each in answer["latencies"] if each["operation"] == "write")
    assert abs(latency["count"] - writes) < 60
    assert not list(tiny.directory.glob("*.load"))
    with process_monitor(tiny.directory / "qmp", os.geteuid()) as monitor:
        assert "latency_histogram" not in json.dumps(monitor.execute("query-blockstats"))


@contextmanager
def without_events(monitor: Path) -> Iterator[None]:
    """At the monitor's name a program that passes everything on but requests for trace events."""
    real = monitor.with_suffix(".real")
    monitor.rename(real)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(monitor))
        listener.listen()
        Thread(target=pass_on, args=(listener, real), daemon=True).start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    real.replace(monitor)


def pass_on(listener: socket.socket, real: Path) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, socket.socket(socket.AF_UNIX) as qemu:
            qemu.connect(os.fspath(real))
            answers = qemu.makefile("rb")
            client.sendall(answers.readline())
            request = b""
            while part := client.recv(1 << 16):
                request += part
                try:
                    command = json.loads(request)
                except ValueError:
                    continue
                if command["execute"].startswith("trace-event"):
                    error = {"class": "GenericError", "desc": "unknown event"}
                    answer = json.dumps({"error": error, "id": command.get("id")}).encode() + b"\n"
                else:
                    qemu.sendall(request)
                    while b'"event"' in (answer := answers.readline()):
                        pass
                client.sendall(answer)
                request = b""


def test_a_paused_guest_is_a_sentence(tiny: Tiny) -> None:
    tiny.command("stop")
    with pytest.raises(GuestError, match=r"does not run at the moment \(paused\)"):
        find_disk(LocalHost(), tiny.guest, None)
    tiny.command("cont")


def test_a_guest_that_asks_nothing_is_a_sentence(tiny: Tiny) -> None:
    found, events, qemu = find_disk(LocalHost(), tiny.guest, None)
    assert not isinstance(events, NotTraced)
    tiny.command("stop")
    with open_ledger() as ledger, pytest.raises(WorkloadError, match="asked nothing of vd0"):
        record_disk(
            LocalHost(), ledger, tiny.guest, found, events=events, qemu=qemu,
            wait=Wait(1, LOG_LIMIT, lambda: False),
        )  # fmt: skip
    assert tiny.states() == set()


def test_a_monitor_in_use_is_a_sentence(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vdisklab.recording.guests._BUSY_SECONDS", 1.0)
    guest = tiny.guest
    with (
        process_monitor(Path(guest.socket), guest.user),
        pytest.raises(GuestError, match="another program holds the monitor"),
    ):
        find_disk(LocalHost(), guest, None)
