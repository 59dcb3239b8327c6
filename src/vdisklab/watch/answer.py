"""`watch`: what runs, what is known of it so far, and what ran before."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Annotated

from vdisklab.answers.analysis import Analysis
from vdisklab.answers.density import DensityAnswer, density_of, searched_capacity
from vdisklab.answers.export import ConfiguredFor, configurations_of
from vdisklab.answers.loading import database_url, load_chosen, open_results
from vdisklab.answers.powercut import PowercutAnswer, crash_verdict
from vdisklab.answers.rank import RankAnswer
from vdisklab.answers.runs import CampaignsAnswer, ListedCampaign, answer_campaigns
from vdisklab.answers.table import TableAnswer, overview, table_of
from vdisklab.answers.trend import TrendAnswer, trend_of
from vdisklab.documents import Answer
from vdisklab.errors import PlanError
from vdisklab.host.progress_file import running_campaigns
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.progress import Running
from vdisklab.results.database import parse_address
from vdisklab.results.model import Campaign, RunOutline
from vdisklab.results.store import Store
from vdisklab.value import Value

PROVISIONAL_FROM = 3
"""Rounds from which on a campaign that runs has a ranking: intervals need as many."""

_NEGLIGIBLE = 0.1
"""The margin for a campaign with --rounds, which has none of its own."""
_MOST_VERDICTS = 20
_RUNS_FOR_PACE = 3


class TimeLeft(Value):
    """How long the remaining runs take, in seconds, with a 95 % interval from those before."""

    seconds: float
    low: float | None
    high: float | None


class WatchedCampaign(Value):
    """One campaign, while it runs or afterwards."""

    campaign: Campaign
    running: Annotated[Running | None, "null unless this host measures it now"]
    rounds: Annotated[int, "with at least one measured run"]
    runs: Annotated[int, "stored"]
    failed: Annotated[tuple[str, ...], "the failed runs of the last rounds, each as a sentence"]
    left: Annotated[TimeLeft | None, "null if nobody knows how many runs remain"]
    shown: Annotated[RankAnswer | TableAnswer | None, "the ranking, or all numbers"]
    why_none: Annotated[str, "why nothing is shown; empty if something is"]
    more_rounds: Annotated[
        int | None,
        "that would settle it: show the lead that it is about, at the noise seen; null if unknown",
    ]
    density: Annotated[DensityAnswer | None, "of a search of how many guests a path carries"]
    configurations: Annotated[
        tuple[ConfiguredFor, ...], "the path to use, to paste; empty while it may still change"
    ]
    trend: Annotated[TrendAnswer | None, "null for the only campaign of its plan and host"]


class WatchAnswer(Answer):
    """What the live page shows."""

    FORMAT = "vdisklab.watch/2"

    watched: Annotated[
        tuple[WatchedCampaign, ...], "the running campaigns; if none runs, the newest"
    ]
    elsewhere: Annotated[
        tuple[Running, ...], "that run on this host, and are not stored in this database"
    ]
    hosts: Annotated[tuple[ListedCampaign, ...], "each host's newest campaign, of two or more"]
    crashes: Annotated[PowercutAnswer, "the last verdicts, the newest first"]
    past: CampaignsAnswer


NOTHING_YET = WatchAnswer((), (), (), PowercutAnswer((), ()), CampaignsAnswer(()))


def measured_now() -> tuple[Running, ...]:
    """The campaigns that processes of this host measure."""
    return running_campaigns()


def database_state(db: str | None) -> object:
    """A value that changes when something is stored; a file's is read without a lock on it."""
    address = parse_address(database_url(db))
    if address.file is None:
        with open_results(db, read_only=True) as results:
            return results.newest()
    try:
        seen = address.file.stat()
    except OSError as error:
        return error.errno
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


def watch(results: Store, running: Sequence[Running] = ()) -> WatchAnswer:
    """The state of the campaigns in a database, of which some may be running."""
    campaigns = results.campaigns()
    outlines = results.outlines([campaign.id for campaign in campaigns])
    past = answer_campaigns(campaigns, outlines)
    runs_of: dict[str, list[RunOutline]] = {}
    for run in outlines:
        runs_of.setdefault(run.campaign, []).append(run)
    now = {progress.campaign: progress for progress in running}
    chosen = [campaign for campaign in campaigns if campaign.id in now]
    chosen = (
        chosen
        or [campaign for campaign in campaigns if campaign.id in runs_of][:1]
        or list(campaigns[:1])
    )
    by_host: dict[str, ListedCampaign] = {}
    for campaign, listed in zip(campaigns, past.campaigns, strict=True):
        by_host.setdefault(campaign.host.machine_id, listed)
    verdicts = tuple(map(crash_verdict, reversed(results.power_cuts()[-_MOST_VERDICTS:])))
    return WatchAnswer(
        watched=tuple(
            _watched(results, campaign, runs_of.get(campaign.id, []), now.get(campaign.id))
            for campaign in chosen
        ),
        elsewhere=tuple(
            progress for key, progress in now.items() if key not in {c.id for c in campaigns}
        ),
        hosts=tuple(by_host.values()) if len(by_host) > 1 else (),
        crashes=PowercutAnswer((), verdicts),
        past=past,
    )


def _watched(
    results: Store, campaign: Campaign, runs: Sequence[RunOutline], running: Running | None
) -> WatchedCampaign:
    rounds = len({run.round for run in runs if run.failure is None})
    last = max((run.round for run in runs), default=0)
    failed = tuple(
        f"{run.measured_cell}, round {run.round}: {run.failure.sentence}"
        for run in sorted(runs, key=lambda run: run.started, reverse=True)
        if run.failure is not None and run.round > last - PROVISIONAL_FROM
    )
    searches = searched_capacity(campaign.plan)
    shown, why = (None, "") if searches else _shown(results, campaign, rounds, running)
    return WatchedCampaign(
        campaign=campaign,
        running=running,
        rounds=rounds,
        runs=len(runs),
        failed=failed,
        left=None if running is None else time_left(running, runs),
        shown=shown,
        why_none=why,
        more_rounds=_more_rounds(shown) if isinstance(shown, RankAnswer) else None,
        density=density_of(results, campaign.id) if searches and runs else None,
        configurations=() if running is not None else tuple(_to_paste(shown, campaign)),
        trend=trend_of(results, [campaign.id]),
    )


def _shown(
    results: Store, campaign: Campaign, rounds: int, running: Running | None
) -> tuple[RankAnswer | TableAnswer | None, str]:
    if running is not None and not rounds:
        return None, "No run has been measured yet."
    try:
        analysis = Analysis(results, load_chosen(results, (campaign,)))
        answer = overview(analysis)
        if isinstance(answer, RankAnswer) and not answer.cells:  # no baseline, so no scores yet
            answer = table_of(results, {"": analysis.loaded})
    except PlanError as error:
        return None, f"{error}."
    return answer, ""


def _to_paste(
    shown: RankAnswer | TableAnswer | None, campaign: Campaign
) -> Iterator[ConfiguredFor]:
    if isinstance(shown, RankAnswer) and shown.choice is not None:
        yield from configurations_of(shown.choice.cell, campaign)


def _more_rounds(answer: RankAnswer) -> int | None:
    """The rounds that are still needed to show the lead that this campaign is about."""
    best, terms = answer.ranking.best, RaceTerms.of(answer.campaigns[0].plan)
    if best is None or answer.choice is None or answer.rounds < PROVISIONAL_FROM:
        return None
    if answer.choice.verdict.decided:
        return 0
    wanted = best.rounds_for(_NEGLIGIBLE if terms is None else terms.margin)
    return None if wanted is None else max(1, wanted - answer.rounds)


def time_left(running: Running, runs: Sequence[RunOutline]) -> TimeLeft | None:
    """The time of the remaining runs, by those before them (a normal approximation).

    The error of the mean of n runs and that of k runs to come add up: s √(k + k²/n).
    """
    left = running.runs - len(runs)
    if running.at_most or left <= 0:
        return None
    seconds = [run.wall_seconds for run in runs if run.wall_seconds is not None]
    if len(seconds) < _RUNS_FOR_PACE:
        return TimeLeft(running.seconds_estimated, None, None)
    mean, spread = statistics.fmean(seconds), statistics.stdev(seconds)
    error = 1.96 * spread * math.sqrt(left + left**2 / len(seconds))
    return TimeLeft(left * mean, max(left * mean - error, 0.0), left * mean + error)
