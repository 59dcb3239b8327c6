"""`vdisklab compare`: two paths, measure by measure."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from vdisklab.analysis.compare import compare_cells
from vdisklab.analysis.diagnostics.circumstances import host_findings
from vdisklab.analysis.diagnostics.findings import caveats_of
from vdisklab.analysis.observations import Observations, split_label
from vdisklab.analysis.published import builtin_publications, find_series
from vdisklab.cli.held import held_series
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
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.plan.qemu import without_qemu
from vdisklab.render.tables.comparison import (
    ComparisonAnswer,
    PublishedAnswer,
    comparison_document,
    comparison_table,
    published_document,
    published_table,
)

_QEMU = "qemu="


def compare(
    a: Annotated[
        str | None,
        typer.Argument(metavar="A", help="A disk path, a cell such as PATH (warm), or qemu=NAME."),
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
    qemu=NAME stands for all cells measured with that QEMU.

    Examples:

      vdisklab compare ext4/raw/none ext4/qcow2/none

      vdisklab compare "ext4/raw/writeback (warm)" "ext4/raw/writeback (cold)" --format json

      vdisklab compare qemu=7.2.22 qemu=10.0.2

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
            caveats=caveats_of(loaded.outlines),
            a=first,
            b=second,
            comparisons=compare_cells(loaded.observations, first, second),
            findings=(
                *(each for each in cached if each.cell in (first, second)),
                *host_findings(loaded.campaigns, (first, second)),
            ),
        )
        for first, second in pairs
    )


def answer_published(results: Results, name: str, names: list[str] | None) -> PublishedAnswer:
    """An article's series beside what was measured here. Raises PlanError for an unknown name."""
    publications = builtin_publications()
    find_series(name, publications)  # before anything is loaded
    ids, _ = joinable_campaigns(results, names)
    return held_series(load(results, ids), name, publications)


def match_cells(observations: Observations, a: str, b: str) -> tuple[tuple[str, str], ...]:
    """The cells to compare: of equal page-cache state where there are any, else all with all."""
    if a.startswith(_QEMU) and b.startswith(_QEMU):
        return _of_two_qemus(observations, a.removeprefix(_QEMU), b.removeprefix(_QEMU))
    of_a, of_b = find_cells(observations, a), find_cells(observations, b)
    alike = [(x, y) for x in of_a for y in of_b if split_label(x)[1] == split_label(y)[1]]
    pairs = [(x, y) for x, y in alike or [(x, y) for x in of_a for y in of_b] if x != y]
    if not pairs:
        raise PlanError(f"{a} and {b} are the same cell", hint="name two different paths")
    return tuple(pairs)


def _of_two_qemus(observations: Observations, a: str, b: str) -> tuple[tuple[str, str], ...]:
    """The cells that differ in nothing but the name of their QEMU."""
    of_a, of_b = (_by_path(observations, name) for name in (a, b))
    pairs = [(of_a[place], of_b[place]) for place in of_a if place in of_b]
    if a == b or not pairs:
        raise PlanError(
            f"no path was measured with both QEMU {a} and QEMU {b}",
            hint="measure both: vdisklab run PATHS --qemu BIN --qemu BIN",
        )
    return tuple(pairs)


def _by_path(observations: Observations, qemu: str) -> dict[tuple[DiskPath, str], str]:
    """The cells of one QEMU by what is left of their path, and their page-cache state."""
    found = {}
    for cell in observations.cells:
        spelled, state = split_label(cell)
        if f"qemu={qemu}" in re.split("[:/]", spelled):
            found[without_qemu(parse_path(spelled)), state] = cell
    return found
