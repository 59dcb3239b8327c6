"""The report as one HTML file that needs nothing else: no network, no other file.

Text from outside (paths, host names, messages of programs, labels) is escaped by Jinja2, or is in
JSON whose `<`, `>` and `&` are escaped; the content security policy allows this page's own script
and style by their hashes and nothing else, not even images.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec.structs import asdict

from vdisklab import __version__, numbers
from vdisklab.analysis.observations import Floats, MeasureKey
from vdisklab.analysis.rank_intervals import Ranked
from vdisklab.analysis.score import Weighted
from vdisklab.analysis.summary import Summaries
from vdisklab.analysis.sums import RelativeSums, coarser
from vdisklab.answers.export import ConfiguredFor
from vdisklab.answers.figures import MOST_MOMENTS, choice_bars, newest_series, series_name
from vdisklab.answers.report import Lines, ReportAnswer
from vdisklab.path.backing import backing_below
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.named_target import as_typed
from vdisklab.results.model import Example
from vdisklab.sanitise import sanitise
from vdisklab.value import replace
from vdisklab.views.charts.figures import figures
from vdisklab.views.charts.rows import page_rows
from vdisklab.views.choice import keeps_what_is_there
from vdisklab.views.compare import published_tables
from vdisklab.views.durability import power_cut_text
from vdisklab.views.life import rank_command
from vdisklab.views.rank import rank_text
from vdisklab.views.report import (
    claims_table,
    claims_title,
    diagnostic_sentences,
    diagnostics_by_cell,
    explanation,
    hosts_part,
    lives_part,
    operations_part,
    page_headline,
    page_lines,
    question,
    unmeasured_claims,
)
from vdisklab.views.wording import mean_sentence, measure_name

FIRST_PAGE = 20
"""Rows in the HTML itself, so that there is a table before the script runs."""

SHOWN_AT_FIGURE = 4
"""Maximum number of diagnostics at one figure; the others are counted."""

_PLACES = re.compile(r"(?<=[/:,])(?=[^\s/:,])")
"""Within a path: after a slash, a colon or a comma."""

_UNBROKEN = re.compile(
    r"(?<![\w-])(--?[a-z][\w-]{0,30}|\d[\d.,]{0,20}(?:(?:e-|[–-])\d[\d.,]{0,20}){1,3}"
    r"|\(-?\d[\d.,]{0,20} to -?\d[\d.,]{0,20}\))"
)
"""Text that a browser would break at a hyphen, a dash or a space: an option, an interval or a
date."""


def render_page(report: ReportAnswer) -> str:
    """The whole file."""
    style, script = page_style(), page_script()
    answer = report.recommendation
    return (
        page_templates()
        .get_template("page.html")
        .render(
            version=__version__,
            policy=report_policy(),
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            question=question(report),
            headline=page_headline(report),
            caution=report.caveats.warning,
            remedies=report.caveats.remedies,
            places=report.places,
            lines=page_lines(report),
            explanation=explanation(report),
            path=str(answer.path) if answer else "",
            keeps=answer is not None and keeps_what_is_there(answer.choice),
            image=_image(answer.recommendation.cell.path) if answer else "",
            on_target=bool(answer and (path := answer.recommendation.cell.path) and path.target),
            configurations=report.configurations,
            driver=driver_settings(report.configurations),
            choice=_choice(report),
            diagnostics=diagnostic_sentences(report),
            claims=claims_table(report),
            claims_title=claims_title(report),
            unmeasured=unmeasured_claims(report),
            published=[
                (answer, replace(next(published_tables(answer)), rows=answer.comparison.compared))
                for answer in report.published
            ],
            hosts=hosts_part(report),
            operations=operations_part(report),
            lives=lives_part(report),
            ranks="" if report.lives is None else rank_command(report.lives),
            rows=_first_rows(report),
            measures=[_measure(key) for key in report.summaries],
            cells=len(report.ranked.cells),
            rounds=report.ranked.rounds,
            alike=set(report.measured.values()) == {report.ranked.rounds},
            raced=report.raced,
            answered=report.answer is not None,
            chosen=str(report.measure),
            chosen_name=_measure(report.measure)["name"],
            data=_json(_core(report)),
            more=_packed(_more(report)),
            details=_packed(_compact(_details(report)).encode()),
            series=_packed(_compact(_over_time(report)).encode()),
            campaigns=[
                _campaign(campaign)
                for campaign in report.ranked.campaigns[: 1 if report.ranked.hosts else None]
            ],
            alpha=report.ranked.ranking.alpha,
            separated=report.ranked.ranking.separated,
            comparisons=report.ranked.ranking.comparisons,
            baseline=report.baseline.label,
            roles=report.ranked.roles.title
            if report.ranked.roles and report.measure in {score.key for score in Weighted}
            else None,
            rates=mean_sentence(report.ranked.rates, report.baseline.label)
            if report.ranked.rates
            else None,
            figures=_figures(report),
        )
    )


@cache
def page_templates() -> Environment:
    """The templates of pages, with filters that make text from outside harmless."""
    templates = Environment(
        autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(page_file)
    )
    templates.filters["harmless"] = lambda text: _shown(str(text))
    templates.filters["unbroken"] = _unbroken
    templates.filters["coded"] = _coded
    templates.filters["breakable"] = _breakable
    return templates


def _shown(text: str) -> str:
    """Text from outside, harmless, with targets named as the user named them."""
    return as_typed(sanitise(text))


def driver_settings(configurations: Iterable[ConfiguredFor]) -> str:
    """What a path sets of a disk that the guest has, such as `cache="none"`, in the words of the
    first configuration that has such a part; empty without one."""
    return next((each.settings for each in configurations if each.settings), "")


def _image(path: DiskPath | None) -> str:
    """The format of the file that the configuration names; empty if it names none."""
    if path is None or path.image is None or path.target:
        return ""
    return "" if backing_below(path).ends_on_device(path.layers) else path.image.format


def _choice(report: ReportAnswer) -> dict[str, Any] | None:
    """The figure of the first screen: the paths that qualify, with the answer and the default."""
    bars, unit = choice_bars(report)
    if not bars:
        return None
    over = "" if unit else f" ({report.baseline} is ×1)"
    title = f"The choice, by {measure_name(report.measure)}{over}"
    described = "; ".join(f"{bar.label}: {numbers.digits(bar.value)} {unit}" for bar in bars)
    rows = page_rows(bars, unit, shared=True)
    alt = _shown(f"Bar chart, {title}: {described}.")
    return {"title": title, "alt": alt, "rows": rows, "parts": ()}


def _breakable(text: object) -> Markup:
    """An escaped text whose paths may be broken after a slash, a colon or a comma, on a phone."""
    return _unbroken(_percents(text), _with_places)


def _with_places(part: str) -> Markup:
    """An escaped text with the places at which a path is broken before it is within a word."""
    return Markup("<wbr>").join(map(escape, _PLACES.split(part)))


def _coded(text: object) -> Markup:
    """An escaped sentence, with text between backquotes as code."""
    parts = _shown(str(text)).split("`")
    if len(parts) % 2 == 0:  # a backquote in a name from outside
        return _unbroken(_percents("`".join(parts)))
    whole = [
        Markup("<code>{}</code>").format(_unbroken(part))
        if place % 2
        else _unbroken(_percents(part))
        for place, part in enumerate(parts)
    ]
    return Markup("").join(whole)


def _percents(text: object) -> str:
    """A sentence that is not broken between a number and its percent sign."""
    return str(text).replace(" %", "\N{NO-BREAK SPACE}%")


def _unbroken(text: object, other: Callable[[str], Markup] = escape) -> Markup:
    """An escaped text whose intervals, dates and options stay on one line; `other` escapes the
    rest."""
    parts = _UNBROKEN.split(_shown(str(text)))
    return Markup("").join(
        Markup('<span class="whole">{}</span>').format(part) if place % 2 else other(part)
        for place, part in enumerate(parts)
    )


@cache
def page_file(name: str) -> str:
    """A template, style or script."""
    return resources.files("vdisklab.views.page").joinpath("templates", name).read_text("utf-8")


def page_style(name: str = "page.css") -> str:
    """The style of all pages, and that of one of them."""
    return "".join(map(page_file, dict.fromkeys(("page.css", "uplot.css", name))))


def page_script(name: str = "page.js") -> str:
    """uPlot with its licence, the charts and tables of all pages, and the script of one page."""
    licence = f"/* uPlot:\n{page_file('uplot.LICENSE')}*/\n"
    return licence + "\n".join(map(page_file, ("uplot.js", "charts.js", "scrolls.js", name)))


@cache
def report_policy() -> str:
    """The content security policy of a report."""
    return policy_of(page_script())


def policy_of(script: str) -> str:
    """The content security policy of a page: its own script and style, and nothing else."""

    def source(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    return (
        f"default-src 'none'; script-src {source(script)}; "
        f"style-src {source(page_style())}; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: object) -> Markup:
    """JSON that cannot end the script element around it."""
    text = _compact(value)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - escaped just above


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _packed(content: bytes) -> str:
    """Compressed JSON in base64: the commands of ten thousand cells are very similar."""
    return base64.b64encode(gzip.compress(content, compresslevel=1, mtime=0)).decode()


def _figures(report: ReportAnswer) -> list[dict[str, Any]]:
    diagnostics = diagnostics_by_cell(report)
    return [
        {
            "key": figure.key,
            "title": figure.title,
            "missing": figure.missing,
            "note": figure.note,
            "alt": _shown(figure.alt),
            "rows": page_rows(
                figure.bars, figure.unit, shared=figure.shared, longest=figure.longest
            ),
            "parts": figure.parts,
            "diagnostics": _diagnostics_at(figure.cells, diagnostics),
            "curves": [
                (
                    _shown(lines.panel),
                    _shown(lines.alt or figure.alt),
                    _curves(lines, report.answer),
                )
                for lines in figure.curves
            ],
        }
        for figure in figures(report)
    ]


def _curves(lines: Lines, answer: MeasuredCell | None) -> str:
    """The lines for the page's script, which marks that of the answer."""
    drawn = asdict(lines) | {"lines": list(map(_shown, lines.lines))}
    if answer is not None and answer.label in lines.lines:
        drawn["answer"] = lines.lines.index(answer.label)
    if lines.ticks:
        drawn["ticks"] = list(enumerate(map(_shown, lines.ticks)))
    return _compact(drawn | {"ticks": drawn["ticks"] or None})


def _diagnostics_at(cells: Iterable[str], diagnostics: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The first diagnostics of the cells that a figure draws."""
    lines = list(dict.fromkeys(line for cell in cells for line in diagnostics.get(cell, ())))
    more = len(lines) - SHOWN_AT_FIGURE
    return [*lines[:SHOWN_AT_FIGURE], *([f"… and {more} more, in the table"] if more > 0 else [])]


def _measure(key: MeasureKey) -> dict[str, str]:
    unit = key.quantity.shown_unit
    name = key.metric.replace("_", " ") if key.name == "score" else str(key)
    return {
        "key": str(key),
        "name": name,
        "unit": "times the baseline" if unit == "1" else unit,
        "better": key.quantity.better.value,
    }


def _segments(cell: MeasuredCell) -> list[str]:
    """Layers, format, cache mode and bus, for the filters; without options."""
    path = cell.path
    if path is None:
        return ["–"] * 4
    return [
        "+".join(layer.kind.value for layer in path.layers) or "–",
        path.image.format.value if path.image else "–",
        "–" if not path.gives_disk else path.cache.value,
        "host" if path.on_host else path.attachment.bus.value,
    ]


def _core(report: ReportAnswer) -> dict[str, Any]:
    """The data of the table at first sight: cells, ranks, and the ranked values."""
    measured, places = report.measured, _places(report)
    texts: dict[str, int] = {}
    return {
        "measures": [_measure(key) for key in report.summaries],
        "ranked": str(report.measure),
        "baseline": as_typed(report.baseline.label),
        "answer": None if report.answer is None else as_typed(report.answer.label),
        "cells": [
            {
                "p": as_typed(row.cell.name),
                "s": row.cell.known_page_cache or numbers.MISSING,
                "g": [texts.setdefault(segment, len(texts)) for segment in _segments(row.cell)],
                "r": [row.place.best, row.place.worst] if isinstance(row.place, Ranked) else None,
                "n": row.place.rounds if isinstance(row.place, Ranked) else measured[row.cell],
                "x": None if row.ratio.ratio is None else float(f"{row.ratio.ratio:.5g}"),
                "m": list(report.cached.get(row.cell, ())),
                "b": list(report.bursts.get(row.cell, ())),
                "k": texts.setdefault(power_cut_text(row.cell, row.power_cut), len(texts)),
            }
            for row in report.ranked.cells
        ],
        "words": list(texts),
        "values": [_shortened(column[places]) for column in _columns(report.levels)],
    }


def _columns(summaries: Summaries) -> tuple[Floats, Floats, Floats]:
    """Median, low and high of each cell; NaN where there is none."""
    return summaries.median, summaries.low, summaries.high


def _places(report: ReportAnswer) -> list[int]:
    """Each table cell's index in the summaries' arrays, which all have the same order."""
    place = report.summaries[report.measure].place
    return [place[row.cell] for row in report.ranked.cells]


def _shortened(values: Floats) -> list[float | None]:
    """Values rounded to five digits, more than are shown; null for a missing value."""
    text = ("%.5g," * len(values)) % tuple(values.tolist())
    shortened: list[float | None] = json.loads(f"[{text.rstrip(',').replace('nan', 'null')}]")
    return shortened


def _more(report: ReportAnswer) -> bytes:
    """The columns of the measures that the table does not show at first, as 32-bit floats.

    Only 17 of the 24 significant bits are kept, about five digits: zeros compress well.
    """
    places = _places(report)
    columns = [
        column[places]
        for key, summaries in report.summaries.items()
        if key != report.measure
        for column in _columns(summaries)
    ]
    bits = np.concatenate(columns or [np.empty(0)]).astype("<f4").view("<u4")
    return ((bits + 0x40) & 0xFFFF_FF80).astype("<u4").tobytes()


def _details(report: ReportAnswer) -> dict[str, Any]:
    """One run of each cell: facts, checks, commands and diagnostics."""
    diagnostics = diagnostics_by_cell(report)
    return {
        as_typed(cell.label): {
            "diagnostics": list(map(_shown, diagnostics.get(cell.label, ()))),
            "facts": _facts(report.examples.get(cell), report.relative_sums.get(cell)),
            "checks": [list(check) for check in example.checks] if example else [],
            "commands": [sanitise(command) for command in example.commands] if example else [],
            "measured": [
                [name, sanitise(command)]
                for name, command in example.measurements
                if command not in example.commands
            ]
            if example
            else [],
        }
        for cell in (row.cell for row in report.ranked.cells)
        for example in [report.examples.get(cell)]
    }


def _over_time(report: ReportAnswer) -> dict[str, list[list[Any]]]:
    """By cell: each long measurement of its last runs with the seconds of one value, the bytes per
    second, and the spans in which no byte moved."""
    found: dict[str, list[list[Any]]] = {}
    for series in newest_series(report):
        values, width = coarser(series.values, MOST_MOMENTS)
        still = groupby(enumerate(series.values), lambda moment: moment[1] == 0)
        spans = [
            [moments[0][0], moments[-1][0] + 1]
            for zero, group in still
            if zero
            for moments in [list(group)]
        ]
        found.setdefault(as_typed(series.cell.label), []).append(
            [
                f"{series_name(series)}, {series.run.partition('/')[2].lstrip('0')}",
                series.interval * width,
                [float(f"{value:.4g}") for value in values],
                [[end * series.interval for end in span] for span in spans]
                if series.knows_stalls
                else [],
            ]
        )
    return found


def _facts(example: Example | None, relative_sums: RelativeSums | None) -> list[list[str]]:
    facts: list[list[str]] = []
    if example is not None:
        facts += [
            ["run", example.run],
            ["round", str(example.round)],
            ["started", f"{example.started:%Y-%m-%d %H:%M:%S} UTC"],
            ["accelerator", str(example.ran_under or "none: on the host itself")],
            ["medium", example.medium or "not known"],
        ]
    if relative_sums is not None:
        named = (
            ("host CPU per operation", relative_sums.cpu_per_operation, "s"),
            ("flushes at QEMU per 1000 operations", relative_sums.flushes_per_1000, "1"),
            (
                "flushes at the device per 1000 operations",
                relative_sums.device_flushes_per_1000,
                "1",
            ),
            ("bytes at the device per requested byte", relative_sums.device_share, "1"),
        )
        facts += [[name, numbers.value(value, unit)] for name, value, unit in named if value
                  is not None]  # fmt: skip
    return facts


def _first_rows(report: ReportAnswer) -> list[dict[str, str]]:
    levels, unit = report.levels, report.measure.quantity.shown_unit
    rows = []
    for row in report.ranked.cells[:FIRST_PAGE]:
        summary = levels.get(row.cell)
        scale = numbers.scale(summary.median if summary else None, unit)
        rows.append(
            {
                "rank": rank_text(row),
                "path": as_typed(row.cell.name),
                "answer": "answer" if row.cell == report.answer else "",
                "state": row.cell.known_page_cache or numbers.MISSING,
                "value": scale.with_unit(summary.median if summary else None),
                "interval": numbers.interval(scale, summary.low, summary.high)
                if summary
                else numbers.MISSING,
                "ratio": numbers.ratio(row.ratio.ratio),
                "ram": "RAM" if row.from_page_cache else "",
                "power_cut": power_cut_text(row.cell, row.power_cut),
                "rounds": str(report.measured[row.cell]),
            }
        )
    return rows


def _campaign(campaign: Any) -> dict[str, Any]:  # noqa: ANN401
    facts = asdict(campaign.host)
    more = facts.pop("more")
    return {
        "id": campaign.id,
        "label": campaign.label,
        "started": f"{campaign.started:%Y-%m-%d %H:%M} UTC",
        "facts": [(key.replace("_", " "), value) for key, value in {**facts, **more}.items()],
        "plan": json.dumps(campaign.plan, indent=1, default=str),
    }
