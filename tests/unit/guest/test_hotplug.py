"""A disk is plugged and unplugged in order, and after an error nothing is touched any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import GuestError
from vdisklab.guest import hotplug as module
from vdisklab.guest.hotplug import attached_disk
from vdisklab.guest.qemu.block_nodes import port_for

from .fake_qemu import HOT, SERIAL, FakeQemu, Message, disk_of, machine_of, refusing

IO, FILE, NODE, DEV, HBA = (f"{SERIAL}-{part}" for part in ("io", "file", "node", "dev", "hba"))
FOUND = "guest: find-disk"

PLAIN = [
    f"blockdev-add {FILE}", f"blockdev-add {NODE}", f"device_add {DEV}", FOUND,
    f"device_del {DEV}", f"blockdev-del {NODE}", f"blockdev-del {FILE}",
]  # fmt: skip
ORDER = {
    "nvme": PLAIN,
    "usb": PLAIN,
    "writethrough": PLAIN,
    "unsafe": PLAIN,
    "virtio": [f"object-add {IO}", *PLAIN, f"object-del {IO}"],
    "scsi": [
        f"object-add {IO}", f"blockdev-add {FILE}", f"blockdev-add {NODE}",
        f"device_add {HBA}", f"device_add {DEV}", FOUND, f"device_del {DEV}", f"device_del {HBA}",
        f"blockdev-del {NODE}", f"blockdev-del {FILE}", f"object-del {IO}",
    ],
    "null": [
        f"blockdev-add {NODE}", f"device_add {DEV}", FOUND,
        f"device_del {DEV}", f"blockdev-del {NODE}",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", HOT)
def test_the_way_there_and_back(name: str, image: Path) -> None:
    qemu = FakeQemu(name)
    with machine_of(qemu) as machine, attached_disk(machine, disk_of(name, image)) as seen:
        assert seen.device.startswith("/dev/")
        assert seen.facts["size_bytes"] == str(32 << 20)
    assert qemu.asked == ORDER[name]


@pytest.mark.parametrize("name", HOT)
def test_a_second_disk_follows_on_the_first(name: str, image: Path) -> None:
    qemu = FakeQemu(name)
    with machine_of(qemu) as machine:
        for serial in ("vdl11111111", "vdl22222222"):
            with attached_disk(machine, disk_of(name, image, serial=serial)):
                pass
    half = len(qemu.asked) // 2
    assert [line.replace("1" * 8, "2" * 8) for line in qemu.asked[:half]] == qemu.asked[half:]


def test_after_an_error_in_the_block_nothing_is_unplugged(image: Path) -> None:
    qemu = FakeQemu("virtio")
    with (
        machine_of(qemu) as machine,
        pytest.raises(KeyboardInterrupt),
        attached_disk(machine, disk_of("virtio", image)),
    ):
        raise KeyboardInterrupt
    assert qemu.asked[-1] == FOUND


@pytest.mark.parametrize("step", ["object-add", "blockdev-add", "device_add"])
def test_a_refused_step_is_the_last(step: str, image: Path) -> None:
    qemu = FakeQemu("virtio", {step: lambda request: refusing("no such luck")})
    with (
        machine_of(qemu) as machine,
        pytest.raises(GuestError, match="no such luck"),
        attached_disk(machine, disk_of("virtio", image)),
    ):
        pytest.fail("not reached")
    assert qemu.asked[-1].startswith(step)


def test_a_device_that_stays_is_told_and_nothing_that_follows_from_it(
    image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QEMU accepts device_del, and the guest never lets go: the node below is in use then."""
    monkeypatch.setattr(module, "_UNPLUG_SECONDS", 0.2)
    qemu = FakeQemu("virtio", {"device_del": lambda request: [{"return": {}}]})
    with machine_of(qemu) as machine:
        with (
            pytest.raises(GuestError, match="no event DEVICE_DELETED") as caught,
            attached_disk(machine, disk_of("virtio", image)),
        ):
            pass
        assert caught.value.__context__ is None or "in use" not in str(caught.value.__context__)
    assert qemu.asked[-1] == f"device_del {DEV}"


def test_the_end_of_another_device_is_not_this_ones(
    image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UNPLUG_SECONDS", 0.2)

    def other(request: Message) -> list[Message]:
        stamp = {"seconds": 1, "microseconds": 2}
        data = {"device": "other", "path": "/machine/peripheral/other"}
        return [{"return": {}}, {"event": "DEVICE_DELETED", "data": data, "timestamp": stamp}]

    with (
        machine_of(FakeQemu("nvme", {"device_del": other})) as machine,
        pytest.raises(GuestError, match="no event DEVICE_DELETED"),
        attached_disk(machine, disk_of("nvme", image)),
    ):
        pass


def test_an_end_that_is_told_before_the_answer_is_heard(image: Path) -> None:
    """A device that goes at once, as on USB: QEMU sends the event first."""

    def at_once(request: Message) -> list[Message]:
        qemu._devices.clear()
        return [*qemu._deleted(request["arguments"]["id"]), {"return": {}}]

    qemu = FakeQemu("nvme")
    qemu.instead["device_del"] = at_once
    with machine_of(qemu) as machine, attached_disk(machine, disk_of("nvme", image)):
        pass
    assert qemu.asked == PLAIN


@pytest.mark.parametrize("name", HOT)
def test_only_pci_devices_take_a_port(name: str, image: Path) -> None:
    assert (port_for(disk_of(name, image)) is None) is (name == "usb")


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ((1, "", "no disk with serial number x within 15 s\n"), "x: no disk with serial number x"),
        ((0, "", ""), r"^the search for the disk x in the guest ended without an answer \(exit st"),
        ((1, " ", ""), r"ended without an answer \(exit status 1\)$"),
        ((0, "size_bytes=1\nno equals sign\n", ""), "no equals sign"),
        ((1, "device=/dev/vda\n", ""), "does not see the disk x"),
    ],
)
def test_a_disk_that_the_guest_does_not_see(ended: tuple[int, str, str], said: str) -> None:
    with (
        machine_of(FakeQemu("virtio", programs={"find-disk": ended})) as machine,
        pytest.raises(GuestError, match=said),
    ):
        machine.find_disk("x")


@pytest.mark.parametrize(
    ("ended", "said"),
    [((1, "", "nvme.ko: Invalid argument\n"), "nvme.ko"), ((1, "", ""), "did not load its driv")],
)
def test_drivers_that_do_not_load(ended: tuple[int, str, str], said: str) -> None:
    with (
        machine_of(FakeQemu("virtio", programs={"load-drivers": ended})) as machine,
        pytest.raises(GuestError, match=said),
    ):
        machine.await_ready()
