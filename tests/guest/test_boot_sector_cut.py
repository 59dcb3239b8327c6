"""The guest that never flushes, for real: a boot sector's writes under a power cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.judging import judge_question
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import AccessKind, ClientKind
from vdisklab.powercut.crash_states import Sampling
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.powercut.session import open_session

pytestmark = [pytest.mark.guest, pytest.mark.host]

QUICK = QuestionSettings(writes=16, post_recovery_states=0, sampling=Sampling(states=20))

# SeaBIOS negotiates no flush with virtio-blk, so QEMU makes the device write-through by itself.
EXPECTED = {
    "none/ide": False,
    "none/virtio": True,
    "writethrough/ide": True,
    "none/ide:write_cache=off": True,
    "unsafe/virtio": False,
}


def test_what_a_boot_sector_loses_hangs_on_bus_and_write_cache(tmp_path: Path) -> None:
    host = LocalHost()
    facts = collect_facts(host)
    found: dict[str, bool | None] = {}
    with open_ledger() as ledger, open_session(host, ledger, tmp_path, workers=1) as session:
        for ending in EXPECTED:
            path = parse_path(f"ext4/raw:preallocation=off/{ending}")
            question = Question(path, ClientKind.NEVER, QUICK, AccessKind.BOOT_SECTOR)
            verdict = judge_question(session, question, facts, tmp_path / "kept")
            assert verdict.failure is None
            found[ending] = verdict.survives
    assert found == EXPECTED
    assert os.listdir(tmp_path) == ["kept"]  # noqa: PTH208
