"""Data that come back wrong are noticed, whatever the format, and a healthy disk never fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers.lying_nbd import Lie, LyingDisk, lying_nbd
from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.path.backing import BackingDevices
from vdisklab.path.disk_path import Image, parse_path
from vdisklab.path.named_target import parse_target
from vdisklab.storage import remote
from vdisklab.storage.image import image_file, random_source, require_returned
from vdisklab.storage.returned import BLOCKS, sampled
from vdisklab.storage.server_url import url_of
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.targets import Directory, Remote, Share

pytestmark = pytest.mark.host

SIZE = 64 << 20
HEALTHY_SIZE = 16 << 20
LIES: tuple[Lie, ...] = ("flips bits", "answers zeros", "drops writes")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    work = tmp_path / "work"
    work.mkdir()
    with open_ledger(tmp_path) as ledger, open_site(LocalHost(), ledger, work) as opened:
        yield opened


@contextmanager
def on_server(disk: LyingDisk, directory: Path) -> Iterator[Remote]:
    with lying_nbd(disk, directory) as url:
        yield Remote(url_of(parse_target(f"lies={url}"), None), holds_files=False)


def image_of(text: str) -> Image:
    image = parse_path(f"{text}/none").image
    assert image is not None
    return image


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_after_filling(lie: Lie, site: Site, tmp_path: Path) -> None:
    disk = LyingDisk(SIZE, lie, seed=1)
    with (
        on_server(disk, tmp_path) as target,
        random_source(site, SIZE) as source,
        pytest.raises(HostError, match=MESSAGE),
        image_file(site, target, image_of("raw"), size=SIZE, name="i", source=source),
    ):
        pass
    assert disk.told > 0


def test_a_server_whose_reads_flip_is_not_said_to_hold_data(site: Site, tmp_path: Path) -> None:
    disk = LyingDisk(SIZE, "flips bits", seed=1)
    with lying_nbd(disk, tmp_path) as url:
        target = parse_target(f"lies={url}")
        with pytest.raises(HostError, match=r"does not return the same data twice: .* at byte"):
            remote.require_fit(site, target, BackingDevices(), SIZE)
        assert disk.told > 0
        disk.lie = "none"
        disk.content[SIZE - 1] = 1
        with pytest.raises(HostError, match="holds data"):
            remote.require_fit(site, target, BackingDevices(), SIZE)
        disk.content[SIZE - 1] = 0
        remote.require_fit(site, target, BackingDevices(), SIZE)


MESSAGE = (
    r"nbd\+unix.* returns wrong data: after filling, \d+ of 192 blocks that were read back did "
    r"not hold what was written, the first at byte \d+"
)


@pytest.mark.parametrize("text", ["raw", "qcow2"])
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_that_begins_later_is_found_at_the_end_of_a_cell(
    lie: Lie, text: str, site: Site, tmp_path: Path
) -> None:
    disk = LyingDisk(SIZE + SIZE // 8)
    with (
        on_server(disk, tmp_path) as target,
        random_source(site, SIZE) as source,
        image_file(site, target, image_of(text), size=SIZE, name="i", source=source) as made,
    ):
        require_returned(site, made, SIZE)
        disk.lie = lie
        found = r"after the last measurement, \d+ of 192 blocks" if text == "raw" else r"lies\.sock"
        with pytest.raises(HostError, match=found):
            require_returned(site, made, SIZE)
        disk.lie = "none"


@pytest.mark.parametrize(
    "text",
    [
        "raw", "raw:preallocation=off", "qcow2", "qcow2:preallocation=off", "raw:encrypt=luks",
        "qcow2:data_file=raw", "qcow2:compression=zlib", "vmdk", "vdi", "qed",
        "qcow2:snapshots=1:bitmaps=1",
        # 3 s for its key; a commit measures one in a guest, at whose end it is read back alike.
        pytest.param("qcow2:encrypt=luks", marks=pytest.mark.nightly),
    ],
)  # fmt: skip
def test_a_healthy_disk_never_fails(text: str, site: Site) -> None:
    image = image_of(text)
    target = Directory(site.directory)
    with (
        random_source(site, HEALTHY_SIZE) as source,
        image_file(site, target, image, size=HEALTHY_SIZE, name="i", source=source) as made,
    ):
        for _ in range(3):
            require_returned(site, made, HEALTHY_SIZE)


def test_a_healthy_server_never_fails(site: Site, tmp_path: Path) -> None:
    with (
        on_server(LyingDisk(HEALTHY_SIZE), tmp_path) as target,
        random_source(site, HEALTHY_SIZE) as source,
        image_file(
            site, target, image_of("raw"), size=HEALTHY_SIZE, name="i", source=source
        ) as made,
    ):
        for _ in range(5):
            require_returned(site, made, HEALTHY_SIZE)


def test_a_shared_directory_is_checked_by_a_file_that_goes(site: Site) -> None:
    share = site.directory / "share"
    share.mkdir()
    require_returned(site, Share(share), SIZE)
    assert list(share.iterdir()) == []
    require_returned(site, None, SIZE)


def test_one_wrong_block_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A raw file in which one sampled block is overwritten between writing and reading back."""
    with (
        random_source(site, SIZE) as source,
        image_file(
            site, Directory(site.directory), image_of("raw"), size=SIZE, name="i", source=source
        ) as made,
    ):
        offsets = sampled(SIZE, 4096)
        monkeypatch.setattr("vdisklab.storage.returned.sampled", lambda _size, _block: offsets)

        def damage(file: Path, *_more: Path) -> None:
            descriptor = os.open(file, os.O_WRONLY)
            os.pwrite(descriptor, bytes(4096), offsets[7])
            os.fsync(descriptor)
            os.close(descriptor)

        monkeypatch.setattr("vdisklab.host.pagecache.evict", damage)
        with pytest.raises(
            HostError, match=rf"1 of {BLOCKS} blocks .* first at byte {offsets[7]}$"
        ):
            require_returned(site, made, SIZE)


@pytest.mark.parametrize("size", [0, 4096, 10 * 4096, SIZE, (1 << 40) + 512])
def test_the_sample_lies_all_over_the_disk(size: int) -> None:
    offsets = sampled(size, 4096)
    assert len(offsets) == min(BLOCKS, size // 4096)
    assert list(offsets) == sorted(set(offsets))
    assert all(offsets % 4096 == 0 and offsets + 4096 <= size for offsets in offsets)
