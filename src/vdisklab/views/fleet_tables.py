"""Answers from many hosts as tables and documents."""

from __future__ import annotations

from collections.abc import Iterator

from vdisklab import numbers
from vdisklab.analysis.claim_verdicts import ClaimStatus
from vdisklab.analysis.paired_ratios import Comparison
from vdisklab.answers.fleet_answers import (
    FleetClaim,
    FleetComparison,
    FleetRecommendation,
)
from vdisklab.answers.hosts import HostsAnalysis
from vdisklab.units import counted
from vdisklab.views.documents.conversion import copy_fields
from vdisklab.views.documents.fleets import (
    AgreementEntry,
    FleetAlternative,
    FleetClaimEntry,
    FleetClaimsDocument,
    FleetCompareDocument,
    FleetKeys,
    FleetMeasure,
    FleetPair,
    FleetRecommendDocument,
    FleetState,
)
from vdisklab.views.durability import power_cut_word
from vdisklab.views.hosts import (
    agreement_sentence,
    hosts_sentences,
    left_out_sentences,
    names,
    spread_sentences,
)
from vdisklab.views.layout import NAMES, WORDS, Column, Table
from vdisklab.views.wording import measure_name, verdict


def _of(count: int | None, hosts: int) -> str:
    return numbers.MISSING if count is None else f"{count} of {hosts}"


def fleet_comparison_table(
    answer: FleetComparison, *, everything: bool = False
) -> Table[Comparison]:
    """A sentence on the first measure, one row per main measure, and each class's ratio."""
    rows = [row for row in answer.comparisons if row.main or everything] or answer.comparisons
    hidden = len(answer.comparisons) - len(rows)
    columns: tuple[Column[Comparison], ...] = (
        Column("measure", lambda row: measure_name(row.measure), folds=NAMES),
        Column("A/B", lambda row: numbers.ratio(row.ratio.ratio), right=True),
        Column(
            "95 % interval",
            lambda row: numbers.ratio_interval(row.ratio.low, row.ratio.high), right=True
        ),
        Column(
            "A better\non", lambda row: _of(_a_better(answer, row), row.ratio.pairs), right=True
        ),
        Column(
            "p", lambda row: numbers.probability(row.p_adjusted), right=True, spare=2
        ),
        Column(
            "verdict",
            lambda row: verdict(row.verdict, row.ratio).replace("round", "host"), folds=WORDS
        ),
    )  # fmt: skip
    notes = (
        *answer.caveats.notes,
        *left_out_sentences(answer.fleet.left_out),
        *_class_ratios(answer),
        "A/B is taken within hosts; the hosts are the replications. p and verdicts are corrected "
        "for the number of main measures, or of others (Holm).",
        *((f"{counted(hidden, 'more measure')} with --all.",) if hidden else ()),
    )
    return Table(
        f"A = {answer.a}\nB = {answer.b}",
        columns,
        rows,
        notes,
        intro=_comparison_sentences(answer),
        kind=FleetMeasure,
        record=lambda row: _measure(answer, row),
    )


def _class_ratios(answer: FleetComparison) -> Iterator[str]:
    """The ratio in each class, because a mean over all may hide one."""
    for name, pair in answer.by_class.items():
        interval = numbers.ratio_interval(pair.ratio.low, pair.ratio.high)
        yield (
            f"{name} ({counted(len(pair.hosts), 'host')}): A/B {numbers.ratio(pair.ratio.ratio)} "
            f"({interval}) in {measure_name(pair.measure)}."
        )


def _comparison_sentences(answer: FleetComparison) -> tuple[str, ...]:
    pair = answer.agreements.get(answer.comparisons[0].measure)
    if pair is None:
        return ()
    return (agreement_sentence(pair), *spread_sentences(pair))


def _a_better(answer: FleetComparison, row: Comparison) -> int | None:
    pair = answer.agreements.get(row.measure)
    return None if pair is None else pair.a_better_on


def _measure(answer: FleetComparison, row: Comparison) -> FleetMeasure:
    return copy_fields(FleetMeasure, row, a_better_on=_a_better(answer, row))


def fleet_comparison_document(
    fleet: HostsAnalysis, answers: tuple[FleetComparison, ...]
) -> FleetCompareDocument:
    """The JSON form."""
    return copy_fields(
        FleetCompareDocument,
        answers[0],
        fleet=copy_fields(FleetKeys, fleet),
        pairs=tuple(
            copy_fields(
                FleetPair,
                answer,
                measures=tuple(_measure(answer, row) for row in answer.comparisons),
                agreements=tuple(map(AgreementEntry.of, answer.agreements.values())),
                sentences=(*_comparison_sentences(answer), *_class_ratios(answer)),
            )
            for answer in answers
        ),
    )


def fleet_recommendation_table(answer: FleetRecommendation) -> Table[FleetAlternative]:
    """The path, who disagrees, the next ones, and the classes."""
    columns: tuple[Column[FleetAlternative], ...] = (
        Column("rank", lambda row: row.rank or numbers.MISSING),
        Column("path", lambda row: row.path.label, folds=NAMES),
        Column(
            "recommended\nvs this", lambda row: numbers.ratio(row.ratio), right=True
        ),
        Column(
            "95 %\ninterval",
            lambda row: numbers.ratio_interval(row.ratio_low, row.ratio_high), right=True
        ),
        Column(
            "worse\non", lambda row: _of(row.worse_on, row.hosts or 0), right=True
        ),
        Column(
            "power cut", lambda row: power_cut_word(answer.durability[row.path]), spare=1
        ),
    )  # fmt: skip
    first, *others = _recommendation_sentences(answer)
    notes = (
        *answer.caveats.notes,
        *hosts_sentences(answer.hosts),
    )
    return Table(
        first,
        columns,
        _alternatives(answer),
        notes,
        intro=tuple(others),
        kind=FleetAlternative,
    )


def _recommendation_sentences(answer: FleetRecommendation) -> Iterator[str]:
    hosts = counted(len(answer.fleet.hosts), "host")
    yield f"Use {answer.cell} on these {hosts}."
    if answer.ties:
        yield (
            f"It is the simplest of {len(answer.ties)} paths that may be the best by "
            f"{measure_name(answer.measure)}; hosts do not tell them apart."
        )
    if answer.over:
        yield agreement_sentence(answer.over[0])


def _alternatives(answer: FleetRecommendation) -> list[FleetAlternative]:
    ranks = {row.cell: numbers.place(row.best, row.worst) for row in answer.ranking.rows}
    against = {pair.b: pair for pair in answer.over}
    own = FleetAlternative(
        rank=ranks.get(answer.cell), path=answer.cell, ratio=1.0, ratio_low=None, ratio_high=None,
        worse_on=None, hosts=None, power_cut=answer.durability[answer.cell].kind,
    )  # fmt: skip
    return [
        own,
        *(
            copy_fields(
                FleetAlternative,
                pair,
                rank=ranks.get(cell),
                path=cell,
                worse_on=pair.a_better_on,
                hosts=len(pair.hosts),
                power_cut=answer.durability[cell].kind,
            )
            for cell, pair in against.items()
        ),
    ]


def fleet_recommendation_document(answer: FleetRecommendation) -> FleetRecommendDocument:
    """The JSON form."""
    return copy_fields(
        FleetRecommendDocument,
        answer,
        ties=tuple(cell for cell in answer.ties if cell != answer.cell),
        alternatives=tuple(_alternatives(answer)),
        state=copy_fields(FleetState, answer.hosts),
        sentences=(
            *_recommendation_sentences(answer),
            *hosts_sentences(answer.hosts),
        ),
    )


_STATUSES = (
    ClaimStatus.HOLDS,
    ClaimStatus.FAILS,
    ClaimStatus.INCONCLUSIVE,
    ClaimStatus.VOID,
    ClaimStatus.NOT_MEASURED,
)


def fleet_claims_table(
    fleet: HostsAnalysis, claims: tuple[FleetClaim, ...]
) -> Table[FleetClaimEntry]:
    """One row per claim: on how many hosts it holds, and where it fails."""
    columns: tuple[Column[FleetClaimEntry], ...] = (
        Column("article", lambda row: row.article, spare=2),
        Column("claim", lambda row: row.name, folds=NAMES),
        Column("holds", lambda row: str(row.holds), right=True),
        Column("fails", lambda row: str(row.fails), right=True),
        Column("incon-\nclusive", lambda row: str(row.inconclusive), right=True),
        Column("void", lambda row: str(row.void), right=True, spare=1),
        Column("not\nmeasured", lambda row: str(row.not_measured), right=True, spare=1),
    )
    notes = [
        f"{entry.claim.claim} fails on {names(entry.hosts[ClaimStatus.FAILS])}."
        for entry in claims
        if entry.hosts.get(ClaimStatus.FAILS)
    ]
    return Table(
        f"Claims on {counted(len(fleet.hosts), 'host')}, each judged by its own rounds",
        columns,
        [_claim(entry) for entry in claims],
        (*fleet.loaded.caveats.notes, *notes, *left_out_sentences(fleet.left_out)),
        kind=FleetClaimEntry,
    )


def _claim(entry: FleetClaim) -> FleetClaimEntry:
    holds, fails, open_, void, missing = (len(entry.hosts.get(kind, ())) for kind in _STATUSES)
    return copy_fields(
        FleetClaimEntry,
        entry,
        holds=holds,
        fails=fails,
        inconclusive=open_,
        void=void,
        not_measured=missing,
        failing=" ".join(entry.hosts.get(ClaimStatus.FAILS, ())),
    )


def fleet_claims_document(
    fleet: HostsAnalysis, claims: tuple[FleetClaim, ...]
) -> FleetClaimsDocument:
    """The JSON form."""
    return copy_fields(
        FleetClaimsDocument,
        fleet.loaded,
        fleet=copy_fields(FleetKeys, fleet),
        claims=tuple(map(_claim, claims)),
    )
