"""What is lost with a process was the process's end, also before the kernel tells its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.host.namespaces import die_slowly, first_process
from tests.unit.guest.qemu.test_storage_daemon import plain
from vdisklab.host.ledger import open_ledger
from vdisklab.host.waiting import exit_status
from vdisklab.powercut.nbd import NbdDisk, restarting_daemon
from vdisklab.value import replace

pytestmark = pytest.mark.host


def test_a_process_whose_files_are_closed_has_ended() -> None:
    ours, theirs = socket.socketpair()
    with ExitStack() as stack, ours:
        with first_process(), theirs:
            process = subprocess.Popen(["sleep", "60"], pass_fds=[theirs.fileno()])
        die_slowly(stack, process.pid)
        assert exit_status(process) is None
        process.kill()
        assert ours.recv(1) == b""
        assert process.poll() is None
        assert exit_status(process) == -signal.SIGKILL


def test_a_daemon_that_is_killed_says_nothing_about_its_image(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    disk = replace(plain("raw/none", image), size=1 << 20, driver="raw")
    shot: list[int] = []

    def use(opened: NbdDisk) -> None:
        if not shot:
            shot.append(first.pid)
            os.kill(first.pid, signal.SIGKILL)
        opened.sync()

    with (
        ExitStack() as stack,
        open_ledger(tmp_path / "state") as ledger,
        restarting_daemon(ledger, tmp_path, f"vdisklab-{ledger.run_id}") as daemons,
    ):
        with first_process():
            first = daemons.running()
        die_slowly(stack, first.pid)
        daemons.with_disk(disk, use)
        assert daemons.running().pid not in shot
