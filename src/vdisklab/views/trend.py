"""The answer of `trend` as a headline, tables and JUnit's XML."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from xml.etree import ElementTree as Xml

from vdisklab import numbers
from vdisklab.analysis.diagnostics.diagnostic import grouped_sentences
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.level_changes import DATED_FROM, ChangeKind, LevelChange
from vdisklab.analysis.measure_words import measure_words
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.trend import MOST_EARLIER, RECENT, YEAR, Newest, TrendVerdict
from vdisklab.answers.measured_for import seconds_of_measurements
from vdisklab.answers.trend import (
    TOGETHER,
    DatedShift,
    HostChange,
    NoiseLasts,
    OnlyCampaign,
    TrendAnswer,
    TrendRow,
)
from vdisklab.results.model import Campaign
from vdisklab.units import counted, named
from vdisklab.value import replace
from vdisklab.views.junit import say_once, xml_text
from vdisklab.views.layout import NAMES, WORDS, Column, Table
from vdisklab.views.wording import difference

_CARRIES, _HARDLY = 0.5, 0.25
"""Shares of the largest change of a path: from the first on a path carries the mean, and up to the
second the path hardly changes."""

_NAMED = 4
"""Most paths that a headline names."""

_NOTHING_CHANGED = "no recorded fact of the host changed (kernel, QEMU, disk and more)"

_VERDICTS = {
    TrendVerdict.WORSE: "worse",
    TrendVerdict.BETTER: "better",
    TrendVerdict.NONE_SHOWN: "no change shown",
    TrendVerdict.TOO_FEW: "too few campaigns",
    TrendVerdict.NOT_MEASURED: "not measured",
}


def tables(
    answer: TrendAnswer, command: str = "vdisklab trend"
) -> Iterator[Table[TrendRow] | Table[DatedShift]]:
    """The newest campaign, path by path; then the dated changes. `command` asked for them."""
    judged = any(row.newest.p is not None for row in answer.paths)
    # A path with a lasting change is compared with its campaigns since then: another name.
    lasts = any(row.lasting is not None for row in answer.paths)
    against = "its level" if lasts else "earlier"
    columns: tuple[Column[TrendRow], ...] = (
        Column("path", lambda row: row.path, folds=NAMES),
        Column("verdict", lambda row: _judged(answer, row), folds=WORDS, whole=True),
        Column(
            f"newest against\n{against} (95 %)",
            lambda row: _gain(row.newest.change),
            right=True,
            note=""
            if _only(answer)
            else "Intervals hold for all paths and two years of monthly looks together.",
        ),
        Column(
            "p",
            _probability,
            right=True,
            spare=1,
            note="p is corrected for the number of paths, and for two years of monthly looks.",
        ),
        Column(
            "spread",
            lambda row: _percent(row.newest.spread),
            right=True,
            spare=1,
            note="Spread: the standard deviation between the earlier campaigns.",
        ),
        Column(
            "earlier", lambda row: str(len(row.newest.earlier) or numbers.MISSING), right=True,
            spare=2,
        ),
    )  # fmt: skip
    if lasts:
        columns = (*columns[:2], _LASTING, *columns[2:])
        judged = True
    yield Table(
        headline(answer), columns if judged else columns[:3], answer.paths, tuple(_notes(answer)),
        intro=tuple(_intro(answer, command)), kind=TrendRow,
    )  # fmt: skip
    if answer.dated:
        yield _shifts(answer)
    if answer.not_measured:  # last, where nobody overlooks why the status is not 0
        yield Table(_without_run(answer, answer.not_measured), (), ())


_LASTING: Column[TrendRow] = Column(
    "lasting", lambda row: _gain(LevelChange(row.lasting)), right=True
)


def _probability(row: TrendRow) -> str:
    """The corrected p; a dash where the change is not known, because 1.00 would be read as a
    result."""
    change = _known(row.newest.change)
    return numbers.probability(None if change is None else row.newest.p_adjusted)


def _judged(answer: TrendAnswer, row: TrendRow) -> str:
    """The verdict on a path: `worse since 2026-09-27` if the change lasts."""
    since = f" since {_since(answer, row):%Y-%m-%d}" if _lasts(row) else ""
    return f"{_VERDICTS[row.verdict]}{since}"


def _lasts(row: TrendRow) -> bool:
    """True if the lasting change of a path gives its verdict."""
    return row.lasting is not None and TrendVerdict.of(row.lasting) is row.verdict


def _since(answer: TrendAnswer, row: TrendRow) -> datetime:
    return answer.campaigns[_place(answer, row)].started


def _place(answer: TrendAnswer, row: TrendRow) -> int:
    """The place of the campaign that first has the lasting change of a path."""
    return next(place for place, each in enumerate(answer.campaigns) if each.id == row.since)


def headline(answer: TrendAnswer) -> str:
    """Worse, better or no change shown; by how much, and on which paths."""
    latest = _campaign(answer.campaigns[-1])
    rows = [row for row in answer.paths if row.newest.verdict is answer.verdict]
    lasting = _lasting(answer)
    if (only := _only(answer)) is not None:
        return str(only).removesuffix(".")
    match answer.verdict:
        case TrendVerdict.WORSE | TrendVerdict.BETTER if lasting:
            word = _VERDICTS[answer.verdict].capitalize()
            return f"{word}: {_lasting_change(answer, lasting)}{_by_itself(answer, lasting)}"
        case TrendVerdict.WORSE | TrendVerdict.BETTER:
            word = _VERDICTS[answer.verdict].capitalize()
            farthest = min if answer.verdict is TrendVerdict.WORSE else max
            row = farthest(rows, key=lambda row: row.newest.change.ratio or 1.0)
            row = next((row for row in rows if row.path == TOGETHER), row)
            paths = [other.path for other in rows if other is not row]
            others = sum(other is not row for other in answer.paths)
            alone = f"; {_VERDICTS[answer.verdict]} by itself: {named(paths)}" if paths else ""
            if others and not paths and row.path == TOGETHER:
                alone = "; no path shows that by itself yet"
            return f"{word}: {_compared(answer, row)}{'' if len(paths) == others else alone}"
        case TrendVerdict.NONE_SHOWN:
            newest = rows[0].newest
            size = replace(newest, change=LevelChange(newest.change.ratio))
            return (
                f"No change shown: {_compared(answer, replace(rows[0], newest=size))}; "
                f"{_unseen(newest, answer.allowed)}"
            )
        case TrendVerdict.TOO_FEW:
            row = rows[0]
            again = "its own host, not this one, runs " if answer.elsewhere else ""
            return (
                f"Too few campaigns: {latest} is {_size(row.newest.change)} than before on "
                f"{_path(answer, row)}, which may be chance. A verdict needs {MIN_ROUNDS} earlier "
                f"campaigns, and there {_are(len(row.newest.earlier))}: "
                f"{again}`vdisklab run --again {answer.campaigns[-1].id}`"
            )
        case _:
            return f"Campaign {latest} has no numbers of paths that were measured before"


def has_become_slower(answer: TrendAnswer) -> bool:
    """True if a loss of the host is shown."""
    return answer.verdict is TrendVerdict.WORSE


def changed_sentence(answer: TrendAnswer, ranked: Sequence[Campaign]) -> str | None:
    """How the host has changed, for an answer from the `ranked` campaigns; None if no change is
    shown. It names the command that shows more."""
    if answer.verdict not in (TrendVerdict.WORSE, TrendVerdict.BETTER):
        return None
    change = "slower" if answer.verdict is TrendVerdict.WORSE else "faster"
    found = headline(answer).partition(": ")[2]
    command = f"`vdisklab trend --campaign {answer.campaigns[-1].id}`"
    since = [_since(answer, row) for row in _lasting(answer)]
    dates = [campaign.started for campaign in ranked]
    mixed = any(min(dates) < date <= max(dates) for date in since)
    both = " This ranking joins campaigns from before and after it." if mixed else ""
    return f"The host has become {change}: {found}; see {command}.{both}"


def _by_itself(answer: TrendAnswer, lasting: Sequence[TrendRow]) -> str:
    """That the paths show together what none of them shows alone, as the table says of each."""
    others = [row for row in answer.paths if row not in lasting]
    shown = any(row.verdict is answer.verdict for row in others)
    is_together = [row.path for row in lasting] == [TOGETHER]
    return "; no path shows that by itself yet" if is_together and others and not shown else ""


def _only(answer: TrendAnswer) -> OnlyCampaign | None:
    """That there is nothing to compare; None with two campaigns or more."""
    return next((each for each in answer.findings if isinstance(each, OnlyCampaign)), None)


def story(answer: TrendAnswer) -> Iterator[str]:
    """The verdict on the newest campaign, the dated shifts, and what changed, for below a chart."""
    yield f"{headline(answer)}."
    yield from _changed(answer)
    if answer.dated:
        shifts = _shifts(answer)
        yield f"{shifts.title}."
        yield from shifts.intro


def _changed(answer: TrendAnswer) -> Iterator[str]:
    if answer.changed:
        yield f"Changed on the host since the campaign before: {_changes(answer.changed)}."
    elif answer.verdict in (TrendVerdict.WORSE, TrendVerdict.BETTER) and not _lasting(answer):
        yield "No recorded fact of the host has changed since the campaign before."


def _unseen(newest: Newest, allowed: float) -> str:
    """`a loss below 12 % in one campaign, so also one of 5 % (--worse), cannot be seen, as these
    vary by 2.4 %`: one that lasts is dated when more campaigns show it."""
    vary = f"these vary by {_percent(newest.spread)}"
    least = newest.least_loss
    if least is None:
        return vary
    also = f", so also one of {100 * allowed:g} % (--worse)," if least > allowed else ""
    return f"a loss below {_limit(least)} in one campaign{also} cannot be seen, as {vary}"


def _limit(share: float) -> str:
    """A share in percent, rounded up, but never to 100: no loss is that large."""
    digits = 0 if share < 0.99 else 2
    return f"{numbers.percent_at_most(share, digits)} %"


def _not_seen(answer: TrendAnswer) -> Iterator[str]:
    """That a loss as large as is allowed would not have been shown, as no alarm does not say."""
    least = [row.newest.least_loss for row in answer.paths]
    smallest = min((loss for loss in least if loss is not None), default=None)
    said = answer.verdict is TrendVerdict.NONE_SHOWN  # by the headline
    if not (said or answer.exceeded) and smallest is not None and smallest > answer.allowed:
        yield (
            f"A loss of {100 * answer.allowed:g} % (--worse) in one campaign could not have been "
            f"seen: these campaigns show one of {_limit(smallest)} or more."
        )
    if not answer.exceeded and smallest is not None and smallest > answer.allowed:
        yield _way_to_see(answer)


def _way_to_see(answer: TrendAnswer) -> str:
    """How many more campaigns show which loss, where these are too few for --worse; the command."""
    loss = f"a loss of {100 * answer.allowed:g} % (--worse) in one campaign"
    has = max(len(row.newest.earlier) for row in answer.paths)
    again = f"`vdisklab run --again {answer.campaigns[-1].id}`"
    again = f"; its own host, not this one, runs {again}." if answer.elsewhere else f": {again}."
    if answer.needed is not None:
        # These may be enough, and yet the newest shows none: its own rounds were few or varied.
        more = counted(max(1, answer.needed - has), "more campaign")
        return f"To see {loss} takes {more}, if all vary as these do{again}"
    never = f"Not even {MOST_EARLIER} campaigns would show {loss}, as much as these vary"
    if has >= YEAR or answer.year_shows is None:
        return f"{never}: measure on a quieter host, or with more rounds."
    return f"{never}; {YEAR - has} more would show one of {_limit(answer.year_shows)}{again}"


def _compared(answer: TrendAnswer, row: TrendRow) -> str:
    """`campaign 3f2a of 2026-11-01 is 8 % slower than the 6 earlier campaigns on raw/none`."""
    return (
        f"campaign {_campaign(answer.campaigns[-1])} is {_size(row.newest.change)} than "
        f"{counted(len(row.newest.earlier), 'earlier campaign')} on {_path(answer, row)}"
        f"{_carried(answer, row)}"
    )


def _lasting(answer: TrendAnswer) -> tuple[TrendRow, ...]:
    """The paths whose lasting change decides the verdict; none if the newest campaign does."""
    rows = [
        row
        for row in answer.paths
        if row.lasting is not None and TrendVerdict.of(row.lasting) is answer.verdict
    ]
    sudden = (
        row.newest.verdict is answer.verdict and row.newest.earlier[0] >= _place(answer, row)
        for row in rows
    )
    if any(sudden):
        return ()  # it is worse even than since that change
    alone = tuple(row for row in rows if row.path != TOGETHER)
    every = sum(row.path != TOGETHER for row in answer.paths)
    together = tuple(row for row in rows if row.path == TOGETHER)
    return together if together and len(alone) in (0, every) else alone


def _shift_of(answer: TrendAnswer, row: TrendRow) -> DatedShift | None:
    """The dated change since which the level of a path lasts; None if it was not dated."""
    first = answer.campaigns[_place(answer, row)].id
    shifts = (shift for shift in answer.shifts if shift.path == row.path)
    return next((s for s in shifts if first == (s.after if s.each is None else s.before)), None)


def _lasting_change(answer: TrendAnswer, rows: Sequence[TrendRow]) -> str:
    """`raw/none is 9.8 % slower since the step between 2026-03-01 and 2026-04-01`."""
    if len(rows) == 1:
        (row,) = rows
        shift = _shift_of(answer, row)
        if shift is not None:
            return _dated_change(answer, shift)
        several = row.path == TOGETHER and _carriers(answer) is None
        return (
            f"{_path(answer, row)} {'are' if several else 'is'} {_size(LevelChange(row.lasting))} "
            f"since {_since(answer, row):%Y-%m-%d}{_carried(answer, row)}"
        )
    change = "slower" if answer.verdict is TrendVerdict.WORSE else "faster"
    dates = sorted({_since(answer, row) for row in rows})
    every = sum(row.path != TOGETHER for row in answer.paths)
    sizes = ", ".join(
        f"{row.path}{_in_brackets(_known(LevelChange(row.lasting)))}" for row in rows[:_NAMED]
    )
    more = f", and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    later = "" if len(dates) == 1 else " or later"
    return (
        f"{len(rows)} of {every} paths are {change} since {dates[0]:%Y-%m-%d}{later}: {sizes}{more}"
    )


def _dated_change(answer: TrendAnswer, shift: DatedShift) -> str:
    row = next(row for row in answer.paths if row.path == shift.path)
    several = row.path == TOGETHER and _carriers(answer) is None
    path = _path(answer, row)
    if shift.each is None:
        low, high = shift.change.low, shift.change.high
        has_none = low is not None and high is not None and low <= 1 <= high
        # Its date is shown; "between 40 % slower and 2 % faster" below "Worse" would deny it.
        change = LevelChange(shift.change.ratio) if has_none else shift.change
        return (
            f"{path} {'are' if several else 'is'} {_size(change)} since the step between "
            f"{_campaign_dates(shift)}{_carried(answer, row)}"
        )
    verb = ("decline" if shift.each < 1 else "rise") + ("" if several else "s")
    return (
        f"{path} {verb} by {_each(shift.each)} a campaign since {shift.earliest:%Y-%m-%d}, to "
        f"{_size(LevelChange(shift.change.ratio))} after {counted(shift.campaigns, 'campaign')}"
        f"{_carried(answer, row)}"
    )


def _each(ratio: float) -> str:
    return f"{numbers.percent(100 * abs(ratio - 1))} %"


def _path(answer: TrendAnswer, row: TrendRow) -> str:
    """The path of a row; if the row is all paths together, with their number. It is a mean, and
    says nothing of all where some paths hardly change."""
    if row.path != TOGETHER:
        return row.path
    if _unmeasured(answer):
        return f"the {_share_measured(answer)} paths that it measured, together"
    alike = _carriers(answer) is None
    return (
        f"all {answer.together} paths together" if alike else f"the mean of {answer.together} paths"
    )


def _unmeasured(answer: TrendAnswer) -> list[str]:
    """The paths of earlier campaigns of which the newest one has no numbers."""
    return [row.path for row in answer.paths if row.newest.verdict is TrendVerdict.NOT_MEASURED]


def _share_measured(answer: TrendAnswer) -> str:
    """`3 of 5`: of how many paths the newest campaign has numbers."""
    every = sum(row.path != TOGETHER for row in answer.paths)
    return f"{every - len(_unmeasured(answer))} of {every}"


def _not_measured(answer: TrendAnswer) -> Iterator[str]:
    """That nothing is known of paths that the newest campaign lacks."""
    lacks = [name for name in _unmeasured(answer) if name not in answer.not_measured]
    if lacks and answer.repeats is None and answer.verdict is not TrendVerdict.NOT_MEASURED:
        yield (
            f"Nothing is known of {named(lacks, _NAMED)}: campaign {answer.campaigns[-1].id} has "
            "no numbers of them."
            if len(lacks) > 1
            else f"Nothing is known of {lacks[0]}: campaign {answer.campaigns[-1].id} has no "
            "numbers of it."
        )


def _without_run(answer: TrendAnswer, names: Sequence[str]) -> str:
    """That paths which were asked for have no numbers, and what says why."""
    newest = answer.campaigns[-1].id
    status = "" if answer.exceeded else ", so the exit status is 8"
    where = ", on its own host" if answer.elsewhere else ""
    return (
        f"Not measured: {named(names, _NAMED)}: no run in campaign {newest} succeeded{status}. "
        f"`vdisklab runs {newest}` says why; to measure again{where}: "
        f"`vdisklab run --again {newest}`"
    )


def _changes_by_path(answer: TrendAnswer) -> dict[str, float]:
    """The log ratio of each path that the table shows: its lasting change, else the newest one."""
    ratios = {
        row.path: row.newest.change.ratio if row.lasting is None else row.lasting
        for row in answer.paths
        if row.path != TOGETHER
    }
    return {path: math.log(ratio) for path, ratio in ratios.items() if ratio}


def _carriers(answer: TrendAnswer) -> list[str] | None:
    """The paths that make the change of the mean of all; None if no path hardly changes beside
    them, or if none changes by more than --worse allows."""
    changes = _changes_by_path(answer)
    largest = max(changes.values(), key=abs, default=0.0)
    if abs(math.expm1(largest)) <= answer.allowed or len(changes) < answer.together:
        return None
    shares = {path: change / largest for path, change in changes.items()}
    if min(shares.values()) > _HARDLY:
        return None
    return [path for path, share in shares.items() if share >= _CARRIES]


def _carried(answer: TrendAnswer, row: TrendRow) -> str:
    """` (raw/none and host carry it: -24 to -21 %; the 3 others: -2.0 to 0 %)`."""
    carriers = _carriers(answer) if row.path == TOGETHER else None
    if carriers is None:
        return ""
    changes = _changes_by_path(answer)
    rest = [change for path, change in changes.items() if path not in carriers]
    verb = "carries" if len(carriers) == 1 else "carry"
    others = "the other one" if len(rest) == 1 else f"the {len(rest)} others"
    return (
        f" ({named(carriers, _NAMED)} {verb} it: {_range([changes[path] for path in carriers])}; "
        f"{others}: {_range(rest)})"
    )


def _range(changes: Sequence[float]) -> str:
    """`-24 to -21 %`, of log ratios."""
    ends = [numbers.gain(math.exp(end), None, None) for end in (min(changes), max(changes))]
    return " to ".join(dict.fromkeys(ends))


def _are(count: int) -> str:
    return f"{'is' if count == 1 else 'are'} {count}"


def _campaign(campaign: Campaign) -> str:
    return f"{campaign.id} of {campaign.started:%Y-%m-%d}"


def _size(change: LevelChange) -> str:
    return difference(Ratio(1, change.ratio, change.low, change.high), of="campaign")


def _gain(change: LevelChange) -> str:
    return numbers.gain(change.ratio, change.low, change.high)


def _known(change: LevelChange | None) -> str | None:
    """A change for a sentence; None if nothing is known of it."""
    return None if change is None else numbers.known_gain(change.ratio, change.low, change.high)


def _in_brackets(text: str | None) -> str:
    return "" if text is None else f" ({text})"


def _percent(share: float | None) -> str:
    return numbers.MISSING if share is None else f"{numbers.percent(100 * share)} %"


def _intro(answer: TrendAnswer, command: str) -> Iterator[str]:
    limit = f"{100 * answer.allowed:g} %"
    if answer.repeats is not None and answer.confirmed is None:
        lacks = [
            row.path for row in answer.paths if row.newest.verdict is TrendVerdict.NOT_MEASURED
        ]
        yield (
            f"Campaign {answer.repeats} looked worse, which could not be confirmed: "
            f"{answer.campaigns[-1].id} repeats it, but has no numbers of {named(lacks, _NAMED)}."
        )
    elif answer.repeats is not None:
        yield (
            f"Campaign {answer.repeats} looked worse; this one repeats it and "
            f"{'confirms that' if answer.confirmed else 'does not confirm that'}: "
            f"{'both are' if answer.confirmed else 'not both are'} worse by more than {limit}."
        )
    elif answer.exceeded:
        yield f"{_beyond(answer)} than {limit} (--worse), so the exit status is 9."
        where = ", on its own host" if answer.elsewhere else ""
        yield f"To measure again before believing it{where}: `{command} --confirm`."
    yield from _not_measured(answer)
    yield from _not_seen(answer)
    yield from _changed(answer)
    yield from answer.caveats.with_remedy


def _beyond(answer: TrendAnswer) -> str:
    """`That is more`; of an interval that begins at less, that only the estimate is."""
    near: list[float | None] = []
    for row in answer.paths:
        if row.exceeds and row.lasting is None:
            near.append(row.newest.change.high)
        elif row.exceeds:
            shift = _shift_of(answer, row)
            near.append(None if shift is None else shift.change.high)
    if any(end is None or end < 1 - answer.allowed for end in near):
        return "That is more"
    return "That may be less, but the estimate is more"


def _changes(changed: Sequence[HostChange]) -> str:
    return "; ".join(f"{change.fact}: {change.before} → {change.after}" for change in changed)


def _notes(answer: TrendAnswer) -> Iterator[str]:
    only = _only(answer)
    yield from grouped_sentences([each for each in answer.findings if each is not only])
    if only is not None:
        return
    if any(row.lasting is not None for row in answer.paths):
        yield (
            "Lasting: today's level against the level before the lasting changes of the last "
            f"{RECENT} campaigns (dated changes, and losses of which more than half is left). "
            "Newest against its level: what the newest campaign adds to these changes; of a path "
            "without any, against all its earlier campaigns."
        )
    (measure, *more) = answer.measures
    seconds = seconds_of_measurements(answer.campaigns)
    yield (
        f"Compared is {measure_words(measure, seconds=seconds)}; + is better."
        if not more
        else f"A path's level is the geometric mean of its {len(answer.measures)} rates."
    )
    if answer.verdict is not TrendVerdict.TOO_FEW:
        yield (
            "The noise is the spread between the earlier campaigns, not only between rounds. The "
            "test assumes that campaigns of an unchanged host differ by chance alone."
        )
    if not answer.dated:
        yield (
            f"Lasting changes are dated from {DATED_FROM} campaigns on; there "
            f"{_are(len(answer.campaigns))}."
        )


def _shifts(answer: TrendAnswer) -> Table[DatedShift]:
    columns: tuple[Column[DatedShift], ...] = (
        Column("path", lambda row: row.path, folds=NAMES),
        Column("the dated change\n(95 %)", lambda row: _gain(row.change), right=True),
        Column("kind", _kind),
        Column("between", _campaign_dates, folds=WORDS, whole=True),
        Column(
            "odds",
            lambda row: numbers.digits(row.odds) if row.odds < 1000 else ">1000",
            right=True,
            spare=1,
            note="Odds: how many times likelier the numbers are with a change than without one.",
        ),
    )
    dates = {(shift.before, shift.after): shift for shift in answer.shifts}
    count = len(dates)
    changes = (
        f"{count} lasting changes" if count > 1 else f"{'One' if count else 'No'} lasting change"
    )
    title = f"{changes} dated in {len(answer.campaigns)} campaigns{_not_dated_yet(answer)}"
    place = "The place of a step may be wrong by a campaign."
    by_chance = (
        "If nothing changed, a change for better or worse is dated on about one of fifty hosts in "
        "two years of monthly looks. "
    )
    if any(isinstance(finding, NoiseLasts) for finding in answer.findings):
        by_chance = ""  # more often here, as the note about this host says
    said = [
        f"{'Between' if date.kind is ChangeKind.STEP else 'In the time between'} "
        f"{_campaign_dates(date)}: "
        f"{_changes(date.changed) or _NOTHING_CHANGED}."
        for date in dates.values()
    ]
    return Table(
        title, columns, answer.shifts, (f"{by_chance}{place}",), intro=tuple(said), kind=DatedShift
    )


def _not_dated_yet(answer: TrendAnswer) -> str:
    """`; the loss since 2026-09-27 stands without a date yet`: why a verdict above has a date."""
    starts = {
        _since(answer, row)
        for row in answer.paths
        if _lasts(row) and _shift_of(answer, row) is None
    }
    if not starts:
        return ""
    losses = "the loss" if len(starts) == 1 else "the losses"
    stands = "stands" if len(starts) == 1 else "stand"
    since = named([f"{start:%Y-%m-%d}" for start in sorted(starts)])
    return f"; {losses} since {since} {stands}, which these campaigns do not date yet"


def _kind(row: DatedShift) -> str:
    if row.each is None:
        return "step"
    change = 100 * (row.each - 1)
    return f"{'+' * (change > 0)}{numbers.percent(change)} % a campaign"


def _campaign_dates(row: DatedShift) -> str:
    return f"{row.earliest:%Y-%m-%d} and {row.latest:%Y-%m-%d}"


def _case(answer: TrendAnswer, row: TrendRow) -> str:
    """`no change shown: -3 % (-9 to 4) against 6 earlier campaigns`, and what could not be seen."""
    newest = row.newest
    against = f"against {counted(len(newest.earlier), 'earlier campaign')}"
    now = f"{_known(newest.change) or 'no change is known'} {against}"
    lasting = None if row.lasting is None else _known(LevelChange(row.lasting))
    said = f"{_judged(answer, row)}: {now}{'' if lasting is None else f'; lasting: {lasting}'}"
    if lasting is not None and _lasts(row):
        said = f"{_judged(answer, row)}: {lasting}; the newest campaign alone: {now}"
    if not newest.earlier:
        said = f"{_judged(answer, row)}: no earlier campaign"
    if row.path == TOGETHER and _unmeasured(answer):
        said = f"of {_share_measured(answer)} paths: {said}"
    least = newest.least_loss
    if row.verdict is not TrendVerdict.NONE_SHOWN or least is None or least <= answer.allowed:
        return said
    return f"{said}; {_unseen(newest, answer.allowed)}"


def _changed_with(answer: TrendAnswer, row: TrendRow) -> str:
    """What of the host changed when a path did: at its dated change, else since the campaign
    before the newest."""
    shift = _shift_of(answer, row) if _lasts(row) else None
    if shift is not None:
        return f"Between {_campaign_dates(shift)}: {_changes(shift.changed) or _NOTHING_CHANGED}"
    return f"Since the campaign before: {_changes(answer.changed) or _NOTHING_CHANGED}"


def junit_xml(answer: TrendAnswer, completed: Callable[[str], str] = str) -> str:
    """JUnit's XML: one case for each path; a path without a verdict is skipped. What holds for all
    of them stands once, in the suite.

    `completed` returns a text whose commands run as they stand.
    """
    host = answer.campaigns[-1].host.hostname
    skipped = (TrendVerdict.TOO_FEW, TrendVerdict.NOT_MEASURED)
    exceeding = {row.path for row in answer.paths if row.exceeds}
    lacking = [name for name in answer.not_measured if name not in exceeding]
    unknown = [name for name in lacking if name not in {row.path for row in answer.paths}]
    rows = [row for row in answer.paths if row.path not in lacking]
    root = Xml.Element("testsuites", name="vdisklab trend")
    suite = Xml.SubElement(
        root, "testsuite", name=xml_text(host), tests=str(len(answer.paths) + len(unknown)),
        errors=str(len(lacking)),
        failures=str(sum(row.exceeds for row in answer.paths)), time="0",
        skipped=str(sum(row.newest.verdict in skipped for row in rows)),
    )  # fmt: skip
    for name in lacking:
        case = Xml.SubElement(
            suite, "testcase", classname="vdisklab.trend", name=xml_text(name), time="0"
        )
        said = xml_text(completed(f"{_without_run(answer, [name])}."))
        Xml.SubElement(case, "error", message=said, type="not measured")
    for row in rows:
        case = Xml.SubElement(
            suite, "testcase", classname="vdisklab.trend", name=xml_text(row.path), time="0"
        )
        said = xml_text(
            completed(_case(answer, row))
            + ("" if answer.caveats.briefly is None else f". {answer.caveats.briefly}")
        )
        if row.exceeds:
            failure = Xml.SubElement(case, "failure", message=said, type="trend")
            failure.text = xml_text(f"{said.rstrip('.')}. {_changed_with(answer, row)}")
        elif row.newest.verdict in skipped:
            Xml.SubElement(case, "skipped", message=said)
        else:
            Xml.SubElement(case, "system-out").text = said
    once = (f"{headline(answer)}.", *_not_measured(answer), *answer.caveats.with_remedy)
    say_once(suite, once, completed)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=False) + "\n"
