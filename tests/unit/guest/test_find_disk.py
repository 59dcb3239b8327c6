"""What the guest's script says of a disk, by a directory that looks like Linux's /sys/block."""

from __future__ import annotations

import subprocess
from importlib import resources
from pathlib import Path

SCRIPT = resources.files("vdisklab.guest.image") / "guestfiles/find-disk.sh"


def write_disk(
    root: Path, name: str, *, serial: str | None, queues: int, scheduler: str = "none"
) -> None:
    disk = root / "block" / name
    (disk / "queue").mkdir(parents=True)
    (disk / "device").mkdir()
    (disk / "bdi").touch()
    (disk / "size").write_text("65536\n")
    (disk / "queue/write_cache").write_text("write back\n")
    (disk / "queue/scheduler").write_text(f"{scheduler}\n")
    for number in range(queues):
        (disk / f"mq/{number}").mkdir(parents=True)
    if serial is not None:
        (disk / "device/serial").write_text(f"{serial}\n")
        (root / "dev").mkdir(exist_ok=True)
        (root / "dev" / name).touch()


def facts(root: Path, serial: str) -> dict[str, str]:
    script = SCRIPT.read_text().replace("/sys/block", str(root / "block"))
    script = script.replace('-b "/dev/', f'-e "{root}/dev/')
    said = subprocess.run(
        ["sh", "-s", serial, "1"], input=script, capture_output=True, text=True, check=True
    )
    return dict(line.split("=", 1) for line in said.stdout.splitlines())


def test_an_nvme_disk_with_paths_has_the_queues_of_its_path(tmp_path: Path) -> None:
    """As QEMU 10 and Linux 6.1 show it: nvme0n1 is above nvme0c0n1, which has no device file."""
    write_disk(tmp_path, "nvme0n1", serial="vdl1", queues=0)
    write_disk(tmp_path, "nvme0c0n1", serial=None, queues=2, scheduler="none [kyber]")
    seen = facts(tmp_path, "vdl1")
    assert seen["device"] == "/dev/nvme0n1"
    assert (seen["queues_of"], seen["nr_hw_queues"]) == ("nvme0c0n1", "2")
    assert seen["scheduler"] == "kyber"


def test_other_disks_have_queues_of_their_own(tmp_path: Path) -> None:
    write_disk(tmp_path, "nvme0n1", serial="vdl1", queues=2)
    write_disk(tmp_path, "vdb", serial="vdl2", queues=1, scheduler="[mq-deadline] none")
    assert facts(tmp_path, "vdl1")["queues_of"] == "nvme0n1"
    seen = facts(tmp_path, "vdl2")
    assert (seen["queues_of"], seen["nr_hw_queues"]) == ("vdb", "1")
    assert seen["scheduler"] == "mq-deadline"
