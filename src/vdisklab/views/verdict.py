"""The recommendation in words: at most five sentences, and the reasons behind them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator

from vdisklab import numbers
from vdisklab.analysis.best import BestSet
from vdisklab.analysis.candidates import Price, Recommendation
from vdisklab.analysis.diagnostics.recorded import FROM_CACHE_BELOW
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.sums import RelativeSums
from vdisklab.answers.advice import RecommendationAnswer
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.needs import DURABLE
from vdisklab.path.platforms import NEW_GUEST_DISKS
from vdisklab.units import counted, named
from vdisklab.views.durability import basis_sentence, durability_sentence, loss_sentences
from vdisklab.views.wording import chance_sentence, measure_name, tie_advice

MOST_SENTENCES = 5
"""Maximum number of sentences of a verdict."""

NAMED = 4
"""Maximum number of ties named in a sentence; the others are counted."""

WANTED_LEAD = 0.1
"""The lead for which a tie says how many rounds would show it."""


def headline(answer: RecommendationAnswer) -> str:
    """`Keep raw/default`, `Change to raw/none: +35 % (12–60) over raw/default, as safe`, or a tie.

    What to keep or change is QEMU's default; without it, it is `Use raw/none`.
    """
    recommendation = answer.recommendation
    default, gain = recommendation.default, recommendation.over_default
    if recommendation.ties:
        return f"No winner among {len(recommendation.ties)}"
    if default is not None and default == recommendation.cell:
        return f"Keep {answer.path}"
    if default is None or gain is None or gain.ratio is None:
        return f"Use {answer.path}"
    change = numbers.gain(gain.ratio, gain.low, gain.high)
    safety = _safety(recommendation, default)
    return f"Change to {answer.path}: {change} over {default.name}, {safety}"


def _safety(recommendation: Recommendation, default: MeasuredCell) -> str:
    """The safety of the recommended cell, compared with that of QEMU's default."""
    new = recommendation.durability[recommendation.cell]
    old = recommendation.durability.get(default)  # None: it does not qualify, so it loses data
    if not new.kind.acceptable:
        return "as unsafe" if old is None or not old.kind.acceptable else "but not safe"
    safer = old is None or not old.kind.acceptable or new.flush_free > old.flush_free
    return "safer" if safer else "as safe"


def first_lines(answer: RecommendationAnswer) -> tuple[tuple[str, str], ...]:
    """Safety, doubt, and what would settle it: at most three subjects with their sentences."""
    recommendation = answer.recommendation
    safety = durability_sentence(answer.path, recommendation.durability[recommendation.cell])
    doubt = "Next best" if recommendation.ranking.rows and not recommendation.ties else "Doubt"
    return (
        ("Safety", safety),
        *((doubt, sentence) for sentence in _rivals(answer)),
        *(("To settle it", sentence) for sentence in _to_settle(recommendation.ranking.best)),
    )


def explanation(answer: RecommendationAnswer) -> tuple[str, ...]:
    """The rest of the verdict, and the reasons behind it."""
    shown = {sentence for _, sentence in first_lines(answer)}
    sentences = (*verdict_sentences(answer), *reasons(answer))
    return tuple(sentence for sentence in sentences if sentence not in shown)


def verdict_sentences(answer: RecommendationAnswer) -> tuple[str, ...]:
    """What to do, how certain that is, what a power cut does to it, what safety costs, how it
    compares with a new guest's disk, and what would settle it: at most five sentences.
    """
    return _verdict(answer)[:MOST_SENTENCES]


def _verdict(answer: RecommendationAnswer) -> tuple[str, ...]:
    recommendation = answer.recommendation
    durability = recommendation.durability[recommendation.cell]
    return (
        f"{headline(answer)}{_choice(answer)}",
        *_rivals(answer),
        durability_sentence(answer.path, durability),
        *_price_of_safety(recommendation),
        *_over_platforms(answer),
        *_to_settle(recommendation.ranking.best),
    )


def reasons(answer: RecommendationAnswer) -> Iterator[str]:
    """What power cuts decided, the gain over QEMU's default, the needs' prices, and counters."""
    recommendation = answer.recommendation
    yield from _verdict(answer)[MOST_SENTENCES:]
    yield from basis_sentence(recommendation)
    yield from _over_default(recommendation)
    for price in recommendation.prices:
        if price.need != DURABLE:
            yield price_sentence(price, recommendation.cell)
    yield from _why(answer)


def next_step(path: str | None, db: str | None, campaign: str | None) -> str:
    """The commands that show the results of a run and print the configuration of a path.

    `db` and `campaign` are named unless they are the defaults (None).
    """
    place = "" if db is None else f" --db {shlex.quote(db)}"
    chosen = "" if campaign is None else f" --campaign {campaign}"
    see = f"see it: vdisklab report{chosen}{place}"
    return see if path is None else f"{see}; paste it: vdisklab export {path}{place}"


def _choice(answer: RecommendationAnswer) -> str:
    """The rest of the first sentence: of how many it is the best, or what to do in a tie."""
    recommendation = answer.recommendation
    name = measure_name(recommendation.measure)
    if recommendation.ties:
        return f" by {name}. {tie_advice(answer.path)}"
    count, considered = len(answer.order), recommendation.considered
    if considered == 1:
        return ". It is the only path measured."
    if count == 1:
        return f". It is the only path that qualifies, of {considered} measured."
    return f". It is the best by {name} of {count} paths that qualify, of {considered} measured."


def _rivals(answer: RecommendationAnswer) -> Iterator[str]:
    """The ties and their leader, or the runner-up with its ratio."""
    recommendation = answer.recommendation
    if not recommendation.ranking.rows:
        yield "No other path could be ranked, so there is no comparison."
        return
    ties, best = recommendation.ties, recommendation.ranking.best
    chance = "" if best is None or best.p is None else f" ({chance_sentence(best)})"
    if ties:
        names = named([cell.name for cell in ties], NAMED)
        lead = answer.lead
        leads = "" if lead is None else f"; the first is {_times(lead)}"
        if lead is not None and lead.low is not None and lead.low > 1:
            leads += ", likely but not proven"
        losses = loss_sentences((c for c in ties if c != recommendation.cell), answer.verdicts)
        tied = f"Tied, of {recommendation.considered} measured: {names}{leads}{chance}."
        yield " ".join((tied, *losses))
    elif len(answer.order) > 1 and answer.order[1] in answer.ratios:
        runner = answer.order[1]
        losses = loss_sentences((runner,), answer.verdicts)
        yield " ".join((f"Runner-up: {runner}, {_times(answer.ratios[runner])}{chance}.", *losses))


def _price_of_safety(recommendation: Recommendation) -> Iterator[str]:
    """What durability costs, or how little an unsafe path gains over the best safe one."""
    if recommendation.safe is not None and recommendation.over_safe is not None:
        gain = _times(recommendation.over_safe)
        yield (
            f"To keep flushed data, take {recommendation.safe} instead: "
            f"{recommendation.cell} is {gain}."
        )
    for price in recommendation.prices:
        if price.need == DURABLE and price.without != recommendation.cell:
            yield price_sentence(price, recommendation.cell)


def _to_settle(best: BestSet | None) -> Iterator[str]:
    """The smallest lead that the rounds of a tie can show, and the rounds for a smaller one."""
    if best is None or best.alone or best.shows is None:
        return
    rounds = best.rounds_for(WANTED_LEAD)
    again = f" (the same command with `--rounds {rounds}`)"
    more = f"; {WANTED_LEAD:.0%} needs {rounds} rounds{again}" if rounds else ""
    if best.shows > WANTED_LEAD:
        yield (
            f"At the noise seen here ({math.expm1(best.noise):.0%}), "
            f"{counted(best.rounds, 'round')} show a lead of {best.shows:.0%} or more{more}."
        )


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
        return f"{need}: not known, as {price.without} was never measured in the same round."
    return f"{need}: without it the best is {price.without}, {_times(price.ratio)}."


def _over_default(recommendation: Recommendation) -> Iterator[str]:
    if recommendation.default is None:
        yield "QEMU's default was not measured: `vdisklab run raw/default`."
    elif recommendation.default == recommendation.cell:
        yield "It is QEMU's default."
        return
    ratio = recommendation.over_default
    if ratio is not None and ratio.ratio is not None:
        yield f"Compared with QEMU's default ({recommendation.default}) it is {_times(ratio)}."


def _over_platforms(answer: RecommendationAnswer) -> Iterator[str]:
    """The recommended path against what each platform gives a new guest, in one sentence."""
    compared = [
        f"{platform.full_name} {NEW_GUEST_DISKS[platform].version}: "
        + ("the same disk" if ratio is None else _times(ratio))
        for platform, ratio in answer.over_platforms.items()
        if ratio is None or ratio.ratio is not None
    ]
    if compared:
        yield f"Compared with the disk of a new guest in {'; in '.join(compared)}."


def _why(answer: RecommendationAnswer) -> Iterator[str]:
    """Counters that explain the order: the recommended cell against others.

    The others are the runner-up, QEMU's default, and the first cell shown to be worse: tied cells
    are often similar, so only a worse cell shows the reason.
    """
    recommendation = answer.recommendation
    worse = next((row.cell for row in recommendation.ranking.rows if row.best > 1), None)
    compared = (*answer.order[1:2], recommendation.default, worse)
    others = [cell for cell in compared if cell is not None and cell != recommendation.cell]
    recommended = answer.relative_sums.get(recommendation.cell)
    if recommended is None:
        return
    yield from _from_memory(answer.path, recommended)
    for cell in dict.fromkeys(others):
        other = answer.relative_sums.get(cell)
        if other is None:
            continue
        parts = [
            *_cpu(recommended, other),
            *_flushes(recommended, other),
            *_cache(recommended, other),
        ]
        if parts:
            yield f"Compared with {cell}: {'; '.join(parts)}."


def _from_memory(path: str, recommended: RelativeSums) -> Iterator[str]:
    if recommended.device_share is not None and recommended.device_share < FROM_CACHE_BELOW:
        yield (
            f"Only {recommended.device_share:.0%} of the bytes that {path} moved reached the "
            "device during the measurement: its numbers mostly show the host's page cache, which "
            "it shares with all other guests. To see the disk itself, look at cache mode `none`."
        )


def _cpu(recommended: RelativeSums, compared: RelativeSums) -> Iterator[str]:
    a, b = recommended.cpu_per_operation, compared.cpu_per_operation
    if a and b and not 0.9 < a / b < 1.1:
        yield f"{numbers.value(a, 's')} of host CPU per operation against {numbers.value(b, 's')}"


def _flushes(recommended: RelativeSums, compared: RelativeSums) -> Iterator[str]:
    a, b = recommended.device_flushes_per_1000, compared.device_flushes_per_1000
    if a is not None and b is not None and abs(a - b) > max(1.0, 0.1 * max(a, b)):
        yield (
            f"{numbers.digits(a)} flushes at the device per 1000 operations against "
            f"{numbers.digits(b)}"
        )


def _cache(recommended: RelativeSums, compared: RelativeSums) -> Iterator[str]:
    a, b = recommended.device_share, compared.device_share
    if a is not None and b is not None and abs(a - b) > 0.1:
        yield (
            f"{numbers.digits(a)} bytes at the device per requested byte against "
            f"{numbers.digits(b)}"
        )
