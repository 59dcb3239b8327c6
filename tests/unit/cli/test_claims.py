from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
import typer

from tests.unit.analysis.made import CAMPAIGN, HOST, campaign_runs
from tests.unit.cli.test_answers import document, golden
from tests.unit.stored import Database
from vdisklab.actions import missing_claims
from vdisklab.actions.measure import Measured
from vdisklab.actions.missing_claims import whole_claims
from vdisklab.analysis import claimfile
from vdisklab.analysis.claimfile import parse_claims
from vdisklab.answers.missing_cells import MissingCells, request_for, run_command
from vdisklab.cli.claims import claims
from vdisklab.cli.shell.caller import retyped
from vdisklab.errors import (
    EXIT_CLAIM_FAILS,
    EXIT_CLAIM_OPEN,
    EXIT_INTERRUPTED,
    HostError,
    PlanError,
)
from vdisklab.path.cell import PageCacheChoice
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import Profile
from vdisklab.plan.settings import Request
from vdisklab.results.model import Run
from vdisklab.value import replace

MINE = """
article = "mine"
title = "my host"

[[claim]]
name = "slower"
sentence = "raw/none is slower than the host."
left = ["raw/none"]
right = ["host"]
measures = ["randread-4k-q1/read/iops"]
high = 0.9
absolute = false

[[claim]]
name = "directsync"
sentence = "directsync is as fast as none."
left = ["qcow2/directsync"]
right = ["raw/none"]
measures = ["randwrite-4k-q1/write/iops"]
low = 0.9
high = 1.1

[[claim]]
name = "absolute"
sentence = "raw/none is slower than the host."
left = ["raw/none"]
right = ["host"]
measures = ["seqread-1m-q1/read/bandwidth"]
high = 0.9
absolute = true
"""


@pytest.fixture
def call(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs the verb on the made-up campaign: exit status and what is printed."""
    del database
    monkeypatch.setenv("COLUMNS", "120")
    app = typer.Typer()
    app.command()(claims)
    command = typer.main.get_command(app)

    def run(*arguments: str) -> tuple[int, str]:
        status: object = command.main(args=list(arguments), standalone_mode=False)
        assert isinstance(status, int)
        return status, capsys.readouterr().out

    return run


@pytest.fixture
def mine(tmp_path: Path) -> str:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    return str(file)


Call = Callable[..., tuple[int, str]]


def test_the_articles_on_a_database_that_holds_little(call: Call) -> None:
    status, text = call("--format", "json")
    found = document(text, "claims")
    assert status == EXIT_CLAIM_OPEN
    assert len(found["claims"]) >= 30
    lacking = [each for each in found["claims"] if each["status"] == "not-measured"]
    assert all(each["command"].startswith("vdisklab run ") for each in lacking)
    assert "--size 256M" in lacking[0]["command"]  # as in the campaign it will be joined with


def test_my_claims_on_a_terminal(call: Call, mine: str) -> None:
    status, text = call("--file", mine)
    assert status == EXIT_CLAIM_FAILS
    golden("claims.txt", text)


def test_junit_has_one_case_for_each_claim(call: Call, mine: str, tmp_path: Path) -> None:
    call("--file", mine, "--junit", str(tmp_path / "out.xml"))
    (suite,) = Xml.parse(tmp_path / "out.xml").getroot()  # noqa: S314 - we wrote it
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    outcome = {
        case.get("name"): [child.tag for child in case] for case in suite if case.tag == "testcase"
    }
    assert outcome == {
        "slower": ["system-out"],
        "directsync": ["failure"],
        "absolute": ["skipped"],
    }


def test_a_command_in_junit_runs_as_it_stands(
    call: Call, mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    missing = MINE.replace("qcow2/directsync", "qcow2/directsync/scsi")
    Path(mine).write_text(missing)
    monkeypatch.setattr("sys.argv", [".venv/bin/vdisklab", "claims", "--file", mine])
    call("--file", mine, "--db", database.url, "--junit", str(tmp_path / "out.xml"))
    (skipped,) = (
        each.get("message") or ""
        for each in Xml.parse(tmp_path / "out.xml").getroot().iter("skipped")  # noqa: S314 - ours
        if "not measured" in (each.get("message") or "")
    )
    assert "`.venv/bin/vdisklab run " in skipped
    assert "vdisklab" not in skipped.replace(".venv/bin/vdisklab", "").replace(database.url, "")


def test_what_would_be_void_under_emulation_is_said_to_need_kvm_first(
    call: Call, mine: str, tmp_path: Path
) -> None:
    """The command for a claim about a value was printed below a campaign of TCG, without a word."""
    Path(mine).write_text(MINE.replace('left = ["raw/none"]', 'left = ["raw/none/scsi"]'))
    file = tmp_path / "out.xml"
    printed = " ".join(call("--file", mine, "--only", "absolute", "--junit", str(file))[1].split())
    assert "needs KVM first" in printed
    (skipped,) = Xml.parse(file).getroot().iter("skipped")  # noqa: S314 - we wrote it
    needs = "not measured (needs KVM first: void under emulation): `vdisklab run "
    assert (skipped.get("message") or "").startswith(needs)
    assert " --accelerator kvm " in (skipped.get("message") or "")
    assert "--accelerator kvm" in printed
    assert "--accelerator tcg" not in printed, "it could only be void"
    printed = call("--file", mine, "--only", "slower")[1]
    assert "not measured" in printed
    assert "needs KVM" not in printed, "no absolute claim"


def test_a_value_has_its_unit_everywhere(call: Call, mine: str, tmp_path: Path) -> None:
    old = 'right = ["raw/none"]\nmeasures = ["randwrite-4k-q1/write/iops"]\nlow = 0.9\nhigh = 1.1'
    new = 'measures = ["randwrite-4k-q1/write/iops"]\nlow = 1e7\nof_value = true\nabsolute = false'
    assert old in MINE
    Path(mine).write_text(MINE.replace(old, new))
    said = call("--file", mine, "--only", "directsync", "--junit", str(tmp_path / "out.xml"))[1]
    assert "> 10.0M IOPS" in said
    (failure,) = Xml.parse(tmp_path / "out.xml").getroot().iter("failure")  # noqa: S314 - we wrote it
    message = failure.get("message") or ""
    assert "; stated is > 10.0M IOPS. Measured under emulation (TCG)" in message
    assert "×" not in message


def test_what_holds_for_all_cases_is_said_once(call: Call, mine: str, tmp_path: Path) -> None:
    """A case is a line on a CI system's page; the way to KVM is a paragraph."""
    file = tmp_path / "out.xml"
    call("--file", mine, "--junit", str(file))
    assert file.read_text().count("vdisklab doctor") == 1
    (suite,) = Xml.parse(file).getroot()  # noqa: S314 - we wrote it
    *cases, whole = suite
    assert whole.tag == "system-out"
    assert (whole.text or "").startswith("Measured under emulation (TCG): good for")
    outcomes = [outcome for case in cases for outcome in case]
    assert len(outcomes) == 3
    for outcome in outcomes:
        said = outcome.get("message") or outcome.text or ""
        assert said.rstrip(".").endswith("Measured under emulation (TCG)")


def test_all_hold(call: Call, mine: str) -> None:
    assert call("--file", mine, "--only", "slower")[0] == 0
    assert call("--file", mine, "--only", "absolute")[0] == EXIT_CLAIM_OPEN


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("randread-4k-q1/read/iops", "randread-9k/read/iops", "no measurement 'randread-9k'"),
        ('name = "slower"', 'name = "slower"\nprofile = "quik"', "key 'profile' of claim 'slower'"),
        ("q1/read/iops", "q1/write/iops", "randread-4k-q1 of the profile quick does read only"),
    ],
)
def test_measures_must_be_the_profiles(
    call: Call, mine: str, before: str, after: str, message: str
) -> None:
    Path(mine).write_text(MINE.replace(before, after, 1))
    with pytest.raises(PlanError, match=message):
        call("--file", mine)


def test_the_articles_files_pass_as_files_of_ones_own(call: Call) -> None:
    folder = Path(claimfile.__file__).parent / "claims_data"
    files = [part for file in sorted(folder.glob("*.toml")) for part in ("--file", str(file))]
    found = document(call(*files, "--format", "json")[1], "claims")
    assert len(found["claims"]) >= 46


def test_what_cannot_be_read(call: Call, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        call("--file", str(tmp_path / "missing.toml"))
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(PlanError, match="not UTF-8"):
        call("--file", str(tmp_path / "x.toml"))
    with pytest.raises(PlanError, match="cannot be read: Is a directory"):
        call("--file", str(tmp_path))
    with pytest.raises(PlanError, match="is larger than"):
        call("--file", "/dev/zero")
    with pytest.raises(PlanError, match="no article or claim 'salter'"):
        call("--only", "salter")


def test_other_machines_are_left_out_and_named(call: Call, mine: str, database: Database) -> None:
    host = replace(CAMPAIGN.host, machine_id="other", hostname="bench2")
    other = replace(CAMPAIGN, id="beef0002", host=host)
    mine_and_others = [*campaign_runs()]
    mine_and_others += [replace(run, campaign=other.id) for run in mine_and_others]
    database.write(mine_and_others, campaigns=(CAMPAIGN, other))
    found = document(call("--file", mine, "--format", "json")[1], "claims")
    assert len(found["campaigns"]) == 1
    assert found["left_out"] == ["beef0002 (measured on another machine, bench2)"]


class Measuring:
    """Stands for measuring: takes requests, and adds what `bring` makes of each to the database."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, machine: str = HOST.machine_id) -> None:
        self.asked: list[Request] = []
        self.bring: Callable[[Request], str | None] = lambda request: None
        self.interrupted = False
        here = replace(HOST, machine_id=machine)
        monkeypatch.setattr(missing_claims, "measure", self.measure)
        monkeypatch.setattr(missing_claims, "machine_facts", lambda host: here)

    def measure(
        self, _store: object, request: Request, _progress: object, **_more: object
    ) -> Measured:
        self.asked.append(request)
        return Measured(self.bring(request), interrupted=self.interrupted)

    @property
    def paths(self) -> list[tuple[str, ...]]:
        return [request.paths for request in self.asked]


def test_only_what_is_missing_is_measured(
    call: Call, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring = Measuring(monkeypatch)
    call("--file", mine, "--run")
    assert measuring.asked == []
    Path(mine).write_text(MINE.replace("qcow2/directsync", "vdi/directsync"))
    call("--file", mine, "--run", "--rounds", "3")
    assert measuring.paths == [("vdi/directsync", "raw/none")]
    (asked,) = measuring.asked
    assert (asked.rounds, asked.size_bytes, asked.runtime) == (3, 1 << 28, 2.0)
    assert asked.label == "for claims: 3 rounds"


def test_a_claim_that_lacks_one_pair_is_measured_whole(
    call: Call, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ratio is taken in rounds that hold all of it; one pair alone would answer nothing."""
    measuring = Measuring(monkeypatch)
    text = MINE.replace('["qcow2/directsync"]', '["{qcow2,vdi}/directsync"]')
    Path(mine).write_text(text)
    call("--file", mine, "--run", "--only", "directsync")
    assert measuring.paths == [("qcow2/directsync", "raw/none", "vdi/directsync")]


def begun(database: Database, runs: Iterable[Run], label: str) -> None:
    """A campaign in the database, of three cells of which some runs are there."""
    plan = {**CAMPAIGN.plan, "cells": ["host", "raw/none", "qcow2/directsync"], "profile": "quick"}
    wanted = {"host", "raw/none", "qcow2/directsync"}
    campaign = replace(CAMPAIGN, label=label, plan=plan)
    database.write((run for run in runs if run.path in wanted), campaigns=(campaign,))


OURS = "for claims: 3 rounds"


@pytest.mark.parametrize(
    ("runs", "label", "rounds", "continues"),
    [
        (campaign_runs(2), OURS, ("--rounds", "3"), True),
        (campaign_runs(2), OURS, (), True),
        (list(campaign_runs(3))[:-2], OURS, ("--rounds", "3"), True),
        (campaign_runs(3), OURS, ("--rounds", "3"), False),
        (campaign_runs(3), OURS, (), False),
        (campaign_runs(3), OURS, ("--rounds", "4"), True),
        (campaign_runs(2), "the user's own", ("--rounds", "3"), False),
    ],
)
def test_the_same_command_continues_what_it_began(
    call: Call,
    mine: str,
    monkeypatch: pytest.MonkeyPatch,
    database: Database,
    runs: Iterable[Run],
    label: str,
    rounds: tuple[str, ...],
    continues: bool,
) -> None:
    """Results that our own unfinished campaign already has do not stop it from being finished."""
    begun(database, runs, label)
    measuring = Measuring(monkeypatch)
    call("--file", mine, "--run", *rounds)
    expected = [("raw/none", "host", "qcow2/directsync")] if continues else []
    assert measuring.paths == expected


def test_an_interruption_ends_it_with_the_answer_so_far(
    call: Call, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring = Measuring(monkeypatch)
    measuring.interrupted = True
    Path(mine).write_text(MINE.replace("qcow2/directsync", "vdi/directsync"))
    status, text = call("--file", mine, "--run", "--format", "json")
    assert status == EXIT_INTERRUPTED
    counts = document(text, "claims")["counts"]
    assert counts == {"holds": 1, "not-measured": 1, "void": 1}


def test_what_was_measured_stands_beside_the_named_campaign(
    call: Call, mine: str, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    measuring = Measuring(monkeypatch)
    Path(mine).write_text(MINE.replace("qcow2/directsync", "vdi/directsync"))

    def bring(request: Request) -> str:
        new = replace(CAMPAIGN, id="beef0002", label=request.label or "")
        with database.open() as store:
            store.add_campaign(new)
        runs = []
        for run in campaign_runs(campaign=new.id, seed=9):
            path = run.path.replace("qcow2/directsync", "vdi/directsync")
            cell = f"{path}|{run.page_cache}"
            runs.append(replace(run, id=f"2{run.id}", path=path, cell=cell))
        database.add(runs)
        return new.id

    measuring.bring = bring
    status, text = call(
        "--file", mine, "--run", "--campaign", "c0ffee", "--rounds", "4", "--format", "json"
    )
    found = document(text, "claims")
    assert [each["id"] for each in found["campaigns"]] == ["c0ffee01", "beef0002"]
    assert found["counts"] == {"holds": 1, "fails": 1, "void": 1}
    assert status == EXIT_CLAIM_FAILS


def test_what_another_machine_measured_does_not_count(
    call: Call, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring = Measuring(monkeypatch, machine="another")
    call("--file", mine, "--run", "--only", "slower")
    assert measuring.paths == [("raw/none", "host")]
    assert measuring.asked[0].size_bytes is None  # nor is it measured as there
    with pytest.raises(PlanError, match=r"c0ffee01 was measured on another machine \(bench1\)"):
        call("--file", mine, "--run", "--campaign", "c0ffee01")


def test_what_was_measured_otherwise_than_asked_does_not_count(
    call: Call, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring = Measuring(monkeypatch)
    call("--file", mine, "--run", "--only", "slower", "--size", "256M", "--runtime", "2s")
    assert measuring.asked == []
    call("--file", mine, "--run", "--only", "slower", "--size", "512M")
    assert [request.size_bytes for request in measuring.asked] == [1 << 29]
    with pytest.raises(PlanError, match="measured with another size"):
        call("--file", mine, "--run", "--size", "512M", "--campaign", "c0ffee01")


@pytest.mark.parametrize("verb", ["one round", "only failed", "empty"])
def test_a_database_that_holds_next_to_nothing(
    call: Call, mine: str, database: Database, verb: str
) -> None:
    runs = {
        "one round": [run for run in campaign_runs(rounds=1) if run.failure is None],
        "only failed": [run for run in campaign_runs(rounds=1) if run.failure is not None],
        "empty": [],
    }[verb]
    database.write(runs, campaigns=() if verb == "empty" else (CAMPAIGN,))
    status, text = call("--file", mine, "--format", "json")
    found = document(text, "claims")
    assert status == EXIT_CLAIM_OPEN
    more = {(each["status"], each["more_rounds"]) for each in found["claims"]}
    # What emulation makes void is void after one round, too.
    few = {("inconclusive", 2), ("void", None)}
    assert more == (few if verb == "one round" else {("not-measured", None)})


def test_half_a_claim_is_not_measured(mine: str) -> None:
    claims = parse_claims(
        MINE.replace("qcow2/directsync", "{zfs/qcow2,raw}/directsync"), "m"
    ).claims
    paths = ("raw/none", "host", "raw/directsync")
    asked = Request(paths=paths, directory=Path("/tmp"), baseline="none")  # noqa: S108
    plan = build_plan(asked, Capabilities(), Profile("p", "t", ()))
    assert [cell.label for cell in whole_claims(plan, claims).plan.cells] == ["raw/none", "host"]
    with pytest.raises(HostError, match="this host cannot measure every path of directsync"):
        whole_claims(plan, claims[1:2])


def test_what_is_measured_is_alike_to_what_it_will_stand_beside() -> None:
    guest = {"cpus": 2, "memory_bytes": 1 << 29, "accelerator": "tcg", "kernel": None}
    facts = {"image": "/i.qcow2", "image_state": "1", "firmware": "uefi", "system_bus": "sata"}
    plan = {"size_bytes": 1 << 28, "runtime": 2.0, "ramp": 0.5, "directory": "/srv/images",
            "devices": ["/dev/sdb"], "disks": 4, "arc_bytes": 1 << 30, "scale": 0.1,
            "guest": {**guest, **facts}}  # fmt: skip
    like = replace(CAMPAIGN, plan=plan)
    group = MissingCells("quick", PageCacheChoice.COLD, ("ext4/raw/none",))
    command = run_command(request_for(group, Request(), like))
    assert command == (
        "vdisklab run ext4/raw/none --profile quick --page-cache cold --baseline none --runtime 2 "
        "--ramp 0.5 --scale 0.1 --size 256M --dir /srv/images --on /dev/sdb --disks 4 --arc 1G "
        "--accelerator tcg --guest-cpus 2 --guest-memory 512M --guest /i.qcow2 "
        "--guest-firmware uefi --guest-bus sata"
    )
    asked = Request(directory=Path("/elsewhere"))
    assert request_for(group, asked, like).directory == Path("/elsewhere")
    # A whole device can hold no raw image: this claim is measured in the directory.
    impossible = replace(group, paths=("raw/none",))
    assert request_for(impossible, Request(), like).devices == ()
    open_load = replace(CAMPAIGN, plan={**plan, "load": 100, "neighbour": "bulk-write"})
    request = request_for(group, Request(), open_load)
    assert (request.load, request.neighbour) == (None, None)


def test_the_command_that_measures_is_this_one_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = [
        "--debug",
        "claims",
        "--only",
        "x",
        "--rounds",
        "3",
        "--run",
        "--junit",
        "a.xml",
        "--rounds=4",
    ]
    monkeypatch.setattr("sys.argv", ["/usr/bin/vdisklab", *typed])
    again = partial(retyped, "claims", flags=["--run"], valued=["--rounds"])
    assert again() == "vdisklab claims --only x --junit a.xml"
    monkeypatch.setattr("sys.argv", ["/usr/bin/python3", "x"])
    assert again("mine.xml") == "vdisklab claims mine.xml"


def test_many_claims_that_are_not_measured_are_one_line(call: Call, database: Database) -> None:
    database.write()
    _, said = call()
    line = " claims are not measured: `vdisklab claims --run` measures them, "
    assert line + "`vdisklab claims --why` lists them" in " ".join(said.split())
    assert len(said.splitlines()) < 30
    _, every = call("--why")
    assert "vdisklab run " in every
    rows = [sum("not measured  " in line for line in text.splitlines()) for text in (said, every)]
    assert rows[0] == 0
    assert rows[1] > 10


def test_the_answer_file_is_tried_before_anything_is_measured(
    call: Call, mine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: Database
) -> None:
    database.write((), campaigns=())
    measuring = Measuring(monkeypatch)
    for place in (tmp_path / "no" / "x.xml", tmp_path):
        with pytest.raises(HostError, match="cannot be written"):
            call("--file", mine, "--run", "--junit", str(place))
    assert measuring.asked == []


def test_junit_is_xml_whatever_a_sentence_holds(call: Call, mine: str, tmp_path: Path) -> None:
    sentence = r'<b> & "x" \u0000 \u001b \uFFFF \uFFFE \u2028 é 🖴'
    sentence = sentence.replace('"x"', r"\"x\"")
    Path(mine).write_text(MINE.replace("directsync is as fast as none.", sentence))
    call("--file", mine, "--junit", str(tmp_path / "out.xml"))
    root = Xml.parse(tmp_path / "out.xml").getroot()  # noqa: S314 - we wrote it
    (failure,) = root.iter("failure")
    assert '<b> & "x"' in (failure.text or "")
    assert "é 🖴" in (failure.text or "")


def test_a_claim_counts_once(call: Call, mine: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="claim 'slower' of 'mine' is in "):
        call("--file", mine, "--file", mine)
    other = tmp_path / "other.toml"
    other.write_text(MINE.replace('"mine"', '"theirs"'))
    found = document(call("--file", mine, "--file", str(other), "--format", "json")[1], "claims")
    assert len(found["claims"]) == 6
