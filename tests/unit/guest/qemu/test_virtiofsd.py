"""Which end of virtiofsd is its own: it ends with 0 when QEMU has ended."""

from __future__ import annotations

import subprocess

import pytest

from vdisklab.guest.qemu.daemons import VirtiofsDaemon


@pytest.mark.parametrize(
    ("script", "alive"), [("exit 0", True), ("exit 1", False), ("kill -KILL $$", False)]
)
def test_only_an_end_of_its_own_is_blamed(script: str, alive: bool) -> None:
    with subprocess.Popen(["sh", "-c", script]) as process:
        process.wait(10)
        assert VirtiofsDaemon(process, "virtiofsd 1.13.2").alive() is alive


def test_it_is_alive_while_it_runs() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert VirtiofsDaemon(process, "virtiofsd 1.13.2").alive()
        process.kill()
