"""The real image in a real guest: what its scripts find on every bus, and that its programs run.

What its disks are asked is recorded: on each bus exactly what fio in the guest did.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.guest.recorded import Recorded
from tests.guest.rig import Agent, disk, running
from vdisklab.errors import GuestError, WorkloadError
from vdisklab.guest.image.guest_image import GuestImage, build_guest_image
from vdisklab.guest.image.kernel import Flavour, find_kernel
from vdisklab.guest.systems import STDERR_LOG
from vdisklab.host.command import LocalHost
from vdisklab.lab.lab_machine import boot_lab_kernel
from vdisklab.loads.load import IoKind
from vdisklab.path.segments import Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.recording.guests import find_guest
from vdisklab.recording.recorder import LOG_LIMIT, NotTraced, Wait
from vdisklab.workload.program import lines_of_log

pytestmark = pytest.mark.guest

SIZE = 64 << 20
FIND = "/usr/lib/vdisklab/find-disk"
NAME = "vdisklab-test-buses"
RECORDED = {
    "dv": ("virtio", "on-virtio"), "ds": ("scsi", "on-scsi"), "dt": ("scsi", "ten-digits"),
    "dn": ("nvme", "on-nvme"), "da": ("sata", "on-sata"),
}  # fmt: skip
"""The disks that are recorded, by their names in QEMU: bus and serial number."""


def image_for(cache: Path, buses: frozenset[Bus]) -> GuestImage:
    kernel = find_kernel(LocalHost(), cache, buses)
    assert buses <= kernel.buses
    return build_guest_image(LocalHost(), cache, kernel)


def make_disk(directory: Path, name: str) -> Path:
    path = directory / f"{name}.raw"
    with path.open("wb") as file:
        file.truncate(SIZE)
    return path


@pytest.fixture(scope="module")
def q35(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A guest with a disk on each bus that q35 has, and a second one on virtio, SCSI and NVMe."""
    directory = tmp_path_factory.mktemp("q35")
    devices = [
        "-name", f"guest={NAME},debug-threads=on", "-msg", "timestamp=on",
        *disk(0, make_disk(directory, "v"), "virtio-blk-pci,serial=on-virtio,id=dv"),
        *disk(1, make_disk(directory, "w"), "virtio-blk-pci,serial=on-dw,id=dw"),
        "-device", "virtio-scsi-pci,id=scsi",
        *disk(2, make_disk(directory, "s"), "scsi-hd,bus=scsi.0,serial=on-scsi,id=ds"),
        *disk(3, make_disk(directory, "t"),
              "scsi-hd,bus=scsi.0,serial=ten-digits,id=dt,dpofua=on"),
        *disk(4, make_disk(directory, "n"), "nvme,serial=on-nvme,id=dn"),
        *disk(5, make_disk(directory, "m"), "nvme,serial=on-dm,id=dm"),
        "-device", "qemu-xhci,id=xhci",
        *disk(6, make_disk(directory, "u"), "usb-storage,bus=xhci.0,serial=on-usb"),
        *disk(7, make_disk(directory, "a"), "ide-hd,bus=ide.0,serial=on-sata,id=da"),
        "-qmp", f"unix:{directory}/qmp,server=on,wait=off",
    ]  # fmt: skip
    with running(image_for(cache, frozenset(Bus)), directory / "console", *devices) as agent:
        yield agent


@pytest.fixture(scope="module")
def loaded(q35: Agent) -> Agent:
    """The same guest with all of its drivers."""
    status, _, err = q35.run("/usr/lib/vdisklab/load-drivers", "60")
    assert status == 0, err
    return q35


def facts(agent: Agent, *command: str) -> dict[str, str]:
    status, out, err = agent.run(*command)
    assert status == 0, err
    return dict(line.split("=", 1) for line in out.splitlines())


@pytest.mark.parametrize(
    ("serial", "device", "driver"),
    [
        ("on-virtio", "/dev/vd", "virtio_blk"),
        ("on-scsi", "/dev/sd", "virtio_scsi"),
        ("ten-digits", "/dev/sd", "virtio_scsi"),
        ("on-nvme", "/dev/nvme", "nvme"),
        ("on-usb", "/dev/sd", "usb-storage"),
        ("on-sata", "/dev/sd", "ahci"),
    ],
)
def test_each_bus_of_q35_gives_its_disk(q35: Agent, serial: str, device: str, driver: str) -> None:
    found = facts(q35, FIND, serial, "60")
    assert found["device"].startswith(device)
    assert found["driver"] == driver
    assert found["size_bytes"] == str(SIZE)
    assert found["logical_block_size"] == "512"
    assert found["write_cache"] in ("write back", "write through")
    assert int(found["nr_hw_queues"]) >= 1
    assert " " not in found["scheduler"]
    keys = {"physical_block_size", "fua", "rotational", "nr_requests", "discard_max_bytes"}
    assert keys <= found.keys()


@pytest.fixture(scope="module")
def devices(loaded: Agent) -> dict[str, str]:
    """The disks' names in the guest, by their serial numbers."""
    serials = ("on-virtio", "on-dw", "on-scsi", "ten-digits", "on-nvme", "on-dm", "on-sata")
    return {serial: facts(loaded, FIND, serial, "60")["device"] for serial in serials}


def test_a_number_is_not_found_by_its_end(loaded: Agent) -> None:
    for wrong in ("scsi", "n-scsi", "igits", "on-scsi2", "sata"):
        status, out, err = loaded.run(FIND, wrong, "0")
        assert (status, out) == (1, "")
        assert wrong in err


def test_a_disk_that_never_comes_is_a_sentence(q35: Agent) -> None:
    status, _, err = q35.run(FIND, "nowhere", "1")
    assert status == 1
    assert err == "no disk with serial number nowhere within 1 s\n"


def test_facts(q35: Agent) -> None:
    found = facts(q35, "/usr/lib/vdisklab/facts")
    assert found["cpus"] == "1"
    assert 900 << 20 < int(found["memory_bytes"]) <= 1 << 30
    assert found["kernel"].startswith(("5.", "6.", "7."))
    assert found["page_size"] == "4096"


def test_drivers_and_programs_are_there_after_load_drivers(loaded: Agent) -> None:
    drivers = loaded.run("/usr/bin/lsmod")[1]
    for name in ("virtio_blk", "virtio_scsi", "ahci", "usb_storage", "ata_piix", "nvme"):
        assert name in drivers


# psync and libaio do the work that is recorded below.
def test_fio_measures_with_io_uring(loaded: Agent, devices: dict[str, str]) -> None:
    job = fio(
        loaded, devices["on-virtio"], "--ioengine=io_uring", "--rw=randwrite", "--bs=4k",
        "--size=1M",
    )  # fmt: skip
    assert job["error"] == 0
    assert job["write"]["total_ios"] == 256


def test_fios_log_comes_with_what_it_says(loaded: Agent, devices: dict[str, str]) -> None:
    status, out, err = loaded.run(
        "/usr/bin/fio", "--name=try", f"--filename={devices['on-virtio']}", "--rw=read", "--bs=4k",
        "--size=1M", "--time_based=1", "--runtime=400ms", "--output-format=json+",
        f"--write_bw_log={STDERR_LOG}", "--log_avg_msec=40", "--per_job_logs=0",
    )  # fmt: skip
    assert status == 0, err
    assert json.loads(out)["jobs"]
    (log,) = lines_of_log(err)
    assert len(log.splitlines()) <= 10  # fewer on a busy machine, which skips windows


# Each commit's campaigns make and mount all three in a guest (test_campaigns).
@pytest.mark.parametrize(
    "kind",
    [
        "ext4",
        pytest.param("xfs", marks=pytest.mark.nightly),
        pytest.param("btrfs", marks=pytest.mark.nightly),
    ],
)
def test_file_systems_can_be_made_and_mounted(loaded: Agent, kind: str) -> None:
    script = f"""
        truncate -s 400M /tmp/{kind}.img &&
        mkfs.{kind} /tmp/{kind}.img && mount -t {kind} -o loop /tmp/{kind}.img /mnt &&
        echo held >/mnt/file && umount /mnt; status=$?; rm -f /tmp/{kind}.img; exit $status
    """
    loaded.run("/usr/bin/busybox", "mkdir", "-p", "/mnt")
    status, out, err = loaded.run("/usr/bin/busybox", "sh", "-c", script)
    assert status == 0, out + err


@pytest.mark.parametrize(
    "command",
    [
        ("sysbench", "--version"),
        ("sqlite3", ":memory:", "select 1"),
        ("/usr/bin/dd", "if=/dev/zero", "of=/dev/null", "count=1", "oflag=nocache"),
        ("bonnie++", "-d", "/run", "-u", "root", "-s", "0", "-n", "1", "-r", "1"),
        ("blkid", "/dev/vda"),
    ],
)
def test_programs_of_the_disk_run(loaded: Agent, command: tuple[str, ...]) -> None:
    status, out, err = loaded.run("/usr/bin/busybox", "env", *command)
    assert status == 0, out + err


@pytest.fixture
def recorded(devices: dict[str, str], state: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Its disks have been found: what a driver asks of a new disk is not recorded."""
    assert devices
    monkeypatch.setenv("VDISKLAB_STATE", str(state))
    return Recorded(find_guest(LocalHost(), NAME))


@pytest.fixture(scope="module")
def always_on(loaded: Agent) -> list[str]:
    """Debian's QEMU has some events on from its start."""
    return Recorded(find_guest(LocalHost(), NAME)).events_on()


def fio(agent: Agent, device: str, *arguments: str) -> dict[str, Any]:
    status, out, err = agent.run(
        "/usr/bin/fio", "--name=x", f"--filename={device}", "--direct=1", *arguments,
        "--output-format=json",
    )  # fmt: skip
    assert status == 0, err
    (job,) = json.loads(out)["jobs"]
    return dict(job)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_has_exactly_what_fio_in_the_guest_did(
    loaded: Agent,
    devices: dict[str, str],
    always_on: list[str],
    recorded: Recorded,
    name: str,
) -> None:
    did: dict[str, Any] = {}
    bus, serial = RECORDED[name]

    def work() -> None:
        time.sleep(1)
        did.update(
            fio(loaded, devices[serial], "--ioengine=libaio", "--rw=randrw", "--bsrange=4k-64k",
                "--size=4M", "--iodepth=4", "--fsync=8")
        )  # fmt: skip

    worker = Thread(target=work)
    worker.start()
    made = recorded.record(name, 60, ended_early=lambda: not worker.is_alive())
    worker.join()
    for kind, key in ((IoKind.READ, "read"), (IoKind.WRITE, "write")):
        chosen = made.kind == kind
        assert int(chosen.sum()) == did[key]["total_ios"]
        assert int(made.length[chosen].sum()) == did[key]["io_bytes"]
        assert made.is_timed[chosen].all()
    assert int((made.kind == IoKind.FLUSH).sum()) == did["sync"]["total_ios"]
    assert (made.source.bus, made.source.lost) == (bus, 0)
    assert (made.source.disk_bytes, made.source.logical_block) == (SIZE, 512)
    assert recorded.events_on() == always_on


def test_write_zeroes_of_a_virtio_disk_are_no_riddle(
    loaded: Agent, devices: dict[str, str], recorded: Recorded
) -> None:
    """mkfs zeroes its tables of inodes: QEMU counts their bytes, and does not log them."""
    ended: list[tuple[int, str, str]] = []

    def work() -> None:
        time.sleep(1)
        ended.append(
            loaded.run(
                "/usr/sbin/mkfs.ext4", "-q", "-F", "-b", "1024", "-g", "8192", "-E",
                "nodiscard,lazy_itable_init=0", devices["on-virtio"],
            )
        )  # fmt: skip

    worker = Thread(target=work)
    worker.start()
    made = recorded.record("dv", 60, ended_early=lambda: not worker.is_alive())
    worker.join()
    assert [status for status, _, _ in ended] == [0], ended
    assert int((made.kind == IoKind.WRITE).sum()) > 5
    assert made.source.lost == 0
    assert any("discards, write-zeroes or queries" in note for note in made.source.notes)


def test_two_disks_at_once_are_told_apart(
    loaded: Agent, devices: dict[str, str], recorded: Recorded
) -> None:
    def work() -> None:
        time.sleep(1)
        fio(loaded, devices["on-dw"], "--ioengine=psync", "--rw=write", "--bs=64k", "--size=16M")

    # The agent answers one at a time, so the other disk's work is a part of the guest's shell.
    other = Thread(target=work)
    other.start()
    with pytest.raises(WorkloadError, match="asked nothing of dv"):
        recorded.record("dv", 60, ended_early=lambda: not other.is_alive())
    other.join()


def test_two_busy_nvme_disks_are_not_told_apart(
    loaded: Agent, devices: dict[str, str], recorded: Recorded
) -> None:
    other = Thread(
        target=fio,
        args=(loaded, devices["on-dm"], "--ioengine=psync", "--rw=write", "--bs=64k", "--size=4M"),
    )
    other.start()
    made = recorded.try_to_record("dn", Wait(4, LOG_LIMIT, lambda: not other.is_alive()))
    other.join()
    assert isinstance(made, NotTraced)
    assert made.why.endswith("several nvme disks apart, and dm worked, too")


# Each commit's campaigns boot the cloud kernel with virtio and SCSI.
@pytest.mark.nightly
def test_cloud_kernel_serves_what_it_can_hot_plug(cache: Path, tmp_path: Path) -> None:
    buses = frozenset({Bus.VIRTIO, Bus.SCSI, Bus.NVME})
    image = image_for(cache, buses)
    kernel = find_kernel(LocalHost(), cache, buses)
    assert kernel.flavour in (Flavour.CLOUD, Flavour.HOST)
    devices = [
        *disk(0, make_disk(tmp_path, "v"), "virtio-blk-pci,serial=on-virtio"),
        "-device", "virtio-scsi-pci,id=scsi",
        *disk(1, make_disk(tmp_path, "s"), "scsi-hd,bus=scsi.0,serial=on-scsi"),
        *disk(2, make_disk(tmp_path, "n"), "nvme,serial=on-nvme"),
    ]  # fmt: skip
    with running(image, tmp_path / "console", *devices) as agent:
        for serial in ("on-virtio", "on-scsi", "on-nvme"):
            assert facts(agent, FIND, serial, "180")["size_bytes"] == str(SIZE)


def test_the_kernel_trial_of_the_lab_ends_with_its_panic(cache: Path) -> None:
    """It has no root on purpose; under a deadline that no kernel keeps it is an error."""
    kernel = find_kernel(LocalHost(), cache, frozenset({Bus.VIRTIO})).image
    boot_lab_kernel(LocalHost(), kernel, 60, Accelerator.TCG)
    with pytest.raises(GuestError, match="gave no answer within"):
        boot_lab_kernel(LocalHost(), kernel, 0.2, Accelerator.TCG)
