"""A user guest, through the real command line: a Debian that boots with its GRUB."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import in_ci
from tests.guest.debian import debian_image
from tests.lab import Lab
from vdisklab.campaign.user_guest import find_firmware
from vdisklab.errors import HostError
from vdisklab.results.model import FailureKind, Run

pytestmark = pytest.mark.guest


@pytest.fixture(scope="module")
def debian(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kept in pytest's cache, where there is one."""
    lacks = [name for name in ("mmdebstrap", "unshare") if shutil.which(name) is None]
    lacks += ["root"] if os.geteuid() != 0 else []
    if lacks:
        message = f"to make the image takes {', '.join(lacks)}"
        pytest.fail(message) if in_ci() else pytest.skip(message)
    cache = getattr(request.config, "cache", None)
    place = tmp_path_factory.mktemp("debian") if cache is None else cache.mkdir("debian")
    return debian_image(place)


def digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def run(lab: Lab, *arguments: str) -> tuple[int, str]:
    return lab.call(*lab.arguments(*arguments))


def require_measured(found: Run, write_cache: str) -> None:
    """A run in the Debian: everything that was asked was seen, and all was measured."""
    assert found.failure is None
    checks = {check.name: check for check in found.checks}
    assert all(check.confirmed for check in found.checks)
    assert checks["guest.system"].observed == "Debian GNU/Linux 12 (bookworm)"
    assert checks["guest.fio"].observed.startswith("fio-3.")
    assert checks["guest.state"].observed in ("running", "degraded")
    assert checks["guest.write_cache"].observed == write_cache
    write, read = sorted(found.measurements, key=lambda m: m.name, reverse=True)
    assert write.evidence.guest is not None
    assert write.evidence.qemu is not None
    assert 0 < write.evidence.guest.write_bytes <= write.evidence.qemu.write_bytes
    assert {sample.metric for sample in read.samples} >= {"iops", "latency_p99"}


# The image takes a minute to make, and emulation another to boot it. Each commit boots a disk that
# is not ours below, and reads back all settings in our own guest.
@pytest.mark.nightly
def test_a_real_debian_is_measured_in_and_left_as_it_was(lab: Lab, debian: Path) -> None:
    before = digest(debian)
    status, printed = run(lab, "raw/none/scsi", "--guest", str(debian))
    assert digest(debian) == before
    assert status == 0, printed
    (found,) = lab.runs()
    require_measured(found, "write back")


@pytest.fixture
def ovmf() -> None:
    try:
        find_firmware()
    except HostError as error:
        pytest.fail(str(error)) if in_ci() else pytest.skip(str(error))


@pytest.mark.nightly
@pytest.mark.usefixtures("ovmf")
def test_the_same_debian_booted_by_uefi_from_an_nvme_disk(lab: Lab, debian: Path) -> None:
    uefi = ("--guest-firmware", "uefi", "--guest-bus", "nvme")
    status, printed = run(lab, "raw/writethrough", "--guest", str(debian), *uefi)
    assert status == 0, printed
    (found,) = lab.runs()
    require_measured(found, "write through")
    # SeaBIOS is not there at all where pflash is: what booted was UEFI's.
    assert any("pflash0=firmware,pflash1=variables" in command for command in found.commands)


def test_an_image_that_does_not_boot_says_so_once(lab: Lab) -> None:
    image = lab.directory / "empty.raw"
    # A boot sector that only halts: hlt; jmp back.
    image.write_bytes(b"\xf4\xeb\xfd".ljust(510, b"\0") + b"\x55\xaa" + bytes(1 << 20))
    status, printed = run(lab, "raw/{none,writeback}", "--guest", str(image), "--guest-boot", "6s")
    failures = [run.failure for run in lab.runs()]
    assert status == 8, printed
    assert [failure.kind for failure in failures if failure] == [FailureKind.GUEST] * 2
    first, second = (failure.message for failure in failures if failure)
    assert "with BIOS does not start: no answer of the guest's agent under tcg within " in first
    assert "last lines of the guest's console" in first
    assert "Booting from Hard Disk" in first
    assert "with BIOS does not start" in second
