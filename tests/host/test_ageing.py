"""Ageing on the real kernel, with the real qemu-img and qemu-io."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.plan.age import parse_age
from vdisklab.storage.ageing import aged, fill_filesystem
from vdisklab.storage.image import image_file, random_source
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.stack import build_stack
from vdisklab.units import MIB

pytestmark = pytest.mark.host
SIZE = 16 * MIB


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_ledger() as ledger, open_site(LocalHost(), ledger, tmp_path) as made:
        yield made


@pytest.mark.parametrize("layer", ["ext4", "btrfs"])
def test_a_filled_file_system_gives_files_in_pieces(site: Site, layer: str) -> None:
    age = parse_age("fill=80%")
    layers = parse_path(f"{layer}/host").layers
    with (
        random_source(site, SIZE) as source,
        build_stack(site, layers, age.capacity(SIZE), "s", allocate=False) as target,
    ):
        image = parse_path("raw").image
        with image_file(site, target, image, size=SIZE, name="new", source=source) as made:
            fresh = aged(site, made, image, age, source=source, seed=1)
        fill_filesystem(site, target, 80, seed=1)
        with image_file(site, target, image, size=SIZE, name="old", source=source) as made:
            used = aged(site, made, image, age, source=source, seed=1)
        pieces = [int(each.properties["age.file_extents_after"]) for each in (fresh, used)]
        assert pieces[1] > 4 * pieces[0], pieces


@pytest.mark.parametrize(
    "path",
    [
        "qcow2",
        "qcow2:preallocation=off",
        pytest.param("qcow2:encrypt=luks", marks=pytest.mark.nightly),  # 3 s for its key
    ],
)
def test_rewrites_between_snapshots_leave_a_sound_image_in_pieces(site: Site, path: str) -> None:
    age, image = parse_age("rewrites=2,snapshots=2"), parse_path(path).image
    with build_stack(site, (), SIZE, "s") as target, random_source(site, SIZE) as source:
        filled = None if image is not None and image.is_thin else source
        with image_file(site, target, image, size=SIZE, name="i", source=filled) as made:
            old = aged(site, made, image, age, source=source, seed=7)
            assert old.properties["age.state"] == str(age)
            if made.key_file is None:
                names = [f"age.image_extents_{when}" for when in ("before", "after")]
                before, after = (int(old.properties[name]) for name in names)
                assert after > before
                checked = subprocess.run(
                    ("qemu-img", "check", made.on_host), capture_output=True, text=True, check=False
                )
                assert checked.returncode == 0, checked.stdout
                listed = subprocess.run(
                    ("qemu-img", "snapshot", "-l", made.on_host),
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                assert "age" not in listed.stdout
