"""Where Terraform, Packer, Ansible, compose and systemd set a disk's cache mode."""

from __future__ import annotations

import pytest

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.hcl import read_hcl
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.where_set import set_by, set_to, unset

STORAGES = "lvmthin: local-lvm\n\tthinpool data\n\tvgname pve\n\nrbd: ceph\n\tpool vms\n\tkrbd 1\n"

TERRAFORM = """terraform {
  required_providers {
    proxmox = { source = "bpg/proxmox", version = "0.66.3" }
  }
}

variable "data_disks" {
  type = list(object({ interface = string, size = number, cache = optional(string) }))
  default = [
    { interface = "scsi1", size = 100, cache = "unsafe" },
    { interface = "scsi2", size = 200 },
  ]
}

locals {
  logs = {
    scsi3 = "directsync"
    scsi4 = "writeback"
  }
}

resource "proxmox_virtual_environment_vm" "db" {
  name      = "db"
  node_name = "pve1"
  vm_id     = 201
  scsi_hardware = "virtio-scsi-single"

  disk {
    datastore_id = "local-lvm"
    interface    = "scsi0"
    size         = 32
    file_format  = "raw"
    cache        = "writeback"
    iothread     = true
  }

  dynamic "disk" {
    for_each = var.data_disks
    content {
      datastore_id = "local-lvm"
      interface    = disk.value.interface
      size         = disk.value.size
      cache        = lookup(disk.value, "cache", "none")
      file_format  = "raw"
    }
  }

  dynamic "disk" {
    for_each = local.logs
    iterator = log
    content {
      datastore_id = "local-lvm"
      interface    = log.key
      size         = 10
      cache        = log.value
      file_format  = "raw"
    }
  }
}
"""

ANSIBLE = """- name: Guests
  hosts: localhost
  gather_facts: false
  vars:
    pool: local-lvm
  tasks:
    - name: Create guests
      community.general.proxmox_kvm:
        api_host: pve1
        node: pve1
        vmid: "{{ item.vmid }}"
        name: "{{ item.name }}"
        scsihw: virtio-scsi-single
        scsi:
          scsi0: >-
            {{ item.storage | default(pool) }}:{{ item.size }},format=raw,cache={{ item.cache
            | default('none') }}
      loop:
        - { vmid: 301, name: web, size: 32 }
        - { vmid: 302, name: db, size: 64, cache: unsafe }
        - { vmid: 303, name: mail, size: 64, cache: writeback, storage: ceph }
    - name: Data disks
      community.general.proxmox_disk:
        vmid: 301
        disk: scsi1
        storage: "{{ pool }}"
        size: 100
        cache: "{{ item.cache | default(omit) }}"
        iothread: "{{ item.iothread | default(true) }}"
      loop: [{n: 1}]
    - name: elsewhere
      community.general.proxmox_disk:
        vmid: 302
        disk: scsi1
        storage: "{{ pool }}"
        size: 100
        cache: "{{ disk_cache | default('none') }}"
"""

PACKER = """packer {
  required_plugins {
    qemu = { version = ">= 1.1.0", source = "github.com/hashicorp/qemu" }
  }
}
variable "cache" {
  type    = string
  default = "none"
}
source "qemu" "debian" {
  iso_url          = "https://example.org/debian.iso"
  iso_checksum     = "none"
  disk_size        = "20G"
  disk_additional_size = ["50G", "10G"]
  disk_interface   = "virtio-scsi"
  disk_cache       = var.cache
  disk_discard     = "unmap"
  format           = "raw"
  ssh_username     = "packer"
}
source "qemu" "fast" {
  iso_url    = "https://example.org/debian.iso"
  disk_cache = "unsafe"
}
build {
  sources = ["source.qemu.debian", "source.qemu.fast"]
}
"""

COMPOSE = """services:
  windows:
    image: dockurr/windows
    container_name: windows
    environment:
      VERSION: "11"
      DISK_SIZE: "64G"
      DISK_CACHE: "unsafe"
      DISK_FMT: qcow2
    devices: [/dev/kvm]
    volumes: [./windows:/storage]
  debian:
    image: qemux/qemu
    environment:
      BOOT: debian
    volumes: [/srv/debian:/storage]
"""

UNIT = r"""[Unit]
Description=VM web
[Service]
Environment=CACHE=unsafe
ExecStart=/usr/bin/qemu-system-x86_64 -name web -enable-kvm -m 2G \
  -drive file=/srv/vm/web.qcow2,if=virtio,format=qcow2,cache=${CACHE} \
  -drive file=/srv/vm/data.qcow2,if=virtio,format=qcow2
[Install]
WantedBy=multi-user.target
"""


def read(text: str, name: str) -> dict[tuple[str, str], ConfiguredDisk]:
    texts = [GuestText(text, name), GuestText(STORAGES, "storage.cfg")]
    return {(disk.domain, disk.target): disk for disk in read_guests(texts)}


def paths(text: str, name: str) -> dict[tuple[str, str], str]:
    return {key: f"{disk.path or disk.problem}" for key, disk in read(text, name).items()}


def places(text: str, name: str) -> dict[tuple[str, str], str]:
    return {key: disk.changed_at for key, disk in read(text, name).items()}


def line(text: str, part: str) -> int:
    return next(number for number, each in enumerate(text.splitlines(), 1) if part in each)


def test_a_dynamic_block_over_a_literal_list_is_its_disks() -> None:
    assert paths(TERRAFORM, "main.tf") == {
        ("db", slot): f"lvmthin/{cache}/scsi:aio=io_uring:detect_zeroes=on{thread}"
        for slot, cache, thread in (
            ("scsi0", "writeback", ":iothread=on"), ("scsi1", "unsafe", ""),
            ("scsi2", "none", ""), ("scsi3", "directsync", ""), ("scsi4", "writeback", ""),
        )
    }  # fmt: skip


@pytest.mark.parametrize(
    ("for_each", "value"),
    [
        ("var.elsewhere", "disk.value.cache"),
        ("{ for name, disk in local.all : name => disk }", "disk.value.cache"),
        ("[for name in local.all : name]", "disk.value"),
        ("toset(local.all)", "disk.value"),
    ],
)
def test_a_dynamic_block_that_only_terraform_knows_is_named(for_each: str, value: str) -> None:
    text = (
        'resource "proxmox_virtual_environment_vm" "db" {\n  name = "db"\n'
        f'  dynamic "disk" {{\n    for_each = {for_each}\n    content {{\n'
        f"      interface = disk.key\n      cache = {value}\n    }}\n  }}\n}}\n"
    )
    (disk,) = read(text, "main.tf").values()
    assert (disk.target, "only Terraform knows" in (disk.problem or "")) == ("dynamic disk", True)


@pytest.mark.parametrize(
    ("written", "cache"),
    [
        ("disk.value.cache", "unsafe"),
        ('disk.value["cache"]', "unsafe"),
        ('lookup(disk.value, "cache", "none")', "unsafe"),
        ('lookup(disk.value, "mode", "none")', "none"),
        ('try(disk.value.mode, "writeback")', "writeback"),
        ('"${disk.value.cache}"', "unsafe"),
    ],
)
def test_what_a_dynamic_block_says_of_its_item(written: str, cache: str) -> None:
    text = (
        'resource "x" "y" {\n  dynamic "disk" {\n    for_each = [{ cache = "unsafe" }]\n'
        f'    content {{\n      slot = "scsi${{disk.key}}"\n      cache = {written}\n'
        "    }\n  }\n}\n"
    )
    (disk,) = next(read_hcl(text, "main.tf").all("resource")).blocks
    assert (disk.type, disk.text("slot"), disk.text("cache")) == ("disk", "scsi0", cache)


def test_dynamic_blocks_in_each_other_end() -> None:
    inner = "content {}\n"
    items = ", ".join(["{}"] * 300)
    for _ in range(8):
        inner = f'content {{\n dynamic "disk" {{\n for_each = [{items}]\n {inner} }}\n}}\n'
    try:
        whole = read_hcl(f'dynamic "disk" {{\n for_each = [{items}]\n {inner} }}\n', "main.tf")
    except PlanError:
        return
    count, rest = 0, list(whole.blocks)
    while rest:
        count, block = count + 1, rest.pop()
        rest += block.blocks
    assert count < 40_000


def test_a_default_of_ansible_is_for_the_items_that_lack_the_key() -> None:
    of_thin, of_ceph = "scsi:aio=io_uring:detect_zeroes=on", "scsi:aio=io_uring:detect_zeroes=on"
    found = paths(ANSIBLE, "site.yml")
    assert found[("web", "scsi0")] == f"lvmthin/none/{of_thin}"
    assert found[("db", "scsi0")] == f"lvmthin/unsafe/{of_thin}"
    assert found[("web", "scsi1")] == f"lvmthin/none/{of_thin}:iothread=on"
    assert found[("mail", "scsi0")] == f"krbd/writeback/{of_ceph}".replace("aio=io_uring:", "")
    assert "a variable whose value is not known" in found[("db", "scsi1")]


@pytest.mark.parametrize(
    ("expression", "cache"),
    [
        ("item.cache | default('none')", "unsafe"),
        ("item.mode | default('none')", "none"),
        ('item.mode|d("directsync")', "directsync"),
        ("item.empty | default('writeback', true)", "writeback"),
        ("item['mode'] | default(usual)", "writethrough"),
        ("item.mode | default(omit)", "none"),
    ],
)
def test_the_filter_default(expression: str, cache: str) -> None:
    text = (
        "- hosts: localhost\n  vars: {usual: writethrough}\n  tasks:\n"
        "    - community.general.proxmox_disk:\n        vmid: 301\n        disk: virtio1\n"
        "        storage: local-lvm\n        size: 9\n"
        f'        cache: "{{{{ {expression.replace(chr(34), chr(39))} }}}}"\n'
        "      loop: [{cache: unsafe, empty: ''}]\n"
    )
    (disk,) = read(text, "site.yml").values()
    assert disk.path is not None
    assert str(disk.path.cache) == cache


def test_packer_names_its_guest_and_every_disk() -> None:
    disks = read(PACKER, "debian.pkr.hcl")
    assert [(*key, disk.source) for key, disk in disks.items()] == [
        ("packer-debian", "drive0", "output-debian/packer-debian"),
        ("packer-debian", "drive1", "output-debian/packer-debian-1"),
        ("packer-debian", "drive2", "output-debian/packer-debian-2"),
        ("packer-fast", "virtio0", "output-fast/packer-fast"),
    ]


def test_each_file_names_the_line_that_sets_the_cache_mode() -> None:
    found = places(TERRAFORM, "main.tf")
    for slot, part in (("scsi0", 'cache        = "writeback"'), ("scsi2", "lookup(")):
        assert found[("db", slot)] == f"`cache` in line {line(TERRAFORM, part)} of main.tf"
    assert found[("db", "scsi4")] == (
        "the disk's entry in the list of the dynamic block "
        f"(not line {line(TERRAFORM, '= log.value')}, which all its disks share)"
    )
    found = places(PACKER, "debian.pkr.hcl")
    assert found[("packer-debian", "drive2")] == (
        f"`default` in line {line(PACKER, 'default = ')} of debian.pkr.hcl "
        "(-var, -var-file and PKR_VAR_cache override it)"
    )
    found = places(COMPOSE, "compose.yml")
    assert set(found.values()) == {
        f"`DISK_CACHE` in line {line(COMPOSE, 'DISK_CACHE')} of compose.yml",
        "`DISK_CACHE` of service debian in compose.yml, which is not set",
    }
    assert list(places(UNIT, "vm-web.service").values()) == [
        f"`CACHE` in line {line(UNIT, 'Environment=')} of vm-web.service",
        f"`cache=` in line {line(UNIT, 'data.qcow2')} of vm-web.service",
    ]
    assert set(places(ANSIBLE, "site.yml").values()) == {"`cache` of its task in site.yml"}


def test_a_line_that_would_be_undone_names_where_to_change() -> None:
    disk = read(PACKER, "debian.pkr.hcl")[("packer-fast", "virtio0")]
    with pytest.raises(PlanError, match="Packer sets it") as caught:
        change_of(disk, parse_path("qcow2/none"))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("change `disk_cache` in line ")


SERVICES = """services:
  win:
    image: dockurr/windows
    volumes: ["/srv/w:/storage"]
  lin:
    image: qemux/qemu
    env_file: [other.env, e.env]
    tmpfs: [/storage:size=9G]
  arg:
    image: qemux/qemu
    environment:
      ARGUMENTS: "-drive file=/data/x.img,if=virtio,cache=unsafe,format=raw"
    volumes: ["m:/storage"]
  bare:
    image: qemux/qemu
volumes:
  m: {driver_opts: {type: tmpfs, device: tmpfs}}
"""


def test_the_place_of_a_service_is_its_own() -> None:
    notes, unset_ = list[str](), ", which is not set"
    files = {"e.env": "A=1\nDISK_CACHE=unsafe\n", "other.env": "DISK_CACHE=none\n"}
    disks = read_guests([GuestText(SERVICES, "c.yml", files=files)], notes)
    assert [(disk.domain, disk.changed_at, disk.lost_below) for disk in disks] == [
        ("win", f"`DISK_CACHE` of service win in c.yml{unset_}", None),
        ("lin", "`DISK_CACHE` in line 2 of e.env", "/storage is memory (tmpfs)"),
        (
            "arg",
            "`DISK_CACHE` of service arg in c.yml, which is not set",
            "/storage is memory (tmpfs)",
        ),
        ("arg", "`cache=` of `ARGUMENTS` in line 12 of c.yml", None),
        ("bare", f"`DISK_CACHE` of service bare in c.yml{unset_}", None),
    ]
    assert notes == [
        "Service bare mounts nothing at /storage: its disk goes with the container, so mount a "
        "directory there to keep it."
    ]


def test_what_nobody_set_is_the_default_of_the_image() -> None:
    place = unset("`DISK_CACHE` of service bare in c.yml")
    assert set_by(place) == (
        "the image's default (`DISK_CACHE` of service bare in c.yml is not set)"
    )
    assert set_to(place, "none") == "set `DISK_CACHE` of service bare in c.yml to none"
    assert set_by("`DISK_CACHE` in line 2 of c.yml") == "set by `DISK_CACHE` in line 2 of c.yml"


IN_VARIABLES = """[Service]
{}
ExecStart=/usr/bin/qemu-system-x86_64 -name a -m 1G \\
  -drive file=${{DISK}},if=virtio,format=qcow2,cache=${{MODE}}
"""


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ("Environment=DISK=/srv/a.qcow2\nEnvironment=MODE=unsafe", "`MODE` in line 3 of a.service"),
        ('Environment="DISK=/srv/a.qcow2" MODE=unsafe', "`MODE` in line 2 of a.service"),
        ("Environment=MODE=none DISK=/srv/a.qcow2\nEnvironmentFile=-/etc/a.env",
         "`MODE` in line 2 of /etc/a.env"),
    ],
)  # fmt: skip
def test_a_variable_of_a_unit_is_changed_where_it_is_set(variables: str, place: str) -> None:
    """The disk's file was a variable, too, so that its drive was not found."""
    text = GuestText(
        IN_VARIABLES.format(variables), "a.service", files={"/etc/a.env": "X=1\nMODE=unsafe\n"}
    )
    (disk,) = read_guests([text])
    assert str(disk.path) == "qcow2/unsafe"
    assert disk.changed_at == place


@pytest.mark.parametrize(
    "option", ["--tmpfs /storage:size=9G", "--mount type=tmpfs,destination=/storage"]
)
def test_a_container_whose_storage_is_memory_keeps_nothing(option: str) -> None:
    (disk,) = read_guests([GuestText(f"docker run -d {option} qemux/qemu\n", "run.sh")])
    assert disk.lost_below == "/storage is memory (tmpfs)"


NODES = """[Service]
Environment=CACHE=unsafe DIR=/vm
ExecStart=/usr/bin/qemu-system-x86_64 -name v -m 1G \\
  -drive file=${DIR}/a.raw,format=raw,if=none,id=d1,cache=${CACHE} \\
  -device virtio-blk-pci,drive=d1 \\
  -blockdev driver=raw,node-name=n2,file.driver=file,file.filename=/vm/b,cache.no-flush=on \\
  -device virtio-blk-pci,drive=n2 \\
  -blockdev driver=nbd,node-name=n3,server.type=inet,server.host=nas,server.port=1 \\
  -device virtio-blk-pci,drive=n3,id=far
"""


def test_a_unit_names_the_flag_of_a_node_and_the_variable_of_a_drive() -> None:
    assert [*places(NODES, "v.service").values()] == [
        "`CACHE` in line 2 of v.service",
        "`cache.no-flush` in line 6 of v.service",
        "its cache mode in v.service",
    ]
    assert set_to("`cache.no-flush` in line 6 of v.service", "none").endswith("v.service to off")
    assert set_to("`CACHE` in line 2 of v.service", "none").endswith("v.service to none")


def test_a_drive_of_qemuargs_is_set_there() -> None:
    text = (
        'source "qemu" "args" {\n  format = "raw"\n  qemuargs = [\n'
        '    ["-drive", "file=out/x.raw,if=virtio,cache=unsafe,format=raw"],\n  ]\n}\n'
    )
    assert [*places(text, "b.pkr.hcl").values()] == [
        "`cache=` of `qemuargs` in line 3 of b.pkr.hcl"
    ]


def test_a_service_has_the_keys_that_it_merges() -> None:
    text = (
        "x-a: &a {image: qemux/qemu, 1: x, environment: {DISK_CACHE: unsafe}}\n"
        "x-b: &b {volumes: ['/srv/b:/storage']}\n"
        "services:\n  one:\n    <<: [*a, *b]\n  two:\n    environment: {DISK_CACHE: none}\n"
        "    <<: *a\n    volumes: ['/srv/c:/storage']\n"
    )
    disks = read_guests([GuestText(text, "c.yml")])
    assert [(disk.domain, disk.source, disk.drops_flushes) for disk in disks] == [
        ("one", "/srv/b/data.img", True), ("two", "/srv/c/data.img", False),
    ]  # fmt: skip


def test_merges_of_merges_end() -> None:
    rows = "\n".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}], k{n}: 1}}" for n in range(1, 9)
    )
    text = f"a0: &a0 {{x: 1}}\n{rows}\nservices:\n  v: {{image: qemux/qemu}}\n"
    with pytest.raises(PlanError, match="aliases repeat"):
        read_guests([GuestText(text, "c.yml")])


def test_disks_with_the_same_settings_are_told_their_own_places() -> None:
    drive = "-drive file=/vm/{0},format=raw,if=virtio,cache=unsafe"
    unit = (
        "[Service]\nExecStart=/usr/bin/qemu-system-x86_64 -name v -m 1G \\\n"
        f"  {drive.format('a')} \\\n  {drive.format('b')}\n"
    )
    found = [*places(unit, "v.service").values()]
    assert found == ["`cache=` in line 3 of v.service", "`cache=` in line 4 of v.service"]
