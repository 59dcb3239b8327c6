"""Whether a database's commits survive a power cut, in one sentence."""

from __future__ import annotations

import pytest

from vdisklab.answers.disks import ExistingDisk
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import (
    CrashStates,
    CrashVerdicts,
    PathCrashes,
    durability,
    verdict_name,
)
from vdisklab.path.segments import CacheMode
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.risk_kinds import AioConflict, FlushesDroppedBelow
from vdisklab.value import replace
from vdisklab.views.commits import commits_after_a_power_cut


def row(text: str, name: str = "vda", states: CrashStates | None = None) -> ExistingDisk:
    path = parse_path(text)
    crashes = {} if states is None else {verdict_name(path): PathCrashes(text, states)}
    disk = ConfiguredDisk("pg", name, "/srv/pg.img", path)
    return ExistingDisk(disk, path, (), power_cut=durability(path, CrashVerdicts(by_path=crashes)))


@pytest.mark.parametrize(
    ("disk", "said"),
    [
        (
            row("ext4/raw/none"),
            "keeps commits (what the guest has flushed), as far as QEMU and the host go: "
            "cache=none passes flushes on; not simulated here.",
        ),
        (
            row("qcow2/default"),
            "keeps commits (what the guest has flushed), as far as QEMU goes: the default, "
            "cache=writeback passes flushes on; its storage is not seen from here; not simulated "
            "here.",
        ),
        (
            row("ext4/raw/directsync"),
            "keeps commits (what the guest has flushed), as far as QEMU and the host go: "
            "cache=directsync flushes after each write; not simulated here.",
        ),
        (
            row("ext4/raw/unsafe"),
            "loses commits (what the guest has flushed): cache mode unsafe drops flushes.",
        ),
        (
            row("ext4/vmdk/none"),
            "loses commits (what the guest has flushed): QEMU's vmdk may give out one part of its "
            "file twice after a power cut.",
        ),
        (
            row("ext4/raw/none/nvme"),
            "loses commits (what the guest has flushed): QEMU's NVMe device acknowledges FUA "
            "writes, which journaling file systems use, before they are durable; write_cache=off "
            "prevents this.",
        ),
        (
            row("ext4/raw/none", states=CrashStates(594)),
            "kept commits (what the guest has flushed) in all of 594 simulated power cuts.",
        ),
        (
            row("ext4/raw/none", states=CrashStates(594, 2)),
            "lost commits (what the guest has flushed) in 2 of 594 simulated power cuts.",
        ),
        (
            row("rbd/writeback"),
            "keeps commits (what the guest has flushed) only if the server does: cache=writeback "
            "passes flushes on, and what the server keeps is unknown here: `ceph osd pool ls "
            "detail` there shows it; with `min_size 1`, a write may be on one disk alone.",
        ),
    ],
)
def test_the_fate_of_commits(disk: ExistingDisk, said: str) -> None:
    assert list(commits_after_a_power_cut([disk])) == [f"Power cut: pg vda {said}"]


def test_the_worst_comes_first_and_one_fate_is_said_once() -> None:
    rows = [row("ext4/raw/none"), row("ext4/qcow2/none", "vdb"), row("ext4/raw/unsafe", "vdc")]
    lost, kept = commits_after_a_power_cut(rows)
    assert lost.startswith("Power cut: pg vdc loses commits ")
    assert kept.startswith("Power cut: pg vda, pg vdb keep commits ")


def test_what_is_below_the_image_counts() -> None:
    kept = row("ext4/raw/none")
    disk = replace(kept, risks=(FlushesDroppedBelow("zram0 is memory"),))
    assert list(commits_after_a_power_cut([disk])) == [
        "Power cut: pg vda loses commits (what the guest has flushed): zram0 is memory."
    ]
    thrown = replace(kept, disk=replace(kept.disk, transient=True))
    (said,) = commits_after_a_power_cut([thrown])
    assert said.endswith(": what the guest writes is thrown away when it stops.")


def test_a_disk_of_unknown_storage_is_not_called_safe() -> None:
    assumed = parse_path("raw/none")
    disk = ConfiguredDisk("pg", "vda", None, None, problem="unknown", assumed=assumed)
    assert list(commits_after_a_power_cut([ExistingDisk(disk, None, ())])) == [
        "Power cut: pg vda may keep commits (what the guest has flushed): cache=none passes "
        "flushes on, and its storage is not known."
    ]
    (said,) = commits_after_a_power_cut([ExistingDisk(replace(disk, assumed=None), None, ())])
    assert said.endswith(" its settings and its storage are not known.")


def test_a_disk_that_no_power_cut_meets_has_no_fate() -> None:
    kept = row("ext4/raw/none")
    read_only = replace(kept, disk=replace(kept.disk, read_only=True))
    refused = replace(kept, risks=(AioConflict(CacheMode.WRITEBACK),))
    assert not list(commits_after_a_power_cut([read_only, refused]))


def test_a_disk_whose_settings_are_in_doubt_may_keep_them() -> None:
    doubt = "vm.conf may change its settings, and was not found"
    kept, lost = row("raw/none"), row("raw/unsafe")
    (said,) = commits_after_a_power_cut([replace(kept, disk=replace(kept.disk, may_differ=doubt))])
    assert said == f"Power cut: pg vda may keep commits (what the guest has flushed): {doubt}."
    (said,) = commits_after_a_power_cut([replace(lost, disk=replace(lost.disk, may_differ=doubt))])
    assert "loses commits" in said
