from __future__ import annotations

import pytest

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import parse_path
from vdisklab.plan.needs import parse_need


@pytest.mark.parametrize(
    ("need", "path", "met"),
    [
        ("durable", "raw/none", True),
        ("durable", "raw/unsafe", False),
        ("durable", "tmpfs/raw/writeback", False),
        ("durable", "zfs:sync=disabled/qcow2/writeback", False),
        ("durable", "zfs/qcow2/writeback", True),
        ("durable", "ext4:barrier=off/raw/none", False),
        ("format=qcow2", "qcow2/none", True),
        ("format=qcow2", "raw/none", False),
        ("format=qcow2", "lvm/none", False),
        ("cache=none", "raw/none", True),
        ("bus=virtio", "raw/none", True),
        ("bus=nvme", "raw/none", False),
        ("layer=ext4", "zvol/ext4/qcow2/none", True),
        ("layer=ext4", "raw/none", False),
    ],
)
def test_needs(need: str, path: str, met: bool) -> None:
    assert parse_need(need).met(parse_path(path)) is met


@pytest.mark.parametrize(
    "text", ["", "fast", "format", "format=", "format=iso", "size=1", "cache=fast"]
)
def test_what_is_no_need(text: str) -> None:
    with pytest.raises(PlanError, match="is no"):
        parse_need(text)
