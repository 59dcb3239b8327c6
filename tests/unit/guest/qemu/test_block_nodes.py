"""The disk in QEMU's arguments: every bus, cache mode, aio mode, write cache, iothread and queues.

The table tests/golden/qmp.txt has a row for each pair of options that can stand together. It is
made anew by `python -m tests.unit.guest.qemu.test_block_nodes`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.guest.qemu.block_nodes import (
    HOTPLUG_PORTS,
    Arguments,
    AttachedNames,
    Disk,
    ImageParts,
    attach_commands,
    block_nodes,
    cache_options,
    cold_arguments,
    detach_commands,
    devices,
    objects,
    port_for,
    served_export,
)
from vdisklab.path.disk_path import parse_path
from vdisklab.path.rules import impossible
from vdisklab.path.segments import BUS_OPTIONS, Bus, CacheMode, WriteCache
from vdisklab.value import replace

GOLDEN = Path(__file__).parents[3] / "golden" / "qmp.txt"

VALUES = {
    "aio": ("threads", "native", "io_uring"),
    "write_cache": ("mode", "on", "off", "auto"),
    "discard": ("ignore", "unmap"),
    "iothread": ("off", "on"),
    "queues": ("", "4"),
}

Choices = tuple[tuple[str, str], ...]


def disk(text: str, *, driver: str = "qcow2", protocol: str = "file") -> Disk:
    path = parse_path(text)
    return Disk(
        "vdl1",
        1 << 25,
        {"driver": protocol, "filename": "/w/i"},
        driver,
        path.cache,
        path.attachment,
    )


def possible_choices() -> Iterator[Choices]:
    """Every combination of bus, cache mode and options of the bus that can exist."""
    for bus, cache in itertools.product(
        [bus for bus in Bus if not (bus.is_served or bus.shares_directory)], CacheMode
    ):
        names = [name for name in VALUES if name in BUS_OPTIONS[bus]]
        for values in itertools.product(*(VALUES[name] for name in names)):
            chosen = (("bus", bus), ("cache", cache), *zip(names, values, strict=True))
            if impossible(parse_path(spell(chosen))) is None:
                yield chosen


def spell(chosen: Choices) -> str:
    (_, bus), (_, cache), *options = chosen
    arguments = [f"{name}={value}" for name, value in options if value != VALUES[name][0]]
    return "/".join(("qcow2", cache, ":".join((bus, *arguments))))


def choices_of(text: str) -> Choices:
    """The opposite of `spell`."""
    _, cache, attachment = text.split("/")
    bus, *arguments = attachment.split(":")
    options = dict(word.split("=") for word in arguments)
    names = [name for name in VALUES if name in BUS_OPTIONS[Bus(bus)]]
    rest = ((name, options.get(name, VALUES[name][0])) for name in names)
    return (("bus", bus), ("cache", cache), *rest)


def pairs(chosen: Choices) -> set[Choices]:
    return set(itertools.combinations(chosen, 2))


def smallest_table() -> list[str]:
    """Paths that hold every possible pair: always the one with the most pairs that are missing."""
    candidates = {spell(chosen): pairs(chosen) for chosen in possible_choices()}
    missing = set().union(*candidates.values())
    rows = []
    while missing:
        best = max(candidates, key=lambda text: len(candidates[text] & missing))
        rows.append(best)
        missing -= candidates[best]
    order = list(Bus)
    return sorted(rows, key=lambda text: (order.index(Bus(text.split("/")[2].split(":")[0])), text))


# Names are the same in every row; test_the_parts_of_a_disk_refer_to_each_other looks at them.
NAMES = {"driver", "qom-type", "node-name", "id", "drive", "serial", "filename", "file"}


def cells(arguments: Arguments) -> str:
    """The driver and what the path decides: `virtio-blk-pci write-cache=on bus=hp0`."""
    flat = {**arguments, **arguments.get("cache", {})}
    flat.pop("cache", None)
    kind = arguments.get("driver", arguments.get("qom-type"))
    command_line = (
        f"{key}={('off', 'on')[value] if isinstance(value, bool) else value}"
        for key, value in flat.items()
        if key not in NAMES
    )
    return " ".join((str(kind), *command_line))


def row(text: str) -> str:
    """Path, file node and devices; the format node has the file node's options."""
    made = disk(text)
    parts = (*objects(made), *devices(made, port_for(made)))
    return f"{text:79} | {cells(block_nodes(made)[0]):60} | {' + '.join(map(cells, parts))}"


def rows() -> list[str]:
    """The reviewed paths."""
    return [line.split(" | ")[0].strip() for line in GOLDEN.read_text().splitlines()]


def test_the_table_is_as_it_was_reviewed() -> None:
    assert "".join(f"{row(text)}\n" for text in rows()) == GOLDEN.read_text()


def test_the_table_holds_every_pair_of_options_that_can_stand_together() -> None:
    held = set().union(*(pairs(choices_of(text)) for text in rows()))
    possible = set().union(*(pairs(chosen) for chosen in possible_choices()))
    assert possible == held


def test_a_plugged_disk_in_full() -> None:
    commands = [
        (command.execute, dict(command.arguments))
        for command in attach_commands(disk("qcow2/none/scsi:iothread=on:queues=4"), "hp0")
    ]
    cache = {"direct": True, "no-flush": False}
    assert commands == [
        ("object-add", {"qom-type": "iothread", "id": "vdl1-io"}),
        ("blockdev-add", {"driver": "file", "node-name": "vdl1-file", "filename": "/w/i",
                          "aio": "threads", "cache": cache, "discard": "ignore"}),
        ("blockdev-add", {"driver": "qcow2", "node-name": "vdl1-node", "file": "vdl1-file",
                          "cache": cache, "discard": "ignore"}),
        ("device_add", {"driver": "virtio-scsi-pci", "id": "vdl1-hba", "bus": "hp0",
                        "num_queues": 4, "iothread": "vdl1-io"}),
        ("device_add", {"driver": "scsi-hd", "id": "vdl1-dev", "drive": "vdl1-node",
                        "serial": "vdl1", "write-cache": "on", "bus": "vdl1-hba.0"}),
    ]  # fmt: skip


@pytest.mark.parametrize("text", rows())
def test_the_parts_of_a_disk_refer_to_each_other(text: str) -> None:
    made = disk(text)
    names = AttachedNames("vdl1")
    protocol, top = block_nodes(made)
    assert (protocol["node-name"], protocol["filename"]) == (names.file_node, "/w/i")
    assert (top["node-name"], top["file"]) == (names.node, names.file_node)
    for option in ("cache", "discard"):
        assert protocol.get(option) == top.get(option)
    (*controllers, device) = devices(made, port_for(made))
    assert (device["id"], device["drive"], device["serial"]) == (names.device, names.node, "vdl1")
    assert [controller["id"] for controller in controllers] == [names.controller] * len(controllers)
    for thread in objects(made):
        assert thread["id"] == names.iothread
        assert names.iothread in [part.get("iothread") for part in (*controllers, device)]


def test_the_cache_modes_are_those_of_the_manual() -> None:
    """qemu(1), -drive cache=: the table of cache.writeback, cache.direct and cache.no-flush."""
    table = {mode: (WriteCache.MODE.qemu_property(mode), cache_options(mode)) for mode in CacheMode}
    assert table == {
        CacheMode.DEFAULT: (None, None),
        CacheMode.WRITEBACK: ("on", {"direct": False, "no-flush": False}),
        CacheMode.NONE: ("on", {"direct": True, "no-flush": False}),
        CacheMode.WRITETHROUGH: ("off", {"direct": False, "no-flush": False}),
        CacheMode.DIRECTSYNC: ("off", {"direct": True, "no-flush": False}),
        CacheMode.DIRECTUNSAFE: ("on", {"direct": True, "no-flush": True}),
        CacheMode.UNSAFE: ("on", {"direct": False, "no-flush": True}),
    }


def test_default_tells_qemu_nothing() -> None:
    arguments = " ".join(cold_arguments(disk("qcow2")))
    assert "cache" not in arguments


@pytest.mark.parametrize("text", rows())
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
    protocol, _ = block_nodes(disk("lvm/none", driver="raw", protocol="host_device"))
    assert (protocol["driver"], protocol["filename"]) == ("host_device", "/w/i")


def test_the_null_device_has_one_node_of_the_right_size() -> None:
    path = parse_path("null")
    null = Disk("vdl1", 1 << 25, None, "null-co", path.cache, path.attachment)
    (node,) = block_nodes(null)
    assert (node["driver"], node["size"]) == ("null-co", 1 << 25)


def test_serial_numbers_fit_every_bus() -> None:
    """virtio-blk carries 20 bytes (VIRTIO_BLK_ID_BYTES), ATA 20, NVMe 20; see find-disk."""
    for bus in Bus:
        # qemu-storage-daemon has a serial number of its own
        if not bus.is_served and not bus.shares_directory:
            (*_, device) = devices(disk(f"qcow2/none/{bus}"), None)
            assert device["serial"] == "vdl1"


@pytest.mark.parametrize(
    ("cache", "through"), [("none", False), ("writethrough", True), ("directsync", True)]
)
def test_a_served_disk_is_opened_by_the_daemon_only(cache: str, through: bool) -> None:
    """With config-wce on, the guest reads a write cache of 0 and never flushes."""
    made = disk(f"qcow2/{cache}/vhostuser:queues=2:iothread=on")
    plug, device = attach_commands(made, "hp0")
    assert (plug.execute, device.execute) == ("chardev-add", "device_add")
    assert plug.arguments["id"] == device.arguments["chardev"]
    assert (device.arguments["config-wce"], device.arguments["num-queues"]) == (through, 2)
    assert "drive" not in device.arguments
    assert "iothread" not in device.arguments
    export = served_export(made)
    assert (export["writethrough"], export["node-name"]) == (through, "vdl1-node")
    assert (export["iothread"], export["num-queues"]) == ("vdl1-io", 2)
    assert [command.execute for command in detach_commands(made, "hp0")] == [
        "device_del", "chardev-remove",
    ]  # fmt: skip


def test_cold_disks_are_json_that_qemu_reads() -> None:
    arguments = cold_arguments(disk("qcow2/none/ide"))
    assert arguments[::2] == ("-blockdev", "-blockdev", "-device")
    assert [json.loads(value)["driver"] for value in arguments[1::2]] == ["file", "qcow2", "ide-hd"]


def test_threads_share_the_queues_and_have_the_paths_settings() -> None:
    made = disk("qcow2/none/virtio:iothreads=2:poll=0:aio_max_batch=8:queue_size=128:packed=on")
    settings = {"poll-max-ns": 0, "aio-max-batch": 8}
    assert objects(made) == (
        {"qom-type": "iothread", "id": "vdl1-io0", **settings},
        {"qom-type": "iothread", "id": "vdl1-io1", **settings},
    )
    (device,) = devices(made, "hp0")
    assert device["iothread-vq-mapping"] == [{"iothread": "vdl1-io0"}, {"iothread": "vdl1-io1"}]
    assert (device["queue-size"], device["packed"]) == (128, True)
    assert "iothread" not in device


def test_a_throttled_disk_is_a_filter_above_its_format() -> None:
    made = disk("qcow2/none/usb:throttle_iops=500:throttle_bps=10M:detect_zeroes=on")
    (_, top, filter_node) = block_nodes(made)
    assert top["detect-zeroes"] == "on"
    assert (filter_node["driver"], filter_node["file"]) == ("throttle", "vdl1-node")
    assert devices(made, None)[0]["drive"] == filter_node["node-name"] == "vdl1-throttle"
    assert objects(made) == (
        {"qom-type": "throttle-group", "id": "vdl1-throttle",
         "limits": {"iops-total": 500, "bps-total": 10 << 20}},
    )  # fmt: skip
    removed = [dict(command.arguments) for command in detach_commands(made, None)]
    assert removed[1:] == [
        {"node-name": "vdl1-throttle"}, {"node-name": "vdl1-node"}, {"node-name": "vdl1-file"},
        {"id": "vdl1-throttle"},
    ]  # fmt: skip


def test_every_image_of_a_chain_is_a_node_that_names_the_next() -> None:
    parts = ImageParts(backing=("/w/i-1", "/w/i-0"))
    nodes = block_nodes(replace(disk("qcow2/none/virtio:aio=native"), parts=parts))
    names = [node["node-name"] for node in nodes]
    assert names == [
        "vdl1-backing1-file", "vdl1-backing1", "vdl1-backing0-file", "vdl1-backing0",
        "vdl1-file", "vdl1-node",
    ]  # fmt: skip
    assert [node.get("filename") for node in nodes[::2]] == ["/w/i-0", "/w/i-1", "/w/i"]
    assert [node.get("backing") for node in nodes[1::2]] == [None, "vdl1-backing1", "vdl1-backing0"]
    assert [node.get("read-only", False) for node in nodes] == [True] * 4 + [False] * 2
    assert all(node["cache"]["direct"] for node in nodes)
    assert {node["aio"] for node in nodes[::2]} == {"native"}


def test_keys_data_files_and_caches_belong_to_the_format() -> None:
    parts = ImageParts((), "/w/i.data", "/w/i.key", (("l2-cache-size", 1 << 20),))
    made = replace(disk("qcow2/none"), parts=parts)
    data, _, top = block_nodes(made)
    assert (data["filename"], top["data-file"]) == ("/w/i.data", data["node-name"])
    assert top["encrypt"] == {"format": "luks", "key-secret": "vdl1-key"}
    assert top["l2-cache-size"] == 1 << 20
    assert objects(made) == ({"qom-type": "secret", "id": "vdl1-key", "file": "/w/i.key"},)
    raw = replace(disk("raw/none", driver="luks"), parts=ImageParts(key_file="/w/i.key"))
    assert block_nodes(raw)[1]["key-secret"] == "vdl1-key"


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{row(text)}\n" for text in smallest_table()))
