"""A program of the host whose file system stands still, on the real kernel."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from vdisklab.campaign.watches import ProgramWatch, longest_stall_of, worst_second_of
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.progress import silent
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack
from vdisklab.units import MIB

pytestmark = pytest.mark.host

# Long enough to hold a whole second, wherever the seconds begin.
FROZEN = 2.5

# It writes as fast as it can, from a program that a shell starts.
WRITE = (
    "end=$(($(date +%s) + 6)); while [ $(date +%s) -lt $end ]; do "
    'dd if=/dev/zero of="$0/file" bs=4k count=64 oflag=direct conv=notrunc 2>/dev/null; done'
)


@dataclass
class Frost:
    """When the file system stood still: it began between `asked` and `frozen`."""

    asked: float = 0.0
    frozen: float = 0.0
    thawing: float = 0.0

    def freeze(self, directory: Path) -> None:
        """Freezes for a while. fsfreeze first waits for the writes under way and syncs the rest,
        and on a busy machine both and its start take long."""
        time.sleep(1)
        self.asked = time.monotonic()
        subprocess.run(["fsfreeze", "--freeze", directory], check=True)
        self.frozen = time.monotonic()
        time.sleep(FROZEN)
        self.thawing = time.monotonic()
        subprocess.run(["fsfreeze", "--unfreeze", directory], check=True)


def test_a_frozen_file_system_is_a_stall(tmp_path: Path) -> None:
    """fsfreeze(8) lets a writer wait in uninterruptible sleep, as a disk does that hangs."""
    watch = ProgramWatch(silent)
    host = LocalHost()
    frost = Frost()
    with (
        open_ledger() as ledger,
        open_site(host, ledger, tmp_path) as site,
        build_stack(site, parse_path("ext4/host").layers, 64 * MIB, "s") as target,
    ):
        freezing = threading.Thread(target=frost.freeze, args=(target.on_host,))
        watch.begin()
        freezing.start()
        host.run("sh", "-c", WRITE, str(target.on_host), timeout=60, watch=watch)
        series = watch.end()
        freezing.join()
    (stall,) = longest_stall_of(series)
    moves_again = next(
        moment
        for (_, less), (moment, more) in itertools.pairwise(series.moved)
        if moment > frost.thawing and more > less
    )
    # The shell may be between two programs when the file system freezes.
    assert frost.thawing - frost.frozen - 1 <= stall.value <= moves_again - frost.asked
    (worst,) = worst_second_of(series)
    seconds = series.moved[-1][0] - series.moved[0][0]
    assert worst.value < series.moved[-1][1] / seconds / 2
    assert series.moved[-1][1] > MIB
