"""What dies besides the power: a host above a disk that keeps its writes, and QEMU alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.judging import judge_question
from vdisklab.cli.shell.main import main
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger
from vdisklab.operations.operation import DiskOperation, OperationKind
from vdisklab.operations.registry import judged_operations, parse_operation
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import FailureModel
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.powercut.controls import controls_of, run_controls
from vdisklab.powercut.crash_states import Sampling
from vdisklab.powercut.questions import (
    Question,
    QuestionSettings,
    judge_questions,
)
from vdisklab.powercut.session import PowerCutSession, open_session
from vdisklab.progress import silent
from vdisklab.storage.logged_disk import logged_file
from vdisklab.storage.write_log import Flag, read_log
from vdisklab.value import replace

pytestmark = pytest.mark.host

FILE = 64 << 10


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PowerCutSession]:
    work = tmp_path_factory.mktemp("models")
    with open_ledger() as ledger, open_session(LocalHost(), ledger, work, workers=2) as opened:
        yield opened
    assert list(work.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("ext4/raw/none", {"plp": True, "host-crash": True, "qemu-killed": True}),
        ("ext4/raw/writeback", {"plp": False, "host-crash": False, "qemu-killed": True}),
        # The host's file system holds the place of new blocks in memory until its next commit.
        ("ext4/raw:preallocation=off/none", {"plp": False, "host-crash": False}),
        # QEMU holds the place of new clusters in memory until the next flush.
        (
            "ext4/qcow2:preallocation=off/none",
            {"plp": False, "qemu-killed": False, "guest-reset": True},
        ),
        ("ext4/qcow2/none", {"plp": True, "qemu-killed": True}),
        # Just after a snapshot every first write needs a new cluster again.
        ("ext4/qcow2:backing=1:extended_l2=on/none", {"plp": False, "qemu-killed": False}),
    ],
)
def test_what_a_guest_without_flushes_keeps_depends_on_what_dies(
    path: str, kept: dict[str, bool], session: PowerCutSession, tmp_path: Path
) -> None:
    settings = QuestionSettings(writes=16, post_recovery_states=1, sampling=Sampling(states=20))
    questions = [
        Question(parse_path(path), ClientKind.NEVER, settings, model=FailureModel(model))
        for model in ("power", *kept)
    ]
    facts = collect_facts(LocalHost())
    verdicts = list(judge_questions(session, questions, facts, tmp_path, silent))
    assert [verdict.failure for verdict in verdicts] == [None] * len(questions)
    assert [verdict.model for verdict in verdicts] == ["power", *kept]
    assert {verdict.model: verdict.survives for verdict in verdicts} == {"power": False, **kept}
    assert len({verdict.fingerprint for verdict in verdicts}) == len(verdicts)
    own_run = ("qemu-killed", "guest-reset")
    of_the_host = [verdict for verdict in verdicts if verdict.model not in own_run]
    assert len({verdict.started for verdict in of_the_host}) == 1, "one recording answers them"


@pytest.mark.parametrize(
    "image", ["backing=3", "extended_l2=on:preallocation=off", "data_file=on", "snapshots=1"]
)
def test_what_a_guest_flushes_survives_in_todays_images(
    image: str, session: PowerCutSession, tmp_path: Path
) -> None:
    settings = QuestionSettings(writes=16, post_recovery_states=2, sampling=Sampling(states=20))
    path = parse_path(f"xfs/qcow2:{image}/none")
    models = [FailureModel.POWER]
    models += [] if "data_file" in image else [FailureModel.QEMU_KILLED]
    questions = [Question(path, ClientKind.FLUSHES, settings, model=model) for model in models]
    facts = collect_facts(LocalHost())
    verdicts = list(judge_questions(session, questions, facts, tmp_path, silent))
    assert [(verdict.failure, verdict.survives) for verdict in verdicts] == [
        (None, True) for _ in models
    ]
    assert all(verdict.post_recovery_states for verdict in verdicts), (
        "QEMU wrote to the whole chain again"
    )


@pytest.mark.parametrize(
    ("image", "client", "model", "kept"),
    [
        # 3 s for its key; the next one is judged by the same disk and judge, and has holes, too.
        pytest.param("raw:encrypt=luks", "never", "plp", True, marks=pytest.mark.nightly),
        ("raw:encrypt=luks:preallocation=off", "flushes", "plp", True),  # holes read as garbage
        # Its key again; a commit judges qcow2 after QEMU's death without one (above).
        pytest.param(
            "qcow2:encrypt=luks:preallocation=off",
            "never",
            "qemu-killed",
            False,
            marks=pytest.mark.nightly,
        ),
        ("qcow2:bitmaps=2:preallocation=off", "flushes", "power", True),
    ],
)
def test_encrypted_images_and_bitmaps_are_judged(
    image: str, client: str, model: str, kept: bool, session: PowerCutSession, tmp_path: Path
) -> None:
    settings = QuestionSettings(writes=12, post_recovery_states=1, sampling=Sampling(states=10))
    path = parse_path(f"ext4/{image}/none")
    question = Question(path, ClientKind(client), settings, model=FailureModel(model))
    verdict = judge_question(session, question, collect_facts(LocalHost()), tmp_path)
    assert (verdict.failure, verdict.survives) == (None, kept)
    assert verdict.post_recovery_states, "QEMU opened it again with its key"


def test_a_guest_that_is_reset_loses_nothing_unless_qemu_is_left_out(
    session: PowerCutSession,
) -> None:
    controls = controls_of([FailureModel.GUEST_RESET])
    honest, past_qemu = run_controls(session, silent, controls)
    assert (honest.losses, honest.states) == (0, 40), "reset after every answer"
    assert past_qemu.losses > 0
    reordered = replace(controls[0].spec, load=replace(controls[0].spec.load, depth=4))
    examination = session.examine_resets(reordered, 10)
    examination.recording.remove()
    assert examination.verdict.survives
    assert not examination.verdict.exhaustive


@pytest.mark.parametrize("row", judged_operations(), ids=lambda row: row.name)
def test_acknowledged_writes_survive_an_operation_unless_the_wrong_image_is_read(
    row: OperationKind, session: PowerCutSession
) -> None:
    controls = [replace(each, states=15) for each in controls_of([], [DiskOperation(row)])]
    sound, wrong_image = run_controls(session, silent, controls)
    assert (sound.losses, sound.states) == (0, 15)
    assert wrong_image.losses > 0


def test_a_snapshot_of_a_raw_image_is_judged_as_qcow2_above_raw(session: PowerCutSession) -> None:
    order = parse_operation("snapshot")
    on_raw = [
        replace(control, states=15, spec=replace(control.spec, path=parse_path("ext4/raw/none")))
        for control in controls_of([], [order])
    ]
    sound, wrong_image = run_controls(session, silent, on_raw)
    assert (sound.losses, sound.states) == (0, 15)
    assert wrong_image.losses > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ext4/vmdk/none", "--during", "snapshot"], "no chain with a vmdk image is read"),
        (["ext4/qcow2/none", "--during", "commit"], "it is not an overlay"),
        (["ext4/qcow2:compression=zstd/none"], "does not read compressed clusters"),
        (["ext4/qcow2:data_file=on/none", "--during", "mirror"], "need a data file or a key"),
        (["ext4/qcow2/none", "--during", "mirror", "--model", "qemu-killed"], "one file is logged"),
        (["ext4/qcow2/none", "--during", "mirror", "--access", "guest"], "without a guest"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["powercut", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--access", "boot-sector"], "a boot sector begins anew"),
        (["--access", "guest", "--client", "sqlite-wal"], "sqlite-wal does not"),
    ],
)
def test_a_reset_needs_a_client_that_goes_on(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["powercut", "ext4/raw/none/ide", "--model", "guest-reset", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_data_file_is_not_judged_with_a_killed_qemu(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["powercut", "ext4/qcow2:data_file=on/none", "--model", "qemu-killed"]
    assert main(command) == 2
    assert "only one file is logged, and the data is in another" in capsys.readouterr().err


def test_a_killed_qemu_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["powercut", "ext4/qcow2:backing=1/writeback", "--client", "never",
               "--model", "qemu-killed", "--writes", "12", "--dir", str(tmp_path),
               "--db", str(tmp_path / "db"), "--format", "json"]  # fmt: skip
    assert main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [control["must_lose"] for control in answer["controls"]] == [False, True]
    (verdict,) = answer["verdicts"]
    assert (verdict["model"], verdict["survives"]) == ("qemu-killed", False)
    case = verdict["counterexample"]["case"]
    assert "/@" in case
    assert main(["powercut", "--replay", case, "--dir", str(tmp_path)]) == 0
    assert verdict["counterexample"]["detail"] in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["db"]  # noqa: PTH208


def test_single_bytes_are_logged_as_whole_sectors(session: PowerCutSession) -> None:
    with logged_file(session.site, "bytes", FILE) as file:
        descriptor = os.open(file.path, os.O_RDWR)
        os.pwrite(descriptor, b"a" * 1024, 0)
        os.pwrite(descriptor, b"b" * 8, 508)
        os.pwrite(descriptor, b"c" * 512, 512)
        os.close(descriptor)
        entries, content = read_log(file.log).entries, file.log.read_bytes()
    assert [(entry.offset, entry.length, entry.flags) for entry in entries] == [
        (0, 1024, Flag(0)), (0, 1024, Flag(0)), (512, 512, Flag(0)),
    ]  # fmt: skip
    second = entries[1].data_at
    assert content[second : second + 1024] == b"a" * 508 + b"b" * 8 + b"a" * 508
