"""Asked to end in the worst moments, also as a whole group, we leave no pool and no disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from vdisklab.actions.clean import remove_leftovers
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.mounts import mounts_below
from vdisklab.host.waiting import wait_until
from vdisklab.path.disk_path import parse_path
from vdisklab.storage.site import open_site
from vdisklab.storage.targets import Device
from vdisklab.storage.zfs import dataset

from .conftest import Attach

pytestmark = pytest.mark.host

VICTIM = """
    import sys, time
    from pathlib import Path
    from vdisklab.cli.shell.main import _turn_signals_into_interrupts
    from vdisklab.host.command import LocalHost
    from vdisklab.host.ledger import open_ledger
    from vdisklab.path.disk_path import parse_path
    from vdisklab.powercut.recordings import RunSpec, _recorded_stack
    from vdisklab.storage.site import open_site
    _turn_signals_into_interrupts()
    path, work = parse_path(sys.argv[1]), Path(sys.argv[2])
    try:
        with open_ledger(work / "state") as ledger, open_site(LocalHost(), ledger, work) as site:
            spec = RunSpec(path, load=None, size=8 << 20)
            with _recorded_stack(site, spec, "a", site.directory / "a.log"):
                print("up", flush=True)
                time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def fake(directory: Path, name: str, script: str) -> None:
    program = directory / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_an_interrupt_while_a_daemon_makes_a_pool_leaves_no_pool(
    tmp_path: Path, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zfs-fuse goes on with what it was told when the zpool that told it is killed."""
    device, programs = attach(), tmp_path / "bin"
    pools, done = tmp_path / "pools", tmp_path / "done"
    pools.touch()
    programs.mkdir()
    fake(
        programs,
        "zpool",
        f"""case $1 in
        get) exit 2 ;;
        list) cat {pools} ;;
        status) echo "  {device}" ;;
        create)
            kill -INT $PPID
            name=$(echo "$*" | grep -o 'vdl_[^ ]*')
            setsid sh -c 'sleep 1; echo "$0" > {pools}; : > {done}' "$name" &
            wait ;;
        destroy) : > {pools} ;;
        esac""",
    )
    fake(programs, "zfs", "exit 2")
    fake(programs, "modprobe", "exit 1")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (layer,) = parse_path("zfs/host").layers
    below = Device(device, {}, (), disks=(device,))
    with (
        pytest.raises(KeyboardInterrupt),
        open_ledger(tmp_path / "state") as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
        dataset(site, below, layer, "p", 1 << 20),
    ):
        pytest.fail("not reached")
    wait_until(done.exists, timeout=10, what="end of what the daemon was told")
    assert pools.read_text() == ""
    assert not ledger.path.exists()


@pytest.mark.parametrize(
    ("stack", "number"),
    [
        ("ext4", signal.SIGTERM),
        ("zfs", signal.SIGTERM),
        ("zfs", signal.SIGHUP),
        ("zfs", signal.SIGKILL),
    ],
)
def test_a_signal_to_the_whole_group_leaves_nothing(
    stack: str, number: signal.Signals, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A logged disk that ended with the group left a pool that nobody could destroy.

    What SIGKILL leaves is taken down by `clean`, for which the disk must still be there.
    """
    if stack == "zfs":
        request.getfixturevalue("zfs")
    argv = [sys.executable, "-c", textwrap.dedent(VICTIM), f"{stack}/raw/none", str(tmp_path)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "up\n"
        os.killpg(victim.pid, number)
        assert victim.wait(60) == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    removed = list(remove_leftovers(LocalHost(), directory=tmp_path / "state"))
    if number != signal.SIGKILL:
        assert removed == []
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert mounts_below(tmp_path) == ()
