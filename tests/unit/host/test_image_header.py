"""The first bytes of an image show its format; what is no image shows none."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from vdisklab.host.image_file import header_format
from vdisklab.path.segments import ImageFormat


@pytest.mark.parametrize("form", [form for form in ImageFormat if form.is_file])
def test_images_of_qemu_are_recognised(form: ImageFormat, tmp_path: Path) -> None:
    program = shutil.which("qemu-img")
    if program is None:
        pytest.skip("qemu-img is not installed")
    image = tmp_path / "image"
    subprocess.run([program, "create", "-q", "-f", form, image, "4M"], check=True)
    assert header_format(image) is form


def test_what_is_no_image_has_no_format(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert header_format(tmp_path / "fifo") is None
    assert header_format(tmp_path) is None
    assert header_format(tmp_path / "missing") is None
    (tmp_path / "empty").touch()
    assert header_format(tmp_path / "empty") is ImageFormat.RAW
