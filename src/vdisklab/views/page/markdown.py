"""The report as Markdown: for an issue or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vdisklab import numbers
from vdisklab.answers.report_contents import Contents
from vdisklab.sanitise import sanitise_line
from vdisklab.views.durability import power_cut_of
from vdisklab.views.page.contents import (
    answer_sentences,
    caution_of,
    claim_rows,
    claims_title,
    diagnostic_sentences,
    headline,
    score_keys,
)

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|<>&~-])")


def escape(text: str) -> str:
    """Text on one line, escaped for Markdown and the HTML in it."""
    return _SPECIAL.sub(r"\\\1", sanitise_line(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")


def to_markdown(contents: Contents) -> str:
    """Answer, all cells by score, diagnostics and machine."""
    return "\n".join(_lines(contents)) + "\n"


def _lines(contents: Contents) -> Iterator[str]:
    yield f"# vdisklab: {escape(headline(contents))}"
    caution = caution_of(contents)
    if caution:
        yield f"\n**{escape(caution)}**"
    yield ""
    yield from (f"* {escape(sentence)}" for sentence in answer_sentences(contents))
    yield "\n## Cells\n"
    keys = score_keys(contents) or (contents.measure,)
    titles = [key.metric.replace("_", " ") for key in keys]
    yield f"| rank | path | page cache | {' | '.join(titles)} | RAM | power cut | rounds |"
    yield f"|{'---|' * (len(keys) + 6)}"
    ranked = {row.cell: row for row in contents.ranking.rows}
    for cell in contents.order:
        row = ranked.get(cell)
        summaries = [contents.summaries[key].get(cell) for key in keys]
        values = [
            numbers.value(None if summary is None else summary.median, key.quantity.unit)
            for summary, key in zip(summaries, keys, strict=True)
        ]
        place = numbers.place(row.best, row.worst) if row else numbers.MISSING
        ram = "RAM" if cell in contents.cached else ""
        rounds = max((summary.rounds for summary in summaries if summary), default=0)
        columns = (
            place,
            escape(cell.name),
            cell.known_page_cache or numbers.MISSING,
            *values,
            ram,
            power_cut_of(cell, contents.verdicts),
            str(rounds),
        )
        yield f"| {' | '.join(columns)} |"
    yield from _claims(contents)
    yield "\n## Diagnostics\n"
    yield from (
        f"* {escape(sentence)}" for sentence in diagnostic_sentences(contents) or ("None.",)
    )
    yield "\n## Machine\n"
    for campaign in contents.campaigns:
        host = campaign.host
        facts = (("", host.hostname), ("", host.cpu), ("kernel ", host.kernel),
                 ("QEMU ", host.qemu), ("fio ", host.fio))  # fmt: skip
        known = ", ".join(f"{name}{fact}" for name, fact in facts if fact) or "not known"
        yield f"* {campaign.id} {escape(campaign.label)}: {escape(known)}"


def _claims(contents: Contents) -> Iterator[str]:
    """The articles' claims that could be answered."""
    rows = claim_rows(contents)
    if not rows:
        return
    yield f"\n## Claims\n\n{escape(claims_title(contents))}\n"
    caution = caution_of(contents)
    if caution:
        yield f"Measured {escape(caution)}.\n"
    yield "| claim | verdict here | ratio | 95 % interval | stated | rounds |"
    yield f"|{'---|' * 6}"
    for row in rows:
        shown = (row[key] for key in ("verdict", "ratio", "interval", "stated", "rounds"))
        claim = f"{row['sentence']} ({row['article']}/{row['name']})"
        yield f"| {' | '.join(escape(text) for text in (claim, *shown))} |"
