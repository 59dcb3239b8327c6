"""What the lab's host is made of: packages, sources of packages, and the last touches. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from vdisklab.errors import HostError

# ZFS is in contrib, as its licence keeps it out of the kernel; its module is compiled by DKMS.
_COMPONENTS = ("main", "contrib")

PACKAGES = (
    "linux-image-amd64", "linux-headers-amd64", "kmod", "udev", "mount", "util-linux",
    "zfs-dkms", "zfsutils-linux", "lvm2", "thin-provisioning-tools", "mdadm",
    "e2fsprogs", "xfsprogs", "btrfs-progs",
    "qemu-system-x86", "qemu-utils", "seabios",
    "qemu-guest-agent", "busybox-static",
    "fio", "bonnie++", "sysbench", "sqlite3",
    "python3", "libc-bin", "initramfs-tools", "procps",
)  # fmt: skip

# What the initial file system needs before it mounts the root: ours is on virtio, as ext4. The
# usual one holds every driver there is and takes emulated processors a quarter of a minute.
_INITRD_MODULES = ("virtio_pci", "virtio_blk", "ext4")

# Run by /bin/sh with the new system's directory as $1, after all packages are configured.
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


@dataclass(frozen=True, slots=True)
class Source:
    """One place of packages, as apt knows it."""

    origin: str
    uri: str
    codename: str


def parse_sources(listing: str) -> tuple[Source, ...]:
    """The distribution's own sources in the output of `apt-get indextargets`, each once.

    Lines are `origin|uri|codename|component`. Raises HostError when there are none of Debian.
    """
    found: dict[Source, None] = {}
    for line in listing.splitlines():
        origin, uri, codename, component = line.split("|")
        if origin == "Debian" and component == "main":
            found[Source(origin, uri.rstrip("/"), codename)] = None
    if not found:
        raise HostError(
            "apt has no sources of Debian here, and the lab is made of Debian's packages",
            hint="run `apt-get update`; other distributions cannot build the lab yet",
        )
    return tuple(found)


def suite_of(sources: Sequence[Source]) -> str:
    """The release that the sources belong to: the shortest of bookworm, bookworm-updates, …"""
    return min((source.codename for source in sources), key=len)


def source_lines(sources: Sequence[Source]) -> tuple[str, ...]:
    """Lines for sources.list, with the component that ZFS is in."""
    components = " ".join(_COMPONENTS)
    return tuple(f"deb {source.uri} {source.codename} {components}" for source in sources)


def bootstrap_command(
    sources: Sequence[Source], root: str, finish: str, init: str
) -> tuple[str, ...]:
    """Makes the system in a directory: the essential packages, ours, and the last touches.

    mmdebstrap mounts /proc, /sys and /dev inside; with mounts of its own they are gone when it is,
    however it ends, and what removes a half-built system never reaches the host's devices.
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
    """16 hexadecimal digits for everything that decides what the image holds.

    `versions` are those of the packages that apt would install now, so that a security update
    of the kernel makes a new image.
    """
    content = {
        "sources": source_lines(sources),
        "packages": PACKAGES,
        "versions": list(versions),
        "finish": FINISH,
        "init": init,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
