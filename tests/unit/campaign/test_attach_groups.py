"""Which measurements share an attach."""

from __future__ import annotations

import pytest

from vdisklab.campaign.schedule import attach_groups
from vdisklab.plan.profile import MeasurementPlan

FIO = MeasurementPlan("f", "fio", {"rw": "read", "bs": "4k"})
DPKG = MeasurementPlan("d", "dpkg", {"system": "short"}, "ext4")


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        ((), ()),
        ((FIO, FIO), ((False, (FIO, FIO)),)),
        ((DPKG, DPKG), ((True, (DPKG,)), (True, (DPKG,)))),
        ((FIO, DPKG, FIO), ((False, (FIO,)), (True, (DPKG, FIO)))),
    ],
)
def test_a_fresh_guest_is_shared_with_none_before(
    plans: tuple[MeasurementPlan, ...], expected: tuple[tuple[bool, object], ...]
) -> None:
    assert attach_groups(plans) == expected
