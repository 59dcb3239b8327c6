"""How long and how large, before anything is made."""

from __future__ import annotations

import pytest

from vdisklab.campaign.host_stacks import stacks_of
from vdisklab.campaign.schedule import (
    campaign_seconds,
    memory_needed,
    room_needed,
    run_seconds,
    schedule,
)
from vdisklab.errors import HostError
from vdisklab.path.segments import PageCache
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.settings import Request
from vdisklab.storage.site import require_guest_memory, require_memory
from vdisklab.units import GIB, MIB
from vdisklab.workload.builtin_profiles import builtin_profile

from .plans import a_plan


def test_nothing_left_takes_no_time() -> None:
    assert campaign_seconds(a_plan("raw/none"), ()) == 0.0


def test_more_runs_take_longer() -> None:
    plan = a_plan("raw/{none,directsync}")
    slots = tuple(schedule(plan))
    estimates = [campaign_seconds(plan, slots[:count]) for count in range(1, len(slots) + 1)]
    assert estimates == sorted(estimates)
    assert estimates[0] > plan.runtime


def test_a_bus_that_cannot_be_plugged_costs_a_boot() -> None:
    plan = a_plan("raw/none/{virtio,ide}")
    virtio, ide = plan.cells
    seconds = run_seconds(plan)
    assert seconds(ide) - seconds(virtio) > 1


def test_warming_the_page_cache_costs_time() -> None:
    plan = a_plan("raw/writeback")
    seconds = {cell.page_cache: run_seconds(plan)(cell) for cell in plan.cells}
    assert seconds[PageCache.WARM] > seconds[PageCache.COLD]


def test_fifty_disks_without_guests_boot_none() -> None:
    """Two rounds of 16 MiB took 66 s with these ways (bench/results/life-times.json)."""
    plan = _life("life-host", "reflink,overlay,cp", ("1", "10", "50"), 16 * MIB)
    assert 40 < campaign_seconds(plan, tuple(schedule(plan))) < 180


def test_a_copy_takes_longer_the_larger_the_disk() -> None:
    """cp of 1 GiB, twice, took 10 s, and a reflink 0.1 s."""
    plan = _life("life-host", "reflink,cp", (), GIB)
    seconds = {cell.path.attachment.made: run_seconds(plan)(cell) for cell in plan.cells}
    assert seconds["reflink"] < 3
    assert 5 < seconds["cp"] - seconds["reflink"] < 20


def _life(profile: str, made: str, guests: tuple[str, ...], size: int) -> CampaignPlan:
    request = Request(
        paths=("xfs/{raw,qcow2}/none",), rounds=2, seed=1, size_bytes=size,
        made=tuple(made.split(",")), guests=guests,
    )  # fmt: skip
    return build_plan(request, Capabilities(), builtin_profile(profile))


def test_tmpfs_is_not_counted_and_every_other_stack_is() -> None:
    alone = room_needed(a_plan("raw/none"))
    assert room_needed(a_plan("raw/none", "tmpfs/raw/writeback")) == alone
    assert room_needed(a_plan("raw/none", "xfs/raw/none")) > alone + 300 * MIB


def test_images_that_are_shared_are_counted_once() -> None:
    assert room_needed(a_plan("raw/none")) == room_needed(a_plan("raw/{none,writeback,unsafe}"))
    assert room_needed(a_plan("{raw,qcow2}/none")) > room_needed(a_plan("raw/none"))


@pytest.mark.parametrize(
    "path", ["qcow2", "qcow2:cluster_size=512", "raw", "qcow2:preallocation=off"]
)
def test_a_stack_has_room_for_the_disk_and_the_formats_tables(path: str) -> None:
    plan = a_plan(f"ext4/{path}/none")
    (capacity,) = stacks_of(plan).values()
    assert plan.size_bytes < capacity < 2 * plan.size_bytes


def test_the_null_device_needs_none() -> None:
    assert sum(stacks_of(a_plan("null")).values()) == 0
    assert room_needed(a_plan("null")) < GIB


def test_what_lies_on_tmpfs_is_memory_and_refused_when_it_does_not_fit() -> None:
    plan = a_plan("raw/none", "tmpfs/{raw,qcow2}/writeback")
    assert memory_needed(a_plan("raw/none", "xfs/raw/none")) == 0
    assert memory_needed(plan) > 2 * plan.size_bytes
    require_memory(GIB, 0, "x")  # the kernel does not say
    require_memory(GIB, GIB, "x")
    with pytest.raises(HostError, match=r"x needs 2.0 GiB of memory .* 1.0 GiB is available"):
        require_memory(2 * GIB, GIB, "x")


def test_a_guest_larger_than_its_host_is_refused() -> None:
    require_guest_memory(GIB, 0)  # the kernel does not say
    require_guest_memory(GIB, GIB)
    with pytest.raises(HostError, match=r"2.0 GiB of memory does not fit .* 1.0 GiB"):
        require_guest_memory(2 * GIB, GIB)


def _beside(orders: tuple[str, ...], runtime: float) -> CampaignPlan:
    request = Request(
        paths=("qcow2/none",), during=orders, size_bytes=128 * MIB, rounds=3, runtime=runtime
    )
    return build_plan(request, Capabilities(), builtin_profile("during"))


def test_an_operation_costs_a_probe_and_three_windows() -> None:
    """Six runs took 154 s on a machine with three other guests, 9 s and more for the load alone."""
    plan = _beside(("backup", "snapshot"), 0.5)
    assert 70 < campaign_seconds(plan, tuple(schedule(plan))) < 154
    snapshot, longer = (
        run_seconds(each)(each.cells[0]) for each in (_beside(("snapshot",), t) for t in (0.5, 2.5))
    )
    assert longer - snapshot == pytest.approx(3 * 2.0)
    slow = _beside(("backup:speed=4M",), 0.5)
    assert run_seconds(slow)(slow.cells[0]) > snapshot + 128 / 4 - 1
