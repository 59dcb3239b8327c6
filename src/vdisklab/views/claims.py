"""The answer of `claims` as a table, and as JUnit's XML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from xml.etree import ElementTree as Xml

from vdisklab import numbers
from vdisklab.analysis.claim_verdicts import ClaimStatus
from vdisklab.analysis.diagnostics.caveats import Caveats
from vdisklab.answers.claims import ClaimsAnswer, JudgedClaim
from vdisklab.answers.hosts import OverHosts
from vdisklab.answers.measured_for import seconds_of_measurements
from vdisklab.units import counted, named, runtime_text
from vdisklab.value import replace
from vdisklab.views.hosts import left_out_sentences, names
from vdisklab.views.junit import say_once, xml_text
from vdisklab.views.layout import NAMES, WORDS, Column, Table

_MOST_OPEN = 10
"""More claims that are not measured than these are one line."""

_NAMED = 3
"""More campaigns than these are counted in a sentence."""

_NAMES: tuple[Column[JudgedClaim], ...] = (
    Column("article", lambda row: row.article, spare=2),
    Column("claim", lambda row: row.claim, folds=NAMES),
)


def tables(
    answer: ClaimsAnswer, measures: str = "vdisklab claims --run"
) -> Iterator[Table[JudgedClaim]]:
    """One row per claim, measured ones first; commands for missing cells follow.

    `measures` is the command that asks for these claims and measures them, without --rounds.
    """
    why = f"`{measures.removesuffix(' --run')} --why` lists them"
    if answer.hosts is not None:
        yield _hosts_table(answer, answer.hosts, why)
        return
    warning, remedies = answer.caveats.warning, answer.caveats.remedies
    seconds = seconds_of_measurements(answer.campaigns)
    each = "" if seconds is None else f"; each measurement of {runtime_text(seconds)}"
    title = claims_counts(answer) + each + (f"; {warning}" if warning else "")
    columns: tuple[Column[JudgedClaim], ...] = (
        *_NAMES,
        Column("claimed", lambda row: row.sentence, folds=WORDS, spare=2),
        Column("verdict", lambda row: row.verdict, folds=WORDS, whole=True),
        Column("ratio", _ratio, right=True),
        Column("95 %\ninterval", _interval, right=True, spare=1),
        Column("stated", _stated, right=True, spare=1),
        Column("p", lambda row: numbers.probability(row.p_adjusted), right=True, spare=2),
        Column("n", lambda row: str(row.rounds or numbers.MISSING), right=True, spare=1),
    )
    commands = dict.fromkeys(row.command for row in answer.claims if row.command)
    notes = tuple(_notes(answer, measures))
    rows = sorted(answer.claims, key=_is_open)
    whole = Table(title, columns, rows, notes, tuple(commands), remedies, JudgedClaim)
    ways = f"`{measures}` measures them, {why} with their commands"
    yield _with_brief(
        replace(whole, notes=notes[:-1] if commands else notes, verbatim=()), whole, ways
    )


def _ratio(row: JudgedClaim) -> str:
    if row.unit is None:
        return numbers.ratio(row.ratio)
    return numbers.value(row.ratio, row.measures[0].quantity.shown_unit)


def _interval(row: JudgedClaim) -> str:
    if row.unit is None or row.low is None:
        return numbers.ratio_interval(row.low, row.high)
    unit = row.measures[0].quantity.shown_unit
    return f"{numbers.value(row.low, unit)}–{numbers.value(row.high, unit)}"


def _stated(row: JudgedClaim) -> str:
    if row.unit is None:
        return row.stated
    unit = row.measures[0].quantity.shown_unit
    low, high = (numbers.value(end, unit) for end in (row.stated_low, row.stated_high))
    if row.stated_low is None:
        return f"< {high}"
    return f"> {low}" if row.stated_high is None else f"{low}–{high}"


def _is_open(row: JudgedClaim) -> bool:
    """True for a claim that no host has measured."""
    measured_on = set(row.hosts or ()) - {ClaimStatus.NOT_MEASURED}
    return row.status is ClaimStatus.NOT_MEASURED if row.hosts is None else not measured_on


def _with_brief(
    brief: Table[JudgedClaim], whole: Table[JudgedClaim], ways: str
) -> Table[JudgedClaim]:
    """The whole table; a brief one has a line in place of many claims that are not measured."""
    lacking = sum(map(_is_open, whole.rows))
    if lacking <= _MOST_OPEN:
        return whole
    more = f"{lacking} claims are not measured: {ways}."
    shown = [row for row in whole.rows if not _is_open(row)]
    return replace(whole, brief=replace(brief, rows=shown, notes=(more, *brief.notes)))


def _hosts_table(answer: ClaimsAnswer, over: OverHosts, why: str) -> Table[JudgedClaim]:
    """On how many hosts each claim holds, and where it fails."""
    counts = (
        ("holds", ClaimStatus.HOLDS, 0),
        ("fails", ClaimStatus.FAILS, 0),
        ("incon-\nclusive", ClaimStatus.INCONCLUSIVE, 0),
        ("void", ClaimStatus.VOID, 1),
        ("not\nmeasured", ClaimStatus.NOT_MEASURED, 1),
    )
    columns = (*_NAMES, *(_count(title, status, spare) for title, status, spare in counts))
    fails = (
        f"{row.claim} fails on {names(row.hosts[ClaimStatus.FAILS])}."
        for row in answer.claims
        if row.hosts and ClaimStatus.FAILS in row.hosts
    )
    notes = (*answer.caveats.notes, *fails, *_why_void(answer), *left_out_sentences(over.left_out))
    whole = Table(
        f"Claims on {counted(len(over.hosts), 'host')}, each judged by its own rounds",
        columns,
        sorted(answer.claims, key=_is_open),
        notes,
        kind=JudgedClaim,
    )
    return _with_brief(whole, whole, why)


def _count(title: str, status: ClaimStatus, spare: int) -> Column[JudgedClaim]:
    return Column(
        title, lambda row: str(len((row.hosts or {}).get(status, ()))), right=True, spare=spare
    )


def claims_counts(answer: ClaimsAnswer) -> str:
    """How many claims have which status."""
    order = (
        ClaimStatus.HOLDS, ClaimStatus.FAILS, ClaimStatus.INCONCLUSIVE, ClaimStatus.VOID,
        ClaimStatus.NOT_MEASURED,
    )  # fmt: skip
    counts = ", ".join(
        f"{answer.counts[status]} {status.replace('-', ' ')}"
        for status in order
        if answer.counts.get(status)
    )
    return f"Claims: {counts or 'none'}"


def _what_is_void(answer: ClaimsAnswer) -> str:
    void = [row for row in answer.claims if row.status is ClaimStatus.VOID]
    kinds = ("of guest against host" if row.unit is None else "about a value" for row in void)
    return " or ".join(dict.fromkeys(kinds))


def _why_void(answer: ClaimsAnswer) -> Iterator[str]:
    if answer.counts.get(ClaimStatus.VOID):
        yield (
            "Void: numbers from an emulated host decide no claim."
            if answer.caveats.emulated_host
            else f"Void: a claim {_what_is_void(answer)} needs KVM and a real disk."
        )


def _notes(answer: ClaimsAnswer, measures: str) -> Iterator[str]:
    yield from map(str, answer.findings)
    if answer.left_out:
        ids = named([campaign.id for campaign in answer.campaigns], _NAMED)
        several = "s" if len(answer.campaigns) > 1 else ""
        yield (
            f"These verdicts are of campaign{several} {ids}. Left out: "
            f"{named(answer.left_out, _NAMED)}."
        )
    failures = dict.fromkeys(failure for row in answer.claims for failure in row.failures)
    yield from (f"Failed: {failure}" for failure in failures)
    if any(row.p_adjusted is not None for row in answer.claims):
        several = "; of several pairs, the ratio that decides"
        yield (
            "The ratio is left/right within rounds"
            f"{several if any(len(row.left) > 1 for row in answer.claims) else ''}. Intervals hold "
            "for each claim alone; verdicts are corrected for the number of claims answered (Holm)."
        )
    if any(row.more_rounds for row in answer.claims):
        rounds = min(row.rounds + row.more_rounds for row in answer.claims if row.more_rounds)
        yield f"To measure more rounds: `{measures} --rounds {rounds}`."
    yield from _why_void(answer)
    if any(row.command for row in answer.claims):
        yield "To measure what is missing (or add --run to this command):"


def junit_xml(answer: ClaimsAnswer, completed: Callable[[str], str] = str) -> str:
    """JUnit's XML: one suite per article. A claim without a verdict is skipped, with the reason;
    over hosts each case says on which hosts the claim has which status.

    A case is a line on a CI system's page: what holds for all cases stands once in their suite.
    `completed` returns a text whose commands run as they stand.

    There is no standard; this is the subset of windyroad's schema that CI systems agree on.
    """
    root = Xml.Element("testsuites", name="vdisklab claims")
    for article in dict.fromkeys(row.article for row in answer.claims):
        claims = [row for row in answer.claims if row.article == article]
        failures = sum(row.status is ClaimStatus.FAILS for row in claims)
        settled = failures + sum(row.status is ClaimStatus.HOLDS for row in claims)
        suite = Xml.SubElement(
            root, "testsuite", name=article, tests=str(len(claims)), failures=str(failures),
            errors="0", skipped=str(len(claims) - settled), time="0",
        )  # fmt: skip
        for row in claims:
            _test_case(suite, row, answer.caveats, completed)
        if any(map(_has_numbers, claims)):
            say_once(suite, answer.caveats.with_remedy, completed)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _test_case(
    suite: Xml.Element, row: JudgedClaim, caveats: Caveats, completed: Callable[[str], str]
) -> None:
    case = Xml.SubElement(
        suite, "testcase", classname=f"vdisklab.claims.{row.article}", name=row.claim, time="0"
    )  # some programs require a time
    explained, brief = _explained(row), f". {caveats.briefly}" if caveats.briefly else ""
    text = xml_text(completed(f"{row.sentence} {explained}{brief}."))
    match row.status:
        case ClaimStatus.HOLDS:
            Xml.SubElement(case, "system-out").text = text
        case ClaimStatus.FAILS:
            said = xml_text(completed(f"{explained}{brief}"))
            failure = Xml.SubElement(case, "failure", message=said, type="claim")
            failure.text = text
        case _:
            reason = "; ".join((explained, *row.failures))
            if row.command and row.hosts is None:
                reason += f": `{row.command}`"
            elif _has_numbers(row):
                reason += brief
            Xml.SubElement(case, "skipped", message=xml_text(completed(reason)))


def _has_numbers(row: JudgedClaim) -> bool:
    """True for a claim that was measured, on any host."""
    return row.rounds > 0 or not _is_open(row)


def _explained(row: JudgedClaim) -> str:
    """`holds: ×0.802 (0.785–0.819) in 4 rounds; stated is < 0.9`, `holds on kvm1, kvm2; …`."""
    if row.hosts is not None:
        return "; ".join(_on_its_hosts(row, *item) for item in row.hosts.items())
    if not row.rounds:
        return row.verdict
    numbers_of_it = f"{_ratio(row)} ({_interval(row)}) in {counted(row.rounds, 'round')}"
    return f"{row.verdict}: {numbers_of_it}; stated is {_stated(row)}"


def _on_its_hosts(row: JudgedClaim, status: ClaimStatus, hosts: Sequence[str]) -> str:
    """`fails on kvm3`, `not measured on kvm4: there run …`."""
    said = f"{status.replace('-', ' ')} on {names(hosts)}"
    if status is ClaimStatus.VOID:
        return f"{said} ({row.void})" if row.void else said
    if status is ClaimStatus.NOT_MEASURED and row.command:
        return f"{said}: on {hosts[0]} run `{row.command}`"
    return said
