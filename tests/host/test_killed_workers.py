"""SIGKILL of a worker that judges power cuts, before or after lines of its ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.test_power_cut import HOST
from tests.judging import judge_question
from vdisklab.actions.clean import remove_leftovers
from vdisklab.errors import VdisklabError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.mounts import mounts_below
from vdisklab.path.disk_path import parse_path
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.crash_states import Sampling
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.powercut.session import open_session

pytestmark = pytest.mark.host

FEW = QuestionSettings(
    writes=6, post_recovery_states=1, sampling=Sampling(states=6, exhaustive_up_to=2)
)

# A worker is a new interpreter, which imports this first.
_DOOM = """
import multiprocessing, os, signal
from pathlib import Path
from vdisklab.host import ledger

_real, _count = ledger.Ledger._append, [0]

def _reach():
    turn = Path(os.environ["DOOMED_STEP"])
    if multiprocessing.parent_process() is None or not turn.exists():
        return
    if _count[0] == int(turn.read_text()):
        turn.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    _count[0] += 1

def _append(self, line):
    _reach()
    _real(self, line)
    _reach()

ledger.Ledger._append = _append
"""


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.nightly) for first in (1, 3, 4))]
)
def test_a_killed_worker_leaves_nothing_and_loses_no_verdict(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is the last one of the first worker that comes to it; the next one takes over."""
    turn, work = tmp_path / "step", tmp_path / "work"
    work.mkdir()
    (tmp_path / "sitecustomize.py").write_text(_DOOM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("DOOMED_STEP", str(turn))
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    question = Question(parse_path("ext4/raw/none"), ClientKind.FLUSHES, FEW)
    host = LocalHost()
    step = first
    killed = True
    while killed:
        turn.write_text(str(step))
        said = ""
        try:
            with open_ledger() as ledger, open_session(host, ledger, work, workers=1) as session:
                cut = judge_question(session, question, HOST, tmp_path)
                said = cut.failure or ""
        except VdisklabError as error:
            said = str(error)
        assert said.partition(";")[0] in ("", "a judging process ended unexpectedly"), step
        killed = not turn.exists()
        list(remove_leftovers(host, directory=tmp_path / "state"))
        assert list(work.iterdir()) == [], f"after step {step}"
        assert mounts_below(work) == (), f"after step {step}"
        step += 6  # all of them take minutes
    turn.unlink()
    assert step > 8
