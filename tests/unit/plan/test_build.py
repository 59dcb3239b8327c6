"""Requests become plans: defaults, baseline, seed, and the numbers that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import HostError, PlanError, VdisklabError
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.named_target import parse_target
from vdisklab.plan.accelerator import Accelerator, AcceleratorChoice
from vdisklab.plan.build import backing_of, build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities, Missing
from vdisklab.plan.guest import GuestPlan
from vdisklab.plan.profile import MeasurementPlan, Profile, Usual
from vdisklab.plan.settings import Request
from vdisklab.value import replace

PROFILE = Profile("tiny", "Tiny", (MeasurementPlan("one", "fio", {"rw": "read"}),))
REQUEST = Request(paths=("raw/none",), directory=Path("/srv"))


def build(request: Request, capabilities: Capabilities | None = None) -> CampaignPlan:
    return build_plan(request, capabilities or Capabilities(), PROFILE)


def labels(plan: CampaignPlan) -> list[str]:
    return [cell.label for cell in plan.cells]


def test_defaults() -> None:
    plan = build(REQUEST)
    assert (plan.rounds, plan.runtime, plan.ramp, plan.size_bytes) == (5, 5.0, 0.5, 1 << 30)
    assert (plan.guest, plan.label, plan.directory) == (GuestPlan(), "", Path("/srv"))


def test_what_was_asked_for_is_in_the_plan() -> None:
    plan = build(
        Request(
            paths=("raw/writeback",), rounds=3, runtime=1, ramp=0, size_bytes=64 << 20, seed=7,
            page_cache=PageCacheChoice.WARM, label="x", baseline="none",
            guest_cpus=4, guest_memory=256 << 20, accelerator=AcceleratorChoice.KVM,
            guest_kernel="/boot/vmlinuz",
        )
    )  # fmt: skip
    assert (plan.rounds, plan.runtime, plan.ramp, plan.size_bytes) == (3, 1.0, 0.0, 64 << 20)
    assert (plan.seed, plan.label, labels(plan)) == (7, "x", ["raw/writeback (warm)"])
    assert plan.guest == GuestPlan(4, 256 << 20, Accelerator.KVM, "/boot/vmlinuz")
    assert plan.directory.is_absolute()


@pytest.mark.parametrize(
    ("paths", "asked", "baseline", "cells"),
    [
        (("raw/none",), None, "host", ["host", "raw/none"]),
        (("raw/none", "ext4/host", "host"), None, "ext4/host", ["raw/none", "ext4/host", "host"]),
        (("raw/none", "host"), "none", "raw/none", ["raw/none", "host"]),
        (("raw/none",), "none", "raw/none", ["raw/none"]),
        (("raw/none",), "raw/none/virtio", "raw/none", ["raw/none"]),
        (
            ("raw/none",),
            "raw/writeback",
            "raw/writeback",
            ["raw/writeback (cold)", "raw/writeback (warm)", "raw/none"],
        ),
    ],
)
def test_baseline(
    paths: tuple[str, ...], asked: str | None, baseline: str, cells: list[str]
) -> None:
    plan = build(Request(paths=paths, baseline=asked))
    assert plan.baseline.canonical == baseline
    assert labels(plan) == cells


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ("ext4/none", PlanError, "ext4/none cannot exist"),
        ("zfs/host", HostError, "zfs/host cannot be measured"),
        ("{raw,qcow2}/none", PlanError, "expands to 2 paths"),
        ("ext9/host", PlanError, "unknown segment"),
        ("", PlanError, "the path is empty"),
    ],
)
def test_wrong_baseline(asked: str, error: type[VdisklabError], message: str) -> None:
    capabilities = Capabilities(stacks={"zfs": Missing("no zfs", "install it")})
    with pytest.raises(error, match=message):
        build(replace(REQUEST, baseline=asked), capabilities)


def test_a_host_that_cannot_be_the_baseline_is_listed() -> None:
    capabilities = Capabilities(direct_io={"": False})
    plan = build(Request(paths=("raw/unsafe",), page_cache=PageCacheChoice.COLD), capabilities)
    assert labels(plan) == ["raw/unsafe (cold)"]
    assert plan.baseline.canonical == "raw/unsafe"
    assert [dropped.path for dropped in plan.dropped] == ["host"]


def test_the_same_plan_has_the_same_seed_and_fingerprint() -> None:
    plan = build(REQUEST)
    assert plan == build(REQUEST)
    assert plan.fingerprint == build(replace(REQUEST, rounds=50, label="later")).fingerprint
    assert 0 <= plan.seed < 1 << 32


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, paths=("qcow2/none",)),
        replace(REQUEST, runtime=6.0),
        replace(REQUEST, size_bytes=2 << 30),
        replace(REQUEST, directory=Path("/mnt")),
        replace(REQUEST, guest_cpus=3),
        replace(REQUEST, baseline="none"),
    ],
)
def test_another_plan_has_another_seed_and_fingerprint(other: Request) -> None:
    assert build(REQUEST).seed != build(other).seed
    assert build(REQUEST).fingerprint != build(other).fingerprint


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"rounds": -1}, "rounds is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1 << 63}, "seed is"),
        ({"runtime": 0}, "runtime is 0 s"),
        ({"runtime": float("nan")}, "runtime is nan s"),
        ({"runtime": float("inf")}, "runtime is inf s"),
        ({"ramp": -1.0}, "ramp is -1 s"),
        ({"size_bytes": 0}, "size is 0"),
        ({"size_bytes": 8 << 20}, "size is 8M"),
        ({"size_bytes": (16 << 20) + 1}, "size is 16777217"),
        ({"size_bytes": 1 << 60}, "size is"),
        ({"guest_cpus": 0}, "--guest-cpus is 0"),
        ({"guest_memory": 1 << 20}, "--guest-memory is 1M"),
        ({"arc_bytes": 1 << 20}, "--arc is 1M"),
        ({"disks": 27}, "--disks is 27"),
        ({"scale": 0.0}, "--scale is 0"),
    ],
)
def test_numbers_that_no_campaign_can_be_run_with(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        build(replace(REQUEST, **wrong))  # type: ignore[arg-type]
    assert caught.value.hint


@pytest.mark.parametrize(
    ("bus", "cpus", "hint"),
    [
        ("virtio:iothreads=3", 2, "add --guest-cpus 3"),
        ("scsi:iothreads=3:queues=2", 4, "write queues=3"),
        ("virtio:iothreads=3", 3, None),
    ],
)
def test_iothreads_without_a_queue_are_refused(bus: str, cpus: int, hint: str | None) -> None:
    request = Request(paths=(f"raw/none/{bus}",), baseline="none", guest_cpus=cpus)
    if hint is None:
        assert len(build(request).cells) == 1
        return
    with pytest.raises(PlanError, match=r"iothreads=3 share .* only 2") as caught:
        build(request)
    assert caught.value.hint == hint


def test_the_guests_kernel_needs_the_schedulers_of_the_paths() -> None:
    paths = ("raw/none/virtio:guest_scheduler={none,bfq}", "qcow2/none")
    plan = build(Request(paths=paths, guest_scheduler=("kyber",)))
    assert plan.guest.schedulers == {"none", "bfq", "kyber"}


def test_more_queues_than_cpus_are_dropped_with_the_way_out() -> None:
    plan = build(Request(paths=("raw/none/{virtio,virtio:queues=4}",), baseline="none"))
    assert [cell.label for cell in plan.cells] == ["raw/none"]
    assert [row.instead for row in plan.dropped] == ["add --guest-cpus 4"]
    with pytest.raises(PlanError, match="queues=4"):
        build(Request(paths=("raw/none/virtio:queues=4",), baseline="none"))
    request = Request(paths=("raw/none/virtio:queues=4",), baseline="none", guest_cpus=4)
    assert build(request).dropped == ()


def test_a_profile_names_the_paths_if_the_user_does_not() -> None:
    profile = replace(PROFILE, usual=Usual(paths=("{raw,qcow2}/none",)))
    usual = build_plan(Request(baseline="none"), Capabilities(), profile)
    assert labels(usual) == ["raw/none", "qcow2/none"]
    plan = build_plan(Request(paths=("vmdk/none",), baseline="none"), Capabilities(), profile)
    assert labels(plan) == ["vmdk/none"]


def test_several_guests_start_in_a_ramp_also_if_the_profile_has_none() -> None:
    profile = replace(PROFILE, usual=Usual(ramp=0.0))
    for request, ramp in (
        (REQUEST, 0.0),
        (replace(REQUEST, guests=("1",)), 0.0),
        (replace(REQUEST, guests=("1", "2")), 0.5),
        (replace(REQUEST, paths=("raw/none/virtio:guests=2",)), 0.5),
        (replace(REQUEST, paths=("raw/none/virtio:guests=2",), ramp=2.0), 2.0),
    ):
        assert build_plan(request, Capabilities(), profile).ramp == ramp


def test_a_profile_names_the_page_cache_if_the_user_does_not() -> None:
    profile = replace(PROFILE, usual=Usual(page_cache=PageCacheChoice.COLD))
    asked = replace(REQUEST, paths=("raw/writeback",), baseline="none")
    assert labels(build_plan(asked, Capabilities(), profile)) == ["raw/writeback (cold)"]
    both = replace(asked, page_cache=PageCacheChoice.BOTH)
    assert len(build_plan(both, Capabilities(), profile).cells) == 2


def test_axes_in_the_guest_multiply_the_guests_paths() -> None:
    request = Request(paths=("raw/none", "host"), guest_scheduler=("none", "mq-deadline"))
    assert labels(build(request)) == [
        "raw/none/virtio:guest_scheduler=none",
        "raw/none/virtio:guest_scheduler=mq-deadline",
        "host",
    ]


def test_a_guests_file_system_needs_a_measurement_of_files() -> None:
    with pytest.raises(PlanError, match=r"no measurement of profile .* uses files"):
        build(Request(paths=("raw/none",), guest_fs=("xfs",), baseline="none"))


@pytest.mark.parametrize(("kind", "least"), [("xfs", 300), ("btrfs", 109)])
def test_a_disk_too_small_for_the_guests_file_system_is_refused(kind: str, least: int) -> None:
    """mkfs in the guest would refuse it after the boot, with its whole usage."""
    files = MeasurementPlan("one", "fio", {"rw": "write", "bs": "4k", "size": "8M"}, "ext4")
    request = Request(
        paths=(f"raw/none/virtio:guest_fs={kind}", "raw/none", "virtiofs", "host"),
        baseline="none",
        size_bytes=(least - 1) << 20,
    )
    plan = build_plan(request, Capabilities(), Profile("files", "t", (files,)))
    assert [(row.path, row.instead) for row in plan.dropped] == [
        (f"raw/none/virtio:guest_fs={kind}", f"write --size {least}M or more")
    ]
    enough = replace(request, size_bytes=least << 20)
    assert build_plan(enough, Capabilities(), Profile("files", "t", (files,))).dropped == ()


@pytest.mark.parametrize(("guests", "rate"), [(("2",), {}), ((), {"rate_iops": 40})])
def test_a_share_has_one_guest_alone(guests: tuple[str, ...], rate: dict[str, int]) -> None:
    plan = MeasurementPlan("one", "fio", {"rw": "write", "bs": "4k", **rate}, "ext4")
    request = replace(REQUEST, paths=("raw/none", "virtiofs"), guests=guests)
    with pytest.raises(PlanError, match="virtiofs is a shared directory") as error:
        build_plan(request, Capabilities(), Profile("files", "t", (plan,)))
    assert error.value.hint


@pytest.mark.parametrize("word", ["san", "/dev/sdz"])
def test_what_a_target_holds_is_given_up_by_its_name_or_its_place(word: str) -> None:
    request = Request(target=(parse_target("san=/dev/sdz"),), destroy=(Path(word),))
    backing = backing_of(request)
    assert backing.may_destroy(request.target[0])
    assert backing.destroy == ()
