"""The disk path: round trip, canonical spelling, and errors that say where and what else."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.path.made import disk_paths, guest_paths
from vdisklab.path.disk_path import (
    DiskPath,
    Options,
    PathSyntaxError,
    parse_path,
)
from vdisklab.path.options import Schema
from vdisklab.path.segments import (
    BUS_OPTIONS,
    FORMAT_OPTIONS,
    Bus,
    CacheMode,
    ImageFormat,
    LayerKind,
)
from vdisklab.value import replace


@given(disk_paths)
def test_parse_reads_back_what_format_wrote(path: DiskPath) -> None:
    again = parse_path(path.canonical)
    assert again == path
    assert again.canonical == path.canonical
    assert again.fingerprint == path.fingerprint
    assert hash(again) == hash(path)


@given(disk_paths, st.randoms(use_true_random=False))
def test_options_may_stand_in_any_order(path: DiskPath, chance: random.Random) -> None:
    segments = []
    for segment in path.canonical.split("/"):
        name, *options = segment.split(":")
        chance.shuffle(options)
        segments.append(":".join([name, *options]))
    assert parse_path("/".join(segments)) == path


@given(guest_paths)
def test_canonical_writes_the_cache_mode_and_no_default(path: DiskPath) -> None:
    named = path.cache.value in path.canonical.split("/")
    assert named or (path.shares_directory and path.cache is CacheMode.DEFAULT)
    for part, schema in parts_with_schema(path):
        for name, value in part:
            assert value != schema[name].default
        assert part == tuple(sorted(part))


def parts_with_schema(path: DiskPath) -> list[tuple[Options, Schema]]:
    parts = [(layer.options, layer.kind.facts.options) for layer in path.layers]
    if path.image is not None:
        parts.append((path.image.options, FORMAT_OPTIONS[path.image.format]))
    return [*parts, (path.attachment.options, BUS_OPTIONS[path.attachment.bus])]


def test_a_shared_directory_has_no_cache_mode_in_its_name() -> None:
    assert parse_path("ext4/virtiofs:cache=auto").canonical == "ext4/virtiofs"
    share = parse_path("9p:msize=256k:guest_mount=noatime").attachment
    assert (share.guest_fs, share.guest_mount) == (
        "9p",
        ("trans=virtio", "msize=262144", "noatime"),
    )
    assert parse_path("virtiofs").attachment.guest_mount == ()


@given(disk_paths, disk_paths)
def test_different_paths_have_different_names(first: DiskPath, other: DiskPath) -> None:
    assert (first == other) == (first.canonical == other.canonical)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("zvol/ext4/qcow2/writeback", "zvol/ext4/qcow2/writeback"),
        ("qcow2", "qcow2/default"),
        ("raw/none/virtio", "raw/none"),
        ("lvm/none/virtio", "lvm/none"),
        ("lvm", "lvm/default"),
        ("none", "none"),
        ("raw/nvme", "raw/default/nvme"),
        ("host", "host"),
        ("ext4/host", "ext4/host"),
        ("null", "null/default"),
        ("qcow2:preallocation=full:cluster_size=65536/none", "qcow2/none"),
        ("qcow2:preallocation=off/unsafe/ide", "qcow2:preallocation=off/unsafe/ide"),
        (
            "ext4/raw/none/virtio:queues=4:iothread=on:aio=io_uring",
            "ext4/raw/none/virtio:aio=io_uring:iothread=on:queues=4",
        ),
        ("zfs:recordsize=65536:raid=raidz1/qcow2", "zfs:raid=raidz1:recordsize=64k/qcow2/default"),
        ("raw/none/virtio:queues=007", "raw/none/virtio:queues=7"),
        ("raw/none/virtio:iothread=on:poll=off", "raw/none/virtio:iothread=on:poll=0"),
    ],
)
def test_canonical_spelling(text: str, canonical: str) -> None:
    assert parse_path(text).canonical == canonical


@pytest.mark.parametrize(
    ("text", "position", "problem", "hint"),
    [
        ("", 1, "the path is empty", "ext4/qcow2/none"),
        ("ext5/raw", 1, "unknown segment 'ext5'", "did you mean ext4?"),
        ("ext4/QCOW2", 6, "unknown segment 'QCOW2'", "did you mean qcow2?"),
        ("raw/none/virti", 10, "unknown segment", "did you mean virtio?"),
        ("raw/none/virtio/x", 17, "unknown segment", "nothing may follow bus 'virtio'"),
        ("ext4/host/x", 11, "unknown segment", "nothing may follow `host`"),
        ("ext4/host/ext4", 11, "'ext4' after `host`", "the workload runs on the host"),
        ("raw/host", 5, "`host` after image format 'raw'", "only host layers"),
        ("none/raw", 6, "image format 'raw' after cache mode 'none'", "the order is"),
        ("virtio/none", 8, "cache mode 'none' after bus 'virtio'", "the order is"),
        ("raw/ext4", 5, "host layer 'ext4' after image format 'raw'", "the order is"),
        ("raw/qcow2", 5, "a second image format, 'qcow2'", "write {raw,qcow2}"),
        ("raw/none/unsafe", 10, "a second cache mode", "write {none,unsafe}"),
        ("raw//none", 5, "an empty segment", "one slash between two names"),
        ("/raw", 1, "an empty segment", "none at the ends"),
        ("/mnt/nas/raw/none", 1, "a place instead of a path", "--target mine=PLACE"),
        ("nbd://nas/x/raw/none", 1, "a place instead of a path", "--target mine=PLACE"),
        ("raw/", 5, "an empty segment", "none at the ends"),
        ("qcow2:prealloc=off", 7, "no option 'prealloc'", "did you mean preallocation?"),
        ("qcow2:preallocation=of", 21, "preallocation=of is not possible", "off, metadata"),
        ("raw/none/virtio:queues=0", 24, "queues=0 is not possible", "from 1 to 64"),
        ("virtio:queues=99999999999", 15, "is not possible", "from 1 to 64"),
        ("virtio:queues=٣", 15, "is not possible", "from 1 to 64"),
        ("virtio:iothread", 8, "option 'iothread' has no value", "on or off"),
        ("virtio:iothread=yes", 17, "is not possible", "on or off"),
        ("zfs:recordsize=100k", 16, "is not possible", "a power of two from 512 to 16M"),
        ("zfs:recordsize=64 k", 16, "is not possible", "a power of two"),
        ("zfs:raid=mirror:raid=mirror", 17, "'raid' is given twice", "write it once"),
        ("lvm:x=1", 5, "lvm has no option 'x'", "lvm takes no options"),
        ("raw/none:direct=on", 10, "none has no option", "takes no options"),
        ("raw:", 5, "an empty option", "preallocation"),
        ("nvme:iothread=on", 6, "nvme has no option 'iothread'", "aio"),
    ],
)
def test_errors_say_where_what_and_what_else(
    text: str, position: int, problem: str, hint: str
) -> None:
    with pytest.raises(PathSyntaxError) as caught:
        parse_path(text)
    assert caught.value.position == position
    assert problem in caught.value.message
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "possible", "not_possible"),
    [
        ("?", ["ext4", "raw", "none", "virtio", "host"], []),
        ("ext4/?", ["xfs", "qcow2", "unsafe", "scsi", "host"], []),
        ("raw/?", ["writeback", "virtio"], ["ext4", "qcow2", "host"]),
        ("raw/none/?", ["virtio", "usb"], ["writeback", "ext4", "qcow2", "host"]),
        ("raw/none/ide/?", [], ["virtio", "ext4", "writeback", "host"]),
    ],
)
def test_an_unknown_name_lists_what_may_stand_there(
    text: str, possible: list[str], not_possible: list[str]
) -> None:
    with pytest.raises(PathSyntaxError) as caught:
        parse_path(text)
    hint = caught.value.hint or ""
    assert [name for name in possible if name not in hint] == []
    assert [name for name in not_possible if name in re.findall(r"\w+", hint)] == []


def read(text: str) -> DiskPath | PathSyntaxError:
    try:
        return parse_path(text)
    except PathSyntaxError as error:
        return error


# Words and signs of the notation come near to real paths, where the interesting errors are.
near_paths = st.lists(
    st.sampled_from(
        ["ext4", "qcow2", "raw", "none", "virtio", "host", "aio", "native", "queues", "4",
         "/", "/", ":", "=", "", " ", "é"]
    ),
    max_size=9,
).map("".join)  # fmt: skip


@given(st.text(max_size=40) | near_paths)
def test_any_text_is_a_path_or_an_error_within_it(text: str) -> None:
    match read(text):
        case PathSyntaxError() as error:
            assert 1 <= error.position <= len(text) + 1
            assert error.hint
        case path:
            assert parse_path(path.canonical) == path


def test_options_have_their_defaults() -> None:
    path = parse_path("ext4/qcow2/none/virtio:queues=4")
    assert path.image is not None
    assert path.image.option("cluster_size") == 65536
    assert path.image.option("no such") is None
    assert path.layers[0].option("barrier") is True
    assert (path.attachment.queues, path.attachment.iothread) == (4, False)
    assert (path.attachment.aio.value, path.attachment.write_cache.value) == ("threads", "mode")
    assert parse_path("raw/none").attachment.queues is None


@pytest.mark.parametrize(
    ("text", "thin"),
    [
        ("qcow2", False),
        ("qcow2:preallocation=falloc", True),
        ("raw:preallocation=off", True),
        ("vdi", True),
        ("null", False),
    ],
)
def test_thin_images(text: str, thin: bool) -> None:
    image = parse_path(text).image
    assert image is not None
    assert image.is_thin is thin


def test_a_host_path_has_nothing_of_a_guest() -> None:
    with pytest.raises(ValueError, match="only host layers"):
        replace(parse_path("ext4/raw/none"), on_host=True)


def test_names_of_all_kinds_are_disjoint() -> None:
    names = [*LayerKind, *ImageFormat, *CacheMode, *Bus, "host"]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("text", ["{raw/none", "raw/none}", "raw/{none}"])
def test_a_lonely_brace_is_named_as_what_it_is(text: str) -> None:
    with pytest.raises(PathSyntaxError) as caught:
        parse_path(text)
    assert caught.value.hint is not None
    assert "a brace is not closed" in caught.value.hint


def test_the_page_of_paths_names_every_segment() -> None:
    page = (Path(__file__).parents[3] / "docs" / "paths.md").read_text()
    head = page.split("## ", 1)[0]
    for word in (*LayerKind, *ImageFormat, *CacheMode, *Bus):
        assert re.search(rf"[`\s]{word}[`\s]", head), word
    schemas = (
        *(kind.facts.options for kind in LayerKind),
        *FORMAT_OPTIONS.values(),
        *BUS_OPTIONS.values(),
    )
    assert [name for schema in schemas for name in schema if f"`{name}" not in page] == []


def test_messages_name_every_mode() -> None:
    assert CacheMode.choices(lambda mode: mode.direct) == "none, directsync or directunsafe"
    assert CacheMode.choices(lambda mode: not mode.direct, last="and") == (
        "writeback, writethrough and unsafe"
    )


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ("none/virtio:made=convert:zeroed=on", "made=convert+zeroed=on"),
        ("none/virtio:made=convert:workers=8:guests=3", "guests=3:made=convert+workers=8"),
        ("none/virtio:made=convert:zeroed=on:unordered=on", "made=convert+zeroed=on+unordered=on"),
        ("none/virtio:during=backup:workers=4", "during=backup+workers=4"),
    ],
)
def test_a_way_may_be_written_as_the_table_shows_it(typed: str, options: str) -> None:
    assert parse_path(typed).canonical == f"none/virtio:{options}"


def test_a_slip_of_an_option_is_not_taken_for_one_of_the_way() -> None:
    with pytest.raises(PathSyntaxError) as caught:
        parse_path("none/virtio:made=cp:aioo=native")
    assert "did you mean aio?" in str(caught.value.hint)
