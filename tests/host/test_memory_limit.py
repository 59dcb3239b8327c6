"""A process and its pages in a memory of their own: the kernel keeps the limit, and is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vdisklab.errors import GuestError, HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.cache_memory import LEAST
from vdisklab.storage.io_limits import ROOT
from vdisklab.storage.memory_limit import bounded
from vdisklab.storage.site import Site, open_site
from vdisklab.units import MIB

pytestmark = pytest.mark.host

# Version 2 slows a process down that takes too much, and kills none.
needs_version_1 = pytest.mark.skipif(
    not (ROOT / "memory/memory.oom_control").exists(), reason="no control groups of version 1"
)


def taker(amount: int) -> subprocess.Popen[bytes]:
    """A process that takes so many bytes of memory once it is told to, and then waits."""
    code = f"input(); taken = b'x' * {amount}; print('taken', flush=True); input()"
    return subprocess.Popen(
        (sys.executable, "-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def told(process: subprocess.Popen[bytes]) -> bytes:
    """Tells it to take the memory; what it says, which is nothing if it was killed."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return process.stdout.readline()


def lose(site: Site, process: subprocess.Popen[bytes], said: bytes) -> None:
    """Raises a GuestError while the process has a memory of its own and says `said`."""
    with bounded(site, process.pid, LEAST) as memory:
        assert memory is not None
        assert not memory.killed()
        assert told(process) == said
        raise GuestError("the connection was lost")


@needs_version_1
@pytest.mark.parametrize(
    ("amount", "error", "said"),
    [
        (MIB, GuestError, "the connection was lost"),
        (4 * LEAST, HostError, "the kernel killed QEMU, whose page cache may take 16.0 MiB"),
    ],
)
def test_an_error_says_if_the_kernel_killed_the_process(
    tmp_path: Path, amount: int, error: type[Exception], said: str
) -> None:
    with (
        taker(amount) as process,
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
    ):
        with pytest.raises(error, match=said):
            lose(site, process, b"taken\n" if amount < LEAST else b"")
        process.kill()
    assert not list((ROOT / "memory").glob(f"vdisklab-{ledger.run_id}*"))
