"""What a report is made of, whatever its format; and its numbers as one long table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vdisklab.analysis.compare import Ratio
from vdisklab.analysis.doubt import FROM_CACHE_BELOW
from vdisklab.analysis.evidence import Tally, Workings
from vdisklab.analysis.findings import FailedCell, Finding
from vdisklab.analysis.observations import MeasureKey, split_label
from vdisklab.analysis.rank import Ranking
from vdisklab.analysis.score import RoleSet, Score
from vdisklab.analysis.summary import Summary
from vdisklab.report.recommending import RecommendationAnswer, sentences
from vdisklab.report.tables import Column, Table, Value, text
from vdisklab.report.wording import EMULATION, sentence
from vdisklab.result.model import Campaign
from vdisklab.result.observations import Example


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything of a report. `summaries` has every measure, the scores first.

    `recommendation` is that of a durable path, None with `why_none` where there is none.
    `cached` names, for a cell, the measurements whose bytes mostly came from the page cache.
    """

    campaigns: tuple[Campaign, ...]
    emulated: bool
    lab: bool
    blocks: int
    baseline: str
    roles: RoleSet | None
    measure: MeasureKey
    ranking: Ranking
    ratios: Mapping[str, Ratio]
    summaries: Mapping[MeasureKey, Mapping[str, Summary]]
    recommendation: RecommendationAnswer | None
    why_none: str
    workings: Mapping[str, Workings]
    cached: Mapping[str, tuple[str, ...]]
    examples: Mapping[str, Example]
    failed: tuple[FailedCell, ...]
    findings: tuple[Finding, ...]

    @property
    def order(self) -> tuple[str, ...]:
        """All measured cells: ranked ones first, best first."""
        ranked = [row.cell for row in self.ranking.rows]
        rest = {cell for found in self.summaries.values() for cell in found} - set(ranked)
        return (*ranked, *sorted(rest))

    @property
    def caution(self) -> str | None:
        """What has to stand at every figure."""
        parts = [EMULATION] if self.emulated else []
        parts += ["in a lab, not on a real disk"] if self.lab else []
        return "; ".join(parts) or None


def from_page_cache(
    tallies: Iterable[Tally], labels: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """The measurements of each cell that mostly did not touch the device, over all blocks."""
    found: dict[str, list[str]] = {}
    for tally in tallies:
        asked, reached = tally.asked_bytes, tally.device_bytes
        if asked and reached is not None and reached < FROM_CACHE_BELOW * asked:
            label = labels.get(tally.cell, tally.cell)
            if not _is_null(label):
                found.setdefault(label, []).append(tally.measurement)
    return {label: tuple(sorted(names)) for label, names in found.items()}


def _is_null(label: str) -> bool:
    return any(part.partition(":")[0] == "null" for part in split_label(label)[0].split("/"))


def headline(contents: Contents) -> str:
    """The answer in a few words."""
    if contents.recommendation is None:
        return "No answer yet"
    return contents.recommendation.path


def answer_sentences(contents: Contents) -> tuple[str, ...]:
    """The answer, the runner-up, how sure it is, what is lost in a power cut, what is gained."""
    if contents.recommendation is None:
        return (contents.why_none,)
    return tuple(sentences(contents.recommendation))


def doubt_sentences(contents: Contents) -> tuple[str, ...]:
    """All findings in words."""
    found = [sentence(finding) for finding in (*contents.findings, *contents.failed)]
    if contents.cached:
        count = len(contents.cached)
        found.append(
            f"In {count} cell{'' if count == 1 else 's'} less than half of the bytes reached the "
            "device in some measurement: such a number is the host's page cache's (RAM)."
        )
    return tuple(found)


def long_table(contents: Contents) -> Table:
    """Every median with its interval, one in a line: the form for CSV and Parquet."""
    ranked = {row.cell: row for row in contents.ranking.rows}
    keys = ("cell", "path", "page_cache", "measure", "unit", "median", "low", "high",
            "interval_method", "blocks", "rank_best", "rank_worst", "from_page_cache",
            "emulation")  # fmt: skip
    rows = tuple(
        (
            text(cell),
            text(split_label(cell)[0]),
            text(split_label(cell)[1]),
            text(str(key)),
            text(key.quantity.unit),
            Value(summary.median, ""),
            Value(summary.low, ""),
            Value(summary.high, ""),
            Value(None if summary.method is None else summary.method.value, ""),
            Value(summary.blocks, ""),
            Value(ranked[cell].best if cell in ranked else None, ""),
            Value(ranked[cell].worst if cell in ranked else None, ""),
            Value(key.name in contents.cached.get(cell, ()), ""),
            Value(contents.emulated, ""),
        )
        for key, found in contents.summaries.items()
        for cell, summary in found.items()
    )
    return Table("Report", tuple(Column(key, key) for key in keys), rows)


def score_keys(contents: Contents) -> tuple[MeasureKey, ...]:
    """The scores that this report has."""
    return tuple(score.key for score in Score if score.key in contents.summaries)
