"""A whole search with the cells' programs replaced by numbers: order, choice, and going on."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vdisklab.actions import measure as service
from vdisklab.actions.find_best import make_search
from vdisklab.answers.loading import load
from vdisklab.answers.race import race_outcome
from vdisklab.campaign import runner
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.path.cell import Cell
from vdisklab.path.durability import CrashVerdicts
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import MeasurementPlan, Profile, Setting
from vdisklab.plan.run_request import RunRequest, SearchFor
from vdisklab.plan.settings import Request
from vdisklab.progress import silent
from vdisklab.results.model import Direction, Evidence, HostFacts, Measurement, Sample
from vdisklab.results.store import Store, open_store

PATTERNS = ("{raw,qcow2}/{none,directsync,writeback,unsafe}/{virtio,scsi,nvme}",)
HOST = HostFacts("h", "m" * 16, "6.1", "cpu", 2, 1 << 30, "7.2", "3.33")
METRIC = "randread-4k-q1/read/iops"
FIO: dict[str, Setting] = {"rw": "randread", "bs": "4k", "iodepth": 1}
PROFILE = Profile("p", "t", (MeasurementPlan("randread-4k-q1", "fio", FIO),))


def true_speed(cell: Cell) -> float:
    """A factor that hangs on the path alone; raw/none on virtio is the best."""
    if cell.path.canonical == "raw/none":
        return 10.0
    return 1.0 + zlib.crc32(cell.label.encode()) % 1000 / 200


class Programs:
    """Stands for `measure_cell`; raises KeyboardInterrupt at one of the runs."""

    def __init__(self, interrupt_at: float = math.inf, before: Sequence[str] = ()) -> None:
        self.measured: list[str] = []
        self.interrupt_at = interrupt_at
        self.before = before

    def __call__(self, _bench: CampaignContext, cell: Cell) -> CellResult:
        if len(self.measured) >= self.interrupt_at:
            raise KeyboardInterrupt
        self.measured.append(cell.label)
        turn = [*self.before, *self.measured].count(cell.label)
        rng = np.random.default_rng([zlib.crc32(cell.label.encode()), turn])
        speed = 1000 * true_speed(cell) * float(np.exp(rng.normal(0, 0.03)))
        sample = Sample("iops", Direction.READ, speed)
        now = datetime.now(UTC)
        one = Measurement("randread-4k-q1", "fio", "fio", (sample,), Evidence(), now, 1, 1, "")
        return CellResult((), (), (one,))


Search = Callable[..., tuple[str | None, bool]]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Search:
    """Runs `measure` with a search on a real database; returns labels in order, and the answer."""
    request = Request(paths=PATTERNS, directory=tmp_path, baseline="none", rounds=20)
    plan = build_plan(request, Capabilities(), PROFILE)

    @contextmanager
    def open_campaign(around: object, plan: CampaignPlan) -> Iterator[Any]:
        guests = SimpleNamespace(renew=lambda: None)
        yield SimpleNamespace(
            ran_under=None, plan=plan, guests=guests, accelerator=None, progress=lambda event: None
        )

    monkeypatch.setattr(service, "make_plan", lambda *args, **options: plan)
    monkeypatch.setattr(service, "open_campaign", open_campaign)
    monkeypatch.setattr(service, "open_ledger", lambda: nullcontext(SimpleNamespace()))
    monkeypatch.setattr(service, "collect_facts", lambda host: HOST)
    monkeypatch.setattr(service, "_medium", lambda plan: None)

    def run(
        store: Store, programs: Programs, find: SearchFor | None = SearchFor.BEST
    ) -> tuple[str | None, bool]:
        monkeypatch.setattr(runner, "measure_cell", programs)
        asked = make_search(RunRequest(find=find, metric=METRIC, unsafe=True))
        measured = service.measure(store, request, silent, search=asked)
        assert asked is not None
        loaded = load(store, [measured.campaign or ""])
        outcome = race_outcome(loaded, asked.terms, CrashVerdicts())
        return (None if outcome is None else outcome.best.label), measured.interrupted

    return run


def test_the_best_is_found_without_measuring_all_as_often(search: Search, tmp_path: Path) -> None:
    """It is better than its segments promise, so all that compete are measured, but not often."""
    programs = Programs()
    with open_store(str(tmp_path / "a.db")) as store:
        best, interrupted = search(store, programs)
    assert (best, interrupted) == ("raw/none", False)
    assert not [label for label in programs.measured if "warm" in label]
    assert programs.measured.count("raw/none") >= 3
    assert len(programs.measured) <= 3 * 24


@pytest.mark.parametrize("find", [None, SearchFor.BEST])
@pytest.mark.parametrize("interrupt_at", [(3,), (20,), (1, 40, 7, 61)])
def test_an_interrupted_race_goes_on_where_it_was(
    search: Search, tmp_path: Path, interrupt_at: tuple[int, ...], find: SearchFor | None
) -> None:
    """Killed once or several times, in any round: the same runs, and the same answer."""
    with open_store(str(tmp_path / "whole.db")) as store:
        whole = Programs()
        answer = search(store, whole, find)
        assert answer[0] == "raw/none"
    measured: list[str] = []
    with open_store(str(tmp_path / "a.db")) as store:
        found = answer
        for runs in (*interrupt_at, math.inf):
            part = Programs(interrupt_at=runs, before=measured)
            found = search(store, part, find)
            measured += part.measured
            if not found[1]:
                break
        (campaign,) = store.campaigns()
        done = [(run.round, run.cell) for run in store.outlines([campaign.id])]
    assert found == answer
    assert len(done) == len(set(done))
    assert measured == whole.measured


def test_without_find_every_path_is_measured_three_times(search: Search, tmp_path: Path) -> None:
    programs = Programs()
    with open_store(str(tmp_path / "a.db")) as store:
        search(store, programs, None)
        (campaign,) = store.campaigns()
    counts = {cell.label: programs.measured.count(cell.label) for cell in campaign.cells}
    assert min(counts.values()) == 3, "those that lose or do not compete"
    assert counts["raw/none"] == max(counts.values())
