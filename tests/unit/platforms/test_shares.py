"""Directories of the host's in each form of configuration, and read back from it."""

from __future__ import annotations

import pytest

from vdisklab.answers.disks import problem_of
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.guest_disks import NotExpressibleError
from vdisklab.platforms.libvirt_domain import read_domain
from vdisklab.platforms.qemu_arguments import disks_of_arguments
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import configure, read_guests
from vdisklab.platforms.request import ExportRequest


def exported(path: str, form: str, source: str | None = None) -> str:
    return configure(ExportRequest(parse_path(path), source), form).text


@pytest.mark.parametrize("path", ["virtiofs", "virtiofs:cache=none", "virtiofs:cache=always", "9p"])
def test_libvirt_reads_back_as_the_same_path(path: str) -> None:
    (disk,) = read_domain(exported(f"ext4/{path}", "libvirt", "/srv/web"), "here")
    assert (disk.path, disk.source) == (parse_path(path), "/srv/web")
    assert disk.valid_note == parse_path(f"ext4/{path}")


def test_libvirt_gives_virtiofs_memory_that_can_be_mapped() -> None:
    assert '<access mode="shared" />' in exported("virtiofs", "libvirt")
    assert "memoryBacking" not in exported("9p", "libvirt")
    element = exported("virtiofs", "libvirt-disk")
    assert "<filesystem" in element
    assert "<domain" not in element


def test_the_options_of_9ps_mount_are_in_a_comment() -> None:
    text = exported("9p:msize=256k:guest_mount=noatime", "qemu", "/srv/a,b")
    assert "# in the guest: mount -t 9p -o trans=virtio,msize=262144,noatime share0 /mnt" in text
    (found,) = read_guests([GuestText(text, "g.sh")])
    assert (found.path, found.source) == (parse_path("9p"), "/srv/a,b")


def test_virtiofsd_is_started_first() -> None:
    text = exported("virtiofs:cache=none", "qemu", "/srv/web")
    daemon = "# run this first: virtiofsd --socket-path=/run/share0-vhost.sock -o source=/srv/web"
    assert daemon in text
    assert "memory-backend-memfd" in text
    (found,) = read_guests([GuestText(text.replace("# run this first: ", "# "), "g.sh")])
    assert found.path is None
    assert "another process serves it" in (found.problem or "")


def test_qemus_short_form_of_9p_is_read() -> None:
    arguments = ("-virtfs", "local,path=/srv/x,mount_tag=x,security_model=mapped,readonly=on")
    (found,) = disks_of_arguments(arguments)
    assert (found.target, found.source, found.read_only) == ("x", "/srv/x", True)


@pytest.mark.parametrize("cache", ["auto", "always", "none"])
def test_proxmox_has_virtiofs_only(cache: str) -> None:
    text = exported(f"virtiofs:cache={cache}", "proxmox")
    (disk,) = read_guests([GuestText(text, "100.conf")])
    assert (disk.path, disk.source) == (parse_path(f"virtiofs:cache={cache}"), "share0")
    with pytest.raises(NotExpressibleError, match="Proxmox VE has no 9p"):
        exported("9p", "proxmox")


def test_kubevirt_names_its_gate() -> None:
    configuration = configure(ExportRequest(parse_path("virtiofs:cache=none")), "kubevirt")
    assert "EnableVirtioFsStorageVolumes" in configuration.requirements[0]
    assert [gap.option for gap in configuration.gaps] == ["cache=none"]
    (disk,) = read_guests([GuestText(configuration.text, "here")])
    assert (disk.path, disk.source) == (parse_path("virtiofs"), "guest")
    with pytest.raises(PlanError):
        exported("9p", "kubevirt")


@pytest.mark.parametrize("path", ["virtiofs:cache=none", "virtiofs:cache=always", "9p"])
def test_incus_reads_back_as_the_same_path(path: str) -> None:
    text = f"config: {{}}\n{exported(path, 'incus', '/srv/web')}"
    (disk,) = read_guests([GuestText(text, "here")])
    assert (disk.path, disk.source) == (parse_path(path), "/srv/web")
    undecided = text.replace("io.bus", "io.other")
    (disk,) = read_guests([GuestText(undecided, "here")])
    assert (disk.path, disk.assumed) == (None, None if "always" not in path else disk.assumed)
    assert "/srv/web is a directory or an image" in (disk.problem or "")


@pytest.mark.parametrize("place", ["", "path: '', ", "path: /data, "])
@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("/srv/fast.img", "raw/unsafe/scsi:discard=unmap"),
        ("/srv/FAST.RAW", "raw/unsafe/scsi:discard=unmap"),
        ("/dev/disk/by-id/wwn-0x5", "unsafe/scsi:discard=unmap"),
    ],
)
def test_incus_has_a_file_or_block_device_as_a_disk(place: str, source: str, path: str) -> None:
    """Whether the device has a `path` or not: Incus looks whether the source is a directory."""
    device = f"{{type: disk, {place}source: {source}, io.cache: unsafe}}"
    text = f"name: vm1\nconfig: {{}}\ndevices:\n  data: {device}\n"
    (disk,) = read_guests([GuestText(text, "here")])
    assert (disk.path, disk.source, disk.problem) == (parse_path(path), source, None)
    assert disk.drops_flushes


def test_what_incus_has_at_a_path_is_said_by_io_bus_where_the_name_does_not() -> None:
    for source in ("/srv/web", "/srv/images.d", "/dev/shm/web", "/data/disk0"):  # noqa: S108
        for more, path, said in (
            ("", None, f"only its host knows if {source} is a directory or an image"),
            (", io.bus: auto", None, "by virtiofs and by 9p"),
            (", io.bus: virtiofs", "virtiofs:cache=none", None),
            (", io.bus: nvme", "raw/none/nvme:aio=native:discard=unmap", None),
            (", io.cache: unsafe", None, "a directory or an image"),
        ):
            device = f"{{type: disk, path: /web, source: {source}{more}}}"
            text = f"name: vm1\nconfig: {{}}\ndevices:\n  data: {device}\n"
            (disk,) = read_guests([GuestText(text, "here")])
            if source == "/dev/shm/web" and path is not None and "nvme" in path:  # noqa: S108
                continue  # below /dev a source is a device
            assert disk.path == (None if path is None else parse_path(path))
            assert (said or "") in (disk.problem or "")
            assert disk.drops_flushes is ("unsafe" in more)


def test_a_cache_of_incus_that_is_not_measured_is_named() -> None:
    text = exported("virtiofs:cache=none", "incus", "/srv/web")
    changed = text.replace("io.cache: none", "io.cache: metadata")
    (disk,) = read_guests([GuestText(changed, "here")])
    assert disk.path is None
    assert "cache of a directory 'metadata'" in (disk.problem or "")


def test_no_advice_is_given_on_a_directory() -> None:
    disk = ConfiguredDisk("web", "share0", "/nowhere", parse_path("virtiofs"))
    assert "it is a host directory" in (problem_of(disk, disk.path, (), "x86_64") or "")
