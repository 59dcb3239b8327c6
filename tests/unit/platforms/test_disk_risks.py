"""Each risk of an existing disk is seen, and a path that cannot work says so."""

from __future__ import annotations

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import HostDisk
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import CacheMode
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import UNKNOWN_CONTEXT, DiskContext, unknown_layers
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.risk_kinds import (
    AioConflict,
    CannotWork,
    DurableOnceFlushed,
    ErrorsIgnored,
    FlushAfterEachWrite,
    FlushesDropped,
    FlushesDroppedBelow,
    FuaForgotten,
    MayOutgrow,
    NoDiscard,
    Risk,
    SlowBus,
)
from vdisklab.value import replace


def risks_of(path: str, context: DiskContext = UNKNOWN_CONTEXT) -> tuple[Risk, ...]:
    return risks(ConfiguredDisk("d", "vda", "/a", parse_path(path)), context)


@pytest.mark.parametrize("errors", [("reads",), ("writes", "reads")])
def test_ignored_read_errors_of_libvirt_need_both_policies(errors: tuple[str, ...]) -> None:
    """rerror_policy goes before error_policy, and `write errors` was said of reads."""
    disk = ConfiguredDisk("d", "vda", "/a", parse_path("raw/none"), ignored_errors=errors)
    risk = risks(disk)[0]
    assert risk.short == ("read errors ignored" if errors == ("reads",) else "write errors ignored")
    assert "Set error_policy='stop' and rerror_policy='stop' in its <driver>: " in str(risk)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("raw/unsafe", (FlushesDropped(),)),
        ("ext4/raw/none", (DurableOnceFlushed(in_memory=False),)),
        ("ext4/qcow2/none", (DurableOnceFlushed(in_memory=False),)),
        ("raw/none", (DurableOnceFlushed(in_memory=True),)),
        ("btrfs/raw/none", (DurableOnceFlushed(in_memory=True),)),
        ("ext4/qcow2:backing=1/none", (DurableOnceFlushed(in_memory=True),)),
        ("tmpfs/raw/none", (FlushesDroppedBelow("tmpfs is memory"),)),
        ("ext4:barrier=off/raw/directsync",
         (FlushesDroppedBelow("ext4:barrier=off sends no flushes to the disk"),)),
        ("raw/default", (DurableOnceFlushed(in_memory=True),)),
        ("raw/writethrough", (FlushAfterEachWrite(),)),
        ("ext4/raw/none/nvme", (FuaForgotten(), DurableOnceFlushed(in_memory=False))),
        ("raw/default/nvme", (FuaForgotten(), DurableOnceFlushed(in_memory=True))),
        ("raw/none/nvme:write_cache=off", (FlushAfterEachWrite(),)),
        ("raw/directsync/nvme", (FlushAfterEachWrite(),)),
        ("raw/unsafe/nvme", (FlushesDropped(),)),
        ("raw/writeback/virtio:write_cache=off", (FlushAfterEachWrite(),)),
        ("raw/writethrough/virtio:write_cache=on", (DurableOnceFlushed(in_memory=True),)),
        ("raw/writeback/virtio:aio=native",
         (AioConflict(CacheMode.WRITEBACK), DurableOnceFlushed(in_memory=True))),
        ("qcow2:preallocation=off/none", (DurableOnceFlushed(in_memory=True), NoDiscard())),
        ("qcow2:preallocation=off/none/virtio:discard=unmap",
         (DurableOnceFlushed(in_memory=True),)),
    ],
)  # fmt: skip
def test_each_risk_is_seen(path: str, expected: tuple[Risk, ...]) -> None:
    assert risks_of(path) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("ext4/raw/none", ()),
        ("ext4/raw/none/nvme", ()),
        ("ext4/raw/writeback", (DurableOnceFlushed(in_memory=True),)),
        ("ext4/qcow2:snapshots=1/none", (DurableOnceFlushed(in_memory=True),)),
        ("ext4/qcow2:backing=1/none", (DurableOnceFlushed(in_memory=True),)),
        ("ext4:barrier=off/raw/directsync", (FlushAfterEachWrite(),)),
        ("ext4/raw/unsafe", (FlushesDropped(),)),
    ],
)
def test_a_disk_that_keeps_its_cache_takes_risks_away(
    path: str, expected: tuple[Risk, ...]
) -> None:
    assert risks_of(path, DiskContext(disk=HostDisk.PLP)) == expected


def test_a_mode_that_drops_flushes_is_never_the_way_out() -> None:
    said = [str(risk) for risk in risks_of("raw/unsafe/virtio:aio=native")]
    assert any("Use cache none or directsync, or io threads." in text for text in said)
    assert not any("directunsafe" in text for text in said)


def test_emulated_controllers_and_impossible_paths_are_seen() -> None:
    assert any(isinstance(risk, SlowBus) for risk in risks_of("raw/none/ide"))
    assert any(isinstance(risk, CannotWork) for risk in risks_of("ext4/none"))


def test_a_device_with_unknown_layers_is_judged_by_all_other_rules() -> None:
    assert not any(isinstance(risk, CannotWork) for risk in risks_of("none"))
    (reason,) = [r.reason for r in risks_of("none/virtio:poll=0") if isinstance(r, CannotWork)]
    assert reason == "poll is a setting of an iothread"


@pytest.mark.parametrize("path", ["virtiofs", "9p"])
def test_a_share_of_a_running_guest_is_not_called_impossible(path: str) -> None:
    """Its host layers are unknown, but a directory it has."""
    assert not any(isinstance(risk, CannotWork) for risk in risks_of(path))


def test_layers_are_known_from_a_valid_note_or_from_this_host() -> None:
    disk = ConfiguredDisk("d", "vda", "/a", parse_path("raw/none"))
    ext4 = parse_path("ext4/raw/none")
    assert unknown_layers(disk) == "the host layers of /a are unknown"
    assert unknown_layers(disk, DiskContext(layers=ext4.layers)) is None
    stacked = DiskContext(layers=ext4.layers, below="dm-0 (vg-lv) over sda")
    below = "the host layers below its file system are unknown: dm-0 (vg-lv) over sda"
    assert unknown_layers(disk, stacked) == below
    assert unknown_layers(replace(disk, noted=ext4)) is None
    stale = replace(disk, noted=parse_path("ext4/raw/unsafe"))
    assert unknown_layers(stale) == "the host layers of /a are unknown"


def test_a_thin_image_on_a_nearly_full_file_system_is_seen() -> None:
    tight = DiskContext(virtual_size=100, allocated=10, free=50)
    assert MayOutgrow(90, 50) in risks_of("qcow2/none", tight)
    assert NoDiscard() in risks_of("qcow2/none", tight)
    shared = DiskContext(virtual_size=100, allocated=10, free=95, others=2, others_grow=10)
    assert MayOutgrow(90, 95, 2, 10) in risks_of("qcow2/none", shared)
    roomy = DiskContext(virtual_size=100, allocated=100, free=0)
    assert not any(isinstance(risk, MayOutgrow) for risk in risks_of("qcow2/none", roomy))


def test_what_gives_the_guest_errors_comes_before_what_costs_speed() -> None:
    tight = DiskContext(virtual_size=100, allocated=10, free=50)
    assert risks_of("qcow2/none", tight)[-1].weight == 0
    told = risks_of("qcow2/none/virtio:werror=report", tight)
    assert isinstance(told[0], MayOutgrow)
    assert [risk.weight for risk in told] == sorted((risk.weight for risk in told), reverse=True)
    assert MayOutgrow(90, 50).weight == 0  # the guest is paused


@pytest.mark.parametrize(
    ("bus", "platform", "said"),
    [
        ("virtio", Platform.LIBVIRT, "is paused, not damaged"),
        ("virtio:werror=stop", Platform.QEMU, "is paused, not damaged"),
        ("virtio:werror=report", Platform.LIBVIRT, "error_policy='enospace'"),
        ("scsi:werror=report", Platform.PROXMOX, "Set werror=enospc on its drive"),
        ("sata:werror=ignore", Platform.QEMU, "says that it was written"),
        ("nvme", Platform.QEMU, "gets I/O errors"),
    ],
)
def test_what_becomes_of_a_guest_whose_storage_is_full_follows_from_the_policy(
    bus: str, platform: Platform, said: str
) -> None:
    tight = DiskContext(virtual_size=100, allocated=10, free=50)
    disk = ConfiguredDisk("d", "vda", "/a", parse_path(f"qcow2/none/{bus}"), platform=platform)
    (risk,) = (risk for risk in risks(disk, tight) if isinstance(risk, MayOutgrow))
    assert said in str(risk)


def test_ignored_write_errors_are_a_risk_with_and_without_a_path() -> None:
    disk = ConfiguredDisk("d", "vda", "/a", parse_path("raw/none"), ignored_errors=("writes",))
    assert risks(disk)[0] == ErrorsIgnored(
        ("writes",), "error_policy='stop' and rerror_policy='stop' in its <driver>"
    )
    assert risks(replace(disk, path=None, problem="it is on the network")) == (
        ErrorsIgnored(("writes",), "error_policy='stop' and rerror_policy='stop' in its <driver>"),
    )
    assert ErrorsIgnored(
        ("writes",), "error_policy='stop' and rerror_policy='stop' in its <driver>"
    ) not in risks(replace(disk, read_only=True))
