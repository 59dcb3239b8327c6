"""`vdisklab during`: what an operation on its disk costs a running guest."""

from __future__ import annotations

from dataclasses import dataclass

from vdisklab.answers.during import stored_operations
from vdisklab.answers.loading import open_results
from vdisklab.cli.shell.options import DbOptions, OutputOptions, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.plan.option_rows import option
from vdisklab.plan.value_kinds import TEXT
from vdisklab.views.during import tables

PANEL = VerbPanel.LEARN


@dataclass(frozen=True, slots=True, kw_only=True)
class DuringOptions(DbOptions):
    """The campaign to answer from."""

    campaign: str | None = option(
        TEXT, "A campaign's id or its first letters.", metavar="ID", shown="the newest"
    )


@takes_options()
def during(request: DuringOptions, output: OutputOptions) -> None:
    """Show what backups, snapshots and other operations cost a running guest.

    `vdisklab run PATHS --during OPERATION` measures it: one open load before, during and after the
    operation. For each path and operation: the longest time in which no request was completed, p99
    during : before, how long it took, and whether flushed data survives a power cut in its middle.
    Below stands what makes an operation bearable, for libvirt, Proxmox VE and QEMU.

    Examples:

      vdisklab run qcow2/none --during backup,backup:workers=1,backup:fleecing

      vdisklab during

      vdisklab during --campaign 3f2a --format csv
    """
    with open_results(request.db) as results:
        answer = stored_operations(results, request.campaign)
        print_answer(answer, tables(answer), output, request, verb="vdisklab during")
