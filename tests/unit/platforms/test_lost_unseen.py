"""Losses that no cache mode shows: memory below a share or a pool, and what changes QEMU unseen."""

from __future__ import annotations

import pytest

from vdisklab.errors import PlanError
from vdisklab.inspection.disk_on_host import read_contexts
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests

DISK = """<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/>
<source file='{file}'/><target dev='vda' bus='virtio'/></disk>"""
DOMAIN = """<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>g</name><devices>{devices}</devices>{after}</domain>"""
OVERRIDE = """<qemu:override><qemu:device alias='virtio-disk0'><qemu:frontend>
<qemu:property name='drive' type='string' value='{0}'/></qemu:frontend></qemu:device>
</qemu:override>"""
MACHINE = """apiVersion: kubevirt.io/v1
kind: {kind}
metadata:
  name: m
  annotations: {{{annotation}}}
spec:
  domain: {{devices: {{filesystems: [{{name: a, virtiofs: {{}}}}]}}}}
  volumes: [{{name: a, persistentVolumeClaim: {{claimName: c}}}}]
---
{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: c}}, spec: {{volumeName: v}}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: v}}
spec: {{local: {{path: {path}}}, mountOptions: [{options}]}}
"""
INSTANCE = """- name: i
  type: virtual-machine
  expanded_config: {{{config}}}
  expanded_devices: {{root: {{type: disk, path: /, pool: p}}}}
"""


def domain(devices: str = DISK.format(file="/srv/a.qcow2"), after: str = "") -> ConfiguredDisk:
    text = DOMAIN.format(devices=devices, after=after)
    (disk,) = read_guests([GuestText(text, "g.xml")])
    return disk


def machine(path: str = "/srv/v", annotation: str = "", options: str = "") -> ConfiguredDisk:
    text = MACHINE.format(
        kind="VirtualMachineInstance", path=path, annotation=annotation, options=options
    )
    (disk,) = read_guests([GuestText(text, "m.yaml")])
    return disk


def instance(pool: str, config: str = "") -> ConfiguredDisk:
    texts = [(INSTANCE.format(config=config), "i.yaml"), (f"- name: p\n  {pool}\n", "p.yaml")]
    (disk,) = read_guests([GuestText(text, name) for text, name in texts])
    return disk


@pytest.mark.parametrize("place", ["/dev/shm", "/dev/shm/share", "/run/vms"])  # noqa: S108 - read only
def test_a_share_of_memory_loses_what_the_guest_syncs(place: str) -> None:
    for driver in ("virtiofs", "path"):
        share = f"<filesystem type='mount'><driver type='{driver}'/><source dir='{place}/none'/>"
        disk = domain(f"{share}<target dir='t'/></filesystem>")
        (context,) = read_contexts([disk])
        assert "is memory (tmpfs)" in (context.lost_below or "")


def test_a_share_of_kubevirt_is_its_claims_volume() -> None:
    (context,) = read_contexts([machine("/dev/shm/none")])  # noqa: S108 - read only
    assert "is memory (tmpfs)" in (context.lost_below or "")
    assert machine().source == "/srv/v"
    assert "mounted with `nobarrier`" in (machine(options="nobarrier").lost_below or "")
    assert machine().lost_below is None


@pytest.mark.parametrize(
    ("pool", "loss"),
    [
        ("driver: zfs\n  config: {source: /dev/shm/zp.img}", "the pool p is on /dev/shm/zp.img"),
        ("driver: lvm\n  config: {source: /run/lvm.img}", "the pool p is on /run/lvm.img"),
        ("driver: btrfs\n  config: {source: /dev/ram0}", "the pool p is on /dev/ram0"),
        ("driver: zfs\n  config: {source: tank/incus}", None),
        ("driver: lvm\n  config: {source: /var/lib/incus/disks/p.img}", None),
    ],
)
def test_a_pool_of_incus_in_memory_loses_all(pool: str, loss: str | None) -> None:
    found = instance(pool).lost_below
    assert (found is None) if loss is None else (loss in (found or ""))


@pytest.mark.parametrize(
    ("setting", "is_doubtful"),
    [
        ("raw.qemu.scriptlet: 'def qemu_hook(instance, stage): pass'", True),
        ("raw.qemu.conf: '[drive \"x\"]'", True),
        ("raw.qemu.qmp.early: '[]'", True),
        ("raw.qemu.scriptlet: ''", False),
        ("raw.qemu: '-no-hpet'", False),
    ],
)
def test_what_changes_the_qemu_of_incus_leaves_its_disks_in_doubt(
    setting: str, is_doubtful: bool
) -> None:
    doubt = instance("driver: dir\n  config: {source: /srv/incus}", setting).may_differ
    assert bool(doubt) is is_doubtful


def test_a_hook_sidecar_leaves_a_machine_in_doubt() -> None:
    assert "hook sidecar" in machine(annotation="hooks.kubevirt.io/hookSidecars: '[]'").may_differ
    assert machine(annotation="kubevirt.io/other: x").may_differ == ""


@pytest.mark.parametrize(
    ("emulator", "is_doubtful"),
    [
        ("/usr/bin/qemu-system-x86_64", False), ("/usr/libexec/qemu-kvm", False),
        ("/usr/bin/kvm", False), ("/usr/bin/kvm-spice", False), ("/usr/bin/qemu-kvm", False),
        ("/run/libvirt/nix-emulators/qemu-kvm", False),
        ("/nix/store/x/bin/.qemu-system-x86_64-wrapped", False),
        ("/opt/qemu-wrap.sh", True), ("/usr/local/bin/my-kvm", True),
    ],
)  # fmt: skip
def test_an_emulator_that_is_no_qemu_leaves_disks_in_doubt(
    emulator: str, is_doubtful: bool
) -> None:
    disk = domain(f"<emulator>{emulator}</emulator>{DISK.format(file='/srv/a.qcow2')}")
    assert bool(disk.may_differ) is is_doubtful
    assert disk.lost_below is None


def test_an_emulator_behind_eatmydata_loses_flushes() -> None:
    emulator = "<emulator>/usr/local/bin/eatmydata-qemu</emulator>"
    disk = domain(emulator + DISK.format(file="/srv/a.qcow2"))
    assert disk.lost_below == "eatmydata makes QEMU's fsync do nothing"


def test_a_device_with_another_drive_is_not_the_disk_that_is_written() -> None:
    disk = domain(after=OVERRIDE.format("mynode"))
    assert disk.path is None
    assert "has the drive mynode" in (disk.problem or "")


@pytest.mark.parametrize(
    ("kind", "source"), [("fs", "/dev/zram0"), ("logical", "/dev/ram1"), ("disk", "/dev/ram0p1")]
)
def test_a_pool_of_libvirt_on_memory_loses_all(kind: str, source: str) -> None:
    pool = f"<pool type='{kind}'><name>p</name><source><device path='{source}'/></source>"
    texts = [
        GuestText(DOMAIN.format(devices=DISK.format(file="/srv/p/a"), after=""), "g.xml"),
        GuestText(f"{pool}<target><path>/srv/p</path></target></pool>", "p.xml"),
    ]
    (disk,) = read_guests(texts)
    assert f"the pool p is on {source}, which is memory" in (disk.lost_below or "")
    assert disk.below_instead == "Make the pool on a disk"


def test_a_storage_domain_of_ovirt_is_on_nfs() -> None:
    file = "/rhev/data-center/mnt/nas:_export_my__vms/1/images/2/3"
    texts = [
        GuestText(DOMAIN.format(devices=DISK.format(file=file), after=""), "g.xml"),
        GuestText("/export/my_vms *(rw,async)\n", "exports"),
    ]
    (disk,) = read_guests(texts)
    assert str(disk.path) == "nfs/qcow2/none"
    assert disk.lost_if is not None
    assert disk.lost_if[0].startswith("if nas is the machine of exports")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cloud-hypervisor --kernel k --disk path=/srv/a.raw,direct=off\n", "cloud-hypervisor"),
        ('{"payload": {"kernel": "k"}, "disks": [{"path": "/a"}]}', "cloud-hypervisor"),
        ('{"drives": [{"drive_id": "r", "path_on_host": "r.ext4"}]}', "Firecracker"),
        ("firecracker --api-sock /tmp/f.sock\n", "Firecracker"),
        ("crosvm run --block /srv/a.raw bzImage\n", "crosvm"),
        ("lkvm run -d /srv/b.raw\n", "kvmtool"),
    ],
)
def test_another_monitor_of_kvm_is_refused_in_one_sentence(text: str, name: str) -> None:
    with pytest.raises(PlanError, match=f"is a guest of {name}, and vdisklab knows"):
        read_guests([GuestText(text, "guest")])
