"""What has to be there before a configuration works: the host layers and the image."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from vdisklab.export.form import Gap, Wish
from vdisklab.path.segments import ImageFormat
from vdisklab.storage.image import create_command


def preparation(wish: Wish, place: str) -> Iterator[str]:
    """Lines for a comment: the path, what its layers are, and how its image is made."""
    yield f"vdisklab {wish.path}"
    if wish.path.layers:
        kind = "the block device" if wish.is_block else "the file system"
        yield f"{place} is on {kind} {wish.path.stack}"
    image = wish.path.image
    if image is not None and not (wish.is_block and image.format is ImageFormat.RAW):
        yield shlex.join(create_command(image, Path(place), wish.size)).replace(" -q ", " ")


def commented(lines: Iterator[str], gaps: tuple[Gap, ...]) -> str:
    """Preparation and gaps as lines of a file whose comments begin with `#`."""
    texts = [*lines, *(str(gap) for gap in gaps)]
    return "".join(f"# {' '.join(text.split())}\n" for text in texts)
