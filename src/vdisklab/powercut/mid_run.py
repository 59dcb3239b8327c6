"""Operations of a host on a disk while its guest writes: a snapshot, a commit, a mirror, a resize.

The commands are QMP's (qapi/block-core.json), as libvirt and Proxmox VE send them.

A disk whose guest is reset again and again while it writes; QEMU goes on.

Without a guest the connection breaks off without a flush, as a reset ends a guest's requests. A
real guest is reset by QMP's `system_reset`. In both cases the client then reads everything back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from vdisklab.errors import PowercutError
from vdisklab.guest.qemu.block_nodes import Disk, block_nodes, drive_node
from vdisklab.guest.qemu.daemons import StorageDaemon
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.host.waiting import wait_until
from vdisklab.path import disk_path, rules, segments
from vdisklab.powercut.client import ClientDisk, ReadableDisk
from vdisklab.powercut.crash_states import DueVersions, JudgedState, judge_sectors
from vdisklab.powercut.image_reader import read_image
from vdisklab.powercut.nbd import NbdDisk, nbd_disk, read_through
from vdisklab.powercut.sectors import Bytes, Extent, Numbers, read_versions
from vdisklab.units import SECTOR

_JOB = "during"
_JOB_SECONDS = 60.0
RESIZED_FORMATS = (segments.ImageFormat.RAW, segments.ImageFormat.QCOW2)
"""Formats whose size the judge reads."""


class MidRunOperation(StrEnum):
    """An operation that runs in the middle of a recorded run."""

    SNAPSHOT = "snapshot"
    COMMIT = "commit"
    MIRROR = "mirror"
    RESIZE = "resize"

    def refusal(self, path: disk_path.DiskPath) -> rules.Impossible | None:
        """Why a path's disk cannot be changed in this way, as what follows its name."""
        image = path.image
        if image is None:
            return None  # refused anyway
        if image.has_data_file or image.encrypted:
            return rules.Impossible(
                f"is not judged during a {self}: the new image would need a data file or a key",
                "leave out data_file and encrypt",
            )
        if self is MidRunOperation.SNAPSHOT and image.format is not segments.ImageFormat.QCOW2:
            return rules.Impossible(
                "is not judged during a snapshot: only a chain of qcow2 images is read",
                f"write qcow2 instead of {image.format}",
            )
        if self is MidRunOperation.RESIZE and image.format not in RESIZED_FORMATS:
            return rules.Impossible(
                f"is not judged during a resize: the size of a {image.format} image is not read",
                f"write {' or '.join(RESIZED_FORMATS)} instead",
            )
        if self is MidRunOperation.COMMIT and not image.backing:
            return rules.Impossible(
                "has nothing to commit to: it is not an overlay", "add backing=1 to the format"
            )
        return None


@dataclass(frozen=True, slots=True)
class RunningOperation:
    """An operation on a disk that a QEMU has open. `start` and `finish` are called once each."""

    kind: MidRunOperation
    daemon: StorageDaemon
    disk: Disk

    @property
    def monitor(self) -> Channel:
        """The monitor of the QEMU that has the disk open."""
        return self.daemon.monitor

    @property
    def added_sectors(self) -> int:
        """A resize doubles the disk."""
        return self.disk.size // SECTOR if self.kind is MidRunOperation.RESIZE else 0

    @property
    def _image(self) -> Path:
        return Path(str(self.disk.filename))

    @property
    def files_after(self) -> tuple[Path, ...]:
        """The guest's image once `finish` has returned, and those below, nearest first."""
        backing = tuple(map(Path, self.disk.parts.backing))
        return {
            MidRunOperation.SNAPSHOT: (self._new_file, self._image, *backing),
            MidRunOperation.COMMIT: backing,
            MidRunOperation.MIRROR: (self._new_file,),
            MidRunOperation.RESIZE: (self._image, *backing),
        }[self.kind]

    @property
    def size_after(self) -> int | None:
        """The disk's new size in bytes; None if it stays the same."""
        return 2 * self.disk.size if self.kind is MidRunOperation.RESIZE else None

    @property
    def _new_file(self) -> Path:
        return self._image.with_name(f"{self._image.name}.{self.kind}")

    def start(self) -> None:
        """Starts the job of a commit or a mirror, which copies while the guest writes."""
        node = drive_node(self.disk)
        if self.kind is MidRunOperation.COMMIT:
            below = self.disk.names.backing_node(0)
            self.monitor.execute("blockdev-reopen", {"options": [self._writable(f"{below}-file")]})
            self.monitor.execute(
                "block-commit", {"job-id": _JOB, "device": node, "base-node": below}
            )
        if self.kind is MidRunOperation.MIRROR:
            target = {"target": str(self._new_file), "format": self.disk.driver, "sync": "full"}
            self.monitor.execute("drive-mirror", {"job-id": _JOB, "device": node, **target})

    def finish(self, client: ClientDisk) -> None:
        """Makes the guest use the new images, and returns when QEMU says that it does."""
        node = drive_node(self.disk)
        match self.kind:
            case MidRunOperation.SNAPSHOT:
                self.monitor.execute(
                    "blockdev-snapshot-sync",
                    {
                        "node-name": node,
                        "snapshot-node-name": f"{self.disk.serial}-above",
                        "snapshot-file": str(self._new_file),
                        "format": self.disk.driver,
                    },
                )
            case MidRunOperation.COMMIT | MidRunOperation.MIRROR:
                self._complete()
            case MidRunOperation.RESIZE:
                if not isinstance(client, NbdDisk):
                    raise PowercutError("--during resize needs a client on NBD")
                self.daemon.resize(self.disk, 2 * self.disk.size)
                client.go_on_with(self.daemon.connect(), self.disk.serial)

    def _writable(self, node_name: str) -> Mapping[str, Any]:
        (node,) = (node for node in block_nodes(self.disk) if node["node-name"] == node_name)
        return {**node, "read-only": False}

    def _complete(self) -> None:
        """Waits until the job has copied everything, and lets it switch over."""
        errors: list[object] = []

        def ours(data: Mapping[str, Any]) -> bool:
            errors.append(data.get("error"))
            return data.get("device") == _JOB

        def ready() -> bool:
            jobs = self.monitor.execute("query-block-jobs")
            if not jobs:
                raise PowercutError(f"the {self.kind} ended before it had copied everything")
            return bool(jobs[0].get("ready"))

        wait_until(ready, timeout=_JOB_SECONDS, what=f"end of copying for the {self.kind}")
        with self.monitor.expecting("BLOCK_JOB_COMPLETED", ours) as wait:
            self.monitor.execute("block-job-complete", {"device": _JOB})
            wait(_JOB_SECONDS)
        if any(errors):
            raise PowercutError(f"the {self.kind} failed: {errors[-1]}")


@dataclass(frozen=True, slots=True)
class ResettableDisk:
    """A client's disk; `reset` resets its guest, and returns when the disk can be used again."""

    disk: ReadableDisk
    reset: Callable[[], None]


ResettableAccess = Callable[[Disk], AbstractContextManager[ResettableDisk]]
"""Opens the disk for a client that can be reset: over NBD, or in a guest."""


@dataclass(slots=True)
class ResetDisk:
    """A `ClientDisk` whose guest is reset after every `every`-th answer, if nothing is in flight.

    `states` gets one judged state for each reset. Every acknowledged write counts as durable,
    because QEMU and the host survive. `past_qemu`: what is read is the image's file.
    """

    client: ResettableDisk
    image: Disk
    every: int
    past_qemu: bool
    states: list[JudgedState]
    _in_flight: dict[int, tuple[Extent, int] | None] = field(default_factory=dict)
    _versions: dict[int, int] = field(default_factory=dict)
    _answers: int = 0

    @property
    def observed(self) -> Mapping[str, str]:
        """The data that the client read back."""
        return self.client.disk.observed

    def write(self, first: int, count: int, version: int, *, fua: bool) -> int:
        """Sends a write; see `ClientDisk`."""
        request = self.client.disk.write(first, count, version, fua=fua)
        self._in_flight[request] = Extent(first, count), version
        return request

    def flush(self) -> int:
        """Sends a flush; see `ClientDisk`."""
        request = self.client.disk.flush()
        self._in_flight[request] = None
        return request

    def await_one(self) -> int:
        """The number of the next answered request; then the guest may be reset."""
        request = self.client.disk.await_one()
        write = self._in_flight.pop(request)
        if write is not None:
            extent, version = write
            sectors = range(extent.first, extent.first + extent.count)
            self._versions |= dict.fromkeys(sectors, version)
        self._answers += 1
        if self._answers % self.every == 0 and not self._in_flight:
            self._reset()
        return request

    def _reset(self) -> None:
        self.client.reset()
        numbers = np.array(sorted(self._versions), dtype=np.int64)
        due = np.array([self._versions[number] for number in numbers.tolist()], dtype=np.int64)
        versions = read_versions(self._read(numbers), numbers)
        judged = judge_sectors(numbers, versions, DueVersions(due, due))
        self.states.append(JudgedState(f"reset{self._answers}", *judged))

    def _read(self, numbers: Numbers) -> Bytes:
        if not self.past_qemu:
            return read_through(self.client.disk, numbers)
        return read_image(Path(str(self.image.filename)), self.image.driver, numbers).content


@contextmanager
def resettable_nbd(daemon: StorageDaemon, image: Disk) -> Iterator[ResettableDisk]:
    """A disk of QEMU's block layer, whose client's connection can break off."""
    with nbd_disk(daemon, image) as disk:
        yield ResettableDisk(disk, lambda: disk.go_on_with(daemon.connect(), image.serial))


@contextmanager
def reset_disk(
    access: ResettableAccess, image: Disk, states: list[JudgedState], *, every: int, past_qemu: bool
) -> Iterator[ResetDisk]:
    """A disk whose guest is reset while the context is open; see `ResetDisk`."""
    with access(image) as client:
        yield ResetDisk(client, image, every, past_qemu, states)
