"""The report of a fleet as one HTML file: hosts x paths, outliers, agreement, each host's answer.

It has no script and loads nothing. All text from outside is escaped by markupsafe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from markupsafe import Markup

from vdisklab import __version__, numbers
from vdisklab.analysis.diagnostics.ranked import NoBaseline
from vdisklab.analysis.fleet.agreement import HostRatio
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.answers.fleet_report import FleetContents
from vdisklab.answers.hosts import MeasuredHost, OverHosts, varying
from vdisklab.answers.rank import RankAnswer
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better
from vdisklab.sanitise import sanitise
from vdisklab.units import counted
from vdisklab.views.hosts import (
    agreement_sentence,
    class_sentences,
    first_sentences,
    left_out_sentences,
    outlier_sentences,
)
from vdisklab.views.wording import measure_name

PATHS = 24
"""Columns of the table of hosts and paths."""

OWN = 5
"""Paths in each host's own answer."""

_STYLE = Markup("""
body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:1rem auto;padding:0 1rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}
th,td{padding:.2rem .5rem;text-align:right;border-bottom:1px solid #8884}
th:first-child{text-align:left;position:sticky;left:0;background:Canvas}
thead th{vertical-align:bottom;min-width:5rem;max-width:9rem;overflow-wrap:anywhere}
.against{background:#c60;color:#fff}.outlier{font-weight:bold;text-decoration:underline}
code{font-size:.9em}:root{color-scheme:light dark}
""")


def render_fleet_page(contents: FleetContents) -> str:
    """The whole file."""
    ranking, over = contents.ranking, contents.ranking.hosts
    assert over is not None  # noqa: S101 - for mypy
    title = f"{counted(len(over.hosts), 'host')}: {_headline(contents)}"
    warning = ranking.caveats.warning
    parts = [
        Markup(
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'\">"
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="generator" content="vdisklab {}"><title>vdisklab: {}</title>'
            "<style>{}</style></head><body><h1>{}</h1>"
        ).format(__version__, sanitise(title), _STYLE, sanitise(title)),
        _list(_first(contents)),
        _list([f"Measured {warning}."] if warning else []),
        _section(
            "outliers",
            "Outliers",
            outlier_sentences(over.outliers) if over.outliers else (),
            "No host differs.",
        ),
        _section("classes", "Classes of hosts", class_sentences(over), _one_class(over)),
        _matrix(ranking, over),
        Markup("<h2>Each host's own answer</h2>"),
        *(_own(host, contents.own.get(host.name)) for host in over.hosts),
        Markup("</body></html>\n"),
    ]
    return str(Markup("\n").join(parts))


def _headline(contents: FleetContents) -> str:
    answer = contents.recommendation
    if answer is None:
        return "no answer yet"
    return f"use {answer.cell}" + (" (a tie)" if answer.ties else "")


def _first(contents: FleetContents) -> Iterator[str]:
    if contents.why_none:
        yield contents.why_none
    findings, over = contents.ranking.findings, contents.ranking.hosts
    yield from (str(one) for one in findings if isinstance(one, NoBaseline))
    if contents.recommendation is not None and contents.recommendation.over:
        yield agreement_sentence(contents.recommendation.over[0])
    if over is not None:
        yield from first_sentences(over)
        yield from left_out_sentences(over.left_out)


def _list(sentences: Iterable[str]) -> Markup:
    lines = [Markup("<li>{}</li>").format(sanitise(line)) for line in dict.fromkeys(sentences)]
    return Markup("<ul>{}</ul>").format(Markup("").join(lines)) if lines else Markup("")


def _one_class(over: OverHosts) -> str:
    facts = ", ".join(varying(over.hosts))
    return f"The hosts differ in {facts}, but no paths are compared." if facts else "All alike."


def _section(name: str, title: str, sentences: Iterable[str], otherwise: str) -> Markup:
    lines = list(sentences) or [otherwise]
    return Markup('<h2 id="{}">{}</h2>{}').format(name, title, _list(lines))


def _matrix(answer: RankAnswer, over: OverHosts) -> Markup:
    """Each path's ratio to the baseline on each host; a host against the mean host is marked."""
    pairs = [row.hosts.agreement for row in answer.cells if row.hosts and row.hosts.agreement]
    pairs = pairs[:PATHS]
    slow = {outlier.host for outlier in over.outliers.outliers} if over.outliers else set()
    if not pairs:
        return Markup('<h2 id="hosts">Hosts and paths</h2><p>No path has a rank over hosts.</p>')
    columns = [{host.host: host for host in pair.hosts} for pair in pairs]
    head = Markup("").join(Markup("<th>{}</th>").format(sanitise(pair.a.label)) for pair in pairs)
    rows = [
        Markup('<tr><th><a class="{}" href="#{}">{}</a></th>{}</tr>').format(
            "outlier" if host.name in slow else "",
            _anchor(host),
            sanitise(host.name),
            Markup("").join(_ratio_cell(column.get(host.name)) for column in columns),
        )
        for host in over.hosts
    ]
    mean = Markup("").join(
        Markup("<td>{}</td>").format(numbers.ratio(pair.ratio.ratio)) for pair in pairs
    )
    return Markup(
        '<h2 id="hosts">Hosts and paths</h2><p>{} relative to {}. Marked: the host disagrees with '
        "the mean host on which of the two is better. A host leads to its own answer.</p>"
        '<div class="scroll"><table><thead><tr><th>host</th>{}</tr></thead><tbody>'
        "<tr><th>mean host</th>{}</tr>{}</tbody></table></div>"
    ).format(
        measure_name(answer.ranking.measure),
        sanitise(answer.baseline.label),
        head,
        mean,
        Markup("").join(rows),
    )


def _ratio_cell(host: HostRatio | None) -> Markup:
    against = host is not None and not host.agrees
    form = Markup('<td class="against">{}</td>') if against else Markup("<td>{}</td>")
    return form.format(numbers.ratio(None if host is None else host.ratio))


def _anchor(host: MeasuredHost) -> str:
    return "host-" + "".join(c if c.isalnum() else f"-{ord(c):x}" for c in host.name)


def _own(host: MeasuredHost, ranking: Ranking | None) -> Markup:
    """One host: its facts, its first paths with their ranks, and the command for its report."""
    facts = ", ".join(f"{name} {value}" for name, value in zip(
        ("CPU", "medium", "kernel", "QEMU"), host.kind, strict=True
    ))  # fmt: skip
    rows = [] if ranking is None else ranking.rows[:OWN]
    lines = [f"{numbers.place(row.best, row.worst)}: {_value(row.cell, row.effect, ranking)}"
             for row in rows]  # fmt: skip
    command = " ".join(f"--campaign {campaign}" for campaign in host.campaigns)
    return Markup('<h3 id="{}">{}</h3><p>{}</p>{}<p><code>{}</code></p>').format(
        _anchor(host),
        sanitise(host.name),
        sanitise(facts),
        _list(lines or ["No path has a rank on this host."]),
        sanitise(f"vdisklab report {command}"),
    )


def _value(cell: MeasuredCell, effect: float, ranking: Ranking | None) -> str:
    if ranking is None or not ranking.rows:
        return cell.label
    best = ranking.rows[0].effect
    apart = effect - best if ranking.measure.quantity.better is Better.HIGHER else best - effect
    return f"{cell.label} ({100 * math.exp(apart):.0f} % of its best)"
