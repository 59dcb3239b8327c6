"""The report as one HTML file that needs nothing else: no network, no other file.

All text of others (paths, host names, messages of programs, labels) is escaped by Jinja2 or is in
JSON whose `<`, `>` and `&` are escaped; the content security policy allows this page's own script
and style by their hashes and nothing else, not even images.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vdisklab import __version__
from vdisklab.analysis.evidence import Workings
from vdisklab.analysis.observations import MeasureKey, split_label
from vdisklab.analysis.summary import Summary
from vdisklab.plan.path import parse_path
from vdisklab.report import numbers
from vdisklab.report.charts import CSS, to_inline_svg
from vdisklab.report.contents import (
    Contents,
    answer_sentences,
    doubt_sentences,
    headline,
    score_keys,
)
from vdisklab.report.figures import figures
from vdisklab.report.tables import sanitise
from vdisklab.result.observations import Example

FIRST_PAGE = 50
"""Rows that stand in the HTML itself, so that a table is there before any script has run."""

_UNIT_NAMES = {"1/s": "IOPS", "1": "times the baseline"}


def render_page(contents: Contents) -> str:
    """The whole file."""
    style, script = _file("page.css"), _file("page.js")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["harmless"] = lambda text: sanitise(str(text))
    template = environment.from_string(_file("page.html"))
    return template.render(
        version=__version__,
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        headline=headline(contents),
        caution=contents.caution,
        answer=answer_sentences(contents),
        doubts=doubt_sentences(contents),
        figures=_figures(contents),
        rows=_first_rows(contents),
        measures=[_measure(key) for key in contents.summaries],
        cells=len(contents.order),
        blocks=contents.blocks,
        chosen=str(contents.measure),
        data=_json(_core(contents)),
        more=_packed(_more(contents)),
        details=_packed(_details(contents)),
        campaigns=[_campaign(each) for each in contents.campaigns],
        alpha=contents.ranking.alpha,
        separated=contents.ranking.separated,
        comparisons=contents.ranking.comparisons,
        baseline=contents.baseline,
        roles=contents.roles.title if contents.roles else None,
    )


@cache
def _file(name: str) -> str:
    return resources.files("vdisklab.report").joinpath("templates", name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    def source(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    return (
        f"default-src 'none'; script-src {source(script)}; style-src {source(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: object) -> Markup:
    """JSON that cannot end the script element which holds it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - escaped just above


def _packed(value: object) -> str:
    """JSON, compressed: commands of ten thousand cells are much alike."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=4, mtime=0)).decode()


def _figures(contents: Contents) -> list[dict[str, Any]]:
    return [
        {
            "key": figure.key,
            "title": figure.title,
            "missing": figure.missing,
            "svg": None
            if figure.spec is None
            else Markup(to_inline_svg(figure.spec, figure.key, figure.alt)),  # noqa: S704 - drawing elements only
        }
        for figure in figures(contents, CSS)
    ]


def _measure(key: MeasureKey) -> dict[str, str]:
    unit = key.quantity.unit
    name = key.metric.replace("_", " ") if key.name == "score" else str(key)
    return {
        "key": str(key),
        "name": name,
        "unit": _UNIT_NAMES.get(unit, unit),
        "better": key.quantity.better.value,
    }


def _segments(cell: str) -> list[str]:
    """Layers, format, cache mode and bus, for the filters; without options."""
    path = parse_path(split_label(cell)[0])
    return [
        "+".join(layer.kind.value for layer in path.layers) or "–",
        path.image.format.value if path.image else "–",
        "–" if path.on_host else path.cache.value,
        "host" if path.on_host else path.attachment.bus.value,
    ]


def _core(contents: Contents) -> dict[str, Any]:
    """What the table needs at once: cells, ranks and the scores."""
    ranked = {row.cell: row for row in contents.ranking.rows}
    shown = [*score_keys(contents)] or [contents.measure]
    if contents.measure not in shown:
        shown.append(contents.measure)
    order = contents.order
    return {
        "measures": [_measure(key) for key in contents.summaries],
        "ranked": str(contents.measure),
        "baseline": contents.baseline,
        "cells": [
            {
                "c": cell,
                "p": split_label(cell)[0],
                "s": split_label(cell)[1],
                "g": _segments(cell),
                "r": [ranked[cell].best, ranked[cell].worst] if cell in ranked else None,
                "n": ranked[cell].blocks if cell in ranked else _blocks(contents, cell),
                "x": _ratio(contents, cell),
                "m": list(contents.cached.get(cell, ())),
            }
            for cell in order
        ],
        "values": {str(key): _columns(contents.summaries[key], order) for key in shown},
    }


def _blocks(contents: Contents, cell: str) -> int:
    found = [each[cell].blocks for each in contents.summaries.values() if cell in each]
    return max(found, default=0)


def _ratio(contents: Contents, cell: str) -> float | None:
    if cell == contents.baseline:
        return 1.0
    found = contents.ratios.get(cell)
    return None if found is None else _short(found.ratio)


def _columns(
    found: Mapping[str, Summary], order: tuple[str, ...]
) -> tuple[list[float | None], ...]:
    """Median, low and high of each cell, in the order of the cells."""
    summaries = [found.get(cell) for cell in order]
    return (
        [None if each is None else _short(each.median) for each in summaries],
        [None if each is None else _short(each.low) for each in summaries],
        [None if each is None else _short(each.high) for each in summaries],
    )


def _short(value: float | None) -> float | None:
    """Five digits: more than is ever shown."""
    return None if value is None else float(f"{value:.5g}")


def _more(contents: Contents) -> dict[str, Any]:
    """The measures that are not shown at first."""
    core = {str(key) for key in (*score_keys(contents), contents.measure)}
    order = contents.order
    return {
        str(key): _columns(found, order)
        for key, found in contents.summaries.items()
        if str(key) not in core
    }


def _details(contents: Contents) -> dict[str, Any]:
    """One run of each cell, with its counters in words."""
    return {
        cell: {
            "facts": _facts(contents.examples.get(cell), contents.workings.get(cell)),
            "checks": [list(check) for check in example.checks] if example else [],
            "commands": [sanitise(command) for command in example.commands] if example else [],
            "measured": [[name, sanitise(command)] for name, command in example.measurements]
            if example
            else [],
        }
        for cell in contents.order
        for example in [contents.examples.get(cell)]
    }


def _facts(example: Example | None, found: Workings | None) -> list[list[str]]:
    facts: list[list[str]] = []
    if example is not None:
        facts += [
            ["run", example.run],
            ["block", str(example.block)],
            ["started", f"{example.started:%Y-%m-%d %H:%M:%S} UTC"],
            ["accelerator", example.accelerator or "none: on the host itself"],
            ["medium", example.medium or "not known"],
        ]
    if found is not None:
        named = (
            ("host CPU per operation", found.cpu_per_operation, "s"),
            ("flushes at QEMU per 1000 operations", found.flushes_per_1000, "1"),
            ("flushes at the device per 1000 operations", found.device_flushes_per_1000, "1"),
            ("bytes at the device for each asked", found.device_share, "1"),
        )
        facts += [[name, numbers.value(value, unit)] for name, value, unit in named if value
                  is not None]  # fmt: skip
    return facts


def _first_rows(contents: Contents) -> list[dict[str, str]]:
    ranked = {row.cell: row for row in contents.ranking.rows}
    found = contents.summaries.get(contents.measure, {})
    unit = contents.measure.quantity.unit
    rows = []
    for cell in contents.order[:FIRST_PAGE]:
        row, summary = ranked.get(cell), found.get(cell)
        scale = numbers.scale(summary.median if summary else None, unit)
        rows.append(
            {
                "rank": numbers.place(row.best, row.worst) if row else numbers.MISSING,
                "path": split_label(cell)[0],
                "state": split_label(cell)[1],
                "value": scale.with_unit(summary.median if summary else None),
                "interval": numbers.interval(summary.low, summary.high, scale)
                if summary
                else numbers.MISSING,
                "ratio": numbers.ratio(_ratio(contents, cell)),
                "ram": "RAM" if contents.cached.get(cell) else "",
                "blocks": str(_blocks(contents, cell)),
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
