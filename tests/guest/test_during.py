"""Operations beside a guest's load, through the real command line: how they end badly."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.lab import Lab
from vdisklab.results.model import FailureKind, Run

pytestmark = pytest.mark.guest

FINE, ENDLESS, LONG, LONGER = "backup", "mirror:speed=1M", "backup:speed=2M", "backup:speed=3M"
NOTES = "the user's own\n" * 100


def arguments(
    lab: Lab, orders: Sequence[str], to: Path | None, *, path: str = "qcow2/none", limit: int = 6
) -> tuple[str, ...]:
    """A command that measures the orders in this order."""
    return (
        "run", path, "--during", ",".join(orders), *(() if to is None else ("--to", str(to))),
        "--during-limit", str(limit), "--rounds", "1", "--runtime", "1", "--ramp", "0.5",
        "--load", "40",
        "--size", "32M", "--accelerator", "tcg", "--guest-cpus", "1", "--page-cache", "cold",
        "--seed", str(seed_of(len(orders))), "--dir", str(lab.work), "--db", str(lab.database),
    )  # fmt: skip


def seed_of(count: int) -> int:
    """A seed with which a first round leaves its cells in order."""
    for seed in itertools.count():
        order = list(range(count))
        random.Random(f"{seed}/1").shuffle(order)  # noqa: S311 - no secret
        if order == sorted(order):
            return seed
    raise AssertionError


def when(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Returns once it is true; the process must live on."""
    deadline = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def copied(directory: Path) -> int:
    """The bytes that copies in a directory occupy."""
    sizes = 0
    for file in directory.glob("vdisklab-*/*"):
        try:
            sizes += file.stat().st_blocks * 512
        except OSError:  # removed meanwhile
            continue
    return sizes


@contextmanager
def of_the_user(directory: Path) -> Iterator[Path]:
    """A directory with a file of the user's, which stays as it is and alone."""
    directory.mkdir(exist_ok=True)
    file = directory / "notes"
    file.write_text(NOTES)
    before = hashlib.sha256(file.read_bytes()).digest()
    yield directory
    assert hashlib.sha256(file.read_bytes()).digest() == before
    assert list(directory.iterdir()) == [file]


def failures(lab: Lab) -> list[str | None]:
    return [None if run.failure is None else run.failure.message for run in in_order(lab)]


def in_order(lab: Lab) -> list[Run]:
    return sorted(lab.runs(), key=lambda run: run.position)


def test_one_ends_at_its_limit_and_one_with_vdisklab_itself(lab: Lab) -> None:
    with of_the_user(lab.directory / "backup") as to:
        with lab.start(*arguments(lab, (FINE, ENDLESS, LONG), to)) as process:
            lab.wait_for_runs(process, 2)
            when(lambda: copied(to) > 1 << 20, process)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
        assert lab.leftovers() != []
        assert len(list(to.iterdir())) > 1
        status, said = lab.call("clean")
        assert status == 0, said
        assert lab.leftovers() == []
    fine, endless = in_order(lab)
    assert fine.failure is None
    during = {sample.metric: sample.value for sample in fine.measurements[1].samples}
    assert during["copied"] == 32 << 20
    assert 0 < during["duration"] < 240
    assert {"latency_p99", "longest_stall"} <= during.keys()
    checks = {check.name: check for check in fine.checks}
    assert "dir:at=to" in (checks["to"].observed or "")
    assert checks["to.virtual_size"].confirmed
    assert endless.failure is not None
    assert "the mirror did not end within 6 s, having copied" in endless.failure.message
    assert "--during-limit, or a larger speed= than 1.0 MiB a second" in endless.failure.message


# A cell takes 10 s of CPU. Each commit tries what is done below a guest in test_layer_operations.
@pytest.mark.parametrize(
    "below",
    [
        (),
        pytest.param(
            ("host-snapshot", "host-snapshot:delete", "reflink", "scrub"), marks=pytest.mark.nightly
        ),
    ],
    ids=["inside", "below"],
)
@pytest.mark.nightly
def test_what_is_done_below_and_inside_a_guest(lab: Lab, below: tuple[str, ...]) -> None:
    orders = (*below, "backup:incremental", "trim")
    path = "btrfs/qcow2/none/virtio:discard=unmap"
    with lab.start(*arguments(lab, orders, None, path=path, limit=60)) as process:
        printed, _ = process.communicate(timeout=590)
    assert failures(lab) == [None] * len(orders), printed
    assert process.returncode == 0, printed
    runs = in_order(lab)
    during = [
        {sample.metric: sample.value for sample in run.measurements[1].samples} for run in runs
    ]
    assert all(0 < found["duration"] < 240 for found in during)
    incremental, trimmed = (found["copied"] for found in during[-2:])
    # 4 KiB at 40 requests a second, half of them writes, for a few seconds: clusters of 64 KiB.
    assert 0 < incremental < 32 << 20
    assert trimmed >= 8 << 20
    assert {check.name for check in runs[-1].checks} >= {"guest.filesystem"}


@pytest.mark.nightly  # a cell takes 10 s of CPU
def test_a_guest_on_a_raw_image_goes_on_in_a_qcow2_image_above_it(lab: Lab) -> None:
    with lab.start(*arguments(lab, ("snapshot",), None, path="raw/none", limit=60)) as process:
        printed, _ = process.communicate(timeout=300)
    assert failures(lab) == [None], printed
    during = {sample.metric: sample.value for sample in lab.runs()[0].measurements[1].samples}
    assert during["iops"] > 0
    assert during["allocated"] > 0  # the new image
    assert lab.leftovers() == []


@pytest.mark.nightly
def test_qemu_is_killed_and_the_target_is_full(lab: Lab) -> None:
    small = lab.directory / "small"
    small.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=64m", "none", str(small)), check=True)
    try:
        with of_the_user(small) as to:
            orders = (LONG, LONGER, "nothing")
            with lab.start(*arguments(lab, orders, to, limit=60)) as process:
                when(lambda: copied(to) > 1 << 20, process)
                (guest,) = lab.guests()
                os.kill(guest, signal.SIGKILL)
                when(lambda: len(lab.runs()) == 1, process)
                when(lambda: copied(to) > 1 << 20, process)
                rest = small / "filler"
                # The copy takes room meanwhile, so the last bytes may be its own.
                with suppress(OSError), rest.open("wb", buffering=0) as sink:
                    while sink.write(b"x" * (1 << 16)):
                        pass
                when(lambda: len(lab.runs()) == 2, process)
                rest.unlink()
                printed, _ = process.communicate(timeout=240)
        assert process.returncode == 8, printed
        killed, full, fine = failures(lab)
        assert "connection was lost" in (killed or "")
        # QEMU ends the job, or stops the guest at a write whose old data found no room.
        reasons = ("the backup failed: No space left on device", "so QEMU stopped the guest")
        assert any(reason in (full or "") for reason in reasons)
        assert "free some space where the copy goes" in (full or "")
        assert fine is None
        kinds = {run.failure.kind for run in in_order(lab) if run.failure is not None}
        assert FailureKind.GUEST in kinds <= {FailureKind.GUEST, FailureKind.STORAGE}
    finally:
        subprocess.run(("umount", str(small)), check=True)


@pytest.mark.nightly
def test_the_server_of_a_target_goes_away(lab: Lab) -> None:
    file, address = lab.directory / "export", lab.directory / "nbd.sock"
    file.touch()
    os.truncate(file, 32 << 20)
    serve = ("nbdkit", "-f", "-U", str(address), "file", str(file))
    with subprocess.Popen(serve, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            command_line = list(arguments(lab, (LONG, "nothing"), lab.directory, limit=60))
            command_line[command_line.index("--to") + 1] = "far"
            url = f"far=nbd+unix:///?socket={address}"
            with lab.start(*command_line, "--target", url, "--destroy", "far") as process:
                when(lambda: file.stat().st_blocks * 512 > 1 << 20, process)
                server.kill()
                printed, _ = process.communicate(timeout=240)
        finally:
            server.kill()
    assert process.returncode == 8, printed  # this host is clean, a cell failed
    assert f"{address} is left as it is: Connection refused" in printed
    gone, fine = failures(lab)
    assert "the target was lost in the middle of the run: target far" in (gone or "")
    assert "backup:speed=2M on qcow2/none failed: the target was lost" in printed
    assert "cannot be used: " in (gone or "")
    assert fine is None
    assert list(lab.work.iterdir()) == []  # what stays is on the server
    address.unlink()
    with subprocess.Popen(serve, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            when(address.exists, server)
            with lab.start("clean") as cleaning:
                said, _ = cleaning.communicate(timeout=60)
            assert cleaning.returncode == 0, said
        finally:
            server.kill()
