"""The packages of a system: downloaded once, named by their content, in two lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.guest.conftest import FakeMachine
from vdisklab.errors import HostError
from vdisklab.guest.image.debian_packages import package_set
from vdisklab.host.command import LocalHost
from vdisklab.plan.guest import System

SYSTEM = System("tiny", ("dash",), ("dash", "nano"), 1, 1)

# As apt 2.6 prints and does it; `dash` needs `libc6`, `nano` is among the rest.
APT_GET = """
echo "apt-get $*" >>{log}
case "$*" in
*--print-uris*)
    echo "Reading package lists..."
    echo "'file:/x/libc6_2_amd64.deb' libc6_2_amd64.deb 3 MD5Sum:0"
    echo "'file:/x/dash_1_amd64.deb' dash_1_amd64.deb 3 "
    ;;
*--download-only*)
    for word; do case $word in Dir::Cache::archives=*) into=${{word#*=}} ;; esac; done
    echo one >"$into/libc6_2_amd64.deb"; echo two >"$into/dash_1_amd64.deb"
    echo six >"$into/nano_7_amd64.deb"
    ;;
esac
"""
MKE2FS = """
echo "mke2fs" >>{log}
for word; do image=$last last=$word; done
: >"$image"
"""


@pytest.fixture
def apt(machine: FakeMachine) -> FakeMachine:
    machine.script("apt-get", APT_GET)
    machine.script("mke2fs", MKE2FS)
    return machine


def test_first_and_rest(apt: FakeMachine, tmp_path: Path) -> None:
    found = package_set(LocalHost(), tmp_path / "cache", SYSTEM)
    assert found.count == 3
    assert (found.directory / "first").read_text() == "dash_1_amd64.deb\nlibc6_2_amd64.deb\n"
    assert (found.directory / "rest").read_text() == "nano_7_amd64.deb\n"
    assert found.disk.exists()
    assert not (found.directory / "partial").exists()


def test_what_is_there_is_used_without_asking(apt: FakeMachine, tmp_path: Path) -> None:
    first = package_set(LocalHost(), tmp_path / "cache", SYSTEM)
    calls = apt.calls()
    assert package_set(LocalHost(), tmp_path / "cache", SYSTEM) == first
    assert apt.calls() == calls


def test_a_fingerprint_is_of_contents(apt: FakeMachine, tmp_path: Path) -> None:
    first = package_set(LocalHost(), tmp_path / "one", SYSTEM)
    assert package_set(LocalHost(), tmp_path / "two", SYSTEM).fingerprint == first.fingerprint
    apt.script("apt-get", APT_GET.replace("echo six", "echo seven"))
    assert package_set(LocalHost(), tmp_path / "three", SYSTEM).fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("E: Unable to locate package nano", "apt cannot find it"),
        ("E: Failed to fetch: Could not connect", "there is no network"),
        ("E: write: No space left on device", "the disk is full"),
    ],
)
def test_apt_fails(apt: FakeMachine, tmp_path: Path, said: str, reason: str) -> None:
    apt.script("apt-get", f'echo "{said}" >&2; exit 100')
    with pytest.raises(HostError, match=reason):
        package_set(LocalHost(), tmp_path / "cache", SYSTEM)
    assert list((tmp_path / "cache/packages").glob("[!.]*")) == []


def test_apt_names_nothing(apt: FakeMachine, tmp_path: Path) -> None:
    apt.script("apt-get", "true")
    with pytest.raises(HostError, match="downloaded nothing"):
        package_set(LocalHost(), tmp_path / "cache", SYSTEM)
