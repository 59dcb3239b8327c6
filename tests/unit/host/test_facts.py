"""Facts come from the kernel's files and the programs' own words; the unknown is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vdisklab.host.blockdevice import device_of, medium_of
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts, virtualised
from vdisklab.host.probes import KernelParts
from vdisklab.host.programs import QEMU

CPUINFO = """processor\t: 0
model name\t: Imaginary CPU @ 3.00GHz
microcode\t: 0x1
flags\t\t: fpu vmx{more}

processor\t: 1
model name\t: Imaginary CPU @ 3.00GHz
"""


def write(root: Path, files: dict[str, str]) -> Path:
    """A tree of small files, as the kernel shows them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def fake_program(directory: Path, name: str, script: str) -> None:
    """A scripted executable; the directory is to be on PATH."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return write(
        tmp_path / "root",
        {
            "proc/cpuinfo": CPUINFO.format(more=" hypervisor"),
            "proc/meminfo": "MemTotal:  2048 kB\nMemAvailable:  1024 kB\nSwapTotal:  0 kB\n",
            "proc/sys/kernel/hostname": "lab7\n",
            "proc/sys/kernel/osrelease": "6.1.0-9\n",
            "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
            "etc/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12"\n',
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
            "sys/devices/system/cpu/vulnerabilities/mds": "Vulnerable; SMT on\n",
            "sys/devices/system/cpu/vulnerabilities/meltdown": "Mitigation: PTI\n",
            "sys/devices/system/cpu/vulnerabilities/l1tf": "Not affected\n",
            "sys/devices/system/node/node0/cpulist": "0-1\n",
            "sys/class/dmi/id/sys_vendor": "ACME\n",
            "sys/class/dmi/id/product_name": "Cloud\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        },
    )


def test_facts_of_a_whole_machine(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    fake_program(programs, QEMU, "echo 'QEMU emulator version 7.2.22 (Debian 1:7.2)'")
    fake_program(programs, "fio", "echo fio-3.33")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    facts = collect_facts(LocalHost(), machine)
    assert (facts.hostname, facts.kernel) == ("lab7", "6.1.0-9")
    assert (facts.cpu, facts.cpus) == ("Imaginary CPU @ 3.00GHz", 2)
    assert facts.memory_bytes == 2 << 20
    assert (facts.qemu, facts.fio) == ("7.2.22 (Debian 1:7.2)", "3.33")
    assert facts.more["governor"] == "performance"
    assert facts.more["mitigations"] == "1 mitigated, 1 vulnerable (mds)"
    assert facts.more["virtualised"] == "ACME Cloud"
    assert facts.more["distribution"] == "Debian GNU/Linux 12"
    assert facts.more["transparent_hugepages"] == "madvise"
    assert facts.more["numa_nodes"] == "1"


def test_the_machine_id_is_stable_and_not_the_raw_one(machine: Path) -> None:
    first = collect_facts(LocalHost(), machine).machine_id
    assert first == collect_facts(LocalHost(), machine).machine_id
    assert first not in "0123456789abcdef0123456789abcdef"
    (machine / "etc/machine-id").write_text("")
    assert collect_facts(LocalHost(), machine).machine_id != first


def test_a_machine_that_tells_nothing_has_no_invented_facts(tmp_path: Path) -> None:
    facts = collect_facts(LocalHost(), tmp_path)
    assert facts.memory_bytes == 0
    assert facts.cpus is not None
    assert facts.cpus >= 1
    assert not {"governor", "mitigations", "virtualised", "numa_nodes"} & facts.more.keys()


def test_broken_programs_have_no_version(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_program(tmp_path / "bin", "fio", "echo broken >&2; exit 127")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert collect_facts(LocalHost(), machine).fio is None


def test_bare_metal_is_not_virtualised(machine: Path) -> None:
    (machine / "proc/cpuinfo").write_text(CPUINFO.format(more=""))
    assert virtualised(machine) is None


class FakeDisks:
    """A /sys in which the device below `directory` is what a test says."""

    def __init__(self, root: Path, directory: Path) -> None:
        self.root = root
        number = directory.stat().st_dev
        self.number = f"{os.major(number)}:{os.minor(number)}"

    def add(self, name: str, number: str, files: dict[str, str], subsystem: str = "") -> None:
        node = self.root / "sys/devices" / name
        write(node, {"dev": number, **files})
        link = self.root / "sys/dev/block" / number
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(node)
        if subsystem:
            (node / "device").mkdir(exist_ok=True)
            (self.root / "sys/bus" / subsystem).mkdir(parents=True, exist_ok=True)
            (node / "device/subsystem").symlink_to(self.root / "sys/bus" / subsystem)

    def stack(self, upper: str, lower: str) -> None:
        slaves = self.root / "sys/devices" / upper / "slaves"
        slaves.mkdir(exist_ok=True)
        (slaves / Path(lower).name).symlink_to(self.root / "sys/devices" / lower)


@pytest.fixture
def disks(tmp_path: Path) -> FakeDisks:
    return FakeDisks(tmp_path / "root", tmp_path)


SSD = {"queue/rotational": "0\n", "queue/write_cache": "write back\n"}
DISK = {"queue/rotational": "1\n", "queue/write_cache": "write through\n"}


def test_a_plain_disk(disks: FakeDisks, tmp_path: Path) -> None:
    disks.add("vda", disks.number, SSD, "virtio")
    assert medium_of(tmp_path, disks.root) == "vda virtio, non-rotational, write back"


def test_a_partition_is_its_disk(disks: FakeDisks, tmp_path: Path) -> None:
    disks.add("sda", "8:0", {**DISK, "device/model": "SPINNER 9000 \n"}, "scsi")
    disks.add("sda/sda1", disks.number, {"partition": "1\n"})
    assert medium_of(tmp_path, disks.root) == "sda scsi SPINNER 9000, rotational, write through"


def test_a_mapper_and_an_array_name_what_they_are_over(disks: FakeDisks, tmp_path: Path) -> None:
    disks.add("sda", "8:0", DISK, "scsi")
    disks.add("nvme0n1", "259:0", SSD, "nvme")
    disks.add("md0", "9:0", {"md/level": "raid1\n"})
    disks.add("dm-0", disks.number, {"dm/name": "vg-home\n"})
    disks.stack("md0", "sda")
    disks.stack("md0", "nvme0n1")
    disks.stack("dm-0", "md0")
    device = device_of(tmp_path, disks.root)
    assert device is not None
    assert [leaf.name for leaf in device.leaves()] == ["nvme0n1", "sda"]
    assert device.describe() == (
        "dm-0 (vg-home) over md0 (raid1) over nvme0n1 nvme, non-rotational, write back; "
        "sda scsi, rotational, write through"
    )


def test_a_loop_device_is_over_its_file(disks: FakeDisks, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.touch()
    # The file lies on the same device as the directory, so the loop would never end.
    disks.add("loop0", disks.number, {"loop/backing_file": f"{image}\n"})
    medium = medium_of(tmp_path, disks.root)
    assert medium is not None
    assert medium.startswith("loop0 over loop0")


def test_file_systems_without_a_device_are_named(disks: FakeDisks, tmp_path: Path) -> None:
    info = "1 0 0:1 / / rw - nfs4 server:/export rw\n"
    write(disks.root, {"proc/self/mountinfo": info})
    assert medium_of(tmp_path, disks.root) == "nfs4 server:/export"
    write(disks.root, {"proc/self/mountinfo": "1 0 0:1 / / rw - tmpfs tmpfs rw\n"})
    assert medium_of(tmp_path, disks.root) == "tmpfs"
    write(disks.root, {"proc/self/mountinfo": ""})
    assert medium_of(tmp_path, disks.root) is None


def test_btrfs_and_overlays_are_found_by_their_mounts(disks: FakeDisks, tmp_path: Path) -> None:
    disks.add("vdb", "254:16", SSD, "virtio")
    write(disks.root, {"sys/class/block/vdb/dev": "254:16\n"})
    info = "1 0 0:1 / / rw - ext4 /dev/vdz rw\n2 1 0:9 / {} rw - btrfs /dev/vdb rw\n"
    write(disks.root, {"proc/self/mountinfo": info.format(tmp_path)})
    assert medium_of(tmp_path, disks.root) == "vdb virtio, non-rotational, write back"
    info = "1 0 0:1 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/nowhere,workdir=/w\n"
    write(disks.root, {"proc/self/mountinfo": info})
    assert medium_of(tmp_path, disks.root) is None


def test_blanks_in_mount_points_are_understood(disks: FakeDisks, tmp_path: Path) -> None:
    place = tmp_path / "a b"
    place.mkdir()
    info = f"1 0 0:1 / {str(place).replace(' ', chr(92) + '040')} rw - tmpfs mine rw\n"
    write(disks.root, {"proc/self/mountinfo": info})
    assert medium_of(place, disks.root) == "tmpfs mine"


def test_kernel_parts_built_in_loadable_and_absent(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/sys/kernel/osrelease": "6.1\n",
            "proc/filesystems": "nodev\ttmpfs\n\text4\n",
            "proc/devices": "Block devices:\n  7 loop\n",
            "lib/modules/6.1/modules.dep": "kernel/fs/xfs/xfs.ko.zst: kernel/lib/crc.ko\n",
            "lib/modules/6.1/modules.builtin": "kernel/drivers/md/dm-mod.ko\n",
        },
    )
    parts = KernelParts(root)
    assert parts.has_filesystem("ext4")
    assert parts.has_filesystem("xfs")
    assert not parts.has_filesystem("zfs")
    assert parts.has_driver("loop", "loop")
    assert parts.has_driver("device-mapper", "dm_mod")
    assert not parts.has_driver("md", "md_mod")
