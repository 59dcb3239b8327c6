"""A directory that a guest sees as its own file system, in place of an image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.host.ledger import Kind
from vdisklab.host.pagecache import residency
from vdisklab.storage.image import ImageFile
from vdisklab.storage.site import Site, Target


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """The directory, and the properties that were read back from the layers below."""

    path: Path
    properties: Mapping[str, str]
    is_block = False

    @property
    def caches(self) -> tuple[Path, ...]:
        """The files that are in it now."""
        return tuple(file for file in sorted(self.path.rglob("*")) if file.is_file())

    def resident(self) -> float | None:
        """The share of its data in the host's page cache; None if it holds none.

        Holes hold no data, and on tmpfs they never get a page. Through 9p a guest's fio leaves them
        in the files that it writes, as it cannot allocate them.
        """
        sizes = {file: file.stat().st_size for file in self.caches}
        total = min(sum(sizes.values()), self.allocated())
        if not total:
            return None
        return min(1.0, sum(residency(file) * size for file, size in sizes.items()) / total)

    def allocated(self) -> int:
        """Bytes that its files now occupy."""
        return sum(file.stat().st_blocks * 512 for file in self.caches)


DiskData = ImageFile | SharedDirectory
"""What holds a guest's data."""


@contextmanager
def shared_directory(site: Site, target: Target, name: str) -> Iterator[SharedDirectory]:
    """An empty directory on the target, removed with its contents at the end."""
    directory = target.path / name
    with site.tracked(Kind.DIRECTORY, directory):
        site.run("mkdir", directory)
        yield SharedDirectory(directory, target.properties)
