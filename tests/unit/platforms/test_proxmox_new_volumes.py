"""Volumes that a script lets Proxmox VE name: no printed command has a name that nobody gave."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import CacheMode
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.where_set import write_there
from vdisklab.value import replace

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


def read(script: str, *texts: GuestText) -> list[ConfiguredDisk]:
    named = GuestText(STORAGES, "storage.cfg")
    return list(read_guests([GuestText(script, "make.sh"), named, *texts]))


def test_a_new_volume_has_no_name_that_nobody_gave() -> None:
    script = "qm set 9 --virtio0 thin:8 --virtio1 shelf:8,format=qcow2 --virtio2 gone:8\n"
    disks = read(script)
    assert [disk.source for disk in disks] == [
        "/dev/pve/vm-9-disk-N", "/srv/images/vm-9-disk-N.qcow2", "a new volume on gone",
    ]  # fmt: skip
    both = read("qm set 9 --virtio0 shelf:8 --virtio1 shelf:8\n")
    assert [disk.written_by for disk in both] == ["", ""]


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("#!/bin/sh\n\nqm set 9 --virtio1 thin:8,cache=unsafe\n", "`cache` in line 3 of make.sh"),
        ("qm create 9 \\\n  --memory 512 \\\n  --virtio1 thin:8,cache=unsafe \\\n  --ostype l26\n",
         "`cache` in line 3 of make.sh"),
        ("C=unsafe\nqm create 9\nqm set 9 --virtio1 thin:8,cache=$C\n", "`C` in line 1 of make.sh"),
        ("qm create 9 --virtio1 thin:8\nqm set 9 --virtio1 thin:9,cache=unsafe\n",
         "`cache` in line 2 of make.sh"),
        ("Do this:\n\n```\nqm create 9 --virtio1 thin:8,cache=unsafe\n```\n",
         "`cache` in line 4 of make.sh"),
        ("pvesh create /nodes/n/qemu -vmid 9 \\\n -virtio1 thin:8,cache=unsafe\n",
         "`cache` in line 2 of make.sh"),
    ],
)  # fmt: skip
def test_the_line_of_the_script_that_sets_a_cache_mode_is_known(script: str, place: str) -> None:
    (disk,) = read(script)
    assert disk.changed_at == place
    write = "cache=none" if "`cache`" in place else "C=none"
    assert write_there(place, "none") == f"{place.partition('` ')[2]} write {write}"


EXISTING = "qm set 9 --scsi1 thin:vm-9-disk-1,cache=unsafe\n"


def test_the_controller_of_a_guest_that_exists_is_not_lsi() -> None:
    (disk,) = read(EXISTING)
    assert disk.path is None
    assert (disk.problem or "").startswith("its controller is not known, as `qm set` in make.sh")
    assert "qm config 9 > 9.conf" in (disk.problem or "")
    assert disk.drops_flushes
    # The cache mode can be changed without it.
    assert disk.assumed is not None
    change = change_of(disk, replace(disk.assumed, cache=CacheMode.NONE))
    assert change.paste == "qm set 9 --scsi1 thin:vm-9-disk-1,cache=none"


@pytest.mark.parametrize(
    ("before", "bus"),
    [
        ("qm create 9 --memory 512\n", None),
        ("qm create 8 --scsihw virtio-scsi-pci\nqm template 8\nqm clone 8 9\n", "scsi"),
        ("qm set 9 --scsihw virtio-scsi-single\n", "scsi"),
    ],
)
def test_the_controller_of_a_guest_that_the_script_makes_is_its_own(
    before: str, bus: str | None
) -> None:
    *_, disk = read(f"{before}{EXISTING}")
    if bus is None:  # Proxmox VE's default
        assert "its controller 'lsi'" in (disk.problem or "")
    else:
        assert str(disk.path).startswith("lvmthin/unsafe/scsi")


def test_the_controller_of_a_guest_is_that_of_its_file() -> None:
    conf = "name: db\nscsihw: virtio-scsi-pci\nscsi1: thin:vm-9-disk-1\n"
    disk, filed = read(EXISTING, GuestText(conf, "9.conf"))
    assert str(disk.path).startswith("lvmthin/unsafe/scsi")
    assert filed.path is not None
    assert (disk.written_by, filed.written_by) == ("", "")  # one disk of one guest
