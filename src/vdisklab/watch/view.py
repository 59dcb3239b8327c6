"""The live page: the words and tables of other verbs, as parts that are replaced one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from vdisklab import __version__
from vdisklab.answers.density import PathCapacity
from vdisklab.answers.figures import campaign_names, ranked_bars, trend_curves
from vdisklab.answers.rank import RankAnswer
from vdisklab.answers.trend import TrendAnswer
from vdisklab.path.named_target import as_typed
from vdisklab.progress import Running
from vdisklab.units import counted, format_duration, format_throughput
from vdisklab.views import density, powercut, rank, runs, table, trend
from vdisklab.views.charts.rows import page_rows
from vdisklab.views.choice import (
    MOST_CHARACTERS,
    headline,
    keeps_what_is_there,
    short_headline,
    verdict_lines,
)
from vdisklab.views.layout import Table
from vdisklab.views.page.html import page_templates
from vdisklab.views.wording import measure_name
from vdisklab.watch.answer import PROVISIONAL_FROM, TimeLeft, WatchAnswer, WatchedCampaign

PARTS = ("head", "now", "ranking", "failed", "trend", "hosts", "crashes", "past")
_BELOW = PARTS[2:]
_MOST_BARS = 12
_SO_FAR = "So far: "
_MOST_CAMPAIGNS = 50


def live_parts(answer: WatchAnswer, problem: str) -> dict[str, str]:
    """The page's parts as HTML, by name; a part without anything to show is empty.

    `problem` is why the database cannot be read now.
    """
    several = len(answer.watched) > 1
    past = next(runs.campaign_tables(answer.past))
    values = {
        "question": _question(answer),
        "headline": _headline(answer),
        "problems": [
            *filter(None, (problem, *map(_elsewhere, answer.elsewhere))),
            *dict.fromkeys(note for watched in answer.watched for note in _caveats(watched)),
        ],
        "now": list(map(_now, answer.watched)),
        "ranked": [
            part
            | ({"title": f"{part['title']} of campaign {watched.campaign.id}"} if several else {})
            for watched in answer.watched
            for part in _ranking(watched)
        ],
        "failed": [line for watched in answer.watched for line in watched.failed],
        "trends": [
            _trend(watched.trend, runs=watched.running is not None)
            for watched in answer.watched
            if watched.trend is not None
        ],
        "past": Table("", past.columns, past.rows[:_MOST_CAMPAIGNS]),
        "left_out": f"`vdisklab runs` lists all {len(past.rows)}."
        if len(past.rows) > _MOST_CAMPAIGNS
        else "",
    }
    hosts = ("Hosts", Table("", past.columns, answer.hosts))
    crashes = ("Power cuts", next(powercut.tables(answer.crashes)))
    template = page_templates().get_template("parts.html")
    parts = {}
    for name in PARTS:
        title, shown = {"hosts": hosts, "crashes": crashes}.get(name, ("", None))
        html = template.render(part=name, title=title, table=shown, **values)
        parts[name] = html.strip()
    return parts


def live_page(parts: Mapping[str, str], moving: Mapping[str, Any]) -> str:
    """The whole page, with all that is known when it is opened."""
    html = {name: Markup(text) for name, text in parts.items()}  # noqa: S704 - escaped
    data = json.dumps(moving, allow_nan=False)
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return (
        page_templates()
        .get_template("live.html")
        .render(
            parts=html,
            order=_BELOW,
            version=__version__,
            moving=Markup(data),  # noqa: S704 - escaped
        )
    )


def moving_line(answer: WatchAnswer) -> dict[str, Any]:
    """What the page's script needs: whether a campaign runs, its report, its moving line."""
    first = answer.watched[0] if answer.watched else None
    running = None if first is None else first.running
    line = None
    if running is not None and running.cell and running.moving:
        now = running.moving[-1]
        moves = "nothing yet"
        if now.bytes_per_second is not None:
            moves = format_throughput(now.bytes_per_second, now.operations_per_second)
        line = {
            "times": [round(each.moment - now.moment, 1) for each in running.moving],
            "values": [
                None if each.bytes_per_second is None else round(each.bytes_per_second)
                for each in running.moving
            ],
            "caption": f"{as_typed(running.cell)}, {running.doing}: {moves}. "
            "Shaded: no byte moved.",
        }
    report = f"/campaign/{first.campaign.id}" if first is not None and first.runs else None
    return {"running": running is not None, "report": report, "moving": line}


def _elsewhere(running: Running) -> str:
    return (
        f"Process {running.process} measures campaign {running.campaign}, which is not in this "
        "database: it was deleted, or another --db has it."
    )


def _caveats(watched: WatchedCampaign) -> tuple[str, ...]:
    """Why the campaign's numbers do not measure this machine, and what to do about that."""
    if watched.density is not None:
        return watched.density.caveats.with_remedy
    return () if watched.shown is None else watched.shown.caveats.with_remedy


def _question(answer: WatchAnswer) -> str:
    if not answer.watched:
        return "Nothing has been measured yet"
    host = answer.watched[0].campaign.host.hostname
    return f"Which disk should a guest have on {host}?"


def _headline(answer: WatchAnswer) -> str:
    if not answer.watched:
        return "Waiting for a campaign"
    first = answer.watched[0]
    if first.density is not None:
        text = density.density_headline(first.density)
    elif isinstance(first.shown, RankAnswer) and first.shown.choice is not None:
        text = short_headline(first.shown.choice, MOST_CHARACTERS - len(_SO_FAR))
    else:
        text = "No answer yet"
    is_partial = first.running is not None and text != "No answer yet"
    return f"{_SO_FAR}{text}" if is_partial else text


def _now(watched: WatchedCampaign) -> dict[str, Any]:
    running, name = watched.running, f"{watched.campaign.id} {watched.campaign.label}".strip()
    share = None
    if running is not None and running.runs and not running.at_most:
        share = watched.runs / running.runs
    of = "" if running is None or running.at_most else f" of {running.runs}"
    return {
        "title": f"Campaign {name}" + (" is being measured" if running else ""),
        "share": share,
        "done": f"{watched.runs}{of} runs",
        "lines": list(_lines(watched, of)),
        "report": watched.campaign.id if watched.rounds else "",
        "path": _path_to_use(watched),
        "configurations": watched.configurations,
    }


def _lines(watched: WatchedCampaign, of: str) -> Iterator[tuple[str, str]]:
    running = watched.running
    if running is not None:
        yield "Now", _doing(running)
    yield "Measured", f"{watched.runs}{of} runs in {counted(watched.rounds, 'round')}."
    if watched.left is not None:
        yield "Left", _left(watched.left)
    elif running is not None:
        yield "Left", "A search decides after each round how many runs remain."
    if watched.more_rounds is not None and running is not None:
        yield "Enough", _enough(watched.more_rounds)
    if isinstance(watched.shown, RankAnswer) and watched.shown.choice is not None:
        power_cuts = {row.cell: row.power_cut for row in watched.shown.cells}
        yield from verdict_lines(watched.shown.choice, power_cuts)
    yield "Next", _next(watched)
    if running is None:
        yield "Begun", f"{watched.campaign.started:%Y-%m-%d %H:%M} UTC; nothing measures it now."


def _path_to_use(watched: WatchedCampaign) -> str:
    """The path that the ranking says to use; empty without one."""
    shown = watched.shown
    return shown.choice.cell.name if isinstance(shown, RankAnswer) and shown.choice else ""


def _next(watched: WatchedCampaign) -> str:
    """What to do now."""
    if watched.running is not None:
        return "Leave it running: the answer may still change."
    if watched.configurations:
        choice = watched.shown.choice if isinstance(watched.shown, RankAnswer) else None
        path = _path_to_use(watched)
        where = f"`vdisklab export {path}` prints it for other platforms."
        if choice is not None and keeps_what_is_there(choice):
            return f"{headline(choice)}. The configuration below is {path} for a new guest; {where}"
        return f"Paste the configuration below. {where}"
    if not watched.runs:
        return f"Measure it: `vdisklab run --again {watched.campaign.id}`."
    return f"See all numbers: `vdisklab table --campaign {watched.campaign.id}`."


def _doing(running: Running) -> str:
    if not running.cell:
        return f"{running.doing or 'Between two cells'}."
    of = "" if running.rounds is None else f" of {running.rounds}"
    place = f"round {running.round}{of}, cell {running.position} of {running.cells}"
    what = f"; {running.doing}" if running.doing else ""
    takes = f" (takes {format_duration(running.seconds)})" if running.seconds else ""
    return f"{running.cell}, {place}{what}{takes}."


def _left(left: TimeLeft) -> str:
    text = f"About {format_duration(max(left.seconds, 1.0))}"
    if left.low is None or left.high is None:
        return f"{text}, an estimate before {PROVISIONAL_FROM} runs."
    low, high = format_duration(max(left.low, 1.0)), format_duration(max(left.high, 1.0))
    return f"{text} (95 %: {low} to {high})."


def _enough(more: int) -> str:
    if not more:
        return "The path is shown to be good enough."
    return f"About {counted(more, 'more round')} would settle it."


def _ranking(watched: WatchedCampaign) -> Iterator[dict[str, Any]]:
    """The campaign's table; a ranking is provisional until the campaign ends."""
    provisional = " (provisional)" if watched.running is not None else ""
    title = "Ranking" if isinstance(watched.shown, RankAnswer) else "Numbers"
    part: dict[str, Any] = {"title": f"{title}{provisional}", "lines": [], "rows": [], "alt": ""}
    part["parts"] = ()  # of a bar; these have none
    if watched.density is not None:
        steps = [_staircase(path) for path in watched.density.paths if path.steps]
        tables = list(density.tables(watched.density))
        yield {**part, "title": f"Guests{provisional}", "tables": tables, "lines": steps}
        return
    if watched.shown is None:
        yield {**part, "title": "No numbers yet", "lines": [watched.why_none], "tables": []}
        return
    if not isinstance(watched.shown, RankAnswer):
        yield {**part, "tables": list(table.tables(watched.shown))}
        return
    early = watched.rounds < PROVISIONAL_FROM
    if early:
        part["title"] = f"Numbers{provisional}"
        part["lines"] = [
            f"{watched.rounds} of {PROVISIONAL_FROM} rounds that a ranking needs; the intervals "
            "will be there then."
        ]
    bars, unit = ranked_bars(watched.shown, _MOST_BARS)
    measure = measure_name(watched.shown.ranking.measure)
    yield {
        **part,
        "rows": page_rows(bars, unit, shared=True) if bars else [],
        "alt": f"{measure}: " + "; ".join(bar.label for bar in bars),
        "tables": list(rank.tables(watched.shown)),
    }


def _trend(answer: TrendAnswer, *, runs: bool) -> dict[str, Any]:
    """The levels campaign by campaign, for the page's script to draw, and what they show."""
    found, names = trend_curves(answer), campaign_names(answer)
    lines: dict[str, list[float | None]] = {}
    for point in found.points:
        levels = lines.setdefault(point.label, [None] * len(names))
        levels[names.index(point.level)] = float(f"{point.value:.4g}")
    return {
        "title": f"This host over time{' (provisional)' if runs else ''}",
        "alt": "Levels; first campaign = 1",
        "lines": list(trend.story(answer)),
        "curves": json.dumps({
            "data": [list(range(len(names))), *lines.values()],
            "lines": list(map(as_typed, lines)),
            "ticks": list(enumerate(names)),
        }),
    }  # fmt: skip


def _staircase(path: PathCapacity) -> str:
    """The numbers of guests that a search tried, in its order."""
    tried = ", ".join(f"{step.guests} {'✓' if step.passed else '✗'}" for step in path.steps)
    return f"{path.path}: {tried}"
