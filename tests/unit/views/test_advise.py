"""What `advise` says of a disk: the words."""

from __future__ import annotations

import pytest

from tests.unit.analysis.made import IOPS, cell
from vdisklab.answers.disks import Advice, DiskAction, DiskStanding, ExistingDisk
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.views.advise import advice_sentence


@pytest.mark.parametrize(
    ("disk", "measured", "said"),
    [
        ("ext4/raw:preallocation=off/none", "raw/none", ", measured as raw/none: no other setting"),
        ("qcow2/none", "qcow2:preallocation=off/none", ", measured as qcow2:preallocation=off"),
        ("ext4/raw:preallocation=off/none", "raw:preallocation=off/none", None),
        ("ext4/raw/none", "raw/none", None),
        ("lvm/none", "lvm/none", None),
    ],
)
def test_a_disk_is_kept_by_what_was_measured(disk: str, measured: str, said: str | None) -> None:
    path = parse_path(disk)
    standing = DiskStanding(cell(measured), False, (), IOPS, None, 1, 3, 3)
    advice = Advice(path, standing, DiskAction.KEEP)
    row = ExistingDisk(ConfiguredDisk("web", "vda", None, path), path, (), advice=advice)
    sentence = advice_sentence(row)
    assert sentence.startswith(f"keep {disk}")
    assert (", measured as " in sentence) is (said is not None)
    assert said is None or said in sentence
