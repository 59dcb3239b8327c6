"""A program that fills a file system and leaves its free space in pieces.

    python -m vdisklab.storage.filler DIRECTORY PERCENT SEED

Files of many sizes fill it first, then random ones are removed until PERCENT of it is in use, as
when files come and go for years. Files are allocated (fallocate(2)), not written: only where they
lie matters.
"""

from __future__ import annotations

import errno
import os
import random
import sys
from pathlib import Path

_SMALLEST = 4 << 10
_LARGEST = 1 << 20
_MOST_FILES = 20_000
_LEFT = 0.03
"""Share that stays free when it is fullest: a full btrfs could not even remove files."""


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
