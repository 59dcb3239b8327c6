"""A directory on a disk of a stated speed, as a volume in a cloud has: requests/s and bytes/s.

The speed of a machine's own disk drifts; the kernel holds that of this one, which is a loop device
over a file on it, with limits for the root group of version 1
(Documentation/admin-guide/cgroup-v1/blkio-controller.rst, "Throttling/Upper limit policy"). Under
emulation a guest asks some 2,000 requests a second of a processor that it has for itself. At 500
requests a second it takes 33 to 39 % of one: with four or six guests on two processors the
processors decided in most cells. At 200 and 20 MB/s (a hard disk's random requests, the bytes of a
small volume in a cloud) a request may take 5 ms until the processor is the limit.

The kernel lets the requests of 0.1 s through at once and then waits (block/blk-throttle.c,
`throtl_slice`), so half a second may see up to a fifth more of them than the stated speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from slow_disk import output_of

BLKIO = Path("/sys/fs/cgroup/blkio")


@dataclass(frozen=True)
class Speed:
    """What the disk does at most, of reads and of writes each."""

    requests: int
    bytes: int


VOLUME = Speed(requests=200, bytes=20_000_000)


def _limit(device: str, speed: Speed) -> None:
    """Limits a disk, or with zeros no longer does; fails if the kernel says otherwise."""
    number = output_of("lsblk", "--noheadings", "--nodeps", "--output", "MAJ:MIN", device)
    for way in ("read", "write"):
        for what, most in (("iops", speed.requests), ("bps", speed.bytes)):
            file = BLKIO / f"blkio.throttle.{way}_{what}_device"
            file.write_text(f"{number} {most}")
            lines = [line for line in file.read_text().splitlines() if line.split()[0] == number]
            if lines != ([f"{number} {most}"] if most else []):
                raise SystemExit(f"{file} says {lines}, not {most}")


@contextmanager
def steady_disk(work: Path, size: int, speed: Speed = VOLUME) -> Iterator[Path]:
    """An ext4 file system on such a disk, mounted below `work`; as root.

    Afterwards nothing is mounted, attached or limited, and the disk's file is gone.
    """
    file, place = work / "steady.img", work / "steady"
    with ExitStack() as undo:
        undo.callback(file.unlink, missing_ok=True)
        output_of("fallocate", "--length", str(size), file)
        device = output_of("losetup", "--find", "--show", "--direct-io=on", file)
        undo.callback(output_of, "losetup", "--detach", device)
        output_of("mkfs.ext4", "-q", "-E", "lazy_itable_init=0", device)
        undo.callback(_limit, device, Speed(0, 0))
        _limit(device, speed)
        place.mkdir(exist_ok=True)
        undo.callback(place.rmdir)
        output_of("mount", device, place)
        undo.callback(output_of, "umount", place)
        yield place
