"""A real guest whose storage fails: the controls come out as known, and a database is judged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from vdisklab.guest.guest_context import GuestContext
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import AccessKind, ClientKind
from vdisklab.path.segments import Bus
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut.client_guests import open_guests
from vdisklab.powercut.crash_states import Sampling
from vdisklab.powercut.failing_verdicts import (
    STORAGE_CONTROLS,
    ControlledGuest,
    StorageControl,
    judge_storage_failures,
    run_storage_controls,
)
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.powercut.session import open_session
from vdisklab.progress import silent
from vdisklab.results.power_cut import StorageFacts
from vdisklab.units import MIB

pytestmark = [pytest.mark.guest, pytest.mark.host]

FULL = "qcow2:preallocation=off/none/scsi:werror=enospc"


class TwoControls(ControlledGuest):
    """With one control that must lose, and one that must not."""

    @property
    def controls(self) -> Sequence[StorageControl]:
        lost = next(each for each in STORAGE_CONTROLS if each.must_lose)
        return (lost, next(each for each in STORAGE_CONTROLS if "stop" in each.policy.values()))


# All seven take 15 s of CPU.
@pytest.mark.parametrize(
    "guest",
    [TwoControls(), pytest.param(ControlledGuest(), marks=pytest.mark.nightly)],
    ids=["two", "all"],
)
def test_controls_come_out_as_known_and_a_full_disk_pauses_a_database(
    guest: ControlledGuest, cache: Path, tmp_path: Path
) -> None:
    """One guest for all: ignored errors lose, stopped guests lose nothing, ext4 aborts."""
    host = LocalHost()
    with (
        open_ledger() as ledger,
        open_session(host, ledger, tmp_path, workers=1) as session,
        open_guests(
            GuestContext(host, ledger, cache, silent),
            GuestPlan(cpus=1, memory_bytes=512 * MIB, accelerator=Accelerator.TCG),
            frozenset({Bus.VIRTIO, Bus.SCSI}),
            session.site,
            stops_are_errors=False,
        ) as session.guests,
    ):
        results = list(run_storage_controls(session, [guest], silent))
        settings = QuestionSettings(sampling=Sampling(states=1))
        question = Question(
            parse_path(FULL), ClientKind.SQLITE_WAL, settings, AccessKind.GUEST,
            FailureModel.STORAGE_FULL,
        )  # fmt: skip
        (found,) = judge_storage_failures(
            session, [question], collect_facts(host), tmp_path / "kept", silent
        )
    assert [result.passed for result in results] == [True] * len(guest.controls)
    assert (found.failure, found.survives) == (None, True)
    assert found.outcomes == {"paused and complete": 1}
    assert found.observed["qemu.werror"] == "enospc"
    facts = StorageFacts.of(found)
    assert facts is not None
    assert facts.paused_after is not None
    assert (facts.told, facts.lost) == (0, 0)
    assert os.listdir(tmp_path) == []  # noqa: PTH208
