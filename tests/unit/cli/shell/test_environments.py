"""Answers in any locale and environment: a sentence and the right status, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from vdisklab.cli.shell.main import main
from vdisklab.errors import DatabaseError, HostError, PlanError

RECORD = Path(__file__).parents[4] / "docs" / "images" / "campaign.json.gz"
VDISKLAB = (sys.executable, "-m", "vdisklab")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("db") / "results.sqlite")
    assert main(["import", str(RECORD), "--db", url]) == 0
    return url


def vdisklab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    environment = dict(os.environ) | environment
    return subprocess.run(
        [*VDISKLAB, *arguments], env=environment, capture_output=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    "environment",
    [
        # Encoding, width and directories do not depend on each other: one start tries several.
        {"PYTHONIOENCODING": "iso-8859-1", "TERM": "dumb", "COLUMNS": "40"},
        {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        {
            "PYTHONIOENCODING": "cp1252",
            "LC_ALL": "POSIX",
            "COLUMNS": "0",
            "LINES": "x",
            "NO_COLOR": "1",
        },
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {
            "LC_ALL": "xx_YY.UTF-8",
            "LANG": "nonsense",
            "HOME": "/nonexistent",
            "XDG_CACHE_HOME": "",
            "TMPDIR": "/nonexistent",
        },
    ],
    ids=lambda environment: " ".join(f"{name}={value}" for name, value in environment.items()),
)
def test_an_answer_is_printed_in_any_environment(db: str, environment: Mapping[str, str]) -> None:
    ended = vdisklab("rank", "--db", db, **environment)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(b"\n") > 10
    assert b"Traceback" not in ended.stderr
    if environment.get("PYTHONIOENCODING") == "ascii":
        shown = ended.stdout.decode("ascii")
        assert "----" in shown, "a character that is missing is the nearest one"
        assert "?" not in shown


def test_an_error_that_cannot_be_printed_keeps_its_status(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [*VDISKLAB, "rank", "--db", str(tmp_path / "none.sqlite")],
            stderr=full, check=False, timeout=120,
        )  # fmt: skip
    assert ended.returncode == DatabaseError.exit_code


def test_an_interrupt_while_loading_ends_at_once_without_a_word() -> None:
    program = (
        "import os, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from vdisklab.__main__ import main\n"
        "sys.exit(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_a_name_with_a_newline_is_refused_in_one_sentence() -> None:
    ended = vdisklab("plan", "raw/none", "--dir", "a\nb")
    assert ended.returncode == PlanError.exit_code
    first, second = ended.stderr.decode().splitlines()
    assert first.startswith("error: ")
    assert r"'a\nb'" in first
    assert second.startswith("hint: ")


def test_a_killed_import_leaves_nothing_for_long(tmp_path: Path) -> None:
    left = tmp_path / "vdisklab-import-4194305-abc"
    left.mkdir()
    (left / "stdin").touch()
    running = tmp_path / f"vdisklab-import-{os.getpid()}-abc"
    running.mkdir()
    ended = vdisklab("import", "/nonexistent", "--db", str(tmp_path / "x"), TMPDIR=str(tmp_path))
    assert ended.returncode in (PlanError.exit_code, HostError.exit_code)
    assert not left.exists()
    assert running.exists()
