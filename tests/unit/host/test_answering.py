"""A call into a file system whose server is gone ends with a sentence."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from vdisklab.errors import CommandError, CommandTimeoutError, HostError
from vdisklab.host import answering
from vdisklab.host.answering import answered, require_answer
from vdisklab.host.command import LocalHost


def test_a_call_gives_its_answer_and_its_error(tmp_path: Path) -> None:
    assert answered(tmp_path, lambda: 7) == 7
    # ETIMEDOUT of a soft mount is TimeoutError, which is not our deadline.
    with pytest.raises(TimeoutError, match="soft"):
        answered(tmp_path, lambda: (_ for _ in ()).throw(TimeoutError("soft")))


def test_a_slow_call_is_waited_for_while_its_file_system_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_PATIENT_SECONDS", 0.02)
    assert answered(tmp_path, lambda: _slowly("done")) == "done"
    assert answered(tmp_path / "gone", lambda: _slowly("done")) == "done"


def test_a_call_that_hangs_with_its_file_system_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned = threading.Event()
    monkeypatch.setattr(answering, "_PATIENT_SECONDS", 0.02)
    monkeypatch.setattr(LocalHost, "run", _no_answer)
    with pytest.raises(HostError, match=r"does not answer within 15 s") as caught:
        answered(tmp_path, returned.wait)
    assert "its server may be gone" in str(caught.value.hint)
    returned.set()


def test_a_place_that_says_no_has_answered(tmp_path: Path) -> None:
    require_answer(LocalHost(), tmp_path)
    with pytest.raises(CommandError, match="No such file"):
        require_answer(LocalHost(), tmp_path / "missing")


def _slowly(answer: str) -> str:
    time.sleep(0.2)
    return answer


def _no_answer(*_words: object, **_options: object) -> None:
    raise CommandTimeoutError("`stat` gave no answer within 15 s")
