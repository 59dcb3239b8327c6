"""`vdisklab advise`: keep or change the disks of existing guests."""

from __future__ import annotations

import os
import platform
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from vdisklab.actions.find_best import BestSearch
from vdisklab.actions.measure import Measured, measure
from vdisklab.actions.record import RecordWish, record_guest
from vdisklab.answers.advise import advise_disks
from vdisklab.answers.disks import DisksAnswer, PlannedMeasurement
from vdisklab.answers.loading import database_url, open_results
from vdisklab.answers.record import RecordAnswer
from vdisklab.cli.shell.caller import Caller, retyped
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.options import GuestsOptions, OutputOptions, campaigns_option, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import (
    EXIT_CELLS_FAILED,
    EXIT_INTERRUPTED,
    HostError,
    NoDatabaseError,
    PlanError,
)
from vdisklab.host.command import Host, LocalHost
from vdisklab.inspection.existing_guests import read_disks, read_host
from vdisklab.plan.option_rows import option
from vdisklab.plan.settings import DEFAULT_PROFILE, Request
from vdisklab.plan.value_kinds import SECONDS, SWITCH
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.recording.recorder import LOG_LIMIT
from vdisklab.results.store import Store, open_store
from vdisklab.value import replace
from vdisklab.views import advise as view

PANEL = VerbPanel.GUESTS

_NOT_THERE = ("--db", "--campaign", "--dir", "--record")
"""The options with a value that names something of this host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseOptions(GuestsOptions):
    """The guests, and where their answers come from."""

    measure_now: bool = option(
        SWITCH,
        "Measure the paths without an answer first, in the images' directories or --dir. No guest "
        "and no image is touched.",
        flag="--measure",
    )
    record: float | None = option(
        SECONDS,
        "First record for this time what the guest asks of its disk, and answer for that load. The "
        "guest must run, and have one disk.",
        metavar="TIME",
        shown="none",
    )
    campaign: tuple[str, ...] = campaigns_option()


@takes_options(
    request=(
        "platform", "directory", "disk", "profile", "rounds", "runtime", "ramp", "size_bytes",
        "accelerator", "db",
    )
)  # fmt: skip
def advise(request: Request, asked_for: AdviseOptions, output: OutputOptions) -> int:
    """Say for each disk of existing guests whether to keep or change it, and the line to paste.

    Without a name, all guests of this host are read. A disk is kept unless a change is shown to be
    better or keeps data that the disk loses; for a new disk ask `vdisklab recommend`.

    It answers from stored measurements of the disk's path and of the paths that differ from
    it in one segment. Without them it prints what to measure, how long that takes, and the command.
    Without --rounds the paths of a disk race; the command for disks with different paths measures
    all of them in rounds, and --measure races those of each disk.
    Guests, images and configurations are only read.

    Examples:

      vdisklab advise

      vdisklab advise web.xml --measure

      vdisklab advise web01 --record 5m --measure

      vdisklab advise /etc/pve/qemu-server --format json
    """
    host = LocalHost()
    named = asked_for.guests or asked_for.libvirt
    sources = read_disks(host, asked_for.guests, asked_for.libvirt) if named else read_host(host)
    status, notes = 0, list(sources.notes)
    if asked_for.record is not None:
        recorded = _record(host, sources.disks, asked_for, request)
        request = replace(request, profile=recorded.file)
        notes.append(f"{recorded.disk} of {recorded.guest}: {recorded.sentence}")
    asked = partial(
        advise_disks,
        host=host,
        disks=sources.disks,
        request=request,
        campaigns=asked_for.campaign,
        machine=platform.machine(),
    )
    with ExitStack() as stack:
        results = _results(
            stack, request.db, create=asked_for.measure_now, needed=bool(asked_for.campaign)
        )
        answer = asked(results)
        if asked_for.measure_now and answer.planned and results is not None:
            failures, measured = _measure(results, answer)
            answer = asked(results)
            left = (planned for planned in answer.planned if planned.command not in failures)
            answer = replace(answer, planned=tuple(left))
            notes += failures.values()
            status = _status(measured, failures)
            if status == EXIT_INTERRUPTED:
                continues = Caller.of_process().same_command("the same command continues")
                if asked_for.record is not None:  # which would record, and so measure, anew
                    shown = retyped("advise", valued=["--record", "--profile"])
                    continues = f"`{shown} --profile {shlex.quote(str(request.profile))}` continues"
                notes.insert(0, f"Interrupted: all runs so far are kept; {continues}.")
    answer = replace(answer, notes=(*notes, *answer.notes))
    print_answer(answer, view.tables(answer, _next_commands(asked_for)), output, request, asked_for)
    return status


def _next_commands(asked_for: AdviseOptions) -> view.NextCommands:
    """The commands that answer from what was measured meanwhile, with what this one was given."""
    command = Caller.of_process().command
    again = asked_for.asked_again("advise again" if command is None else f"`{command}`")

    def again_with(profile: str) -> str:
        left = retyped("advise", valued=["--record", "--profile"])
        return asked_for.asked_again(f"`{left} --profile {profile}`")

    def there(planned: PlannedMeasurement, profile: str | None = None) -> str:
        named = map(str, asked_for.guests) if planned.finds_guests else ()
        left_out = [*_NOT_THERE, *(["--profile"] * bool(profile))]
        typed = "" if planned.finds_guests else asked_for.as_typed
        left = retyped("advise", typed, flags=["--measure", *named], valued=left_out)
        given = (("--profile", profile), ("--dir", planned.to_name))
        options = "".join(f" {flag} {value}" for flag, value in given if value)
        return (
            f"`{left}{options}`"
            if planned.finds_guests
            else asked_for.asked_again(f"`{left}{options}`")
        )

    whole = asked_for.asked_again(
        "`vdisklab advise --why`" if command is None else f"`{command} --why`"
    )
    left_out = ("--record", "--libvirt", "--platform", "--dir")
    running = retyped("advise", flags=["--measure", *map(str, asked_for.guests)], valued=left_out)
    return view.NextCommands(again, whole, again_with, there, running)


def _record(
    host: Host, disks: Sequence[ConfiguredDisk], asked_for: AdviseOptions, request: Request
) -> RecordAnswer:
    """The recording of the one guest's disk.

    Raises PlanError for several guests or disks, WorkloadError if the disk's requests cannot be
    traced, and what `record_guest` raises.
    """
    if request.profile is not None:
        raise PlanError(
            "--record makes the load to measure with, but --profile names another one",
            hint="leave out one of them",
        )
    guests = list(dict.fromkeys(disk.guest or disk.domain for disk in disks))
    if len(guests) != 1:
        named = f"{len(guests)} guests" if guests else "no guest"
        raise PlanError(
            f"--record records one guest, and {named} would be advised",
            hint="name one guest's configuration; `vdisklab record GUEST` records any of them",
        )
    written = [disk for disk in disks if not disk.read_only]
    if len(written) > 1:
        name, file = guests[0], f"{guests[0]}.load"
        raise PlanError(
            f"--record records one disk, and guest {name} has {len(written)}",
            hint=f"`vdisklab record {name} --disk {written[0].target} -o {file}`, then "
            f"`vdisklab advise {name} --measure --profile {file}`",
        )
    seconds = asked_for.record or 0.0
    disk = written[0].source or written[0].target if written else None
    wish = RecordWish(
        guests[0], disk, seconds, None, asked_for.libvirt, LOG_LIMIT,
        "leave out --record: the answer is then for profile " + DEFAULT_PROFILE,
    )  # fmt: skip
    with TerminalProgress(Console(stderr=True)) as progress:
        return record_guest(host, wish, progress)


def _results(stack: ExitStack, db: str | None, *, create: bool, needed: bool) -> Store | None:
    """The database; None if there is none and it is not needed: one that only the environment names
    is made by the first campaign.
    """
    if create:
        return stack.enter_context(open_store(database_url(db, create=True)))
    try:
        return stack.enter_context(open_results(db))
    except NoDatabaseError as error:
        if needed:
            raise
        if db is not None and db != os.environ.get("VDISKLAB_DB"):
            hint = "leave out --db to be advised by the settings alone, or add --measure"
            raise NoDatabaseError(error.message, hint=hint) from error
        return None


def _measure(results: Store, answer: DisksAnswer) -> tuple[dict[str, str], list[Measured]]:
    """Measures what is planned; says of each command that fails why, and goes on."""
    measured: list[Measured] = []
    failures: dict[str, str] = {}
    with TerminalProgress(Console(stderr=True)) as progress:
        for planned in answer.planned:
            if planned.stands_in is not None:
                continue
            try:
                terms = planned.race
                race = None if terms is None else BestSearch(terms, began=time.monotonic())
                measured.append(measure(results, planned.request, progress, search=race))
            except (HostError, PlanError) as error:
                asked = planned.request
                failures[planned.command] = (
                    f"{asked.baseline} cannot be measured in {asked.directory}: {error}; "
                    f"{error.hint}."
                )
            if measured and measured[-1].interrupted:
                break
    return failures, measured


def _status(measured: Sequence[Measured], failures: Mapping[str, str]) -> int:
    if any(campaign.interrupted for campaign in measured):
        return EXIT_INTERRUPTED
    failed = bool(failures) or any(campaign.failed for campaign in measured)
    return EXIT_CELLS_FAILED if failed else 0
