"""The input and output of all exporters, and the parts of configurations that several share."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.guest.qemu.block_nodes import format_options
from vdisklab.path.backing import WORK_DIRECTORY
from vdisklab.path.disk_path import DiskPath, Image
from vdisklab.path.managers import Manager
from vdisklab.path.rules import impossible
from vdisklab.path.segments import BUS_OPTIONS, Bus, CacheMode, ImageFormat, WriteCache
from vdisklab.storage.image_commands import create_command, key_path
from vdisklab.units import GIB, format_size


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A disk path to configure, the file or device that holds the disk, and the guest's name.

    With `source` None the platform's default place is used. `size` (bytes) is for an image that has
    to be created. `domain_type` is libvirt's: `kvm`, or `qemu` for emulation. `libvirt` is the
    version of the libvirt that reads the configuration; None is the oldest supported one.
    """

    path: DiskPath
    source: str | None = None
    name: str = "guest"
    size: int = 10 * GIB
    domain_type: str = "kvm"
    libvirt: tuple[int, ...] | None = None

    @property
    def on_device(self) -> bool:
        """True when the guest gets a block device, with or without a format in it."""
        return WORK_DIRECTORY.ends_on_device(self.path.layers)

    @property
    def driver(self) -> str:
        """QEMU's name of the image format."""
        return "raw" if self.path.image is None else self.path.image.driver

    def place(self, directory: str) -> str:
        """The source, or a default: a file in the directory, or a block device in /dev."""
        if self.source is not None:
            return self.source
        if self.on_device:
            return self.path.layers[-1].kind.facts.device.format(self.name)
        return f"{directory}/{self.name}.{self.driver}"


@dataclass(frozen=True, slots=True)
class Gap:
    """One option that a platform cannot express, and what the guest gets instead."""

    option: str
    instead: str

    def __str__(self) -> str:
        return f"{self.option} cannot be expressed here: {self.instead}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The text of a configuration; its comments name gaps and requirements too.

    `requirements` are sentences that say what must be set elsewhere for it to work.
    """

    text: str
    gaps: tuple[Gap, ...] = ()
    requirements: tuple[str, ...] = ()


Exporter = Callable[[ExportRequest], Configuration]
"""Returns the configuration. Raises PlanError if the platform has nothing equivalent."""


class NotExpressibleError(PlanError):
    """The platform lacks the cache mode, bus or format; a substitute would be a different path."""

    def __init__(self, platform: str, what: str, instead: str) -> None:
        super().__init__(f"{platform} has no {what}", hint=instead)


def require_configurable(path: DiskPath) -> None:
    """Raises PlanError for a path that is not a guest's disk or is impossible."""
    if path.on_host:
        raise PlanError(
            f"{path} has no guest, so there is nothing to configure",
            hint="name a path that gives a disk to a guest, such as ext4/qcow2/none",
        )
    if not path.has_storage:
        raise PlanError(
            f"{path} stores nothing: it only shows the maximum speed",
            hint="name a path with an image, such as raw/none",
        )
    reason = impossible(path)
    if reason is not None:
        raise PlanError(f"{path}: {reason.reason}", hint=reason.instead)


def require_supported(
    manager: Manager,
    path: DiskPath,
    *,
    buses: Collection[Bus] = tuple(Bus),
    formats: Collection[ImageFormat] = tuple(ImageFormat),
) -> None:
    """Raises NotExpressibleError for a cache mode, bus or format that it lacks."""
    platform, modes = manager.full_name, manager.cache_modes
    if path.cache.spelled_out not in modes:
        raise NotExpressibleError(
            platform, f"cache mode {path.cache}", f"it has {', '.join(modes)}"
        )
    if path.attachment.bus not in buses:
        raise NotExpressibleError(
            platform,
            f"bus {path.attachment.bus}",
            f"it has {', '.join(buses)}; or use --to qemu",
        )
    if path.image is not None and path.image.format not in formats:
        names = ", ".join(formats)
        instead = f"it has {names}" if len(formats) > 1 else f"it opens every file as {names}"
        raise NotExpressibleError(platform, f"format {path.image.format}", instead)
    if path.image is not None and path.image.encrypted:
        instead = "encrypt the storage below with LUKS, or use --to qemu"
        raise NotExpressibleError(platform, "images that QEMU encrypts", instead)


def cache_gaps(path: DiskPath) -> Iterator[Gap]:
    """The gaps of platforms that have defaults of their own and no `write-cache` property."""
    if path.cache is CacheMode.DEFAULT:
        yield Gap("cache mode default", "written as writeback, which QEMU uses by default")
    if path.attachment.write_cache is not WriteCache.MODE:
        yield Gap(
            f"write_cache={path.attachment.write_cache}",
            "the disk's write cache follows the cache mode",
        )


_SAID_ELSEWHERE = frozenset({"aio", "write_cache", "discard", "iothread", "queues"})
"""Options that each platform writes or names as a gap in its own words."""


def other_gaps(path: DiskPath, written: Collection[str] = ()) -> Iterator[Gap]:
    """A gap for each other option of QEMU's that the platform does not write."""
    for member, size in format_options(path.image):
        yield Gap(f"{member}={format_size(size)}", "QEMU chooses its size")
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
    yield shlex.join(create_command(image.base, chain[0], size)).replace(" -q ", " ")
    for below, above in pairwise(chain):
        yield shlex.join(create_command(image, above, size, below=below)).replace(" -q ", " ")
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


def preparation(request: ExportRequest, place: str) -> Iterator[str]:
    """Comment lines: the path, the host layers below, and how the image is created."""
    path = request.path
    yield f"vdisklab {path}"
    if path.layers:
        kind = "the block device" if request.on_device else "the file system"
        yield f"{place} is on {kind} {path.stack}"
    if path.image is not None:
        yield from image_commands(path.image, Path(place), request.size)


def commented(lines: Iterable[str], gaps: Iterable[Gap | str] = ()) -> str:
    """Lines and gaps as comments that begin with `#`."""
    texts = [*lines, *map(str, gaps)]
    return "".join(f"# {' '.join(text.split())}\n" for text in texts)


Node = Mapping[str, "Node"] | Sequence["Node"] | str | int | bool


def to_yaml(node: Node) -> str:
    """Block-style YAML; every text is quoted as in JSON, which is valid YAML."""
    return "".join(f"{line}\n" for line in _yaml_lines(node))


def _yaml_lines(node: Node) -> Iterator[str]:
    if isinstance(node, str | bool | int):
        yield json.dumps(node)
    elif isinstance(node, Mapping):
        for key, value in node.items():
            if isinstance(value, str | bool | int):
                yield f"{key}: {json.dumps(value)}"
            elif not value:
                yield f"{key}: {{}}"
            else:
                yield f"{key}:"
                yield from (f"  {line}" for line in _yaml_lines(value))
    else:
        for item in node:
            for number, line in enumerate(_yaml_lines(item)):
                yield f"{'  ' if number else '- '}{line}"
