"""The space of removed disks on a file system to which another program writes all the time."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from vdisklab.campaign import measure_life


class Shared(measure_life._Steps):
    """Disks on a file system that has less space each time that it is asked."""

    def __post_init__(self) -> None:
        self.numbers = itertools.count(1000, -1)

    def _sync(self) -> None:
        pass

    def _free(self) -> int:
        return next(self.numbers)


def test_space_that_never_stays_the_same_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_life, "_SPACE_SECONDS", 0.05)
    nobody: Any = None
    disks = Shared(*(nobody,) * 7, free_when_made=2000)
    begun = time.monotonic()
    free = disks._steady_free()
    assert free is not None
    assert free < 1000
    assert time.monotonic() - begun < 30
