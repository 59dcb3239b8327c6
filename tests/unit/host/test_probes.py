"""What the kernel supports, from its files and by trying."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.host.files import write
from vdisklab.host.pagecache import KernelParts, try_o_direct


def test_kernel_parts_built_in_loadable_and_absent(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/sys/kernel/osrelease": "6.1\n",
            "proc/filesystems": "nodev\ttmpfs\n\text4\n",
            "proc/devices": "Block devices:\n  7 loop\n",
            "lib/modules/6.1/modules.dep": "kernel/fs/xfs/xfs.ko.zst: kernel/lib/crc.ko\n",
            "lib/modules/6.1/modules.builtin": "kernel/drivers/md/dm-mod.ko\n",
        },
    )
    parts = KernelParts(root)
    assert parts.has_filesystem("ext4")
    assert parts.has_filesystem("xfs")
    assert not parts.has_filesystem("zfs")
    assert parts.has_driver("loop", "loop")
    assert parts.has_driver("device-mapper", "dm_mod")
    assert not parts.has_driver("md", "md_mod")


def test_o_direct_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No such file" in (try_o_direct(tmp_path / "absent") or "")

    def refuse(*_arguments: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("os.pwritev", refuse)
    refused = try_o_direct(tmp_path)
    # Where even opening is refused (an old tmpfs) the reason is another, but it is refused.
    assert refused is not None
    assert "O_DIRECT: Invalid argument" in refused
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("cached", "direct"), [(3, True), (99, False)])
def test_data_that_went_through_the_page_cache_once_is_no_proof(
    cached: int, direct: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """btrfs does that on a busy machine: 11 of 420 trials."""
    answers = iter([1.0] * cached + [0.0])
    monkeypatch.setattr("vdisklab.host.pagecache.residency", lambda _file: next(answers))
    refused = try_o_direct(tmp_path)
    assert refused == (None if direct else "the data went through the page cache")
