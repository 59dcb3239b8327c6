"""Ages file systems and images, and reads how fragmented they are.

A program that fills a file system and leaves its free space in pieces.

    python -m vdisklab.storage.ageing DIRECTORY PERCENT SEED

Files of many sizes fill it first, then random ones are removed until PERCENT of it is in use, as
when files come and go for years. Files are allocated (fallocate(2)), not written: only where they
lie matters.
"""

from __future__ import annotations

import errno
import os
import random
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.pagecache import evict
from vdisklab.path.disk_path import Image
from vdisklab.path.segments import ImageFormat
from vdisklab.plan.age import REWRITTEN, Age
from vdisklab.storage.image import ImageFile, extents, read_properties
from vdisklab.storage.image_commands import opened, snapshot_command
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device, Target
from vdisklab.value import replace

PIECE = 64 << 10
"""Bytes of one write in a pass."""

_FLUSH_EVERY = 16
_SECONDS = 3600.0


_SMALLEST = 4 << 10
_LARGEST = 1 << 20
_MOST_FILES = 20_000
_LEFT = 0.03
"""Share that stays free when it is fullest: a full btrfs could not even remove files."""


def fill_filesystem(site: Site, target: Target, percent: int, seed: int) -> None:
    """Fills a file system that vdisklab has made, in a process of its own."""
    program = (sys.executable, "-m", "vdisklab.storage.ageing")
    directory = target.on_host / "filler"
    site.run_marked(*program, directory, str(percent), str(seed), timeout=_SECONDS)


def aged(
    site: Site, made: ImageFile, image: Image | None, age: Age, *, source: Path, seed: int
) -> ImageFile:
    """The image after its rewrites. Its properties have the fragmentation before and after.

    Each pass writes bytes from `source`. A snapshot is taken before a pass and removed after it.
    """
    form = image or Image(ImageFormat.RAW)
    before = site.read_back(lambda: fragmentation(site.host, made))
    for number in range(1, age.rewrites + 1):
        snapshot, key = f"age{number}", made.key_file
        with_snapshot = number <= age.snapshots
        if with_snapshot:
            site.run(*snapshot_command(form, made.path, snapshot, key))
        program = ("qemu-io", "-t", "writeback", *opened(made.format, made.path, key))
        commands = "".join(_rewrites(made, source, seed + number))
        site.run_marked(*program, timeout=_SECONDS, stdin=commands)
        if with_snapshot:
            site.run(*snapshot_command(form, made.path, snapshot, key, remove=True))

    def read_back() -> Mapping[str, str]:
        evict(*made.caches)
        after = fragmentation(site.host, made)
        on_device = isinstance(made.target, Device)
        return {
            **({} if on_device else read_properties(site.host, made.path, form, made.key_file)),
            **{f"age.{name}_before": value for name, value in before.items()},
            **{f"age.{name}_after": value for name, value in after.items()},
            "age.state": str(age),
        }

    properties = site.read_back(read_back)
    return replace(made, properties={**made.properties, **properties})


def _rewrites(made: ImageFile, source: Path, seed: int) -> Iterator[str]:
    """The qemu-io commands of one pass: they write random pieces of the disk, with a flush now and
    then.
    """
    if re.search(r"\s", str(source)):
        raise HostError(
            f"qemu-io cannot read {source}: its commands end at a blank",
            hint="choose a work directory without blanks in its name: --dir",
        )
    chance = random.Random(seed)  # noqa: S311 - reproducible places, no secret
    pieces = made.size // PIECE
    for number, piece in enumerate(chance.sample(range(pieces), max(1, pieces * REWRITTEN // 100))):
        yield f"write -q -s {source} {piece * PIECE} {PIECE}\n"
        if number % _FLUSH_EVERY == 0:
            yield "flush\n"
    yield "flush\n"


def fragmentation(host: Host, made: ImageFile) -> dict[str, str]:
    """The number of pieces of the image's file on its file system, and of the disk in the image.

    Empty where they cannot be read: on devices, and where filefrag is missing or not supported.
    """
    if made.file is None or isinstance(made.target, Device):
        return {}
    counts: dict[str, str] = {}
    if host.which("filefrag") is not None:
        ended = host.run("filefrag", made.data_file or made.file, allowed=range(256), timeout=600)
        match = re.search(r": (\d+) extents? found", ended.stdout)
        if match:
            counts["file_extents"] = match[1]
    if host.which("qemu-img") is not None:
        listed = extents(host, made.path, made.format, made.key_file)
        placed = sum(1 for extent in listed if "offset" in extent)
        if made.key_file is None:  # encrypted data has no places that qemu-img would list
            counts["image_extents"] = str(placed)
    return counts


def _unused(directory: Path) -> tuple[float, float]:
    """Two shares of the file system: the unused part, and the part that files may still use.

    Only the first includes ext4's reserve for root and what btrfs keeps for its metadata.
    """
    status = os.statvfs(directory)
    return status.f_bfree / status.f_blocks, status.f_bavail / status.f_blocks


def fill(directory: Path, percent: int, seed: int) -> int:
    """Fills the file system of `directory`, which is created; returns the number of files left."""
    directory.mkdir()
    chance = random.Random(seed)  # noqa: S311 - reproducible places, no secret
    status = os.statvfs(directory)
    total = status.f_blocks * status.f_frsize
    # A large file system gets larger files instead of millions.
    unit = max(1, total // _MOST_FILES // _LARGEST)
    files: list[Path] = []
    while _unused(directory)[0] > _LEFT:
        file = directory / f"{len(files):06d}"
        size = unit * int(_SMALLEST * (_LARGEST / _SMALLEST) ** chance.random())
        try:
            with file.open("wb") as opened:
                os.posix_fallocate(opened.fileno(), 0, size)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            break
        files.append(file)
    chance.shuffle(files)
    os.sync()
    while files and _unused(directory)[1] < 1 - percent / 100:
        for file in files[-max(1, len(files) // 100) :]:
            file.unlink()
            files.pop()
        os.sync()  # freed blocks count when the journal is written
    return len(files)


if __name__ == "__main__":
    fill(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
