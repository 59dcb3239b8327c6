"""What the edge prints when there is nothing to run, or a file is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vdisklab.cli.main import main
from vdisklab.errors import DirtyHostError


def test_without_a_verb_the_help_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr()
    assert "error" not in said.err
    assert "doctor" in said.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--plan", "absent.toml"],
        ["plan", "raw", "--profile", "absent.toml"],
        ["plan", "default", "--on", "/dev/absent"],
    ],
)
def test_a_file_that_is_not_there_has_a_way_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    assert main(arguments) in (2, 3)
    said = capsys.readouterr().err
    assert "absent" in said
    assert "\nhint: name " in said


def test_what_stays_always_has_a_way_out() -> None:
    assert "vdisklab clean" in (DirtyHostError("it stays").hint or "")


def test_an_interrupt_while_the_program_is_loaded_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    done = subprocess.run([sys.executable, "-m", "vdisklab"], capture_output=True, text=True)  # noqa: PLW1510
    assert (done.returncode, done.stderr) == (130, "")
