from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
import typer
from analysis.made import CAMPAIGN, campaign_runs

from cli.fake_store import FakeStore, install
from cli.test_answers import document, golden
from vdisklab.analysis.claimfile import parse_claims
from vdisklab.cli import claims as module
from vdisklab.cli.claims import claims
from vdisklab.cli.missing import whole_pairs
from vdisklab.errors import EXIT_CLAIM_FAILS, EXIT_CLAIM_OPEN, HostError, PlanError
from vdisklab.plan.build import build_plan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.profile import Profile
from vdisklab.plan.request import Request

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
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs the verb on the made-up campaign: exit status and what is printed."""
    install(monkeypatch, FakeStore())
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
    outcome = {case.get("name"): [child.tag for child in case] for case in suite}
    assert outcome == {
        "slower": ["system-out"],
        "directsync": ["failure"],
        "absolute": ["skipped"],
    }


def test_all_hold(call: Call, mine: str) -> None:
    assert call("--file", mine, "--only", "slower")[0] == 0
    assert call("--file", mine, "--only", "absolute")[0] == EXIT_CLAIM_OPEN


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("randread-4k-q1/read/iops", "randread-9k/read/iops", "no measurement 'randread-9k'"),
        ('name = "slower"', 'name = "slower"\nprofile = "quik"', "key 'profile' of claim 'slower'"),
    ],
)
def test_measures_must_be_the_profiles(
    call: Call, mine: str, before: str, after: str, message: str
) -> None:
    Path(mine).write_text(MINE.replace(before, after, 1))
    with pytest.raises(PlanError, match=message):
        call("--file", mine)


def test_what_cannot_be_read(call: Call, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        call("--file", str(tmp_path / "missing.toml"))
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(PlanError, match="not UTF-8"):
        call("--file", str(tmp_path / "x.toml"))
    with pytest.raises(PlanError, match="no article or claim 'salter'"):
        call("--only", "salter")


def test_other_machines_are_left_out_and_named(
    call: Call, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = dataclasses.replace(CAMPAIGN.host, machine_id="other", hostname="bench2")
    other = dataclasses.replace(CAMPAIGN, id="beef0002", host=host)
    mine_and_others = [*campaign_runs()]
    mine_and_others += [dataclasses.replace(run, campaign=other.id) for run in mine_and_others]
    install(monkeypatch, FakeStore((CAMPAIGN, other), all_runs=mine_and_others))
    found = document(call("--file", mine, "--format", "json")[1], "claims")
    assert len(found["campaigns"]) == 1
    assert "two machines (bench1, bench2)" in found["left_out"][0]


def test_only_what_is_missing_is_measured(
    call: Call, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Request] = []

    @contextmanager
    def open_store(url: str) -> Iterator[FakeStore]:
        yield FakeStore()

    def measure(
        store: object, request: Request, console: object, *, new: bool, narrow: object
    ) -> object:
        asked.append(request)
        return "c0ffee01", 0, False

    monkeypatch.setattr(module, "open_store", open_store)
    monkeypatch.setattr(module, "measure", measure)
    call("--file", mine, "--run")
    assert asked == []
    Path(mine).write_text(MINE.replace("qcow2/directsync", "vdi/directsync"))
    call("--file", mine, "--run", "--blocks", "3")
    assert [request.paths for request in asked] == [("vdi/directsync", "raw/none")]
    assert (asked[0].blocks, asked[0].size_bytes, asked[0].runtime) == (3, 1 << 28, 2.0)


@pytest.mark.parametrize("verb", ["one block", "only failed", "empty"])
def test_a_database_that_holds_next_to_nothing(
    call: Call, mine: str, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    runs = list(campaign_runs(blocks=1))
    store = {
        "one block": FakeStore(all_runs=[run for run in runs if run.failure is None]),
        "only failed": FakeStore(all_runs=[run for run in runs if run.failure is not None]),
        "empty": FakeStore(all_campaigns=(), all_runs=[]),
    }[verb]
    install(monkeypatch, store)
    status, text = call("--file", mine, "--format", "json")
    found = document(text, "claims")
    wanted = "inconclusive" if verb == "one block" else "not-measured"
    assert {each["status"] for each in found["claims"]} == {wanted}
    assert status == EXIT_CLAIM_OPEN
    if wanted == "inconclusive":
        assert {each["more_blocks"] for each in found["claims"]} == {2}


def test_half_a_pair_is_not_measured(mine: str) -> None:
    zfs = parse_claims(MINE.replace("qcow2/directsync", "zfs/qcow2/directsync"), "mine").claims
    pairs = [pair for claim in zfs for pair in claim.pairs]
    asked = Request(paths=("raw/none", "host"), directory=Path("/tmp"), baseline="none")  # noqa: S108
    plan = build_plan(asked, Capabilities(), Profile("p", "t", ()))
    assert whole_pairs(plan, pairs).cells == plan.cells
    with pytest.raises(HostError, match="no pair of what is missing"):
        whole_pairs(plan, [pair for claim in zfs[1:2] for pair in claim.pairs])
