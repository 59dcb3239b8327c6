"""What continues: the same command its campaign, and a run that was measured while the database is
busy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.analysis.made import START, _run
from tests.unit.results.values import a_campaign, a_run
from tests.unit.stored import stored
from vdisklab.actions import measure as measuring
from vdisklab.actions import planning
from vdisklab.actions.measure import (
    Measured,
    _alone,
    _campaign,
    asked_for,
    measure,
    measure_in_turns,
    store_with_retry,
    unchanged_campaign,
)
from vdisklab.actions.planning import begun_plan, make_plan, possible_draft, possible_plan
from vdisklab.answers.begun import host_changes
from vdisklab.campaign import context, runner
from vdisklab.campaign.runner import RunTag
from vdisklab.cli.shell.main import main
from vdisklab.cli.shell.run_campaigns import _print_end as print_end
from vdisklab.errors import (
    EXIT_CELLS_FAILED,
    EXIT_INTERRUPTED,
    DatabaseBusyError,
    DatabaseError,
    DirtyHostError,
    HostError,
    LeftOnTargetError,
)
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.host.ledger import open_ledger
from vdisklab.path.named_target import parse_target
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities, Missing
from vdisklab.plan.settings import Request
from vdisklab.progress import Event, Note
from vdisklab.results.model import WITHOUT_FLUSHES, Failure, FailureKind, HostFacts, Run
from vdisklab.results.store import Store, open_store
from vdisklab.value import replace
from vdisklab.workload.profile_files import load_profile

RUN = a_run(a_campaign())


def test_a_version_that_a_busy_machine_did_not_say_is_no_change() -> None:
    host = a_campaign().host
    assert host_changes(host, replace(host, fio=None)) == []
    assert host_changes(replace(host, fio=None), host) == []
    assert host_changes(host, replace(host, fio="fio-9")) == ["fio was fio-3.33 and is now fio-9"]
    unsafe = replace(host, more={WITHOUT_FLUSHES: "xfs is mounted with nobarrier"})
    assert host_changes(host, unsafe) == ["xfs is mounted with nobarrier"]
    assert host_changes(unsafe, host) == [
        "flushes reach the disk again (before: xfs is mounted with nobarrier)"
    ]


ABLE = Capabilities()
WITHOUT_EXT4 = Capabilities(stacks={"ext4": Missing("mkfs.ext4 gave no answer", "wait")})
WITHOUT_O_DIRECT = Capabilities(direct_io={"": False, "xfs": False})
PROBES = {"able": ABLE, "no ext4": WITHOUT_EXT4, "no O_DIRECT": WITHOUT_O_DIRECT}
PATHS = ("ext4/host", "{,xfs/}raw/{none,writeback}")


@cache
def facts_here() -> HostFacts:
    """The facts of this host, whose programs are asked once."""
    return collect_facts(LocalHost())


def planned(
    store: Store,
    request: Request,
    capabilities: Capabilities,
    patch: pytest.MonkeyPatch,
    *,
    new: bool = False,
) -> CampaignPlan:
    """The plan of a command on a day when the probes say this, with its campaign in the store."""
    patch.setattr(planning, "survey", lambda *_args, **_options: capabilities)
    host, said = LocalHost(), list[Event]()
    with open_ledger() as ledger:
        possible = possible_draft(host, request)
        facts = facts_here()
        begun = None if new else begun_plan(store, facts, possible.plan)
        plan = make_plan(host, ledger, possible, said.append, begun=begun).plan
    _campaign(store, plan, facts, said.append, new=new)
    return plan


@pytest.mark.parametrize("today", PROBES)
@pytest.mark.parametrize("first", PROBES)
@pytest.mark.parametrize("seed", [None, 7])
def test_a_campaign_is_continued_whatever_a_probe_says_today(
    first: str, today: str, seed: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(paths=PATHS, directory=tmp_path, seed=seed)
    with open_store(str(tmp_path / "db.sqlite")) as store:
        plan = planned(store, request, PROBES[first], monkeypatch)
        again = planned(store, replace(request, rounds=9), PROBES[today], monkeypatch)
        assert again.as_json() == plan.as_json()
        (campaign,) = store.campaigns()
        assert unchanged_campaign(store, possible_plan(LocalHost(), request)) == campaign
        dropped = {each.path for each in plan.dropped}
        assert bool(dropped) == (first != "able")
        assert dropped <= {each.path for each in again.dropped}
        other = replace(request, paths=(*PATHS, "qcow2/writeback"))
        assert planned(store, other, PROBES[today], monkeypatch).fingerprint != plan.fingerprint
        planned(store, request, PROBES[today], monkeypatch, new=True)
        assert len(store.campaigns()) == 3


def test_a_campaign_goes_on_with_the_reasons_why_paths_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(paths=PATHS, directory=tmp_path)
    with open_store(str(tmp_path / "db.sqlite")) as store:
        planned(store, request, WITHOUT_EXT4, monkeypatch)
        again = planned(store, request, ABLE, monkeypatch)
        (campaign,) = store.campaigns()
        lacking = "host layer ext4 is not available on this host: mkfs.ext4 gave no answer"
        assert campaign.plan["left_out"] == {"ext4/host": lacking}
        (dropped,) = again.dropped
        assert dropped.reason == f"{lacking} (when the campaign began)"
        assert dropped.instead == "add --new to try it again"
        without = {key: value for key, value in campaign.plan.items() if key != "left_out"}
        (older,) = possible_plan(LocalHost(), request).as_begun(without).dropped
        assert older.reason == "this host could not measure it when the campaign began"


def test_a_host_that_has_changed_is_probed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(paths=PATHS, directory=tmp_path)
    with open_store(str(tmp_path / "db.sqlite")) as store:
        planned(store, request, WITHOUT_EXT4, monkeypatch)
        facts = replace(collect_facts(LocalHost()), kernel="another")
        assert begun_plan(store, facts, possible_plan(LocalHost(), request)) is None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


class BusyStore(Store):
    """Refuses so many times, then takes the run."""

    def __init__(self, refusals: int, error: DatabaseError) -> None:
        self.left, self.error = refusals, error
        self.stored: list[Run] = []

    def add_run(self, run: Run, /) -> None:
        if self.left:
            self.left -= 1
            raise self.error
        self.stored.append(run)


BUSY = DatabaseBusyError("the database x is locked by another program", hint="wait")


def test_a_lock_that_passes_costs_nothing_and_is_told_once() -> None:
    store, said = BusyStore(3, BUSY), list[Event]()
    store_with_retry(store, RUN, said.append, Clock())
    assert store.stored == [RUN]
    (note,) = said
    assert isinstance(note, Note)
    assert "x is locked by another program; retrying for 15 min 00 s: wait" in note.text


def test_a_lock_that_stays_ends_it_within_its_time() -> None:
    clock = Clock()
    with pytest.raises(DatabaseBusyError):
        store_with_retry(BusyStore(10**6, BUSY), RUN, lambda _event: None, clock)
    assert 900 <= clock.now < 1000


def test_what_will_not_pass_is_told_at_once() -> None:
    clock = Clock()
    with pytest.raises(DatabaseError, match="damaged"):
        store_with_retry(BusyStore(1, DatabaseError("damaged")), RUN, lambda _event: None, clock)
    assert clock.now == 0


def test_a_plan_that_is_being_measured_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path))
    plan, other = (
        build_plan(Request(paths=(path,)), Capabilities(), load_profile("short"))
        for path in ("raw/none", "qcow2/none")
    )
    facts = collect_facts(LocalHost())
    campaign = replace(a_campaign(), fingerprint=plan.fingerprint, host=facts)
    with stored((), campaigns=[campaign]) as store, _alone(store, plan):
        with _alone(store, other):
            pass
        said = rf"already, by process {os.getpid()} \(campaign {campaign.id}\)"
        with pytest.raises(HostError, match=said), _alone(store, plan):
            pass
    with stored(()) as store, _alone(store, plan):  # the first has ended
        pass


def test_a_server_that_is_back_is_tried_again_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = (parse_target("shelf=nbd://127.0.0.1:1/disk"),)
    request = Request(paths=("raw/none", "shelf/raw/none"), directory=tmp_path, target=targets)
    gone = {"nbd:at=shelf": Missing("it does not answer", "start it")}
    with open_store(str(tmp_path / "db.sqlite")) as store:
        first = planned(store, request, Capabilities(stacks=gone), monkeypatch)
        assert [row.path for row in asked_for(first)] == ["nbd:at=shelf/raw/none"]
        gone = {"nbd:at=shelf": Missing("it still does not answer", "start it")}
        still = planned(store, request, Capabilities(stacks=gone), monkeypatch)
        assert still.as_json() == first.as_json()
        assert [row.reason for row in asked_for(still)] == ["it still does not answer"]
        back = planned(store, request, ABLE, monkeypatch)
        assert not asked_for(back)
        assert "nbd:at=shelf/raw/none" in {str(cell.path) for cell in back.cells}
        assert len(store.campaigns()) == 2
        again = planned(store, request, Capabilities(stacks=gone), monkeypatch)
        assert again.as_json() == back.as_json()


def test_what_nobody_asked_for_is_not_missing(tmp_path: Path) -> None:
    request = Request(paths=("zfs/raw/none", "raw/none"), directory=tmp_path)
    plan = build_plan(request, Capabilities(), load_profile("short"))
    assert not asked_for(plan)
    request = Request(paths=("raw/writeback/virtio:aio=native", "raw/none"), directory=tmp_path)
    plan = build_plan(request, Capabilities(), load_profile("short"))
    (missing,) = asked_for(plan)
    assert missing.path == "raw/writeback/virtio:aio=native"


@pytest.mark.parametrize("runs", [0, 2])
def test_what_stays_is_said_after_the_answer_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    error = DirtyHostError("nbd://far/ is left as it is")

    def measured(*_: object, **__: object) -> Iterator[Measured]:
        yield Measured("c0ffee", runs)
        raise error

    monkeypatch.setattr(planning, "survey", lambda *_args, **_options: ABLE)
    monkeypatch.setattr(measuring, "_measure_plan", measured)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    request, said = Request(paths=("raw/none",), directory=tmp_path), list[Event]()
    with open_store(str(tmp_path / "db.sqlite")) as store:
        with pytest.raises(DirtyHostError):
            measure(store, request, said.append)
        left: list[DirtyHostError] = []
        if not runs:
            with pytest.raises(DirtyHostError):
                measure(store, request, said.append, left=left)
            return
        assert measure(store, request, said.append, left=left).campaign == "c0ffee"
        (turn,) = measure_in_turns(store, [request], said.append, left=left)
        assert (turn.campaign, left) == ("c0ffee", [error, error])


def test_an_interrupt_is_one_also_if_a_server_that_is_gone_keeps_what_lies_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 130, as after any Ctrl-C: this host is clean, and the same command continues."""
    error = LeftOnTargetError("nbd://far/ is left as it is", hint="run `vdisklab clean`")

    def refuse() -> None:
        try:
            raise HostError("connection refused")
        except HostError as refused:
            raise kind from refused

    @contextmanager
    def opened(*_: object) -> Iterator[None]:
        with ExitStack() as removal:
            removal.callback(refuse)
            yield

    def interrupted(*_: object) -> Iterator[Run]:
        yield from ()
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, "survey", lambda *_args, **_options: ABLE)
    monkeypatch.setattr(context, "open_campaign", opened)
    monkeypatch.setattr(runner, "campaign_runs", interrupted)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    # A campaign of a made-up id has no answer.
    monkeypatch.setattr("vdisklab.cli.shell.measured_campaigns.print_measured", lambda *_: None)
    dirty = DirtyHostError("/mnt/x is still mounted")
    for kind, status in ((error, EXIT_INTERRUPTED), (dirty, DirtyHostError.exit_code)):
        left: list[DirtyHostError] = []
        with open_store(str(tmp_path / "db.sqlite")) as store:
            request = Request(paths=("raw/none",), directory=tmp_path)
            assert measure(store, request, lambda _: None, left=left).interrupted
        assert left == [kind]
        arguments = ["run", "raw/none", "--dir", str(tmp_path), "--db", str(tmp_path / "db.sqlite")]
        assert main([*arguments, "--rounds", "1"]) == status
        said = " ".join(capsys.readouterr().err.split())
        assert f"{kind}" in said


def test_a_failed_run_is_not_one_of_those_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`42 runs kept`, and below it `Measured 2 of 2 paths in 41 runs`."""

    def interrupted(_: object, tag: RunTag, *__: object) -> Iterator[Run]:
        for round in (1, 2, 3):
            run = _run(tag.campaign, "raw/none", "bypassed", round, 1, START, 1.0)
            failure = Failure(FailureKind.GUEST, "no guest") if round == 2 else None
            yield run if failure is None else replace(run, failure=failure, measurements=())
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, "survey", lambda *_args, **_options: ABLE)
    monkeypatch.setattr(context, "open_campaign", lambda *_: nullcontext())
    monkeypatch.setattr(runner, "campaign_runs", interrupted)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    with open_store(str(tmp_path / "db.sqlite")) as store:
        request = Request(paths=("raw/none",), directory=tmp_path)
        found = measure(store, request, lambda _: None)
        assert found.campaign is not None
        assert (found.runs, found.failed) == (len(store.finished(found.campaign)), 1) == (2, 1)
    print_end(Console(stderr=True, width=500), [found], [])
    assert "interrupted: 2 runs kept; " in capsys.readouterr().err


@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize("kind", [LeftOnTargetError, DirtyHostError])
def test_a_path_whose_server_went_away_is_one_that_was_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[DirtyHostError], failed: int
) -> None:
    """Exit status 8: this host is clean. What stays on this host, or after a whole campaign, is
    status 4."""

    def measured(*_: object, left: list[DirtyHostError], **__: object) -> Measured:
        left.append(kind("nbd://far/ is left as it is", hint="run `vdisklab clean`"))
        return Measured("c0ffee", 3, failed)

    monkeypatch.setattr("vdisklab.cli.shell.run_campaigns.measure", measured)
    monkeypatch.setattr("vdisklab.cli.shell.measured_campaigns.print_measured", lambda *_: None)
    arguments = ["run", "raw/none", "--dir", str(tmp_path), "--db", str(tmp_path / "db.sqlite")]
    not_measured = kind is LeftOnTargetError and failed
    assert main(arguments) == (EXIT_CELLS_FAILED if not_measured else DirtyHostError.exit_code)
