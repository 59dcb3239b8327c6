"""The table of programs: every program that is run names its package."""

from __future__ import annotations

import pytest

from vdisklab.errors import HostError
from vdisklab.guest.image.host_programs import PROGRAMS as GUEST_PROGRAMS
from vdisklab.host.command import LocalHost, require_programs
from vdisklab.host.programs import PROGRAMS, install_hint, package_of
from vdisklab.lab.lab_image import PACKAGES as LAB_PACKAGES


def test_a_missing_program_names_its_package_or_itself() -> None:
    assert install_hint(["vgs", "lvcreate", "mdadm"]).endswith(" lvm2 mdadm")
    assert install_hint(["mdadm", "nonesuch"]) == "install the package that contains nonesuch"
    assert package_of("nonesuch") == "nonesuch"
    with pytest.raises(HostError, match="nonesuch is not installed"):
        require_programs(LocalHost(), "sh", "nonesuch")


def test_the_table_has_every_program_of_the_guest() -> None:
    assert {program.name for program in GUEST_PROGRAMS} <= PROGRAMS.keys()


def test_the_lab_has_the_packages_of_all_layers_and_programs_that_measure() -> None:
    elsewhere = ("mmdebstrap", "libvirt-clients", "qemu-system-common", "dmsetup", "hdparm")
    essential = ("apt", "dpkg", "tar", "perl-base", "coreutils")
    wanted = {program.package for program in PROGRAMS.values()}
    assert wanted - {*elsewhere, *essential} <= set(LAB_PACKAGES)
