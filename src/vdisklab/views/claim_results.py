"""Claims as a table, as a document, and as JUnit XML for hosts that are tested with them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.etree import ElementTree as Xml

from vdisklab import numbers
from vdisklab.analysis.claim_verdicts import ClaimAnswer, ClaimStatus, ClaimVerdict, Void
from vdisklab.analysis.claimfile import Claim
from vdisklab.answers.claim_answers import ClaimsAnswer, status
from vdisklab.sanitise import sanitise_line
from vdisklab.units import counted
from vdisklab.views.documents.conversion import copy_fields
from vdisklab.views.documents.rankings import ClaimEntry, ClaimRow, ClaimsDocument
from vdisklab.views.layout import NAMES, WORDS, Column, Table


def verdict_text(answer: ClaimAnswer) -> str:
    """`holds`, `inconclusive (4 more rounds)`, `void: emulation (here it fails)`."""
    match answer.verdict:
        case ClaimVerdict.INCONCLUSIVE:
            if answer.more_rounds is None:
                return "inconclusive (1000 rounds would not decide)"
            more = answer.more_rounds
            return f"inconclusive ({more} more round{'s' if more > 1 else ''})"
        case ClaimVerdict.NOT_MEASURED:
            return "not measured"
        case _:
            if answer.void is None:
                return answer.verdict.value
            return f"void: {_VOIDS[answer.void]} (here it {answer.verdict.value})"


_VOIDS = {
    Void.EMULATION: "emulation",
    Void.EMULATED_HOST: "an emulated host",
    Void.LAB: "measured in a lab",
}


def claims_table(answer: ClaimsAnswer) -> Table[ClaimAnswer]:
    """One row per claim, in the order of the files; commands for missing cells follow."""
    warning = answer.caveats.warning
    title = claims_counts(answer) + (f"; {warning}" if warning else "")
    columns: tuple[Column[ClaimAnswer], ...] = (
        Column("article", lambda row: row.claim.article, spare=2),
        Column("claim", lambda row: row.claim.name, folds=NAMES),
        Column("claimed", lambda row: row.claim.sentence, folds=WORDS, spare=2),
        Column("verdict", verdict_text, folds=WORDS),
        Column("ratio", lambda row: numbers.ratio(row.ratio), right=True),
        Column(
            "95 %\ninterval",
            lambda row: numbers.ratio_interval(row.low, row.high),
            right=True,
            spare=1,
        ),
        Column("stated", lambda row: stated(row.claim), right=True, spare=1),
        Column("p", lambda row: numbers.probability(row.p_adjusted), right=True, spare=2),
        Column("n", lambda row: str(row.rounds or numbers.MISSING), right=True, spare=1),
    )
    return Table(
        title, columns, answer.answers, tuple(_notes(answer)),
        tuple(dict.fromkeys(answer.commands.values())),
        kind=ClaimRow, record=lambda row: copy_fields(ClaimRow, row, **_computed(answer, row)),
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
    yield from map(str, answer.findings)
    yield from (f"Left out: {reason}" for reason in answer.left_out)
    failures = dict.fromkeys(failure for claim in answer.answers for failure in claim.failures)
    yield from (f"Failed: {failure}" for failure in failures)
    if any(claim.p_adjusted is not None for claim in answer.answers):
        yield (
            "The ratio is left/right within rounds. Intervals hold for each claim alone; verdicts "
            "are corrected for the number of claims answered (Holm)."
        )
    if any(claim.more_rounds is not None for claim in answer.answers):
        yield (
            "To measure more rounds, repeat the command that measured the first ones with a larger "
            "--rounds."
        )
    if any(status(claim) is ClaimStatus.VOID for claim in answer.answers):
        yield (
            "Void: numbers from an emulated host decide no claim."
            if answer.caveats.emulated_host
            else "Void: a claim of guest against host needs KVM and a real disk."
        )
    if answer.commands:
        yield "To measure what is missing (or run `vdisklab claims --run`):"


def claims_document(answer: ClaimsAnswer) -> ClaimsDocument:
    """The JSON form: the rows with what they compare."""
    claims = tuple(
        copy_fields(ClaimEntry, entry, **_computed(answer, entry)) for entry in answer.answers
    )
    return copy_fields(ClaimsDocument, answer, claims=claims)


def junit_xml(answer: ClaimsAnswer) -> str:
    """JUnit's XML: one suite per article. A claim without a verdict is skipped, with the reason.

    There is no standard; this is the subset of windyroad's schema that CI systems agree on.
    """
    root = Xml.Element("testsuites", name="vdisklab claims")
    for article in dict.fromkeys(claim_answer.claim.article for claim_answer in answer.answers):
        claims = [
            claim_answer for claim_answer in answer.answers if claim_answer.claim.article == article
        ]
        failures = sum(status(claim_answer) == "fails" for claim_answer in claims)
        skipped = sum(status(claim_answer) not in ("fails", "holds") for claim_answer in claims)
        suite = Xml.SubElement(
            root, "testsuite", name=article, tests=str(len(claims)), failures=str(failures),
            errors="0", skipped=str(skipped), time="0",
        )  # fmt: skip
        for claim_answer in claims:
            _test_case(suite, answer, claim_answer)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _test_case(suite: Xml.Element, answer: ClaimsAnswer, claim_answer: ClaimAnswer) -> None:
    claim = claim_answer.claim
    case = Xml.SubElement(
        suite, "testcase", classname=f"vdisklab.claims.{claim.article}", name=claim.name, time="0"
    )  # some programs require a time
    text = _xml_text(f"{claim.sentence} {_explained(claim_answer)}")
    match status(claim_answer):
        case "holds":
            Xml.SubElement(case, "system-out").text = text
        case "fails":
            failure = Xml.SubElement(
                case, "failure", message=_explained(claim_answer), type="claim"
            )
            failure.text = text
        case _:
            command = answer.commands.get((claim.article, claim.name))
            answered = (
                _explained(claim_answer) if claim_answer.rounds else verdict_text(claim_answer)
            )
            reason = "; ".join((answered, *claim_answer.failures))
            reason += f": {command}" if command else ""
            Xml.SubElement(case, "skipped", message=_xml_text(reason))


def _xml_text(outside: str) -> str:
    """One line that any XML parser accepts: XML cannot represent the two noncharacters."""
    return sanitise_line(outside).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _explained(claim_answer: ClaimAnswer) -> str:
    shown = numbers.ratio_interval(claim_answer.low, claim_answer.high)
    return (
        f"{verdict_text(claim_answer)}: {numbers.ratio(claim_answer.ratio)} ({shown}) "
        f"in {counted(claim_answer.rounds, 'round')}; stated is {stated(claim_answer.claim)}"
    )


def _computed(answer: ClaimsAnswer, claim_answer: ClaimAnswer) -> dict[str, object]:
    """The keys that are not attributes of the claim's answer."""
    claim = claim_answer.claim
    return {
        "status": status(claim_answer),
        "verdict": verdict_text(claim_answer),
        "stated_low": claim.low or None,
        "stated_high": None if math.isinf(claim.high) else claim.high,
        "command": answer.commands.get((claim.article, claim.name)),
    }


def stated(claim: Claim) -> str:
    """The claimed range as text, such as `0.9–1.1`."""
    if claim.low == 0:
        return f"< {claim.high:g}"
    if math.isinf(claim.high):
        return f"> {claim.low:g}"
    return f"{claim.low:g}–{claim.high:g}"
