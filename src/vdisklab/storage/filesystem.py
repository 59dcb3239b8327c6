"""ext4, xfs and btrfs on a block device; tmpfs in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.facts import available_memory
from vdisklab.host.machine import SYSTEM, page_size, read_text
from vdisklab.host.mounts import Mount, mount_at
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.storage.site import Site, require_memory
from vdisklab.storage.targets import Device, Directory
from vdisklab.value import Value

_TMPFS = Layer(LayerKind.TMPFS)
_BTRFS_SECTOR = 4096
_BTRFS_SECTORS = SYSTEM / "sys/fs/btrfs/features/supported_sectorsizes"


class _Making(Value):
    """The mkfs command of a file system, and what each option value adds to mkfs or to mount.

    mkfs does not discard, because that would punch holes into the allocated slice below. ext4 does
    not initialise lazily, because the kernel would write in the background during measurements.
    """

    mkfs: tuple[str, ...]
    mkfs_options: Mapping[tuple[str, object], tuple[str, ...]]
    mount_options: Mapping[tuple[str, object], str]
    force: tuple[str, ...] = ("-f",)


_MAKING: Mapping[LayerKind, _Making] = {
    LayerKind.EXT4: _Making(
        ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"),
        {},
        {
            ("barrier", False): "nobarrier",
            ("data", "writeback"): "data=writeback",
            ("data", "journal"): "data=journal",
        },
        ("-F",),
    ),
    LayerKind.XFS: _Making(
        ("mkfs.xfs", "-q", "-K"),
        {("reflink", True): ("-m", "reflink=1"), ("reflink", False): ("-m", "reflink=0")},
        {},
    ),
    LayerKind.BTRFS: _Making(
        ("mkfs.btrfs", "-q", "-K"),
        {},
        {
            ("barrier", False): "nobarrier",
            ("datacow", False): "nodatacow",
            ("compress", "lzo"): "compress=lzo",
            ("compress", "zlib"): "compress=zlib",
            ("compress", "zstd"): "compress=zstd",
        },
    ),
}


@contextmanager
def filesystem(
    site: Site, below: Device, layer: Layer, name: str, _capacity: int
) -> Iterator[Directory]:
    """Creates the layer's file system on the device below and mounts it in the site's directory.

    Raises HostError when a requested mount option is not among those that the kernel shows.
    """
    make = mkfs_command(
        layer,
        below.path,
        site.label,
        just_created=not below.disks,
        sector=btrfs_sector(page_size(), read_text(_BTRFS_SECTORS)),
    )
    with site.mount_point(name) as mountpoint:
        site.run(*make, timeout=600)
        site.run(*mount_command(layer, below.path, mountpoint), timeout=120)
        site.note_mount(mountpoint)
        properties = site.read_back(lambda: _read_back(site.host, layer, mountpoint))
        yield below.file_system(mountpoint, properties)


def require_mounted(mountpoint: Path, filesystem: str) -> Mount:
    """The mount at this directory. Raises HostError if another file system is mounted there."""
    mount = mount_at(mountpoint)
    if mount is None or filesystem not in mount.filesystem:
        raise HostError(
            f"{mountpoint} is not mounted as {filesystem} although mount succeeded",
            hint="an automounter or another program may have mounted over it (`findmnt`): choose "
            "another --dir",
        )
    return mount


def mkfs_command(
    layer: Layer,
    device: Path,
    label: str,
    *,
    just_created: bool = False,
    sector: int | None = None,
) -> tuple[str, ...]:
    """The mkfs command; the label marks the file system as vdisklab's.

    `just_created`: vdisklab has just made the device from others, as an array is. A file system on
    it is a leftover of an earlier array and may be overwritten. `sector`: of btrfs; None leaves it
    to mkfs.
    """
    making = _MAKING[layer.kind]
    extra = list(making.force) if just_created else []
    if layer.kind is LayerKind.BTRFS and sector is not None:
        extra += ["--sectorsize", str(sector)]
    for option in layer.kind.facts.options:
        extra += making.mkfs_options.get((option, layer.option(option)), ())
    return (*making.mkfs, "-L", label, *extra, str(device))


def btrfs_sector(page: int, supported: str | None) -> int | None:
    """The sector size for a new btrfs on a host with pages of `page` bytes; None: mkfs's own.

    mkfs.btrfs before 6.7 makes sectors as large as a page. Direct transfers are in whole sectors,
    so with larger ones than 4 KiB QEMU refuses cache=none. `supported` is what the kernel says that
    it can mount (features/supported_sectorsizes in sysfs, btrfs(5)): 4096 on any page size since
    Linux 5.15 or so; None where it does not say it.
    """
    if page == _BTRFS_SECTOR or supported is None:
        return None
    return _BTRFS_SECTOR if str(_BTRFS_SECTOR) in supported.split() else page


def mount_command(layer: Layer, device: Path, mountpoint: Path) -> tuple[str, ...]:
    """The mount command."""
    options = wanted_mount_options(layer)
    flags = ("-o", ",".join(options)) if options else ()
    return ("mount", "-t", layer.kind.value, *flags, str(device), str(mountpoint))


def wanted_mount_options(layer: Layer) -> tuple[str, ...]:
    """The mount options for the layer's options."""
    table = _MAKING[layer.kind].mount_options
    options = (table.get((name, layer.option(name))) for name in layer.kind.facts.options)
    return tuple(option for option in options if option is not None)


def _read_back(host: Host, layer: Layer, mountpoint: Path) -> dict[str, str]:
    mount = require_mounted(mountpoint, layer.kind)
    for option in wanted_mount_options(layer):
        _require_option(mount, option)
    properties = {f"{layer.kind}.mount": ",".join(sorted(mount.options))}
    if layer.kind is LayerKind.XFS:
        properties |= {"xfs.reflink": _read_reflink(host, mountpoint)}
    return properties


def _require_option(mount: Mount, option: str) -> None:
    """Raises HostError unless the option is set. btrfs shows compress=zlib as compress=zlib:3."""
    if not any(mounted == option or mounted.startswith(f"{option}:") for mounted in mount.options):
        raise HostError(
            f"{mount.filesystem} was mounted without the requested option {option}",
            hint="this kernel does not support it; omit the option",
        )


def _read_reflink(host: Host, mountpoint: Path) -> str:
    text = host.run("xfs_info", mountpoint).stdout
    for word in text.replace(",", " ").split():
        if word.startswith("reflink="):
            return "on" if word == "reflink=1" else "off"
    return "unknown"


@contextmanager
def tmpfs(site: Site, name: str, size: int, layer: Layer = _TMPFS) -> Iterator[Directory]:
    """A tmpfs that holds `size` bytes. Raises HostError if not enough memory is available.

    Its option `huge` puts files on huge pages (tmpfs(5)).
    """
    site.check(lambda: require_memory(size, available_memory(), "this stack"))
    with site.mount_point(name) as mountpoint:
        huge = str(layer.option("huge"))
        wanted = f"size={size}" if huge == "never" else f"size={size},huge={huge}"
        # The source is free to choose: it tells this mount from others (proc(5)).
        site.run("mount", "-t", "tmpfs", "-o", wanted, site.directory.name, mountpoint)
        site.note_mount(mountpoint)
        yield Directory(mountpoint, site.read_back(lambda: _tmpfs_properties(mountpoint)))


def _tmpfs_properties(mountpoint: Path) -> dict[str, str]:
    mount = require_mounted(mountpoint, "tmpfs")
    huge = [option.removeprefix("huge=") for option in mount.options if option.startswith("huge=")]
    return {
        "tmpfs.mount": ",".join(sorted(mount.options)),
        "tmpfs.huge": huge[0] if huge else "never",
    }
