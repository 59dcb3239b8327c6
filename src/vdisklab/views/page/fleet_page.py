"""The report of a fleet as one HTML file: hosts x paths, outliers, agreement, each host's answer.

It has no script and loads nothing. All text from outside is escaped by markupsafe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from markupsafe import Markup

from vdisklab import __version__, numbers
from vdisklab.analysis.fleet.agreement import Agreement
from vdisklab.analysis.rank_intervals import Ranking
from vdisklab.answers.fleet_hosts import FleetHost, LoadedFleet
from vdisklab.answers.fleet_report import FleetContents
from vdisklab.path.cell import MeasuredCell
from vdisklab.results.model import Better
from vdisklab.sanitise import sanitise
from vdisklab.units import counted
from vdisklab.views.fleet_sentences import (
    agreement_sentence,
    class_sentences,
    fleet_sentences,
    outlier_sentences,
    spread_sentence,
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
    ranking, fleet = contents.ranking, contents.ranking.fleet
    title = f"{counted(len(fleet.hosts), 'host')}: {_headline(contents)}"
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
        _section("outliers", "Outliers", outlier_sentences(ranking.outliers), "No host differs."),
        _section(
            "classes", "Classes of hosts", class_sentences(ranking.classes), _one_class(fleet)
        ),
        _matrix(contents),
        Markup("<h2>Each host's own answer</h2>"),
        *(_own(host, contents.own.get(host.name)) for host in fleet.hosts),
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
    yield from map(str, contents.ranking.missing)
    if contents.recommendation is not None and contents.recommendation.over:
        yield agreement_sentence(contents.recommendation.over[0])
    if contents.ranking.first is not None:
        yield agreement_sentence(contents.ranking.first)
        yield spread_sentence(contents.ranking.first) or "More hosts show how much hosts differ."
    yield from fleet_sentences(contents.ranking.fleet)


def _list(sentences: Iterable[str]) -> Markup:
    lines = [Markup("<li>{}</li>").format(sanitise(line)) for line in dict.fromkeys(sentences)]
    return Markup("<ul>{}</ul>").format(Markup("").join(lines)) if lines else Markup("")


def _one_class(fleet: LoadedFleet) -> str:
    facts = ", ".join(fleet.varying)
    return f"The hosts differ in {facts}, but no paths are compared." if facts else "All alike."


def _section(name: str, title: str, sentences: Iterable[str], otherwise: str) -> Markup:
    lines = list(sentences) or [otherwise]
    return Markup('<h2 id="{}">{}</h2>{}').format(name, title, _list(lines))


def _matrix(contents: FleetContents) -> Markup:
    """Each path's ratio to the baseline on each host; a host against the mean host is marked."""
    ranking = contents.ranking
    cells = [row.cell for row in ranking.ranking.rows if row.cell in ranking.agreements][:PATHS]
    slow = {outlier.host for outlier in ranking.outliers.outliers}
    if not cells:
        return Markup('<h2 id="hosts">Hosts and paths</h2><p>No path has a rank over hosts.</p>')
    columns = {cell: _by_host(ranking.agreements[cell]) for cell in cells}
    head = Markup("").join(Markup("<th>{}</th>").format(sanitise(cell.label)) for cell in cells)
    rows = [
        Markup('<tr><th><a class="{}" href="#{}">{}</a></th>{}</tr>').format(
            "outlier" if host.name in slow else "",
            _anchor(host),
            sanitise(host.name),
            Markup("").join(_ratio_cell(columns[cell].get(host.name)) for cell in cells),
        )
        for host in ranking.fleet.hosts
    ]
    mean = Markup("").join(
        Markup("<td>{}</td>").format(numbers.ratio(ranking.agreements[cell].ratio.ratio))
        for cell in cells
    )
    return Markup(
        '<h2 id="hosts">Hosts and paths</h2><p>{} relative to {}. Marked: the host disagrees with '
        "the mean host on which of the two is better. A host leads to its own answer.</p>"
        '<div class="scroll"><table><thead><tr><th>host</th>{}</tr></thead><tbody>'
        "<tr><th>mean host</th>{}</tr>{}</tbody></table></div>"
    ).format(
        measure_name(ranking.ranking.measure),
        sanitise(ranking.baseline.label),
        head,
        mean,
        Markup("").join(rows),
    )


def _by_host(pair: Agreement) -> dict[str, tuple[float | None, bool]]:
    against = {host.host for host in pair.disagreeing}
    return {host.host: (host.ratio.ratio, host.host in against) for host in pair.hosts}


def _ratio_cell(entry: tuple[float | None, bool] | None) -> Markup:
    ratio, against = entry or (None, False)
    form = Markup('<td class="against">{}</td>') if against else Markup("<td>{}</td>")
    return form.format(numbers.ratio(ratio))


def _anchor(host: FleetHost) -> str:
    return "host-" + "".join(c if c.isalnum() else f"-{ord(c):x}" for c in host.name)


def _own(host: FleetHost, ranking: Ranking | None) -> Markup:
    """One host: its facts, its first paths with their ranks, and the command for its report."""
    facts = ", ".join(f"{name} {value}" for name, value in zip(
        ("CPU", "medium", "kernel", "QEMU"), host.kind, strict=True
    ))  # fmt: skip
    rows = [] if ranking is None else ranking.rows[:OWN]
    lines = [f"{numbers.place(row.best, row.worst)}: {_value(row.cell, row.effect, ranking)}"
             for row in rows]  # fmt: skip
    command = " ".join(f"--campaign {campaign.id}" for campaign in host.campaigns)
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
