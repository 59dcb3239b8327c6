"""KVM is believed when a guest has run, and what was tried is said precisely."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vdisklab.errors import GuestError
from vdisklab.host.command import LocalHost
from vdisklab.host.probes import kvm
from vdisklab.host.probes.kvm import boot_sector, kvm_runs_a_guest, try_kvm


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A /dev/kvm that opens."""
    path = tmp_path / "kvm"
    path.touch()
    return path


def fake_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A QEMU that finds the console's path in its arguments as $console, then runs `script`."""
    directory = tmp_path / "bin"
    directory.mkdir()
    find = "for a; do case $a in *path=*) console=${a##*path=};; esac; done"
    (directory / "qemu-system-x86_64").write_text(f"#!/bin/bash\n{find}\n{script}\n")
    (directory / "qemu-system-x86_64").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_the_boot_sector_is_one() -> None:
    sector = boot_sector()
    assert len(sector) == 512
    assert sector[-2:] == b"\x55\xaa"
    assert sector[0xB0:0xB6] == bytes.fromhex("1f00907c0000")


def test_a_guest_that_ends_as_told(
    tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_qemu(tmp_path, monkeypatch, "exit 85")
    trial = try_kvm(LocalHost(), device=device)
    assert trial.works
    assert "reached long mode" in trial.tried


@pytest.mark.parametrize(
    ("letters", "station"),
    [("", "the firmware"), ("R", "real mode"), ("RP", "protected mode"), ("RPL", "long mode")],
)
def test_a_guest_that_hangs_says_where(
    tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch, letters: str, station: str
) -> None:
    fake_qemu(tmp_path, monkeypatch, f"printf '%s' '{letters}' > $console; exec sleep 60")
    trial = try_kvm(LocalHost(), device=device, deadline=0.5)
    assert not trial.works
    assert f"was still in {station} after " in trial.tried


def test_what_qemu_says_is_passed_on(
    tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_qemu(tmp_path, monkeypatch, "echo 'failed to initialize kvm' >&2; exit 1")
    trial = try_kvm(LocalHost(), device=device)
    assert not trial.works
    assert "failed to initialize kvm" in trial.tried


def test_no_device_and_no_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = try_kvm(LocalHost(), device=tmp_path / "absent")
    assert trial == kvm.KvmTrial(False, f"{tmp_path}/absent does not exist")
    monkeypatch.setattr(LocalHost, "which", lambda _self, _program: None)
    assert "not installed" in kvm_runs_a_guest(LocalHost()).tried


def test_a_real_kernel_has_the_last_word(
    tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_qemu(tmp_path, monkeypatch, "exit 85")

    def hangs(deadline: float) -> None:
        raise GuestError(f"no answer within {deadline:g} s")

    trial = try_kvm(LocalHost(), device=device, kernel_trial=hangs, kernel_deadline=3)
    assert not trial.works
    assert "a real kernel did not boot: no answer within 3 s" in trial.tried
    assert try_kvm(LocalHost(), device=device, kernel_trial=lambda _deadline: None).works
