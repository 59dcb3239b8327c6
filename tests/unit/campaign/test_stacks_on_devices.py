"""What stacks stand on decides which paths can exist, and in which order they are measured."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from vdisklab.campaign.host_stacks import image_key, stacks_of, takes_turns
from vdisklab.campaign.schedule import builds, room_needed, round_order, schedule
from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices, size_for
from vdisklab.path.disk_path import Image, parse_path
from vdisklab.path.segments import ImageFormat
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities, Missing, infeasible
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.plan.settings import Request
from vdisklab.value import replace

ONE = BackingDevices((Path("/dev/sdx"),))
PROFILE = Profile("p", "", (MeasurementPlan("m", "fio", {}),))


def plan_on(backing: BackingDevices, *paths: str, rounds: int = 3) -> CampaignPlan:
    request = Request(
        paths=paths, rounds=rounds, devices=backing.devices, disks=backing.disks, baseline="none"
    )
    return build_plan(request, Capabilities(), PROFILE)


def test_the_workload_on_the_host_uses_the_device_where_there_is_one() -> None:
    assert image_key(parse_path("lvm/host"), WORK_DIRECTORY) is None
    assert image_key(parse_path("host"), ONE) is None
    assert image_key(parse_path("host"), WORK_DIRECTORY) == Image(ImageFormat.RAW)


def test_stacks_that_share_a_device_are_built_once_in_a_round() -> None:
    plan = plan_on(ONE, "{ext4,xfs,btrfs}/{raw,qcow2}/none")
    assert takes_turns(plan)
    for round in range(1, 6):
        order = [cell.path.stack for cell in round_order(plan, round)]
        assert len([stack for stack, _ in groupby(order)]) == 3
    assert len({round_order(plan, round) for round in range(1, 6)}) > 1
    assert 7 <= builds(plan, tuple(schedule(plan))) <= 9
    assert room_needed(plan) == plan.size_bytes


def test_one_stack_on_a_device_is_built_once() -> None:
    plan = plan_on(ONE, "none/{virtio,scsi}", "null")
    assert not takes_turns(plan)
    assert builds(plan, tuple(schedule(plan))) == 1


@pytest.mark.parametrize("backing", [ONE, WORK_DIRECTORY])
def test_a_block_device_holds_one_image_and_a_directory_all(backing: BackingDevices) -> None:
    """The same volume as it is and under qcow2: each would overwrite the other."""
    plan = plan_on(backing, "lvm/{none,qcow2/none,qcow2/writeback}")
    assert sorted(map(str, stacks_of(plan))) == ["lvm", "lvm/qcow2"]
    assert takes_turns(plan) == (backing is ONE)
    (files,) = stacks_of(plan_on(backing, "ext4/{raw,qcow2}/none"))
    assert str(files) == "ext4"


def test_the_devices_are_part_of_the_plan_and_destroy_is_not() -> None:
    plan = plan_on(ONE, "none")
    assert plan.as_json()["devices"] == ["/dev/sdx"]
    allowed = replace(plan, backing=replace(plan.backing, destroy=plan.backing.devices))
    assert allowed.fingerprint == plan.fingerprint
    assert plan_on(WORK_DIRECTORY, "qcow2").fingerprint != plan_on(ONE, "qcow2").fingerprint


def test_disks_share_what_has_to_be_stored() -> None:
    def each(path: str, disks: int) -> int:
        return size_for(parse_path(path).layers, 1 << 30, disks)

    assert each("md:level=1/none", 2) > 1 << 30
    assert each("md:level=0/none", 4) < each("md:level=5/none", 4) < each("md:level=10/none", 4)
    assert each("zfs/raw", 4) < each("zfs:raid=raidz2/raw", 4) < each("zfs:raid=mirror/raw", 4) * 2


def test_a_stack_that_fails_says_nothing_of_others() -> None:
    here = Capabilities(stacks={"md:level=5/xfs": Missing("no md", "modprobe raid456")})
    verdict = infeasible(parse_path("md:level=5/xfs/raw"), here)
    assert verdict is not None
    assert verdict.reason == "the stack md:level=5/xfs is not available on this host: no md"
    assert infeasible(parse_path("xfs/raw"), here) is None
    assert infeasible(parse_path("md/xfs/raw"), here) is None
