"""Progress on the terminal: a ranking and one line that are updated, and lines that remain."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from vdisklab.analysis.race import LOOKS
from vdisklab.cli.shell.named import Named
from vdisklab.path.named_target import as_typed
from vdisklab.plan.campaign import Dropped
from vdisklab.progress import (
    CampaignStarted,
    DurablePaths,
    Event,
    MeasurementStarted,
    Note,
    PathDropped,
    PlanWarning,
    RunFinished,
    RunStarted,
    Step,
    Throughput,
)
from vdisklab.sanitise import sanitise
from vdisklab.units import counted, format_duration, format_throughput, time_of_race
from vdisklab.views.durability import basis
from vdisklab.views.layout import Table
from vdisklab.views.terminal import lines_of, show

_RUNS_FOR_PACE = 3
_SHOWN_GROWTH = 1.2
"""A remaining time that is longer by a smaller factor than the shown one is not shown."""
_FEWEST_LINES = 5
"""A ranking in fewer lines of a low terminal would have no row."""

Look = Callable[[str], Table[Any] | None]
"""The provisional ranking of the campaign that is measured, None if there is nothing to rank."""


class TerminalProgress:
    """Shows the provisional ranking, cell, round, measurement, throughput and remaining time; plain
    lines without a terminal, or on one that cannot move its cursor.

    The remaining time is first the plan's, then estimated from the finished runs; a race, which
    ends when it knows enough, has that of its round. `each` prints a plain line for each
    measurement too, because one that takes minutes would look like a hang. `look` is called when a
    round begins, from the fourth on, and never while a cell is measured; for the same reason the
    terminal is drawn once a second only. Plain lines have the first ranking of a race alone.
    `whole` is the command that prints the lines for which a low terminal has no room.
    """

    def __init__(
        self,
        console: Console,
        *,
        each: bool = False,
        look: Look | None = None,
        whole: str = "`vdisklab rank`",
    ) -> None:
        self._console = console
        self._each = each
        self._look, self._whole = look, whole
        self._campaign, self._round, self._later = "", 0, 0
        self._ranking: Table[Any] | None = None
        self._laid: tuple[Table[Any] | None, int, list[Text]] = (None, 0, [])
        self._runs = self._done = self._before = 0
        self._at_most = False
        self._began = time.monotonic()
        self._estimated_end, self._seconds_per_run = self._began, 0.0
        self._is_running = False
        self._cell = self._doing = self._moving = self._hint = ""
        self._live = Live(
            get_renderable=self._screen,
            console=console,
            transient=True,
            refresh_per_second=1,
            vertical_overflow="crop",
        )

    def __enter__(self) -> TerminalProgress:
        if self._console.is_interactive:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_interactive:
            self._live.stop()

    def __call__(self, event: Event, /) -> None:
        """Shows one event."""
        match event:
            case CampaignStarted():
                self._start(event)
            case RunStarted():
                self._is_running = True
                is_new_round = event.round != self._round
                self._rank(event)
                if self._at_most and is_new_round:
                    self._estimate(0.0)
                self._cell = (
                    f"round {event.round}{f'/{event.rounds}' if event.rounds else ''}, "
                    f"cell {event.position}/{event.runs}: {as_typed(event.cell)}"
                )
                self._doing = self._moving = ""
            case MeasurementStarted():
                self._doing, self._moving = event.name, ""
                if self._each and not self._console.is_interactive:
                    self._say(escape(f"{self._cell}: {event.name}"))
            case Throughput():
                self._moving = format_throughput(
                    event.bytes_per_second, event.operations_per_second
                )
            case RunFinished():
                self._finish(event)
            case Step():
                self._doing, self._moving = event.what, ""
                if not self._console.is_interactive:
                    self._say(event.what)
            case Note() | DurablePaths() | PathDropped() | PlanWarning():
                self._console.print(_line(event), soft_wrap=True, highlight=False)

    def _rank(self, event: RunStarted) -> None:
        """Ranks what the rounds before this one have measured, once for each round."""
        before, self._round, self._later = self._round, event.round, event.later
        if self._look is None or event.round in {before, *range(LOOKS[0] + 1)}:
            return
        lives = self._console.is_interactive
        if not lives and (self._ranking is not None or not self._at_most):
            return
        self._doing = "ranking"
        self._ranking = self._look(self._campaign) or self._ranking
        if self._ranking is not None and not lives:
            show(self._ranking, self._console)

    def _start(self, event: CampaignStarted) -> None:
        self._campaign = event.campaign
        self._runs, self._at_most = event.runs, event.at_most
        self._done = self._before = event.finished
        self._began = time.monotonic()
        planned = 0.0 if event.at_most else event.seconds_estimated
        self._seconds_per_run = planned / max(1, event.runs - event.finished)
        self._estimated_end = self._began + planned
        if event.finished:
            whole = self._of_all(event.finished, " of ")
            self._say(f"continuing: {whole} runs already measured")
        if event.at_most and event.seconds_estimated:
            times = (event.at_least_seconds, event.usual_seconds, event.seconds_estimated)
            self._say(f"measuring a race: {time_of_race(*times)}")
        elif event.seconds_estimated:
            left = counted(event.runs - event.finished, "run")
            self._say(f"measuring {left}, about {format_duration(event.seconds_estimated)}")

    def _finish(self, event: RunFinished) -> None:
        shown = self._seconds_left()
        self._done += 1
        self._is_running = False
        self._estimate(shown)
        where = self._of_all(self._done, "/")
        took = format_duration(event.seconds)
        if event.failure is None:
            self._say(f"[green]✓[/] {where} {escape(self._cell)} ({took})")
        else:
            first, *more = event.failure.splitlines()
            self._say(f"[red]✗[/] {where} {escape(self._cell)}: {escape(first)}")
            if more and more[0].startswith("hint: ") and more[0] != self._hint:
                self._hint = more[0]  # cells that fail alike have one way out
                self._say(escape(more[0]))

    def _of_all(self, done: int, between: str) -> str:
        """`3/12`; only `3` in a search, whose number of runs is unknown."""
        return f"{done}" if self._at_most else f"{done}{between}{self._runs}"

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)

    def _screen(self) -> RenderableType:
        """The ranking, as much of it as the terminal has lines for now, and what is being done."""
        width, height = self._console.size
        parts = [self._cell, self._doing, self._moving, self._time_left()]
        doing = Text(" · ".join(filter(None, parts)), overflow="fold")
        if self._ranking is not None and self._laid[:2] != (self._ranking, width):
            self._laid = (self._ranking, width, lines_of(self._ranking, width))
        lines = self._laid[2]
        room = height - 1 - len(doing.wrap(self._console, width))
        if len(lines) > room:
            hidden = len(lines) - room + 1
            rest = f"… {counted(hidden, 'more line')}: {self._whole}"
            lines = [*lines[: room - 1], Text(rest)] if room >= _FEWEST_LINES else []
        if not lines:
            return doing
        return Group(Text("\n", no_wrap=True, overflow="ellipsis").join(lines), doing)

    def _time_left(self) -> str:
        """The remaining time, of a race that of its round; empty if nobody knows, or if the last
        run takes longer than was estimated."""
        seconds = self._seconds_left()
        where = " in this round" if self._at_most else ""
        return f"about {format_duration(seconds)} left{where}" if seconds >= 1 else ""

    def _seconds_left(self) -> float:
        """Until the estimated end; at least what the runs take that have not begun."""
        later = self._runs_left() - self._is_running
        return max(self._estimated_end - time.monotonic(), self._seconds_per_run * later)

    def _runs_left(self) -> int:
        """With the one that runs."""
        return self._later + self._is_running if self._at_most else self._runs - self._done

    def _estimate(self, shown: float) -> None:
        """Estimates the end anew, from the finished runs if they are enough.

        A time that is a little longer than the `shown` one keeps this one, so that it does not
        count up; one that is much longer is shown: the estimate was wrong.
        """
        now, measured, left = time.monotonic(), self._done - self._before, self._runs_left()
        if measured >= (1 if self._at_most else _RUNS_FOR_PACE):
            self._seconds_per_run = (now - self._began) / measured
        if not left:
            return
        seconds = self._seconds_per_run * left
        if shown < seconds <= _SHOWN_GROWTH * shown:
            seconds, self._seconds_per_run = shown, shown / left
        self._estimated_end = now + seconds


def print_dropped(console: Console, dropped: Iterable[Dropped]) -> None:
    """Lists the paths that are not measured, each with its reason."""
    for drop in dropped:
        console.print(dropped_line(drop), soft_wrap=True)


def _line(event: Note | DurablePaths | PathDropped | PlanWarning) -> Text:
    match event:
        case PathDropped():
            return dropped_line(event)
        case PlanWarning():
            return warning_line(_in_full(event.text))
        case DurablePaths():
            return _note(basis(event.tested, event.paths))
        case Note():
            return _note(_in_full(event.text))


def _in_full(text: str) -> str:
    """The text with its commands as this user types them."""
    named = Named()
    return named.caller.same_command(named.in_text(text))


def _note(sentence: str) -> Text:
    return Text.assemble(("note:", "yellow"), f" {as_typed(sentence)}")


def dropped_line(dropped: Dropped | PathDropped) -> Text:
    """The line about a path that is not measured."""
    line = f"dropped {dropped.path}: {dropped.reason}; {dropped.instead}"
    return Text(as_typed(sanitise(line)), style="yellow")


def warning_line(sentence: str) -> Text:
    """The line of a plan warning."""
    return Text(as_typed(f"warning: {sentence}"), style="yellow")
