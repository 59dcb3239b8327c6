"""Facts of the rows that are more than names: both rows go through the same tests."""

from __future__ import annotations

import gzip
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.guest.synthetic import PVH_ENTRY, bzimage, vmlinux
from vdisklab.errors import HostError, PlanError
from vdisklab.path.architecture import (
    AARCH64,
    ARCHITECTURES,
    CHOICE,
    GUEST,
    X86_64,
    Architecture,
    architecture_of,
    is_foreign,
    parse_architecture,
    require_host,
)

ROWS = pytest.mark.parametrize("row", ARCHITECTURES, ids=lambda row: row.name)
ROOT = Path(__file__).parents[3]
RELEASE = "6.1.0-9-arm64"


def arm64_image() -> bytes:
    header = bytearray(64)
    header[0x38:0x3C] = b"ARM\x64"
    banner = f"Linux version {RELEASE} (debian-kernel@lists.debian.org) (gcc-12)".encode()
    return bytes(header) + bytes(100_000) + banner + bytes(50)


def zboot(packed: bytes, kind: bytes = b"gzip") -> bytes:
    header = b"MZ\0\0zimg" + struct.pack("<II", 64, len(packed)) + bytes(8) + kind
    return header.ljust(64, b"\0") + packed + bytes(16)


@ROWS
def test_a_row_is_found_by_each_of_its_names(row: Architecture) -> None:
    for name in (row.name, *row.aliases):
        assert architecture_of(name) is row
        assert parse_architecture(name) == row.name
    assert row.packages.architecture in (row.name, *row.aliases)


@ROWS
def test_a_row_has_what_a_guest_boots_from(row: Architecture) -> None:
    assert "virtio" in row.machines
    assert row.emulator == f"qemu-system-{row.name}"
    assert row.name in row.emulator_targets.values()
    assert row.firmware.files
    assert row.emulated_marks
    assert row.boot_file.release(b"") is None
    assert row.boot_file.release(bytes(70_000)) is None
    assert all(
        options.startswith(",") for options in (row.machine_options, row.lab_options) if options
    )


@pytest.mark.parametrize(
    "packed",
    [
        bytes,
        gzip.compress,
        lambda image: zboot(gzip.compress(image)),
    ],
    ids=["Image", "Image.gz", "zboot"],
)
def test_the_release_of_an_arm64_kernel_however_it_is_packed(packed: object) -> None:
    assert callable(packed)
    file = packed(arm64_image())
    assert AARCH64.boot_file.release(file) == RELEASE
    assert AARCH64.boot_file.booted(file, refused) == arm64_image()
    assert X86_64.boot_file.release(file) is None


def test_a_damaged_kernel_has_no_release() -> None:
    damaged = gzip.compress(arm64_image())[:40] + b"damaged" * 9
    assert AARCH64.boot_file.release(damaged) is None
    assert AARCH64.boot_file.release(zboot(b"", b"zstd")) is None


def test_a_kernel_with_an_entry_for_qemu_is_booted_unpacked() -> None:
    kernel = vmlinux((b"GNU\0", 3), (b"Linux\0", 18), PVH_ENTRY)
    file = bzimage(packed=gzip.compress(kernel))
    assert X86_64.boot_file.booted(file, gzip.decompress) == kernel


@pytest.mark.parametrize(
    "notes",
    [[], [(b"GNU\0", 18)], [(b"Xen\0", 1), (b"Linux\0", 18)]],
    ids=["none", "of another", "not the entry"],
)
def test_a_kernel_without_an_entry_for_qemu_is_booted_as_it_is(
    notes: list[tuple[bytes, int]],
) -> None:
    file = bzimage(packed=gzip.compress(vmlinux(*notes)))
    assert X86_64.boot_file.booted(file, gzip.decompress) == file


def test_a_kernel_that_cannot_be_unpacked_is_booted_as_it_is() -> None:
    file = bzimage(packed=b"packed in another way")
    assert X86_64.boot_file.booted(file, refused) == file
    assert X86_64.boot_file.booted(file, bytes) == file
    old = bytearray(bzimage(packed=gzip.compress(vmlinux(PVH_ENTRY))))
    struct.pack_into("<H", old, 0x206, 0x207)  # before 2.08 nothing tells the packed kernel's place
    assert X86_64.boot_file.booted(bytes(old), gzip.decompress) == bytes(old)
    assert X86_64.boot_file.booted(b"no kernel", gzip.decompress) == b"no kernel"


@pytest.mark.parametrize("missing", [200, 60, 20, 3])
def test_a_damaged_kernel_is_booted_as_it_is(missing: int) -> None:
    kernel = vmlinux(PVH_ENTRY, content=b"short")
    file = bzimage(packed=gzip.compress(kernel[:-missing]))
    assert len(kernel) > 200
    booted = X86_64.boot_file.booted(file, gzip.decompress)
    # The entry's last bytes are QEMU's to read: without three of them it still is the entry's note.
    assert booted == (kernel[:-3] if missing == 3 else file)


def refused(packed: bytes) -> bytes:
    raise ValueError(f"{len(packed)} bytes are packed in no known way")


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(PlanError, match="no guests of 'vax'") as error:
        parse_architecture("vax")
    assert error.value.hint == "choose x86_64 or aarch64"


def test_a_machine_that_no_row_describes_needs_another_guest() -> None:
    with pytest.raises(HostError, match="vdisklab measures guests of x86_64 and aarch64"):
        require_host(None, {})
    require_host(None, {CHOICE: "aarch64"})
    require_host(X86_64, {})


def test_guests_are_foreign_on_another_host() -> None:
    assert is_foreign(AARCH64, X86_64)
    assert is_foreign(X86_64, None)
    assert not is_foreign(AARCH64, AARCH64)


def said(machine: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a host of that kind says to a command; `platform.machine` is what uname(2) answers."""
    program = (
        f"import platform; platform.machine = lambda: {machine!r}\n"
        "from vdisklab.__main__ import main; raise SystemExit(main())"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False,
        timeout=120, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


def test_a_host_of_another_kind_says_one_sentence(tmp_path: Path) -> None:
    machine = "riscv64"
    done = said(machine, "run", "raw/none", "--db", str(tmp_path / "x.sqlite"))
    assert done.returncode != 0
    sentence = f"this machine is {machine}, and vdisklab measures guests of x86_64 and aarch64"
    assert done.stderr.splitlines()[0] == f"error: {sentence}"
    assert done.stderr.splitlines()[1].startswith("hint: measure on one of these hosts")


def test_the_installation_says_it_too(tmp_path: Path) -> None:
    (tmp_path / "uname").write_text("#!/bin/sh\necho riscv64\n")
    (tmp_path / "uname").chmod(0o755)
    done = subprocess.run(
        [ROOT / "script/install"], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode != 0
    sentence = "this machine is riscv64, and vdisklab measures guests of x86_64 and aarch64"
    assert done.stderr.splitlines()[0] == f"script/install: error: {sentence}"


@pytest.mark.parametrize(("bus", "reason"), AARCH64.missing_buses.items())
def test_buses_that_an_arm64_host_lacks_are_refused_with_the_reason(bus: str, reason: str) -> None:
    done = said("aarch64", "plan", f"raw/none/{bus}")
    assert done.returncode != 0
    assert reason in done.stderr


@pytest.mark.parametrize(("guests", "warned"), [("aarch64", True), ("x86_64", False)])
def test_a_plan_says_that_its_guests_are_emulated(guests: str, *, warned: bool) -> None:
    done = said("x86_64", "plan", "raw/none", "--guest-arch", guests)
    assert ("`run` measures in guests of aarch64, under emulation" in done.stdout) == warned


def test_kvm_for_guests_of_another_architecture_is_refused_when_planned() -> None:
    done = said("x86_64", "plan", "raw/none", "--guest-arch", "aarch64", "--accelerator", "kvm")
    assert done.returncode != 0
    assert "guests of aarch64 do not run under the KVM of this host" in done.stderr
    assert "hint: measure on a host of aarch64 for KVM" in done.stderr


def test_the_command_line_chooses_the_guests() -> None:
    program = (
        "import sys; sys.argv = ['vdisklab', *sys.argv[1:]]\n"
        "from vdisklab.__main__ import _choose_guests; _choose_guests(sys.argv[1:])\n"
        "from vdisklab.path.architecture import GUEST; print(GUEST.name)"
    )

    def chosen(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout.strip()

    assert chosen("run", "raw/none", "--guest-arch", "arm64") == "aarch64"
    assert chosen("run", "--guest-arch=amd64") == "x86_64"
    assert chosen("lab", "run", "raw", "--arch", "aarch64") == "aarch64"
    assert chosen("run", "raw/none") == GUEST.name
    assert chosen("lab", "run", "--guest-arch", "aarch64") == GUEST.name
    assert platform.machine() in (GUEST.name, *GUEST.aliases)
