"""What no host could measure is refused before anything is tried on this one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.guest.synthetic import write_kernel
from vdisklab.actions.cell_search import Narrowed
from vdisklab.actions.find_best import BestSearch
from vdisklab.actions.planning import make_plan, possible_draft, possible_paths
from vdisklab.answers.plan import answer_plan
from vdisklab.answers.race_plan import as_race
from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import Request
from vdisklab.progress import Event, Note
from vdisklab.units import parse_size
from vdisklab.value import replace
from vdisklab.views.plan import tables
from vdisklab.workload.profile_files import load_profile


def refused(request: Request, said: str) -> list[Event]:
    """Everything that was begun before a request was refused with these words."""
    seen: list[Event] = []
    with open_ledger() as ledger, pytest.raises(PlanError, match=said):
        make_plan(LocalHost(), ledger, possible_draft(LocalHost(), request), seen.append)
    return seen


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"runtime": 0.0}, "runtime is 0"),
        ({"size_bytes": 1 << 20}, "size is 1M"),
        ({"guest_memory": 16 << 20}, "--guest-memory is 16M"),
        ({"baseline": "raw/nonsense"}, "nonsense"),
        ({"profile": "fio-40jobs", "size_bytes": 16 << 20}, "fio-40jobs|too small|needs"),
    ],
)
def test_nothing_is_tried_for_a_plan_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    request = Request(paths=("ext4/raw/none",), directory=tmp_path, **wrong)
    assert refused(request, said) == []


def test_a_named_kernel_without_the_scheduler_is_refused_before_anything_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    request = Request(
        paths=("raw/writeback",), directory=tmp_path, guest_scheduler=("bfq",),
        guest_kernel=str(write_kernel(tmp_path)),
    )  # fmt: skip
    seen: list[Event] = []
    with open_ledger() as ledger, pytest.raises(HostError, match="this guest needs: bfq"):
        make_plan(LocalHost(), ledger, possible_draft(LocalHost(), request), seen.append)
    assert seen == []


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img")
@pytest.mark.parametrize(("profile", "size"), [("boot", "1G"), ("growth-short", "4G")])
def test_what_takes_our_own_guest_is_refused_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, size: str
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    image = tmp_path / "guest.qcow2"
    LocalHost().run("qemu-img", "create", "-q", "-f", "qcow2", image, "1M")
    request = Request(
        paths=("raw/none",), directory=tmp_path, profile=profile, size_bytes=parse_size(size),
        guest_memory=1 << 30, guest_image=image,
    )  # fmt: skip
    assert refused(request, "needs vdisklab's micro guest") == []


@pytest.mark.parametrize(
    ("guests", "at_once", "needed"), [((), 1, 1120), (("1", "4"), 4, 4480), (("8",), 8, 8960)]
)
def test_the_memory_of_all_guests_that_exist_at_a_time(
    guests: tuple[str, ...], at_once: int, needed: int
) -> None:
    request = Request(paths=("raw/none",), directory=Path("/"), guests=guests, baseline="none")
    plan = build_plan(request, Capabilities(), load_profile("open-load"))
    description = answer_plan(plan)
    assert (description.guests, description.guest_bytes) == (at_once, needed << 20)
    (table,) = tables(description)
    notes = [note for note in table.notes if "guests at a time" in note]
    assert len(notes) == (at_once > 1)


def test_a_plan_without_a_guest_needs_no_guests_memory() -> None:
    request = Request(paths=("host",), directory=Path("/"), baseline="none")
    description = answer_plan(build_plan(request, Capabilities(), load_profile("quick")))
    assert (description.guests, description.guest_bytes) == (0, 0)


def test_a_race_says_what_it_usually_takes_and_at_most() -> None:
    paths = ("raw/none", "qcow2/none", "raw/writeback", "raw/unsafe")
    plan = build_plan(Request(paths, directory=Path("/")), Capabilities(), load_profile("quick"))
    planned = answer_plan(as_race(plan, RaceTerms()))
    # warm cells, and a path that loses data, are measured three times; the host in each round
    assert (len(plan.cells), planned.runs) == (7, (3 * 7, 3 * 7 + 57 * (3 + 1)))
    least, usual, most = (
        planned.seconds_at_least, planned.seconds_usually, planned.seconds_estimated,
    )  # fmt: skip
    assert least < usual < (least + most) / 2
    (table,) = tables(planned)
    assert table.title.startswith("7 cells race: 21 to 249 runs, at least ")
    assert ", usually less than " in table.title
    finer = answer_plan(as_race(plan, RaceTerms(margin=0.05)))
    assert finer.seconds_usually == finer.seconds_estimated == most
    within = answer_plan(as_race(plan, RaceTerms(margin=0.025)))
    assert any(" by more than 2.5 % (" in note for note in next(tables(within)).notes)
    fixed = answer_plan(plan)
    assert fixed.seconds_at_least == fixed.seconds_usually == fixed.seconds_estimated


def test_the_paths_of_a_profile_are_enough_for_a_lab_or_a_fleet() -> None:
    possible_paths(Request(profile="encryption"))
    with pytest.raises(PlanError, match="no disk path is given"):
        possible_paths(Request(profile="quick"))
    with pytest.raises(PlanError, match="cannot exist"):
        possible_paths(Request(paths=("ext4/luks/none",), profile="encryption"))


def test_a_plan_that_goes_on_has_its_search_and_what_the_search_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    request = Request(paths=("raw/none", "qcow2/none"), directory=tmp_path)
    seen: list[Event] = []
    search, narrowed = BestSearch(), list[CampaignPlan]()

    def narrow(plan: CampaignPlan) -> Narrowed:
        narrowed.append(plan)
        return Narrowed(plan, search, (Note(f"narrowed {len(narrowed)} times"),))

    possible = possible_draft(LocalHost(), request)
    begun = replace(possible.plan, cells=possible.plan.cells[:2])
    with open_ledger() as ledger:
        planned = make_plan(LocalHost(), ledger, possible, seen.append, narrow=narrow, begun=begun)
    assert narrowed == [begun]
    assert planned == Narrowed(begun, search, (Note("narrowed 1 times"),))
    assert seen == [], "what the plan says is the caller's to report, once"
