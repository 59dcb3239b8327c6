"""The recommendation: the path, the numbers that decided, the price of each need, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vdisklab import numbers
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.score import MIX
from vdisklab.answers.advice import RecommendationAnswer
from vdisklab.path.cell import MeasuredCell
from vdisklab.views.documents.conversion import copy_fields
from vdisklab.views.documents.reports import Alternative, AlternativeRow, RecommendDocument
from vdisklab.views.durability import power_cut_word
from vdisklab.views.layout import NAMES, Column, Table
from vdisklab.views.rank import summary_columns
from vdisklab.views.verdict import reasons, verdict_sentences
from vdisklab.views.wording import mean_sentence, measure_name

SHOWN = 6
"""Maximum number of listed alternatives."""


def verdict_table(answer: RecommendationAnswer) -> Table[AlternativeRow]:
    """The verdict alone, as `run` prints it at its end."""
    first, *others = verdict_sentences(answer)
    return Table(first, (), (), intro=tuple(others))


def recommendation_table(answer: RecommendationAnswer) -> Table[AlternativeRow]:
    """The verdict, the first alternatives with their numbers, and the reasons as notes."""
    columns: tuple[Column[AlternativeRow], ...] = (
        Column("rank", lambda row: row.rank or numbers.MISSING),
        Column("path", lambda row: row.path.label, folds=NAMES),
        *(column for key in answer.summaries for column in _metric_columns(answer, key)),
        Column("vs the\nfirst", lambda row: numbers.ratio(row.ratio), right=True, spare=1),
        Column("power cut", lambda row: row.power_cut, spare=1),
    )
    notes = (
        *answer.caveats.notes,
        *reasons(answer),
        *_explained(answer),
        *(str(finding) for finding in answer.findings),
    )
    return replace(
        verdict_table(answer), columns=columns, rows=_rows(answer), notes=notes, kind=AlternativeRow
    )


def _rows(answer: RecommendationAnswer) -> list[AlternativeRow]:
    recommendation = answer.recommendation
    ranks = _ranks(answer)
    keys = _metric_keys(answer)
    return [
        AlternativeRow(
            rank=ranks.get(cell),
            path=cell,
            metrics={keys[key]: _median(answer, key, cell) for key in answer.summaries},
            ratio=answer.ratios[cell].ratio if cell in answer.ratios else None,
            power_cut=power_cut_word(recommendation.durability[cell]),
        )
        for cell in dict.fromkeys((*answer.order[:SHOWN], recommendation.cell))
    ]


def _metric_keys(answer: RecommendationAnswer) -> dict[MeasureKey, str]:
    """The CSV key of each measure: its metric, or its full name if two share a metric."""
    counts = Counter(key.metric for key in answer.summaries)
    return {key: key.metric if counts[key.metric] == 1 else str(key) for key in answer.summaries}


def _median(answer: RecommendationAnswer, key: MeasureKey, cell: MeasuredCell) -> float | None:
    summary = answer.summaries[key].get(cell)
    return None if summary is None else summary.median


def _metric_columns(
    answer: RecommendationAnswer, key: MeasureKey
) -> Sequence[Column[AlternativeRow]]:
    """The median and its interval, in the scale of the best cell."""
    summaries = answer.summaries[key]
    best = next((summaries[cell].median for cell in answer.order if cell in summaries), None)
    scale = numbers.scale(best, key.quantity.unit)
    name = measure_name(key).removeprefix("weighted ")

    return summary_columns(
        name,
        scale,
        lambda row: summaries.get(row.path),
        spare=(0 if key == answer.recommendation.measure else 1, 2),
    )


def _explained(answer: RecommendationAnswer) -> Iterator[str]:
    """Explains the column of the user's own weights."""
    if MIX in answer.summaries:
        weighted = ", ".join(measure_name(key) for key in answer.summaries if key != MIX)
        yield (
            "mix: how many times as good as the baseline in the same round, as the geometric mean "
            f"over the measures of --weights ({weighted}), each by its weight."
        )
    if answer.rates:
        yield mean_sentence(answer.rates, "the baseline")


def recommendation_document(answer: RecommendationAnswer) -> RecommendDocument:
    """The JSON form."""
    recommendation, ranks = answer.recommendation, _ranks(answer)
    return copy_fields(
        RecommendDocument,
        answer,
        host_disk=recommendation.durability[recommendation.cell].disk,
        ties=tuple(cell for cell in recommendation.ties if cell != recommendation.cell),
        alternatives=tuple(_alternative(answer, cell, ranks.get(cell)) for cell in answer.order),
        over_platforms={
            name: None if ratio is None else ratio.ratio
            for name, ratio in answer.over_platforms.items()
        },
        winner=None if recommendation.ties else recommendation.cell,
        sentences=(*verdict_sentences(answer), *reasons(answer)),
    )


def _ranks(answer: RecommendationAnswer) -> dict[MeasuredCell, str]:
    rows = answer.recommendation.ranking.rows
    return {row.cell: numbers.place(row.best, row.worst) for row in rows}


def _alternative(answer: RecommendationAnswer, cell: MeasuredCell, rank: str | None) -> Alternative:
    durability = answer.recommendation.durability[cell]
    summaries = {
        str(key): values[cell] for key, values in answer.summaries.items() if cell in values
    }
    return Alternative(
        cell=cell,
        rank=rank,
        values={key: summary.median for key, summary in summaries.items()},
        low={key: summary.low for key, summary in summaries.items() if summary.low is not None},
        high={key: summary.high for key, summary in summaries.items() if summary.high is not None},
        ratio=answer.ratios[cell].ratio if cell in answer.ratios else None,
        power_cut=durability.kind,
        flush_free=durability.flush_free,
    )
