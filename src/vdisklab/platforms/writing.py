"""The parts that writers of configurations share: refusals, gaps, comments, YAML."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from vdisklab.guest.qemu.block_nodes import format_options, mount_command
from vdisklab.path.disk_path import DiskPath, Image
from vdisklab.path.segments import BUS_OPTIONS, Bus, CacheMode, LayerKind, WriteCache
from vdisklab.platforms.dialect import Gap
from vdisklab.platforms.request import ExportRequest
from vdisklab.storage.image_commands import create_command, key_path
from vdisklab.storage.server_url import Url
from vdisklab.units import MIB, format_size

_SAID_ELSEWHERE = frozenset({"aio", "write_cache", "discard", "iothread", "queues"})
"""Options that each platform writes or names as a gap in its own words."""

_ONLY_NEW = "if it does not exist yet: "

Node = Mapping[str, "Node"] | Sequence["Node"] | str | int | bool
TAG = "share0"
"""The name by which the guest mounts a shared directory."""


def cache_gaps(path: DiskPath) -> Iterator[Gap]:
    """The gaps of platforms that have defaults of their own and no `write-cache` property."""
    if path.cache is CacheMode.DEFAULT:
        yield Gap("cache mode default", "written as writeback, which QEMU uses by default")
    yield from write_cache_gaps(path)


def write_cache_gaps(path: DiskPath) -> Iterator[Gap]:
    """The gap of platforms without a `write-cache` property."""
    if path.attachment.write_cache is not WriteCache.MODE:
        yield Gap(
            f"write_cache={path.attachment.write_cache}",
            "the disk's write cache follows the cache mode",
        )


def other_gaps(path: DiskPath, written: Collection[str] = ()) -> Iterator[Gap]:
    """A gap for each other option of QEMU's that the platform does not write."""
    for member, setting in format_options(path.image):
        if setting is True:
            yield Gap(f"{member}=on", "QEMU's default is off")
        else:
            yield Gap(f"{member}={format_size(setting)}", "QEMU chooses its size")
    schema = BUS_OPTIONS[path.attachment.bus]
    for option, value in path.attachment.options:
        if option not in _SAID_ELSEWHERE and option not in written:
            yield Gap(f"{option}={schema[option].format(value)}", "the guest gets QEMU's default")


def image_commands(image: Image, place: Path, size: int) -> Iterator[str]:
    """The commands that create the image `place`, with a chain's other images beside it."""
    if image.encrypted:
        yield f"{key_path(place)} holds the key: make it, readable by QEMU only"
    names = ("base", *range(1, image.backing)) if image.backing else ()
    chain = [*(place.with_name(f"{place.stem}-{name}{place.suffix}") for name in names), place]
    # qemu-img makes an image that exists empty, without a question.
    yield f"{_ONLY_NEW}{_shown(create_command(image.base, chain[0], size))}"
    for below, above in pairwise(chain):
        yield f"{_ONLY_NEW}{_shown(create_command(image, above, size, below=below))}"
    if image.backing:
        share = f"{image.option('overlay')} %"
        yield f"these overlays are empty; those measured held {share} of the disk's clusters each"
    if image.compressed:
        yield (
            f"fill it with `qemu-img convert -n -c -O qcow2 OLD {place}`: QEMU does not compress "
            "what a guest writes"
        )
    for number in range(1, image.snapshots + 1):
        yield shlex.join(("qemu-img", "snapshot", "-c", f"s{number}", str(place)))
    for number in range(1, image.bitmaps + 1):
        yield shlex.join(("qemu-img", "bitmap", "--add", "-f", "qcow2", str(place), f"b{number}"))


def _shown(command: Sequence[str]) -> str:
    return shlex.join(command).replace(" -q ", " ")


def preparation(request: ExportRequest, place: str) -> Iterator[str]:
    """Comment lines: the path, the host layers below, and how the image is created."""
    path = request.path
    yield f"vdisklab {path}"
    url = request.url
    if url is not None:
        yield f"QEMU's own driver ({url.node['driver']}) opens {url.text}"
        yield from _on_server(request, url)
        return
    if path.layers:
        kind = "the block device" if request.on_device else "the file system"
        yield f"{place} is on {kind} {path.stack}"
    if path.image is not None and not request.exists:
        yield from image_commands(path.image, Path(place), request.size)


def _on_server(request: ExportRequest, url: Url) -> Iterator[str]:
    """How an image on a server is made; a disk is made there."""
    image, kind = request.path.image, request.path.layers[0].kind
    if kind is LayerKind.RBD:
        pool = url.text.removeprefix("rbd:").partition("@")[0].partition("?")[0]
        create = shlex.join(("rbd", "create", "--size", f"{-(-request.size // MIB)}M", pool))
        yield f"{_ONLY_NEW}{create}"
    if image is not None and image.encrypted:
        yield f"{key_of(request, url.text)} holds the key: make it, readable by QEMU only"
    if image is not None and (kind.facts.holds_files or image.driver != "raw"):
        key = key_of(request, url.text) if image.encrypted else None
        program, verb, _quiet, *arguments = create_command(image, url, request.size, key=key)
        yield shlex.join((program, verb, *url.secrets, *arguments))


def key_of(request: ExportRequest, place: str) -> Path:
    """The file with the key of an encrypted image: beside it, or on this host for a server's."""
    return key_path(Path(place) if request.url is None else Path(f"/etc/{request.name}"))


def commented(lines: Iterable[str], gaps: Iterable[Gap | str] = ()) -> str:
    """Lines and gaps as comments that begin with `#`."""
    texts = [*lines, *map(str, gaps)]
    return "".join(f"# {' '.join(text.split())}\n" for text in texts)


def to_yaml(node: Node) -> str:
    """Block-style YAML, its keys in their order."""
    import yaml  # noqa: PLC0415 - imported late: only Incus and KubeVirt have YAML

    text: str = yaml.safe_dump(node, sort_keys=False, allow_unicode=True, width=1000)
    return text


def share_of(request: ExportRequest) -> str:
    """The source, or a default directory."""
    return f"/srv/{request.name}" if request.source is None else request.source


def is_9p(request: ExportRequest) -> bool:
    """True for a directory that is shared by 9p, False for virtiofs."""
    return request.path.attachment.bus is Bus.P9


def cache_of_share(request: ExportRequest) -> str:
    """The cache of the directory's server or client."""
    return str(request.path.attachment.option("cache"))


def share_comments(request: ExportRequest) -> Iterator[str]:
    """The path, the host layers below the directory, and what the guest mounts it with."""
    attachment = request.path.attachment
    yield f"vdisklab {request.path}"
    if request.path.layers:
        yield f"{share_of(request)} is on the file system {request.path.stack}"
    mount = mount_command(TAG, attachment.bus.value, attachment.guest_mount, "/mnt")
    yield f"in the guest: {shlex.join(mount)}"
