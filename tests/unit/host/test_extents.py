"""What a file occupies, and what it shares, as its file system tells."""

from __future__ import annotations

import os
from pathlib import Path

from vdisklab.host.extents import extents_of
from vdisklab.host.pagecache import unwritten_bytes


def test_the_extents_of_a_file_with_a_hole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as opened:
        os.posix_fallocate(opened.fileno(), 0, 1 << 20)
        os.posix_fallocate(opened.fileno(), 3 << 20, 1 << 20)
        os.truncate(opened.fileno(), 8 << 20)
    found = extents_of(file)
    if found is not None:  # tmpfs does not tell
        assert found.shared == 0
        assert found.mapped == 2 << 20
        assert found.count >= 2


def test_an_empty_file_has_no_extents(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    found = extents_of(file)
    assert found is None or (found.count, found.mapped, found.shared) == (0, 0, 0)


def test_what_was_synced_waits_no_more(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as opened:
        opened.write(bytes(1 << 20))
        opened.flush()
        os.fsync(opened.fileno())
    assert unwritten_bytes(file) in (0, None)
    assert unwritten_bytes(tmp_path / "missing") is None
