"""A request with what it names on a host: what a draft is made of."""

from __future__ import annotations

from collections.abc import Mapping

from vdisklab.plan.capabilities import QemuLimits
from vdisklab.plan.guest import Qemu, UserGuest
from vdisklab.plan.making_here import NOTHING_KNOWN, MakingHere
from vdisklab.plan.profile import Profile
from vdisklab.plan.settings import Request
from vdisklab.value import Value, field


class NamedHere(Value):
    """A request, and what it names as that was found on a host before anything was decided."""

    request: Request
    """The targets have their kinds, and disks that are made from an image have a size."""
    profile: Profile
    guest: UserGuest | None = None
    """None for the micro guest."""
    qemus: tuple[Qemu, ...] = ()
    limits: Mapping[str, QemuLimits] = field(default_factory=dict)
    """The features that each of the QEMUs lacks, by its name."""
    on_tmpfs: bool = False
    """True if the images lie in the page cache alone."""
    making: MakingHere = NOTHING_KNOWN
