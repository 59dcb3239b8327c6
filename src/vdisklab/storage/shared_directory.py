"""A directory that a guest sees as its own file system, in place of an image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vdisklab.host.ledger import Kind
from vdisklab.storage.image import ImageFile
from vdisklab.storage.site import Site, Target


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """The directory, and the properties that were read back from the layers below.

    `caches` is the directory: the pages of the files that are in it hold its data.
    """

    path: Path
    properties: Mapping[str, str]
    caches: tuple[Path, ...]
    is_block = False


DiskData = ImageFile | SharedDirectory
"""What holds a guest's data."""


@contextmanager
def shared_directory(site: Site, target: Target, name: str) -> Iterator[SharedDirectory]:
    """An empty directory on the target, removed with its contents at the end."""
    directory = target.path / name
    with site.tracked(Kind.DIRECTORY, directory):
        site.run("mkdir", directory)
        yield SharedDirectory(directory, target.properties, (directory,))
