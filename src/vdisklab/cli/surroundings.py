"""What this host knows of a guest's disk: its image, the file system below, and the room left."""

from __future__ import annotations

import json
import os
from pathlib import Path

from vdisklab.audit.disk import NOWHERE, ConfiguredDisk, Surroundings
from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import Host
from vdisklab.host.mounts import read_mounts
from vdisklab.path.disk_path import Image, Layer
from vdisklab.path.segments import ImageFormat, LayerKind


def look_around(host: Host, disk: ConfiguredDisk) -> Surroundings:
    """What is known of the source; nothing where it is not on this host, or may not be read."""
    if disk.source is None or disk.path is None or not disk.source.startswith("/"):
        return NOWHERE
    source = Path(disk.source)
    if not source.is_file():
        return NOWHERE
    seen = os.stat(source)  # noqa: PTH116 - st_blocks
    room = os.statvfs(source)
    free = room.f_bavail * room.f_frsize
    size, image = _image(host, disk, source, seen.st_blocks * 512)
    return Surroundings(_layers(source), image, size, seen.st_blocks * 512, free)


def _layers(source: Path) -> tuple[Layer, ...] | None:
    """The file system that holds a file, None for one that is no layer of ours."""
    resolved = source.resolve()
    above = [mount for mount in read_mounts() if mount.mountpoint in resolved.parents]
    if not above:
        return None
    deepest = max(len(mount.mountpoint.parts) for mount in above)
    # Of several mounts at one place the last covers the others.
    name = [mount for mount in above if len(mount.mountpoint.parts) == deepest][-1].filesystem
    try:
        return (Layer(LayerKind(name)),)
    except ValueError:
        return None


def _image(
    host: Host, disk: ConfiguredDisk, source: Path, allocated: int
) -> tuple[int | None, Image | None]:
    """Virtual size and format options as qemu-img reads them; None where it is not to be had."""
    form = ImageFormat.RAW if disk.path is None or disk.path.image is None else None
    form = form or (disk.path.image.format if disk.path and disk.path.image else ImageFormat.RAW)
    # -U: a running guest holds the image's lock, and only its header is read.
    command = ("qemu-img", "info", "-U", "-f", form.value, "--output=json", str(source))
    try:
        info = json.loads(host.run(*command, timeout=20).stdout)
    except (HostError, PlanError, ValueError):
        return None, None
    size = int(info["virtual-size"])
    if form not in (ImageFormat.RAW, ImageFormat.QCOW2):
        return size, None
    options: list[tuple[str, str | int | bool]] = []
    if allocated < size:
        options.append(("preallocation", "off"))
    if form is ImageFormat.QCOW2:
        data = info.get("format-specific", {}).get("data", {})
        options += [
            ("cluster_size", int(info.get("cluster-size", 65536))),
            ("compat", str(data.get("compat", "1.1"))),
            ("lazy_refcounts", bool(data.get("lazy-refcounts", False))),
        ]
    return size, Image(form, tuple(options))
