"""The ranking as a table and as a document."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from vdisklab import numbers
from vdisklab.analysis.diagnostics.caveats import Emulated, InEmulatedHost, InLab
from vdisklab.analysis.diagnostics.diagnostic import grouped_sentences
from vdisklab.analysis.diagnostics.recorded import FromPageCache
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.rank_intervals import Ranked, WithoutRank
from vdisklab.analysis.score import MEAN, Score
from vdisklab.analysis.summary import Summary
from vdisklab.answers.advice import RankingAnswer
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Direction
from vdisklab.units import counted
from vdisklab.views.documents.conversion import copy_fields, diagnostic_entries
from vdisklab.views.documents.rankings import BarRow, RankDocument, RankedCell
from vdisklab.views.layout import NAMES, Column, Row, Table
from vdisklab.views.power_cuts import (
    disk_note,
    keeping_of,
    loss_sentences,
    power_cut_fields,
    power_cut_of,
)
from vdisklab.views.wording import (
    OTHER_VERB,
    WITH_STEP,
    best_sentence,
    mean_sentence,
    measure_name,
    reach_sentence,
)

_RAM = (
    "RAM: less than half of the bytes read (r) or written (w) reached the device; the number is "
    "the host's page cache's."
)
_TITLES = {
    Score.READ.key: "read",
    Score.WRITE.key: "write",
    Score.OVERALL.key: "overall",
    MEAN: "ratio",
}


def ranking_table(answer: RankingAnswer) -> Table[RankedCell]:
    """One row per cell, best first; cells without a rank come last."""
    columns: tuple[Column[RankedCell], ...] = (
        Column("rank", lambda row: row.rank or numbers.MISSING),
        Column("path", lambda row: row.path, folds=NAMES),
        Column("page\ncache", lambda row: row.page_cache or numbers.MISSING),
        *(column for key in answer.summaries for column in _metric_columns(answer, key)),
        Column("vs\nbase", partial(_ratio_text, answer), right=True, spare=1),
        Column("vs base\n95 %", partial(_interval_text, answer), right=True, spare=2),
        Column("RAM", _cached_letters, spare=1, note=_RAM if answer.cached else ""),
        Column("power cut", lambda row: power_cut_of(_cell(row), answer.verdicts), spare=1),
        Column("n", lambda row: str(row.rounds), right=True, spare=1),
    )
    table = Table(_title(answer), columns, ranked_cells(answer), _notes(answer), kind=RankedCell)
    return _headed(answer, table)


def ranked_cells(answer: RankingAnswer) -> tuple[RankedCell, ...]:
    """The rows of a ranking, as JSON and CSV carry them."""
    cached = _cached_directions(answer.cached)
    rows = []
    places: tuple[Ranked | WithoutRank, ...] = (*answer.ranking.rows, *answer.ranking.unranked)
    for place in places:
        ranked = place if isinstance(place, Ranked) else None
        ratio = _ratio(answer, place.cell)
        directions = cached.get(place.cell, frozenset())
        rows.append(
            RankedCell(
                rank=None if ranked is None else numbers.place(ranked.best, ranked.worst),
                path=place.cell.name,
                page_cache=place.cell.known_page_cache,
                metrics=_metrics(answer, place.cell),
                ratio=ratio.ratio,
                ratio_low=ratio.low,
                ratio_high=ratio.high,
                from_page_cache=_CACHED[directions],
                keeping=keeping_of(place.cell, answer.verdicts),
                **power_cut_fields(answer.verdicts.get(place.cell.name)),
                rounds=place.rounds,
                rank_best=None if ranked is None else ranked.best,
                rank_worst=None if ranked is None else ranked.worst,
                unranked=None if isinstance(place, Ranked) else place.reason,
            )
        )
    return tuple(rows[: answer.top])


def ranking_document(answer: RankingAnswer) -> RankDocument:
    """The JSON form."""
    roles = answer.roles.measures if answer.roles else {}
    return copy_fields(
        RankDocument,
        answer,
        roles={role.value: str(key) for role, key in roles.items()},
        cells=ranked_cells(answer),
        findings=diagnostic_entries((*answer.findings, *answer.failed, *answer.cached)),
    )


BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def ranking_bars(answer: RankingAnswer) -> Table[BarRow]:
    """The ranked measure as bars from zero, best first, with the interval as numbers."""
    summaries = answer.summaries[answer.ranking.measure]
    ranked = {row.cell: numbers.place(row.best, row.worst) for row in answer.ranking.rows}
    cells = [cell for cell in (*ranked, *sorted(set(summaries) - set(ranked))) if cell in summaries]
    scale = _scale(answer, answer.ranking.measure)
    cells = cells[: answer.top]
    longest = max((summaries[cell].median for cell in cells), default=0.0)

    def interval(row: BarRow) -> str:
        summary = summaries[row.cell]
        return scale.interval(summary.low, summary.high)

    columns: tuple[Column[BarRow], ...] = (
        Column("rank", lambda row: row.rank or numbers.MISSING),
        Column("cell", lambda row: row.cell.label, folds=NAMES),
        Column("", lambda row: bar(row.value, longest)),
        Column(scale.suffix.strip(), lambda row: scale.value(row.value), right=True),
        Column("95 %\ninterval", interval, right=True),
    )
    rows = [
        BarRow(rank=ranked.get(cell), cell=cell, value=summaries[cell].median) for cell in cells
    ]
    return _headed(answer, Table(_title(answer), columns, rows, _notes(answer), kind=BarRow))


def bar(value: float, longest: float) -> str:
    """A bar whose length is the value's share of the longest, to an eighth of a character."""
    eighths = round(BAR_WIDTH * 8 * value / longest) if longest > 0 else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _metric_columns(answer: RankingAnswer, key: MeasureKey) -> Sequence[Column[RankedCell]]:
    scale = _scale(answer, key)
    spare = 0 if key == answer.ranking.measure else 2
    return summary_columns(
        f"{_TITLES.get(key, key.metric)}\n{scale.suffix.strip()}",
        scale,
        lambda row: answer.summaries[key].get(_cell(row)),
        spare=(spare, spare),
    )


def summary_columns(
    title: str,
    scale: numbers.Scale,
    summary_of: Callable[[Row], Summary | None],
    spare: tuple[int, int],
) -> Sequence[Column[Row]]:
    """A column of medians, and one of their intervals."""

    def interval(row: Row) -> str:
        summary = summary_of(row)
        return numbers.MISSING if summary is None else scale.interval(summary.low, summary.high)

    def median(row: Row) -> str:
        summary = summary_of(row)
        return scale.value(None if summary is None else summary.median)

    return (
        Column(title, median, right=True, spare=spare[0]),
        Column(f"{title.partition(chr(10))[0]}\n95 %", interval, right=True, spare=spare[1]),
    )


def _metrics(answer: RankingAnswer, cell: MeasuredCell) -> dict[str, float | str | None]:
    metrics: dict[str, float | str | None] = {}
    for key, summaries in answer.summaries.items():
        summary = summaries.get(cell)
        metrics |= {
            key.metric: None if summary is None else summary.median,
            f"{key.metric}_low": None if summary is None else summary.low,
            f"{key.metric}_high": None if summary is None else summary.high,
            f"{key.metric}_interval_method": None if summary is None else summary.method,
        }
    return metrics


def _ratio(answer: RankingAnswer, cell: MeasuredCell) -> Ratio:
    """The cell's ratio to the baseline; exactly 1, without an interval, for the baseline."""
    return answer.ratios.get(cell, Ratio(0)) if cell != answer.baseline else Ratio(0, 1.0)


def _cell(row: RankedCell) -> MeasuredCell:
    return MeasuredCell(row.path, row.page_cache or PageCache.BYPASSED)


def _is_baseline(answer: RankingAnswer, row: RankedCell) -> bool:
    return _cell(row) == answer.baseline


def _ratio_text(answer: RankingAnswer, row: RankedCell) -> str:
    return "base" if _is_baseline(answer, row) else numbers.ratio(row.ratio)


def _interval_text(answer: RankingAnswer, row: RankedCell) -> str:
    if _is_baseline(answer, row):
        return ""
    return numbers.ratio_interval(row.ratio_low, row.ratio_high)


def _scale(answer: RankingAnswer, key: MeasureKey) -> numbers.Scale:
    """One scale for a column: that of its median cell."""
    medians = [summary.median for summary in answer.summaries[key].values()]
    return numbers.scale(statistics.median_low(medians) if medians else None, key.quantity.unit)


_CACHED: Mapping[frozenset[Direction], Literal["read", "write", "read+write"] | None] = {
    frozenset(): None,
    frozenset({Direction.READ}): "read",
    frozenset({Direction.WRITE}): "write",
    frozenset({Direction.READ, Direction.WRITE}): "read+write",
}


def _cached_directions(
    findings: Iterable[FromPageCache],
) -> Mapping[MeasuredCell, frozenset[Direction]]:
    """For each cell the directions that came from the page cache."""
    directions: dict[MeasuredCell, frozenset[Direction]] = {}
    for finding in findings:
        if finding.direction in (Direction.READ, Direction.WRITE):
            known = directions.get(finding.cell, frozenset())
            directions[finding.cell] = known | {finding.direction}
    return directions


def _cached_letters(row: RankedCell) -> str:
    """`r`, `w` or `rw`."""
    return "".join(name[0] for name in (row.from_page_cache or "").split("+") if name)


def _title(answer: RankingAnswer) -> str:
    cells = len(answer.ranking.rows) + len(answer.ranking.unranked)
    name = measure_name(answer.ranking.measure)
    size = f"{counted(cells, 'cell') if cells else 'no cell'} in {counted(answer.rounds, 'round')}"
    warning = answer.caveats.warning
    return f"Ranking by {name}: {size}" + (f", {warning}" if warning else "")


def _headed(answer: RankingAnswer, table: Table[Any]) -> Table[Any]:
    """The table below the answer to "which is the best"."""
    best = answer.ranking.best
    if best is None:
        return table
    losses = loss_sentences(best.cells, answer.verdicts)
    return replace(table, title=" ".join((best_sentence(best), *losses)), intro=(table.title,))


_IN_TITLE = Emulated | InEmulatedHost | InLab


def _notes(answer: RankingAnswer) -> tuple[str, ...]:
    notes = [
        *_more(answer),
        *grouped_sentences(
            diagnostic for diagnostic in answer.findings if not isinstance(diagnostic, _IN_TITLE)
        ),
    ]
    best = () if answer.ranking.best is None else answer.ranking.best.cells
    notes += loss_sentences(
        (row.cell for row in answer.ranking.rows if row.cell not in best), answer.verdicts
    )
    reach = None if answer.ranking.best is None else reach_sentence(answer.ranking.best)
    notes += [] if reach is None else [reach]
    if answer.ranking.rows:
        notes.append(
            f"A rank such as 1–3 is a tie: {answer.ranking.separated} of "
            f"{answer.ranking.comparisons} pairs differ, at {answer.ranking.alpha:.0%} "
            f"family-wise error. {OTHER_VERB}"
        )
    notes += [WITH_STEP] if answer.ranking.measure.quantity.step is not None else []
    if answer.roles is not None and not answer.rates and answer.ranking.rows:
        notes.append(
            f"Scores are Jim Salter's, {answer.roles.title} ({answer.roles.name}), "
            f"weighted by the baseline {answer.baseline}."
        )
    if answer.rates:
        notes.append(mean_sentence(answer.rates, answer.baseline))
    notes += disk_note(answer.verdicts.disk)
    return (*notes, *(f"Failed: {failed}" for failed in grouped_sentences(answer.failed)))


def _more(answer: RankingAnswer) -> Iterator[str]:
    """How many cells --top leaves out."""
    cells = len(answer.ranking.rows) + len(answer.ranking.unranked)
    if answer.top is not None and cells > answer.top:
        yield f"{counted(cells - answer.top, 'more cell')} without --top."
