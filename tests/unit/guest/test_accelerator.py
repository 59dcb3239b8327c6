"""KVM or emulation: tried, and remembered while nothing that decides it has changed."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vdisklab.errors import GuestError, HostError, SilentGuestError, VdisklabError
from vdisklab.guest.accelerator import (
    TRIAL_SECONDS,
    KvmTrial,
    device_refused,
    kvm_error,
    remembered_trial,
    trial_key,
    try_kvm,
    untried,
    way_to_kvm,
)
from vdisklab.guest.factory import known_accelerator
from vdisklab.guest.qemu.command_line import BootFiles
from vdisklab.host.command import LocalHost
from vdisklab.host.waiting import longer_deadlines
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan

WORKS = KvmTrial(True, "a guest booted under KVM")
FAILS = KvmTrial(False, "it did not")


class Boot:
    """A boot under KVM; it fails with an error if there is one."""

    def __init__(self, error: VdisklabError | None = None) -> None:
        self.error = error
        self.calls: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.calls.append(seconds)
        if self.error is not None:
            raise self.error


@pytest.fixture
def device() -> Iterator[Path]:
    """In a directory that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        made = directory / "kvm"
        made.touch()
        yield made


@contextmanager
def somebody_else() -> Iterator[None]:
    """The effective user is nobody."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_guest_that_boots_is_the_proof(device: Path) -> None:
    boot = Boot()
    trial = try_kvm(boot, device=device)
    assert trial.works
    assert trial.tried.startswith("a guest booted under KVM in ")
    assert boot.calls == [TRIAL_SECONDS]


def test_a_guest_that_does_not_boot(device: Path) -> None:
    trial = try_kvm(Boot(GuestError("no greeting")), device=device)
    assert trial.works is False
    assert f"{device} opens, but no guest booted under KVM in 0.0 s: no greeting" in trial.tried


def test_a_guest_that_does_not_boot_is_tried_again(device: Path) -> None:
    """A busy machine boots one too slowly; a campaign under emulation would be the price."""
    slow = Boot(GuestError("no greeting"))

    def boot(seconds: float) -> None:
        try:
            slow(seconds)
        finally:
            slow.error = None

    assert try_kvm(boot, device=device).works
    assert len(slow.calls) == 2


ASSERTION = (
    "qemu-system-x86_64: ../../target/i386/kvm/kvm.c:3183: kvm_buf_set_msrs: Assertion "
    "`ret == cpu->kvm_msr_buf->nmsrs' failed."
)
"""As QEMU 7.2 prints it where it may not set a register."""


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (GuestError("QEMU ended"), "failed to set MSR 0x10a to 0x69"),
        (
            SilentGuestError("no answer of the agent"),
            "no answer of the agent; QEMU printed: failed to set MSR 0x10a to 0x69",
        ),
    ],
)
def test_what_qemu_printed_says_why_no_guest_booted(
    device: Path, error: GuestError, why: str
) -> None:
    error.printed = ("one", "qemu-system-x86_64: failed to set MSR 0x10a to 0x69", ASSERTION)
    assert try_kvm(Boot(error), device=device).tried.endswith(f" s: {why}")


def test_kvm_without_hardware_is_named(device: Path, tmp_path: Path) -> None:
    (tmp_path / "sys/module/kvm_pvm").mkdir(parents=True)
    trial = try_kvm(Boot(GuestError("no greeting")), device=device, root=tmp_path)
    assert "PVM guests" in (trial.remedy or "")


def test_without_its_device_a_loaded_kvm_is_told_from_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "sys/module/kvm_amd").mkdir(parents=True)
    refused = device_refused(tmp_path / "kvm", root=tmp_path)
    assert refused is not None
    assert "pass it into the container" in (refused.remedy or "")
    assert "but guests do not run under it" in str(kvm_error(refused))
    assert str(kvm_error(refused).hint).startswith(f"{refused.remedy}; or leave out ")


def test_a_trial_that_cannot_be_made_has_no_result(device: Path) -> None:
    with pytest.raises(HostError, match="not installed"):
        try_kvm(Boot(HostError("qemu is not installed")), device=device)


def test_without_the_device_nothing_is_booted(tmp_path: Path) -> None:
    boot = Boot()
    trial = try_kvm(boot, device=tmp_path / "kvm")
    assert (trial.works, boot.calls) == (False, [])
    assert "kvm does not exist" in trial.tried


def test_a_device_of_another_user_is_not_tried(device: Path) -> None:
    device.chmod(0o600)
    boot = Boot()
    with somebody_else():
        trial = try_kvm(boot, device=device)
    assert (trial.works, boot.calls) == (False, [])
    assert "cannot be opened" in trial.tried


def never() -> KvmTrial:
    pytest.fail("tried again")


def test_a_result_is_remembered_for_its_key(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "accelerator.json"
    assert remembered_trial(file, "one", lambda: FAILS) == FAILS
    assert remembered_trial(file, "one", never) == FAILS
    assert remembered_trial(file, "two", lambda: WORKS) == WORKS
    assert remembered_trial(file, "two", never) == WORKS
    assert remembered_trial(file, "one", lambda: FAILS) == FAILS


@pytest.mark.parametrize(
    "content",
    [
        b"", b"null", b"[]", b"\xff\xfe", b"{", b'"key"', b'{"key": "one"}',
        b'{"key": "one", "works": false}',
        b'{"key": "one", "works": "yes", "tried": "?"}',
        b'{"key": "one", "works": null, "tried": "?"}',
        b'{"key": "one", "accelerator": "tcg", "reason": "of an older version"}',
    ],
)  # fmt: skip
def test_a_damaged_note_costs_a_new_trial(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "accelerator.json"
    file.write_bytes(content)
    assert remembered_trial(file, "one", lambda: WORKS) == WORKS
    assert remembered_trial(file, "one", never) == WORKS


def test_a_note_that_cannot_be_written_costs_a_trial_each_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    note = tmp_path / "file" / "accelerator.json"
    for _ in range(2):
        assert remembered_trial(note, "one", lambda: FAILS) == FAILS


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


def test_a_failure_is_tried_again_with_more_patience(tmp_path: Path) -> None:
    note = tmp_path / "accelerator.json"
    assert remembered_trial(note, "one", lambda: FAILS) == FAILS
    with longer_deadlines(4):
        assert remembered_trial(note, "one", lambda: FAILS) == FAILS
        assert remembered_trial(note, "one", never) == FAILS
        with longer_deadlines(2):
            assert remembered_trial(note, "one", lambda: WORKS) == WORKS
    assert remembered_trial(note, "one", never) == WORKS, "it does boot under KVM"


def test_a_user_who_gets_access_need_not_reboot(device: Path) -> None:
    """A user is added to the group kvm after a first campaign that was emulated."""
    boot = device.with_name("boot_id")
    boot.write_text("b00t\n")
    device.chmod(0o600)
    with somebody_else():
        before = trial_key("QEMU 7.2", "/c/1", boot, device)
    assert trial_key("QEMU 7.2", "/c/1", boot, device) != before


def test_a_device_that_opens_is_not_refused_and_not_trusted(device: Path) -> None:
    assert device_refused(device) is None


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        ("fpu svm hypervisor", "modprobe kvm_amd"),
        ("fpu vmx", "modprobe kvm_intel"),
        ("fpu hypervisor", "nested virtualisation in the hypervisor"),
        ("fpu", "VT-x or AMD-V in the firmware"),
    ],
)
def test_without_the_device_the_cpu_decides_what_to_do(
    tmp_path: Path, flags: str, remedy: str
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    refused = device_refused(tmp_path / "absent", tmp_path)
    assert refused is not None
    assert refused.tried == f"{tmp_path}/absent does not exist"
    assert remedy in (refused.remedy or "")


def test_kvm_that_was_requested_and_does_not_work_has_two_ways_out(device: Path) -> None:
    trial = try_kvm(Boot(GuestError("no greeting")), device=device)
    assert trial.remedy is not None
    assert str(kvm_error(trial).hint) == (
        f"{trial.remedy}; or leave out --accelerator kvm (with --new for a campaign that began "
        "under KVM)"
    )


@pytest.mark.parametrize("modules", [("kvm_pvm",), ()])
def test_below_an_answer_stands_what_doctor_says(
    device: Path, tmp_path: Path, modules: tuple[str, ...]
) -> None:
    """Where /dev/kvm opens and only PVM kernels boot, neither a group nor the BIOS helps."""
    for module in modules:
        (tmp_path / "sys/module" / module).mkdir(parents=True)
    trial = try_kvm(Boot(GuestError("no greeting")), device=device, root=tmp_path)
    way = way_to_kvm(device, tmp_path)
    assert way == (trial.remedy if modules else None), "without a trial the rest is a guess"
    assert not {"usermod", "BIOS", "firmware"} & set((way or "").split())
    absent = tmp_path / "absent"
    refused = device_refused(absent, tmp_path)
    assert refused is not None
    assert way_to_kvm(absent, tmp_path) == refused.remedy


def test_a_device_of_another_user_names_the_group(device: Path) -> None:
    device.chmod(0o600)
    with somebody_else():
        name = pwd.getpwuid(os.geteuid()).pw_name
        refused = device_refused(device, device.parent)
    assert refused is not None
    assert refused.works is False
    assert f"`sudo usermod --append -G kvm {name}`, and log in again" in (refused.remedy or "")


def test_no_group_is_advised_where_no_guest_boots(device: Path) -> None:
    """A user without root, on a host whose KVM boots only PVM guests, needs another host."""
    device.chmod(0o600)
    (device.parent / "sys/module/kvm_pvm").mkdir(parents=True)
    with somebody_else():
        refused = device_refused(device, device.parent)
    assert refused is not None
    assert "cannot be opened" in refused.tried
    assert "usermod" not in (refused.remedy or "")
    assert (refused.remedy or "").startswith("use another host, with AMD-V or VT-x: ")
    as_root = untried("not tested further", "`vdisklab run`", device, device.parent)
    assert as_root.works is False, "as for the user without root"
    assert as_root.remedy == f"{refused.remedy}; `vdisklab run`"
    elsewhere = untried("not tested further", "`vdisklab run`", device, device.parent / "other")
    assert (elsewhere.works, elsewhere.remedy) == (None, "`vdisklab run`")


def test_a_plan_knows_the_accelerator_from_an_earlier_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "qemu-system-x86_64"
    program.write_text("#!/bin/sh\necho QEMU emulator version 7\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    boot = BootFiles(Path("/k"), Path("/i"), Path("/r"), "")

    def remembered(accelerator: Accelerator | None = None) -> Accelerator | None:
        guest = GuestPlan(accelerator=accelerator)
        return known_accelerator(LocalHost(), tmp_path, guest, (None,), boot)

    assert remembered(Accelerator.KVM) is Accelerator.KVM
    refused = device_refused() is not None
    assert remembered() is (Accelerator.TCG if refused else None)
    key = trial_key("QEMU emulator version 7", "/k /r")
    remembered_trial(tmp_path / "accelerator.json", key, lambda: FAILS)
    assert remembered() is Accelerator.TCG
    remembered_trial(tmp_path / "accelerator.json", f"{key}!", lambda: WORKS)
    assert remembered() is (Accelerator.TCG if refused else None)
