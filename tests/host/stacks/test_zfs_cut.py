"""A power cut below a ZFS pool, by the kernel's ZFS or by zfs-fuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judging import judge_question
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.crash_states import Sampling
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.powercut.session import open_session

pytestmark = pytest.mark.host

QUICK = QuestionSettings(
    writes=16, post_recovery_states=1, sampling=Sampling(states=4, exhaustive_up_to=2)
)


@pytest.mark.parametrize(("cache", "survives"), [("none", True), ("unsafe", False)])
def test_flushed_writes_survive_on_zfs_and_unsafe_ones_do_not(
    cache: str, survives: bool, zfs: LocalHost, tmp_path: Path
) -> None:
    path = parse_path(f"zfs/raw:preallocation=off/{cache}")
    work = tmp_path / "work"
    work.mkdir()
    with open_ledger() as ledger, open_session(zfs, ledger, work, workers=1) as session:
        question = Question(path, ClientKind.FLUSHES, QUICK)
        found = judge_question(session, question, collect_facts(zfs), tmp_path / "kept")
    assert (found.survives, found.failure) == (survives, None)
    assert found.observed["zfs.pool"].startswith("vdl_")
    assert found.observed["zfs.pool"] not in zfs.run("zpool", "list", "-H", "-o", "name").stdout
