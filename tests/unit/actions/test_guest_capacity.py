"""The answer of a density campaign from stored runs, the search's choice, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.unit.analysis.made import under
from tests.unit.cli.test_widths import require_whole
from tests.unit.results.values import BROKEN, a_campaign, a_measurement, a_run
from vdisklab.actions.guest_capacity import CapacitySearch, campaign_of, measure_density
from vdisklab.actions.planning import possible_plan
from vdisklab.analysis.diagnostics.caveats import ASK_DOCTOR, Caveats
from vdisklab.analysis.guest_groups import Bottleneck, LimitedBy, parse_criterion
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.density import (
    DensityAnswer,
    PathCapacity,
    carrying,
    density_of,
    outcomes_of,
    searched_capacity,
    stored_density,
)
from vdisklab.answers.recommend import recommend
from vdisklab.answers.report import report_on
from vdisklab.cli.density import exit_status
from vdisklab.documents import as_csv, document, schemas
from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import machine_facts
from vdisklab.path.cell import MeasuredCell
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.density_request import DensityRequest
from vdisklab.plan.settings import Request
from vdisklab.progress import Event, Note, PathDropped, silent
from vdisklab.results.model import Campaign, GuestGroup, HostLoad, Member, RanUnder, Run
from vdisklab.results.store import Store, open_store
from vdisklab.storage.site import memory_of_guests
from vdisklab.value import replace
from vdisklab.views.density import tables
from vdisklab.workload.profile_files import load_profile

LIMIT = parse_criterion("latency_p99<=5ms")
REQUEST = DensityRequest(paths=("raw/none",), load=100, most=4, guest_memory=128 << 20)


def labels(most: int) -> tuple[str, ...]:
    return tuple(f"raw/none/virtio:guests={guests}" for guests in range(1, most + 1))


def a_density(most: int = 4) -> Campaign:
    plan = {
        "load": 100, "until": "latency_p99<=5ms", "most": most, "cells": list(labels(most)),
        "measurements": [],
    }  # fmt: skip
    return a_campaign(plan=plan)


def a_step(campaign: Campaign, round: int, guests: int, p99: float, *, served: int = 1000) -> Run:
    members = tuple(
        Member(number, 0.0, served / 10, p99 / 3, p99 / 4, p99, p99, 1000, served)
        for number in range(1, guests + 1)
    )
    group = GuestGroup(10.0, members, HostLoad(cpu=0.5, device=0.97, queue=3.0))
    path = f"raw/none/virtio:guests={guests}"
    return a_run(
        campaign, path=path, cell=MeasuredCell(path).fingerprint, round=round,
        measurements=(a_measurement(group=group),),
    )  # fmt: skip


def add_search_of_this_host(store: Store, request: DensityRequest) -> tuple[Campaign, int]:
    """The campaign that the request continues here, and the bytes of memory of each guest."""
    plan = possible_plan(LocalHost(), campaign_of(request))
    campaign = replace(
        a_density(),
        plan=plan.stored_json(),
        fingerprint=plan.fingerprint,
        host=machine_facts(LocalHost()),
    )
    store.add_campaign(campaign)
    return campaign, plan.guest.memory_bytes


def notes_of(answer: DensityAnswer) -> tuple[str, ...]:
    (table,) = tables(answer)
    return table.notes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/d.sqlite") as opened:
        yield opened


class TestAnswer:
    def test_the_report_shows_the_latency_that_the_limit_is_of(self, store: Store) -> None:
        campaign = a_density()
        store.add_campaign(campaign)
        for round, guests in ((1, 1), (2, 2), (3, 1)):
            store.add_run(a_step(campaign, round, guests, 0.002))
        report = report_on(Analysis.of(store, [campaign.id]))
        assert report.measure.metric == "latency_p99"
        assert all(cell in report.of(report.measure) for cell in report.measured)
        assert not [finding for finding in report.findings if "overall ratio" in str(finding)]

    def test_what_a_path_carries(self, store: Store) -> None:
        campaign = a_density()
        store.add_campaign(campaign)
        runs = [(1, 1, 0.002), (2, 2, 0.003), (3, 4, 0.050), (4, 3, 0.020)]
        runs += [
            (round, guests, p99) for round in range(5, 9) for guests, p99 in ((2, 0.004), (3, 0.02))
        ]
        for round, guests, p99 in runs:
            store.add_run(a_step(campaign, round, guests, p99))
        answer = density_of(store, campaign.id)
        (path,) = answer.paths
        assert path.path == "raw/none"
        assert path.capacity is not None
        assert (path.capacity.low, path.capacity.guests, path.capacity.high) == (2, 2, 3)
        assert not path.capacity.at_least
        assert path.limited.limit is LimitedBy.DEVICE
        assert path.at_limit is not None
        assert path.at_limit.worst == 0.004
        assert replace(answer.caveats, kvm=ASK_DOCTOR) == Caveats(Accelerator.TCG, emulated=True)
        found = document(answer)
        require_whole(list(tables(answer)), found)
        jsonschema.Draft202012Validator(schemas([DensityAnswer])[DensityAnswer.FORMAT]).validate(
            found
        )
        table = as_csv(answer.paths, PathCapacity)
        assert "raw/none,2,2,3" in table
        assert "steps" not in table
        assert found["paths"][0]["capacity"]["guests"] == 2
        assert len(found["paths"][0]["steps"]) == len(runs)

    def test_two_accelerators_have_no_answer(self, store: Store) -> None:
        campaign = a_density()
        store.add_campaign(campaign)
        for round, ran_under in enumerate(
            (RanUnder(Accelerator.KVM), RanUnder(Accelerator.KVM, emulated=True)), 1
        ):
            store.add_run(under(ran_under, a_step(campaign, round, 1, 0.002)))
        with pytest.raises(PlanError, match="never ranked together"):
            density_of(store, campaign.id)

    def test_the_search_ended_first(self, store: Store) -> None:
        campaign = a_density()
        store.add_campaign(campaign)
        for round, guests in enumerate((1, 2, 4, 4, 4, 4, 4), 1):
            store.add_run(a_step(campaign, round, guests, 0.001))
        (path,) = density_of(store, campaign.id).paths
        assert path.capacity is not None
        assert (path.capacity.guests, path.capacity.at_least) == (4, True)
        assert path.limited.limit is LimitedBy.MOST

    @pytest.mark.parametrize(
        ("failed_at", "sentence"),
        [(None, "its `vdisklab density` command continues it"), (8, "the guest died")],
    )
    def test_the_search_did_not_end(
        self, store: Store, failed_at: int | None, sentence: str
    ) -> None:
        campaign = a_density(16)
        store.add_campaign(campaign)
        for round, guests in enumerate((1, 2, 4), 1):
            store.add_run(a_step(campaign, round, guests, 0.001))
        if failed_at is not None:
            run = a_step(campaign, 4, failed_at, 0.001)
            store.add_run(replace(run, failure=BROKEN, measurements=()))
        answer = density_of(store, campaign.id)
        (path,) = answer.paths
        assert path.capacity is not None
        assert (path.capacity.guests, path.capacity.high, path.capacity.at_least) == (4, 4, True)
        assert path.limited.limit is LimitedBy.UNFINISHED
        assert any(f"did not end: {sentence}" in note for note in notes_of(answer))
        assert not document(answer)["paths"][0]["complete"]
        with pytest.raises(PlanError) as error:
            carrying(answer, 8)
        assert "continue it" in str(error.value.hint)

    def test_a_chance_failure_below_the_capacity_is_not_what_limited_it(self, store: Store) -> None:
        campaign = a_density()
        store.add_campaign(campaign)
        for round, guests in enumerate((1, 2, 4, 4, 4, 4, 4), 1):
            store.add_run(a_step(campaign, round, guests, 0.02 if round == 5 else 0.001))
        (path,) = density_of(store, campaign.id).paths
        assert path.capacity is not None
        assert path.capacity.at_least
        assert path.limited.limit is LimitedBy.MOST

    def test_a_capacity_that_passes_in_half_of_its_runs_is_not_limited_by_what_was_not_tried(
        self, store: Store
    ) -> None:
        campaign = a_density(11)
        store.add_campaign(campaign)
        runs = ((1, 0.001), (2, 0.001), (3, 0.001), (3, 0.02), (2, 0.001))
        for round, (guests, p99) in enumerate(runs, 1):
            store.add_run(a_step(campaign, round, guests, p99))
        (path,) = density_of(store, campaign.id).paths
        assert path.capacity is not None
        assert (path.capacity.guests, path.capacity.at_least) == (3, False)
        assert path.limited.limit is LimitedBy.DEVICE

    def test_each_measurement_of_a_run_must_pass(self) -> None:
        run = a_step(a_density(), 1, 2, 0.001)
        slow = a_step(a_density(), 2, 2, 0.050)
        both = replace(slow, measurements=(*run.measurements, *slow.measurements))
        assert outcomes_of([run, both], LIMIT) == {2: {1: True, 2: False}}

    def test_every_run_failed(self, store: Store) -> None:
        campaign = a_density()
        store.add_campaign(campaign)
        run = a_step(campaign, 1, 1, 0.001)
        store.add_run(replace(run, failure=BROKEN, measurements=()))
        answer = density_of(store, campaign.id)
        assert answer.paths[0].capacity is None
        assert any("the guest died" in note for note in notes_of(answer))

    @pytest.mark.parametrize("plan", [{}, {"load": 100, "cells": ["raw/none/virtio:guests=2"]}])
    def test_another_campaign_has_no_answer(self, store: Store, plan: dict[str, Any]) -> None:
        campaign = a_campaign(plan={"measurements": [], **plan})
        store.add_campaign(campaign)
        with pytest.raises(PlanError, match="did not search"):
            density_of(store, campaign.id)


class TestRecommended:
    def test_only_paths_that_carry_enough(self, store: Store) -> None:
        campaign = a_density()
        store.add_campaign(a_campaign())
        store.add_campaign(campaign)
        for round, guests in enumerate((1, 2, 4, 4, 4, 4, 4), 1):
            store.add_run(a_step(campaign, round, guests, 0.001))
        answer = stored_density(store, None)
        assert answer.campaign == campaign.id
        assert carrying(answer, 4).paths == answer.paths
        with pytest.raises(PlanError, match="carries at least 4") as error:
            carrying(answer, 5)
        assert error.value.hint == "search further: --most 5"

    def test_paths_that_carry_too_few_are_named(self, store: Store) -> None:
        campaign = a_density()
        store.add_campaign(campaign)
        for round, guests in enumerate((1, 2, 4, 4, 4, 4, 4), 1):
            store.add_run(a_step(campaign, round, guests, 0.001))
        answer = density_of(store, campaign.id)
        both = replace(
            answer, paths=(*answer.paths, replace(answer.paths[0], path="x", capacity=None))
        )
        notes = notes_of(carrying(both, 4))
        assert "not shown to carry that many: x" in notes
        memory = replace(answer.paths[0], limited=Bottleneck(LimitedBy.MEMORY, ""))
        with pytest.raises(PlanError) as error:
            carrying(replace(answer, paths=(memory,)), 5)
        assert "--guest-memory" in str(error.value.hint)

    @pytest.mark.parametrize(
        ("numbers", "rate", "sentence"),
        [((1, 2), None, "cannot be compared"), ((2,), 40, "the load was open")],
    )
    def test_a_run_with_guests_recommends_no_number_and_no_load(
        self, store: Store, numbers: tuple[int, ...], rate: int | None, sentence: str
    ) -> None:
        settings = {} if rate is None else {"rate_iops": rate}
        plan = {"seed": 1, "measurements": [{"name": "a", "program": "fio", "settings": settings}]}
        campaign = a_campaign(plan={**plan, "cells": []})
        store.add_campaign(campaign)
        for guests in numbers:
            store.add_run(a_step(campaign, 1, guests, 0.001))
        with pytest.raises(PlanError, match=sentence) as error:
            recommend(Analysis.of(store), ())
        assert error.value.hint

    def test_without_a_search(self, store: Store) -> None:
        store.add_campaign(a_campaign())
        with pytest.raises(PlanError, match="has no search"):
            stored_density(store, None)


class TestSearch:
    def test_it_goes_on_where_it_was(self, store: Store) -> None:
        campaign = a_density()
        store.add_campaign(campaign)
        plan = build_plan(campaign_of(REQUEST), Capabilities(), load_profile("open-load"))
        notes: list[Event] = []
        search = CapacitySearch(LIMIT, 2, notes.append)
        choose = search.choosing(store, plan, campaign.id)
        names = {cell.fingerprint: cell.path.attachment.guests for cell in plan.cells}

        def chosen(round: int) -> list[int]:
            return sorted(names[cell] or 0 for cell in choose(round))

        assert chosen(1) == [1]
        store.add_run(replace(a_step(campaign, 1, 1, 0.001), failure=BROKEN, measurements=()))
        assert chosen(2) == [1]
        assert not notes
        store.add_run(a_step(campaign, 2, 1, 0.001, served=800))
        assert chosen(3) == [1]
        (note,) = notes
        assert isinstance(note, Note)
        assert "completes 80 % of its requests, 80 a second" in note.text
        store.add_run(a_step(campaign, 3, 1, 0.001, served=800))
        assert chosen(4) == []
        (path,) = density_of(store, campaign.id).paths
        assert path.capacity is not None
        assert path.at_limit is not None
        assert (path.capacity.guests, path.at_limit.iops, path.reached) == (0, 80.0, 80.0)

    def test_little_free_memory_stops_it_and_more_lets_it_go_on(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        campaign = a_density()
        store.add_campaign(campaign)
        plan = build_plan(campaign_of(REQUEST), Capabilities(), load_profile("open-load"))
        names = {cell.fingerprint: cell.path.attachment.guests for cell in plan.cells}
        three = memory_of_guests(plan.guest.memory_bytes, 3) + 1
        notes: list[Event] = []

        def chosen(free: int, round: int) -> list[int]:
            monkeypatch.setattr("vdisklab.actions.guest_capacity.available_memory", lambda: free)
            choose = CapacitySearch(LIMIT, 2, notes.append).choosing(store, plan, campaign.id)
            return sorted(names[cell] or 0 for cell in choose(round))

        for round, guests in ((1, 1), (2, 2), (3, 3)):
            assert chosen(three, round) == [guests]
            store.add_run(a_step(campaign, round, guests, 0.001))
        assert chosen(three, 4) == [3]
        store.add_run(a_step(campaign, 4, 3, 0.001))
        assert chosen(three, 5) == []
        note = notes[-1]
        assert isinstance(note, Note)
        assert "no group of more than 3 is tried now" in note.text
        assert not density_of(store, campaign.id).paths[0].complete
        notes.clear()
        assert chosen(0, 5) == chosen(4 * three, 5) == [4]
        assert not notes

    def test_a_finished_search_needs_no_control(self, store: Store, tmp_path: Path) -> None:
        request = replace(REQUEST, directory=tmp_path, rounds=2)
        campaign, _ = add_search_of_this_host(store, request)
        for round, guests in enumerate((1, 2, 4, 4), 1):
            store.add_run(a_step(campaign, round, guests, 0.001))
        measured, answer = measure_density(store, request, silent)
        assert (measured.campaign, measured.runs, measured.complete_before) == (
            campaign.id,
            4,
            True,
        )
        assert answer == density_of(store, campaign.id)
        assert exit_status(measured, answer, None) == 0
        left = replace(measured, left_out=(PathDropped("lvm/none", "LVM is missing", "install"),))
        assert exit_status(left, answer, None) == EXIT_CELLS_FAILED
        assert exit_status(replace(left, interrupted=True), answer, None) == EXIT_INTERRUPTED

    def test_a_search_that_memory_ended_is_not_called_complete(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request = replace(REQUEST, directory=tmp_path, rounds=2)
        campaign, memory = add_search_of_this_host(store, request)
        for round, guests in enumerate((1, 2, 2), 1):
            store.add_run(a_step(campaign, round, guests, 0.001))
        free = memory_of_guests(memory, 2)
        monkeypatch.setattr("vdisklab.actions.guest_capacity.available_memory", lambda: free)
        measured, answer = measure_density(store, request, silent)
        assert (measured.campaign, measured.complete_before) == (campaign.id, False)
        assert answer is not None
        assert not answer.paths[0].complete

    def test_a_path_that_always_fails_is_given_up(self, store: Store) -> None:
        campaign = a_density()
        store.add_campaign(campaign)
        plan = build_plan(campaign_of(REQUEST), Capabilities(), load_profile("open-load"))
        choose = CapacitySearch(LIMIT, 2, silent).choosing(store, plan, campaign.id)
        for round in (1, 2, 3):
            assert len(choose(round)) == 1
            run = a_step(campaign, round, 1, 0.001)
            store.add_run(replace(run, failure=BROKEN, measurements=()))
        assert not choose(4)


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"load": None}, "needs a load"),
            ({"guests": ("2",)}, "decides itself"),
            ({"baseline": "host"}, "has no effect"),
            ({"paths": ("host",)}, "gives no guest a disk"),
            ({"paths": ("null",)}, "gives no guest a disk"),
            ({"paths": ("virtiofs",)}, "gives no guest a disk"),
            ({"paths": ("raw/none/virtio:guests=3",)}, "names a number"),
            ({"paths": ("md:level=1/none",)}, "cannot be given to several guests"),
            ({"paths": ("raw:preallocation=off/none",)}, "is thin"),
            ({"paths": ("vdi/none",)}, "is thin"),
            ({"until": "p99"}, "not a limit"),
            ({"paths": ()}, "no disk path"),
            ({"profile": "quick"}, "no open load"),
            ({"profile": "nothing"}, "there is no profile"),
        ],
    )
    def test_with_a_way_out(self, change: dict[str, Any], sentence: str) -> None:
        with pytest.raises(PlanError, match=sentence) as error:
            campaign_of(replace(REQUEST, **change))
        assert error.value.hint

    def test_a_search_is_told_from_a_run_with_a_load(self) -> None:
        search = build_plan(campaign_of(REQUEST), Capabilities(), load_profile("open-load"))
        assert searched_capacity(search.as_json())
        request = Request(paths=("raw/none",), load=100, guests=("1", "2"))
        run = build_plan(request, Capabilities(), load_profile("open-load"))
        assert not searched_capacity(run.as_json())

    def test_thin_images_if_asked_for(self) -> None:
        request = replace(REQUEST, paths=("qcow2:preallocation=off/none",), thin=True)
        assert campaign_of(request).guests == ("1", "2", "3", "4")

    def test_more_guests_than_memory_end_the_search_earlier(self) -> None:
        request = replace(REQUEST, most=999, guest_memory=1 << 30)
        alone = len(campaign_of(request).guests)
        assert 1 <= alone < 999
        other_guests = replace(request, paths=("raw/none", "raw/none/ide"))
        same_guests = replace(request, paths=("raw/none", "qcow2/none"))
        assert len(campaign_of(other_guests).guests) == alone // 2
        assert len(campaign_of(same_guests).guests) == alone
