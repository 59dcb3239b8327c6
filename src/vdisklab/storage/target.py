"""What a host layer gives to the one above it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """A directory or a block device that exists for as long as the block that made it lasts.

    `properties` are what was read back from the system about the layers so far, by
    `layer.option`, such as `xfs.reflink`. `cached_below` are files further down whose pages a
    layer keeps in the host's page cache, so emptying the cache means emptying theirs too.
    `disks` are all devices side by side at the bottom of a stack, `path` the first of them.
    """

    path: Path
    is_block: bool
    properties: Mapping[str, str] = field(default_factory=dict)
    cached_below: tuple[Path, ...] = ()
    disks: tuple[Path, ...] = ()

    @property
    def members(self) -> tuple[Path, ...]:
        """The devices that a layer which takes several may use; at least `path`."""
        return self.disks or (self.path,)

    def above(self, path: Path, *, is_block: bool, **properties: str) -> Target:
        """The target of the next layer: everything known so far, and what it adds.

        Properties are given as `layer__option`, because a dot cannot stand in a keyword.
        """
        added = {name.replace("__", "."): value for name, value in properties.items()}
        known = {**self.properties, **added}
        return replace(self, path=path, is_block=is_block, properties=known, disks=())
