"""Words that a platform refuses: they are said, with the way out, and never read as a disk."""

from __future__ import annotations

import json

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.risk_kinds import CannotWork


def kubevirt(disk: str, kind: str = "VirtualMachine") -> str:
    domain = f"domain: {{devices: {{disks: [{{name: a, {disk}}}]}}}}"
    volumes = "volumes: [{name: a, persistentVolumeClaim: {claimName: c}}]"
    spec = f"{{template: {{spec: {{{domain}, {volumes}}}}}}}"
    return f"apiVersion: kubevirt.io/v1\nkind: {kind}\nmetadata: {{name: w}}\nspec: {spec}\n"


CLAIM = (
    "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\n"
    "spec: {volumeMode: Filesystem}\n"
)


def incus(device: str) -> str:
    root = f"root: {{type: disk, path: /, pool: p, {device}}}"
    return f"name: w\ntype: virtual-machine\nconfig: {{}}\ndevices: {{{root}}}\n"


def libvirt(driver: str, bus: str = "virtio") -> str:
    return (
        "<domain type='kvm'><name>w</name><devices><disk type='file' device='disk'>"
        f"<driver name='qemu' type='raw' {driver}/><source file='/i/w.img'/>"
        f"<target dev='sda' bus='{bus}'/></disk></devices></domain>"
    )


def compose(variables: str) -> str:
    return f"services: {{w: {{image: qemux/qemu, environment: {{{variables}}}}}}}\n"


def qemu(drive: str) -> str:
    return f"qemu-system-x86_64 -drive file=/i/w.img,format=raw,if=virtio,{drive}"


def only(text: str, name: str = "w.yaml") -> ConfiguredDisk:
    (disk,) = read_guests([GuestText(text, name)])
    return disk


REFUSED = [
    (kubevirt("disk: {bus: nvme}"), "refuses bus nvme", "bus virtio, scsi, sata or usb"),
    (kubevirt("disk: {bus: ide}"), "refuses bus ide", "bus virtio"),
    (kubevirt("disk: {bus: foo}"), "refuses bus foo", "bus virtio"),
    (kubevirt("disk: {bus: virtio}, cache: directsync"), "refuses cache directsync", "cache none"),
    (kubevirt("disk: {bus: virtio}, cache: unsafe"), "refuses cache unsafe", "cache none"),
    (kubevirt("disk: {bus: virtio}, io: io_uring"), "refuses io io_uring", "io native"),
    (kubevirt("disk: {bus: virtio}, io: default"), "refuses io default", "io native or threads"),
    (kubevirt("disk: {}, dedicatedIOThread: true"), "IOThread on bus sata", "leave dedicatedIO"),
    (kubevirt("disk: {bus: scsi}, dedicatedIOThread: true"), "IOThread on bus scsi", "virtio"),
    (kubevirt("disk: {bus: virtio}, errorPolicy: pause"), "errorPolicy pause", "stop"),
    (kubevirt("disk: {bus: sata, readonly: true}"), "readonly on bus sata", "virtio"),
    (kubevirt("disk: {bus: usb}, dedicatedIOThread: true"), "IOThread on bus usb", "virtio"),
    ("scsi0: local:9/vm-9-disk-0.raw,cache=foo", "Proxmox VE refuses cache foo", "cache none"),
    ("scsi0: local:9/vm-9-disk-0.raw,aio=uring", "Proxmox VE refuses aio uring", "io_uring"),
    ("sata0: local:9/vm-9-disk-0.raw,iothread=1", "refuses iothread on bus sata", "leave out"),
    ("virtio0: local:9/vm-9-disk-0.raw,ssd=1", "refuses ssd on bus virtio", "leave out ssd=1"),
    ("sata7: local:9/vm-9-disk-0.raw", "has no slot sata7", "use sata0 to sata5"),
    (incus("io.cache: directsync"), "Incus refuses io.cache directsync", "none, writeback"),
    (incus("io.bus: sata"), "Incus refuses io.bus sata", "virtio-scsi"),
    (libvirt("cache='foo'"), "libvirt refuses cache foo", "cache none"),
    (libvirt("io='uring'"), "libvirt refuses io uring", "io native"),
    (libvirt("cache='foo' io='uring'"), "refuses cache foo and io uring", ", and io native, thr"),
    (libvirt("").replace("'raw'", "'qcow3'"), "libvirt refuses type qcow3",
     "type raw, qcow2, qed, vmdk, vdi, vpc or another that it takes"),
    ("scsi0: local:9/vm-9-disk-0.raw,format=qcow3", "refuses format qcow3", "format raw, qcow2"),
    (libvirt("", "nvm"), "libvirt refuses bus nvm", "bus virtio"),
    (libvirt("queues='4'", "sata"), "refuses queues in the <driver> of a disk on sata", "virtio"),
    (libvirt("iothread='1'", "scsi"), "refuses iothread in the <driver>", "into the controller"),
    (qemu("cache=foo"), "QEMU refuses cache foo", "cache none"),
    (qemu("aio=uring"), "QEMU refuses aio uring", "aio threads"),
    (compose("DISK_TYPE: floppy"), "the container refuses DISK_TYPE floppy", "scsi"),
    (compose("DISK_FMT: vmdk"), "the container refuses DISK_FMT vmdk", "raw or qcow2"),
    (compose("DISK_CACHE: foo"), "QEMU refuses cache foo", "cache none"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why", "instead"), REFUSED)
def test_a_word_that_the_platform_refuses_is_said(text: str, why: str, instead: str) -> None:
    origin = {"<": "w.xml", "q": "w.sh"}.get(text[0], "9.conf" if ": local:" in text else "w.yaml")
    disks = read_guests([GuestText(text, origin)])
    found = [risk for disk in disks for risk in risks(disk) if isinstance(risk, CannotWork)]
    (said,) = map(str, found)
    assert said.startswith("It cannot work: ")
    assert why in said
    assert instead in said.partition(";")[2]


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        *((kubevirt(f"disk: {{bus: {bus}}}"), "w.yaml") for bus in ("virtio", "scsi", "sata")),
        (kubevirt("disk: {}, cache: writethrough, io: threads"), "w.yaml"),
        ("ide3: local:9/vm-9-disk-0.raw,cache=directsync,aio=threads,ssd=1", "9.conf"),
        ("scsi30: local:9/vm-9-disk-0.raw,iothread=1,queues=4,ro=1", "9.conf"),
        (incus("io.cache: unsafe, io.bus: nvme"), "w.yaml"),
        (incus("io.bus: auto"), "w.yaml"),
        (libvirt("cache='default' io='io_uring' iothread='1'"), "w.xml"),
        (libvirt("").replace("'raw'", "'vpc'"), "w.xml"),
        (libvirt("").replace("'raw'", "'aio'"), "w.xml"),
        (libvirt("discard='unmap' error_policy='enospace'", "usb"), "w.xml"),
        (qemu("cache=off"), "w.sh"),
        (compose("DISK_TYPE: nvme"), "w.yaml"),
        (compose("DISK_TYPE: sata"), "w.yaml"),
    ],
)
def test_a_word_that_the_platform_takes_is_no_fault(text: str, origin: str) -> None:
    assert not any(isinstance(risk, CannotWork) for risk in risks(only(text, origin)))


def test_a_bus_that_kubevirt_refuses_is_changed_and_changed_back() -> None:
    (disk,) = read_guests([GuestText(kubevirt("disk: {bus: nvme}") + CLAIM, "w.yaml")])
    change = change_of(disk, parse_path("raw/none/virtio:discard=unmap"))
    place = "/spec/template/spec/domain/devices/disks/0/disk/bus"
    for line, op, bus in ((change.paste, "add", "virtio"), (change.undo, "replace", "nvme")):
        patch = json.loads(line.partition("-p '")[2].rstrip("'"))
        assert patch[0]["op"] == "test"
        assert patch[0]["path"] == "/spec/template/spec/domain/devices/disks/0/name"
        assert patch[1:] == [{"op": op, "path": place, "value": bus}]
    with pytest.raises(NotChangeableError, match="KubeVirt has no bus nvme"):
        change_of(disk, parse_path("raw/writethrough/nvme:discard=unmap"))
