"""The report in words and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vdisklab import numbers
from vdisklab.analysis.claim_verdicts import ClaimStatus
from vdisklab.analysis.diagnostics.diagnostic import Diagnostic, grouped_sentences
from vdisklab.analysis.measure_words import measurement_words
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.score import Score
from vdisklab.answers.claims import JudgedClaim
from vdisklab.answers.hosts import MeasuredHost, varying
from vdisklab.answers.life import DiskLife
from vdisklab.answers.report import FEATURED, ReportAnswer
from vdisklab.path.cell import MeasuredCell
from vdisklab.units import counted, in_percent
from vdisklab.value import replace
from vdisklab.views import claims, during, hosts, life, recommend
from vdisklab.views.choice import MOST_CHARACTERS
from vdisklab.views.choice import headline as choice_headline
from vdisklab.views.density import density_headline, density_lines
from vdisklab.views.layout import Table
from vdisklab.views.trend import changed_sentence, has_become_slower
from vdisklab.views.wording import measure_name

HOST_PATHS = 24
"""Columns of the table of hosts and paths."""


_FACT_NAMES = ("CPU", "medium", "kernel", "QEMU")


def question(report: ReportAnswer) -> str:
    """What the report answers."""
    if report.ranked.hosts is not None:
        return f"Which disk should a guest have on these {_hosts(report)}?"
    host = report.ranked.caveats.only_of or report.ranked.campaigns[0].host.hostname
    if report.density is not None:
        return f"How many guests does each disk path carry on {host}?"
    if report.operations is not None:
        return f"What do operations on its disk cost a running guest on {host}?"
    if report.lives is not None:
        return f"What does it cost to make a guest's disk on {host}?"
    return f"Which disk should a guest have on {host}?"


def headline(report: ReportAnswer) -> str:
    """The answer in a few words."""
    if report.density is not None:
        return density_headline(report.density)
    if report.operations is not None:
        return during.short_headline(report.operations)
    if report.lives is not None:
        return life.short_headline(report.lives)
    answer = report.recommendation
    return recommend.headline(answer) if answer else f"No answer yet{_over(report)}"


_SLOWER = "; this host has got slower"
"""How a page's headline ends where the trend of the host shows a loss."""


def page_headline(report: ReportAnswer) -> str:
    """The same in at most 60 characters; the rest stands in the first line."""
    answer = report.recommendation
    others = (report.density, report.operations, report.lives)
    if answer is None or any(other is not None for other in others):
        return headline(report)
    of_host = report.caveats.only_of
    ending = "" if of_host is None else f", on {of_host} only"
    ending += _SLOWER if report.trend is not None and has_become_slower(report.trend) else ""
    return f"{recommend.short_headline(answer, MOST_CHARACTERS - len(ending))}{ending}"


def _over(report: ReportAnswer) -> str:
    return "" if report.ranked.hosts is None else f", on {_hosts(report)}"


def _hosts(report: ReportAnswer) -> str:
    return counted(report.ranked.rounds, "host")


def answer_sentences(report: ReportAnswer) -> tuple[str, ...]:
    """The answer, the runner-up, how certain it is, durability, and the gain over the default."""
    answer = report.recommendation
    if answer is not None and report.ranked.hosts is not None:
        return tuple(line for _, line in first_lines(report))  # each names its subject
    if answer is None:
        return tuple(f"{subject}: {line}" for subject, line in first_lines(report))
    changed = (line for _, line in _over_time(report))
    return (*changed, *recommend.verdict_sentences(answer), *recommend.reasons(answer))


def first_lines(report: ReportAnswer) -> tuple[tuple[str, str], ...]:
    """The lines below the headline, each with its subject."""
    if report.density is not None:
        return density_lines(report.density)
    if report.operations is not None:
        return during.first_lines(report.operations)
    if report.lives is not None:
        return (*life.first_lines(report.lives), *life.noted_lines(report.lives))
    answer, over = report.recommendation, report.ranked.hosts
    lines = (("Why", report.why_none),) if answer is None else ()
    if over is None:
        answered = () if answer is None else recommend.first_lines(answer)
        return (*lines, *_over_time(report), *answered)
    ranking = report.ranked.ranking if answer is None else answer.recommendation.ranking
    return (
        *lines,
        *([] if answer is None else recommend.first_lines(answer)),
        *(("One host", line) for line in hosts.apart_sentences(over, report.ranked.baseline)),
        *hosts.first_lines(over, ranking),
        *(("Hosts", sentence) for sentence in hosts.left_out_sentences(over.left_out)),
    )


def _over_time(report: ReportAnswer) -> tuple[tuple[str, str], ...]:
    """That the host has become slower or faster, as the trend far below says; empty if not."""
    trend = report.trend
    changed = None if trend is None else changed_sentence(trend, report.ranked.campaigns)
    return () if changed is None else (("Over time", changed),)


def page_lines(report: ReportAnswer) -> tuple[tuple[str, str], ...]:
    """The lines below a page's headline: what did not fit into it, and the first lines."""
    if report.operations is not None:  # the page has the table, and what to paste apart
        return during.answer_lines(report.operations)
    if report.lives is not None:
        return life.first_lines(report.lives)
    whole = headline(report)
    scoped = report.caveats.scoped(f"{whole}.")
    left = () if page_headline(report) == whole else (("Answer", scoped),)
    return (*left, *first_lines(report))


def operations_part(report: ReportAnswer) -> dict[str, Any] | None:
    """The report's part about operations: their table, and the lines to paste by operation and
    platform, with the reasons where there is no line."""
    if report.operations is None:
        return None
    (table,) = during.tables(report.operations)
    # A phone shows the verdict of a power cut too: a page can fold it.
    shown = [replace(column, phone=True) if column.folds else column for column in table.columns]
    lines: dict[str, list[str]] = {}
    without: list[str] = []
    for felt, each in during.relief(report.operations):
        title = f"{felt}, {each.platform}"
        if each.line is None:
            without.append(f"{title}: {each.reason}")
        else:
            lines.setdefault(title, []).append(each.line)
    return {"table": replace(table, columns=shown), "lines": lines, "without": without}


def lives_part(report: ReportAnswer) -> tuple[Table[DiskLife], ...]:
    """The report's tables of disks that were made from a template: times, and counts. None for
    other reports."""
    if report.lives is None:
        return ()
    times = life.times_table(report.lives)
    notes = tuple(note for _, note in life.noted_lines(report.lives))
    return replace(times, notes=notes), life.counts_table(report.lives)


def explanation(report: ReportAnswer) -> tuple[str, ...]:
    """The verdict's further sentences, after its first lines, and its reasons."""
    answer = report.recommendation
    if answer is None or report.ranked.hosts is not None:
        return ()
    return recommend.explanation(answer)


def diagnostic_sentences(report: ReportAnswer) -> tuple[str, ...]:
    """All diagnostics as sentences; only the first ones if there are many of one kind."""
    lines = grouped_sentences(report.findings)
    if report.cached:
        lines.append(
            f"In {counted(len(report.cached), 'cell')} less than half of the bytes reached the "
            "device in some measurement: such a number shows the host's page cache (RAM)."
        )
    if report.bursts:
        lines.append(
            f"In {counted(len(report.bursts), 'cell')} less than half of what a program wrote had "
            "reached the device when it ended: sustained rates, which rank, count the time until "
            "the rest had; bandwidths, IOPS and latencies of these writes show the host's memory."
        )
    return tuple(lines)


def diagnostics_by_cell(report: ReportAnswer) -> dict[str, tuple[str, ...]]:
    """The diagnostics of each cell as sentences, by its label."""
    by_cell: dict[str, list[str]] = {}
    for finding in report.findings:
        for cell in _cells_of(finding):
            by_cell.setdefault(cell.label, []).append(str(finding))
    for cell, names in report.cached.items():
        line = f"{cell}: from the host's page cache in {_some(names)}."
        by_cell.setdefault(cell.label, []).append(line)
    for cell, names in report.bursts.items():
        line = (
            f"{cell}: most bytes were on the disk only after the program's end in "
            f"{_some(names)}; sustained rates count that time."
        )
        by_cell.setdefault(cell.label, []).append(line)
    return {label: tuple(lines) for label, lines in by_cell.items()}


def _some(names: Sequence[str]) -> str:
    """The first of these measurements in words, and how many more there are."""
    more = f"; and {len(names) - FEATURED} more" if len(names) > FEATURED else ""
    return f"{'; '.join(map(measurement_words, names[:FEATURED]))}{more}"


def _cells_of(finding: Diagnostic) -> tuple[MeasuredCell, ...]:
    """The cells that a diagnostic names; none for one about the machine or the campaign."""
    several = getattr(finding, "cells", ())
    named = getattr(finding, "cell", None)
    cells = several if isinstance(several, tuple) else ()
    return cells if named is None else (*cells, named)


def score_keys(report: ReportAnswer) -> tuple[MeasureKey, ...]:
    """The scores that this report has."""
    return tuple(score.key for score in Score if score.key in report.summaries)


def claims_title(report: ReportAnswer) -> str:
    """A title that counts the claims by status."""
    return "" if report.claims is None else f"{claims.claims_counts(report.claims)}."


def claims_table(report: ReportAnswer) -> Table[JudgedClaim] | None:
    """The measured claims; the others are only counted. None without any."""
    if report.claims is None:
        return None
    (table,) = claims.tables(report.claims)
    measured = [row for row in table.rows if row.status is not ClaimStatus.NOT_MEASURED]
    return replace(table, rows=measured) if measured else None


def unmeasured_claims(report: ReportAnswer) -> str:
    """How many claims were not measured, and the command that measures them."""
    counts = {} if report.claims is None else report.claims.counts
    count = counts.get(ClaimStatus.NOT_MEASURED, 0)
    if not count:
        return ""
    return (
        f"{counted(count, 'claim')} could not be answered from these campaigns: `vdisklab claims` "
        "lists what is missing, `vdisklab claims --run` measures it."
    )


def hosts_part(report: ReportAnswer) -> dict[str, Any] | None:
    """The report's part about hosts, as text: outliers, classes, hosts and paths, each host's
    answer.
    """
    over = report.ranked.hosts
    if over is None:
        return None
    pairs = [row.hosts.agreement for row in report.ranked.cells if row.hosts]
    shown = [pair for pair in pairs if pair is not None][:HOST_PATHS]
    by_host = [{host.host: host for host in pair.hosts} for pair in shown]
    facts = ", ".join(varying(over.hosts))
    outliers = over.outliers
    slow = {outlier.host for outlier in outliers.outliers} if outliers else set()
    return {
        "outliers": list(hosts.outlier_sentences(outliers) if outliers else ())
        or ["No host differs."],
        "classes": list(hosts.class_sentences(over))
        or [f"The hosts differ in {facts}, but no paths are compared." if facts else "All alike."],
        "measure": measure_name(report.measure),
        "paths": [pair.a.label for pair in shown],
        "mean": [numbers.ratio(pair.ratio.ratio) for pair in shown],
        "rows": [
            {
                "name": answer.host.name,
                "id": _anchor(answer.host),
                "outlier": answer.host.name in slow,
                "ratios": [
                    (
                        numbers.ratio(None if here is None else here.ratio),
                        here is not None and not here.agrees,
                    )
                    for here in (column.get(answer.host.name) for column in by_host)
                ],
                "facts": ", ".join(map(" ".join, zip(_FACT_NAMES, answer.host.kind, strict=True))),
                "answer": answer.why_none
                if answer.choice is None
                else choice_headline(answer.choice),
                "first": [
                    f"{numbers.place(row.best, row.worst)}: {row.cell.label} "
                    f"({in_percent(row.share)} of its best)"
                    for row in answer.first
                ]
                or ["No path has a rank on this host."],
                "command": "vdisklab report "
                + " ".join(f"--campaign {campaign}" for campaign in answer.host.campaigns),
            }
            for answer in report.each_host
        ],
    }


def _anchor(host: MeasuredHost) -> str:
    return "host-" + "".join(c if c.isalnum() else f"-{ord(c):x}" for c in host.name)
