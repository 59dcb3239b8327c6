"""`recommend`: answers, their reasons, and sentences for what cannot be answered."""

from __future__ import annotations

import csv
import fcntl
import json
import math
import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.analysis.made import CAMPAIGN, START, _run, campaign_runs
from tests.unit.stored import Database
from vdisklab.analysis.observations import MeasureKey
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.figures import BAR_CHARTS
from vdisklab.answers.report import report_on
from vdisklab.cli.shell.main import main
from vdisklab.errors import PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import machine_facts
from vdisklab.host.plan_locks import lock_directory
from vdisklab.path.disk_path import parse_path
from vdisklab.results.model import Run
from vdisklab.results.power_cut import PowerCut
from vdisklab.results.store import open_store
from vdisklab.value import replace
from vdisklab.views.rank import _bar as bar

SPEEDS = {
    "host": 1.0,
    "raw/none": 0.8,
    "raw/default": 0.5,
    "qcow2/none": 0.79,
    "qcow2/directsync": 0.3,
    "raw/unsafe": 1.4,
    "lvm/none/virtio:discard=unmap": 0.7,
}


def runs(rounds: int = 5, speeds: dict[str, float] = SPEEDS, noise: float = 0.01) -> Iterator[Run]:
    rng = np.random.default_rng(3)
    clock = START
    for round in range(1, rounds + 1):
        for place, (path, speed) in enumerate(speeds.items(), start=1):
            clock += timedelta(seconds=10)
            factor = speed * float(np.exp(rng.normal(0, noise)))
            state = "cold" if "default" in path or "unsafe" in path else "bypassed"
            canonical = path if path == "host" else str(parse_path(path))
            yield _run(CAMPAIGN.id, canonical, state, round, place, clock, factor)


@pytest.fixture
def store(database: Database) -> Database:
    database.write(runs())
    return database


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_unsafe_is_recommended_only_to_those_who_say_so(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    unsafe = answer(capsys, "recommend", "--unsafe")
    assert unsafe["path"] == "raw/unsafe"
    assert unsafe["recommendation"]["needs"] == []
    said = " ".join(unsafe["sentences"][:5])
    assert "raw/unsafe loses flushed data in a power cut" in said
    assert "To keep flushed data, take raw/none instead: raw/unsafe (cold) is between 7" in said
    found = answer(capsys, "recommend")
    assert found == answer(capsys, "recommend", "--need", "durable")
    assert found["path"] == "raw/none"
    assert found["recommendation"]["excluded"] == {"durable": 1}
    (price,) = found["recommendation"]["prices"]
    assert price["without"] == "raw/unsafe (cold)"
    assert price["ratio"]["ratio"] == pytest.approx(1.4 / 0.8, rel=0.05)
    said = " ".join(found["sentences"])
    assert (
        "Not tested: `vdisklab powercut ext4/raw/none` simulates the cut on a file system." in said
    )
    assert re.search(
        r"Without the need durable the answer is raw/unsafe \(cold\), which is between 7\d "
        r"and 7\d % faster",
        said,
    )


@pytest.mark.parametrize(
    ("needs", "path"),
    [
        (["format=qcow2"], "qcow2/none"),
        (["no-flush-safe"], "qcow2/directsync"),
        (["discard"], "lvm/none/virtio:discard=unmap"),
        (["snapshots", "durable", "live-migration"], "qcow2/none"),
    ],
)
def test_each_need_narrows_the_choice(
    store: Database, capsys: pytest.CaptureFixture[str], needs: list[str], path: str
) -> None:
    arguments = [word for need in needs for word in ("--need", need)]
    assert answer(capsys, "recommend", *arguments)["path"] == path


def test_the_table_says_why(store: Database, capsys: pytest.CaptureFixture[str]) -> None:
    store.write(runs(speeds=SPEEDS | {"qcow2/none": 0.75}))
    assert main(["recommend", "--need", "durable"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("Use raw/none: it is the best of 5 paths that qualify (95 %).")
    assert "Compared with QEMU's default cache mode (raw/default (cold)) it is between " in out
    assert "under emulation" in out


def test_a_tie_has_no_winner_and_names_the_leader(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    tied = ["ext4/qcow2/none", "raw/writethrough", "qcow2/none", "raw/none/scsi", "raw/none/sata"]
    speeds = dict.fromkeys(("host", "raw/unsafe", *tied, "raw/none/virtio"), 0.8)
    database.write(runs(3, speeds, noise=0.1))
    found = answer(capsys, "recommend")
    assert len(found["recommendation"]["ties"]) == 6
    leader = found["recommendation"]["ties"][0]
    assert found["path"] == leader != "raw/none"
    first, *others = found["sentences"]
    behind = found["choice"]["behind"]
    assert behind > 0.1
    assert first == (
        f"Take {leader}, or keep what you have if it is one of these 6: none of them is shown to "
        "be better."
    )
    assert others[0].startswith("These 6 tie: ")
    assert others[1] == (
        f"The best is at most {math.ceil(100 * behind)} % better than {leader} (95 %)."
    )
    assert len(found["choice"]["ties"]) == 5
    assert not re.search(r"Runner-up: [^,]+, [0-9]", " ".join(found["sentences"]))
    surer = found["choice"]["surer"]
    assert (surer["paths"], surer["runs"]) == (6, 60 * 7), "the host is measured with them"
    assert "To tell them apart" not in " ".join(others), "the plan names no profile to race with"
    assert found["recommendation"]["ranking"]["best"]["p"] > 0.05
    target = database.file.with_name("report.md")
    assert main(["report", "--format", "md", "-o", str(target)]) == 0
    assert target.read_text().startswith(f"# vdisklab: Take {leader}, or keep")


def test_what_came_from_memory_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`1-18 % of the bytes written` and, further below, `Only 4% of the bytes`."""
    recorded = Path(__file__).parents[3] / "docs" / "images" / "campaign.json.gz"
    db = ("--db", str(tmp_path / "results.sqlite"))
    assert main(["import", str(recorded), *db]) == 0
    capsys.readouterr()
    assert main(["recommend", "--why", *db]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "is mostly that of the host's RAM: only 7 % of the bytes read" in said
    assert "Only 4% of the bytes" not in said


def test_what_ranks_do_not_tell_apart_is_not_said_to_be_slower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A race ends within a margin of the best: the ranks of its paths still overlap."""
    recorded = Path(__file__).parents[3] / "docs" / "images" / "quickstart.json.gz"
    db = ("--db", str(tmp_path / "results.sqlite"))
    assert main(["import", str(recorded), *db]) == 0
    capsys.readouterr()
    assert main(["recommend", *db]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("Use raw/none for a new disk: within 10 % of the best overall (95 %). ")
    stays = "qcow2/none, raw/writeback, qcow2/writeback, qcow2:preallocation=off/default."
    assert f"can stay, as none is shown to be worse: {stays}" in out
    default = "QEMU's default cache mode (raw/writeback (cold))"
    assert f"No difference is shown from {default} among these 5 paths." in out
    # The table's ×0.790 is corrected for the rounds that the new guest's disk lacks. The
    # ratio that `compare` shows is another number, and must not stand beside it.
    assert "Compared with the disk of a new guest in libvirt 9.0: not shown to differ." in out
    assert "between 2.0 % slower and 46 % faster" not in out
    assert main(["recommend", "--weights", "read=3,write=1", "--why", *db]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "vs the answer: the ratio of the numbers that order the table, which are" in out
    assert "the columns of these measures are medians of the rounds, so the mix may" in out
    assert main(["rank", "--metric", "seqwrite-1m-q1/write/sustained", *db]) == 0
    title = (
        "(geometric means of rounds, more is better), each measurement of 0.5 s: 6 cells in 14 "
        "rounds"
    )
    assert f"Ranking by seqwrite-1m-q1/write/sustained {title}" in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["rank", "--metric", "write", "--why", *db]) == 0
    by_write = " ".join(capsys.readouterr().out.split())
    assert "Ranking by write ratio (vs base, more is better), each" in by_write
    assert (
        "qcow2/none has the better number and raw/none the better rank: the numbers of raw/none "
        "are less certain, so it may still be better."
    ) in by_write
    with open_store(db[1]) as results:
        report = report_on(Analysis.of(results))
    (chart,) = [chart for chart in BAR_CHARTS if chart.key == "guest-host"]
    bars, _ = chart.rows(report)
    assert {bar.group for bar in bars} == {
        "randread-4k-q1: iops", "randwrite-4k-q1: iops", "seqread-1m-q1: bandwidth",
        "seqwrite-1m-q1: sustained",
    }  # fmt: skip
    shown = report.summaries[MeasureKey.parse("seqwrite-1m-q1/write/sustained")]
    answer_bar = next(bar for bar in bars if bar.group == "seqwrite-1m-q1: sustained")
    medians = {cell.name: summary.median for cell, summary in shown.items()}
    assert answer_bar.value == pytest.approx(medians["raw/none"] / 1e9), "the number of `rank`"
    alone = "when these two are looked at alone; among the campaign's 5 paths"
    for other, said in (
        (
            "qcow2/writeback",
            "% faster {} no difference is shown, {} (`rank`).",
        ),
        (
            "raw/writeback",
            "% faster {} no difference is shown, {} (`rank`).",
        ),
        ("qcow2/none", "% faster {} A is within 10 % of the best (95 %) (`rank`)."),
    ):
        assert main(["compare", "raw/none", other, *db]) == 0
        assert said.format(alone, "as 10 pairs are compared at once") in " ".join(
            capsys.readouterr().out.split()
        )
    values = tmp_path / "report.csv"
    assert main(["report", "--format", "csv", "-o", str(values), *db]) == 0
    ran = {
        (row["cell"], row["accelerator"]) for row in csv.DictReader(values.read_text().splitlines())
    }
    assert {("host", ""), ("raw/none", "tcg")} <= ran
    assert ("host", "tcg") not in ran


def test_no_race_is_promised_for_weights_of_ones_own(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.write(runs(3, dict.fromkeys(("host", "raw/none/scsi", "qcow2/none"), 0.8), noise=0.5))
    for weights, races in ((), True), (("--weights", "read=3,write=1"), False):
        said = " ".join(answer(capsys, "recommend", *weights)["sentences"])
        assert "3 rounds cannot tell which of these 2 is better, or by how much." in said
        assert ("as a race" in said) is races


def test_weights_of_ones_own_decide(store: Database, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "recommend", "--need", "durable", "--weights", "read=3,write=1")
    assert found["recommendation"]["measure"] == "score/none/weighted_mix"
    measure = "randread-4k-q1/read/latency_p99=1"
    weighted = answer(capsys, "recommend", "--unsafe", "--weights", measure)
    assert weighted["path"] == "raw/unsafe"


def test_a_path_without_a_mix_is_not_left_out_in_silence(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """The latency of raw/none is zero: `rank` finds it the best, and its mix is unknown."""

    def fast(run: Run) -> Run:
        if run.path != "raw/none":
            return run
        measured = tuple(
            replace(
                measurement,
                samples=tuple(
                    replace(sample, value=0.0)
                    for sample in measurement.samples
                    if sample.metric == "latency_p99"
                ),
            )
            for measurement in run.measurements
        )
        return replace(run, measurements=measured)

    database.write(fast(run) for run in campaign_runs())
    measure = "randread-4k-q1/read/latency_p99"
    assert main(["recommend", "--why", "--weights", f"{measure}=1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"raw/none: no weighted mix in the rounds in which its {measure} is zero" in said
    assert main(["recommend", "--why", "--weights", "randread-4k-q1/read/iops=1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "raw/none: no weighted mix, as it lacks randread-4k-q1/read/iops." in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--need", "fast"], "unknown need"),
        (["--need", "format"], "unknown need"),
        (["--need", "durable=yes"], "unknown need"),
        (["--need", "format=qed"], "meets durable and format=qed"),
        (["--unsafe", "--need", "durable"], "contradict each other"),
        (["--weights", "read"], "is not a weight"),
        (["--weights", "read=-1"], "is not a weight"),
        (["--weights", "read=nan"], "is not a weight"),
        (["--weights", "read=0,write=0"], "all weights are zero"),
        (["--weights", "nonsense=1"], "was not measured"),
    ],
)
def test_bad_wishes_end_in_a_sentence(
    store: Database, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["recommend", *arguments]) == PlanError.exit_code
    err = capsys.readouterr().err
    assert sentence in err
    assert "hint: " in err


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        (0, "this campaign has no numbers yet: process 4711 measures this campaign now"),
        (1, "process 4711 measures this campaign now"),
        (5, "Process 4711 measures this campaign now"),
    ],
)
@pytest.mark.parametrize("verb", ["rank", "recommend"])
def test_a_campaign_that_another_process_measures_is_not_to_be_continued(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, rounds: int, said: str, verb: str,
) -> None:  # fmt: skip
    plan = {**CAMPAIGN.plan, "cells": list(SPEEDS), "rounds": 5, "profile": "short"}
    here = replace(CAMPAIGN, host=machine_facts(LocalHost()), plan=plan)
    database.write(runs(rounds), campaigns=[here])
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    lock = lock_directory() / CAMPAIGN.fingerprint
    lock.parent.mkdir(parents=True)
    lock.write_text("4711")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        main([verb, "--db", database.url])
    shown = " ".join(" ".join(capsys.readouterr()).split())
    stored, planned = rounds * len(SPEEDS), 5 * len(SPEEDS)
    assert f"{said}: {stored} of {planned} runs are stored" in shown
    assert "continue" not in shown
    assert "every run failed" not in shown
    assert shown.lower().count("process 4711 measures") == 1


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ([], "has no numbers: every run failed"),
        (list(runs(1)), "nothing is shown after 1 round"),
        (list(runs(5, {"host": 1.0})), "no path that a guest could use"),
    ],
)
def test_too_little_data_is_said(
    database: Database,
    capsys: pytest.CaptureFixture[str],
    made: list[Run],
    sentence: str,
) -> None:
    database.write(made)
    assert main(["recommend"]) == PlanError.exit_code
    assert sentence in capsys.readouterr().err


def test_paths_are_recommended_without_a_baseline(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scores relate to the path in the middle, which `rank --why` says."""
    store.write(run for run in runs() if run.path != "host")
    assert main(["recommend", "--need", "durable"]) == 0
    assert capsys.readouterr().out.startswith("Use raw/none for a new disk: ")


def test_a_single_path_is_recommended_and_said_to_be_alone(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    made = list(runs(5, {"host": 1.0, "raw/none": 0.8}))
    database.write(made)
    found = answer(capsys, "recommend")
    assert found["path"] == "raw/none"
    assert any("there is no comparison" in each for each in found["sentences"])


def test_mixed_hosts_are_refused(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    other = replace(CAMPAIGN, id="beef", host=replace(CAMPAIGN.host, machine_id="other"))
    database.write(runs(), campaigns=(CAMPAIGN, other))
    assert main(["recommend", "--campaign", "c0ffee", "--campaign", "beef"]) == 2
    assert "two machines" in capsys.readouterr().err


CUT_KEPT = PowerCut(
    id="aa", fingerprint="f", path="raw/none", client="flushes", access="nbd", host=CAMPAIGN.host,
    started=START, wall_seconds=1.0, survives=True, claim="…", states=100, possible=100.0,
    exhaustive=True, acknowledged=8, flushes=3, leaked_states=0, repaired_states=0,
    post_recovery_states=2, outcomes={"kept": 100}, settings={}, observed={},
)  # fmt: skip
CUT_LOST = replace(CUT_KEPT, id="bb", survives=False, outcomes={"kept": 90, "lost": 10})


def test_a_profile_without_scores_names_a_measure_that_there_is(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Path(__file__).parents[2] / "data"
    assert main(["import", str(data / "fio-3.33-plain.json"), "--as", "my VM at home"]) == 0
    assert main(["rank", "--metric", "write"]) != 0
    hint = capsys.readouterr().err.partition("--metric ")[2].partition("`")[0]
    assert main(["rank", "--metric", hint]) == 0


def test_bars_are_as_long_as_their_share(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rank", "--bars"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "█" in line]
    lengths = {line.split()[1]: line.count("█") for line in lines}
    assert lengths["raw/unsafe"] == 40
    assert lengths["raw/none"] == pytest.approx(40 * 0.8 / 1.4, abs=1.5)
    assert bar(0.0, 0.0) == ""
    assert bar(1.0, 16.0) == "██▌"


@pytest.mark.parametrize(
    ("needs", "hint"),
    [
        (["format=vhdx"], "vdisklab run ext4/vhdx/none host"),
        (["format=vdi"], "leave out --need format=vdi"),  # vdi loses flushed data
        (["discard", "format=raw", "no-flush-safe"], "ext4/raw/directsync/virtio:discard=unmap"),
        (["snapshots", "format=vhdx"], "vdisklab run btrfs/vhdx/none host"),
        (["format=raw", "format=vmdk"], "contradict each other"),
    ],
)
def test_an_unmet_need_names_a_path_that_meets_it(
    store: Database, capsys: pytest.CaptureFixture[str], needs: list[str], hint: str
) -> None:
    del store
    arguments = [word for need in needs for word in ("--need", need)]
    assert main(["recommend", *arguments]) == PlanError.exit_code
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("needs", "hint"),
    [
        (["cache=unsafe"], "hint: these needs contradict each other: add --unsafe"),
        (["format=qcow2", "discard"], "hint: leave out --need format=qcow2, or measure"),
        (
            ["bus=nvme", "format=vhdx"],
            "hint: measure a path that qualifies on bench1: `vdisklab run ",
        ),
    ],
)
def test_only_a_need_that_decides_is_to_be_left_out(
    store: Database, capsys: pytest.CaptureFixture[str], needs: list[str], hint: str
) -> None:
    store.write(runs(speeds=SPEEDS | {"raw/unsafe": 1.4}))
    arguments = [word for need in needs for word in ("--need", need)]
    assert main(["recommend", *arguments]) == PlanError.exit_code
    said = capsys.readouterr().err
    assert f"none of the {len(SPEEDS) - 1} measured paths meets " in said
    assert hint in said


def test_the_command_of_an_error_keeps_what_was_asked_for(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    old = replace(CAMPAIGN, id="01d01d01", started=CAMPAIGN.started - timedelta(days=1))
    database.write((), campaigns=[CAMPAIGN, old])
    database.add(runs(2))
    database.add(replace(run, id=f"0{run.id}", campaign=old.id) for run in runs(5))
    asked = ["recommend", "--campaign", CAMPAIGN.id, "--need", "format=qcow2", "--disk", "plp"]
    assert main(asked) == PlanError.exit_code
    command = f"vdisklab recommend --campaign {old.id} --disk plp --need format=qcow2"
    assert f"`{command}` answers; or " in capsys.readouterr().err
    assert main(shlex.split(command)[1:]) == 0


def test_the_only_one_with_rounds_enough_is_recommended(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen on a real campaign: of two qcow2 paths one had failed in a round."""
    store.write(run for run in runs() if run.path != "qcow2/directsync" or run.round <= 2)
    found = answer(capsys, "recommend", "--need", "format=qcow2")
    assert found["path"] == "qcow2/none"
    said = " ".join(found["sentences"])
    assert "Nothing to compare yet: of 2 paths only qcow2/none has enough rounds." in said


def test_numbers_of_the_page_cache_are_called_so(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    store.write(
        run for run in campaign_runs() if run.path != "raw/none" and run.page_cache != "cold"
    )
    said = " ".join(answer(capsys, "recommend")["sentences"])
    assert "The speed of raw/writeback is mostly that of the host's RAM: only " in said
    assert "mostly show the host's page cache" not in said, "it is said once"


def test_the_recommendation_is_compared_with_new_guests_disks(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.write(runs(speeds={"host": 1.0, "proxmox": 0.8, "openstack": 0.4, "raw/none": 0.6}))
    found = answer(capsys, "recommend")
    assert found["path"] == str(parse_path("proxmox"))
    assert found["over_platforms"]["proxmox"] is None
    assert found["over_platforms"]["openstack"]["ratio"] == pytest.approx(2, rel=0.05)
    said = " ".join(found["sentences"])
    assert (
        "Compared with the disk of a new guest in Proxmox VE 9.2 (qemu-server 9.2.6): the same"
        in said
    )
    assert "; in OpenStack master of August 2026: between " in said


def test_a_platform_stands_for_its_path_in_other_verbs(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.write(runs(speeds={"host": 1.0, "proxmox": 0.8, "raw/none": 0.6}))
    assert main(["compare", "proxmox", "raw/none"]) == 0
    assert str(parse_path("proxmox")) in capsys.readouterr().out
    assert main(["export", "proxmox", "--to", "proxmox"]) == 0
    assert "aio=io_uring" in capsys.readouterr().out


def of_another_profile(run: Run) -> Run:
    """The run with measurements of which none has a role in the articles' score."""
    renamed = (replace(entry, name=f"oltp-{entry.name}") for entry in run.measurements)
    return replace(run, measurements=tuple(renamed))


def test_a_profile_without_the_scores_measurements_is_ranked_by_the_mean_of_its_rates(
    database: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    database.write(of_another_profile(run) for run in runs())
    page = tmp_path / "report.html"
    ranked = answer(capsys, "rank")
    assert ranked["ranking"]["measure"] == "score/none/overall_ratio"
    assert ranked["roles"] is None
    assert "oltp-randread-4k-q1/read/bandwidth" in ranked["rates"]
    (place,) = [row["place"] for row in ranked["cells"] if row["cell"] == "raw/unsafe (cold)"]
    assert place["reason"] == "loses-data"
    unsafe = answer(capsys, "rank", "--unsafe")["cells"][0]
    assert (unsafe["cell"], unsafe["place"]["worst"]) == ("raw/unsafe (cold)", 1)
    recommended = answer(capsys, "recommend")
    assert recommended["path"] == "raw/none"
    assert main(["rank", "--why"]) == 0
    assert "geometric mean of" in " ".join(capsys.readouterr().out.split())
    for arguments in (
        ["recommend"],
        ["compare", "raw/none", "qcow2/none"],
        ["report", "--output", str(page)],
    ):
        assert main(arguments) == 0, arguments
    assert "geometric mean of" in page.read_text()
    capsys.readouterr()
    front = answer(capsys, "rank", "--pareto", "overall/cpu")
    assert "score/none/overall_ratio" in str(front["measures"])
    assert answer(capsys, "recommend", "--weights", "overall=1")["path"] == "raw/none"
    assert main(["recommend", "--weights", "read=1"]) == 2
    assert "no read score, only the overall one" in capsys.readouterr().err
    assert main(["rank", "--metric", "write"]) == 2
    assert "no write score, only the overall one" in capsys.readouterr().err


def test_a_path_that_lacks_a_rate_is_named(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(run: Run) -> Run:
        kept = [entry for entry in run.measurements if "randread" not in entry.name]
        return replace(run, measurements=tuple(kept)) if run.path == "qcow2/none" else run

    database.write(lacking(of_another_profile(run)) for run in runs())
    for verb in ("rank", "recommend"):
        said = " ".join(" ".join(answer_texts(answer(capsys, verb))).split())
        assert "qcow2/none: no overall ratio, as it lacks oltp-randread" in said, verb


def answer_texts(document: dict[str, Any]) -> list[str]:
    return [finding["text"] for finding in document["findings"]]


def test_a_sentence_beside_a_tie_is_that_of_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recorded campaign of the README, where libvirt's default has half of the rounds."""
    recorded = Path(__file__).parents[3] / "docs" / "images" / "quickstart.json.gz"
    db = ("--db", str(tmp_path / "results.sqlite"))
    assert main(["import", str(recorded), *db]) == 0
    capsys.readouterr()
    found = answer(capsys, "recommend", *db)
    both = (found["path"], "qcow2:preallocation=off/default")
    (pair,) = answer(capsys, "compare", *both, *db)["pairs"]
    shown, compared = found["over_platforms"]["libvirt"], pair["measures"][0]["ratio"]
    assert shown["low"] < 1 < shown["high"]
    assert {end: shown[end] for end in ("low", "ratio", "high")} == {
        end: compared[end] for end in ("low", "ratio", "high")
    }


@pytest.mark.parametrize("need", ["cache=writeback", "format=qcow2"])
def test_the_price_of_a_need_is_the_answer_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], need: str
) -> None:
    """The recorded campaign raced: its ranks alone do not tell the answer from the others."""
    recorded = Path(__file__).parents[3] / "docs" / "images" / "quickstart.json.gz"
    db = ("--db", str(tmp_path / "results.sqlite"))
    assert main(["import", str(recorded), *db]) == 0
    capsys.readouterr()
    found = answer(capsys, "recommend", "--need", need, *db)["recommendation"]
    prices = {price["need"]: price["without"] for price in found["prices"]}
    for left, asked in (("durable", ["--unsafe", "--need", need]), (need, [])):
        assert prices[left] == answer(capsys, "recommend", *asked, *db)["choice"]["cell"]
    assert prices[need] == "raw/none" != found["cell"]
