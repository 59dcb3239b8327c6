"""The packages in fresh systems: built, judged by lintian, installed, asked, removed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.host,
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed"),
]


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_each_package_is_installed_in_a_fresh_debian_answers_and_is_removed(suite: str) -> None:
    done = subprocess.run(
        [ROOT / "tests/packages_on_debian.sh", suite],
        capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "the package was installed, answered, and was removed" in done.stdout
