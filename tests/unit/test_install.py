"""What the scripts and lock files promise."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ("script/install", "script/quickstart", "script/test", ".ci/run")
LOCKS = ("requirements.lock", "requirements-dev.lock")


def pins(lock: str) -> dict[str, str]:
    """Name and version of every pinned package."""
    found = re.findall(r"^([\w.-]+)(?:\[\w+\])?==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_executable_bash(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)
    assert "set -euo pipefail" in (ROOT / script).read_text()


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_name_hashes_and_no_registry(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert "--index" not in text
    assert len(re.findall(r"^\S+==", text, re.MULTILINE)) == len(
        re.findall(r"^\S+==.* \\\n +--hash=sha256:", text, re.MULTILINE)
    )


def test_the_development_lock_holds_all_of_the_other() -> None:
    assert pins("requirements.lock").items() <= pins("requirements-dev.lock").items()


def test_every_dependency_and_the_build_backend_are_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["build-system"]["requires"]
    # Lock files spell names in the normal form of the registry: lower case, one kind of dash.
    names = {re.sub(r"[._]", "-", re.split(r"[\[>=<]", line)[0]) for line in wanted}
    assert names <= pins("requirements.lock").keys()


def test_an_unknown_argument_is_refused() -> None:
    done = subprocess.run(
        [ROOT / "script/install", "--nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "--nonsense" in done.stderr
