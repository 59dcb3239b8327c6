"""The routes for programs: `/metrics`, and `/api` with the documents of `--format json`."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from vdisklab import __version__
from vdisklab.answers.analysis import DEFAULT_METRIC, Analysis
from vdisklab.answers.compare import CompareAnswer, compare_pairs
from vdisklab.answers.loading import open_results
from vdisklab.answers.rank import RankAnswer, rank_cells
from vdisklab.answers.recommend import RecommendAnswer, recommend
from vdisklab.answers.runs import CampaignsAnswer, RunsAnswer, answer_campaigns, answer_runs
from vdisklab.answers.show import ShowAnswer, answer_run
from vdisklab.answers.table import TableAnswer, answer_table
from vdisklab.answers.trend import TrendAnswer, answer_trend
from vdisklab.documents import Answer, document, schemas
from vdisklab.path.needs import DURABLE
from vdisklab.results.store import Store
from vdisklab.views import compare, rank, runs, show, table, trend
from vdisklab.views import recommend as recommendation
from vdisklab.views.layout import Table
from vdisklab.web.metrics import Metrics
from vdisklab.web.pages import Commands, Naming

SECONDS = 20.0
"""No request is answered later: a program that asks every few seconds would pile them up."""

_Given = Mapping[str, list[str]]
_Said = tuple[Answer, Iterable[Table[Any]]]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of a query, in the words of OpenAPI."""

    name: str
    said: str
    required: bool = False
    many: bool = False


_CAMPAIGN = _Parameter("campaign", "the campaign's id or its first letters; the newest without it")


@dataclass(frozen=True, slots=True)
class _Document:
    """An answer under `/api`, and how it is made of the parameters."""

    answer: type[Answer]
    said: str
    make: Callable[[Store, _Given], _Said]
    parameters: tuple[_Parameter, ...] = ()


def _one(given: _Given, name: str) -> str | None:
    return given[name][0] if name in given else None


def _analysis(results: Store, given: _Given, baseline: str | None = None) -> Analysis:
    return Analysis.of(results, given.get("campaign"), baseline=baseline)


def _campaigns(results: Store, _given: _Given) -> _Said:
    known = results.campaigns()
    answer = answer_campaigns(known, results.outlines([one.id for one in known]))
    return answer, runs.campaign_tables(answer)


def _runs(results: Store, given: _Given) -> _Said:
    chosen = results.campaign(given["campaign"][0])
    answer = answer_runs(chosen, results.outlines([chosen.id]))
    return answer, runs.tables(answer)


def _show(results: Store, given: _Given) -> _Said:
    answer = answer_run(results.run(given["run"][0]), raw=False)
    return answer, show.tables(answer)


def _rank(results: Store, given: _Given) -> _Said:
    analysis = _analysis(results, given, _one(given, "baseline"))
    answer = rank_cells(analysis, _one(given, "metric") or DEFAULT_METRIC)
    return answer, rank.tables(answer)


def _table(results: Store, given: _Given) -> _Said:
    answer = answer_table(results, given.get("campaign"))
    return answer, table.tables(answer)


def _recommend(results: Store, given: _Given) -> _Said:
    answer = recommend(_analysis(results, given), (DURABLE,))
    return answer, recommendation.tables(answer)


def _compare(results: Store, given: _Given) -> _Said:
    answer = compare_pairs(_analysis(results, given), given["a"][0], given["b"][0])
    return answer, compare.tables(answer, everything=True)


def _trend(results: Store, given: _Given) -> _Said:
    answer = answer_trend(
        results, given.get("path", ()),
        campaigns=given.get("campaign", ()), measure=_one(given, "metric"),
    )  # fmt: skip
    return answer, trend.tables(answer)


_METRIC = _Parameter("metric", "as --metric")
_DOCUMENTS: Mapping[str, _Document] = {
    "campaigns": _Document(CampaignsAnswer, "as `vdisklab runs`", _campaigns),
    "runs": _Document(
        RunsAnswer, "as `vdisklab runs CAMPAIGN`", _runs,
        (_Parameter("campaign", "the campaign's id or its first letters", required=True),),
    ),
    "show": _Document(
        ShowAnswer, "as `vdisklab show RUN`", _show,
        (_Parameter("run", "the run's id or its first letters", required=True),),
    ),
    "rank": _Document(
        RankAnswer, "as `vdisklab rank`", _rank,
        (_CAMPAIGN, _METRIC, _Parameter("baseline", "as --baseline")),
    ),
    "table": _Document(TableAnswer, "as `vdisklab table`", _table, (_CAMPAIGN,)),
    "recommend": _Document(RecommendAnswer, "as `vdisklab recommend`", _recommend, (_CAMPAIGN,)),
    "compare": _Document(
        CompareAnswer, "as `vdisklab compare A B`", _compare,
        (_Parameter("a", "a path", required=True), _Parameter("b", "another", required=True),
         _CAMPAIGN),
    ),
    "trend": _Document(
        TrendAnswer, "as `vdisklab trend`", _trend,
        (_Parameter("path", "only this path", many=True), _CAMPAIGN, _METRIC),
    ),
}  # fmt: skip


def routes(db: str | None, naming: Naming, seconds: float = SECONDS) -> list[BaseRoute]:
    """The routes about the results at `--db`. Two requests are worked on at a time."""
    places, numbers = threading.BoundedSemaphore(2), Metrics()

    async def timely(make: Callable[[Store], _T], finish: Callable[[_T], Response]) -> Response:
        """An answer within the budget; a thread that needs longer keeps its place until it ends."""

        def work() -> _T | None:
            if not places.acquire(blocking=False):
                return None
            try:
                with open_results(db, read_only=True) as results:
                    return make(results)
            finally:
                places.release()

        with anyio.move_on_after(seconds):
            made = await to_thread.run_sync(work, abandon_on_cancel=True)
            if made is None:
                return _refusal(429, "two requests are being answered; ask again in a moment")
            return finish(made)
        return _refusal(503, f"this took longer than {seconds:g} s; the command has no such limit")

    def endpoint(one: _Document) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            given, refusal = _parsed(request, one.parameters)
            names = given.get("campaign", ()) if _CAMPAIGN in one.parameters else ()

            def make(results: Store) -> str:
                said = one.make(results, given)
                return _json(said, naming(names, getattr(said[0], "campaigns", ())))

            return refusal or await timely(make, _sent)

        return answer

    async def metrics(request: Request) -> Response:
        given, refusal = _parsed(request, (_CAMPAIGN,))
        accept = request.headers.get("accept", "")
        return refusal or await timely(
            lambda results: numbers.exposition(results, _one(given, "campaign"), accept),
            lambda found: Response(found[0], media_type=found[1]),
        )

    async def described(_request: Request) -> Response:
        return _sent(await to_thread.run_sync(_openapi))

    return [
        Route("/metrics", metrics),
        Route("/api", described),
        *(Route(f"/api/{name}", endpoint(one)) for name, one in _DOCUMENTS.items()),
    ]


def _parsed(request: Request, parameters: tuple[_Parameter, ...]) -> tuple[_Given, Response | None]:
    """The parameters of a request, or why they cannot be taken."""
    known = {one.name: one for one in parameters}
    pairs = request.query_params.multi_items()
    for name, times in Counter(name for name, _ in pairs).items():
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            return {}, _refusal(400, f"unknown parameter {name!r}; {takes}")
        if times > 1 and not known[name].many:
            return {}, _refusal(400, f"{name} is given {times} times")
    for one in parameters:
        if one.required and not any(name == one.name and value for name, value in pairs):
            return {}, _refusal(400, f"{one.name} is missing: {one.said}")
    if any("\0" in value for _, value in pairs):
        return {}, _refusal(400, "a parameter holds a NUL")
    return {name: [value for key, value in pairs if key == name] for name, _ in pairs}, None


def _refusal(status: int, sentence: str) -> Response:
    headers = {"Retry-After": "5"} if status in {429, 503} else None
    return PlainTextResponse(f"{sentence}\n", status, headers)


def _json(said: _Said, commands: Commands) -> str:
    """The document as `--format json` prints it."""
    answer, tables = said
    sentences = tuple(sentence for table in tables for sentence in table.sentences)
    return json.dumps(commands.in_json(document(answer, sentences)), indent=2, allow_nan=False)


def _sent(text: str) -> Response:
    return Response(text + "\n", media_type="application/json")


@cache
def _openapi() -> str:
    """OpenAPI 3.1 (spec.openapis.org/oas/v3.1.0), whose schemas are those of docs/schemas.json."""
    components: dict[str, Any] = {}
    for name, schema in schemas({one.answer for one in _DOCUMENTS.values()}).items():
        prefix = name.replace("/", ".")
        parts = {prefix: {key: value for key, value in schema.items() if key != "$defs"}}
        parts |= {f"{prefix}.{key}": part for key, part in schema.get("$defs", {}).items()}
        components |= {key: _moved(part, f"{prefix}.") for key, part in parts.items()}
    refused = {"description": "why not, in a sentence", "content": {"text/plain": {}}}
    paths: dict[str, Any] = {
        f"/api/{name}": {"get": {
            "summary": one.said,
            "parameters": [_described(each) for each in one.parameters],
            "responses": {
                "200": {"description": one.said, "content": {"application/json": {"schema": {
                    "$ref": f"#/components/schemas/{one.answer.FORMAT.replace('/', '.')}"}}}},
                **dict.fromkeys(("400", "404", "409", "429", "503"), refused),
            },
        }}
        for name, one in _DOCUMENTS.items()
    }  # fmt: skip
    return json.dumps({
        "openapi": "3.1.0",
        "info": {
            "title": "vdisklab",
            "version": __version__,
            "description": "The documents of --format json.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }, indent=1)  # fmt: skip


def _described(one: _Parameter) -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "name": one.name, "in": "query", "description": one.said, "required": one.required,
        "schema": {"type": "array", "items": text} if one.many else text,
    }  # fmt: skip


def _moved(part: Any, prefix: str) -> Any:  # noqa: ANN401 - a part of a schema
    """A schema whose references lead to the components."""
    if isinstance(part, dict):
        return {key: _moved(value, prefix) for key, value in part.items()}
    if isinstance(part, list):
        return [_moved(item, prefix) for item in part]
    if isinstance(part, str) and part.startswith("#/$defs/"):
        return f"#/components/schemas/{prefix}{part.removeprefix('#/$defs/')}"
    return part
