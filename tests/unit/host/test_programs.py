"""The table of programs: every program that is run names its package."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.guest.image.content import PROGRAMS as GUEST_PROGRAMS
from vdisklab.guest.image.content import SERVERS
from vdisklab.host.command import PROGRAMS, LocalHost, install_hint, require_programs
from vdisklab.lab.lab_image import PACKAGES as LAB_PACKAGES
from vdisklab.path.architecture import ARCHITECTURES, GUEST, Architecture


@pytest.mark.parametrize(
    ("manager", "hint"),
    [
        ("apt-get", "apt-get install --no-install-recommends qemu-utils btrfs-progs"),
        ("dnf", "dnf install qemu-img btrfs-progs"),
        ("pacman", "pacman -S --needed qemu-img btrfs-progs"),
        ("zypper", "zypper install qemu-img btrfsprogs"),
        ("apk", "install the package that contains qemu-img, mkfs.btrfs, btrfs"),
    ],
)
def test_a_hint_is_the_command_of_this_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str, hint: str
) -> None:
    (tmp_path / manager).write_text("#!/bin/sh\n")
    (tmp_path / manager).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_hint(["qemu-img", "mkfs.btrfs", "btrfs"]) == hint
    if manager == "dnf":
        assert install_hint(["zpool"]) == "install the package that contains zpool"


def test_a_missing_program_names_its_package_or_itself() -> None:
    assert install_hint(["vgs", "lvcreate", "mdadm"]).endswith(" lvm2 mdadm")
    assert install_hint(["mdadm", "nonesuch"]) == "install the package that contains nonesuch"
    with pytest.raises(HostError, match="nonesuch is not installed"):
        require_programs(LocalHost(), "sh", "nonesuch")


def test_the_table_has_every_program_of_the_guest() -> None:
    assert {program.name for program in (*GUEST_PROGRAMS, *SERVERS)} <= PROGRAMS.keys()


def of_hosts(row: Architecture) -> tuple[str, str]:
    return row.packages.emulator, row.packages.firmware


def test_the_lab_has_the_packages_of_all_layers_and_programs_that_measure() -> None:
    elsewhere = (
        "mmdebstrap",
        "libvirt-clients",
        "qemu-system-common",
        "dmsetup",
        "hdparm",
        "ovmf",
        *(name for row in ARCHITECTURES for name in of_hosts(row) if row is not GUEST),
        "virtiofsd",
        "postgresql",  # databases: an emulated CPU would be measured
        "rocksdb-tools",
        "mariadb-server-core",
        "mariadb-client-core",
        "smartmontools",  # the lab's disks are virtual
        "build-essential",  # it builds the replayer, and recorded loads are not replayed in the lab
        "crossbuild-essential-amd64",  # the same for guests of another architecture
        "crossbuild-essential-arm64",
        "blktrace",  # it records a machine's disk, and the lab's has no load of its user's
    )
    essential = ("apt", "dpkg", "tar", "perl-base", "coreutils", "libzstd1")
    wanted = {program.packages[0] for program in PROGRAMS.values()}
    assert wanted - {*elsewhere, *essential} <= set(LAB_PACKAGES)
