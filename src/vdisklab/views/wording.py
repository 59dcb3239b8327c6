"""Diagnostics as sentences: what limits a number, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from vdisklab import numbers
from vdisklab.analysis.best import BestSet
from vdisklab.analysis.candidates import simplest
from vdisklab.analysis.diagnostics.kinds import (
    Aged,
    Bimodal,
    Caveats,
    CellDiagnostic,
    ClockTrouble,
    DeviceCeiling,
    Diagnostic,
    Drift,
    DroppedBySearch,
    Emulated,
    FailedCell,
    FitsInMemory,
    FrequencyGovernor,
    FromPageCache,
    GuestCeiling,
    HostChanged,
    Inconclusive,
    InEmulatedHost,
    InLab,
    NoBaseline,
    NoCommonRound,
    NoisyNeighbour,
    NotDirect,
    NothingToCompare,
    OpenLoad,
    QueueDiffers,
    SetAndRanksDiffer,
    SeveralGuests,
    SharedRounds,
    SlowFirstRound,
    ThinImage,
    TooFewRounds,
    TooSlow,
)
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Ratio, Verdict
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.analysis.score import NoScore
from vdisklab.analysis.search import Ended, Outcome
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Direction
from vdisklab.units import counted, format_bytes

EMULATION = (
    "under emulation (TCG): good for comparing host-side choices, not for the speed of a KVM guest"
)
IN_LAB = "in the lab, a host in a virtual machine: proof that a stack works, not a measure of speed"
IN_EMULATED_HOST = (
    "under KVM in an emulated host: proof that code works under KVM, not a measure of speed"
)

SHOWN_NAMES = 3
"""Maximum number of cells named in a sentence; the others are counted."""


LEAST_NOISE = 0.0005
"""Noise below this would be shown as 0 %, such as that of zeros only."""

SHOWN_OF_A_KIND = 6
"""Maximum number of listed diagnostics of one kind; the others are counted."""


_MOST_AGED = 6
"""Cells whose fragments a sentence lists."""


def caution(caveats: Caveats) -> str | None:
    """The warning to show with every number; None if no caveat applies."""
    if caveats.emulated_host:
        return IN_EMULATED_HOST
    if caveats.lab:
        return IN_LAB
    return EMULATION if caveats.emulated else None


def caution_notes(caveats: Caveats) -> tuple[str, ...]:
    """The warning as a sentence among notes; empty if no caveat applies."""
    warning = caution(caveats)
    return () if warning is None else (f"Measured {warning}.",)


def grouped_sentences(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """Diagnostics as sentences, by kind; only the first ones if there are many of one kind."""
    groups: dict[type, list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        groups.setdefault(type(diagnostic), []).append(diagnostic)
    lines = []
    for group in groups.values():
        lines += [sentence(diagnostic) for diagnostic in group[:SHOWN_OF_A_KIND]]
        if len(group) > SHOWN_OF_A_KIND:
            lines.append(f"… and {len(group) - SHOWN_OF_A_KIND} more like it.")
    return lines


_MOST_TIED = 3


def tie_advice(path: str, ties: Sequence[str] = ()) -> str:
    """What to do when several paths tie, `path` being the simplest of them; names a few `ties`."""
    them = " or ".join(ties) if 1 < len(ties) <= _MOST_TIED else "one of them"
    return f"Keep what you have if it is {them}, or take {path}: it is the simplest."


def measure_name(measure: MeasureKey) -> str:
    """`weighted overall` for a score, otherwise the measure's full name."""
    return measure.metric.replace("_", " ") if measure.name == "score" else str(measure)


OTHER_VERB = (
    "`rank` tests all pairs of cells at once, with noise estimated from all cells, and `compare` "
    "one pair with its own noise, so the two may differ on a pair."
)
"""Why two verbs may disagree; both print it."""

WITH_STEP = (
    "What can be zero, such as a stall, is compared as value + step, so its ratio is not that of "
    "two medians (`vdisklab method zero`)."
)


def mean_sentence(rates: Sequence[MeasureKey], baseline: object) -> str:
    """What the overall ratio of a profile without the usual score is."""
    names = ", ".join(map(str, rates))
    return (
        f"overall ratio: how many times as good as {baseline} in the same round, as the geometric "
        f"mean of {counted(len(rates), 'rate')}: {names}."
    )


def sentence(finding: Diagnostic) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per kind
    """One diagnostic in one or two sentences."""
    match finding:
        case TooFewRounds(cells, have, want):
            return (
                f"{named(cells)}: measured in {counted(have, 'round')}; a rank needs {want}. "
                f"Continue with --rounds {want} or more."
            )
        case DroppedBySearch(cells, want):
            return (
                f"{named(cells)}: measured in fewer than {want} rounds, so without a rank. A "
                "search for the best leaves paths out when it has found better ones; so does "
                "`runs --delete`."
            )
        case NoCommonRound(cells):
            return (
                f"{named(cells)}: never measured in the same round as the others, so drift "
                "and difference cannot be separated. Measure them in one campaign."
            )
        case NothingToCompare(cell):
            return f"{cell} is the only cell; a rank needs two. Measure another path with it."
        case Inconclusive(cells):
            return (
                f"Inconclusive: none of the {cells} cells is shown to differ from another. "
                "More rounds (--rounds) or longer measurements (--runtime) may decide it."
            )
        case Emulated():
            return f"Measured {EMULATION}. `vdisklab doctor` shows what KVM needs here."
        case InEmulatedHost():
            return f"Measured {IN_EMULATED_HOST}. Measure on the machine that the numbers are for."
        case InLab():
            return f"Measured {IN_LAB}. Measure on the machine that the numbers are for."
        case FailedCell(cell, rounds, kind, reason):
            return f"{cell}: failed in {counted(rounds, 'round')} ({kind}): {reason}"
        case NoBaseline(_, MeasureKey() as instead):
            return (
                "No scores: they relate to a baseline in the same rounds, which imported numbers "
                f"do not have. Rank one measure: `vdisklab rank --metric {instead}`; `vdisklab "
                "table` prints all numbers."
            )
        case NoBaseline(baseline):
            return (
                f"No scores: the baseline {baseline} has no numbers. "
                "Measure it, name another one with --baseline, or rank one measure with --metric."
            )
        case NoScore():
            return _no_score(finding)
        case TooSlow(cells, rounds, measured):
            others = (
                "Medians and ratios are of the other rounds, so they look better than the path is."
                if measured
                else "No round has a number, so there is neither a median nor a ratio."
            )
            return (
                f"{named(cells)}: too slow to end in time in {counted(rounds, 'round')}. Ranks "
                f"count that as the worst value of the round. {others}"
            )
        case SeveralGuests((number,)):
            return f"Rates are those of {number} guests together."
        case SeveralGuests(numbers):
            return (
                f"Rates are those of all guests together ({', '.join(map(str, numbers))} at once): "
                "with more guests they are higher, and the path is no faster. Compare paths with "
                "the same number of guests."
            )
        case OpenLoad():
            return (
                "The load was open: rates show the load that was set, not what a path can do. "
                "Compare latencies instead: `vdisklab rank --metric MEASUREMENT/write/latency_p99`."
            )
        case SharedRounds(share, rounds):
            return (
                "Some paths are fast and slow in the same rounds, or one is far noisier than the "
                f"others, which looks the same ({share:.0%} of their noise). So "
                f"{counted(rounds, 'round')} say little about differences between such paths. "
                "The set of paths that may be the best allows for it. Ranks do not: up to 12 % of "
                "such campaigns have a wrong one, instead of 5 %."
            )
        case SetAndRanksDiffer(leader, ()):
            return (
                f"{leader} is the best although its rank is a tie: the question which path is the "
                "best takes fewer comparisons than ranks of all."
            )
        case SetAndRanksDiffer(leader, behind):
            return (
                f"{named(behind)}: ranked behind {leader}, but may still be the best. Where paths "
                "differ in noise or share it, more than 5 % of such ranks are wrong; the set of "
                "paths that may be the best allows for that."
            )
        case _:
            return _limitation(finding)


def _aged(aged: Aged) -> str:
    sentences = [f"Everything was aged first (--age {aged.age})."]
    for what, pieces in (("the image's file", aged.file), ("the disk in the image", aged.disk)):
        counts = [f"{cell} {before} and {after}" for cell, before, after in pieces]
        more = ", …" if len(counts) > _MOST_AGED else ""
        shown = f"{', '.join(counts[:_MOST_AGED])}{more}"
        if counts:
            sentences.append(f"Pieces of {what} before the rewrites and after: {shown}.")
    return " ".join(sentences)


def _limitation(diagnostic: CellDiagnostic) -> str:  # noqa: PLR0911 - one case per kind
    """What limits the numbers, and what to do."""
    match diagnostic:
        case FromPageCache(cell, measurement, direction, share):
            return _from_page_cache(cell, measurement, direction, share)
        case FitsInMemory(cells, size, memory):
            return (
                f"The disk of {format_bytes(size)} fits into the host's memory "
                f"({format_bytes(memory)}), whose page cache serves {counted(cells, 'cell')} "
                "that may never wait for the disk. Measure with a larger --size, or look at "
                "cache=none."
            )
        case NotDirect(cells, version):
            return (
                f"{named(cells)}: ZFS {version} accepts O_DIRECT and serves it from its cache "
                "(ARC), so this was not direct I/O. Limit the cache (--arc) or "
                "zfs:primarycache=metadata, or measure a larger --size."
            )
        case QueueDiffers(setting, values):
            side, _, name = setting.partition(".")
            shares = ", ".join(f"{value} ({counted(count, 'cell')})" for value, count in values)
            return (
                f"The cells differ in {name} of the disk's queue ({side}), which no path sets: "
                f"{shares}. Differences may come from that; guest_scheduler sets the guest's "
                "scheduler."
            )
        case Aged():
            return _aged(diagnostic)
        case ThinImage(cells, grown):
            return (
                f"{named(cells)}: the image grew while it was measured (by {format_bytes(grown)} "
                "in one run): first writes are slower than later ones, and reads of what was never "
                "written need no disk. Compare with an allocated image, without :preallocation=off."
            )
        case GuestCeiling(cells, measure, ceiling, share):
            return (
                f"{named(cells)}, {measure}: up to {share:.0%} of {ceiling}, which has no disk "
                "below: the guest's CPU is the limit, not the disk. Give it more (--guest-cpus, "
                "queues, iothread) or compare larger requests."
            )
        case DeviceCeiling(cells, measure, ceiling, share):
            return (
                f"{named(cells)}, {measure}: up to {share:.0%} of {ceiling}: the device is the "
                "limit and hides faster paths. Compare latency or CPU time instead."
            )
        case _:
            return _unsteady(diagnostic)


def _unsteady(  # noqa: PLR0911 - one case per kind
    diagnostic: Drift
    | SlowFirstRound
    | Bimodal
    | ClockTrouble
    | FrequencyGovernor
    | NoisyNeighbour
    | HostChanged,
) -> str:
    """Why repeated measurements of the same cell differ."""
    match diagnostic:
        case Drift(measure, _, rounds, change, _):
            trend = "rose" if change > 0 else "fell"
            return (
                f"{measure} {trend} by {abs(change):.0%} over {rounds} rounds in all cells. Ranks "
                "and ratios are taken within rounds and are not affected; medians are. Compare "
                "ratios, and let the disk rest or fill its cache before measuring (--ramp)."
            )
        case SlowFirstRound(measure, _, factor):
            return (
                f"{measure}: the first round is only {factor:.0%} as good as the others. Ratios "
                "within it are as valid as others; measure more rounds, or a longer --ramp."
            )
        case Bimodal(cell, measure, apart, share):
            distance = "the lower one with zeros" if apart is None else f"×{apart:.2g} apart"
            return (
                f"{cell}, {measure}: two groups of rounds, {distance} ({share:.0%} in "
                "the upper one): the median may belong to either. Compare its runs "
                "(`vdisklab runs`, `vdisklab show`) to find the cause."
            )
        case ClockTrouble(cell, measurement, seconds, passed):
            return (
                f"{cell}, {measurement}: the program counted {seconds:.3g} s while {passed:.3g} s "
                "passed on the host: the guest's clock is wrong, and so are its rates. Check its "
                "clocksource."
            )
        case FrequencyGovernor(governor):
            return (
                f"The frequency governor of the processor was {governor!r}: short requests "
                "wait for it to speed up. Use `cpupower frequency-set -g performance`."
            )
        case NoisyNeighbour(measurements, share, cell):
            return (
                f"The hypervisor took up to {share:.0%} of the CPU time ({cell}) in "
                f"{counted(measurements, 'measurement')}: other guests share this machine. "
                "Measure at a quiet time, or more rounds."
            )
        case HostChanged(fact, values):
            return (
                f"The joined campaigns differ in {fact}: {', '.join(values)}. Differences between "
                "them may come from that; name one --campaign."
            )
        case _:
            assert_never(diagnostic)


def verdict(outcome: Verdict, ratio: Ratio, names: tuple[str, str] = ("A", "B")) -> str:
    """A comparison's outcome: `A faster`, `no difference shown (about 12 rounds may show one)`."""
    match outcome:
        case Verdict.A_BETTER | Verdict.B_BETTER:
            return f"{names[outcome is Verdict.B_BETTER]} faster"
        case Verdict.A_LIKELY | Verdict.B_LIKELY:
            return f"{names[outcome is Verdict.B_LIKELY]} faster: likely, not proven"
        case Verdict.TOO_FEW:
            return f"too few rounds ({ratio.pairs})"
        case Verdict.NONE_SHOWN:
            needed = ratio.rounds_needed
            if needed is not None and needed > ratio.pairs:
                return f"no difference shown (about {needed} rounds may show one)"
            return "no difference shown"
        case _:
            assert_never(outcome)


def _from_page_cache(
    cell: MeasuredCell, measurement: str, direction: Direction, share: float
) -> str:
    if direction is Direction.WRITE:
        return (
            f"{cell}, {measurement}: into the host's page cache; {share:.0%} of the bytes "
            "reached the device while it was measured. Look at cache=none, or measure with a "
            "larger --size for a longer --runtime."
        )
    return (
        f"{cell}, {measurement}: from the host's page cache; {share:.0%} of the bytes "
        "came from the device. Look at cache=none, or measure with a larger --size than the "
        "host's memory."
    )


def _no_score(finding: NoScore) -> str:
    name = finding.score.replace("_", " ")
    if finding.zero:
        everywhere = ", nor has any other path, as it is the baseline" * bool(finding.baseline_zero)
        return (
            f"{finding.cell}: no {name} in the rounds in which its {', '.join(finding.zero)} is "
            f"zero, as a ratio to zero is unknown{everywhere}. `vdisklab rank --metric "
            f"{finding.zero[0]}` counts them."
        )
    if finding.baseline_lacking:
        lacking = ", ".join(finding.baseline_lacking)
        return (
            f"{finding.cell}: no {name}, as the baseline lacks {lacking}. One measure alone can be "
            "ranked: `vdisklab rank --metric MEASUREMENT/DIRECTION/METRIC`."
        )
    if finding.baseline_zero:
        return (
            f"{finding.cell}: no {name}, as the baseline's {', '.join(finding.baseline_zero)} is "
            "zero, and a ratio to zero is unknown. Name another baseline: `vdisklab rank "
            "--baseline CELL`."
        )
    if finding.lacking:
        return f"{finding.cell}: no {name}, as it lacks {', '.join(finding.lacking)}."
    return f"{finding.cell}: no {name}, as no round holds all its measures and the baseline's."


def named(cells: Sequence[MeasuredCell | str], most: int = SHOWN_NAMES) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(map(str, cells[:most]))
    more = len(cells) - most
    return f"{shown} and {more} more" if more > 0 else shown


def best_sentence(best: BestSet) -> str:
    """Which cells may be the best, and how sure that is."""
    if best.p is None:
        return f"Only {best.leader} could be ranked, so there is no best one."
    if best.alone:
        return f"Best: {best.leader} ({chance_sentence(best)})."
    return (
        f"No winner: one of these {len(best.cells)} is the best, with {1 - best.alpha:.0%} "
        f"confidence: {named(best.cells)} ({chance_sentence(best)})."
    )


def chance_sentence(best: BestSet) -> str:
    """`p = 0.02 against qcow2/none`, or `p = 0.3 between the first two`; empty without a p."""
    if best.p is None:
        return ""
    chance = f"p = {numbers.probability(best.p)}".replace("= <", "< ")
    return f"{chance} {f'against {best.runner_up}' if best.alone else 'between the first two'}"


def reach_sentence(best: BestSet) -> str | None:
    """The leads that the rounds can show; None without noise or anything to compare."""
    if best.shows is None or best.noise < LEAST_NOISE:
        return None
    more = [
        f"{lead:.0%} needs {needed} rounds"
        for lead in (0.25, 0.10)
        if best.shows > lead and (needed := best.rounds_for(lead)) is not None
    ]
    return (
        f"At the noise seen here ({math.expm1(best.noise):.0%}), {counted(best.rounds, 'round')} "
        f"show leads of {best.shows:.0%} or more{''.join(f'; {text}' for text in more)}."
    )


def search_sentences(outcome: Outcome) -> Iterator[str]:
    """The result of a search for the best path, how sure it is, and why the search ended."""
    after = f"after {counted(outcome.rounds, 'round')}"
    if outcome.measured == 1:
        yield (
            f"Only {outcome.best} of {counted(outcome.cells, 'path')} has numbers ({after}), so "
            "there is nothing to compare it with."
        )
        yield from _why_it_ended(outcome)
        return
    if outcome.alone:
        yield f"Best: {outcome.best}, {after}."
    else:
        unseen = ", by prediction: it was not measured itself" if outcome.predicted else ""
        yield f"No winner: {outcome.best} leads {after}{unseen}."
    yield (
        f"With a probability of {_probability(outcome.probability)} no other path is better by "
        f"more than {_margin(outcome)}, judged from {outcome.measured} measured paths of "
        f"{outcome.cells} and the segments that they share."
    )
    yield from _why_it_ended(outcome)
    if outcome.rivals:
        yield f"Compared in {MIN_ROUNDS} rounds or more: {_rivals(outcome)}."
    if outcome.as_good:
        simple = simplest((outcome.best, *outcome.as_good))
        yield tie_advice(str(simple))
    if outcome.failed:
        yield (
            f"{counted(outcome.failed, 'path')} failed, or share a segment with paths that all "
            "failed, and were given up."
        )


def ranking_after_search(outcome: Outcome, ranking: Ranking) -> str | None:
    """Why the ranking does not say the same as the search; None if it does."""
    best = ranking.best
    if best is None or (best.leader, best.alone) == (outcome.best, outcome.alone):
        return None
    if all(row.cell != outcome.best for row in ranking.rows):
        differs = f"leaves out {outcome.best}, which it cannot rank"
    elif outcome.best not in best.cells:
        differs = f"counts {outcome.best} as beaten"
    elif best.alone:
        differs = f"names {best.leader} alone"
    elif outcome.alone:
        differs = f"keeps {counted(len(best.cells), 'path')} that may be the best"
    else:
        differs = f"begins with {best.leader}"
    return (
        f"The ranking goes by each path's own runs in {MIN_ROUNDS} rounds or more, not by segments "
        "that paths share, has no margin, and allows for noise that differs or is shared; so it "
        f"{differs}. The search answers for all paths, within {_margin(outcome)}."
    )


def _why_it_ended(outcome: Outcome) -> Iterator[str]:
    match outcome.ended:
        case Ended.OUT_OF_BUDGET:
            yield (
                "The budget ran out before the search was done: with more time the answer may "
                "change."
            )
        case Ended.OUT_OF_ROUNDS:
            yield (
                "The limit of rounds was reached before the search was done: with more --rounds "
                "the answer may change."
            )
        case Ended.FOUND:
            unmeasured = outcome.cells - outcome.measured - outcome.failed
            if unmeasured > 0:
                yield (
                    f"Not measured: {counted(unmeasured, 'path')}. In case one is better than its "
                    "segments promise, --every-path measures each at least once."
                )
        case _:
            assert_never(outcome.ended)


def _margin(outcome: Outcome) -> str:
    return f"{outcome.margin:.0%}" if outcome.step is None else f"the step of {outcome.step:g}"


def _probability(share: float) -> str:
    """A percentage, rounded down: `more than 99 %` is never spelled as certainty."""
    return "more than 99%" if share > 0.99 else f"{math.floor(share * 100)}%"


def _rivals(outcome: Outcome) -> str:
    worse = outcome.rivals - len(outcome.as_good) - len(outcome.undecided)
    parts = []
    if worse:
        parts.append(f"{counted(worse, 'rival')} shown to be worse")
    if outcome.as_good:
        names = named(outcome.as_good)
        parts.append(f"{names} better by less than {_margin(outcome)}, if at all")
    if outcome.undecided:
        parts.append(f"{named(outcome.undecided)} may be better by up to {outcome.gap:.0%}")
    return "; ".join(parts)


def search_effort(runs: int, measured: int, cells: int) -> str:
    """How many runs a search made of how many cells."""
    return f"Measured {measured} of {counted(cells, 'cell')} in {counted(runs, 'run')}."
