"""The lab's system: built once from Debian's packages, and cached by what it was built from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from vdisklab.errors import CommandError, HostError
from vdisklab.guest.image.cache import building, keep, locked
from vdisklab.guest.image.packed import unpack
from vdisklab.host.command import Host, require_programs
from vdisklab.host.mounts import free_bytes
from vdisklab.lab.foreign_image import unpack_lab
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.path.segments import LayerKind
from vdisklab.progress import Note, Progress, Step
from vdisklab.units import GIB, MIB, format_bytes, format_duration
from vdisklab.value import Value

_BUILD_SECONDS = 7200.0
_BUILD_ROOM = 6 * GIB
_SPARE = 512 * MIB
_MANIFEST = "manifest.json"
_FILES = ("root.ext4", "vmlinuz", "initrd")
# The packages whose new versions cause a new image; zfs-dkms may be missing from apt's lists here.
_VERSIONED = (
    GUEST.packages.kernel, "lvm2", "mdadm", GUEST.packages.emulator, "fio", "python3",
)  # fmt: skip


# ZFS is in contrib because of its licence; DKMS compiles its module.
_COMPONENTS = ("main", "contrib")

PACKAGES = (
    GUEST.packages.kernel, GUEST.packages.kernel_headers, "kmod", "udev", "mount", "util-linux",
    *dict.fromkeys(package for kind in LayerKind for package in kind.facts.packages),
    GUEST.packages.emulator, "qemu-utils", GUEST.packages.firmware,
    "qemu-guest-agent", "busybox-static",
    "fio", "bonnie++", "sysbench", "sqlite3",
    "nfs-kernel-server", "open-iscsi", "nvme-cli", "iproute2",
    "python3", "libc-bin", "initramfs-tools", "procps",
)  # fmt: skip

BUILD = f"vdisklab lab build{f' --arch {GUEST.name}' if is_foreign() else ''}"
"""The command that builds the lab."""

COMPILED_LAYERS = (LayerKind.ZFS, LayerKind.ZVOL)
"""The layers whose kernel module is compiled; a lab of another architecture lacks it."""

# The modules to mount the root file system: ext4 on virtio. The usual initramfs has all drivers,
# and emulated CPUs take a quarter of a minute for it.
_INITRD_MODULES = ("virtio_pci", "virtio_blk", "ext4")

# For /bin/sh, with the new system's directory as $1 and the init script as $2, after all packages
# are configured. A change here makes a new image.
FINISH = """\
set -e
root="$1"
printf 'MODULES=list\\n' > "$root/etc/initramfs-tools/conf.d/lab"
printf '%s\\n' {modules} >> "$root/etc/initramfs-tools/modules"
chroot "$root" update-initramfs -u -k all
ls "$root"/lib/modules/*/updates/dkms/zfs.ko* >/dev/null
# The compiler and what it read have done their work.
rm -rf "$root/usr/src" "$root/usr/lib/gcc" "$root/var/lib/dkms" "$root/usr/share/doc" \\
    "$root/usr/share/locale" "$root/usr/share/man" "$root/var/cache/apt" \\
    "$root/var/lib/apt/lists"
mkdir -p "$root/vdisklab" "$root/work" "$root/var/lib/vdisklab"
printf 'vdisklab-lab\\n' > "$root/etc/hostname"
# Nothing is to be assembled or imported behind the back of what is measured.
mkdir -p "$root/etc/mdadm" && printf 'AUTO -all\\n' > "$root/etc/mdadm/mdadm.conf"
install -m 0755 "$2" "$root/sbin/vdisklab-lab"
""".format(modules=" ".join(_INITRD_MODULES))


class LabImage(Value):
    """A bootable system: root file system, kernel and initramfs."""

    directory: Path
    kernel_release: str
    python: str

    @property
    def root(self) -> Path:
        """The root file system, ext4. It is never written to: each run has a layer over it."""
        return self.directory / "root.ext4"

    @property
    def kernel(self) -> Path:
        """The kernel."""
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The initramfs."""
        return self.directory / "initrd"


class Source(Value):
    """A package source of apt."""

    origin: str
    uri: str
    codename: str


def parse_sources(listing: str) -> tuple[Source, ...]:
    """Debian's own sources in the output of `apt-get indextargets`, without repetition.

    Lines are `origin|uri|codename|component`. Raises HostError when there are none.
    """
    sources: dict[Source, None] = {}
    for line in listing.splitlines():
        origin, uri, codename, component = line.split("|")
        if origin == "Debian" and component == "main":
            sources[Source(origin, uri.rstrip("/"), codename)] = None
    if not sources:
        raise HostError(
            "apt has no sources of Debian here, and the lab is built from Debian's packages",
            hint="run `apt-get update`; other distributions cannot build the lab yet",
        )
    return tuple(sources)


def suite_of(sources: Sequence[Source]) -> str:
    """The release of the sources: the shortest of bookworm, bookworm-updates, …"""
    return min((source.codename for source in sources), key=len)


def source_lines(sources: Sequence[Source]) -> tuple[str, ...]:
    """Lines for sources.list, with the component that contains ZFS."""
    components = " ".join(_COMPONENTS)
    return tuple(f"deb {source.uri} {source.codename} {components}" for source in sources)


def bootstrap_command(
    sources: Sequence[Source], root: str, finish: str, init: str
) -> tuple[str, ...]:
    """The command that creates the system in a directory and runs the `finish` script on it.

    mmdebstrap mounts /proc, /sys and /dev inside. It runs in its own mount namespace, so these
    mounts end with it: removing a half-built system cannot reach the host's devices.
    """
    return (
        "unshare", "--mount", "--propagation=private",
        "mmdebstrap", "--mode=root", "--variant=apt", "--skip=cleanup/apt",
        "--aptopt=APT::Install-Recommends false", "--aptopt=Acquire::Retries 3",
        f"--include={','.join(PACKAGES)}",
        f"--customize-hook=sh {finish} \"$1\" {init}",
        suite_of(sources), root, *source_lines(sources),
    )  # fmt: skip


def key_of(sources: Sequence[Source], versions: Sequence[str], init: str) -> str:
    """16 hexadecimal digits for everything that decides the content of the image.

    `versions` are those that apt would install now, so that a security update of the kernel makes
    a new image.
    """
    content = {
        "sources": source_lines(sources),
        "packages": PACKAGES,
        "versions": list(versions),
        "finish": FINISH,
        "init": init,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def lab_cache(cache: Path) -> Path:
    """The directory of lab images."""
    return cache / "lab"


def find_lab_image(host: Host, cache: Path) -> LabImage | None:
    """The image for this host's current package sources, or None.

    Raises HostError when the image is damaged.
    """
    directory = lab_cache(cache) / _image_name(host)
    return _read(directory) if directory.is_dir() else None


def build_lab_image(
    host: Host, cache: Path, progress: Progress, *, again: bool = False
) -> LabImage:
    """The image, built if it is missing or `again` is set; building takes minutes.

    Raises HostError without root, room or network, or when a package fails; then nothing is kept.
    """
    key = _image_name(host)
    with locked(lab_cache(cache)) as parent:
        directory = parent / key
        if directory.is_dir() and not again:
            return _read(directory)
        _require_means(host, parent)
        with building(parent) as fresh:
            started = time.monotonic()
            if is_foreign():
                progress(Step(f"downloading and unpacking the lab's packages for {GUEST.name}"))
                unpack_lab(host, cache, fresh, foreign_packages(), _INITRD_MODULES)
            else:
                _bootstrap(host, fresh, progress)
            _pack(host, fresh, progress)
            _write_manifest(fresh, time.monotonic() - started)
            image = _read(keep(fresh, directory))
    progress(Note(f"built in {format_duration(time.monotonic() - started)}: {image.directory}"))
    return image


def foreign_packages() -> tuple[str, ...]:
    """The packages of a lab whose programs do not run here: none that is only there to compile."""
    compiled = {GUEST.packages.kernel_headers, "initramfs-tools", *LayerKind.ZFS.facts.packages}
    return tuple(name for name in PACKAGES if name not in compiled)


def _image_name(host: Host) -> str:
    """The image's directory. A foreign one has no version in it: apt's lists may be away."""
    if not is_foreign():
        return _key(host)
    content = [foreign_packages(), _init(), _INITRD_MODULES, suite_of(_sources(host))]
    return f"{GUEST.name}-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]}"


def _key(host: Host) -> str:
    shown = host.run("apt-cache", "show", "--no-all-versions", *_VERSIONED, allowed=(0, 100)).stdout
    versions = [line for line in shown.splitlines() if line.startswith(("Package:", "Version:"))]
    return key_of(_sources(host), versions, _init())


def _sources(host: Host) -> tuple[Source, ...]:
    if host.which("apt-get") is None:
        raise HostError(
            "the lab is built from Debian's packages, and apt-get is not installed",
            hint="build it on a Debian host",
        )
    form = "$(ORIGIN)|$(REPO_URI)|$(CODENAME)|$(COMPONENT)"
    listing = host.run("apt-get", "indextargets", "--format", form, "Created-By: Packages").stdout
    return parse_sources(listing)


def _init() -> str:
    return resources.files("vdisklab.lab").joinpath("init.sh").read_text("utf-8")


def _require_means(host: Host, parent: Path) -> None:
    if os.geteuid() != 0:
        raise HostError("building the lab needs root", hint="run it with sudo")
    require_programs(host, *(("depmod", "dpkg-deb") if is_foreign() else ("mmdebstrap",)), "mke2fs")
    free = free_bytes(parent)
    if free < _BUILD_ROOM:
        raise HostError(
            f"building the lab needs {format_bytes(_BUILD_ROOM)}, "
            f"and {parent} has {format_bytes(free)} free",
            hint="free some space, or set VDISKLAB_STATE to a directory with more room",
        )


def _bootstrap(host: Host, fresh: Path, progress: Progress) -> None:
    progress(Step("installing the lab's packages and compiling ZFS; this takes about ten minutes"))
    finish, init, root = fresh / "finish.sh", fresh / "init.sh", fresh / "root"
    finish.write_text(FINISH)
    init.write_text(_init())
    command = bootstrap_command(_sources(host), str(root), str(finish), str(init))
    try:
        completed = host.run(*command, timeout=_BUILD_SECONDS)
    except CommandError as error:
        lines = [line for line in error.stderr.splitlines() if line.startswith(("E:", "W: E"))]
        raise HostError(
            f"the lab's packages cannot be installed: {' | '.join(lines[-3:]) or error}",
            hint="check the network, run `apt-get update`, and try again",
        ) from error
    (fresh / "build.log").write_text(completed.stderr)
    finish.unlink()
    init.unlink()


def _pack(host: Host, fresh: Path, progress: Progress) -> None:
    progress(Step("writing the lab's root file system"))
    root = fresh / "root"
    for source, name in (("vmlinuz-*", "vmlinuz"), ("initrd.img-*", "initrd")):
        files = sorted((root / "boot").glob(source))
        if not files:
            raise HostError(f"the lab's system has no /boot/{source}", hint="build it again")
        shutil.copyfile(files[-1], fresh / name)
    kernel = fresh / "vmlinuz"
    kernel.write_bytes(GUEST.boot_file.booted(kernel.read_bytes(), unpack))
    used = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())
    size = int(used * 1.25) + _SPARE
    host.run("mke2fs", "-q", "-t", "ext4", "-d", root, fresh / "root.ext4", f"{size // 1024}k",
             timeout=900)  # fmt: skip


def _write_manifest(fresh: Path, seconds: float) -> None:
    root = fresh / "root"
    (modules,) = (root / "lib/modules").iterdir()
    python = (root / "usr/bin/python3").readlink().name.removeprefix("python")
    manifest = {
        "kernel": modules.name,
        "python": python,
        "seconds": round(seconds, 1),
        "files": {name: _digest(fresh / name) for name in _FILES},
    }
    shutil.rmtree(root)
    (fresh / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()[:32]


def _read(directory: Path) -> LabImage:
    """The image in a directory. Raises HostError when a file differs from the manifest."""
    hint = f"run `{BUILD} --again`"
    try:
        manifest = json.loads((directory / _MANIFEST).read_text())
        for name in _FILES:
            if _digest(directory / name) != manifest["files"][name]:
                raise HostError(f"the lab image is damaged: {directory / name}", hint=hint)
        return LabImage(directory, manifest["kernel"], manifest["python"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HostError(f"the lab image in {directory} is damaged: {error}", hint=hint) from error


def require_same_python(image: LabImage) -> None:
    """Raises HostError when our compiled Python packages cannot run in the lab."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if image.python != version:
        raise HostError(
            f"vdisklab runs under Python {version} here, and the lab has {image.python}",
            hint=f"install vdisklab in an environment of python{image.python}",
        )
