"""Which measurements of a cell share an attach of its disk, and which get a guest of their own."""

from __future__ import annotations

from collections.abc import Sequence

from vdisklab.plan.profile import MeasurementPlan
from vdisklab.workload.registry import workload_for

Sittings = tuple[tuple[bool, tuple[MeasurementPlan, ...]], ...]
"""(must the guest be freshly booted?, the measurements that share an attach), in order."""


def attach_groups(plans: Sequence[MeasurementPlan]) -> Sittings:
    """All measurements, in order. One that needs a fresh guest shares it with none before it."""
    found: list[tuple[bool, tuple[MeasurementPlan, ...]]] = []
    for plan in plans:
        if found and not workload_for(plan).needs_fresh_guest:
            fresh, together = found[-1]
            found[-1] = (fresh, (*together, plan))
        else:
            found.append((workload_for(plan).needs_fresh_guest, (plan,)))
    return tuple(found)
