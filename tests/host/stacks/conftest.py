"""A site and loop devices on the real kernel."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.waiting import wait_until
from vdisklab.storage.site import Site, open_site

MIB = 1 << 20


@pytest.fixture
def host() -> LocalHost:
    return LocalHost()


@pytest.fixture
def site(host: LocalHost, tmp_path: Path) -> Iterator[Site]:
    with open_ledger(tmp_path / "state") as ledger, open_site(host, ledger, tmp_path) as site:
        yield site


Attach = Callable[..., Path]


@contextmanager
def attached(host: LocalHost, file: Path, size: int, *flags: str) -> Iterator[Path]:
    """A loop device that stands for a disk of the user's."""
    file.touch()
    os.truncate(file, size)
    device = Path(host.run("losetup", "--find", "--show", *flags, file).stdout.strip())
    try:
        yield device
    finally:
        host.run("losetup", "--detach", device)


@pytest.fixture
def attach(host: LocalHost, tmp_path: Path) -> Iterator[Attach]:
    """Makes loop devices that are detached when the test ends."""
    with ExitStack() as stack:
        count = 0

        def make(size: int = 64 * MIB, *flags: str) -> Path:
            nonlocal count
            count += 1
            return stack.enter_context(attached(host, tmp_path / f"disk{count}", size, *flags))

        yield make


@pytest.fixture(scope="session")
def zfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHost]:
    """ZFS that answers: the kernel's, or zfs-fuse (Debian's main archive) started for the tests."""
    host = LocalHost()

    def answers() -> bool:
        return host.run("zpool", "list", allowed=range(256)).status == 0

    if host.which("zpool") is not None and answers():
        yield host
        return
    program = host.which("zfs-fuse")
    if program is None:
        if any(
            os.environ.get(name, "") not in ("", "0", "false") for name in ("CI", "VDISKLAB_CI")
        ):
            pytest.fail("continuous integration lacks zfs-fuse", pytrace=False)
        pytest.skip("needs zfs-fuse")
    log = tmp_path_factory.mktemp("zfs") / "daemon.log"
    with log.open("wb") as sink:
        daemon = subprocess.Popen([program, "--no-daemon"], stdout=sink, stderr=sink)
    try:
        wait_until(answers, timeout=20, what="answer of zfs-fuse")
        yield host
    finally:
        daemon.terminate()
        daemon.wait(20)
