"""Sentences of `recommend` about storage that the user names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from vdisklab.answers.recommend import RecommendAnswer
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
    chosen = SimpleNamespace(
        recommendation=SimpleNamespace(default=None, cell=cell, over_default=None),
        campaigns=(SimpleNamespace(id="3f2a"),),
        default_measured_in=None,
        lives_measured_in=None,
    )
    (sentence,) = _over_default(cast(RecommendAnswer, chosen))
    assert sentence == (
        f"QEMU's default was not measured in campaign 3f2a: `vdisklab run {usual}`."
    )
