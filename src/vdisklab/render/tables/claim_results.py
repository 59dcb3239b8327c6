"""Claims as a table, as a document, and as JUnit XML for hosts that are tested with them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.etree import ElementTree as Xml

from vdisklab.analysis.claim_verdicts import ClaimAnswer, ClaimStatus, ClaimVerdict, Void
from vdisklab.analysis.claimfile import Claim
from vdisklab.render import numbers
from vdisklab.render.documents.conversion import (
    campaign_entries,
    copy_fields,
    diagnostic_entries,
)
from vdisklab.render.documents.rankings import ClaimEntry, ClaimRow, ClaimsDocument
from vdisklab.render.tables.layout import Column, Table, sanitise_line
from vdisklab.render.wording import caution, sentence
from vdisklab.services.claim_answers import ClaimsAnswer, status
from vdisklab.units import counted


def verdict_text(answer: ClaimAnswer) -> str:
    """`holds`, `inconclusive (4 more blocks)`, `void: emulation (here it fails)`."""
    match answer.verdict:
        case ClaimVerdict.INCONCLUSIVE:
            if answer.more_blocks is None:
                return "inconclusive (1000 blocks would not decide)"
            more = answer.more_blocks
            return f"inconclusive ({more} more block{'s' if more > 1 else ''})"
        case ClaimVerdict.NOT_MEASURED:
            return "not measured"
        case _:
            if answer.void is None:
                return answer.verdict.value
            return f"void: {_VOIDS[answer.void]} (here it {answer.verdict.value})"


_VOIDS = {Void.EMULATION: "emulation", Void.LAB: "measured in a lab"}


def claims_table(answer: ClaimsAnswer) -> Table[ClaimAnswer]:
    """One row per claim, in the order of the files; commands for missing cells follow."""
    warning = caution(answer.caveats)
    title = claims_counts(answer) + (f"; {warning}" if warning else "")
    columns = (
        Column[ClaimAnswer]("article", lambda row: row.claim.article),
        Column[ClaimAnswer]("claim", lambda row: row.claim.name, folds=True),
        Column[ClaimAnswer]("it says", lambda row: row.claim.sentence, folds=True, only_wide=True),
        Column[ClaimAnswer]("verdict", verdict_text, folds=True),
        Column[ClaimAnswer]("ratio", lambda row: numbers.ratio(row.ratio), right=True),
        Column[ClaimAnswer](
            "95 %\ninterval", lambda row: numbers.ratio_interval(row.low, row.high), right=True
        ),
        Column[ClaimAnswer]("stated", lambda row: stated(row.claim), right=True),
        Column[ClaimAnswer](
            "p", lambda row: numbers.probability(row.p_adjusted), right=True, only_wide=True
        ),
        Column[ClaimAnswer]("n", lambda row: str(row.blocks or numbers.MISSING), right=True),
    )
    return Table(
        title, columns, answer.answers, tuple(_notes(answer)),
        tuple(dict.fromkeys(answer.commands.values())),
        kind=ClaimRow, record=lambda row: _row(answer, row),
    )  # fmt: skip


def claims_counts(answer: ClaimsAnswer) -> str:
    """How many claims have which status."""
    counts = ", ".join(
        f"{answer.counts[status]} {status.replace('-', ' ')}"
        for status in (ClaimStatus.HOLDS, ClaimStatus.FAILS, ClaimStatus.INCONCLUSIVE,
                       ClaimStatus.VOID, ClaimStatus.NOT_MEASURED)
        if answer.counts.get(status)
    )  # fmt: skip
    return f"Claims: {counts or 'none'}"


def _notes(answer: ClaimsAnswer) -> Iterator[str]:
    yield from map(sentence, answer.findings)
    yield from (f"Left out: {reason}" for reason in answer.left_out)
    failures = dict.fromkeys(failure for each in answer.answers for failure in each.failures)
    yield from (f"Failed: {failure}" for failure in failures)
    if any(each.p_adjusted is not None for each in answer.answers):
        yield (
            "The ratio is left/right within blocks. Intervals hold for each claim alone; verdicts "
            "are corrected for the number of claims answered (Holm)."
        )
    if any(each.more_blocks is not None for each in answer.answers):
        yield (
            "To measure more blocks, repeat the command that measured the first ones with a larger "
            "--blocks."
        )
    if any(status(each) is ClaimStatus.VOID for each in answer.answers):
        yield "Void: a claim of guest against host needs KVM and a real disk."
    if answer.commands:
        yield "To measure what is missing (or run `vdisklab claims --run`):"


def claims_document(answer: ClaimsAnswer) -> ClaimsDocument:
    """The JSON form: the rows with what they compare."""
    return ClaimsDocument(
        campaigns=campaign_entries(answer.campaigns),
        emulation=answer.caveats.emulated,
        lab=answer.caveats.lab,
        articles=answer.titles,
        counts=answer.counts,
        claims=tuple(
            copy_fields(
                ClaimEntry,
                _row(answer, each),
                pairs=tuple((a.label, b.label) for a, b in each.claim.pairs),
                measures=tuple(map(str, each.claim.measures)),
                absolute=each.claim.absolute,
                missing=tuple(cell.label for cell in each.missing),
                failures=each.failures,
            )
            for each in answer.answers
        ),
        left_out=answer.left_out,
        findings=diagnostic_entries(answer.findings),
    )


def junit_xml(answer: ClaimsAnswer) -> str:
    """JUnit's XML: one suite per article. A claim without a verdict is skipped, with the reason.

    There is no standard; this is the subset of windyroad's schema that CI systems agree on.
    """
    root = Xml.Element("testsuites", name="vdisklab claims")
    for article in dict.fromkeys(each.claim.article for each in answer.answers):
        claims = [each for each in answer.answers if each.claim.article == article]
        failures = sum(status(each) == "fails" for each in claims)
        skipped = sum(status(each) not in ("fails", "holds") for each in claims)
        suite = Xml.SubElement(
            root, "testsuite", name=article, tests=str(len(claims)), failures=str(failures),
            errors="0", skipped=str(skipped), time="0",
        )  # fmt: skip
        for each in claims:
            _test_case(suite, answer, each)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _test_case(suite: Xml.Element, answer: ClaimsAnswer, each: ClaimAnswer) -> None:
    claim = each.claim
    case = Xml.SubElement(
        suite, "testcase", classname=f"vdisklab.claims.{claim.article}", name=claim.name, time="0"
    )  # some programs require a time
    text = _xml_text(f"{claim.sentence} {_explained(each)}")
    match status(each):
        case "holds":
            Xml.SubElement(case, "system-out").text = text
        case "fails":
            failure = Xml.SubElement(case, "failure", message=_explained(each), type="claim")
            failure.text = text
        case _:
            command = answer.commands.get((claim.article, claim.name))
            answered = _explained(each) if each.blocks else verdict_text(each)
            reason = "; ".join((answered, *each.failures))
            reason += f": {command}" if command else ""
            Xml.SubElement(case, "skipped", message=_xml_text(reason))


def _xml_text(outside: str) -> str:
    """One line that any XML parser accepts: XML cannot represent the two noncharacters."""
    return sanitise_line(outside).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _explained(each: ClaimAnswer) -> str:
    shown = numbers.ratio_interval(each.low, each.high)
    return (
        f"{verdict_text(each)}: {numbers.ratio(each.ratio)} ({shown}) "
        f"in {counted(each.blocks, 'block')}; stated is {stated(each.claim)}"
    )


def _row(answer: ClaimsAnswer, each: ClaimAnswer) -> ClaimRow:
    claim = each.claim
    return ClaimRow(
        article=claim.article,
        claim=claim.name,
        sentence=claim.sentence,
        status=status(each),
        verdict=verdict_text(each),
        ratio=each.ratio,
        ratio_low=each.low,
        ratio_high=each.high,
        stated_low=claim.low or None,
        stated_high=None if math.isinf(claim.high) else claim.high,
        p=each.p,
        p_adjusted=each.p_adjusted,
        blocks=each.blocks,
        more_blocks=each.more_blocks,
        void=each.void,
        command=answer.commands.get((claim.article, claim.name)),
    )


def stated(claim: Claim) -> str:
    """The claimed range, for people."""
    if claim.low == 0:
        return f"< {claim.high:g}"
    if math.isinf(claim.high):
        return f"> {claim.low:g}"
    return f"{claim.low:g}–{claim.high:g}"
