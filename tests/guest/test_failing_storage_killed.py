"""What goes wrong while storage fails leaves nothing: vdisklab killed, a guest that hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.mounts import mounts_below
from vdisklab.host.waiting import wait_until
from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import RunOutcome
from vdisklab.path.segments import Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut import failing_runs
from vdisklab.powercut.client_guests import open_guests
from vdisklab.powercut.failing_runs import FailingRun, PluggedGuest, failing_image, run_failure
from vdisklab.powercut.storage_failures import StorageFailure
from vdisklab.progress import silent
from vdisklab.storage.failing_disk import Behaviour, StorageOrder
from vdisklab.storage.failing_file import FailingFile
from vdisklab.storage.site import open_site
from vdisklab.units import MIB

pytestmark = [pytest.mark.guest, pytest.mark.host]

_STOP_PROGRAM = """
for each in /proc/[0-9]*; do
    read -r name <$each/comm && [ "$name" = perl ] && kill -STOP ${each#/proc/}
done 2>/dev/null
exit 0
"""


@contextmanager
def run_once(
    cache: Path, work: Path, failure: StorageFailure, *, hang: bool = False
) -> Iterator[FailingRun]:
    """A run; with `hang` the guest's program stops for good when the storage begins to fail."""
    host = LocalHost()
    with (
        open_ledger() as ledger,
        open_site(host, ledger, work) as site,
        open_guests(
            GuestContext(host, ledger, cache, silent),
            GuestPlan(memory_bytes=512 * MIB, accelerator=Accelerator.TCG),
            frozenset({Bus.VIRTIO}), site, stops_are_errors=False,
        ) as guests,
        failing_image(site, parse_path("raw:preallocation=off/none"), "image") as image,
    ):  # fmt: skip
        plugged = hanging(guests.with_disk) if hang else guests.with_disk
        yield run_failure(site, plugged, image, failure, name="run", seed=1)


def hanging(plugged: PluggedGuest) -> PluggedGuest:
    """The same guest, whose programs in perl are stopped when its storage begins to fail."""

    @contextmanager
    def with_disk(disk: Disk) -> Iterator[tuple[Machine, str, Mapping[str, str]]]:
        obey = FailingFile.obey
        with plugged(disk) as (machine, device, observed):

            def obey_and_stop(self: FailingFile, order: StorageOrder) -> float:
                if order.behaviour is not Behaviour.GOOD:
                    machine.agent.run(("/usr/bin/sh", "-c", _STOP_PROGRAM), timeout=60)
                return obey(self, order)

            FailingFile.obey = obey_and_stop  # type: ignore[method-assign]
            try:
                yield machine, device, observed
            finally:
                FailingFile.obey = obey  # type: ignore[method-assign]

    return with_disk


@pytest.mark.nightly  # it boots a guest, and waits for one that hangs
def test_a_guest_that_never_comes_back_is_a_result_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failing_runs, "_RECOVERY_SECONDS", 5.0)
    with run_once(cache, tmp_path, StorageFailure(Behaviour.ERROR, 1.0), hang=True) as run:
        assert run.outcome is RunOutcome.HANGS
        assert run.lost == 0
        assert "no answer within 5 s after the storage was good" in run.detail
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.nightly  # it boots a guest to kill its master
def test_a_killed_vdisklab_leaves_no_guest_on_silent_storage(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage is good again at once, so QEMU can end; `clean` removes the rest."""
    state, work = tmp_path / "state", tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("VDISKLAB_STATE", str(state))
    script = textwrap.dedent(f"""
        import sys
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from tests.guest.test_failing_storage_killed import run_once
        from vdisklab.powercut.storage_failures import StorageFailure
        from vdisklab.storage.failing_disk import Behaviour
        with run_once(
            Path({str(cache)!r}), Path({str(work)!r}), StorageFailure(Behaviour.SILENT, 600.0)
        ):
            pass
    """)
    killed = subprocess.Popen([sys.executable, "-c", script])
    try:
        wait_until(lambda: has_failed(work, killed), timeout=300, what="a request without answer")
        guests = qemus(work)
        assert guests, "a guest is attached to the silent storage"
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait(30)
    clean = (sys.executable, "-m", "vdisklab", "clean")
    ended = subprocess.run(clean, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: not qemus(work), timeout=30, what="the end of the guest")
    assert mounts_below(work) == ()
    assert list(work.iterdir()) == []
    again = subprocess.run(clean, check=False, capture_output=True, text=True, timeout=120)
    assert "nothing" in again.stdout.lower(), again.stdout


def has_failed(work: Path, process: subprocess.Popen[bytes]) -> bool:
    """True once the storage has left a request without an answer."""
    assert process.poll() is None, "the run ended before its storage failed"
    return any(notes.stat().st_size for notes in work.rglob("*.notes"))


def qemus(work: Path) -> list[int]:
    """Processes of QEMU that name the work directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"qemu-system" in line and os.fsencode(work) in line:
            found.append(int(process.name))
    return found
