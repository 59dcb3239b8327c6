"""A whole search with the cells' programs replaced by numbers: order, choice, and going on."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from vdisklab.actions import measure as service
from vdisklab.actions import planning
from vdisklab.actions.find_best import make_search
from vdisklab.actions.planning import Possible
from vdisklab.answers import begun as begun_campaigns
from vdisklab.answers.loading import load
from vdisklab.answers.race import race_outcome
from vdisklab.campaign import context, runner
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
        measurement = Measurement(
            "randread-4k-q1", "fio", "fio", (sample,), Evidence(), now, 1, 1, ""
        )
        return CellResult((), (), (measurement,))


Search = Callable[..., tuple[str | None, bool]]


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Search]:
    """Runs `measure` with a search on a real database; returns the answer."""
    place = tmp_path_factory.mktemp("search")
    request = Request(paths=PATTERNS, directory=place, baseline="none", rounds=20)
    plan = build_plan(request, Capabilities(), PROFILE)

    @contextmanager
    def open_campaign(around: object, plan: CampaignPlan) -> Iterator[Any]:
        guests = SimpleNamespace(renew=lambda: None)
        stacks = SimpleNamespace(
            named=str, left=[], require_in_place=lambda: None, moved=lambda: None,
            refusal=lambda path: None,
        )  # fmt: skip
        context: Any = CampaignContext
        yield context(
            plan=plan, guests=guests, stacks=stacks, accelerator=None, progress=lambda event: None
        )

    def run(
        store: Store, programs: Programs, find: SearchFor | None = SearchFor.BEST
    ) -> tuple[str | None, bool]:
        patch.setattr(runner, "measure_cell", programs)
        asked = make_search(RunRequest(find=find, metric=METRIC, unsafe=True))
        measured = service.measure(store, request, silent, search=asked)
        assert asked is not None
        loaded = load(store, [measured.campaign or ""])
        outcome = race_outcome(loaded, asked.terms, CrashVerdicts())
        return (None if outcome is None else outcome.best.label), measured.interrupted

    possible = Possible(cast("Any", None), plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "possible_draft", lambda *_: possible)
        patch.setattr(planning, "make_plan", lambda *_, narrow, begun: narrow(plan))
        patch.setattr(context, "open_campaign", open_campaign)
        patch.setattr(service, "open_ledger", lambda: nullcontext(SimpleNamespace()))
        patch.setattr(begun_campaigns, "collect_facts", lambda host: HOST)
        patch.setattr(service, "_medium", lambda plan: None)
        yield run


@dataclass(frozen=True)
class Whole:
    """A search that was not interrupted."""

    find: SearchFor | None
    answer: tuple[str | None, bool]
    measured: list[str]
    cells: list[str]


@pytest.fixture(scope="module", params=[None, SearchFor.BEST])
def whole(
    search: Search, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Whole:
    programs = Programs()
    with open_store(str(tmp_path_factory.mktemp("whole") / "a.db")) as store:
        answer = search(store, programs, request.param)
        (campaign,) = store.campaigns()
    cells = [cell.label for cell in campaign.cells]
    return Whole(request.param, answer, programs.measured, cells)


@pytest.mark.parametrize("whole", [SearchFor.BEST], indirect=True)
def test_the_best_is_found_without_measuring_all_as_often(whole: Whole) -> None:
    """It is better than its segments promise, so all that compete are measured, but not often."""
    assert whole.answer == ("raw/none", False)
    assert not [label for label in whole.measured if "warm" in label]
    assert whole.measured.count("raw/none") >= 3
    assert len(whole.measured) <= 3 * 24


# A second each: a commit interrupts in the first round, and several times.
@pytest.mark.parametrize(
    "interrupt_at", [(3,), pytest.param((20,), marks=pytest.mark.nightly), (1, 40, 7, 61)]
)
def test_an_interrupted_race_goes_on_where_it_was(
    search: Search, whole: Whole, tmp_path: Path, interrupt_at: tuple[int, ...]
) -> None:
    """Killed once or several times, in any round: the same runs, and the same answer."""
    assert whole.answer[0] == "raw/none"
    measured: list[str] = []
    with open_store(str(tmp_path / "a.db")) as store:
        found = whole.answer
        for runs in (*interrupt_at, math.inf):
            part = Programs(interrupt_at=runs, before=measured)
            found = search(store, part, whole.find)
            measured += part.measured
            if not found[1]:
                break
        (campaign,) = store.campaigns()
        done = [(run.round, run.cell) for run in store.outlines([campaign.id])]
    assert found == whole.answer
    assert len(done) == len(set(done))
    assert measured == whole.measured


@pytest.mark.parametrize("whole", [None], indirect=True)
def test_without_find_every_path_is_measured_three_times(whole: Whole) -> None:
    counts = {label: whole.measured.count(label) for label in whole.cells}
    assert min(counts.values()) == 3, "those that lose or do not compete"
    assert counts["raw/none"] == max(counts.values())
