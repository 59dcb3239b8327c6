"""The answer of `rank` in words and columns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from vdisklab import numbers
from vdisklab.analysis.diagnostics import ranked
from vdisklab.analysis.diagnostics.baseline import NoBaseline
from vdisklab.analysis.diagnostics.caveats import Emulated, InEmulatedHost, InLab
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic, grouped_sentences
from vdisklab.analysis.diagnostics.recorded import FromPageCache, OpenLoad, SeveralGuests
from vdisklab.analysis.fleet.agreement import Agreement
from vdisklab.analysis.fleet.host_ranks import MIN_HOSTS
from vdisklab.analysis.measure_words import is_burst_of_writes
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.rank_intervals import Ranked
from vdisklab.analysis.score import MEAN, Role, Score, Weighted
from vdisklab.analysis.summary import Summary
from vdisklab.answers.choice import nothing_shown
from vdisklab.answers.measured_for import (
    cache_memory_of,
    measured_operations,
    seconds_of_measurements,
)
from vdisklab.answers.rank import RankAnswer, RankedCell
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Better
from vdisklab.units import counted, in_percent, named, runtime_text
from vdisklab.value import replace
from vdisklab.views import wording
from vdisklab.views.choice import headline, verdict_lines
from vdisklab.views.durability import disk_note, hosts_note, losses, power_cut_text
from vdisklab.views.hosts import apart_sentences, first_lines, hosts_sentences, look_first
from vdisklab.views.layout import NAMES, Column, Row, Table
from vdisklab.views.run import race_rule

_RAM = (
    "RAM: less than half of the bytes read (r) or written (w) reached the device; the number "
    "shows the host's page cache."
)
_APART = (
    "Rows without a rank are shown for comparison: the host's own speed, a warm page cache, which "
    "shows the host's memory, and paths that lose flushed data (--unsafe ranks them, too)."
)
_HOSTS = (
    "Hosts are the replications: ranks and intervals hold for the mean host, with a family-wise "
    "error of 5 % for the ranks."
)
_TITLES = {
    Score.READ.key: "read",
    Score.WRITE.key: "write",
    MEAN: "ratio",
    **{score.key: f"Salter's {score.name.lower()}" for score in Weighted},
}
_ROLE_TITLES = {
    Role.SEQUENTIAL_READ: "seq. read",
    Role.RANDOM_READ: "4k read",
    Role.SEQUENTIAL_WRITE: "seq. write",
    Role.RANDOM_WRITE: "4k write",
}
_NOT_AMONG_NOTES = (Emulated, InEmulatedHost, InLab, FromPageCache, ranked.FailedCell)
"""Said in the title, in a column, or last."""

BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"


_ROUNDS: Column[RankedCell] = Column("n", lambda row: str(row.place.rounds), right=True, spare=5)


def tables(answer: RankAnswer, *, headed: bool = True) -> Iterator[Table[RankedCell]]:
    """One row per cell, best first; cells without a rank come last.

    Unless `headed`, the verdict is left out.
    """
    base, over_hosts, key = answer.baseline, answer.hosts is not None, answer.ranking.measure
    cached = any(row.from_page_cache for row in answer.cells)
    measured: tuple[Column[RankedCell], ...] = (
        Column("path", lambda row: row.cell.name, folds=NAMES),
        Column(
            "page\ncache",
            lambda row: row.cell.known_page_cache or numbers.MISSING,
            spare=0 if _tells_cells_apart(answer) else 5,
            phone=True,
        ),
        *(column for key in _shown(answer) for column in _medians(answer, key)),
    )
    compared: tuple[Column[RankedCell], ...] = (
        Column("path", lambda row: row.cell.label, folds=NAMES),
    )
    columns: tuple[Column[RankedCell], ...] = (
        Column("rank", rank_text, note="" if all(row.competes for row in answer.cells) else _APART),
        *(compared if over_hosts else measured),
        Column(
            "vs\nbase",
            lambda row: "base" if row.cell == base else numbers.ratio(row.ratio.ratio),
            right=True,
            spare=int(not over_hosts and key in _shown(answer)),  # else this column decides
            phone=True,
        ),
        Column(
            "vs base\n95 %",
            lambda row: (
                "" if row.cell == base else numbers.ratio_interval(row.ratio.low, row.ratio.high)
            ),
            right=True,
            # Of the score it stays before the numbers that the score is made of.
            spare=2 if over_hosts else 1 + 4 * (key in _shown(answer)),
        ),
        *(_HOST_COLUMNS if over_hosts else ()),
        Column(
            "RAM",
            lambda row: "".join(way[0] for way in row.from_page_cache),
            spare=3 if over_hosts else 1 - cached,
            note=_RAM if cached else "",
        ),
        Column(
            "power cut",
            lambda row: power_cut_text(row.cell, row.power_cut),
            spare=3 if over_hosts else 4,
        ),
        *(() if over_hosts else (_ROUNDS,)),
    )
    yield _headed(answer, columns, answer.cells, headed=headed)


def provisional(answer: RankAnswer) -> Table[RankedCell]:
    """Rank, path and the deciding number of each cell below the verdict, without notes: a look
    before the end."""
    (whole,) = tables(answer)
    tells_nothing = ", which tell nothing yet" if _tells_nothing(answer) else ""
    return Table(
        f"PROVISIONAL, after {counted(answer.rounds, 'round')}{tells_nothing}:",
        (
            Column("rank", rank_text),
            Column("path", lambda row: row.cell.label, folds=NAMES),
            *_medians(answer, answer.ranking.measure),
        ),
        answer.cells,
        intro=(whole.title,),
    )


def _tells_nothing(answer: RankAnswer) -> bool:
    """True if the number of every cell that is ranked by a ratio may be any other cell's."""
    key = answer.ranking.measure
    found = [row.shown(key) for row in answer.cells if row.competes]
    ends = [(each.low, each.high) for each in found if each is not None]
    return (
        _scale(answer, key) == numbers.RATIO
        and bool(ends)
        and all(
            low is not None and high is not None and numbers.is_too_wide(low, high)
            for low, high in ends
        )
    )


def _agreement(row: RankedCell, shown: Callable[[Agreement], str]) -> str:
    pair = None if row.hosts is None else row.hosts.agreement
    return numbers.MISSING if pair is None else shown(pair)


_HOST_COLUMNS: tuple[Column[RankedCell], ...] = (
    Column(
        "on another\nhost",
        lambda row: _agreement(
            row, lambda pair: numbers.ratio_interval(pair.next_low, pair.next_high)
        ),
        right=True,
        spare=2,
        note="On another host: what one more host of this fleet would measure.",
    ),
    Column(
        "beats\nbase on",
        lambda row: _agreement(row, lambda pair: f"{pair.a_better_on} of {len(pair.hosts)}"),
        right=True,
    ),
    Column("best\non", lambda row: str(row.hosts.best_on if row.hosts else 0), right=True, spare=1),
)


def bars(answer: RankAnswer) -> Iterator[Table[RankedCell]]:
    """The ranked measure as bars from zero, best first, with the interval as numbers."""
    key = answer.ranking.measure
    rows = [row for row in answer.cells if row.shown(key) is not None]
    longest = max((_shown_number(row, key) for row in rows), default=0.0)
    scale = _scale(answer, key)
    numbers_shown: tuple[Column[RankedCell], ...] = summary_columns(
        "", scale, lambda row: row.shown(key), (0, 0)
    )
    columns: tuple[Column[RankedCell], ...] = (
        Column("rank", rank_text),
        Column("cell", lambda row: row.cell.label, folds=NAMES),
        Column(
            "",
            lambda row: _bar(_shown_number(row, key), longest),
            fit=lambda row, width: _bar(_shown_number(row, key), longest, width),
        ),
        *numbers_shown,
    )
    yield _headed(answer, columns, rows)


def _shown_number(row: RankedCell, key: MeasureKey) -> float:
    shown = row.shown(key)
    return 0.0 if shown is None else shown.median


def rank_text(row: RankedCell) -> str:
    """`1`, `2–4` for a tie, or a dash for a row without a rank."""
    place = row.place
    return numbers.place(place.best, place.worst) if isinstance(place, Ranked) else numbers.MISSING


def summary_columns(
    title: str,
    scale: numbers.Scale,
    summary_of: Callable[[Row], Summary | None],
    spare: tuple[int, int],
    *,
    of: str = "",
    phone: bool | None = None,
) -> tuple[Column[Row], Column[Row]]:
    """A column of medians, `of` so long a time if any is given, and one of their intervals."""

    def interval(row: Row) -> str:
        summary = summary_of(row)
        if summary is None:
            return numbers.MISSING
        return numbers.interval(scale, summary.low, summary.high)

    def median(row: Row) -> str:
        summary = summary_of(row)
        return scale.value(None if summary is None else summary.median)

    return (
        Column(
            "\n".join(filter(None, (title, of, scale.suffix.strip()))),
            median,
            right=True,
            spare=spare[0],
            phone=phone,
        ),
        Column(f"{title}\n95 %".strip(), interval, right=True, spare=spare[1]),
    )


def _headed(
    answer: RankAnswer,
    columns: Sequence[Column[RankedCell]],
    rows: Sequence[RankedCell],
    *,
    headed: bool = True,
) -> Table[RankedCell]:
    """The table below the verdict."""
    choice, title, over = answer.choice, _title(answer), answer.hosts
    ordered = next(filter(measured_operations, answer.campaigns), None)
    if headed and ordered is not None:
        said = (
            f"The campaign {ordered.id} measured what operations cost a guest, not how fast a path "
            f"is: `vdisklab during --campaign {ordered.id}` shows it."
        )
        notes = tuple(_notes(answer, ()))
        intro = (f"{title}.", *_around(answer))
        return Table(said, columns, rows, notes, intro=intro, kind=RankedCell)
    first: tuple[str, ...] = ()
    if over is not None:
        agreeing = (sentence for _, sentence in first_lines(over, answer.ranking))
        first = (*map(str, _of_scores(answer)), *agreeing)
    why = _why_no_choice(answer) if headed and choice is None else None
    if why is not None:
        caveats = answer.caveats
        if isinstance(why, ranked.TooFewRounds) and why.now:  # the first sentence says it
            caveats = replace(caveats, measured_now=None)
        around = _around(replace(answer, caveats=caveats))
        why_not, intro = _without_choice(why), (f"{title}.", *around, *first)
        notes = tuple(note for note in _notes(answer, ()) if note != str(why))
        return Table(why_not, columns, rows, notes, intro=intro, kind=RankedCell)
    if choice is None or not headed:
        intro = (*_around(answer), *first)
        follows = None if headed else str(_why_no_choice(answer))  # as the verdict below
        notes = tuple(note for note in _notes(answer, ()) if note != follows)
        return Table(title, columns, rows, notes, intro=intro, kind=RankedCell)
    power_cuts = {row.cell: row.power_cut for row in (*answer.cells, *answer.more)}
    intro = (
        *(sentence for _, sentence in verdict_lines(choice, power_cuts, look_first(over))),
        f"{title}.",
        *_around(answer),
        *first,
    )
    notes = tuple(_notes(answer, (choice.cell, *choice.ties)))
    first_sentence = answer.caveats.scoped(f"{headline(choice)}.")
    return Table(first_sentence, columns, rows, notes, intro=intro, kind=RankedCell)


def _around(answer: RankAnswer) -> tuple[str, ...]:
    """What to know of these numbers: how they would mean more, and that the host has changed."""
    changed = None
    if answer.over_time is not None:
        # Imported late, as the answer to `trend` is: most databases hold one campaign.
        from vdisklab.answers.trend import TrendAnswer  # noqa: PLC0415
        from vdisklab.views.trend import changed_sentence  # noqa: PLC0415

        if isinstance(answer.over_time, TrendAnswer):
            changed = changed_sentence(answer.over_time, answer.campaigns)
    return (*answer.caveats.remedies, *filter(None, [changed]))


def _without_choice(why: Diagnostic | str) -> str:
    """The first sentence of an answer that names no path."""
    if not isinstance(why, ranked.TooFewRounds) or not 0 < why.have < why.want:
        return f"No path to use yet: {why}"
    said = nothing_shown(why.have)
    on = "" if why.on is None else f" on {why.on}"
    continues = f"`{why.command}` continues{on}"
    if why.now is not None:
        continues = f"{why.now}; ask again later"
    elif why.command is None:
        continues = why.without_command
    return f"{said[0].upper()}{said[1:]}: {continues}."


def _why_no_choice(answer: RankAnswer) -> Diagnostic | str | None:
    """What keeps the answer from naming a path; None if nothing is known of it."""
    if answer.hosts is not None and answer.lacks_hosts:
        hosts, groups = len(answer.hosts.hosts), answer.hosts.groups
        if hosts < MIN_HOSTS:
            return f"a rank over hosts needs {MIN_HOSTS} of them, and {hosts} have results."
        return (
            f"a rank over hosts needs {MIN_HOSTS} that share no rack or array, and these hosts are "
            f"{counted(groups, 'group')}."
        )
    paths = [row.cell.path for row in (*answer.cells, *answer.more)]
    if paths and all(path is not None and path.on_host for path in paths):
        return "no path that a guest could use was measured."
    kinds = (
        ranked.TooFewRounds, ranked.LacksMeasure, ranked.NothingToCompare, SeveralGuests, OpenLoad,
    )  # fmt: skip
    return next(
        (
            finding
            for finding in answer.findings
            if isinstance(finding, kinds)
            and not (isinstance(finding, SeveralGuests) and finding.fewest)
        ),
        None,
    )


def _shown(answer: RankAnswer) -> list[MeasureKey]:
    """The measures with a column. A score stands in `vs base` beside those that it is made of."""
    shown = list(dict.fromkeys(key for row in answer.cells for key in row.medians))
    scores = {score.key for score in Score} if len(shown) > 1 else set()
    return [key for key in shown if key not in scores]


def _tells_cells_apart(answer: RankAnswer) -> bool:
    """True if rows differ in the page cache alone, or one shows the host's memory for it."""
    rows = (*answer.cells, *answer.more)
    names = {row.cell.name for row in rows}
    return len(names) < len(rows) or any(row.cell.page_cache is PageCache.WARM for row in rows)


def _medians(answer: RankAnswer, key: MeasureKey) -> tuple[Column[RankedCell], ...]:
    spare = 0 if key == answer.ranking.measure else 4
    roles = {} if answer.roles is None else answer.roles.measures
    named = {measure: _ROLE_TITLES[role] for role, measure in roles.items()}
    title = {**_TITLES, **named}.get(key, key.metric)
    # Where columns must go, those of random I/O stay longest.
    value, interval = spare, spare
    if key in named:
        value, interval = (3 if named[key].startswith("seq") else 2), 6
    phone = None if key not in named else False  # a score's number is `vs base`
    # What half a second shows, a minute may not: it has another name.
    seconds = None if key.name == "score" else seconds_of_measurements(answer.campaigns)
    burst = "burst " if key in named and is_burst_of_writes(key) else ""
    return summary_columns(
        title,
        _scale(answer, key),
        lambda row: row.shown(key),
        (value, interval),
        of=f"{burst}{'' if seconds is None else runtime_text(seconds)}".strip(),
        phone=phone,
    )


def _scale(answer: RankAnswer, key: MeasureKey) -> numbers.Scale:
    """One scale for a column: that of its median cell."""
    shown = [summary.median for row in answer.cells if (summary := row.shown(key)) is not None]
    return numbers.scale(statistics.median_low(shown) if shown else None, key.quantity.shown_unit)


def _bar(value: float, longest: float, width: int = BAR_WIDTH) -> str:
    """A bar whose length is the value's share of the longest, to an eighth of a character."""
    eighths = round(width * 8 * value / longest) if longest > 0 else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _cells(answer: RankAnswer) -> int:
    return len(answer.ranking.rows) + len(answer.ranking.unranked)


def of_campaigns(answer: RankAnswer) -> str:
    """`campaign 3f2a (ext4 and xfs)`: what an answer is from."""
    named_campaigns = [
        f"{campaign.id} ({campaign.label})" if campaign.label else campaign.id
        for campaign in answer.campaigns
    ]
    several = "s" if len(named_campaigns) > 1 else ""
    return f"campaign{several} {named(named_campaigns, 2)}"


def _of_scores(answer: RankAnswer) -> list[Diagnostic]:
    """Why there are no scores."""
    return [finding for finding in answer.findings if isinstance(finding, NoBaseline)]


def _title(answer: RankAnswer) -> str:
    warning = f", {answer.caveats.warning}" if answer.caveats.warning else ""
    if answer.hosts is not None:
        measure = wording.measure_name(answer.ranking.measure)
        hosts = counted(len(answer.hosts.hosts), "host")
        return f"{hosts} by {measure}; baseline {answer.baseline}{warning}"
    cells = _cells(answer)
    size = f"{counted(cells, 'cell') if cells else 'no cell'} in {counted(answer.rounds, 'round')}"
    of = of_campaigns(answer)
    by = answer.ranking.measure
    # Without --metric its column has medians, and another number would have the same name.
    of_rounds = "geometric means of rounds"
    column = "vs base" if by not in _shown(answer) else "" if by.name == "score" else of_rounds
    wins = f"{'more' if by.quantity.better is Better.HIGHER else 'less'} is better"
    how = f" ({', '.join(filter(None, (column, wins)))})"
    name = f"{wording.measure_name(by)}{how}{_measured_for(answer)}"
    return f"Ranking by {name}: {size} of {of}{warning}"


def _measured_for(answer: RankAnswer) -> str:
    """`, each measurement of 0.5 s`, without it if programs ended when they were done; and the
    memory that pages of a disk had, if it was bounded."""
    seconds = seconds_of_measurements(answer.campaigns)
    memory = cache_memory_of(answer.campaigns)
    of = "" if seconds is None else f", each measurement of {runtime_text(seconds)}"
    return of if memory is None else f"{of}, page cache of {memory}"


def _losses(answer: RankAnswer, cells: Sequence[MeasuredCell]) -> tuple[str, ...]:
    """Which of these cells lose flushed data in a power cut."""
    return losses({row.cell: row.power_cut for row in answer.cells}, cells)


def _notes(answer: RankAnswer, said: tuple[MeasuredCell, ...]) -> Iterator[str]:
    """The notes. The verdict has already told what the cells in `said` lose."""
    ranking, over = answer.ranking, answer.hosts
    hidden = _cells(answer) - len(answer.cells)
    if over is not None:
        yield from apart_sentences(over, answer.baseline)
    else:
        yield from _corrected(answer)
    if hidden:
        yield f"{counted(hidden, 'more cell')} without --top."
    failed = [finding for finding in answer.findings if isinstance(finding, ranked.FailedCell)]
    yield from (f"Failed: {sentence}" for sentence in grouped_sentences(failed))
    shown = (row.cell for row in answer.cells if row.cell not in said)
    yield from _losses(answer, tuple(shown))
    if over is not None:
        yield from hosts_note(row.power_cut for row in answer.cells)
        yield from hosts_sentences(over)
    yield from grouped_sentences(
        finding
        for finding in answer.findings
        if not isinstance(finding, _NOT_AMONG_NOTES)
        # A missing baseline stands above the table.
        if not (over is not None and isinstance(finding, NoBaseline))
    )
    yield from filter(None, [_reach(answer)])
    if over is not None:
        yield _HOSTS
    elif ranking.rows:
        yield (
            f"A rank such as 1–3 is a tie: {ranking.separated} of {ranking.comparisons} pairs "
            f"differ, at {in_percent(ranking.alpha)} family-wise error. {wording.OTHER_VERB}"
        )
        yield from wording.less_certain(
            [
                (row.cell, row.place)
                for row in answer.cells
                if isinstance(row.place, Ranked) and answer.race is None  # by its own rule
            ]
        )
        yield from wording.ends_at_one(
            (row.ratio.low, row.ratio.high) for row in answer.cells if row.cell != answer.baseline
        )
    if ranking.measure.quantity.step is not None:
        yield wording.WITH_STEP
    is_salters = ranking.measure in {score.key for score in Weighted}
    if answer.roles is not None and is_salters and ranking.rows:
        yield (
            f"Scores are Jim Salter's, {answer.roles.title} ({answer.roles.name}), "
            f"weighted by the baseline {answer.baseline}. "
            "They count writes as fast as the program saw them, with bursts into a cache."
        )
    if answer.rates:
        seconds = seconds_of_measurements(answer.campaigns)
        yield wording.mean_sentence(answer.rates, answer.baseline, seconds)
        yield "The columns of these rates are medians of rounds; with --metric, geometric means."
    yield from disk_note(answer.host_disk)


def _reach(answer: RankAnswer) -> str | None:
    """What these rounds can show; after a race, by the race's rule and not by the ranking's."""
    if answer.race is not None:
        return race_rule(answer.race)
    return None if answer.ranking.best is None else wording.reach_sentence(answer.ranking.best)


def _corrected(answer: RankAnswer) -> Iterator[str]:
    """That a path with fewer rounds has not the mean of its own rounds, and how many it has."""
    places = [(row.cell, row.place) for row in answer.cells if isinstance(row.place, Ranked)]
    most = max((place.rounds for _, place in places), default=0)
    fewer = [(cell.label, place.rounds) for cell, place in places if place.rounds < most]
    if fewer:
        have = named([f"{label} has {rounds}" for label, rounds in fewer])
        number = "its number is" if len(fewer) == 1 else "such numbers are"
        yield (
            f"Of {most} rounds {have}: {number} corrected for the other rounds. `compare` shows "
            "the ratio in the rounds that both paths have."
        )
