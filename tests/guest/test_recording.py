"""A real guest is recorded, and nothing stays on: what fio does on each bus is in test_guest_boot.

The guest is a boot sector: it reads and writes a sector, and halts until the BIOS's timer ticks, 18
times a second. Without its `hlt` it would keep a CPU busy as long as it runs.
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest

from tests.guest.recorded import Recorded
from vdisklab.actions.clean import remove_leftovers
from vdisklab.cli.shell.main import main
from vdisklab.errors import GuestError, WorkloadError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.inspection.existing_guests import process_monitor
from vdisklab.loads.load import IoKind, RecordedLoad
from vdisklab.loads.load_file import read_load
from vdisklab.recording.guests import RunningGuest, find_guest
from vdisklab.recording.recorder import LOG_LIMIT, NotTraced, Wait, find_disk, record_disk
from vdisklab.value import replace

pytestmark = pytest.mark.guest

BOOT_SECTOR = bytes.fromhex(
    "31c0 8ec0 8ed8"  # xor ax,ax; mov es,ax; mov ds,ax
    "bb0080 b80102 b90200 ba8000 cd13"  # read the second sector (int 13h)
    "bb0080 b80103 b90300 ba8000 cd13"  # write the third
    "fb f4"  # sti; hlt
    "ebe0"  # again
)


@pytest.fixture(autouse=True)
def own_state(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(state))


@dataclass
class Tiny:
    """The guest that is a boot sector; recordings of it go to `place`."""

    process: subprocess.Popen[bytes]
    name: str
    monitor: Path
    place: Path

    @property
    def guest(self) -> RunningGuest:
        return find_guest(LocalHost(), self.name)

    def record(self, seconds: float, limit: int = LOG_LIMIT) -> RecordedLoad:
        return Recorded(self.guest).record("vd0", seconds, limit)

    def states(self) -> set[str]:
        with process_monitor(self.monitor, os.geteuid()) as monitor:
            states = monitor.execute("trace-event-get-state", {"name": "virtio_blk_*"})
        return {each["name"] for each in states if each["state"] == "enabled"}

    def command(self, *arguments: str) -> None:
        with process_monitor(self.monitor, os.geteuid()) as monitor:
            for word in arguments:
                monitor.execute(word)


@contextmanager
def boot_sector_guest(directory: Path, *, times: bool = True) -> Iterator[Tiny]:
    """The guest, once its firmware has started it; with `times` QEMU writes them into its log."""
    image, monitor = directory / "disk", directory / "qmp"
    image.write_bytes((BOOT_SECTOR.ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0"))
    name = f"vdisklab-test-{secrets.token_hex(4)}"
    process = subprocess.Popen(
        ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-accel", "tcg", "-m", "32",
         "-name", f"guest={name},debug-threads=on", *(("-msg", "timestamp=on") if times else ()),
         "-drive", f"if=none,id=d0,file={image},format=raw",
         "-device", "virtio-blk-pci,drive=d0,id=vd0",
         "-qmp", f"unix:{monitor},server=on,wait=off"],
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not monitor.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2)  # its firmware
        yield Tiny(process, name, monitor, directory)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    with boot_sector_guest(tmp_path_factory.mktemp("tiny")) as made:
        yield made


@pytest.fixture
def tiny(shared: Tiny, tmp_path: Path) -> Iterator[Tiny]:
    """The guest of all tests that leave it as it was, which each of them must."""
    yield replace(shared, place=tmp_path)
    assert (shared.states(), shared.process.poll()) == (set(), None)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Tiny]:
    """A guest for one test, which may end it."""
    with boot_sector_guest(tmp_path) as made:
        yield made


def recordings(directory: Path) -> list[Path]:
    return list((directory / "recordings").iterdir())


@pytest.mark.parametrize("timed", [True, False], ids=["times", "no-times"])
def test_a_boot_sector_reads_and_writes_in_turns(
    tiny: Tiny, state: Path, tmp_path: Path, timed: bool
) -> None:
    with ExitStack() as stack:
        guest = tiny if timed else stack.enter_context(boot_sector_guest(tmp_path, times=False))
        made = guest.record(3)
        still_on = guest.states()
    reads, writes = made.kind == IoKind.READ, made.kind == IoKind.WRITE
    assert int(reads.sum()) > 5
    assert abs(int(reads.sum()) - int(writes.sum())) <= 1
    assert set(made.offset[reads].tolist()) == {512}
    assert set(made.offset[writes].tolist()) == {1024}
    assert int((made.kind == IoKind.FLUSH).sum()) == 0
    # Without times, a request in flight at an end cannot be told from a lost one.
    assert made.source.lost is not None
    assert made.source.lost <= (0 if timed else 1)
    assert made.is_timed[:-2].all() if timed else not made.is_timed.any()
    assert made.source.resolution_us == (1 if timed else 4000)
    assert (still_on, recordings(state)) == (set(), [])


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
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tiny.place,
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
    assert len(read_load(tiny.place / "x.load")) > 2
    assert (tiny.states(), recordings(state)) == (set(), [])


def test_a_guest_that_ends_is_kept_so_far(mortal: Tiny, state: Path) -> None:
    with recorder(mortal, "x.load") as process:
        time.sleep(1)
        mortal.process.kill()
        mortal.process.wait()
        printed, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    assert "the guest stopped, or was moved away" in printed
    assert len(read_load(mortal.place / "x.load")) > 2
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
    monkeypatch.chdir(tiny.place)
    with without_events(tiny.monitor):
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
    assert not list(tiny.place.glob("*.load"))
    with process_monitor(tiny.monitor, os.geteuid()) as monitor:
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
    tiny.command("cont")
    assert tiny.states() == set()


def test_a_monitor_in_use_is_a_sentence(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vdisklab.recording.guests._BUSY_SECONDS", 1.0)
    guest = tiny.guest
    with (
        process_monitor(Path(guest.socket), guest.user),
        pytest.raises(GuestError, match="another program holds the monitor"),
    ):
        find_disk(LocalHost(), guest, None)
