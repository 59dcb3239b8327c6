"""Words of mount options: a file system sends no flushes, a server's requests may fail."""

from __future__ import annotations

from collections.abc import Iterable

_WITHOUT_FLUSHES = ("nobarrier", "barrier=0", "barrier=none", "fsync_mode=nobarrier")
"""As mountinfo shows them: ext4(5), btrfs(5), XFS before Linux 4.19, f2fs, gfs2, nilfs2 and
reiserfs (the kernel's Documentation/filesystems)."""

_WITH_FLUSHES = ("barrier", "barrier=1", "barrier=flush", "fsync_mode=posix", "fsync_mode=strict")
"""What takes such a word back if it comes later."""

SOFT = ("soft", "softerr")
"""Words by which requests fail once a server does not answer in time (nfs(5)); `hard` takes them
back if it comes later."""


def without_flushes(options: Iterable[str]) -> str | None:
    """The option by which a file system sends no flushes to its disk; None if it sends them. The
    last word counts, as in mount(8)."""
    found = None
    for option in (each.strip() for each in options):
        if option in _WITHOUT_FLUSHES:
            found = option
        elif option in _WITH_FLUSHES:
            found = None
    return found
