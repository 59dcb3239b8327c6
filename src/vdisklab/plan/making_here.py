"""What this host says of disks that are made from a template, as far as a plan depends on it."""

from __future__ import annotations

from collections.abc import Mapping

from vdisklab.path.rules import Impossible
from vdisklab.value import Value, field


class MakingHere(Value):
    """`template` changes when the user's image does; empty without an image of the user's.

    `unshared` says of the user's own directories, by `DiskPath.stack` ("" for the work
    directory), why no file in them shares blocks with another; those that are not in it may.
    """

    template: str = ""
    unshared: Mapping[str, Impossible] = field(default_factory=dict)


NOTHING_KNOWN = MakingHere()
"""For plans that are made without looking at a host."""
