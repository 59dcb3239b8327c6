"""`vdisklab density`: how many guests a path carries."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from vdisklab.actions.guest_capacity import measure_density, measure_neighbour
from vdisklab.actions.measure import Measured
from vdisklab.answers.density import DensityAnswer, NeighbourAnswer
from vdisklab.answers.loading import database_url
from vdisklab.cli.shell.caller import Caller
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.options import OutputOptions, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED
from vdisklab.host.waiting import patience
from vdisklab.plan.density_request import DensityRequest
from vdisklab.results.store import open_store
from vdisklab.views.density import neighbour_tables, tables
from vdisklab.views.run import left_out_sentences

PANEL = VerbPanel.MEASURE


@takes_options()
def density(request: DensityRequest, output: OutputOptions) -> int:
    """Find out how many guests each path carries, each with its own load, before one is too slow.

    Each guest has its own disk. A number of guests passes if its worst guest does. A control comes
    first, which needs root and FUSE: a disk that carries two guests, and not three. The same
    command continues a search that was interrupted. Exit status: 0, 8 if a path could not be
    measured, 130 if interrupted.

    Examples:

        vdisklab density {raw,qcow2}/none --load 500iops --until 'latency_p99<=5ms'

        vdisklab density ext4/raw/none --load 100iops --most 32 --guest-memory 256M

        vdisklab density raw/none --victim quiet-commits --neighbour bulk-write
    """
    console = Console(stderr=True)
    capacities: DensityAnswer | None = None
    effects: NeighbourAnswer | None = None
    with (
        open_store(database_url(request.db, create=True)) as store,
        TerminalProgress(console, each=patience() > 1) as progress,
    ):
        if request.victim is None:
            measured, capacities = measure_density(store, request, progress)
        else:
            measured, effects = measure_neighbour(store, request, progress)
    if measured.interrupted:
        continues = Caller.of_process().same_command("the same command continues")
        console.print(Text(f"interrupted: {continues}"), soft_wrap=True)
    if measured.complete_before:
        console.print("nothing is left to measure; --new measures it again")
    if capacities is not None:
        print_answer(capacities, tables(capacities), output)
    if effects is not None:
        print_answer(effects, neighbour_tables(effects), output)
    for sentence in left_out_sentences(measured.left_out):
        console.print(Text(sentence), soft_wrap=True)
    return exit_status(measured, capacities, effects)


def exit_status(
    measured: Measured, capacities: DensityAnswer | None, effects: NeighbourAnswer | None
) -> int:
    """0 if every path that was asked for has its answer."""
    if measured.interrupted:
        return EXIT_INTERRUPTED
    complete = not measured.left_out and (capacities is not None or effects is not None)
    if capacities is not None:
        complete = complete and all(path.complete for path in capacities.paths)
    if effects is not None:
        complete = complete and not any(effect.failure for effect in effects.paths)
    return 0 if complete else EXIT_CELLS_FAILED
