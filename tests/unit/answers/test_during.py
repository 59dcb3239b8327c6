"""What an operation costs a guest, from stored runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.unit.cli.test_widths import require_whole
from tests.unit.results.values import BROKEN, HOST, a_campaign, a_measurement, a_power_cut, a_run
from vdisklab.actions.measure import Measured
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.answers.during import (
    DuringAnswer,
    OperationCost,
    newest_of_speed,
    operations_of,
    stored_operations,
    stored_stalls,
    stored_stalls_of_all,
)
from vdisklab.answers.loading import older_answer
from vdisklab.answers.measured_for import measured_operations
from vdisklab.cli.shell import run_campaigns
from vdisklab.cli.shell.main import main
from vdisklab.documents import as_csv, document, schemas
from vdisklab.errors import DirtyHostError, PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.needs import lack, measured_stall, parse_need
from vdisklab.path.stalls import MeasuredStalls, OperationStall
from vdisklab.results.model import (
    FILE_SYSTEM,
    WITHOUT_FLUSHES,
    Campaign,
    Direction,
    Sample,
    Series,
)
from vdisklab.results.store import Store, open_store
from vdisklab.value import replace
from vdisklab.views.charts.lines import operation_figures
from vdisklab.views.during import answer_lines, headline, relief, short_headline, tables

BACKUP = "qcow2/none/virtio:during=backup+workers=64"
SNAPSHOT = "qcow2/none/virtio:during=snapshot"
HOUR = timedelta(hours=1)
MIRROR = "raw/none/virtio:during=mirror"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/n.sqlite") as opened:
        yield opened


@pytest.fixture
def campaign(store: Store) -> Campaign:
    """A backup that holds requests for 5 s, and a snapshot that is hardly felt."""
    plan = {"seed": 1, "cells": [BACKUP, SNAPSHOT, MIRROR], "measurements": []}
    campaign = a_campaign(plan=plan)
    store.add_campaign(campaign)
    for round in (1, 2, 3):
        for path, stall, slower in ((BACKUP, 5.0, 1000.0), (SNAPSHOT, 0.03, 2.0)):
            before = 0.002 * round  # drift, which the ratio does not have
            meanwhile = before * slower * (1 + round / 100)
            calm = (before, 0.004)
            parts = {"before": calm, "during": (meanwhile, stall), "after": calm}
            store.add_run(
                a_run(
                    campaign,
                    path=path,
                    cell=MeasuredCell(path).fingerprint,
                    round=round,
                    measurements=tuple(
                        replace(
                            a_measurement(),
                            name=f"mixed-4k-{window}",
                            measured_seconds=2.0,
                            series=(
                                (Series("latency_max", Direction.NONE, 0.25, (0.002, 0.0, 5.0)),)
                                if window == "during"
                                else ()
                            ),
                            samples=(
                                Sample("latency_p99", Direction.NONE, p99),
                                Sample("latency_p99", Direction.READ, 99.0),
                                Sample("longest_stall", Direction.NONE, longest),
                                *(
                                    (Sample("duration", Direction.NONE, 7.5),)
                                    if window == "during"
                                    else ()
                                ),
                            ),
                        )
                        for window, (p99, longest) in parts.items()
                    ),
                )
            )
    fingerprint = MeasuredCell(MIRROR).fingerprint
    store.add_run(a_run(campaign, path=MIRROR, cell=fingerprint, failure=BROKEN, measurements=()))
    return campaign


def test_the_longest_stall_comes_first_with_its_relief(store: Store, campaign: Campaign) -> None:
    answer = stored_operations(store, None)
    assert answer.campaign == campaign.id
    backup, snapshot, mirror = answer.costs
    assert (backup.path, backup.operation) == ("qcow2/none", "backup:workers=64")
    assert (backup.stall, backup.seconds, backup.runs) == (5.0, 7.5, 3)
    assert backup.during.ratio == pytest.approx(1020, rel=0.01)
    assert backup.after.ratio == pytest.approx(1.0)
    assert backup.judge is None
    assert backup.unjudged == (
        "powercut simulates cuts in the middle of snapshot, commit, mirror and resize; this only "
        "reads the guest's disk, so what holds without it should hold: `vdisklab powercut "
        "ext4/qcow2/none`"
    )
    assert snapshot.unjudged is None
    assert snapshot.judge == "vdisklab powercut ext4/qcow2/none --during snapshot --client flushes"
    assert (mirror.stall, mirror.failure is None, mirror.failed) == (None, False, 1)
    assert headline(answer) == (
        "mirror on raw/none failed: the guest died: Kernel panic - not syncing. "
        "The guest waits during backup:workers=64 on qcow2/none: its slowest 1 % of requests took "
        "4.08 s or longer (4.00 ms before), and no request was completed for 5.00 s (4.00 ms "
        "before). The guest felt snapshot on qcow2/none least: p99 8.16 ms, and no request was "
        "completed for 30.0 ms (4.00 ms before)."
    )
    assert snapshot.to_first is None, "a snapshot is no backup"
    few = Ratio(3, 0.002, 0.0019, 0.0021)
    milder = replace(snapshot, operation="backup:fleecing", to_first=few)
    other = replace(snapshot, operation="nothing")
    assert milder.is_instead_of(backup)
    assert not replace(milder, path="raw/none").is_instead_of(backup)
    assert replace(backup, path="raw/none").is_instead_of(backup)
    assert headline(replace(answer, costs=(backup, milder, snapshot, other))).endswith(
        " The guest felt backup:fleecing on qcow2/none less: p99 8.16 ms, and no request was "
        "completed for 30.0 ms (4.00 ms before); its p99 is 0.00200 times that of "
        "backup:workers=64 on qcow2/none (95 %: 0.00190–0.00210)."
    )
    assert "nothing" not in headline(replace(answer, costs=(backup, other)))
    (table,) = tables(answer)
    assert any("--fleecing" in line for line in table.verbatim)
    titles = [line for line in table.verbatim if line.startswith("# ")]
    assert all(line.startswith("# backup:workers=64 on qcow2/none, ") for line in titles)
    assert len(titles) == len(set(titles)) < len(table.verbatim), "a title, and lines to paste"
    notes = " ".join(table.notes)
    assert "failed in 1 run:" in notes
    assert "no power cut can be judged in the middle of backup:workers=64 on qcow2/none" in notes
    same = replace(backup, path="raw/none")
    (table,) = tables(replace(answer, costs=(backup, same)))
    assert table.verbatim[0].startswith("# backup:workers=64 on qcow2/none and raw/none, Proxmox")
    calm = replace(answer, costs=(snapshot,))
    (table,) = tables(calm)
    assert table.verbatim == ("nothing to paste: the guest felt no operation",)


SNAPSHOT_CUT = {"path": "ext4/qcow2/none", "settings": {"during": "snapshot"}}
ON_EXT4 = replace(HOST, more={FILE_SYSTEM: "ext4"})


def _plan(path: str) -> dict[str, Any]:
    return {"seed": 1, "cells": [path], "measurements": []}


@pytest.mark.parametrize(
    ("changes", "survives"),
    [
        ({}, True),
        ({"settings": {"during": "snapshot", "model": "plp"}}, None),
        ({"settings": {"during": "snapshot", "model": "host-crash"}}, None),
        ({"settings": {"during": "snapshot", "model": "plp"}, "survives": False}, False),
        ({"settings": {}}, None),
        ({"client": "never"}, None),
        ({"states": 3}, None),
        ({"states": 3, "exhaustive": True}, True),
        ({"states": 3, "survives": False, "outcomes": {"lost": 1}}, False),
        ({"path": "btrfs/qcow2/none"}, None),
    ],
)
def test_only_a_cut_that_shows_it_says_that_flushed_data_survive_an_operation(
    store: Store, changes: dict[str, Any], survives: bool | None
) -> None:
    store.add_campaign(a_campaign(host=ON_EXT4, plan=_plan(SNAPSHOT)))
    store.add_power_cut(a_power_cut(**(SNAPSHOT_CUT | changes)))
    (cost,) = operations_of(store, store.campaigns()[0].id).costs
    assert cost.survives is survives


@pytest.mark.parametrize(
    ("path", "facts"),
    [
        ("ext4/qcow2/none/nvme:during=snapshot", {}),
        ("qcow2/unsafe/virtio:during=snapshot", {}),
        ("qcow2/none/virtio:during=snapshot", {WITHOUT_FLUSHES: "xfs is mounted with nobarrier"}),
    ],
)
def test_a_rule_says_that_flushed_data_are_lost_in_an_operation_whatever_cuts_kept(
    store: Store, path: str, facts: dict[str, str]
) -> None:
    host = replace(HOST, more={FILE_SYSTEM: "ext4", **facts})
    store.add_campaign(a_campaign(host=host, plan=_plan(path)))
    for judged in ("ext4/qcow2/none/nvme", "ext4/qcow2/unsafe", "ext4/qcow2/none"):
        store.add_power_cut(a_power_cut(**(SNAPSHOT_CUT | {"path": judged})))
    (cost,) = operations_of(store, store.campaigns()[0].id).costs
    assert cost.survives is False


REASON = "no space is left where the copy goes, so QEMU stopped the guest at a write"


@pytest.mark.parametrize("control", [False, True], ids=["beside a snapshot", "beside nothing"])
def test_what_failed_leads_and_is_not_said_to_be_unfelt(
    store: Store, campaign: Campaign, control: bool
) -> None:
    answer = stored_operations(store, None)
    _, snapshot, mirror = answer.costs
    failed = replace(mirror, failure=REASON)
    other = replace(snapshot, operation="nothing") if control else snapshot
    answer = replace(answer, costs=(other, failed))
    (table,) = tables(answer)
    rest = "" if control else " No other operation made the guest's requests wait for more than"
    said = f"mirror on raw/none failed: {REASON}.{rest}"
    assert headline(answer).startswith(said)
    assert control == (headline(answer) == said)
    assert document(answer, table.sentences)["sentences"][0].startswith(said)
    assert short_headline(answer) == "mirror failed"
    assert answer_lines(answer)[0] == ("Failed", f"mirror on raw/none failed: {REASON}.")
    assert table.verbatim == (
        "nothing to paste: what the guest felt is not known of mirror on raw/none",
    )


def test_a_run_in_which_nothing_was_served_before_is_no_measure(
    store: Store, campaign: Campaign
) -> None:
    for run in list(store.runs(campaign.id)):
        if run.path == BACKUP and run.round == 1:
            store.delete_run(run.id)
            before, *later = run.measurements
            samples = (*before.samples, Sample("iops", Direction.NONE, 0.0))
            store.add_run(replace(run, measurements=(replace(before, samples=samples), *later)))
    backup = stored_operations(store, None).costs[0]
    assert (backup.runs, backup.failed) == (2, 1)
    assert backup.failure == "no request was served before the operation"


def test_a_run_that_failed_beside_others_is_counted(store: Store, campaign: Campaign) -> None:
    answer = stored_operations(store, None)
    partly = replace(answer.costs[0], runs=2, failed=1, failure=REASON)
    answer = replace(answer, costs=(partly, answer.costs[2]))
    assert "mirror on raw/none failed: the guest died" in headline(answer)
    assert "So did 1 other." in headline(answer)
    answer = replace(answer, costs=(partly,))
    assert headline(answer).startswith(
        f"backup:workers=64 on qcow2/none failed in 1 of 3 runs: {REASON}. The guest waits"
    )


def test_all_that_is_shown_is_in_its_document(store: Store, campaign: Campaign) -> None:
    answer = stored_operations(store, campaign.id)
    found = document(answer)
    require_whole(list(tables(answer)), found)
    schema = schemas([DuringAnswer])[DuringAnswer.FORMAT]
    jsonschema.Draft202012Validator(schema).validate(found)
    assert "qcow2/none,backup:workers=64,3" in as_csv(answer.costs, OperationCost)


def test_a_campaign_without_operations_has_no_answer(store: Store) -> None:
    campaign = a_campaign()
    store.add_campaign(campaign)
    with pytest.raises(PlanError, match="has no operation"):
        stored_operations(store, campaign.id)
    with pytest.raises(PlanError, match="has no operation"):
        stored_operations(store, None)


def test_the_verb_prints_it(
    store: Store, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(store).removeprefix("sqlite:///")
    assert main(["during", "--db", database]) == 0
    assert "took 4.08 s or longer" in " ".join(capsys.readouterr().out.split())
    assert main(["during", "--db", database, "--campaign", campaign.id, "--format", "csv"]) == 0
    assert "backup:workers=64" in capsys.readouterr().out


def test_what_stays_on_a_target_is_said_below_the_answer(
    store: Store,
    campaign: Campaign,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def measured(*_: object, left: list[DirtyHostError], **__: object) -> Measured:
        left.append(DirtyHostError("nbd://far/ is left as it is", hint="run `vdisklab clean`"))
        return Measured(campaign.id, 4, failed=1)

    monkeypatch.setattr(run_campaigns, "measure", measured)
    database = str(store).removeprefix("sqlite:///")
    assert main(["run", "raw/none", "--during", "mirror", "--rounds", "1", "--db", database]) == 4
    said = capsys.readouterr()
    assert "mirror on raw/none failed: the guest died" in said.out
    assert said.err.splitlines()[-2:] == [
        "error: nbd://far/ is left as it is", "hint: run `vdisklab clean`"
    ]  # fmt: skip


def test_commands_name_the_database_and_are_the_same_in_each_format(
    store: Store, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(store).removeprefix("sqlite:///")
    said = {}
    for form in ("json", "csv", "table"):
        assert main(["during", "--db", database, "--format", form]) == 0
        said[form] = " ".join(capsys.readouterr().out.split())
    judge = f"vdisklab powercut ext4/qcow2/none --during snapshot --client flushes --db {database}"
    assert [judge in text for text in said.values()] == [True, True, True]
    assert f"`vdisklab during --db {database} --why`" in said["table"]
    assert main(["during", "--db", database, "--campaign", campaign.id, "--why"]) == 0
    assert judge in " ".join(capsys.readouterr().out.split())


def test_a_path_whose_backup_stalls_does_not_meet_the_need(
    store: Store, campaign: Campaign
) -> None:
    stalls = stored_stalls(store, campaign, 1.0)
    path = parse_path("qcow2/none")
    verdicts = CrashVerdicts(stalls=stalls)
    assert lack(path, parse_need("backup"), verdicts) == (
        "no request was completed for 5 s in its backup:workers=64, and --stall allows 1 s"
    )
    assert lack(path, parse_need("snapshots"), verdicts) is None
    patient = CrashVerdicts(stalls=replace(stalls, limit=10.0))
    assert lack(path, parse_need("backup"), patient) is None
    assert lack(parse_path("raw/none"), parse_need("backup"), verdicts) is None


def test_of_several_hosts_each_has_its_own_stalls(store: Store, campaign: Campaign) -> None:
    """Those of the first campaign stood for all hosts."""
    path = parse_path("qcow2/none")
    elsewhere = a_campaign(
        id="5beed", fingerprint="5beed", plan=_plan("qcow2/none"),
        host=replace(HOST, machine_id="another"),
    )  # fmt: skip
    store.add_campaign(elsewhere)
    store.add_run(a_run(elsewhere, accelerator="tcg"))
    names = {campaign.id: "kvm1", elsewhere.id: "kvm2"}
    for speeds in ((campaign, elsewhere), (elsewhere, campaign)):
        stalls = stored_stalls_of_all(store, speeds, 1.0, names)
        assert lack(path, parse_need("backup"), CrashVerdicts(stalls=stalls)) == (
            "no request was completed for 5 s in its backup:workers=64 on kvm1, and --stall allows "
            "1 s"
        )
    assert stored_stalls_of_all(store, [elsewhere], 1.0, names).by_path == {}
    alone = stored_stalls_of_all(store, [campaign], 1.0, {})
    assert alone == stored_stalls(store, campaign, 1.0)


@pytest.mark.parametrize(
    ("changes", "host", "accelerator", "counts"),
    [
        ({}, {}, "tcg", True),
        ({"directory": "/other"}, {}, "tcg", False),
        ({"devices": ["/dev/vdb"]}, {}, "tcg", False),
        ({}, {"qemu": "10.0.2"}, "tcg", False),
        ({}, {"machine_id": "another"}, "tcg", False),
        ({"qemu": {"old": {"binary": "/opt/qemu"}}}, {}, "tcg", True),
        ({}, {}, "kvm", False),
    ],
)
def test_a_stall_counts_only_where_the_paths_were_measured(
    store: Store,
    campaign: Campaign,
    changes: dict[str, Any],
    host: dict[str, Any],
    accelerator: str,
    counts: bool,
) -> None:
    speed = a_campaign(
        id="5beed", fingerprint="5beed", plan=_plan("qcow2/none") | changes,
        host=replace(HOST, **host),
    )  # fmt: skip
    store.add_campaign(speed)
    store.add_run(a_run(speed, accelerator=accelerator))
    stalls = stored_stalls(store, speed, 1.0)
    assert (stalls.mildest(parse_path("qcow2/none"), "backup") is not None) == counts


def test_the_mildest_operation_of_a_kind_counts() -> None:
    by_path = {"qcow2/none": {"backup": OperationStall("backup:fleecing", 0.2)}}
    assert MeasuredStalls(by_path).too_long(parse_path("qcow2/none"), "backup") is None


def test_a_stall_of_writes_alone_is_called_so() -> None:
    path = parse_path("qcow2/none")
    stall = OperationStall("backup", 1.5, of_writes=True)
    verdicts = CrashVerdicts(stalls=MeasuredStalls({"qcow2/none": {"backup": stall}}))
    assert lack(path, parse_need("backup"), verdicts) == (
        "no write was completed for 1.5 s in its backup, and --stall allows 1 s"
    )


def test_latencies_over_time_are_drawn_with_the_span_of_the_operation(
    store: Store, campaign: Campaign
) -> None:
    answer = stored_operations(store, campaign.id)
    runs = answer.costs[0].runs_over_time
    assert [run.round for run in runs] == [1, 2, 3]
    assert runs[0].longest == (0.002, None, 5.0)
    assert (runs[0].begin, runs[0].end) == (2.0, 9.5)
    (figure,) = operation_figures(answer)
    panels = {lines.panel: lines for lines in figure.curves}
    backup = "backup:workers=64 on qcow2/none, round 3"
    assert list(panels) == [backup, "snapshot on qcow2/none, round 3"]
    drawn = panels[backup]
    assert drawn.data == ((0.0, 0.25, 0.5, 0.75), (0.002, None, 5.0, 5.0))
    assert drawn.steps, "a value holds for its interval"
    assert "an interval of a quarter of a second" in figure.note
    assert (drawn.gaps, drawn.y) == (((2.0, 9.5),), "s")
    assert "it took 7.50 s; its slowest 1 % of requests took 4.08 s" in figure.alt


def test_the_report_on_operations_has_their_figure_alone(
    store: Store, campaign: Campaign, tmp_path: Path
) -> None:
    page = tmp_path / "r.html"
    database = str(store).removeprefix("sqlite:///")
    assert main(["report", "--db", database, "-o", str(page), "--campaign", campaign.id]) == 0
    text = page.read_text()
    assert "What do operations on its disk cost a running guest" in text
    assert "What the guest felt while the operation ran" in text
    assert "Speed against safety" not in text
    (table,) = tables(stored_operations(store, campaign.id))
    parts = ("Table of operations", "data-curves", "To paste, so that", 'id="cells"')
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    for column in table.columns:
        assert column.heading.replace(" %", "\N{NO-BREAK SPACE}%") in text[places[0] : places[1]]
    assert "no line:" not in text
    assert "The answer above" not in text


def test_the_markdown_report_has_the_table_and_the_lines_to_paste(
    store: Store, campaign: Campaign, tmp_path: Path
) -> None:
    file, database = tmp_path / "r.md", str(store).removeprefix("sqlite:///")
    assert main(["report", "--db", database, "--format", "md", "-o", str(file)]) == 0
    text = file.read_text()
    answer = stored_operations(store, campaign.id)
    (table,) = tables(answer)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    headings = [column.heading for column in table.columns]
    assert rows[0] == f"| {' | '.join(headings)} |"
    assert len([row for row in rows if row.startswith("| qcow2/none | backup:workers=64 |")]) == 1
    assert text.index("## Operations") < text.index("## To paste") < text.index("## Cells")
    (line,) = {line for _, each in relief(answer) if (line := each.line or "").startswith("echo ")}
    assert f"\n    {line}\n" in text, "as it is, to be pasted"


def test_a_single_row_has_no_columns_of_what_it_cannot_have(
    store: Store, campaign: Campaign
) -> None:
    answer = stored_operations(store, campaign.id)
    alone = replace(answer.costs[0], during=Ratio(1, 6.8), runs=1)
    (table,) = tables(replace(answer, costs=(alone,)))
    headings = {column.heading for column in table.columns}
    assert "during : before" in headings
    assert headings.isdisjoint({"95 %", "p99 : row 1"})


def test_a_difference_that_is_not_shown_is_not_stated(store: Store, campaign: Campaign) -> None:
    answer = stored_operations(store, campaign.id)
    backup, snapshot, _ = answer.costs
    vague = replace(snapshot, to_first=Ratio(3, 0.27, 0.0075, 10))
    said = headline(replace(answer, costs=(backup, vague)))
    assert said.endswith(
        "3 rounds do not show that its p99 differs from that of backup:workers=64 on qcow2/none."
    )


@pytest.mark.parametrize("rounds", [(1,), (1, 2, 3)])
def test_operations_have_no_diagnostics_of_ranks_and_scores(
    store: Store,
    campaign: Campaign,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rounds: tuple[int, ...],
) -> None:
    file = tmp_path / "r.md"
    for run in list(store.runs(campaign.id)):
        if run.round not in rounds:
            store.delete_run(run.id)
    database = str(store).removeprefix("sqlite:///")
    for argv in (
        ["report", "--format", "md", "-o", str(file)],
        ["rank", "--metric", "mixed-4k-during/none/latency_p99", "--why"],
    ):
        assert main([*argv, "--db", database, "--campaign", campaign.id]) == 0
        said = " ".join((capsys.readouterr().out + file.read_text()).split())
        assert "a rank needs" not in said
        assert "No scores" not in said


def test_a_rank_of_operations_points_to_their_answer(
    store: Store, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(store).removeprefix("sqlite:///")
    assert main(["rank", "--db", database, "--metric", "mixed-4k-during/none/latency_p99"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"vdisklab during --campaign {campaign.id} --db " in said
    assert "No path to use yet" not in said


def test_a_recommendation_does_not_come_from_operations(
    store: Store, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(store).removeprefix("sqlite:///")
    assert main(["recommend", "--db", database, "--need", "backup"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"the campaign {campaign.id} measured what operations cost a guest" in said
    assert "vdisklab run qcow2/none raw/none host" in said, said
    assert "then repeat this command without --campaign" in said
    assert newest_of_speed(store) is None
    speed = replace(a_campaign(), id="5beed", fingerprint="5beed", started=campaign.started)
    store.add_campaign(speed)
    store.add_run(a_run(speed))
    later = replace(campaign, id="1a7e", fingerprint="1a7e", started=campaign.started + HOUR)
    store.add_campaign(later)
    store.add_run(replace(a_run(later, path=BACKUP, cell=MeasuredCell(BACKUP).fingerprint)))
    found = newest_of_speed(store)
    assert found is not None
    assert found.id == "5beed"
    asked = ["recommend", "--db", database, "--need", "backup", "--stall", "5ms"]
    assert main([*asked, "--campaign", "1a7e"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "vdisklab recommend --need backup --stall 0.005 --campaign 5beed" in said


@pytest.mark.parametrize("need", [[], ["--need", "discard"]])
def test_a_limit_of_stalls_needs_a_need_that_goes_by_them(
    store: Store, campaign: Campaign, capsys: pytest.CaptureFixture[str], need: list[str]
) -> None:
    database = str(store).removeprefix("sqlite:///")
    assert main(["recommend", "--db", database, "--stall", "5ms", *need]) == 2
    assert "--stall has no effect without --need backup" in capsys.readouterr().err


def test_operations_are_not_ranked_as_paths(
    store: Store, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(store).removeprefix("sqlite:///")
    assert main(["rank", "--db", database]) == 2
    said = capsys.readouterr()
    assert f"vdisklab during --campaign {campaign.id}" in said.err
    assert "rank" not in said.out
    later = replace(a_campaign(), id="5beed", fingerprint="5beed", started=campaign.started + HOUR)
    assert older_answer(store, later, lambda _campaign: False) == campaign
    assert older_answer(store, later, measured_operations) is None


def test_the_measured_stall_stands_beside_its_limit(store: Store, campaign: Campaign) -> None:
    verdicts = CrashVerdicts(stalls=stored_stalls(store, campaign, 7.5))
    path = parse_path("qcow2/none")
    assert measured_stall(path, parse_need("backup"), verdicts) == (
        "no request was completed for 5 s in its backup:workers=64; --stall allows 7.5 s"
    )
    assert measured_stall(path, parse_need("discard"), verdicts) is None
    assert measured_stall(parse_path("raw/none"), parse_need("backup"), verdicts) is None


def test_a_wait_that_was_there_before_is_no_cost(store: Store, campaign: Campaign) -> None:
    answer = stored_operations(store, campaign.id)
    slow = replace(
        answer.costs[0],
        stall=0.3,
        stall_before=0.4,
        latency=0.5,
        latency_before=0.6,
        during=Ratio(1, 0.9),
        runs=1,
    )
    assert not slow.is_felt
    assert headline(replace(answer, costs=(slow,))) == (
        "No operation is shown to make the guest wait longer than before, in 1 round. The longest "
        "wait, during backup:workers=64 on qcow2/none: its slowest 1 % of requests took 500 ms or "
        "longer (600 ms before), and no request was completed for 300 ms (400 ms before)."
    )
    assert replace(slow, during=Ratio(3, 1.5, 1.2, 1.9)).is_felt
    short = replace(slow, during=Ratio(3, 1.5, 1.2, 1.9), stall=0.05, latency=0.06)
    said = headline(replace(answer, costs=(short, replace(slow, during=Ratio(1, 0.9)))))
    assert "is shown to make the guest wait for more than 0.1 s and longer than before" in said
    assert not replace(slow, write_stall=2.0).is_felt, "no stall of writes before is stored"
    slow = replace(slow, write_stall=2.0, write_stall_before=0.9)
    assert slow.is_felt
    assert headline(replace(answer, costs=(slow,))) == (
        "In this round the guest waited longer during backup:workers=64 on qcow2/none: no write "
        "was completed for 2.00 s (900 ms before)."
    ), "nothing that became shorter stands behind `longer`"
    assert not replace(slow, write_stall_before=1.1).is_felt, "writes are compared with writes"
    assert replace(slow, control=1.9).is_felt
    assert not replace(slow, control=2.1).is_felt, "nothing took as long"
    unsure = replace(slow, runs=3, during=Ratio(3, 4.4, 0.5, 39.0))
    assert unsure.is_felt
    assert headline(replace(answer, costs=(unsure,))).startswith("In these 3 rounds the guest")
    shown = replace(unsure, during=Ratio(3, 4.4, 1.5, 13.0))
    assert headline(replace(answer, costs=(shown,))).startswith("The guest waits during")


def test_a_run_shows_which_requests_a_value_is_of(
    store: Store, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(store).removeprefix("sqlite:///")
    (run, *_) = store.runs(campaign.id)
    assert main(["show", run.id, "--db", database]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["all", "latency_p99"] in [row[:2] for row in rows]
    assert ["\N{EN DASH}", "duration"] in [row[:2] for row in rows]
    assert not any(row[:1] == ["none"] for row in rows)


def test_a_front_ignores_no_option(
    store: Store, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(store).removeprefix("sqlite:///")
    for options in (["--top", "2"], ["--bars"], ["--metric", "write"]):
        assert main(["rank", "--db", database, "--pareto", "read/write", *options]) == 2
        assert f"{options[0]} has no effect with --pareto" in capsys.readouterr().err
