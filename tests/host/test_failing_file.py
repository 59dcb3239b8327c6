"""Storage that fails when it is told to, on the real kernel: what failed is known exactly."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import leftovers, open_ledger
from vdisklab.host.mounts import mounts_below
from vdisklab.host.waiting import wait_until
from vdisklab.storage.failing_disk import Behaviour, StorageOrder, StorageRequest
from vdisklab.storage.failing_file import FailingFile, failing_file
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import UNDO
from vdisklab.units import MIB

pytestmark = pytest.mark.host

BLOCK = 4096


@contextmanager
def opened(tmp_path: Path) -> Iterator[tuple[FailingFile, int, mmap.mmap]]:
    """A failing file whose third block has data, a descriptor of it, and memory for O_DIRECT."""
    content = tmp_path / "content"
    with content.open("wb") as file:
        file.truncate(MIB)
        file.seek(2 * BLOCK)
        file.write(b"x" * BLOCK)
    memory = mmap.mmap(-1, BLOCK)
    memory.write(b"y" * BLOCK)
    with (
        open_ledger() as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
        failing_file(site, "image", content, MIB, sparse=True) as file,
    ):
        descriptor = os.open(file.path, os.O_RDWR | os.O_DIRECT)
        try:
            yield file, descriptor, memory
        finally:
            os.close(descriptor)


def write(descriptor: int, memory: mmap.mmap, block: int) -> str:
    """What a write of one block answers."""
    try:
        return str(os.pwrite(descriptor, memory, block * BLOCK))
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def sync(descriptor: int) -> str:
    try:
        os.fsync(descriptor)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def read(file: FailingFile, block: int) -> bytes:
    """The first byte of a block, as the file is afterwards."""
    with file.path.open("rb") as opened_file:
        opened_file.seek(block * BLOCK)
        return opened_file.read(1)


def test_requests_fail_as_ordered_and_only_then(tmp_path: Path) -> None:
    with opened(tmp_path) as (file, descriptor, memory):
        assert (write(descriptor, memory, 0), sync(descriptor)) == ("4096", "done")
        with file.failing(StorageOrder(Behaviour.ERROR)):
            assert (write(descriptor, memory, 1), sync(descriptor)) == ("EIO", "EIO")
        with file.failing(StorageOrder(Behaviour.ERROR, (StorageRequest.FLUSH,))):
            assert (write(descriptor, memory, 3), sync(descriptor)) == ("4096", "EIO")
        within = ((5 * BLOCK, 6 * BLOCK),)
        with file.failing(StorageOrder(Behaviour.ERROR, within=within)):
            assert [write(descriptor, memory, block) for block in (4, 5)] == ["4096", "EIO"]
            assert sync(descriptor) == "done"
        with file.failing(StorageOrder(Behaviour.ERROR, most=1)):
            assert [write(descriptor, memory, block) for block in (6, 6)] == ["EIO", "4096"]
        assert (write(descriptor, memory, 1), sync(descriptor)) == ("4096", "done")
        failed = [(request.kind, request.offset // BLOCK) for request in file.touched()]
    assert failed == [
        (StorageRequest.WRITE, 1), (StorageRequest.FLUSH, 0), (StorageRequest.FLUSH, 0),
        (StorageRequest.WRITE, 5), (StorageRequest.WRITE, 6),
    ]  # fmt: skip


def test_full_storage_refuses_new_blocks_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as (file, descriptor, memory):
        with file.failing(StorageOrder(Behaviour.FULL)):
            answers = [write(descriptor, memory, block) for block in (2, 7)]
            assert (answers, sync(descriptor)) == (["4096", "ENOSPC"], "done")
        assert write(descriptor, memory, 7) == "4096"
        with file.failing(StorageOrder(Behaviour.FULL)):
            assert write(descriptor, memory, 7) == "4096", "it is allocated now"
        assert [request.offset // BLOCK for request in file.touched()] == [7]


def test_a_quota_refuses_new_blocks_with_an_error_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path) as (file, descriptor, memory):
        with file.failing(StorageOrder(Behaviour.QUOTA)):
            assert [write(descriptor, memory, block) for block in (2, 7)] == ["4096", "EDQUOT"]
        assert write(descriptor, memory, 7) == "4096"


def test_forgetful_storage_says_yes_and_keeps_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as (file, descriptor, memory):
        with file.failing(StorageOrder(Behaviour.FORGETFUL)):
            assert (write(descriptor, memory, 2), sync(descriptor)) == ("4096", "done")
        assert read(file, 2) == b"x"


def test_silent_storage_answers_once_it_is_good_again(tmp_path: Path) -> None:
    answers: list[str] = []
    with opened(tmp_path) as (file, descriptor, memory):
        waiting = threading.Thread(target=lambda: answers.append(write(descriptor, memory, 0)))
        with file.failing(StorageOrder(Behaviour.SILENT)):
            waiting.start()
            wait_until(lambda: bool(file.touched()), timeout=30, what="the write")
            time.sleep(0.2)
            assert answers == []
        waiting.join(30)
        assert answers == ["4096"]
        assert read(file, 0) == b"y"


def test_a_killed_vdisklab_leaves_no_program_that_waits_for_silent_storage(
    tmp_path: Path,
) -> None:
    """The server is good again as soon as nobody can order it to be."""
    script = textwrap.dedent(f"""
        import os, sys, threading, time
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from tests.host import test_failing_file as test
        from vdisklab.storage.failing_disk import Behaviour, StorageOrder
        with test.opened(Path({str(tmp_path)!r})) as (file, descriptor, memory):
            file.obey(StorageOrder(Behaviour.SILENT))
            print(file.path, flush=True)
            time.sleep(600)
    """)
    killed = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert killed.stdout is not None
    path = Path(killed.stdout.readline().decode().strip())
    assert path.exists()
    killed.send_signal(signal.SIGKILL)
    killed.wait(30)
    killed.stdout.close()
    with path.open("rb") as file:
        assert file.read(1) == b"\0"
    host = LocalHost()
    with leftovers() as found:
        (mine,) = (each for each in found if any(str(tmp_path) in e.name for e in each.entries))
        for entry in mine.entries:
            UNDO[entry.kind](host, entry)
            mine.strike(entry)
        mine.path.unlink()
    assert mounts_below(tmp_path) == ()
    assert [file.name for file in tmp_path.iterdir()] == ["content"]
