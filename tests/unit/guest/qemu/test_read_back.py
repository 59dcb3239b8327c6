"""What is read back of a disk: from recorded answers of QEMU, and from this process's own /proc."""

from __future__ import annotations

import copy
import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.guest.fake_qemu import RECORDED, SERIAL, FakeQemu, disk_of, machine_of, recorded
from vdisklab.errors import GuestError, HostError
from vdisklab.guest.hotplug import attached_disk
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import AttachedNames, Disk
from vdisklab.guest.qemu.read_back import (
    QemuTraces,
    check_state,
    device_statistics,
    inserted_node,
    read_process,
)
from vdisklab.guest.systems import GuestDisk
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import CacheMode
from vdisklab.results.model import Check
from vdisklab.value import replace

# x86-64's numbers (arch/x86/entry/syscalls/syscall_64.tbl) and those of all architectures.
_IO_SETUP, _IO_DESTROY, _IO_URING_SETUP = 206, 207, 425

DEVICE = AttachedNames(SERIAL).device
BLOCK = {
    "guest.size", "guest.write_cache", "qemu.format", "qemu.cache.direct", "qemu.cache.no-flush",
    "qemu.cache.writeback", "qemu.version",
}  # fmt: skip
FILE = {"kernel.o_direct", "qemu.aio"}
NAMES = {
    "virtio": BLOCK | FILE | {"qemu.iothread", "guest.queues"},
    "scsi": BLOCK | FILE | {"qemu.iothread", "guest.queues"},
    "nvme": BLOCK | FILE | {"guest.queues"},
    "null": BLOCK,
}


@contextmanager
def plugged(qemu: FakeQemu, disk: Disk) -> Iterator[tuple[Machine, GuestDisk]]:
    """The disk in the guest, hot-plugged or there from the start."""
    with machine_of(qemu) as machine:
        if disk.attachment.bus.hot_pluggable:
            with attached_disk(machine, disk) as seen:
                yield machine, seen
        else:
            qemu.plugged(disk)
            yield machine, machine.find_disk(disk.serial)


def checked(qemu: FakeQemu, disk: Disk, *, asked: Disk | None = None) -> tuple[Check, ...]:
    """The checks of a plugged disk, as if `asked` had been asked for."""
    with plugged(qemu, disk) as (machine, seen):
        at_start = QemuTraces(read_process(machine).rings, 1)
        return check_state(machine, asked or disk, seen, at_start)


def wrong(checks: tuple[Check, ...]) -> dict[str, str]:
    return {check.name: check.observed for check in checks if not check.confirmed}


@pytest.mark.parametrize("name", RECORDED)
def test_a_real_disk_is_as_it_was_asked_for(name: str, image: Path) -> None:
    checks = checked(FakeQemu(name), disk_of(name, image))
    assert wrong(checks) == {}
    assert {check.name for check in checks} == NAMES.get(name, BLOCK | FILE)


def other_path(text: str) -> Callable[[Disk], Disk]:
    path = parse_path(text)
    return lambda disk: replace(disk, cache=path.cache, attachment=path.attachment)


@pytest.mark.parametrize(
    ("name", "asked", "found"),
    [
        ("virtio", lambda disk: replace(disk, size=1), {"guest.size": str(32 << 20)}),
        ("virtio", lambda disk: replace(disk, driver="qcow2"), {"qemu.format": "raw"}),
        (
            "virtio",
            lambda disk: replace(disk, cache=CacheMode.UNSAFE),
            {"qemu.cache.direct": "on", "qemu.cache.no-flush": "off", "kernel.o_direct": "on"},
        ),
        (
            "virtio",
            lambda disk: replace(disk, cache=CacheMode.DIRECTSYNC),
            {"qemu.cache.writeback": "on", "guest.write_cache": "write back"},
        ),
        # NVMe always announces a volatile write cache.
        (
            "nvme",
            lambda disk: replace(disk, cache=CacheMode.DIRECTSYNC),
            {"qemu.cache.writeback": "on"},
        ),
        ("virtio", other_path("raw/none/virtio:iothread=on:queues=4"), {"guest.queues": "2"}),
        ("virtio", other_path("raw/none/virtio:aio=native"), {"qemu.aio": "threads"}),
        ("virtio", other_path("raw/none/virtio:aio=io_uring"), {"qemu.aio": "threads"}),
    ],
)  # fmt: skip
def test_every_state_that_was_not_asked_for_is_found(
    name: str, asked: Callable[[Disk], Disk], found: dict[str, str], image: Path
) -> None:
    disk = disk_of(name, image)
    assert wrong(checked(FakeQemu(name), disk, asked=asked(disk))) == found


@pytest.mark.parametrize(("fact", "seen"), [("size_bytes", "unknown"), ("write_cache", "unknown")])
def test_a_fact_that_the_guest_does_not_tell_confirms_nothing(
    fact: str, seen: str, image: Path
) -> None:
    found = recorded("nvme").found
    less = "".join(line for line in found.splitlines(True) if not line.startswith(f"{fact}="))
    assert less != found
    qemu = FakeQemu("nvme", programs={"find-disk": (0, less, "")})
    assert list(wrong(checked(qemu, disk_of("nvme", image))).values()) == [seen]


def test_an_iothread_of_another_name(image: Path) -> None:
    qemu = FakeQemu("scsi", {"qom-get": lambda request: [{"return": "/objects/other"}]})
    assert wrong(checked(qemu, disk_of("scsi", image))) == {"qemu.iothread": "/objects/other"}


class TestDirect:
    """O_DIRECT by the flags of files that this process really has open."""

    def test_qemu_that_leaves_it_out(self, image: Path) -> None:
        qemu = FakeQemu("virtio", ignores_direct=True)
        assert wrong(checked(qemu, disk_of("virtio", image))) == {"kernel.o_direct": "off"}

    def test_two_that_differ(self, image: Path) -> None:
        with image.open("rb"):
            seen = wrong(checked(FakeQemu("virtio"), disk_of("virtio", image)))
        assert seen == {"kernel.o_direct": "off/on"}

    def test_a_file_that_is_not_open(self, image: Path, tmp_path: Path) -> None:
        other = replace(disk_of("virtio", image), source={"filename": str(tmp_path / "other")})
        (tmp_path / "other").touch()
        seen = wrong(checked(FakeQemu("virtio"), disk_of("virtio", image), asked=other))
        assert seen == {"kernel.o_direct": "not open"}

    def test_a_file_that_is_gone(self, image: Path, tmp_path: Path) -> None:
        other = replace(disk_of("virtio", image), source={"filename": str(tmp_path / "gone")})
        with pytest.raises(HostError, match="gone cannot be read: No such file"):
            checked(FakeQemu("virtio"), disk_of("virtio", image), asked=other)


@contextmanager
def ring_of_libaio() -> Iterator[None]:
    """What a process has that called io_setup(2)."""
    libc, context = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong(0)
    if libc.syscall(_IO_SETUP, 8, ctypes.byref(context)) != 0:
        pytest.skip("io_setup is not allowed here")
    try:
        yield
    finally:
        libc.syscall(_IO_DESTROY, context)


@contextmanager
def io_uring() -> Iterator[None]:
    descriptor = ctypes.CDLL(None, use_errno=True).syscall(
        _IO_URING_SETUP, 1, ctypes.create_string_buffer(120)
    )
    if descriptor < 0:
        pytest.skip("io_uring is not allowed here")
    try:
        yield
    finally:
        os.close(descriptor)


class TestAio:
    """The mode by what it leaves in this process's own /proc."""

    @staticmethod
    def seen(image: Path, *, rings_at_start: int = 0) -> str:
        with plugged(FakeQemu("nvme"), disk_of("nvme", image)) as (machine, seen):
            checks = check_state(
                machine, disk_of("nvme", image), seen, QemuTraces(rings_at_start, 1)
            )
        return next(check.observed for check in checks if check.name == "qemu.aio")

    @pytest.mark.skipif(os.uname().machine != "x86_64", reason="the call has another number")
    def test_native(self, image: Path) -> None:
        with ring_of_libaio():
            assert self.seen(image) == "native"
        assert self.seen(image) == "threads"

    def test_io_uring(self, image: Path) -> None:
        with io_uring():
            assert self.seen(image) == "io_uring"
            assert self.seen(image, rings_at_start=1) == "threads"

    @pytest.mark.parametrize("name", ["io_uring", "[io_uring]", "[aio]"])
    def test_a_file_with_such_a_name_is_no_ring(
        self, name: str, image: Path, tmp_path: Path
    ) -> None:
        file = tmp_path / name
        file.touch()
        with file.open("rb"):
            assert self.seen(image) == "threads"

    def test_event_loops_are_counted(self) -> None:
        """The main loop and the disk's iothread."""
        with machine_of(FakeQemu("virtio")) as machine:
            assert read_process(machine).loops == 2
            assert read_process(machine).rings == 0


def test_a_qemu_that_has_ended_is_a_sentence(image: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with plugged(FakeQemu("nvme"), disk_of("nvme", image)) as (machine, seen):
        gone = replace(machine, pid=ended.pid)
        with pytest.raises(GuestError, match=rf"\(process {ended.pid}\) has ended"):
            check_state(gone, disk_of("nvme", image), seen, QemuTraces(0, 1))
        with pytest.raises(GuestError, match="has ended"):
            read_process(gone)


def every_part(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    """The way to each member of a JSON value."""
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, inner in pairs:
        yield (*place, key)
        yield from every_part(inner, (*place, key))


def mutilations(value: Any) -> Iterator[Any]:  # noqa: ANN401
    """The value with one member gone, or nulled, or of another form."""
    for *way, last in every_part(value):
        changes: tuple[object, ...] = (None, {}, "gone")
        for change in changes:
            damaged = copy.deepcopy(value)
            place = damaged
            for key in way:
                place = place[key]
            if change == "gone":
                del place[last]
            else:
                place[last] = change
            yield damaged


@pytest.mark.parametrize(
    ("query", "ask"),
    [("query-block", inserted_node), ("query-blockstats", device_statistics)],
)
@pytest.mark.parametrize("name", ["virtio", "scsi"])
def test_a_mutilated_answer_is_an_error_or_does_not_matter(
    query: str, ask: Callable[[Machine, str], Any], name: str
) -> None:
    said: list[Any] = []
    qemu = FakeQemu(name, {query: lambda request: [{"return": said[-1]}]})
    whole = recorded(name).answers[query]
    outcomes = set()
    with machine_of(qemu) as machine:
        said.append(whole)
        good = ask(machine, DEVICE)
        assert good is not None
        for damaged in mutilations(whole):
            said.append(damaged)
            try:
                found = ask(machine, DEVICE)
            except GuestError as error:
                outcomes.add(str(error).split(":")[0])
            else:
                assert found in (good, None)
    assert f"QEMU's answer to {query} is not as expected" in outcomes
    if query == "query-block":
        assert f"QEMU accepted the disk {DEVICE} but does not list it" in outcomes


@pytest.mark.parametrize("answer", [None, {}, "text", 5, [None], [[]]])
def test_an_answer_of_another_form(answer: object) -> None:
    qemu = FakeQemu("virtio", {"query-block": lambda request: [{"return": answer}]})
    with (
        machine_of(qemu) as machine,
        pytest.raises(GuestError, match="query-block is not as expected"),
    ):
        inserted_node(machine, DEVICE)


def test_another_disk_is_not_listed(image: Path) -> None:
    other = "vdl99999999-dev"
    with plugged(FakeQemu("nvme"), disk_of("nvme", image)) as (machine, _):
        assert device_statistics(machine, other) is None
        with pytest.raises(GuestError, match="but does not list it"):
            inserted_node(machine, other)
