"""`vdisklab fleet`: the same campaign on many hosts, through Dask distributed."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from vdisklab.actions.planning import require_possible_paths
from vdisklab.cli.shell.campaign_options import parse_words
from vdisklab.cli.shell.options import DbOption, Format, FormatOption
from vdisklab.cli.shell.output import emit
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED, HostError, PlanError
from vdisklab.plan.run_request import RunRequest
from vdisklab.results.address import parse_address, without_password
from vdisklab.units import counted, parse_duration
from vdisklab.views.documents.fleets import (
    FleetDoctorDocument,
    FleetStatusDocument,
    MemberCheck,
    MemberEntry,
)
from vdisklab.views.host_tables import doctor_table, is_ready, status_table

if TYPE_CHECKING:
    from distributed.security import Security

    from vdisklab.fleet.coordinator import FleetMember

PANEL = VerbPanel.ELSEWHERE

TLS_DIRECTORY = Path("/etc/vdisklab/fleet")
NO_RESULT = 3
"""The exit status if a host never came or its command failed."""

TlsOption = Annotated[
    Path,
    typer.Option(
        "--tls",
        metavar="DIR",
        envvar="VDISKLAB_FLEET_TLS",
        help="The directory with ca.pem and this end's certificate.",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        envvar="VDISKLAB_SCHEDULER",
        help="The scheduler, such as tls://db1 or tls://db1:8786.",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="The host's name.", show_default="its own"),
]
PortOption = Annotated[
    int,
    typer.Option(
        "--port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Where the worker listens to the scheduler.",
        show_default="any free one",
    ),
]
ChosenOption = Annotated[
    list[str] | None,
    typer.Option(
        "--hosts",
        metavar="HOST",
        help="`all` connected workers, one by its name, or those with FACT=VALUE; can be repeated.",
        show_default="all",
    ),
]


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


def certificates(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory.")],
) -> None:
    """Make a private authority, and certificates for scheduler, workers and client.

    Keep ca-key.pem to yourself. Each end needs ca.pem and its own file. Anyone with one
    of these files can run commands as root on every host of the fleet.

    Example: vdisklab fleet certificates /root/fleet-tls
    """
    _require_extra()
    from vdisklab.fleet.certificates import make_certificates  # noqa: PLC0415 - an extra

    for file in make_certificates(directory, datetime.now(UTC)):
        print(file)


def scheduler(
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDRESS", help="Where to listen.")
    ] = "tls://0.0.0.0:8786",
    tls: TlsOption = TLS_DIRECTORY,
) -> None:
    """Run the scheduler, which passes commands to the hosts; it stores nothing.

    It may be restarted at any time: campaigns go on, and clients give their commands again.

    Example: vdisklab fleet scheduler --listen tls://10.0.0.1
    """
    security = _security(tls, "scheduler")[0]
    from vdisklab.fleet.nodes import serve_scheduler  # noqa: PLC0415 - an extra
    from vdisklab.fleet.quiet_settings import check_address  # noqa: PLC0415

    asyncio.run(serve_scheduler(check_address(listen), security, _say))


def worker(
    scheduler_address: SchedulerOption = None,
    name: NameOption = None,
    port: PortOption = 0,
    tls: TlsOption = TLS_DIRECTORY,
) -> None:
    """Run this host's worker, which measures when `vdisklab fleet run` says so.

    It does nothing while a campaign runs but say every five seconds that it is there. A signal
    (systemctl stop) interrupts the campaign cleanly; if the worker is killed, the campaign goes on.

    Example: vdisklab fleet worker --scheduler tls://db1 --as kvm7
    """
    security, until = _security(tls, "worker")
    from vdisklab.fleet.nodes import serve_worker  # noqa: PLC0415 - an extra
    from vdisklab.fleet.quiet_settings import check_address  # noqa: PLC0415

    own = _worker_name(name)
    address = check_address(_named(scheduler_address))
    asyncio.run(serve_worker(address, own, security, _say, port=port, until=until))


def _named(scheduler_address: str | None) -> str:
    if scheduler_address is None:
        raise PlanError(
            "no scheduler is named", hint="--scheduler tls://HOST, or set VDISKLAB_SCHEDULER"
        )
    return scheduler_address


def _worker_name(name: str | None) -> str:
    own = socket.gethostname() if name is None else name
    if not own or not own.isprintable() or "=" in own or own == "all":
        raise PlanError(
            f"{own!r} is not a host's name", hint="a name is printable, has no =, and is not `all`"
        )
    return own


def unit(
    scheduler_address: SchedulerOption = None,
    name: NameOption = None,
    port: PortOption = 0,
    tls: TlsOption = TLS_DIRECTORY,
    of_scheduler: Annotated[
        bool, typer.Option("--of-scheduler", help="The scheduler's unit, not a worker's.")
    ] = False,
) -> None:
    """Print a systemd unit for the worker, or for the scheduler.

    Example: vdisklab fleet unit --scheduler tls://db1 --as kvm7
    """
    from vdisklab.fleet.systemd_unit import systemd_unit  # noqa: PLC0415 - with its neighbours

    program = shutil.which("vdisklab") or sys.argv[0]
    command = [os.path.abspath(program), "fleet"]  # noqa: PTH100 - links stay
    if of_scheduler:
        command += ["scheduler", "--listen", _named(scheduler_address)]
    else:
        command += ["worker", "--scheduler", _named(scheduler_address)]
        command += [] if name is None else ["--as", _worker_name(name)]
        command += ["--port", str(port)] if port else []
    command += ["--tls", os.path.abspath(tls)]  # noqa: PTH100
    print(systemd_unit(command, of_scheduler=of_scheduler), end="")


def run(
    context: typer.Context,
    scheduler_address: SchedulerOption = None,
    hosts: ChosenOption = None,
    give_up: Annotated[
        str,
        typer.Option("--give-up", metavar="TIME", help="Report a host that is away for this long."),
    ] = "1h",
    db: DbOption = None,
    tls: TlsOption = TLS_DIRECTORY,
) -> int:
    """Measure the same paths on many hosts: PATHS and options are those of `vdisklab run`.

    The same command continues what was interrupted. If you interrupt this one, the campaigns go on:
    `fleet status` shows them, `fleet stop` ends them. A password in --db is not sent: each host has
    its own, in ~/.pgpass or in its unit. Exit status: 0, 8 if cells failed, 3 if a host has no
    results.

    Examples:

        vdisklab fleet run raw/none host --dir /srv/images --db postgresql://v@db1/v

        vdisklab fleet run '{raw,qcow2}/none' --dir /srv/images --hosts kvm1
    """
    words = list(context.args)
    url = _database(db)
    _require_possible(
        words, [name for parameter in context.command.params for name in parameter.opts]
    )
    patience = parse_duration(give_up)
    security = _security(tls, "client")[0]
    from vdisklab.fleet.coordinator import (  # noqa: PLC0415 - an extra
        CampaignRun,
        choose_members,
        connected,
        members,
        task_of,
    )
    from vdisklab.fleet.quiet_settings import check_address  # noqa: PLC0415

    address = check_address(_named(scheduler_address))
    with connected(address, security) as client:
        chosen = choose_members(members(client), hosts or ["all"])
    _say(f"{counted(len(chosen), 'host')}: {', '.join(chosen)}")
    campaign = CampaignRun(chosen, task_of(words, url), patience, _say)
    try:
        results = campaign.wait(address, security)
    except KeyboardInterrupt:
        _say("the campaigns go on: `vdisklab fleet status` shows them, `vdisklab fleet stop` ends")
        return EXIT_INTERRUPTED
    statuses = {result.status for result in results}
    if statuses <= {0}:
        return 0
    return EXIT_CELLS_FAILED if statuses <= {0, EXIT_CELLS_FAILED} else NO_RESULT


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


def _require_possible(words: Sequence[str], own: Sequence[str]) -> None:
    """Raises the errors that `run` would raise on any host; `own` are the options of this verb."""
    try:
        request = parse_words(words, RunRequest, "vdisklab fleet run")
    except typer.TyperException as error:
        if hasattr(error, "possibilities"):  # there is no such option
            near = (*own, *(error.possibilities or ()))
            error.possibilities = get_close_matches(getattr(error, "option_name", ""), near)
        raise
    if request.new:
        raise PlanError(
            "--new would begin again at each retry", hint="leave it out, or change --label"
        )
    for campaign in request.campaigns():
        require_possible_paths(campaign)
        if not campaign.devices:
            _on_hosts(campaign.directory)


def _on_hosts(directory: Path | None) -> Path:
    """A work directory that is the same one on all hosts, wherever their workers were started."""
    if directory is None or not directory.is_absolute():
        raise PlanError(
            "the hosts must be told in which directory to build images",
            hint="--dir /DIR, which all hosts have",
        )
    return directory


def status(
    scheduler_address: SchedulerOption = None,
    tls: TlsOption = TLS_DIRECTORY,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the hosts that are there, and the campaigns that run on them.

    Example: vdisklab fleet status --scheduler tls://db1
    """
    security = _security(tls, "client")[0]
    from vdisklab.fleet.coordinator import connected, members  # noqa: PLC0415 - an extra
    from vdisklab.fleet.quiet_settings import check_address  # noqa: PLC0415

    address = check_address(_named(scheduler_address))
    with connected(address, security) as client:
        entries = tuple(map(_member_entry, members(client)))
    emit(
        form,
        [status_table(address, entries)],
        lambda: FleetStatusDocument(scheduler=address, hosts=entries),
    )


def _member_entry(member: FleetMember) -> MemberEntry:
    return MemberEntry(
        host=member.name,
        address=member.address,
        vdisklab=member.versions.get("vdisklab", "unknown"),
        silent_seconds=member.silent,
        measuring_since=member.campaign.get("since"),
        line=str(member.campaign.get("line", "")),
    )


def stop(
    scheduler_address: SchedulerOption = None,
    hosts: ChosenOption = None,
    tls: TlsOption = TLS_DIRECTORY,
) -> int:
    """Interrupt the campaigns: each host removes what it built, and keeps its results.

    Example: vdisklab fleet stop --scheduler tls://db1 --hosts kvm7
    """
    security = _security(tls, "client")[0]
    from vdisklab.fleet.coordinator import (  # noqa: PLC0415 - an extra
        choose_members,
        connected,
        members,
        stop_hosts,
    )
    from vdisklab.fleet.quiet_settings import check_address  # noqa: PLC0415

    with connected(check_address(_named(scheduler_address)), security) as client:
        chosen = choose_members(members(client), hosts or ["all"])
        answers = stop_hosts(client, chosen)
    for name in chosen:
        print(f"{name}: {answers.get(name, 'is not there')}")
    return 0 if len(answers) == len(chosen) else NO_RESULT


def doctor(
    scheduler_address: SchedulerOption = None,
    db: DbOption = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="The hosts' work directory.")
    ] = None,
    tls: TlsOption = TLS_DIRECTORY,
    form: FormatOption = Format.TABLE,
) -> int:
    """Check what a campaign needs on each host: versions, certificate, database, work directory,
    and that nothing is left of killed runs.

    Example: vdisklab fleet doctor --db postgresql://v@db1/v --dir /srv/images
    """
    url = _database(db)
    work_directory = None if directory is None else str(_on_hosts(directory))
    security = _security(tls, "client")[0]
    from vdisklab.fleet.coordinator import check_hosts, connected  # noqa: PLC0415 - an extra
    from vdisklab.fleet.quiet_settings import check_address  # noqa: PLC0415

    address = check_address(_named(scheduler_address))
    with connected(address, security) as client:
        checks = tuple(MemberCheck(**check) for check in check_hosts(client, url, work_directory))
    emit(
        form,
        [doctor_table(address, checks)],
        lambda: FleetDoctorDocument(scheduler=address, hosts=checks),
    )
    return 0 if checks and all(map(is_ready, checks)) else NO_RESULT


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
                f"the Python package {package} is not installed",
                hint="pip install 'vdisklab[fleet]', or script/install --extras",
            )


def _say(line: str) -> None:
    Console(stderr=True).print(f"fleet: {line}", soft_wrap=True, highlight=False, markup=False)
