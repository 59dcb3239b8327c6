"""`--hosts`: one answer from many hosts."""

from __future__ import annotations

import html
import json
import re
import shutil
import statistics
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import jsonschema
import pytest

from tests.unit.analysis.made import CAMPAIGN, HOST, campaign_runs
from tests.unit.cli.test_advice import CUT_KEPT, CUT_LOST
from tests.unit.cli.test_widths import require_whole
from tests.unit.committed_schemas import committed_schemas
from tests.unit.stored import Database
from vdisklab.cli.shell import output
from vdisklab.cli.shell.main import main
from vdisklab.errors import EXIT_CLAIM_OPEN, PlanError
from vdisklab.path.segments import PageCache
from vdisklab.results.host_choice import by_host
from vdisklab.results.model import Campaign, Check, Failure, FailureKind, Run
from vdisklab.value import replace
from vdisklab.views.layout import Table

HOSTS = 9
SCHEMAS = committed_schemas()


def campaign(number: int, **plan: Any) -> Campaign:  # noqa: ANN401 - of a plan's many types
    """The campaign of one host; hosts 6 to 8 have another CPU."""
    host = replace(
        HOST,
        hostname=f"kvm{number}",
        machine_id=f"{number:016x}",
        cpu="Xeon" if number < 6 else "EPYC",
    )
    return replace(
        CAMPAIGN, id=f"c{number:07d}", host=host, plan={**CAMPAIGN.plan, **plan}, label=""
    )


def runs_of(number: int, slower: float = 1.0) -> Iterator[Run]:
    for run in campaign_runs(3, campaign(number).id, seed=number):
        yield scaled(replace(run, id=f"{number}{run.id}"), slower)


def scaled(run: Run, factor: float) -> Run:
    """The run of a disk that is so many times as fast."""
    return replace(
        run,
        measurements=tuple(
            replace(
                measured,
                samples=tuple(
                    replace(
                        sample,
                        value=sample.value
                        * (1 / factor if sample.metric.startswith("latency") else factor),
                    )
                    for sample in measured.samples
                ),
            )
            for measured in run.measurements
        ),
    )


@pytest.fixture(scope="module")
def _nine_hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = Database(tmp_path_factory.mktemp("database") / "fleet.sqlite")
    database.write((), campaigns=[campaign(number) for number in range(HOSTS)])
    database.add(
        run for number in range(HOSTS) for run in runs_of(number, 0.4 if number == 2 else 1.0)
    )
    return database.file


@pytest.fixture
def fleet(database: Database, _nine_hosts: Path) -> Database:
    """Nine hosts of one plan; kvm2 is 60 % slower."""
    shutil.copy(_nine_hosts, database.file)
    return database


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMAS[found["format"]]).validate(found)
    return found


def test_all_hosts_rank_together(fleet: Database, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "rank", "--hosts", "all")
    over = found["hosts"]
    assert len(over["hosts"]) == found["rounds"] == HOSTS
    best = found["cells"][0]
    assert (best["cell"], best["place"]["best"]) == ("raw/none", 1)
    assert (best["place"]["worst"], best["place"]["rounds"]) == (1, HOSTS)
    warm = next(row for row in found["cells"] if row["cell"] == "raw/writeback (warm)")
    assert warm["place"]["reason"] == "not-competing"
    agreement = warm["hosts"]["agreement"]
    assert agreement["a_better_on"] == HOSTS
    assert agreement["a_leads"]
    assert [entry["host"] for entry in agreement["hosts"]] == [
        f"kvm{index}" for index in range(HOSTS)
    ]
    assert warm["ratio"]["low"] < 1.9 < warm["ratio"]["high"]
    assert warm["ratio"] == agreement["ratio"]
    assert {entry["host"] for entry in over["outliers"]["outliers"]} == {"kvm2"}
    assert all(
        entry["ratio"] == pytest.approx(0.4, rel=0.2) for entry in over["outliers"]["outliers"]
    )
    assert {entry["fact"] for entry in over["facts"]} == {"cpu"}
    assert [len(entry["hosts"]) for entry in over["classes"]] == [6, 3]
    assert over["outliers"]["unchecked"] == ["kvm6", "kvm7", "kvm8"]
    assert warm["power_cut"]["kind"] == "not-tested"
    assert warm["from_page_cache"] == ["read"]


def test_a_page_of_one_of_two_hosts_has_one_name_for_it(database: Database, tmp_path: Path) -> None:
    """Two machines of one template: "have on vm?" stood above "on vm-2e40bb04 only"."""
    pair = [campaign(number) for number in range(2)]
    pair = [replace(each, host=replace(each.host, hostname="vm")) for each in pair]
    database.write([run for number in range(2) for run in runs_of(number)], campaigns=pair)
    assert main(["report", "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    (name,) = re.findall(r"Which disk should a guest have on ([\w-]+)\?<", page)
    assert name.startswith("vm-")
    assert f"n {name} only" in page


def test_a_power_cut_on_some_hosts_names_them(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """What one host kept is not said of the fleet."""
    three = [campaign(number) for number in range(3)]
    runs = [run for number in range(3) for run in runs_of(number)]
    for verdict, on, sentences in (
        (CUT_KEPT, (0,), ("raw/none kept every write that the guest had flushed in all 100 power "
                          "cuts that were possible in its run on kvm0.",
                          "Power cuts were simulated on kvm0.")),
        (CUT_KEPT, (0, 2), ("in all 200 power cuts that were possible in its run on kvm0, kvm2.",
                            "Power cuts were simulated on kvm0, kvm2.")),
        (replace(CUT_KEPT, exhaustive=False, states=5), (1,),
         ("Tested in 5 power cuts on kvm1, which is too few",)),
    ):  # fmt: skip
        cuts = [replace(verdict, id=f"c{n}", host=three[n].host) for n in on]
        database.write(runs, campaigns=three, power_cuts=cuts)
        said = " ".join(answer(capsys, "recommend", "--hosts", "all")["sentences"])
        for sentence in sentences:
            assert sentence in said
    database.write(runs, campaigns=three, power_cuts=[replace(CUT_LOST, host=three[1].host)])
    assert main(["rank", "--hosts", "all"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "raw/none lost acknowledged writes in 10 of 100 power cuts on kvm1." in said


def test_what_operations_cost_is_said_of_all_hosts(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over hosts nothing was said of the stalls that the need goes by."""
    database.write(
        [run for number in range(3) for run in runs_of(number)],
        campaigns=[campaign(number) for number in range(3)],
    )
    assert main(["recommend", "--hosts", "all", "--need", "backup"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "What a backup costs the guest was not measured on raw/none on any of these hosts. "
        "To measure it, on each: `vdisklab run raw/none --during backup`."
    ) in said


def test_an_export_that_offers_no_flush_on_one_host_is_not_recommended_to_all(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    far = "nbd:at=far/raw/none"
    database.write((), campaigns=[campaign(number) for number in range(3)])
    for number in range(3):
        flush = Check("host.nbd.can_flush", None, "off" if number == 0 else "on")
        database.add(
            replace(run, path=far, cell=far, checks=(flush,)) if run.path == "raw/none" else run
            for run in runs_of(number)
        )
    assert answer(capsys, "recommend", "--hosts", "all")["path"] == "raw/writeback"
    found = answer(capsys, "rank", "--hosts", "all")
    lost = next(row["power_cut"] for row in found["cells"] if row["cell"] == far)
    assert lost["kind"] == "lost-by-construction"


def test_the_answer_of_one_host_says_so(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fleet's database opened without --hosts, and one campaign that was named."""
    only = (
        r"These numbers are of kvm\d only, one of 9 hosts in this database\. `vdisklab recommend "
        r"--hosts all` answers for all of them\."
    )
    for verb in ("rank", "recommend"):
        assert main([verb]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert re.search(only, said)
        # The scope came after twenty lines: the path was taken for that of all hosts.
        assert re.match(r"On kvm\d only, one of 9 hosts: (take|use|keep) ", said)
        assert main([verb, "--campaign", "c0000001"]) == 0
        assert "These numbers are of" not in " ".join(capsys.readouterr().out.split())
    target = fleet.file.with_suffix(".html")
    assert main(["report", "-o", str(target)]) == 0
    assert "one of 9 hosts in this database." in target.read_text()


def test_no_class_gets_a_warm_cache_whose_cold_cell_has_no_rank(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    def kept(run: Run, number: int) -> bool:
        return number < 2 or (run.path, run.page_cache) != ("raw/writeback", PageCache.COLD)

    database.write((), campaigns=[campaign(number) for number in range(HOSTS)])
    database.add(run for number in range(HOSTS) for run in runs_of(number) if kept(run, number))
    classes = answer(capsys, "rank", "--hosts", "all")["hosts"]["classes"]
    assert {entry["cell"] for entry in classes} == {"raw/none"}


def test_a_need_that_no_path_of_the_fleet_meets_names_one_that_does(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", "--hosts", "all", "--need", "discard"]) == PlanError.exit_code
    message, hint = capsys.readouterr().err.splitlines()
    assert message.endswith("measured paths meets durable and discard")
    assert "leave out --need discard" in hint
    assert "vdisklab run ext4/qcow2/none/virtio:discard=unmap host" in hint


@pytest.mark.parametrize("verb", ["rank", "recommend"])
def test_the_one_host_that_decides_stands_in_the_first_note(
    database: Database, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """The notes began with racks, and of three hosts nothing named the one to look at."""
    database.write((), campaigns=[campaign(number) for number in range(3)])
    database.add(
        scaled(run, 0.3) if (number, run.path) == (2, "raw/none") else run
        for number in range(3)
        for run in runs_of(number)
    )
    assert main([verb, "--hosts", "all"]) == 0
    _, first, *_ = " ".join(capsys.readouterr().out.split()).split(" * ")
    assert re.match(
        r"kvm2 alone pulls the mean of raw/none down: ×[\d.]+ there, but ×[\d.–]+ on the 2 other "
        r"hosts \(host is 1\)\. Look at kvm2 first: `vdisklab (.*)` ranks its paths alone\.$",
        first,
    )
    assert main(first.split("`")[1].split()[1:]) == 0
    assert "raw/none" in capsys.readouterr().out
    assert answer(capsys, verb, "--hosts", "all")["hosts"]["apart"][0]["host"] == "kvm2"


def test_the_table_says_who_agrees(fleet: Database, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rank", "--hosts", "all", "--metric", "randread-4k-q1/read/iops"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "raw/none beats raw/writeback" in shown
    assert "beats host" not in shown
    assert "none beyond its own noise" in shown or "is ahead on no host" in shown
    assert re.search(r"kvm2 is \d+ % slower than its 5 peers", shown)


@pytest.mark.parametrize(
    "arguments",
    [
        ("rank",),
        ("compare", "raw/none", "qcow2/directsync"),
        ("compare", "raw/none", "qcow2/directsync", "--all"),
        ("recommend",),
        ("recommend", "--weights", "read=2,write=1"),
        ("claims", "--only", "debatty-2024"),
    ],
)
def test_every_form_is_printed(
    fleet: Database,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    assert main([*arguments, "--hosts", "all", "--format", "csv"]) in (0, 10)
    assert capsys.readouterr().out.count("\n") > 2
    tables: list[Table[Any]] = []
    monkeypatch.setattr(output, "show", lambda table, _console, **_: tables.append(table))
    assert main([*arguments, "--hosts", "all"]) in (0, 10)
    assert main([*arguments, "--hosts", "all", "--format", "json"]) in (0, 10)
    assert tables
    require_whole(tables, json.loads(capsys.readouterr().out))


def test_a_comparison_has_a_ratio_for_each_class(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "compare", "raw/none", "qcow2/directsync", "--hosts", "all")
    (pair,) = found["pairs"]
    assert found["sentences"][1].startswith("raw/none beats qcow2/directsync on 9 of 9 hosts")
    assert len(found["hosts"]["hosts"]) == HOSTS
    assert {name: len(entry["hosts"]) for name, entry in pair["by_class"].items()} == {
        "cpu=Xeon": 6,
        "cpu=EPYC": 3,
    }
    for entry in pair["by_class"].values():
        ratios = [host["ratio"] for host in entry["hosts"]]
        assert entry["ratio"]["pairs"] == len(ratios)
        assert entry["ratio"]["ratio"] == pytest.approx(statistics.geometric_mean(ratios))
    main_measure = next(entry for entry in pair["measures"] if entry["main"])
    assert main_measure["ratio"]["ratio"] == pytest.approx(0.8 / 0.3, rel=0.05)
    assert (main_measure["ratio"]["pairs"], main_measure["a_better_on"]) == (HOSTS, HOSTS)


def test_a_recommendation_for_all(fleet: Database, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "recommend", "--hosts", "all")
    assert found["path"] in ("raw/none", "raw/writeback")
    assert [entry["cell"] for entry in found["hosts"]["classes"]]
    assert found["recommendation"]["needs"] == ["durable"]
    first, *others = found["alternatives"]
    assert first["place"]["best"] == 1
    assert {row["cell"] for row in (first, *others) if row["hosts"] is None} == {
        found["recommendation"]["cell"]
    }


def test_a_ratio_has_one_direction_and_one_name_in_every_table(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "recommend", "--hosts", "all")
    chosen, over = found["recommendation"]["cell"], {}
    for row in found["alternatives"]:
        if row["hosts"] is not None:
            assert (row["hosts"]["a"], row["hosts"]["b"]) == (row["cell"], chosen)
            over[row["cell"]] = row["hosts"]["ratio"]["ratio"]
    ranked = {
        row["cell"]: row["ratio"]["ratio"]
        for row in answer(capsys, "rank", "--hosts", "all")["cells"]
    }
    assert over == {name: pytest.approx(ranked[name] / ranked[chosen], rel=0.01) for name in over}
    alone = answer(capsys, "recommend", "--campaign", "c0000001")["alternatives"]
    of_one = {row["cell"]: row["ratio"]["ratio"] for row in alone if row["ratio"] is not None}
    assert of_one["qcow2/directsync"] == pytest.approx(over["qcow2/directsync"], rel=0.05)
    heads = []
    for of in (["--hosts", "all"], ["--campaign", "c0000001"]):
        assert main(["recommend", *of]) == 0
        lines = capsys.readouterr().out.splitlines()
        (rank,) = (place for place, line in enumerate(lines) if line.startswith(" rank "))
        heads.append(" ".join(lines[rank - 1 : rank + 1]).split())
    assert all({"vs", "the", "answer"} <= set(head) for head in heads)
    assert not any("worse" in head or "recommended" in head for head in heads)


def test_no_interval_shows_what_the_ranks_do_not(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """On kvm3 the fastest path is slower than elsewhere: two paths alone differ, and the ranking of
    all does not show it."""
    fleet.write((), campaigns=[campaign(number) for number in range(4)])
    speeds = {"qcow2/directsync": 2.0, "raw/writeback": 0.65}
    fleet.add(
        scaled(run, 0.69 if number == 3 and run.path == "raw/none" else speeds.get(run.path, 1.0))
        for number in range(4)
        for run in runs_of(number)
    )
    found = answer(capsys, "recommend", "--hosts", "all")
    assert main(["recommend", "--hosts", "all", "--wide"]) == 0
    said = capsys.readouterr().out
    chosen = found["choice"]["cell"]
    not_worse = [each for each in found["choice"]["not_best"] if each != chosen]
    assert not_worse
    (row,) = (row for row in found["alternatives"] if row["cell"] == not_worse[0])
    alone = row["hosts"]["ratio"]
    assert alone["high"] < 1, "of the two alone"
    shown = next(line for line in said.splitlines() if f" {not_worse[0]} " in line and "×" in line)
    assert re.search(r"–1\.00\b", shown), shown


def test_a_fleet_says_on_which_host_its_path_is_behind(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """On kvm3 and kvm4 the slowest path writes at random as nowhere else."""

    def odd(run: Run) -> Run:
        return replace(
            run,
            measurements=tuple(
                scaled(replace(run, measurements=(each,)), 8.0).measurements[0]
                if each.name == "randwrite-4k-q1"
                else each
                for each in run.measurements
            ),
        )

    for strange, where in (((3,), "kvm3"), ((3, 4), "2 of 9 hosts")):
        fleet.write((), campaigns=[campaign(number) for number in range(HOSTS)])
        fleet.add(
            odd(run) if number in strange and run.path == "qcow2/directsync" else run
            for number in range(HOSTS)
            for run in runs_of(number)
        )
        for verb in ("recommend", "rank"):
            found = answer(capsys, verb, "--hosts", "all")
            behind = found["choice"]["behind_in"]
            assert (behind["cell"], len(behind["on"])) == ("qcow2/directsync", len(strange))
            assert main([verb, "--hosts", "all"]) == 0
            said = " ".join(capsys.readouterr().out.split())
            assert f"One load differs: on {where}, in random writes of 4 KiB" in said


# Half a second for each host: a commit asks one of each CPU. Host 2 is slower.
@pytest.mark.parametrize(
    "asked", [(2, 6), pytest.param((0, 1, 3, 4, 5, 7, 8), marks=pytest.mark.nightly)]
)
def test_each_hosts_own_answer_is_that_of_its_report(
    asked: tuple[int, ...], fleet: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "fleet.json"
    assert main(["report", "--hosts", "all", "--format", "json", "-o", str(file)]) == 0
    hosts = json.loads(file.read_text())["each_host"]
    page = tmp_path / "fleet.html"
    assert main(["report", "--hosts", "all", "-o", str(page)]) == 0
    shown = page.read_text()
    assert main(["report", "--hosts", "all", "--format", "md", "-o", str(tmp_path / "r.md")]) == 0
    plain = (tmp_path / "r.md").read_text()
    text = html.unescape(re.sub("<[^>]+>", "", shown)).replace("\N{NO-BREAK SPACE}", " ")
    assert len(hosts) == HOSTS
    for number in asked:
        of_host = hosts[number]
        only = ["--campaign", campaign(number).id]
        target = tmp_path / f"{number}.json"
        assert main(["report", *only, "--format", "json", "-o", str(target)]) == 0
        alone = json.loads(target.read_text())["recommendation"]
        assert of_host["choice"] == alone["choice"]
        capsys.readouterr()
        headline = answer(capsys, "recommend", *only)["sentences"][0].removesuffix(".")
        assert f"kvm{number}: {headline}" in text
        ranks = [(row["cell"], row["place"]["best"]) for row in alone["alternatives"]]
        assert [(row["cell"], row["best"]) for row in of_host["first"]] == ranks[
            : len(of_host["first"])
        ]
        assert "\n### Outliers\n\n* " in plain
        assert "\n### Classes of hosts\n\n* " in plain
        assert f"* kvm{number}: {headline}. `vdisklab report {' '.join(only)}`" in plain
    assert "| power cut | hosts |" in plain
    assert "The fastest." not in shown
    assert shown.count("<b>The next best.</b>") == shown.count("<b>Another host.</b>") == 1


def test_the_report_has_a_page_for_the_fleet(fleet: Database, tmp_path: Path) -> None:
    file = tmp_path / "fleet.html"
    assert main(["report", "--hosts", "all", "-o", str(file)]) == 0
    page = file.read_text()
    for number in range(HOSTS):
        assert f'href="#host-kvm{number}"' in page
        assert f'id="host-kvm{number}"' in page
        assert f"vdisklab report --campaign {campaign(number).id}" in page
    assert "slower than its 5 peers" in page
    assert ", on 9 hosts</h1>" in page
    assert main(["report", "--hosts", "all", "--format", "json", "-o", str(file)]) == 0
    found = json.loads(file.read_text())
    assert [answer["host"]["name"] for answer in found["each_host"]] == [
        f"kvm{index}" for index in range(HOSTS)
    ]
    assert all(answer["first"][0]["share"] == 1 for answer in found["each_host"])


def test_why_there_is_no_ranking_is_said(
    fleet: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fleet.write((), campaigns=[campaign(number, baseline="vdi/none") for number in (4, 5, 6)])
    fleet.add(run for number in (4, 5, 6) for run in runs_of(number))
    assert main(["rank", "--hosts", "all"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "No scores: the baseline vdi/none has no numbers." in shown
    assert main(["report", "--hosts", "all", "-o", str(tmp_path / "fleet.html")]) == 0
    page = (tmp_path / "fleet.html").read_text()
    assert "No scores: the baseline" in page


def test_a_host_name_cannot_break_the_page(fleet: Database, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    campaigns = [
        replace(c, host=replace(c.host, hostname=f"{evil}{c.host.hostname}"))
        for c in map(campaign, range(3))
    ]
    fleet.write((), campaigns=campaigns)
    fleet.add(run for number in range(3) for run in runs_of(number))
    file = tmp_path / "fleet.html"
    assert main(["report", "--hosts", "all", "-o", str(file)]) == 0
    assert evil not in file.read_text()
    assert "alert(1)&lt;/script&gt;" in file.read_text()


def test_claims_count_hosts(fleet: Database, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--hosts", "all", "--format", "json"]) in (9, 10)
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMAS[found["format"]]).validate(found)
    for claim in found["claims"]:
        assert sum(map(len, claim["hosts"].values())) == HOSTS
        assert (claim["status"] == "fails") == ("fails" in claim["hosts"])
        assert (claim["status"] == "holds") == (set(claim["hosts"]) == {"holds"})
    assert found["caveats"] == {
        "accelerator": "tcg",
        "emulated": True,
        "lab": False,
        "emulated_host": False,
        "guest_arch": None,
        "only_of": None,
    }
    main(["claims", "--hosts", "all"])
    assert "Measured under emulation (TCG)" in capsys.readouterr().out


_ON_HOSTS = """
article = "mine"
title = "Mine"

[[claim]]
name = "beside"
sentence = "directsync is slower than none."
left = ["qcow2/directsync"]
right = ["raw/none"]
measures = ["randwrite-4k-q1/write/iops"]
high = 0.9

[[claim]]
name = "against-host"
sentence = "raw/none is about as fast as the host."
left = ["raw/none"]
right = ["host"]
measures = ["seqread-1m-q1/read/bandwidth"]
low = 0.8
"""


def test_a_claim_that_emulation_makes_void_is_void_for_one_host_and_for_many(
    fleet: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its ratio is next to the end of its range, so that it is undecided on most hosts. kvm1 has
    not measured it."""
    fleet.write((), campaigns=[campaign(number) for number in range(3)])
    runs = [run for number in range(3) for run in runs_of(number)]
    fleet.add(run for run in runs if run.path != "host" or run.campaign != campaign(1).id)
    mine, junit = tmp_path / "mine.toml", tmp_path / "out.xml"
    mine.write_text(_ON_HOSTS)
    asked = ("claims", "--file", str(mine))
    main([*asked, "--campaign", campaign(0).id, "--format", "json"])
    alone = {each["claim"]: each for each in json.loads(capsys.readouterr().out)["claims"]}
    status = main([*asked, "--hosts", "all", "--junit", str(junit), "--format", "json"])
    assert status == EXIT_CLAIM_OPEN
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMAS[found["format"]]).validate(found)
    together = {each["claim"]: each for each in found["claims"]}
    assert alone["against-host"]["status"] == together["against-host"]["status"] == "void"
    assert together["against-host"]["hosts"] == {
        "not-measured": ["kvm1"],
        "void": ["kvm0", "kvm2"],
    }
    assert together["against-host"]["command"].startswith("vdisklab run ")
    (suite,) = Xml.parse(junit).getroot()  # noqa: S314 - we wrote it
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "0", "1")
    beside, against, *_ = suite
    assert "holds on kvm0, kvm1, kvm2." in (beside.findtext("system-out") or "")
    (skipped,) = against
    message = skipped.get("message") or ""
    assert message.startswith("not measured on kvm1: on kvm1 run `vdisklab run ")
    assert "; void on kvm0, kvm2 (emulation). " in message


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (("cpu=EPYC",), {"kvm6", "kvm7", "kvm8"}),
        (("kvm1", "kvm3", "kvm5"), {"kvm1", "kvm3", "kvm5"}),
        (("all", "cpu=EPYC", "kernel=6.1.0-30-amd64"), {"kvm6", "kvm7", "kvm8"}),
        (("kvm1", "kvm6", "kvm7", "cpu=EPYC"), {"kvm6", "kvm7"}),
    ],
)
def test_hosts_are_chosen(
    fleet: Database,
    capsys: pytest.CaptureFixture[str],
    hosts: tuple[str, ...],
    expected: set[str],
) -> None:
    arguments = [word for host in hosts for word in ("--hosts", host)]
    assert main(["rank", *arguments, "--format", "json"]) == (0 if len(expected) > 2 else 2)
    found = json.loads(capsys.readouterr().out)["hosts"]["hosts"]
    assert {entry["name"] for entry in found} == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rank", "--hosts", "kvm77"), "no host 'kvm77' has results"),
        (("rank", "--hosts", "color=red"), "unknown fact 'color'"),
        (("rank", "--hosts", "cpu=Z80"), "no host has cpu=Z80"),
        (("rank", "--hosts", "kvm1", "--hosts", "cpu=EPYC"), "no host meets all of"),
        (("rank", "--hosts", "kvm1"), "kvm1 is the only host"),
        (("rank", "--hosts", "all", "--pareto", "read/write"), "--hosts ranks by one measure"),
        (("rank", "--hosts", "all", "--metric", "nonsense"), "'nonsense' was not measured"),
        (("recommend", "--hosts", "kvm1", "--hosts", "kvm2"), "needs 3 hosts, and 2 have"),
        (("recommend", "--hosts", "all", "--need", "format=vmdk"), "none of the 3 measured paths"),
        (("compare", "raw/none", "vdi/none", "--hosts", "all"), "'vdi/none' was not measured"),
        (("compare", "--published", "debatty-2024", "--hosts", "all"), "--published compares one"),
        (("claims", "--hosts", "all", "--run"), "--hosts judges what is stored"),
    ],
)
def test_what_cannot_be_answered(
    fleet: Database, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert main(list(arguments)) == 2
    assert message in capsys.readouterr().err


def test_a_host_with_another_plan_is_left_out(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.write(
        (),
        campaigns=[campaign(0), campaign(1), campaign(2), campaign(3, runtime=9.0)],
    )
    fleet.add(run for number in range(4) for run in runs_of(number))
    found = answer(capsys, "rank", "--hosts", "all")
    assert len(found["hosts"]["hosts"]) == 3
    assert found["hosts"]["left_out"] == [
        "kvm3: campaigns c0000000 and c0000003 differ in runtime (2 s and 9 s)"
    ]
    assert main(["rank", "--hosts", "all", "--campaign", "c0000000", "--campaign", "c0000003"]) == 2
    assert "differ in runtime" in capsys.readouterr().err


def test_a_fleet_whose_newest_campaign_ran_under_two_accelerators_is_refused(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.write((), campaigns=[campaign(0), campaign(1)])
    runs = [run for number in range(2) for run in runs_of(number)]
    (moved, *_) = (run for run in runs if run.accelerator is not None)
    fleet.add(replace(run, accelerator="kvm") if run.id == moved.id else run for run in runs)
    assert main(["rank", "--hosts", "all"]) == 2
    assert "of c0000000 ran under KVM and under emulation" in capsys.readouterr().err


def test_two_hosts_are_too_few_for_a_rank(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rank` ended with 0 and `recommend` with 2."""
    assert main(["rank", "--hosts", "kvm1", "--hosts", "kvm2"]) == 2
    said = capsys.readouterr().out
    assert said.startswith("No path to use yet: a rank over hosts needs 3 of them, and 2 have ")


def test_a_host_without_numbers_is_left_out_and_named(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.write((), campaigns=list(map(campaign, range(4))))
    failure = Failure(FailureKind.WORKLOAD, "no fio")
    fleet.add(run for number in range(3) for run in runs_of(number))
    fleet.add(replace(run, measurements=(), failure=failure) for run in runs_of(3))
    found = answer(capsys, "rank", "--hosts", "all")
    assert [host["name"] for host in found["hosts"]["hosts"]] == ["kvm0", "kvm1", "kvm2"]
    assert found["hosts"]["left_out"] == ["kvm3: no run of c0000003 has numbers"]
    assert main(["recommend", "--hosts", "kvm1", "--hosts", "kvm3"]) == 2
    assert "only kvm1 has numbers of this plan: kvm3: no run of" in capsys.readouterr().err
    assert main(["recommend", "--hosts", "kvm3"]) == 2
    assert "no numbers: every run failed" in capsys.readouterr().err


def test_two_machines_of_one_name_are_two_hosts(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    twins = [replace(c, host=replace(c.host, hostname="kvm")) for c in map(campaign, range(3))]
    fleet.write((), campaigns=twins)
    fleet.add(run for number in range(3) for run in runs_of(number))
    found = answer(capsys, "rank", "--hosts", "all")
    assert len({entry["name"] for entry in found["hosts"]["hosts"]}) == 3
    assert main(["runs"]) == 0
    listed = capsys.readouterr().out
    assert all(f"kvm-{number:016x}" in listed for number in range(3))
    assert main(["rank", "--hosts", f"kvm-{1:016x}"]) == 2
    assert f"give --campaign {twins[1].id} instead of --hosts" in capsys.readouterr().err
    assert main(["rank"]) == 0
    assert "These numbers are of kvm-0000" in " ".join(capsys.readouterr().out.split())


def test_a_name_that_two_machines_have_ends_with_the_first_letters_of_the_id() -> None:
    twins = [
        replace(c, host=replace(c.host, hostname="kvm", machine_id=f"{place}234567890abcdef"))
        for place, c in enumerate(map(campaign, range(2)))
    ]
    assert list(by_host(twins)) == ["kvm-02345678", "kvm-12345678"]
    assert list(by_host(twins[:1])) == ["kvm"]


def test_an_empty_database_has_no_fleet(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.write((), campaigns=())
    assert main(["rank", "--hosts", "all"]) == 7
    assert "no campaign with results" in capsys.readouterr().err


def test_a_path_that_lacks_rounds_has_one_ratio_wherever_it_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three hosts that are alike: guests are faster in the first rounds, the host is not, and one
    path left the race after them.
    """
    left = "qcow2/directsync"
    database = Database(tmp_path / "fleet.sqlite")
    database.write((), campaigns=[campaign(number) for number in range(3)])
    database.add(
        scaled(
            replace(run, id=f"{number}{run.id}"),
            1.5 if run.round <= 3 and run.path != "host" else 1.0,
        )
        for number in range(3)
        for run in campaign_runs(6, campaign(number).id, seed=0)
        if run.path != left or run.round <= 3
    )

    def ranked(*arguments: str) -> dict[str, Any]:
        command = ["rank", *arguments, "--format", "json", "--db", str(database.file)]
        assert main(command) == 0
        return {row["cell"]: row for row in json.loads(capsys.readouterr().out)["cells"]}

    ratio = ranked("--campaign", "c0000000")[left]["ratio"]["ratio"]
    over = ranked("--hosts", "all")[left]
    assert over["ratio"]["ratio"] == pytest.approx(ratio, rel=0.01)
    each = [host["ratio"] for host in over["hosts"]["agreement"]["hosts"]]
    assert each == pytest.approx([ratio] * 3, rel=0.01)


def test_two_paths_beat_each_other_only_if_the_ranking_tells_them_apart(
    fleet: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    three = [word for number in (0, 1, 3) for word in ("--hosts", f"kvm{number}")]
    seen: set[tuple[bool, bool]] = set()
    for some in (three, ["--hosts", "all"]):
        ranked = answer(capsys, "rank", *some)["cells"]
        cells = [row["cell"] for row in ranked if "best" in row["place"]]
        for a, b in combinations(cells, 2):
            (pair,) = answer(capsys, "compare", a, b, *some)["pairs"]
            score = pair["agreements"][0]
            shown = score["ratio"]["p"] is not None and score["ratio"]["p"] <= 0.05
            apart = pair["ranked"]["verdict"] != "no-difference-shown"
            assert main(["compare", a, b, *some]) == 0
            said = " ".join(capsys.readouterr().out.split())
            assert (" beats " in said.partition(" in overall ratio")[0]) == (shown and apart)
            assert ("ranking of all paths shows no difference" in said) == (shown and not apart)
            assert ("the ranking of all paths does (`rank`)" in said) == (apart and not shown)
            seen.add((shown, apart))
    assert len(seen) > 1
