from __future__ import annotations

import json
import os
import pwd
import time
from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.host.progress_file import live_directories, progress_file, running_campaigns
from vdisklab.host.state_directory import state_directory
from vdisklab.progress import (
    CampaignStarted,
    Event,
    MeasurementStarted,
    Note,
    RunFinished,
    RunStarted,
    Throughput,
    silent,
)

STARTED = CampaignStarted("c0ffee01", 4, 1, 90.0, "mine")


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path))


def test_others_see_what_is_measured() -> None:
    passed: list[Event] = []
    with progress_file(passed.append) as progress:
        assert running_campaigns() == ()
        progress(STARTED)
        progress(RunStarted("raw/none", 2, 3, 1, 4))
        progress(MeasurementStarted("randread-4k-q1", 10.0))
        progress(Throughput(5e6, None))
        (seen,) = running_campaigns()
    assert passed[0] == STARTED
    assert len(passed) == 4
    assert (seen.campaign, seen.cell, seen.round, seen.rounds) == ("c0ffee01", "raw/none", 2, 3)
    assert (seen.doing, seen.seconds, seen.finished) == ("randread-4k-q1", 10.0, 1)
    assert seen.process == os.getpid()
    assert running_campaigns() == ()


def test_bandwidth_is_written_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    with progress_file(silent) as progress:
        progress(STARTED)
        (file,) = live_directories()[0].glob("*.json")
        seen = set()
        for _ in range(1000):  # 100 seconds
            now += 0.1
            progress(Throughput(now, 1.0))
            seen.add(file.read_bytes())
        (running,) = running_campaigns()
        progress(RunFinished("raw/none", None, 100.0))
        (after,) = running_campaigns()
    assert len(seen) <= 101
    assert len(running.moving) <= 601
    assert running.moving[0].moment >= now - 62
    assert (after.moving, after.cell, after.finished) == ((), "", 2)


def test_the_file_of_a_killed_process_is_no_campaign_and_goes(tmp_path: Path) -> None:
    stale = tmp_path / "live" / "1.json"
    stale.parent.mkdir()
    stale.write_text(json.dumps({"process": 1, "campaign": "c0ffee01", "moving": []}))
    assert running_campaigns() == ()
    with progress_file(silent):
        assert not stale.exists()


@pytest.mark.parametrize("content", ["", "[]", '{"moving": 3}', '{"moving": [], "process": 1', "x"])
def test_a_torn_file_is_no_campaign(content: str, tmp_path: Path) -> None:
    with progress_file(silent) as progress:
        progress(STARTED)
        (file,) = (tmp_path / "live").glob("*.json")
        file.write_text(content)
        assert running_campaigns() == ()


def test_a_file_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "live").write_text("a file where the directory should be")
    passed: list[Event] = []
    with progress_file(passed.append) as progress:
        progress(Note("on"))
    assert passed == [Note("on")]


def test_a_user_without_a_home_sees_the_campaigns_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number for a user in a container, or systemd's DynamicUser."""

    def nobody(_: int) -> pwd.struct_passwd:
        raise KeyError

    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "VDISKLAB_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(os, "geteuid", lambda: 64999)
    assert live_directories() == (Path("/run/vdisklab"),)
    with pytest.raises(HostError, match="user 64999 has no home directory") as caught:
        state_directory()
    assert "VDISKLAB_STATE" in (caught.value.hint or "")
