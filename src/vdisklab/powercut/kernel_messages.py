"""What a guest's kernel logged about a disk that failed, by kind. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

KINDS: Mapping[str, re.Pattern[str]] = {
    "journal aborted": re.compile(
        r"Aborting journal|aborted journal|Log I/O Error|log.*Shutting down", re.IGNORECASE
    ),
    "file system read-only": re.compile(
        r"Remounting filesystem read-only|forced readonly|Shutting down filesystem", re.IGNORECASE
    ),
    "file system error": re.compile(
        r"(EXT4-fs|BTRFS)( error| critical|: error)|XFS \(.*(error|corruption)", re.IGNORECASE
    ),
    "no space on the disk": re.compile(r"critical space allocation error"),
    "write of file data failed": re.compile(
        r"Buffer I/O error on dev|I/O error \d+ writing to inode|lost (async|sync) page write|"
        r"writeback error on inode|previous I/O error"
    ),
    "request failed": re.compile(r"(^|[ \]])(blk_update_request: )?(I/O|critical \w+) error, dev"),
    "request timed out": re.compile(
        r"timeout, (aborting|reset|completion)|timing out|task abort|\bfrozen\b|\(timeout\)"
    ),
    "device reset": re.compile(
        r"(hard|soft) resetting link|device reset|resetting controller|reset controller",
        re.IGNORECASE,
    ),
    "task hung": re.compile(r"blocked for more than \d+ seconds"),
}
"""A kind of message, and what its lines contain. A line is of the first kind that fits.

Linux: block/blk-core.c, fs/ext4, fs/xfs, fs/btrfs, drivers/{nvme,ata,scsi}, kernel/hung_task.c.
"""


def kernel_messages(text: str) -> dict[str, int]:
    """How many lines of a kernel's log are of each kind; lines of no kind are left out."""
    kinds = (
        next((kind for kind, pattern in KINDS.items() if pattern.search(line)), None)
        for line in text.splitlines()
    )
    found = Counter(kind for kind in kinds if kind is not None)
    return {kind: found[kind] for kind in KINDS if kind in found}
