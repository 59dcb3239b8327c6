"""Warnings about the numbers before they are measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.campaign.plans import a_plan
from vdisklab.answers.plan import answer_plan
from vdisklab.campaign import schedule
from vdisklab.campaign.schedule import plan_warnings
from vdisklab.host.mounts import Mount
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.units import GIB
from vdisklab.value import replace
from vdisklab.views.plan import tables

BONNIE = Profile("p", "", (MeasurementPlan("b", "bonnie++", {}, "ext4"),))


def plan(*paths: str) -> CampaignPlan:
    return replace(a_plan(*paths), profile=BONNIE, size_bytes=4 * GIB)


def test_a_file_that_the_hosts_page_cache_can_hold() -> None:
    (said,) = plan_warnings(plan("raw/writeback", "raw/none"), 8 * GIB)
    assert said.startswith(
        "bonnie++'s file of 2.0 GiB fits into the host's page cache (8.0 GiB of memory): reads may "
        "never reach the disk on raw/writeback. Use --guest-memory 4G and "
    )


@pytest.mark.parametrize(
    ("paths", "memory"), [(("raw/none",), 8 * GIB), (("raw/writeback",), GIB), (("host",), 0)]
)
def test_nothing_to_say(paths: tuple[str, ...], memory: int) -> None:
    assert plan_warnings(plan(*paths), memory) == ()


def test_the_host_itself_uses_its_page_cache() -> None:
    assert plan_warnings(plan("host"), 8 * GIB)


def test_other_programs_are_not_warned_of() -> None:
    assert plan_warnings(a_plan("raw/writeback"), 8 * GIB) == ()


def test_a_work_directory_without_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    mount = Mount(Path("/"), "f2fs", "/dev/sda1", frozenset({"rw", "fsync_mode=nobarrier"}))
    monkeypatch.setattr(schedule, "mount_of", lambda _directory: mount)
    (said,) = plan_warnings(a_plan("raw/none"), 8 * GIB)
    assert said == (
        "f2fs is mounted with fsync_mode=nobarrier, so no flush reaches the disk: a power cut may "
        "lose what a guest has flushed, on every path"
    )


def test_a_program_that_runs_until_its_work_is_done_is_in_no_estimate() -> None:
    assert schedule.of_unknown_length(plan("raw/none")) == ("b",)
    assert schedule.of_unknown_length(a_plan("raw/none")) == ()


def test_the_plan_says_what_its_estimate_leaves_out(tmp_path: Path) -> None:
    def notes(of: CampaignPlan) -> str:
        answer = answer_plan(replace(of, directory=tmp_path))
        return " ".join(note for part in tables(answer) for note in part.notes)

    assert "the estimate has no time for what takes as long as it takes: b" in notes(
        plan("raw/none")
    )
    assert "the estimate has no time" not in notes(a_plan("raw/none"))
