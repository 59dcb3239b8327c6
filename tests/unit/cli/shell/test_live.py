"""Progress without a terminal: plain lines; with one: a line that lives."""

from __future__ import annotations

import io
import itertools
import re

import pytest
from rich.console import Console

from vdisklab.cli.shell.live import TerminalProgress
from vdisklab.progress import (
    CampaignStarted,
    Event,
    MeasurementStarted,
    Note,
    PlanWarning,
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


def test_a_note_names_the_command_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/vdisklab", "density", "raw/none", "--new"])
    screen = io.StringIO()
    shown = TerminalProgress(Console(file=screen, width=300))
    for event in (Note, PlanWarning):
        shown(event("8 guests do not fit; with more memory the same command goes on"))
    lines = screen.getvalue().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.search(r"with more memory `\S*vdisklab density raw/none` goes on$", line), line


def test_a_race_says_first_how_long_it_takes() -> None:
    screen = io.StringIO()
    started = CampaignStarted("c", 240, 0, 600.0, "", True, 60.0, 200.0)
    TerminalProgress(Console(file=screen, width=100))(started)
    assert screen.getvalue() == (
        "measuring a race: at least 1 min 00 s, usually less than 3 min 20 s, at most 10 min 00 s\n"
    )


class Clock:
    """A campaign whose runs take as long as a test says, and the time left that is shown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runs: int, estimated: float) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        self.progress = TerminalProgress(Console(file=io.StringIO()))
        self.runs = runs
        self.progress(CampaignStarted("c", runs, 0, seconds_estimated=estimated, label=""))

    def left(self) -> str:
        return self.progress._time_left()

    def run(self, seconds: int) -> list[str]:
        """What is shown in each second of one more run, and when it ends."""
        self.progress(RunStarted("raw/none", round=1, rounds=1, position=1, runs=self.runs))
        shown = []
        for _ in range(seconds):
            shown.append(self.left())
            self.now += 1
        self.progress(RunFinished("raw/none", None, float(seconds)))
        return [*shown, self.left()]


def seconds_of(left: str) -> float:
    number, unit = left.removeprefix("about ").removesuffix(" left").split()
    assert unit == "s"
    return float(number)


@pytest.mark.parametrize("takes", [[10] * 6, [9, 12, 10, 11, 10, 9], [2] * 6, [11] * 6])
def test_the_time_left_never_counts_up(monkeypatch: pytest.MonkeyPatch, takes: list[int]) -> None:
    clock = Clock(monkeypatch, runs=6, estimated=58.0)
    shown = list(itertools.chain.from_iterable(map(clock.run, takes)))
    numbers = [seconds_of(left) for left in shown if left]
    assert numbers == sorted(numbers, reverse=True)
    assert shown[-1] == ""
    assert shown[-10] != ""
    clock.progress(CampaignStarted("d", runs=9, finished=0, seconds_estimated=59.0, label=""))
    assert clock.left() == "about 59 s left", "another campaign has its own"


def test_a_time_that_was_estimated_wrongly_is_estimated_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nine runs of 5 s that take 20 s each: with seven to go it never says a second."""
    clock = Clock(monkeypatch, runs=9, estimated=45.0)
    shown = [clock.run(20) for _ in range(9)]
    assert shown[0][::5] == [f"about {left} s left" for left in (45, 40, 40, 40, 40)]
    assert shown[1][-1] == "about 35 s left"
    assert shown[2][-1] == "about 2 min 00 s left"
    assert shown[7][-1] == "about 20 s left"
    for run, lines in enumerate(shown[3:8], start=4):
        assert all("min" in left or seconds_of(left) >= 20 * (9 - run) for left in lines)


def test_of_a_last_run_that_takes_longer_no_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, runs=1, estimated=3.0)
    assert clock.run(9) == [*(f"about {left}.0 s left" for left in (3, 2, 1)), *[""] * 7]


def test_no_escape_sequences_without_a_terminal() -> None:
    assert "\x1b" not in shown(terminal=False)
