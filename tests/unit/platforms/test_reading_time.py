"""A configuration is read in a time that grows with its size, or refused with a sentence.

Each text once took more than ten seconds, because each disk looked at all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from vdisklab.errors import PlanError
from vdisklab.platforms.disk_context import disk_path
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests

CPU_SECONDS = 6.0
QEMU = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"


def each(count: int, text: str) -> str:
    return "".join(text.format(number) for number in range(count))


def domain(count: int, within: str = "", beside: str = "", bus: str = "virtio") -> str:
    disk = (
        "<disk type='file'><driver name='qemu' type='qcow2'/><source file='/a{0}'/>"
        f"<target dev='vd{{0}}' bus='{bus}'/>{within}</disk>"
    )
    disks = each(count, disk)
    return f"<domain type='kvm' {QEMU}><name>w</name>{beside}<devices>{disks}</devices></domain>"


def arguments(count: int, text: str) -> str:
    return f"<qemu:commandline>{each(count, text)}</qemu:commandline>"


def process(*groups: str) -> str:
    return "qemu-system-x86_64\0" + "".join(groups)


ARGUMENT = "<qemu:arg value='-{0}'/><qemu:arg value='{1}'/>"
DEVICES = each(400, "-device\0virtio-blk-pci,drive=n,id=d{0}\0")
TEXTS: dict[str, Callable[[], tuple[str, str]]] = {
    "disks": lambda: (domain(8000), "w.xml"),
    "SCSI disks": lambda: (domain(6000, bus="scsi"), "w.xml"),
    "throttle groups": lambda: (
        domain(
            4000,
            "<throttlefilters><throttlefilter group='g{0}'/></throttlefilters>",
            "<throttlegroups>"
            + each(4000, "<throttlegroup><group_name>g{0}</group_name><read_iops_sec>4"
                         "</read_iops_sec></throttlegroup>")
            + "</throttlegroups>",
        ),
        "w.xml",
    ),
    "cgroup limits": lambda: (
        domain(
            3000,
            beside="<blkiotune>"
            + each(3000, "<device><path>/{0}</path><read_iops_sec>5</read_iops_sec></device>")
            + "</blkiotune>",
        ),
        "w.xml",
    ),
    "overrides": lambda: (
        domain(
            3000,
            beside="<qemu:override>"
            + each(3000, "<qemu:device alias='virtio-disk{0}'><qemu:frontend><qemu:property "
                         "name='a' value='b'/></qemu:frontend></qemu:device>")
            + "</qemu:override>",
        ),
        "w.xml",
    ),
    "-set": lambda: (
        domain(2000, beside=arguments(2000, ARGUMENT.format("set", "device.x{0}.a=b"))), "w.xml"
    ),
    "-global": lambda: (
        domain(1500, beside=arguments(1500, ARGUMENT.format("global", "virtio-blk-pci.x{0}=b"))),
        "w.xml",
    ),
    "dotted keys": lambda: (
        process(f"-blockdev\0driver=raw,node-name=n{each(35_000, ',a{0}.b.c.d=1')}\0", DEVICES), "7"
    ),
    "children": lambda: (
        process(
            f"-blockdev\0driver=quorum,node-name=n{each(35_000, ',children.{0}=x')}\0", DEVICES
        ),
        "7",
    ),
    "nodes": lambda: (
        process(each(10_000, "-blockdev\0driver=file,node-name=n{0},filename=/x\0"), DEVICES), "7"
    ),
    "chardevs": lambda: (
        process(
            each(20_000, "-chardev\0socket,id=c{0},path=/x\0"),
            each(400, "-device\0vhost-user-blk-pci,chardev=c{0}\0"),
        ),
        "7",
    ),
    "-set of drives": lambda: (
        process(
            each(6000, "-set\0drive.d{0}.a=b\0"), each(6000, "-drive\0file=/x,if=none,id=d{0}\0")
        ),
        "7",
    ),
    "blank lines": lambda: ("qemu-system-x86_64 a" + "\n " * 40_000 + "x", "a.sh"),
    "lines before an option": lambda: ("qemu-system-x86_64 a" + "\n " * 40_000 + "-S", "a.sh"),
    "open braces": lambda: ("qemu-system-x86_64 " + "${" * 20_000, "a.sh"),
    "a long variable": lambda: ("${" + "a" * 60_000 + "\n$" + "b" * 60_000, "a.sh"),
    "many variables": lambda: ("$x " * 20_000 + " qemu-kvm\n" + "$x" * 20_000, "a.sh"),
    "an array that grows": lambda: (
        "a+=(x)\n" * 8000 + 'qemu-system-x86_64 "${a[@]}"', "a.sh"
    ),
    "options of nbd": lambda: ("qemu-nbd " + "-s " * 40_000 + "\nqemu-kvm -hda a", "a.sh"),
    "arguments of Proxmox": lambda: (
        "args: " + "-set device.a.b=c " * 2000 + "\n" + each(1000, "virtio{0}: local:7/a.raw\n"),
        "7.conf",
    ),
    "arguments of Incus": lambda: (
        "name: a\nconfig: {raw.qemu: '" + "-set device.a.b=c " * 3000 + "'}\ndevices:\n"
        + each(1500, "  d{0}: {{type: disk, source: /dev/x}}\n"),
        "a.yaml",
    ),
    "properties of OpenStack": lambda: (
        "{id: b, flavor: {vcpus: 1}, image: {properties: '" + "a" * 60_000 + "'}}", "a.yaml"
    ),
    "a number to the base of 60": lambda: (
        "name: a\nconfig: {}\ndevices: {d: {type: disk, size: " + "1:" * 100_000 + "1}}", "a.yaml"
    ),
}  # fmt: skip


ALIKE = ("disks", "throttle groups", "overrides", "nodes", "chardevs", "options of nbd")
"""Texts of two seconds and more whose readers have a neighbour that each commit reads: SCSI disks,
cgroup limits, -set, children and drives, and an array that grows."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly) if name in ALIKE else name for name in TEXTS],
)
def test_the_time_grows_with_the_size(name: str) -> None:
    text, file = TEXTS[name]()
    began = time.process_time()
    try:
        for disk in read_guests([GuestText(text, file)]):
            disk_path(disk)
            risks(disk)
    except PlanError as error:
        assert str(error), "a sentence"  # noqa: PT017 - either answer is right
    assert time.process_time() - began < CPU_SECONDS
