"""preallocation=falloc on a file system that does not reserve what it is asked for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.path import parse_path
from vdisklab.storage.image import image_file
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack
from vdisklab.units import MIB

pytestmark = pytest.mark.host

# As posix_fallocate on a file system that only pretends: the size is right, and no block is held.
_FORGETFUL = """#!/bin/sh
case $* in
*preallocation=falloc*)
    exec {real} $(echo "$*" | sed 's/preallocation=falloc/preallocation=off/')
    ;;
esac
exec {real} "$@"
"""


@pytest.mark.parametrize("form", ["raw", "qcow2"])
def test_space_that_is_not_reserved_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "qemu-img"
    program.write_text(_FORGETFUL.format(real=shutil.which("qemu-img")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    image = parse_path(f"{form}:preallocation=falloc/none").image
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
        build_stack(site, (), 0, "s") as target,
        pytest.raises(HostError, match="preallocation=falloc was to reserve 16777216") as caught,
        image_file(site, target, image, size=16 * MIB, name="i", source=None),
    ):
        pytest.fail("not reached")
    assert caught.value.hint is not None
