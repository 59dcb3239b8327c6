"""What a configuration names is opened only if it is a file or block device, and that very one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from vdisklab.host.image_file import format_of, id_of, seen_file
from vdisklab.path.segments import ImageFormat

QCOW2 = b"QFI\xfb" + bytes(600)


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "directory", "missing", "a\0b"])
def test_nothing_else_is_opened(tmp_path: Path, kind: str) -> None:
    name = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(name)
    elif kind == "directory":
        name.mkdir()
    elif kind == "device":
        name = Path("/dev/tty")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(str(name))
    with seen_file(name) as file:
        assert file is None


def test_a_file_of_procfs_that_has_no_size_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty.img"
    empty.touch()
    monkeypatch.delattr("os.pread")
    for name in (Path("/proc/self/status"), empty):
        with seen_file(name) as file:
            assert format_of(file) is ImageFormat.RAW


def test_only_files_that_are_allowed_are_opened(tmp_path: Path) -> None:
    image, other = tmp_path / "a.img", tmp_path / "b.img"
    image.write_bytes(QCOW2)
    other.write_bytes(QCOW2)
    allowed = frozenset(filter(None, [id_of(image.stat())]))
    with seen_file(image, allowed) as file:
        assert format_of(file) is ImageFormat.QCOW2
    with seen_file(other, allowed) as file:
        assert file is None
    image.unlink()
    image.symlink_to(other)  # the name leads elsewhere now
    with seen_file(image, allowed) as file:
        assert file is None


def test_what_was_looked_at_is_what_is_read(tmp_path: Path) -> None:
    image = tmp_path / "a.img"
    image.write_bytes(QCOW2)
    with seen_file(image) as file:
        image.unlink()
        os.mkfifo(image)
        assert format_of(file) is ImageFormat.QCOW2
