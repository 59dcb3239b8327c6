"""Disk images: created by qemu-img, filled for `preallocation=full`, and read back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vdisklab.errors import CommandError, HostError
from vdisklab.host import command, ledger, pagecache
from vdisklab.host.command import Host
from vdisklab.path.disk_path import Image
from vdisklab.path.segments import ImageFormat
from vdisklab.storage import remote, returned
from vdisklab.storage.image_commands import (
    QEMU_IO,
    ImagePlace,
    create_command,
    data_path,
    fill_command,
    key_path,
    opened,
    rewrites_of,
    snapshot_command,
)
from vdisklab.storage.server_url import Node, Url
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device, Directory, Remote, Share, Target
from vdisklab.units import format_bytes
from vdisklab.value import Value, replace

_CREATE_TIMEOUT = 3600.0


_NO_CPU_TIME = "Unable to get accurate CPU usage"
_MOST_TRIES = 20


class ImageFile(Value):
    """The file or block device that QEMU opens, and its image format.

    `target` is where it is: the directory of the file, or the device itself. `format` is QEMU's
    driver name. `properties` were read back: `image.virtual_size`, `image.mapped` (bytes that the
    format maps to data), `image.placed` (bytes that have a place in the file, written or not;
    absent for raw, where every byte has one), `image.cluster_size` and so on. `caches` are
    the files whose pages in the host's page cache hold its data. `backing` are the
    images below, nearest first; `data_file` holds the data of a qcow2 image that has only its
    tables; `key_file` holds the key of an encrypted image.
    """

    target: Target | Share
    path: ImagePlace
    format: str
    size: int
    properties: Mapping[str, str]
    caches: tuple[Path, ...]
    backing: tuple[Path, ...] = ()
    data_file: Path | None = None
    key_file: Path | None = None

    def node(self) -> Node:
        """The protocol node (driver and place) with which QEMU opens the image."""
        return self.path.node if isinstance(self.path, Url) else self.target.node(self.path)

    @property
    def on_host(self) -> Path:
        """The file or device on this host. Raises HostError for an image on a server."""
        return self.target.on_host if isinstance(self.path, Url) else self.path

    @property
    def file(self) -> Path | None:
        """The file or device on this host; None for an image on a server."""
        return None if isinstance(self.path, Url) else self.path


DiskData = ImageFile | Share
"""What holds a guest's data."""


@contextmanager
def random_source(site: Site, size: int) -> Iterator[Path]:
    """A file of `size` random bytes, which no file system can compress, to fill images."""
    file = site.directory / "random.source"
    with site.tracked(ledger.Kind.FILE, file):
        site.new_file(file)
        try:
            site.run_marked(
                "dd", "if=/dev/urandom", f"of={file}", "bs=1M", f"count={size}",
                "iflag=fullblock,count_bytes", "status=none", timeout=_CREATE_TIMEOUT,
            )  # fmt: skip
        except CommandError as error:
            raise HostError(
                f"{file} cannot be written: {error}",
                hint="choose a smaller --size or another --dir",
            ) from error
        site.check(lambda: pagecache.evict(file))
        yield file


@contextmanager
def compressible_source(site: Site, random: Path, size: int) -> Iterator[Path]:
    """A file of `size` bytes that compresses to half: the hexadecimal digits of random bytes."""
    file = site.directory / "compressible.source"
    script = 'basenc --base16 --wrap=0 "$1" | head --bytes="$2" > "$3"'
    with site.tracked(ledger.Kind.FILE, file):
        site.new_file(file)
        site.run_marked("sh", "-c", script, "sh", random, str(size), file, timeout=_CREATE_TIMEOUT)
        site.check(lambda: pagecache.evict(file))
        yield file


@contextmanager
def empty_source(site: Site, size: int) -> Iterator[Path]:
    """A sparse file of `size` zeros, for the contents of thin images."""
    file = site.directory / "thin.source"
    with site.tracked(ledger.Kind.FILE, file):
        site.new_file(file)
        site.run("truncate", "--size", str(size), file)
        yield file


@contextmanager
def image_file(
    site: Site, target: Target, image: Image | None, *, size: int, name: str, source: Path | None
) -> Iterator[ImageFile]:
    """An image of `size` bytes on a target; without a format, the block device itself.

    `preallocation=full` writes the bytes of `source` into every block of the disk; a thin image
    gets those that are not zero, if there is a source. Raises
    HostError if the size or the allocation that was read back is not as requested.
    """
    if image is None and isinstance(target, Directory):
        raise HostError(
            f"{target.path} holds files, and no image format was given",
            hint="name a format: `ext4/raw/none`, not `ext4/none`",
        )
    with ExitStack() as files:
        key = None
        path = target.image_path(name, image.format if image else "raw")
        if isinstance(path, Url):
            if target.holds_files:
                node = json.dumps(path.node)
                files.enter_context(site.tracked(remote.FILE, path.text, node=node))
        elif isinstance(target, Directory) and image is not None:
            for file in (path, *((data_path(path),) if image.has_data_file else ())):
                files.enter_context(site.tracked(ledger.Kind.FILE, file))
                site.new_file(file)
        if image is not None and image.encrypted:
            key = site.directory / f"{name}.key"
            if isinstance(path, Path) and isinstance(target, Directory):
                key = key_path(path)
            files.enter_context(site.secret(key))
        whole = image is None or image.driver == "raw"
        with remote.reasons(path):
            if whole and not isinstance(target, Directory) and not target.holds_files:
                made = _whole_device(site, target, size, source)
            elif image is None:
                raise AssertionError("a directory has no image of its own")
            else:
                made = _make(site, target, image, path, size=size, source=source, key=key)
        if source is not None:
            site.check(lambda: require_filled(site, made, source, size))
        yield made


def require_filled(site: Site, image: ImageFile, source: Path, size: int) -> None:
    """Raises HostError unless a sample of an image's blocks holds the bytes of its source."""
    returned.require_filled(site, _disk_of(image), source, size)


def _disk_of(image: ImageFile) -> returned.SampledDisk:
    return returned.SampledDisk(image.path, image.format, image.key_file, image.caches)


def require_returned(site: Site, data: DiskData | None, size: int) -> None:
    """Raises HostError unless what holds a guest's data returns blocks that are written to it.

    Nothing may use it meanwhile, and its own contents are lost there.
    """
    if isinstance(data, Share):
        returned.require_shared_returned(site, data.path)
    elif data is not None:
        returned.require_returned(site, _disk_of(data), min(size, data.size))


@contextmanager
def overlays(
    site: Site, target: Target, image: Image, base: ImageFile, *, name: str
) -> Iterator[ImageFile]:
    """A chain of `image.backing` overlays above a base image; the last one is the disk.

    Each overlay holds the path's share of the disk's clusters, spread evenly and different in each
    overlay; all others are read from the images below. The length of the chain is read back into
    `image.backing`, which the cell's checks compare with the path.
    """
    with ExitStack() as files:
        directory = target.on_host
        chain = [base.path] if isinstance(base.path, Path) else []
        for number in range(1, image.backing + 1):
            file = directory / f"{name}-{number}.{image.format}"
            files.enter_context(site.tracked(ledger.Kind.FILE, file))
            site.new_file(file)
            site.run(*create_command(image, file, base.size, below=chain[0]))
            rewrites = rewrites_of(image, base.size, number)
            site.run_marked(*QEMU_IO, file, timeout=_CREATE_TIMEOUT, stdin=rewrites)
            chain.insert(0, file)

        def read_back() -> Mapping[str, str]:
            pagecache.evict(*chain)
            return read_properties(site.host, chain[0], image)

        properties = site.read_back(read_back)
        yield replace(
            base,
            path=chain[0],
            properties={**base.properties, **properties},
            caches=(*chain[:-1], *base.caches),
            backing=tuple(chain[1:]),
        )


def _whole_device(site: Site, target: Device | Remote, size: int, source: Path | None) -> ImageFile:
    path = target.image_path("", "")
    if source is not None:
        site.run_marked(*fill_command("raw", source, path), timeout=_CREATE_TIMEOUT)
        site.check(lambda: pagecache.evict(*target.caches))
    whole = site.observe(lambda: _disk_size(site.host, path), planned=size)
    if whole < size:
        raise HostError(f"{_shown(path)} has {whole} bytes, but the disk needs {size}")
    if isinstance(path, Url) and source is not None:
        site.check(lambda: _require_written(site.host, path, size))
    # The rest of a disk on a server may hold data: nobody has looked at it, and no guest sees it.
    # A device of this host is given whole.
    seen = size if isinstance(path, Url) else whole
    return ImageFile(target, path, "raw", seen, target.properties, target.caches)


def _require_written(host: Host, disk: Url, size: int) -> None:
    """Raises HostError if a server says that it stores less than the `size` bytes just written.

    A block that was never stored is read from nowhere, at any speed.
    """
    stored = sum(
        max(0, min(size, extent["start"] + extent["length"]) - extent["start"])
        for extent in extents(host, disk, "raw", None)
        if extent["data"] and not extent["zero"]
    )
    if stored < size:
        raise HostError(
            f"{disk.text} stores {stored} bytes of {size} that were written to it",
            hint="its server skips or merges blocks; to measure that, write preallocation=off",
        )


def _disk_size(host: Host, disk: ImagePlace) -> int:
    """Bytes of a block device, or of a disk on a server, which may be more than requested."""
    if isinstance(disk, Url):
        command = ("qemu-img", "info", "--output=json", *opened("raw", disk, None))
        return int(json.loads(host.run(*command).stdout)["virtual-size"])
    with disk.open("rb") as device:
        return device.seek(0, os.SEEK_END)


def _shown(place: ImagePlace) -> str:
    return place.text if isinstance(place, Url) else str(place)


def _create(site: Site, image: Image, command: Sequence[str]) -> None:
    """Creates the image. For an encrypted one, qemu-img times its key derivation.

    QEMU 7.2.22 and others fail if the kernel has not yet counted that thread's CPU time
    (crypto/pbkdf.c, qcrypto_pbkdf2_count_iters); then it is tried again.
    """
    for left in reversed(range(_MOST_TRIES if image.encrypted else 1)):
        try:
            site.run_marked(*command, timeout=_CREATE_TIMEOUT)
        except CommandError as error:
            if not left or _NO_CPU_TIME not in error.stderr:
                raise
        else:
            return


def _create_by_copy(site: Site, image: Image, disk: Url, size: int, key: Path | None) -> None:
    """Creates an image on a server's disk from an empty one that is made here.

    qemu-img creates by URL only, which has no place for a secret. Zeros are copied, too: the disk
    may hold other data.
    """
    empty = site.directory / f"empty.{image.format}"
    with site.tracked(ledger.Kind.FILE, empty):
        site.new_file(empty)
        _create(site, image, create_command(image, empty, size, on_device=True, key=key))
        site.run_marked(*fill_command("raw", empty, disk), timeout=_CREATE_TIMEOUT)


def _make(
    site: Site,
    target: Target,
    image: Image,
    path: ImagePlace,
    *,
    size: int,
    source: Path | None,
    key: Path | None,
) -> ImageFile:
    plain = image.format is ImageFormat.RAW and isinstance(path, Path)
    if plain and site.host.which("qemu-img") is None:
        return _copy_plain(site, target, path, size=size, source=source)
    on_device = not isinstance(target, Directory)
    if isinstance(path, Url) and isinstance(target, Remote) and not target.holds_files:
        _create_by_copy(site, image, path, size, key)
    else:
        _create(site, image, create_command(image, path, size, on_device=on_device, key=key))
    if source is not None:
        fill = fill_command(
            image.driver, source, path, thin=image.is_thin, compressed=image.compressed, key=key
        )
        site.run_marked(*fill, timeout=_CREATE_TIMEOUT)
    elif not image.is_thin:
        raise HostError(f"{_shown(path)} must be filled, but there is no source to fill it with")
    for number in range(1, image.snapshots + 1):
        site.run(*snapshot_command(image, path, f"s{number}", key))
    for number in range(1, image.bitmaps + 1):
        bitmap = opened("qcow2", path, None)
        site.run("qemu-img", "bitmap", "--add", "--enable", *bitmap, f"b{number}")
    data = data_path(path) if image.has_data_file and isinstance(path, Path) else None
    held_in = tuple(held for held in (path, data) if isinstance(held, Path))

    def read_back() -> Mapping[str, str]:
        pagecache.evict(*held_in)
        properties = read_properties(site.host, path, image, key)
        whole = _whole_size(image, properties, size, target)
        _require(properties, "image.virtual_size", whole, path)
        if isinstance(target, Remote) and not target.holds_files and whole > size + size // 32:
            raise HostError(
                f"a guest would get all {format_bytes(whole)} of {_shown(path)}, of which only the "
                f"first {format_bytes(size)} were looked at: an encrypted raw image has no size",
                hint="write qcow2:encrypt=luks, or name a disk that is little larger than --size",
            )
        _require_preallocated(
            image, properties, path, whole, on_device=on_device, empty=source is None
        )
        return properties

    planned: Mapping[str, str] = {"image.virtual_size": str(size)}
    read_values = site.observe(read_back, planned=planned)
    whole = _whole_size(image, read_values, size, target)
    return ImageFile(
        target, path, image.driver, whole, {**target.properties, **read_values},
        (*held_in, *target.cached_below), data_file=data, key_file=key,
    )  # fmt: skip


def _whole_size(image: Image, properties: Mapping[str, str], size: int, target: Target) -> int:
    """The bytes of the disk. LUKS stores no size, so on a device the disk is the whole device."""
    if not target.holds_files and image.driver == "luks":
        return max(size, int(properties["image.virtual_size"]))
    return size


def _copy_plain(
    site: Site, target: Target, path: ImagePlace, *, size: int, source: Path | None
) -> ImageFile:
    """A raw image made without qemu-img, for hosts that lack it, such as cloud servers."""
    if not isinstance(target, Directory) or isinstance(path, Url) or source is None:
        raise command.not_installed("qemu-img")
    try:
        site.run_marked("cp", source, path, timeout=_CREATE_TIMEOUT)
    except CommandError as error:
        raise HostError(f"{path} cannot be written: {error}") from error

    def read_back() -> Mapping[str, str]:
        pagecache.evict(path)
        status = path.stat()
        properties = {
            "image.virtual_size": str(status.st_size),
            "image.mapped": str(min(status.st_size, status.st_blocks * 512)),
        }
        _require(properties, "image.virtual_size", size, path)
        _require(properties, "image.mapped", size, path)
        return properties

    read_values = site.read_back(read_back)
    all_properties = {**target.properties, **read_values}
    return ImageFile(target, path, "raw", size, all_properties, (path, *target.cached_below))


def mapped_bytes(host: Host, image: ImageFile) -> int:
    """Bytes that the format maps to data now; the image may be in use by QEMU."""
    return _mapped(extents(host, image.path, image.format, image.key_file, "-U"))


def extents(
    host: Host, path: ImagePlace, driver: str, key: Path | None, *flags: str
) -> list[dict[str, Any]]:
    """The ranges of an image, as `qemu-img map` lists them."""
    command = ("qemu-img", "map", *flags, "--output=json", *opened(driver, path, key))
    ranges: list[dict[str, Any]] = json.loads(host.run(*command, timeout=600).stdout)
    return ranges


def _mapped(ranges: Iterable[Mapping[str, Any]]) -> int:
    """Bytes with data, as far as format and file system can tell."""
    return sum(extent["length"] for extent in ranges if extent["data"] and not extent["zero"])


def read_properties(
    host: Host, path: ImagePlace, image: Image, key: Path | None = None
) -> dict[str, str]:
    """An image's sizes, mapped bytes and format settings, as qemu-img reports them.

    An encrypted image needs its `key`.
    """
    chained = ("--backing-chain",) if image.backing else ()
    command = ("qemu-img", "info", *chained, "--output=json")
    # Without the key: the header says all.
    where = opened(image.driver, path, key if isinstance(path, Url) else None)
    answer = json.loads(host.run(*command, *where).stdout)
    chain = answer if image.backing else [answer]
    info = chain[0]
    ranges = extents(host, path, image.driver, key)
    properties = {
        "image.virtual_size": str(info["virtual-size"]),
        "image.mapped": str(_mapped(ranges)),
    }
    if image.format is not ImageFormat.RAW:
        # A first write to these bytes changes no table.
        placed = sum(extent["length"] for extent in ranges if "offset" in extent)
        properties["image.placed"] = str(placed)
    if "cluster-size" in info:
        properties["image.cluster_size"] = str(info["cluster-size"])
    if image.backing:
        properties["image.backing"] = str(len(chain) - 1)
    if image.snapshots:
        properties["image.snapshots"] = str(len(info.get("snapshots", ())))
    if image.compressed and not image.backing:
        properties["image.compression"] = _compression(host, path, info)
    return properties | _format_specific(info, image)


def _compression(host: Host, path: ImagePlace, info: Mapping[str, Any]) -> str:
    """The compression method if all clusters are compressed, else how many of them are."""
    checked = json.loads(
        host.run(
            "qemu-img", "check", "--output=json", *opened("qcow2", path, None), timeout=600
        ).stdout
    )
    compressed = int(checked.get("compressed-clusters", 0))
    if compressed < int(checked["total-clusters"]):
        return f"{compressed} of {checked['total-clusters']} clusters"
    return str(info["format-specific"]["data"]["compression-type"])


def _format_specific(info: Mapping[str, Any], image: Image) -> dict[str, str]:
    """The format's settings; the rarer ones only if the path sets them."""
    data = info.get("format-specific", {}).get("data", {})
    names = {"compat": "image.compat", "lazy-refcounts": "image.lazy_refcounts"}
    properties = {names[key]: str(value) for key, value in data.items() if key in names}
    if image.option("extended_l2"):
        properties["image.extended_l2"] = str(data.get("extended-l2"))
    if image.has_data_file:
        properties["image.data_file"] = data_file_of(data)
    if image.bitmaps:
        properties["image.bitmaps"] = str(len(data.get("bitmaps", ())))
    if image.encrypted:
        properties["image.encrypt"] = "luks" if info.get("encrypted") else "off"
    return properties


def data_file_of(data: Mapping[str, Any]) -> str:
    """The option `data_file` of an image, from what qemu-img says of the format qcow2."""
    if not data.get("data-file"):
        return "off"
    return "raw" if data.get("data-file-raw") else "on"


def _require_preallocated(
    image: Image,
    properties: Mapping[str, str],
    path: ImagePlace,
    size: int,
    *,
    on_device: bool,
    empty: bool,
) -> None:
    """Confirms the `preallocation` of a new image; each value leaves different traces.

    full: data everywhere. falloc and metadata: a place for every byte, with or without blocks of
    the file system below. off: no place for any byte while the image is `empty`. Raw files have no
    places, and blocks of a device always exist.
    """
    preallocation = image.option("preallocation")
    if not image.is_thin:
        _require(properties, "image.mapped", size, path)
    if preallocation in ("metadata", "falloc") and "image.placed" in properties:
        _require(properties, "image.placed", size, path)
    # A raw data file has a place for every byte (block/qcow2.c, qcow2_co_create).
    starts_unplaced = empty and image.option("data_file") != "raw"
    if preallocation == "off" and starts_unplaced and "image.placed" in properties:
        _require(properties, "image.placed", 0, path)
    if on_device or isinstance(path, Url):
        return
    occupied = path.stat().st_blocks * 512
    if preallocation == "falloc" and occupied < size:
        raise HostError(
            f"{path} occupies {occupied} bytes, but preallocation=falloc reserves {size}",
            hint="this file system does not reserve space; choose preallocation=full or off",
        )
    if preallocation in ("off", "metadata") and empty and occupied >= size:
        raise HostError(
            f"{path} occupies {occupied} bytes, but preallocation={preallocation} reserves none",
            hint="this file system does not support holes; choose preallocation=full",
        )


def _require(properties: Mapping[str, str], name: str, expected: int, path: ImagePlace) -> None:
    if properties[name] != str(expected):
        raise HostError(
            f"{name} of {_shown(path)} is {properties[name]} instead of {expected}",
            hint="`qemu-img map` shows what is allocated in it; try another --dir or preallocation",
        )
