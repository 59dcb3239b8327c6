"""Whole campaigns through the real command line: real stacks, guests and fio, small and short."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.lab import Lab, require_ran_as_planned
from vdisklab.actions.measure import measure as measure_request
from vdisklab.cli.shell.main import main
from vdisklab.path.cell import PageCacheChoice
from vdisklab.plan.accelerator import AcceleratorChoice
from vdisklab.plan.settings import Request
from vdisklab.progress import Event, MeasurementStarted
from vdisklab.results.model import FailureKind, Run
from vdisklab.results.store import open_store
from vdisklab.units import MIB

pytestmark = pytest.mark.guest


def measure(lab: Lab, *paths: str, cpus: int = 1) -> tuple[int, str, list[Run]]:
    """Exit status, what was printed, and the runs; a guest whose processor stood still is no run.

    Under QEMU 7.2's TCG this was seen once: the guest's kernel said "possible timer handling issue"
    of its second processor. The cell fails as it should, and the same command measures it.
    """
    status, printed = lab.run(*paths, cpus=cpus)
    failed = [run for run in lab.runs() if run.failure is not None]
    if failed and all(stood_still(run) for run in failed):
        status, again = lab.run(*paths, cpus=cpus)
        printed += again
    return status, printed, [run for run in lab.runs() if not stood_still(run)]


def stood_still(run: Run) -> bool:
    return run.failure is not None and "detected stalls on CPUs" in run.failure.message


# A guest with a SATA disk is another boot, 9 s. Each commit finds such a disk and records it
# (test_guest_boot), and boots from an IDE disk (test_systems).
@pytest.mark.parametrize(
    "on_sata", [(), pytest.param(("raw/none/sata",), marks=pytest.mark.nightly)]
)
def test_every_bus_and_file_system_with_and_without_a_write_cache(
    lab: Lab, on_sata: tuple[str, ...]
) -> None:
    # Not raw/writethrough/usb: QEMU's usb-storage does not hand write-cache=off to its disk.
    # script/test-lab kvm has every mode on every bus; test_systems reads IDE back, and
    # test_guest_cut judges it without its write cache.
    # SCSI is in the next test.
    paths = (
        "btrfs/raw/writethrough/nvme",
        "ext4/raw/writethrough",
        *on_sata,
        "xfs/qcow2/none/usb",
    )
    _, printed, runs = measure(lab, *paths)
    assert len(runs) == len(paths), printed
    assert [run.failure.message for run in runs if run.failure] == []
    assert sorted(run.path for run in runs) == list(paths)
    for run in runs:
        checks = {check.name: check for check in run.checks}
        assert all(check.confirmed for check in run.checks)
        direct = "none" in run.path
        assert checks["kernel.o_direct"].observed == ("on" if direct else "off")
        # NVMe always announces a volatile cache (hw/nvme/ctrl.c, id->vwc).
        behind = direct or "nvme" in run.path
        assert checks["guest.write_cache"].observed == ("write back" if behind else "write through")
        write, read = sorted(run.measurements, key=lambda m: m.name, reverse=True)
        assert write.evidence.guest is not None
        assert write.evidence.qemu is not None
        assert 0 < write.evidence.guest.write_bytes <= write.evidence.qemu.write_bytes
        assert {sample.metric for sample in read.samples} >= {"iops", "latency_p99"}
        # One fio made both, and what was written was then brought to the device.
        assert all('"exec_prerun"' in measurement.raw for measurement in (write, read))
        assert write.evidence.sync_seconds is not None
        assert read.evidence.sync_seconds is None
        rates = {sample.metric: sample.value for sample in write.samples}
        assert 0 < rates["sustained"] <= rates["bandwidth"]
    require_ran_as_planned(lab, runs, lab.arguments(*paths), only=True)


# Two boots more. Each commit interrupts a campaign without guests (test_host_campaigns), kills one
# that has a guest and removes what is left (test_during), and goes on after a guest died, below.
@pytest.mark.nightly
def test_a_campaign_that_has_a_guest_is_interrupted_and_continued(lab: Lab) -> None:
    paths = ("btrfs/raw/none/sata", "raw/writethrough/nvme")
    runs = lab.stop_and_continue(signal.SIGINT, lab.arguments(*paths), planned=len(paths))
    assert [run.failure.message for run in runs if run.failure] == []


@pytest.mark.nightly
def test_a_script_repeats_a_run_by_hand(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """A disk that is plugged in, and one that is there when the guest boots."""
    status, printed, runs = measure(lab, "qcow2/writeback", "raw/none/sata")
    assert status == 0, printed
    capsys.readouterr()
    for run in runs:
        assert main(["show", run.id, "--script", "--db", str(lab.database)]) == 0
        script = lab.directory / "repeat.sh"
        script.write_text(capsys.readouterr().out)
        done = subprocess.run(
            ("sh", str(script), str(lab.work)),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        names = [line.partition(":")[0] for line in done.stdout.splitlines()]
        assert names == [measured.name for measured in run.measurements]
        assert all(re.search(r" [1-9]\d* IOPS$", line) for line in done.stdout.splitlines())
        assert not list(lab.work.glob("repeat-*"))


def test_aio_modes_iothread_and_queues_are_read_back(lab: Lab) -> None:
    """io_uring may be forbidden here; then its path is dropped by name.

    One guest has all disks, and two CPUs for those with two queues.
    """
    served = "raw/none/vhostuser:iothread=on:queues=2"
    encrypted = "qcow2:encrypt=luks:preallocation=off/none/virtio:aio=native:iothread=on:queues=2"
    paths = (
        encrypted,
        served,
        "qcow2/none/virtio:aio=io_uring",
        "qcow2:compression=zstd/none/scsi:guest_scheduler=mq-deadline:discard=unmap:discard_granularity=64k:throttle_iops=4000:werror=stop",
    )
    status, told, runs = measure(lab, *paths, cpus=2)
    assert [run.failure.message for run in runs if run.failure] == [], told
    assert status == 0, told
    assert "under emulation" in told
    require_ran_as_planned(lab, runs, lab.arguments(*paths, cpus=2))
    seen = {run.path: {check.name: check.observed for check in run.checks} for run in runs}
    assert seen[encrypted]["qemu.aio"] == "native"
    uring = "qcow2/none/virtio:aio=io_uring"
    assert seen[uring]["qemu.aio"] == "io_uring" if uring in seen else f"dropped {uring}" in told
    compressed = next(checks for path, checks in seen.items() if "compression" in path)
    assert compressed["host.image.compression"] == "zstd"
    assert compressed["kernel.o_direct"] == "on"
    assert compressed["guest.write_cache"] == "write back"
    assert compressed["guest.scheduler"] == "mq-deadline"
    assert compressed["guest.discard_granularity"] == "65536"
    assert compressed["qemu.werror"] == "stop"
    assert compressed["qemu.aio"] == "threads"
    assert seen[served]["qemu.export"] == "vhost-user-blk"
    assert seen[served]["qemu-storage-daemon.version"] == compressed["qemu.version"]
    for path, checks in seen.items():
        if "iothread=on" in path:
            assert checks["qemu.iothread"].endswith("-io")
            assert checks["guest.queues"] == "2"


@pytest.mark.nightly
def test_a_disk_that_keeps_nothing_is_measured(lab: Lab) -> None:
    """QEMU's null-co, whose writes and reads cost only the way to it."""
    status, printed, runs = measure(lab, "null")
    assert status == 0, printed
    (run,) = runs
    assert all(check.confirmed for check in run.checks)
    require_ran_as_planned(lab, runs, lab.arguments("null"))


@dataclass
class Killer:
    """Kills the guest that is the first to begin a measurement."""

    lab: Lab
    status: list[str] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        if isinstance(event, MeasurementStarted) and not self.status:
            (guest,) = self.lab.guests()
            self.status.append(Path(f"/proc/{guest}/status").read_text())
            os.kill(guest, signal.SIGKILL)


# Two boots more. Each commit sees a guest die in a group (test_guest_groups), with its last words,
# and goes on after a cell that failed on the host (test_host_campaigns).
@pytest.mark.nightly
def test_a_guest_that_dies_says_its_last_words_and_the_campaign_goes_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status of the command is 8, as in test_host_campaigns."""
    monkeypatch.setenv("VDISKLAB_STATE", str(lab.state))
    request = Request(
        paths=("raw/{none,writeback}",), profile=str(lab.directory / "short.toml"), rounds=1,
        runtime=0.2, ramp=0.0, size_bytes=32 * MIB, guest_cpus=1,
        accelerator=AcceleratorChoice.TCG, directory=lab.work, baseline="none",
        page_cache=PageCacheChoice.COLD,
    )  # fmt: skip
    killer = Killer(lab)
    with open_store(f"sqlite:///{lab.database}") as store:
        assert measure_request(store, request, killer).failed == 1
    assert "Seccomp:\t2\n" in killer.status[0]
    failed, measured = lab.runs()
    assert failed.failure is not None
    assert failed.failure.kind is FailureKind.GUEST
    assert "connection was lost" in failed.failure.message
    assert "last lines of the guest's console" in failed.failure.message
    assert failed.measurements == ()
    assert len(measured.measurements) == 2
