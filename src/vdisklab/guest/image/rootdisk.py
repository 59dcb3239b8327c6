"""The read-only disk of our own guest's programs, equal for equal files."""

from __future__ import annotations

import shutil
from pathlib import Path

from vdisklab.guest.image.filetree import FileTree
from vdisklab.host.command import Host

# Fixed times and numbers, so that equal files make equal images.
_UUID = "5b0c6ee4-3d3c-4f6e-9d0e-6a1f4f5b7a10"
_FIXED_TIME = ("env", "E2FSPROGS_FAKE_TIME=1")


def write_root(host: Host, tree: FileTree, work: Path) -> None:
    """The files as `root.ext4` in the directory `work`; no journal, as nobody writes to it."""
    staging = work / "extra"
    staging.mkdir()
    tree.write_directory(staging)
    # A tenth and 4 MiB for inodes and bitmaps.
    kib = tree.size * 11 // 10 // 1024 + 4096
    host.run(
        *_FIXED_TIME, "mke2fs", "-q", "-t", "ext4", "-b", "4096", "-m", "0",
        "-O", "^has_journal,^resize_inode,^metadata_csum",
        "-U", _UUID, "-E", f"hash_seed={_UUID},root_owner=0:0",
        "-d", staging, work / "root.ext4", f"{kib}k",
        timeout=300,
    )  # fmt: skip
    _fix_times(host, staging, work)
    shutil.rmtree(staging)


def _fix_times(host: Host, staging: Path, work: Path) -> None:
    """The times that mke2fs takes from the files whatever it is told (set_inode_extra in
    e2fsprogs' create_inode.c); that of the last change cannot be set on a file."""
    names = ["/", *(f"/{path.relative_to(staging)}" for path in sorted(staging.rglob("*")))]
    orders = [
        f'set_inode_field "{name}" {time} @1\n'
        for name in names
        for time in ("ctime", "mtime", "atime")
    ]
    file = work / "orders"
    file.write_text("".join(orders))
    host.run(*_FIXED_TIME, "debugfs", "-w", "-f", file, work / "root.ext4", timeout=300)
    file.unlink()
