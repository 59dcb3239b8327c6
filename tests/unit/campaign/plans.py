"""Plans to schedule, estimate and preview."""

from __future__ import annotations

from pathlib import Path

from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.plan.settings import Request
from vdisklab.value import replace

PROFILE = Profile("p", "", (MeasurementPlan("m", "fio", {"rw": "read", "bs": "4k"}),))


def a_plan(*paths: str, rounds: int = 3, seed: int = 1, baseline: str = "none") -> CampaignPlan:
    """A plan of these paths on a host that can do everything."""
    request = Request(paths=paths, rounds=rounds, seed=seed, size_bytes=64 << 20, baseline=baseline)
    plan = build_plan(request, Capabilities(), PROFILE)
    return replace(plan, directory=Path("/w"))
