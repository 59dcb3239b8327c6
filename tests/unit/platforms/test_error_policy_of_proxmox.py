"""The error policy of a disk of Proxmox VE is a setting that one line changes."""

from __future__ import annotations

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests


@pytest.mark.parametrize(
    ("line", "to", "policy"),
    [
        ("werror=ignore", "none/virtio:werror=stop", "werror=stop"),
        ("werror=ignore,rerror=ignore", "none/virtio:werror=stop:rerror=stop",
         "werror=stop,rerror=stop"),
        ("rerror=ignore", "none/virtio:rerror=stop", "rerror=stop"),
        ("size=1G", "none/virtio:werror=enospc", "werror=enospc"),
        ("werror=stop", "none/virtio", "werror=stop"),
    ],
)  # fmt: skip
def test_a_line_sets_the_error_policy(line: str, to: str, policy: str) -> None:
    def read(disk: str) -> GuestText:
        return GuestText(f"memory: 512\nname: a\nvirtio0: {disk}\n", "7.conf")

    (disk,) = read_guests([read(f"/dev/sdb,{line}")])
    change = change_of(disk, parse_path(to))
    written = change.paste.rpartition(" ")[2]
    assert sorted(word for word in written.split(",") if "error=" in word) == sorted(
        policy.split(",")
    )
    assert change.undo == f"qm set 7 --virtio0 /dev/sdb,{line}"
    (changed,) = read_guests([read(written)])
    assert changed.ignored_errors == ()
