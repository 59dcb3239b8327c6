"""What --age means, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.campaign.plans import PROFILE
from vdisklab.campaign.schedule import Slot, campaign_seconds, room_needed, run_seconds
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.plan.age import NEW, Age, not_aged, parse_age
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.settings import Request


@given(st.integers(0, 95), st.integers(0, 1000), st.integers(0, 1000))
def test_every_age_is_read_back(fill: int, rewrites: int, snapshots: int) -> None:
    age = Age(fill, rewrites, min(rewrites, snapshots))
    if age != NEW:
        assert parse_age(str(age)) == age


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "unknown ageing ''"),
        ("age=3", "unknown ageing 'age'"),
        ("fill", "fill= is not possible"),
        ("fill=96%", "fill=96% is not possible"),
        ("fill=0", "fill=0 is not possible"),
        ("rewrites=3%", "rewrites=3% is not possible"),
        ("rewrites=-1", "rewrites=-1 is not possible"),
        ("rewrites=99999", "rewrites=99999 is not possible"),
        ("rewrites=1,rewrites=1", "rewrites is given twice"),
        ("snapshots=1", "a snapshot without writes"),
        ("rewrites=1,snapshots=2", "a snapshot without writes"),
    ],
)
def test_what_is_no_age_says_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_age(text)
    assert problem in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("path", "age", "reason"),
    [
        ("raw/none", "fill=50%", "your own file system"),
        ("lvm/none", "fill=50%", "a block device"),
        ("tmpfs/raw", "fill=50%", "tmpfs has none"),
        ("zfs/raw/none", "fill=50%", "zfs has none"),
        ("ext4/virtiofs", "fill=50%,rewrites=1", "a directory has no image"),
        ("ext4/qcow2:backing=2/none", "rewrites=1", "a chain has written overlays"),
        ("ext4/raw/none", "rewrites=1,snapshots=1", "only qcow2"),
        ("ext4/qcow2:data_file=on/none", "rewrites=1,snapshots=1", "only qcow2"),
        ("ext4/qcow2/none", "fill=80%,rewrites=2,snapshots=1", None),
        ("lvm/qcow2/none", "rewrites=2,snapshots=1", None),
        ("ext4/virtiofs", "fill=80%", None),
        ("null", "fill=80%,rewrites=2,snapshots=1", None),
    ],
)
def test_what_cannot_be_aged(path: str, age: str, reason: str | None) -> None:
    refused = not_aged(parse_path(path), parse_age(age))
    if reason is None:
        assert refused is None
    else:
        assert refused is not None
        assert reason in refused.reason
        assert refused.instead


def aged(text: str | None, *paths: str) -> CampaignPlan:
    age = None if text is None else parse_age(text)
    request = Request(paths=paths, size_bytes=64 << 20, baseline="none", seed=1, age=age)
    return build_plan(request, Capabilities(), PROFILE)


def test_the_plan_counts_room_and_time_and_is_another_campaign() -> None:
    new, old = (aged(age, "ext4/qcow2/none") for age in (None, "fill=75%,rewrites=40,snapshots=1"))
    assert new.fingerprint != old.fingerprint
    assert old.as_json()["age"] == "fill=75%,rewrites=40,snapshots=1"
    assert room_needed(old) > 2 * room_needed(new)
    slots = (Slot(1, 1, new.cells[0]),)
    assert campaign_seconds(old, slots) > campaign_seconds(new, slots) + 5
    thin_new, thin_old = (
        aged(age, "ext4/qcow2:preallocation=off/none") for age in (None, "rewrites=40")
    )
    assert run_seconds(thin_old)(thin_old.cells[0]) > run_seconds(thin_new)(thin_new.cells[0])


def test_paths_that_cannot_be_aged_are_dropped_by_name() -> None:
    plan = aged("rewrites=1,snapshots=1", "ext4/{raw,qcow2}/none")
    assert [cell.path.canonical for cell in plan.cells] == ["ext4/qcow2/none"]
    assert any(drop.path == "ext4/raw/none" for drop in plan.dropped)
    with pytest.raises(PlanError, match="only qcow2"):
        aged("rewrites=1,snapshots=1", "ext4/raw/none")
