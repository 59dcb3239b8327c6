"""From patterns to cells: order, duplicates, what is dropped, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from vdisklab.errors import HostError, LayersMissingError, PlanError, VdisklabError
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.disk_path import PathSyntaxError, parse_path
from vdisklab.path.segments import Aio, Bus, ImageFormat
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities, Missing, QemuLimits, infeasible
from vdisklab.plan.matrix import Matrix, expand_matrix, not_together
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.plan.settings import Request


def labels(matrix: Matrix) -> list[str]:
    return [cell.label for cell in matrix.cells]


def test_cells_stand_in_the_order_asked_for_each_once() -> None:
    matrix = expand_matrix(["{raw,qcow2}/{none,writeback}", "raw/none/virtio", "host"])
    assert labels(matrix) == [
        "raw/none",
        "raw/writeback (cold)",
        "raw/writeback (warm)",
        "qcow2/none",
        "qcow2/writeback (cold)",
        "qcow2/writeback (warm)",
        "host",
    ]
    assert matrix.dropped == ()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (PageCacheChoice.COLD, ["raw/none", "raw/unsafe (cold)"]),
        (PageCacheChoice.WARM, ["raw/none", "raw/unsafe (warm)"]),
        (PageCacheChoice.BOTH, ["raw/none", "raw/unsafe (cold)", "raw/unsafe (warm)"]),
    ],
)
def test_page_cache_states(choice: PageCacheChoice, expected: list[str]) -> None:
    assert labels(expand_matrix(["raw/{none,unsafe}"], choice)) == expected


def test_an_empty_alternative_drops_its_segment() -> None:
    assert labels(expand_matrix(["{,ext4/}raw/{none,directsync/}"])) == [
        "raw/none",
        "raw/directsync",
        "ext4/raw/none",
        "ext4/raw/directsync",
    ]


def test_what_cannot_exist_is_listed_with_its_reason() -> None:
    matrix = expand_matrix(["{lvm,ext4}/raw/none"])
    assert labels(matrix) == ["ext4/raw/none"]
    (dropped,) = matrix.dropped
    assert dropped.path == "lvm/raw/none"
    assert "block device itself" in dropped.reason
    assert dropped.instead == "leave out the format: lvm/none"


def test_a_wrong_path_is_an_error_also_within_a_matrix() -> None:
    with pytest.raises(PathSyntaxError, match="'qcow3' at character 6 of 'ext4/qcow3/none'"):
        expand_matrix(["ext4/{raw,qcow3}/none"])


@pytest.mark.parametrize(
    ("patterns", "message", "hint"),
    [
        ([], "no disk path", "write paths"),
        (["{,}"], "no disk path", "write paths"),
        ([""], "the path is empty", "ext4/qcow2/none"),
        (["raw/", "host"], "an empty segment", "one slash"),
        (["ext4/none"], "ext4/none cannot exist: ext4 holds files", "ext4/raw/none"),
        (["{ext4,xfs}/none"], "none of the 2 paths can exist; the first, ext4/none", "ext4/raw"),
        (["{1..20001}"], "more than 20000 paths", "fewer"),
        (["raw/none" + "{,}" * 15], "more than 20000 paths", "fewer"),
    ],
)
def test_nothing_left_is_an_error(patterns: list[str], message: str, hint: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        expand_matrix(patterns)
    assert hint in (caught.value.hint or "")


NO_ZFS = Missing("the kernel has no module zfs", "apt-get install zfs-dkms")
CAPABILITIES = Capabilities(
    formats={ImageFormat.QED: Missing("qemu-img makes no qed", "install a QEMU with it")},
    installed=QemuLimits(buses={Bus.NVME: Missing("QEMU has no nvme", "install qemu-system-x86")}),
    stacks={"zfs": NO_ZFS},
    aio={Aio.IO_URING: Missing("the kernel forbids io_uring", "sysctl kernel.io_uring_disabled=0")},
    direct_io={"": False, "tmpfs": False, "ext4": True, "xfs": None},
)


@pytest.mark.parametrize(
    ("text", "reason", "instead"),
    [
        ("zfs/raw/none", "host layer zfs is not available on this host: the kernel", "zfs-dkms"),
        ("zfs/host", "host layer zfs", "zfs-dkms"),
        ("ext4/qed/none", "image format qed", "install a QEMU"),
        ("ext4/raw/none/nvme", "bus nvme", "qemu-system-x86"),
        ("ext4/raw/none/virtio:aio=io_uring", "aio=io_uring", "sysctl"),
        ("raw/none", "cache mode none needs O_DIRECT, which the work directory", "writeback"),
        ("tmpfs/raw/directsync", "O_DIRECT, which tmpfs refuses here", "writeback"),
        ("tmpfs/host", "the workload on the host needs O_DIRECT", "another file system"),
    ],
)
def test_infeasible_here(text: str, reason: str, instead: str) -> None:
    verdict = infeasible(parse_path(text), CAPABILITIES)
    assert verdict is not None
    assert reason in verdict.reason
    assert instead in verdict.instead


@pytest.mark.parametrize(
    "text", ["raw/writeback", "tmpfs/raw/unsafe", "ext4/raw/none", "xfs/raw/none", "btrfs/host"]
)
def test_feasible_here(text: str) -> None:
    assert infeasible(parse_path(text), CAPABILITIES) is None


def test_without_qemu_the_host_can_still_be_measured() -> None:
    capabilities = Capabilities(
        installed=QemuLimits(guest=Missing("QEMU is not installed", "apt-get install qemu"))
    )
    matrix = expand_matrix(["ext4/{raw/none,host}"], capabilities=capabilities)
    assert labels(matrix) == ["ext4/host"]
    assert matrix.dropped[0].instead == "apt-get install qemu"


@pytest.mark.parametrize(
    ("patterns", "error", "message"),
    [
        (["zfs/raw/none"], HostError, "zfs/raw/none cannot be measured: host layer zfs"),
        (["zfs/{raw,qcow2}"], HostError, "none of the 2 paths can be measured; the first"),
        (["{zfs/raw,ext4/none}"], HostError, "none of the 2 paths can be measured"),
        (["zfs/none"], PlanError, "zfs/none cannot exist"),
    ],
)
def test_nothing_left_on_this_host(
    patterns: list[str], error: type[VdisklabError], message: str
) -> None:
    with pytest.raises(error, match=message):
        expand_matrix(patterns, capabilities=CAPABILITIES)


def test_files_on_tmpfs_are_always_cached() -> None:
    matrix = expand_matrix(["{tmpfs/,}raw/writeback"], PageCacheChoice.COLD)
    assert [cell.label for cell in matrix.cells] == ["raw/writeback (cold)"]
    assert "always in the page cache" in matrix.dropped[0].reason
    assert [c.label for c in expand_matrix(["tmpfs/raw/writeback"]).cells] == [
        "tmpfs/raw/writeback (warm)"
    ]


# A work directory on tmpfs cannot be taken out of the page cache.

IN_MEMORY = Capabilities(on_tmpfs=True)


def test_a_file_on_zfs_is_in_the_arc_and_has_no_warm_cell() -> None:
    matrix = expand_matrix(["zfs:raid=raidz1/qcow2/writeback", "zfs/raw/none", "zvol/writeback"])
    assert [cell.label for cell in matrix.cells] == [
        "zfs:raid=raidz1/qcow2/writeback (cold)",
        "zfs/raw/none",
        "zvol/writeback (cold)",
        "zvol/writeback (warm)",
    ]
    (dropped,) = matrix.dropped
    assert dropped.path == "zfs:raid=raidz1/qcow2/writeback (warm)"
    assert "keeps files in the ARC" in dropped.reason
    with pytest.raises(HostError, match="keeps files in the ARC"):
        expand_matrix(["zfs/qcow2/writeback"], PageCacheChoice.WARM)


def test_its_files_are_warm_and_those_of_a_loop_device_may_be_cold() -> None:
    paths = ("raw/{writeback,none}", "tmpfs/raw/writeback", "ext4/raw/writeback")
    cells = expand_matrix(paths, capabilities=IN_MEMORY).cells
    assert [cell.label for cell in cells] == [
        "raw/writeback (warm)",
        "raw/none",
        "tmpfs/raw/writeback (warm)",
        "ext4/raw/writeback (cold)",
        "ext4/raw/writeback (warm)",
    ]


def test_cold_is_refused_with_a_way_out() -> None:
    with pytest.raises(HostError, match=r"a work directory in memory .* cannot be cold") as told:
        expand_matrix(("raw/writeback",), PageCacheChoice.COLD, IN_MEMORY)
    assert told.value.hint == "choose --page-cache warm, or a --dir on a disk"


# Profiles that boot guests from the measured disk.

BOOT = Profile("b", "", (MeasurementPlan("boot", "boot", {}),))
FIO = MeasurementPlan("read", "fio", {"rw": "read", "bs": "4k"})


def test_the_host_is_no_baseline() -> None:
    plan = build_plan(Request(paths=("raw/none",)), Capabilities(), BOOT)
    assert [cell.path.canonical for cell in plan.cells] == ["raw/none"]


def test_what_no_guest_can_boot_from_is_dropped() -> None:
    plan = build_plan(Request(paths=("raw/none", "host", "null")), Capabilities(), BOOT)
    assert [cell.path.canonical for cell in plan.cells] == ["raw/none"]
    assert {(row.path, row.reason) for row in plan.dropped} == {
        ("host", "a boot needs a guest"), ("null/default", "there is no disk to boot from"),
    }  # fmt: skip


def test_nothing_is_left() -> None:
    with pytest.raises(PlanError, match="host cannot be measured: a boot needs"):
        build_plan(Request(paths=("host",)), Capabilities(), BOOT)


def test_a_boot_stands_alone() -> None:
    mixed = Profile("m", "", (*BOOT.measurements, FIO))
    with pytest.raises(PlanError, match="'read' would overwrite"):
        build_plan(Request(paths=("raw/none",)), Capabilities(), mixed)


def test_several_guests_need_a_ramp_in_which_they_start() -> None:
    several = parse_path("raw/none/virtio:guests=2")
    assert not_together(0.5, several) is None
    assert not_together(0.0, parse_path("raw/none/virtio:guests=1")) is None
    verdict = not_together(0.0, several)
    assert verdict is not None
    assert verdict.instead == "leave out --ramp, or write --ramp 0.5"


def test_one_configuration_is_measured_once_unless_asked() -> None:
    def cells(*paths: str, **settings: Any) -> tuple[list[str], list[str]]:  # noqa: ANN401
        plan = build_plan(
            Request(paths=paths, baseline="none", page_cache=PageCacheChoice.COLD, **settings),
            Capabilities(),
            Profile("p", "", (FIO,)),
        )
        return [cell.path.canonical for cell in plan.cells], [str(row.path) for row in plan.dropped]

    both = "{raw,qcow2}/{default,writeback}"
    assert cells(both) == (["raw/writeback", "qcow2/writeback"], ["raw/default", "qcow2/default"])
    assert cells("raw/default", "qcow2/writeback", "host")[1] == []
    assert len(cells(both, keep_equal=True)[0]) == 4
    # Other options of the bus make another configuration.
    assert cells("raw/default", "raw/writeback/virtio:write_cache=off")[1] == []
    assert cells("raw/default/nvme", "raw/writeback/nvme")[1] == ["raw/default/nvme"]


def test_nothing_is_trimmed_but_a_guests_own_disk() -> None:
    """On the host fstrim would trim the file system of the work directory."""
    trims = Profile("d", "", (MeasurementPlan("delete", "discard", {"trim": True}, "ext4"),))
    request = Request(paths=("raw/none", "host", "virtiofs"))
    plan = build_plan(request, Capabilities(), trims)
    assert [cell.path.canonical for cell in plan.cells] == ["raw/none"]
    assert [row.path for row in plan.dropped] == ["host", "virtiofs"]


def test_the_options_of_a_zfs_volume_are_axes_with_their_defaults_written_out_of_names() -> None:
    matrix = expand_matrix(["zvol:volblocksize={8k,16k}:logbias={latency,throughput}/none"])
    assert [cell.path.canonical for cell in matrix.cells] == [
        "zvol:volblocksize=8k/none", "zvol:logbias=throughput:volblocksize=8k/none",
        "zvol:volblocksize=16k/none", "zvol:logbias=throughput:volblocksize=16k/none",
    ]  # fmt: skip


def test_paths_whose_layers_are_missing_are_named_without_them() -> None:
    lacking = Capabilities(stacks={"zfs": NO_ZFS, "xfs": NO_ZFS})
    for asked, instead in (
        (["zfs/raw/none", "xfs/raw/none", "zfs/qcow2/none"], ("raw/none", "qcow2/none")),
        (["zfs/raw/none"], ("raw/none",)),
    ):
        with pytest.raises(LayersMissingError) as refused:
            expand_matrix(asked, capabilities=lacking)
        assert refused.value.paths == instead
