"""The answer of `trend` as a headline, tables and JUnit's XML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as Xml

from vdisklab import numbers
from vdisklab.analysis.diagnostics.diagnostic import grouped_sentences
from vdisklab.analysis.intervals import MIN_ROUNDS
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.analysis.trend import DATED_FROM, LevelChange, TrendVerdict
from vdisklab.answers.trend import TOGETHER, DatedShift, HostChange, TrendAnswer, TrendRow
from vdisklab.results.model import Campaign
from vdisklab.units import counted, named
from vdisklab.views.claims import xml_text
from vdisklab.views.layout import NAMES, WORDS, Column, Table
from vdisklab.views.wording import difference, measure_name

_VERDICTS = {
    TrendVerdict.WORSE: "worse",
    TrendVerdict.BETTER: "better",
    TrendVerdict.NONE_SHOWN: "no change shown",
    TrendVerdict.TOO_FEW: "too few campaigns",
    TrendVerdict.NOT_MEASURED: "not measured",
}


def tables(answer: TrendAnswer) -> Iterator[Table[TrendRow] | Table[DatedShift]]:
    """The newest campaign, path by path; then the dated shifts."""
    judged = any(row.newest.p is not None for row in answer.paths)
    columns: tuple[Column[TrendRow], ...] = (
        Column("path", lambda row: row.path, folds=NAMES),
        Column("verdict", lambda row: _VERDICTS[row.newest.verdict], folds=WORDS),
        Column("change (95 %)", lambda row: _gain(row.newest.change), right=True),
        Column(
            "p",
            lambda row: numbers.probability(row.newest.p_adjusted),
            right=True,
            spare=1,
            note="p is corrected for the number of paths, and for the search for shifts.",
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
    yield Table(
        headline(answer), columns if judged else columns[:3], answer.paths, tuple(_notes(answer)),
        intro=tuple(_intro(answer)), kind=TrendRow,
    )  # fmt: skip
    if answer.dated:
        yield _shifts(answer)


def headline(answer: TrendAnswer) -> str:
    """Worse, better or no change shown; by how much, and on which paths."""
    newest = _campaign(answer.campaigns[-1])
    rows = [row for row in answer.paths if row.newest.verdict is answer.verdict]
    match answer.verdict:
        case TrendVerdict.WORSE | TrendVerdict.BETTER:
            word = _VERDICTS[answer.verdict].capitalize()
            row = rows[0] if answer.verdict is TrendVerdict.WORSE else rows[-1]
            row = next((one for one in rows if one.path == TOGETHER), row)
            paths = [one.path for one in rows if one is not row]
            others = sum(one is not row for one in answer.paths)
            alone = f"; {_VERDICTS[answer.verdict]} by itself: {named(paths)}" if paths else ""
            return f"{word}: {_compared(answer, row)}{'' if len(paths) == others else alone}"
        case TrendVerdict.NONE_SHOWN:
            return f"No change shown: {_compared(answer, rows[0])}"
        case TrendVerdict.TOO_FEW:
            row = rows[0]
            return (
                f"Too few campaigns: {newest} is {_size(row.newest.change)} than before on "
                f"{_path(answer, row)}, which may be chance. A verdict needs {MIN_ROUNDS} earlier "
                f"campaigns, and there {_are(len(row.newest.earlier))}: "
                f"`vdisklab run --again {answer.campaigns[-1].id}`"
            )
        case _:
            return f"Campaign {newest} has no numbers of paths that were measured before"


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
    elif answer.verdict in (TrendVerdict.WORSE, TrendVerdict.BETTER):
        yield "No stored fact of the host has changed since the campaign before."


def _compared(answer: TrendAnswer, row: TrendRow) -> str:
    """`campaign 3f2a of 2026-11-01 is 8 % slower than the 6 earlier campaigns on raw/none`."""
    return (
        f"campaign {_campaign(answer.campaigns[-1])} is {_size(row.newest.change)} than "
        f"{counted(len(row.newest.earlier), 'earlier campaign')} on {_path(answer, row)}"
    )


def _path(answer: TrendAnswer, row: TrendRow) -> str:
    """The path of a row, with their number if it is all."""
    return f"all {answer.together} paths together" if row.path == TOGETHER else row.path


def _are(count: int) -> str:
    return f"{'is' if count == 1 else 'are'} {count}"


def _campaign(campaign: Campaign) -> str:
    return f"{campaign.id} of {campaign.started:%Y-%m-%d}"


def _size(change: LevelChange) -> str:
    return difference(Ratio(1, change.ratio, change.low, change.high))


def _gain(change: LevelChange) -> str:
    return numbers.gain(change.ratio, change.low, change.high)


def _percent(share: float | None) -> str:
    return numbers.MISSING if share is None else f"{100 * share:.2g} %"


def _intro(answer: TrendAnswer) -> Iterator[str]:
    limit = f"{100 * answer.allowed:g} %"
    if answer.repeats is not None:
        yield (
            f"Campaign {answer.repeats} looked worse; this one repeats it and "
            f"{'confirms that' if answer.confirmed else 'does not confirm that'}: "
            f"{'both are' if answer.confirmed else 'not both are'} worse by more than {limit}."
        )
    elif answer.exceeded:
        yield f"That is more than {limit} (--worse), so the exit status is 9."
        yield "To measure again before believing it: `vdisklab trend --confirm`."
    yield from _changed(answer)


def _changes(changed: Sequence[HostChange]) -> str:
    return "; ".join(
        f"{one.fact}: {one.before or 'unknown'} → {one.after or 'unknown'}" for one in changed
    )


def _notes(answer: TrendAnswer) -> Iterator[str]:
    yield from grouped_sentences(answer.findings)
    (measure, *more) = answer.measures
    yield (
        f"Compared is {measure_name(measure)}; + is better."
        if not more
        else f"A path's level is the geometric mean of its {len(answer.measures)} rates."
    )
    if answer.verdict is not TrendVerdict.TOO_FEW:
        yield (
            "The noise is the spread between the earlier campaigns, not only that between rounds. "
            "It assumes that these vary by chance alone, and the newest as they do."
        )
    if not answer.dated:
        yield (
            f"Level shifts are dated from {DATED_FROM} campaigns on; there "
            f"{_are(len(answer.campaigns))}."
        )


def _shifts(answer: TrendAnswer) -> Table[DatedShift]:
    columns: tuple[Column[DatedShift], ...] = (
        Column("path", lambda row: row.path, folds=NAMES),
        Column("shift (95 %)", lambda row: _gain(row.change), right=True),
        Column("between", _campaign_dates),
        Column("p", lambda row: numbers.probability(row.p), right=True, spare=1),
    )  # fmt: skip
    dates = {shift.after: shift for shift in answer.shifts}
    title = (
        f"Levels shifted {_times(len(dates))} in {len(answer.campaigns)} campaigns"
        if dates
        else f"No level shift shown in {len(answer.campaigns)} campaigns"
    )
    note = (
        "If nothing had changed, a shift would be found in 2.5 % of such series of campaigns. The "
        "place may be wrong by a campaign."
    )
    said = [
        f"Between {_campaign_dates(one)}: {_changes(one.changed) or 'no stored fact changed'}."
        for one in dates.values()
    ]
    return Table(title, columns, answer.shifts, (note,), intro=tuple(said), kind=DatedShift)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _campaign_dates(row: DatedShift) -> str:
    return f"{row.earliest:%Y-%m-%d} and {row.latest:%Y-%m-%d}"


def junit_xml(answer: TrendAnswer) -> str:
    """JUnit's XML: one case for each path; a path without a verdict is skipped."""
    host = answer.campaigns[-1].host.hostname
    skipped = (TrendVerdict.TOO_FEW, TrendVerdict.NOT_MEASURED)
    root = Xml.Element("testsuites", name="vdisklab trend")
    suite = Xml.SubElement(
        root, "testsuite", name=xml_text(host), tests=str(len(answer.paths)), errors="0",
        failures=str(sum(row.exceeds for row in answer.paths)), time="0",
        skipped=str(sum(row.newest.verdict in skipped for row in answer.paths)),
    )  # fmt: skip
    for row in answer.paths:
        case = Xml.SubElement(
            suite, "testcase", classname="vdisklab.trend", name=xml_text(row.path), time="0"
        )
        said = xml_text(
            f"{_VERDICTS[row.newest.verdict]}: {_gain(row.newest.change)} against "
            f"{counted(len(row.newest.earlier), 'earlier campaign')}"
        )
        if row.exceeds:
            failure = Xml.SubElement(case, "failure", message=said, type="trend")
            failure.text = xml_text(f"{said}. Changed: {_changes(answer.changed) or 'nothing'}")
        elif row.newest.verdict in skipped:
            Xml.SubElement(case, "skipped", message=said)
        else:
            Xml.SubElement(case, "system-out").text = said
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=False) + "\n"
