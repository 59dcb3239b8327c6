"""An architecture is one row: what its machines, kernels and programs are called.

`GUEST` is the architecture of the guests that this process measures: the host's own, or the one
that `--guest-arch` names. Code that reads what other programs write compares with a row, because
the defaults of these programs do not depend on the guests measured here.
"""

from __future__ import annotations

import os
import platform
import re
import struct
import zlib
from collections.abc import Callable, Mapping

from vdisklab.errors import HostError, PlanError
from vdisklab.value import Value


class SystemCalls(Value):
    """Numbers of seccomp, and of system calls that Python, its threads or a guest's perl lack.

    `audit` is the architecture's AUDIT_ARCH_… in linux/audit.h, `o_direct` the flag of open(2): its
    number on x86 means O_DIRECTORY on Arm (arch/arm64/include/uapi/asm/fcntl.h).
    """

    audit: int
    seccomp: int
    fsync: int
    fdatasync: int
    perf_event_open: int
    fallocate: int
    setgroups: int
    o_direct: int


class BootFile(Value):
    """The format of a kernel that QEMU boots with `-kernel`.

    `described` names it with its article, for messages. `release` returns the kernel's release, as
    `uname -r` prints it, from the first `head` bytes of a file (None: from all of them); None for a
    file of another format. `booted` is what QEMU is given, unpacked for two reasons: QEMU may be
    too old to unpack it, and an emulated guest unpacks slowly. It calls its second argument with
    packed bytes, which returns their content, or raises ValueError or OSError if it cannot. A file
    that cannot be unpacked, or from which QEMU could not boot then, is returned as it is.
    """

    name: str
    described: str
    release: Callable[[bytes], str | None]
    head: int | None = 64 << 10
    booted: Callable[[bytes, Callable[[bytes], bytes]], bytes] = lambda image, _: image


class Packages(Value):
    """Debian's packages. `kernel` and `cloud_kernel` depend on the newest kernel of their kind.

    `architecture` is what dpkg and apt call the architecture.
    """

    architecture: str
    kernel: str
    cloud_kernel: str
    kernel_headers: str
    emulator: str
    firmware: str


class UefiFiles(Value):
    """UEFI without Secure Boot. `program` is its row in host/packages.txt.

    `files` are places of its code, and of its variables, which each guest copies.
    """

    program: str
    files: tuple[tuple[str, str], ...]


class Architecture(Value):
    """Facts about one architecture of guests. The name is what uname(2) and QEMU call it."""

    name: str
    title: str
    """The name in text."""
    aliases: tuple[str, ...]
    """Other names of it, such as those of Debian, Go and Kubernetes."""
    runs: tuple[str, ...]
    """Older architectures, by the names of uname(2), whose guests its hosts run natively."""
    emulator: str
    emulator_targets: Mapping[str, str]
    """Of each `qemu-system-NAME` with these machines: NAME, and the guest's name of uname(2)."""
    default_machine: str
    """The machine of a QEMU that was started without `-machine`; empty if QEMU demands one."""
    default_interface: str
    """`if=` of a -drive that names none (QEMU, MachineClass.block_default_type)."""
    machines: Mapping[str, str]
    """QEMU's machine by bus. A bus without a machine does not exist on this architecture."""
    missing_buses: Mapping[str, str]
    """Why a bus of other architectures does not exist on this one."""
    machine_options: str
    """Options of the machine of each guest, each with a comma before it."""
    interrupts: str
    """The property of a running machine that says which interrupt controller it has; or empty."""
    lab_options: str
    """Options of the lab's machine, under emulation, that give its kernel KVM."""
    console: str
    """The kernel's name of the serial port."""
    emulated_clock: str
    """Kernel parameters that give an emulated guest the fast clock of a KVM guest."""
    emulated_cpu: str
    """QEMU's CPU of an emulated guest, without the features that cost most under emulation. QEMU of
    `qemu_since` has to know their names."""
    lab_cpu: str
    """QEMU's CPU of an emulated lab, without the features that cost most under emulation."""
    lab_has_cpus: bool
    """True if QEMU emulates several CPUs with KVM in them reliably."""
    emulated_marks: Mapping[str, str]
    """What fields of /proc/cpuinfo contain in an emulated lab, and on no CPU that is sold."""
    qemu_since: tuple[int, int]
    """The first QEMU with this machine and these CPUs."""
    kvm_modules: Mapping[str, str]
    """KVM's kernel module by the CPU's flag in /proc/cpuinfo. Empty if it is part of the kernel."""
    without_kvm: str
    """The way to KVM on a machine whose kernel offers none."""
    boot_file: BootFile
    has_bios: bool
    """False if users' guests boot by UEFI only. The boot sector (powercut/client_guests.py) needs
    a BIOS."""
    display: tuple[str, ...]
    """QEMU's arguments for a display, which some users' guests want."""
    firmware: UefiFiles
    packages: Packages
    cross_compiler: str
    """The program that compiles C for it on hosts of other architectures."""
    diskspd: str
    """The program's place in Microsoft's archive of DISKSPD."""
    system_calls: SystemCalls

    def runs_guests_of(self, name: str) -> bool:
        """True if its hosts run guests of that architecture natively."""
        return name in (self.name, *self.aliases, *self.runs)


def _release_of_bzimage(image: bytes) -> str | None:
    """The header's fields are those of Documentation/arch/x86/boot.rst."""
    if image[0x202:0x206] != b"HdrS":
        return None
    (pointer,) = struct.unpack_from("<H", image, 0x20E)
    start = pointer + 0x200
    version = image[start : image.find(b"\0", start)].split() if pointer else []
    return version[0].decode(errors="replace") if version else None


def _booted_x86(image: bytes, unpack: Callable[[bytes], bytes]) -> bytes:
    """The ELF program in a bzImage, if QEMU can enter it; otherwise the bzImage.

    It lies behind the setup code (boot.rst: setup_sects, payload_offset and payload_length, since
    protocol 2.08). A kernel with CONFIG_PVH names its 32-bit entry in a note
    (arch/x86/platform/pvh/head.S), at which QEMU's `-kernel` enters it since 4.0.
    """
    if image[0x202:0x206] != b"HdrS":
        return image
    (version,) = struct.unpack_from("<H", image, 0x206)
    if version < 0x208:
        return image
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = ((image[0x1F1] or 4) + 1) * 512 + offset
    try:
        kernel = unpack(image[start : start + length])
        return kernel if _has_pvh_entry(kernel) else image
    except (ValueError, OSError, struct.error):
        return image


def _has_pvh_entry(kernel: bytes) -> bool:
    """True if a note of this ELF program is XEN_ELFNOTE_PHYS32_ENTRY (xen/interface/elfnote.h).

    The program's and the notes' format is that of elf(5). Raises struct.error for another file.
    """
    if kernel[:6] != b"\x7fELF\x02\x01":
        return False
    (headers,) = struct.unpack_from("<Q", kernel, 0x20)
    size, count = struct.unpack_from("<HH", kernel, 0x36)
    for header in range(headers, headers + size * count, size):
        kind, _, place, _, _, length = struct.unpack_from("<IIQQQQ", kernel, header)
        end = place + length if kind == _ELF_NOTES else place
        while place < end:
            name, content, note = struct.unpack_from("<III", kernel, place)
            if (kernel[place + 12 : place + 12 + name], note) == (b"Xen\0", _PVH_ENTRY):
                return True
            place += 12 + _to_four(name) + _to_four(content)
    return False


def _to_four(length: int) -> int:
    return -(-length // 4) * 4


_ELF_NOTES = 4  # PT_NOTE
_PVH_ENTRY = 18


X86_64 = Architecture(
    name="x86_64",
    title="x86-64",
    aliases=("amd64",),
    runs=("i686",),
    emulator="qemu-system-x86_64",
    emulator_targets={"x86_64": "x86_64", "i386": "i686"},
    default_machine="pc",
    default_interface="ide",
    # PIIX IDE exists on `pc` only.
    machines={
        "ide": "pc",
        **dict.fromkeys(
            ("virtio", "scsi", "sata", "nvme", "usb", "vhostuser", "virtiofs", "9p"), "q35"
        ),
    },
    missing_buses={},
    machine_options="",
    interrupts="",
    lab_options="",
    console="ttyS0",
    # Under KVM guests read the clock without leaving the CPU. Under emulation the kernel does not
    # trust the CPU's counter and reads an emulated timer, which costs more than a small read from a
    # disk; `tsc=reliable` prevents it (docs/guest.md has the measurements). A kernel that finds
    # neither KVM nor `no_timer_check` panics ("IO-APIC + timer doesn't work") if a busy host delays
    # the emulated timer's ticks while it tests them (check_timer in
    # arch/x86/kernel/apic/io_apic.c); a KVM guest does not test.
    emulated_clock="tsc=reliable no_timer_check",
    # QEMU walks five levels of page tables instead of four, and emulates the string instructions
    # with which the kernel copies and clears pages byte by byte (ERMS).
    emulated_cpu="max,-la57,-erms",
    lab_cpu="max,-la57,-erms,-fsrm",
    lab_has_cpus=False,
    emulated_marks={"model name": "QEMU TCG CPU"},  # target/i386/cpu.c
    qemu_since=(5, 0),  # aio=io_uring and all properties that are set here; 5.2 was tested
    kvm_modules={"vmx": "kvm_intel", "svm": "kvm_amd"},
    without_kvm="enable VT-x or AMD-V in the firmware",
    boot_file=BootFile(
        "bzImage", "an x86 kernel image (bzImage)", _release_of_bzimage, booted=_booted_x86
    ),
    has_bios=True,
    display=("-vga", "std"),
    firmware=UefiFiles(
        "OVMF",
        (
            ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),  # Debian 12
            ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),  # Debian 11, Ubuntu
            ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),  # Fedora
        ),
    ),
    packages=Packages(
        architecture="amd64",
        kernel="linux-image-amd64",
        cloud_kernel="linux-image-cloud-amd64",
        kernel_headers="linux-headers-amd64",
        emulator="qemu-system-x86",
        firmware="seabios",
    ),
    cross_compiler="x86_64-linux-gnu-gcc",
    diskspd="amd64/diskspd.exe",
    system_calls=SystemCalls(
        audit=0xC000003E,
        seccomp=317,
        fsync=74,
        fdatasync=75,
        perf_event_open=298,
        fallocate=285,
        setgroups=116,
        o_direct=0x4000,
    ),
)


def _unpacked_arm64(image: bytes) -> bytes:
    """The Image in a file that distributions install: as it is, in gzip, or in an EFI program.

    Debian installs the Image, Ubuntu one in gzip; the EFI program is that of CONFIG_EFI_ZBOOT
    (drivers/firmware/efi/libstub/zboot-header.S: "MZ", "zimg", place and length of what is packed,
    and how), which QEMU unpacks since 8.1. zstd is left to QEMU.
    """
    if image[:2] == b"MZ" and image[4:8] == b"zimg" and image[24:28] == b"gzip":
        start, length = struct.unpack_from("<II", image, 8)
        image = image[start : start + length]
    if image[:2] != b"\x1f\x8b":
        return image
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(image, _LARGEST_KERNEL)
    except zlib.error:
        return image


_LARGEST_KERNEL = 256 << 20


def _release_of_arm64(image: bytes) -> str | None:
    """The header is that of Documentation/arch/arm64/booting.rst, and has no release.

    The kernel's banner (init/version.c) lies in its read-only data, far behind the header.
    """
    image = _unpacked_arm64(image)
    if image[0x38:0x3C] != b"ARM\x64":
        return None
    banner = re.search(rb"Linux version (\d[\x21-\x7e]*) ", image)
    return banner[1].decode() if banner else None


AARCH64 = Architecture(
    name="aarch64",
    title="64-bit Arm",
    aliases=("arm64",),
    # Most server CPUs have no 32-bit mode (docs/virt/kvm/arm), so none is promised.
    runs=(),
    emulator="qemu-system-aarch64",
    emulator_targets={"aarch64": "aarch64", "arm": "armv7l"},
    default_machine="",
    default_interface="virtio",  # of virt (hw/arm/virt.c)
    machines=dict.fromkeys(
        ("virtio", "scsi", "nvme", "usb", "vhostuser", "virtiofs", "9p"), "virt"
    ),
    missing_buses={
        "ide": "QEMU's machine virt has no IDE controller",
        "sata": "QEMU's machine virt has no SATA controller, and its firmware no driver for one",
    },
    # The newest that QEMU or the host's KVM has: a Raspberry Pi has version 2 only, and version 2
    # serves no more than eight CPUs. Left out, QEMU prefers the old one (hw/arm/virt.c,
    # finalize_gic_version).
    machine_options=",gic-version=max",
    interrupts="gic-version",
    lab_options=",virtualization=on",
    console="ttyAMA0",
    # Guests read the architecture's own counter, under emulation too.
    emulated_clock="",
    emulated_cpu="cortex-a76",
    # Pointer authentication by the architecture's own algorithm costs most; vectors of variable
    # length make each switch of KVM's guests longer.
    lab_cpu="max,pauth-impdef=on,sve=off",
    lab_has_cpus=True,
    # MIDR_EL1 of the CPU `max` (target/arm/tcg/cpu64.c): no maker, and the letter Q.
    emulated_marks={"CPU implementer": "0x00", "CPU part": "0x051"},
    qemu_since=(7, 1),  # cortex-a76
    kvm_modules={},
    without_kvm="let the firmware start the kernel at EL2: `dmesg | grep -i kvm` says if it did",
    boot_file=BootFile(
        "Image",
        "an arm64 kernel image (Image)",
        _release_of_arm64,
        head=None,
        booted=lambda image, _: _unpacked_arm64(image),
    ),
    has_bios=False,
    display=(),
    firmware=UefiFiles(
        "AAVMF",
        (
            ("/usr/share/AAVMF/AAVMF_CODE.fd", "/usr/share/AAVMF/AAVMF_VARS.fd"),  # Debian, Ubuntu
            (
                "/usr/share/edk2/aarch64/QEMU_EFI-pflash.raw",
                "/usr/share/edk2/aarch64/vars-template-pflash.raw",
            ),  # Fedora
        ),
    ),
    packages=Packages(
        architecture="arm64",
        kernel="linux-image-arm64",
        cloud_kernel="linux-image-cloud-arm64",
        kernel_headers="linux-headers-arm64",
        emulator="qemu-system-arm",
        firmware="qemu-efi-aarch64",
    ),
    cross_compiler="aarch64-linux-gnu-gcc",
    diskspd="ARM64/diskspd.exe",
    system_calls=SystemCalls(
        audit=0xC00000B7,
        seccomp=277,
        fsync=82,
        fdatasync=83,
        perf_event_open=241,
        fallocate=47,
        setgroups=159,
        o_direct=0x10000,
    ),
)

ARCHITECTURES = (X86_64, AARCH64)

CHOICE = "VDISKLAB_GUEST_ARCH"
"""The variable that names the guests' architecture. `--guest-arch` sets it for its process."""

SYSTEM_CALLS: Mapping[str, SystemCalls] = {row.name: row.system_calls for row in ARCHITECTURES}
"""The numbers of each architecture that a host may have, by the name of uname(2)."""


def architecture_of(name: str) -> Architecture | None:
    """The row with that name or alias; None if there is none."""
    return next((row for row in ARCHITECTURES if name in (row.name, *row.aliases)), None)


HOST = architecture_of(platform.machine())
"""The architecture of this machine; None if no row describes it."""

GUEST = architecture_of(os.environ.get(CHOICE, "")) or HOST or X86_64
"""The architecture of the guests that this process measures."""


def parse_architecture(text: str) -> str:
    """The name of the architecture with that name or alias. Raises PlanError if there is none."""
    row = architecture_of(text)
    if row is None:
        names = " or ".join(row.name for row in ARCHITECTURES)
        raise PlanError(f"there are no guests of {text!r}", hint=f"choose {names}")
    return row.name


def require_host(
    host: Architecture | None = HOST, environment: Mapping[str, str] = os.environ
) -> None:
    """Raises HostError if no row describes this machine, unless other guests are asked for."""
    if host is None and not environment.get(CHOICE):
        raise HostError(unknown_host(platform.machine()), hint=OTHER_HOSTS)


def unknown_host(machine: str) -> str:
    """The sentence about a machine that no row describes."""
    names = " and ".join(row.name for row in ARCHITECTURES)
    return f"this machine is {machine}, and vdisklab measures guests of {names}"


OTHER_HOSTS = (
    f"measure on one of these hosts, or guests under emulation: --guest-arch {X86_64.name}"
)
"""The way out on a machine that no row describes."""


def host_of(name: str) -> str:
    """The architecture, as uname(2) names it, of the hosts that run guests of `name` natively."""
    return next((row.name for row in ARCHITECTURES if row.runs_guests_of(name)), name)


def is_foreign(guest: Architecture = GUEST, host: Architecture | None = HOST) -> bool:
    """True if the host cannot run the guests' instructions, so QEMU emulates them."""
    return guest is not host
