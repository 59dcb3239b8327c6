"""What every database must do, run against SQLite and, where it is installed, PostgreSQL."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from vdisklab.analysis.observations import Round
from vdisklab.errors import DatabaseError
from vdisklab.results.model import METRICS, Campaign, Direction, Run, Sample
from vdisklab.results.store import Store, default_url, open_store
from vdisklab.value import replace

from .programs import start
from .values import (
    BROKEN,
    HOST,
    NOON,
    a_campaign,
    a_measurement,
    a_run,
    campaigns_with_runs,
)

MANY = settings(
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)


def test_default_is_one_file_in_the_state_directory() -> None:
    assert default_url(Path("/var/lib/vdisklab")) == "sqlite:////var/lib/vdisklab/vdisklab.sqlite"


class TestContract:
    @MANY
    @given(stored=campaigns_with_runs)
    def test_what_is_stored_comes_back(
        self, store: Store, stored: tuple[Campaign, list[Run]]
    ) -> None:
        campaign, runs = stored
        store.add_campaign(campaign)
        for run in runs:
            store.add_run(run)
        assert store.campaign(campaign.id) == campaign
        assert list(store.runs(campaign.id)) == runs
        assert [store.run(run.id) for run in runs] == runs

    def test_another_process_sees_what_is_stored(self, url: str) -> None:
        campaign = a_campaign()
        run = a_run(campaign)
        with open_store(url) as store:
            store.add_campaign(campaign)
            store.add_run(run)
        with open_store(url, create=False) as again:
            assert again.campaigns() == (campaign,)
            assert list(again.runs()) == [run]

    def test_an_empty_database_has_nothing(self, store: Store) -> None:
        assert store.campaigns() == ()
        assert list(store.runs()) == []
        assert store.find_campaign("feedc0dedeadbeef", HOST.machine_id) is None
        assert store.outlines([]) == ()
        assert len(store.observations([]).value) == 0

    def test_campaigns_come_newest_first(self, store: Store) -> None:
        old, new, middle = (
            a_campaign(started=NOON + timedelta(hours=hours)) for hours in (0, 2, 1)
        )
        for campaign in (old, new, middle):
            store.add_campaign(campaign)
        assert store.campaigns() == (new, middle, old)

    def test_equal_facts_are_stored_once(self, store: Store) -> None:
        upgraded = replace(HOST, kernel="6.12.1")
        for host in (HOST, replace(HOST, more=dict(HOST.more)), upgraded):
            store.add_campaign(a_campaign(host=host))
        assert {c.host.kernel for c in store.campaigns()} == {HOST.kernel, "6.12.1"}
        with store._database.reading() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM host").scalar() == 2

    def test_an_empty_campaign_can_be_dropped_and_no_other(self, store: Store) -> None:
        empty, begun = a_campaign(), a_campaign()
        for campaign in (empty, begun):
            store.add_campaign(campaign)
        store.add_run(a_run(begun))
        for campaign in (empty, begun):
            store.drop_if_empty(campaign.id)
        store.drop_if_empty("not there")
        assert store.campaigns() == (begun,)
        store.add_campaign(empty)

    def test_a_campaign_that_has_no_runs_yet_can_be_passed_over(self, store: Store) -> None:
        begun, newer = a_campaign(), a_campaign(started=NOON + timedelta(days=1))
        for campaign in (begun, newer):
            store.add_campaign(campaign)
        store.add_run(a_run(begun))
        assert store.campaigns() == (newer, begun)
        assert store.campaigns(with_runs=True) == (begun,)

    def test_the_newest_campaign_of_a_plan_on_a_machine_is_found(self, store: Store) -> None:
        old, new = a_campaign(), a_campaign(started=NOON + timedelta(days=1))
        elsewhere = a_campaign(host=replace(HOST, machine_id="another"))
        for campaign in (new, old, elsewhere, a_campaign(fingerprint="another plan")):
            store.add_campaign(campaign)
        assert store.find_campaign(old.fingerprint, HOST.machine_id) == new
        assert store.find_campaign(old.fingerprint, "another") == elsewhere
        assert store.find_campaign(old.fingerprint, "nowhere") is None

    def test_the_beginning_of_an_id_is_enough_when_it_is_the_only_one(self, store: Store) -> None:
        campaigns = [a_campaign(id=name) for name in ("abc1", "abd2", "ab", "ABX")]
        for campaign in campaigns:
            store.add_campaign(campaign)
        assert store.campaign("abc").id == "abc1"
        assert store.campaign("ab").id == "ab"
        with pytest.raises(DatabaseError, match="may be any of 3 campaigns: ab, abc1, abd2"):
            store.campaign("a")
        for nothing in ("x", "", "%", "abc11", "aB"):
            with pytest.raises(DatabaseError, match="there is no campaign"):
                store.campaign(nothing)

    def test_the_id_of_the_other_kind_is_known(self, store: Store) -> None:
        campaign = a_campaign(id="abc1")
        store.add_campaign(campaign)
        store.add_run(a_run(campaign, id="ef01"))
        with pytest.raises(DatabaseError, match="there is no run 'abc'") as no_run:
            store.run("abc")
        assert no_run.value.hint == "abc1 is a campaign: `vdisklab runs abc1` lists its runs"
        with pytest.raises(DatabaseError, match="there is no campaign 'ef01'") as no_campaign:
            store.campaign("ef01")
        assert no_campaign.value.hint == "ef01 is a run: `vdisklab show ef01`"

    def test_long_lists_of_candidates_are_cut(self, store: Store) -> None:
        campaign = a_campaign()
        store.add_campaign(campaign)
        for number in range(6):
            store.add_run(a_run(campaign, id=f"r{number}", round=number + 1))
        assert store.run("r3").round == 4
        with pytest.raises(DatabaseError, match="any of 6 runs: r0, r1, r2, r3 and 2 more"):
            store.run("r")

    def test_resuming_knows_what_is_measured_and_what_was_tried(self, store: Store) -> None:
        campaign, other = a_campaign(), a_campaign()
        for row in (campaign, other):
            store.add_campaign(row)
        store.add_run(a_run(campaign, round=1, cell="a"))
        store.add_run(a_run(campaign, round=2, cell="a", failure=BROKEN))
        store.add_run(a_run(campaign, round=2, cell="a", failure=BROKEN))
        store.add_run(a_run(other, round=3, cell="a"))
        assert store.finished(campaign.id) == {(1, "a")}
        assert store.finished(campaign.id, failed_too=True) == {(1, "a"), (2, "a")}
        with pytest.raises(DatabaseError, match="the campaign nowhere is not in"):
            store.finished("nowhere")

    def test_runs_can_be_narrowed(self, store: Store) -> None:
        campaign, other = a_campaign(), a_campaign()
        good, bad = a_run(campaign), a_run(campaign, failure=BROKEN, measurements=())
        elsewhere = a_run(other)
        store.add_campaign(campaign)
        store.add_campaign(other)
        for run in (bad, good, elsewhere):
            store.add_run(run)
        assert list(store.runs()) == [bad, good, elsewhere]
        assert list(store.runs(campaign.id)) == [bad, good]
        assert list(store.runs(campaign.id, measured_only=True)) == [good]
        with pytest.raises(DatabaseError, match="not in"):
            store.runs("nowhere")

    def test_reading_runs_holds_no_lock(self, store: Store, url: str) -> None:
        campaign = a_campaign()
        store.add_campaign(campaign)
        for round in range(1, 101):
            store.add_run(a_run(campaign, round=round))
        reading = store.runs(campaign.id)
        next(reading)
        with open_store(url, patience=0.2) as other:
            other.add_run(a_run(campaign, round=101))
        assert len(list(reading)) == 99

    def test_outlines_tell_of_failed_runs_too(self, store: Store) -> None:
        campaign = a_campaign()
        store.add_campaign(campaign)
        good, bad = a_run(campaign), a_run(campaign, failure=BROKEN, accelerator=None)
        store.add_run(good)
        store.add_run(bad)
        first, second = store.outlines([campaign.id])
        assert (first.id, first.failure, first.accelerator) == (good.id, None, "tcg")
        assert (second.id, second.failure, second.accelerator) == (bad.id, BROKEN, None)
        assert {o.campaign for o in (first, second)} == {campaign.id}

    def test_observations_are_the_samples_of_measured_runs(self, store: Store) -> None:
        campaigns = [a_campaign(), a_campaign()]
        runs = [
            a_run(
                campaign,
                cell=cell,
                path=f"{cell}/none",
                round=round,
                position=position,
                measurements=(
                    a_measurement(name="b", samples=(Sample("iops", Direction.READ, round * 1.5),)),
                    a_measurement(name="a", samples=(Sample("iops", Direction.WRITE, position),)),
                    a_measurement(name="a/b", samples=()),
                ),
            )
            for campaign in campaigns
            for round in (1, 2)
            for position, cell in enumerate(("raw", "qcow2"), 1)
        ]
        failed = a_run(campaigns[0], cell="ide", path="raw/none/ide", failure=BROKEN)
        for campaign in campaigns:
            store.add_campaign(campaign)
        for run in (*runs, failed):
            store.add_run(run)
        seen = store.observations([campaign.id for campaign in campaigns])
        expected = [
            (
                run.measured_cell,
                Round(run.campaign, run.round),
                f"{measured.name}/{sample.direction}/{sample.metric}",
                sample.value,
            )
            for run in runs
            for measured in run.measurements
            for sample in measured.samples
        ]
        assert [
            (
                seen.cells[seen.cell[i]],
                seen.rounds[seen.round[i]],
                str(seen.measures[seen.measure[i]]),
                seen.value[i],
            )
            for i in range(len(seen.value))
        ] == expected
        assert [str(measure) for measure in seen.measures] == ["a/write/iops", "b/read/iops"]
        assert failed.measured_cell not in seen.cells
        assert len(store.observations([campaigns[0].id]).value) == len(expected) // 2

    def test_every_quantity_arrives_as_itself(self, store: Store) -> None:
        campaign = a_campaign()
        store.add_campaign(campaign)
        samples = tuple(
            Sample(metric, direction, float(number))
            for number, (metric, direction) in enumerate((m, d) for m in METRICS for d in Direction)
        )
        for round in range(1, 6):
            store.add_run(
                a_run(campaign, round=round, measurements=(a_measurement(samples=samples),))
            )
        seen = store.observations([campaign.id])
        assert seen.value.tolist() == [sample.value for sample in samples] * 5
        spelled = [str(seen.measures[code]).partition("/")[2] for code in seen.measure]
        assert spelled == [f"{sample.direction}/{sample.metric}" for sample in samples] * 5
        assert seen.round.tolist() == [b for b in range(5) for _ in samples]

    def test_a_run_is_stored_whole_or_not_at_all(self, store: Store) -> None:
        campaign = a_campaign()
        store.add_campaign(campaign)
        late = a_measurement(samples=(Sample("iops", Direction.READ, float("nan")),))
        run = a_run(campaign, measurements=(a_measurement(), late))
        with pytest.raises(DatabaseError, match="nan is not a finite number"):
            store.add_run(run)
        assert list(store.runs()) == []
        store.add_run(replace(run, measurements=run.measurements[:1]))

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"campaign": "nowhere"}, "the campaign nowhere is not in"),
            ({"id": "first"}, "the run first is in .* already"),
            ({}, "is measured in round 1 already, by run first"),
            ({"round": 2, "wall_seconds": float("inf")}, "inf is not a finite number"),
            (
                {"round": 2**31},
                "round is not a whole number from 1|a number is too large to be stored",
            ),
            ({"round": 2, "started": NOON.replace(tzinfo=None)}, "has no time zone"),
            (
                {
                    "round": 2,
                    "measurements": (a_measurement(samples=(Sample("joy", Direction.READ, 1.0),)),),
                },
                "the metric 'joy' is unknown",
            ),
        ],
    )
    def test_what_would_spoil_the_numbers_is_refused(
        self, store: Store, changes: dict[str, object], sentence: str
    ) -> None:
        campaign = a_campaign()
        store.add_campaign(campaign)
        first = a_run(campaign, id="first")
        store.add_run(first)
        with pytest.raises(DatabaseError, match=sentence):
            store.add_run(a_run(campaign, **changes))
        assert list(store.runs()) == [first]

    def test_a_campaign_is_stored_once(self, store: Store) -> None:
        campaign = a_campaign()
        store.add_campaign(campaign)
        with pytest.raises(DatabaseError, match=r"is in .* already"):
            store.add_campaign(campaign)

    def test_a_metric_whose_unit_changed_is_refused(self, store: Store) -> None:
        campaign = a_campaign()
        store.add_campaign(campaign)
        store.add_run(a_run(campaign))
        with store._database.writing() as connection:
            connection.exec_driver_sql("UPDATE metric SET unit = 'min' WHERE name = 'latency_p99'")
        with pytest.raises(DatabaseError, match="latency_p99 in min"):
            store.add_run(a_run(campaign, round=2))

    def test_unstorable_characters_cost_no_run(self, store: Store) -> None:
        campaign = a_campaign(label="a\0b")
        store.add_campaign(campaign)
        store.add_run(a_run(campaign, cell="\udcff", medium="\0"))
        (run,) = store.runs()
        assert (run.cell, run.medium) == ("\N{REPLACEMENT CHARACTER}",) * 2
        assert store.campaign(campaign.id).label == "a\N{REPLACEMENT CHARACTER}b"

    def test_raw_output_is_kept_to_the_last_byte(self, store: Store) -> None:
        campaign = a_campaign()
        raw = "\udcff\0 not UTF-8 \U0001f600\r\n" * 300_000
        run = a_run(campaign, measurements=(a_measurement(raw=raw), a_measurement(raw="")))
        store.add_campaign(campaign)
        store.add_run(run)
        assert store.run(run.id) == run

    def test_two_writers_lose_nothing(self, url: str) -> None:
        campaign = a_campaign()
        with open_store(url) as store:
            store.add_campaign(campaign)
        errors: list[Exception] = []

        def write(cell: str) -> None:
            try:
                with open_store(url) as opened:
                    for round in range(1, 21):
                        opened.add_run(a_run(campaign, cell=cell, path=cell, round=round))
            except DatabaseError as error:
                errors.append(error)

        writers = [threading.Thread(target=write, args=(cell,)) for cell in "abc"]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert errors == []
        with open_store(url) as store:
            expected = {(round, cell) for round in range(1, 21) for cell in "abc"}
            assert store.finished(campaign.id) == expected

    def test_sigkill_loses_no_run_that_was_stored(self, url: str) -> None:
        program = """
            import sys
            from vdisklab.results.store import open_store
            from tests.unit.results.values import a_campaign, a_run
            campaign = a_campaign(id="killed")
            with open_store(sys.argv[1]) as store:
                store.add_campaign(campaign)
                for round in range(1, 10_000):
                    store.add_run(a_run(campaign, id=f"run{round}", round=round))
                    print(round, flush=True)
        """
        with start(program, url) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                if int(line) == 25:
                    writer.kill()
                    break
            told = 25 + sum(1 for _ in writer.stdout)
        with open_store(url, create=False) as store:
            rounds = [run.round for run in store.runs("killed")]
            assert rounds == list(range(1, len(rounds) + 1))
            assert len(rounds) in (told, told + 1)
            expected = a_run(a_campaign(id="killed"), id="run7", round=7)
            assert store.run("run7") == expected
