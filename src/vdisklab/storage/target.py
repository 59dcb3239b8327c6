"""What a host layer gives to the one above it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """A directory or a block device that exists for as long as the block that made it lasts.

    `properties` are what was read back from the system about the layers so far, by
    `layer.option`, such as `xfs.reflink`.
    """

    path: Path
    is_block: bool
    properties: Mapping[str, str] = field(default_factory=dict)
