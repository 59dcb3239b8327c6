"""What a neighbour does to a guest, from stored runs; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.unit.analysis.made import under
from tests.unit.cli.test_widths import require_whole
from tests.unit.results.values import BROKEN, a_campaign, a_measurement, a_run
from vdisklab.actions.guest_capacity import neighbour_campaign
from vdisklab.actions.measure import Measured
from vdisklab.analysis.diagnostics.caveats import UNDER_EMULATED_KVM
from vdisklab.answers.density import NeighbourAnswer, NeighbourEffect, neighbour_answer
from vdisklab.cli.density import exit_status
from vdisklab.documents import as_csv, document, schemas
from vdisklab.errors import EXIT_CELLS_FAILED, PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.density_request import DensityRequest
from vdisklab.results.model import (
    Evidence,
    GuestGroup,
    HostLoad,
    IoCounters,
    Member,
    Origin,
    RanUnder,
)
from vdisklab.results.store import Store, open_store
from vdisklab.value import replace
from vdisklab.views.density import neighbour_tables
from vdisklab.workload.profile_files import load_profile

REQUEST = DensityRequest(paths=("raw/none",), victim="quiet-db", neighbour="bulk-write")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/n.sqlite") as opened:
        yield opened


def test_the_ratio_is_paired_within_rounds(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    for round, slow in enumerate((1.0, 2.0, 4.0, 8.0), 1):  # drift that both have
        for guests, p99 in ((1, 0.001 * slow), (2, 0.003 * slow * (1 + 0.01 * round))):
            members = tuple(
                Member(number, 0.0, 50.0, p99 / 2, p99 / 2, p99 / number, p99, None, 500)
                for number in range(1, guests + 1)
            )
            group = GuestGroup(10.0, members, HostLoad(cpu=0.4, device=0.99))
            path = f"raw/none/virtio:guests={guests}"
            run = a_run(
                campaign, path=path, cell=MeasuredCell(path).fingerprint, round=round,
                measurements=(a_measurement(group=group),),
            )  # fmt: skip
            store.add_run(run)
    store.add_run(a_run(campaign, path="x", cell="x", failure=BROKEN, measurements=()))
    answer = neighbour_answer(store, campaign.id, "quiet-db", "bulk-write")
    first, other = answer.paths
    assert first.path == "raw/none"
    assert first.ratio.pairs == 4
    assert first.ratio.ratio == pytest.approx(3.07, abs=0.02)
    assert first.ratio.low is not None
    assert first.ratio.low > 2.5
    assert other.ratio.ratio is None
    tables, found = list(neighbour_tables(answer)), document(answer)
    require_whole(tables, found)
    jsonschema.Draft202012Validator(schemas([NeighbourAnswer])[NeighbourAnswer.FORMAT]).validate(
        found
    )
    assert "raw/none,0.003" in as_csv(answer.paths, NeighbourEffect)
    assert found["paths"][1]["failure"]


def test_a_failure_that_was_measured_again_is_none(store: Store) -> None:
    """The same command measures a failed run again, and then all paths have their answer."""
    campaign = a_campaign()
    store.add_campaign(campaign)
    cells = {guests: MeasuredCell(f"raw/none/virtio:guests={guests}") for guests in (1, 2)}
    for guests, cell in cells.items():
        failed = a_run(
            campaign, path=cell.name, cell=cell.fingerprint, failure=BROKEN, measurements=()
        )
        store.add_run(failed)
        before = neighbour_answer(store, campaign.id, "quiet-db", "bulk-write")
        assert exit_status(Measured(campaign.id), None, before) == EXIT_CELLS_FAILED
        members = tuple(
            Member(number, 0.0, 50.0, 0.001, 0.001, 0.001, 0.001, None, 500)
            for number in range(1, guests + 1)
        )
        measured = a_measurement(group=GuestGroup(10.0, members, HostLoad(cpu=0.4)))
        store.add_run(
            a_run(campaign, path=cell.name, cell=cell.fingerprint, measurements=(measured,))
        )
    answer = neighbour_answer(store, campaign.id, "quiet-db", "bulk-write")
    assert answer.paths[0].failure is None
    assert answer.paths[0].ratio.pairs == 1
    assert exit_status(Measured(campaign.id), None, answer) == 0


@pytest.mark.parametrize(
    ("state", "reached", "share"),
    [("cold", 10, 0.1), ("cold", 90, 0.9), ("cold", 120, 1.0), ("bypassed", 10, None)],
)
def test_what_stayed_in_memory_is_told(
    store: Store, state: str, reached: int, share: float | None
) -> None:
    """Guests whose writes went to the host's memory say nothing of their disk."""
    campaign = a_campaign()
    store.add_campaign(campaign)
    for round in (1, 2):
        for guests in (1, 2):
            members = tuple(
                Member(number, 0.0, 50.0, 0.001, 0.001, 0.001, 0.001, None, 500)
                for number in range(1, guests + 1)
            )
            evidence = Evidence(guest=IoCounters(0, 100, 0, 1), device=IoCounters(0, reached, 0, 1))
            measured = a_measurement(
                group=GuestGroup(10.0, members, HostLoad(cpu=0.95)), evidence=evidence
            )
            cell = MeasuredCell(f"raw/writeback/virtio:guests={guests}", PageCache(state))
            run = a_run(
                campaign, path=cell.name, page_cache=cell.page_cache, cell=cell.fingerprint,
                round=round, measurements=(measured,),
            )  # fmt: skip
            store.add_run(run)
    answer = neighbour_answer(store, campaign.id, "quiet-db", "bulk-write")
    (path,) = answer.paths
    assert path.on_device == share
    said = " ".join(note for table in neighbour_tables(answer) for note in table.notes)
    assert ("only 10 % of what the guests wrote had reached the disk" in said) is (share == 0.1)


def test_two_accelerators_have_no_answer(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    for number, ran_under in enumerate(
        (RanUnder(Accelerator.KVM), RanUnder(Accelerator.KVM, emulated=True)), 1
    ):
        store.add_run(under(ran_under, a_run(campaign, round=number)))
    with pytest.raises(PlanError, match="never ranked together"):
        neighbour_answer(store, campaign.id, "quiet-db", "bulk-write")


def test_kvm_in_an_emulated_host_is_not_called_emulation(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    store.add_run(replace(a_run(campaign), accelerator="kvm", emulated=True, origin=Origin.LAB))
    answer = neighbour_answer(store, campaign.id, "quiet-db", "bulk-write")
    caveats = document(answer)["caveats"]
    assert caveats == {
        "accelerator": "kvm",
        "emulated": True,
        "emulated_host": True,
        "lab": True,
        "guest_arch": None,
        "only_of": None,
    }
    (table,) = neighbour_tables(answer)
    assert f"Measured {UNDER_EMULATED_KVM}." in table.notes


def test_only_the_victim_keeps_its_profile() -> None:
    profile = load_profile("quiet-db").beside(load_profile("bulk-write"))
    plan = build_plan(neighbour_campaign(REQUEST), Capabilities(), profile)
    assert [cell.path.attachment.guests for cell in plan.cells] == [1, 2]
    (measured,) = plan.profile.measurements
    assert measured.neighbour is not None
    assert measured.neighbour.settings["rw"] == "write"
    assert plan.as_json()["measurements"][0]["neighbour"]["bs"] == "1M"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"load": 5}, "--load has no effect"),
        ({"guests": ("2",), "profile": "quick"}, "--guests and --profile have no effect"),
        ({"until": "latency_p99<=5ms"}, "--until has no effect"),
        ({"most": 3}, "--most has no effect"),
        ({"paths": ("host",)}, "gives no guest a disk"),
        ({"victim": "nothing"}, "there is no profile"),
        ({"neighbour": "nothing"}, "there is no profile"),
    ],
)
def test_refused_with_a_way_out(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence) as error:
        neighbour_campaign(replace(REQUEST, **change))
    assert error.value.hint
