"""Finds a kernel for the guest, installed or in a distribution's package, and its modules.

All cells of a campaign use the same kernel, so it must have drivers for all their buses.
`modules.dep` is not used: an unpacked kernel package has none, and the host may lack kmod. Each
module names its dependencies in its own `.modinfo`.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.guest.image.cache import building, keep, locked
from vdisklab.guest.image.debian_packages import Apt, depends_on, unpack_package
from vdisklab.guest.image.foreign import foreign_apt
from vdisklab.guest.image.packed import unpack
from vdisklab.host.command import Host, not_installed
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.path.segments import Bus
from vdisklab.plan.guest import GuestPlan
from vdisklab.value import Value

# All but AHCI, USB and 9p. This kernel has fewer built-in drivers and boots about 5 % faster.
_CLOUD_BUSES = frozenset({Bus.VIRTIO, Bus.VHOSTUSER, Bus.SCSI, Bus.NVME, Bus.IDE, Bus.VIRTIOFS})

AGENT_MODULES = ("virtio_pci", "virtio_console")
"""Modules for the guest agent's port."""

ROOT_MODULES = ("virtio_blk", "ext4")
"""For the image of programs, a read-only ext4 file system on a virtio disk."""

BUS_MODULES: Mapping[Bus, tuple[str, ...]] = {
    Bus.VIRTIO: ("virtio_blk",),
    Bus.SCSI: ("virtio_scsi", "sd_mod"),
    Bus.IDE: ("ata_piix", "sd_mod"),
    Bus.SATA: ("ahci", "sd_mod"),
    Bus.NVME: ("nvme",),
    Bus.USB: ("xhci_pci", "usb_storage", "uas", "sd_mod"),
    Bus.VHOSTUSER: ("virtio_blk",),
    Bus.VIRTIOFS: ("virtiofs",),
    Bus.P9: ("9pnet_virtio", "9p"),
}
"""Modules for a disk on each bus, and for a shared directory, whose mount loads them."""

SCHEDULER_MODULES = {"mq-deadline": "mq_deadline", "kyber": "kyber_iosched", "bfq": "bfq"}
"""The module of each I/O scheduler that a path can name; `none` needs none."""

OPTIONAL_MODULES = (
    "xfs", "btrfs", "ext2", "loop", "virtio_rng", *SCHEDULER_MODULES.values(),
)  # fmt: skip
"""File systems and schedulers for the measured disk; included if the kernel has them."""

# A module that looks up a checksum by name at run time (crypto_alloc_shash) has no symbol
# dependency on it; `softdep` names the checksum by an alias.
_CHECKSUMS = {
    "crc32c": ("crc32c_generic", "crc32c_intel"),
    "crct10dif": ("crct10dif_generic",),
    "blake2b_256": ("blake2b_generic",),
    "sha256": ("sha256_generic",),
    "xxhash64": ("xxhash_generic",),
}

_SUFFIXES = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")

_ELF = b"\x7fELF"
# The strings of the section .modinfo (MODULE_INFO in include/linux/moduleparam.h).
_MODINFO = re.compile(rb"(?<![ -~])(depends|softdep|alias)=([^\0]*)\0")


class Flavour(StrEnum):
    """A distribution's kernel package, and the machines that it is built for."""

    HOST = "host"
    CLOUD = "cloud"
    FULL = "full"

    @property
    def package(self) -> str:
        """Debian's package that always depends on the newest kernel of this flavour."""
        packages = GUEST.packages
        return packages.cloud_kernel if self is Flavour.CLOUD else packages.kernel


class Kernel(Value):
    """A kernel for guests: its boot file, and below `modules_root` its `lib/modules/RELEASE`."""

    image: Path
    modules_root: Path
    release: str
    flavour: Flavour

    @property
    def modules(self) -> ModuleTree:
        """The kernel's modules."""
        return ModuleTree(_module_directory(self.modules_root, self.release))

    @property
    def buses(self) -> frozenset[Bus]:
        """The buses that the kernel has drivers for."""
        tree = self.modules
        return frozenset(bus for bus in Bus if not tree.lacking(BUS_MODULES[bus]))


def kernel_release(image: bytes) -> str:
    """The release of a kernel, as `uname -r` prints it in the guest. `image` is its head.

    Raises HostError if the file is not a kernel: damaged, or for another architecture.
    """
    release = GUEST.boot_file.release(image)
    if release is None:
        raise HostError(
            f"not {GUEST.boot_file.described}",
            hint="install the distribution's own kernel package again, or name another kernel "
            "with `guest.kernel` in a plan file",
        )
    return release


def kernel_for(host: Host, cache: Path, buses: frozenset[Bus], guest: GuestPlan) -> Kernel:
    """The kernel of the micro guest, with its I/O schedulers. Raises HostError if none has them."""
    wanted, schedulers = guest.kernel, guest.schedulers
    return find_kernel(host, cache, buses, wanted=wanted, schedulers=schedulers)


def find_kernel(
    host: Host,
    cache: Path,
    buses: frozenset[Bus],
    *,
    wanted: str | None = None,
    schedulers: Iterable[str] = (),
    boot: Path = Path("/boot"),
) -> Kernel:
    """A kernel that has `schedulers` and drivers for all `buses` and the guest agent's port.

    Tries the image `wanted`, the running kernel, the newest in `boot`, one in `cache`, and a
    download from the distribution, in this order. A cached kernel is not replaced by a newer one,
    so that campaigns stay comparable; remove it to get a newer one. Raises HostError if none is
    usable.
    """
    needed = needed_modules(buses, schedulers)
    if wanted is not None:
        return _wanted_kernel(Path(wanted), needed)
    for kernel in () if is_foreign() else _host_kernels(boot):
        if not kernel.modules.lacking(needed):
            return kernel
    flavour = Flavour.CLOUD if buses <= _CLOUD_BUSES else Flavour.FULL
    return _packaged_kernel(host, cache, flavour, needed)


def is_kernel_at_hand(cache: Path, buses: frozenset[Bus], boot: Path = Path("/boot")) -> bool:
    """Whether `find_kernel` would find one for these buses without a download."""
    cached = (_kept_kernel(_directory(cache), flavour) for flavour in (Flavour.CLOUD, Flavour.FULL))
    installed = () if is_foreign() else _host_kernels(boot)
    kernels = itertools.chain(installed, (kernel for kernel in cached if kernel))
    return any(not kernel.modules.lacking(needed_modules(buses)) for kernel in kernels)


def _wanted_kernel(image: Path, needed: list[str]) -> Kernel:
    kernel = _read_kernel(image, (image.parent.parent, Path("/")), Flavour.HOST)
    if kernel is None:
        raise HostError(
            f"the kernel {image} cannot be used: no readable {GUEST.boot_file.name} with its "
            "lib/modules",
            hint="name a /boot/vmlinuz-* whose /lib/modules directory exists",
        )
    lacking = kernel.modules.lacking(needed)
    if lacking:
        raise HostError(
            f"the kernel {image} lacks drivers that this guest needs: {', '.join(lacking)}",
            hint="leave out the kernel: vdisklab then chooses one",
        )
    return kernel


def _host_kernels(boot: Path) -> Iterator[Kernel]:
    """The kernels installed here: the running one first, then from the newest to the oldest."""
    running = os.uname().release
    images = sorted(boot.glob("vmlinuz-*"), key=lambda path: _version(path.name), reverse=True)
    images.sort(key=lambda path: path.name != f"vmlinuz-{running}")
    for image in images:
        kernel = _read_kernel(image, (boot.parent,), Flavour.HOST)
        if kernel is not None:
            yield kernel


def _read_kernel(image: Path, roots: Iterable[Path], flavour: Flavour) -> Kernel | None:
    """The kernel in the file `image` with its modules; None if kernel or modules cannot be read.

    Ubuntu makes /boot/vmlinuz-* readable for root only. That is not an error: another kernel may be
    usable.
    """
    try:
        with image.open("rb") as file:
            release = kernel_release(file.read(GUEST.boot_file.head or -1))
    except (OSError, HostError):
        return None
    for root in roots:
        if _module_directory(root, release).is_dir():
            return Kernel(image, root, release, flavour)
    return None


def _module_directory(root: Path, release: str) -> Path:
    below_lib = root / "lib/modules" / release
    return below_lib if below_lib.is_dir() else root / "usr/lib/modules" / release


def _version(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _packaged_kernel(host: Host, cache: Path, flavour: Flavour, needed: list[str]) -> Kernel:
    with locked(_directory(cache)) as directory:
        kernel = _kept_kernel(directory, flavour)
        # An older vdisklab may have unpacked fewer modules.
        if kernel is None or kernel.modules.lacking(needed):
            kernel = _download_kernel(host, directory, flavour, foreign_apt(host, cache))
    lacking = kernel.modules.lacking(needed)
    if lacking:
        raise HostError(
            f"the distribution's kernel {kernel.release} lacks {', '.join(lacking)}",
            hint=f"if a newer package has them, remove {kernel.modules_root} to download it",
        )
    return kernel


def _directory(cache: Path) -> Path:
    return cache / (f"kernel-{GUEST.name}" if is_foreign() else "kernel")


def _kept_kernel(directory: Path, flavour: Flavour) -> Kernel | None:
    for root in sorted(
        directory.glob(f"{flavour}-*"), key=lambda path: _version(path.name), reverse=True
    ):
        for image in sorted(root.glob("boot/vmlinuz-*")):
            kernel = _read_kernel(image, (root,), flavour)
            if kernel is not None:
                return kernel
    return None


def _download_kernel(host: Host, directory: Path, flavour: Flavour, apt: Apt) -> Kernel:
    # The meta package depends on the signed image, whose name has the release.
    package = next(
        (n for n in depends_on(host, flavour.package, apt) if n.startswith("linux-image-")), None
    )
    if package is None:
        raise HostError(
            f"{flavour.package} does not depend on a kernel package", hint="run `apt-get update`"
        )
    release = package.removeprefix("linux-image-")
    with _room(directory), building(directory) as root:
        unpack_package(host, package, root, apt)
        _keep_useful(root, _only_kernel(root, flavour, package))
        return _only_kernel(keep(root, directory / f"{flavour}-{release}"), flavour, package)


@contextmanager
def _room(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HostError(
            f"the kernel cannot be stored in {directory}: {error.strerror}",
            hint="free some space there, or set another cache directory",
        ) from error


def _only_kernel(root: Path, flavour: Flavour, package: str) -> Kernel:
    for image in sorted(root.glob("boot/vmlinuz-*")):
        kernel = _read_kernel(image, (root,), flavour)
        if kernel is not None:
            return kernel
    raise HostError(f"the package {package} has no readable kernel", hint="try again")


def _keep_useful(root: Path, kernel: Kernel) -> None:
    """Removes the modules that no guest loads: 390 MB of Debian's full kernel become 30."""
    tree = kernel.modules
    names = (*needed_modules(Bus), *OPTIONAL_MODULES)
    keep = {module.path for module in tree.closure(names)}
    for path in set(tree.files.values()) - keep:
        path.unlink()
    shutil.rmtree(root / "usr/share", ignore_errors=True)


def needed_modules(buses: Iterable[Bus], schedulers: Iterable[str] = ()) -> list[str]:
    """The modules that a guest needs for its agent, its programs, and disks on these buses."""
    of_buses = (name for bus in buses for name in BUS_MODULES[bus])
    of_schedulers = (SCHEDULER_MODULES[name] for name in schedulers if name in SCHEDULER_MODULES)
    return sorted({*AGENT_MODULES, *ROOT_MODULES, *of_buses, *of_schedulers})


class Module(Value):
    """One module: its file, and the names of the modules it depends on."""

    name: str
    path: Path
    needs: tuple[str, ...]
    aliases: tuple[str, ...]


class ModuleTree(Value, dict=True):
    """The modules of one kernel: the directory `lib/modules/RELEASE`."""

    directory: Path

    @cached_property
    def files(self) -> Mapping[str, Path]:
        """Every module's file by its name, written with underscores."""
        files = {}
        for path in self.directory.glob("kernel/**/*.ko*"):
            name, _, suffix = path.name.partition(".")
            if f".{suffix}" in _SUFFIXES:
                files[_normal(name)] = path
        return files

    @cached_property
    def builtin(self) -> frozenset[str]:
        """Names of the modules that are built into the kernel."""
        try:
            lines = (self.directory / "modules.builtin").read_text().split()
        except OSError:
            return frozenset()
        return frozenset(_normal(Path(line).name.partition(".")[0]) for line in lines)

    def lacking(self, names: Iterable[str]) -> list[str]:
        """The `names` that this kernel has neither built in nor as a module."""
        return [n for n in names if _normal(n) not in self.builtin and _normal(n) not in self.files]

    def closure(self, names: Iterable[str]) -> list[Module]:
        """The modules `names` with their dependencies, in an order in which they can be loaded.

        Built-in and unknown names are left out.
        """
        done: dict[str, Module] = {}

        def visit(name: str) -> None:
            path = self.files.get(name)
            if path is None or name in done:
                return
            module = _read(name, path)
            for need in module.needs:
                visit(need)
            done[name] = module

        for name in names:
            visit(_normal(name))
        return list(done.values())


def module_content(path: Path) -> bytes:
    """A module, unpacked. Raises HostError when the file is damaged."""
    data = path.read_bytes()
    if path.suffix == ".ko":
        return data
    try:
        return unpack(data)
    except ValueError as error:
        raise HostError(f"the kernel module {path} is damaged: {error}") from error
    except OSError as error:
        # Modules are packed with gzip, xz or zstd (kernel/module/Kconfig).
        raise not_installed("libzstd.so.1") from error


def _read(name: str, path: Path) -> Module:
    data = module_content(path)
    if not data.startswith(_ELF):
        raise HostError(f"the kernel module {path} is damaged: not an ELF file")
    info: dict[str, list[str]] = {"depends": [], "softdep": [], "alias": []}
    for key, value in _MODINFO.findall(data):
        info[key.decode()].append(value.decode(errors="replace"))
    needs = [_normal(need) for need in ",".join(info["depends"]).split(",") if need]
    for rule in info["softdep"]:
        kind, _, targets = rule.partition(":")
        if kind == "pre":
            aliases = (_normal(target.removeprefix("crypto-")) for target in targets.split())
            needs += [soft for alias in aliases for soft in _CHECKSUMS.get(alias, ())]
    return Module(name, path, tuple(needs), tuple(info["alias"]))


def _normal(name: str) -> str:
    # The kernel treats `virtio-rng.ko` and `virtio_rng` as the same module.
    return name.replace("-", "_")
