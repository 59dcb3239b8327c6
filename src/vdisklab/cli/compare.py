"""`vdisklab compare`: two paths, measure by measure."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.analysis.compare import compare_cells
from vdisklab.analysis.findings import emulated
from vdisklab.analysis.observations import Observations, split_label
from vdisklab.analysis.published import builtin_publications, compare_shape, find_series
from vdisklab.cli.asking import DEFAULT_PROFILE
from vdisklab.cli.missing import Group, request_for, spell
from vdisklab.cli.tables import (
    CampaignOption,
    DbOption,
    Format,
    FormatOption,
    Results,
    cache_findings,
    emit,
    find_cells,
    joinable_campaigns,
    load,
    open_results,
)
from vdisklab.errors import PlanError
from vdisklab.plan.request import Request
from vdisklab.report.comparison import ComparisonAnswer, comparison_document, comparison_table
from vdisklab.report.published import PublishedAnswer, published_document, published_table


def compare(
    a: Annotated[
        str | None,
        typer.Argument(metavar="A", help="A disk path, or a cell such as PATH (warm)."),
    ] = None,
    b: Annotated[str | None, typer.Argument(metavar="B", help="What to compare it with.")] = None,
    published: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Instead of A and B: an article's numbers, such as debatty-2024, by their shape.",
        ),
    ] = None,
    campaign: CampaignOption = None,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare two paths block by block: how many times better, and whether that is shown.

    A path stands for all its page-cache states; the same states are compared with each other.

    Examples:

      vdisklab compare ext4/raw/none ext4/qcow2/none

      vdisklab compare "ext4/raw/writeback (warm)" "ext4/raw/writeback (cold)" --format json

      vdisklab compare --published debatty-2024
    """
    if published is not None:
        if a is not None:
            raise PlanError("--published stands instead of A and B", hint="leave the paths out")
        with open_results(db) as results:
            answer = answer_published(results, published, campaign)
        emit(form, [published_table(answer)], lambda: published_document(answer))
        return
    if a is None or b is None:
        raise PlanError("two paths are compared", hint="vdisklab compare ext4/raw/none ext4/qcow2")
    with open_results(db) as results:
        answers = answer_comparisons(results, a, b, campaign)
    tables = [comparison_table(answer) for answer in answers]
    emit(form, tables, lambda: comparison_document(answers))


def answer_comparisons(
    results: Results, a: str, b: str, names: list[str] | None
) -> tuple[ComparisonAnswer, ...]:
    """One answer for each two cells. Raises PlanError for a path that was not measured."""
    loaded = load(results, names)
    pairs = match_cells(loaded.observations, a, b)
    wanted = {cell for pair in pairs for cell in pair}
    cached = tuple(each for each in cache_findings(results, loaded) if each.cell in wanted)
    return tuple(
        ComparisonAnswer(
            campaigns=loaded.campaigns,
            emulated=emulated(loaded.outlines),
            a=first,
            b=second,
            comparisons=compare_cells(loaded.observations, first, second),
            findings=tuple(each for each in cached if each.cell in (first, second)),
        )
        for first, second in pairs
    )


def answer_published(results: Results, name: str, names: list[str] | None) -> PublishedAnswer:
    """An article's series beside what was measured here. Raises PlanError for an unknown name."""
    publications = builtin_publications()
    tables = find_series(name, publications)
    (article,) = [each for each in publications if each.article == tables[0].article]
    ids, _ = joinable_campaigns(results, names)
    loaded = load(results, ids)
    comparison = compare_shape(tables, loaded.observations)
    command = None
    if comparison.missing:
        paths = tuple(dict.fromkeys(cell.path.canonical for cell in comparison.missing))
        group = Group(DEFAULT_PROFILE, tables[0].page_cache, paths)
        command = spell(request_for(group, Request(), loaded.campaigns[0]))
    return PublishedAnswer(
        campaigns=loaded.campaigns,
        emulated=emulated(loaded.outlines),
        comparison=comparison,
        title=article.title,
        command=command,
    )


def match_cells(observations: Observations, a: str, b: str) -> tuple[tuple[str, str], ...]:
    """The cells to compare: of equal page-cache state where there are any, else all with all."""
    of_a, of_b = find_cells(observations, a), find_cells(observations, b)
    alike = [(x, y) for x in of_a for y in of_b if split_label(x)[1] == split_label(y)[1]]
    pairs = [(x, y) for x, y in alike or [(x, y) for x in of_a for y in of_b] if x != y]
    if not pairs:
        raise PlanError(f"{a} and {b} are the same cell", hint="name two different paths")
    return tuple(pairs)
