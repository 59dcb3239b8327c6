"""Sentences of `recommend` about storage that the user names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from vdisklab.analysis.candidates import Recommendation
from vdisklab.path.cell import MeasuredCell
from vdisklab.views.recommend import _over_default


@pytest.mark.parametrize(
    ("path", "usual"),
    [
        ("nbd:at=fast/qcow2/none/scsi", "nbd:at=fast/qcow2/writeback"),
        ("rbd:at=vms/none", "rbd:at=vms/writeback"),
        ("ext4/raw/none", "raw/writeback"),
    ],
)
def test_qemus_default_is_that_of_the_recommended_target(path: str, usual: str) -> None:
    cell = MeasuredCell(path)
    chosen = SimpleNamespace(default=None, cell=cell, over_default=None)
    (sentence,) = _over_default(cast(Recommendation, chosen))
    assert sentence == f"QEMU's default was not measured: `vdisklab run {usual}`."
