"""Guests that Terraform, Packer, Ansible and a compose file make."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.hcl import read_hcl
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.risk_kinds import CannotWork, FlushesDropped

STORAGES = GuestText("lvmthin: thin\n\tvgname v\n\ndir: shelf\n\tpath /shelf\n", "storage.cfg")


def read(text: str, name: str) -> list[ConfiguredDisk]:
    return list(read_guests([STORAGES, GuestText(text, name)]))


def shown(text: str, name: str = "main.tf") -> list[str]:
    return [f"{disk.guest} {disk.target} {disk.path}" for disk in read(text, name)]


BPG = """\
# two guests
variable "mode" { default = "unsafe" }
locals {
  store = "thin"
}
resource "proxmox_virtual_environment_vm" "web" {
  name  = "web"
  vm_id = 150 // a comment
  tags  = ["a", "b"]
  agent { enabled = true }
  disk {
    datastore_id = local.store
    interface    = "virtio0"
    file_format  = "raw"
    size         = 20
    cache        = var.mode
    iothread     = true
  }
  dynamic "disk" {
    for_each = var.extra
    content {
      datastore_id = "shelf"
      interface    = "scsi1"
      file_format  = "qcow2"
      discard      = "on"
      speed { iops_read = 100 }
    }
  }
}
"""


def test_guests_of_bpgs_provider_are_read() -> None:
    disks = {disk.target: disk for disk in read(BPG, "main.tf")}
    assert {target: str(disk.path) for target, disk in disks.items()} == {
        "virtio0": "lvmthin/unsafe/virtio:aio=io_uring:detect_zeroes=on:iothread=on",
        "scsi1": "qcow2/none/scsi:aio=io_uring:detect_zeroes=unmap:discard=unmap",
    }
    assert disks["virtio0"].domain == "web"
    assert disks["scsi1"].limits == ("iops_rd=100",)
    with pytest.raises(NotChangeableError, match="Terraform sets it"):
        change_of(disks["scsi1"], parse_path("qcow2/writeback/scsi"))


def test_a_format_that_the_storage_chooses_is_named() -> None:
    (disk,) = read(
        'resource "proxmox_virtual_environment_vm" "x" {\n disk {\n  datastore_id = "shelf"\n'
        '  interface = "virtio0"\n }\n}\n', "main.tf",
    )  # fmt: skip
    assert disk.limits == ("file_format=of-the-storage",)


@pytest.mark.parametrize(
    ("disk", "found"),
    [
        ('disk {\n slot = "virtio0"\n type = "disk"\n storage = "thin"\n cache = "unsafe"\n}',
         "virtio0 lvmthin/unsafe/virtio:aio=io_uring:detect_zeroes=on"),
        ('disk {\n type = "virtio"\n storage = "shelf"\n format = "qcow2"\n iothread = 1\n}',
         "virtio0 qcow2/none/virtio:aio=io_uring:detect_zeroes=on:iothread=on"),
        ('disks {\n scsi {\n  scsi0 {\n   disk {\n    storage = "thin"\n    cache = "writeback"\n'
         "    discard = true\n   }\n  }\n }\n}",
         "scsi0 lvmthin/writeback/scsi:aio=io_uring:detect_zeroes=unmap:discard=unmap"),
    ],
)  # fmt: skip
def test_guests_of_telmates_provider_are_read(disk: str, found: str) -> None:
    text = (
        f'resource "proxmox_vm_qemu" "q" {{\n vmid = 7\n scsihw = "virtio-scsi-pci"\n{disk}\n}}\n'
    )
    assert shown(text) == [f"7 {found}"]


@pytest.mark.parametrize(
    ("disk", "path"),
    [
        ("volume_id = libvirt_volume.base.id", "raw/default"),
        ("volume_id = libvirt_volume.over.id\n scsi = true", "qcow2:backing=1/default/scsi"),
        ('block_device = "/dev/vg/a"', "default"),
        ('file = "/vm/a.qcow2"', "qcow2/default"),
    ],
)
def test_domains_of_dmacvicars_provider_are_read(disk: str, path: str) -> None:
    text = (
        'resource "libvirt_volume" "base" {\n format = "raw"\n}\n'
        'resource "libvirt_volume" "over" {\n base_volume_id = libvirt_volume.base.id\n}\n'
        f'resource "libvirt_domain" "d" {{\n name = "d"\n disk {{\n {disk}\n }}\n}}\n'
    )
    assert [str(disk.path) for disk in read(text, "main.tf")] == [path]


def test_a_domain_in_the_words_of_libvirts_xml_is_read() -> None:
    text = """\
resource "libvirt_domain" "new" {
  name = "new"
  devices = {
    disks = [
      {
        source = { volume = { pool = "p", volume = "v" } }
        driver = { name = "qemu", type = "qcow2", cache = "unsafe" }
        target = { dev = "vda", bus = "virtio" }
      },
    ]
  }
}
"""
    assert [str(disk.path) for disk in read(text, "main.tf")] == ["qcow2/unsafe"]


@pytest.mark.parametrize(
    ("settings_", "path"),
    [
        ("", "qcow2/writeback"),
        ('format = "raw"\n disk_cache = "unsafe"\n disk_discard = "unmap"',
         "raw/unsafe/virtio:discard=unmap"),
        ('disk_interface = "virtio-scsi"\n disk_cache = "none"', "qcow2/none/scsi"),
        ('qemuargs = [["-m", "1G"], ["-drive", "if=virtio,file=x,format=raw,cache=directsync"]]',
         "raw/directsync"),
    ],
)  # fmt: skip
def test_packers_guests_are_read(settings_: str, path: str) -> None:
    text = f'source "qemu" "img" {{\n iso_url = "x.iso"\n {settings_}\n}}\nbuild {{ }}\n'
    assert [str(disk.path) for disk in read(text, "img.pkr.hcl")] == [path]


def test_packers_json_and_its_proxmox_are_read() -> None:
    text = '{"builders": [{"type": "qemu", "name": "a", "disk_cache": "unsafe"}]}'
    assert [str(disk.path) for disk in read(text, "t.json")] == ["qcow2/unsafe"]
    text = (
        'source "proxmox-iso" "t" {\n vm_id = 9\n disks {\n  type = "virtio"\n'
        '  storage_pool = "thin"\n  cache_mode = "unsafe"\n  io_thread = true\n }\n}\n'
    )
    assert shown(text, "t.pkr.hcl") == [
        "9 virtio0 lvmthin/unsafe/virtio:aio=io_uring:detect_zeroes=on:iothread=on"
    ]


PLAYBOOK = """\
- hosts: pve
  tasks:
    - name: a guest
      community.general.proxmox_kvm:
        vmid: 31
        name: db
        scsihw: virtio-scsi-single
        scsi: {scsi0: 'thin:10,cache=unsafe,iothread=1'}
        virtio:
          virtio0: shelf:5,format=qcow2
    - block:
        - community.proxmox.proxmox_disk:
            vmid: 31
            disk: scsi1
            storage: thin
            size: 4
            cache: directsync
            discard: true
"""


def test_ansibles_modules_are_read() -> None:
    assert sorted(shown(PLAYBOOK, "play.yml")) == [
        "31 scsi0 lvmthin/unsafe/scsi:aio=io_uring:detect_zeroes=on:iothread=on",
        "31 scsi1 lvmthin/directsync/scsi:aio=io_uring:detect_zeroes=unmap:discard=unmap",
        "31 virtio0 qcow2/none/virtio:aio=io_uring:detect_zeroes=on",
    ]


def test_what_a_playbook_fills_in_is_no_reason_to_leave_a_guest_out() -> None:
    """A line of Proxmox VE that begins with a brace was taken for YAML, and its file for none."""
    play = """\
- hosts: pve
  tasks:
    - proxmox_kvm:
        name: "{{ item.name }}"
        scsihw: virtio-scsi-pci
        scsi: {scsi0: "{{ pool }}:{{ size }},cache=unsafe"}
    - community.general.proxmox_kvm:
        vmid: 7
        ide: {0: "thin:vm-7-disk-0,cache=unsafe", 2: "local:iso/x.iso,media=cdrom"}
"""
    disks = {disk.target: disk for disk in read(play, "play.yml")}
    assert {target: disk.drops_flushes for target, disk in disks.items()} == {
        "scsi0": True, "ide0": True,
    }  # fmt: skip
    assert disks["scsi0"].domain == "{{ item.name }}"
    assert "its storage '{{ pool }}'" in (disks["scsi0"].problem or "")


@pytest.mark.parametrize(
    "nodes",
    [
        "{ for n in var.nodes : n.name => n }",
        "{\n for k, n in var.m :\n k => { a = n } if n.on\n }",
    ],
)
def test_guests_that_an_expression_makes_are_read(nodes: str) -> None:
    """One `for` left the whole file unread; a disk in a slot that only Terraform knows is named."""
    text = f"""
resource "proxmox_virtual_environment_vm" "kvm" {{
  for_each = {nodes}
  vm_id = each.value.vmid
  disk {{
    interface = "scsi0"
    datastore_id = "thin"
    file_format = "raw"
    cache = "unsafe"
  }}
  dynamic "disk" {{
    for_each = var.extra
    content {{
      interface = "scsi${{disk.key + 1}}"
      datastore_id = "thin"
    }}
  }}
}}
"""
    first, other = read(text, "main.tf")
    assert (first.target, first.drops_flushes) == ("scsi0", True)
    assert str(first.path) == "lvmthin/unsafe/scsi:aio=io_uring:detect_zeroes=on"
    assert (other.target, other.problem) == (
        "dynamic disk", "its interface is scsi${disk.key + 1}, which only Terraform knows",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("service", "found"),
    [
        ("image: qemux/qemu\n    environment: {DISK_CACHE: unsafe}\n"
         "    volumes: ['/vm/a:/storage']",
         # As the container does: native needs O_DIRECT, which unsafe does not use.
         ["raw/unsafe/scsi:detect_zeroes=on:discard=unmap:iothread=on"]),
        ("image: qemux/qemu\n    environment: {DISK_CACHE: directsync}",
         ["raw/directsync/scsi:aio=native:detect_zeroes=on:discard=unmap:iothread=on"]),
        ("image: ghcr.io/qemus/qemu:7\n    environment:\n      - DISK_IO=io_uring\n"
         "      - DISK_TYPE=blk\n      - DISK_FMT=qcow2\n      - DISK2_SIZE=10G",
         ["qcow2/none/virtio:aio=io_uring:detect_zeroes=on:discard=unmap:iothread=on"] * 2),
        ("image: dockurr/windows\n    environment: {DEVICE: /dev/sdb, DISK_CACHE: writeback, "
         "DISK_IO: threads, DISK_DISCARD: 'off'}",
         ["writeback/scsi:detect_zeroes=on:iothread=on"]),
        ("image: qemux/qemu\n    devices: [/dev/kvm, '/dev/sdb:/disk2', '/dev/sdc:/dev/disk3']\n"
         "    environment: {DISK_DISCARD: 'off'}\n    volumes: ['/vm/a:/storage', '/b:/storage4']",
         [f"{way}/scsi:aio=native:detect_zeroes=on:iothread=on"
          for way in ("raw/none", "none", "none", "raw/none")]),
        ("image: dockurr/macos",
         ["raw/none/virtio:aio=native:detect_zeroes=on:discard=unmap:iothread=on"]),
        ("image: docker.io/vdsm/virtual-dsm:latest\n    environment: {DISK_SIZE: 256G}",
         ["raw/none/scsi:aio=native:detect_zeroes=on:discard=unmap:iothread=on"]),
        ("image: kroese/virtual-dsm\n    environment: {DISK_CACHE: writeback}",
         ["raw/writeback/scsi:detect_zeroes=on:discard=unmap:iothread=on"]),
        ("image: dockurr/windows-arm\n"
         "    volumes: ['./win.qcow2:/disk.qcow2', '/d.img:/data2.img']",
         [f"{way}/none/scsi:aio=native:detect_zeroes=on:discard=unmap:iothread=on"
          for way in ("qcow2", "raw")]),
        ("image: qemux/qemu\n    environment: {DISK_TYPE: nvme}",
         ["raw/none/nvme:aio=native:detect_zeroes=on:discard=unmap"]),
    ],
)  # fmt: skip
def test_compose_files_are_read(service: str, found: list[str]) -> None:
    text = f"services:\n  box:\n    {service}\n  other:\n    image: nginx\n"
    disks = read(text, "compose.yml")
    assert [str(disk.path) for disk in disks] == found
    if "/vm/a" in service:
        assert disks[0].source == "/vm/a/data.img"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('resource "libvirt_domain" "d" {\n' + "a {\n" * 500, "main.tf"),
        ('resource "libvirt_domain" "d" {\n x = ' + "[" * 5_000 + "\n}", "main.tf"),
        ('resource "libvirt_domain" "d" {\n x = "' + "${" * 5_000 + "\n}", "main.tf"),
        ('resource "libvirt_domain" "d" {\n' + "a = 1\n" * 150_000 + "}", "main.tf"),
        ("services:\n  a:\n    image: qemux/qemu\n    x: " + "[" * 5_000, "c.yml"),
        ("- proxmox_kvm:\n    vmid: 1\n" * 3_000, "p.yml"),
        ('{"builders": [' + '{"type": "qemu"},' * 2_500 + '{"type": "qemu"}]}', "p.json"),
        ('source "qemu" "x" {\n a = <<EOT\n' + "x\n" * 50_000, "x.hcl"),
    ],
)  # fmt: skip
def test_no_such_text_takes_long(text: str, name: str) -> None:
    start = time.process_time()
    with suppress(PlanError):
        read(text, name)
    assert time.process_time() - start < 15


WORDS = ['resource "libvirt_domain" "d" {', "}", "\n", "disk {", "file = ", '"/a"', "[", "]", "=",
         "${", "<<EOT\n", "EOT\n", "var.x", "(", ")", ",", "#", '"']  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join))
@settings(max_examples=4 * settings().max_examples, deadline=None)
def test_any_hcl_is_read_or_refused(text: str) -> None:
    with suppress(PlanError):
        read_hcl(text, "x")
    with suppress(PlanError):
        for disk in read(text, "main.tf"):
            assert "this is a bug" not in (disk.problem or "")


def test_a_module_whose_guests_are_not_in_the_file_is_named() -> None:
    text = (
        'module "db" {\n  source = "./modules/vm"\n  cache = "unsafe"\n}\n'
        'resource "libvirt_domain" "a" {\n  name = "a"\n  disk { file = "/vm/a.qcow2" }\n}\n'
    )
    notes: list[str] = []
    (disk,) = read_guests([GuestText(text, "main.tf")], notes)
    assert disk.domain == "a"
    assert any("db (./modules/vm); name their files" in note for note in notes)


SATA = """resource "proxmox_virtual_environment_vm" "ci" {
  name  = "ci"
  disk {
    datastore_id = "local-lvm"
    interface    = "sata1"
    iothread     = true
    cache        = "unsafe"
  }
}
"""
PACKED_ON_SATA = """source "proxmox-iso" "deb" {
  vm_name = "deb"
  disks {
    type         = "sata"
    storage_pool = "local-lvm"
    cache_mode   = "none"
  }
}
build { sources = ["source.proxmox-iso.deb"] }
"""


@pytest.mark.parametrize(
    ("text", "name", "drops"), [(SATA, "main.tf", True), (PACKED_ON_SATA, "deb.pkr.hcl", False)]
)
def test_an_iothread_that_a_program_does_not_send_is_not_refused(
    text: str, name: str, drops: bool
) -> None:
    """bpg's provider and Packer's plugin send iothread for no sata disk, so such a guest starts."""
    (disk,) = read_guests([GuestText(text, name)])
    found = risks(disk)
    assert not any(isinstance(risk, CannotWork) for risk in found)
    assert any(isinstance(risk, FlushesDropped) for risk in found) is drops
