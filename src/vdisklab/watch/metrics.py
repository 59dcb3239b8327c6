"""`/metrics`: one campaign for Prometheus (text format 0.0.4, or OpenMetrics if it is asked for).

Only one campaign has samples, the newest unless another is named, so the number of series is that
of its cells and measures, however many campaigns are stored.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import anyio
from anyio import to_thread
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from vdisklab import __version__
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.loading import open_results
from vdisklab.errors import PlanError
from vdisklab.results.model import Campaign, RunOutline
from vdisklab.results.store import Store

SECONDS = 20.0
"""No request is answered later: a program that asks every few seconds would pile them up."""

_REQUESTS = 2
"""So many requests are worked on at a time."""

_CELL = ("campaign", "path", "page_cache")
_MEDIANS = {
    "bandwidth": ("vdisklab_cell_bandwidth_bytes_per_second", "bandwidth"),
    "iops": ("vdisklab_cell_iops", "completed requests per second"),
    "latency_mean": ("vdisklab_cell_latency_mean_seconds", "mean latency"),
    "latency_p99": ("vdisklab_cell_latency_p99_seconds", "99th percentile of latency"),
}


def routes(db: str | None, seconds: float = SECONDS) -> list[BaseRoute]:
    """The route `/metrics` of the results at `--db`."""
    places, numbers = threading.BoundedSemaphore(_REQUESTS), Metrics()

    def expose(campaign: str | None, accept: str) -> tuple[bytes, str] | None:
        """None if enough requests are being worked on; a slow one keeps its place to its end."""
        if not places.acquire(blocking=False):
            return None
        try:
            with open_results(db, read_only=True) as results:
                return numbers.exposition(results, campaign, accept)
        finally:
            places.release()

    async def metrics(request: Request) -> Response:
        unknown = [name for name in request.query_params if name != "campaign"]
        campaigns = request.query_params.getlist("campaign")
        if unknown:
            return _refusal(400, f"unknown parameter {unknown[0]!r}; it takes campaign")
        if len(campaigns) > 1:
            return _refusal(400, f"campaign is given {len(campaigns)} times")
        campaign = campaigns[0] if campaigns else None
        if "\0" in (campaign or ""):
            return _refusal(400, "a parameter holds a NUL")
        accept = request.headers.get("accept", "")
        with anyio.move_on_after(seconds):
            found = await to_thread.run_sync(expose, campaign, accept, abandon_on_cancel=True)
            if found is None:
                return _refusal(429, "two requests are being answered; ask again in a moment")
            return Response(found[0], media_type=found[1])
        return _refusal(503, f"this took longer than {seconds:g} s")

    return [Route("/metrics", metrics)]


def _refusal(status: int, sentence: str) -> Response:
    headers = {"Retry-After": "5"} if status in {429, 503} else None
    return PlainTextResponse(f"{sentence}\n", status, headers)


class Metrics:
    """The metrics of a database. What is computed of a campaign's numbers is kept until it has
    another run: Prometheus asks far more often than cells are measured.
    """

    def __init__(self) -> None:
        self._kept: tuple[object, tuple[GaugeMetricFamily, ...]] = (None, ())

    def exposition(self, results: Store, name: str | None, accept: str) -> tuple[bytes, str]:
        """The metrics of a campaign, the newest without a name, and their media type.

        Raises DatabaseError for an unknown campaign.
        """
        registry = CollectorRegistry()
        registry.register(_Collected(tuple(self._families(results, name))))
        encode, kind = choose_encoder(accept)
        return encode(registry), kind

    def _families(self, results: Store, name: str | None) -> Iterator[GaugeMetricFamily]:
        yield _gauge("vdisklab_info", "The program.", version=__version__)
        campaigns = results.campaigns(with_runs=True) if name is None else (results.campaign(name),)
        if not campaigns:
            return
        outlines = results.outlines([campaigns[0].id])
        yield from _progress(campaigns[0], outlines)
        state = (campaigns[0].id, frozenset(run.id for run in outlines))
        if self._kept[0] != state:
            self._kept = (state, tuple(_numbers(results, campaigns[0])))
        yield from self._kept[1]


@dataclass(frozen=True, slots=True, eq=False)
class _Collected(Collector):
    families: tuple[GaugeMetricFamily, ...]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The families, made before."""
        return self.families


def _progress(campaign: Campaign, runs: tuple[RunOutline, ...]) -> Iterator[GaugeMetricFamily]:
    host = campaign.host
    yield _gauge(
        "vdisklab_campaign_info", "The campaign and its host.",
        campaign=campaign.id, label=campaign.label, hostname=host.hostname,
        kernel=host.kernel, qemu=host.qemu or "", fio=host.fio or "",
    )  # fmt: skip
    started = campaign.started.timestamp()
    last = max((run.started.timestamp() for run in runs), default=started)
    rounds = max((run.round for run in runs), default=0)
    for name, said, value in (
        ("started_timestamp_seconds", "When it began.", started),
        ("last_run_timestamp_seconds", "When its newest run began.", last),
        ("round", "The newest round, from 1.", rounds),
    ):
        yield _gauge(f"vdisklab_campaign_{name}", said, value, campaign=campaign.id)
    family = GaugeMetricFamily(
        "vdisklab_campaign_runs", "Stored runs.", labels=("campaign", "state")
    )
    failed = sum(run.failure is not None for run in runs)
    for state, number in (("measured", len(runs) - failed), ("failed", failed)):
        family.add_metric((campaign.id, state), number)
    yield family


def _numbers(results: Store, campaign: Campaign) -> Iterator[GaugeMetricFamily]:
    """Medians, and ranks as `rank` has them, as far as there are any."""
    with suppress(PlanError):
        analysis = Analysis.of(results, [campaign.id])
        yield from _medians(campaign, analysis)
        yield from _ranks(campaign, analysis)


def _medians(campaign: Campaign, analysis: Analysis) -> Iterator[GaugeMetricFamily]:
    labels = (*_CELL, "measurement", "direction")
    families = {
        metric: GaugeMetricFamily(name, f"Median over rounds: {said}.", labels=labels)
        for metric, (name, said) in _MEDIANS.items()
    }
    for key in sorted(analysis.loaded.observations.used, key=str):
        for cell, summary in analysis.summaries(key).items() if key.metric in families else ():
            label_values = (campaign.id, cell.name, cell.page_cache or "", key.name, key.direction)
            families[key.metric].add_metric(label_values, summary.median)
    yield from families.values()


def _ranks(campaign: Campaign, analysis: Analysis) -> Iterator[GaugeMetricFamily]:
    ranking = analysis.ranking(analysis.measure())
    for end, said in ("best", "Best"), ("worst", "Worst"):
        family = GaugeMetricFamily(
            f"vdisklab_cell_rank_{end}", f"{said} rank that is not excluded (95 %).", labels=_CELL
        )
        for row in ranking.rows:
            labels = (campaign.id, row.cell.name, row.cell.page_cache or "")
            family.add_metric(labels, getattr(row, end))
        yield family


def _gauge(name: str, said: str, value: float = 1, **labels: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, said, labels=tuple(labels))
    family.add_metric(tuple(labels.values()), value)
    return family
