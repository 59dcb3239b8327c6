"""A process's calls of fdatasync are counted by the kernel, exactly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.sync_calls import counted_syncs

pytestmark = pytest.mark.host

# For each line that it reads: calls from its main thread, from threads that start and end, and from
# one that stays, started by another thread.
_PROGRAM = """
import os, sys, threading, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
def syncs(count, call=os.fdatasync):
    for _ in range(count):
        call(file)
def again():
    child = threading.Thread(target=syncs, args=(7,))
    child.start()
    child.join()
waiting = threading.Event()
threading.Thread(target=waiting.wait, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    syncs(100)
    syncs(10, os.fsync)
    for target, words in ((syncs, (20,)), (again, ())):
        thread = threading.Thread(target=target, args=words)
        thread.start()
        thread.join()
    print("done", flush=True)
"""
_CALLS = 100 + 10 + 20 + 7


@contextmanager
def syncing(file: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(file)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate(timeout=20)


def once(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def test_every_call_of_every_thread_counts_and_no_other_process(tmp_path: Path) -> None:
    with syncing(tmp_path / "a") as process, syncing(tmp_path / "b") as other:
        once(process)
        try:
            with counted_syncs(LocalHost(), process.pid) as calls:
                assert calls.count() == 0
                once(process)
                once(other)
                assert calls.count() == _CALLS
                once(process)
                assert calls.count() == 2 * _CALLS
        except HostError as error:
            pytest.skip(str(error))


def test_io_urings_fsyncs_count(tmp_path: Path) -> None:
    job = (
        "sleep 1; exec fio --name=a --filename=$0 --rw=write --bs=4k --size=256k --fsync=4 "
        "--ioengine=io_uring --output-format=json"
    )
    with subprocess.Popen(["sh", "-c", job, str(tmp_path / "a")], stdout=subprocess.DEVNULL) as fio:
        try:
            with counted_syncs(LocalHost(), fio.pid) as calls:
                fio.wait(timeout=60)
                counted = calls.count()
        except HostError as error:
            pytest.skip(str(error))
    if fio.returncode:
        pytest.skip("this fio or kernel has no io_uring")
    assert 15 <= counted <= 16 + 2, "after every fourth of 64 writes, the last perhaps"


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with pytest.raises(HostError, match="ended before"), counted_syncs(LocalHost(), ended.pid):
        pass
