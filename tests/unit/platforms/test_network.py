"""Disks on servers in each platform's configuration: path, place, risks, and how to measure."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from vdisklab.answers.disks import (
    MeasuredPaths,
    command_to_measure,
    is_alike,
    problem_of,
)
from vdisklab.cli.shell.main import main
from vdisklab.errors import PlanError
from vdisklab.host.mounts import Mount
from vdisklab.inspection.disk_on_host import is_mounted, measured_form, read_contexts
from vdisklab.path.adjacent import adjacent_paths
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.named_target import parse_target
from vdisklab.path.needs import meets, nearest, parse_need
from vdisklab.path.segments import CacheMode, LayerKind
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import UNKNOWN_CONTEXT, DiskContext, disk_path, unknown_layers
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.guest_disks import NotExpressibleError
from vdisklab.platforms.network import same_server
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import cannot_have, change_of, configure, read_guests
from vdisklab.platforms.request import ExportRequest
from vdisklab.platforms.risk_kinds import FlushesDropped, IdleAio, OnServer, WritesThrownAway
from vdisklab.storage.server_url import url_of

QEMU = "qemu-system-x86_64 -machine q35 "
DISK = ",format=raw,if=virtio,cache=none"
DEVICE = "-device virtio-blk-pci,drive="


def read(text: str, name: str = "guest.sh", *beside: GuestText) -> ConfiguredDisk:
    (disk,) = read_guests([*beside, GuestText(text, name)])
    return disk


def libvirt(source: str, driver: str = "type='raw' cache='none'", more: str = "") -> ConfiguredDisk:
    return read(
        f"<domain type='kvm'><name>g</name><devices><disk type='network'><driver name='qemu' "
        f"{driver}/>{source}<target dev='vda' bus='virtio'/>{more}</disk></devices></domain>",
        "g.xml",
    )


def proxmox(volume: str, storage: str) -> ConfiguredDisk:
    storages = GuestText(storage, "/etc/pve/storage.cfg")
    text = f"name: g\nmemory: 512\nvirtio0: {volume},detect_zeroes=0,size=8G\n"
    return read(text, "1.conf", storages)


@pytest.mark.parametrize(
    ("arguments", "path", "source"),
    [
        ("-drive file=nbd://h/x" + DISK, "nbd/raw/none", "nbd://h/x"),
        ("-drive file=nbd+tcp://h:10810/x" + DISK, "nbd/raw/none", "nbd://h:10810/x"),
        ("-drive file=nbd:h:10809" + DISK, "nbd/raw/none", "nbd://h"),
        ("-drive file=nbd:unix:/run/n:exportname=v w" + DISK, "nbd/raw/none",
         "nbd+unix:///v%20w?socket=/run/n"),
        ("-drive file.driver=nbd,file.host=::1,file.port=1,file.export=e,format=qcow2,if=virtio",
         "nbd/qcow2/default", "nbd://[::1]:1/e"),
        ("-drive file=iscsi://joe%25pw@h:3260/iqn.x:y/1" + DISK, "iscsi/raw/none",
         "iscsi://joe@h/iqn.x:y/1"),
        ("-drive file=rbd:vms/ns/img:id=adm:conf=/etc/ceph/c.conf:key=AAA" + DISK, "rbd/none",
         "rbd:vms/ns/img@/etc/ceph/c.conf?id=adm"),
        ("-drive file=nfs://nas/e/a.qcow2,format=qcow2,if=virtio,cache=none", "libnfs/qcow2/none",
         "nfs://nas/e/a.qcow2"),
        ("-drive file=ssh://me@nas:22/e/a.raw" + DISK, "ssh/raw/none", "ssh://me@nas/e/a.raw"),
        ("-blockdev driver=nbd,node-name=f,server.type=unix,server.path=/s,export=x,"
         "cache.direct=on,reconnect-delay=3 -blockdev driver=raw,node-name=q,file=f,"
         f"cache.direct=on,discard=unmap {DEVICE}q", "nbd/raw/none", "nbd+unix:///x?socket=/s"),
        (f"-blockdev driver=iscsi,node-name=f,transport=tcp,portal=h:3261,target=iqn.a,lun=0 "
         f"{DEVICE}f", "iscsi/raw/default", "iscsi://h:3261/iqn.a/0"),
        (f"-drive file=/dev/rbd/vms/web{DISK}", "krbd/none", "/dev/rbd/vms/web"),
    ],
)  # fmt: skip
def test_qemus_own_drivers_are_targets(arguments: str, path: str, source: str) -> None:
    disk = read(QEMU + arguments.replace("v w", "'v w'"))
    assert (str(disk.path), disk.source, disk.limits) == (path, source, ())


HOST = "<host name='10.0.0.5' port='{}'/>"
AUTH = "<auth username='joe'><secret type='ceph' usage='x'/></auth>"


@pytest.mark.parametrize(
    ("source", "path", "place"),
    [
        ("<source protocol='nbd' name='v'><host transport='unix' socket='/s'/></source>",
         "nbd/raw/none", "nbd+unix:///v?socket=/s"),
        (f"<source protocol='nbd' tls='yes'>{HOST.format(10810)}</source>", "nbd/raw/none",
         "nbds://10.0.0.5:10810"),
        (f"<source protocol='iscsi' name='iqn.a:b/2'>{HOST.format(3260)}{AUTH}</source>",
         "iscsi/raw/none", "iscsi://joe@10.0.0.5/iqn.a:b/2"),
        (f"{AUTH}<source protocol='rbd' name='vms/web'>{HOST.format(6789)}</source>", "rbd/none",
         "rbd:vms/web@CEPH.CONF?id=joe"),
        ("<source protocol='rbd' name='vms/web'><config file='/etc/ceph/b.conf'/></source>",
         "rbd/none", "rbd:vms/web@/etc/ceph/b.conf"),
        (f"<source protocol='nfs' name='/e/a.raw'>{HOST.format(2049)}</source>",
         "libnfs/raw/none", "nfs://10.0.0.5/e/a.raw"),
        (f"<source protocol='ssh' name='/e/a.raw'>{HOST.format(2222)}</source>",
         "ssh/raw/none", "ssh://10.0.0.5:2222/e/a.raw"),
    ],
)  # fmt: skip
def test_libvirts_network_disks_are_targets(source: str, path: str, place: str) -> None:
    disk = libvirt(source)
    assert (str(disk.path), disk.source, disk.limits) == (path, place, ())
    assert disk.server is not None
    assert disk.server.has_secret == ("auth" in source or "tls" in source)


def test_libvirt_gives_a_network_disk_no_io_mode() -> None:
    """qemu_block.c, qemuBlockStorageSourceGetFileProps: only files and devices have one."""
    source = f"<source protocol='nbd' name='v'>{HOST.format(10809)}</source>"
    found = risks(libvirt(source, "type='raw' cache='none' io='native'"))
    assert [risk.mode for risk in found if isinstance(risk, IdleAio)] == ["native"]
    assert not any(isinstance(risk, IdleAio) for risk in risks(libvirt(source)))


RBD = "rbd: far\n\tpool vms\n"


@pytest.mark.parametrize(
    ("volume", "storage", "path", "source"),
    [
        ("far:vm-1-disk-0", RBD, "rbd/none", "rbd:vms/vm-1-disk-0@/etc/pve/ceph.conf"),
        ("far:base-9-disk-0/vm-1-disk-0", RBD + "\tnamespace a\n\tmonhost 10.0.0.1\n", "rbd/none",
         "rbd:vms/a/vm-1-disk-0@CEPH.CONF"),
        ("far:vm-1-disk-0", RBD + "\tkrbd 1\n", "krbd/none/virtio:aio=io_uring",
         "/dev/rbd-pve/FSID/vms/vm-1-disk-0"),
        ("far:vm-1-disk-0", RBD + "\tnamespace a\n\tkrbd 1\n\tfsid e1b44232\n",
         "krbd/none/virtio:aio=io_uring", "/dev/rbd-pve/e1b44232/vms/a/vm-1-disk-0"),
        ("far:1/a.qcow2", "nfs: far\n\tpath /mnt/pve/far\n",
         "nfs/qcow2/none/virtio:aio=io_uring", "/mnt/pve/far/images/1/a.qcow2"),
        ("far:1/a.raw", "cifs: far\n", "smb/raw/none/virtio:aio=native",
         "/mnt/pve/far/images/1/a.raw"),
        ("far:1/a.raw", "cephfs: far\n", "cephfs/raw/none/virtio:aio=io_uring",
         "/mnt/pve/far/images/1/a.raw"),
        ("far:lun3", "iscsidirect: far\n\tportal 10.0.0.6\n\ttarget iqn.a:b\n", "iscsi/raw/none",
         "iscsi://10.0.0.6/iqn.a:b/3"),
        ("far:vm-1-disk-0", "zfs: far\n\tportal 10.0.0.7\n\ttarget iqn.z\n", "iscsi/raw/none",
         "iscsi://10.0.0.7/iqn.z/LUN"),
        ("far:0.0.1.scsi-3600", "iscsi: far\n\tportal 10.0.0.6\n",
         "device/none/virtio:aio=io_uring", "/dev/disk/by-id/scsi-3600"),
    ],
)  # fmt: skip
def test_proxmoxs_storages_on_servers_are_targets(
    volume: str, storage: str, path: str, source: str
) -> None:
    disk = proxmox(volume, storage)
    assert (str(disk.path), disk.source) == (path, source)


def test_incus_opens_a_pool_of_ceph_and_a_foreign_image_by_librbd() -> None:
    """With writeback, as the system's `rbd cache` needs it, unless io.cache says otherwise."""
    device = "{type: disk, path: /, io.bus: virtio-blk, "
    pool = GuestText("- {name: far, driver: ceph, config: {}}", "pools")
    mapped = read(f"- {{name: g, config: {{}}, devices: {{d: {device}pool: far}}}}}}", "i", pool)
    assert str(mapped.path) == "rbd/writeback/virtio:discard=unmap"
    foreign = f"- {{name: g, config: {{}}, devices: {{d: {device}source: 'ceph:vms/web'}}}}}}"
    librbd = read(foreign, "i")
    assert str(librbd.path) == "rbd/writeback/virtio:discard=unmap"
    change = change_of(librbd, parse_path("rbd/none/virtio:discard=unmap"))
    assert change is not None
    assert change.paste == "incus config device set g d io.cache=none"
    assert librbd.source == "rbd:vms/web@/etc/ceph/ceph.conf?id=admin"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-drive file=https://joe:pw@h/x" + DISK, "its storage is 'https'"),
        ("-drive file=gluster://h/v/x" + DISK, "its storage is 'gluster'"),
        (f"-blockdev driver=nvme,node-name=n,device=0000:01:00.0,namespace=1 {DEVICE}n",
         "its storage is 'nvme'"),
        ("-drive file=rbd:p/i@snap:key=AAA" + DISK, "it is a snapshot on Ceph"),
        ("-drive 'file=nfs://nas/e/a?readahead=1'" + DISK, "no path has: readahead"),
        ("-drive file=iscsi://h" + DISK, "its iscsi node names no server or no disk"),
        (f"-blockdev driver=nbd,node-name=n {DEVICE}n", "its nbd node names no server"),
    ],
)  # fmt: skip
def test_what_is_no_target_says_why_and_keeps_secrets(arguments: str, said: str) -> None:
    disk = read(QEMU + arguments)
    assert disk.path is None
    assert said in (disk.problem or "")
    assert not any(word in repr(disk) for word in ("joe:pw", "AAA"))


def test_no_password_is_read() -> None:
    arguments = "-drive file=iscsi://joe%25hush@h/iqn.x:y/1" + DISK
    disk = read(QEMU + arguments)
    assert disk.server is not None
    assert disk.server.has_secret
    assert "hush" not in repr(disk)


def test_the_risks_of_a_disk_hold_on_a_server_too() -> None:
    unsafe = libvirt("<source protocol='rbd' name='p/i'/>", "cache='unsafe'", "<transient/>")
    assert risks(unsafe) == (WritesThrownAway(), FlushesDropped())
    chain = libvirt(
        "<source protocol='rbd' name='p/i'/>", "type='qcow2' cache='none'",
        "<backingStore type='file'><source file='/b'/></backingStore>",
    )  # fmt: skip
    assert str(chain.path) == "rbd/qcow2/none"
    assert chain.limits == ("backing=1",)


@pytest.mark.parametrize(
    ("disk", "said"),
    [
        (proxmox("far:vm-1-disk-0,cache=writeback", RBD),
         "memory between flushes, from the first write on, as Proxmox VE's QEMU turns"),
        (libvirt("<source protocol='rbd' name='p/i'/>", "cache='writeback'"),
         "memory between flushes, once the guest has flushed for the first time"),
        (libvirt("<source protocol='nbd'/>"), "a write is stable when the server says so"),
        (proxmox("far:1/a.raw", "nfs: far\n"), "with `sync`, so directsync is the same"),
        (proxmox("far:1/a.raw,cache=writeback", "nfs: far\n"), "this host's memory may hold"),
    ],
)  # fmt: skip
def test_what_a_server_promises_is_said(disk: ConfiguredDisk, said: str) -> None:
    (risk,) = (risk for risk in risks(disk) if isinstance(risk, OnServer))
    assert said in str(risk)
    assert unknown_layers(disk) is None


PLACES = [
    (libvirt(f"<source protocol='nbd' name='v'>{HOST.format(1)}</source>"), "raw/none"),
    (libvirt(f"{AUTH}<source protocol='rbd' name='p/i'>{HOST.format(1)}</source>"), "raw/none"),
    (libvirt(f"<source protocol='nfs' name='/e/a'>{HOST.format(1)}</source>"), "raw/none"),
    (libvirt(f"<source protocol='ssh' name='/e/a'>{HOST.format(1)}</source>"), "raw/none"),
    (proxmox("far:vm-1-disk-0", RBD + "\tkrbd 1\n"), "raw/none/virtio:aio=io_uring"),
    (proxmox("far:1/a.qcow2", "nfs: far\n"), "qcow2/none/virtio:aio=io_uring"),
]


@pytest.mark.parametrize(("disk", "local"), PLACES)
def test_the_command_measures_a_disk_on_its_own_server_beside_a_local_one(
    disk: ConfiguredDisk, local: str
) -> None:
    assert disk.path is not None
    command = command_to_measure(disk.path, disk=disk)
    arguments = shlex.split(command.split("`")[1])
    target = parse_target(arguments[arguments.index("--target") + 1])
    assert arguments[2:4] == [f"{target.name}/{local}", local]
    assert ("--secret" in arguments) == (disk.server is not None and disk.server.has_secret)
    kind = disk.path.layers[0].kind
    if disk.path.opened_by_qemu:
        assert target.kind is kind
        assert url_of(target, None).node
    assert disk.source is not None
    assert same_server(kind, disk.source, target.place) or kind.facts.holds_files
    # never the guest's own disk
    assert target.place != disk.source
    assert problem_of(disk, disk.path, (), "x86_64") == "its server was not measured"


@pytest.mark.parametrize("disk", [disk for disk, _ in PLACES])
def test_a_disk_is_offered_paths_on_its_own_server(disk: ConfiguredDisk) -> None:
    assert disk.path is not None
    needs = (parse_need("durable"), parse_need("discard"))
    offered = nearest(disk.path, needs, CrashVerdicts(), partial(cannot_have, disk))
    assert offered is not None
    assert offered.layers == disk.path.layers
    cached = (each for each in adjacent_paths(disk.path) if each.cache is CacheMode.WRITEBACK)
    change = change_of(disk, next(cached))
    assert ("aio=" in change.paste or "driver.io" in change.paste) is not disk.path.opened_by_qemu


def test_ceph_makes_snapshots_itself() -> None:
    for path in ("rbd/none", "krbd/none", "cephfs/raw/none"):
        assert meets(parse_path(path), parse_need("snapshots"), CrashVerdicts())


@pytest.mark.parametrize(
    ("disk", "target", "same"),
    [
        (PLACES[0][0], "fast=nbd://10.0.0.5:1/other", True),
        (PLACES[0][0], "fast=nbd://10.0.0.6:1/other", False),
        (PLACES[1][0], "fast=rbd:p/other@CEPH.CONF?id=joe", True),
        (PLACES[1][0], "fast=rbd:q/other", False),
        (PLACES[2][0], "fast=nfs://10.0.0.5/other", True),
    ],
)
def test_a_speed_counts_on_the_disks_own_server_only(
    disk: ConfiguredDisk, target: str, same: bool
) -> None:
    analysis = SimpleNamespace(campaigns=[SimpleNamespace(plan={"target": [target]})])
    measured = cast(MeasuredPaths, SimpleNamespace(analysis=analysis))
    assert disk.path is not None
    named = MeasuredPaths.on_target(measured, disk, disk.path)
    assert (named.layers[0].option("at") == "fast") is same
    assert not is_alike(disk.path, parse_path("raw/none"))
    assert is_alike(named, parse_path(str(named)))


def test_an_image_below_a_mount_of_a_server_lies_on_that() -> None:
    disk = read(f"{QEMU}-drive file=/mnt/nas/a.raw{DISK}")
    context = DiskContext(layers=parse_path("nfs/raw/none").layers)
    assert str(disk_path(disk, context)) == "nfs/raw/none"
    assert disk_path(disk, UNKNOWN_CONTEXT) == disk.path
    assert OnServer(LayerKind.NFS, cached=False) in risks(disk, context)


ON_SERVERS = [
    ("nbd/raw/none", "nbd://10.0.0.5/v%20w"),
    ("nbd/qcow2/writeback", "nbd+unix:///v?socket=/run/n.sock"),
    ("iscsi/raw/none/scsi:discard=unmap", "iscsi://joe@10.0.0.5/iqn.2001-04.com.example:disk/1"),
    ("libnfs/qcow2/none", "nfs://nas/export/a.qcow2"),
    ("rbd/none", "rbd:vms/web"),
    ("rbd/writeback/scsi", "rbd:vms/ns/vm-1-disk-0@/etc/ceph/b.conf?id=joe"),
    ("ssh/raw/none", "ssh://joe@nas:2222/srv/a%20b.raw"),
]


@pytest.mark.parametrize(("path", "place"), ON_SERVERS)
@pytest.mark.parametrize("form", ["libvirt", "qemu"])
def test_what_is_exported_is_read_back(form: str, path: str, place: str, tmp_path: Path) -> None:
    key = tmp_path / "key" if "joe" in place and not place.startswith("ssh") else None
    made = configure(ExportRequest(parse_path(path), place, secret=key), form)
    disk = read(made.text.replace("urn:vdisklab:disk-path:1", "urn:other"), f"g.{form}")
    assert (str(disk.path), disk.source, disk.limits) == (path, place, ())
    if form == "libvirt" and "<qemu:arg" not in made.text:
        assert _validates(made.text)
        (element,) = configure(ExportRequest(parse_path(path), place), "libvirt-disk").text.split(
            "<disk ")[1:]  # fmt: skip
        scsi = "<controller type='scsi' model='virtio-scsi'/>"
        whole = f"<domain><name>g</name><devices>{scsi}<disk {element}</devices></domain>"
        assert str(read(whole, "g.xml").path) == path


def _validates(text: str) -> bool:
    if shutil.which("virt-xml-validate") is None:
        return True
    arguments = ("virt-xml-validate", "-", "domain")
    done = subprocess.run(arguments, input=text, text=True, capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize(
    ("path", "place", "volume", "added"),
    [
        ("rbd/none", "rbd:vms/ns/web@/etc/ceph/b.conf?id=joe", "STORAGE:vm-VMID-disk-0",
         "rbd STORAGE --pool vms --namespace ns --username joe --krbd 0"),
        ("krbd/none/virtio:aio=io_uring", "/dev/rbd0", "STORAGE:vm-VMID-disk-0",
         "rbd STORAGE --pool POOL --krbd 1"),
        ("iscsi/raw/none", "iscsi://10.0.0.6/iqn.a:b/3", "STORAGE:lun3",
         "iscsidirect STORAGE --portal 10.0.0.6 --target iqn.a:b"),
        ("nfs/qcow2/none/virtio:aio=io_uring", "/mnt/nas", "STORAGE:VMID/vm-VMID-disk-0.qcow2",
         "nfs STORAGE --server SERVER --export EXPORT"),
        ("cephfs/raw/none/virtio:aio=io_uring", "/mnt/fs", "STORAGE:VMID/vm-VMID-disk-0.raw",
         "cephfs STORAGE"),
        ("smb/raw/none", "/mnt/win", "STORAGE:VMID/vm-VMID-disk-0.raw", "cifs STORAGE --server"),
    ],
)  # fmt: skip
def test_proxmox_is_told_the_storage_and_reads_its_line_back(
    path: str, place: str, volume: str, added: str
) -> None:
    text = configure(ExportRequest(parse_path(path), storage=place), "proxmox").text
    assert f"pvesm add {added}" in text
    line = text.splitlines()[-1]
    assert line.startswith(f"virtio0: {volume},")
    kind, _, options = added.partition(" STORAGE")
    arguments = options.split()
    pairs = (
        f"\t{key[2:]} {value}\n"
        for key, value in zip(arguments[::2], arguments[1::2], strict=False)
    )
    storages = GuestText(f"{kind}: STORAGE\n{''.join(pairs)}", "/etc/pve/storage.cfg")
    disk = read(f"memory: 512\n{line.replace('VMID', '7')}\n", "7.conf", storages)
    assert str(disk.path) == path


@pytest.mark.parametrize(
    ("form", "path", "place"),
    [
        ("incus", "rbd/none/scsi:discard=unmap", "rbd:vms/web@/etc/ceph/b.conf?id=joe"),
        ("openstack", "rbd/none", "rbd:vms/web@/etc/ceph/b.conf?id=joe"),
    ],
)
def test_librbd_of_managers_is_read_back(form: str, path: str, place: str) -> None:
    text = configure(ExportRequest(parse_path(path), storage=place), form).text
    names = {"incus": "i.yaml", "openstack": "nova.conf"}
    assert str(read(text, names[form]).path) == path


def test_a_namespace_of_ceph_is_kept_or_refused() -> None:
    """Incus and Nova name a pool and an image; libvirt takes a namespace since 11.6."""
    place = "rbd:vms/ns/web"
    for form in ("incus", "openstack"):
        with pytest.raises(NotExpressibleError, match="namespaces of Ceph") as caught:
            configure(ExportRequest(parse_path("rbd/none"), storage=place), form)
        assert "rbd map" in str(caught.value.hint)
    for version, named in (((9, 0), "&quot;namespace&quot;: &quot;ns&quot;"), ((11, 6), place[4:])):
        wish = ExportRequest(parse_path("rbd/none"), storage=place, libvirt=version)
        text = configure(wish, "libvirt").text
        assert named in text
        assert _validates(text)
        assert read(text.replace("urn:vdisklab", "urn:other"), "g.xml").source == place


def test_incus_reads_a_cluster_by_its_name() -> None:
    wish = ExportRequest(parse_path("rbd/none"), storage="rbd:vms/web@/home/lab.conf")
    assert "Incus reads /etc/ceph/lab.conf: copy /home/lab.conf there" in (
        configure(wish, "incus").text
    )


def test_a_device_needs_no_storage_of_proxmoxs_and_a_file_system_on_it_has_no_name_there() -> None:
    place = "/dev/sdb"
    text = configure(ExportRequest(parse_path("device/none"), storage=place), "proxmox").text
    assert "qm set VMID --virtio0 /dev/sdb," in text
    assert "create the volume" not in text
    text = configure(ExportRequest(parse_path("device/ext4/raw/none"), storage=place), "qemu").text
    assert place not in text
    assert "/guest.raw is on the file system device/ext4" in text


@pytest.mark.parametrize("form", ["proxmox", "kubevirt", "incus", "openstack"])
@pytest.mark.parametrize("path", ["nbd/raw/none", "libnfs/raw/none", "ssh/raw/none"])
def test_a_manager_without_the_driver_names_the_way_by_the_kernel(form: str, path: str) -> None:
    with pytest.raises(NotExpressibleError, match="that QEMU's own driver opens") as caught:
        configure(ExportRequest(parse_path(path)), form)
    assert "measure" in (caught.value.hint or "") or "--target" in (caught.value.hint or "")


def test_kubevirts_claim_is_of_a_storage_class() -> None:
    files = configure(ExportRequest(parse_path("nfs/raw/none"), storage="/mnt/nas"), "kubevirt")
    assert "its storage class is one for nfs, its volumeMode Filesystem" in files.text
    block = configure(ExportRequest(parse_path("krbd/none"), storage="/dev/rbd0"), "kubevirt")
    assert "its storage class is one for krbd, its volumeMode Block" in block.text
    assert "claimName: guest" in block.text


def test_an_export_names_files_with_secrets_and_never_reads_them(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("hush")
    place = "iscsi://joe@10.0.0.5/iqn.x:y/1"
    for form in ("libvirt", "libvirt-disk", "qemu", "proxmox"):
        made = configure(ExportRequest(parse_path("iscsi/raw/none"), place, secret=key), form)
        assert "hush" not in made.text
    domain = configure(ExportRequest(parse_path("iscsi/raw/none"), place, secret=key), "libvirt")
    assert '<secret type="iscsi" usage="myiscsi" />' in domain.text
    assert any("virsh secret-set-value" in requirement for requirement in domain.requirements)


def test_what_nobody_named_is_said_to_be_a_placeholder() -> None:
    made = configure(ExportRequest(parse_path("nbd/raw/none")), "qemu")
    assert made.requirements == (
        "nbd://10.0.0.5/export stands for your storage: name it with --target NAME=PLACE",
    )
    for source in ("/srv/a.img", "iscsi://h/iqn.x/1"):
        with pytest.raises(PlanError, match="is no nbd disk"):
            configure(ExportRequest(parse_path("nbd/raw/none"), source), "libvirt")


def test_export_takes_targets_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = f"fast=nbd+unix:///v?socket={tmp_path}/n.sock"
    for path in ("fast/raw/none", "nbd:at=fast/raw/none"):
        assert main(["export", path, "--to", "qemu", "--target", place]) == 0
        assert str(read(capsys.readouterr().out).path) == "nbd/raw/none"
    assert main(["export", "mine/qcow2/none", "--to", "qemu", "--target", f"mine={tmp_path}"]) == 0
    assert f"{tmp_path}/guest.qcow2" in capsys.readouterr().out
    assert main(["export", "ext4/raw/none", "--target", place]) == 2
    assert "is on none of these targets: fast" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("nbdkit") is None, reason="nbdkit is not installed")
@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed")
@pytest.mark.parametrize("path", ["nbd/raw/none", "nbd/raw/writeback/scsi", "nbd/qcow2/none"])
def test_qemu_opens_what_is_exported_from_a_real_server(path: str, tmp_path: Path) -> None:
    sock = tmp_path / "n.sock"
    server = subprocess.Popen(("nbdkit", "-f", "-U", str(sock), "memory", "16M"))
    try:
        while not sock.exists():
            assert server.poll() is None
            time.sleep(0.02)
        place = f"nbd+unix:///?socket={sock}"
        request = ExportRequest(parse_path(path), place, size=8 << 20, domain_type="qemu")
        text = configure(request, "qemu").text
        for line in text.splitlines():
            if line.startswith("# qemu-img"):
                subprocess.run(shlex.split(line[2:]), check=True)
        command = [line for line in text.splitlines() if not line.startswith("#")]
        arguments = shlex.split("\n".join(command).replace("\\\n", " "))
        answer = subprocess.run(
            (*arguments, "-S", "-display", "none", "-qmp", "stdio"), text=True, timeout=60,
            input='{"execute": "qmp_capabilities"}{"execute": "query-block"}{"execute": "quit"}',
            capture_output=True, check=True,
        )  # fmt: skip
        assert "disk0-dev" in answer.stdout
        assert str(sock) in answer.stdout
    finally:
        server.terminate()
        server.wait(10)


@pytest.mark.parametrize(
    ("filesystem", "path"),
    [
        ("nfs4", "nfs/raw:preallocation=off/none"),
        ("ceph", "cephfs/raw:preallocation=off/none"),
        ("cifs", "smb/raw:preallocation=off/none"),
        ("fuse.glusterfs", "glusterfs/raw:preallocation=off/none"),
        ("ext4", "ext4/raw:preallocation=off/none"),
    ],
)
def test_the_mount_below_an_image_says_the_server(
    filesystem: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "a.raw"
    with image.open("wb") as file:
        file.truncate(1 << 20)
    mount = Mount(tmp_path, filesystem, "nas:/e", frozenset({"rw"}))
    monkeypatch.setattr("vdisklab.host.mounts.mount_of", lambda _path: mount)
    disk = read(f"{QEMU}-drive file={image}{DISK}")
    (context,) = read_contexts([disk])
    found = disk_path(disk, context)
    assert str(found) == path
    assert found is not None
    assert is_mounted(found) is (filesystem != "ext4")
    assert disk.path is not None
    measured = measured_form(disk, found, context)
    assert (measured.layers == ()) is (filesystem != "ext4")  # its own directory is measured


def test_public_configurations_with_network_disks_have_paths() -> None:
    text = Path(__file__).parents[2] / "data" / "guests" / "far.xml"
    assert [str(disk.path) for disk in read_guests([GuestText(text.read_text(), "far.xml")])] == [
        "nbd/raw/none", "rbd/writeback", "iscsi/raw/none", "libnfs/qcow2/none", "None", "krbd/none",
    ]  # fmt: skip
