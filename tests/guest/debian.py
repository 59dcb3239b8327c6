"""A real Debian on a disk image that boots by its own GRUB: made once, kept for later test runs.

mmdebstrap unpacks the system from the sources that this machine's apt uses. Everything else is
done by files: mke2fs fills the file system from a directory, and GRUB's images are put where
grub-install puts them: for BIOS in the boot sector and the gap behind it, for UEFI in a small FAT
partition, under the name that the firmware tries on a disk that it does not know.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = (
    "dosfstools", "e2fsprogs", "fio", "grub-efi-amd64-bin", "grub-pc-bin", "kmod",
    "linux-image-cloud-amd64", "mtools", "qemu-guest-agent", "systemd-sysv", "udev",
)  # fmt: skip
"""What boots, and what measuring in it needs, beside Debian's essential packages."""

_SUITE = "bookworm"
_SECTOR = 512
_FIRST = 2048  # sectors before the file system: the gap that GRUB's core image lies in
_SIZE = 900 << 20
_ESP_SIZE = 8 << 20

# Drivers of the buses that the tests boot from: a larger initrd takes a minute to load under
# emulation. It is made once, with the kernel; no other package needs another.
_CONFIGURE = """
cd "$1/etc"
mkdir -p initramfs-tools/conf.d dpkg/dpkg.cfg.d
printf 'MODULES=list\\nCOMPRESS=lz4\\n' >initramfs-tools/conf.d/small
printf '%s\\n' virtio_pci virtio_blk virtio_scsi nvme sd_mod ext4 >initramfs-tools/modules
printf 'update_initramfs=no\\n' >initramfs-tools/update-initramfs.conf
printf 'path-exclude=/usr/share/%s/*\\n' doc man locale >dpkg/dpkg.cfg.d/small
rm -rf "$1"/usr/share/doc/* "$1"/usr/share/man/* "$1"/usr/share/locale/*
"""

_GRUB = """
search --no-floppy --label debian --set root
linux /vmlinuz root=LABEL=debian ro console=ttyS0 quiet{more}
initrd /initrd.img
boot
"""
_FAST = " mitigations=off tsc=reliable no_timer_check nokaslr"
_UNUSED_UNITS = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
    "e2scrub_reap.service", "fstrim.timer", "getty.target", "kmod-static-nodes.service",
    "dev-hugepages.mount", "dev-mqueue.mount", "modprobe@.service",
    "proc-sys-fs-binfmt_misc.automount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "systemd-binfmt.service", "systemd-fsck-root.service", "systemd-journal-flush.service",
    "systemd-modules-load.service", "systemd-random-seed.service", "systemd-sysctl.service",
    "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
    "systemd-user-sessions.service",
)  # fmt: skip
_UNUSED_MODULES = (
    "aesni_intel", "crc32_pclmul", "crct10dif_pclmul", "ghash_clmulni_intel", "kvm_amd",
    "kvm_intel", "sha1_ssse3", "sha256_ssse3", "sha512_ssse3",
)  # fmt: skip
"""What emulation takes half of the boot's time for, and no test needs."""

_MODULES = ("part_msdos", "ext2", "search", "linux", "normal")


def debian_image(cache: Path, *, fast: bool = True) -> Path:
    """The image in the cache, which is made there first if need be: a minute or so.

    `fast` adds kernel parameters that an emulated guest gains from; without them it is ordinary.
    """
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    name = "debian" if fast else "ordinary-debian"
    image = cache / f"{name}-{recipe}.qcow2"
    if not image.exists():
        for old in cache.glob(f"{name}-*.qcow2"):
            old.unlink()
        with _workplace() as work:
            raw = _build(work, _GRUB.format(more=_FAST if fast else ""))
            made = image.with_suffix(".new")
            _run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(made))
            made.rename(image)
    return image


@contextmanager
def _workplace() -> Iterator[Path]:
    # Readable by all: apt downloads as another user.
    work = Path(tempfile.mkdtemp(prefix="vdisklab-debian-"))
    work.chmod(0o755)
    try:
        yield work
    finally:
        shutil.rmtree(work)


def _run(*command: str, timeout: float = 900) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stderr[-2000:]}"


def _build(work: Path, grub: str) -> Path:
    root, raw = work / "root", work / "debian.raw"
    _run(
        # What it mounts, it cannot leave behind.
        "unshare", "--mount", "mmdebstrap", "--mode=root", "--variant=apt", "--quiet",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"',
        "--dpkgopt=force-unsafe-io",
        "--dpkgopt=force-confold",
        f"--essential-hook={_CONFIGURE}",
        _SUITE, str(root), *_sources(),
    )  # fmt: skip
    _settle(root)
    (root / "boot/early.cfg").write_text(grub)
    _core_image(root, "i386-pc", "biosdisk")
    _core_image(root, "x86_64-efi")
    _system_partition(root)
    size = _SIZE - _FIRST * _SECTOR
    _run(
        "mke2fs", "-q", "-t", "ext4", "-L", "debian", "-d", str(root),
        "-E", f"offset={_FIRST * _SECTOR}", str(raw), f"{size >> 10}k",
    )  # fmt: skip
    _add_boot_loaders(raw, size // _SECTOR, root)
    return raw


def _sources() -> list[str]:
    """Where this machine gets its packages; none for Debian's own servers."""
    modern = Path("/etc/apt/sources.list.d/debian.sources")
    classic = Path("/etc/apt/sources.list")
    return [str(file) for file in (modern, classic) if file.exists()][:1]


def _settle(root: Path) -> None:
    """A name, and nothing that starts by itself once the system is up."""
    (root / "etc/hostname").write_text("own-guest\n")
    (root / "etc/fstab").write_text("LABEL=debian / ext4 defaults 0 1\n")
    # A name of the machine makes this no first boot, at which systemd looks at every unit.
    (root / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    (root / "etc/modprobe.d/small.conf").write_text(
        "".join(f"blacklist {module}\n" for module in _UNUSED_MODULES)
    )
    for unit in _UNUSED_UNITS:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")


def _core_image(root: Path, platform: str, *modules: str) -> None:
    _run(
        "chroot", str(root), "grub-mkimage", "-O", platform, "-p", "/boot/grub",
        "-c", "/boot/early.cfg", "-o", f"/boot/{platform}.img", *_MODULES, *modules,
    )  # fmt: skip


def _system_partition(root: Path) -> None:
    """UEFI's, with GRUB in it; made by the system's own programs, in its /boot."""
    fat = ("chroot", str(root), "env", "MTOOLS_SKIP_CHECK=1")
    _run(*fat, "mkfs.vfat", "-C", "/boot/esp.img", str(_ESP_SIZE >> 10))
    _run(*fat, "mmd", "-i", "/boot/esp.img", "::/EFI", "::/EFI/BOOT")
    grub, fallback = "/boot/x86_64-efi.img", "::/EFI/BOOT/BOOTX64.EFI"
    _run(*fat, "mcopy", "-i", "/boot/esp.img", grub, fallback)


def _add_boot_loaders(raw: Path, sectors: int, root: Path) -> None:
    """Boot sector with two partitions and core image, and UEFI's partition behind the system's."""
    boot = bytearray((root / "usr/lib/grub/i386-pc/boot.img").read_bytes()[:_SECTOR])
    boot[446:510] = bytes(64)
    boot[446:462] = _partition(0x80, 0x83, _FIRST, sectors)
    boot[462:478] = _partition(0, 0xEF, _FIRST + sectors, _ESP_SIZE // _SECTOR)
    boot[510:512] = b"\x55\xaa"
    core = (root / "boot/i386-pc.img").read_bytes()
    assert len(core) <= (_FIRST - 1) * _SECTOR
    with raw.open("r+b") as image:
        image.write(boot)
        image.write(core)
        image.seek((_FIRST + sectors) * _SECTOR)
        image.write((root / "boot/esp.img").read_bytes())


def _partition(active: int, kind: int, first: int, sectors: int) -> bytes:
    """An entry of the boot sector's table, whose cylinders and heads nobody reads any more."""
    ends = b"\xfe\xff\xff"
    where = first.to_bytes(4, "little") + sectors.to_bytes(4, "little")
    return bytes((active,)) + ends + bytes((kind,)) + ends + where
