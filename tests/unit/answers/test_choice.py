"""The command that races what is tied."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.unit.analysis.made import CAMPAIGN, campaign_runs, cell, observed
from tests.unit.answers.test_one_decision import World
from tests.unit.plan.test_run_request import parsed
from tests.unit.stored import stored
from vdisklab.actions.find_best import make_search
from vdisklab.analysis.observations import MeasureKey
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.choice import Behind, ChoiceVerdict, behind_in
from vdisklab.answers.loading import place_options
from vdisklab.answers.race import contestants
from vdisklab.answers.rank import rank_cells
from vdisklab.answers.recommend import recommend
from vdisklab.answers.tell_apart import race_command
from vdisklab.host.facts import machine_id
from vdisklab.path.braces import expand
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.named_target import parse_target
from vdisklab.path.needs import DURABLE
from vdisklab.path.platforms import NEW_GUEST_DISKS
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.settings import Request
from vdisklab.results.model import Direction
from vdisklab.value import replace
from vdisklab.views.choice import headline
from vdisklab.workload.profile_files import load_profile


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        ({}, ""),
        ({"ramp": 0.5}, "--ramp 0.5"),
        ({"ramp": 0.0}, ""),
        ({"runtime": 5.0}, "--runtime 5"),
        ({"profile": "quick"}, "--profile quick"),
        ({"profile": "quick", "ramp": 0.0}, "--ramp 0"),
        ({"profile": "quick", "ramp": 0.5}, "--profile quick"),
    ],
)
def test_what_differs_from_the_profile_is_named(settings: dict[str, object], printed: str) -> None:
    """Also a value that is nobody's default but the general one, and a zero of the profile's."""
    request = Request(paths=("{raw,qcow2}/none",), directory=Path("/tmp"), **settings)  # type: ignore[arg-type]  # noqa: S108
    plan = build_plan(request, Capabilities(), load_profile(request.profile or "short"))
    campaign = replace(CAMPAIGN, plan=plan.as_json())
    with stored(campaign_runs(3), campaigns=[campaign]) as store:
        found = Analysis.of(store, [CAMPAIGN.id])
        tied = [cell for cell in found.loaded.observations.cells if str(cell) != "host"][:2]
        command = race_command(found, tied)
    assert command is not None
    assert printed in command
    assert ("--ramp" in command) == ("--ramp" in printed)
    assert ("--runtime" in command) == ("--runtime" in printed)


def test_only_the_targets_of_what_is_raced_are_named() -> None:
    """One that has gone away since would hold up the race."""
    targets = [parse_target(f"{name}=nbd://h/{name}") for name in ("near", "far")]
    request = Request(
        paths=("nbd:at={near,far}/raw/none", "raw/none"), target=tuple(targets),
        directory=Path("/tmp"),  # noqa: S108
    )  # fmt: skip
    plan = build_plan(request, Capabilities(), load_profile("short"))
    campaign = replace(CAMPAIGN, plan=plan.as_json())
    with stored(campaign_runs(3), campaigns=[campaign]) as store:
        found = Analysis.of(store, [CAMPAIGN.id])
        raced = [MeasuredCell(path) for path in ("nbd:at=near/raw/none", "raw/none")]
        command = race_command(found, raced)
    assert command is not None
    assert "--target near=nbd://h/near" in command
    assert "far" not in command


def test_many_paths_are_named_with_braces_and_race_in_the_same_order() -> None:
    paths = "{ext4,xfs}/{raw,qcow2}/{none,writeback,directsync}"
    request = Request(paths=(paths,), directory=Path("/tmp"))  # noqa: S108
    plan = build_plan(request, Capabilities(), load_profile("short"))
    campaign = replace(CAMPAIGN, plan=plan.as_json())
    with stored(campaign_runs(3), campaigns=[campaign]) as store:
        found = Analysis.of(store, [CAMPAIGN.id])
        raced = [MeasuredCell(path) for path in expand(paths)]
        command = race_command(found, raced)
        few = race_command(found, raced[:3])
    assert command is not None
    argv = shlex.split(command)[2:]
    named = [word for word in argv[: argv.index("--find")] if "/" in word and word[0] != "/"]
    assert named[:2] == [paths.replace("{ext4,xfs}", place) for place in ("ext4", "xfs")]
    assert [path for word in named for path in expand(word)] == [each.name for each in raced]
    assert few is not None
    assert "{" not in few


DEFAULTS = tuple(str(parse_path(disk.path)) for disk in NEW_GUEST_DISKS.values())


# A race asks the same of each default: a commit tries one of them.
@pytest.mark.parametrize(
    ("default", "race"),
    [
        *((default, None) for default in DEFAULTS),
        (DEFAULTS[0], RaceTerms()),
        *(
            pytest.param(default, RaceTerms(), marks=pytest.mark.nightly)
            for default in DEFAULTS[1:]
        ),
    ],
)
def test_nobody_keeps_a_platforms_default_who_has_a_disk_that_loses_data(
    default: str, race: RaceTerms | None
) -> None:
    """The baseline is what they have, whatever a platform gives and whatever ties."""
    paths = (default, "raw/none/nvme", "raw/directsync", "qcow2/unsafe")
    answers = {}
    for baseline in ("qcow2/unsafe", "host"):
        request = Request(paths=("host", *paths), directory=Path("/tmp"), baseline=baseline)  # noqa: S108
        plan = build_plan(request, Capabilities(), load_profile("short"))
        stored_plan = plan.as_json() | ({} if race is None else {"race": race.as_json()})
        campaign = replace(CAMPAIGN, plan=stored_plan)
        world = World(paths, (1.0,) * 4, (0.4,) * 4, (3,) * 4, seed=3)
        with stored(world.runs(), campaigns=[campaign]) as store:
            found = Analysis.of(store, [CAMPAIGN.id])
            answer = recommend(found, (DURABLE,))
            assert answer.choice == rank_cells(found).choice
            answers[baseline] = answer.choice
    unsafe, host = answers["qcow2/unsafe"], answers["host"]
    assert host.verdict is ChoiceVerdict.KEEP
    assert unsafe.verdict is ChoiceVerdict.SAFER
    assert unsafe.cell == host.cell
    assert unsafe.cell.name == default
    assert unsafe.present[0].cell.name == "qcow2/unsafe"
    assert headline(unsafe) == f"Use {default}: qcow2/unsafe loses flushed data in a power cut"
    assert unsafe.surer is not None
    assert unsafe.surer.command is not None
    assert "--unsafe" not in unsafe.surer.command


@pytest.mark.parametrize(
    ("tied", "baseline", "ends"),
    [
        (("raw/none", "qcow2/none"), "host", "--find best"),
        (("raw/none", "qcow2/none"), "raw/unsafe", "--within 0.1"),
        (("raw/none", "raw/unsafe"), "host", "--find best --unsafe"),
        (("raw/none", "raw/unsafe"), "raw/unsafe", "--find best --unsafe"),
        (("raw/unsafe", "qcow2/unsafe"), "host", "--within 0.1"),
    ],
)
def test_what_loses_data_qualifies_in_a_race_only_if_that_was_asked(
    tied: tuple[str, ...], baseline: str, ends: str
) -> None:
    """The race that is printed measures what it names, and the paths that tie compete in it."""
    paths = tuple(dict.fromkeys((*tied, baseline)))
    request = Request(paths=paths, directory=Path("/tmp"), baseline=baseline)  # noqa: S108
    plan = build_plan(request, Capabilities(), load_profile("short"))
    campaign = replace(CAMPAIGN, plan=plan.as_json())
    guests = tuple(path for path in paths if path != "host")
    count = len(guests)
    world = World(guests, (1.0,) * count, (0.4,) * count, (3,) * count, seed=3)
    with stored(world.runs(), campaigns=[campaign]) as store:
        found = Analysis.of(store, [CAMPAIGN.id])
        named = [each for each in found.measured if each.name in tied]
        command = race_command(found, named)
    assert command is not None
    assert command.endswith(ends)
    search = make_search(parsed(*shlex.split(command)[2:]))
    assert search is not None
    kept = search.narrow(plan, CrashVerdicts())
    assert set(kept.plan.cells) == set(plan.cells)
    racing = contestants([each.measured for each in kept.plan.cells], search.terms, CrashVerdicts())
    assert {each.name for each in racing} == set(tied)


def test_an_open_load_is_raced_by_a_latency_alone() -> None:
    """`run` refuses to race by the rates that were set."""
    request = Request(paths=("{raw,qcow2}/none",), directory=Path("/tmp"), profile="open-load")  # noqa: S108
    plan = build_plan(request, Capabilities(), load_profile("open-load"))
    latency = f"{plan.profile.measurements[0].name}/write/latency_p99"
    campaign = replace(CAMPAIGN, plan=plan.as_json())
    with stored(campaign_runs(3), campaigns=[campaign]) as store:
        found = Analysis.of(store, [CAMPAIGN.id])
        raced = [MeasuredCell("raw/none"), MeasuredCell("qcow2/none")]
        assert race_command(found, raced) is None
        command = race_command(found, raced, latency)
    assert command is not None
    assert command.endswith(f"--find best --metric {latency}")


@pytest.mark.parametrize("is_here", [True, False])
def test_a_race_names_the_directory_only_where_it_is(tmp_path: Path, *, is_here: bool) -> None:
    """`run` refuses a directory that is gone, so the printed command ran nowhere."""
    place = tmp_path / "images"
    place.mkdir()
    request = Request(paths=("{raw,qcow2}/none",), directory=place)
    plan = build_plan(request, Capabilities(), load_profile("short"))
    host = replace(CAMPAIGN.host, machine_id=machine_id())
    campaign = replace(CAMPAIGN, plan=plan.as_json(), host=host)
    if not is_here:
        place.rmdir()
    with stored(campaign_runs(3), campaigns=[campaign]) as store:
        found = Analysis.of(store, [CAMPAIGN.id])
        command = race_command(found, [MeasuredCell("raw/none"), MeasuredCell("qcow2/none")])
    assert command is not None
    assert (f"--dir {place}" in command) == is_here
    assert ("--dir" in command) == is_here
    assert (place_options(campaign) != "") == is_here


class TestBehindIn:
    READ = MeasureKey("read", Direction.READ, "bandwidth")
    TIME = MeasureKey("boot", Direction.NONE, "boot_time")
    CELLS = (cell("c00"), cell("c01"))

    def behind(self, read: float, time: float, noise: float = 0.01) -> Behind | None:
        """What is said of c00, if c01 is `read` times as fast and takes `time` times as long."""
        wobble = 1 + noise * np.array([[0.0, 1, -1, 1, -1, 0], [1.0, -1, 0, 0, 1, -1]])
        grids = {self.READ: np.array([[1.0], [read]]) * wobble,
                 self.TIME: np.array([[1.0], [time]]) * wobble}  # fmt: skip
        return behind_in(observed(grids), (self.READ, self.TIME), self.CELLS[0], self.CELLS)

    def test_the_largest_lead_is_named(self) -> None:
        found = self.behind(1.3, 0.5)
        assert found is not None
        assert (found.measure, found.cell) == (self.TIME, self.CELLS[1])
        assert 1.9 < found.least < 2
        found = self.behind(1.3, 1.0)
        assert found is not None
        assert found.measure == self.READ
        assert 1.25 < found.least < 1.3

    @pytest.mark.parametrize(
        ("read", "time", "noise"), [(1.05, 1.0, 0.001), (0.5, 2.0, 0.01), (1.3, 1.0, 0.3)]
    )
    def test_a_small_or_uncertain_lead_is_not(self, read: float, time: float, noise: float) -> None:
        assert self.behind(read, time, noise) is None
