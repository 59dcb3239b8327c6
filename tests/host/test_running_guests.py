"""The disks of a running QEMU are read as they are now, with one command that changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.made_processes import make_process
from vdisklab.host.waiting import wait_until
from vdisklab.inspection.existing_guests import DEADLINE, query_block, running_disks
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import Bus

QEMU = shutil.which("qemu-system-x86_64")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Path]:
    """A directory like /proc with one QEMU, which is stopped before its first instruction."""
    (tmp_path / "a.img").write_bytes(bytes(1 << 20))
    assert QEMU is not None
    arguments = (
        QEMU, "-name", "web", "-S", "-nodefaults", "-display", "none", "-machine", "q35,accel=tcg",
        "-blockdev", f"driver=file,node-name=f,filename={tmp_path}/a.img",
        "-blockdev", "driver=raw,node-name=r,file=f,cache.direct=off,cache.no-flush=off",
        "-device", "virtio-blk-pci,drive=r,id=d0",
        "-chardev", "socket,id=m,path=m.sock,server=on,wait=off", "-mon", "m,mode=control",
    )  # fmt: skip
    with subprocess.Popen(arguments, cwd=tmp_path) as qemu:
        try:
            wait_until((tmp_path / "m.sock").exists, timeout=30, what="QEMU's monitor")
            (tmp_path / "proc").mkdir()
            (tmp_path / "proc" / str(qemu.pid)).symlink_to(f"/proc/{qemu.pid}")
            yield tmp_path / "proc"
        finally:
            qemu.kill()


@pytest.mark.skipif(QEMU is None, reason="QEMU is missing")
def test_a_snapshot_moves_the_disk(processes: Path, tmp_path: Path) -> None:
    (before,) = running_disks(processes)
    assert before.path == parse_path("raw/writeback")
    assert before.source == str(tmp_path / "a.img")
    snapshot = {
        "node-name": "r",
        "snapshot-file": f"{tmp_path}/b.qcow2",
        "format": "qcow2",
        "snapshot-node-name": "s",
    }
    with socket.socket(socket.AF_UNIX) as monitor, monitor.makefile("r") as answers:
        monitor.connect(str(tmp_path / "m.sock"))
        for command in (
            {"execute": "qmp_capabilities"},
            {"execute": "blockdev-snapshot-sync", "arguments": snapshot, "id": 1},
        ):
            monitor.sendall(json.dumps(command).encode())
        answer = next(line for line in answers if '"id": 1' in line)
    assert "error" not in answer
    (after,) = running_disks(processes)
    assert after.source == str(tmp_path / "b.qcow2")
    assert after.path == parse_path("qcow2/writeback")


@pytest.mark.parametrize("greeting", [b"", b"\xff{]\n", b'{"id": 1}\n', b"[" * 9000 + b"\n"])
def test_a_monitor_that_does_not_answer_is_left_alone(tmp_path: Path, greeting: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "q.sock"))
        silent.listen()
        silent.settimeout(5)
        began = time.monotonic()
        if greeting:

            def greet() -> None:
                with silent.accept()[0] as client:
                    client.sendall(greeting)
                    time.sleep(0.2)

            thread = threading.Thread(target=greet)
            thread.start()
            assert query_block(tmp_path / "q.sock", os.geteuid()) is None
            thread.join()
        else:
            assert query_block(tmp_path / "q.sock", os.geteuid()) is None
        assert time.monotonic() - began < DEADLINE + 10
    assert query_block(tmp_path / "nothing", os.geteuid()) is None


def test_a_served_disk_is_read_from_its_running_daemon(tmp_path: Path) -> None:
    commands = {
        "7": "qemu-storage-daemon --blockdev driver=file,node-name=n,filename=/srv/x.img "
        "--blockdev driver=raw,node-name=r,file=n "
        "--export type=vhost-user-blk,id=e,node-name=r,addr.type=unix,addr.path=/run/a.sock",
        "8": "qemu-system-x86_64 -name web -chardev socket,id=a,path=/run/a.sock "
        "-device vhost-user-blk-pci,chardev=a,id=d",
    }
    for number, command in commands.items():
        make_process(tmp_path, int(number), command.split())
    (disk,) = running_disks(tmp_path)
    assert (disk.guest, disk.source) == ("web", "/srv/x.img")
    assert disk.path is not None
    assert disk.path.attachment.bus is Bus.VHOSTUSER
