"""The answer of `recommend` in words and columns.

The verdict has at most six sentences; the reasons behind it are notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from vdisklab import numbers
from vdisklab.analysis.candidates import Price, Recommendation
from vdisklab.analysis.diagnostics.recorded import FROM_CACHE_BELOW
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.score import MIX
from vdisklab.analysis.summary import Summary
from vdisklab.analysis.sums import RelativeSums
from vdisklab.answers.choice import told_apart
from vdisklab.answers.hosts import OverHosts
from vdisklab.answers.life import measured_lives
from vdisklab.answers.measured_for import seconds_of_measurements
from vdisklab.answers.recommend import Alternative, RecommendAnswer
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.needs import DURABLE, NeedKind
from vdisklab.path.platforms import NEW_GUEST_DISKS
from vdisklab.units import in_percent
from vdisklab.value import replace
from vdisklab.views.choice import MOST_CHARACTERS, verdict_lines
from vdisklab.views.choice import headline as choice_headline
from vdisklab.views.choice import short_headline as short_choice
from vdisklab.views.durability import basis_sentence, hosts_note, losses, power_cut_word
from vdisklab.views.hosts import (
    agreement_sentence,
    apart_sentences,
    hosts_sentences,
    look_first,
)
from vdisklab.views.layout import NAMES, Column, Table
from vdisklab.views.rank import summary_columns
from vdisklab.views.run import not_raced
from vdisklab.views.wording import (
    at_most,
    difference,
    ends_at_one,
    less_certain,
    mean_sentence,
    measure_name,
)

SHOWN = 6
"""Maximum number of listed alternatives, beside all that tie."""

MOST_SENTENCES = 6
"""Maximum number of sentences of a verdict."""

_NAMED = 3
"""Maximum number of left-out paths that are named per reason."""


def tables(answer: RecommendAnswer) -> Iterator[Table[Alternative]]:
    """The verdict, the first alternatives with their numbers, and the reasons as notes."""
    if answer.hosts is not None:
        yield _hosts_table(answer, answer.hosts)
        return
    columns: tuple[Column[Alternative], ...] = (
        Column("rank", _rank),
        Column("path", lambda row: row.cell.label, folds=NAMES),
        *(column for key in answer.measures for column in _medians(answer, key)),
        Column(
            "vs the\nanswer",
            lambda row: numbers.ratio(None if row.ratio is None else row.ratio.ratio),
            right=True,
            spare=3,
        ),
        Column("power cut", lambda row: power_cut_word(row.power_cut), spare=2),
    )
    chosen, verdict = answer.recommendation.cell, verdict_table(answer)
    yield replace(
        verdict,
        title=answer.caveats.scoped(verdict.title),
        columns=columns,
        rows=[
            row
            for number, row in enumerate(answer.alternatives)
            if number < SHOWN or row.cell == chosen or row.cell in answer.choice.ties
        ],
        intro=(*verdict.intro, *answer.caveats.with_remedy),
        notes=(
            *reasons(answer),
            *_explained(answer),
            *less_certain(
                [
                    (row.cell, row.place)
                    for row in answer.alternatives
                    if row.place is not None and answer.race is None
                ]
            ),
            *ends_at_one(_ends(answer)),
            *map(str, answer.findings),
        ),
        kind=Alternative,
    )


def _ends(answer: RecommendAnswer) -> Iterator[tuple[float | None, float | None]]:
    """The ends of the intervals of the numbers that order the table."""
    levels = (row.ordered_by for row in answer.alternatives if row.cell != answer.baseline)
    yield from ((level.low, level.high) for level in levels if level is not None)


def _hosts_table(answer: RecommendAnswer, over: OverHosts) -> Table[Alternative]:
    """The path, who disagrees, the next ones, and what other hosts need."""
    chosen = answer.recommendation.cell
    columns: tuple[Column[Alternative], ...] = (
        Column("rank", _rank),
        Column("path", lambda row: row.cell.label, folds=NAMES),
        Column(
            "vs the\nanswer",
            lambda row: numbers.ratio(row.hosts.ratio.ratio if row.hosts else None),
            right=True,
        ),
        Column(
            "95 %\ninterval",
            partial(_interval_over_hosts, answer),
            right=True,
        ),
        Column(
            "beats the\nanswer on",
            lambda row: (
                f"{row.hosts.a_better_on} of {len(row.hosts.hosts)}"
                if row.hosts
                else numbers.MISSING
            ),
            right=True,
        ),
        Column("power cut", lambda row: power_cut_word(row.power_cut), spare=1),
    )
    rows = [row for row in answer.alternatives if row.hosts or row.cell == chosen]
    return Table(
        f"{headline(answer)}.",
        columns,
        sorted(rows, key=lambda row: row.cell != chosen),
        (
            *apart_sentences(over, answer.baseline),
            *ends_at_one(_ends_over_hosts(answer, rows)),
            *answer.caveats.notes,
            *hosts_note(row.power_cut for row in rows),
            *hosts_sentences(over),
            *map(str, answer.findings),
        ),
        intro=tuple(_hosts_reasons(answer, over)),
        kind=Alternative,
    )


def _interval_over_hosts(answer: RecommendAnswer, row: Alternative) -> str:
    return numbers.MISSING if row.hosts is None else numbers.ratio_interval(*_ends_of(answer, row))


def _ends_of(answer: RecommendAnswer, row: Alternative) -> tuple[float | None, float | None]:
    """The interval of the pair; of a path whose rank does not differ from the answer's it holds 1:
    that of two paths alone may show what the ranking of all does not."""
    ratio = Ratio(0, None) if row.hosts is None else row.hosts.ratio
    low, high = ratio.low, ratio.high
    if low is not None and high is not None and not _is_told_apart(answer, row.cell):
        low, high = min(low, 1.0), max(high, 1.0)
    return low, high


def _ends_over_hosts(
    answer: RecommendAnswer, rows: Iterable[Alternative]
) -> Iterator[tuple[float | None, float | None]]:
    """The intervals that the table over hosts shows."""
    yield from (_ends_of(answer, row) for row in rows)


def _hosts_reasons(answer: RecommendAnswer, over: OverHosts) -> Iterator[str]:
    """Why this path for all hosts: ties, and how many hosts agree."""
    yield from _error_policy(answer)
    yield from _stalls(answer)
    yield from (sentence for _, sentence in first_lines(answer))
    if over.first is not None:
        ranking = answer.recommendation.ranking
        yield agreement_sentence(over.first, told_apart(over.first.a, over.first.b, ranking))


def verdict_table(answer: RecommendAnswer) -> Table[Alternative]:
    """The verdict alone, as `run` prints it at its end."""
    first, *others = verdict_sentences(answer)
    return Table(first, (), (), intro=tuple(others))


def _rank(row: Alternative) -> str:
    return numbers.MISSING if row.place is None else numbers.place(row.place.best, row.place.worst)


def _medians(answer: RecommendAnswer, key: MeasureKey) -> Sequence[Column[Alternative]]:
    """The median and its interval, in the scale of the best cell."""
    with_it = (shown.median for row in answer.alternatives if (shown := row.shown(key)))
    decides = key == answer.recommendation.measure
    return summary_columns(
        measure_name(key).removeprefix("weighted "),
        numbers.scale(next(with_it, None), key.quantity.shown_unit),
        partial(_median, key),
        spare=(0, 1) if decides else (2, 4),
    )


def _median(key: MeasureKey, row: Alternative) -> Summary | None:
    return row.shown(key)


def _explained(answer: RecommendAnswer) -> Iterator[str]:
    """Explains the column of the user's own weights, and ratios other than those of `compare`."""
    if MIX in answer.measures:
        weighted = ", ".join(measure_name(key) for key in answer.measures if key != MIX)
        yield (
            f"mix: how many times as good as {answer.baseline} in the same round, as the geometric "
            f"mean over the measures of --weights ({weighted}), each by its weight, and over the "
            "rounds; the columns of these measures are medians of the rounds, so the mix may not "
            "lie between them."
        )
    if answer.rates:
        seconds = seconds_of_measurements(answer.campaigns)
        yield mean_sentence(answer.rates, answer.baseline, seconds)
    if any(
        row.ratio is not None and _lacks_rounds(answer, row.ratio) for row in answer.alternatives
    ):
        yield (
            "vs the answer: the ratio of the numbers that order the table, which are corrected for "
            "the rounds that a path lacks; `compare` takes only the rounds that both paths have."
        )


def headline(answer: RecommendAnswer) -> str:
    """What to do, and how sure that is."""
    return choice_headline(answer.choice)


def short_headline(answer: RecommendAnswer, most: int = MOST_CHARACTERS) -> str:
    """The headline, shortened to `most` characters."""
    return short_choice(answer.choice, most)


def first_lines(answer: RecommendAnswer) -> tuple[tuple[str, str], ...]:
    """The lines below the headline: ties or the runner-up, safety, the cost of being surer. Each
    names its subject.
    """
    alone = not answer.choice.ties
    rivals = (("Next best", line) for line in _runner_up(answer)) if alone else ()
    lines = verdict_lines(answer.choice, answer.recommendation.durability, look_first(answer.hosts))
    return (*rivals, *lines)


def explanation(answer: RecommendAnswer) -> tuple[str, ...]:
    """The rest of the verdict, and the reasons behind it; the headline and the first lines stand
    above."""
    shown = {f"{headline(answer)}.", *(sentence for _, sentence in first_lines(answer))}
    sentences = (*verdict_sentences(answer), *reasons(answer))
    return tuple(sentence for sentence in sentences if sentence not in shown)


def verdict_sentences(answer: RecommendAnswer) -> tuple[str, ...]:
    """At most six sentences: what to do, what came from RAM, how certain that is, the effect of a
    power cut, the price of safety, the comparison with a new guest's disk, and what would settle
    it.
    """
    return _verdict(answer)[:MOST_SENTENCES]


def _verdict(answer: RecommendAnswer) -> tuple[str, ...]:
    return (
        f"{headline(answer)}.",
        *_met_by_all(answer),
        *_error_policy(answer),
        *_stalls(answer),
        *(sentence for _, sentence in first_lines(answer)),
        *_of_race(answer),
        *_price_of_safety(answer.recommendation),
        *_over_platforms(answer),
    )


def _met_by_all(answer: RecommendAnswer) -> Iterator[str]:
    """The needs that were asked for and that decide nothing, and how that is known."""
    for met in answer.met_by_all:
        all_of = (
            "The one measured path meets"
            if met.paths == 1
            else f"All {met.paths} measured paths meet"
        )
        rule = "nothing in a stack is set to drop flushes"
        if not met.need.goes_by_power_cuts:
            means = "" if met.need.value else f": {met.need.meaning}"  # the value says it
            yield f"{all_of} the need {met.need}{means}."
        elif not met.tested:
            yield f"{all_of} the need {met.need}, by rule: {rule}; no power cut was simulated."
        elif met.tested == met.paths:
            yield f"{all_of} the need {met.need}, as simulated power cuts show."
        else:
            yield (
                f"{all_of} the need {met.need}: {met.tested} by simulated power cuts, "
                f"{met.paths - met.tested} by rule ({rule})."
            )


def _error_policy(answer: RecommendAnswer) -> Iterator[str]:
    """The error policy to set beside the measured path; or that QEMU's own policy already meets the
    need."""
    if answer.policy_added:
        yield (
            f"Configure it as {answer.path}, so that QEMU pauses the guest when its storage fails; "
            "this error policy costs no speed."
        )
    elif any(need.kind is NeedKind.SURVIVES_FULL for need in answer.recommendation.needs):
        yield (
            "When its storage is full, QEMU pauses the guest, as it does without any setting: grow "
            "the storage, then continue the guest."
        )


def _stalls(answer: RecommendAnswer) -> Iterator[str]:
    """What the operations of a need did on this path, or the command that measures them."""
    path = answer.recommendation.cell.path
    for need, measured in answer.stalls.items():
        if measured is not None:
            yield f"{path}: {measured}."
        else:
            operation = "backup" if need.kind is NeedKind.BACKUP else "snapshot"
            command = f"vdisklab run {path} --during {operation}"
            costs = f"What a {operation} costs the guest was not measured on {path}"
            if answer.hosts is None:
                here = f"{command} {answer.there}".rstrip()
                on = "" if answer.run_on is None else f"; on {answer.run_on}"
                yield f"{costs} in this place with this QEMU{on}: `{here}`."
            else:
                yield f"{costs} on any of these hosts. To measure it, on each: `{command}`."


def _of_race(answer: RecommendAnswer) -> Iterator[str]:
    """Which paths took no part in the race that decided."""
    if answer.race is not None:
        yield from not_raced(answer.race)


def reasons(answer: RecommendAnswer) -> Iterator[str]:
    """Reasons: what power cuts decided, the gain over QEMU's default, needs' prices, counters."""
    recommendation = answer.recommendation
    yield from _verdict(answer)[MOST_SENTENCES:]
    if not any(met.need.goes_by_power_cuts for met in answer.met_by_all):
        yield from basis_sentence(recommendation)
    if not any(measured_lives(campaign) for campaign in answer.campaigns):
        yield from _over_default(answer)
    if answer.lives_measured_in is not None:
        yield (
            "How soon a new disk is ready was not measured here, but in campaign "
            f"{answer.lives_measured_in}: `vdisklab recommend --need disposable --campaign "
            f"{answer.lives_measured_in}`."
        )
    for price in recommendation.prices:
        if price.need != DURABLE:
            yield price_sentence(price, recommendation.cell)
    yield from _left_out(answer)
    yield from _why(answer)


def _left_out(answer: RecommendAnswer) -> Iterator[str]:
    """Which measured paths do not meet the needs that were asked for, and why."""
    named: dict[str, list[str]] = {}
    for cell, reason in answer.left_out.items():
        named.setdefault(reason, []).append(str(cell))
    for reason, cells in named.items():
        more = len(cells) - _NAMED
        others = f" and {more} more" if more > 0 else ""
        yield f"Left out: {', '.join(cells[:_NAMED])}{others}: {reason}."


def _runner_up(answer: RecommendAnswer) -> Iterator[str]:
    """The second path that qualifies, with its ratio."""
    if not answer.recommendation.ranking.rows:
        yield "No other path could be ranked, so there is no comparison."
    elif len(answer.order) > 1:
        runner = next(cell for cell in answer.order if cell != answer.choice.cell)
        if runner in answer.choice.stays:  # a line of its own says it
            return
        place = answer.order.index(runner)
        found = answer.alternatives[place].ratio or Ratio(0)
        # The decision says how sure that is.
        behind = difference(replace(found, low=None, high=None))
        if not _is_told_apart(answer, runner):
            # The leader by numbers comes second where the answer is what the user has now.
            ahead = found.ratio is not None and found.ratio > 1
            behind = f"not shown to be {'faster' if ahead else 'slower'}"
        yield " ".join((f"Runner-up: {runner}, {behind}.", *_losses(answer, [runner])))


def _is_told_apart(answer: RecommendAnswer, runner: MeasuredCell) -> bool:
    """True if the rank of the answer is shown to differ from that of another path."""
    rows = {row.cell: row for row in answer.recommendation.ranking.rows}
    chosen, other = rows.get(answer.choice.cell), rows.get(runner)
    if chosen is None or other is None or runner in answer.choice.ties:
        return False
    return chosen.worst < other.best or other.worst < chosen.best


def _price_of_safety(recommendation: Recommendation) -> Iterator[str]:
    """The price of durability, or the small gain of an unsafe path over the best safe one."""
    if recommendation.safe is not None and recommendation.over_safe is not None:
        gain = difference(recommendation.over_safe)
        yield (
            f"To keep flushed data, take {recommendation.safe} instead: "
            f"{recommendation.cell} is {gain}."
        )
    for price in recommendation.prices:
        if price.need == DURABLE and price.without != recommendation.cell:
            yield price_sentence(price, recommendation.cell)


def price_sentence(price: Price, chosen: MeasuredCell) -> str:
    """A sentence on the price of a need."""
    need = price.need
    if price.without == chosen:
        sentence = f"The need {need} costs no speed here: without it the answer is the same"
    elif price.ratio is None or price.ratio.ratio is None:
        never = price.ratio is None or not price.ratio.pairs
        why = "which was never measured in the same round" if never else "and one rate is zero"
        sentence = (
            f"What the need {need} costs is not known: without it the answer is "
            f"{price.without}, {why}"
        )
    else:
        sentence = (
            f"Without the need {need} the answer is {price.without}, which is "
            f"{difference(price.ratio)} when only these two are compared"
        )
    return f"{sentence}. The need means: {need.meaning}."


def _over_default(answer: RecommendAnswer) -> Iterator[str]:
    recommendation, campaign = answer.recommendation, answer.campaigns[0].id
    if recommendation.default is None:
        way, other = answer.beside_default, answer.default_measured_in
        lacks = f"QEMU's default cache mode was not measured in campaign {campaign}"
        if other is not None:
            yield f"{lacks}, but in campaign {other}: `vdisklab recommend --campaign {other}`."
        elif way:
            on = "" if answer.run_on is None else f" on {answer.run_on}"
            yield f"{lacks}; to compare the two{on}: `{way}`."
        else:
            yield f"{lacks}."
    elif recommendation.default == recommendation.cell:
        yield f"{recommendation.cell.name} has QEMU's default cache mode."
        return
    ratio, default = recommendation.over_default, recommendation.default
    if ratio is None or ratio.ratio is None or default is None:
        return
    mode = f"QEMU's default cache mode ({default})"
    if _is_told_apart(answer, default):
        size = _by_the_table(answer, ratio) or difference(ratio)
        yield f"Compared with {mode} it is {size}."
    else:
        paths = f"among these {answer.choice.compared} paths"
        yield f"No difference is shown from {mode} {paths}."


def _over_platforms(answer: RecommendAnswer) -> Iterator[str]:
    """The recommended path against what each platform gives a new guest, in one sentence."""
    compared = [
        f"{platform.full_name} {NEW_GUEST_DISKS[platform].version}: "
        + ("the same disk" if ratio is None else _among_all(answer, ratio))
        for platform, ratio in answer.over_platforms.items()
        if ratio is None or ratio.ratio is not None
    ]
    if compared:
        yield f"Compared with the disk of a new guest in {'; in '.join(compared)}."


def _among_all(answer: RecommendAnswer, ratio: Ratio) -> str:
    """The words for the ratio of the answer to another path. Where the ranks of all paths set an
    end of the interval to 1, they say so in its place: `compare` of the two alone has another."""
    most = at_most(ratio)
    # A path that is proven the best also ends at 1: the race shows that difference.
    if most is None or answer.choice.behind == 0:
        return _by_the_table(answer, ratio) or difference(ratio)
    return f"{most}, and among all paths no difference is shown"


def _by_the_table(answer: RecommendAnswer, ratio: Ratio) -> str:
    """The words for a ratio in fewer rounds than the table's, which is corrected for the others:
    what is shown, without a second number beside the table's; empty for a ratio in all rounds."""
    if not _lacks_rounds(answer, ratio):
        return ""
    shown = ratio.low is not None and ratio.high is not None
    if shown and (ratio.low or 0) > 1:
        return "shown to be better"
    if shown and (ratio.high or 0) < 1:
        return "shown to be worse"
    return "not shown to differ"


def _lacks_rounds(answer: RecommendAnswer, ratio: Ratio) -> bool:
    """True if a path of the pair lacks rounds, so that the table corrects its number."""
    places = (row.place for row in answer.alternatives)
    most = max((place.rounds for place in places if place is not None), default=0)
    return answer.hosts is None and ratio.pairs < most


def _losses(answer: RecommendAnswer, cells: Sequence[MeasuredCell]) -> tuple[str, ...]:
    """Which of these cells lose flushed data in a power cut."""
    return losses(answer.recommendation.durability, cells)


def _why(answer: RecommendAnswer) -> Iterator[str]:
    """Counters that explain the order: the recommended cell against others."""
    chosen = answer.recommendation.cell
    recommended = answer.requests.get(chosen)
    if recommended is None:
        return
    # The verdict says it, by direction, and sustained writes count the time until they are on disk.
    if not answer.choice.from_memory and not answer.sustained:
        yield from _from_memory(chosen.name, recommended)
    for cell, other in answer.requests.items():
        parts = [
            *_cpu(recommended, other),
            *_flushes(recommended, other),
            *_cache(recommended, other),
        ]
        if cell != chosen and parts:
            yield f"Compared with {cell}: {'; '.join(parts)}."


def _from_memory(path: str, recommended: RelativeSums) -> Iterator[str]:
    if recommended.device_share is not None and recommended.device_share < FROM_CACHE_BELOW:
        yield (
            f"Only {in_percent(recommended.device_share)} of the bytes that {path} moved reached "
            "the device during the measurement: its numbers mostly show the host's page cache, "
            "which it shares with all other guests. To see the disk itself, look at cache mode "
            "`none`."
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
