"""`vdisklab recommend`: the path to use, why, and what each need costs."""

from __future__ import annotations

from typing import Annotated

import typer

from vdisklab.cli.options import CampaignOption, DbOption, Format, FormatOption
from vdisklab.cli.output import emit
from vdisklab.path.needs import needs_help, parse_needs
from vdisklab.render.tables.recommendation import recommendation_document, recommendation_table
from vdisklab.services.advice import answer_recommendation
from vdisklab.services.answers import open_results

NeedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--need",
        metavar="NEED",
        help=needs_help("A need that the path must meet"),
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="MEASURE=W,…",
        help=(
            "The weights of the decision: of read and write (the scores), or of measures such "
            "as randread-4k-q1/read/iops."
        ),
        show_default="the overall score",
    ),
]


def recommend(
    need: NeedOption = None,
    weights: WeightsOption = None,
    campaign: CampaignOption = None,
    db: DbOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Recommend a disk path from the measurements on this host, and say why.

    Examples:

      vdisklab recommend --need durable --need format=qcow2

      vdisklab recommend --weights read=3,write=1 --format json
    """
    needs = parse_needs(need)
    with open_results(db) as results:
        answer = answer_recommendation(results, needs, weights, campaign)
    emit(form, [recommendation_table(answer)], lambda: recommendation_document(answer))
