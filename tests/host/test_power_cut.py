"""Power cuts from end to end on the real kernel and QEMU's block layer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.judging import judge_question
from vdisklab.cli.shell.main import main
from vdisklab.errors import PowercutError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut import action
from vdisklab.powercut.client import Load, trace_to_json
from vdisklab.powercut.controls import CONTROLS, Control, ControlError, run_controls
from vdisklab.powercut.crash_states import CrashState, FutureVersionError, Sampling
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.powercut.recordings import TRACE_NAME, RunSpec
from vdisklab.powercut.session import PowerCutSession, open_session
from vdisklab.powercut.workers import JudgingJob
from vdisklab.progress import silent
from vdisklab.results.power_cut import PowerCut
from vdisklab.storage.disk_server import Lies
from vdisklab.value import replace

pytestmark = pytest.mark.host

HOST = collect_facts(LocalHost())

QUICK = QuestionSettings(
    writes=24, post_recovery_states=2, sampling=Sampling(states=24, exhaustive_up_to=4)
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PowerCutSession]:
    work = tmp_path_factory.mktemp("lab")
    with open_ledger() as ledger, open_session(LocalHost(), ledger, work, workers=2) as opened:
        yield opened
    assert list(work.iterdir()) == []


def ask(session: PowerCutSession, path: str, client: ClientKind, tmp_path: Path) -> PowerCut:
    return judge_question(session, Question(parse_path(path), client, QUICK), HOST, tmp_path)


def test_every_control_passes(session: PowerCutSession) -> None:
    """Those of guest-reset and of operations are tested beside them, in test_power_cut_models."""
    controls = [each for each in CONTROLS if each.model is not FailureModel.GUEST_RESET]
    results = list(run_controls(session, silent, controls))
    assert [result.passed for result in results] == [True] * len(controls)
    assert any("1 of 6" in result.note for result in results), "an fdatasync was dropped"


def test_a_control_that_goes_wrong_stops_everything(session: PowerCutSession) -> None:
    honest = replace(CONTROLS[4], name="an honest disk, said to lie", must_lose=True)
    with pytest.raises(ControlError, match="should have lost data but did not"):
        list(run_controls(session, silent, [honest]))


@pytest.mark.parametrize("filesystem", ["ext4", "xfs", "btrfs"])
@pytest.mark.parametrize("image", ["raw:preallocation=off", "qcow2"])
def test_flushed_writes_survive_and_unsafe_ones_do_not(
    filesystem: str, image: str, session: PowerCutSession, tmp_path: Path
) -> None:
    kept = ask(session, f"{filesystem}/{image}/none", ClientKind.FLUSHES, tmp_path)
    assert (kept.survives, kept.failure) == (True, None)
    assert kept.acknowledged == 24
    assert kept.post_recovery_states >= 2
    lost = ask(session, f"{filesystem}/{image}/unsafe", ClientKind.FLUSHES, tmp_path)
    assert lost.survives is False
    assert lost.counterexample is not None
    assert lost.counterexample.outcome in ("lost", "image unreadable")


@pytest.mark.parametrize(
    ("cache", "client", "survives"),
    [
        ("writeback", ClientKind.NEVER, False),
        ("writethrough", ClientKind.NEVER, True),
        ("directsync", ClientKind.NEVER, True),
        ("none", ClientKind.FUA, True),
        ("default", ClientKind.NEVER, False),
        ("none/virtio:write_cache=off", ClientKind.NEVER, True),
        ("writethrough/virtio:write_cache=on", ClientKind.NEVER, False),
    ],
)
def test_when_a_client_that_never_flushes_is_safe(
    cache: str, client: ClientKind, survives: bool, session: PowerCutSession, tmp_path: Path
) -> None:
    found = ask(session, f"ext4/raw:preallocation=off/{cache}", client, tmp_path)
    assert found.survives is survives


def test_writes_in_flight_are_judged_too(session: PowerCutSession, tmp_path: Path) -> None:
    settings = replace(QUICK, depth=8, writes=48)
    path = parse_path("ext4/raw:preallocation=off/none")
    found = judge_question(session, Question(path, ClientKind.FLUSHES, settings), HOST, tmp_path)
    assert found.survives is True
    assert 0 < found.acknowledged <= 48


def test_a_torn_sector_size_is_repaired_by_fsck_or_said_not_to_mount(
    session: PowerCutSession, tmp_path: Path
) -> None:
    sampling = Sampling(states=80, exhaustive_up_to=2, tear=512)
    settings = replace(QUICK, sampling=sampling, post_recovery_states=0)
    path = parse_path("ext4/raw:preallocation=off/writethrough")
    found = judge_question(session, Question(path, ClientKind.FLUSHES, settings), HOST, tmp_path)
    assert found.survives is True
    assert found.states == 80


def test_a_version_from_the_future_stops_everything(tmp_path: Path) -> None:
    with open_ledger() as ledger, open_session(LocalHost(), ledger, tmp_path, workers=1) as small:
        load = Load(ClientKind.FLUSHES, writes=8)
        recording = small.record(RunSpec(parse_path("ext4/raw:preallocation=off/none"), load))
        late = [
            replace(write, submitted=10**6, durable_at=None) for write in recording.trace.writes
        ]
        forged = replace(recording.trace, writes=tuple(late))
        (recording.directory / TRACE_NAME).write_text(trace_to_json(forged))
        with pytest.raises(FutureVersionError, match="which had not been written"):
            small.examine(recording, QUICK.sampling, post_recovery_states=0)


def test_a_case_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with open_ledger() as ledger, open_session(LocalHost(), ledger, tmp_path, workers=1) as small:
        load = Load(ClientKind.FLUSHES, writes=8)
        recording = small.record(RunSpec(parse_path("ext4/raw:preallocation=off/none"), load))
        with pytest.raises(PowercutError, match="the recording has no case 999-0"):
            list(small.pool.judge(recording, [JudgingJob(CrashState(999))]))


def test_a_disk_that_never_flushes_is_caught_on_each_filesystem(session: PowerCutSession) -> None:
    for filesystem in ("ext4", "xfs", "btrfs"):
        path = parse_path(f"{filesystem}/raw:preallocation=off/none")
        load = Load(ClientKind.FLUSHES, writes=24)
        recording = session.record(RunSpec(path, load, lies=Lies(dropped_flushes=0.5)))
        try:
            examined = session.examine(recording, QUICK.sampling, post_recovery_states=0)
        finally:
            recording.remove()
        assert examined.verdict.survives is False


def test_the_command_judges_stores_continues_and_replays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    controlled: list[Collection[FailureModel]] = []

    def two_controls(models: Collection[FailureModel], *_: object, **__: object) -> list[Control]:
        controlled.append(models)
        return [replace(control, states=10) for control in (CONTROLS[2], CONTROLS[4])]

    monkeypatch.setattr(action, "controls_of", two_controls)
    path = "ext4/raw:preallocation=off/unsafe"
    command = ["powercut", path, "--client", "flushes", "--states", "20", "--writes", "16",
               "--dir", str(tmp_path), "--db", str(tmp_path / "db"),
               "--format", "json"]  # fmt: skip
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert controlled == [{FailureModel.POWER}]
    assert [control["must_lose"] for control in first["controls"]] == [True, False]
    (verdict,) = first["verdicts"]
    assert verdict["survives"] is False
    assert main(command) == 0
    again = json.loads(capsys.readouterr().out)
    first["sentences"].remove("2 controls passed before the first verdict.")
    assert again == {**first, "controls": []}, "answered from the database"
    case = verdict["counterexample"]["case"]
    assert main(["powercut", "--replay", case, "--dir", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert re.search(rf"^verdict\s+{verdict['counterexample']['outcome']}$", told, re.MULTILINE)
    assert verdict["counterexample"]["detail"] in told
    assert os.listdir(tmp_path) == ["db"]  # noqa: PTH208
