"""Guests of 64-bit Arm: what their own machine has, on whatever host their configuration is read.

The disks are those of configurations in public repositories, cut down to what a disk hangs on; each
case names its repository and file or thread.
"""

from __future__ import annotations

import json

import pytest

from vdisklab.answers.disks import problem_of
from vdisklab.path.disk_path import parse_path
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import Bus
from vdisklab.platforms.configured_disk import ConfiguredDisk, works_for
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.machine_buses import MaybeUnseen, NoSuchBus, verdict_on
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests

UNSEEN, NONE = "may not be seen", "cannot work"


def read(text: str, name: str) -> list[ConfiguredDisk]:
    return list(read_guests([GuestText(text, name)]))


def said(disk: ConfiguredDisk) -> list[str]:
    """What keeps the guest from the disk, in few words."""
    return [risk.short for risk in risks(disk) if risk.short in (UNSEEN, NONE)]


def domain(*devices: str, machine: str = "virt") -> str:
    system = f"<os><type arch='aarch64' machine='{machine}'>hvm</type></os>"
    return (
        f"<domain type='kvm'><name>g</name>{system}<devices>{''.join(devices)}</devices></domain>"
    )


def disk(target: str, bus: str | None, driver: str = "type='qcow2'", device: str = "disk") -> str:
    place = f"<target dev='{target}'/>" if bus is None else f"<target dev='{target}' bus='{bus}'/>"
    return (
        f"<disk type='file' device='{device}'><driver name='qemu' {driver}/>"
        f"<source file='/vm/{target}'/>{place}</disk>"
    )


VIRTIO_SCSI = "<controller type='scsi' model='virtio-scsi'/>"

DOMAINS = {
    "virt-manager/virt-manager tests/data/cli/compare/virt-install-aarch64-cdrom.xml": (
        domain(disk("vda", "virtio"), disk("sda", "scsi", device="cdrom"), VIRTIO_SCSI),
        ["vda qcow2/default/virtio"], [],
    ),
    "virt-manager/virt-manager tests/data/cli/compare/virt-install-aarch64-win11.xml": (
        domain(disk("sda", "usb"), "<controller type='usb' model='qemu-xhci' ports='15'/>"),
        ["sda qcow2/default/usb"], [],
    ),
    "virt-manager/virt-manager tests/data/cli/compare/virt-install-aarch64-kvm-import.xml": (
        domain(disk("vda", "virtio")), ["vda qcow2/default/virtio"], [],
    ),
    "virt-manager/virt-manager tests/data/cli/compare/virt-install-aarch64-machdefault.xml": (
        domain(disk("vda", "virtio")), ["vda qcow2/default/virtio"], [],
    ),
    "kubevirt/kubevirt pkg/virt-launcher/virtwrap/converter/testdata/domain_arm64.xml": (
        domain(
            disk("vda", "virtio", "type='raw' error_policy='stop' iothread='2' discard='unmap'"),
            disk("vdc", "virtio", "type='raw'", "cdrom"),
            disk("vdf", "virtio", "type='qcow2' cache='none' iothread='1' discard='unmap'"),
        ),
        ["vda raw/default/virtio:iothread=on:discard=unmap:werror=stop:rerror=stop",
         "vdf qcow2/none/virtio:iothread=on:discard=unmap"],
        [],
    ),
    "libvirt/libvirt tests/qemuxmlconfdata/aarch64-virt-default-models.xml: a controller without a "
    "model": (
        domain(disk("sda", "scsi"), "<controller type='scsi'/>"), ["sda None"], [UNSEEN],
    ),
    "virt-manager/virt-manager#445: without a controller": (
        domain(disk("sda", "scsi")), ["sda None"], [UNSEEN],
    ),
    "apache/cloudstack#5193: a running guest of machine virt-4.2": (
        domain(disk("vda", "virtio", "type='qcow2' cache='none'"), machine="virt-4.2"),
        ["vda qcow2/none/virtio"], [],
    ),
    "autotest/tp-libvirt#4213: --disk bus=sata": (
        domain(disk("sda", "sata", "type='raw'")), ["sda raw/default/sata"], [UNSEEN],
    ),
    "vagrant-libvirt/vagrant-libvirt#1608: hda without a bus is on IDE": (
        domain(disk("hda", None)), ["hda qcow2/default/ide"], [NONE],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "paths", "warnings"), DOMAINS.values(), ids=list(DOMAINS))
def test_libvirts_domains(text: str, paths: list[str], warnings: list[str]) -> None:
    found = read(text, "g.xml")
    assert [f"{each.target} {each.path and each.path.canonical}" for each in found] == [
        f"{target} {None if path == 'None' else parse_path(path).canonical}"
        for target, path in (line.split(" ", 1) for line in paths)
    ]
    assert {each.architecture for each in found} == {"aarch64"}
    assert [word for each in found for word in said(each)] == warnings


COMMANDS = {
    "reconix test script (find_string): virtio-blk by -drive": (
        "qemu-system-aarch64 -M virt -cpu cortex-a72 -m 512M -nographic -kernel Image "
        "-drive file=/vm/d.img,format=raw,if=virtio", "raw/default/virtio", [],
    ),
    "Ubuntu 16.04 on QEMU (find_string): a disk of its own device": (
        "qemu-system-aarch64 -M virt -m 8G -smp 4 -cpu cortex-a72 -kernel linux -initrd initrd.gz "
        "-drive if=none,file=/vm/hda.qcow2,format=qcow2,id=hd -device virtio-blk-pci,drive=hd",
        "qcow2/default/virtio", [],
    ),
    "a little loader (code search): the disk of virtio-mmio": (
        "qemu-system-aarch64 -M virt -cpu cortex-a53 -nographic -smp 1 -kernel little_loader.elf "
        "-global virtio-mmio.force-legacy=false -drive if=none,file=/vm/disk.img,format=raw,id=v "
        "-device virtio-blk-device,drive=v,bus=virtio-mmio-bus.0", "raw/default/virtio", [],
    ),
    "tianocore/edk2#11415: SATA": (
        "qemu-system-aarch64 -M virt -cpu cortex-a72 -bios QEMU_EFI.fd -device qemu-xhci -m 16G "
        "-device ich9-ahci -drive file=/vm/d.img,id=a,format=raw,if=none -device ide-hd,drive=a",
        "raw/default/sata", [UNSEEN],
    ),
    "utmapp/UTM#7712: LSI": (
        "qemu-system-aarch64 -machine virt -device lsi53c895a,id=scsi0 -device "
        "scsi-hd,drive=d,bus=scsi0.0 -drive if=none,id=d,file=/vm/d.img,format=raw", None, [UNSEEN],
    ),
    "QEMU says: machine type does not support if=ide": (
        "qemu-system-aarch64 -M virt -drive file=/vm/d.img,format=raw,if=ide",
        "raw/default/ide", [NONE],
    ),
    "without if=, and with a version": (
        "qemu-system-aarch64 -machine type=virt-7.2,gic-version=max -drive "
        "file=/vm/d.img,format=raw", "raw/default/virtio", [],
    ),
    "Red Hat's program has one name on all architectures": (
        "/usr/libexec/qemu-kvm -machine virt-rhel9.4.0,gic-version=host -cpu host -drive "
        "file=/vm/d.img,format=raw", "raw/default/virtio", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "path", "warnings"), COMMANDS.values(), ids=list(COMMANDS))
def test_qemus_arguments(text: str, path: str | None, warnings: list[str]) -> None:
    (found,) = read(text, "start.sh")
    assert (found.path and found.path.canonical) == (path and parse_path(path).canonical)
    assert said(found) == warnings


def test_options_of_a_machine_are_no_name_of_one() -> None:
    (found,) = read(
        "qemu-system-x86_64 -M q35,kernel-irqchip=split -device intel-iommu,device-iotlb=on "
        "-drive file=/vm/d.img,format=raw", "start.sh",
    )  # fmt: skip
    assert found.path == parse_path("raw/default/sata")


def machine(disks: list[dict[str, object]], **spec: object) -> str:
    volumes = [
        {"name": each["name"], "persistentVolumeClaim": {"claimName": each["name"]}}
        for each in disks
    ]
    domain = {"devices": {"disks": disks}}
    inner = {"domain": domain, "volumes": volumes, **spec}
    claims = [
        {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": each["name"]},
         "spec": {"volumeMode": "Block"}}
        for each in disks
    ]  # fmt: skip
    guest = {
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "centos"},
        "spec": {"template": {"spec": inner}},
    }  # fmt: skip
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": [guest, *claims]})


KUBEVIRT = {
    "kubevirt/kubevirt#9792: a virtio disk (and a CD-ROM) on arm64": (
        [{"name": "disk0", "disk": {"bus": "virtio"}}, {"name": "cdromiso", "cdrom": {}}],
        {"architecture": "arm64"}, ["virtio"], [],
    ),
    "kubevirt/kubevirt#7360: two disks": (
        [{"name": "system", "disk": {"bus": "virtio"}},
         {"name": "data", "disk": {"bus": "virtio"}}],
        {"architecture": "arm64"}, ["virtio", "virtio"], [],
    ),
    "kubevirt/kubevirt pkg/defaults/arm64.go: without a bus": (
        [{"name": "disk0", "disk": {}}], {"architecture": "arm64"}, ["virtio"], [],
    ),
    "kubevirt/kubevirt pkg/defaults/amd64.go: without a bus": (
        [{"name": "disk0", "disk": {}}], {"architecture": "amd64"}, ["sata"], [],
    ),
    "kubevirt/kubevirt pkg/virt-api/webhooks/arm64.go: sata and usb are refused": (
        [{"name": "a", "disk": {"bus": "sata"}}, {"name": "b", "disk": {"bus": "usb"}},
         {"name": "c", "disk": {"bus": "scsi"}}],
        {"architecture": "arm64"}, ["sata", "usb", "scsi"], [NONE, NONE],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("disks", "spec", "buses", "warnings"), KUBEVIRT.values(), ids=list(KUBEVIRT)
)
def test_kubevirts_machines(
    disks: list[dict[str, object]], spec: dict[str, object], buses: list[str], warnings: list[str]
) -> None:
    found = read(machine(disks, **spec), "vm.json")
    assert [each.path.attachment.bus.value for each in found if each.path] == buses
    assert [word for each in found for word in said(each)] == warnings


def test_the_bus_is_judged_where_the_storage_is_not_known() -> None:
    """A containerDisk on sata, as in KubeVirt's examples for amd64; a storage.cfg is missing."""
    guest = {
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "demo"},
        "spec": {"template": {"spec": {
            "architecture": "arm64",
            "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "sata"}}]}},
            "volumes": [{"name": "root", "containerDisk": {"image": "demo"}}],
        }}},
    }  # fmt: skip
    for text, name, word in (
        (json.dumps(guest), "vm.json", NONE),
        ("arch: aarch64\nname: g\nsata1: local-lvm:vm-100-disk-0,size=8G\n", "100.conf", UNSEEN),
    ):
        (found,) = read(text, name)
        assert found.path is None
        assert said(found) == [word]


def test_a_bus_that_does_not_work_is_not_called_slow() -> None:
    for bus in ("ide", "sata"):
        (found,) = read(domain(disk("sda", bus)), "g.xml")
        assert "slow bus" not in {risk.short for risk in risks(found)}
    (usb,) = read(domain(disk("sda", "usb")), "g.xml")
    assert "slow bus" in {risk.short for risk in risks(usb)}


IMAGES = {
    "CentOS Stream 9 on Kolla (find_string): virt, uefi, virtio": (
        {"hw_architecture": "aarch64", "hw_machine_type": "virt", "hw_firmware_type": "uefi",
         "hw_disk_bus": "virtio"}, "virtio", [],
    ),
    "openstack/nova doc/source/admin/hw-emulation-architecture.rst": (
        {"hw_emulation_architecture": "aarch64", "hw_machine_type": "virt",
         "hw_firmware_type": "uefi"}, "virtio", [],
    ),
    "virtio-scsi is named": (
        {"hw_architecture": "aarch64", "hw_disk_bus": "scsi", "hw_scsi_model": "virtio-scsi"},
        "scsi", [],
    ),
    "no model is named": (
        {"hw_architecture": "aarch64", "hw_disk_bus": "scsi"}, None, [UNSEEN],
    ),
    "IDE": ({"architecture": "aarch64", "hw_disk_bus": "ide"}, "ide", [NONE]),
}  # fmt: skip


@pytest.mark.parametrize(("properties", "bus", "warnings"), IMAGES.values(), ids=list(IMAGES))
def test_novas_root_disks(properties: dict[str, str], bus: str | None, warnings: list[str]) -> None:
    server = {
        "id": "1", "name": "s", "OS-EXT-SRV-ATTR:hostname": "s", "flavor": {"extra_specs": {}},
        "image": {"id": "2", "properties": properties}, "volumes_attached": [],
        "OS-EXT-STS:vm_state": "active",
    }  # fmt: skip
    (found,) = read(json.dumps(server), "server.json")
    assert found.architecture == "aarch64"
    assert (found.path and found.path.attachment.bus.value) == bus
    assert said(found) == warnings


def test_a_guest_of_incus_finds_its_disks() -> None:
    """lxc/incus internal/server/instance/drivers: machine virt, virtio-scsi unless io.bus says."""
    instance = {
        "name": "g", "type": "virtual-machine", "architecture": "aarch64", "config": {},
        "devices": {"root": {"type": "disk", "path": "/", "pool": "p"},
                    "data": {"type": "disk", "source": "/dev/sdb", "io.bus": "nvme"}},
    }  # fmt: skip
    pool = {"name": "p", "driver": "dir", "config": {}}
    found = read(json.dumps([instance, pool]), "instances.json")
    assert [each.path.attachment.bus.value for each in found if each.path] == ["scsi", "nvme"]
    assert [word for each in found for word in said(each)] == []


@pytest.mark.parametrize(("controller", "warnings"), [("", [UNSEEN]), ("virtio-scsi-single", [])])
def test_proxmoxs_arm_guests_have_lsi_unless_they_say(controller: str, warnings: list[str]) -> None:
    """qm.conf(5): arch aarch64, and scsihw, whose default is lsi."""
    line = f"scsihw: {controller}\n" if controller else ""
    (found,) = read(
        f"arch: aarch64\nname: g\n{line}scsi0: local:100/d.raw,size=8G\nmachine: virt\n", "100.conf"
    )
    assert said(found) == warnings


WRITERS = {
    "sej7278/virt-installs alma8_arm/alma8_arm.sh": (
        "virt-install --name=alma8_arm --arch aarch64 --vcpus 4 --memory 2048 "
        "--disk path=/kvm/a.qcow2,size=40,format=qcow2,sparse=true,bus=scsi,discard=unmap "
        "--controller type=scsi,model=virtio-scsi --graphics none", "a.sh",
        ["qcow2/default/scsi:discard=unmap"], [],
    ),
    "dmacvicar/terraform-provider-libvirt#895": (
        'resource "libvirt_domain" "test" {\n  name = "fedora34"\n  arch = "aarch64"\n'
        '  machine = "virt-5.2"\n  disk {\n    file = "/vm/f.raw"\n  }\n}\n', "main.tf",
        ["raw/default/virtio"], [],
    ),
    "qemus/qemu-arm, whose variables are those of qemus/qemu": (
        "services:\n  vm:\n    image: qemux/qemu-arm\n    environment: {DISK_TYPE: ide}\n",
        "compose.yml", ["raw/none/sata:aio=native:discard=unmap:detect_zeroes=on"], [UNSEEN],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "name", "paths", "warnings"), WRITERS.values(), ids=list(WRITERS))
def test_programs_that_make_guests(
    text: str, name: str, paths: list[str], warnings: list[str]
) -> None:
    found = read(text, name)
    assert [each.path for each in found] == [parse_path(path) for path in paths]
    assert {each.architecture for each in found} == {"aarch64"}
    assert [word for each in found for word in said(each)] == warnings


class TestTheMachineNotTheHost:
    @pytest.mark.parametrize("architecture", ["x86_64", "amd64", "i686", None, "ppc64le"])
    @pytest.mark.parametrize("bus", list(Bus))
    def test_other_guests_have_every_bus(self, architecture: str | None, bus: Bus) -> None:
        for platform in Platform:
            assert verdict_on(architecture, platform, bus, "lsilogic") is None

    def test_each_bus_of_an_arm_guest(self) -> None:
        found = {bus: verdict_on("arm64", Platform.LIBVIRT, bus, "") for bus in Bus}
        refused = {bus for bus, each in found.items() if isinstance(each, NoSuchBus)}
        unseen = {bus for bus, each in found.items() if isinstance(each, MaybeUnseen)}
        assert (refused, unseen) == ({Bus.IDE}, {Bus.SATA})

    def test_a_disk_on_ide_is_changed_on_x86_and_not_on_arm(self) -> None:
        unsafe = parse_path("raw/none/ide")
        for architecture, works in (("x86_64", True), ("aarch64", False)):
            text = domain(disk("hda", "ide", "type='raw'")).replace("aarch64", architecture)
            (found,) = read(text, "g.xml")
            assert works_for(found, unsafe) == works

    @pytest.mark.parametrize("host", ["x86_64", "aarch64"])
    def test_what_cannot_work_is_said_before_where_it_could_be_measured(self, host: str) -> None:
        (found,) = read(domain(disk("hda", "ide", "type='raw'")), "g.xml")
        problem = problem_of(found, found.path, risks(found), host)
        assert problem is not None
        assert problem.startswith("it cannot work: a guest of aarch64 has no IDE controller")

    def test_the_way_out_is_in_the_platforms_words(self) -> None:
        for platform, warnings in (
            (Platform.LIBVIRT, '<controller type="scsi" model="virtio-scsi"/>'),
            (Platform.QEMU, "-device virtio-scsi-pci"),
            (Platform.OPENSTACK, "hw_scsi_model=virtio-scsi"),
            (Platform.PROXMOX, "scsihw: virtio-scsi-single"),
        ):
            found = verdict_on("aarch64", platform, Bus.SCSI, "lsilogic")
            assert isinstance(found, MaybeUnseen)
            assert warnings in found.remedy
