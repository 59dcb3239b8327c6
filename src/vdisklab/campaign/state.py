"""Sets states that the numbers rely on, and reads them back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager

from vdisklab.errors import HostError
from vdisklab.host.pagecache import evict, files_of, resident_share, warm, write_back
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Check
from vdisklab.storage.image import DiskData

# The share of an image that may be in the page cache after it was emptied (opening reads a format's
# header again), and the share that must be there after it was filled.
_COLD = 0.02
_WARM = 0.98

# Seconds before each attempt to empty it.
_PAUSES = (0.0, 0.02, 0.1, 0.5)


class StateError(HostError):
    """The measured state differs from the requested one."""

    def __init__(self, checks: tuple[Check, ...]) -> None:
        self.checks = checks
        wrong = [f"{c.name} is {c.observed}, not {c.requested}" for c in checks if not c.confirmed]
        super().__init__("state not confirmed: " + "; ".join(wrong))


def set_page_cache(wanted: PageCache, image: DiskData | None) -> None:
    """Empties or fills the host's page cache for an image, and reads the state back.

    A shared directory without any data is in every state.

    A bypassed cache is emptied too: otherwise each direct write would have to invalidate pages of
    an earlier cell. Raises StateError.
    """
    if image is None:
        return
    if wanted is PageCache.WARM:
        for file in files_of(image.caches):
            warm(file)
        resident = resident_share(image.path)
        confirmed = resident is None or resident >= _WARM
    else:
        resident = _emptied(image, 1.0 if wanted is PageCache.BYPASSED else _COLD)
        confirmed = wanted is PageCache.BYPASSED or (resident or 0.0) <= _COLD
    if not confirmed:
        raise StateError((Check("host.page_cache", wanted, f"{resident:.0%} resident"),))


def _emptied(image: DiskData, most: float) -> float | None:
    """The share of the image that stays in the page cache, after attempts to bring it to `most`.

    Pages in use cannot be removed. On a busy machine (load 10) they were 5 % of an image once in
    187 measurements; their user is unknown.
    """
    resident: float | None = 1.0
    for pause in _PAUSES:
        time.sleep(pause)
        evict(*image.caches)
        resident = resident_share(image.path)
        if resident is None or resident <= most:
            break
    return resident


class WriteBack:
    """Writes an image's dirty pages back in the background.

    Otherwise the kernel would do it half a minute later (vm.dirty_expire_centisecs), while another
    cell is measured.
    """

    def __init__(self, image: DiskData | None, executor: Executor) -> None:
        self._image = image
        self._executor = executor
        self._writing: list[Future[None]] = []

    def begin(self) -> None:
        """Starts to write back the pages that are dirty now."""
        caches = () if self._image is None else self._image.caches
        self._writing += [self._executor.submit(write_back, file) for file in files_of(caches)]

    def wait(self) -> None:
        """Waits until everything that was started is written. Raises HostError."""
        while self._writing:
            self._writing.pop().result()


@contextmanager
def writing_back(image: DiskData | None) -> Iterator[WriteBack]:
    """Background write-back for an image; waits at the end until everything is written."""
    with ThreadPoolExecutor(1) as executor:
        background = WriteBack(image, executor)
        yield background
        background.wait()
