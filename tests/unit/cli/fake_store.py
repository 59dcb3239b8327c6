"""A store in memory, in the place of `vdisklab.results.store`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from vdisklab.analysis.diagnostics.witness import witnessed
from vdisklab.analysis.observations import Codes, Floats
from vdisklab.errors import DatabaseError
from vdisklab.results.model import Campaign, Measurement, Run, Witnessed
from vdisklab.results.observations import CellTally, Example, RunCourse
from vdisklab.results.powercut import PowerCut
from vdisklab.services import answers


@dataclass(frozen=True)
class FakeColumns:
    campaigns: tuple[str, ...]
    cells: tuple[str, ...]
    measures: tuple[str, ...]
    campaign: Codes
    cell: Codes
    block: Codes
    measure: Codes
    value: Floats


@dataclass
class FakeStore:
    all_campaigns: tuple[Campaign, ...] = (CAMPAIGN,)
    all_cuts: tuple[PowerCut, ...] = ()
    all_runs: list[Run] = field(default_factory=lambda: list(campaign_runs()))

    def campaigns(self, *, with_runs: bool = False) -> tuple[Campaign, ...]:
        return tuple(each for each in self.all_campaigns if not with_runs or self._begun(each))

    def _begun(self, campaign: Campaign) -> bool:
        return any(run.campaign == campaign.id for run in self.all_runs)

    def campaign(self, name: str) -> Campaign:
        for campaign in self.all_campaigns:
            if campaign.id.startswith(name):
                return campaign
        raise DatabaseError(f"there is no campaign {name!r}")

    def runs(self, campaign_id: str, *, measured_only: bool = False) -> Iterator[Run]:
        for run in self.all_runs:
            if run.campaign == campaign_id and not (measured_only and run.failure):
                yield run

    def run(self, name: str) -> Run:
        for run in self.all_runs:
            if run.id.startswith(name):
                return run
        raise DatabaseError(f"there is no run {name!r}")

    def outlines(self, campaign_ids: Sequence[str]) -> tuple[Run, ...]:
        return tuple(run for run in self.all_runs if run.campaign in campaign_ids)

    def finished(self, campaign_id: str) -> set[tuple[int, str]]:
        runs = self.outlines([campaign_id])
        return {(run.block, run.cell) for run in runs if run.failure is None}

    def power_cuts(self, _machine: str | None = None) -> tuple[PowerCut, ...]:
        return self.all_cuts

    def evidence(self, campaign_ids: Sequence[str]) -> Iterator[Witnessed]:
        return (each for run in self.outlines(campaign_ids) for each in witnessed(run))

    def tallies(self, campaign_ids: Sequence[str]) -> tuple[CellTally, ...]:
        """Like the store's SQL, in Python."""
        sums: dict[tuple[str, str], list[Measurement]] = {}
        for run in self.outlines(campaign_ids):
            for measured in run.measurements if run.failure is None else ():
                sums.setdefault((run.cell, measured.name), []).append(measured)
        return tuple(_tally(cell, name, found) for (cell, name), found in sums.items())

    def examples(self, campaign_ids: Sequence[str]) -> tuple[Example, ...]:
        last = {run.cell: run for run in self.outlines(campaign_ids) if run.failure is None}
        return tuple(
            Example(
                run.cell, run.id, run.block, run.started, run.accelerator, run.medium,
                run.commands, tuple((c.name, c.asked, c.seen) for c in run.checks),
                tuple((m.name, m.command) for m in run.measurements),
            )
            for run in last.values()
        )  # fmt: skip

    def courses(self, campaign_ids: Sequence[str], cells: Sequence[str]) -> list[RunCourse]:
        return [
            RunCourse(run.campaign, run.cell, run.block, measured.name, series)
            for run in self.outlines(campaign_ids)
            if run.failure is None and run.cell in cells
            for measured in run.measurements
            for series in measured.series
        ]

    def observations(self, campaign_ids: Sequence[str]) -> FakeColumns:
        rows = [
            (run.campaign, run.cell, run.block, f"{m.name}/{s.direction}/{s.metric}", s.value)
            for run in self.outlines(campaign_ids)
            if run.failure is None
            for m in run.measurements
            for s in m.samples
        ]
        campaigns, cells, measures = (
            tuple(dict.fromkeys(str(row[at]) for row in rows)) for at in (0, 1, 3)
        )

        def codes(values: list[int]) -> Codes:
            return np.array(values, dtype=np.int32)

        return FakeColumns(
            campaigns,
            cells,
            measures,
            codes([campaigns.index(row[0]) for row in rows]),
            codes([cells.index(row[1]) for row in rows]),
            codes([row[2] for row in rows]),
            codes([measures.index(row[3]) for row in rows]),
            np.array([row[4] for row in rows], dtype=np.float64),
        )


def _tally(cell: str, name: str, found: list[Measurement]) -> CellTally:
    above = [m.evidence.qemu or m.evidence.guest for m in found]
    device = [m.evidence.device for m in found]
    counted = [each for each in above if each is not None]
    reached = [each for each in device if each is not None]
    return CellTally(
        cell,
        name,
        sum(c.read_operations + c.write_operations for c in counted),
        sum(c.flush_operations or 0 for c in counted),
        sum(c.flush_operations or 0 for c in reached),
        sum(c.read_bytes + c.write_bytes for c in counted),
        sum(c.read_bytes + c.write_bytes for c in reached),
        sum(m.evidence.host_cpu_seconds or 0.0 for m in found),
    )


def install(monkeypatch: pytest.MonkeyPatch, store: FakeStore) -> list[str]:
    """Puts the store where the verbs look for it; returns the list of URLs they will ask for."""
    asked: list[str] = []

    @contextmanager
    def open_store(url: str, *, create: bool = True) -> Iterator[FakeStore]:
        assert not create
        asked.append(url)
        yield store

    monkeypatch.setattr(answers, "open_store", open_store)
    monkeypatch.setattr(answers, "default_url", lambda directory: f"default:{directory}")
    return asked


GOLDEN = Path(__file__).parents[2] / "golden"
