"""One language of needs: each word is met or says why not, and a path that meets it is proposed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.path.made import configurable_paths
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.durability import CrashStates, CrashVerdicts, PathCrashes, durability
from vdisklab.path.needs import (
    NEED_WORDS,
    Need,
    NeedKind,
    example_of,
    lack,
    meets,
    nearest,
    needs_help,
    parse_need,
    parse_needs,
    undecided,
    unmet,
    with_default,
)
from vdisklab.path.rules import impossible
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, LayerKind

VALUES = {
    NeedKind.FORMAT: tuple(form for form in ImageFormat if form.is_file),
    NeedKind.CACHE: tuple(CacheMode),
    NeedKind.BUS: tuple(Bus),
    NeedKind.LAYER: tuple(LayerKind),
}
needs = st.sampled_from(
    [Need(kind, value) for kind in NeedKind for value in VALUES.get(kind, (None,))]
)


@pytest.mark.parametrize(
    ("need", "path", "met"),
    [
        ("durable", "raw/none", True),
        ("durable", "raw/unsafe", False),
        ("durable", "tmpfs/raw/writeback", False),
        ("durable", "zfs:sync=disabled/qcow2/writeback", False),
        ("durable", "zfs/qcow2/writeback", True),
        ("durable", "ext4:barrier=off/raw/none", False),
        ("durable", "raw/none/nvme", False),
        ("no-flush-safe", "raw/none", False),
        ("no-flush-safe", "raw/directsync", True),
        ("no-flush-safe", "raw/none/virtio:write_cache=off", True),
        ("no-flush-safe", "raw/unsafe/virtio:write_cache=off", False),
        ("snapshots", "qcow2/none", True),
        ("snapshots", "zvol/none", True),
        ("snapshots", "ext4/raw/none", False),
        ("snapshots", "ext4/qcow2:data_file=on/none", False),
        ("snapshots", "ext4/qcow2:data_file=raw/none", False),
        ("snapshots", "btrfs/qcow2:data_file=raw/none", True),
        ("durable", "null", False),
        ("no-flush-safe", "null/virtio:write_cache=off", False),
        ("snapshots", "null", False),
        ("discard", "null/scsi:discard=unmap", False),
        ("discard", "raw/none", False),
        ("discard", "raw/none/scsi:discard=unmap", True),
        ("discard", "lvmthin/luks/none/scsi:discard=unmap", False),
        ("discard", "luks/lvm/none/scsi:discard=unmap", False),
        ("discard", "luks:discard=on/none/scsi:discard=unmap", True),
        ("discard", "luks/ext4/raw/none/scsi:discard=unmap", True),  # into the file system's room
        ("discard", "luks/lvmthin/none/scsi:discard=unmap", True),
        ("snapshots", "luks/none", False),
        ("live-migration", "raw/none", True),
        ("live-migration", "raw/writeback", False),
        ("live-migration", "raw/none/nvme", False),
        ("format=qcow2", "qcow2/none", True),
        ("format=qcow2", "raw/none", False),
        ("format=qcow2", "lvm/none", False),
        ("cache=none", "raw/none", True),
        ("cache=writeback", "raw", False),
        ("bus=virtio", "raw/none", True),
        ("bus=nvme", "raw/none", False),
        ("layer=ext4", "zvol/ext4/qcow2/none", True),
        ("layer=zvol", "zvol/ext4/qcow2/none", True),
        ("layer=ext4", "raw/none", False),
    ],
)
def test_needs(need: str, path: str, met: bool) -> None:
    assert meets(parse_path(path), parse_need(need), CrashVerdicts()) is met


@pytest.mark.parametrize(
    ("need", "path", "reason"),
    [
        ("durable", "raw/unsafe", "cache mode unsafe drops flushes"),
        ("no-flush-safe", "raw/none", "its device has a write cache"),
        ("snapshots", "ext4/raw/none", "neither its format nor a host layer"),
        ("discard", "raw/none", "discard=ignore"),
        ("discard", "luks/none/virtio:discard=unmap", "luks has discard=off"),
        ("live-migration", "raw/unsafe", "cache mode unsafe leaves data"),
        ("live-migration", "raw/none/nvme", "unmigratable"),
        ("format=qcow2", "lvm/none", "it has no image format"),
        ("format=qcow2", "raw/none", "its format is raw"),
        ("cache=none", "raw", "its cache mode is default"),
        ("bus=scsi", "raw", "its bus is virtio"),
        ("layer=xfs", "zvol/ext4/raw", "its host layers are zvol/ext4"),
        ("layer=xfs", "raw", "it has no host layer"),
    ],
)
def test_a_path_says_what_it_lacks(need: str, path: str, reason: str) -> None:
    assert reason in (lack(parse_path(path), parse_need(need), CrashVerdicts()) or "")


@pytest.mark.parametrize(
    ("need", "path", "open_"),
    [
        ("layer=lvm", "raw/none", True),  # the file system may be on LVM
        ("layer=lvm", "ext4/raw/none", True),
        ("layer=lvm", "none", True),
        ("layer=ext4", "raw/none", True),
        ("layer=ext4", "ext4/raw/none", False),  # met
        ("layer=xfs", "ext4/raw/none", False),  # no file system is below another
        ("layer=ext4", "none", False),  # a device has no file system as its top layer
        ("layer=tmpfs", "raw/none", True),
        ("snapshots", "raw/none", True),
        ("snapshots", "none", True),
        ("snapshots", "ext4/qcow2:data_file=on/none", True),
        ("snapshots", "qcow2/none", False),
        ("snapshots", "null", False),
        ("durable", "raw/unsafe", False),
        ("cache=none", "raw/writeback", False),
        ("bus=scsi", "raw/none", False),
        ("format=qcow2", "none", False),
    ],
)
def test_unknown_layers_leave_needs_open(need: str, path: str, open_: bool) -> None:
    assert undecided(parse_path(path), parse_need(need)) is open_


def test_power_cuts_decide_where_there_are_any() -> None:
    path = parse_path("ext4/raw/directsync")
    for verdict in (
        PathCrashes(str(path), flushed=CrashStates(40, 3)),
        PathCrashes(str(path), unflushed=CrashStates(40, 3)),
    ):
        reason = lack(path, parse_need("no-flush-safe"), CrashVerdicts({str(path): verdict}))
        assert reason == "it lost acknowledged writes in 3 of 40 power cuts"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown need ''"),
        ("fast", "unknown need 'fast'"),
        ("durable=yes", "unknown need"),
        ("durable=", "unknown need"),
        ("format", "unknown need"),
        ("format=", "unknown format ''"),
        ("format=iso", "unknown format 'iso'"),
        ("cache=fast", "unknown cache 'fast'"),
        ("size=1", "unknown need"),
    ],
)
def test_unknown_needs_are_refused_with_the_known_ones(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        parse_need(text)
    assert caught.value.hint


def test_help_and_hint_name_every_word() -> None:
    assert all(kind in needs_help("What") for kind in NeedKind)
    assert NEED_WORDS.startswith(
        "durable, no-flush-safe, disposable, backup, snapshots, discard, live-migration, "
        "survives-full, "
    )
    assert all(Need(kind).meaning for kind in NeedKind)


def test_a_need_given_twice_is_one() -> None:
    assert parse_needs(["durable", "bus=scsi", "durable"]) == (
        Need(NeedKind.DURABLE),
        Need(NeedKind.BUS, "scsi"),
    )
    assert parse_needs(None) == ()


def test_unsafe_is_the_way_out_of_the_implied_need_only() -> None:
    (implied,) = with_default(())
    (written,) = with_default(parse_needs(["durable"]))
    assert implied == written
    assert implied.way_out == "add --unsafe"
    assert written.way_out == "leave out --need durable"


@given(needs)
def test_a_need_is_read_back_as_it_is_written(need: Need) -> None:
    assert parse_need(str(need)) == need


@given(configurable_paths, needs)
def test_the_nearest_path_meets_the_need_and_is_the_path_itself_if_that_does(
    path: DiskPath, need: Need
) -> None:
    near = nearest(path, [need], CrashVerdicts())
    assert near is not None
    assert meets(near, need, CrashVerdicts())
    assert impossible(near) is None
    if meets(path, need, CrashVerdicts()):
        assert near == path


@given(configurable_paths)
def test_durable_is_what_durability_calls_acceptable(path: DiskPath) -> None:
    verdict = durability(path, CrashVerdicts())
    assert meets(path, Need(NeedKind.DURABLE), CrashVerdicts()) is verdict.kind.acceptable
    assert meets(path, Need(NeedKind.NO_FLUSH_SAFE), CrashVerdicts()) is (
        verdict.kind.acceptable and verdict.flush_free
    )


@pytest.mark.parametrize(
    ("path", "need", "near"),
    [
        ("ext4/qcow2/unsafe", "durable", "ext4/qcow2/none"),
        ("raw/none/nvme", "durable", "raw/none"),
        ("raw/none/scsi:iothread=on", "discard", "raw/none/scsi:discard=unmap:iothread=on"),
        ("ext4/raw/none", "snapshots", "ext4/qcow2/none"),
        ("raw/none", "no-flush-safe", "raw/directsync"),
        ("raw/none", "layer=xfs", "xfs/raw/none"),
        ("raw/writeback", "live-migration", "raw/none"),
        ("tmpfs/raw/none", "durable", "ext4/raw/none"),
    ],
)
def test_the_nearest_path_changes_little(path: str, need: str, near: str) -> None:
    assert str(nearest(parse_path(path), [parse_need(need)], CrashVerdicts())) == near


def test_examples_and_contradictions() -> None:
    assert str(example_of([])) == "ext4/qcow2/none"
    assert str(example_of(parse_needs(["format=qed"]))) == "ext4/qed/none"
    assert str(example_of(parse_needs(["layer=zvol", "format=raw"]))) == "zvol/ext4/raw/none"
    assert example_of(parse_needs(["live-migration", "bus=nvme"])) is None
    assert example_of(parse_needs(["cache=none", "cache=unsafe"])) is None
    both = parse_needs(["durable", "bus=nvme"])
    example = example_of(both)
    assert example is not None
    assert unmet(example, both, CrashVerdicts()) == {}


def test_a_guest_that_is_thrown_away_needs_nothing_kept() -> None:
    disposable = parse_need("disposable")
    assert with_default((disposable,)) == (disposable,)
    assert not unmet(parse_path("raw/unsafe"), with_default((disposable,)), CrashVerdicts())
    assert with_default((disposable, parse_need("cache=none"))) == (
        disposable, parse_need("cache=none"),
    )  # fmt: skip
    both = with_default((disposable, parse_need("durable")))
    assert unmet(parse_path("raw/unsafe"), both, CrashVerdicts()), "who asks for both gets both"
