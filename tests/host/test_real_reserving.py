"""A new image holds what `preallocation` asks for, and is refused where it does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.image import image_file
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.stack import build_stack
from vdisklab.units import MIB

pytestmark = pytest.mark.host

# As a program or a file system that makes another image than it was asked for.
_OTHERWISE = """#!/bin/sh
case $* in
*preallocation={asked}*)
    exec {real} $(echo "$*" | sed 's/preallocation={asked}/preallocation={made}/')
    ;;
esac
exec {real} "$@"
"""
_SIZE = 17 * MIB  # no multiple of the largest cluster


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_ledger() as ledger, open_site(LocalHost(), ledger, tmp_path) as opened:
        yield opened


def make(site: Site, text: str) -> dict[str, str]:
    """What was read back of a new image that has nothing to hold."""
    image = parse_path(f"{text}/none").image
    with (
        build_stack(site, (), 0, "s") as target,
        image_file(site, target, image, size=_SIZE, name="i", source=None) as made,
    ):
        return dict(made.properties)


@pytest.mark.parametrize(
    ("text", "placed"),
    [
        ("qcow2:preallocation=off", 0),
        ("qcow2:preallocation=metadata", _SIZE),
        ("qcow2:preallocation=metadata:cluster_size=2M", _SIZE),
        ("qcow2:preallocation=metadata:cluster_size=512", _SIZE),
        ("qcow2:preallocation=falloc", _SIZE),
        ("vmdk", 0),
    ],
)
def test_the_places_in_an_image_are_read_back(site: Site, text: str, placed: int) -> None:
    assert make(site, text)["image.placed"] == str(placed)


@pytest.mark.parametrize(
    ("text", "made", "seen"),
    [
        ("raw:preallocation=falloc", "off", r"occupies \d+ bytes.* reserves 17825792"),
        ("raw:preallocation=off", "falloc", r"occupies 17825792 bytes.* reserves none"),
        ("qcow2:preallocation=off", "metadata", r"image\.placed of .* is 17825792 instead of 0"),
        ("qcow2:preallocation=metadata", "off", r"image\.placed of .* is 0 instead of 17825792"),
        ("qcow2:preallocation=metadata", "falloc", r"occupies \d+ bytes.* reserves none"),
        ("qcow2:preallocation=falloc", "off", r"image\.placed of .* is 0 instead of 17825792"),
        ("qcow2:preallocation=falloc", "metadata", r"occupies \d+ bytes.* reserves 1782"),
    ],
)
def test_another_allocation_than_the_one_asked_for_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, made: str, seen: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "qemu-img"
    asked = text.rpartition("=")[2]
    real = shutil.which("qemu-img")
    program.write_text(_OTHERWISE.format(real=real, asked=asked, made=made))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(HostError, match=seen) as caught:
        make(site, text)
    assert caught.value.hint is not None
