"""KVM or TCG: tried, and remembered for as long as nothing that decides it has changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from vdisklab.errors import GuestError, HostError, VdisklabError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.accelerator import (
    TRIAL_SECONDS,
    Verdict,
    choose_accelerator,
    remembered,
    trial_key,
)
from vdisklab.plan.guest import Accelerator

KVM = Verdict(Accelerator.KVM, "a guest booted under KVM")
TCG = Verdict(Accelerator.TCG, "it did not")


class Trial:
    """A guest that is tried under KVM; it fails with an error if there is one."""

    def __init__(self, error: VdisklabError | None = None) -> None:
        self.error = error
        self.trace: list[str] = []

    @contextmanager
    def __call__(self, seconds: float) -> Iterator[Machine]:
        self.trace.append(f"start {seconds}")
        if self.error is not None:
            raise self.error
        yield cast(Machine, None)
        self.trace.append("end")


@pytest.fixture
def device(tmp_path: Path) -> Path:
    made = tmp_path / "kvm"
    made.touch()
    return made


@contextmanager
def somebody_else() -> Iterator[None]:
    """As another user, by the real id, which access(2) goes by."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    os.setresuid(65534, 0, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def test_a_guest_that_boots_is_the_proof_and_is_ended(device: Path) -> None:
    trial = Trial()
    assert choose_accelerator(trial, device) == KVM
    assert trial.trace == [f"start {TRIAL_SECONDS}", "end"]


def test_a_guest_that_does_not_boot(device: Path) -> None:
    verdict = choose_accelerator(Trial(GuestError("no greeting within 12 s")), device)
    assert verdict.accelerator is Accelerator.TCG
    assert f"{device} opens, but a guest did not boot under KVM within 12 s" in verdict.reason
    assert "no greeting" in verdict.reason


def test_a_trial_that_cannot_be_made_is_no_verdict(device: Path) -> None:
    with pytest.raises(HostError, match="not installed"):
        choose_accelerator(Trial(HostError("qemu is not installed")), device)


def test_without_the_device_nothing_is_tried(tmp_path: Path) -> None:
    trial = Trial()
    verdict = choose_accelerator(trial, tmp_path / "kvm")
    assert (verdict.accelerator, trial.trace) == (Accelerator.TCG, [])
    assert "kvm does not exist" in verdict.reason


def test_a_device_of_others_is_not_tried(device: Path) -> None:
    device.chmod(0o600)
    trial = Trial()
    with somebody_else():
        verdict = choose_accelerator(trial, device)
    assert (verdict.accelerator, trial.trace) == (Accelerator.TCG, [])
    assert "cannot be opened by this user" in verdict.reason


def never() -> Verdict:
    pytest.fail("tried again")


def test_a_verdict_is_remembered_for_its_key(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "accelerator.json"
    assert remembered(file, "one", lambda: TCG) == TCG
    assert remembered(file, "one", never) == TCG
    assert remembered(file, "two", lambda: KVM) == KVM
    assert remembered(file, "two", never) == KVM
    assert remembered(file, "one", lambda: TCG) == TCG


@pytest.mark.parametrize(
    "content",
    [
        b"", b"null", b"[]", b"\xff\xfe", b"{", b'"key"', b'{"key": "one"}',
        b'{"key": "one", "accelerator": "tcg"}',
        b'{"key": "one", "accelerator": "xen", "reason": "?"}',
        b'{"key": "one", "accelerator": null, "reason": "?"}',
    ],
)  # fmt: skip
def test_a_damaged_note_costs_a_new_trial(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "accelerator.json"
    file.write_bytes(content)
    assert remembered(file, "one", lambda: KVM) == KVM
    assert remembered(file, "one", never) == KVM


def test_a_note_that_cannot_be_written_costs_a_trial_each_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    note = tmp_path / "file" / "accelerator.json"
    for _ in range(2):
        assert remembered(note, "one", lambda: TCG) == TCG


def test_the_key_changes_with_all_that_decides(device: Path, tmp_path: Path) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("b00t\n")

    def key(qemu: str = "QEMU 7.2", image: str = "/c/1", *, on: Path = device) -> str:
        return trial_key(qemu, image, boot, on)

    usual = key()
    others = {key("QEMU 8.0"), key(image="/c/2"), key(on=tmp_path / "gone")}
    boot.write_text("b007\n")
    others.add(key())
    assert usual not in others
    assert len(others) == 4


def test_who_is_let_in_does_not_wait_for_the_next_boot(device: Path, tmp_path: Path) -> None:
    """A user is added to the group kvm after a first campaign that was emulated."""
    boot = tmp_path / "boot_id"
    boot.write_text("b00t\n")
    device.chmod(0o600)
    with somebody_else():
        before = trial_key("QEMU 7.2", "/c/1", boot, device)
    assert trial_key("QEMU 7.2", "/c/1", boot, device) != before
