"""The articles' claims and numbers as the page shows them: texts only, ready to be escaped."""

from __future__ import annotations

from typing import Any

from vdisklab.render import numbers
from vdisklab.render.charts.published_bars import compared_rows
from vdisklab.render.claims import claims_table, stated, status, verdict_text
from vdisklab.render.page.contents import Contents
from vdisklab.render.published import shape_text


def claims_title(contents: Contents) -> str:
    """How many claims ended how."""
    found = contents.claims
    return "" if found is None else f"{claims_table(found).title.partition(';')[0]}."


def claim_rows(contents: Contents) -> list[dict[str, str]]:
    """The claims that could be answered; those that were not measured are only counted."""
    found = contents.claims
    if found is None:
        return []
    return [
        {
            "article": each.claim.article,
            "name": each.claim.name,
            "sentence": each.claim.sentence,
            "status": status(each),
            "verdict": verdict_text(each),
            "ratio": numbers.ratio(each.ratio),
            "interval": numbers.ratio_interval(each.low, each.high),
            "stated": stated(each.claim),
            "blocks": str(each.blocks) if each.blocks else numbers.MISSING,
        }
        for each in found.answers
        if status(each) != "not-measured"
    ]


def unmeasured_claims(contents: Contents) -> str:
    """What was not measured, and what would."""
    found = contents.claims
    count = 0 if found is None else found.counts.get("not-measured", 0)
    if not count:
        return ""
    return (
        f"{count} claim{'' if count == 1 else 's'} could not be answered from these campaigns: "
        "`vdisklab claims` names what is missing, `vdisklab claims --run` measures it."
    )


def published_parts(contents: Contents) -> list[dict[str, Any]]:
    """One part for each series with a counterpart here."""
    parts = []
    for answer in contents.published:
        first, rows = answer.comparison.tables[0], compared_rows(answer)
        parts.append(
            {
                "title": answer.title,
                "series": first.series,
                "machine": first.machine,
                "baseline": answer.comparison.baseline.label,
                "missing": len(answer.comparison.rows) - len(rows),
                "command": answer.command or "",
                "rows": [
                    {
                        "cell": row.cell.label,
                        "measure": str(row.number.measure),
                        "published": numbers.value(row.number.value, row.number.unit),
                        "published_ratio": numbers.ratio(row.published),
                        "ratio": numbers.ratio(row.ours.ratio),
                        "interval": numbers.ratio_interval(row.ours.low, row.ours.high),
                        "shape": shape_text(row),
                    }
                    for row in rows
                ],
            }
        )
    return parts
