"""Packages in fresh systems and the image: built, judged by lintian, installed, asked, removed."""

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


def run(script: str, *arguments: str) -> str:
    """What a script of tests/ prints; it must end with 0."""
    done = subprocess.run(
        [ROOT / "tests" / script, *arguments],
        capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_each_package_is_installed_in_a_fresh_debian_answers_and_is_removed(suite: str) -> None:
    shown = run("packages_on_debian.sh", suite)
    assert "the package was installed, answered, and was removed" in shown


@pytest.mark.skipif(not all(map(shutil.which, ("podman", "runc"))), reason="no podman with runc")
def test_the_containerfile_is_built_and_a_guest_is_measured_in_its_image() -> None:
    assert "a guest was measured in the container" in run("container_on_debian.sh")
