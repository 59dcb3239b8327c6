"""What a profile that boots guests from the measured disk asks of the paths."""

from __future__ import annotations

from dataclasses import replace

from vdisklab.errors import PlanError
from vdisklab.plan.campaign import Dropped
from vdisklab.plan.matrix import Matrix
from vdisklab.plan.profile import BOOT, Profile


def bootable(matrix: Matrix, profile: Profile) -> Matrix:
    """The matrix without paths that no guest can boot from, if the profile boots guests.

    Raises PlanError when none is left, and for a profile that boots and does other things too:
    these would overwrite the system on the disk.
    """
    if not profile.boots:
        return matrix
    other = [each.name for each in profile.measurements if each.program != BOOT]
    if other:
        raise PlanError(
            f"profile {profile.name!r} boots guests from the disk, and {other[0]!r} would "
            "overwrite what they boot",
            hint="put it into a profile of its own",
        )
    reasons = {
        cell.path.canonical: "a boot needs a guest" if cell.path.on_host else "it holds no system"
        for cell in matrix.cells
        if not cell.path.is_guest_storage
    }
    dropped = tuple(Dropped(path, reason, "leave it out") for path, reason in reasons.items())
    kept = tuple(cell for cell in matrix.cells if cell.path.canonical not in reasons)
    if not kept:
        raise PlanError(
            f"{dropped[0].path} cannot be booted from: {dropped[0].reason}",
            hint="name a disk path, such as raw/none",
        )
    return replace(matrix, cells=kept, dropped=(*matrix.dropped, *dropped))
