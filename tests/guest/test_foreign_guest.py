"""A guest of another architecture than this host's, under emulation: one cell, from end to end."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vdisklab.path.architecture import AARCH64, ARCHITECTURES, CHOICE, HOST

(FOREIGN,) = (row for row in ARCHITECTURES if row is not HOST)

pytestmark = [
    pytest.mark.guest,
    pytest.mark.nightly,  # 200 MB of packages and 80 s; unit tests hold the row and its packages
    pytest.mark.skipif(
        shutil.which(FOREIGN.emulator) is None, reason=f"{FOREIGN.emulator} is not installed"
    ),
]


def vdisklab(*arguments: str, state: Path, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "vdisklab", *arguments],
        capture_output=True, text=True, check=False, timeout=900, cwd=cwd,
        env={**os.environ, "VDISKLAB_STATE": str(state), "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def asked(*arguments: str, state: Path, cwd: Path) -> Any:  # noqa: ANN401 - any JSON value
    """The answer as JSON."""
    return json.loads(vdisklab(*arguments, "--format", "json", state=state, cwd=cwd))


LARGE_PAGES = """
import sys
from pathlib import Path
from vdisklab.guest.image.debian_packages import depends_on, unpack_package
from vdisklab.guest.image.foreign import foreign_apt
from vdisklab.host.command import LocalHost

cache, into = Path(sys.argv[1]), Path(sys.argv[2])
apt = foreign_apt(LocalHost(), cache)
(package,) = depends_on(LocalHost(), sys.argv[3], apt)
unpack_package(LocalHost(), package, into, apt)
"""
"""Unpacks Debian's newest kernel of a kind."""

HAS_ROCKSDB = pytest.mark.skipif(
    shutil.which("db_bench") is None,
    reason="db_bench, which makes the data here, is missing",
)

KERNELS = {"12": "linux-image-6.12-arm64-16k", "13": "linux-image-arm64-16k"}
"""The kernels with pages of 16 KiB, by Debian's version."""


@pytest.mark.skipif(FOREIGN is not AARCH64, reason="an arm64 host's guests are not emulated")
@pytest.mark.parametrize("load", ["forced-writes", pytest.param("rocksdb", marks=HAS_ROCKSDB)])
def test_a_kernel_with_pages_of_16_kib(cache: Path, tmp_path: Path, load: str) -> None:
    """O_DIRECT, O_DSYNC and mapped memory in such a guest; rocksdb's allocator knows its pages."""
    package = KERNELS.get(platform.freedesktop_os_release().get("VERSION_ID", ""))
    if package is None:
        pytest.skip("the kernel's name in this distribution is not known")
    state, kernels = cache / "foreign", cache / package
    if not kernels.is_dir():
        fresh = cache / f"{package}.new"
        fresh.mkdir(exist_ok=True)
        (state / "cache").mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-c", LARGE_PAGES, state / "cache", fresh, package],
            env={**os.environ, CHOICE: FOREIGN.name}, check=True, timeout=900,
        )  # fmt: skip
        fresh.rename(kernels)
    (kernel,) = kernels.glob("boot/vmlinuz-*-16k")
    plan, database = tmp_path / "plan.toml", str(tmp_path / "runs.sqlite")
    plan.write_text(
        f'paths = ["{{raw,qcow2}}/none"]\nprofile = "{load}"\nrounds = 1\nbaseline = "none"\n'
        f'size = "768M"\nscale = 0.1\nruntime = 5\nramp = 0\n'
        f'[guest]\narchitecture = "{FOREIGN.name}"\n'
        f'kernel = "{kernel}"\n'
    )
    vdisklab(
        "run", "--plan", str(plan), "--guest-arch", FOREIGN.name, "--db", database,
        state=state, cwd=tmp_path,
    )  # fmt: skip
    (campaign,) = asked("runs", "--db", database, state=state, cwd=tmp_path)["campaigns"]
    runs = asked("runs", campaign["campaign"], "--db", database, state=state, cwd=tmp_path)["runs"]
    assert len(runs) == 2
    for run in runs:
        shown = vdisklab("show", run["run"], "--db", database, state=state, cwd=tmp_path)
        assert re.search(r"^ *guest\.kernel +Linux \S+-16k ", shown, re.MULTILINE)
        assert re.search(r"^ *guest\.page_size +16384 ", shown, re.MULTILINE)


def test_it_is_measured_and_every_answer_says_so(cache: Path, tmp_path: Path) -> None:
    state, database = cache / "foreign", str(tmp_path / "runs.sqlite")
    run = vdisklab(
        "run", "raw/none", "--guest-arch", FOREIGN.name, "--profile", "quick", "--rounds", "1",
        "--runtime", "1", "--size", "64M", "--db", database, state=state, cwd=tmp_path,
    )  # fmt: skip
    assert f"guests of {FOREIGN.name}" in run
    assert asked("runs", "--db", database, state=state, cwd=tmp_path)["campaigns"]
    table = vdisklab("table", "--db", database, state=state, cwd=tmp_path)
    assert f"in guests of {FOREIGN.name}, under emulation (TCG)" in table
