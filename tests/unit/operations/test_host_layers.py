"""What is done by the host's layers: the programs that are run, and those that undo it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.operations.test_operations import FakeMonitor
from vdisklab.errors import OperationError
from vdisklab.operations.operation import DiskAccess, OpenDisk, RunningOperation
from vdisklab.operations.registry import parse_operation
from vdisklab.path.disk_path import parse_path

ANSWERS = {
    "df": "Filesystem\n/dev/md127\n",
    "btrfs scrub status": "Status:           running\n",
    "zpool status": "  scan: scrub in progress since Sat\n",
    "cat": "check\n",
    "lsblk": "sda disk\nmd127 raid1\n",
    "sh -c rm -f": "",
}
VOLUMES = {"zfs": "pool/images", "zvol": "pool/v", "lvmthin": "vg/disk"}
"""What the layers name the volume that the image lies on."""

LVM = "--quiet --config devices/use_devicesfile=0 backup/backup=0 backup/archive=0"


class Host:
    """Remembers what is run, and answers as the programs do."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.answers = dict(ANSWERS)

    def run(self, *argv: str) -> str:
        line = " ".join(argv)
        found = [answer for start, answer in self.answers.items() if line.startswith(start)]
        if not found:
            self.ran.append(line)
        return found[0] if found else ""


def on(order: str, path: str, image: str, host: Host) -> RunningOperation:
    disk = OpenDisk("d", 1 << 20, "raw", "d-node", (), Path(image))
    layers = tuple(layer.kind for layer in parse_path(path).layers)
    nothing: list[Any] = []
    volume = next((VOLUMES[kind] for kind in reversed(layers) if kind in VOLUMES), "")
    access = DiskAccess(
        FakeMonitor(), nothing.append, on_host=host.run, layers=layers, volume=volume,
        new_file=lambda name, _suffixes: Path("/w") / name,
    )  # fmt: skip
    return parse_operation(order).on(disk, access)


@pytest.mark.parametrize(
    ("path", "image", "made", "removed"),
    [
        (
            "btrfs/raw/none", "/m/d.raw",
            "btrfs subvolume snapshot -r /m /m/during", "btrfs subvolume delete /m/during",
        ),
        ("zfs/raw/none", "/m/d.raw", "zfs snapshot pool/images@during",
         "zfs destroy pool/images@during"),
        ("zvol/none", "/dev/zd0", "zfs snapshot pool/v@during",
         "zfs destroy pool/v@during"),
        (
            "lvmthin/none", "/dev/dm-3",
            f"lvcreate {LVM} --snapshot --setactivationskip n --name disk-during vg/disk",
            f"lvremove {LVM} --yes vg/disk-during",
        ),
    ],
)  # fmt: skip
def test_a_snapshot_and_its_removal(path: str, image: str, made: str, removed: str) -> None:
    host = Host()
    running = on("host-snapshot", path, image, host)
    running.finish()
    running.undo()
    running.undo()
    assert host.ran == [made, removed]
    host = Host()
    running = on("host-snapshot:delete", path, image, host)
    running.prepare()
    assert host.ran == [made]
    running.finish()
    running.undo()
    assert host.ran == [made, removed]


@pytest.mark.parametrize(
    ("path", "image", "begun", "done", "stopped"),
    [
        ("btrfs/raw/none", "/m/d.raw", "btrfs scrub start /m",
         {"btrfs scrub status": "Status:           finished\n"}, "btrfs scrub cancel /m"),
        ("zvol/none", "/dev/zd0", "zpool scrub pool",
         {"zpool status": "  scan: scrub repaired 0B in 00:00:01\n"}, "zpool scrub -s pool"),
        ("md/ext4/raw/none", "/m/d.raw",
         "sh -c echo check > /sys/block/md127/md/sync_action", {"cat": "idle\n"},
         "sh -c echo idle > /sys/block/md127/md/sync_action"),
    ],
)  # fmt: skip
def test_a_scrub_ends_when_its_layer_says_so(
    path: str, image: str, begun: str, done: dict[str, str], stopped: str
) -> None:
    host = Host()
    running = on("scrub", path, image, host)
    running.start()
    assert host.ran == [begun]
    assert not running.ready()
    if path.startswith("btrfs"):  # at first there is no status
        host.answers["btrfs scrub status"] = "\tno stats available\n"
        assert not running.ready()
    host.answers |= done
    assert running.ready()
    running.finish()
    running.undo()
    assert host.ran == [begun]
    running = on("scrub", path, image, host)
    running.start()
    running.undo()
    assert host.ran == [begun, begun, stopped]


@pytest.mark.parametrize(
    ("order", "path", "reason"),
    [
        ("host-snapshot", "ext4/raw/none", "no host layer that makes snapshots"),
        ("host-snapshot", "raw/none", "no host layer that makes snapshots"),
        ("reflink", "ext4/raw/none", "no file whose blocks could be shared"),
        ("reflink", "lvm/none", "no file whose blocks could be shared"),
        ("scrub", "lvm/ext4/raw/none", "no layer that checks its blocks"),
        ("zfs-send", "btrfs/raw/none", "is not on ZFS"),
        ("zfs-send", "zvol/ext4/raw/none", "is not on ZFS"),
        ("trim", "raw/none", "does not pass the guest's discards on"),
        ("reflink", "dir:at=mine/raw/none", "no file whose blocks could be shared"),
    ],
)
def test_where_it_is_impossible(order: str, path: str, reason: str) -> None:
    refused = parse_operation(order).refusal(parse_path(path))
    assert refused is not None
    assert reason in refused.reason


def test_a_trim_that_gives_nothing_back_has_failed() -> None:
    said = {'fstrim -v "$0"': "/mnt: 0 B (0 bytes) trimmed"}

    def run(*argv: str) -> str:
        return said.get(argv[2], "")

    disk = OpenDisk("d", 64 << 20, "raw", "d-node", (), Path("/x"))
    access = DiskAccess(FakeMonitor(), lambda _: None, in_guest=run, mount_point="/mnt")
    running = parse_operation("trim").on(disk, access)
    running.prepare()
    with pytest.raises(OperationError, match="fstrim gave back nothing"):
        running.finish()
    said['fstrim -v "$0"'] = "/mnt: 16 MiB (16777216 bytes) trimmed"
    running.finish()
    assert running.copied == 16 << 20


def test_an_incremental_backup_follows_a_full_one_with_a_bitmap() -> None:
    monitor = FakeMonitor()
    nodes = ({"driver": "qcow2", "node-name": "d-node"},)
    disk = OpenDisk("d", 1 << 20, "qcow2", "d-node", nodes, Path("/x/d"))
    access = DiskAccess(
        monitor, lambda _: None, lambda purpose, driver: {"driver": driver, "file": purpose}
    )
    running = parse_operation("backup:incremental:workers=4").on(disk, access)
    running.prepare()
    running.start()
    running.finish()
    running.undo()
    asked = dict(monitor.asked)
    bitmap, full = asked["transaction"]["actions"]
    assert bitmap["data"] == {"node": "d-node", "name": "during", "persistent": True}
    assert full["data"]["sync"] == "full"
    assert asked["blockdev-backup"]["sync"] == "incremental"
    assert asked["blockdev-backup"]["bitmap"] == "during"
    assert asked["blockdev-backup"]["x-perf"] == {"max-workers": 4}
    assert "block-dirty-bitmap-remove" in asked
    assert monitor.nodes == ["d-node"]


def test_a_send_ends_when_its_program_has_ended_well() -> None:
    host = Host()
    host.answers |= {"sh -c setsid": "77\n", "stat": "4096\n", "cat": ""}
    running = on("zfs-send", "zvol/none", "/dev/zd0", host)
    running.prepare()
    running.start()
    assert not running.ready()
    assert running.copied == 4096
    host.answers["cat"] = "ended 0\n"
    assert running.ready()
    running.finish()
    running.undo()
    assert host.ran == ["zfs snapshot pool/v@during", "zfs destroy pool/v@during"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [("cannot open 'pool/v'\nended 1\n", "cannot open"), ("ended 141\n", "ended with 141")],
)
def test_a_send_that_fails_says_why_and_leaves_nothing(said: str, reason: str) -> None:
    host = Host()
    host.answers |= {"sh -c setsid": "77\n", "stat": "0\n", "cat": said}
    running = on("zfs-send", "zfs/raw/none", "/m/d.raw", host)
    running.prepare()
    running.start()
    with pytest.raises(OperationError, match=reason):
        running.ready()
    running.undo()
    assert host.ran == ["zfs snapshot pool/images@during", "zfs destroy pool/images@during"]


def test_a_send_that_still_runs_is_ended() -> None:
    host = Host()
    host.answers |= {"sh -c setsid": "77\n"}
    running = on("zfs-send", "zvol/none", "/dev/zd0", host)
    running.prepare()
    running.start()
    running.undo()
    end, destroy = host.ran[1:]
    assert end.startswith("sh -c kill -TERM -- -$0; ")
    assert end.endswith(" 77")
    assert destroy == "zfs destroy pool/v@during"
