"""The boot sector is real code: QEMU runs it."""

from __future__ import annotations

import pytest

from vdisklab.host.command import LocalHost
from vdisklab.host.probes.kvm import kvm_runs_a_guest

pytestmark = pytest.mark.guest


def test_it_reaches_long_mode_under_emulation() -> None:
    trial = kvm_runs_a_guest(LocalHost(), deadline=30, accelerator="tcg")
    assert trial.works, trial.tried


def test_an_accelerator_that_qemu_refuses_is_said_so() -> None:
    trial = kvm_runs_a_guest(LocalHost(), deadline=30, accelerator="abacus")
    assert not trial.works
    assert "QEMU refused abacus" in trial.tried
