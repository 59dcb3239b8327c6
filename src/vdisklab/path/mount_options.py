"""Words of mount options: a file system sends no flushes, a server's requests may fail."""

from __future__ import annotations

from collections.abc import Iterable

_OF_FLUSHES = (
    (("nobarrier", "barrier=0", "barrier=none"), ("barrier", "barrier=1", "barrier=flush")),
    (("fsync_mode=nobarrier",), ("fsync_mode=posix", "fsync_mode=strict")),
)
"""Words without which a file system sends flushes, and those that take them back if they come
later: as mountinfo shows them, in ext4(5), btrfs(5), XFS before Linux 4.19, f2fs, gfs2, nilfs2 and
reiserfs (the kernel's Documentation/filesystems). f2fs has both kinds, and neither takes back the
other. mountinfo shows one of a kind, so that its order does not matter."""

SOFT = ("soft", "softerr")
"""Words by which requests fail once a server does not answer in time (nfs(5)); `hard` takes them
back if it comes later."""


def without_flushes(options: Iterable[str]) -> str | None:
    """The option by which a file system sends no flushes to its disk; None if it sends them. The
    last word of a kind counts, as in mount(8)."""
    given = [option.strip() for option in options]
    for without, with_flushes in _OF_FLUSHES:
        told = [option for option in given if option in (*without, *with_flushes)]
        if told and told[-1] in without:
            return told[-1]
    return None
