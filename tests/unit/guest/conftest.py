"""A machine whose package manager and programs are scripts."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.guest.fake_qemu import make_image
from tests.unit.guest.synthetic import write_kernel

APT_CACHE = """
echo "apt-cache $*" >>{log}
case "$*" in
*linux-image-cloud-amd64) echo "Depends: linux-image-6.1.0-9-cloud-amd64 (= 6.1.1-1)" ;;
*linux-image-amd64) echo "Depends: linux-image-6.1.0-9-amd64 (= 6.1.1-1)" ;;
*) exit 100 ;;
esac
"""
# What it downloads is a tar file; `dpkg-deb -x` below unpacks it.
APT_GET = """
for package; do :; done
echo "apt-get download $package" >>{log}
sleep {delay}
cp {packages}/$package "$PWD/$package.deb"
"""
DPKG_DEB = """
echo "dpkg-deb" >>{log}
exec tar -xf "$2" -C "$3"
"""


@dataclass
class FakeMachine:
    """Directories of the scripts, and the log of what they were called with."""

    programs: Path
    packages: Path
    log: Path

    def script(self, name: str, body: str, *, delay: float = 0) -> Path:
        path = self.programs / name
        # Written aside: a running script must not change under its shell.
        new = self.programs / f".{name}"
        body = body.format(log=self.log, packages=self.packages, delay=delay)
        new.write_text(f"#!/bin/sh\n{body}")
        new.chmod(0o755)
        return new.rename(path)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """A Debian with the packages of two small kernels; its own programs go before the real ones."""
    found = FakeMachine(tmp_path / "bin", tmp_path / "packages", tmp_path / "log")
    found.programs.mkdir()
    found.packages.mkdir()
    for release, full in (("6.1.0-9-cloud-amd64", False), ("6.1.0-9-amd64", True)):
        root = tmp_path / release
        write_kernel(root, release=release, full=full)
        package = found.packages / f"linux-image-{release}"
        shutil.make_archive(str(package), "tar", root)
        package.with_name(f"{package.name}.tar").rename(package)
    found.script("apt-cache", APT_CACHE)
    found.script("apt-get", APT_GET)
    found.script("dpkg-deb", DPKG_DEB)
    monkeypatch.setenv("PATH", f"{found.programs}{os.pathsep}{os.environ['PATH']}")
    return found


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return make_image(tmp_path)
