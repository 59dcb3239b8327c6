"""The articles' figures from the user's own numbers: each is one function and one registry line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vdisklab.analysis.observations import split_label
from vdisklab.analysis.recommend import candidates, parsed_once
from vdisklab.analysis.score import Score
from vdisklab.analysis.summary import Summary
from vdisklab.path.disk_path import Attachment, DiskPath
from vdisklab.path.durability import Keeping, PathVerdict, durability
from vdisklab.path.segments import Bus
from vdisklab.render import numbers
from vdisklab.render.charts.figure import Figure
from vdisklab.render.charts.lines import course_figure, latency_figure
from vdisklab.render.charts.published_bars import published_figure
from vdisklab.render.charts.vega import Bar, Palette, Point, bars, plane
from vdisklab.render.page.contents import Contents
from vdisklab.results.model import Better

MOST_BARS = 14
"""A figure shows the best so many; the table has them all."""

MOST_POINTS = 300
"""More points cover one another; those of the front always stay."""

MOST_GROUPS = 4
"""So many groups of bars stand below one another."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    key: str
    title: str
    rows: Callable[[Contents], tuple[Sequence[Bar], str]]
    missing: str
    shared: bool = True  # else each group has an axis of its own
    of_cells: bool = True  # else the bars are measurements of the baseline

    def cells(self, rows: Sequence[Bar], contents: Contents) -> tuple[str, ...]:
        """The cells that the bars are of."""
        drawn = [row.label for row in rows] if self.of_cells else [contents.baseline]
        return tuple(dict.fromkeys(drawn))


def figures(contents: Contents, palette: Palette) -> tuple[Figure, ...]:
    """All figures in the order of the articles; what was not measured says so."""
    found = [_bar_figure(recipe, contents, palette) for recipe in _BARS]
    return (
        *found,
        _safety(contents, palette),
        course_figure(contents, palette),
        latency_figure(contents, palette),
        published_figure(contents, palette),
    )


def _bar_figure(recipe: _Recipe, contents: Contents, palette: Palette) -> Figure:
    rows, unit = recipe.rows(contents)
    if not rows:
        return Figure(recipe.key, recipe.title, "", missing=recipe.missing)
    spec = bars(rows, unit, palette, caution=contents.caution, shared=recipe.shared)
    return Figure(
        recipe.key, recipe.title, _told(recipe.title, rows, unit, contents), spec,
        cells=recipe.cells(rows, contents),
    )  # fmt: skip


def _told(title: str, rows: Sequence[Bar], unit: str, contents: Contents) -> str:
    shown = "; ".join(
        f"{f'{row.group}, ' if row.group else ''}{row.label}: {numbers.digits(row.value)}"
        + (f" ({numbers.digits(row.low)} to {numbers.digits(row.high)})"
           if row.low is not None and row.high is not None else "")
        for row in rows
    )  # fmt: skip
    caution = f" {contents.caution}." if contents.caution else ""
    return f"Bar chart, {title}, in {unit}: {shown}.{caution}"


def _path(cell: str) -> DiskPath:
    return parsed_once(split_label(cell)[0])


def _rows(
    found: Mapping[str, Summary], cells: Iterable[str], unit: str, *,
    answer: str | None = None, most: int = MOST_BARS,
) -> tuple[list[Bar], str]:  # fmt: skip
    """Bars of some cells, best first, and the axis' unit; cells without the measure have none."""
    there = [found[cell] for cell in cells if cell in found]
    if not there:
        return [], unit
    lower = there[0].measure.quantity.better is Better.LOWER
    there.sort(key=lambda summary: summary.median, reverse=not lower)
    scale = numbers.scale(max(summary.median for summary in there), unit)
    return [_bar(each, scale, answer) for each in there[:most]], scale.suffix.strip()


def _bar(summary: Summary, scale: numbers.Scale, answer: str | None, group: str = "") -> Bar:
    return Bar(
        summary.cell,
        summary.median / scale.factor,
        None if summary.low is None else summary.low / scale.factor,
        None if summary.high is None else summary.high / scale.factor,
        group,
        summary.cell == answer,
    )


def _answer(contents: Contents) -> str | None:
    found = contents.recommendation
    return None if found is None else found.recommendation.cell


def _overall(contents: Contents) -> Mapping[str, Summary]:
    return contents.of(contents.measure)


def _unit(contents: Contents) -> str:
    return contents.measure.quantity.unit


def _baseline(contents: Contents) -> tuple[Sequence[Bar], str]:
    """What the host itself does: each measurement's bandwidth."""
    keys = [key for key in contents.summaries if key.metric == "bandwidth"]
    found = [
        replace(contents.summaries[key][contents.baseline], cell=key.name)
        for key in keys
        if contents.baseline in contents.summaries[key]
    ]
    return _rows({each.cell: each for each in found}, [each.cell for each in found], "B/s")


def _alike(contents: Contents, key: Callable[[DiskPath], object]) -> list[str]:
    """The largest group of usable cells that differ in nothing but what `key` leaves out."""
    groups: dict[object, list[str]] = {}
    for cell, path in candidates(_overall(contents)).items():
        groups.setdefault(key(path), []).append(cell)
    best = max(groups.values(), key=len, default=[])
    return best if len(best) > 1 else []


def _cache_methods(contents: Contents) -> tuple[Sequence[Bar], str]:
    cells = _alike(contents, lambda path: (path.layers, path.image, path.attachment))
    return _rows(_overall(contents), cells, _unit(contents), answer=_answer(contents))


def _storage_methods(contents: Contents) -> tuple[Sequence[Bar], str]:
    cells = _alike(contents, lambda path: (path.cache, path.attachment))
    return _rows(_overall(contents), cells, _unit(contents), answer=_answer(contents))


def _buses(contents: Contents) -> tuple[Sequence[Bar], str]:
    """IDE beside the other buses, with all else equal: the fastest stores on IDE."""
    overall = _overall(contents)
    groups: dict[tuple[object, ...], list[str]] = {}
    ide: dict[tuple[object, ...], float] = {}
    for cell, path in candidates(overall).items():
        key = (path.layers, path.image, path.cache)
        groups.setdefault(key, []).append(cell)
        if path.attachment.bus is Bus.IDE:
            ide[key] = max(ide.get(key, 0.0), overall[cell].median)
    chosen = sorted(ide, key=lambda key: -ide[key])[:MOST_GROUPS]
    top = max((overall[cell].median for key in chosen for cell in groups[key]), default=None)
    scale = numbers.scale(top, _unit(contents))
    shown = [
        _bar(overall[cell], scale, _answer(contents), str(replace(_path(cell),
             attachment=Attachment())))
        for key in chosen
        for cell in sorted(groups[key], key=lambda cell: -overall[cell].median)
    ]  # fmt: skip
    return shown, scale.suffix.strip()


def _top(score: Score) -> Callable[[Contents], tuple[Sequence[Bar], str]]:
    def rows(contents: Contents) -> tuple[Sequence[Bar], str]:
        found = contents.of(score.key)
        return _rows(found, candidates(found), "B/s", answer=_answer(contents), most=8)

    return rows


def _guest_and_host(contents: Contents) -> tuple[Sequence[Bar], str]:
    """The answer beside the host, measurement by measurement."""
    answer = _answer(contents)
    if answer is None:
        return [], "B/s"
    pairs = [
        (key, found[answer], found[contents.baseline])
        for key, found in contents.summaries.items()
        if key.metric == "bandwidth" and answer in found and contents.baseline in found
    ]
    top = min((max(a.median, b.median) for _, a, b in pairs), default=None)
    scale = numbers.scale(top, "B/s")
    shown = [
        _bar(summary, scale, answer, key.name) for key, guest, host in pairs for summary in
        (guest, host)
    ]  # fmt: skip
    return shown, scale.suffix.strip()


def _thin(contents: Contents) -> tuple[Sequence[Bar], str]:
    """Images that differ in their allocation alone."""
    groups: dict[object, list[str]] = {}
    for cell, path in candidates(_overall(contents)).items():
        if path.image is not None:
            options = tuple(o for o in path.image.options if o[0] != "preallocation")
            key = (path.layers, path.image.format, options, path.cache, path.attachment)
            groups.setdefault(key, []).append(cell)
    cells = [cell for group in groups.values() if len(group) > 1 for cell in group]
    return _rows(_overall(contents), cells, _unit(contents), answer=_answer(contents))


_BARS = (
    _Recipe("baseline", "Baseline performance: the host itself", _baseline,
            "vdisklab run host PATHS…", of_cells=False),
    _Recipe("cache-methods", "Cache methods", _cache_methods,
            "vdisklab run raw/{none,writeback,writethrough,directsync,unsafe,default} host"),
    _Recipe("storage-methods", "Storage methods", _storage_methods,
            "vdisklab run {ext4,xfs,btrfs}/{raw,qcow2}/none host"),
    _Recipe("ide", "IDE performance", _buses, "vdisklab run raw/none/{ide,virtio} host"),
    _Recipe("top-read", "Top performers, weighted read", _top(Score.READ),
            "vdisklab run PATHS… host"),
    _Recipe("top-write", "Top performers, weighted write", _top(Score.WRITE),
            "vdisklab run PATHS… host"),
    _Recipe("top-overall", "Top performers, weighted overall", _top(Score.OVERALL),
            "vdisklab run PATHS… host"),
    _Recipe("guest-host", "Guest against host", _guest_and_host,
            "vdisklab run host PATHS…", shared=False),
    _Recipe("thin", "Thin against allocated", _thin,
            "vdisklab run qcow2:preallocation={off,metadata,full}/none host"),
)  # fmt: skip

_KEPT_ALL, _KEPT_FLUSHED = "kept all without a flush, tested", "kept all that was flushed, tested"
_SAFE_ALL, _SAFE_FLUSHED = "safe without a flush, not tested", "safe once flushed, not tested"
_LOST, _LOSES = "lost flushed data, tested", "loses flushed data, not tested"
_SAFETIES = (_KEPT_ALL, _KEPT_FLUSHED, _SAFE_ALL, _SAFE_FLUSHED, _LOSES, _LOST)


def _safety_of(cell: str, contents: Contents) -> str:
    """By the verdict of power cuts where there is one, else by rule: which of both is said."""
    found = durability(_path(cell), contents.verdicts)
    tested = found.tested or PathVerdict("")
    flushed, unflushed = tested.flushed.kept, tested.unflushed.kept
    if flushed is False or found.keeping is Keeping.LOST_IN_TEST:
        return _LOST
    if not found.keeping.acceptable:
        return _LOSES
    if flushed and unflushed:
        return _KEPT_ALL
    if flushed:
        return _KEPT_FLUSHED
    return _SAFE_ALL if found.flush_free else _SAFE_FLUSHED


def _safety(contents: Contents, palette: Palette) -> Figure:
    """A path is on the front when none is at least as safe and faster by the medians.

    The answer stands with them: it goes by differences within blocks, and may tie with one of them.
    """
    title = "Speed against safety"
    overall = _overall(contents)
    cells = [cell for cell in candidates(overall) if cell in overall]
    if not cells or contents.measure.quantity.better is Better.LOWER:
        return Figure("safety", title, "", missing="vdisklab run PATHS… host")
    scale = numbers.scale(max(overall[cell].median for cell in cells), _unit(contents))
    placed = [(cell, _safety_of(cell, contents), overall[cell].median) for cell in cells]
    best_so_far = 0.0
    front = set()
    for cell, _, value in sorted(placed, key=lambda each: (_SAFETIES.index(each[1]), -each[2])):
        if value > best_so_far:
            front.add(cell)
            best_so_far = value
    if contents.recommendation is not None:
        front.add(contents.recommendation.recommendation.cell)
    placed.sort(key=lambda each: (each[0] not in front, -each[2]))
    points = [
        Point(cell, safety, value / scale.factor, cell in front)
        for cell, safety, value in placed[:MOST_POINTS]
    ]
    order = [each for each in _SAFETIES if any(point.safety == each for point in points)]
    told = "; ".join(f"{p.label}: {numbers.digits(p.value)}, {p.safety}" for p in points if p.front)
    unit = scale.suffix.strip()
    spec = plane(points, order, unit, palette, caution=contents.caution)
    what = "The answer, and what nothing beats in both"
    alt = f"Chart of speed in {unit} against safety. {what}: {told}."
    note = "Orange and named: the answer, and what no other path beats in both (by medians)."
    return Figure("safety", title, alt, spec, note=note, cells=tuple(sorted(front)))
