"""The disk of known capacity completes so many requests a second, and leaves nothing."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger, pending
from vdisklab.powercut.logged_disk import rated_disk
from vdisklab.storage.site import open_site

pytestmark = pytest.mark.host

RATE, REQUESTS = 200, 80


def test_it_has_its_rate(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "state") as ledger:
        with open_site(LocalHost(), ledger, tmp_path) as site:
            with rated_disk(site, "control", 16 << 20, RATE) as device:
                opened = os.open(device, os.O_RDWR | os.O_DIRECT)
                try:
                    page = mmap.mmap(-1, 4096)
                    page.write(b"x" * 4096)
                    began = time.monotonic()
                    for number in range(REQUESTS):
                        assert os.pwritev(opened, [page], number * 4096) == 4096
                    seconds = time.monotonic() - began
                    assert os.preadv(opened, [page], 4096) == 4096
                finally:
                    os.close(opened)
            assert seconds > 0.95 * REQUESTS / RATE
            assert seconds < 5 * REQUESTS / RATE  # a request after another, on a busy machine
        assert pending(ledger.path) == []
