"""`vdisklab trend`: is this host slower than it was?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vdisklab.actions.again import repeated
from vdisklab.actions.find_best import make_search
from vdisklab.actions.measure import measure
from vdisklab.actions.output_file import output_file, require_writable
from vdisklab.answers.loading import database_url
from vdisklab.answers.trend import DEFAULT_WORSE, answer_trend
from vdisklab.cli.shell.caller import retyped
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import CampaignOptions, OutputOptions, argument, takes_options
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import VerbPanel
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_CLAIM_FAILS, EXIT_INTERRUPTED
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import machine_facts
from vdisklab.plan.option_rows import option
from vdisklab.plan.run_request import RunRequest
from vdisklab.plan.value_kinds import FILE, PATHS, PERCENTAGE, SWITCH, TEXT
from vdisklab.results.store import open_store
from vdisklab.views.trend import junit_xml, tables

PANEL = VerbPanel.LEARN


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendOptions(CampaignOptions):
    """Which paths, and when to raise an alarm."""

    paths: tuple[str, ...] = argument(PATHS, "Only these disk paths.", "PATH...", "all", default=())
    metric: str | None = option(
        TEXT,
        "Compare this measure, such as randread-4k-q1/read/latency_p99.",
        metavar="MEASURE",
        shown="the mean of all rates",
    )
    worse: float = option(
        PERCENTAGE,
        "How much worse the newest campaign may be before the exit status is 9.",
        DEFAULT_WORSE,
        metavar="SHARE",
    )
    confirm: bool = option(
        SWITCH, "If it is worse by more, measure the plan again first: both must show it."
    )
    junit: Path | None = option(FILE, "Also write the answer as JUnit XML.", metavar="FILE")


@takes_options()
def trend(request: TrendOptions, output: OutputOptions) -> int:
    """Compare the newest campaign with the earlier ones of the same plan on the same host.

    The noise is the spread between the earlier campaigns, so a verdict needs three of them. From
    six campaigns on, lasting changes (steps and slow declines) are dated, with what changed on the
    host. One --campaign is taken as the newest; several are the only ones compared. Ends with 9 if
    a path is shown to be worse by more than --worse, suddenly or for good, else with 8 if a path
    that was asked for has no numbers in the newest campaign: one that is named here, or that its
    plan has.

    Examples:

        vdisklab trend

        vdisklab trend ext4/raw/none --metric randread-4k-q1/read/latency_p99

        vdisklab trend --worse 10% --confirm --junit trend.xml
    """
    if request.junit is not None:
        require_writable(request.junit)  # before measuring; a refused command leaves no file
    named, machine = Named.of(request.db), machine_facts(LocalHost()).machine_id
    with open_store(database_url(request.db), create=False) as store:
        answer = answer_trend(
            store, request.paths, campaigns=request.campaign,
            measure=request.metric, worse=request.worse,
            machine=machine,
        )  # fmt: skip
        if request.confirm and answer.exceeded:
            newest = answer.campaigns[-1].id
            again = repeated(store, RunRequest(again=newest, db=request.db))
            (campaign,) = again.campaigns()
            with TerminalProgress(Console(stderr=True)) as progress:
                measured = measure(
                    store, campaign, progress, new=again.new, search=make_search(again)
                )
            if measured.interrupted or measured.campaign is None:
                return EXIT_INTERRUPTED
            chosen = (*(each.id for each in answer.campaigns), measured.campaign)
            answer = answer_trend(
                store, request.paths, campaigns=chosen,
                measure=request.metric, worse=request.worse, suspect=answer, machine=machine,
            )  # fmt: skip
    if request.junit is not None:
        with output_file(request.junit) as stream:
            stream.write(junit_xml(answer, named.in_text).encode())
    asked = retyped("trend", flags=("--why", "--wide"), valued=("--format",))
    print_answer(answer, tables(answer, asked), output, named)
    if answer.repeats is not None and answer.confirmed is None:
        return EXIT_CELLS_FAILED
    if answer.exceeded:
        return EXIT_CLAIM_FAILS
    return EXIT_CELLS_FAILED if answer.not_measured else 0
