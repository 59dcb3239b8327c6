"""The recommendation: the path, the numbers that decided, the price of each need, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vdisklab.analysis.compare import Ratio
from vdisklab.analysis.diagnostics.witness import FROM_CACHE_BELOW
from vdisklab.analysis.evidence import Workings
from vdisklab.analysis.mix import MIX
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.recommend import Price, Recommendation
from vdisklab.analysis.summary import Summary
from vdisklab.path.cell import MeasuredCell
from vdisklab.render import numbers
from vdisklab.render.document import Json, campaign_json, document, findings_json
from vdisklab.render.tables.layout import Column, Table, Value, text
from vdisklab.render.tables.power_cuts import basis_sentence, durability_sentence, keeping_word
from vdisklab.render.wording import caution, sentence
from vdisklab.services.advice import RecommendationAnswer

SHOWN = 6
"""So many alternatives are listed."""

NAMED = 4
"""So many ties are named in a sentence; the rest is counted."""


def _times(ratio: Ratio) -> str:
    """`×1.20 as good (95 %: 1.10–1.30)`, and whether that is shown at all."""
    if ratio.low is None or ratio.high is None:
        return f"{numbers.ratio(ratio.ratio)} as good"
    interval = numbers.ratio_interval(ratio.low, ratio.high)
    unsure = ", so no difference is shown" if ratio.low <= 1 <= ratio.high else ""
    return f"{numbers.ratio(ratio.ratio)} as good (95 %: {interval}){unsure}"


def price_sentence(price: Price, chosen: MeasuredCell) -> str:
    """What a need costs."""
    need = f"The price of {price.need} ({price.need.meaning})"
    if price.without == chosen:
        return f"{need}: nothing here."
    if price.ratio is None or price.ratio.ratio is None:
        return f"{need}: not known, as {price.without} was never measured in a common block."
    return f"{need}: without it one would use {price.without}, {_times(price.ratio)}."


def sentences(answer: RecommendationAnswer) -> Iterator[str]:
    """The recommendation in words, the most important first."""
    found = answer.recommendation
    chosen = answer.path
    count = len(answer.order)
    yield (
        f"Use {chosen}: the best by {_measure_name(found.measure)} of {count} "
        f"{'path that qualifies' if count == 1 else 'paths that qualify'}, "
        f"of {found.considered} measured."
    )
    yield from _rivals(answer)
    yield durability_sentence(chosen, found.durability[found.cell])
    yield from basis_sentence(found)
    yield from _over_default(found)
    for price in found.prices:
        yield price_sentence(price, found.cell)
    yield from _why(answer)


def _rivals(answer: RecommendationAnswer) -> Iterator[str]:
    """Ties, and the runner-up with its distance."""
    found = answer.recommendation
    if not found.ranking.rows:
        yield "No other path could be ranked, so nothing was compared."
        return
    if found.ties:
        names = ", ".join(cell.name for cell in found.ties[:NAMED])
        more = f" and {len(found.ties) - NAMED} more" if len(found.ties) > NAMED else ""
        yield f"It ties with {names}{more}: no difference is shown."
    if len(answer.order) > 1 and answer.order[1] in answer.ratios:
        runner = answer.order[1]
        yield f"Runner-up: {runner}, {_times(answer.ratios[runner])}."


def _over_default(found: Recommendation) -> Iterator[str]:
    if found.default is None:
        yield "What QEMU does by default was not measured: `vdisklab run raw/default`."
    elif found.default == found.cell:
        yield "It is what QEMU does by default."
    elif found.over_default is not None and found.over_default.ratio is not None:
        yield f"Beside QEMU's default ({found.default}) it is {_times(found.over_default)}."


def _why(answer: RecommendationAnswer) -> Iterator[str]:
    """What the counters say where they explain the order: the chosen against those beside it.

    Those are the runner-up, QEMU's default, and the first that is shown to be worse: ties are
    often of one kind, and what sets them apart is what the next kind does otherwise.
    """
    found = answer.recommendation
    worse = next((row.cell for row in found.ranking.rows if row.best > 1), None)
    beside = (*answer.order[1:2], found.default, worse)
    others = [cell for cell in beside if cell is not None and cell != found.cell]
    mine = answer.workings.get(found.cell)
    if mine is None:
        return
    yield from _from_memory(answer.path, mine)
    for cell in dict.fromkeys(others):
        theirs = answer.workings.get(cell)
        if theirs is None:
            continue
        parts = [*_cpu(mine, theirs), *_flushes(mine, theirs), *_cache(mine, theirs)]
        if parts:
            yield f"Beside {cell}: {'; '.join(parts)}."


def _from_memory(path: str, mine: Workings) -> Iterator[str]:
    if mine.device_share is not None and mine.device_share < FROM_CACHE_BELOW:
        yield (
            f"Only {mine.device_share:.0%} of the bytes that {path} moved reached the device while "
            "they were measured: its numbers are largely the host's page cache's, which it shares "
            "with all other guests. Without that memory `none` tells what the disk does."
        )


def _cpu(mine: Workings, theirs: Workings) -> Iterator[str]:
    a, b = mine.cpu_per_operation, theirs.cpu_per_operation
    if a and b and not 0.9 < a / b < 1.1:
        yield f"{numbers.value(a, 's')} of host CPU per operation against {numbers.value(b, 's')}"


def _flushes(mine: Workings, theirs: Workings) -> Iterator[str]:
    a, b = mine.device_flushes_per_1000, theirs.device_flushes_per_1000
    if a is not None and b is not None and abs(a - b) > max(1.0, 0.1 * max(a, b)):
        yield (
            f"{numbers.digits(a)} flushes at the device per 1000 operations against "
            f"{numbers.digits(b)}"
        )


def _cache(mine: Workings, theirs: Workings) -> Iterator[str]:
    a, b = mine.device_share, theirs.device_share
    if a is not None and b is not None and abs(a - b) > 0.1:
        yield (
            f"{numbers.digits(a)} bytes at the device for each one asked against "
            f"{numbers.digits(b)}"
        )


def _measure_name(measure: MeasureKey) -> str:
    return measure.metric.replace("_", " ") if measure.name == "score" else str(measure)


def recommendation_table(answer: RecommendationAnswer) -> Table:
    """The first alternatives with their numbers; the sentences stand below."""
    found = answer.recommendation
    places = {row.cell: numbers.place(row.best, row.worst) for row in found.ranking.rows}
    scales = {
        key: numbers.scale(_best(values, answer.order), key.quantity.unit)
        for key, values in answer.summaries.items()
    }
    columns = [Column("rank", "rank"), Column("path", "path", folds=True)]
    for key, scale in scales.items():
        title = _measure_name(key).replace("weighted ", "")
        columns.append(Column(key.metric, f"{title}\n{scale.suffix.strip()}", right=True))
        columns.append(
            Column(f"{key.metric}_interval", "95 %\ninterval", right=True, only_wide=True,
                   only_shown=True)
        )  # fmt: skip
    columns += [
        Column("ratio", "vs the\nfirst", right=True),
        Column("power_cut", "power cut"),
    ]
    rows = []
    for cell in answer.order[:SHOWN]:
        row = [Value(places.get(cell), places.get(cell, numbers.MISSING)), text(cell.label)]
        for key, scale in scales.items():
            summary = answer.summaries[key].get(cell)
            median = None if summary is None else summary.median
            low, high = (None, None) if summary is None else (summary.low, summary.high)
            row.append(Value(median, scale.value(median)))
            row.append(Value(None, numbers.interval(low, high, scale)))
        ratio = answer.ratios[cell].ratio if cell in answer.ratios else None
        row.append(Value(ratio, numbers.ratio(ratio)))
        row.append(text(keeping_word(found.durability[cell])))
        rows.append(tuple(row))
    title = f"Recommendation: {answer.path}"
    beware = caution(answer.caveats)
    said = () if beware is None else (f"Measured {beware}.",)
    notes = (
        *sentences(answer),
        *said,
        *_explained(answer),
        *(sentence(each) for each in answer.findings),
    )
    return Table(title, tuple(columns), tuple(rows), notes)


def _explained(answer: RecommendationAnswer) -> Iterator[str]:
    """What the column of the user's own weights is."""
    if any(key.metric == MIX.metric for key in answer.summaries):
        weighed = ", ".join(_measure_name(key) for key in answer.summaries if key != MIX)
        yield (
            f"mix: how many times as good as the baseline in the same block, as the geometric mean "
            f"over the measures of --weights ({weighed}), each by its weight."
        )


def _best(values: Mapping[MeasuredCell, Summary], order: tuple[MeasuredCell, ...]) -> float | None:
    return next((values[cell].median for cell in order if cell in values), None)


def recommendation_document(answer: RecommendationAnswer) -> Json:
    """The JSON form."""
    found = answer.recommendation
    return document(
        "recommend",
        1,
        campaigns=[campaign_json(campaign) for campaign in answer.campaigns],
        emulation=answer.caveats.emulated,
        lab=answer.caveats.lab,
        path=answer.path,
        cell=found.cell.label,
        measure=str(found.measure),
        needs=[str(need) for need in found.needs],
        considered=found.considered,
        excluded={str(need): count for need, count in found.excluded.items()},
        ties=[cell.label for cell in found.ties],
        alternatives=[
            {
                "cell": cell.label,
                "values": {
                    str(key): values[cell].median
                    for key, values in answer.summaries.items()
                    if cell in values
                },
                "power_cut": found.durability[cell].keeping.value,
                "flush_free": found.durability[cell].flush_free,
            }
            for cell in answer.order
        ],
        prices=[
            {
                "need": str(price.need),
                "without": price.without.label,
                "ratio": None if price.ratio is None else price.ratio.ratio,
                "ratio_low": None if price.ratio is None else price.ratio.low,
                "ratio_high": None if price.ratio is None else price.ratio.high,
            }
            for price in found.prices
        ],
        default=None if found.default is None else found.default.label,
        over_default=None if found.over_default is None else found.over_default.ratio,
        sentences=list(sentences(answer)),
        findings=findings_json(answer.findings),
    )
