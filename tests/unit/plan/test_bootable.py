"""Profiles that boot guests from the measured disk."""

from __future__ import annotations

import pytest

from vdisklab.errors import PlanError
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.plan.settings import Request

BOOT = Profile("b", "", (MeasurementPlan("boot", "boot", {}),))
FIO = MeasurementPlan("read", "fio", {"rw": "read", "bs": "4k"})


def test_the_host_is_no_baseline() -> None:
    plan = build_plan(Request(paths=("raw/none",)), Capabilities(), BOOT)
    assert [cell.path.canonical for cell in plan.cells] == ["raw/none"]


def test_what_no_guest_can_boot_from_is_dropped() -> None:
    plan = build_plan(Request(paths=("raw/none", "host", "null")), Capabilities(), BOOT)
    assert [cell.path.canonical for cell in plan.cells] == ["raw/none"]
    assert {(one.path, one.reason) for one in plan.dropped} == {
        ("host", "a boot needs a guest"), ("null/default", "there is no disk to boot from"),
    }  # fmt: skip


def test_nothing_is_left() -> None:
    with pytest.raises(PlanError, match="host cannot be measured: a boot needs"):
        build_plan(Request(paths=("host",)), Capabilities(), BOOT)


def test_a_boot_stands_alone() -> None:
    mixed = Profile("m", "", (*BOOT.measurements, FIO))
    with pytest.raises(PlanError, match="'read' would overwrite"):
        build_plan(Request(paths=("raw/none",)), Capabilities(), mixed)
