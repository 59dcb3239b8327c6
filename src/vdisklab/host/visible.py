"""Whether a path that a user or a configuration names is a file or a directory.

pathlib's own questions raise OSError if a directory above may not be searched, or if the name is
longer than the file system takes; os.path answers False.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vdisklab.errors import HostError


def is_visible_file(path: Path) -> bool:
    """True for a regular file that this user can find."""
    return os.path.isfile(path)  # noqa: PTH113


def require_work_directory(directory: Path) -> None:
    """Raises HostError, which says why, for what is not a directory that this user can find."""
    try:
        mode = directory.stat().st_mode
    except FileNotFoundError as error:
        raise HostError(
            f"the work directory {directory} does not exist", hint=f"mkdir -p {directory}"
        ) from error
    except OSError as error:
        raise HostError(
            f"the work directory {directory} cannot be used: {error.strerror}",
            hint="name another one",
        ) from error
    if not stat.S_ISDIR(mode):
        raise HostError(
            f"the work directory {directory} is not a directory", hint="name another one"
        )


def is_visible_directory(path: Path) -> bool:
    """True for a directory that this user can find."""
    return os.path.isdir(path)  # noqa: PTH112


def is_visible_device(path: Path) -> bool:
    """True for a block device that this user can find."""
    try:
        return path.is_block_device()
    except OSError:
        return False
