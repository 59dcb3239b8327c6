"""A guest that dies or stays silent: a script in QEMU's place, on the real way of starting it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import GuestError, HostError
from vdisklab.guest.machine import start_machine
from vdisklab.guest.qemu.command_line import BootFiles, GuestConfig
from vdisklab.host.ledger import open_ledger, pending
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.storage.undo import processes_marked

_BOOT = BootFiles(Path("/k"), Path("/i"), Path("/r"), "quiet")

_FIND_CONSOLE = "for word; do case $word in file:*) console=${word#file:};; esac; done\n"


def config(tmp_path: Path, script: str) -> GuestConfig:
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/sh\n{_FIND_CONSOLE}{script}\n")
    program.chmod(0o755)
    return GuestConfig(
        str(program), f"m-{tmp_path.name}", "q35", Accelerator.TCG, GuestPlan(), _BOOT
    )


def start(tmp_path: Path, made: GuestConfig, *, timeout: float = 5.0) -> GuestError:
    """The error of a guest that cannot be started; nothing of it is left."""
    with open_ledger(tmp_path / "state") as ledger:
        with (
            pytest.raises(GuestError) as caught,
            start_machine(made, ledger, tmp_path, timeout=timeout),
        ):
            pytest.fail("not reached")
        assert pending(ledger.path) == []
    assert processes_marked(f"guest={made.marker},") == []
    return caught.value


def test_its_last_words_are_told(tmp_path: Path) -> None:
    lines = "".join(f"line {number}\\n" for number in range(20))
    script = (
        f"printf '{lines}\\033[1mKernel panic - not syncing\\n' >\"$console\"\n"
        "echo 'qemu: could not open /r' >&2\nexit 1"
    )
    error = start(tmp_path, config(tmp_path, script))
    said, console = error.__notes__
    assert said == "QEMU printed:\n  qemu: could not open /r"
    assert error.printed == ("qemu: could not open /r",)
    assert console.startswith("last lines of the guest's console:\n  line 13\n")
    assert console.endswith("Kernel panic - not syncing")
    assert "\x1b" not in console
    assert "ended before its monitor" in str(error)


def test_one_that_stays_silent_is_killed_after_its_deadline(tmp_path: Path) -> None:
    made = config(tmp_path, 'echo booting >"$console"\nexec sleep 60')
    error = start(tmp_path, made, timeout=1.5)
    assert "no greeting within 1." in str(error)  # less than 1.5 s where the start took some
    assert error.__notes__ == ["last lines of the guest's console:\n  booting"]


def test_of_one_that_says_nothing_at_all_that_is_said(tmp_path: Path) -> None:
    error = start(tmp_path, config(tmp_path, "exit 1"))
    (note,) = error.__notes__
    assert note.endswith("(it printed nothing)")


def test_a_missing_qemu_is_named(tmp_path: Path) -> None:
    made = GuestConfig("/no/qemu", "m", "q35", Accelerator.TCG, GuestPlan(), _BOOT)
    with (
        open_ledger(tmp_path / "state") as ledger,
        pytest.raises(HostError, match="/no/qemu is not installed"),
        start_machine(made, ledger, tmp_path),
    ):
        pytest.fail("not reached")
