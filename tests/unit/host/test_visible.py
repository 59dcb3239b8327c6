"""A work directory that cannot be used is said with its reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.host import mounts
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


def test_a_mount_is_found_by_any_name_of_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's table has no symbolic links and no `..`, as in `--dir ../work`."""
    work = tmp_path / "work"
    (work / "run" / "mnt").mkdir(parents=True)
    (tmp_path / "link").symlink_to(work)
    mounted = mounts.Mount(work / "run" / "mnt", "ext4", "/dev/loop0", frozenset())
    monkeypatch.setattr(mounts, "read_mounts", lambda: (mounted,))
    for name in (work, tmp_path / "link", work / ".." / "work", work / "run" / ".."):
        assert mounts.mount_at(name / "run" / "mnt") == mounted
        assert mounts.mounts_below(name / "run") == (mounted,)
    assert mounts.mount_at(work / "run") is None
    assert mounts.mounts_below(work / "run" / "mnt") == ()


def test_what_this_user_may_not_look_for_is_neither_there_nor_absent(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    assert not mounts.is_out_of_sight(tmp_path / "absent")
    assert not mounts.is_out_of_sight(tmp_path)
    assert not mounts.is_out_of_sight(Path("zero\0byte"))
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        assert mounts.is_out_of_sight(closed / "qs")
        assert not mounts.is_surely_absent(closed / "qs")
    finally:
        if was_root:
            os.seteuid(0)
        closed.chmod(0o700)
