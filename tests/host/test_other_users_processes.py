"""Root reads no process of another user's, and opens nothing that a guest's process could not."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from vdisklab.answers.disks import place_of
from vdisklab.host.waiting import wait_until
from vdisklab.inspection.disk_on_host import read_contexts
from vdisklab.inspection.existing_guests import running_disks
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import UNKNOWN_CONTEXT

NOBODY = 65534
QCOW2 = b"QFI\xfb" + bytes(600)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user may search."""
    with tempfile.TemporaryDirectory(prefix="vdisklab-test-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@contextmanager
def pretended(
    program: Path, command_line: Sequence[str], script: str = "sleep 60; :"
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of nobody's that says it is QEMU, and runs a shell's script."""
    arguments = ["qemu-system-x86_64", "-c", script, "-nodefaults", *command_line]
    with subprocess.Popen(arguments, executable=str(program), user=NOBODY, group=NOBODY) as process:
        try:
            yield process
        finally:
            process.kill()


def read(process: subprocess.Popen[bytes], directory: Path) -> tuple[list[ConfiguredDisk], str]:
    """The disks of that process alone, and the notes."""
    processes = directory / "proc"
    processes.mkdir()
    (processes / str(process.pid)).symlink_to(f"/proc/{process.pid}")
    notes: list[str] = []
    return list(running_disks(processes, notes)), "".join(notes)


def test_a_process_that_calls_itself_qemu_leads_nowhere(shared: Path) -> None:
    with pretended(Path("/bin/sh"), ["-drive", "file=/etc/shadow,format=qcow2"]) as process:
        assert read(process, shared) == (
            [], f"Not read: process {process.pid} (belongs to nobody)."
        )  # fmt: skip


def test_no_file_is_opened_that_the_guest_has_not_open(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller of sudo is believed, and gets none of root's rights by it."""
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    program, secret, mine = shared / "qemu-system-x86_64", shared / "secret", shared / "own"
    shutil.copy("/bin/sh", program)
    for file in (secret, mine):
        file.write_bytes(QCOW2)
    secret.chmod(0o600)
    os.chown(mine, NOBODY, NOBODY)
    arguments = [word for file in (secret, mine) for word in ("-drive", f"file={file},if=virtio")]
    with pretended(program, arguments, f"exec 4<{mine}; sleep 60; :") as process:
        fd = Path(f"/proc/{process.pid}/fd/4")
        wait_until(fd.exists, timeout=10, what="the process's open file")
        disks, notes = read(process, shared)
    assert notes == ""
    by_source = {disk.source: disk for disk in disks}
    assert str(by_source[str(mine)].path) == "qcow2/default"
    assert by_source[str(secret)].path is None  # its format is in the file
    contexts = dict(zip(by_source, read_contexts(disks), strict=True))
    assert contexts[str(secret)] == UNKNOWN_CONTEXT
    assert contexts[str(mine)].header is not None
    assert place_of(by_source[str(secret)]) is None
    assert place_of(by_source[str(mine)]) == shared


@pytest.mark.parametrize("owner", [0, NOBODY])
def test_a_socket_of_another_user_is_not_connected_to(
    shared: Path, monkeypatch: pytest.MonkeyPatch, owner: int
) -> None:
    """Neither if the socket's file was given to the guest's user: root listens."""
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    program, place = shared / "qemu-system-x86_64", shared / "private.sock"
    shutil.copy("/bin/sh", program)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        place.chmod(0o600)
        os.chown(place, owner, owner)
        listening.listen()
        listening.settimeout(1)
        arguments = ["-drive", "file=/x,format=raw,if=virtio", "-qmp", f"unix:{place}"]
        with pretended(program, arguments) as process:
            time.sleep(0.2)
            disks, _ = read(process, shared)
        assert [str(disk.path) for disk in disks] == ["raw/default"]
        if owner == NOBODY:  # only the connection shows who listens
            with listening.accept()[0] as end:
                assert end.recv(100) == b""
        with pytest.raises(TimeoutError):
            listening.accept()
