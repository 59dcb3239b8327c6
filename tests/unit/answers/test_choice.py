"""The command that races what is tied."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs, cell, observed
from tests.unit.stored import stored
from vdisklab.analysis.observations import MeasureKey
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.choice import Behind, behind_in, race_command
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.named_target import parse_target
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.settings import Request
from vdisklab.results.model import Direction
from vdisklab.workload.profile_files import load_profile


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        ({}, ""),
        ({"ramp": 0.5}, "--ramp 0.5"),
        ({"ramp": 0.0}, ""),
        ({"runtime": 5.0}, "--runtime 5"),
        ({"profile": "quick"}, "--profile quick"),
        ({"profile": "quick", "ramp": 0.0}, "--ramp 0"),
        ({"profile": "quick", "ramp": 0.5}, "--profile quick"),
    ],
)
def test_what_differs_from_the_profile_is_named(settings: dict[str, object], printed: str) -> None:
    """Also a value that is nobody's default but the general one, and a zero of the profile's."""
    request = Request(paths=("{raw,qcow2}/none",), directory=Path("/tmp"), **settings)  # type: ignore[arg-type]  # noqa: S108
    plan = build_plan(request, Capabilities(), load_profile(request.profile or "short"))
    campaign = dataclasses.replace(CAMPAIGN, plan=plan.as_json())
    with stored(campaign_runs(3), campaigns=[campaign]) as store:
        found = Analysis.of(store, [CAMPAIGN.id])
        tied = [cell for cell in found.loaded.observations.cells if str(cell) != "host"][:2]
        command = race_command(found, tied, None)
    assert command is not None
    assert printed in command
    assert ("--ramp" in command) == ("--ramp" in printed)
    assert ("--runtime" in command) == ("--runtime" in printed)


def test_only_the_targets_of_what_is_raced_are_named() -> None:
    """One that has gone away since would hold up the race."""
    targets = [parse_target(f"{name}=nbd://h/{name}") for name in ("near", "far")]
    request = Request(
        paths=("nbd:at={near,far}/raw/none", "raw/none"), target=tuple(targets),
        directory=Path("/tmp"),  # noqa: S108
    )  # fmt: skip
    plan = build_plan(request, Capabilities(), load_profile("short"))
    campaign = dataclasses.replace(CAMPAIGN, plan=plan.as_json())
    with stored(campaign_runs(3), campaigns=[campaign]) as store:
        found = Analysis.of(store, [CAMPAIGN.id])
        raced = [MeasuredCell(path) for path in ("nbd:at=near/raw/none", "raw/none")]
        command = race_command(found, raced, None)
    assert command is not None
    assert "--target near=nbd://h/near" in command
    assert "far" not in command


class TestBehindIn:
    READ = MeasureKey("read", Direction.READ, "bandwidth")
    TIME = MeasureKey("boot", Direction.NONE, "boot_time")
    CELLS = (cell("c00"), cell("c01"))

    def behind(self, read: float, time: float, noise: float = 0.01) -> Behind | None:
        """What is said of c00, if c01 is `read` times as fast and takes `time` times as long."""
        wobble = 1 + noise * np.array([[0.0, 1, -1, 1, -1, 0], [1.0, -1, 0, 0, 1, -1]])
        grids = {self.READ: np.array([[1.0], [read]]) * wobble,
                 self.TIME: np.array([[1.0], [time]]) * wobble}  # fmt: skip
        return behind_in(observed(grids), (self.READ, self.TIME), self.CELLS[0], self.CELLS)

    def test_the_largest_lead_is_named(self) -> None:
        found = self.behind(1.3, 0.5)
        assert found is not None
        assert (found.measure, found.cell) == (self.TIME, self.CELLS[1])
        assert 1.9 < found.least < 2
        found = self.behind(1.3, 1.0)
        assert found is not None
        assert found.measure == self.READ
        assert 1.25 < found.least < 1.3

    @pytest.mark.parametrize(
        ("read", "time", "noise"), [(1.05, 1.0, 0.001), (0.5, 2.0, 0.01), (1.3, 1.0, 0.3)]
    )
    def test_a_small_or_uncertain_lead_is_not(self, read: float, time: float, noise: float) -> None:
        assert self.behind(read, time, noise) is None
