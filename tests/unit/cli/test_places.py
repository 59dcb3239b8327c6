"""Several directories side by side, and old against new QEMU: what is set against what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.cli.test_advice import CUT_KEPT, CUT_LOST
from tests.unit.stored import Database
from vdisklab.answers.table import answer_table
from vdisklab.cli.compare import compare
from vdisklab.cli.rank import rank
from vdisklab.cli.run import run
from vdisklab.cli.table import table
from vdisklab.errors import PlanError, VdisklabError
from vdisklab.path.durability import HostDisk
from vdisklab.results.model import WITHOUT_FLUSHES, Campaign, Check, Run
from vdisklab.value import replace

LOCAL, BLOCK = "/mnt/local", "/mnt/block"


def call(*arguments: str) -> str:
    app = typer.Typer()
    for verb in (rank, compare, table, run):
        app.command()(verb)
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    if isinstance(result.exception, VdisklabError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def in_directory(directory: str, campaign: str, **more: object) -> Campaign:
    plan = {**CAMPAIGN.plan, "directory": directory, **more}
    return replace(CAMPAIGN, id=campaign, plan=plan)


RUNS = (*campaign_runs(campaign="aaaa"), *campaign_runs(campaign="bbbb", seed=6))


@pytest.fixture
def two(database: Database) -> Database:
    database.write(RUNS, campaigns=(in_directory(LOCAL, "aaaa"), in_directory(BLOCK, "bbbb")))
    return database


class TestSideBySide:
    @pytest.mark.usefixtures("two")
    def test_each_directory_is_a_row_of_its_own(self) -> None:
        text = call("table", "--campaign", "aaaa", "--campaign", "bbbb")
        assert text.count(f"host in {LOCAL}") == text.count(f"host in {BLOCK}") == 4
        assert "differences are not taken within rounds" in text
        found = json.loads(
            call("table", "--campaign", "aaaa", "--campaign", "bbbb", "--format", "json")
        )
        alone = json.loads(call("table", "--campaign", "bbbb", "--format", "json"))
        values = {
            (row["measurement"], row["cell"]): row["bandwidth"] for row in found["measurements"]
        }
        for row in alone["measurements"]:
            assert values[row["measurement"], f"{row['cell']} in {BLOCK}"] == row["bandwidth"]

    @pytest.mark.parametrize("directory", [LOCAL, BLOCK])
    def test_hosts_stand_side_by_side_by_name(self, database: Database, directory: str) -> None:
        other = replace(CAMPAIGN.host, hostname="bench2", machine_id="2" * 16)
        there = replace(in_directory(directory, "bbbb"), host=other)
        database.write(RUNS, campaigns=(in_directory(LOCAL, "aaaa"), there))
        campaigns = ("--campaign", "aaaa", "--campaign", "bbbb")
        with pytest.raises(PlanError, match=r"two machines \(bench1, bench2\)") as caught:
            call("compare", "raw/none", "host", *campaigns)
        assert f"`vdisklab table {' '.join(campaigns)}`" in (caught.value.hint or "")
        text = call("table", *campaigns)
        for name, place in (("bench1", LOCAL), ("bench2", BLOCK)):
            label = name if directory == LOCAL else f"{name}: {place}"
            assert text.count(f"host in {label}") == 4

    @pytest.mark.parametrize("order", [("aaaa", "bbbb"), ("bbbb", "aaaa")])
    def test_each_place_is_judged_by_its_own_file_system(
        self, database: Database, order: tuple[str, str]
    ) -> None:
        why = "xfs is mounted with nobarrier"
        bare = replace(CAMPAIGN.host, more={WITHOUT_FLUSHES: why})
        there = replace(in_directory(BLOCK, "bbbb"), host=bare)
        database.write(RUNS, campaigns=(in_directory(LOCAL, "aaaa"), there))
        named = [word for id in order for word in ("--campaign", id)]
        said = " ".join(call("table", *named).split())
        assert f"In {BLOCK}, qcow2/directsync, raw/none, raw/writeback lose flushed data" in said
        assert said.count("flushed data in a power cut") == 1
        cells = json.loads(call("table", *named, "--format", "json"))["cells"]
        judged = {row["cell"]: row["power_cut"]["reason"] for row in cells if row["power_cut"]}
        assert judged[f"raw/none in {LOCAL}"] is None
        assert judged[f"raw/none in {BLOCK}"] == why
        with database.open() as store:
            kept = answer_table(store, order, HostDisk.PLP).cells
        assert not any(row.power_cut.reason for row in kept if row.power_cut), (
            "such a disk keeps it"
        )

    def test_each_machine_is_judged_by_its_own_power_cuts(self, database: Database) -> None:
        other = replace(CAMPAIGN.host, hostname="bench2", machine_id="2" * 16)
        there = replace(in_directory(LOCAL, "bbbb"), host=other)
        lost = replace(CUT_LOST, host=other)
        campaigns = (in_directory(LOCAL, "aaaa"), there)
        named = ("--campaign", "aaaa", "--campaign", "bbbb")
        database.write(RUNS, campaigns=campaigns, power_cuts=[CUT_KEPT, lost])
        loss = "raw/none lost acknowledged writes in 10 of 100 power cuts."
        assert f"In bench2, {loss}" in " ".join(call("table", *named).split())
        both = [lost, replace(CUT_LOST, id="cc")]
        database.write(RUNS, campaigns=campaigns, power_cuts=both)
        said = " ".join(call("table", *named).split())
        assert loss in said
        assert f", {loss}" not in said, "what every place has needs no place"

    def test_an_export_without_a_flush_loses_data_in_every_verb(self, database: Database) -> None:
        far, offers_none = "nbd:at=far/raw/none", (Check("host.nbd.can_flush", None, "off"),)
        runs = [
            replace(run, path=far, cell=far, checks=offers_none) if run.path == "raw/none" else run
            for run in campaign_runs()
        ]
        database.write(runs)
        for verb in ("table", "rank"):
            said = " ".join(call(verb).split())
            assert "flushed data in a power cut: the NBD server offers no flush" in said, verb

    @pytest.mark.parametrize("verb", [("rank",), ("compare", "host", "raw/none")])
    @pytest.mark.usefixtures("two")
    def test_they_are_never_joined(self, verb: tuple[str, ...]) -> None:
        with pytest.raises(PlanError, match="differ in directory") as caught:
            call(*verb, "--campaign", "aaaa", "--campaign", "bbbb")
        assert "vdisklab table --campaign aaaa --campaign bbbb" in str(caught.value.hint)

    def test_what_was_measured_otherwise_does_not_stand_beside(self, two: Database) -> None:
        longer = in_directory(BLOCK, "bbbb", runtime=60.0)
        two.write(RUNS, campaigns=(in_directory(LOCAL, "aaaa"), longer))
        with pytest.raises(PlanError, match="differ in runtime"):
            call("table", "--campaign", "aaaa", "--campaign", "bbbb")

    def test_several_directories_are_for_this_machine_itself(self, tmp_path: Path) -> None:
        with pytest.raises(PlanError, match="side by side only with --here"):
            call("run", "raw/none", "--dir", str(tmp_path), "--dir", "/tmp")  # noqa: S108

    def test_a_directory_and_a_device_are_not_both_this_place(self, tmp_path: Path) -> None:
        with pytest.raises(PlanError, match="both --dir and --on are given"):
            call("run", "--here", "--dir", str(tmp_path), "--on", "/dev/sdx")


def with_qemu(run: Run, name: str) -> Run:
    if run.path == "host":
        return run
    path = f"{run.path}/virtio:qemu={name}"
    return replace(run, path=path, cell=f"{path}|{run.page_cache}")


@pytest.fixture
def old_and_new(database: Database) -> Database:
    runs = list(campaign_runs())
    guests = [run for run in runs if run.path != "host"]
    both = [
        replace(with_qemu(run, name), id=f"{name[0]}{run.id}")
        for name in ("7.2.22", "10.0.2")
        for run in guests
    ]
    database.write([*(run for run in runs if run.path == "host"), *both])
    return database


class TestOldAgainstNew:
    @pytest.mark.usefixtures("old_and_new")
    def test_each_path_against_itself(self) -> None:
        found = json.loads(call("compare", "qemu=7.2.22", "qemu=10.0.2", "--format", "json"))
        assert sorted((pair["a"], pair["b"]) for pair in found["pairs"]) == [
            (f"{path}/virtio:qemu=7.2.22{state}", f"{path}/virtio:qemu=10.0.2{state}")
            for path, state in (
                ("qcow2/directsync", ""), ("raw/none", ""),
                ("raw/writeback", " (cold)"), ("raw/writeback", " (warm)"),
            )
        ]  # fmt: skip

    @pytest.mark.usefixtures("old_and_new")
    def test_the_ranking_tells_them_apart(self) -> None:
        cells = json.loads(call("rank", "--format", "json"))["cells"]
        paths = {row["cell"].partition(" (")[0] for row in cells}
        assert {"raw/none/virtio:qemu=7.2.22", "raw/none/virtio:qemu=10.0.2"} <= paths

    @pytest.mark.usefixtures("old_and_new")
    def test_a_qemu_that_was_not_measured(self) -> None:
        with pytest.raises(PlanError, match="no path was measured with both"):
            call("compare", "qemu=7.2.22", "qemu=9.9")

    def test_one_name_for_two_programs_is_not_joined(self, old_and_new: Database) -> None:
        def named(version: str) -> dict[str, object]:
            return {"qemu": {"new": {"binary": "/opt/q", "version": version}}}

        campaigns = (
            in_directory(LOCAL, "aaaa", **named("9.0")),
            in_directory(LOCAL, "bbbb", **named("9.1")),
        )
        old_and_new.write((), campaigns=campaigns)
        with pytest.raises(PlanError, match="differ in QEMU"):
            call("rank", "--campaign", "aaaa", "--campaign", "bbbb")
