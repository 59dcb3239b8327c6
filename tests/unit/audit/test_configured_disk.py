"""Each risk of an existing disk is seen, and a path that cannot work says so."""

from __future__ import annotations

import pytest

from vdisklab.audit.configured_disk import (
    UNKNOWN_CONTEXT,
    AioConflict,
    ConfiguredDisk,
    DiskContext,
    FlushAfterEachWrite,
    FlushesDropped,
    FlushesDroppedBelow,
    FuaForgotten,
    HangsOnGuestFlushes,
    MayOutgrow,
    NoDiscard,
    Risk,
    SlowBus,
    risks,
)
from vdisklab.path.disk_path import parse_path
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import CacheMode


def risks_of(path: str, context: DiskContext = UNKNOWN_CONTEXT) -> tuple[Risk, ...]:
    return risks(ConfiguredDisk("d", "vda", "/a", parse_path(path)), context)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("raw/unsafe", (FlushesDropped(),)),
        ("raw/none", (HangsOnGuestFlushes(in_memory=False),)),
        ("tmpfs/raw/none", (FlushesDroppedBelow("tmpfs is memory"),)),
        ("ext4:barrier=off/raw/directsync",
         (FlushesDroppedBelow("ext4:barrier=off sends no flushes to the disk"),)),
        ("raw/default", (HangsOnGuestFlushes(in_memory=True),)),
        ("raw/writethrough", (FlushAfterEachWrite(),)),
        ("raw/none/nvme", (FuaForgotten(), HangsOnGuestFlushes(in_memory=False))),
        ("raw/default/nvme", (FuaForgotten(), HangsOnGuestFlushes(in_memory=True))),
        ("raw/none/nvme:write_cache=off", (FlushAfterEachWrite(),)),
        ("raw/directsync/nvme", (FlushAfterEachWrite(),)),
        ("raw/unsafe/nvme", (FlushesDropped(),)),
        ("raw/writeback/virtio:write_cache=off", (FlushAfterEachWrite(),)),
        ("raw/writethrough/virtio:write_cache=on", (HangsOnGuestFlushes(in_memory=True),)),
        ("raw/writeback/virtio:aio=native",
         (AioConflict(CacheMode.WRITEBACK), HangsOnGuestFlushes(in_memory=True))),
        ("qcow2:preallocation=off/none", (HangsOnGuestFlushes(in_memory=False), NoDiscard())),
        ("qcow2:preallocation=off/none/virtio:discard=unmap",
         (HangsOnGuestFlushes(in_memory=False),)),
    ],
)  # fmt: skip
def test_each_risk_is_seen(path: str, expected: tuple[Risk, ...]) -> None:
    assert risks_of(path) == expected


def test_emulated_controllers_and_impossible_paths_are_seen() -> None:
    assert any(isinstance(risk, SlowBus) for risk in risks_of("raw/none/ide"))
    assert any(isinstance(risk, Impossible) for risk in risks_of("ext4/none"))


def test_a_thin_image_on_a_nearly_full_file_system_is_seen() -> None:
    tight = DiskContext(virtual_size=100, allocated=10, free=50)
    assert MayOutgrow(90, 50) in risks_of("qcow2/none", tight)
    assert NoDiscard() in risks_of("qcow2/none", tight)
    roomy = DiskContext(virtual_size=100, allocated=100, free=0)
    assert not any(isinstance(risk, MayOutgrow) for risk in risks_of("qcow2/none", roomy))
