"""The operations on a disk whose monitor writes down what it is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vdisklab.campaign.measure_during import _not_ended
from vdisklab.errors import CommandError, OperationError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.operations.operation import DiskAccess, OpenDisk, RunningOperation
from vdisklab.operations.registry import OPERATIONS, judged_operations, parse_operation
from vdisklab.path.disk_path import parse_path
from vdisklab.powercut.mid_run import parse_judged

DISK = OpenDisk(
    serial="d",
    size=1 << 20,
    driver="qcow2",
    node="d-node",
    nodes=(
        {"driver": "file", "node-name": "d-backing0-file", "read-only": True},
        {"driver": "qcow2", "node-name": "d-node"},
    ),
    image=Path("/x/d.qcow2"),
    backing=(Path("/x/base"),),
    backing_nodes=("d-backing0",),
)


class FakeMonitor:
    """Answers as a QEMU whose job has copied everything by the first look.

    Jobs have the members that QEMU 7.2 sends. `error` is the job's; `gone`: there is no job.
    """

    def __init__(
        self, *, error: str | None = None, gone: bool = False, version: tuple[int, int] = (7, 2)
    ) -> None:
        self.version = version
        self.asked: list[tuple[str, Any]] = []
        self.nodes: list[str] = ["d-node"]
        self.bitmaps: list[str] = []
        self.error = error
        self.gone = gone
        self.job: dict[str, Any] | None = None

    def _answered(self, command: str) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """The answer to a question; None for a command that changes something."""
        if command == "query-block-jobs":
            return [self.job] if self.job and not self.gone else []
        if command == "query-named-block-nodes":
            bitmaps = [{"name": name} for name in self.bitmaps]
            return [{"node-name": name, "dirty-bitmaps": bitmaps} for name in self.nodes]
        if command == "query-version":
            return {"qemu": dict(zip(("major", "minor"), self.version, strict=True))}
        return None

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = 30.0
    ) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        del timeout
        values = dict(arguments or {})
        answer = self._answered(command)
        if answer is not None:
            return answer
        self.asked.append((command, arguments))
        if command == "blockdev-add":
            self.nodes.append(values["node-name"])
        elif command == "blockdev-del":
            self.nodes.remove(values["node-name"])
        elif command == "transaction":
            for action in values["actions"]:
                self.execute(action["type"], action["data"])
        elif command == "block-dirty-bitmap-add":
            self.bitmaps.append(values["name"])
        elif command == "block-dirty-bitmap-remove":
            self.bitmaps.remove(values["name"])
        elif "job-id" in values:
            pivots = command in {"block-commit", "drive-mirror", "blockdev-mirror"}
            self.job = {"device": "during", "offset": 1 << 20, "ready": pivots,
                        "status": "ready" if pivots else "concluded"}  # fmt: skip
            if self.error:
                self.job |= {"error": self.error, "status": "concluded"}
        elif command == "block-job-complete" and self.job:
            self.job |= {"status": "concluded", "ready": False}
        elif command == "job-dismiss":
            self.job = None
        return {}


def do(text: str, monitor: FakeMonitor, sizes: list[int] | None = None) -> tuple[Path, ...]:
    """Does an operation; returns the images afterwards."""
    resized = [] if sizes is None else sizes
    running = parse_operation(text).on(DISK, DiskAccess(monitor, resized.append))
    running.prepare()
    running.start()
    running.finish()
    assert monitor.job is None, "a job that has ended is dismissed"
    return running.files_after


def backup(text: str, monitor: FakeMonitor, used: list[str]) -> RunningOperation:
    """A backup that has been begun."""
    sizes: list[int] = []
    access = DiskAccess(
        monitor,
        sizes.append,
        lambda purpose, driver: {"driver": driver, "file": purpose},
        used.append,
    )
    running = parse_operation(text).on(DISK, access)
    running.prepare()
    running.start()
    return running


def test_a_snapshot_puts_a_new_image_above() -> None:
    monitor = FakeMonitor()
    assert do("snapshot", monitor) == (
        Path("/x/d.qcow2.snapshot"), Path("/x/d.qcow2"), Path("/x/base"),
    )  # fmt: skip
    [(command, arguments)] = monitor.asked
    assert command == "blockdev-snapshot-sync"
    assert arguments["snapshot-file"] == "/x/d.qcow2.snapshot"


def test_a_commit_makes_the_image_below_writable_and_leaves_it() -> None:
    monitor = FakeMonitor()
    assert do("commit", monitor) == (Path("/x/base"),)
    assert [command for command, _ in monitor.asked] == [
        "blockdev-reopen", "block-commit", "block-job-complete", "job-dismiss",
    ]  # fmt: skip
    assert monitor.asked[0][1]["options"][0]["read-only"] is False


def test_a_mirror_leaves_the_copy() -> None:
    monitor = FakeMonitor()
    assert do("mirror", monitor) == (Path("/x/d.qcow2.mirror"),)


def test_a_resize_doubles_the_disk() -> None:
    sizes: list[int] = []
    assert do("resize", FakeMonitor(), sizes) == (Path("/x/d.qcow2"), Path("/x/base"))
    assert sizes == [2 << 20]


def test_a_job_that_fails_is_no_success() -> None:
    with pytest.raises(OperationError, match="the mirror failed: No space left"):
        do("mirror", FakeMonitor(error="No space left on device"))
    with pytest.raises(OperationError, match="ended before it had copied everything"):
        do("mirror", FakeMonitor(gone=True))


@pytest.mark.parametrize(
    ("order", "called", "way"),
    [
        ("backup:fleecing", "backup with fleecing", "or a faster place for the copy"),
        ("backup:incremental", "incremental backup", "or a faster place for the copy"),
        ("backup:speed=2M", "backup", "or a larger speed= than 2.0 MiB a second"),
        ("mirror", "mirror", "it never ends"),
        ("commit", "commit", "it never ends"),
        ("stream", "stream", "or a smaller --load"),
    ],
)
def test_what_did_not_end_is_named_in_words_with_its_own_way_out(
    order: str, called: str, way: str
) -> None:
    running = parse_operation(order).on(DISK, DiskAccess(FakeMonitor(), lambda _size: None))
    error = _not_ended(running, 6)
    assert str(error).startswith(f"the {called} did not end within 6 s")
    assert way in str(error.hint)
    assert ("never ends" in str(error.hint)) == running.order.kind.follows


def test_a_trim_whose_file_has_no_room_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "dd: error writing '/mnt/deleted': No space left on device"
    programs = {"fstrim": "", "dd": f'echo "{reason}\n8+0 records in\n7+0 records out" >&2; exit 1'}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def in_guest(*argv: str) -> str:
        return LocalHost().run(*argv).stdout

    access = DiskAccess(
        FakeMonitor(), lambda _size: None, in_guest=in_guest, mount_point=str(tmp_path)
    )
    with pytest.raises(CommandError) as failed:
        parse_operation("trim").on(DISK, access).prepare()
    assert str(failed.value) == f"`sh -c … {tmp_path} 1` exited with 1: {reason}"


def test_what_no_power_cut_is_judged_in_is_named() -> None:
    with pytest.raises(PlanError, match="in the middle of the operation nothing"):
        parse_judged("nothing")


def test_a_backup_has_the_workers_and_the_speed_that_were_ordered() -> None:
    monitor = FakeMonitor()
    running = backup("backup:workers=1:speed=10M:compress=on", monitor, [])
    made, job = (arguments for _, arguments in monitor.asked)
    assert made["driver"] == "qcow2"
    assert (job["x-perf"], job["speed"], job["compress"]) == ({"max-workers": 1}, 10 << 20, True)
    running.finish()
    running.undo()
    assert monitor.nodes == ["d-node"]
    assert running.copied == 1 << 20


@pytest.mark.parametrize(
    ("version", "discards"), [((7, 2), False), ((9, 0), False), ((9, 1), True), ((10, 0), True)]
)
def test_fleecing_discards_what_it_has_copied_where_qemu_can(
    version: tuple[int, int], *, discards: bool
) -> None:
    monitor = FakeMonitor(version=version)
    backup("backup:fleecing", monitor, [])
    assert monitor.asked[-1][1].get("discard-source", False) is discards
    backup("backup", monitor, [])
    assert "discard-source" not in monitor.asked[-1][1]


def test_fleecing_gives_the_device_its_disk_back() -> None:
    monitor, used = FakeMonitor(), list[str]()
    running = backup("backup:fleecing", monitor, used)
    assert used == ["during-filter"]
    assert monitor.asked[-1][1]["device"] == "during-snapshot"
    running.undo()
    assert used == ["during-filter", "d-node"]
    assert monitor.nodes == ["d-node"]
    assert monitor.job is None


@pytest.mark.parametrize(
    ("order", "path", "reason"),
    [
        ("snapshot", "lvm/none", "lies in no file"),
        ("snapshot", "lvm/qcow2/none", "lies in no file"),
        ("snapshot", "raw:encrypt=luks/none", "the new image would not be"),
        ("stream", "qcow2/none", "nothing to stream from"),
        ("commit", "qcow2/none", "nothing to commit to"),
        ("snapshot:internal", "raw/none", "no place for a snapshot inside"),
        ("snapshot:delete-internal", "qcow2:data_file=on/none", "its data is in another file"),
        ("resize", "ext4/vmdk/none", "gives no vmdk image another size"),
    ],
)
def test_a_refusal_says_why(order: str, path: str, reason: str) -> None:
    refused = parse_operation(order).refusal(parse_path(path))
    assert refused is not None
    assert reason in refused.reason
    assert refused.instead


def test_what_cannot_be_done_on_a_path_is_refused() -> None:
    commit = parse_operation("commit")
    refused = commit.refusal(parse_path("ext4/qcow2/none"))
    assert refused is not None
    assert "it is not an overlay" in refused.reason
    assert commit.refusal(parse_path("ext4/qcow2:backing=1/none")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defragment", "'defragment' is no operation"),
        ("snapshot:of=what", "the option 'of' is unknown to it"),
    ],
)
def test_an_order_that_is_not_understood(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        parse_operation(text)


@pytest.mark.parametrize("text", ["defragment", "backup"])
def test_a_power_cut_suggests_what_it_judges(text: str) -> None:
    with pytest.raises(PlanError) as refused:
        parse_judged(text)
    names = ", ".join(row.name for row in judged_operations())
    assert refused.value.hint == f"write one of {names}"


def test_orders_are_compared_by_what_they_say() -> None:
    assert parse_operation("commit") == parse_operation("commit")
    assert len({parse_operation("commit"), parse_operation("commit")}) == 1
    assert all(str(parse_operation(row.name)) == row.name for row in OPERATIONS)
    assert set(judged_operations()) <= set(OPERATIONS)
