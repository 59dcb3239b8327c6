"""A search ends within its time and says what it left out; small rounds share their guests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vdisklab.campaign import runner
from vdisklab.campaign.chosen_slots import NO_LIMIT, TimeLimit, chosen_slots
from vdisklab.campaign.context import CampaignContext, CellResult
from vdisklab.campaign.runner import RunTag, campaign_runs, chosen_runs
from vdisklab.campaign.schedule import Slot, run_seconds
from vdisklab.errors import (
    DirtyHostError,
    GuestError,
    HostError,
    LeftOnTargetError,
    VdisklabError,
)
from vdisklab.path.cell import Cell
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.plan.settings import Request
from vdisklab.progress import Event, MeasurementStarted, Note, silent

PATHS = tuple(f"{image}/{cache}" for image in ("raw", "qcow2") for cache in ("none", "unsafe"))
IN_PLACE = SimpleNamespace(named=str, require_in_place=lambda: None)
"""The stacks of a work directory that nobody moves."""


CONTEXT: Any = CampaignContext
"""Takes stand-ins for what no test here uses."""

READS = MeasurementPlan("randread", "fio", {"rw": "randread", "bs": "4k", "iodepth": 1})


class Watch:
    """A clock that only runs take time on."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def plan() -> CampaignPlan:
    request = Request(paths=("host", *PATHS), directory=Path("/tmp"), runtime=10.0)  # noqa: S108 - nothing is written
    return build_plan(request, Capabilities(), Profile("p", "t", (READS,)))


def measured(
    plan: CampaignPlan, budget: float, seconds: float, boot: float = 0.0, needed: str = ""
) -> tuple[list[Slot], float, list[str]]:
    """Runs of so many seconds, at most three rounds: what ran, when it ended, and the notes."""
    watch, ran = Watch(), []
    notes: list[Event] = []
    every = [cell.fingerprint for cell in plan.cells]
    kept = {cell.fingerprint for cell in plan.cells if cell.label == needed}
    limit = TimeLimit(lambda: budget - watch.now, kept)
    round = 0
    for slot in chosen_slots(
        plan, (), lambda number: every if number < 4 else (), limit, notes.append, clock=watch
    ):
        watch.sleep(seconds + (boot if slot.round > round else 0.0))
        round = slot.round
        ran.append(slot)
    return ran, watch.now, [note.text for note in notes if isinstance(note, Note)]


@pytest.mark.parametrize("budget", [65.0, 100.0, 200.0, 329.0])
@pytest.mark.parametrize("seconds", [5.0, 12.0, 30.0])
def test_a_search_ends_within_its_budget_and_at_most_one_run(
    plan: CampaignPlan, budget: float, seconds: float
) -> None:
    ran, end, notes = measured(plan, budget, seconds, boot=15.0)
    cells = len(plan.cells)
    if len(ran) == 3 * cells:
        assert (end <= budget, notes) == (True, [])
        return
    assert end <= budget + seconds + 15.0
    assert end > budget - 2 * (seconds + 15.0)
    (note,) = notes
    left = cells - len(ran) % cells
    round = len(ran) // cells + 1
    assert note == (
        f"the budget is used up: {left} of the {cells} runs of round {round} would not end in time"
    )


def test_time_is_kept_for_what_other_numbers_relate_to(plan: CampaignPlan) -> None:
    """The host runs in the round that is cut short, wherever its place is."""
    estimate = run_seconds(plan)(plan.cells[0])
    for runs in (1.5, 2.5, 3.5):
        ran, end, _ = measured(plan, runs * estimate, estimate, needed="host")
        assert "host" in [slot.cell.label for slot in ran]
        assert (len(ran), end) == (int(runs), int(runs) * estimate)


def test_without_a_limit_all_chosen_runs_are_made_but_the_finished(plan: CampaignPlan) -> None:
    every = [cell.fingerprint for cell in plan.cells]
    finished = {(1, every[0])}
    slots = chosen_slots(plan, finished, lambda n: every if n < 3 else (), NO_LIMIT, silent)
    assert len(list(slots)) == 2 * len(every) - 1


def booted(plan: CampaignPlan, monkeypatch: pytest.MonkeyPatch, sizes: Sequence[int]) -> list[int]:
    """The rounds that boot guests, if so many paths are measured in each, beside the host."""
    renewed: list[int] = []
    now = [0]

    def measure(_context: object, _cell: object) -> CellResult:
        return CellResult()

    def choose(round: int) -> list[str]:
        now[0] = round
        size = (*sizes, 0)[round - 1]
        cells = sorted(plan.cells, key=lambda cell: not cell.path.on_host)
        return [cell.fingerprint for cell in cells[: size + 1]] if size else []

    monkeypatch.setattr(runner, "measure_cell", measure)
    guests = SimpleNamespace(renew=lambda: renewed.append(now[0]))
    context: Any = CONTEXT(
        plan=plan, guests=guests, accelerator=None, progress=silent, stacks=IN_PLACE
    )
    for run in chosen_runs(context, RunTag("c", None), (), choose, NO_LIMIT):
        assert run.round == now[0]
    return renewed


@pytest.mark.parametrize(
    ("sizes", "rounds"),
    [
        ([4, 4, 4, 4], [1, 2, 3, 4]),
        ([4, 4, 3, 3, 3, 3], [1, 2, 3, 5]),
        ([4, 1, 1, 1, 1, 1, 1], [1, 2, 5]),
        ([2, 4, 2, 2, 2], [1, 2, 3, 5]),
    ],
)
def test_small_rounds_share_guests_until_these_had_as_many_runs_as_in_a_large_one(
    plan: CampaignPlan, monkeypatch: pytest.MonkeyPatch, sizes: list[int], rounds: list[int]
) -> None:
    assert booted(plan, monkeypatch, sizes) == rounds


def test_each_round_of_all_cells_boots_new_guests(
    plan: CampaignPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[str] = []
    monkeypatch.setattr(runner, "measure_cell", lambda _context, _cell: CellResult())
    guests = SimpleNamespace(renew=lambda: renewed.append("boot"))
    context: Any = CONTEXT(
        plan=plan, guests=guests, accelerator=None, progress=silent, stacks=IN_PLACE
    )
    assert len(list(campaign_runs(context, RunTag("c", None)))) == plan.rounds * len(plan.cells)
    assert len(renewed) == plan.rounds


@pytest.mark.parametrize("refuses", [True, False])
def test_what_is_left_on_a_target_that_takes_no_writes_does_not_end_the_campaign(
    plan: CampaignPlan, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    """Seen with an image made anew for its cell on an export that turned read-only."""
    error = DirtyHostError("image is left as it is", hint="run `vdisklab clean`")

    def measure(context: CampaignContext, cell: Cell) -> CellResult:
        if cell.label.startswith("raw/none"):
            context.progress(MeasurementStarted("randread", None))
            raise error
        return CellResult()

    why = HostError("target t: nothing can be written", hint="export it read-write")
    monkeypatch.setattr(runner, "measure_cell", measure)
    stacks = SimpleNamespace(
        **vars(IN_PLACE),
        left=[],
        moved=lambda: None,
        refusal=lambda _path: why if refuses else None,
    )
    context: Any = CONTEXT(
        plan=plan, guests=SimpleNamespace(renew=lambda: None), accelerator=None, progress=silent,
        stacks=stacks,
    )  # fmt: skip
    runs = campaign_runs(context, RunTag("c", None))
    if not refuses:
        with pytest.raises(DirtyHostError):
            list(runs)
        return
    failed = {run.failure.message for run in runs if run.failure}
    assert failed == {
        "the target was lost in the middle of the run: target t: nothing can be written\n"
        "hint: export it read-write\n"
        "image is left as it is\nhint: run `vdisklab clean`"
    }
    left = [(type(each), str(each), each.hint) for each in stacks.left]
    assert left == [(LeftOnTargetError, error.message, error.hint)] * plan.rounds


def without_target(plan: CampaignPlan, why: HostError) -> CampaignContext:
    """The context of a campaign whose target refuses."""
    stacks = SimpleNamespace(
        **vars(IN_PLACE), left=[], moved=lambda: None, refusal=lambda _path: why
    )
    context: CampaignContext = CONTEXT(
        plan=plan, guests=SimpleNamespace(renew=lambda: None), accelerator=None, progress=silent,
        stacks=stacks,
    )  # fmt: skip
    return context


def test_a_target_that_was_not_there_at_all_was_not_lost_in_the_middle(
    plan: CampaignPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = HostError("target t cannot be used: Failed to connect")

    def measure(_context: object, _cell: Cell) -> CellResult:
        raise why

    monkeypatch.setattr(runner, "measure_cell", measure)
    context = without_target(plan, why)
    failed = {
        run.failure.sentence for run in campaign_runs(context, RunTag("c", None)) if run.failure
    }
    assert failed == {str(why)}


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("kind", [GuestError, DirtyHostError])
def test_a_target_that_is_gone_before_its_round_was_not_lost_in_the_middle(
    plan: CampaignPlan, monkeypatch: pytest.MonkeyPatch, kind: type[VdisklabError], begins: bool
) -> None:
    """Seen with a server that had ended before the ninth round: QEMU could not open the disk."""
    why = HostError("target t cannot be used: Failed to connect")

    def measure(context: CampaignContext, _cell: Cell) -> CellResult:
        if begins:
            context.progress(MeasurementStarted("randread", None))
        raise kind("Connection refused")

    monkeypatch.setattr(runner, "measure_cell", measure)
    context = without_target(plan, why)
    said = {
        run.failure.sentence
        for run in campaign_runs(context, RunTag("c", None))
        if run.failure is not None and run.round == plan.rounds
    }
    before = f"the target was gone before this path was measured in round {plan.rounds}"
    when = "the target was lost in the middle of the run" if begins else before
    assert said == {f"{when}: {why}"}
