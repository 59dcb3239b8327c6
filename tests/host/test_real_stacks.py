"""Stacks and images on the real kernel."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from vdisklab.actions.clean import remove_leftovers
from vdisklab.errors import DirtyHostError, HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.mounts import mount_at, mounts_below
from vdisklab.host.pagecache import occupied_bytes
from vdisklab.path.disk_path import Layer, parse_path
from vdisklab.storage import undo
from vdisklab.storage.image import image_file, overlays, random_source
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.targets import Device
from vdisklab.storage.zram import ZRAM_BLOCK, ZRAM_CONTROL, zram_devices
from vdisklab.units import MIB

pytestmark = pytest.mark.host


def layers(text: str) -> tuple[Layer, ...]:
    return parse_path(f"{text}/host" if text else "host").layers


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_ledger() as ledger, open_site(LocalHost(), ledger, tmp_path) as made:
        yield made


def loops_below(directory: Path) -> list[str]:
    """Loop devices on files in a directory, as the kernel lists them."""
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if str(directory) in file.read_text():
                found.append(file.parent.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("ext4", {"loop.direct_io": "on"}),
        ("ext4:barrier=off:data=journal", {}),
        ("xfs:reflink=off", {"xfs.reflink": "off"}),
        ("btrfs:compress=zstd", {}),
    ],
)
def test_a_file_system_holds_its_capacity_and_leaves_nothing(
    site: Site, text: str, seen: dict[str, str]
) -> None:
    with build_stack(site, layers(text), 64 * MIB, "s", allocate=False) as target:
        with (target.on_host / "file").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 64 * MIB)
        # journalled or compressed data go through the page cache, O_DIRECT or not
        cached = "data=journal" in text or "compress" in text
        assert target.usable() is not cached
        assert seen.items() <= target.properties.items()
        assert mounts_below(site.directory)
    assert not mounts_below(site.directory)
    assert not loops_below(site.directory)
    assert list(site.directory.iterdir()) == []


def test_tmpfs_refuses_or_serves_direct_io_as_this_kernel_does(site: Site) -> None:
    with build_stack(site, layers("tmpfs"), 16 * MIB, "s") as target:
        mount = mount_at(target.on_host)
        assert mount is not None
        assert mount.filesystem == "tmpfs"
        assert target.usable() in (True, False)  # since Linux 6.6 it does
    assert not mounts_below(site.directory)


@pytest.mark.skipif(not ZRAM_CONTROL.is_dir(), reason="this kernel has no zram")
def test_zram_is_read_back_and_removed(site: Site) -> None:
    before = set(zram_devices())
    used = next(iter(available_algorithms()))
    with build_stack(site, layers(f"zram:algorithm={used}"), 16 * MIB, "s") as target:
        assert isinstance(target, Device)
        assert target.properties["zram.algorithm"] == used
        assert int(target.properties["zram.disksize"]) >= 16 * MIB
        assert target.usable()
        assert len(set(zram_devices()) - before) == 1
    assert set(zram_devices()) == before
    other = next(iter({"842", "deflate", "lz4hc", "zstd"} - available_algorithms()), None)
    if other is not None:
        with (
            pytest.raises(HostError, match=f"no algorithm {other}"),
            build_stack(site, layers(f"zram:algorithm={other}"), 16 * MIB, "s"),
        ):
            pass
        assert set(zram_devices()) == before


@pytest.mark.skipif(not ZRAM_CONTROL.is_dir(), reason="this kernel has no zram")
def test_zram_waits_for_a_program_that_looks_at_the_device(site: Site) -> None:
    before = set(zram_devices())
    with build_stack(site, layers("zram"), 16 * MIB, "s") as target:
        looking = subprocess.Popen(
            ["sh", "-c", f"exec 3<{target.on_host}; echo; sleep 1"], stdout=-1
        )
        assert looking.stdout is not None
        assert looking.stdout.readline() == b"\n"
    assert set(zram_devices()) == before
    looking.communicate()
    assert looking.returncode == 0


def available_algorithms() -> set[str]:
    """The compressions of this kernel's zram, as a new device shows them."""
    number = (ZRAM_CONTROL / "hot_add").read_text().strip()
    algorithms = (ZRAM_BLOCK / f"zram{number}" / "comp_algorithm").read_text()
    (ZRAM_CONTROL / "hot_remove").write_text(number)
    return set(algorithms.replace("[", "").replace("]", "").split())


def test_a_full_file_system_is_not_one_without_direct_io(site: Site) -> None:
    with build_stack(site, layers("tmpfs"), MIB, "s") as target:
        with (
            contextlib.suppress(OSError),
            (target.on_host / "fill").open("wb", buffering=0) as fill,
        ):
            while True:
                fill.write(bytes(MIB))
        with pytest.raises(HostError, match=r"nothing can be written in .*No space left"):
            target.usable()


@pytest.mark.parametrize("text", ["raw/none", "qcow2/none", "qcow2:cluster_size=2M/none"])
def test_a_full_image_holds_every_byte_of_the_source(site: Site, text: str) -> None:
    made = parse_path(text).image
    with (
        build_stack(site, (), 0, "s") as target,
        random_source(site, 16 * MIB) as source,
        image_file(site, target, made, size=16 * MIB, name="i", source=source) as image,
    ):
        assert image.properties["image.mapped"] == str(16 * MIB)
        site.host.run("qemu-img", "compare", "-f", image.format, "-F", "raw", image.on_host, source)
        allocated = occupied_bytes(image.on_host)
        assert allocated is not None
        assert allocated >= 16 * MIB


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("raw:preallocation=off/none", 0, MIB),
        ("raw:preallocation=falloc/none", 16 * MIB, 17 * MIB),
        ("qcow2:preallocation=off/none", 0, MIB),
        ("qcow2:preallocation=falloc/none", 16 * MIB, 18 * MIB),
    ],
)
def test_a_thin_image_occupies_what_was_asked(site: Site, text: str, least: int, most: int) -> None:
    made = parse_path(text).image
    with (
        build_stack(site, (), 0, "s") as target,
        image_file(site, target, made, size=16 * MIB, name="i", source=None) as image,
    ):
        allocated = occupied_bytes(image.on_host)
        assert allocated is not None
        assert least <= allocated <= most


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("qcow2:extended_l2=on:cluster_size=16k/none", {"extended_l2": "True"}),
        ("qcow2:data_file=raw/none", {"data_file": "raw"}),
        ("qcow2:snapshots=2:bitmaps=3/none", {"snapshots": "2", "bitmaps": "3"}),
        # 3 s for its key; a commit measures one in a guest (test_campaigns), and judges another.
        pytest.param("qcow2:encrypt=luks/none", {"encrypt": "luks"}, marks=pytest.mark.nightly),
        ("raw:encrypt=luks/none", {"encrypt": "luks"}),
    ],
)
def test_what_belongs_to_an_image_is_read_back_and_removed(
    site: Site, text: str, properties: Mapping[str, str]
) -> None:
    made = parse_path(text).image
    with build_stack(site, (), 0, "s") as target, random_source(site, 16 * MIB) as source:
        before = set(target.on_host.iterdir())
        with image_file(site, target, made, size=16 * MIB, name="i", source=source) as image:
            assert {f"image.{key}": value for key, value in properties.items()}.items() <= (
                image.properties.items()
            )
            assert image.properties["image.mapped"] == str(16 * MIB)
            if image.key_file is not None:
                assert image.key_file.stat().st_mode & 0o777 == 0o600
        assert set(target.on_host.iterdir()) == before


def test_each_overlay_of_a_chain_holds_its_share(site: Site) -> None:
    made = parse_path("qcow2:backing=3:overlay=25%:extended_l2=on/none").image
    assert made is not None
    with (
        build_stack(site, (), 0, "s") as target,
        random_source(site, 16 * MIB) as source,
        image_file(site, target, made.base, size=16 * MIB, name="i", source=source) as base,
    ):
        with overlays(site, target, made, base, name="c") as chain:
            assert chain.properties["image.backing"] == "3"
            assert [file.name for file in chain.backing] == ["c-2.qcow2", "c-1.qcow2", "i.qcow2"]
            for file in (chain.on_host, *chain.backing[:-1]):
                command = ("qemu-img", "map", "--output=json", file)
                extents = json.loads(site.host.run(*command).stdout)
                allocated = sum(extent["length"] for extent in extents if extent["depth"] == 0)
                assert allocated == 4 * MIB
        assert not chain.on_host.exists()
        assert base.on_host.exists()


def test_what_a_block_writes_on_too_small_a_file_system_is_a_sentence(site: Site) -> None:
    """The random source is the first that meets a full file system."""
    with build_stack(site, layers("tmpfs"), 4 * MIB, "s") as target:
        small = Site(site.host, site.ledger, target.on_host)
        with (
            pytest.raises(HostError, match="No space left on device"),
            random_source(small, 64 * MIB),
        ):
            pytest.fail("not reached")
        assert list(target.on_host.iterdir()) == []


@contextmanager
def held_open(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield
    finally:
        os.close(descriptor)


def test_a_busy_mount_is_named_kept_and_cleaned_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo, "_BUSY_SECONDS", 0.3)
    state = tmp_path / "state"
    with ExitStack() as holding:

        def build_and_hold() -> None:
            with (
                open_ledger(state) as ledger,
                open_site(LocalHost(), ledger, tmp_path) as site,
                build_stack(site, layers("ext4"), 16 * MIB, "s", allocate=False) as target,
            ):
                holding.enter_context(held_open(target.on_host))

        with pytest.raises(DirtyHostError, match=rf"in use by .* \({os.getpid()}\)"):
            build_and_hold()
        (mount,) = mounts_below(tmp_path)  # never lazily
        with pytest.raises(DirtyHostError, match="in use by"):
            list(remove_leftovers(LocalHost(), directory=state))
        assert (mount.mountpoint.parent / "s.slice").exists()
    removed = list(remove_leftovers(LocalHost(), directory=state))
    assert "mount" in {entry.kind for entry in removed}
    assert not mounts_below(tmp_path)
    assert not loops_below(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert not list((state / "ledger").iterdir())


# Stops for good at the step named: before or after each thing that is made.
_KILLED = """
    import os, sys, time
    from pathlib import Path
    from vdisklab.host.command import LocalHost
    from vdisklab.host.ledger import open_ledger
    from vdisklab.path.disk_path import parse_path
    from vdisklab.storage.image import image_file, random_source
    from vdisklab.storage.site import open_site
    from vdisklab.storage.stack import build_stack

    state, work, step = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

    def reached(name):
        if name == step:
            print("reached", flush=True)
            time.sleep(60)

    class Host(LocalHost):
        def run(self, *argv, **more):
            reached(f"before {argv[0]}")
            done = super().run(*argv, **more)
            reached(f"after {argv[0]}")
            return done

    path = parse_path("xfs/qcow2/none")
    with (
        open_ledger(state) as ledger,
        open_site(Host(), ledger, work) as site,
        random_source(site, 1 << 24) as source,
        build_stack(site, path.layers, 1 << 25, "s", allocate=False) as target,
        image_file(site, target, path.image, size=1 << 24, name="i", source=source),
    ):
        reached("all")
"""


@pytest.mark.parametrize(
    "step",
    [
        "before losetup", "after losetup", "after mkfs.xfs", "after mount",
        "before qemu-img", "after qemu-img", "all",
    ],
)  # fmt: skip
def test_sigkill_then_clean_leaves_nothing(tmp_path: Path, step: str) -> None:
    state, work = tmp_path / "state", tmp_path / "work"
    work.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_KILLED), str(state), str(work), step],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "reached\n"
            list(remove_leftovers(LocalHost(), directory=state))
            assert list(work.iterdir()), "clean must not touch what a live process holds"
        finally:
            process.kill()
            process.wait(10)
    deadline = time.monotonic() + 5
    while list(work.iterdir()) and time.monotonic() < deadline:
        list(remove_leftovers(LocalHost(), directory=state))
    assert list(work.iterdir()) == []
    assert not mounts_below(work)
    assert not loops_below(work)
    assert list((state / "ledger").iterdir()) == []
