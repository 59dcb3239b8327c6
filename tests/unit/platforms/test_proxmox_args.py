"""Disks in the `args` of a guest of Proxmox VE: `qm set` takes all arguments at once."""

from __future__ import annotations

import shlex

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests

DRIVE = "-drive file=/srv/x.raw,format=raw,if=none,id=d1,cache={} -device virtio-blk-pci,drive=d1"
NODE = "-blockdev driver=file,node-name=f,filename=/srv/x.raw,{} -device 'virtio-blk-pci,drive=f'"


def conf(args: str) -> GuestText:
    return GuestText(f"args: {args}\nmemory: 512\nname: a\n", "105.conf")


@pytest.mark.parametrize(
    ("args", "to", "new"),
    [
        (DRIVE.format("unsafe") + " -cpu host", "raw/none", DRIVE.format("none") + " -cpu host"),
        (DRIVE.format("unsafe,aio=threads"), "raw/none",
         DRIVE.replace("cache={}", "aio=threads,cache=none")),
        (DRIVE.format("none"), "raw/none/virtio:aio=native",
         DRIVE.replace("{}", "none,aio=native")),
        (NODE.format("cache.no-flush=on"), "raw/writeback",
         NODE.format("cache.direct=off,cache.no-flush=off")),
    ],
)  # fmt: skip
def test_the_line_sets_all_arguments_of_the_guest(args: str, to: str, new: str) -> None:
    (disk,) = read_guests([conf(args)])
    change = change_of(disk, parse_path(to))
    assert shlex.split(change.undo) == ["qm", "set", "105", "--args", args]
    *command, text = shlex.split(change.paste)
    assert command == ["qm", "set", "105", "--args"]
    assert shlex.split(text) == shlex.split(new)
    (changed,) = read_guests([conf(text)])
    assert changed.path == parse_path(to)


def test_the_other_disks_stay_as_they_are() -> None:
    other = " -drive file=/srv/o.raw,format=raw,if=virtio,cache=unsafe"
    disks = {disk.target: disk for disk in read_guests([conf(DRIVE.format("unsafe") + other)])}
    change = change_of(disks["d1"], parse_path("raw/none"))
    after = {disk.target: disk for disk in read_guests([conf(shlex.split(change.paste)[-1])])}
    assert str(after["d1"].path) == "raw/none"
    assert after["virtio0"].path == disks["virtio0"].path


def test_what_no_word_sets_is_said() -> None:
    (disk,) = read_guests([conf(DRIVE.format("unsafe"))])
    with pytest.raises(NotChangeableError, match="no one word of the guest's args") as refused:
        change_of(disk, parse_path("raw/none/virtio:iothread=on"))
    assert "`qm set 105 --args` takes all arguments" in str(refused.value.hint)


@pytest.mark.parametrize(
    "script",
    [
        "qm create 105 --name a --args '{}'\n",
        "qm create 105 --name a\nqm set 105 --args '{}' --memory 2048\n",
        "qm create 105 --name a\nqm set 105 -args='{}'\n",
        "qm create 105 --name a\nqm set 105 --args '-nodefaults'\nqm set 105 --args '{}'\n",
        'qm create 105 --name a\nA="{}"; qm set 105 --args "$A"\n',
        "pvesh create /nodes/n/qemu --vmid 105 --name a --args '{}'\n",
    ],
)
def test_a_script_gives_the_arguments_of_a_conf(script: str) -> None:
    args = DRIVE.format("unsafe")
    (disk,) = read_guests([GuestText(script.format(args), "make.sh")])
    (same,) = read_guests([conf(args)])
    assert (disk.path, disk.target, disk.guest, disk.domain) == (same.path, "d1", "105", "a")
    assert shlex.split(change_of(disk, parse_path("raw/none")).undo)[-1] == args


def test_an_option_without_a_value_is_followed_by_the_next() -> None:
    """A disk behind it is not its value."""
    script = "qm create 105 --onboot --virtio0 /srv/x.raw,cache=unsafe --args -nodefaults\n"
    (disk,) = read_guests([GuestText(script, "make.sh")])
    assert (disk.target, disk.drops_flushes) == ("virtio0", True)


@pytest.mark.parametrize("number", ["$1", "${1:-105}", "$(pvesh get /cluster/nextid)"])
def test_a_number_that_is_not_known_is_a_placeholder(number: str) -> None:
    script = f"qm set {number} --args '{DRIVE.format('unsafe')}'\n"
    (disk,) = read_guests([GuestText(script, "make.sh")])
    assert change_of(disk, parse_path("raw/none")).paste.startswith("qm set VMID --args '-drive ")
