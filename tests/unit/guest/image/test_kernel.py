"""Where the guest's kernel comes from, and what a failed download leaves."""

from __future__ import annotations

import os
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.guest.conftest import APT_GET, FakeMachine
from tests.unit.guest.synthetic import RELEASE, bzimage, write_kernel
from vdisklab.errors import HostError
from vdisklab.guest.image.kernel import (
    Flavour,
    Kernel,
    find_kernel,
    is_kernel_at_hand,
    kernel_release,
)
from vdisklab.host.command import LocalHost
from vdisklab.path.segments import Bus

VIRTIO = frozenset({Bus.VIRTIO})
CLOUD = frozenset({Bus.VIRTIO, Bus.VHOSTUSER, Bus.SCSI, Bus.NVME, Bus.IDE, Bus.VIRTIOFS})


def find(
    tmp_path: Path,
    buses: frozenset[Bus] = VIRTIO,
    wanted: str | None = None,
    schedulers: tuple[str, ...] = (),
) -> Kernel:
    boot = tmp_path / "host/boot"
    return find_kernel(
        LocalHost(), tmp_path / "cache", buses, wanted=wanted, schedulers=schedulers, boot=boot
    )


def kept(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache/kernel").iterdir())


def test_cloud_kernel_is_downloaded_once(machine: FakeMachine, tmp_path: Path) -> None:
    kernel = find(tmp_path, CLOUD)
    assert (kernel.flavour, kernel.release) == (Flavour.CLOUD, "6.1.0-9-cloud-amd64")
    assert kernel.image.exists()
    assert kernel.buses == CLOUD
    calls = machine.calls()
    assert calls[-2:] == ["apt-get download linux-image-6.1.0-9-cloud-amd64", "dpkg-deb"]
    assert find(tmp_path, CLOUD) == kernel
    assert machine.calls() == calls
    assert kept(tmp_path) == [".lock", "cloud-6.1.0-9-cloud-amd64"]


def test_at_hand_is_what_needs_no_download(machine: FakeMachine, tmp_path: Path) -> None:
    def at_hand(buses: frozenset[Bus]) -> bool:
        return is_kernel_at_hand(tmp_path / "cache", buses, tmp_path / "host/boot")

    assert not at_hand(VIRTIO)
    find(tmp_path)
    calls = machine.calls()
    assert at_hand(CLOUD)
    assert not at_hand(frozenset(Bus)), "the cloud's kernel has no USB"
    write_kernel(tmp_path / "host", release="6.1.0-7-amd64", full=True)
    assert at_hand(frozenset(Bus))
    assert machine.calls() == calls


@pytest.mark.parametrize("bus", [Bus.USB, Bus.SATA, Bus.P9])
def test_one_bus_that_cloud_lacks_takes_the_full_kernel_for_all(
    machine: FakeMachine, tmp_path: Path, bus: Bus
) -> None:
    kernel = find(tmp_path, VIRTIO | {bus})
    assert kernel.flavour is Flavour.FULL
    assert kernel.buses == frozenset(Bus)


def test_a_kept_kernel_with_too_few_modules_is_downloaded_again(
    machine: FakeMachine, tmp_path: Path
) -> None:
    """As an older vdisklab has unpacked it, which did not know the bus."""
    kernel = find(tmp_path)
    kernel.modules.files["virtiofs"].unlink()
    assert find(tmp_path) == kernel
    calls = machine.calls()
    assert Bus.VIRTIOFS in find(tmp_path, frozenset({Bus.VIRTIOFS})).buses
    assert len(machine.calls()) > len(calls)


def test_modules_that_no_guest_loads_are_not_kept(machine: FakeMachine, tmp_path: Path) -> None:
    files = find(tmp_path).modules.files
    assert "virtio_blk" in files
    assert "sound" not in files


def test_the_hosts_own_kernel_goes_first(machine: FakeMachine, tmp_path: Path) -> None:
    write_kernel(tmp_path / "host", release="6.1.0-7-amd64", full=True)
    write_kernel(tmp_path / "host", release="6.1.0-10-amd64", full=True)
    kernel = find(tmp_path, frozenset(Bus))
    assert (kernel.flavour, kernel.release) == (Flavour.HOST, "6.1.0-10-amd64")
    write_kernel(tmp_path / "host", release=os.uname().release, full=True)
    assert find(tmp_path).release == os.uname().release
    assert machine.calls() == []


def test_a_containers_image_gets_one_kernel_for_all_buses(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the cache, which may be a mount."""
    script = Path(__file__).parents[4] / "script/guest-kernel"
    root = tmp_path / "host"
    root.mkdir(mode=0o751)
    monkeypatch.setattr(sys, "argv", ["guest-kernel", str(root)])
    runpy.run_path(str(script))
    assert root.stat().st_mode & 0o777 == 0o751
    calls = machine.calls()
    assert "apt-get download linux-image-6.1.0-9-amd64" in calls
    for buses in (VIRTIO, frozenset(Bus)):
        assert find(tmp_path, buses).flavour is Flavour.HOST
    runpy.run_path(str(script))
    assert machine.calls() == calls


def test_a_host_kernel_without_the_drivers_is_passed_over(
    machine: FakeMachine, tmp_path: Path
) -> None:
    write_kernel(tmp_path / "host", release="6.1.0-7-cloud-amd64")
    assert find(tmp_path, VIRTIO).flavour is Flavour.HOST
    assert find(tmp_path, frozenset({Bus.USB})).flavour is Flavour.FULL


def test_a_kernel_without_modules_or_readable_image_is_passed_over(
    machine: FakeMachine, tmp_path: Path
) -> None:
    boot = tmp_path / "host/boot"
    boot.mkdir(parents=True)
    (boot / "vmlinuz-9").write_bytes(b"not a kernel")
    assert find(tmp_path).flavour is Flavour.CLOUD


def test_a_kernel_of_the_users_own(machine: FakeMachine, tmp_path: Path) -> None:
    image = write_kernel(tmp_path / "own", release="6.5.0-own")
    assert find(tmp_path, wanted=os.fspath(image)).image == image
    with pytest.raises(HostError, match="ahci") as caught:
        find(tmp_path, frozenset({Bus.SATA}), wanted=os.fspath(image))
    assert caught.value.hint
    with pytest.raises(HostError, match="nonesuch"):
        find(tmp_path, wanted="/nonesuch")


def test_a_kernel_without_the_io_scheduler_of_a_path_is_refused(
    machine: FakeMachine, tmp_path: Path
) -> None:
    image = os.fspath(write_kernel(tmp_path / "own", release="6.5.0-own"))
    with pytest.raises(HostError, match="lacks drivers that this guest needs: kyber_iosched"):
        find(tmp_path, wanted=image, schedulers=("none", "kyber"))
    assert find(tmp_path, wanted=image, schedulers=("none",)).release == "6.5.0-own"
    with pytest.raises(HostError, match=r"kernel 6\.1\.0-9-cloud-amd64 lacks bfq"):
        find(tmp_path, schedulers=("bfq",))


@pytest.mark.parametrize(
    ("said", "cause", "hint"),
    [
        ("E: Could not resolve 'archive.example'", "no network", "connect"),
        ("E: Failed to fetch http://x  Could not connect to x", "no network", "connect"),
        ("E: You don't have enough free space. No space left on device", "disk is full", "space"),
        ("E: Failed to fetch http://x  Hash Sum mismatch", "damaged", "update"),
        ("E: Failed to fetch http://x  404  Not Found", "out of date", "update"),
        ("E: Unable to locate package x", "cannot find", "update"),
        ("E: something new", "something new", "update"),
    ],
)
def test_a_failed_download_says_why_and_leaves_nothing(
    machine: FakeMachine, tmp_path: Path, said: str, cause: str, hint: str
) -> None:
    machine.script("apt-get", f'echo half >half.deb; echo "{said}" >&2; exit 100')
    with pytest.raises(HostError, match=cause) as caught:
        find(tmp_path)
    assert hint in (caught.value.hint or "")
    assert kept(tmp_path) == [".lock"]


def test_a_damaged_package_leaves_nothing(machine: FakeMachine, tmp_path: Path) -> None:
    (machine.packages / "linux-image-6.1.0-9-cloud-amd64").write_bytes(b"cut")
    with pytest.raises(HostError, match="damaged"):
        find(tmp_path)
    assert kept(tmp_path) == [".lock"]


def test_apt_that_does_not_know_the_kernel(machine: FakeMachine, tmp_path: Path) -> None:
    machine.script("apt-cache", "echo 'E: No packages found' >&2; exit 100")
    with pytest.raises(HostError, match="linux-image-cloud-amd64") as caught:
        find(tmp_path)
    assert "apt-get update" in (caught.value.hint or "")


def test_no_apt_is_no_debian(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithoutApt(LocalHost):
        def which(self, program: str) -> Path | None:
            return None if program.startswith("apt") else super().which(program)

    with pytest.raises(HostError, match="not a Debian-like") as caught:
        find_kernel(WithoutApt(), tmp_path / "cache", VIRTIO, boot=tmp_path / "none")
    assert "/boot" in (caught.value.hint or "")


def test_two_at_once_download_once(machine: FakeMachine, tmp_path: Path) -> None:
    machine.script("apt-get", APT_GET, delay=0.3)
    with ThreadPoolExecutor(4) as pool:
        kernels = list(pool.map(lambda _: find(tmp_path), range(4)))
    assert len(set(kernels)) == 1
    assert len([call for call in machine.calls() if call.startswith("apt-get")]) == 1


def test_what_a_killed_download_left_is_removed(machine: FakeMachine, tmp_path: Path) -> None:
    left = tmp_path / "cache/kernel/.building-1234"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    find(tmp_path)
    assert kept(tmp_path) == [".lock", "cloud-6.1.0-9-cloud-amd64"]


def test_a_damaged_kept_kernel_is_downloaded_anew(machine: FakeMachine, tmp_path: Path) -> None:
    kernel = find(tmp_path)
    kernel.image.write_bytes(b"")
    assert find(tmp_path) == kernel
    assert kernel.image.stat().st_size > 0


def test_a_cache_that_cannot_be_made_is_a_sentence(machine: FakeMachine, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(HostError, match="cannot be written") as caught:
        find(tmp_path)
    assert "another cache directory" in (caught.value.hint or "")


def test_the_release_is_in_the_header() -> None:
    assert kernel_release(bzimage()) == RELEASE


@pytest.mark.parametrize("image", [b"", b"\x7fELF" + bytes(4000), bytes(600), bzimage()[:0x210]])
def test_other_files_are_no_kernel(image: bytes) -> None:
    with pytest.raises(HostError, match="bzImage"):
        kernel_release(image)
