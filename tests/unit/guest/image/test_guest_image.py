"""The guest image: what is in it, when it is built anew, and what a failure leaves."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.guest.conftest import FakeMachine
from tests.unit.guest.synthetic import PVH_ENTRY, bzimage, lz4, vmlinux, write_kernel
from vdisklab.errors import HostError
from vdisklab.guest.image.content import Program
from vdisklab.guest.image.guest_image import GuestImage, build_guest_image
from vdisklab.guest.image.kernel import Flavour, Kernel
from vdisklab.host.command import Completed, LocalHost, PathArg
from vdisklab.value import replace

PROGRAMS = (
    Program("busybox", required=True, version=(), early=True),
    Program("qemu-ga", required=True, early=True),
    Program("fio", required=True, early=True),
    Program("mkfs.toy"),
)


class CountingHost(LocalHost):
    """Counts the programs it runs."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self._lock = threading.Lock()

    def run(
        self,
        *argv: PathArg,
        timeout: float = 60.0,
        allowed: Collection[int] = (0,),
        stdin: str | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Completed:
        with self._lock:
            self.ran.append(" ".join(os.fspath(arg) for arg in argv))
        return super().run(*argv, timeout=timeout, allowed=allowed, stdin=stdin, watch=watch)

    @property
    def built(self) -> int:
        return sum("mke2fs" in line for line in self.ran)


@pytest.fixture
def host() -> CountingHost:
    return CountingHost()


@pytest.fixture
def kernel(machine: FakeMachine, tmp_path: Path) -> Kernel:
    for name in ("busybox", "qemu-ga", "fio", "mkfs.toy"):
        machine.script(name, f"echo {name} version 1.2.3")
    image = write_kernel(tmp_path / "own")
    return Kernel(image, tmp_path / "own", "6.1.0-9-cloud-amd64", Flavour.HOST)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def build(host: LocalHost, cache: Path, kernel: Kernel) -> GuestImage:
    return build_guest_image(host, cache, kernel, PROGRAMS)


def archive(image: GuestImage) -> dict[str, bytes]:
    """The files of the RAM file system, read by a reader of our own."""
    data = image.initrd.read_bytes()
    files: dict[str, bytes] = {}
    position = 0
    while True:
        fields = [int(data[position + 6 + 8 * i :][:8], 16) for i in range(13)]
        assert data[position : position + 6] == b"070701"
        size, label = fields[6], fields[11]
        name = data[position + 110 : position + 110 + label - 1].decode()
        start = position + (110 + label + 3 & ~3)
        if name == "TRAILER!!!":
            return files
        files[name] = data[start : start + size]
        position = start + (size + 3 & ~3)


def test_programs_and_modules_are_where_the_guest_looks(
    host: CountingHost, cache: Path, kernel: Kernel, machine: FakeMachine
) -> None:
    image = build(host, cache, kernel)
    files = archive(image)
    real = str(machine.programs / "qemu-ga")
    assert files[real.lstrip("/")] == Path(real).read_bytes()
    assert files["usr/sbin/qemu-ga"] == real.encode()
    assert files["init"].startswith(b"#!/usr/bin/busybox sh")
    assert files["bin"] == b"usr/bin"
    modules = f"usr/lib/modules/{kernel.release}"
    assert files[f"{modules}/virtio_pci.ko"] == kernel.modules.files["virtio_pci"].read_bytes()
    assert files[f"{modules}/sd_mod.ko"] == f"/extra/{modules}/sd_mod.ko".encode()
    dependencies = files[f"{modules}/modules.dep"].decode().splitlines()
    assert "virtio_pci.ko: virtio_ring.ko virtio.ko" in dependencies
    assert files["etc/vdisklab/root-modules"] == b"virtio_blk\n"
    assert b"ata_piix" in files["etc/vdisklab/disk-modules"]
    assert b"ahci" not in files["etc/vdisklab/disk-modules"]


def test_late_files_are_on_the_disk(
    host: CountingHost, cache: Path, kernel: Kernel, machine: FakeMachine
) -> None:
    image = build(host, cache, kernel)
    late = str(machine.programs / "mkfs.toy").lstrip("/")
    assert archive(image)[late] == f"/extra/{late}".encode()
    said = subprocess.run(
        ["/sbin/debugfs", "-R", f"cat /{late}", image.root], capture_output=True, check=True
    ).stdout
    assert said == (machine.programs / "mkfs.toy").read_bytes()


def test_versions_and_kernel(host: CountingHost, cache: Path, kernel: Kernel) -> None:
    image = build(host, cache, kernel)
    assert image.programs == dict.fromkeys(("busybox", "qemu-ga", "fio", "mkfs.toy"), "1.2.3")
    assert image.kernel.read_bytes() == kernel.image.read_bytes()


def test_the_kernel_is_unpacked_if_qemu_can_enter_it(
    host: CountingHost, cache: Path, kernel: Kernel
) -> None:
    unpacked = vmlinux(PVH_ENTRY)
    kernel.image.write_bytes(bzimage(packed=lz4(unpacked)))
    assert build(host, cache, kernel).kernel.read_bytes() == unpacked
    as_it_is = bzimage(packed=lz4(vmlinux()))
    kernel.image.write_bytes(as_it_is)
    assert build(host, cache, kernel).kernel.read_bytes() == as_it_is


def test_the_second_call_runs_nothing(host: CountingHost, cache: Path, kernel: Kernel) -> None:
    first = build(host, cache, kernel)
    host.ran.clear()
    assert build(host, cache, kernel) == first
    assert host.ran == []


def test_equal_files_make_an_equal_image(
    host: CountingHost, cache: Path, kernel: Kernel, tmp_path: Path
) -> None:
    first = build(host, cache, kernel)
    time.sleep(1.1)  # times are kept in whole seconds
    second = build(host, tmp_path / "other", kernel)
    assert first.fingerprint == second.fingerprint
    for left, other in ((first.initrd, second.initrd), (first.root, second.root)):
        assert left.read_bytes() == other.read_bytes()


def test_a_new_program_makes_another_image(
    host: CountingHost, cache: Path, kernel: Kernel, machine: FakeMachine
) -> None:
    first = build(host, cache, kernel)
    machine.script("fio", "echo fio-9.9.9")
    second = build(host, cache, kernel)
    assert second.programs["fio"] == "9.9.9"
    assert second.fingerprint != first.fingerprint
    assert first.root.exists()  # a guest may run from it


def test_a_program_replaced_by_its_like_keeps_the_image(
    host: CountingHost, cache: Path, kernel: Kernel, machine: FakeMachine
) -> None:
    first = build(host, cache, kernel)
    inode = first.root.stat().st_ino
    os.utime(machine.programs / "fio", (1, 1))
    second = build(host, cache, kernel)
    assert second == first
    assert second.root.stat().st_ino == inode
    host.ran.clear()
    assert build(host, cache, kernel) == first
    assert host.ran == []


def test_a_program_that_is_gone_is_left_out(
    host: CountingHost, cache: Path, kernel: Kernel, machine: FakeMachine
) -> None:
    build(host, cache, kernel)
    (machine.programs / "mkfs.toy").unlink()
    assert "mkfs.toy" not in build(host, cache, kernel).programs


def test_a_missing_program_is_named(host: CountingHost, cache: Path, kernel: Kernel) -> None:
    wanted = (*PROGRAMS, Program("nonesuch", required=True))
    with pytest.raises(HostError, match="nonesuch is not installed") as caught:
        build_guest_image(host, cache, kernel, wanted)
    assert caught.value.hint == "install the package that contains nonesuch"


def test_a_failed_build_leaves_nothing(
    host: CountingHost, cache: Path, kernel: Kernel, machine: FakeMachine
) -> None:
    machine.script("mke2fs", "echo half >{packages}/half; echo 'No space left' >&2; exit 1")
    with pytest.raises(HostError, match="No space left"):
        build(host, cache, kernel)
    assert [path.name for path in (cache / "guest").iterdir()] == [".lock"]


def test_a_damaged_image_is_built_anew(host: CountingHost, cache: Path, kernel: Kernel) -> None:
    image = build(host, cache, kernel)
    for damage in (image.root.unlink, lambda: manifest(image).write_text("{")):
        damage()
        assert build(host, cache, kernel) == image
        assert image.root.exists()
    assert host.built == 3


def manifest(image: GuestImage) -> Path:
    return image.root.parent / "manifest.json"


def test_many_at_once_build_once(host: CountingHost, cache: Path, kernel: Kernel) -> None:
    with ThreadPoolExecutor(4) as pool:
        images = list(pool.map(lambda _: build(host, cache, kernel), range(4)))
    assert host.built == 1
    assert len({image.fingerprint for image in images}) == 1


def test_old_images_go_and_those_of_today_stay(
    host: CountingHost, cache: Path, kernel: Kernel, machine: FakeMachine
) -> None:
    images = []
    for number in range(7):
        machine.script("fio", f"echo fio-1.{number}")
        images.append(build(host, cache, kernel))
        if number < 3:
            os.utime(manifest(images[-1]), (number + 1, number + 1))
    assert [image.root.exists() for image in images] == [False] * 3 + [True] * 4


def test_another_kernel_is_another_image(
    host: CountingHost, cache: Path, kernel: Kernel, tmp_path: Path
) -> None:
    other = replace(kernel, image=write_kernel(tmp_path / "b"), modules_root=tmp_path / "b")
    other.image.write_bytes(bzimage(b"patched"))
    first, second = build(host, cache, kernel), build(host, cache, other)
    assert first.fingerprint != second.fingerprint
