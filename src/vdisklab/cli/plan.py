"""`vdisklab plan`: what `run` would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from vdisklab.campaign.context import guest_buses, require_space
from vdisklab.campaign.estimate import (
    build_seconds,
    builds,
    campaign_seconds,
    plan_warnings,
    room_needed,
    run_seconds,
)
from vdisklab.campaign.guests import boot_from, system_to_boot
from vdisklab.campaign.host_stacks import takes_turns
from vdisklab.campaign.preview import CellCommands, preview_cell
from vdisklab.campaign.schedule import Slot, block_order, schedule
from vdisklab.cli.campaign_options import takes_settings
from vdisklab.cli.live import TerminalProgress, print_dropped, warning_line
from vdisklab.cli.options import Format
from vdisklab.cli.output import dumps
from vdisklab.errors import HostError
from vdisklab.guest.factory import boot_files
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import memory_bytes
from vdisklab.host.ledger import cache_directory, open_ledger
from vdisklab.path.cell import Cell
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import Accelerator
from vdisklab.plan.settings import Panel, Request
from vdisklab.render.documents.conversion import copy_fields
from vdisklab.render.documents.records import (
    CommandsEntry,
    PlanDocument,
    PlannedCell,
    PlannedCellRow,
)
from vdisklab.render.tables.layout import Column, Table, as_csv, sanitise, show
from vdisklab.services.planning import make_plan
from vdisklab.units import counted, format_bytes, format_duration


@takes_settings()
def plan(
    request: Request,
    commands: Annotated[
        bool,
        typer.Option(
            "--commands",
            help="Print the exact qemu, QMP and measuring commands of each cell.",
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = False,
    form: Annotated[
        Format,
        typer.Option("--format", help="How to print the answer.", rich_help_panel=Panel.OUTPUT),
    ] = Format.TABLE,
) -> None:
    """Show the cells that `run` would measure, those dropped and why, the order, and how long.

    Each host stack is built once, small, to find out what it can serve; nothing is measured.

    Examples:

        vdisklab plan '{ext4,xfs}/{raw,qcow2}/{none,writeback}'

        vdisklab plan raw/none/nvme --commands
    """
    host = LocalHost()
    console = Console(stderr=True)
    with open_ledger() as ledger, TerminalProgress(console) as progress:
        planned = make_plan(host, ledger, request, progress)
        spelled = _commands(host, planned) if commands else {}
    if form is Format.JSON:
        print(dumps(plan_document(planned, spelled)))
    elif form is Format.CSV:
        print(as_csv(_cell_table(planned)), end="")
    else:
        _print_plan(Console(), planned, spelled)


def print_warnings(console: Console, planned: CampaignPlan) -> None:
    """What is to be known of the numbers before they are measured."""
    for sentence in plan_warnings(planned, memory_bytes()):
        console.print(warning_line(sentence), soft_wrap=True)


def plan_document(planned: CampaignPlan, spelled: Mapping[Cell, CellCommands]) -> PlanDocument:
    """The plan as JSON; see docs/json.md."""
    slots = tuple(schedule(planned))
    return PlanDocument(
        plan=planned.as_json() | {"blocks": planned.blocks, "label": planned.label},
        fingerprint=planned.fingerprint,
        seconds_estimated=campaign_seconds(planned, slots),
        bytes_needed=room_needed(planned),
        builds=builds(planned, slots) if planned.backing.devices else None,
        build_seconds=build_seconds(planned, slots) if planned.backing.devices else None,
        cells=tuple(
            PlannedCell(
                path=cell.path.canonical,
                page_cache=cell.page_cache,
                fingerprint=cell.fingerprint,
                seconds_estimated=run_seconds(planned, cell),
                commands=copy_fields(CommandsEntry, spelled[cell]) if cell in spelled else None,
            )
            for cell in planned.cells
        ),
        dropped=planned.dropped,
        warnings=tuple(plan_warnings(planned, memory_bytes())),
        refusals=_refusals(planned),
        order=tuple(
            tuple(cell.label for cell in block_order(planned, block))
            for block in range(1, planned.blocks + 1)
        ),
    )


def _commands(host: LocalHost, planned: CampaignPlan) -> dict[Cell, CellCommands]:
    buses = guest_buses(planned)
    boot = None
    if buses and planned.guest.user is None:
        cache = cache_directory()
        kernel = planned.guest.kernel
        if planned.profile.boots:
            system, files = system_to_boot(host, cache, buses, kernel)
            boot = boot_from(files, system, "vdlRUN")
        else:
            boot = boot_files(host, cache, buses, kernel)
    accelerator = planned.guest.accelerator or Accelerator.KVM
    return {cell: preview_cell(host, planned, cell, boot, accelerator) for cell in planned.cells}


def _cell_table(planned: CampaignPlan) -> Table[PlannedCellRow]:
    slots = tuple(schedule(planned))
    place = {slot.cell: slot.position for slot in reversed(slots) if slot.block == 1}
    rows = [
        PlannedCellRow(
            number=number,
            path=cell.path.canonical,
            page_cache=cell.page_cache,
            position=place[cell],
            seconds=run_seconds(planned, cell),
        )
        for number, cell in enumerate(planned.cells, 1)
    ]
    total = format_duration(campaign_seconds(planned, slots))
    return Table(
        title=f"{counted(len(planned.cells), 'cell')} × {counted(planned.blocks, 'block')}, "
        f"about {total}, "
        f"{format_bytes(room_needed(planned))} in {planned.directory}",
        columns=(
            Column[PlannedCellRow]("#", lambda row: str(row.number), right=True),
            Column[PlannedCellRow]("disk path", lambda row: row.path, folds=True),
            Column[PlannedCellRow]("page cache", lambda row: row.page_cache.value),
            Column[PlannedCellRow]("place in block 1", lambda row: str(row.position), right=True),
            Column[PlannedCellRow]("per run", lambda row: format_duration(row.seconds), right=True),
        ),
        rows=rows,
        kind=PlannedCellRow,
        notes=(
            f"profile {planned.profile.name}: "
            + ", ".join(measurement.name for measurement in planned.profile.measurements),
            *_rebuilding(planned, slots),
            *(f"`run` will refuse: {reason}" for reason in _refusals(planned)),
            f"{planned.runtime:g} s each after {planned.ramp:g} s of ramp, "
            f"disks of {format_bytes(planned.size_bytes)}, seed {planned.seed}",
        ),
    )


def _refusals(planned: CampaignPlan) -> tuple[str, ...]:
    """Why `run` would refuse: the work directory or the memory is too small."""
    try:
        require_space(planned)
    except HostError as error:
        return (f"{error}; {error.hint}",)
    return ()


def _rebuilding(planned: CampaignPlan, slots: Sequence[Slot]) -> tuple[str, ...]:
    """What it costs that stacks take turns on the user's devices."""
    if not planned.backing.devices:
        return ()
    names = ", ".join(map(str, planned.backing.devices))
    if not builds(planned, slots):
        return (f"no path stands on {names}: nothing is built there",)
    if not takes_turns(planned):
        return (f"one stack on {names}: built once",)
    seconds = format_duration(build_seconds(planned, slots))
    return (
        f"the stacks take turns on {names}: {builds(planned, slots)} builds, about {seconds} of "
        "the time; cells of one stack follow each other within a block",
    )


def _print_plan(
    console: Console, planned: CampaignPlan, spelled: Mapping[Cell, CellCommands]
) -> None:
    show(_cell_table(planned), console)
    print_dropped(console, planned.dropped)
    print_warnings(console, planned)
    if spelled and planned.guest.accelerator is None:
        console.print("the accelerator is tried when measuring; KVM is shown here")
    for cell, commands in spelled.items():
        console.print(Text(f"\n# {cell.label}", style="bold"))
        qemu = () if commands.qemu is None else (commands.qemu,)
        for line in (*commands.host, *qemu, *commands.qmp, *commands.measurements):
            console.print(Text(sanitise(line)), soft_wrap=True)
