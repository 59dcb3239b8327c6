"""What a shell sees: versions, and the completion of verbs and options."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.stored import Database
from vdisklab import __version__
from vdisklab.cli.shell.main import main


def test_the_version_names_qemu_and_fio(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("qemu-system-x86_64", "QEMU emulator version 9.2.1 (Debian 1:9.2.1+ds-1)"),
        ("fio", "fio-3.38"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"vdisklab {__version__}",
        "QEMU 9.2.1 (Debian 1:9.2.1+ds-1)",
        "fio 3.38",
    ]
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["QEMU not found", "fio not found"]


COMPLETED = {
    "vdisklab re": ["recommend", "report", "record"],
    "vdisklab advise --pl": ["--platform"],
    "vdisklab advise --accelerator ''": ["auto", "kvm", "tcg"],
}


def test_bash_completes_verbs_and_their_options() -> None:
    """By the function that `--install-completion` installs."""
    command = Path(sys.executable).with_name("vdisklab")
    lines = [f'eval "$(_VDISKLAB_COMPLETE=source_bash {command})"']
    for arguments in COMPLETED:
        lines += [
            f"COMP_WORDS=({arguments}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))",
            f'_vdisklab_completion {command}; echo "${{COMPREPLY[*]}}"',
        ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=300, check=False
    )
    assert [line.split() for line in done.stdout.splitlines()] == list(COMPLETED.values())


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["rank", "{}"], "rank --db {}"),
        (["rank", "{}", "--why"], "rank --db {} --why"),
        (["runs", "{}"], "runs --db {}"),
        (["compare", "{}", "a", "b"], "compare --db {} a b"),
        (["audit", "{}"], "audit --db {}"),
        (["rank", "--campaign", "{}"], None),
        (["rank", "none.db"], None),
    ],
)
def test_a_database_without_its_option_gets_the_command_with_it(
    arguments: list[str],
    command: str | None,
    database: Database,
    capsys: pytest.CaptureFixture[str],
) -> None:
    database.write()
    assert main([word.format(database.file) for word in arguments]) in (2, 7)
    said = capsys.readouterr().err
    if command is None:
        assert "to read this database" not in said
    else:
        whole = command.format(database.file)
        assert f"hint: to read this database: `vdisklab {whole}`\n" in said
