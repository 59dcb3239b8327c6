"""What power cuts found, in the words of every verb."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.cli.test_advice import CUT_KEPT, CUT_LOST, SPEEDS, answer, runs
from tests.unit.stored import Database
from vdisklab.answers.loading import stored_verdicts, verdicts_of
from vdisklab.cli.shell.main import main
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import (
    CrashStates,
    CrashVerdicts,
    DurabilityKind,
    HostDisk,
    PathCrashes,
    durability,
    verdict_name,
)
from vdisklab.path.power_cut_words import ClientKind
from vdisklab.results.model import FILE_SYSTEM
from vdisklab.results.power_cut import MODEL
from vdisklab.value import replace
from vdisklab.views.durability import durability_sentence, power_cut_word

LOSS = "raw/unsafe loses flushed data in a power cut: cache mode unsafe drops flushes."


@pytest.fixture
def store(database: Database) -> Database:
    database.write(runs())
    return database


def test_power_cuts_of_this_machine_decide(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    store.add_power_cuts([CUT_KEPT])
    found = answer(capsys, "recommend", "--need", "durable")
    assert "raw/none kept every write that the guest had flushed in all 100 power cuts" in " ".join(
        found["sentences"]
    )
    store.add_power_cuts([CUT_LOST])
    found = answer(capsys, "recommend", "--need", "durable")
    assert found["path"] == "qcow2/none"
    assert found["recommendation"]["excluded"] == {"durable": 2}


def test_a_client_that_never_flushes_counts_where_none_is_needed() -> None:
    never = replace(CUT_LOST, client="never")
    found = verdicts_of([never])
    assert durability(parse_path("raw/none"), found).kind is DurabilityKind.NOT_TESTED
    found = verdicts_of([replace(never, path="raw/directsync")])
    assert durability(parse_path("raw/directsync"), found).states.lost == 10
    failed = replace(CUT_LOST, failure="no room", survives=None)
    assert verdicts_of([failed]) == CrashVerdicts()


def test_a_database_that_does_not_sync_its_commit_says_nothing_about_a_path() -> None:
    lost = replace(CUT_LOST, client="sqlite-delete", access="guest")
    assert verdicts_of([lost]) == CrashVerdicts()
    assert verdicts_of([replace(lost, client="sqlite-extra")]) != CrashVerdicts()


def test_a_directory_is_tested_with_a_database_in_a_guest() -> None:
    path = "ext4/virtiofs:cache=none"
    said = durability_sentence(path, durability(parse_path(path), CrashVerdicts()))
    assert f"`vdisklab powercut {path} --access guest --client sqlite-extra` simulates" in said


def test_a_verdict_under_another_model_says_nothing_about_a_power_cut() -> None:
    spared = replace(CUT_KEPT, settings={**CUT_KEPT.settings, MODEL: "plp"})
    assert (spared.model, CUT_KEPT.model) == ("plp", "power")
    assert verdicts_of([spared]) == CrashVerdicts()


def test_a_verdict_counts_above_its_own_disk_and_a_survivor_of_the_strictest_above_any() -> None:
    under_plp = {**CUT_KEPT.settings, MODEL: "plp"}
    kept, lost = replace(CUT_KEPT, settings=under_plp), replace(CUT_LOST, settings=under_plp)
    path = CUT_KEPT.path
    for cuts, counted in (
        ([kept], kept.states),
        ([CUT_KEPT], CUT_KEPT.states),
        ([CUT_LOST], None),  # a loss above a volatile disk says nothing about this one
        ([replace(kept, settings={**under_plp, MODEL: "qemu-killed"})], None),
    ):
        found = verdicts_of(cuts, HostDisk.PLP).by_path.get(path)
        assert (found and found.flushed.judged) == counted
    broken = durability(parse_path(path), verdicts_of([CUT_KEPT, lost], HostDisk.PLP))
    assert broken.kind is DurabilityKind.LOST_IN_TEST
    assert "power cuts above a disk with power-loss protection" in durability_sentence(path, broken)


def test_a_host_that_was_upgraded_is_told_which_kernel_and_qemu_count(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed command was run, but under a kernel that did not measure this campaign."""
    now = replace(CAMPAIGN.host, kernel="6.12.1-amd64")
    cut = replace(CUT_KEPT, path="ext4/raw/none")
    on_ext4 = replace(CAMPAIGN, host=replace(CAMPAIGN.host, more={FILE_SYSTEM: "ext4"}))
    counts = "kernel 6.1.0-30-amd64 and QEMU 7.2.15, and power cuts with others do not count."
    then = "Where these are installed, `vdisklab powercut ext4/raw/none` simulates the cut"
    for campaign, states, said in (
        (CAMPAIGN, (), "Not tested: `vdisklab powercut ext4/raw/none` simulates the cut"),
        (CAMPAIGN, (now,), f"Not tested with {counts} {then}"),
        (on_ext4, (now,), f"Not tested with {counts} {then}"),
        (on_ext4, (now, CAMPAIGN.host), "raw/none kept every write that the guest had flushed in"),
    ):
        cuts = [replace(cut, id=f"c{n}", host=host) for n, host in enumerate(states)]
        database.write(runs(), campaigns=[campaign], power_cuts=cuts)
        for verb in ("recommend", "rank"):
            assert main([verb]) == 0
            assert said in " ".join(capsys.readouterr().out.split()), verb


def test_a_database_is_tested_by_its_commits(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """By what the profile does, whatever its name is."""
    command = "vdisklab powercut ext4/raw/none"
    for name, program, settings, client in (
        ("mine", "postgresql", {}, "--access guest --client postgresql"),
        ("mine", "sqlite", {"journal": "wal"}, "--access guest --client sqlite-wal"),
        ("mine", "sqlite", {"journal": "delete"}, "--access guest --client sqlite-delete"),
        ("postgresql-like", "fio", {"rw": "randwrite"}, ""),
        ("mine", "mariadb", {}, ""),
    ):
        measurements = [{"name": "a", "program": program, "settings": settings}]
        plan = {**CAMPAIGN.plan, "profile": name, "measurements": measurements}
        database.write(runs(), campaigns=[replace(CAMPAIGN, plan=plan)])
        for verb in ("recommend", "rank"):
            assert main([verb]) == 0
            said = " ".join(capsys.readouterr().out.split())
            assert f"`{f'{command} {client}'.rstrip()}`" in said, (verb, program)
    command = f"{command} --access guest --client postgresql"
    untested = durability(parse_path("raw/none"), CrashVerdicts())
    assert f"`{command}`" in durability_sentence("raw/none", untested, ClientKind.POSTGRESQL)
    assert "--client" not in durability_sentence("raw/none", untested)


@pytest.mark.parametrize("model", ["plp", "host-crash"])
def test_what_a_dead_host_loses_above_a_disk_with_protection_is_lost_above_any(model: str) -> None:
    lost = replace(CUT_LOST, settings={**CUT_LOST.settings, MODEL: model})
    for disk in HostDisk:
        found = durability(parse_path(lost.path), verdicts_of([lost], disk))
        assert found.kind is DurabilityKind.LOST_IN_TEST
    killed = replace(CUT_LOST, settings={**CUT_LOST.settings, MODEL: "qemu-killed"})
    assert verdicts_of([killed]) == CrashVerdicts()


def test_recommend_knows_what_zfs_fuse_cuts_short(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    fastest = "zfs/qcow2:preallocation=off/none"
    found = list(runs(speeds=SPEEDS | {fastest: 9.0}))
    for zfs, excluded in (("2.1.11-1", 1), ("zfs-fuse", 2)):
        host = replace(CAMPAIGN.host, more={"zfs": zfs})
        database.write(found, campaigns=[replace(CAMPAIGN, host=host)])
        answered = answer(capsys, "recommend", "--need", "durable")
        assert (answered["path"] == fastest) is (zfs != "zfs-fuse")
        assert answered["recommendation"]["excluded"] == {"durable": excluded}


def test_every_answer_says_which_disk_it_assumes(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    store.add_power_cuts([replace(CUT_LOST, path="raw/none")])
    strict = answer(capsys, "recommend", "--need", "durable")
    assert (strict["path"], strict["host_disk"]) == ("qcow2/none", "volatile")
    relaxed = answer(capsys, "recommend", "--need", "durable", "--disk", "plp")
    assert (relaxed["path"], relaxed["host_disk"]) == ("raw/none", "plp")
    assert answer(capsys, "rank", "--disk", "plp")["host_disk"] == "plp"
    assert main(["rank", "--why", "--disk", "plp"]) == 0
    assert "above a disk with power-loss protection (--disk plp)" in " ".join(
        capsys.readouterr().out.split()
    )


def test_what_the_block_layer_kept_is_not_what_a_forgetful_device_keeps() -> None:
    alone = replace(CUT_KEPT, path="ext4/raw/none/nvme", access="nbd")
    assert verdicts_of([alone]) == CrashVerdicts()
    for told in (
        replace(alone, access="guest"),
        replace(alone, path="ext4/raw/none/nvme:write_cache=off"),
        replace(alone, path="ext4/raw/none/virtio"),
    ):
        assert set(verdicts_of([told]).by_path) == {verdict_name(parse_path(told.path))}


def test_a_verdict_holds_for_its_kernel_and_qemu_only(store: Database) -> None:
    older = replace(CAMPAIGN.host, qemu="6.0")
    store.add_power_cuts([CUT_KEPT, replace(CUT_LOST, host=older)])
    with store.open() as results:
        now, before = stored_verdicts(results, CAMPAIGN.host), stored_verdicts(results, older)
    assert now.by_path["raw/none"].flushed == CrashStates(100, 0, all_judged=True)
    assert before.by_path["raw/none"].flushed == CrashStates(100, 10, all_judged=True)


def test_the_ranking_tells_what_power_cuts_found_and_nothing_else(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    store.add_power_cuts(
        [
            CUT_KEPT,
            replace(CUT_LOST, id="cc", client="never"),
            replace(CUT_LOST, id="dd", path="qcow2/none"),
        ]
    )
    rows = answer(capsys, "rank")["cells"]
    cells = {row["cell"].removesuffix(" (cold)"): row["power_cut"] for row in rows}
    assert cells["raw/none"]["outcome"] == "kept-flushed-only"
    tested = cells["raw/none"]["tested"]
    assert tested["flushed"]["judged"] + tested["unflushed"]["judged"] == 200
    assert cells["qcow2/none"]["outcome"] == "lost-flushed"
    assert cells["raw/unsafe"]["outcome"] is None  # it would lose, and nobody tried it
    assert main(["rank"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("untested" in line for line in lines) == 3
    assert sum("LOST FLUSHED" in line for line in lines) == 1
    assert sum("loses data" in line for line in lines) == 1
    assert cells["raw/unsafe"]["kind"] == "lost-by-construction"
    assert cells["host"] is None
    assert cells["raw/none"]["kind"] == "kept-in-test"


@pytest.mark.parametrize(
    "arguments",
    [
        ("rank",),
        ("rank", "--bars"),
        ("rank", "--pareto", "read/write"),
        ("compare", "raw/unsafe", "raw/none"),
        ("recommend", "--unsafe"),
        ("table",),
        ("table", "--as", "grid"),
        ("export", "raw/unsafe"),
    ],
)
def test_every_verb_says_alike_which_paths_lose_data(
    store: Database, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert main([*arguments]) == 0
    printed = capsys.readouterr()
    assert LOSS in " ".join((printed.out + printed.err).split())


@pytest.mark.parametrize(
    "arguments", [("rank",), ("rank", "--pareto", "read/write"), ("recommend", "--unsafe")]
)
def test_the_column_of_power_cuts_has_the_same_words(
    store: Database,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main([*arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    (unsafe,) = [line for line in lines if "loses data" in line]
    assert "raw/unsafe" in unsafe
    assert any("untested" in line for line in lines)


def test_the_reports_tables_have_the_column_of_power_cuts(store: Database, tmp_path: Path) -> None:
    def report(form: str) -> str:
        assert main(["report", "--format", form, "-o", str(tmp_path / form)]) == 0
        return (tmp_path / form).read_text()

    heading, *rows = [line for line in report("md").splitlines() if "|" in line]
    place = heading.split("|").index(" power cut ")
    arguments = {row.split("|")[2].strip(): row.split("|")[place].strip() for row in rows[1:8]}
    assert arguments["raw/unsafe"] == "loses data"
    assert arguments["raw/none"] == "untested"
    assert arguments["host"] == ""
    page = report("html")
    assert "<td>loses data</td>" in page
    assert "<td>untested</td>" in page
    lines = report("csv").splitlines()
    (unsafe,) = [line for line in lines if "raw/unsafe" in line and "overall_ratio" in line]
    assert "lost-by-construction" in unsafe


def test_a_tie_names_what_its_unsafe_paths_lose(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    alike = {"host": 1.0, "raw/none": 0.8, "raw/unsafe": 0.8, "qcow2/unsafe": 0.8}
    database.write(runs(3, alike, noise=0.3))
    found = answer(capsys, "recommend", "--unsafe")
    assert found["path"] == "raw/none"
    (tied,) = [said for said in found["sentences"] if said.startswith("These 3 tie: ")]
    assert "lose flushed data in a power cut: cache mode unsafe drops flushes." in tied
    assert {"raw/unsafe", "qcow2/unsafe"} <= set(tied.partition(" lose ")[0].replace(
        ",", " ").split())  # fmt: skip


@pytest.mark.parametrize(
    ("flushed", "unflushed", "word"),
    [
        (CrashStates(), CrashStates(), "untested"),
        (CrashStates(19), CrashStates(), "too few"),
        (CrashStates(19, 0, all_judged=True), CrashStates(), "kept flushed"),
        (CrashStates(19), CrashStates(1, 1), "lost unflushed"),
        (CrashStates(60), CrashStates(), "kept flushed"),
        (CrashStates(60), CrashStates(60, 1), "kept flushed"),
        (CrashStates(60), CrashStates(60), "kept all"),
        (CrashStates(), CrashStates(60), "kept unflushed"),
        (CrashStates(), CrashStates(60, 1), "lost unflushed"),
        (CrashStates(60, 1), CrashStates(60), "LOST FLUSHED"),
        (CrashStates(60, 1), CrashStates(), "LOST FLUSHED"),
    ],
)
def test_every_verdict_has_its_word(
    flushed: CrashStates, unflushed: CrashStates, word: str
) -> None:
    verdicts = CrashVerdicts({"raw/none": PathCrashes("raw/none", flushed, unflushed)})
    assert power_cut_word(durability(parse_path("raw/none"), verdicts)) == word


@pytest.mark.parametrize(
    ("path", "flushed", "unflushed", "word"),
    [
        ("raw/unsafe", CrashStates(), CrashStates(), "loses data"),
        ("raw/unsafe", CrashStates(60), CrashStates(60), "loses data"),
        ("raw/unsafe", CrashStates(60, 1), CrashStates(), "LOST FLUSHED"),
        ("raw/none/nvme", CrashStates(), CrashStates(), "loses data"),
        ("tmpfs/raw/none", CrashStates(), CrashStates(), "loses data"),
        ("raw/directsync", CrashStates(), CrashStates(60, 1), "LOST DATA"),
        ("raw/directsync", CrashStates(60), CrashStates(60), "kept all"),
        ("raw/directsync", CrashStates(15), CrashStates(15), "kept all"),
        ("raw/directsync", CrashStates(5), CrashStates(5), "too few"),
        ("raw/none", CrashStates(15), CrashStates(15), "too few"),
    ],
)
def test_a_rule_or_a_lost_write_has_its_word(
    path: str, flushed: CrashStates, unflushed: CrashStates, word: str
) -> None:
    verdicts = CrashVerdicts({path: PathCrashes(path, flushed, unflushed)})
    assert power_cut_word(durability(parse_path(path), verdicts)) == word


def test_what_decides_durability_is_said(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    store.add_power_cuts([CUT_KEPT, replace(CUT_LOST, id="cc", client="never")])
    said = " ".join(answer(capsys, "recommend", "--need", "durable")["sentences"])
    assert (
        "1 of 5 durable paths passed power cuts on this host; in the stacks of the others" in said
    )
    assert "Unflushed data were lost in 10 of 100 power cuts" in said


def test_cuts_too_few_to_decide_are_not_said_to_be_missing(
    store: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    store.add_power_cuts([replace(CUT_KEPT, path="raw/none", states=10, exhaustive=False)])
    said = " ".join(answer(capsys, "recommend", "--need", "durable")["sentences"])
    assert "Tested in 10 power cuts, which is too few" in said
    assert "No simulated power cut has tested these paths: they are called durable" in said
