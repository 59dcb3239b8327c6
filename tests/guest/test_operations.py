"""Each operation on a disk of a real QEMU, whose CPU does not run: nothing is left afterwards."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.relief_lines import ways
from vdisklab.errors import GuestError, OperationError
from vdisklab.guest.qemu.block_nodes import (
    Disk,
    ImageParts,
    attach_commands,
    detach_commands,
    drive_node,
)
from vdisklab.guest.qemu.open_disk import backend_of, open_disk
from vdisklab.guest.qemu.qmp import Channel, event_loop, open_channel, qemu_process, socket_pair
from vdisklab.operations.operation import DiskAccess, RunningOperation
from vdisklab.operations.registry import OPERATIONS, parse_operation
from vdisklab.path.disk_path import parse_path

pytestmark = pytest.mark.guest

SIZE = 32 << 20
WITH_BACKING = {"commit", "stream"}
RUN_PROGRAMS = {
    "trim", "host-snapshot", "host-snapshot:delete", "reflink", "scrub", "zfs-send",
}  # fmt: skip
ORDERS = [
    *(row.name for row in OPERATIONS if row.name not in RUN_PROGRAMS),
    "backup:compress=on",
    "backup:workers=1:speed=32M",
    "mirror:copy-mode=write-blocking",
]


def program(*argv: str) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


@dataclass
class Bench:
    """A disk that is plugged into a QEMU."""

    monitor: Channel
    disk: Disk
    directory: Path
    made: int = 0
    target_size: int = SIZE

    def nodes(self) -> set[str]:
        found = self.monitor.execute("query-named-block-nodes", {"flat": True})
        return {node["node-name"] for node in found if not node["node-name"].startswith("#")}

    def new_image(self, purpose: str, driver: str) -> Mapping[str, Any]:
        self.made += 1
        file = self.directory / f"{purpose}{self.made}"
        program("qemu-img", "create", "-q", "-f", driver, str(file), str(self.target_size))
        return {"driver": driver, "file": {"driver": "file", "filename": str(file)}}

    def on(self, text: str) -> RunningOperation:
        device = f"/machine/peripheral/{self.disk.names.device}"

        def use_node(node: str) -> None:
            value = {"path": device, "property": "drive", "value": node}
            self.monitor.execute("qom-set", value)

        def resize(size: int) -> None:
            node = {"node-name": drive_node(self.disk), "size": size}
            self.monitor.execute("block_resize", node)

        access = DiskAccess(self.monitor, resize, self.new_image, use_node, backend_of(self.disk))
        return parse_operation(text).on(open_disk(self.disk), access)

    def unplug(self) -> None:
        for command in detach_commands(self.disk, "hp0"):
            self.monitor.perform(command)
            if command.execute == "device_del":
                with contextlib.suppress(GuestError):  # no guest answers: a reset takes it away
                    self.monitor.execute("system_reset")
                self.monitor.pause(0.3)


@contextlib.contextmanager
def plugged(directory: Path, *, with_backing: bool, form: str = "qcow2") -> Iterator[Bench]:
    base, image = directory / "base.qcow2", directory / f"disk.{form}"
    program("qemu-img", "create", "-q", "-f", form, str(base), str(SIZE))
    program("qemu-io", "-f", form, "-c", "write -P 3 0 8M", str(base))
    backing: tuple[str, ...] = ()
    if with_backing:
        create = ("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "qcow2")
        program(*create, str(image))
        backing = (str(base),)
    else:
        base.rename(image)
    path = parse_path(f"{form}/writeback")
    source = {"driver": "file", "filename": str(image)}
    parts = ImageParts(backing=backing)
    disk = Disk("vdl1", SIZE, source, form, path.cache, path.attachment, parts)
    with (
        socket_pair() as (near, far),
        qemu_process(
            (
                "qemu-system-x86_64", "-S", "-nodefaults", "-nographic",
                "-machine", "q35,accel=tcg", "-device", "pcie-root-port,id=hp0,chassis=1",
                "-chardev", f"socket,id=m,fd={far.fileno()}", "-mon", "chardev=m,mode=control",
            ),
            (far,),
            directory / "errors",
        ) as _,
        event_loop() as loop,
        open_channel(loop, near, "monitor", negotiate=True, timeout=30) as monitor,
    ):  # fmt: skip
        for command in attach_commands(disk, "hp0"):
            monitor.perform(command)
        yield Bench(monitor, disk, directory)


def test_no_operation_leaves_a_node_or_a_job(tmp_path: Path) -> None:
    for number, text in enumerate(ORDERS):
        directory = tmp_path / str(number)
        directory.mkdir()
        with plugged(directory, with_backing=text in WITH_BACKING) as bench:
            running = bench.on(text)
            running.prepare()
            running.start()
            while not running.ready():
                bench.monitor.pause(0.02)
            running.finish()
            running.undo()
            assert bench.monitor.execute("query-block-jobs") == [], text
            bench.unplug()
            for node in running.left_nodes:
                bench.monitor.execute("blockdev-del", {"node-name": node})
            assert bench.nodes() == set(), text


@pytest.mark.parametrize("form", ["raw", "vmdk", "vdi", "qed"])
def test_a_snapshot_of_any_image_is_qcow2_above_it_and_is_committed_back(
    form: str, tmp_path: Path
) -> None:
    with plugged(tmp_path, with_backing=False, form=form) as bench:
        running = bench.on("snapshot")
        running.finish()
        above, below = running.files_after
        assert (running.driver_after, below) == ("qcow2", tmp_path / f"disk.{form}")
        node = f"{bench.disk.serial}-above"
        shown = subprocess.run(
            ("qemu-img", "info", "-U", "--output=json", str(above)),
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        info = json.loads(shown)
        assert (info["format"], info["backing-filename-format"]) == ("qcow2", form)
        back = {"job-id": "back", "device": node, "base-node": drive_node(bench.disk)}
        bench.monitor.execute("block-commit", back)
        while not bench.monitor.execute("query-block-jobs")[0]["ready"]:
            bench.monitor.pause(0.02)
        bench.monitor.execute("block-job-complete", {"device": "back"})
        while bench.monitor.execute("query-block-jobs"):
            bench.monitor.pause(0.02)
        bench.unplug()
        assert bench.nodes() == set()
    program("qemu-io", "-f", "qcow2", "-c", "write -P 7 0 1M", str(above))
    program("qemu-img", "commit", "-q", str(above))
    check = "read -P 7 0 1M", "read -P 3 1M 7M", "read -P 0 8M 24M"
    options = [word for command in check for word in ("-c", command)]
    said = subprocess.run(
        ("qemu-io", "-f", form, *options, str(below)), check=True, capture_output=True, text=True
    ).stdout
    assert "verification failed" not in said


def test_an_operation_that_is_ended_early_leaves_nothing(tmp_path: Path) -> None:
    for text in ("backup:speed=1M", "backup:fleecing:speed=1M", "mirror:speed=1M"):
        directory = tmp_path / text.replace(":", "-")
        directory.mkdir()
        with plugged(directory, with_backing=False) as bench:
            running = bench.on(text)
            running.prepare()
            running.start()
            assert not running.ready()
            running.undo()
            assert bench.monitor.execute("query-block-jobs") == [], text
            bench.unplug()
            for node in running.left_nodes:
                bench.monitor.execute("blockdev-del", {"node-name": node})
            assert bench.nodes() == set(), text


def test_a_target_that_takes_no_more_is_named(tmp_path: Path) -> None:
    with plugged(tmp_path, with_backing=False) as bench:

        def full_target(purpose: str, driver: str) -> Mapping[str, Any]:
            made = dict(bench.new_image(purpose, driver))
            rules = {"driver": "blkdebug", "image": made["file"]}
            return {"driver": driver, "file": {**rules, "inject-error": [
                {"event": "none", "iotype": "write", "errno": 28}]}}  # fmt: skip

        access = DiskAccess(bench.monitor, lambda _size: None, full_target)
        running = parse_operation("backup").on(open_disk(bench.disk), access)
        running.prepare()
        running.start()
        with pytest.raises(OperationError, match="the backup failed: No space left on device"):
            running.finish()
        running.undo()
        bench.unplug()
        assert bench.nodes() == set()


def run_lines(bench: Bench, lines: Sequence[str]) -> None:
    """Sends lines to paste, with the names of this disk in the place of the words in capitals."""
    names = {
        "NODE": drive_node(bench.disk), "TARGET": "during-target", "JOB": "during",
        "BITMAP": "bitmap", "FILE": str(bench.directory / "new"),
        "DEVICE": backend_of(bench.disk),
    }  # fmt: skip
    for line in lines:
        for name, value in names.items():
            line = line.replace(f'"{name}"', f'"{value}"')  # noqa: PLW2901
        asked = json.loads(line)
        bench.monitor.execute(asked["execute"], asked["arguments"])


@pytest.mark.parametrize(
    "text",
    ["backup", "backup:fleecing", "backup:incremental", "mirror:copy-mode=write-blocking",
     "snapshot", "snapshot:internal", "commit", "stream"],
)  # fmt: skip
def test_the_lines_to_paste_are_taken_by_a_monitor(text: str, tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    for way in ways(parse_operation(text), "qcow2/none"):
        if way.line.startswith("{"):
            found.setdefault(way.platform, []).append(way.line)
    assert found
    for number, lines in enumerate(found.values()):
        directory = tmp_path / str(number)
        directory.mkdir()
        with plugged(directory, with_backing=False) as bench:
            running = bench.on("backup:speed=1M")
            running.prepare()
            size, new = str(SIZE), str(directory / "new")
            if text == "snapshot":
                below = ("-b", str(directory / "disk.qcow2"), "-F", "qcow2")
                program("qemu-img", "create", "-q", "-f", "qcow2", *below, new)
            elif text.startswith("backup"):
                program("qemu-img", "create", "-q", "-f", "raw", new, size)
                bitmap = {"node": drive_node(bench.disk), "name": "bitmap"}
                bench.monitor.execute("block-dirty-bitmap-add", bitmap)
            if any("JOB" in line for line in lines):
                running.start()
            run_lines(bench, lines)
