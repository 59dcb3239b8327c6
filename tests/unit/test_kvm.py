"""What can be said of /dev/kvm without booting a guest."""

from __future__ import annotations

from pathlib import Path

from tests.unit.guest.test_accelerator import device, somebody_else
from vdisklab.host.probes.kvm import KvmTrial, device_refused, untried

__all__ = ["device"]


def test_a_device_that_opens_is_not_refused_and_not_trusted(device: Path) -> None:
    assert device_refused(device) is None
    assert untried(device).works is None


def test_a_missing_device(tmp_path: Path) -> None:
    expected = KvmTrial(False, f"{tmp_path}/absent does not exist")
    assert device_refused(tmp_path / "absent") == untried(tmp_path / "absent") == expected


def test_a_device_of_another_user_names_the_group(device: Path) -> None:
    device.chmod(0o600)
    with somebody_else():
        refused = device_refused(device)
    assert refused is not None
    assert refused.works is False
    assert "usermod --append -G kvm" in (refused.mend or "")
