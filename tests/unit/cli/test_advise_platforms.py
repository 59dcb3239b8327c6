"""What `vdisklab advise` says of one platform's disks alone."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.unit.cli.advise_guests import advised
from tests.unit.stored import Database
from vdisklab.cli.shell.main import main


def test_a_disk_that_an_arm_guest_may_not_see_is_named(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volumes = "volumes:\n      - {name: root, containerDisk: {image: demo}}"
    machine = (
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: vm}\nspec:\n"
        "  template:\n    spec:\n      architecture: arm64\n      domain:\n        devices:\n"
        f"          disks: [{{name: root, disk: {{bus: sata}}}}]\n      {volumes}\n"
    )
    (tmp_path / "vm.yaml").write_text(machine)
    (tmp_path / "100.conf").write_text("arch: aarch64\nname: pve\nsata1: other:vm-1,size=8G\n")
    assert main(["advise", str(tmp_path / "vm.yaml"), str(tmp_path / "100.conf"), "--why"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "change – does not start, as KubeVirt refuses" in out
    assert "set cache none" not in out
    assert "KubeVirt refuses the bus sata on arm64, so the guest does not start with it now" in out
    assert "pve sata1: A guest of aarch64 may not see it: it is on SATA" in out


INSTANCE = """\
name: web
architecture: x86_64
type: virtual-machine
config: {image.os: Ubuntu}
devices:
  agent: {source: 'agent:config', type: disk}
  setup: {source: /srv/iso/debian.iso, type: disk}
  root: {path: /, pool: default, type: disk MORE}
---
name: default
driver: dir
config: {source: /var/lib/incus/storage-pools/default}
"""


def test_an_instance_of_incus_is_measured_with_its_other_cache_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its aio mode follows: no line of Incus sets one alone."""
    file = tmp_path / "instance.yaml"
    file.write_text(INSTANCE.replace(" MORE", ""))
    document = advised(capsys, str(file), "--dir", str(tmp_path))
    assert document["disks"][0]["measurable"]
    command = document["planned"][0]["command"]
    present = "raw/none/scsi:aio=io_uring:discard=unmap"
    assert f"vdisklab run {present} raw/writeback/scsi:discard=unmap " in command
    assert "qcow2" not in command, "Incus makes none"
    assert "iothread" not in command
    zfs = file.with_name("zfs.yaml")
    zfs.write_text(INSTANCE.replace(" MORE", "").replace("driver: dir", "driver: zfs"))
    (on_zfs,) = advised(capsys, str(zfs))["planned"]
    assert "aio=io_uring" not in on_zfs["command"], "no default of Incus on ZFS either"
    (elsewhere,) = advised(capsys, str(file))["planned"]
    assert elsewhere["stands_in"] == "node", "its pool is not on this host"
    pool = "/var/lib/incus/storage-pools/default"
    assert elsewhere["command"].endswith(f" --dir {pool}/virtual-machines/web")
    file.write_text(INSTANCE.replace(" MORE", ", io.cache: unsafe"))
    (group,) = advised(capsys, str(file), "--dir", str(tmp_path))["disks"]
    assert (group["action"], group["to"]) == ("change", present)
    assert group["change"]["paste"] == "incus config device set web root io.cache=none"


@pytest.mark.parametrize(
    ("document", "paste", "undo"),
    [
        (
            "- name: db\n  type: virtual-machine\n  devices:\n"
            "    data: {type: disk, pool: fast, source: d, io.cache: unsafe, io.bus: nvme}\n",
            "incus config device set db data io.cache=none io.bus=virtio-scsi",
            "incus config device set db data io.cache=unsafe io.bus=nvme",
        ),
        (
            "- name: db\n  type: virtual-machine\n  expanded_devices:\n"
            "    data: {type: disk, pool: fast, source: d, io.bus: nvme}\n",
            "incus config device override db data io.bus=virtio-scsi",
            "incus config device remove db data",
        ),
        (
            "config: {}\ntype: virtual-machine\ndevices:\n"  # as `incus config show db` prints it
            "  data: {type: disk, pool: fast, source: d, io.bus: nvme}\n",
            "incus config device set INSTANCE data io.bus=virtio-scsi",
            "incus config device set INSTANCE data io.bus=nvme",
        ),
        (
            "name: big\nconfig: {}\nused_by: [/1.0/instances/db]\ndevices:\n"
            "  data: {type: disk, pool: fast, source: d, io.bus: nvme}\n",
            "incus profile device set big data io.bus=virtio-scsi",
            "incus profile device set big data io.bus=nvme",
        ),
        (
            "- name: db\n  type: virtual-machine\n  project: prod\n  expanded_devices:\n"
            "    data: {type: disk, pool: fast, source: d, io.bus: nvme}\n",
            "incus config device override db data io.bus=virtio-scsi --project prod",
            "incus config device remove db data --project prod",
        ),
    ],
)
def test_incus_moves_an_nvme_disk_to_another_bus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: str, paste: str, undo: str
) -> None:
    """It has no cache mode without a write cache, which NVMe would need."""
    guests, pools = tmp_path / "list.yaml", tmp_path / "pools.yaml"
    guests.write_text(document)
    pools.write_text("- name: fast\n  driver: zfs\n  config: {source: tank/incus}\n")
    (row,) = advised(capsys, str(guests), str(pools))["disks"]
    assert row["change"] == {"paste": paste, "undo": undo, "node": None}
    assert row["to"].startswith("zvol/none/scsi:aio=native")
    if "INSTANCE" not in paste:
        assert row["disk"]["guest"] == ("profile big" if "used_by" in document else "db")
    (alone,) = advised(capsys, str(guests))["disks"]
    assert alone["change"] == row["change"], "whatever its pool is"


def test_incus_takes_a_running_guests_disk_out_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web.yaml").write_text(
        "name: web\ntype: virtual-machine\nstatus: Running\ndevices:\n"
        "  data: {source: /srv/a.img, type: disk, io.cache: unsafe}\n"
    )
    assert main(["advise", str(tmp_path / "web.yaml"), "--why"]) == 0
    shown = capsys.readouterr().out
    assert "stop each guest that has it first: a running one loses it at once" in shown
    assert "from its next start on" not in shown


def test_one_patch_has_all_changes_to_a_machine_of_kubevirt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The webhook refuses a patch that leaves another disk with a value that it refuses."""
    (tmp_path / "web.yaml").write_text(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: web, namespace: prod}\n"
        "spec:\n  template:\n    spec:\n      domain:\n        devices:\n          disks:\n"
        "          - {name: a, disk: {bus: sata}, dedicatedIOThread: true}\n"
        "          - {name: b, disk: {bus: virtio}, cache: unsafe}\n"
        "      volumes:\n"
        "      - {name: a, hostDisk: {path: /data/a.img, type: Disk}}\n"
        "      - {name: b, hostDisk: {path: /data/b.img, type: Disk}}\n"
    )
    assert main(["advise", str(tmp_path / "web.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("kubectl patch"))
    place = "/spec/template/spec/domain/devices/disks"
    operations = json.loads(shlex.split(line)[-1])
    assert {(each["op"], each["path"]) for each in operations} == {
        ("test", f"{place}/0/name"), ("remove", f"{place}/0/dedicatedIOThread"),
        ("test", f"{place}/1/name"), ("add", f"{place}/1/cache"),
    }  # fmt: skip
    (undo,) = (line for line in lines if line.startswith("#   undo: kubectl"))
    assert len(json.loads(shlex.split(undo.partition(": ")[2])[-1])) == 4
    assert "# web a, web b, from its next start on" in lines


PLAY = """- hosts: localhost
  tasks:
  - community.general.proxmox_kvm:
      name: db
      vmid: 301
      scsi:
        scsi0: 'nas:100,format=qcow2,cache=unsafe'
"""
NAS = "nfs: nas\n\tpath /mnt/pve/nas\n\tserver 10.0.0.5\n\texport /srv/nas\n\tcontent images\n"


@pytest.mark.parametrize("storage", [NAS, ""])
def test_a_tasks_disk_on_a_server_gets_a_mode_that_passes_flushes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], storage: str
) -> None:
    """`no path of Proxmox VE on its storage does` was said of NFS, with its storage.cfg."""
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "storage.cfg").write_text(storage or "dir: local\n\tpath /var/lib/vz\n")
    (row,) = advised(capsys, str(tmp_path))["disks"]
    assert row["action"] == "change"
    assert row["reason"].startswith(f"set `cache` in line 7 of {tmp_path / 'play.yml'} to none")
    assert row["reason"].endswith(", which passes flushes on")
