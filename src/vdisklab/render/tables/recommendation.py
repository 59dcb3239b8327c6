"""The recommendation: the path, the numbers that decided, the price of each need, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from vdisklab.analysis.candidates import Price, Recommendation
from vdisklab.analysis.diagnostics.recorded import FROM_CACHE_BELOW
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.score import MIX
from vdisklab.analysis.tallies import Workings
from vdisklab.path.cell import MeasuredCell
from vdisklab.render import numbers
from vdisklab.render.documents.conversion import campaign_entries, diagnostic_entries
from vdisklab.render.documents.reports import (
    Alternative,
    AlternativeRow,
    PriceEntry,
    RecommendDocument,
)
from vdisklab.render.tables.layout import NAMES, Column, Table
from vdisklab.render.tables.power_cuts import basis_sentence, durability_sentence, keeping_word
from vdisklab.render.wording import caution, measure_name, sentence
from vdisklab.services.advice import RecommendationAnswer

SHOWN = 6
"""Maximum number of listed alternatives."""

NAMED = 4
"""Maximum number of ties named in a sentence; the others are counted."""


def _times(ratio: Ratio) -> str:
    """`×1.20 as good (95 %: 1.10–1.30)`, and whether a difference is shown."""
    if ratio.low is None or ratio.high is None:
        return f"{numbers.ratio(ratio.ratio)} as good"
    interval = numbers.ratio_interval(ratio.low, ratio.high)
    inconclusive = ", so no difference is shown" if ratio.low <= 1 <= ratio.high else ""
    return f"{numbers.ratio(ratio.ratio)} as good (95 %: {interval}){inconclusive}"


def price_sentence(price: Price, chosen: MeasuredCell) -> str:
    """What a need costs."""
    need = f"The price of {price.need} ({price.need.meaning})"
    if price.without == chosen:
        return f"{need}: nothing here."
    if price.ratio is None or price.ratio.ratio is None:
        return f"{need}: not known, as {price.without} was never measured in the same block."
    return f"{need}: without it the best is {price.without}, {_times(price.ratio)}."


def sentences(answer: RecommendationAnswer) -> Iterator[str]:
    """The recommendation in words, the most important first."""
    recommendation = answer.recommendation
    chosen = answer.path
    count = len(answer.order)
    yield (
        f"Use {chosen}: the best by {measure_name(recommendation.measure)} of {count} "
        f"{'path that qualifies' if count == 1 else 'paths that qualify'}, "
        f"of {recommendation.considered} measured."
    )
    yield from _rivals(answer)
    yield durability_sentence(chosen, recommendation.durability[recommendation.cell])
    yield from basis_sentence(recommendation)
    yield from _over_default(recommendation)
    for price in recommendation.prices:
        yield price_sentence(price, recommendation.cell)
    yield from _why(answer)


def _rivals(answer: RecommendationAnswer) -> Iterator[str]:
    """Ties, and the runner-up with its ratio."""
    recommendation = answer.recommendation
    if not recommendation.ranking.rows:
        yield "No other path could be ranked, so there is no comparison."
        return
    if recommendation.ties:
        names = ", ".join(cell.name for cell in recommendation.ties[:NAMED])
        more = (
            f" and {len(recommendation.ties) - NAMED} more"
            if len(recommendation.ties) > NAMED
            else ""
        )
        yield f"It ties with {names}{more}: no difference is shown."
    if len(answer.order) > 1 and answer.order[1] in answer.ratios:
        runner = answer.order[1]
        yield f"Runner-up: {runner}, {_times(answer.ratios[runner])}."


def _over_default(recommendation: Recommendation) -> Iterator[str]:
    if recommendation.default is None:
        yield "QEMU's default was not measured: `vdisklab run raw/default`."
    elif recommendation.default == recommendation.cell:
        yield "It is QEMU's default."
        return
    ratio = recommendation.over_default
    if ratio is not None and ratio.ratio is not None:
        yield f"Compared with QEMU's default ({recommendation.default}) it is {_times(ratio)}."


def _why(answer: RecommendationAnswer) -> Iterator[str]:
    """Counters that explain the order: the recommended cell against others.

    The others are the runner-up, QEMU's default, and the first cell shown to be worse: tied cells
    are often similar, so only a worse cell shows the reason.
    """
    recommendation = answer.recommendation
    worse = next((row.cell for row in recommendation.ranking.rows if row.best > 1), None)
    compared = (*answer.order[1:2], recommendation.default, worse)
    others = [cell for cell in compared if cell is not None and cell != recommendation.cell]
    recommended = answer.workings.get(recommendation.cell)
    if recommended is None:
        return
    yield from _from_memory(answer.path, recommended)
    for cell in dict.fromkeys(others):
        other = answer.workings.get(cell)
        if other is None:
            continue
        parts = [
            *_cpu(recommended, other),
            *_flushes(recommended, other),
            *_cache(recommended, other),
        ]
        if parts:
            yield f"Compared with {cell}: {'; '.join(parts)}."


def _from_memory(path: str, recommended: Workings) -> Iterator[str]:
    if recommended.device_share is not None and recommended.device_share < FROM_CACHE_BELOW:
        yield (
            f"Only {recommended.device_share:.0%} of the bytes that {path} moved reached the "
            "device during the measurement: its numbers mostly show the host's page cache, which "
            "it shares with all other guests. To see the disk itself, look at cache mode `none`."
        )


def _cpu(recommended: Workings, compared: Workings) -> Iterator[str]:
    a, b = recommended.cpu_per_operation, compared.cpu_per_operation
    if a and b and not 0.9 < a / b < 1.1:
        yield f"{numbers.value(a, 's')} of host CPU per operation against {numbers.value(b, 's')}"


def _flushes(recommended: Workings, compared: Workings) -> Iterator[str]:
    a, b = recommended.device_flushes_per_1000, compared.device_flushes_per_1000
    if a is not None and b is not None and abs(a - b) > max(1.0, 0.1 * max(a, b)):
        yield (
            f"{numbers.digits(a)} flushes at the device per 1000 operations against "
            f"{numbers.digits(b)}"
        )


def _cache(recommended: Workings, compared: Workings) -> Iterator[str]:
    a, b = recommended.device_share, compared.device_share
    if a is not None and b is not None and abs(a - b) > 0.1:
        yield (
            f"{numbers.digits(a)} bytes at the device per requested byte against "
            f"{numbers.digits(b)}"
        )


def recommendation_table(answer: RecommendationAnswer) -> Table[AlternativeRow]:
    """The first alternatives with their numbers; the sentences follow as notes."""
    columns = (
        Column[AlternativeRow]("rank", lambda row: row.rank or numbers.MISSING),
        Column[AlternativeRow]("path", lambda row: row.path.label, folds=NAMES),
        *(column for key in answer.summaries for column in _metric_columns(answer, key)),
        Column[AlternativeRow](
            "vs the\nfirst", lambda row: numbers.ratio(row.ratio), right=True, spare=1
        ),
        Column[AlternativeRow]("power cut", lambda row: row.power_cut, spare=1),
    )
    warning = caution(answer.caveats)
    notes = (
        *sentences(answer),
        *(() if warning is None else (f"Measured {warning}.",)),
        *_explained(answer),
        *(sentence(finding) for finding in answer.findings),
    )
    title = f"Recommendation: {answer.path}"
    return Table(title, columns, _rows(answer), notes, kind=AlternativeRow)


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
            power_cut=keeping_word(recommendation.durability[cell]),
        )
        for cell in answer.order[:SHOWN]
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
) -> Iterator[Column[AlternativeRow]]:
    """The median and its interval, in the scale of the best cell."""
    summaries = answer.summaries[key]
    best = next((summaries[cell].median for cell in answer.order if cell in summaries), None)
    scale = numbers.scale(best, key.quantity.unit)
    name = measure_name(key).removeprefix("weighted ")

    def interval(row: AlternativeRow) -> str:
        summary = summaries.get(row.path)
        return numbers.MISSING if summary is None else scale.interval(summary.low, summary.high)

    yield Column(
        f"{name}\n{scale.suffix.strip()}",
        lambda row: scale.value(_median(answer, key, row.path)),
        right=True,
        spare=0 if key == answer.recommendation.measure else 1,
    )
    yield Column("95 %\ninterval", interval, right=True, spare=2)


def _explained(answer: RecommendationAnswer) -> Iterator[str]:
    """Explains the column of the user's own weights."""
    if MIX in answer.summaries:
        weighted = ", ".join(measure_name(key) for key in answer.summaries if key != MIX)
        yield (
            "mix: how many times as good as the baseline in the same block, as the geometric mean "
            f"over the measures of --weights ({weighted}), each by its weight."
        )


def recommendation_document(answer: RecommendationAnswer) -> RecommendDocument:
    """The JSON form."""
    recommendation = answer.recommendation
    default = recommendation.over_default
    ranks = _ranks(answer)
    return RecommendDocument(
        campaigns=campaign_entries(answer.campaigns),
        emulation=answer.caveats.emulated,
        lab=answer.caveats.lab,
        path=answer.path,
        cell=recommendation.cell,
        measure=str(recommendation.measure),
        needs=tuple(map(str, recommendation.needs)),
        considered=recommendation.considered,
        excluded={str(need): count for need, count in recommendation.excluded.items()},
        ties=recommendation.ties,
        alternatives=tuple(_alternative(answer, cell, ranks.get(cell)) for cell in answer.order),
        prices=tuple(map(_price, recommendation.prices)),
        default=recommendation.default,
        over_default=None if default is None else default.ratio,
        sentences=tuple(sentences(answer)),
        findings=diagnostic_entries(answer.findings),
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
        low={key: each.low for key, each in summaries.items() if each.low is not None},
        high={key: each.high for key, each in summaries.items() if each.high is not None},
        ratio=answer.ratios[cell].ratio if cell in answer.ratios else None,
        power_cut=durability.keeping,
        flush_free=durability.flush_free,
    )


def _price(price: Price) -> PriceEntry:
    ratio = price.ratio or Ratio(0)
    return PriceEntry(
        need=str(price.need),
        without=price.without,
        ratio=ratio.ratio,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
    )
