"""The disk of known capacity completes so many requests a second, and leaves nothing."""

from __future__ import annotations

import itertools
import mmap
import os
import time
from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger, pending
from vdisklab.storage.logged_disk import rated_disk
from vdisklab.storage.site import open_site

pytestmark = pytest.mark.host

RATE, REQUESTS, BATCH = 200, 80, 20


def test_it_has_its_rate(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "state") as ledger:
        with open_site(LocalHost(), ledger, tmp_path) as site:
            with rated_disk(site, "control", 16 << 20, RATE) as device:
                opened = os.open(device, os.O_RDWR | os.O_DIRECT)
                try:
                    page = mmap.mmap(-1, 4096)
                    page.write(b"x" * 4096)
                    moments = [time.monotonic()]
                    for number in range(REQUESTS):
                        assert os.pwritev(opened, [page], number * 4096) == 4096
                        moments.append(time.monotonic())
                    assert os.preadv(opened, [page], 4096) == 4096
                finally:
                    os.close(opened)
            assert moments[-1] - moments[0] > 0.95 * REQUESTS / RATE
            batches = [end - begin for begin, end in itertools.pairwise(moments[::BATCH])]
            assert min(batches) < 3 * BATCH / RATE  # others slow a request down now and then
        assert pending(ledger.path) == []
