"""A work directory that cannot be used is said with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.host.mounts import require_work_directory


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "does not exist"),
        ("file", "is not a directory"),
        ("file/in", "cannot be used: Not a directory"),
        ("a" * 300, "cannot be used: File name too long"),
        ("loop/in", "cannot be used: Too many levels of symbolic links"),
    ],
)
def test_the_reason_is_the_kernels(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    require_work_directory(tmp_path)
    with pytest.raises(HostError, match=reason):
        require_work_directory(tmp_path / name)
