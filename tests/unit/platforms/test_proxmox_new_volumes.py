"""Volumes that a script lets Proxmox VE name: no printed command has a name that nobody gave."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests

STORAGES = "lvmthin: thin\n\tthinpool data\n\tvgname pve\ndir: shelf\n\tpath /srv\n"
TO = "lvmthin/none/virtio:aio=io_uring:detect_zeroes=on"
QM = """#!/bin/sh
if [ "$1" = config ]; then
    [ "$2" = 9 ] && printf 'memory: 512\\nvirtio10: thin:x\\nvirtio1: thin:vm-9-disk-7,size=8G\\n'
else
    for word; do printf '%s\\n' "$word"; done
fi
"""


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("qm set 9 --virtio1 thin:8,cache=unsafe\n", ""),
        ("qm set 9 --virtio1 thin:0,import-from=/root/x.img,cache=unsafe,serial=a\n", ",serial=a"),
        ("qm set 9 --virtio1 thin:0,cache=unsafe,import-from=shelf:import/x.qcow2\n", ""),
        ("qm set $1 --virtio1 thin:8,cache=unsafe\n", ""),
        ("VMID=${1:-9}\nqm set $VMID --virtio1 thin:vm-$VMID-disk-7,cache=unsafe\n", ""),
    ],
)
def test_the_commands_take_the_volume_that_the_guest_has(
    script: str, options: str, tmp_path: Path
) -> None:
    texts = [GuestText(script, "make.sh"), GuestText(STORAGES, "storage.cfg")]
    (disk,) = read_guests(texts)
    change = change_of(disk, parse_path(TO))
    program = tmp_path / "qm"
    program.write_text(QM)
    program.chmod(0o755)
    for command, cache in ((change.paste, "cache=none,aio=io_uring"), (change.undo, "cache=")):
        ran = subprocess.run(  # noqa: S602
            command.replace("VMID", "9"), shell=True, check=True, capture_output=True, text=True,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        )  # fmt: skip
        *before, line = ran.stdout.splitlines()
        assert before == ["set", "9", "--virtio1"]
        assert line.startswith("thin:vm-9-disk-7,")
        assert options in line
        assert cache in line
        assert "import-from" not in line


def test_a_volume_that_the_script_names_stays() -> None:
    script = "qm set 9 --virtio1 thin:vm-9-disk-7,cache=unsafe\n"
    (disk,) = read_guests([GuestText(script, "make.sh"), GuestText(STORAGES, "storage.cfg")])
    undo = change_of(disk, parse_path(TO)).undo
    assert undo == "qm set 9 --virtio1 thin:vm-9-disk-7,cache=unsafe"
