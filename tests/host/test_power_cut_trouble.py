"""What goes wrong while a power cut is judged is told from what a disk loses."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from tests.host.namespaces import hold_elsewhere
from tests.judging import judge_question
from vdisklab.errors import INTERRUPTS, HostError, PowercutError, VdisklabError
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger
from vdisklab.host.mounts import HeldElsewhereError, is_held_elsewhere, mounts_below, read_mounts
from vdisklab.host.syscalls import sync_filesystem
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.power_cut_words import ClientKind, StateOutcome
from vdisklab.powercut import questions
from vdisklab.powercut.client import ClientDisk, Load
from vdisklab.powercut.crash_states import CrashState, JudgedState, Sampling
from vdisklab.powercut.examiner import open_examiner
from vdisklab.powercut.guest_clients import (
    DueTransactions,
    GuestFileSystem,
    guest_file_system,
)
from vdisklab.powercut.questions import Question, QuestionSettings
from vdisklab.powercut.recordings import Recording, RunSpec
from vdisklab.powercut.recovery import KernelFilesystem
from vdisklab.powercut.sectors import Bytes
from vdisklab.powercut.session import PowerCutSession, open_session, select_states
from vdisklab.powercut.workers import (
    STATE_SECONDS,
    JudgingJob,
    WorkerPool,
)
from vdisklab.storage.filesystem import tmpfs
from vdisklab.units import KIB
from vdisklab.value import replace

pytestmark = pytest.mark.host

HOST = collect_facts(LocalHost())
QUICK = QuestionSettings(
    writes=24, post_recovery_states=0, sampling=Sampling(states=40, exhaustive_up_to=4)
)
THIN = parse_path("ext4/raw:preallocation=off/none")
UNSAFE = parse_path("ext4/raw/unsafe")


@contextmanager
def opened_session(directory: Path, state_seconds: float) -> Iterator[PowerCutSession]:
    work = directory / "work"
    work.mkdir()
    with open_ledger() as ledger:
        with open_session(
            LocalHost(), ledger, work, workers=1, state_seconds=state_seconds
        ) as opened:
            yield opened
        assert mounts_below(work) == ()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[PowerCutSession]:
    with opened_session(tmp_path, STATE_SECONDS) as opened:
        yield opened


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[PowerCutSession]:
    """Soon takes a state for a hang, also on a busy machine: only for tests in which one hangs."""
    with opened_session(tmp_path, 3.0) as opened:
        yield opened


def asked(session: PowerCutSession, tmp_path: Path) -> bool | None:
    question = Question(THIN, ClientKind.FLUSHES, QUICK)
    return judge_question(session, question, HOST, tmp_path / "kept").survives


def test_a_qemu_that_dies_fails_one_question_and_not_the_next(
    session: PowerCutSession, tmp_path: Path
) -> None:
    @contextmanager
    def dying(disk: Disk) -> Iterator[ClientDisk]:
        with session.over_nbd(disk) as opened:
            os.kill(session.daemon.process.pid, signal.SIGKILL)
            yield opened

    with pytest.raises(VdisklabError, match="the connection"):
        session.record(RunSpec(THIN, Load(ClientKind.FLUSHES, writes=8)), dying)
    assert asked(session, tmp_path) is True


def test_a_judge_that_is_killed_fails_one_recording_and_not_the_next(
    session: PowerCutSession, tmp_path: Path
) -> None:
    recording = session.record(RunSpec(THIN, Load(ClientKind.FLUSHES, writes=24)))
    results = session.pool.judge(recording, _jobs(recording))
    next(results)
    os.kill(session.pool.processes()[0], signal.SIGKILL)
    with pytest.raises(PowercutError, match="ended unexpectedly"):
        list(results)
    recording.remove()
    assert asked(session, tmp_path) is True


def test_judges_do_not_hear_what_asks_our_whole_group_to_end(tmp_path: Path) -> None:
    """Not even while they start: what they made is theirs to take down."""
    pool = WorkerPool(tmp_path, 1)
    shot: list[int] = []

    def shoot() -> None:
        while not (children := multiprocessing.active_children()):
            time.sleep(0.001)
        for number in INTERRUPTS:
            os.kill(children[0].pid or 0, number)
            shot.append(children[0].pid or 0)

    shooting = threading.Thread(target=shoot)
    shooting.start()
    try:
        pool.start()
        shooting.join()
        for number in INTERRUPTS:
            os.kill(shot[0], number)
        assert [worker for worker in pool.processes() if worker == shot[0]]
    finally:
        pool.end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("database", [False, True])
def test_a_state_that_another_mount_namespace_holds_is_named(
    database: bool, session: PowerCutSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("vdisklab.host.syscalls._RELEASE_SECONDS", 0.5)
    named = (
        r"another mount namespace \(processes sleep.*\) was created while the file system on "
        r"/dev/loop\d+ was mounted"
    )
    with ExitStack() as stack:
        if database:
            with guest_file_system(session.site) as guest:
                held_while_judged(stack, monkeypatch, guest)
                with pytest.raises(HostError, match=named) as caught:
                    guest.judge(ext4_image(tmp_path), 0, DueTransactions(0, 0))
                stack.close()
        else:
            recording = session.record(RunSpec(THIN, Load(ClientKind.FLUSHES, writes=8)))
            stack.callback(recording.remove)
            with open_examiner(session.site, recording, None) as examiner, ExitStack() as holding:
                held_when_mounted(holding, monkeypatch)
                with pytest.raises(HostError, match=named) as caught:
                    examiner.judge(CrashState(examiner.epochs[0].number, 0))
                holding.close()
    assert "start no container" in (caught.value.hint or "")
    assert is_held_elsewhere(caught.value)


# 2 s each; that what is lost is still seen is the stricter question.
@pytest.mark.parametrize(
    ("path", "survives"), [pytest.param(THIN, True, marks=pytest.mark.nightly), (UNSAFE, False)]
)
def test_a_question_that_another_mount_namespace_disturbed_is_asked_again(
    path: DiskPath,
    survives: bool,
    session: PowerCutSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Also if the recording of a loss was kept already."""
    late = "count_flushes" if survives else "_keep"
    monkeypatch.setattr(questions, late, disturbed(getattr(questions, late), times=2))
    question = Question(path, ClientKind.FLUSHES, QUICK)
    found = judge_question(session, question, HOST, tmp_path / "kept")
    assert (found.survives, found.failure) == (survives, None)
    assert found.observed["recordings.held"] == "2"
    assert "cannot be kept" not in str(found.counterexample)


def disturbed(real: Callable[..., object], times: int) -> Callable[..., object]:
    """Calls `real`; the first `times` calls then fail as if another namespace held a mount."""
    errors = [HeldElsewhereError("held by sleep (1)")] * times

    def call(*given: object, **named: object) -> object:
        found = real(*given, **named)
        if errors:
            raise errors.pop()
        return found

    return call


def held_when_mounted(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    recover = KernelFilesystem.recover

    def held(filesystem: KernelFilesystem, device: str) -> str | None:
        refusal = recover(filesystem, device)
        hold_elsewhere(stack, device)
        return refusal

    monkeypatch.setattr(KernelFilesystem, "recover", held)


def held_while_judged(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch, guest: GuestFileSystem
) -> None:
    def held(*_: object) -> tuple[StateOutcome, str]:
        (mounted,) = [mount for mount in read_mounts() if mount.mountpoint == guest.mountpoint]
        hold_elsewhere(stack, mounted.source)
        return StateOutcome.KEPT, ""

    monkeypatch.setattr("vdisklab.powercut.guest_clients.judge_database", held)


def ext4_image(directory: Path) -> Bytes:
    image = directory / "guest.img"
    LocalHost().run("mke2fs", "-q", "-t", "ext4", image, "4M")
    return np.frombuffer(image.read_bytes(), np.uint8)


def test_a_judge_that_gives_no_answer_fails_one_question_and_not_the_next(
    impatient: PowerCutSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no loss: the machine may have been too busy."""
    question = Question(THIN, ClientKind.FLUSHES, QUICK)
    judge = type(impatient.pool).judge

    def stopped(pool: object, recording: object, jobs: object) -> Iterator[JudgedState]:
        results = judge(pool, recording, jobs)  # type: ignore[arg-type]
        yield next(results)
        os.kill(impatient.pool.processes()[0], signal.SIGSTOP)
        yield from results

    monkeypatch.setattr(type(impatient.pool), "judge", stopped)
    found = judge_question(impatient, question, HOST, tmp_path / "kept")
    assert (found.survives, found.counterexample, found.outcomes) == (None, None, {})
    assert found.failure is not None
    assert "was not judged in time, so there is no verdict" in found.failure
    monkeypatch.undo()
    impatient.pool.seconds = STATE_SECONDS
    assert asked(impatient, tmp_path) is True


def test_a_loss_that_cannot_be_kept_for_replay_is_a_verdict_all_the_same(
    session: PowerCutSession,
) -> None:
    question = Question(parse_path("ext4/raw/unsafe"), ClientKind.FLUSHES, QUICK)
    with tmpfs(session.site, "full", 64 * KIB) as full:
        found = judge_question(session, question, HOST, full.path / "kept")
        assert list((full.path / "kept").iterdir()) == []
    assert (found.survives, found.failure) == (False, None)
    assert found.counterexample is not None
    assert "cannot be kept for --replay: No space left" in found.counterexample.detail


def test_somebody_elses_sync_is_seen_and_hides_no_loss(
    session: PowerCutSession, tmp_path: Path
) -> None:
    done = threading.Event()

    def sync() -> None:
        while not done.wait(0.02):
            for mount in mounts_below(session.site.directory):
                with suppress(OSError):  # unmounted just now
                    sync_filesystem(mount.mountpoint)

    disturbing = threading.Thread(target=sync)
    disturbing.start()
    try:
        path = parse_path("ext4/raw:preallocation=off/writeback")
        question = Question(path, ClientKind.NEVER, replace(QUICK, writes=160))
        found = judge_question(session, question, HOST, tmp_path / "kept")
        for _ in range(20):  # a sync may miss a run of a few hundredths of a second
            assert found.survives is False
            if int(found.observed["flushes.unasked"]) > 0:
                break
            found = judge_question(session, question, HOST, tmp_path / "kept")
        kept = judge_question(
            session, replace(question, client=ClientKind.FLUSHES), HOST, tmp_path / "kept"
        )
    finally:
        done.set()
        disturbing.join()
    assert int(found.observed["flushes.unasked"]) > 0
    assert kept.survives is True
    assert int(kept.observed["recordings"]) > 1 or kept.observed["flushes.unasked"] == "0"


def _jobs(recording: Recording) -> list[JudgingJob]:
    return [JudgingJob(cut) for cut in select_states(recording, QUICK.sampling).cuts]
