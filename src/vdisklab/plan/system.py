"""Operating systems that a measurement installs: what they are made of, and what they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vdisklab.units import MIB


@dataclass(frozen=True, slots=True)
class System:
    """A set of distribution packages, in apt's words, with all that they depend on.

    `first` are those that must be unpacked before there is a shell and a dpkg; the rest is
    installed by these. `room` is what the installed system needs on its disk, `memory` what the
    machine needs that installs it; both were read off installations (docs/articles.md) and
    rounded up.
    """

    name: str
    first: tuple[str, ...]
    rest: tuple[str, ...]
    room: int
    memory: int

    @property
    def serial(self) -> str:
        """Serial number of the read-only disk that carries its packages into a guest."""
        return f"vdisklab-pkg-{self.name}"


# The layout that installs nothing of its own to convert an old one (usrmerge needs all of Perl).
_MERGED = ("usr-is-merged", "usrmerge-")

SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        System(
            "short",
            ("base-files", "base-passwd", "coreutils", "dash", "diffutils", "grep", "libc-bin",
             "sed"),
            (),
            192 * MIB,
            256 * MIB,
        ),
        System(
            "base",
            ("?essential", *_MERGED),
            ("?or(?essential,?priority(required),?priority(important))", *_MERGED),
            512 * MIB,
            512 * MIB,
        ),
    )
}  # fmt: skip
"""`short` is the least with a working dpkg, `base` what the distribution calls its base system."""
