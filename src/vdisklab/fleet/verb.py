"""`vdisklab fleet`: the same campaign on many hosts, through Dask distributed."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from vdisklab.actions.planning import possible_paths, rounds_of
from vdisklab.cli.shell.options import OutputOptions, argument, parse_words, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import (
    EXIT_CELLS_FAILED,
    EXIT_INTERRUPTED,
    DatabaseError,
    HostError,
    PlanError,
    extra_hint,
)
from vdisklab.fleet.answer import FleetDoctorAnswer, FleetStatusAnswer, WorkerCheck, WorkerStatus
from vdisklab.fleet.view import doctor_tables, status_tables
from vdisklab.plan.option_rows import OptionRows, database_setting, option
from vdisklab.plan.run_request import RunRequest
from vdisklab.plan.value_kinds import FILE, SECONDS, SWITCH, TEXT, WHOLE, Limits, several
from vdisklab.results.database import parse_address, without_password
from vdisklab.results.store import open_store
from vdisklab.units import counted

if TYPE_CHECKING:
    from distributed.security import Security

    from vdisklab.fleet.coordinator import FleetMember, HostResult

PANEL = VerbPanel.ELSEWHERE

NO_RESULT = 3
"""The exit status if a host never came or its command failed."""


@dataclass(frozen=True, slots=True)
class FleetRequest(OptionRows):
    """Who of the fleet is meant, and how to reach it."""

    scheduler: str | None = option(
        TEXT,
        "The scheduler, such as tls://db1 or tls://db1:8786.",
        metavar="ADDRESS",
        envvar="VDISKLAB_SCHEDULER",
    )
    host: str | None = option(
        TEXT, "The host's name.", flag="--as", metavar="NAME", shown="its own"
    )
    port: int = option(
        WHOLE,
        "The port on which the worker listens to the scheduler.",
        0,
        metavar="PORT",
        shown="any free one",
        limits=Limits(0, 65535),
    )
    hosts: tuple[str, ...] = option(
        several(str, str),
        "`all` connected workers, one by its name, or those with FACT=VALUE; can be repeated.",
        metavar="HOST",
        shown="all",
    )
    give_up: float = option(
        SECONDS, "Report a host that is away for this long.", 3600.0, metavar="TIME", shown="1h"
    )
    db: str | None = database_setting()
    directory: Path | None = option(FILE, "The hosts' work directory.", flag="--dir", metavar="DIR")
    tls: Path = option(
        FILE,
        "The directory with ca.pem and this end's certificate.",
        Path("/etc/vdisklab/fleet"),
        metavar="DIR",
        envvar="VDISKLAB_FLEET_TLS",
    )

    @property
    def named_scheduler(self) -> str:
        """The scheduler as the user named it. Raises PlanError if that was forgotten."""
        if self.scheduler is None:
            raise PlanError(
                "no scheduler is named", hint="--scheduler tls://HOST, or set VDISKLAB_SCHEDULER"
            )
        return self.scheduler

    @property
    def address(self) -> str:
        """The scheduler's complete address. Raises PlanError for one that is none."""
        from vdisklab.fleet.quiet_settings import check_address  # noqa: PLC0415 - an extra

        return check_address(self.named_scheduler)

    @property
    def chosen(self) -> list[str]:
        """The hosts by their names or facts."""
        return list(self.hosts) or ["all"]


@dataclass(frozen=True, slots=True)
class CertificatesOptions(OptionRows):
    """Where to make them."""

    directory: Path = argument(FILE, "A new directory.", "DIR")


@dataclass(frozen=True, slots=True)
class SchedulerOptions(OptionRows):
    """Where the scheduler is."""

    listen: str = option(TEXT, "Where to listen.", "tls://0.0.0.0:8786", metavar="ADDRESS")


@dataclass(frozen=True, slots=True)
class UnitOptions(OptionRows):
    """Whose unit to print."""

    of_scheduler: bool = option(SWITCH, "The scheduler's unit, not a worker's.")


def fleet() -> typer.Typer:
    """The same campaign on many hosts, into one PostgreSQL (needs the extra `fleet`)."""
    verbs = typer.Typer(no_args_is_help=True)
    extra = {"allow_extra_args": True, "ignore_unknown_options": True}
    every: tuple[Callable[..., int | None], ...] = (
        certificates, scheduler, worker, unit, run, status, stop, doctor,
    )  # fmt: skip
    for verb in every:
        verbs.command(context_settings=extra if verb is run else None)(verb)
    return verbs


@takes_options()
def certificates(request: CertificatesOptions) -> None:
    """Make a private authority, and certificates for scheduler, workers and client.

    Keep ca-key.pem to yourself. Each end needs ca.pem and its own file. Anyone with one
    of these files can run commands as root on every host of the fleet.

    Example: vdisklab fleet certificates /root/fleet-tls
    """
    _require_extra()
    from vdisklab.fleet.certificates import make_certificates  # noqa: PLC0415 - an extra

    for file in make_certificates(request.directory, datetime.now(UTC)):
        print(file)


@takes_options(request=("tls",))
def scheduler(request: FleetRequest, options: SchedulerOptions) -> None:
    """Run the scheduler, which passes commands to the hosts; it stores nothing.

    It may be restarted at any time: campaigns go on, and clients give their commands again.

    Example: vdisklab fleet scheduler --listen tls://10.0.0.1
    """
    security = _security(request.tls, "scheduler")[0]
    from vdisklab.fleet.nodes import serve_scheduler  # noqa: PLC0415 - an extra
    from vdisklab.fleet.quiet_settings import check_address  # noqa: PLC0415

    asyncio.run(serve_scheduler(check_address(options.listen), security, _say))


@takes_options(request=("scheduler", "host", "port", "tls"))
def worker(request: FleetRequest) -> None:
    """Run this host's worker, which measures when `vdisklab fleet run` says so.

    It does nothing while a campaign runs but say every five seconds that it is there. A signal
    (systemctl stop) interrupts the campaign cleanly; if the worker is killed, the campaign goes on.

    Example: vdisklab fleet worker --scheduler tls://db1 --as kvm7
    """
    security, until = _security(request.tls, "worker")
    from vdisklab.fleet.nodes import serve_worker  # noqa: PLC0415 - an extra

    host, port = _worker_name(request.host), request.port
    asyncio.run(serve_worker(request.address, host, security, _say, port=port, until=until))


def _worker_name(name: str | None) -> str:
    host = socket.gethostname() if name is None else name
    if not host or not host.isprintable() or "=" in host or host == "all":
        raise PlanError(
            f"{host!r} is not a host's name", hint="a name is printable, has no =, and is not `all`"
        )
    return host


@takes_options(request=("scheduler", "host", "port", "tls"))
def unit(request: FleetRequest, which: UnitOptions) -> None:
    """Print a systemd unit for the worker, or for the scheduler.

    Example: vdisklab fleet unit --scheduler tls://db1 --as kvm7
    """
    from vdisklab.fleet.systemd_unit import systemd_unit  # noqa: PLC0415 - with its neighbours

    program = shutil.which("vdisklab") or sys.argv[0]
    command = [os.path.abspath(program), "fleet"]  # noqa: PTH100 - links stay
    if which.of_scheduler:
        command += ["scheduler", "--listen", request.named_scheduler]
    else:
        command += ["worker", "--scheduler", request.named_scheduler]
        command += [] if request.host is None else ["--as", _worker_name(request.host)]
        command += ["--port", str(request.port)] if request.port else []
    command += ["--tls", os.path.abspath(request.tls)]  # noqa: PTH100
    print(systemd_unit(command, of_scheduler=which.of_scheduler), end="")


@takes_options(request=("scheduler", "hosts", "give_up", "db", "tls"))
def run(request: FleetRequest, context: typer.Context) -> int:
    """Measure the same paths on many hosts: PATHS and options are those of `vdisklab run`.

    The same command continues what was interrupted. If you interrupt this one, the campaigns go on:
    `fleet status` shows them, `fleet stop` ends them. A password in --db is not sent: each host has
    its own, in ~/.pgpass or in its unit. Exit status: 0, 8 if cells failed, 3 if a host has no
    results.

    Examples:

        vdisklab fleet run raw/none host --dir /srv/images --db postgresql://v@db1/v

        vdisklab fleet run '{raw,qcow2}/none' --dir /srv/images --hosts kvm1
    """
    url = _database(request.db)
    flags = [name for parameter in context.command.params for name in parameter.opts]
    arguments = _possible_words(context.args, flags)
    security = _security(request.tls, "client")[0]
    from vdisklab.fleet.coordinator import CampaignRun, choose_members, connected, members, task_of  # noqa: PLC0415 - an extra

    address = request.address
    with connected(address, security) as client:
        chosen = choose_members(members(client), request.chosen)
    _say(f"{counted(len(chosen), 'host')}: {', '.join(chosen)}")
    campaign = CampaignRun(chosen, task_of(arguments, url), request.give_up, _say)
    try:
        results = campaign.wait(address, security)
    except KeyboardInterrupt:
        _say("the campaigns go on: `vdisklab fleet status` shows them, `vdisklab fleet stop` ends")
        return EXIT_INTERRUPTED
    empty = _without_results(url, results)
    for host in empty:
        _say(f"{host}: failed: it says that it is done, but the database has no result of it")
    if empty:
        return NO_RESULT
    statuses = {result.status for result in results}
    if statuses <= {0}:
        return 0
    return EXIT_CELLS_FAILED if statuses <= {0, EXIT_CELLS_FAILED} else NO_RESULT


def _without_results(url: str, results: Sequence[HostResult]) -> tuple[str, ...]:
    """The hosts that are done, as they say, and have no runs stored; says if that is unknown."""
    from vdisklab.fleet.coordinator import without_results  # noqa: PLC0415 - an extra

    try:
        with open_store(url, create=False) as store:
            stored = {campaign.id for campaign in store.campaigns(with_runs=True)}
    except DatabaseError as error:
        _say(f"whether all results are stored was not looked at: {error}")
        return ()
    return without_results(results, stored)


def _database(db: str | None) -> str:
    """The database's address for the hosts, without its password. Raises PlanError for a file."""
    if db is None or parse_address(db).file is not None:
        raise PlanError(
            "a fleet stores its results in one PostgreSQL, which all hosts reach",
            hint="--db postgresql://USER@HOST/DATABASE",
        )
    public = without_password(db)
    if public != db:
        _say("the password in --db is not sent: each host uses its own (~/.pgpass, PGPASSWORD)")
    return public


def _possible_words(arguments: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The arguments of `run` on each host, with a number of rounds: hosts are compared by path.

    Raises the errors that `run` would raise on any host; `flags` are the options of this verb.
    """
    try:
        request = parse_words(arguments, RunRequest, "vdisklab fleet run")
    except typer.TyperException as error:
        if hasattr(error, "possibilities"):  # there is no such option
            near = (*flags, *(error.possibilities or ()))
            error.possibilities = get_close_matches(getattr(error, "option_name", ""), near)
        raise
    if request.new:
        raise PlanError(
            "--new would begin again at each retry", hint="leave it out, or change --label"
        )
    for target in request.target:
        if target.opened_by_qemu and not target.holds_files:
            raise PlanError(
                f"target {target.name} is one disk on a server, and each host would write to it at "
                "the same time",
                hint="measure it from one host, with `vdisklab run`; a fleet takes a directory on "
                "a server (nfs://, ssh://), and places that each host has for itself",
            )
    for campaign in request.campaigns():
        possible_paths(campaign)
        if not campaign.devices:
            _on_hosts(campaign.directory)
    races = request.find is not None or request.asks_for_a_race or request.rounds is not None
    return [*arguments, *(() if races else ("--rounds", str(rounds_of(request))))]


def _on_hosts(directory: Path | None) -> Path:
    """A work directory that is the same one on all hosts, wherever their workers were started."""
    if directory is None or not directory.is_absolute():
        raise PlanError(
            "no directory is named in which the hosts can build images",
            hint="--dir /DIR, which all hosts have",
        )
    return directory


@takes_options(request=("scheduler", "tls"))
def status(request: FleetRequest, output: OutputOptions) -> None:
    """Show the hosts that are there, and the campaigns that run on them.

    Example: vdisklab fleet status --scheduler tls://db1
    """
    security = _security(request.tls, "client")[0]
    from vdisklab.fleet.coordinator import connected, members  # noqa: PLC0415 - an extra

    address = request.address
    with connected(address, security) as client:
        answer = FleetStatusAnswer(address, tuple(map(_worker, members(client))))
    print_answer(answer, status_tables(answer), output)


def _worker(member: FleetMember) -> WorkerStatus:
    return WorkerStatus(
        host=member.name,
        address=member.address,
        vdisklab=member.versions.get("vdisklab", "unknown"),
        silent_seconds=member.silent,
        measuring_since=member.campaign.get("since"),
        line=str(member.campaign.get("line", "")),
    )


@takes_options(request=("scheduler", "hosts", "tls"))
def stop(request: FleetRequest) -> int:
    """Interrupt the campaigns: each host removes what it built, and keeps its results.

    Example: vdisklab fleet stop --scheduler tls://db1 --hosts kvm7
    """
    security = _security(request.tls, "client")[0]
    from vdisklab.fleet.coordinator import choose_members, connected, members, stop_hosts  # noqa: PLC0415 - an extra

    with connected(request.address, security) as client:
        chosen = choose_members(members(client), request.chosen)
        answers = stop_hosts(client, chosen)
    for name in chosen:
        print(f"{name}: {answers.get(name, 'is not there')}")
    return 0 if len(answers) == len(chosen) else NO_RESULT


@takes_options(request=("scheduler", "db", "directory", "tls"))
def doctor(request: FleetRequest, output: OutputOptions) -> int:
    """Check what a campaign needs on each host: versions, certificate, database, work directory,
    and that nothing is left of killed runs.

    Example: vdisklab fleet doctor --db postgresql://v@db1/v --dir /srv/images
    """
    url = _database(request.db)
    work_directory = None if request.directory is None else str(_on_hosts(request.directory))
    security = _security(request.tls, "client")[0]
    from vdisklab.fleet.coordinator import check_hosts, connected  # noqa: PLC0415 - an extra

    address = request.address
    with connected(address, security) as client:
        checks = tuple(WorkerCheck(**check) for check in check_hosts(client, url, work_directory))
    answer = FleetDoctorAnswer(address, checks)
    print_answer(answer, doctor_tables(answer), output)
    return 0 if checks and all(check.is_ready for check in checks) else NO_RESULT


def _security(directory: Path, role: str) -> tuple[Security, str]:
    """TLS for a role, and the day on which its certificate ends."""
    _require_extra()
    from vdisklab.fleet.certificates import FleetRole, find_certificates  # noqa: PLC0415
    from vdisklab.fleet.quiet_settings import apply_settings, security_of  # noqa: PLC0415

    files = find_certificates(directory, FleetRole(role), datetime.now(UTC))
    apply_settings()
    return security_of(files, FleetRole(role)), f"{files.until:%Y-%m-%d}"


def _require_extra() -> None:
    for package in ("distributed", "cryptography"):
        if find_spec(package) is None:
            raise HostError(
                f"the Python package {package} is not installed", hint=extra_hint("fleet")
            )


def _say(line: str) -> None:
    Console(stderr=True).print(f"fleet: {line}", soft_wrap=True, highlight=False, markup=False)
