"""What Terraform, Ansible and compose fill in later hides no disk of a guest."""

from __future__ import annotations

import pytest

from vdisklab.errors import PlanError
from vdisklab.platforms.configured_disk import ConfiguredDisk, loses_writes
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.risk_kinds import CannotWork

STORAGES = GuestText("lvmthin: thin\n\tvgname v\n", "storage.cfg")


def read(text: str, name: str, notes: list[str] | None = None) -> dict[str, ConfiguredDisk]:
    disks = read_guests([STORAGES, GuestText(text, name)], notes)
    return {f"{disk.domain} {disk.target}": disk for disk in disks}


BPG = """\
variable "extra" {
  type = list(number)
}

resource "proxmox_virtual_environment_vm" "db" {
  name          = "db"
  node_name     = "pve1"
  vm_id         = 140
  scsi_hardware = "virtio-scsi-single"

  disk {
    datastore_id = "thin"
    interface    = "scsi0"
    file_format  = "raw"
    cache        = "unsafe"
    iothread     = true
  }
  disk {
    datastore_id = "thin"
    interface    = "virtio1"
    file_format  = "raw"
    cache        = lookup(var.caches, "log", "none")
    iothread     = var.threads
  }
  dynamic "disk" {
    for_each = var.extra
    content {
      datastore_id = "thin"
      interface    = "scsi${disk.value}"
      size         = 10
      cache        = "unsafe"
    }
  }
}
"""


def test_a_dynamic_block_of_terraform_hides_no_disk() -> None:
    disks = read(BPG, "main.tf")
    assert list(disks) == ["db scsi0", "db virtio1", "db dynamic disk"]
    assert str(disks["db scsi0"].path).startswith("lvmthin/unsafe/scsi")
    dynamic = disks["db dynamic disk"]
    assert dynamic.problem == "its interface is scsi${disk.value}, which only Terraform knows"
    assert loses_writes(dynamic)


def test_a_setting_that_terraform_fills_in_is_neither_refused_nor_made_up() -> None:
    disk = read(BPG, "main.tf")["db virtio1"]
    assert disk.problem is not None
    assert "a variable whose value is not known" in disk.problem
    assert disk.limits == ("iothread=${var.threads}",)
    assert not any(isinstance(risk, CannotWork) for risk in risks(disk))


@pytest.mark.parametrize(
    ("resource", "found"),
    [
        ('resource "proxmox_vm_qemu" "q" {\n name = "q"\n disk {\n  slot = "scsi0"\n'
         '  storage = "thin"\n }\n dynamic "disk" {\n  for_each = var.d\n  content {\n'
         "   slot = disk.value.slot\n  }\n }\n}\n", ["q scsi0", "q dynamic disk"]),
        ('resource "proxmox_vm_qemu" "q" {\n name = "q"\n disks {\n  scsi {\n   scsi0 {\n'
         '    disk {\n     storage = "thin"\n    }\n   }\n   dynamic "scsi1" {\n'
         "    for_each = var.d\n    content {\n     disk {\n     }\n    }\n   }\n  }\n }\n}\n",
         ["q scsi0", "q dynamic scsi1"]),
        ('resource "libvirt_domain" "q" {\n name = "q"\n disk {\n  file = "/vm/a.qcow2"\n }\n'
         ' dynamic "disk" {\n  for_each = var.d\n  content {\n   volume_id = disk.value.id\n'
         "  }\n }\n}\n", ["q vda", "q dynamic disk"]),
    ],
)  # fmt: skip
def test_dynamic_blocks_of_other_providers_are_rows(resource: str, found: list[str]) -> None:
    assert list(read(resource, "main.tf")) == found


def test_terraforms_broken_text_is_named_by_its_line() -> None:
    with pytest.raises(PlanError, match=r"see line 3"):
        read('resource "libvirt_domain" "q" {\n name = "q"\n = 7\n}\n', "main.tf")


PLAY = """\
---
- name: Create the databases
  hosts: localhost
  vars:
    storage: thin
  tasks:
    - name: Create guests
      community.general.proxmox_kvm:
        api_password: !vault |
          $ANSIBLE_VAULT;1.1;AES256
          6162
        node: pve1
        name: "{{ item }}"
        scsihw: virtio-scsi-single
        scsi0: "{{ storage }}:32,cache=writeback,iothread=1"
        virtio:
          virtio0: "{{ storage }}:64,cache=unsafe"
      loop: [db1, db2]
"""


def test_each_item_of_ansibles_loop_is_a_guest() -> None:
    disks = read(PLAY, "play.yml")
    assert {name: str(disk.path) for name, disk in disks.items()} == {
        f"{guest} {disk}": path
        for guest in ("db1", "db2")
        for disk, path in (
            ("scsi0", "lvmthin/writeback/scsi:aio=io_uring:detect_zeroes=on:iothread=on"),
            ("virtio0", "lvmthin/unsafe/virtio:aio=io_uring:detect_zeroes=on"),
        )
    }


def test_a_loop_whose_list_is_elsewhere_leaves_one_guest() -> None:
    disks = read(PLAY.replace("[db1, db2]", '"{{ databases }}"'), "play.yml")
    assert list(disks) == ["{{ item }} scsi0", "{{ item }} virtio0"]
    assert disks["{{ item }} virtio0"].drops_flushes


def test_keys_of_ansibles_items_are_filled_in_and_unknown_slots_are_rows() -> None:
    text = """\
- hosts: localhost
  vars:
    guests:
      - {name: a, id: 11, cache: unsafe}
      - {name: b, id: 12, cache: none}
  tasks:
    - community.general.proxmox_kvm:
        name: "{{ vm.name }}"
        vmid: "{{ vm['id'] }}"
        scsi:
          "scsi{{ n }}": "thin:8,cache=unsafe"
        virtio:
          virtio0: "thin:9,cache={{ vm.cache }}"
          virtio1: "thin:8,cache={{ cache_of_logs }}"
        sata: "{{ sata_disks }}"
      loop: "{{ guests }}"
      loop_control: {loop_var: vm}
"""
    disks = read(text, "play.yml")
    assert list(disks) == [
        f"{guest} {disk}" for guest in "ab" for disk in ("virtio0", "virtio1", "sata", "disk")
    ]
    assert (disks["a virtio0"].guest, disks["b virtio0"].guest) == ("11", "12")
    assert disks["a virtio0"].drops_flushes
    assert not disks["b virtio0"].drops_flushes
    assert "a variable whose value is not known" in (disks["a virtio1"].problem or "")
    assert disks["a disk"].problem == "its slot is scsi{{ n }}, which only Ansible knows"
    assert loses_writes(disks["a disk"])
    assert disks["b sata"].problem == "its sata is {{ sata_disks }}, which only Ansible knows"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- tasks:\n    - proxmox_kvm:\n        name: {{ item }}\n",
         r"line 3: found unhashable key; so its task proxmox_kvm in line 2 is not read"),
        ("- tasks:\n    - a.b.proxmox_kvm:\n      name: db\n",
         r"has the task a\.b\.proxmox_kvm in line 2, but its arguments are not `key: value` lines"),
    ],
)  # fmt: skip
def test_a_task_that_cannot_be_read_is_named_by_its_line(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        read(text, "play.yml")


COMPOSE = """\
services:
  vm:
    image: ${IMAGE:-qemus/qemu}
    environment:
      DISK_CACHE: "%s"
      ARGUMENTS: "-device virtio-blk-pci,drive=logs"
      DISK_IO: threads
    devices:
      - /dev/kvm
      - /dev/sdb:/disk2
      - /dev/mapper/vg-data:/data
    volumes:
      - /srv/vm:/storage
      - /dev/sdc:/disk3
      - /srv/old.qcow2:/old.qcow2
"""


@pytest.mark.parametrize(
    ("written", "cache", "assumed"),
    [
        ("${CACHE:-unsafe}", "unsafe", "CACHE=unsafe"),
        ("${CACHE-unsafe}", "unsafe", "CACHE=unsafe"),
        ("${CACHE:-${OTHER:-writeback}}", "writeback", "OTHER=writeback, CACHE=writeback"),
        ("writethrough", "writethrough", ""),
        ("${CACHE}", None, ""),
        ("$CACHE", None, ""),
        ("${CACHE:?say which}", None, ""),
        ("${CACHE:+unsafe}", None, ""),
    ],
)
def test_compose_has_the_default_of_a_variable(
    written: str, cache: str | None, assumed: str
) -> None:
    notes: list[str] = []
    disks = read(COMPOSE % written, "compose.yml", notes)
    first = disks["vm data1"]
    if cache is None:
        said = f"its cache mode is {written}, a variable whose value is not known"
        assert said in (first.problem or "")
    else:
        assert str(first.path).startswith(f"raw/{cache}/scsi")
        assert first.drops_flushes is (cache == "unsafe")
    assert not any(isinstance(risk, CannotWork) for disk in disks.values() for risk in risks(disk))
    defaults = [note for note in notes if "is read with its defaults" in note]
    assert (
        any(assumed in note for note in defaults)
        if assumed
        else all("CACHE" not in note for note in defaults)
    )


def test_devices_of_a_compose_file_are_read_or_named() -> None:
    disks = read(COMPOSE % "none", "compose.yml")
    assert {name: disk.source for name, disk in disks.items() if disk.path} == {
        "vm data1": "/srv/vm/data.img", "vm data2": "/dev/sdb",
    }  # fmt: skip
    assert {name: disk.problem for name, disk in disks.items() if not disk.path} == {
        "vm logs": "its drive 'logs' is not in the arguments: no -drive or -blockdev has this name",
        "vm /data": "/dev/mapper/vg-data stands under devices: at /data, "
        "where vdisklab does not read it",
        "vm /disk3": "/dev/sdc stands under volumes:, where a container may not open a device",
        "vm /old.qcow2": "/srv/old.qcow2 stands under volumes: at /old.qcow2, "
        "where vdisklab does not read it",
    }


@pytest.mark.parametrize("entry", ["DISK_TYPE", "DISK_TYPE=${TYPE}"])
def test_a_bus_that_the_environment_names_is_not_made_up(entry: str) -> None:
    text = f"services:\n  vm:\n    image: qemux/qemu\n    environment: ['{entry}']\n"
    (disk,) = read(text, "compose.yml").values()
    assert disk.path is None
    assert "vdisklab does not know the device" in (disk.problem or "")
