"""Commands are printed as this user must type them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.results.values import a_campaign
from vdisklab.cli.shell.caller import Caller, needs_root
from vdisklab.cli.shell.named import Named

USER = 1000


def caller(
    tmp_path: Path, *, user: int = USER, typed: str = ".venv/bin/vdisklab", sudo: bool = True,
    on_path: bool = False, environment: Mapping[str, str] | None = None,
) -> Caller:  # fmt: skip
    program = tmp_path / ".venv/bin/vdisklab"
    program.parent.mkdir(parents=True)
    program.touch()
    found = {"vdisklab": str(program)} if on_path else {}
    if sudo:
        found["sudo"] = "/usr/bin/sudo"
    started = typed if on_path else str(program) if typed == "whole" else typed
    return Caller.of((started, "rank", "--why"), environment or {}, user, found.get, sys.executable)


def test_the_program_has_the_name_that_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = caller(tmp_path)
    assert typed.start_of("vdisklab report") == ".venv/bin/vdisklab"
    assert typed.command == ".venv/bin/vdisklab rank --why"
    assert typed.anywhere().start_of("vdisklab report") == f"{tmp_path}/.venv/bin/vdisklab"
    named = Named(db="my db", caller=typed)
    assert named.in_text("`vdisklab rank`") == "`.venv/bin/vdisklab rank --db 'my db'`"
    assert named.in_html("<code>vdisklab doctor</code>") == "<code>.venv/bin/vdisklab doctor</code>"
    assert typed.same_command("the same command continues") == (
        "`.venv/bin/vdisklab rank --why` continues"
    )


def test_the_command_that_continues_is_without_new() -> None:
    """What --new begins anew, the same command would begin again, and measure all of it."""
    began = Caller(command="vdisklab powercut --new ext4/raw/none --client never --new")
    assert began.same_command("the same command continues") == (
        "`vdisklab powercut ext4/raw/none --client never` continues"
    )
    other = Caller(command="vdisklab run raw/none --newest --label --new-disk")
    assert other.same_command("the same command") == f"`{other.command}`"


def test_a_program_on_the_path_has_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = caller(tmp_path, on_path=True)
    assert typed.start_of("vdisklab report") == "vdisklab"
    # sudo does not look there.
    assert typed.start_of("vdisklab powercut ext4/raw/none") == (
        f"sudo {tmp_path}/.venv/bin/vdisklab"
    )


def test_what_needs_root_says_sudo_and_names_the_users_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VDISKLAB_DB", raising=False)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    typed = caller(tmp_path)
    start, database = f"sudo {tmp_path}/.venv/bin/vdisklab", f"{tmp_path}/state/vdisklab.sqlite"
    named = Named(caller=typed)
    assert named.in_text("`vdisklab powercut ext4/raw/none`") == (
        f"`{start} powercut ext4/raw/none --db {database}`"
    )
    assert named.in_text("`vdisklab run raw/none`") == "`.venv/bin/vdisklab run raw/none`"
    without = caller(tmp_path / "other", sudo=False)
    assert Named(caller=without).in_text("`vdisklab powercut ext4/raw/none`") == (
        "`.venv/bin/vdisklab powercut ext4/raw/none`"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_directory_of_another_user_is_measured_in_as_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """advise printed `run … --dir /var/lib/libvirt/images`, where its caller may not write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VDISKLAB_DB", "/x.sqlite")
    typed = caller(tmp_path)
    with tempfile.TemporaryDirectory() as made:  # pytest's own are closed to other users
        theirs, mine = Path(made, "theirs"), Path(made, "mine")
        Path(made).chmod(0o755)
        theirs.mkdir(mode=0o711)
        mine.mkdir()
        mine.chmod(0o777)
        os.seteuid(USER)
        try:
            said = [
                typed.start_of(f"vdisklab {verb} raw/none --dir {place}")
                for verb, place in (
                    ("run", theirs), ("run", mine), ("run", theirs / "gone"), ("plan", theirs),
                )
            ]  # fmt: skip
        finally:
            os.seteuid(0)
    start = f"sudo {tmp_path}/.venv/bin/vdisklab"
    assert said == [start, *[".venv/bin/vdisklab"] * 3]


def test_who_called_sudo_must_call_it_again(tmp_path: Path) -> None:
    typed = caller(tmp_path, user=0, typed="whole", environment={"SUDO_UID": str(USER)})
    assert typed.start_of("vdisklab report") == f"sudo {tmp_path}/.venv/bin/vdisklab"
    root = caller(tmp_path / "root", user=0, typed="whole")
    assert root.start_of("vdisklab report") == f"{tmp_path}/root/.venv/bin/vdisklab"


@pytest.mark.parametrize(
    ("command", "root"),
    [
        ("vdisklab powercut raw/none", True),
        ("vdisklab density raw/none --load 500iops", True),  # its control
        ("vdisklab run --again 1a7e5ed0", True),
        ("vdisklab plan --rounds 3 --again 1a7e5ed0", True),
        ("vdisklab run --again c0ffee00", False),
        ("vdisklab trend raw/none --confirm", True),
        ("vdisklab trend raw/none", False),
        ("vdisklab claims --run", True),
        ("vdisklab claims --why", False),
        ("vdisklab run ext4/raw/none --rounds 3", True),
        ("vdisklab run '{raw,xfs/raw}/none'", True),
        ("vdisklab plan none --on /dev/sdb", True),
        ("vdisklab run '{raw,qcow2}/none' host", False),
        ("vdisklab run nbd:at=fast/raw/none", False),
        ("vdisklab run PATHS…", False),
        ("vdisklab rank --metric ext4/raw/none", False),
        ("vdisklab run 'it", False),
    ],
)
def test_a_command_tells_whether_it_needs_root(command: str, root: bool) -> None:
    assert needs_root(command, {"1a7e5ed0"}) is root


def test_what_measures_a_campaign_again_goes_by_its_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VDISKLAB_DB", raising=False)
    typed = caller(tmp_path, typed="whole")
    start = f"{tmp_path}/.venv/bin/vdisklab"
    cells = {"1a7e5ed0": "ext4/raw/writeback (warm)", "c0ffee00": "raw/writeback (warm)"}
    layered, plain = (
        a_campaign(id=name, plan={"cells": ["raw/none", cell]}) for name, cell in cells.items()
    )
    named = Named(db="d", caller=typed).on_targets_of([layered, plain])
    assert named.in_text("`vdisklab run --again 1a7e5ed0`").startswith(f"`sudo {start} run")
    assert named.in_text("`vdisklab run --again c0ffee00`").startswith(f"`{start} run")
    assert named.in_text("`vdisklab trend --confirm`").startswith(f"`sudo {start} trend")
    alone = Named(db="d", caller=typed).on_targets_of([plain])
    assert alone.in_text("`vdisklab trend --confirm`").startswith(f"`{start} trend")
    on_device = a_campaign(id="de71ce00", plan={"cells": ["raw/none"], "devices": ["/dev/sdb"]})
    again = Named(db="d", caller=typed).on_targets_of([on_device])
    assert again.in_text("`vdisklab run --again de71ce00`").startswith(f"`sudo {start} run")
    claims = Named.by(Named(layered=frozenset({"vdisklab run ext4/raw/none"})))
    assert claims.layered


def test_a_process_that_is_no_vdisklab_uses_the_name() -> None:
    assert Caller.of(("/usr/bin/pytest", "-x"), {}, 0, lambda _: None, "python") == Caller()
    module = Caller.of(("/x/vdisklab/__main__.py", "rank"), {}, USER, lambda _: None, "/v/python3")
    assert module.start_of("vdisklab rank") == "/v/python3 -m vdisklab"


def test_an_error_names_the_program_that_the_user_typed(tmp_path: Path) -> None:
    program = Path(os.path.relpath(Path(sys.executable).parent / "vdisklab", tmp_path))
    told = subprocess.run(
        [program, "runs", "--db", "none.sqlite"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert told.returncode != 0
    assert f"`{program} run PATHS… --db none.sqlite`" in told.stderr
