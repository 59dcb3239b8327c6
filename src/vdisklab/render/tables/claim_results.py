"""The claims as a table, as a document, and as JUnit XML for those who test a host with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from vdisklab.analysis.claimfile import Claim
from vdisklab.analysis.claims import ClaimAnswer, ClaimVerdict, Void
from vdisklab.render import numbers
from vdisklab.render.document import Json, campaign_json, document, findings_json
from vdisklab.render.tables.layout import Column, Table, Value, as_records, sanitise_line, text
from vdisklab.render.wording import caution, sentence
from vdisklab.services.claim_answers import ClaimsAnswer, status
from vdisklab.units import counted


def verdict_text(answer: ClaimAnswer) -> str:
    """`holds`, `inconclusive (4 more blocks)`, `void: emulation (would fail)`."""
    match answer.verdict:
        case ClaimVerdict.INCONCLUSIVE:
            if answer.more_blocks is None:
                return "inconclusive (no 1000 blocks would tell)"
            more = answer.more_blocks
            return f"inconclusive ({more} more block{'s' if more > 1 else ''})"
        case ClaimVerdict.NOT_MEASURED:
            return "not measured"
        case _:
            if answer.void is None:
                return answer.verdict.value
            return f"void: {_VOIDS[answer.void]} (here it {answer.verdict.value})"


_VOIDS = {Void.EMULATION: "emulation", Void.LAB: "measured in a lab"}

_COLUMNS = (
    Column("article", "article"),
    Column("claim", "claim", folds=True),
    Column("sentence", "it says", folds=True, only_wide=True),
    Column("status", "", only_data=True),
    Column("verdict", "verdict", folds=True),
    Column("ratio", "ratio", right=True),
    Column("interval", "95 %\ninterval", right=True, only_shown=True),
    Column("ratio_low", "", only_data=True),
    Column("ratio_high", "", only_data=True),
    Column("stated", "stated", right=True, only_shown=True),
    Column("stated_low", "", only_data=True),
    Column("stated_high", "", only_data=True),
    Column("p", "", only_data=True),
    Column("p_adjusted", "p", right=True, only_wide=True),
    Column("blocks", "n", right=True),
    Column("more_blocks", "", only_data=True),
    Column("void", "", only_data=True),
    Column("command", "", only_data=True),
)


def claims_table(answer: ClaimsAnswer) -> Table:
    """One row per claim, in the order of the files; commands for what is missing stand below."""
    counts = ", ".join(f"{count} {name.replace('-', ' ')}" for name, count in _ordered(answer))
    title = f"Claims: {counts or 'none'}"
    beware = caution(answer.caveats)
    if beware is not None:
        title = f"{title}; {beware}"
    notes = [sentence(finding) for finding in answer.findings]
    notes += [f"Left out: {reason}" for reason in answer.left_out]
    notes += [f"Failed: {failure}" for failure in _failures(answer)]
    if any(each.p_adjusted is not None for each in answer.answers):
        notes.append(
            "The ratio is left/right within blocks. Intervals hold for each claim alone; verdicts "
            "are corrected for the number of claims answered (Holm)."
        )
    if any(each.more_blocks is not None for each in answer.answers):
        notes.append(
            "More blocks are measured by the command that measured the first ones, with a larger "
            "--blocks."
        )
    if any(status(each) == "void" for each in answer.answers):
        notes.append("Void: a claim of guest against host needs KVM and a real disk.")
    commands = dict.fromkeys(answer.commands.values())
    if commands:
        notes.append("What is not measured needs (or `vdisklab claims --run`):")
    return Table(
        title,
        _COLUMNS,
        tuple(_row(answer, each) for each in answer.answers),
        tuple(notes),
        tuple(commands),
    )


def claims_document(answer: ClaimsAnswer) -> Json:
    """The JSON form; `claims` has the rows of `claims_table` with what they compare."""
    records = as_records(claims_table(answer))
    return document(
        "claims",
        1,
        campaigns=[campaign_json(campaign) for campaign in answer.campaigns],
        emulation=answer.caveats.emulated,
        lab=answer.caveats.lab,
        articles=dict(answer.titles),
        counts=dict(answer.counts),
        claims=[
            {
                **record,
                "pairs": [[a.label, b.label] for a, b in each.claim.pairs],
                "measures": [str(key) for key in each.claim.measures],
                "absolute": each.claim.absolute,
                "missing": [cell.label for cell in each.missing],
                "failures": list(each.failures),
            }
            for record, each in zip(records, answer.answers, strict=True)
        ],
        left_out=list(answer.left_out),
        findings=findings_json(answer.findings),
    )


def junit_xml(answer: ClaimsAnswer) -> str:
    """JUnit's XML: one suite per article; what is neither shown nor refuted is skipped, with why.

    There is no standard; this is the subset of windyroad's schema that CI systems agree on.
    """
    root = Xml.Element("testsuites", name="vdisklab claims")
    for article in dict.fromkeys(each.claim.article for each in answer.answers):
        mine = [each for each in answer.answers if each.claim.article == article]
        failures = sum(status(each) == "fails" for each in mine)
        skipped = sum(status(each) not in ("fails", "holds") for each in mine)
        suite = Xml.SubElement(
            root, "testsuite", name=article, tests=str(len(mine)), failures=str(failures),
            errors="0", skipped=str(skipped), time="0",
        )  # fmt: skip
        for each in mine:
            _test_case(suite, answer, each)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _test_case(suite: Xml.Element, answer: ClaimsAnswer, each: ClaimAnswer) -> None:
    claim = each.claim
    case = Xml.SubElement(
        suite, "testcase", classname=f"vdisklab.claims.{claim.article}", name=claim.name, time="0"
    )  # some readers want a time, and to answer takes none
    said = _xml_text(f"{claim.sentence} {_explained(each)}")
    match status(each):
        case "holds":
            Xml.SubElement(case, "system-out").text = said
        case "fails":
            failure = Xml.SubElement(case, "failure", message=_explained(each), type="claim")
            failure.text = said
        case _:
            command = answer.commands.get((claim.article, claim.name))
            found = _explained(each) if each.blocks else verdict_text(each)
            why = "; ".join((found, *each.failures))
            why += f": {command}" if command else ""
            Xml.SubElement(case, "skipped", message=_xml_text(why))


def _xml_text(outside: str) -> str:
    """One line that any XML parser reads: XML has no way to write the two noncharacters."""
    return sanitise_line(outside).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _explained(each: ClaimAnswer) -> str:
    shown = numbers.ratio_interval(each.low, each.high)
    return (
        f"{verdict_text(each)}: {numbers.ratio(each.ratio)} ({shown}) "
        f"in {counted(each.blocks, 'block')}; stated is {stated(each.claim)}"
    )


def _row(answer: ClaimsAnswer, each: ClaimAnswer) -> tuple[Value, ...]:
    claim = each.claim
    command = answer.commands.get((claim.article, claim.name))
    void = None if each.void is None else each.void.value
    return (
        text(claim.article),
        text(claim.name),
        text(claim.sentence),
        text(status(each)),
        text(verdict_text(each)),
        Value(each.ratio, numbers.ratio(each.ratio)),
        Value(None, numbers.ratio_interval(each.low, each.high)),
        Value(each.low, ""),
        Value(each.high, ""),
        Value(None, stated(claim)),
        Value(claim.low or None, ""),
        Value(None if math.isinf(claim.high) else claim.high, ""),
        Value(each.p, ""),
        Value(each.p_adjusted, numbers.probability(each.p_adjusted)),
        Value(each.blocks, str(each.blocks) if each.blocks else numbers.MISSING),
        Value(each.more_blocks, ""),
        Value(void, ""),
        Value(command, ""),
    )


def stated(claim: Claim) -> str:
    """The range that is claimed, for people."""
    if claim.low == 0:
        return f"< {claim.high:g}"
    if math.isinf(claim.high):
        return f"> {claim.low:g}"
    return f"{claim.low:g}–{claim.high:g}"


def _ordered(answer: ClaimsAnswer) -> list[tuple[str, int]]:
    order = ("holds", "fails", "inconclusive", "void", "not-measured")
    counts = answer.counts
    return [(name, counts[name]) for name in order if counts.get(name)]


def _failures(answer: ClaimsAnswer) -> Sequence[str]:
    return tuple(dict.fromkeys(failure for each in answer.answers for failure in each.failures))
