"""Inside the lab: what is done below an image by ZFS, thin LVM and md, and that it is really done.

    python3 lab_operations.py DIRECTORY

No guest. Each check prints a line; the last line of the output is JSON. Controls: a block that was
spoilt on one half of a mirror must be found by the scrub, and a stream that was sent must be a
whole dataset when it is received.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from vdisklab.campaign.measure_during import on_host
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.waiting import wait_until
from vdisklab.operations.operation import DiskAccess, OpenDisk, RunningOperation
from vdisklab.operations.registry import parse_operation
from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.targets import Directory, Remote, Target
from vdisklab.units import MIB

SIZE = 24 * MIB
WORK = Path(sys.argv[1])
results: list[dict[str, Any]] = []


class NoMonitor:
    """For operations that ask QEMU nothing."""

    def execute(self, command: str, *_: object, **__: object) -> Any:  # noqa: ANN401
        raise AssertionError(command)


def said(*argv: str | Path) -> str:
    """What a program prints. Raises CalledProcessError."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def wait(condition: Callable[[], bool]) -> float:
    """The seconds until a condition is true."""
    begin = time.monotonic()
    wait_until(condition, timeout=120, what="the operation")
    return time.monotonic() - begin


class Built:
    """A stack with an image that holds random data, and the operations on it."""

    def __init__(self, site: Site, path: str, target: Target) -> None:
        assert not isinstance(target, Remote)
        self.site, self.path, self.target = site, path, target
        self.image = target.path / "disk.raw" if isinstance(target, Directory) else target.path
        self.data = os.urandom(SIZE)
        self.write(self.data)

    def write(self, data: bytes) -> None:
        """Writes data to the beginning of the image and flushes."""
        with self.image.open("r+b" if self.image.exists() else "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    @property
    def volume(self) -> str:
        """The volume as the layer names it; empty without one."""
        assert not isinstance(self.target, Remote)
        return "" if self.target.volume is None else self.target.volume.name

    def order(self, text: str) -> RunningOperation:
        """An operation on the image."""
        disk = OpenDisk("d", SIZE, "raw", "d-node", (), self.image)
        kinds = tuple(layer.kind for layer in parse_path(self.path).layers)
        access = DiskAccess(
            NoMonitor(), lambda _size: None, on_host=partial(on_host, self.site), layers=kinds,
            volume=self.volume, new_file=self.new_file,
        )  # fmt: skip
        return parse_operation(text).on(disk, access)

    def new_file(self, name: str, _suffixes: tuple[str, ...]) -> Path:
        """A file in the work directory."""
        return self.site.directory / name


@contextmanager
def built(path: str, disks: int = 1) -> Iterator[Built]:
    """A stack of loop devices, taken down at the end."""
    with open_ledger() as ledger, open_site(LocalHost(), ledger, WORK) as site:
        layers = parse_path(path).layers
        with build_stack(
            site, layers, 2 * SIZE, "s", backing=BackingDevices(disks=disks), spare=3 * SIZE
        ) as target:
            yield Built(site, path, target)


def snapshot_and_removal(path: str) -> dict[str, Any]:
    """A snapshot keeps the old data, costs the layer's unit for a write, and is gone afterwards."""
    with built(path) as stack:
        snapshot = stack.order("host-snapshot")
        begin = time.monotonic()
        snapshot.finish()
        took = time.monotonic() - begin
        stack.write(bytes(MIB))
        kept = old_data(stack)
        assert kept[:MIB] == stack.data[:MIB], "the snapshot does not hold the old data"
        assert len(names(stack)) == 1, names(stack)
        snapshot.undo()
        assert names(stack) == [], names(stack)
        removal = stack.order("host-snapshot:delete")
        removal.prepare()
        assert len(names(stack)) == 1
        begin = time.monotonic()
        removal.finish()
        assert names(stack) == []
        return {"seconds": took, "seconds_to_remove": time.monotonic() - begin}


def names(stack: Built) -> list[str]:
    """The snapshots of the stack's pool."""
    pool = stack.volume.partition("/")[0]
    if stack.path.startswith("lvmthin"):
        listed = said("lvs", "--noheadings", "-o", "lv_name", pool).split()
        return [name for name in listed if name.endswith("-during")]
    return [
        n for n in said("zfs", "list", "-H", "-o", "name", "-t", "snapshot").split() if pool in n
    ]


def old_data(stack: Built) -> bytes:
    """What the snapshot holds."""
    if stack.path.startswith("lvmthin"):
        group, _, volume = stack.volume.partition("/")
        node = Path(f"/dev/{group}/{volume}-during")
        wait(node.exists)
        with node.open("rb") as file:
            return file.read(MIB)
    if isinstance(stack.target, Directory):
        return (stack.target.path / ".zfs/snapshot/during/disk.raw").read_bytes()[:MIB]
    said("zfs", "set", "snapdev=visible", stack.volume)
    node = Path(f"/dev/zvol/{stack.volume}@during")
    wait(node.exists)
    with node.open("rb") as file:
        return file.read(MIB)


def zfs_scrub(path: str) -> dict[str, Any]:
    """A scrub of a mirror repairs what was spoilt on one half; one that runs can be ended."""
    with built(path, 2) as stack:
        pool = stack.volume.partition("/")[0]
        said("zpool", "sync", pool)
        spoilt = sorted(stack.site.directory.glob("*.slice"))[0]
        data = spoilt.read_bytes()
        places = [
            place
            for n in range(8)
            if (place := data.find(stack.data[n * MIB : n * MIB + 512])) >= 0
        ]
        assert places, "no block of the image was found on the disk"
        loop = said("losetup", "--associated", spoilt).partition(":")[0]
        with Path(loop).open("r+b") as device:
            for place in places:
                device.seek(place)
                device.write(bytes(512))
            device.flush()
            os.fsync(device.fileno())
        scrub = stack.order("scrub")
        scrub.start()
        took = wait(scrub.ready)
        scrub.finish()
        status = said("zpool", "status", pool)
        line = next(each.strip() for each in status.splitlines() if "scan:" in each)
        assert "scrub repaired" in line, line
        assert "repaired 0B" not in line, line
        again = stack.order("scrub")
        again.start()
        again.undo()
        assert "in progress" not in said("zpool", "status", pool)
        return {"seconds": took, "spoilt_blocks": len(places), "said": line}


def md_check(path: str) -> dict[str, Any]:
    """A check of a mirror counts what was spoilt on one half."""
    with built(path, 2) as stack:
        spoilt = sorted(stack.site.directory.glob("*.slice"))[0]
        loop = said("losetup", "--associated", spoilt).partition(":")[0]
        counter = next(Path("/sys/block").glob("md*/md/mismatch_cnt"))
        quiet = stack.order("scrub")
        quiet.start()
        wait(quiet.ready)
        quiet.finish()
        assert int(counter.read_text()) == 0, "halves that were never spoilt differ"
        with Path(loop).open("r+b") as device:
            device.seek(16 * MIB)
            device.write(os.urandom(MIB))
            device.flush()
            os.fsync(device.fileno())
        scrub = stack.order("scrub")
        scrub.start()
        took = wait(scrub.ready)
        scrub.finish()
        found = int(counter.read_text())
        assert found > 0, "the check found nothing"
        again = stack.order("scrub")
        again.start()
        again.undo()
        wait(lambda: (counter.parent / "sync_action").read_text().strip() == "idle")
        return {"seconds": took, "mismatched_sectors": found}


def sent(path: str) -> dict[str, Any]:
    """What zfs send writes can be received, and holds the image."""
    with built(path) as stack:
        send = stack.order("zfs-send")
        send.prepare()
        begin = time.monotonic()
        send.start()
        stack.write(bytes(MIB))  # a guest writes on: the stream holds what was before
        wait(send.ready)
        took = time.monotonic() - begin
        send.finish()
        assert names(stack) == []
        stream = stack.site.directory / "stream"
        assert stream.stat().st_size >= SIZE
        pool = stack.volume.partition("/")[0]
        with stream.open("rb") as file:
            subprocess.run(["zfs", "receive", "-u", f"{pool}/back"], stdin=file, check=True)
        if isinstance(stack.target, Directory):
            mount = WORK / "back"
            mount.mkdir()
            said("mount", "-t", "zfs", "-o", "zfsutil", f"{pool}/back", mount)
            got = (mount / "disk.raw").read_bytes()
            said("umount", mount)
            mount.rmdir()
        else:
            node = Path(f"/dev/zvol/{pool}/back")
            wait(node.exists)
            with node.open("rb") as opened:
                got = opened.read(SIZE)
        assert hashlib.sha256(got[:SIZE]).digest() == hashlib.sha256(stack.data).digest()
        for each in (stream, stream.with_name("stream.log")):
            each.unlink()
        ended = stack.order("zfs-send")
        ended.prepare()
        ended.start()
        ended.undo()
        assert names(stack) == [], "a send that is ended leaves its snapshot"
        return {"seconds": took, "bytes": send.copied}


CHECKS: list[tuple[str, Callable[[str], dict[str, Any]], str]] = [
    *(("host-snapshot", snapshot_and_removal, path) for path in
      ("zfs/raw/none", "zvol/none", "lvmthin/none")),
    *(("scrub", zfs_scrub, path) for path in
      ("zfs:raid=mirror/raw/none", "zvol:raid=mirror/none")),
    *(("scrub", md_check, path) for path in ("md:level=1/none", "md:level=1/ext4/raw/none")),
    *(("zfs-send", sent, path) for path in ("zfs/raw/none", "zvol/none")),
]  # fmt: skip

failed = 0
for name, check, path in CHECKS:
    try:
        seen = check(path)
        print(f"ok {name} on {path}: {seen}", flush=True)
        results.append({"operation": name, "path": path, **seen})
    except Exception:  # noqa: BLE001 - each check is on its own
        failed += 1
        print(f"FAILED {name} on {path}", flush=True)
        traceback.print_exc(file=sys.stdout)
print(json.dumps(results))
sys.exit(failed)
