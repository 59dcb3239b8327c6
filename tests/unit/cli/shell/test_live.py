"""Progress without a terminal: plain lines; with one: a line that lives."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.progress import (
    CampaignStarted,
    Event,
    MeasurementStarted,
    Note,
    RunFinished,
    RunStarted,
    Step,
    Throughput,
)

EVENTS: tuple[Event, ...] = (
    Step("building xfs"),
    CampaignStarted(campaign="c", runs=4, finished=1, seconds_estimated=90.0, label=""),
    RunStarted("raw/none", round=1, rounds=2, position=1, runs=2),
    MeasurementStarted("randread-4k-q1", 5.0),
    Throughput(12e6, 3000.0),
    RunFinished("raw/none", None, 7.0),
    Note("under emulation [not bold]"),
    RunStarted("raw/[odd]", round=1, rounds=2, position=2, runs=2),
    RunFinished("raw/[odd]", "no answer\nhint: wait [a bit]\nlast lines\n  x", 1.0),
)


def shown(*, terminal: bool, each: bool = False) -> str:
    sink = io.StringIO()
    console = Console(file=sink, force_terminal=terminal, width=100)
    with TerminalProgress(console, each=each) as progress:
        for event in EVENTS:
            progress(event)
            if terminal:
                progress._live.refresh()  # which it does by itself once a second
    return sink.getvalue()


def test_plain_lines_without_a_terminal() -> None:
    assert shown(terminal=False).splitlines() == [
        "building xfs",
        "continuing: 1 of 4 runs already measured",
        "measuring 3 runs, about 1 min 30 s",
        "✓ 2/4 round 1/2, cell 1/2: raw/none (7.0 s)",
        "note: under emulation [not bold]",
        "✗ 3/4 round 1/2, cell 2/2: raw/[odd]: no answer",
        "hint: wait [a bit]",
    ]


def test_each_measurement_gets_a_line_where_it_takes_minutes() -> None:
    lines = shown(terminal=False, each=True).splitlines()
    assert lines[3:5] == [
        "round 1/2, cell 1/2: raw/none: randread-4k-q1",
        "✓ 2/4 round 1/2, cell 1/2: raw/none (7.0 s)",
    ]


def test_a_terminal_shows_cell_measurement_throughput_and_time_left() -> None:
    text = shown(terminal=True)
    for part in ("round 1/2, cell 1/2: raw/none", "randread-4k-q1", "12 MB/s, 3000 IOPS", "left"):
        assert part in text


def test_the_time_left_never_counts_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = TerminalProgress(Console(file=io.StringIO()))
    progress(CampaignStarted("c", runs=6, finished=0, seconds_estimated=60.0, label=""))
    shown = []
    for seconds in (10.0, 20.0, 90.0, 95.0, 100.0):
        now[0] = seconds
        progress(RunFinished("raw/none", None, 10.0))
        shown.append(progress._time_left())
    assert shown == [
        "about 50 s left", "about 40 s left", "more than 40 s left", "more than 40 s left",
        "about 20 s left",
    ]  # fmt: skip
    progress(CampaignStarted("d", runs=9, finished=0, seconds_estimated=60.0, label=""))
    assert progress._time_left() == "about 1 min 00 s left", "another campaign has its own"


def test_no_escape_sequences_without_a_terminal() -> None:
    assert "\x1b" not in shown(terminal=False)
