"""Templates, their clones, and guests whose configuration names no disk."""

from __future__ import annotations

import pytest

from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import DisklessGuest, GuestText
from vdisklab.platforms.registry import read_guests

STORAGES = GuestText(
    "lvmthin: thin\n\tvgname v\n\tthinpool t\n\ndir: shelf\n\tpath /shelf\n", "storage.cfg"
)
BPG = 'resource "proxmox_virtual_environment_vm" "{0}" {{\n  name = "{0}"\n{1}\n}}\n'
TELMATE = 'resource "proxmox_vm_qemu" "web" {{\n  name = "web"\n  {}\n}}\n'
DISK = '  disk {\n    interface = "scsi0"\n    datastore_id = "thin"\n  }'
PLAYBOOK = "- hosts: all\n  tasks:\n    - community.general.proxmox_kvm:\n{}"
PACKER = 'source "proxmox-{}" "web" {{\n  {}\n}}\n'
PACKED = 'disks {\n    type = "virtio"\n    storage_pool = "thin"\n  }'


def read(text: str, name: str) -> tuple[list[ConfiguredDisk], list[DisklessGuest]]:
    diskless: list[DisklessGuest] = []
    disks = read_guests([STORAGES, GuestText(text, name)], [], diskless)
    return list(disks), diskless


def arguments(**settings: object) -> str:
    return "".join(f"        {name}: {value}\n" for name, value in settings.items())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("template: 1\nname: web\nscsi0: thin:base-9-disk-0\n", "9.conf"),
        ("qm create 9 --name web --scsi0 thin:8\nqm template 9\n", "make.sh"),
        ("pvesh create /nodes/a/qemu --vmid 9 --scsi0 thin:8 --template 1\n", "make.sh"),
        (BPG.format("web", f"  template = true\n{DISK}"), "main.tf"),
        (PLAYBOOK.format(arguments(vmid=9, template="true", scsi0="thin:8")), "play.yml"),
        (PACKER.format("iso", PACKED), "web.pkr.hcl"),
    ],
)
def test_a_templates_disk_is_called_one(text: str, name: str) -> None:
    ((disk,), _) = read(text, name)
    assert disk.template


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("template: 0\nname: web\nscsi0: thin:vm-9-disk-0\n", "9.conf"),
        ("qm create 9 --scsi0 thin:8\n", "make.sh"),
        (BPG.format("web", DISK), "main.tf"),
        (PACKER.format("iso", f"skip_convert_to_template = true\n  {PACKED}"), "web.pkr.hcl"),
    ],
)
def test_a_guests_disk_is_no_templates(text: str, name: str) -> None:
    ((disk,), _) = read(text, name)
    assert not disk.template


@pytest.mark.parametrize(
    ("text", "name", "template"),
    [
        (BPG.format("web", "  clone {\n    vm_id = 9000\n  }"), "main.tf", "9000"),
        (BPG.format("web", "  clone {\n    vm_id = var.base\n  }"), "main.tf", "var.base"),
        (TELMATE.format('clone = "debian12"'), "main.tf", "debian12"),
        (TELMATE.format("clone_id = 9000"), "main.tf", "9000"),
        ("qm clone 9000 101 --name web --full\n", "make.sh", "9000"),
        ("pvesh create /nodes/a/qemu/9000/clone --newid 101 --name web\n", "make.sh", "9000"),
        (PLAYBOOK.format(arguments(clone="debian12", name="web")), "play.yml", "debian12"),
        (PLAYBOOK.format(arguments(clone="any", vmid=9000, newid=101, name="web")), "play.yml",
         "9000"),
        (PACKER.format("clone", 'clone_vm = "debian12"'), "web.pkr.hcl", "debian12"),
    ],
)  # fmt: skip
def test_a_clone_without_a_disk_of_its_own_names_its_template(
    text: str, name: str, template: str
) -> None:
    disks, (guest,) = read(text, name)
    assert not disks
    assert guest.name == "web"
    assert guest.why == f"no disk to judge here, as a clone gets those of its template {template}"
    number = template if template.isdigit() else "VMID"
    assert f"`qm config {number} > {number}.conf`" in guest.instead


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (BPG.format("web", f"  clone {{\n    vm_id = 9000\n  }}\n{DISK}"), "main.tf"),
        ("qm clone 9000 101\nqm set 101 --scsi0 thin:8\n", "make.sh"),
        ("dir: local\n\tpath /var/lib/vz\n", "storage.cfg"),
    ],
)
def test_a_clone_with_a_disk_of_its_own_and_storages_are_not_named(text: str, name: str) -> None:
    _, diskless = read(text, name)
    assert not diskless


@pytest.mark.parametrize(
    ("clone", "disk"),
    [
        ("qm clone 9 101", "shelf:base-9-disk-scsi0.qcow2/vm-101-disk-scsi0.qcow2"),
        ("qm clone 9 101 --full", "shelf:vm-101-disk-scsi0.qcow2"),
        ("qm clone 9 101 --full --storage thin", "thin:vm-101-disk-scsi0.qcow2"),
    ],
)
def test_a_clone_of_a_template_in_the_same_script_has_its_lines(clone: str, disk: str) -> None:
    made = "qm create 9 --scsihw virtio-scsi-pci --scsi0 shelf:8,cache=unsafe,format=qcow2"
    disks, diskless = read(f"{made}\nqm template 9\n{clone}\n", "make.sh")
    (found,) = (each for each in disks if each.guest == "101")
    linked, thin = "base-9" in disk, disk.startswith("thin")
    expected = "lvmthin/unsafe" if thin else f"qcow2{':backing=1' if linked else ''}/unsafe"
    assert str(found.path) == f"{expected}/scsi:aio=io_uring:detect_zeroes=on"
    assert found.text.partition(",")[0] == disk
    assert (found.template, diskless) == (False, [])


@pytest.mark.parametrize(
    ("conf", "why", "instead"),
    [
        ("name: web\nide2: thin:vm-7-cloudinit,media=cdrom\n",
         "no disk in 7.conf (a line such as virtio0, scsi0, ide0, sata0)", "`qm config 7`"),
        ("name: web\nefidisk0: thin:vm-7-disk-0\n",
         "no disk in 7.conf (a line such as virtio0, scsi0, ide0, sata0)", "`qm config 7`"),
        ("name: web\nunused0: thin:vm-7-disk-0\n",
         "no disk in 7.conf (a line such as virtio0, scsi0, ide0, sata0), only unused0, which is "
         "attached to nothing", "`qm set 7 --scsi0 thin:vm-7-disk-0` on its node attaches it"),
    ],
)  # fmt: skip
def test_a_guest_without_a_line_of_a_disk_is_named(conf: str, why: str, instead: str) -> None:
    disks, (guest,) = read(conf, "7.conf")
    assert (disks, guest.name, guest.why) == ([], "web", why)
    assert instead in guest.instead


@pytest.mark.parametrize(
    ("origin", "node"),
    [
        ("pvesh set /nodes/beta/qemu/7/config --virtio0 thin:8", "beta"),
        ("qm set 7 --virtio0 thin:8", ""),
    ],
)
def test_a_script_may_name_the_guests_node(origin: str, node: str) -> None:
    ((disk,), _) = read(f"{origin}\n", "make.sh")
    assert (disk.node, disk.guest) == (node, "7")
