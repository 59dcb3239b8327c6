"""A file whose storage fails when it is told to: what a guest's image lies on while it fails."""

from __future__ import annotations

import os
import select
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.ledger import Kind
from vdisklab.host.waiting import patience
from vdisklab.storage import failing_disk
from vdisklab.storage.failing_disk import (
    IN_EFFECT,
    Behaviour,
    StorageOrder,
    TouchedRequest,
    touched_requests,
)
from vdisklab.storage.logged_disk import ServedFile, served_file
from vdisklab.storage.site import Site
from vdisklab.value import Value

_ORDER_SECONDS = 10.0


class FailingFile(Value):
    """A file of `size` bytes, and the server that answers for it."""

    served: ServedFile
    size: int
    notes: Path

    @property
    def path(self) -> Path:
        """The file that QEMU opens."""
        return self.served.path

    def obey(self, order: StorageOrder) -> float:
        """Makes the storage answer requests as ordered from now on; returns the host's time of day.

        Raises HostError if the server does not confirm it.
        """
        process = self.served.process
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - pipes
        try:
            process.stdin.write(order.to_line())
            process.stdin.flush()
        except OSError as error:
            raise HostError("the failing storage's server has ended") from error
        ready, _, _ = select.select([process.stdout], [], [], _ORDER_SECONDS * patience())
        if not ready or process.stdout.readline() != IN_EFFECT:
            raise HostError(
                "the failing storage does not take orders",
                hint="`dmesg` shows whether its server was killed for lack of memory",
            )
        return time.time()

    @contextmanager
    def failing(self, order: StorageOrder) -> Iterator[float]:
        """Fails while the context is open; yields when it began. Then all is good again, whatever
        happens: a QEMU that waits for an answer could not even be killed."""
        try:
            yield self.obey(order)
        finally:
            self.obey(StorageOrder(Behaviour.GOOD))

    @property
    def failed(self) -> int:
        """How many requests so far were not answered as usual."""
        return self.notes.read_bytes().count(b"\n")

    def touched(self) -> tuple[TouchedRequest, ...]:
        """The requests so far that were not answered as usual."""
        return touched_requests(self.notes.read_text())


@contextmanager
def failing_file(
    site: Site, name: str, content: Path, size: int, *, sparse: bool
) -> Iterator[FailingFile]:
    """A file with the content of another one, as large as `size`; with `sparse` its holes stay.

    Raises HostError without FUSE or when the server does not start.
    """
    notes = site.directory / f"{name}.notes"
    with (
        site.tracked(Kind.FILE, notes),
        served_file(
            site, name, size, log=notes, program=failing_disk.__name__,
            fill=_copier(content, sparse=sparse),
        ) as served,
    ):  # fmt: skip
        yield FailingFile(served, size, notes)


def _copier(content: Path, *, sparse: bool) -> Callable[[Path], None]:
    def copy(target: Path) -> None:
        if not sparse:
            shutil.copyfile(content, target)
            return
        with content.open("rb") as source, target.open("xb") as sink:
            copy_data(source.fileno(), sink.fileno())

    return copy


def copy_data(source: int, target: int) -> None:
    """Copies a sparse file into an empty one, and leaves its holes out."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    end = 0
    while end < size:
        try:
            begin = os.lseek(source, end, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole follows
            return
        end = os.lseek(source, begin, os.SEEK_HOLE)
        offset = begin
        while offset < end:
            offset += os.copy_file_range(source, target, end - offset, offset, offset)
