"""What a path keeps by rule, before any power was cut."""

from __future__ import annotations

import re

import pytest

from tests.unit.results.values import a_power_cut
from vdisklab.answers.loading import verdicts_of
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import (
    CrashStates,
    CrashVerdicts,
    DurabilityKind,
    HostDisk,
    PathCrashes,
    dropped_flushes,
    durability,
    forgets_fua,
    what_server_keeps,
)
from vdisklab.path.needs import FLUSH_AGAIN, Need, NeedKind, meets, nearest_hint, parse_need
from vdisklab.path.rules import impossible, not_judgeable
from vdisklab.path.segments import LayerKind
from vdisklab.value import replace
from vdisklab.views.durability import durability_sentence


@pytest.mark.parametrize(
    ("path", "forgets"),
    [
        ("raw/none/nvme", True),
        ("raw/default/nvme", True),
        ("raw/none/nvme:write_cache=auto", True),
        ("raw/writethrough/nvme:write_cache=on", True),
        ("raw/none/nvme:write_cache=off", False),
        ("raw/writethrough/nvme", False),
        ("raw/none", False),
        ("ext4/host", False),
    ],
)
def test_nvme_with_a_write_cache_is_not_durable(path: str, forgets: bool) -> None:
    parsed = parse_path(path)
    assert forgets_fua(parsed) is forgets
    assert meets(parsed, Need(NeedKind.DURABLE), CrashVerdicts()) is not forgets


def test_no_cut_through_another_device_makes_good_for_it() -> None:
    """Verdicts through NBD never see the device; its rule stands."""
    path = parse_path("raw/none/nvme")
    found = durability(
        path, CrashVerdicts({path.canonical: PathCrashes(path.canonical, CrashStates(60, 0))})
    )
    assert found.kind is DurabilityKind.LOST_BY_CONSTRUCTION
    assert "write_cache=off" in (found.reason or "")


def test_no_property_is_advised_where_it_keeps_nothing() -> None:
    """write_cache=off prevented nothing of a disk on tmpfs, below which all is memory."""
    for text in (
        "tmpfs/raw/none/nvme",
        "tmpfs/qcow2/unsafe/nvme",
        "zfs:sync=disabled/raw/none/nvme",
    ):
        drops = dropped_flushes(parse_path(text))
        assert not any("write_cache=off" in drop.reason for drop in drops)
        assert "NVMe" not in (durability(parse_path(text), CrashVerdicts()).reason or "")
    (alone,) = dropped_flushes(parse_path("raw/none/nvme"))
    assert alone.reason.endswith("; write_cache=off prevents this")


def test_few_power_cuts_tell_nothing_unless_they_lose_or_are_all() -> None:
    path = parse_path("raw/none")
    for cuts, keeping in (
        (CrashStates(19), DurabilityKind.NOT_TESTED),
        (CrashStates(20), DurabilityKind.KEPT_IN_TEST),
        (CrashStates(7, 0, all_judged=True), DurabilityKind.KEPT_IN_TEST),
        (CrashStates(1, 1), DurabilityKind.LOST_IN_TEST),
    ):
        assert (
            durability(path, CrashVerdicts({path.canonical: PathCrashes("raw/none", cuts)})).kind
            is keeping
        )
    few = durability(path, CrashVerdicts({path.canonical: PathCrashes("raw/none", CrashStates(3))}))
    assert "Tested in 3 power cuts, which is too few" in durability_sentence("raw/none", few)
    enough = durability(
        path, CrashVerdicts({path.canonical: PathCrashes("raw/none", CrashStates(60))})
    )
    assert "at most 5.0 % of all lose data, 95 %" in durability_sentence("raw/none", enough)


def test_a_sum_of_cuts_is_whole_when_its_parts_are() -> None:
    every, some = CrashStates(5, 0, all_judged=True), CrashStates(5)
    assert (CrashStates() + every).all_judged
    assert (every + every).all_judged
    assert not (every + some).all_judged
    assert (every.most_losing, some.most_losing, CrashStates().most_losing) == (0.0, 0.6, 1.0)


def test_a_verdict_of_power_cuts_counts() -> None:
    path = parse_path("ext4/raw/none")
    lost = CrashVerdicts({path.canonical: PathCrashes(path.canonical, CrashStates(100, 3))})
    kept = CrashVerdicts({path.canonical: PathCrashes(path.canonical, CrashStates(100, 0))})
    assert durability(path, CrashVerdicts()).kind is DurabilityKind.NOT_TESTED
    assert durability(path, lost).kind is DurabilityKind.LOST_IN_TEST
    assert durability(path, kept).kind is DurabilityKind.KEPT_IN_TEST
    assert not meets(path, parse_need("durable"), lost)


@pytest.mark.parametrize(
    "text", ["tmpfs/raw/none", "ext4:barrier=off/raw/none", "zfs:sync=disabled/raw/none",
             "raw/unsafe"]
)  # fmt: skip
def test_what_drops_flushes_is_known_without_a_test(text: str) -> None:
    found = durability(parse_path(text), CrashVerdicts())
    assert found.kind is DurabilityKind.LOST_BY_CONSTRUCTION
    assert found.reason


_PLP = CrashVerdicts(disk=HostDisk.PLP)


@pytest.mark.parametrize(
    ("text", "flush_free"),
    [
        ("ext4/raw/none", True),
        ("xfs/qcow2/none", True),
        ("lvm/none", True),
        ("lvm/luks/ext4/raw/none", True),
        ("ext4/raw/directunsafe", True),
        ("ext4/raw/none/nvme", True),
        ("raw/none", False),  # the work directory's file system is unknown
        ("ext4/raw/writeback", False),
        ("ext4/raw:preallocation=off/none", False),
        ("ext4/qcow2:backing=1/none", False),
        ("ext4/qcow2:snapshots=1/none", False),
        ("ext4/raw/none/virtio:discard=unmap", False),
        ("ext4:data=journal/raw/none", False),
        ("btrfs/raw/none", False),
        ("lvmthin/none", False),
    ],
)
def test_a_disk_that_keeps_its_cache_needs_no_flush_for_writes_in_place(
    text: str, flush_free: bool
) -> None:
    path = parse_path(text)
    verdict = durability(path, _PLP)
    assert verdict.flush_free is flush_free
    assert meets(path, parse_need("no-flush-safe"), _PLP) is flush_free
    assert not durability(path, CrashVerdicts()).flush_free
    if flush_free:
        assert verdict.kind is DurabilityKind.NOT_TESTED
        sentence = durability_sentence(text, verdict)
        assert "writes in place to a disk that keeps what it completed" in sentence
        if not_judgeable(path) is None:
            assert sentence.endswith("--model plp` simulates the cut.")
        else:
            assert sentence.endswith("Not tested.")


@pytest.mark.parametrize(
    ("text", "tested"),
    [
        ("ext4/raw/none", "ext4/raw/none"),
        ("raw/none", "ext4/raw/none"),
        ("qcow2/none/scsi", "ext4/qcow2/none/scsi"),
        ("virtiofs", "ext4/virtiofs"),
        ("none", None),
        ("lvm/none", None),
        ("tmpfs/raw/none", None),
        ("raw/none/virtio:guests=2", "ext4/raw/none"),
        ("ext4/qcow2/none/virtio:qemu=old", "ext4/qcow2/none"),
        ("raw/none/scsi:iothread=on:qemu=old", "ext4/raw/none/scsi:iothread=on"),
    ],
)
def test_a_command_that_tests_a_path_works(text: str, tested: str | None) -> None:
    sentence = durability_sentence(text, durability(parse_path(text), CrashVerdicts()))
    found = re.findall("`(vdisklab powercut [^`]*)`", sentence)
    assert len(found) == (tested is not None)
    names_more = "guests=" in text or "qemu=" in text
    assert ("for one guest with the installed QEMU" in sentence) is names_more
    for command in found:
        arguments = command.removeprefix("vdisklab powercut ").split()
        assert arguments[0] == str(parse_path(tested or ""))
        assert not_judgeable(parse_path(arguments[0])) is None
        assert impossible(parse_path(arguments[0])) is None


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ext4/raw/none/nvme",
         "vdisklab powercut ext4/raw/none/nvme --access guest --model plp"),
        ("ext4/raw/none/nvme:write_cache=off",
         "vdisklab powercut ext4/raw/none/nvme:write_cache=off --model plp"),
        ("ext4/raw/none", "vdisklab powercut ext4/raw/none --model plp"),
    ],
)  # fmt: skip
def test_a_printed_test_of_a_path_counts_for_it(text: str, command: str) -> None:
    """What the printed command stores is a verdict, and not one that never met the device."""
    path = parse_path(text)
    (printed,) = re.findall("`(.*)`", durability_sentence(text, durability(path, _PLP)))
    assert printed == command
    argv = printed.split()
    access = argv[argv.index("--access") + 1] if "--access" in argv else "nbd"
    cut = a_power_cut(path=argv[2], access=access, settings={"model": "plp"})
    found = durability(path, verdicts_of([cut], HostDisk.PLP))
    assert found.kind is DurabilityKind.KEPT_IN_TEST


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("ext4:barrier=off/raw:preallocation=off/none", True),  # completed in order is enough
        ("ext4/raw/unsafe", False),
        ("ext4/raw:preallocation=off/directunsafe", False),
        ("ext4/qcow2:preallocation=off/none/nvme", False),
        ("zfs:sync=disabled/raw/none", False),
        ("tmpfs/raw/none", False),
    ],
)
def test_a_disk_that_keeps_its_cache_does_not_replace_flushes_above_it(
    text: str, kept: bool
) -> None:
    assert durability(parse_path(text), _PLP).kind.acceptable is kept
    assert not durability(parse_path(text), CrashVerdicts()).kind.acceptable


@pytest.mark.parametrize(
    ("path", "cut"),
    [
        ("zfs/qcow2:extended_l2=on:preallocation=off/none", True),
        ("zfs/qcow2:extended_l2=on:backing=1/writethrough", True),
        ("zfs/qcow2:extended_l2=on:snapshots=1/none", True),
        ("zfs/qcow2:extended_l2=on/none", False),
        ("zfs/qcow2:preallocation=off/none", True),
        ("zfs/qed/none", True),
        ("zfs/qcow2/none", False),
        ("zfs/raw:preallocation=off/none", False),
        ("zvol/none", False),
        ("ext4/qcow2:extended_l2=on:backing=1/none", False),
    ],
)
def test_what_zfs_fuse_cuts_short_is_not_durable_there(path: str, cut: bool) -> None:
    parsed = parse_path(path)
    kept = {parsed.canonical: PathCrashes(parsed.canonical, CrashStates(60, 0))}
    for disk in HostDisk:
        there = durability(parsed, CrashVerdicts(kept, disk, zfs_fuse=True))
        assert (there.kind is DurabilityKind.LOST_BY_CONSTRUCTION) is cut
        assert ("the kernel's ZFS does not" in (there.reason or "")) is cut
        assert (
            meets(parsed, Need(NeedKind.DURABLE), CrashVerdicts(disk=disk, zfs_fuse=True))
            is not cut
        )
        assert durability(parsed, CrashVerdicts(kept, disk)).kind is DurabilityKind.KEPT_IN_TEST


def test_a_file_system_that_sends_no_flushes_is_below_all_paths() -> None:
    below = CrashVerdicts(without_flushes="xfs is mounted with nobarrier")
    for text, disk, kept in (
        ("raw/none", HostDisk.VOLATILE, False),
        ("ext4/raw/none", HostDisk.VOLATILE, False),
        ("raw/none", HostDisk.PLP, True),
    ):
        verdicts = replace(below, disk=disk)
        verdict = durability(parse_path(text), verdicts)
        assert verdict.kind.acceptable is kept, text
        assert verdict.reason == (None if kept else "xfs is mounted with nobarrier")
    hint = nearest_hint(
        parse_path("raw/none"), [Need(NeedKind.DURABLE)], replace(below, disk=HostDisk.PLP)
    )
    assert hint == "the nearest path that meets all needs: raw/none"
    hint = nearest_hint(parse_path("raw/none"), [Need(NeedKind.DURABLE)], below)
    assert hint == FLUSH_AGAIN


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("nbd:at=far/raw/none", DurabilityKind.BY_SERVER),
        ("nfs:at=nas/qcow2/writethrough", DurabilityKind.BY_SERVER),
        ("rbd/none", DurabilityKind.BY_SERVER),
        ("nbd:at=far/raw/unsafe", DurabilityKind.LOST_BY_CONSTRUCTION),
        ("dir:at=here/raw/none", DurabilityKind.NOT_TESTED),
        ("device:at=disk/none", DurabilityKind.NOT_TESTED),
    ],
)
def test_a_server_answers_for_what_it_keeps(text: str, kind: DurabilityKind) -> None:
    verdict = durability(parse_path(text), CrashVerdicts(without_flushes="nobarrier"))
    assert verdict.kind is kind  # the work directory's file system is not below a target
    assert "durable" not in durability_sentence(text, verdict)


@pytest.mark.parametrize("mode", ["none", "writeback", "writethrough", "directsync"])
def test_a_server_without_flushes_keeps_nothing_in_any_cache_mode(mode: str) -> None:
    verdicts = CrashVerdicts(flushless=frozenset(["nbd:at=far"]))
    lost = durability(parse_path(f"nbd:at=far/raw/{mode}"), verdicts)
    assert lost.kind is DurabilityKind.LOST_BY_CONSTRUCTION
    assert "offers no flush" in str(lost.reason)
    assert durability(parse_path(f"nbd:at=near/raw/{mode}"), verdicts).kind.acceptable


@pytest.mark.parametrize(
    "path",
    [
        "vmdk/none", "xfs/vdi/writethrough/scsi", "btrfs/vdi/default", "nfs/vmdk/directsync",
        "qcow2:lazy_refcounts=on/none", "ext4/qcow2:backing=1:lazy_refcounts=on/writeback",
    ],
)  # fmt: skip
@pytest.mark.parametrize("disk", HostDisk)
def test_an_image_that_lost_flushed_data_once_is_lossy_by_rule(path: str, disk: HostDisk) -> None:
    """QEMU's own cuts showed it; a cut that this host's disk survived does not unprove it."""
    parsed = parse_path(path)
    survived = PathCrashes(parsed.canonical, CrashStates(60))
    for verdicts in (CrashVerdicts(disk=disk), CrashVerdicts({path: survived}, disk)):
        assert durability(parsed, verdicts).kind is DurabilityKind.LOST_BY_CONSTRUCTION
        assert not meets(parsed, Need(NeedKind.DURABLE), verdicts)
        assert not meets(parsed, Need(NeedKind.NO_FLUSH_SAFE), verdicts)


@pytest.mark.parametrize("path", ["qed/none", "vhdx/none", "qcow2:lazy_refcounts=off/none"])
def test_images_that_kept_everything_are_not(path: str) -> None:
    assert meets(parse_path(path), Need(NeedKind.DURABLE), CrashVerdicts())


def test_each_kind_of_server_has_a_place_to_look_at() -> None:
    for kind in LayerKind:
        target = kind.facts.target
        if target is not None and target.promise is not None:
            assert target.look, kind
            assert target.look in what_server_keeps(parse_path(f"{kind}/none"))
