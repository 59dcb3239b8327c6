"""A tree of files for the guest, written as a RAM file system, a directory or an ext4 image."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from vdisklab.host.command import Host

# In Debian and in the guest /bin, /lib… are links into /usr; files of other hosts move there.
MERGED = ("bin", "sbin", "lib", "lib64", "lib32")

_DIRECTORY, _FILE, _LINK = 0o040000, 0o100000, 0o120000


@dataclass(frozen=True, slots=True)
class Node:
    """One file: type, permissions and content; the content of a link is its target.

    `source` is a host file that holds the content; it is read when the tree is written.
    """

    mode: int
    content: bytes = b""
    source: Path | None = None

    @property
    def is_directory(self) -> bool:
        """True for a directory."""
        return self.mode & 0o170000 == _DIRECTORY

    def read(self) -> bytes:
        """The whole content."""
        return self.content if self.source is None else self.source.read_bytes()


@dataclass(slots=True)
class FileTree:
    """Files by their path in the guest, without the leading slash; parent directories are added."""

    nodes: dict[str, Node] = field(default_factory=dict)

    def file(self, path: str, content: bytes | Path, *, executable: bool = False) -> None:
        """Adds a file with this content, or the content of that file on the host."""
        mode = _FILE | (0o755 if executable else 0o644)
        if isinstance(content, Path):
            self._add(path, Node(mode, source=content))
        else:
            self._add(path, Node(mode, content))

    def link(self, path: str, target: str) -> None:
        """Adds a symbolic link."""
        self._add(path, Node(_LINK | 0o777, target.encode()))

    def directory(self, path: str) -> None:
        """Adds a directory."""
        self._add(path, Node(_DIRECTORY | 0o755))

    def graft(self, place: str, other: FileTree) -> None:
        """Adds the files of another tree below the directory `place`."""
        for path, node in other.files():
            self._add(f"{place}/{path}", node)

    def __contains__(self, path: str) -> bool:
        return path.strip("/") in self.nodes

    def _add(self, path: str, node: Node) -> None:
        path = path.strip("/")
        for parent in reversed(PurePosixPath(path).parents[:-1]):
            self.nodes.setdefault(str(parent), Node(_DIRECTORY | 0o755))
        self.nodes[path] = node

    def files(self) -> Iterator[tuple[str, Node]]:
        """All nodes sorted by path, so parents before children."""
        return iter(sorted(self.nodes.items()))

    @property
    def size(self) -> int:
        """Bytes of all files, each rounded up to a block of 4 KiB."""
        sizes = (
            len(node.content) if node.source is None else node.source.stat().st_size
            for node in self.nodes.values()
        )
        return sum((size + 4095) & ~4095 for size in sizes)

    def digest(self) -> str:
        """Hash of all names, modes and contents."""
        total = hashlib.sha256()
        for path, node in self.files():
            content = hashlib.sha256(node.read()).hexdigest()
            total.update(f"{path}\0{node.mode:o}\0{content}\n".encode())
        return total.hexdigest()

    def write_archive(self, path: Path) -> None:
        """Writes an initial RAM file system: cpio in the format `newc`, uncompressed.

        See the kernel's Documentation/driver-api/early-userspace/buffer-format.rst. It is not
        compressed: decompression in an emulated guest takes longer than QEMU's reading.
        """
        with path.open("wb") as out:
            for number, (name, node) in enumerate(self.files(), start=1):
                _write_member(out, number, node.mode, name, node.read())
            _write_member(out, 0, 0, "TRAILER!!!", b"")

    def write_directory(self, root: Path) -> None:
        """Writes the tree below the existing directory `root`."""
        for name, node in self.files():
            target = root / name
            if node.is_directory:
                target.mkdir(exist_ok=True)
            elif node.mode & 0o170000 == _LINK:
                target.symlink_to(node.content.decode())
            else:
                if node.source is None:
                    target.write_bytes(node.content)
                else:
                    shutil.copyfile(node.source, target)
                target.chmod(node.mode & 0o777)


def _write_member(out: BinaryIO, number: int, mode: int, name: str, content: bytes) -> None:
    label = name.encode() + b"\0"
    links = 2 if mode & 0o170000 == _DIRECTORY else 1
    # Owner, group and times are 0, so that equal files make equal archives.
    fields = (number, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(label), 0)
    head = b"070701" + "".join(f"{value:08X}" for value in fields).encode() + label
    out.write(head + bytes(-len(head) % 4))
    out.write(content + bytes(-len(content) % 4))


def guest_path(path: Path) -> str:
    """The path in the guest of a file of the host, without the leading slash."""
    text = str(path).lstrip("/")
    return f"usr/{text}" if text.split("/", 1)[0] in MERGED else text


# Fixed times and UUID, so that equal files make equal images.
_UUID = "5b0c6ee4-3d3c-4f6e-9d0e-6a1f4f5b7a10"
_FIXED_TIME = ("env", "E2FSPROGS_FAKE_TIME=1")


def write_root(host: Host, tree: FileTree, work: Path) -> None:
    """Writes the read-only image `root.ext4` to the directory `work`, without a journal."""
    staging = work / "extra"
    staging.mkdir()
    tree.write_directory(staging)
    # 10 % and 4 MiB more, for inodes and bitmaps.
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
    """Resets the times that mke2fs copies from the files (set_inode_extra in e2fsprogs'
    create_inode.c). The ctime of a file cannot be set, so it is changed in the image.
    """
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
