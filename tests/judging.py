"""One question about a power cut at a time."""

from __future__ import annotations

from pathlib import Path

from vdisklab.powercut.questions import Question, judge_questions
from vdisklab.powercut.session import PowerCutSession
from vdisklab.progress import silent
from vdisklab.results.model import HostFacts
from vdisklab.results.power_cut import PowerCut


def judge_question(
    session: PowerCutSession, question: Question, host: HostFacts, recordings: Path
) -> PowerCut:
    """The verdict on one question; see `judge_questions`."""
    (verdict,) = judge_questions(session, (question,), host, recordings, silent)
    return verdict
