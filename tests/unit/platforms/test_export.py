"""Each platform gets exactly the requested disk, or says what it cannot express."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings

from tests.unit.path.made import configurable_paths, place_for
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.platforms.dialect import Configuration
from vdisklab.platforms.guest_disks import NotExpressibleError
from vdisklab.platforms.libvirt_domain import read_domain
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import configure, forms, read_guests
from vdisklab.platforms.request import ExportRequest
from vdisklab.storage.image_commands import data_path, key_path
from vdisklab.value import replace

ODD = """/srv/a b/<&>"'--$(id)/%s.img"""


def exported(text: str, platform: str, source: str | None = None) -> Configuration:
    return configure(ExportRequest(parse_path(text), source), platform)


@pytest.mark.parametrize("dashes", ["--", "---", "----", "-"])
def test_comments_of_libvirt_hold_no_two_dashes(dashes: str) -> None:
    text = exported("qcow2:backing=1/none", "libvirt", f"/srv/a{dashes}.img{dashes}").text
    ET.fromstring(text)  # noqa: S314 - our own text
    exported("qcow2:backing=1/none", "libvirt", "/srv/a?>--.img")


def test_a_command_in_libvirts_xml_is_a_comment() -> None:
    domain, disk = (
        exported("qcow2/none", platform, "/srv/a--b.qcow2").text
        for platform in ("libvirt", "libvirt-disk")
    )
    for text in (domain, disk):
        assert "<?" not in text
        assert " /srv/a- -b.qcow2 10737418240" in text
        assert "write - - without the blank -->" in text
        ET.fromstring(text)  # noqa: S314 - our own text
    assert "virsh attach-device GUEST FILE - -live - -config -->" in disk


def test_proxmox_is_told_what_it_would_choose_otherwise() -> None:
    text = exported("qcow2/default", "proxmox").text
    volume = "STORAGE:VMID/vm-VMID-disk-0.qcow2"
    assert f"virtio0: {volume},cache=writeback,aio=threads,format=qcow2" in text
    assert "without cache=, Proxmox VE uses none" in text


@pytest.mark.parametrize(
    ("path", "device"),
    [
        ("luks/none", "/dev/mapper/web"),
        ("md/luks/qcow2/none", "/dev/mapper/web"),
        ("md/none", "/dev/md/web"),
        ("zvol/none", "/dev/zvol/pool/web"),
        ("zram/none", "/dev/zram0"),
        ("lvmthin/none", "/dev/vg/web"),
    ],
)
@pytest.mark.parametrize("form", ["libvirt", "qemu"])
def test_a_block_device_has_the_name_that_its_layer_gives(
    path: str, device: str, form: str
) -> None:
    assert device in configure(ExportRequest(parse_path(path), None, "web"), form).text


def test_how_a_storage_allocates_is_said_for_formats_that_it_allocates() -> None:
    full = exported("qcow2:preallocation=full/none", "proxmox").text
    assert "pvesm set STORAGE --preallocation full\n" in full
    assert "pvesm" not in exported("vmdk/none", "proxmox").text
    allocated = exported("raw/none", "kubevirt").text
    assert "preallocation: true: falloc, or full where the file system lacks it\n" in allocated
    sparse = exported("raw:preallocation=off/none", "kubevirt").text
    assert "DataVolume with preallocation: false\n" in sparse


@pytest.mark.parametrize(
    ("path", "volume"),
    [
        ("ext4/qcow2/none", "STORAGE:VMID/vm-VMID-disk-0.qcow2"),
        ("raw/none", "STORAGE:VMID/vm-VMID-disk-0.raw"),
        ("btrfs/raw/none", "STORAGE:VMID/vm-VMID-disk-0.raw"),
        ("lvmthin/none", "STORAGE:vm-VMID-disk-0"),
        ("lvm/qcow2/none", "STORAGE:vm-VMID-disk-0.qcow2"),
        ("zvol/qcow2/none", "/dev/VG/vm-VMID-disk-0.qcow2"),
        ("qed/none", "/var/lib/vz/images/VMID/vm-VMID-disk-0.qed"),
    ],
)
def test_proxmox_names_a_volume_by_its_storage(path: str, volume: str) -> None:
    text = exported(path, "proxmox").text
    *comments, line = text.splitlines()
    assert line.startswith(f"virtio0: {volume},cache=none,aio=threads")
    commands = [comment.partition(": ")[2] for comment in comments if "qm set" in comment]
    assert shlex.split(commands[0]) == ["qm", "set", "VMID", "--virtio0", line.split(": ", 1)[1]]
    created = "qm set VMID --virtio0 STORAGE:10,cache=none"
    assert [command.startswith(created) for command in commands[1:]] == [True] * (volume[0] != "/")


@pytest.mark.parametrize(
    ("source", "vmid"),
    [("local:105/vm-105-disk-1.raw", "105"), ("local:105/a.raw", "105"), ("/dev/sdb", "VMID")],
)
def test_qm_set_names_the_volumes_owner(source: str, vmid: str) -> None:
    text = exported("raw/none/scsi:iothread=on", "proxmox", source).text
    assert f": qm set {vmid} --scsihw virtio-scsi-single --scsi0 {source},cache=none" in text
    assert "to create" not in text


@pytest.mark.parametrize(("version", "native"), [(None, False), ((11, 4), False), ((11, 5), True)])
def test_libvirt_has_nvme_disks_since_11_5(version: tuple[int, ...] | None, native: bool) -> None:
    request = ExportRequest(parse_path("qcow2/none/nvme:queues=3"), "/srv/a.img", libvirt=version)
    made = forms()["libvirt"].write(request)
    assert ('bus="nvme"' in made.text) is native
    assert ("qemu:arg" in made.text) is not native
    if native:
        assert not made.gaps
        assert not made.requirements
        assert '<driver queues="4" />' in made.text
    else:
        assert "11.5 and later have" in str(made.gaps[0])
        assert "/srv/a.img" in made.requirements[0]
        assert len(made.requirements) == 2


def test_a_block_device_in_arguments_needs_qemus_own_dev_off() -> None:
    made = exported("lvm/none/nvme", "libvirt", "/dev/vg/a")
    assert "namespaces = []" in made.requirements[-1]
    assert all(sentence in made.text for sentence in made.requirements)


@pytest.mark.parametrize(
    ("path", "target", "said"),
    [
        ("qcow2/none", "vdb", "--live --config"),
        ("raw/none/virtio:iothread=on", "vdb", "virsh iothreadadd GUEST 1"),
        ("raw/none/scsi:iothread=on:queues=2", "sdb", '<driver queues="2" iothread="1"/>'),
        ("raw/none/scsi:iothread=on", "sdb", "virsh iothreadadd GUEST 1 --config"),
        ("raw/none/scsi:iothread=on", "sdb", "no controller of a running guest can be changed"),
        ("raw/none/sata", "sdb", "after its next start"),
        ("raw/none/ide", "hdb", "after its next start"),
    ],
)
def test_a_bare_disk_says_what_its_guest_needs(path: str, target: str, said: str) -> None:
    made = exported(path, "libvirt-disk", "/srv/a.img")
    assert ET.fromstring(made.text).tag == "disk"  # noqa: S314 - our own
    assert f'<target dev="{target}"' in made.text
    assert "alias" not in made.text
    assert any(said in sentence for sentence in made.requirements)


def test_a_bare_disk_has_no_override() -> None:
    made = exported("raw/none/virtio:write_cache=off", "libvirt-disk")
    assert [gap.option for gap in made.gaps] == ["write_cache=off"]
    for path in ("raw/none/nvme", "vhdx/none"):
        with pytest.raises(NotExpressibleError, match="no form for this disk"):
            exported(path, "libvirt-disk")
    nvme = ExportRequest(parse_path("raw/none/nvme"), libvirt=(12, 0, 1))
    assert 'dev="nvme0n2"' in forms()["libvirt-disk"].write(nvme).text


def test_proxmox_needs_its_own_controller_for_threads() -> None:
    text = exported("raw/none/scsi:aio=native:discard=unmap:iothread=on:queues=4", "proxmox")
    assert text.text.endswith(
        "scsihw: virtio-scsi-single\nscsi0: STORAGE:VMID/vm-VMID-disk-0.raw,cache=none,aio=native,"
        "format=raw,discard=on,iothread=1,queues=4,detect_zeroes=0\n"
    )
    assert not text.gaps
    single = exported("raw/none/scsi:queues=1", "proxmox")
    assert "queues" not in single.text.splitlines()[-1]
    assert [gap.option for gap in single.gaps] == ["queues=1"]


def test_incus_names_the_bus_in_its_own_words() -> None:
    text = exported("lvm/none/nvme:discard=unmap", "incus", "/dev/vg/web").text
    assert text.endswith(
        "devices:\n  disk0:\n    type: disk\n    source: /dev/vg/web\n"
        "    io.cache: none\n    io.bus: nvme\n"
    )


def test_an_image_is_made_only_if_there_is_none() -> None:
    """qemu-img would make an existing one empty."""
    for form in ("incus", "libvirt", "qemu"):
        text = exported("raw/none", form, "/srv/web.raw").text
        create = next(line for line in text.splitlines() if "qemu-img create" in line)
        assert "if it does not exist yet: qemu-img create -f raw" in create


def test_kubevirt_says_each_option_or_a_gap() -> None:
    text = exported("raw/none/virtio:aio=native:iothread=on:queues=4", "kubevirt")
    for line in ("cache: none", "io: native", "dedicatedIOThread: true",
                 "blockMultiQueue: true", "cores: 4"):  # fmt: skip
        assert line in text.text
    assert [gap.option for gap in text.gaps] == ["discard=ignore", "a number of queues"]


def test_several_threads_are_said_where_the_platform_has_them() -> None:
    path = parse_path("raw/none/virtio:block_size=4096:discard=unmap:iothreads=3")
    machine = configure(ExportRequest(path, "web"), "kubevirt")
    claim = "---\nkind: PersistentVolumeClaim\napiVersion: v1\nmetadata: {name: web}\n"
    (disk,) = read_guests([GuestText(machine.text + claim, "web.yaml")])
    assert (disk.path, machine.gaps) == (path, ())
    domain = configure(ExportRequest(path, "/srv/a.raw", libvirt=(10, 0)), "libvirt").text
    (disk,) = read_domain(domain.replace(" path=", " of="), "web.xml")
    assert disk.path == path
    assert "<iothreads>3</iothreads>" in domain
    older = configure(ExportRequest(path, "/srv/a.raw", libvirt=(9, 10)), "libvirt")
    assert "libvirt 9.10 has no iothreads on virtio (10.0 and later have)" in str(older.gaps[0])


def test_discards_that_keep_their_clusters_are_said_where_libvirt_has_them() -> None:
    path = parse_path("qcow2:discard_no_unref=on/none/virtio:discard=unmap")
    request = ExportRequest(path, "/srv/a.qcow2", libvirt=(9, 5))
    domain = configure(request, "libvirt").text
    assert 'discard_no_unref="on"' in domain
    (disk,) = read_domain(domain.replace(" path=", " of="), "web.xml")
    assert disk.path == path
    older = configure(replace(request, libvirt=(9, 4)), "libvirt")
    assert "libvirt 9.4 has no discard_no_unref of qcow2 (9.5 and later have)" in str(older.gaps[0])
    assert '"discard-no-unref":true' in older.text.replace("&quot;", '"').replace(" ", "")
    with pytest.raises(PlanError, match=r"9\.4 has no discard_no_unref"):
        configure(replace(request, libvirt=(9, 4)), "libvirt-disk")
    tables = replace(request, path=parse_path("qcow2:discard_no_unref=on:l2_cache=1M/none"))
    assert "metadata_cache" in str(configure(tables, "libvirt").gaps[0])


def test_proxmox_says_that_it_has_no_such_discards() -> None:
    path = parse_path("qcow2:discard_no_unref=on/none/virtio:discard=unmap")
    made = configure(ExportRequest(path, "/srv/a.qcow2"), "proxmox")
    assert [str(gap) for gap in made.gaps] == [
        "discard-no-unref=on cannot be expressed here: QEMU's default is off"
    ]
    for form in ("kubevirt", "incus"):
        with pytest.raises(PlanError, match="qcow2"):
            configure(ExportRequest(path, "web"), form)


@pytest.mark.parametrize(
    "drive",
    [
        "-drive file=/a,format=qcow2,if=virtio,cache=none,discard=unmap,discard-no-unref=on",
        '-blockdev \'{"driver":"qcow2","node-name":"n","discard":"unmap",'
        '"discard-no-unref":true,"file":{"driver":"file","filename":"/a",'
        '"discard":"unmap","cache":{"direct":true}},"cache":{"direct":true}}\' '
        "-device virtio-blk-pci,drive=n",
    ],
)
def test_a_command_line_with_it_is_read(drive: str) -> None:
    (disk,) = read_guests([GuestText(f"qemu-system-x86_64 {drive}", "run.sh")])
    assert disk.limits == ()
    assert disk.path == parse_path("qcow2:discard_no_unref=on/none/virtio:discard=unmap")


@pytest.mark.parametrize("source", ["/srv/a.img", "Web", "-web", "web.", "a" * 254])
def test_kubernetes_does_not_take_every_name(source: str) -> None:
    with pytest.raises(PlanError, match="cannot be the name of a claim"):
        exported("raw/none", "kubevirt", source)
    assert "claimName: web-1.data" in exported("raw/none", "kubevirt", "web-1.data").text
    with pytest.raises(PlanError, match="cannot be the name of a virtual machine"):
        forms()["kubevirt"].write(ExportRequest(parse_path("raw/none"), "web", name="Web 1"))


def test_a_comma_would_end_proxmoxs_volume() -> None:
    with pytest.raises(PlanError, match="commas separate its options"):
        exported("raw/none", "proxmox", "/srv/a,cache=unsafe.img")


@pytest.mark.parametrize(
    ("form", "path", "what"),
    [
        ("proxmox", "raw/none/nvme", "bus nvme"),
        ("proxmox", "vdi/none", "format vdi"),
        ("kubevirt", "raw/unsafe", "cache mode unsafe"),
        ("kubevirt", "qcow2/none", "format qcow2"),
        ("kubevirt", "raw/none/ide", "bus ide"),
        ("incus", "raw/directsync", "cache mode directsync"),
        ("incus", "raw/none/sata", "bus sata"),
        ("incus", "qcow2/none", "format qcow2"),
        ("incus", "raw:encrypt=luks/none", "images that QEMU encrypts"),
        ("proxmox", "qcow2:encrypt=luks/none", "images that QEMU encrypts"),
    ],
)
def test_what_a_platform_lacks_is_refused(form: str, path: str, what: str) -> None:
    with pytest.raises(NotExpressibleError, match=what) as caught:
        exported(path, form)
    assert caught.value.hint


@pytest.mark.parametrize("path", ["host", "ext4/host", "null", "ext4/none"])
@pytest.mark.parametrize("form", sorted(forms()))
def test_what_is_not_a_guests_disk_is_refused(form: str, path: str) -> None:
    with pytest.raises(PlanError):
        exported(path, form)


@given(configurable_paths)
def test_every_path_can_be_said_in_libvirt_and_qemu(path: DiskPath) -> None:
    for form in ("libvirt", "qemu"):
        assert forms()[form].write(ExportRequest(path, place_for(path, ODD))).text


@given(configurable_paths)
def test_a_shell_reads_the_sources_name_back(path: DiskPath) -> None:
    assume(not path.opened_by_qemu)
    text = forms()["qemu"].write(ExportRequest(path, ODD)).text
    command = [line for line in text.splitlines() if not line.startswith("#")]
    arguments = shlex.split("\n".join(command))
    assert any(json_name(ODD) in word for word in arguments)
    rest = "".join(arguments)
    for name in (ODD, os.fspath(key_path(Path(ODD))), os.fspath(data_path(Path(ODD)))):
        rest = rest.replace(json_name(name), "")
    assert "$(id)" not in rest


def json_name(name: str) -> str:
    return name.replace('"', '\\"')


@pytest.mark.skipif(shutil.which("xmllint") is None, reason="xmllint is not installed")
@pytest.mark.skipif(
    not Path("/usr/share/libvirt/schemas/domain.rng").exists(), reason="no libvirt schema"
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configurable_paths)
def test_libvirts_schema_accepts_it(path: DiskPath) -> None:
    text = forms()["libvirt"].write(ExportRequest(path, place_for(path, ODD))).text
    checked = subprocess.run(
        ("xmllint", "--noout", "--relaxng", "/usr/share/libvirt/schemas/domain.rng", "-"),
        input=text, text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


def test_a_served_disk_needs_its_daemon_and_shared_memory() -> None:
    request = ExportRequest(parse_path("qcow2/none/vhostuser"), "/srv/a.qcow2")
    by_hand = forms()["qemu"].write(request).text
    assert "# run this first: qemu-storage-daemon" in by_hand
    assert "memory-backend-memfd,id=shared,share=on" in by_hand
    domain = forms()["libvirt"].write(request)
    assert '<access mode="shared" />' in domain.text
    assert domain.requirements[0].startswith("run this first: qemu-storage-daemon")
    with pytest.raises(NotExpressibleError, match="Proxmox VE has no bus vhostuser"):
        configure(request, "proxmox")
    (read,) = read_domain(domain.text, "here")
    assert "another process serves it" in (read.problem or "")


def test_what_is_set_inside_the_guest_is_a_gap() -> None:
    path = parse_path("raw/none/virtio:guest_scheduler=none:guest_mount=noatime")
    configuration = configure(ExportRequest(path), "qemu")
    assert [gap.option for gap in configuration.gaps] == [
        "guest_scheduler=none", "guest_mount=noatime",
    ]  # fmt: skip
    assert "guest_" not in configuration.text
