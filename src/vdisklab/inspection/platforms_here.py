"""The platforms that run guests on this host, as far as their programs and directories tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vdisklab.host.command import Host
from vdisklab.host.mounts import is_visible_directory
from vdisklab.path.platforms import Platform
from vdisklab.platforms.present import present


def platforms_here(host: Host, root: Path = Path("/")) -> Iterator[Platform]:
    """The platforms whose directory of guests or whose program is on the host, in the order of
    their rows. `root` has the directories. No program is started."""
    for platform in present():
        place = platform.on_host
        directory = root / place.directory.lstrip("/")
        has_directory = bool(place.directory) and is_visible_directory(directory)
        if has_directory or (place.program and host.which(place.program) is not None):
            yield platform
