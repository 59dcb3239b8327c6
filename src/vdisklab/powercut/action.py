"""Judges requested power cuts and stores the verdicts; replays cases."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from vdisklab.answers.powercut import PowercutAnswer, crash_verdict
from vdisklab.campaign.prepared_data import kept_or_made
from vdisklab.guest.accelerator import device_refused, kvm_error
from vdisklab.guest.guest_context import GuestContext
from vdisklab.guest.qemu.command_line import CarriedDisk
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger
from vdisklab.host.mounts import require_work_directory
from vdisklab.host.state_directory import state_directory
from vdisklab.path.architecture import require_host
from vdisklab.path.power_cut_words import AccessKind, ClientKind
from vdisklab.path.segments import Bus, LayerKind
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.guest import GuestPlan
from vdisklab.powercut.client_guests import (
    observed_accelerator,
    observed_architecture,
    open_guests,
)
from vdisklab.powercut.controls import controls_of, run_controls
from vdisklab.powercut.failing_verdicts import (
    ControlledGuest,
    judge_storage_failures,
    run_storage_controls,
)
from vdisklab.powercut.kept_runs import is_run, replayed_run
from vdisklab.powercut.postgresql import CLUSTER
from vdisklab.powercut.questions import Question, judge_questions
from vdisklab.powercut.session import PowerCutSession, open_session, replayed
from vdisklab.progress import Note, Progress, Step
from vdisklab.results.model import GUEST_ARCHITECTURE, HostFacts
from vdisklab.results.power_cut import ControlResult, PowerCut, ReplayedState
from vdisklab.results.store import Store, open_store
from vdisklab.storage.zfs import require_zfs
from vdisklab.units import counted
from vdisklab.value import Value


class JudgingSetup(Value, kw_only=True):
    """The environment for judging: the work directory, guests and their cache, the database."""

    work: Path
    database: str
    guest: GuestPlan
    guest_cache: Path


def judge_power_cuts(
    questions: Sequence[Question], setup: JudgingSetup, progress: Progress, *, new: bool
) -> PowercutAnswer:
    """Judges the questions and stores each verdict at once.

    Questions with a stored verdict for this machine, kernel and QEMU are not judged again unless
    `new` is set, or another accelerator than the verdict's was requested. Raises HostError when
    this host lacks something, and the errors of `judge_questions`.
    """
    require_host()
    host = collect_facts(LocalHost())
    controls: list[ControlResult] = []
    interrupted = False
    with open_store(setup.database) as store:
        verdicts = {} if new else _stored(store, host, setup.guest.accelerator)
        open_questions = [
            question for question in questions if question.fingerprint not in verdicts
        ]
        try:
            if open_questions:
                judging = _judge(open_questions, setup, host, progress, controls)
                with closing(judging):
                    for verdict in judging:
                        store.add_power_cut(verdict)
                        verdicts[verdict.fingerprint] = verdict
        except KeyboardInterrupt:
            interrupted = True
    answered = [question.fingerprint for question in questions if question.fingerprint in verdicts]
    found = tuple(crash_verdict(verdicts[fingerprint]) for fingerprint in answered)
    return PowercutAnswer(tuple(controls), found, interrupted)


def _stored(store: Store, host: HostFacts, requested: Accelerator | None) -> dict[str, PowerCut]:
    """The stored verdicts of this machine, kernel and QEMU, by fingerprint."""
    fitting = None if requested is None else observed_accelerator(requested)
    return {
        verdict.fingerprint: verdict
        for verdict in store.power_cuts(host.machine_id)
        if verdict.failure is None
        and verdict.applies_to(host)
        and (
            verdict.access == AccessKind.NBD
            or verdict.observed.get(GUEST_ARCHITECTURE)
            == observed_architecture().get(GUEST_ARCHITECTURE)
        )
        and (
            fitting is None
            or verdict.access == AccessKind.NBD
            or fitting.items() <= verdict.observed.items()
        )
    }


def _judge(
    questions: Sequence[Question],
    setup: JudgingSetup,
    facts: HostFacts,
    progress: Progress,
    controls: list[ControlResult],
) -> Generator[PowerCut, None, None]:
    """Runs the controls, adds their results to `controls`, then yields the verdicts."""
    require_work_directory(setup.work)
    host = LocalHost()
    recovered = (item.path for item in questions if not item.model.spares_the_host)
    if any(layer.kind is LayerKind.ZFS for path in recovered for layer in path.layers):
        require_zfs(host)
    with (
        open_ledger() as ledger,
        open_session(host, ledger, setup.work) as session,
        _guests_for(session, questions, setup, progress),
    ):
        failing = [question for question in questions if question.model.fails_storage]
        dying = [question for question in questions if not question.model.fails_storage]
        for result, unit in _controls(session, dying, failing, progress):
            controls.append(result)
            losses = f"{result.losses} of {counted(result.states, unit)} lost data"
            progress(Note(f"control passed: {result.name}: {losses}"))
        yield from judge_questions(session, dying, facts, kept_recordings(), progress)
        yield from judge_storage_failures(session, failing, facts, kept_recordings(), progress)


def _controls(
    session: PowerCutSession,
    dying: Sequence[Question],
    failing: Sequence[Question],
    progress: Progress,
) -> Iterator[tuple[ControlResult, str]]:
    """Runs the controls of the questions in which something dies, and in which storage fails.

    Yields each result, and what was judged in it: states, or runs.
    """
    models = {question.model for question in dying}
    during = {question.settings.during for question in dying}
    operations = [operation for operation in during if operation is not None]
    in_guest = any(question.access is AccessKind.GUEST for question in dying)
    clients = {question.client for question in dying}
    controlling = controls_of(models, operations, in_guest=in_guest, clients=clients)
    yield from ((result, "state") for result in run_controls(session, progress, controlling))
    guests = [ControlledGuest.of(question) for question in failing]
    of_storage = run_storage_controls(session, guests, progress)
    yield from ((result, "run") for result in of_storage)


@contextmanager
def _guests_for(
    session: PowerCutSession, questions: Sequence[Question], setup: JudgingSetup, progress: Progress
) -> Iterator[None]:
    """Opens guests for the session while the context is open, if a question needs them."""
    session.boot_sectors_under = setup.guest.accelerator or Accelerator.TCG
    boot_sectors = any(question.access is AccessKind.BOOT_SECTOR for question in questions)
    if boot_sectors and session.boot_sectors_under is Accelerator.KVM:
        refused = device_refused()
        if refused is not None:
            raise kvm_error(refused)
    paths = [question.path for question in questions if question.access is AccessKind.GUEST]
    if not paths:
        yield
        return
    context = GuestContext(session.site.host, session.site.ledger, setup.guest_cache, progress)
    buses = frozenset(path.attachment.bus for path in paths)
    carried: tuple[CarriedDisk, ...] = ()
    if any(question.client is ClientKind.POSTGRESQL for question in questions):
        progress(Step("making an empty PostgreSQL cluster"))
        cluster = kept_or_made(session.site, setup.guest_cache / "data", CLUSTER)
        carried = (CarriedDisk(CLUSTER.name, cluster.disk),)
    failing = any(question.model.fails_storage for question in questions)
    buses |= {Bus.VIRTIO} if failing else set()  # that of the controls
    with open_guests(
        context, setup.guest, buses, session.site, carried, stops_are_errors=not failing
    ) as session.guests:
        yield


def kept_recordings() -> Path:
    """The directory in which recordings of losses are kept for `--replay`."""
    return state_directory() / "powercut"


@contextmanager
def replay_case(work: Path, case: str) -> Iterator[ReplayedState]:
    """Rebuilds the state of a case, and mounts it while the context is open.

    Raises PowercutError for an unknown case.
    """
    replay = replayed_run if is_run(case) else replayed
    with (
        open_ledger() as ledger,
        replay(LocalHost(), ledger, work, kept_recordings(), case) as state,
    ):
        yield state
