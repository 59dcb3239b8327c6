"""Where vdisklab keeps its files on a host: ledgers, cache, the default database."""

from __future__ import annotations

import os
from pathlib import Path

from vdisklab.errors import HostError


def state_directory() -> Path:
    """The directory of ledgers, cache and default database: /var/lib for root, else the user's.

    Raises HostError for a user without a home, as in a container with a number for a user.
    """
    override = os.environ.get("VDISKLAB_STATE")
    if override:
        return Path(override)
    if os.geteuid() == 0:
        return Path("/var/lib/vdisklab")
    try:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError as error:
        raise HostError(
            f"user {os.geteuid()} has no home directory",
            hint="set VDISKLAB_STATE to a directory that this user can write",
        ) from error
    return Path(base) / "vdisklab"


def cache_directory() -> Path:
    """The directory of kernels and guest images."""
    return state_directory() / "cache"
