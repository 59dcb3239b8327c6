"""The micro guest's files: its scripts, the host's programs with their libraries, the modules.

`early` files are in the RAM file system, because the agent needs them before the disk is mounted.
`late` files are on the disk that the guest mounts on /extra; each has a link at its path.

A tree of files for the guest, written as a RAM file system, a directory or an ext4 image.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from vdisklab.errors import HostError
from vdisklab.guest.image.foreign import ForeignSystem
from vdisklab.guest.image.kernel import (
    AGENT_MODULES,
    BUS_MODULES,
    OPTIONAL_MODULES,
    ROOT_MODULES,
    Kernel,
    Module,
    ModuleTree,
    module_content,
)
from vdisklab.guest.systems import STDERR_LOG
from vdisklab.host.command import Host, install_hint
from vdisklab.path.segments import Bus
from vdisklab.value import Value

# In Debian and in the guest /bin, /lib… are links into /usr; files of other hosts move there.
MERGED = ("bin", "sbin", "lib", "lib64", "lib32")

_DIRECTORY, _FILE, _LINK = 0o040000, 0o100000, 0o120000


# Fixed times and UUID, so that equal files make equal images.
_UUID = "5b0c6ee4-3d3c-4f6e-9d0e-6a1f4f5b7a10"

_FIXED_TIME = ("env", "E2FSPROGS_FAKE_TIME=1")
# One `mount -a` starts one program instead of five.
_FSTAB = b"""\
dev /dev devtmpfs defaults 0 0
proc /proc proc defaults 0 0
sys /sys sysfs defaults 0 0
run /run tmpfs mode=755 0 0
tmp /tmp tmpfs mode=1777 0 0
"""

# For the guest's scripts and for interactive debugging. Real programs take precedence.
_APPLETS = """
    ash awk cat chmod chown chroot cp cut date dd df dmesg du echo env false find free grep head
    hexdump id insmod kill ln losetup ls lsmod mkdir mkfifo mknod modprobe mount mv od poweroff
    printf ps pwd readlink reboot rm rmdir rmmod sed seq sh sleep sort stat stty switch_root sync
    sysctl tail tee test time timeout top touch tr true umount uname uptime usleep vi wc which xargs
""".split()  # noqa: SIM905

# Fixed paths, wherever these programs are on the host.
_GUEST_PATHS = {
    "busybox": "usr/bin/busybox",
    "qemu-ga": "usr/sbin/qemu-ga",
    "fio": "usr/bin/fio",
    "pgbench": "usr/bin/pgbench",
}

_ROOT = Path("/")
_VERSION = re.compile(r"\d+\.\d+[\w.+~-]*")
_LIBRARY = re.compile(r"^\s+(?:(\S+) => )?(/\S+) \(0x", re.MULTILINE)
_MISSING = re.compile(r"^\s+(\S+) => not found", re.MULTILINE)


class Node(Value):
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


def guest_path(path: Path, root: Path = _ROOT) -> str:
    """The path in the guest of a file of the host, or of a foreign system below `root`, without
    the leading slash.
    """
    text = str(path.relative_to(root)).lstrip("/")
    return f"usr/{text}" if text.split("/", 1)[0] in MERGED else text


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


def guest_scripts() -> dict[str, bytes]:
    """The scripts of the guest, by file name."""
    folder = resources.files("vdisklab.guest.image") / "guestfiles"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def guest_content(
    host: Host,
    kernel: Kernel,
    programs: Sequence[InstalledProgram],
    foreign: ForeignSystem | None = None,
) -> GuestContent:
    """All files of a guest with these programs, which are the host's or those of `foreign`."""
    content = GuestContent(host, kernel, foreign)
    content.add_base()
    content.add_programs(programs)
    content.add_modules()
    return content


class GuestContent:
    """The guest's files: `early` ones in the RAM file system, `late` ones on the disk at /extra."""

    def __init__(self, host: Host, kernel: Kernel, foreign: ForeignSystem | None = None) -> None:
        self.early = FileTree()
        self.late = FileTree()
        self.sources: set[Path] = {kernel.image}
        self._host = host
        self._kernel = kernel
        self._foreign = foreign
        self._root = _ROOT if foreign is None else foreign.root

    def _path(self, path: Path) -> str:
        return guest_path(path, self._root)

    def _libraries(self, files: Sequence[Path]) -> list[Path]:
        if self._foreign is not None:
            return self._foreign.libraries(files)
        return libraries(self._host, files)

    def add_base(self) -> None:
        """Adds the guest's scripts, the mount points, and the files in /etc that programs need."""
        for name in ("dev", "proc", "sys", "run", "tmp", "mnt", "extra", "root"):
            self.early.directory(name)
        for name in MERGED:
            self.early.directory(f"usr/{name}")
            self.early.link(name, f"usr/{name}")
        scripts = guest_scripts()
        self.early.file("init", scripts["init.sh"], executable=True)
        self.early.file("etc/fstab", _FSTAB)
        # A log written here becomes part of the program's output (MicroGuest.stderr_log).
        self.early.link(f"{STDERR_LOG}_bw.log".lstrip("/"), "/proc/self/fd/2")
        for name in ("prepare", "load-drivers", "find-disk", "facts", "steps"):
            path = f"usr/lib/vdisklab/{name}"
            self.early.file(path, scripts[f"{name}.sh"], executable=True)
        self.early.file("etc/passwd", b"root:x:0:0:root:/root:/usr/bin/sh\n")
        self.early.file("etc/group", b"root:x:0:\n")
        self.early.link("etc/mtab", "/proc/mounts")
        defaults = Path("/etc/mke2fs.conf")
        if defaults.exists():
            self.early.file("etc/mke2fs.conf", defaults)
            self.sources.add(defaults)

    def add_programs(self, programs: Sequence[InstalledProgram]) -> None:
        """Adds the programs, their libraries, and busybox applets where no program has that
        name."""
        early = list[Path]()
        late = list[Path]()
        for installed in programs:
            self.sources.add(installed.real)
            for path in (path for form in installed.program.data for path in self._root.glob(form)):
                self.late.file(self._path(path), path)
                self.sources.add(path)
            tree, files = (self.early, early) if installed.program.early else (self.late, late)
            files.append(installed.real)
            self._add_program(tree, installed)
        first = self._libraries(early)
        homes = [path.parent for path in first if path.name.startswith("libc.so")]
        home = homes[0] if homes else Path("/lib")
        for path in first:
            self._add_library(self.early, path, home)
        for path in self._libraries(late):
            if path not in first:
                self._add_library(self.late, path, home)
        self._link_late()
        self._add_busybox()

    def _add_program(self, tree: FileTree, installed: InstalledProgram) -> None:
        # Each program is at the host's path, with a link where the guest's scripts look for it.
        real = self._path(installed.real)
        tree.file(real, installed.real, executable=True)
        aliases = (self._path(installed.path), _GUEST_PATHS.get(installed.program.name, real))
        for alias in aliases:
            if alias != real:
                self.early.link(alias, f"/{real}")

    def _add_library(self, tree: FileTree, path: Path, home: Path) -> None:
        real = path if self._foreign is None else self._foreign.real(path) or path
        tree.file(self._path(path), real, executable=True)
        self.sources.add(real)
        # The guest has no ld.so.cache: the loader looks in the C library's directory only.
        alias = self._path(home / path.name)
        is_elsewhere = alias != self._path(path) and not path.name.startswith("ld-")
        if is_elsewhere and alias not in self.early:
            self.early.link(alias, f"/{self._path(path)}")

    def _link_late(self) -> None:
        for path, node in self.late.files():
            if not node.is_directory and path not in self.early:
                self.early.link(path, f"/extra/{path}")

    def _add_busybox(self) -> None:
        for name in _APPLETS:
            if not any(f"usr/{place}/{name}" in self.early for place in ("bin", "sbin")):
                self.early.link(f"usr/bin/{name}", "busybox")
        # The kernel calls this path when it needs a module.
        self.early.link("usr/sbin/modprobe", "../bin/busybox")

    def add_modules(self) -> None:
        """Adds the modules: early ones for the agent's port and the late disk, all others late."""
        tree = self._kernel.modules
        disks = sorted(_modules_of(bus for bus in self._kernel.buses if not bus.shares_directory))
        buses = sorted(_modules_of(self._kernel.buses))
        first = tree.closure([*AGENT_MODULES, *ROOT_MODULES])
        every = tree.closure([*AGENT_MODULES, *ROOT_MODULES, *buses, *OPTIONAL_MODULES])
        base = f"usr/lib/modules/{self._kernel.release}"
        for module in every:
            tree_of = self.early if module in first else self.late
            tree_of.file(f"{base}/{module.name}.ko", module_content(module.path))
            self.sources.add(module.path)
        self._link_late()
        self.early.file(f"{base}/modules.dep", _dependencies(tree, every))
        self.early.file(f"{base}/modules.alias", _aliases(every))
        for name, wanted in (("root", ROOT_MODULES), ("disk", disks)):
            line = " ".join(module.name for name in wanted for module in tree.closure([name])[-1:])
            self.early.file(f"etc/vdisklab/{name}-modules", f"{line}\n".encode())


def _modules_of(buses: Iterable[Bus]) -> set[str]:
    return {name for bus in buses for name in BUS_MODULES[bus]}


def _dependencies(tree: ModuleTree, modules: Iterable[Module]) -> bytes:
    """modules.dep(5): each module with its dependencies, in reverse order of loading."""
    lines = []
    for module in modules:
        needs = [need.name for need in tree.closure([module.name])[-2::-1]]
        lines.append(f"{module.name}.ko:" + "".join(f" {name}.ko" for name in needs))
    return ("\n".join(lines) + "\n").encode()


def _aliases(modules: Iterable[Module]) -> bytes:
    lines = [f"alias {alias} {module.name}" for module in modules for alias in module.aliases]
    return ("\n".join(lines) + "\n").encode()


class Program(Value):
    """A program that the guest gets if the host has it.

    An `early` program is in the RAM file system: the agent needs it before the disk is mounted.
    One that is `beside` another is looked for in the same directory only. `data` has patterns of
    the files that it reads, without the leading slash.
    """

    name: str
    required: bool = False
    version: tuple[str, ...] = ("--version",)
    early: bool = False
    beside: str | None = None
    data: tuple[str, ...] = ()


PROGRAMS = (
    Program("busybox", required=True, version=(), early=True),
    Program("qemu-ga", required=True, early=True),
    # Debian's fio loads 60 libraries: too large to be in memory.
    Program("fio", required=True),
    Program("bonnie++", version=("-?",)),
    Program("sysbench", data=("usr/share/sysbench/*.lua",)),
    Program("dd"),
    Program("dpkg-deb"),
    Program("tar"),
    Program("sqlite3"),
    Program("perl"),
    Program("mkfs.ext2", version=("-V",)),
    Program("mkfs.ext3", version=("-V",)),
    Program("mkfs.ext4", version=("-V",)),
    Program("mkfs.xfs", version=("-V",)),
    Program("mkfs.btrfs"),
    Program("hdparm", version=("-V",)),
    Program("blkid"),
)
"""The programs of every micro guest."""


SERVERS = (
    Program("setpriv"),
    # The server wants the directory of its libraries, and opens none of them here.
    Program("postgres", data=(
        "usr/share/*/timezonesets/*", "usr/share/*/*/timezonesets/*",
        *(f"usr/{place}/dict_snowball.so" for place in (
            "lib/postgresql/*/lib", "lib/postgresql", "lib*/pgsql", "pgsql-*/lib",
        )),
    )),
    Program("db_bench"),
    Program("mariadbd", data=("usr/share/m*/english/errmsg.sys", "usr/share/m*/charsets/*")),
    Program("mariadb"),
    # Debian's pgbench and psql on the PATH are scripts, which look for a cluster.
    *(Program(name, beside="postgres") for name in ("pg_ctl", "pgbench", "psql")),
)  # fmt: skip
"""Databases, and what starts them; a guest that boots from its disk goes without."""


class InstalledProgram(Value):
    """A program of this host: the path where it was found, and the file behind all links."""

    program: Program
    path: Path
    real: Path


def find_programs(
    host: Host, programs: Sequence[Program], foreign: ForeignSystem | None = None
) -> list[InstalledProgram]:
    """The installed ones among `programs`, or those of `foreign`.

    Raises HostError when a required one is missing.
    """
    installed = []
    for program in programs:
        if program.beside:
            path = _beside(host, program, foreign)
        else:
            path = host.which(program.name) if foreign is None else foreign.which(program.name)
        if path is not None:
            real = path.resolve() if foreign is None else foreign.real(path)
            installed.append(InstalledProgram(program, path, real or path))
        elif program.required:
            raise HostError(
                f"{program.name} is not installed, but the guest needs it",
                hint=install_hint([program.name]),
            )
    return installed


def _beside(host: Host, program: Program, foreign: ForeignSystem | None) -> Path | None:
    beside = program.beside or ""
    other = host.which(beside) if foreign is None else foreign.which(beside)
    if other is not None:
        other = other.resolve() if foreign is None else foreign.real(other)
    path = None if other is None else other.with_name(program.name)
    return path if path is not None and path.exists() else None


def version(host: Host, installed: InstalledProgram, foreign: ForeignSystem | None = None) -> str:
    """The version that a program prints, or "unknown"; of a foreign one that of its package."""
    if foreign is not None:
        return foreign.version(installed.program.name)
    every_status = range(-64, 256)
    version_arguments = installed.program.version
    output = host.run(installed.path, *version_arguments, allowed=every_status, timeout=20)
    match = _VERSION.search(output.stdout) or _VERSION.search(output.stderr)
    return match[0] if match else "unknown"


def libraries(host: Host, files: Iterable[Path]) -> list[Path]:
    """All shared libraries that these programs load, and the dynamic loader.

    Raises HostError when one of them is not installed.
    """
    programs = [path for path in files if _is_elf(path)]
    if not programs:
        return []
    # ldd exits with 1 when one of them is linked statically, as busybox is.
    output = host.run("ldd", *programs, allowed=(0, 1)).stdout
    missing = _MISSING.findall(output)
    if missing:
        raise HostError(f"these libraries are not installed: {', '.join(sorted(set(missing)))}")
    return sorted({Path(match[1]) for match in _LIBRARY.findall(output)})


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
