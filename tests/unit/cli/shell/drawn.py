"""A made-up campaign that is measured on the terminal of standard error; a line on standard input
starts each of its steps.
"""

from __future__ import annotations

import sys
from functools import partial

from rich.console import Console

from tests.unit.analysis.made import CAMPAIGN
from vdisklab.analysis.score import DEFAULT_METRIC
from vdisklab.cli.shell.after_run import provisional_ranking
from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.cli.shell.named import NOTHING_NAMED
from vdisklab.progress import (
    CampaignStarted,
    Event,
    MeasurementStarted,
    RunFinished,
    RunStarted,
    Throughput,
)
from vdisklab.results.store import open_store

STEPS: tuple[tuple[Event, ...], ...] = (
    (
        CampaignStarted(
            CAMPAIGN.id, 300, 14, 90.0, "", at_most=True, at_least_seconds=7.0, usual_seconds=45.0
        ),
        RunStarted("raw/none", round=3, rounds=None, position=5, runs=5),
        MeasurementStarted("randread-4k-q1", 5.0),
        Throughput(12e6, 3000.0),
    ),
    (
        RunFinished("raw/none", None, 7.0),
        RunStarted("raw/writeback (cold)", round=4, rounds=None, position=1, runs=5, later=3),
        MeasurementStarted("seqread-1m-q1", 5.0),
    ),
    (
        RunFinished("raw/writeback (cold)", "no answer", 7.0),
        RunStarted("raw/none", round=4, rounds=None, position=2, runs=5, later=2),
    ),
)


def draw(url: str) -> None:
    """Plays the steps, and prints what an interrupted `run` prints."""
    console = Console(stderr=True)
    with open_store(url, create=False) as store:
        look = partial(
            provisional_ranking, store, metric=DEFAULT_METRIC, disk=None, named=NOTHING_NAMED
        )
        try:
            with TerminalProgress(console, look=look, whole="`vdisklab rank --db x`") as progress:
                for events in STEPS:
                    for event in events:
                        progress(event)
                    sys.stdin.readline()
        except KeyboardInterrupt:
            console.print("interrupted: 15 runs kept; the same command continues")
            return
        print("the answer")


if __name__ == "__main__":
    draw(sys.argv[1])
