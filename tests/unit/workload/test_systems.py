"""Installing and booting systems: commands, what is refused, answers."""

from __future__ import annotations

import pytest

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.guest import SYSTEMS
from vdisklab.plan.profile import MeasurementPlan, Profile, Setting
from vdisklab.results.model import Direction
from vdisklab.units import GIB, MIB
from vdisklab.value import replace
from vdisklab.workload.program import Outputs, Script, Subject, Timing
from vdisklab.workload.registry import workload_for
from vdisklab.workload.systems import boot_samples, systems_of

PLACE = Subject("/mnt/x", 2 * GIB, is_device=False, is_directory=True, memory=GIB,
                scratch="/scratch")  # fmt: skip
TIMING = Timing(5, 0.5, 0.1)


def install(**settings: Setting) -> MeasurementPlan:
    return MeasurementPlan("one", "dpkg", settings, "ext4")


def script(plan: MeasurementPlan, place: Subject = PLACE) -> Script:
    return workload_for(plan).script(plan, place, TIMING)


SHORT = install(system="short")


class TestInstall:
    def test_in_a_guest_the_packages_are_a_disk(self) -> None:
        made = script(SHORT)
        assert made.command == (
            "sh", "-s", "--", "/mnt/x", "vdisklab-pkg-short", "/scratch/one.dpkg.log",
        )  # fmt: skip
        assert made.stdin is not None
        assert made.stdin.rstrip().endswith('main "$@" </dev/null')
        assert made.collect == ("/scratch/one.dpkg.log",)
        assert made.observe == ("allocated", "mapped", "flushes")

    def test_on_the_host_they_are_a_directory_and_nothing_outlives_the_program(self) -> None:
        made = script(SHORT, replace(PLACE, packages={"short": "/cache/debs"}))
        assert made.command[0] == "unshare"
        assert {"--mount", "--pid", "--kill-child"} <= set(made.command)
        assert "/cache/debs" in made.command

    def test_dpkg_is_never_told_to_leave_out_its_syncs(self) -> None:
        assert "unsafe-io" not in str(script(SHORT).stdin)

    def test_a_serial_number_fits_into_virtios_twenty_bytes(self) -> None:
        assert all(len(system.serial) <= 20 for system in SYSTEMS.values())

    @pytest.mark.parametrize(
        ("place", "reason"),
        [
            (replace(PLACE, size=64 * MIB), "needs 192 MiB and"),
            (replace(PLACE, memory=128 * MIB), "needs 256 MiB of memory and the guest has 128 MiB"),
            (replace(PLACE, as_root=False), "needs root"),
        ],
    )
    def test_what_is_too_small(self, place: Subject, reason: str) -> None:
        with pytest.raises(PlanError, match=reason):
            script(SHORT, place)

    def test_an_unknown_system(self) -> None:
        with pytest.raises(PlanError, match=r"setting system .*one of short, base"):
            script(install(system="windows"))

    def test_seconds(self) -> None:
        said = "extract_hundredths=115\ntotal_hundredths=871\npackages=26\nfiles=2172\n"
        outcome = workload_for(SHORT).parse(SHORT, Outputs(said))
        (sample,) = outcome.samples
        assert (sample.metric, sample.direction, sample.value) == (
            "duration", Direction.WRITE, 8.71,
        )  # fmt: skip

    @pytest.mark.parametrize(
        "said", ["", "total_hundredths=871\n", "total_hundredths=0\npackages=1\nfiles=1\n"]
    )
    def test_half_an_installation_is_none(self, said: str) -> None:
        with pytest.raises(WorkloadError, match="did not finish"):
            workload_for(SHORT).parse(SHORT, Outputs(said, "no room"))

    def test_each_system_of_a_profile_once(self) -> None:
        profile = Profile("p", "", (SHORT, replace(SHORT, name="two"), install(system="base")))
        assert [system.name for system in systems_of(profile)] == ["short", "base"]


class TestBoot:
    PLAN = MeasurementPlan("boot", "boot", {})
    DISK = Subject("/dev/vdb", 512 * MIB, is_device=True, memory=GIB)

    def test_it_fits(self) -> None:
        assert script(self.PLAN, self.DISK).expected > 0

    @pytest.mark.parametrize(
        ("plan", "place", "reason"),
        [
            (PLAN, replace(DISK, size=100 * MIB), "needs 256 MiB and"),
            (PLAN, replace(DISK, memory=128 * MIB), "needs 192 MiB of memory"),
            (replace(PLAN, filesystem="ext4"), DISK, "has no file system of its own"),
            (replace(PLAN, settings={"system": "short"}), DISK, "setting system is unknown"),
        ],
    )
    def test_what_cannot_be(self, plan: MeasurementPlan, place: Subject, reason: str) -> None:
        with pytest.raises(PlanError, match=reason):
            script(plan, place)

    def test_two_times(self) -> None:
        found = {sample.metric: sample.value for sample in boot_samples(2.5, 0.5)}
        assert found == {"boot_time": 2.5, "shutdown_time": 0.5}
