"""The answers of `compare` in words and columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from vdisklab import numbers
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.analysis.fleet.agreement import Agreement
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.measure_words import measure_words
from vdisklab.analysis.paired_ratios import Comparison, Ratio, Verdict
from vdisklab.analysis.published import PublishedNumber, Shape, ShapeRow
from vdisklab.answers.compare import CompareAnswer, ComparedPair, PublishedAnswer
from vdisklab.answers.measured_for import seconds_of_measurements
from vdisklab.units import counted, runtime_text
from vdisklab.views import wording
from vdisklab.views.durability import losses
from vdisklab.views.hosts import agreement_sentence, left_out_sentences, spread_sentences
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_PAIRED = "A/B is taken within rounds."
_UNPAIRED = (
    "A/B is that of the means of all runs (Welch's t): an import was measured at another time or "
    "place, so its runs share no round with others."
)


def _ratio(row: Comparison) -> str:
    return numbers.MISSING if wording.against_zero(row) else numbers.ratio(row.ratio.ratio)


def _interval(row: Comparison) -> str:
    if wording.against_zero(row):
        return numbers.MISSING
    return numbers.ratio_interval(row.ratio.low, row.ratio.high)


def _ratio_in(of: str) -> tuple[Column[Comparison], ...]:
    """The ratio within rounds or hosts, and its interval."""
    return (
        Column(f"A/B in\n{of}s", _ratio, right=True, spare=1),
        Column("95 % interval", _interval, right=True, spare=1),
    )


_P: Column[Comparison] = Column(
    "p", lambda row: numbers.probability(row.p_adjusted), right=True, spare=2
)

_NOTHING_IN_COMMON = "The two cells have no measure in common."
_BETTER = {Verdict.A_BETTER: "A", Verdict.B_BETTER: "B"}
_ALPHA = 0.05
_OUTCOMES = {
    Verdict.A_BETTER: "A is faster in {}",
    Verdict.B_BETTER: "B is faster in {}",
    Verdict.A_LIKELY: "A is likely faster in {} (not proven)",
    Verdict.B_LIKELY: "B is likely faster in {} (not proven)",
    Verdict.NONE_SHOWN: "no difference is shown in {}",
    Verdict.TOO_FEW: "too few rounds in {}",
}


def tables(answer: CompareAnswer, *, everything: bool = False) -> Iterator[Table[Comparison]]:
    """For each pair a summary, and one row per main measure; with `everything` one per measure."""
    seconds = seconds_of_measurements(answer.campaigns)
    for pair in answer.pairs:
        if answer.hosts is None:
            yield _pair_table(pair, answer.caveats, everything, seconds)
        else:
            left_out = left_out_sentences(answer.hosts.left_out)
            notes = (*answer.caveats.notes, *left_out)
            yield _hosts_table(pair, notes, everything, seconds)


def _pair_table(
    pair: ComparedPair, caveats: Caveats, everything: bool, seconds: float | None
) -> Table[Comparison]:
    rows = _rows(pair, everything)
    notes = [*caveats.notes, *map(str, pair.findings)]
    if not pair.measures:
        notes.append(_NOTHING_IN_COMMON)
    elif any(row.verdict is not Verdict.TOO_FEW for row in pair.measures):
        notes.append(
            f"{_PAIRED if pair.paired else _UNPAIRED} Intervals hold for each row alone; p and "
            "verdicts are corrected for the number of main measures, or of others (Holm). Likely: "
            f"the interval excludes no change, but not after that correction. {wording.OTHER_VERB}"
        )
    notes += _shown_by_ranks(pair)
    if any(row.measure.quantity.step is not None for row in rows):
        notes.append(wording.WITH_STEP)
    hidden = len(pair.measures) - len(rows)
    if hidden:
        notes.append(f"{counted(hidden, 'more measure')} with --all.")
    columns: tuple[Column[Comparison], ...] = (
        *_measure("round", seconds),
        Column(
            "median\nA",
            lambda row: numbers.value(row.a.median, row.measure.quantity.shown_unit),
            right=True,
            spare=2,
        ),
        Column(
            "median\nB",
            lambda row: numbers.value(row.b.median, row.measure.quantity.shown_unit),
            right=True,
            spare=2,
        ),
        *_ratio_in("round"),
        _P,
        Column("n", lambda row: str(row.ratio.pairs), right=True, spare=2),
        Column(
            "rounds\nneeded",
            lambda row: str(row.ratio.rounds_needed or numbers.MISSING),
            right=True,
            spare=2,
            note="Rounds needed: how many would show a difference of this size.",
        ),
    )
    return Table(
        f"A = {pair.a}\nB = {pair.b}",
        columns,
        rows,
        tuple(notes),
        intro=(
            *((caveats.scoped(comparison_summary(pair)),) if pair.measures else ()),
            *losses({pair.a: pair.a_power_cut, pair.b: pair.b_power_cut}, (pair.a, pair.b)),
        ),
        kind=Comparison,
    )


def _hosts_table(
    pair: ComparedPair, notes: tuple[str, ...], everything: bool, seconds: float | None
) -> Table[Comparison]:
    """A sentence on the first measure, one row per main measure, and each class's ratio."""
    rows = _rows(pair, everything)
    hidden = len(pair.measures) - len(rows)
    first = [
        agreement for agreement in pair.agreements if agreement.measure == pair.measures[0].measure
    ]
    columns: tuple[Column[Comparison], ...] = (
        *_measure("host", seconds),
        *_ratio_in("host"),
        Column(
            "A better\non",
            lambda row: (
                numbers.MISSING
                if row.a_better_on is None
                else f"{row.a_better_on} of {row.ratio.pairs}"
            ),
            right=True,
        ),
        _P,
    )
    return Table(
        f"A = {pair.a}\nB = {pair.b}",
        columns,
        rows,
        (
            *notes,
            *_class_ratios(pair),
            *map(str, pair.findings),
            *_shown_by_ranks(pair),
            "A/B is taken within hosts; the hosts are the replications. p and verdicts are "
            "corrected for the number of main measures, or of others (Holm).",
            *((f"{counted(hidden, 'more measure')} with --all.",) if hidden else ()),
        ),
        intro=(
            *(
                said
                for agreement in first
                for said in (
                    _over_hosts(pair, agreement),
                    *spread_sentences(agreement),
                )
            ),
            *losses({pair.a: pair.a_power_cut, pair.b: pair.b_power_cut}, (pair.a, pair.b)),
        ),
        kind=Comparison,
    )


def _shown_by_ranks(pair: ComparedPair) -> Iterator[str]:
    """Why the score has a verdict that its p among the main measures does not give."""
    for row in pair.measures:
        p = row.p_adjusted
        is_score = row.main and row.measure.name == "score"
        if is_score and row.verdict in _BETTER and p is not None and p > _ALPHA:
            yield (
                "The verdict by the score is that of `rank`, which compares all paths by the score "
                "alone; p counts the other main measures, too."
            )


def _over_hosts(pair: ComparedPair, agreement: Agreement) -> str:
    """Who agrees, beside what the ranking of all paths over the hosts shows of the pair."""
    ranked = pair.ranked
    if ranked is None or agreement.measure.name != "score":
        return agreement_sentence(agreement, sized=False)
    apart = ranked.verdict is not Verdict.NONE_SHOWN
    return agreement_sentence(agreement, apart, sized=False)


def _class_ratios(pair: ComparedPair) -> Iterator[str]:
    """The ratio in each class, because a mean over all may hide one."""
    for name, comparison in pair.by_class.items():
        hosts = counted(len(comparison.hosts), "host")
        size = wording.difference_in(comparison.measure, comparison.ratio, "host")
        yield f"{name} ({hosts}): A is {size} in {measure_words(comparison.measure)}."


def _rows(pair: ComparedPair, everything: bool) -> list[Comparison]:
    return [row for row in pair.measures if row.main or everything] or list(pair.measures)


def _measure(of: str, seconds: float | None) -> tuple[Column[Comparison], Column[Comparison]]:
    # What half a second shows, a minute may not: it has another name.
    each = "" if seconds is None else f"\n({runtime_text(seconds)} each)"
    return (
        Column(f"measure{each}", lambda row: wording.measure_name(row.measure), folds=NAMES),
        Column(
            "A, compared with B, is", lambda row: wording.compared(row, of), folds=NAMES, whole=True
        ),
    )


def comparison_summary(pair: ComparedPair) -> str:
    """A summary of the main measures: how many favour A or B, how many likely do, and the score's
    ratio.
    """
    every = _rows(pair, everything=False)
    if not every:
        return _NOTHING_IN_COMMON
    # The score is the mean of the others: counted with them, it would count them twice.
    rows = [row for row in every if row.measure.name != "score"] or every
    counts = Counter(row.verdict for row in rows)
    if counts[Verdict.TOO_FEW] == len(rows):
        most = max(row.ratio.pairs for row in rows)
        return f"Too few rounds for a verdict: {most} in common; {MIN_ROUNDS} are needed."
    parts = [
        sentence.format(counts[outcome])
        for outcome, sentence in _OUTCOMES.items()
        if counts[outcome]
    ]
    sentence_parts = [f"Of {counted(len(rows), 'main measure')}: {', '.join(parts)}"]
    score = next((row for row in every if row.measure.name == "score"), None)
    if score is not None and score.ratio.ratio is not None:
        by_score = f"by the score A is {wording.difference(score.ratio)}"
        sentence_parts.append(f"{by_score}{_alone(pair, score.ratio)}")
        both, most = score.ratio.pairs, max(score.a.rounds, score.b.rounds)
        if pair.paired and both < most:
            sentence_parts.append(
                f"all of this is of the {both} of {most} rounds that both have (`rank` corrects "
                "for the others)"
            )
    return "; ".join(sentence_parts) + "."


def _alone(pair: ComparedPair, ratio: Ratio) -> str:
    """What the ranks of all paths show of the pair, where that is not what the pair alone shows."""
    ranked = pair.ranked
    if ranked is None or ratio.low is None or ratio.high is None:
        return ""
    pairs = math.comb(ranked.paths, 2)
    paths = f"among the campaign's {ranked.paths} paths"
    none = "no difference is shown"
    none += f", as {pairs} pairs are compared at once" if pairs > 1 else ""
    shown = ratio.low > 1 or ratio.high < 1
    if shown and ranked.verdict is Verdict.NONE_SHOWN:
        return f" when these two are looked at alone; {paths} {none} (`rank`)"
    if not shown and ranked.verdict in _BETTER:
        better = f"{_BETTER[ranked.verdict]} is shown to be better"
        return f" when these two are looked at alone; {paths} {better} (`rank`)"
    name = "A" if ranked.close == pair.a else "B"
    worst = ratio.low if ranked.close == pair.a else 1 / ratio.high
    if ranked.behind is None or worst >= 1 / (1 + ranked.behind):
        return ""
    near = f"{name} is within {numbers.percent_at_most(ranked.behind)} % of the best (95 %)"
    return f" when these two are looked at alone; {paths} {near} (`rank`)"


def _unit_of(number: PublishedNumber) -> str:
    return number.unit if number.measure is None else number.measure.quantity.shown_unit


def published_tables(answer: PublishedAnswer) -> Iterator[Table[ShapeRow]]:
    """One row per published number that has a counterpart here."""
    comparison = answer.comparison
    first = answer.table
    notes = [
        f"Other hardware: {first.machine}; {first.program}, {first.statistic}.",
        f"Compare only shapes: each number divided by {comparison.baseline.label} on its own "
        "machine.",
        *(str(finding) for finding in answer.findings),
    ]
    if any(row.p_adjusted is not None for row in comparison.rows):
        notes.append(
            "The article's numbers have no interval; yours have one. `differs` is "
            "corrected for the number of rows (Holm)."
        )
    title = f"{answer.title}\n({first.series})"
    warning = answer.caveats.warning
    if warning is not None:
        title = f"{title}; here {warning}"
    columns: tuple[Column[ShapeRow], ...] = (
        Column("path", lambda row: row.cell.path.canonical, folds=NAMES),
        Column("page cache", lambda row: row.cell.page_cache.value, spare=2),
        Column("measure", lambda row: str(row.number.measure), folds=NAMES),
        Column(
            "published",
            lambda row: numbers.value(row.number.value, _unit_of(row.number)),
            right=True,
            spare=1,
        ),
        Column("÷ its\nbase", lambda row: numbers.ratio(row.published), right=True),
        Column("yours\n÷ base", lambda row: numbers.ratio(row.ours.ratio), right=True),
        Column(
            "95 %\ninterval",
            lambda row: numbers.ratio_interval(row.ours.low, row.ours.high),
            right=True,
            spare=1,
        ),
        Column("p", lambda row: numbers.probability(row.p_adjusted), right=True, spare=2),
        Column("n", lambda row: str(row.ours.pairs), right=True, spare=1),
        Column("shape", shape_text, folds=WORDS),
    )
    command = ("# To measure what is missing:", answer.command) if answer.command else ()
    yield Table(title, columns, comparison.rows, tuple(notes), command, kind=ShapeRow)


def shape_text(row: ShapeRow) -> str:
    """`no difference shown`, `differs: ×2.1 of yours`, `not measured`."""
    match row.shape:
        case Shape.DIFFERS:
            return f"differs: {numbers.ratio(row.factor)} of yours"
        case Shape.TOO_FEW:
            return f"too few rounds ({row.ours.pairs})"
        case Shape.AGREES:
            return "no difference shown"
        case Shape.NOT_MEASURED:
            return "not measured"
