"""ext4, xfs and btrfs on a block device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.ledger import Kind
from vdisklab.host.mounts import Mount, mount_at
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.storage.site import Site
from vdisklab.storage.target import Target


@dataclass(frozen=True, slots=True)
class _Making:
    """How a file system is made, and what each option value adds to mkfs or to mount.

    Discards are left out while making: they would punch the holes that the slice below was
    allocated to not have. ext4's lazy initialisation is left out, because the kernel would write
    in the background while we measure.
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

_OPTION_NAMES = {
    LayerKind.EXT4: ("barrier", "data"),
    LayerKind.XFS: ("reflink",),
    LayerKind.BTRFS: ("barrier", "datacow", "compress"),
}


@contextmanager
def filesystem(
    site: Site, below: Target, layer: Layer, name: str, _capacity: int
) -> Iterator[Target]:
    """Makes the layer's file system on the device below and mounts it in the site's directory.

    Raises HostError when a mount option that was asked for is not among those read back.
    """
    mountpoint = site.directory / name
    with site.tracked(Kind.DIRECTORY, mountpoint):
        mountpoint.mkdir()
        making = mkfs_command(layer, below.path, site.label, ours=not below.disks)
        site.host.run(*making, timeout=600)
        with site.tracked(Kind.MOUNT, mountpoint):
            site.host.run(*mount_command(layer, below.path, mountpoint), timeout=120)
            seen = _read_back(site, layer, mountpoint)
            yield below.above(mountpoint, is_block=False, **seen)


def mkfs_command(layer: Layer, device: Path, label: str, *, ours: bool = False) -> tuple[str, ...]:
    """What makes the file system; its label says later that it is ours.

    `ours` is a device that we have just made of others, such as an array: what an earlier one,
    whose builder was killed, held in the same place shows through it and may be overwritten.
    """
    making = _MAKING[layer.kind]
    extra = list(making.force) if ours else []
    for option in _OPTION_NAMES[layer.kind]:
        extra += making.mkfs_options.get((option, layer.option(option)), ())
    return (*making.mkfs, "-L", label, *extra, str(device))


def mount_command(layer: Layer, device: Path, mountpoint: Path) -> tuple[str, ...]:
    """What mounts it."""
    options = wanted_mount_options(layer)
    flags = ("-o", ",".join(options)) if options else ()
    return ("mount", "-t", layer.kind.value, *flags, str(device), str(mountpoint))


def wanted_mount_options(layer: Layer) -> tuple[str, ...]:
    """The mount options that the layer's options stand for."""
    table = _MAKING[layer.kind].mount_options
    found = (table.get((name, layer.option(name))) for name in _OPTION_NAMES[layer.kind])
    return tuple(option for option in found if option is not None)


def _read_back(site: Site, layer: Layer, mountpoint: Path) -> dict[str, str]:
    mount = mount_at(mountpoint)
    if mount is None or mount.filesystem != layer.kind:
        raise HostError(
            f"{mountpoint} is not mounted as {layer.kind} although mount said so",
            hint="something else mounted over it (`findmnt`), such as an automounter: choose "
            "another --dir",
        )
    for option in wanted_mount_options(layer):
        _require_option(mount, option)
    seen = {f"{layer.kind}__mount": ",".join(sorted(mount.options))}
    if layer.kind is LayerKind.XFS:
        seen |= {"xfs__reflink": _read_reflink(site, mountpoint)}
    return seen


def _require_option(mount: Mount, option: str) -> None:
    """btrfs shows compress=zlib as compress=zlib:3, hence the prefix."""
    if not any(seen == option or seen.startswith(f"{option}:") for seen in mount.options):
        raise HostError(
            f"{mount.filesystem} was mounted without {option}, which was asked for",
            hint="this kernel does not know the option; leave it out",
        )


def _read_reflink(site: Site, mountpoint: Path) -> str:
    text = site.host.run("xfs_info", mountpoint).stdout
    for word in text.replace(",", " ").split():
        if word.startswith("reflink="):
            return "on" if word == "reflink=1" else "off"
    return "unknown"
