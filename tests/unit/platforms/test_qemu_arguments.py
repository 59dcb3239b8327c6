"""QEMU's arguments in their many spellings: none hides a disk, a cache mode or a setting."""

from __future__ import annotations

import json

import pytest

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk, loses_writes
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.qemu_arguments import disks_of_arguments
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import (
    ErrorsIgnored,
    FlushesDropped,
    IdleAio,
    LimitsBeyondPath,
    ReadErrorsIgnored,
)

QEMU = "qemu-system-x86_64 -m 1G "
FILE = "-blockdev driver=file,node-name=f,filename=/vm/a.img"
QCOW2 = "-blockdev driver=qcow2,node-name=q,file=f"
DISK = "-device virtio-blk-pci,id=d,drive="


def read(arguments: str, program: str = QEMU) -> tuple[ConfiguredDisk, ...]:
    return read_guests([GuestText(program + arguments, "guest.sh")])


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        # Nodes in nodes inherit the flags; a node with a name does not.
        ("-blockdev driver=qcow2,node-name=q,cache.no-flush=on,file.driver=file,"
         f"file.filename=/vm/a.img {DISK}q", "qcow2/unsafe"),
        ("-blockdev driver=qcow2,node-name=q,cache.direct=on,file.driver=raw,file.file.driver=file,"
         f"file.file.filename=/vm/a.img,file.cache.no-flush=on {DISK}q", "qcow2/directunsafe"),
        (f"{FILE},cache.no-flush=on -blockdev driver=throttle,node-name=t,throttle-group=g,file=q "
         f"{QCOW2} {DISK}t", "qcow2/unsafe"),
        (f"{FILE},cache.no-flush=yes -blockdev driver=preallocate,node-name=p,file=f "
         f"-blockdev driver=copy-on-read,node-name=c,file=p {DISK}c", "raw/unsafe"),
        # A -drive in JSON, by driver, and by the file's own options.
        ('-drive if=virtio,cache=unsafe,file=json:{"driver":"qcow2"\\,'
         '"file":{"driver":"file"\\,"filename":"/vm/a.img"}}', "None"),
        ("-drive if=virtio,driver=raw,file.driver=file,file.filename=/vm/a.img,cache=unsafe",
         "raw/unsafe"),
        ("-drive if=virtio,format=raw,file=file:/vm/a.img,file.locking=off,cache=unsafe",
         "raw/unsafe"),
        ("-drive if=virtio,driver=host_device,filename=/dev/v/l,cache=none", "none"),
        # What changes others.
        ("-drive if=none,id=x,file=/vm/a.img,format=raw -set drive.x.cache=unsafe "
         f"{DISK}x", "raw/unsafe"),
        ("-drive if=none,id=x,file=/vm/a.img,format=raw -set drive.x.cache.no-flush=on "
         f"{DISK}x", "raw/unsafe"),
        (f"{FILE} {DISK}f -set device.d.write-cache=off", "raw/default/virtio:write_cache=off"),
        (f"{FILE} {DISK}f -global virtio-blk-pci.write-cache=off",
         "raw/default/virtio:write_cache=off"),
        (f"{FILE} {DISK}f -global driver=virtio-blk-device,property=write-cache,value=off",
         "raw/default/virtio:write_cache=off"),
        (f"{FILE} {DISK}f,write-cache=on -global virtio-blk-pci.write-cache=off",
         "raw/default/virtio:write_cache=on"),
        ("-drive if=virtio,format=raw,file=/vm/a.img,cache=none -global "
         "virtio-blk-pci.write-cache=off", "raw/directsync"),
        # The controller that a device does not name; a disk of PIIX without a unit.
        (f"{FILE} -device virtio-scsi-pci -device scsi-hd,drive=f", "raw/default/scsi"),
        (f"-M pc {FILE} -device ide-hd,drive=f,bus=ide.0", "raw/default/ide"),
        (f"-M pc {FILE} -device ich9-ahci,id=s -device ide-hd,drive=f,bus=s.0",
         "raw/default/sata"),
        (f"{FILE} -device nvme,id=n,max_ioqpairs=4 -device nvme-ns,drive=f,bus=n",
         "raw/default/nvme:queues=4"),
        # Discards end at the first node that ignores them.
        (f"{FILE} -blockdev driver=raw,node-name=r,file=f,discard=unmap {DISK}r", "raw/default"),
        (f"{FILE},discard=unmap -blockdev driver=raw,node-name=r,file=f,discard=unmap {DISK}r",
         "raw/default/virtio:discard=unmap"),
        # Words that belong to no option.
        ("-nographic /vm/a.img -snapshot", "raw/default/ide"),
        ("-drive file=/vm/a#1.img,format=raw,if=virtio,cache=unsafe # the best", "raw/unsafe"),
        ("-drive file=/vm/a.img,format=raw,if=virtio,cache=unsafe > log 2>&1 &\necho -drive",
         "raw/unsafe"),
        ("\\\n  # -drive file=/vm/old.img \\\n  -drive file=/vm/a.img,format=raw,cache=none",
         "raw/none/ide"),
    ],
)  # fmt: skip
def test_each_spelling_is_read(arguments: str, path: str) -> None:
    (disk,) = read(arguments)
    assert str(disk.path) == ("None" if path == "None" else str(parse_path(path)))
    if "unsafe" in path:
        assert FlushesDropped() in risks(disk)


def test_json_in_a_file_name_is_read() -> None:
    node = {"driver": "qcow2", "file": {"driver": "file", "filename": "/vm/a.img"}}
    spelled = json.dumps(node).replace(",", ",,")
    arguments = ["qemu-system-x86_64", "-drive", f"if=virtio,cache=unsafe,file=json:{spelled}"]
    (disk,) = read_guests([GuestText("\0".join(arguments), "p")])
    assert (str(disk.path), disk.source) == ("qcow2/unsafe", "/vm/a.img")


@pytest.mark.parametrize(
    ("program", "bus"),
    [
        ("qemu-system-aarch64 -M virt ", ""),
        ("qemu-system-s390x ", ""),
        ("qemu-system-x86_64 -M microvm ", None),
        ("qemu-system-arm -M raspi2b ", None),
    ],
)
def test_the_machine_decides_about_a_drive_without_an_interface(
    program: str, bus: str | None
) -> None:
    (disk,) = read("-drive file=/vm/a.img,format=raw,cache=unsafe", program)
    assert (disk.path is None) if bus is None else str(disk.path) == f"raw/unsafe{bus}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (f"{DISK}g", "its drive 'g' is not in the arguments"),
        (f"{FILE} {QCOW2} {DISK}q -blockdev driver=file,node-name=z,filename=/vm/z",
         "no device here has the node 'z'"),
        ("-drive file=/vm/a.img,if=none,id=x", "no device here has the node 'x'"),
        (f"-blockdev driver=qcow2,node-name=q,file=gone {DISK}q", "the node of its file is not in"),
        (f"-blockdev driver=null-co,node-name=n {DISK}n", "its storage is 'null-co'"),
        (f"{FILE} -blockdev driver=blkdebug,node-name=b,image=f {DISK}b", "format 'blkdebug'"),
        (f"{FILE} {QCOW2} -blockdev driver=luks,node-name=l,file=q {DISK}l", "luks on qcow2"),
        (f"{FILE} -blockdev driver=nbd,node-name=n {QCOW2},data-file=n {DISK}q",
         "its storage is 'nbd'"),
        (f"{FILE} -device lsi,id=s -device scsi-hd,drive=f,bus=s.0", "controller 'lsi'"),
        (f"{FILE} -device scsi-hd,drive=f", "controller"),
        (f"{FILE} -device scsi-generic,drive=f", "SCSI commands go straight to the device"),
        ("-drive if=sd,file=/vm/a.img,format=raw", "does not know the device 'sd'"),
        ("-drive if=virtio,file=/vm/a.img,cache=$CACHE", "cache mode is $CACHE, a variable"),
        ("$DISKS", "a shell puts arguments in place of $DISKS"),
        ('-nographic "$@"', "a shell puts arguments in place of $@"),
        ("-drive $DISK", "a shell puts arguments in place of $DISK"),
        ("-sd /vm/a.img", "disks of -sd"),
        ("-device nvdimm,memdev=m -object memory-backend-file,id=m,mem-path=/vm/a.img",
         "the device 'nvdimm'"),
        ("-device usb-mtp,rootdir=/vm", "the device 'usb-mtp'"),
        ("-device vhost-scsi-pci,wwpn=naa.1", "the device 'vhost-scsi-pci'"),
    ],
)  # fmt: skip
def test_what_may_be_a_disk_is_named(arguments: str, said: str) -> None:
    named = [disk for disk in read(arguments) if disk.path is None]
    assert [said in (disk.problem or "") for disk in named] == [True]


def test_a_drive_that_is_not_measured_drops_flushes_all_the_same() -> None:
    arguments = "-drive if=sd,file=/vm/a.img,format=raw,cache=unsafe"
    (disk,) = read(arguments)
    assert risks(disk) == (FlushesDropped(),)


def test_the_file_of_the_data_counts_too() -> None:
    data = "-blockdev driver=file,node-name=e,filename=/vm/a.data,cache.no-flush=on"
    (disk,) = read(f"{FILE} {data} {QCOW2},data-file=e {DISK}q")
    assert str(disk.path) == "qcow2:data_file=on/default"
    assert FlushesDropped() in risks(disk)
    assert loses_writes(disk) == "its cache mode drops flushes"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (f"{FILE} -blockdev driver=copy-on-read,node-name=c,file=f {DISK}c", ("copy-on-read",)),
        ("-drive if=virtio,format=raw,file=/vm/a.img,copy-on-read=on", ("copy-on-read=on",)),
        (f"{FILE} -blockdev driver=raw,node-name=r,file=f,offset=512,size=1024 {DISK}r",
         ("offset=512", "size=1024")),
        (f"{FILE} {DISK}f,ioeventfd=off,event_idx=on", ("ioeventfd=off",)),
        (f"{FILE} {DISK}f,logical_block_size=512,physical_block_size=4096",
         ("physical_block_size=4096",)),
        (f"{FILE} -device usb-storage,drive=f,logical_block_size=4096,physical_block_size=4096",
         ("block_size=4096",)),
        (f"{FILE},aio-max-batch=7 {DISK}f,serial=x,bootindex=1", ("aio-max-batch=7",)),
        (f"{FILE} {QCOW2},overlap-check=none {DISK}q", ("overlap-check=none",)),
        ("-object throttle-group,id=g,limits.iops-total=5 "
         "-object throttle-group,id=h,limits.bps-total=9 "
         f"-blockdev driver=throttle,node-name=t,throttle-group=g,file=f {FILE} "
         f"-blockdev driver=throttle,node-name=u,throttle-group=h,file=t {DISK}u",
         ("limits.bps-total=9", "limits.iops-total=5")),
    ],
)  # fmt: skip
def test_settings_that_no_path_has_are_named(arguments: str, named: tuple[str, ...]) -> None:
    (disk,) = read(arguments)
    assert disk.limits == named
    assert any(isinstance(risk, LimitsBeyondPath) for risk in risks(disk))


@pytest.mark.parametrize(
    ("arguments", "errors"),
    [
        (f"{FILE} {DISK}f,werror=ignore", ("writes",)),
        (f"{FILE} {DISK}f,werror=ignore,rerror=ignore", ("writes", "reads")),
        ("-drive if=virtio,format=raw,file=/vm/a.img,rerror=ignore", ("reads",)),
        (f"{FILE} {DISK}f,werror=enospc", ()),
        (f"{FILE} {DISK}f -global virtio-blk-pci.werror=ignore", ("writes",)),
    ],
)
def test_ignored_errors_are_a_risk(arguments: str, errors: tuple[str, ...]) -> None:
    (disk,) = read(arguments)
    assert disk.ignored_errors == errors
    kind = ReadErrorsIgnored if errors == ("reads",) else ErrorsIgnored
    assert (kind(errors, "werror=stop and rerror=stop of its device") in risks(disk)) is bool(
        errors
    )
    assert (loses_writes(disk) is not None) is ("writes" in errors)


def test_a_snapshot_of_all_disks_is_one_of_each_drive() -> None:
    """QEMU 7.2 opens the file of a -blockdev itself in spite of -snapshot."""
    arguments = f"-drive file=/vm/b.img,format=raw,id=b,if=virtio {FILE} {DISK}f"
    node, drive = read(f"-snapshot {arguments}")
    assert (drive.transient, node.transient) == (True, False)


def test_a_disk_that_guests_share_is_known() -> None:
    (disk,) = read(f"{FILE} {DISK}f,share-rw=on")
    assert disk.shareable


def test_any_number_of_variables_may_stand_before_the_program() -> None:
    """As in /var/log/libvirt/qemu/GUEST.log."""
    variables = "".join(f"VARIABLE{number}=/x \\\n" for number in range(30))
    command = (
        f"/usr/bin/qemu-system-x86_64 \\\n{DISK}d -drive if=none,id=d,file=/vm/a,cache=unsafe\n"
    )
    text = f"2026-11-26 10:00:00.000+0000: starting up\n{variables}{command}"
    (disk,) = read_guests([GuestText(text, "g")])
    assert disk.path == parse_path("raw/unsafe")


def test_each_command_of_a_script_is_a_guest() -> None:
    only = (
        "qemu-system-x86_64 -name {0} -drive file=/vm/{0}.img,format=raw,if=virtio,cache=unsafe\n"
    )
    text = f"#!/bin/sh\nset -e; modprobe kvm\n{only.format('a')}\nsudo {only.format('b')}exit 0\n"
    assert [disk.domain for disk in read_guests([GuestText(text, "s.sh")])] == ["a", "b"]


def test_a_command_line_with_thousands_of_words_is_refused_in_time() -> None:
    with pytest.raises(PlanError, match="more than 500 devices"):
        list(disks_of_arguments(["a"] * 20_000, program="qemu-system-x86_64"))


def test_a_key_of_thousands_of_parts_is_read_without_recursion() -> None:
    key = ".".join(["x"] * 20_000)
    (disk,) = disks_of_arguments(["-drive", f"file=a.raw,format=raw,if=virtio,{key}=1"])
    assert disk.source is not None


def test_thousands_of_children_are_read_in_time() -> None:
    children = "".join(f",children.{number}=q" for number in range(5_000))
    (disk,) = read(f"-blockdev driver=quorum,node-name=q{children} {DISK}q")
    assert disk.path is None


def test_what_librbd_encrypts_is_named() -> None:
    node = "driver=rbd,node-name=r,pool=p,image=i,encrypt.format=luks2,encrypt.key-secret=k"
    (disk,) = read(f"-blockdev {node} {DISK}r")
    assert (str(disk.path), disk.limits) == ("rbd/default", ("encrypt=luks2",))


NBD = "server.type=inet,server.host=h,server.port=10809"


@pytest.mark.parametrize(
    ("arguments", "mode", "refused"),
    [
        ("-drive file=nbd://h/e,format=raw,if=virtio,cache=none,aio=native", "native", False),
        ("-drive file=nbd://h/e,format=raw,if=virtio,aio=native", "native", False),
        ("-drive file=rbd:p/i,format=raw,if=virtio,aio=io_uring", "io_uring", False),
        (f"-drive driver=raw,file.driver=nbd,file.{NBD.replace(',', ',file.')},file.aio=native,"
         "if=virtio", None, True),
        (f"-blockdev driver=nbd,node-name=n,{NBD},aio=native {DISK}n", None, True),
        (f"-blockdev driver=nbd,node-name=n,{NBD} {DISK}n", None, False),
        ("-drive file=/vm/a.img,format=raw,if=virtio,cache=none,aio=native", None, False),
    ],
)  # fmt: skip
def test_only_files_and_devices_have_an_io_mode(
    arguments: str, mode: str | None, refused: bool
) -> None:
    """QEMU 7.2.22 starts with the first three, and says of the next two "Block protocol 'nbd'
    doesn't support the option 'aio'" and "Parameter 'aio' is unexpected"."""
    (disk,) = read(arguments)
    found = [risk.mode for risk in risks(disk) if isinstance(risk, IdleAio)]
    assert found == ([] if mode is None else [mode])
    assert disk.refused == (
        ("QEMU's driver nbd has no option aio", "leave aio out") if refused else None
    )
