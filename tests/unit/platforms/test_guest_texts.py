"""Guests of each manager are read as disk paths, and what has no path says why."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdisklab.errors import PlanError, VdisklabError
from vdisklab.path.disk_path import parse_path
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import CacheMode
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, forms, read_guests
from vdisklab.platforms.request import ExportRequest
from vdisklab.platforms.risk_kinds import FlushesDropped
from vdisklab.platforms.yaml_documents import read_documents

GUESTS = Path(__file__).parents[2] / "data" / "guests"


def read(*names: str) -> dict[str, ConfiguredDisk]:
    texts = [GuestText((GUESTS / name).read_text(), name) for name in names]
    return {disk.target: disk for disk in read_guests(texts)}


def test_a_guest_in_a_clusters_directory_is_on_its_node() -> None:
    text = "virtio0: /srv/a.raw,size=1G\n"
    origins = {"copy/nodes/pve1/qemu-server/3.conf": "pve1", "/etc/pve/qemu-server/3.conf": ""}
    for origin, node in origins.items():
        (disk,) = read_guests([GuestText(text, origin)])
        assert disk.node == node


INSTANCE = """- name: mail
  type: virtual-machine
  project: {project}
  devices: {{}}
  expanded_devices: {{d: {{type: disk, pool: p, {volume}}}}}
"""


@pytest.mark.parametrize(
    ("project", "volume", "pool", "source", "path"),
    [
        ("default", "path: /", "driver: ceph, config: {ceph.osd.pool_name: vms}",
         "rbd:vms/virtual-machine_mail.block@/etc/ceph/ceph.conf?id=admin", "rbd/writeback"),
        ("lab", "path: /", "driver: ceph, config: {source: c, ceph.user.name: joe}",
         "rbd:c/virtual-machine_lab_mail.block@/etc/ceph/ceph.conf?id=joe", "rbd/writeback"),
        ("default", "source: data", "driver: ceph, config: {ceph.cluster_name: far}",
         "rbd:p/custom_default_data.block@/etc/ceph/far.conf?id=admin", "rbd/writeback"),
        ("default", "source: data, io.cache: none", "driver: ceph, config: {}",
         "rbd:p/custom_default_data.block@/etc/ceph/ceph.conf?id=admin", "rbd/none"),
        ("default", "path: /", "driver: zfs, config: {source: tank}", "p:mail", "zvol/none:native"),
        ("default", "path: /", "driver: lvm, config: {source: vg}", "p:mail",
         "lvmthin/none:io_uring"),
        ("default", "path: /", "driver: dir, config: {source: /data}",
         "/data/virtual-machines/mail/root.img", "raw/none:io_uring"),
        ("lab", "path: /", "driver: dir, config: {source: /data/}",
         "/data/virtual-machines/lab_mail/root.img", "raw/none:io_uring"),
        ("lab", "source: x", "driver: dir, config: {source: /data}", "/data/custom/lab_x/root.img",
         "raw/none:io_uring"),
        ("default", "path: /", "driver: btrfs, config: {source: /var/lib/incus/disks/p.img}",
         "/var/lib/incus/storage-pools/p/virtual-machines/mail/root.img", "raw/writeback"),
        ("default", "path: /", "driver: btrfs, config: {source: /dev/sdb}", "p:mail",
         "raw/writeback"),
    ],
)  # fmt: skip
def test_a_volume_of_incus_is_where_its_drivers_name_it(
    project: str, volume: str, pool: str, source: str, path: str
) -> None:
    """So that a spare disk beside it has Ceph's pool, and a directory is measured where it is."""
    guest = INSTANCE.format(project=project, volume=volume)
    texts = [GuestText(guest, "i.yaml"), GuestText(f"[{{name: p, {pool}}}]", "pools.yaml")]
    (disk,) = read_guests(texts)
    way, _, aio = path.partition(":")
    options = f"aio={aio}:discard=unmap" if aio else "discard=unmap"
    assert (disk.source, str(disk.path)) == (source, f"{way}/scsi:{options}")
    assert disk.node == ""


@pytest.mark.parametrize(
    ("device", "pool", "drops"),
    [
        ("source: /dev/sdb", "", True),
        ("source: /dev/disk/by-id/wwn-0x5, io.bus: virtio-blk", "", True),
        ("source: /dev/sdb, io.cache: none", "", False),
        ("pool: p, source: x", "driver: truenas, config: {source: nas}", True),
        ("pool: p, source: x, io.cache: writeback", "driver: truenas, config: {}", False),
        ("pool: p, source: x", "driver: linstor, config: {}", False),
        ("source: /srv/a.img", "", False),
    ],
)
def test_incus_ignores_flushes_of_a_block_device_of_the_host(
    device: str, pool: str, drops: bool
) -> None:
    """No word of the configuration says it: addDriveConfig, "Using unsafe cache I/O"."""
    guest = f"- {{name: g, config: {{}}, devices: {{d: {{type: disk, {device}}}}}}}"
    pools = [GuestText(f"[{{name: p, {pool}}}]", "pools.yaml")] if pool else []
    (disk,) = read_guests([GuestText(guest, "i.yaml"), *pools])
    assert disk.drops_flushes is drops
    said = [str(risk) for risk in risks(disk) if isinstance(risk, FlushesDropped)]
    assert len(said) == drops
    whose = "in a pool of type truenas" if pool else "of the host"
    assert all(f"unsafe is Incus's own default for a block device {whose}" in t for t in said)
    if "truenas" in pool and drops:
        assert disk.assumed is not None
        assert disk.assumed.cache is CacheMode.UNSAFE


@pytest.mark.parametrize(
    ("mode", "volume", "source", "path", "on_file_volume"),
    [
        (
            "Block",
            "{driver: rook-ceph.rbd.csi.ceph.com, volumeAttributes: {pool: vms, imageName: csi-1}}",
            "/dev/rbd/vms/csi-1", "krbd/none/virtio:aio=native:discard=unmap", False,
        ),
        (
            "Filesystem",
            "{driver: nfs.csi.k8s.io, volumeAttributes: {server: nas, share: /vm, subdir: p}}",
            "nas:/vm/p/disk.img", "nfs/raw/none/virtio:discard=unmap", False,
        ),
        (
            "Filesystem", "{driver: ebs.csi.aws.com}",
            "c", "raw/none/virtio:discard=unmap", True,
        ),
    ],
)  # fmt: skip
def test_a_claim_on_ceph_or_nfs_is_storage_of_a_server(
    mode: str, volume: str, source: str, path: str, *, on_file_volume: bool
) -> None:
    text = f"""apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: web}}
spec: {{template: {{spec: {{domain: {{devices: {{disks: [{{name: root, disk: {{bus: virtio}}}}]}}}},
  volumes: [{{name: root, persistentVolumeClaim: {{claimName: c}}}}]}}}}}}
---
{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: c}},
 spec: {{volumeMode: {mode}, volumeName: v}}}}
---
{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: v}}, spec: {{csi: {volume}}}}}
"""
    (disk,) = read_guests([GuestText(text, "vm.yaml")])
    assert (disk.source, str(disk.path)) == (source, path)
    assert disk.on_file_volume == on_file_volume


def test_a_guest_of_proxmox_is_read_with_its_storages() -> None:
    disks = read("storage.cfg", "100.conf")
    assert {target: str(disk.path) for target, disk in disks.items()} == {
        "scsi0": "lvmthin/none/scsi:aio=io_uring:detect_zeroes=on:iothread=on",
        "scsi1": "qcow2/writeback/scsi:aio=io_uring:detect_zeroes=unmap:discard=unmap",
        "scsi2": "rbd/none/scsi:detect_zeroes=on",
        "scsi3": "lvm/none/scsi:aio=native:detect_zeroes=on",
        "scsi4": "raw/writeback/scsi:aio=io_uring:detect_zeroes=on",
        "virtio0": "zvol/none/virtio:aio=native:detect_zeroes=on:"
        "throttle_bps=10M:throttle_iops=500",
    }
    assert disks["scsi0"].source == "/dev/pve/vm-100-disk-0"
    assert disks["scsi1"].source == "/var/lib/vz/images/100/vm-100-disk-1.qcow2"
    assert disks["virtio0"].read_only
    assert disks["scsi2"].source == "rbd:vms/vm-100-disk-2@/etc/pve/ceph.conf"
    assert {(disk.domain, disk.guest) for disk in disks.values()} == {("mail", "100")}


def test_without_its_storages_a_guest_of_proxmox_says_what_is_missing() -> None:
    disk = read("100.conf")["scsi0"]
    assert "'local-lvm' is not in storage.cfg" in (disk.problem or "")
    assert disk.unseen is not None
    assert "`scp root@NODE:/etc/pve/storage.cfg .`" in disk.unseen
    assert (disk.problem or "").endswith(disk.unseen)


def test_a_storage_that_is_not_among_those_of_its_file_is_not_sent_for_that_file() -> None:
    texts = [GuestText("dir: local\n\tpath /var/lib/vz\n", "storage.cfg"),
             GuestText("scsi0: fast:vm-7-disk-0,size=8G\n", "7.conf")]  # fmt: skip
    (disk,) = read_guests(texts)
    assert "'fast' is not in storage.cfg" in (disk.problem or "")
    assert "`pvesm status`" in (disk.problem or "")
    assert "beside" not in (disk.problem or "")


def test_a_controller_that_is_not_virtio_is_refused() -> None:
    (disk,) = read_guests([GuestText("scsi0: /srv/a.qcow2\nmemory: 512\n", "7.conf")])
    assert (disk.problem or "").startswith("vdisklab does not measure its controller 'lsi', only ")
    assert ": set scsihw to virtio-scsi-single, " in (disk.problem or "")


def test_a_volume_of_a_pool_says_which_command_names_its_file() -> None:
    xml = (
        "<domain><name>g</name><devices><disk type='volume'><source pool='p' volume='v.qcow2'/>"
        "<target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    (disk,) = read_guests([GuestText(xml, "g.xml")])
    assert (disk.problem or "").startswith("its source is the volume 'v.qcow2' of the pool 'p'")
    assert "`virsh pool-dumpxml p > p.xml`" in (disk.unseen or "")


def test_a_name_of_megabytes_is_cut() -> None:
    (disk,) = read_guests([GuestText(f"scsi0: {'a' * 2_000_000}:x\nmemory: 512\n", "7.conf")])
    assert len(disk.problem or "") < 200


def test_a_machine_of_kubevirt_is_read_with_its_claims() -> None:
    disks = read("machine.yaml")
    assert {target: str(disk.path) for target, disk in disks.items()} == {
        "root": "raw/none/virtio:discard=unmap:iothread=on:queues=4",
        "data": "writeback/virtio:discard=unmap:iothread=on:queues=4",
        "plain": "none/sata:aio=native:discard=unmap",
        "image": "None",
        "lost": "None",
    }
    assert [target for target, disk in disks.items() if disk.on_file_volume] == ["root"]
    assert disks["root"].architecture == "x86_64"
    assert "ends with its pod" in (disks["image"].problem or "")
    assert "volumeMode of its claim 'elsewhere'" in (disks["lost"].problem or "")
    unseen = [target for target, disk in disks.items() if disk.unseen is not None]
    assert unseen == ["root", "data", "plain", "lost"], "no volume of a claim is here"
    assert all("`kubectl get vm,pvc,dv,pv -A " in (disks[each].unseen or "") for each in unseen)


@pytest.mark.parametrize(
    ("mode", "kind", "owner", "source"),
    [
        ("Block", "local: {path: /dev/vg0/web}", "", "/dev/vg0/web"),
        ("Filesystem", "hostPath: {path: /mnt/web/}", "", "/mnt/web/disk.img"),
        (
            "Block",
            "local: {path: /dev/sdb}",
            "claimRef: {namespace: shop, name: web-data}, ",
            "/dev/sdb",
        ),
        ("Block", "local: {path: /dev/sdb}", "claimRef: {namespace: a, name: web-data}, ", None),
        ("Block", "csi: {driver: rbd.csi.ceph.com}", "", None),
    ],
)
def test_the_local_volume_of_a_claim_of_kubevirt_is_its_place_on_the_node(
    mode: str, kind: str, owner: str, source: str | None
) -> None:
    text = (GUESTS / "machine.yaml").read_text()
    claim = "  metadata: {name: web-data, namespace: shop}\n  spec: {volumeMode: Block"
    assert claim in text
    bound = "" if owner else ", volumeName: pv-1"
    text = text.replace(claim, claim.replace("Block", mode) + bound)
    volume = "\n---\nkind: PersistentVolume\napiVersion: v1\nmetadata: {name: pv-1}\n"
    text += f"{volume}spec: {{{owner}{kind}}}\n"
    disks = {disk.target: disk for disk in read_guests([GuestText(text, "all.yaml")])}
    assert disks["data"].source == (source or "web-data")
    assert disks["root"].source == "web-root"
    is_here = owner == "" or "shop" in owner
    assert (disks["data"].unseen is None) == is_here, "a volume of a CSI driver is known, too"
    assert disks["root"].unseen is not None


@pytest.mark.parametrize(
    ("claim", "volume", "is_pending"),
    [
        ("{volumeMode: Block}\n  status: {phase: Pending}", "", True),
        ("{volumeMode: Block}", "metadata: {name: pv-9}\nspec: {}\n", True),
        ("{volumeMode: Block, volumeName: pv-1}", "metadata: {name: pv-9}\nspec: {}\n", False),
        ("{volumeMode: Block, volumeName: pv-1}\n  status: {phase: Bound}", "", False),
        ("{volumeMode: Block}", "", False),
    ],
)
def test_a_claim_without_a_volume_in_the_cluster_is_not_bound_yet(
    claim: str, volume: str, is_pending: bool
) -> None:
    """The command that was run for it would print the same again."""
    before = "metadata: {name: web-data, namespace: shop}\n  spec: {volumeMode: Block}"
    text = (GUESTS / "machine.yaml").read_text()
    assert before in text
    text = text.replace(before, before.replace("{volumeMode: Block}", claim))
    if volume:
        text += f"\n---\nkind: PersistentVolume\napiVersion: v1\n{volume}"
    disks = {disk.target: disk for disk in read_guests([GuestText(text, "all.yaml")])}
    unseen = disks["data"].unseen or ""
    assert unseen.startswith("its claim is not bound to a volume yet") is is_pending, unseen
    # Its class may tell what an unbound claim will be, and is not among what was read.
    assert f"`kubectl get vm,pvc,dv,pv{',sc' * is_pending} -A " in unseen
    if is_pending:
        text += "\n---\nkind: StorageClass\napiVersion: storage.k8s.io/v1\nmetadata: {name: x}\n"
        disks = {disk.target: disk for disk in read_guests([GuestText(text, "all.yaml")])}
        assert "; once it is, run `kubectl get vm,pvc,dv,pv -A " in (disks["data"].unseen or "")


def test_instances_of_incus_are_read_with_their_pools() -> None:
    disks = read("instances.yaml")
    assert {target: str(disk.path) for target, disk in disks.items()} == {
        "root": "zvol/none/scsi:aio=native:discard=unmap",
        "scratch": "zvol/writeback/virtio:discard=unmap",
        "far": "rbd/writeback/scsi:discard=unmap",
        "unknown": "None",
        "code": "None",
    }
    assert "is a directory or an image" in (disks["code"].problem or "")
    assert "driver of its pool 'other'" in (disks["unknown"].problem or "")
    assert "`incus storage list --format yaml > pools.yaml`" in (disks["unknown"].unseen or "")
    assert [target for target, disk in disks.items() if disk.unseen] == ["unknown"]


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ("-drive file=/a.qcow2,format=qcow2,if=virtio,cache=none,aio=native,discard=unmap",
         "qcow2/none/virtio:aio=native:discard=unmap"),
        ("-hda /a.img", "raw/default/ide"),
        ("-drive file=/a,,b.img,format=raw,if=none,id=d,cache=writethrough "
         "-device virtio-blk-pci,drive=d,iothread=t,num-queues=2 -object iothread,id=t",
         "raw/writethrough/virtio:iothread=on:queues=2"),
        ("-drive file=/dev/sdz,format=raw,if=none,id=d,cache=unsafe "
         "-device virtio-scsi-pci,id=s -device scsi-hd,drive=d,bus=s.0", "unsafe/scsi"),
        ("-blockdev driver=qcow2,node-name=d,cache.direct=on,file.driver=file,"
         "file.filename=/a,file.aio=io_uring -device nvme,drive=d,serial=x",
         "qcow2/none/nvme:aio=io_uring"),
    ],
)  # fmt: skip
def test_command_lines_are_read(arguments: str, path: str) -> None:
    for text in (f"qemu-system-x86_64 -name web {arguments}",
                 "\0".join(["/usr/bin/qemu-system-x86_64", "-name", "guest=web,debug-threads=on",
                            *arguments.split()])):  # fmt: skip
        (disk,) = read_guests([GuestText(text, "run.sh")])
        assert str(disk.path) == path
        assert (disk.domain, disk.platform) == ("web", Platform.QEMU)


def test_a_cdrom_is_no_disk_and_a_far_disk_may_have_no_path() -> None:
    text = "qemu-system-aarch64 -drive file=/a.iso,media=cdrom -drive file=gluster://p/i,if=virtio"
    (disk,) = read_guests([GuestText(text, "run.sh")])
    assert (disk.problem or "").startswith("its storage is 'gluster': ")
    assert disk.architecture == "aarch64"


@pytest.mark.parametrize(
    "path", ["qcow2/none", "raw/writeback/scsi:iothread=on", "raw/directsync/virtio:aio=native"]
)
def test_exported_command_lines_are_read_back(path: str) -> None:
    request = ExportRequest(parse_path(path), "/srv/a.img")
    (disk,) = read_guests([GuestText(forms()["qemu"].write(request).text, "run.sh")])
    assert str(disk.path) == path


QEMU_OF_DAEMONS = (
    "qemu-system-x86_64 -chardev socket,id=a,path=/run/a.sock "
    "-chardev socket,id=b,path=/run/b.sock "
    "-device vhost-user-blk-pci,chardev=a,id=d,num-queues=4 "
    "-device vhost-user-fs-pci,chardev=b,tag=t,id=f,queue-size=1024"
)


@pytest.mark.parametrize(
    "directory", ["-o source=/srv,cache=none", "--shared-dir /srv --cache=never"]
)
def test_what_daemons_serve_is_read_from_their_command_lines(directory: str) -> None:
    storage = (
        "/usr/bin/qemu-storage-daemon --blockdev driver=file,node-name=n,filename=/srv/x.img,"
        "aio=native,cache.direct=on --blockdev driver=qcow2,node-name=q,file=n,cache.direct=on "
        "--export type=vhost-user-blk,id=e,node-name=q,addr.type=unix,addr.path=/run/a.sock,"
        "writable=on,writethrough=on"
    )
    shared = f"/usr/libexec/virtiofsd --socket-path=/run/b.sock {directory}"
    daemons = [
        GuestText("\0".join(arguments.split()) + "\0", "p") for arguments in (storage, shared)
    ]
    disks = read_guests([GuestText(QEMU_OF_DAEMONS, "guest"), *daemons])
    assert [str(disk.path) for disk in disks] == [
        "qcow2/directsync/vhostuser:aio=native:queues=4", "virtiofs:cache=none",
    ]  # fmt: skip
    assert [disk.source for disk in disks] == ["/srv/x.img", "/srv"]
    assert [disk.read_only for disk in disks] == [False, False]
    shown = GuestText(daemons[0].text.replace("writable=on,", ""), "p")
    assert read_guests([GuestText(QEMU_OF_DAEMONS, "guest"), shown])[0].read_only
    many = GuestText(QEMU_OF_DAEMONS.replace("queues=4", "queues=4000"), "guest")
    assert "its number of queues is '4000'" in (read_guests([many, *daemons])[0].problem or "")
    alone = read_guests([GuestText(QEMU_OF_DAEMONS, "guest")])
    assert all("give that process's command line" in (disk.problem or "") for disk in alone)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just words",
        "- [1, 2",
        "- a: &a [*a]\n- {<<: *a}",
        "{{ .Values.x }}",
        "[" * 5000,
        "\x00",
    ],
)
def test_a_text_that_is_no_guest_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(VdisklabError):
        read_guests([GuestText(text, "x")])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["100.conf", "machine.yaml", "instances.yaml"]), st.data())
def test_mutilated_files_end_in_disks_or_a_sentence(name: str, data: st.DataObject) -> None:
    text = (GUESTS / name).read_text()
    place = data.draw(st.integers(0, len(text)))
    piece = data.draw(st.text(max_size=20))
    texts = [GuestText((GUESTS / "storage.cfg").read_text(), "storage.cfg")]
    with suppress(VdisklabError):
        read_guests(
            [*texts, GuestText(text[:place] + piece + text[place + len(piece) * 2 :], name)]
        )


def changed(disk: ConfiguredDisk, path: str) -> tuple[str, str]:
    change = change_of(disk, parse_path(path))
    return change.paste, change.undo


def test_the_lines_of_proxmox_keep_all_other_options() -> None:
    disks = read("storage.cfg", "100.conf")
    assert changed(
        disks["scsi1"], "qcow2/none/scsi:aio=io_uring:detect_zeroes=unmap:discard=unmap"
    ) == (
        "qm set 100 --scsi1 "
        "local:100/vm-100-disk-1.qcow2,discard=on,size=8G,ssd=1,cache=none,aio=io_uring",
        "qm set 100 --scsi1 local:100/vm-100-disk-1.qcow2,cache=writeback,discard=on,size=8G,ssd=1",
    )


def test_an_io_thread_of_proxmox_changes_the_controller_and_back() -> None:
    text = "scsihw: virtio-scsi-pci\nscsi0: /srv/a.raw\n"
    (disk,) = read_guests([GuestText(text, "7.conf")])
    assert changed(disk, "raw/none/scsi:aio=io_uring:detect_zeroes=on:iothread=on") == (
        "qm set 7 --scsihw virtio-scsi-single "
        "--scsi0 /srv/a.raw,cache=none,aio=io_uring,iothread=1",
        "qm set 7 --scsihw virtio-scsi-pci --scsi0 /srv/a.raw",
    )


def test_the_lines_of_libvirt_save_the_definition_first() -> None:
    request = ExportRequest(parse_path("raw/unsafe"), "/a.img", "a b")
    (disk,) = read_guests([GuestText(forms()["libvirt"].write(request).text, "d.xml")])
    paste, undo = changed(disk, "raw/none/virtio:aio=native:iothread=on")
    saved = paste.removeprefix("test -s ").partition(" || ")[0]
    assert re.fullmatch(r"'a b\.vda\.before-[0-9a-f]{6}\.xml'", saved)
    assert (paste, undo) == (
        f"test -s {saved} || (umask 077; virsh dumpxml --inactive --security-info 'a b' > {saved}) "
        "&& virt-xml 'a b' --edit --xml ./iothreads=1 && virt-xml 'a b' --edit target=vda --disk "
        "driver.cache=none,driver.io=native,driver.iothread=1",
        f"virsh define {saved} && rm {saved}",
    )
    assert changed(disk, "raw/writeback")[1] != undo  # each change has a file of its own


def test_a_line_of_libvirt_that_is_pasted_twice_is_still_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ExportRequest(parse_path("raw/unsafe"), "/a.img", "a b")
    (disk,) = read_guests([GuestText(forms()["libvirt"].write(request).text, "d.xml")])
    defined = tmp_path / "defined"
    defined.write_text("as it was")
    for program, does in {
        "virsh": f'case $1 in dumpxml) cat {defined} ;; define) cp "$2" {defined} ;; esac',
        "virt-xml": f"echo changed > {defined}",
    }.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    paste, undo = changed(disk, "raw/none")
    (tmp_path / shlex.split(paste)[2]).touch()  # as a virsh that failed leaves it
    was_undone = False
    for _ in range(2):  # the undo's own file does not outlive it
        for line, then in ((paste, "changed\n"), (paste, "changed\n"), (undo, "as it was")):
            subprocess.run(("sh", "-c", line), cwd=tmp_path, check=True)
            assert defined.read_text() == then
            for file in tmp_path.glob("*.before-*") if was_undone else ():
                assert file.stat().st_mode & 0o777 == 0o600, "it may hold a password of VNC"
        was_undone = True
        defined.write_text("as it was")
    assert not list(tmp_path.glob("*.before-*"))


def test_the_lines_of_a_user_name_the_libvirt_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without root virsh asks qemu:///session, whose guests are others."""

    def lines(source: str = "/vm/a.img") -> str:
        text = (
            "<domain><name>w</name><devices><disk type='file' device='disk'><driver name='qemu' "
            f"type='raw' cache='unsafe'/><source file='{source}'/><target dev='vda' bus='virtio'/>"
            "</disk></devices></domain>"
        )
        (disk,) = read_guests([GuestText(text, "w.xml")])
        return " ; ".join(changed(disk, "raw/none"))

    for variable in ("LIBVIRT_DEFAULT_URI", "VIRSH_DEFAULT_CONNECT_URI"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    system = "qemu:///system"
    for command in (
        f"virsh -c {system} dumpxml",
        f"virt-xml -c {system} w",
        f"virsh -c {system} define",
    ):
        assert command in lines()
    assert system not in lines("/home/u/.local/share/libvirt/images/a.img")
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "qemu+ssh://kvm1/system")
    assert system not in lines()
    monkeypatch.delenv("LIBVIRT_DEFAULT_URI")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert system not in lines()


def test_the_lines_of_kubevirt_and_incus() -> None:
    data = read("machine.yaml")["data"]
    paste, undo = changed(data, "none/virtio:aio=native:discard=unmap:iothread=on:queues=4")
    assert paste.startswith("kubectl patch vm web -n shop --type=json -p")
    assert '"path":"/spec/template/spec/domain/devices/disks/1/cache","value":"none"' in paste
    assert '{"op":"replace","path":"/spec/template/spec/domain/devices/disks/1/cache"' in undo
    assert '{"op":"remove","path":"/spec/template/spec/domain/devices/disks/1/io"}' in undo
    disks = read("instances.yaml")
    assert changed(disks["root"], "zvol/writeback/scsi:discard=unmap") == (
        "incus config device override build root io.cache=writeback",
        "incus config device remove build root",
    )
    assert changed(disks["scratch"], "zvol/none/virtio:aio=native:discard=unmap") == (
        "incus config device set build scratch io.cache=none",
        "incus config device set build scratch io.cache=writeback",
    )


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 3_000 + "x", '{"a":' * 100_000])
def test_a_text_that_is_nested_without_end_is_refused(text: str) -> None:
    """The C composer recurses for each level: 100,000 ended the process with a crash."""
    with pytest.raises(PlanError, match="not plain YAML"):
        read_documents(text, "deep.yaml")


def test_a_pool_of_kubevirt_is_read_by_its_machines_template() -> None:
    text = (GUESTS / "machine.yaml").read_text()
    head, spec = text.split("  spec:\n", 1)
    inner, claim = spec.split("- apiVersion: v1\n", 1)
    below = "".join(f"    {line}" for line in inner.splitlines(keepends=True))
    pool = (
        f"{head}  spec:\n    virtualMachineTemplate:\n      spec:\n{below}- apiVersion: v1\n{claim}"
    )
    pool = pool.replace("kind: VirtualMachine\n", "kind: VirtualMachinePool\n")
    disks = read_guests([GuestText(pool, "pool.yaml")])
    machines = read_guests([GuestText(text, "machine.yaml")])
    assert [(d.target, d.path, d.problem) for d in disks] == [
        (d.target, d.path, d.problem) for d in machines
    ]
    data = next(disk for disk in disks if disk.target == "data")
    # Changing a pool restarts its guests at once, unless its updateStrategy says otherwise.
    with pytest.raises(PlanError, match="and this is a VirtualMachinePool"):
        change_of(data, parse_path("none/virtio:discard=unmap"))


def test_several_domains_in_one_text_are_all_read() -> None:
    """`for guest in …; do virsh dumpxml $guest; done | vdisklab advise -`."""
    domain = (
        "<domain type='kvm'><name>{0}</name><devices><disk type='file'><source file='/{0}.img'/>"
        "<target dev='vda' bus='virtio'/></disk></devices></domain>\n"
    )
    text = "\n<!-- edited -->\n".join(map(domain.format, ("a", "b"))) + "<?xml version='1.0'?>"
    disks = read_guests([GuestText(text + domain.format("c"), "stdin")])
    assert [disk.domain for disk in disks] == ["a", "b", "c"]
    snapshot = f"<domainsnapshot>{domain.format('a')}<cookie/></domainsnapshot>"
    assert [disk.domain for disk in read_guests([GuestText(snapshot, "s.xml")])] == ["a"]


@pytest.mark.parametrize("kind", ["VirtualMachineInstance", "VirtualMachineInstanceReplicaSet"])
def test_only_a_machine_of_kubevirt_is_patched(kind: str) -> None:
    text = (GUESTS / "machine.yaml").read_text()
    wanted = parse_path("none/virtio:discard=unmap")
    (machine,) = (d for d in read_guests([GuestText(text, "m")]) if d.target == "data")
    assert change_of(machine, wanted).paste.startswith("kubectl patch vm ")
    instance = GuestText(text.replace("kind: VirtualMachine\n", f"kind: {kind}\n"), "m")
    (other,) = (d for d in read_guests([instance]) if d.target == "data")
    with pytest.raises(PlanError, match=f"and this is a {kind}$"):
        change_of(other, wanted)
