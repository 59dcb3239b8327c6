"""The logged disk on the real kernel: nothing is lost or mixed up, and the log tells it all."""

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
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.host.namespaces import die_slowly, first_process, hold_elsewhere
from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import leftovers, open_ledger
from vdisklab.host.mounts import mounts_below
from vdisklab.host.waiting import wait_until
from vdisklab.storage.disk_server import Lies
from vdisklab.storage.filesystem import tmpfs
from vdisklab.storage.logged_disk import LoggedDisk, logged_disk
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.stack import UNDO
from vdisklab.storage.undo import processes_marked
from vdisklab.storage.write_log import Flag, read_log
from vdisklab.units import MIB

pytestmark = pytest.mark.host

BLOCK = 64 << 10
BLOCKS = 2000
WRITERS = 8


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site in memory."""
    host = LocalHost()
    with (
        open_ledger() as ledger,
        open_site(host, ledger, tmp_path) as outer,
        tmpfs(outer, "memory", 1024 * MIB) as memory,
        open_site(host, ledger, memory.path) as inner,
    ):
        yield inner


def content(number: int) -> bytes:
    return bytes((number * 7 + byte) % 251 for byte in range(64)) * (BLOCK // 64)


def write_all(disk: LoggedDisk) -> None:
    todo = iter(range(BLOCKS))
    lock = threading.Lock()

    def work() -> None:
        device = os.open(disk.path, os.O_RDWR | os.O_DIRECT)
        with mmap.mmap(-1, BLOCK) as block:
            while True:
                with lock:
                    number = next(todo, None)
                if number is None:
                    break
                block[:] = content(number)
                os.pwritev(device, [block], number * BLOCK)
        os.close(device)

    writers = [threading.Thread(target=work) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def test_eight_direct_writers_lose_and_mix_nothing(site: Site) -> None:
    with logged_disk(site, "disk", BLOCKS * BLOCK) as disk:
        assert disk.properties["loop.direct_io"] == "on"
        write_all(disk)
        device = os.open(disk.path, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, BLOCK) as block:
            wrong = 0
            for number in range(BLOCKS):
                os.preadv(device, [block], number * BLOCK)
                wrong += block[:] != content(number)
        os.close(device)
        assert wrong == 0
        replayed = bytearray(BLOCKS * BLOCK)
        raw = disk.log.read_bytes()
        for entry in read_log(disk.log).entries:
            if entry.changes_disk:
                data = raw[entry.data_at : entry.data_at + entry.length]
                replayed[entry.offset : entry.offset + entry.length] = data
        assert replayed == b"".join(content(number) for number in range(BLOCKS))


def test_flush_zero_and_discard_are_told_apart(site: Site) -> None:
    host = LocalHost()
    with logged_disk(site, "disk", 64 * MIB) as disk:
        device = os.open(disk.path, os.O_RDWR)
        os.pwrite(device, b"x" * 4096, 8192)
        os.fdatasync(device)
        os.close(device)
        host.run("blkdiscard", "--zeroout", "-o", str(MIB), "-l", str(MIB), disk.path)
        host.run("blkdiscard", "-o", str(4 * MIB), "-l", str(MIB), disk.path)
        seen = [(e.offset, e.length, e.flags, e.zeroes) for e in read_log(disk.log).entries]
    assert (8192, 4096, Flag(0), False) in seen
    assert (1 * MIB, MIB, Flag(0), True) in seen
    assert (4 * MIB, MIB, Flag.DISCARD, False) in seen
    written = next(n for n, each in enumerate(seen) if each[0] == 8192)
    assert Flag.FLUSH in [flags for _, _, flags, _ in seen[written + 1 :]]


def test_a_liar_logs_fewer_flushes(site: Site) -> None:
    def flushes(name: str, lies: Lies) -> int:
        with logged_disk(site, name, 16 * MIB, lies=lies) as disk:
            device = os.open(disk.path, os.O_RDWR)
            for number in range(100):
                os.pwrite(device, b"x" * 512, number * 512)
                os.fdatasync(device)
            os.close(device)
            return sum(entry.flushes for entry in read_log(disk.log).entries)

    assert flushes("honest", Lies()) >= 100
    assert flushes("liar", Lies(dropped_flushes=1.0)) == 0
    assert 60 <= flushes("half", Lies(dropped_flushes=0.1)) < 100


def test_flushes_arrive_although_somebody_switched_them_off(site: Site) -> None:
    with logged_disk(site, "first", 16 * MIB) as disk:
        name = disk.path.name
        (Path("/sys/block") / name / "queue" / "write_cache").write_text("write through")
    with logged_disk(site, "second", 16 * MIB) as disk:
        setting = Path("/sys/block") / disk.path.name / "queue" / "write_cache"
        assert setting.read_text().strip() == "write back"
        device = os.open(disk.path, os.O_RDWR)
        os.pwrite(device, b"x" * 512, 0)
        os.fdatasync(device)
        os.close(device)
        assert any(entry.flushes for entry in read_log(disk.log).entries)


def test_a_server_that_cannot_start_is_one_sentence(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vdisklab.storage.logged_disk.sys.executable", "/bin/false")
    with (
        pytest.raises(HostError, match="the logged disk cannot be started"),
        logged_disk(site, "disk", 16 * MIB),
    ):
        pytest.fail("not reached")
    assert list(site.directory.iterdir()) == []


def test_a_server_that_is_never_ready_is_one_sentence(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vdisklab.storage.logged_disk.READY", b"another word\n")
    with (
        pytest.raises(HostError, match="the logged disk cannot be started: it printed nothing"),
        logged_disk(site, "disk", 16 * MIB),
    ):
        pytest.fail("not reached")
    assert list(site.directory.iterdir()) == []


@pytest.mark.parametrize("seen", [True, False])
def test_a_server_that_is_killed_is_named_and_not_what_it_broke(seen: bool, site: Site) -> None:
    with (
        pytest.raises(HostError, match="logged disk's server was killed by signal 9"),
        logged_disk(site, "disk", 16 * MIB) as disk,
    ):
        kill_server(site, disk, seen=seen)
    assert list(site.directory.iterdir()) == []


def test_a_server_that_takes_long_to_die_is_named_too(site: Site) -> None:
    with ExitStack() as dying, ExitStack() as stack:
        with first_process():
            disk = stack.enter_context(logged_disk(site, "disk", 16 * MIB))
        (server,) = processes_marked(f"--marker={site.directory.name}-disk")
        die_slowly(dying, server)
        with pytest.raises(HostError, match="was killed by signal 9"), stack.pop_all():
            kill_server(site, disk, seen=True)


def kill_server(site: Site, disk: LoggedDisk, *, seen: bool) -> None:
    (server,) = processes_marked(f"--marker={site.directory.name}-disk")
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: not processes_marked(f"--marker={site.directory.name}-disk"),
               timeout=10, what="its end")  # fmt: skip
    if seen:
        disk.path.write_bytes(b"x" * 4096)
        raise OSError(errno.EIO, "what stands on the disk met its end")


@pytest.mark.parametrize("how", ["private", "slave"])
def test_another_mount_namespace_that_holds_the_disk_is_named(
    how: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that starts meanwhile has a copy of each mount, which our umount leaves."""
    monkeypatch.setattr("vdisklab.storage.logged_disk._END_SECONDS", 1.0)
    with (
        ExitStack() as stack,
        pytest.raises(
            HostError, match=r"another mount namespace \(processes sleep \(\d+\)\) was created"
        ),
        logged_disk(site, "disk", 16 * MIB) as disk,
    ):
        hold_elsewhere(stack, marker_of(disk), how)
    assert list(site.directory.iterdir()) == []


def marker_of(disk: LoggedDisk) -> str:
    mounts = mounts_below(disk.log.parent)
    return next(each.source for each in mounts if each.filesystem == "fuse.vdisklab")


def test_what_a_sigkill_leaves_is_cleaned(tmp_path: Path) -> None:
    program = f"""
        import time
        from pathlib import Path
        from vdisklab.host.command import LocalHost
        from vdisklab.host.ledger import open_ledger
        from vdisklab.storage.logged_disk import logged_disk
        from vdisklab.storage.site import open_site
        with open_ledger() as ledger, open_site(LocalHost(), ledger, Path({str(tmp_path)!r})) as s:
            with logged_disk(s, "disk", 64 << 20) as disk:
                print(disk.path, flush=True)
                time.sleep(60)
    """
    argv = [sys.executable, "-c", textwrap.dedent(program)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    victim = subprocess.Popen(argv, stdout=subprocess.PIPE, env=env)
    assert victim.stdout is not None
    device = victim.stdout.readline().decode().strip()
    assert device.startswith("/dev/loop")
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    time.sleep(0.2)
    host = LocalHost()
    with leftovers() as found:
        mine = [each for each in found if any(str(tmp_path) in e.name for e in each.entries)]
        assert len(mine) == 1
        for entry in mine[0].entries:
            UNDO[entry.kind](host, entry)
            mine[0].strike(entry)
        mine[0].path.unlink()
    assert list(tmp_path.iterdir()) == []
    assert mounts_below(tmp_path) == ()
