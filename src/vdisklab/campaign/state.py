"""States that the numbers rely on: set, read back, and an error when they are not as asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager

from vdisklab.errors import HostError
from vdisklab.host.pagecache import evict, residency, warm, write_back
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Check
from vdisklab.storage.image import ImageFile

# Shares of an image that may be in the page cache although it was emptied (a format's header is
# read again when it is opened), and may be missing although it was filled.
_COLD = 0.02
_WARM = 0.98

# Seconds before each attempt at emptying it.
_PAUSES = (0.0, 0.02, 0.1, 0.5)


class StateError(HostError):
    """A state that the numbers rely on is not what was asked for."""

    def __init__(self, checks: tuple[Check, ...]) -> None:
        self.checks = checks
        wrong = [f"{c.name} is {c.seen}, not {c.asked}" for c in checks if not c.confirmed]
        super().__init__("state not confirmed: " + "; ".join(wrong))


def set_page_cache(asked: PageCache, image: ImageFile | None) -> None:
    """Brings the host's page cache into the asked state and reads it back; StateError if not.

    Also where the cache is bypassed it is emptied: pages left by an earlier cell would have to
    be invalidated by each direct write.
    """
    if image is None:
        return
    if asked is PageCache.WARM:
        for file in image.caches:
            warm(file)
        seen = residency(image.path)
        confirmed = seen >= _WARM
    else:
        seen = _emptied(image, 1.0 if asked is PageCache.BYPASSED else _COLD)
        confirmed = asked is PageCache.BYPASSED or seen <= _COLD
    if not confirmed:
        raise StateError((Check("host.page_cache", asked, f"{seen:.0%} resident"),))


def _emptied(image: ImageFile, most: float) -> float:
    """The share of the image that stays in the page cache, after some attempts at `most`.

    Pages that somebody holds at that moment stay. On a busy machine (load 10) that was a twentieth
    of an image once in 187 measurements; who held them was not found out.
    """
    seen = 1.0
    for pause in _PAUSES:
        time.sleep(pause)
        for file in image.caches:
            evict(file)
        seen = residency(image.path)
        if seen <= most:
            break
    return seen


class WriteBack:
    """Writes back what measurements leave dirty of an image, beside what else is done meanwhile.

    Else the kernel would do it half a minute later (vm.dirty_expire_centisecs), while another
    cell is measured.
    """

    def __init__(self, image: ImageFile | None, beside: Executor) -> None:
        self._files = () if image is None else tuple(image.caches)
        self._beside = beside
        self._writing: list[Future[None]] = []

    def begin(self) -> None:
        """Begins with what is dirty now."""
        self._writing += [self._beside.submit(write_back, file) for file in self._files]

    def wait(self) -> None:
        """Returns when all that was begun is done. Raises HostError."""
        while self._writing:
            self._writing.pop().result()


@contextmanager
def writing_back(image: ImageFile | None) -> Iterator[WriteBack]:
    """Lasts as long as an image is used; at the end nothing that was begun is left. See `wait`."""
    with ThreadPoolExecutor(1) as beside:
        behind = WriteBack(image, beside)
        yield behind
        behind.wait()
