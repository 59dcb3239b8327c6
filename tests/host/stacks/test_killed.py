"""SIGKILL at every step of every layer that runs on this kernel, and at every line of nested
ledgers; then `clean` puts all right."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from vdisklab.actions.clean import remove_leftovers
from vdisklab.host import ledger as ledgers
from vdisklab.host.blockdevice import signatures
from vdisklab.host.command import Completed, LocalHost, PathArg
from vdisklab.host.ledger import Ledger, open_ledger
from vdisklab.host.mounts import mounts_below
from vdisklab.path.backing import WORK_DIRECTORY, BackingDevices
from vdisklab.path.disk_path import Layer, parse_path
from vdisklab.storage.logged_disk import rated_disk
from vdisklab.storage.site import open_site
from vdisklab.storage.stack import build_stack
from vdisklab.storage.undo import loops_of
from vdisklab.storage.zram import ZRAM_CONTROL, zram_devices

from .conftest import MIB, Attach

pytestmark = pytest.mark.host


@dataclass
class DoomedHost(LocalHost):
    """Runs programs, and dies by SIGKILL around the one whose turn it is.

    Step 2n is before program n, step 2n+1 after it.
    """

    step: int
    _count: int = field(default=0)

    def run(
        self,
        *argv: PathArg,
        timeout: float = 60.0,
        allowed: Collection[int] = (0,),
        stdin: str | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Completed:
        self.reach()
        done = super().run(*argv, timeout=timeout, allowed=allowed, stdin=stdin, watch=watch)
        self.reach()
        return done

    def reach(self) -> None:
        if self._count == self.step:
            os.kill(os.getpid(), signal.SIGKILL)
        self._count += 1


def build(host: LocalHost, work: Path, layers: tuple[Layer, ...], backing: BackingDevices) -> None:
    """Builds and takes down a stack."""
    with (
        open_ledger(work / "state") as ledger,
        open_site(host, ledger, work) as site,
        build_stack(site, layers, 16 * MIB, "a", backing=backing, allocate=False) as target,
    ):
        (target.on_host / "file").write_bytes(b"x")


def killed_in(body: Callable[[], None]) -> bool:
    """Runs the body in a process of its own; False when it came to its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the stack failed by itself"
    return False


def leftover(work: Path) -> list[str]:
    left = [str(path) for path in work.glob("vdisklab-*")]
    left += [str(mount.mountpoint) for mount in mounts_below(work)]
    for file in work.rglob("*.slice*"):
        left += loops_of(LocalHost(), file)
    return left


# XFS differs from ext4 in the program that makes it.
@pytest.mark.parametrize(
    "stack", ["ext4", pytest.param("xfs", marks=pytest.mark.nightly), "btrfs", "tmpfs"]
)
def test_clean_after_sigkill_at_each_step(stack: str, tmp_path: Path) -> None:
    die_everywhere(tmp_path, stack, WORK_DIRECTORY)


@pytest.mark.skipif(not ZRAM_CONTROL.is_dir(), reason="this kernel has no zram")
def test_clean_after_sigkill_with_a_zram_device(tmp_path: Path) -> None:
    before = set(zram_devices())
    die_everywhere(tmp_path, "zram/ext4", WORK_DIRECTORY)
    assert set(zram_devices()) == before


def test_clean_after_sigkill_at_steps_of_zfs(tmp_path: Path, zfs: LocalHost) -> None:
    def pools() -> set[str]:
        listed = zfs.run("zpool", "list", "-H", "-o", "name", allowed=(0, 1)).stdout
        return {name for name in listed.split() if name.startswith("vdl_")}

    before = pools()
    die_everywhere(tmp_path, "zfs:raid=raidz1", WORK_DIRECTORY, stride=13)
    assert pools() <= before


def test_clean_after_sigkill_on_a_device(tmp_path: Path, attach: Attach) -> None:
    device = attach(256 * MIB)
    die_everywhere(tmp_path, "ext4", BackingDevices((device,)), device)


def test_clean_after_sigkill_of_zfs_on_devices(
    tmp_path: Path, attach: Attach, zfs: LocalHost
) -> None:
    devices = tuple(attach(512 * MIB) for _ in range(2))
    die_everywhere(tmp_path, "zfs:raid=mirror", BackingDevices(devices), *devices, stride=9)


def die_everywhere(
    work: Path, stack: str, backing: BackingDevices, *devices: Path, stride: int = 1
) -> None:
    """An odd stride meets both sides of programs in fewer deaths, where each takes a second."""
    layers = parse_path(f"{stack}/host").layers
    step = 0
    while killed_in(partial(build, DoomedHost(step), work, layers, backing)):
        list(remove_leftovers(LocalHost(), directory=work / "state"))
        assert leftover(work) == [], f"after step {step}"
        for device in devices:
            assert signatures(LocalHost(), device) == (), f"after step {step}"
        step += stride
    assert step >= 4 * stride
    assert leftover(work) == []


def nested(work: Path, names: list[str], host: DoomedHost) -> None:
    """Builds as `density` does: a stack of one ledger on a disk of another one.

    The host also dies before and after each line of a ledger.
    """

    class DoomedLedger(Ledger):
        def _append(self, line: Mapping[str, Any]) -> None:
            host.reach()
            super()._append(line)
            host.reach()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledgers, "Ledger", DoomedLedger)
        patch.setattr("secrets.token_hex", lambda _: names.pop(0))
        with (
            open_ledger(work / "state") as ledger,
            open_site(host, ledger, work) as site,
            rated_disk(site, "control", 160 * MIB, rate=100_000) as device,
        ):
            build(host, work, parse_path("ext4/host").layers, BackingDevices((device,)))


# A death takes a quarter of a second of CPU, so that all of them are nightly.
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.nightly)])
def test_clean_after_sigkill_at_each_line_of_nested_ledgers(stride: int, tmp_path: Path) -> None:
    """An odd stride meets both sides of lines, and of programs."""
    step = 0
    while killed_in(partial(nested, tmp_path, ["00000000", "77777777"], DoomedHost(step))):
        list(remove_leftovers(LocalHost(), directory=tmp_path / "state"))
        assert leftover(tmp_path) == [], f"after step {step}"
        assert list((tmp_path / "state/ledger").iterdir()) == [], f"after step {step}"
        step += stride
    assert step > 60
    assert leftover(tmp_path) == []
