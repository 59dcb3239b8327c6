"""QEMU's words for a disk: every bus, cache mode, aio mode, write cache, iothread and queues."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from vdisklab.guest.hotplug import port_for
from vdisklab.guest.qemu.block_nodes import (
    Disk,
    attach_commands,
    block_nodes,
    cache_options,
    cold_arguments,
    detach_commands,
    devices,
)
from vdisklab.guest.qemu.command_line import HOTPLUG_PORTS
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import Bus, CacheMode, WriteCache

GOLDEN = Path(__file__).parents[3] / "golden" / "qmp.txt"

# aio=native exists for cache modes with O_DIRECT only, and iothreads and queues not on all buses.
ATTACHMENTS = [
    *("virtio", "scsi", "ide", "sata", "nvme", "usb"),
    *("virtio:iothread=on:queues=4", "scsi:iothread=on:queues=4", "nvme:queues=4"),
    *("virtio:discard=unmap", "usb:discard=unmap"),
]


def disk(text: str, *, driver: str = "qcow2", is_block: bool = False) -> Disk:
    path = parse_path(text)
    return Disk("vdl1", 1 << 25, "/w/i", is_block, driver, path.cache, path.attachment)


def every_path() -> list[str]:
    """Every bus with its options, cache mode, aio mode and write cache that may be written."""
    found = []
    for bus, cache in itertools.product(ATTACHMENTS, CacheMode):
        found.append(f"qcow2/{cache}/{bus}")
        found += [f"qcow2/{cache}/{bus}:write_cache={word}" for word in ("on", "off", "auto")]
        found.append(f"qcow2/{cache}/{bus}:aio=io_uring")
        if cache.direct:
            found.append(f"qcow2/{cache}/{bus}:aio=native")
    return found


def spelled() -> str:
    """What each of these disks is in QEMU's words, one line for each path."""
    lines = []
    for text in every_path():
        made = disk(text)
        if made.attachment.bus.hot_pluggable:
            words = " ".join(map(str, attach_commands(made, port_for(made))))
        else:
            words = " ".join(cold_arguments(made))
        lines.append(f"{text}: {words}\n")
    return "".join(lines)


def test_every_combination_is_as_it_was_reviewed() -> None:
    """Made anew by: python tests/unit/guest/test_blockdev.py"""
    assert spelled() == GOLDEN.read_text()


def test_the_cache_modes_are_those_of_the_manual() -> None:
    """qemu(1), -drive cache=: the table of cache.writeback, cache.direct and cache.no-flush."""
    table = {mode: (WriteCache.MODE.qemu_property(mode), cache_options(mode)) for mode in CacheMode}
    assert table == {
        CacheMode.DEFAULT: (None, None),
        CacheMode.WRITEBACK: ("on", {"direct": False, "no-flush": False}),
        CacheMode.NONE: ("on", {"direct": True, "no-flush": False}),
        CacheMode.WRITETHROUGH: ("off", {"direct": False, "no-flush": False}),
        CacheMode.DIRECTSYNC: ("off", {"direct": True, "no-flush": False}),
        CacheMode.UNSAFE: ("on", {"direct": False, "no-flush": True}),
    }


def test_default_tells_qemu_nothing() -> None:
    words = " ".join(cold_arguments(disk("qcow2")))
    assert "cache" not in words


@pytest.mark.parametrize("text", every_path())
def test_both_nodes_are_told_the_same_cache_mode(text: str) -> None:
    protocol, top = block_nodes(disk(text))
    assert protocol.get("cache") == top.get("cache")
    assert top["file"] == protocol["node-name"]


@pytest.mark.parametrize("text", every_path())
def test_the_way_back_undoes_every_step_in_opposite_order(text: str) -> None:
    made = disk(text)
    port = port_for(made)
    undo = {"object-add": "object-del", "blockdev-add": "blockdev-del", "device_add": "device_del"}
    there = attach_commands(made, port)
    back = detach_commands(made, port)
    assert [undo[step.execute] for step in reversed(there)] == [step.execute for step in back]
    for step, undone in zip(reversed(there), back, strict=True):
        name = step.arguments.get("id", step.arguments.get("node-name"))
        assert name in undone.arguments.values()


@pytest.mark.parametrize("text", ["qcow2/none/nvme", "qcow2/none/scsi", "qcow2/none/virtio"])
def test_pci_devices_are_plugged_into_a_port_that_starts_empty(text: str) -> None:
    made = disk(text)
    assert devices(made, port_for(made))[0]["bus"] == HOTPLUG_PORTS[0]


def test_a_block_device_is_opened_as_one() -> None:
    protocol, _ = block_nodes(disk("lvm/none", driver="raw", is_block=True))
    assert (protocol["driver"], protocol["filename"]) == ("host_device", "/w/i")


def test_the_null_device_has_one_node_of_the_right_size() -> None:
    path = parse_path("null")
    null = Disk("vdl1", 1 << 25, None, False, "null-co", path.cache, path.attachment)
    (node,) = block_nodes(null)
    assert (node["driver"], node["size"]) == ("null-co", 1 << 25)


def test_serial_numbers_fit_every_bus() -> None:
    """virtio-blk carries 20 bytes (VIRTIO_BLK_ID_BYTES), ATA 20, NVMe 20; see find-disk."""
    for bus in Bus:
        (*_, device) = devices(disk(f"qcow2/none/{bus}"), None)
        assert device["serial"] == "vdl1"


def test_cold_disks_are_json_that_qemu_reads() -> None:
    arguments = cold_arguments(disk("qcow2/none/ide"))
    assert arguments[::2] == ("-blockdev", "-blockdev", "-device")
    assert [json.loads(value)["driver"] for value in arguments[1::2]] == ["file", "qcow2", "ide-hd"]


if __name__ == "__main__":
    GOLDEN.write_text(spelled())
