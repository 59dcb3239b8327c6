"""`vdisklab powercut`: what survives when the power fails."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vdisklab.cli.campaign_options import AcceleratorOption, DirOption, PathsArgument
from vdisklab.cli.cutquestions import (
    DEFAULT_STATES,
    EXHAUSTIVE_CHANGES,
    make_questions,
    make_wanted,
)
from vdisklab.cli.live import TerminalProgress
from vdisklab.cli.options import DbOption, Format, FormatOption
from vdisklab.cli.output import emit
from vdisklab.cli.plan import print_dropped
from vdisklab.cli.run import cache_directory
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED, HostError
from vdisklab.guest.factory import GuestContext
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger, state_directory
from vdisklab.path.needs import needs_help, parse_needs
from vdisklab.path.segments import LayerKind
from vdisklab.plan.guest import AcceleratorChoice, GuestPlan
from vdisklab.powercut.campaign import AccessKind, Question, Settings, answers
from vdisklab.powercut.clients.driver import DriverSetting
from vdisklab.powercut.clients.guests import open_guests
from vdisklab.powercut.controls import ControlResult, run_controls
from vdisklab.powercut.cutting.cuts import TEAR_BYTES
from vdisklab.powercut.recording.dmlog import DISK_LOG, require_log_writes
from vdisklab.powercut.recording.logdisk import LoggedBy
from vdisklab.powercut.recording.trace import ClientKind
from vdisklab.powercut.replay import Replayed, replayed
from vdisklab.powercut.session import Lab, open_lab
from vdisklab.progress import Note, Progress
from vdisklab.render.tables.power_cuts import power_cut_document, power_cut_table
from vdisklab.results.model import HostFacts
from vdisklab.results.powercut import PowerCut
from vdisklab.results.store import Store, open_store
from vdisklab.services.answers import database_url, judged_without_its_device
from vdisklab.storage.zfs import require_zfs
from vdisklab.units import MIB

_GUEST_MEMORY = 512 * MIB
_MOST_WRITES = 10_000
"""More say no more: the client has some two thousand places to write to."""


def powercut(
    paths: PathsArgument = None,
    client: Annotated[
        list[ClientKind] | None,
        typer.Option(
            "--client",
            help="When the client takes a write for durable; may be given again.",
            show_default="flushes, fua and never",
        ),
    ] = None,
    need: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NEED", help=needs_help("Only paths that are this by rule, before any cut")
        ),
    ] = None,
    access: Annotated[
        AccessKind,
        typer.Option(
            "--access",
            help="Through what the client writes: QEMU's block layer alone, a real Linux guest on "
            "the path's bus, or the BIOS of a guest that never flushes (buses ide and virtio).",
        ),
    ] = AccessKind.NBD,
    driver: Annotated[
        list[DriverSetting] | None,
        typer.Option(
            "--driver",
            help="What a guest does to its disk's write cache first: nothing, `write through` into "
            "queue/write_cache or into cache_type, hdparm -W0; may be given again.",
            show_default=DriverSetting.AS_FOUND.value,
        ),
    ] = None,
    states: Annotated[
        int | None,
        typer.Option(
            "--states",
            min=1,
            metavar="N",
            help="Judge at most so many states of each run.",
            show_default=str(DEFAULT_STATES),
        ),
    ] = None,
    exhaustive: Annotated[
        bool,
        typer.Option(
            "--exhaustive",
            help=f"Judge every state, where no more than {EXHAUSTIVE_CHANGES} writes lie between "
            "two flushes.",
        ),
    ] = False,
    writes: Annotated[
        int, typer.Option("--writes", min=1, max=_MOST_WRITES, help="Writes of each run.")
    ] = 80,
    depth: Annotated[int, typer.Option("--depth", min=1, max=64, help="Requests in flight.")] = 1,
    loop_direct_io: Annotated[
        bool,
        typer.Option(
            "--loop-direct-io/--no-loop-direct-io",
            help="Whether the loop device below the file system bypasses the page cache.",
        ),
    ] = True,
    tear: Annotated[
        int,
        typer.Option(
            "--tear",
            metavar="BYTES",
            help="The unit that a disk writes whole: 4096, or 512 with fsck as part of recovery; "
            "0: no tearing.",
        ),
    ] = TEAR_BYTES,
    seed: Annotated[int, typer.Option("--seed", help="Decides places and samples.")] = 1,
    logged_by: Annotated[
        LoggedBy,
        typer.Option(
            "--logged-by",
            help="What logs the disk: our own server on any kernel with FUSE, or device-mapper's "
            "log-writes where the kernel has it.",
        ),
    ] = LoggedBy.FUSE,
    replay: Annotated[
        str | None,
        typer.Option("--replay", metavar="CASE", help="Rebuild and mount one state again."),
    ] = None,
    accelerator: AcceleratorOption = None,
    directory: DirOption = None,
    new: Annotated[bool, typer.Option("--new", help="Ask again what was answered here.")] = False,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> int:
    """Cut the power at every moment of a recorded run, and check what was promised.

    Needs root, FUSE and some 2 GiB of memory; nothing is written to a disk. Controls run first:
    four broken disks must be found out and an honest one not. The same command continues a
    campaign that was interrupted. Ends with 0 also when a path loses data, with 8 when a path
    could not be judged.

    Examples:

      vdisklab powercut {ext4,xfs}/{raw,qcow2}/{none,unsafe}

      vdisklab powercut ext4/raw/none --client never --states 200

      vdisklab powercut ext4/raw/none/{virtio,ide} --access guest --driver queue

      vdisklab powercut ext4/raw/none --access guest --client sqlite-wal

      vdisklab powercut --replay 3f2a9c01/12-3f
    """
    work = (directory or Path()).absolute()
    if replay is not None:
        return _replay(work, replay)
    settings = Settings(
        writes=writes,
        depth=depth,
        seed=seed,
        direct_io=loop_direct_io,
        wanted=make_wanted(states, tear, seed, exhaustive=exhaustive),
        logged_by=logged_by,
    )
    questions, dropped = make_questions(paths, client, access, driver, settings, parse_needs(need))
    print_dropped(Console(stderr=True), dropped)
    choice = accelerator or AcceleratorChoice.AUTO
    guest = GuestPlan(memory_bytes=_GUEST_MEMORY, accelerator=choice.accelerator)
    return _judge(questions, guest, work, db, form, new=new)


def _judge(
    questions: Sequence[Question],
    guest: GuestPlan,
    work: Path,
    db: str | None,
    form: Format,
    *,
    new: bool,
) -> int:
    console = Console(stderr=True)
    host = collect_facts(LocalHost())
    found: dict[str, PowerCut] = {}
    controls: list[ControlResult] = []
    interrupted = False
    with open_store(database_url(db)) as store:
        if not new:
            found = _answered(store, questions, host)
        todo = [each for each in questions if each.fingerprint not in found]
        try:
            if todo:
                with TerminalProgress(console) as progress:
                    for each in _answers(todo, guest, work, host, progress, controls):
                        store.add_power_cut(each)
                        found[each.fingerprint] = each
        except KeyboardInterrupt:
            interrupted = True
            console.print("interrupted: what was judged is kept; the same command continues")
    shown = [found[each.fingerprint] for each in questions if each.fingerprint in found]
    emit(
        form,
        [power_cut_table(shown, _notes(shown, controls))],
        lambda: power_cut_document(shown, [{**asdict(c), "passed": c.passed} for c in controls]),
    )
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_CELLS_FAILED if any(each.failure for each in shown) else 0


def _answered(store: Store, questions: Iterable[Question], host: HostFacts) -> dict[str, PowerCut]:
    """Verdicts of this machine with this kernel and QEMU on the same questions."""
    asked = {each.fingerprint for each in questions}
    return {
        each.fingerprint: each
        for each in store.power_cuts(host.machine_id)
        if each.fingerprint in asked
        and each.failure is None
        and (each.host.kernel, each.host.qemu) == (host.kernel, host.qemu)
    }


def _answers(
    questions: Sequence[Question],
    guest: GuestPlan,
    work: Path,
    host: HostFacts,
    progress: Progress,
    controls: list[ControlResult],
) -> Iterable[PowerCut]:
    if not work.is_dir():
        raise HostError(f"the work directory {work} does not exist", hint=f"mkdir -p {work}")
    local = LocalHost()
    if any(each.settings.logged_by is LoggedBy.DM for each in questions):
        require_log_writes(local)  # now, and not after the controls
    if any(layer.kind is LayerKind.ZFS for each in questions for layer in each.path.layers):
        require_zfs(local)
    with (
        open_ledger() as ledger,
        open_lab(local, ledger, work) as lab,
        _guests_for(lab, questions, guest, progress),
    ):
        for result in run_controls(lab, progress):
            controls.append(result)
            found = f"{result.losses} of {result.states} states lose"
            progress(Note(f"control passed: {result.name}: {found}"))
        yield from answers(lab, questions, host, kept_cases(), progress)


@contextmanager
def _guests_for(
    lab: Lab, questions: Sequence[Question], guest: GuestPlan, progress: Progress
) -> Iterator[None]:
    """Gives the lab guests for as long as the block lasts, when a question needs them."""
    asking = [each.path for each in questions if each.access is AccessKind.GUEST]
    if not asking:
        yield
        return
    around = GuestContext(lab.site.host, lab.site.ledger, cache_directory(), progress)
    buses = frozenset(path.attachment.bus for path in asking)
    with open_guests(around, guest, buses, lab.site) as lab.guests:
        yield


def _notes(found: Sequence[PowerCut], controls: Sequence[ControlResult]) -> tuple[str, ...]:
    notes = [
        "A verdict is about the recorded run under one model of a disk: what completed before "
        "the last flush is durable, any subset of the rest may be. It says nothing of a drive "
        "that lies."
    ]
    sampled = [each.states for each in found if each.survives and not each.exhaustive]
    if sampled:
        notes.append(
            "Where not all states were judged, at most 3 in so many as were judged lose (95 %, "
            f"rule of three): {3 / min(sampled):.2%} or less."
        )
    kernel = dict.fromkeys(each.seen[DISK_LOG] for each in found if DISK_LOG in each.seen)
    if kernel:
        notes.append(f"The disk was logged by the kernel's {', '.join(kernel)}, not through FUSE.")
    partial = [each.path for each in found if judged_without_its_device(each)]
    if partial:
        notes.append(
            f"{', '.join(dict.fromkeys(partial))}: judged without the device. QEMU's NVMe device "
            "with a write cache forgets FUA, which the block layer alone keeps: --access guest "
            "judges both."
        )
    if controls:
        notes.append(f"{len(controls)} controls were passed before the first verdict.")
    return tuple(notes)


def kept_cases() -> Path:
    """Where recordings of losses are kept for `--replay`."""
    return state_directory() / "powercut"


def _replay(work: Path, case: str) -> int:
    with open_ledger() as ledger, replayed(LocalHost(), ledger, work, kept_cases(), case) as state:
        for line in _told(state):
            print(line)
        if sys.stdin.isatty():
            input("Press Enter to take it down. ")
    return 0


def _told(state: Replayed) -> Iterable[str]:
    trace = state.recording.trace
    yield f"path      {trace.path}"
    yield f"client    {trace.client}: {trace.client.promise}"
    yield f"verdict   {state.judged.outcome}"
    if state.judged.detail:
        yield f"found     {state.judged.detail}"
    yield f"device    {state.device}"
    if state.mountpoint is None:
        yield "mounted   no: it does not recover"
    else:
        yield f"mounted   {state.mountpoint}"
        yield f"image     {state.image}"
