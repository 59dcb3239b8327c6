"""The operations on a disk whose monitor writes down what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vdisklab.errors import OperationError, PlanError
from vdisklab.operations.operation import DiskAccess, OpenDisk
from vdisklab.operations.registry import OPERATIONS, judged_operations, parse_operation
from vdisklab.path.disk_path import parse_path

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
    """Answers as QEMU does when its only job is ready."""

    def __init__(
        self, *, jobs: list[dict[str, Any]] | None = None, error: str | None = None
    ) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.jobs = [{"device": "during", "ready": True}] if jobs is None else jobs
        self.error = error

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout: float = 30.0
    ) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        del timeout
        if command == "query-block-jobs":
            return self.jobs
        self.asked.append((command, arguments))
        return {}

    @contextmanager
    def expecting(
        self, event: str, matches: Callable[[Mapping[str, Any]], bool]
    ) -> Iterator[Callable[[float], None]]:
        data = {"device": "during", **({"error": self.error} if self.error else {})}

        def wait(seconds: float) -> None:
            del seconds
            assert (event, matches(data)) == ("BLOCK_JOB_COMPLETED", True)

        yield wait


def do(text: str, monitor: FakeMonitor, sizes: list[int] | None = None) -> tuple[Path, ...]:
    """Does an operation; returns the images afterwards."""
    resized = [] if sizes is None else sizes
    running = parse_operation(text).on(DISK, DiskAccess(monitor, resized.append))
    running.start()
    running.finish()
    return running.files_after


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
        "blockdev-reopen", "block-commit", "block-job-complete",
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
        do("mirror", FakeMonitor(jobs=[]))


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


def test_orders_are_compared_by_what_they_say() -> None:
    assert parse_operation("commit") == parse_operation("commit")
    assert len({parse_operation("commit"), parse_operation("commit")}) == 1
    assert all(str(parse_operation(row.name)) == row.name for row in OPERATIONS)
    assert set(judged_operations()) <= set(OPERATIONS)
