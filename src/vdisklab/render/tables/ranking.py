"""The ranking as a table and as a document."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from vdisklab.analysis.compare import Ratio
from vdisklab.analysis.diagnostics.doubt import FromPageCache
from vdisklab.analysis.diagnostics.findings import Emulated, InLab
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.score import Score
from vdisklab.analysis.summary import Summary
from vdisklab.path.cell import MeasuredCell
from vdisklab.render import numbers
from vdisklab.render.document import Json, campaign_json, document, findings_json
from vdisklab.render.tables.layout import Column, Raw, Table, Value, as_records, text
from vdisklab.render.tables.power_cuts import POWER_CUT_COLUMNS, power_cut_values
from vdisklab.render.wording import caution, sentence
from vdisklab.results.model import Direction
from vdisklab.services.advice import RankingAnswer
from vdisklab.units import counted

_TITLES = {Score.READ.key: "read", Score.WRITE.key: "write", Score.OVERALL.key: "overall"}
_NOT_RANKED = Value(None, numbers.MISSING)


def ranking_table(answer: RankingAnswer) -> Table:
    """One row per cell, best first; cells without a rank stand last."""
    ranked = {row.cell: row for row in answer.ranking.rows}
    unranked = {row.cell: row for row in answer.ranking.unranked}
    cached = _cached(answer.cached)
    scales = {key: _scale(key, found.values()) for key, found in answer.summaries.items()}
    rows: list[tuple[Value, ...]] = []
    for cell in (*ranked, *unranked):
        found = ranked.get(cell)
        best, worst = (found.best, found.worst) if found else (None, None)
        reason = None if found else unranked[cell].reason.value
        rows.append(
            (
                text(numbers.place(found.best, found.worst)) if found else _NOT_RANKED,
                text(cell.name),
                text(cell.page_cache.value),
                *(
                    value
                    for key in answer.summaries
                    for value in _numbers(answer.summaries[key].get(cell), scales[key])
                ),
                *_ratio(answer, cell),
                _cache_value(cached.get(cell, frozenset())),
                *power_cut_values(answer.verdicts.get(cell.name), applies=not cell.on_host),
                _integer(found.blocks if found else unranked[cell].blocks),
                _integer(best),
                _integer(worst),
                Value(reason, reason or ""),
            )
        )
    return Table(_title(answer), _columns(answer, scales), tuple(rows), _notes(answer))


BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def ranking_bars(answer: RankingAnswer) -> Table:
    """The ranked measure as bars from zero, best first, with the interval as numbers."""
    found = answer.summaries[answer.ranking.measure]
    ranked = {row.cell: numbers.place(row.best, row.worst) for row in answer.ranking.rows}
    cells = [cell for cell in (*ranked, *sorted(set(found) - set(ranked))) if cell in found]
    scale = _scale(answer.ranking.measure, found.values())
    longest = max((found[cell].median for cell in cells), default=0.0)
    columns = (
        Column("rank", "rank"),
        Column("cell", "cell", folds=True),
        Column("bar", "", only_shown=True),
        Column("value", scale.suffix.strip(), right=True),
        Column("interval", "95 %\ninterval", right=True, only_shown=True),
    )
    rows = tuple(
        (
            Value(ranked.get(cell), ranked.get(cell, numbers.MISSING)),
            text(cell.label),
            Value(None, bar(found[cell].median, longest)),
            Value(found[cell].median, scale.value(found[cell].median)),
            Value(None, numbers.interval(found[cell].low, found[cell].high, scale)),
        )
        for cell in cells
    )
    return Table(_title(answer), columns, rows, _notes(answer))


def bar(value: float, longest: float) -> str:
    """A bar whose length is the value's share of the longest, to an eighth of a character."""
    eighths = round(BAR_WIDTH * 8 * value / longest) if longest > 0 else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def ranking_document(answer: RankingAnswer) -> Json:
    """The JSON form; `cells` has the rows of `ranking_table`."""
    ranking = answer.ranking
    quantity = ranking.measure.quantity
    roles = answer.roles.measures if answer.roles else {}
    return document(
        "rank",
        1,
        campaigns=[campaign_json(campaign) for campaign in answer.campaigns],
        emulation=answer.caveats.emulated,
        lab=answer.caveats.lab,
        measure=str(ranking.measure),
        unit=quantity.unit,
        better=quantity.better.value,
        baseline=answer.baseline.label,
        roles={role.value: str(key) for role, key in roles.items()},
        alpha=ranking.alpha,
        comparisons=ranking.comparisons,
        separated=ranking.separated,
        inconclusive=ranking.inconclusive,
        cells=as_records(ranking_table(answer)),
        findings=findings_json((*answer.findings, *answer.failed, *answer.cached)),
    )


def _columns(
    answer: RankingAnswer, scales: Mapping[MeasureKey, numbers.Scale]
) -> tuple[Column, ...]:
    columns = [
        Column("rank", "rank"),
        Column("path", "path", folds=True),
        Column("page_cache", "cache"),
    ]
    for key in answer.summaries:
        name = key.metric
        beside = key != answer.ranking.measure  # not what is ranked: it can wait
        title = f"{_TITLES.get(key, name)}\n{scales[key].suffix.strip()}"
        columns += [
            Column(name, title, right=True, only_wide=beside),
            Column(
                f"{name}_interval", "95 %\ninterval", right=True, only_wide=beside, only_shown=True
            ),
            Column(f"{name}_low", "", only_data=True),
            Column(f"{name}_high", "", only_data=True),
            Column(f"{name}_interval_method", "", only_data=True),
        ]
    return (
        *columns,
        Column("ratio", "vs\nbase", right=True),
        Column("ratio_interval", "95 %\ninterval", right=True, only_wide=True, only_shown=True),
        Column("ratio_low", "", only_data=True),
        Column("ratio_high", "", only_data=True),
        Column("from_page_cache", "RAM"),
        *POWER_CUT_COLUMNS,
        Column("blocks", "n", right=True),
        Column("rank_best", "", only_data=True),
        Column("rank_worst", "", only_data=True),
        Column("unranked", "", only_data=True),
    )


def _numbers(summary: Summary | None, scale: numbers.Scale) -> tuple[Value, ...]:
    if summary is None:
        return (_NOT_RANKED,) * 5
    shown = numbers.interval(summary.low, summary.high, scale)
    return (
        Value(summary.median, scale.value(summary.median)),
        Value(None, shown),
        Value(summary.low, ""),
        Value(summary.high, ""),
        Value(summary.method.value if summary.method else None, ""),
    )


def _ratio(answer: RankingAnswer, cell: MeasuredCell) -> tuple[Value, ...]:
    if cell == answer.baseline:
        return (Value(1.0, "base"), Value(None, ""), Value(None, ""), Value(None, ""))
    ratio = answer.ratios.get(cell, Ratio(pairs=0))
    shown = numbers.ratio_interval(ratio.low, ratio.high)
    return (
        Value(ratio.ratio, numbers.ratio(ratio.ratio)),
        Value(None, shown),
        Value(ratio.low, ""),
        Value(ratio.high, ""),
    )


def _scale(key: MeasureKey, summaries: Iterable[Summary]) -> numbers.Scale:
    """One scale for a column: that of its median cell."""
    medians = [summary.median for summary in summaries]
    return numbers.scale(statistics.median_low(medians) if medians else None, key.quantity.unit)


def _cached(findings: Iterable[FromPageCache]) -> Mapping[MeasuredCell, frozenset[Direction]]:
    found: dict[MeasuredCell, frozenset[Direction]] = {}
    for finding in findings:
        found[finding.cell] = found.get(finding.cell, frozenset()) | {finding.direction}
    return found


def _cache_value(directions: frozenset[Direction]) -> Value:
    names = [each.value for each in (Direction.READ, Direction.WRITE) if each in directions]
    return Value("+".join(names) or None, "".join(name[0] for name in names))


def _integer(value: int | None) -> Value:
    raw: Raw = value
    return Value(raw, numbers.MISSING if value is None else str(value))


def _title(answer: RankingAnswer) -> str:
    measure = answer.ranking.measure
    what = measure.metric.replace("_", " ") if measure.name == "score" else str(measure)
    cells = len(answer.ranking.rows) + len(answer.ranking.unranked)
    title = f"Ranking by {what}: {counted(cells, 'cell')} in {counted(answer.blocks, 'block')}"
    beware = caution(answer.caveats)
    return title if beware is None else f"{title}, {beware}"


def _notes(answer: RankingAnswer) -> tuple[str, ...]:
    # The title says that it was under emulation, or in the lab.
    notes = [sentence(each) for each in answer.findings if not isinstance(each, Emulated | InLab)]
    if answer.ranking.rows:
        notes.append(
            f"A rank such as 1–3 is a tie: {answer.ranking.separated} of "
            f"{answer.ranking.comparisons} pairs differ, at {answer.ranking.alpha:.0%} "
            "family-wise error."
        )
    if answer.roles is not None:
        notes.append(
            f"Scores are Jim Salter's, {answer.roles.title} ({answer.roles.name}), "
            f"weighted by the baseline {answer.baseline}."
        )
    if answer.cached:
        notes.append(
            "RAM: less than half of the bytes read (r) or written (w) reached the device; "
            "the number is the host's page cache's."
        )
    return (*notes, *(f"Failed: {sentence(failed)}" for failed in answer.failed))
