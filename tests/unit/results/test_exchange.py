"""Exported campaigns come back as they were, hostile files are refused, and CSV stays text."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given

from vdisklab.actions.export_data import export_data, exported_files, import_campaigns
from vdisklab.actions.import_ import import_files
from vdisklab.cli.shell.main import main
from vdisklab.errors import DatabaseError, HostError, PlanError
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results import exchange
from vdisklab.results.exchange import (
    CSV_COLUMNS,
    csv_field,
    is_export,
    read_export,
    store_export,
    write_json,
    write_samples_csv,
)
from vdisklab.results.model import Campaign, Direction, Origin, Run, Sample
from vdisklab.results.power_cut import Counterexample
from vdisklab.results.store import Store, open_store
from vdisklab.value import replace

from .test_store import MANY
from .values import BROKEN, a_campaign, a_measurement, a_power_cut, a_run, campaigns_with_runs

ROOT = Path(__file__).parents[3]

RECORDED = Path(__file__).parents[3] / "docs" / "images" / "campaign.json.gz"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "other.sqlite")) as opened:
        yield opened


def exported(store: Store, *, raw: bool = True) -> bytes:
    sink = io.StringIO()
    write_json(sink, store, reversed(store.campaigns()), store.power_cuts(), raw=raw)
    return sink.getvalue().encode()


@contextmanager
def scratch() -> Iterator[Store]:
    with TemporaryDirectory() as directory, open_store(f"{directory}/scratch.sqlite") as opened:
        yield opened


def _document() -> bytes:
    campaign = a_campaign()
    runs = [a_run(campaign), a_run(campaign, round=2)]
    with scratch() as store:
        store.add_together([campaign], runs, [a_power_cut()])
        return exported(store)


DOCUMENT = _document()
"""An export of one campaign with two runs and a verdict."""


def document() -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(DOCUMENT)
    return plain


class TestRoundTrip:
    @MANY
    @given(stored=campaigns_with_runs)
    def test_a_campaign_is_the_same_elsewhere(
        self, store: Store, other: Store, stored: tuple[Campaign, list[Run]]
    ) -> None:
        campaign, runs = stored
        other.add_together([campaign], runs)
        sink = io.StringIO()
        write_json(sink, other, [campaign], ())
        export = read_export(sink.getvalue().encode(), name="lab.json")
        (found,) = store_export(store, export, name="lab.json").campaigns
        assert (found.id, found.runs, found.known_runs) == (campaign.id, len(runs), 0)
        assert store.campaign(campaign.id) == campaign
        assert list(store.runs(campaign.id)) == runs

    def test_all_of_a_database_and_back(self, store: Store, other: Store) -> None:
        """From SQLite into each kind of database, and from there into a third."""
        campaigns = [a_campaign(label="first"), a_campaign()]
        lost = a_power_cut(survives=False, counterexample=Counterexample("aa/1-0", "lost", "…"))
        runs = [a_run(each, round=round) for each in campaigns for round in (1, 2)]
        failed = a_run(campaigns[0], round=3, failure=BROKEN, measurements=())
        other.add_together(campaigns, [*runs, failed], [a_power_cut(), lost])
        store_export(store, read_export(exported(other), name="a"), name="a")
        with scratch() as third:
            store_export(third, read_export(exported(store), name="b"), name="b")
            assert exported(third) == exported(store)
            assert {each.id for each in third.campaigns()} == {each.id for each in campaigns}
            assert third.power_cuts() == other.power_cuts()
            for each in campaigns:
                assert list(third.runs(each.id)) == list(other.runs(each.id))
                assert third.outlines([each.id]) == other.outlines([each.id])

    def test_a_second_import_adds_nothing_and_a_longer_one_the_rest(self, store: Store) -> None:
        campaign = a_campaign()
        first, second = a_run(campaign), a_run(campaign, round=2, failure=BROKEN)
        with scratch() as source:
            source.add_together([campaign], [first], [a_power_cut()])
            short = read_export(exported(source), name="a")
            source.add_run(second)
            long = read_export(exported(source), name="a")
        store_export(store, short, name="a")
        again = store_export(store, short, name="a")
        assert (again.campaigns[0].runs, again.campaigns[0].known_runs, again.power_cuts) == (
            0,
            1,
            0,
        )
        more = store_export(store, long, name="a")
        assert (more.campaigns[0].runs, more.campaigns[0].known_runs) == (1, 1)
        assert list(store.runs()) == [first, second]

    def test_a_runs_cell_is_typed_again(self, store: Store) -> None:
        campaign = a_campaign(plan={"measurements": []})
        warm = a_run(campaign, path="raw/writeback", page_cache=PageCache.WARM)
        free = a_run(campaign, round=2, path="my VM", origin=Origin.IMPORTED)
        store.add_together([campaign], [warm, free])
        (first, second) = store.outlines([campaign.id])
        assert first.measured_cell == MeasuredCell("raw/writeback", PageCache.WARM)
        assert (second.measured_cell.label, second.measured_cell.path) == ("my VM", None)

    def test_what_contradicts_the_database_is_refused_whole(self, other: Store) -> None:
        plain = document()
        export = read_export(json.dumps(plain).encode(), name="lab.json")
        store_export(other, export, name="lab.json")
        before = exported(other)
        plain["campaigns"][0]["runs"][1]["medium"] = "another disk"
        with pytest.raises(DatabaseError, match=r"run (\w+) in lab.json differs from run \1 in"):
            store_export(other, read_export(json.dumps(plain).encode(), name="lab.json"),
                         name="lab.json")  # fmt: skip
        plain["campaigns"][0]["label"] = "mine"
        with pytest.raises(DatabaseError, match=r"campaign \w+ in lab.json differs"):
            store_export(other, read_export(json.dumps(plain).encode(), name="lab.json"),
                         name="lab.json")  # fmt: skip
        assert exported(other) == before

    def test_fields_of_a_later_version_are_skipped(self, other: Store) -> None:
        plain = document()
        plain["campaigns"][0]["runs"][0]["weather"] = "rain"
        plain["moon"] = "full"
        store_export(other, read_export(json.dumps(plain).encode(), name="a"), name="a")
        assert len(other.outlines([plain["campaigns"][0]["id"]])) == 2

    def test_without_the_programs_output(self, store: Store) -> None:
        campaign = a_campaign()
        store.add_together([campaign], [a_run(campaign)])
        (whole,) = read_export(exported(store, raw=False), name="a").campaigns
        assert [each.raw for run in whole.runs for each in run.measurements] == [""]
        assert whole.runs[0].measurements[0].samples == a_measurement().samples


def with_run(plain: dict[str, Any], **changes: object) -> dict[str, Any]:
    plain["campaigns"][0]["runs"][0].update(changes)
    return plain


def with_plan(plain: dict[str, Any], **changes: object) -> dict[str, Any]:
    plain["campaigns"][0]["plan"].update(changes)
    return plain


def doubled(plain: dict[str, Any], part: str) -> dict[str, Any]:
    if part == "runs":
        runs = plain["campaigns"][0]["runs"]
        runs[1] = runs[1] | {"id": runs[0]["id"]}
    else:
        plain[part] *= 2
    return plain


def deep(levels: int) -> Any:  # noqa: ANN401 - lists in lists
    inner: Any = []
    for _ in range(levels):
        inner = [inner]
    return inner


HOSTILE: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda _: [], "is not an export of vdisklab"),
    (lambda _: {}, "is not an export of vdisklab"),
    (
        lambda d: d | {"format": "vdisklab/3"},
        "'vdisklab/3'; this vdisklab reads vdisklab/2",
    ),
    (lambda d: d | {"format": "vdisklab.rank/1"}, "has format 'vdisklab.rank/1'"),
    (lambda d: d | {"campaigns": None}, "it has no list of campaigns"),
    (lambda d: d | {"campaigns": [3]}, "is damaged: campaign"),
    (lambda d: d | {"campaigns": [{}]}, "is damaged: campaign.id is missing"),
    (lambda d: d | {"power_cuts": [{}]}, r"power_cuts\.0\.id is missing"),
    (lambda d: d | {"power_cuts": 7}, "power_cuts should be a list, not 7"),
    (lambda d: doubled(d, "power_cuts"), "2 of its power cuts have the id"),
    (lambda d: doubled(d, "campaigns"), "2 of its campaigns have the id"),
    (lambda d: doubled(d, "runs"), "2 of its runs have the id"),
    (lambda d: with_run(d, id="\x1b[31m"), "one of its runs has the id"),
    (lambda d: with_run(d, round="many"), r"runs\.0\.round should be a whole number"),
    (lambda d: with_run(d, page_cache="lukewarm"), r"runs\.0\.page_cache should be 'cold'"),
    (
        lambda d: with_run(d, measurements={"0": 1}),
        r"runs\.0\.measurements should be a list, not an object",
    ),
    (lambda d: with_run(d, round=0), "run .* run.round is not a whole number from 1"),
    (lambda d: with_run(d, round=2), "in round 2 a second time"),
    (lambda d: with_run(d, campaign="another"), "belongs to the campaign 'another'"),
    (lambda d: with_run(d, path="raw/unsafe", cell="x"), "'raw/unsafe', which is not in the plan"),
    (lambda d: with_run(with_plan(d, cells=[]), path="raw/unsafe"), "key of another cell than"),
    (lambda d: with_run(d, round=2**70), "a number is too large to be stored"),
    (lambda d: with_run(d, accelerator="x"), "run .*: run.accelerator is not one of kvm, tcg"),
    (
        lambda d: with_run(d, wall_seconds=-2.0),
        "lab.json is damaged: run .* run.wall_seconds is not a number from 0",
    ),
    (lambda d: with_run(d, wall_seconds=10**400), "damaged: runs"),
    (lambda d: with_run(d, wall_seconds=float("nan")), "NaN is not a finite number"),
    (lambda d: with_run(d, wall_seconds=float("inf")), "Infinity is not a finite number"),
    (lambda d: with_run(d, started="2026-08-01T12:00:00"), "has no time zone"),
    (lambda d: with_plan(d, measurements=5), "measurements should be a list, not 5"),
    (lambda d: with_plan(d, more=deep(200)), "nested deeper than 100 levels"),
]


class TestHostileFiles:
    @pytest.mark.parametrize(("change", "sentence"), HOSTILE)
    def test_other_documents_are_refused(
        self, other: Store, change: Callable[[dict[str, Any]], object], sentence: str
    ) -> None:
        content = json.dumps(change(document())).encode()
        with pytest.raises(DatabaseError, match=sentence) as refused:
            store_export(other, read_export(content, name="lab.json"), name="lab.json")
        assert "\n" not in refused.value.message
        assert (other.campaigns(), other.power_cuts(), list(other.runs())) == ((), (), [])

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            (b"", "its JSON ends or breaks in line 1"),
            (DOCUMENT[:-200], "its JSON ends or breaks in line"),
            (
                gzip.compress(DOCUMENT)[:-100],
                "compressed data are incomplete",
            ),
            (b"\x1f\x8bnonsense", "compressed data are incomplete"),
            (gzip.compress(b"SQLite format 3\0\xff"), "is a database that gzip packed"),
            (b'{"format": "vdisklab/1", "x": "\xff"}', "byte 31 is not UTF-8"),
            (b"[" * 10**6, "nested too deeply"),
            (b'{"format": "vdisklab/1", "campaigns": ' + b"[" * 10**6, "nested too deeply"),
            (b'{"format": "vdisklab/1", "x": ' + b"9" * 5000 + b"}", "digits"),
            (b'{"format": "vdisklab/1", "x": 1e999}', "1e999 is too large a number"),
        ],
    )
    def test_other_bytes_are_refused(self, content: bytes, sentence: str) -> None:
        with pytest.raises(DatabaseError, match=sentence):
            read_export(content, name="lab.json")

    def test_a_gzip_bomb_is_unpacked_up_to_the_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exchange, "LARGEST", 1 << 20)
        bomb = gzip.compress(bytes(64 << 20))
        with pytest.raises(DatabaseError, match="holds more than 1 MiB of JSON"):
            read_export(bomb, name="lab.json")

    def test_nothing_is_written_that_could_not_be_read(
        self, other: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        campaign = a_campaign()
        other.add_together([campaign], [a_run(campaign)])
        monkeypatch.setattr(exchange, "LARGEST", 1000)
        with pytest.raises(DatabaseError, match="no import accepts"):
            exported(other)


class TestFiles:
    @pytest.fixture
    def url(self, url: str) -> str:
        """A database of each kind with two campaigns and verdicts of two machines."""
        mine, theirs = a_campaign(), a_campaign(host=replace(a_campaign().host, machine_id="b"))
        with open_store(url) as store:
            store.add_together(
                [mine, theirs],
                [a_run(mine), a_run(theirs)],
                [a_power_cut(), a_power_cut(host=theirs.host)],
            )
        return url

    @pytest.mark.parametrize("name", ["all.json", "all.json.gz"])
    def test_a_file_goes_from_database_to_database(
        self, url: str, name: str, tmp_path: Path
    ) -> None:
        file, copy = tmp_path / name, f"sqlite:///{tmp_path / 'copy.sqlite'}"
        assert len(export_data(url, file).campaigns) == 2
        assert file.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
        assert exported_files([file])
        stored = import_campaigns(copy, [file])
        assert ([each.runs for each in stored.campaigns], stored.power_cuts) == ([1, 1], 2)
        again = tmp_path / f"again-{name}"
        export_data(copy, again)
        assert again.read_bytes() == file.read_bytes()
        assert [path.name for path in tmp_path.glob(".*")] == []

    def test_answers_are_the_same_from_each_database(
        self, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        copy = str(tmp_path / "copy.sqlite")
        answers = []
        assert main(["import", str(RECORDED), "--db", url]) == 0
        assert main(["export-data", str(tmp_path / "all.json.gz"), "--db", url]) == 0
        assert main(["import", str(tmp_path / "all.json.gz"), "--db", copy]) == 0
        capsys.readouterr()
        for database in (url, copy):
            for verb in ("rank", "recommend", "table", "compare ext4/raw/none xfs/raw/none"):
                arguments = [*verb.split(), "--campaign", "354e79dc", "--format", "json"]
                assert main([*arguments, "--db", database]) == 0
            # Commands to copy name the database.
            answers.append(re.sub(r" --db [^`\"]+", "", capsys.readouterr().out))
        assert answers[0] == answers[1]
        assert main(["import", str(RECORDED), "--db", copy]) == 0
        assert capsys.readouterr().out == (
            "campaign 354e79dc (ext4 and xfs) is in the database already, with 27 runs\n"
        )
        assert main(["import", str(RECORDED), "--db", copy, "--as", "mine"]) != 0
        assert "keeps its own names" in capsys.readouterr().err

    def test_one_campaign_takes_its_machines_verdicts_along(self, url: str, tmp_path: Path) -> None:
        with open_store(url) as store:
            chosen = store.campaigns()[0]
        file = tmp_path / "one.json"
        assert export_data(url, file, [chosen.id[:8]]).campaigns == (chosen,)
        export = read_export(file.read_bytes(), name="one")
        assert [each.campaign for each in export.campaigns] == [chosen]
        assert [each.host for each in export.power_cuts] == [chosen.host]

    def test_numbers_as_csv(self, url: str, tmp_path: Path) -> None:
        export_data(url, tmp_path / "numbers.csv.gz")
        with gzip.open(tmp_path / "numbers.csv.gz", "rt", encoding="utf-8", newline="") as stream:
            assert len(list(csv.DictReader(stream))) == 4

    def test_other_files_are_not_taken_for_exports(self, tmp_path: Path) -> None:
        result, export = tmp_path / "fio.json", tmp_path / "all.json"
        result.write_text('{"fio version": "fio-3.33", "jobs": []}')
        export.write_text(json.dumps(document(), sort_keys=True))
        assert not exported_files([result])
        assert exported_files([export])
        assert is_export(b'{"format" : "vdisklab.rank/1"}')
        with pytest.raises(PlanError, match=r"all.json holds whole campaigns"):
            exported_files([result, export])

    @pytest.mark.parametrize("record", sorted((ROOT / "bench" / "results").glob("*.json.gz")))
    def test_records_are_imported_or_said_to_have_no_runs(self, record: Path) -> None:
        named = record.name.removesuffix(".json.gz")
        if b'"format": "vdisklab/' in gzip.decompress(record.read_bytes()):
            assert read_export(record.read_bytes(), name=record.name).campaigns
        else:
            with pytest.raises(DatabaseError, match="vdisklab's own benches") as refused:
                read_export(record.read_bytes(), name=record.name)
            assert "docs/proofs.md" in str(refused.value.hint)
            named = "The other records"
        assert named in (ROOT / "docs" / "proofs.md").read_text()

    @pytest.mark.parametrize(
        "record",
        [
            *sorted((ROOT / "bench" / "results").glob("*.json")),
            ROOT / "bench" / "results" / "discard.csv",
        ],
        ids=lambda record: record.name,
    )
    def test_a_plain_record_is_said_to_have_no_runs(self, record: Path, tmp_path: Path) -> None:
        """Not taken for fio's, nor for a text of a program that is named in it; no database is
        made for it."""
        file = tmp_path / "new.sqlite"
        with pytest.raises(DatabaseError, match="vdisklab's own benches"):
            import_files(str(file), [record])
        assert not file.exists()

    def test_a_plan_that_no_answer_could_read_is_refused(self, tmp_path: Path) -> None:
        file, db = tmp_path / "all.json", tmp_path / "new.sqlite"
        file.write_text(json.dumps(with_plan(document(), guest={"cpus": "two"})))
        with pytest.raises(
            DatabaseError, match=r"is damaged: the plan of campaign '\w+': guest.cpus should be"
        ):
            import_campaigns(str(db), [file])
        assert not db.exists()

    def test_a_file_that_cannot_be_written_is_named(self, url: str, tmp_path: Path) -> None:
        with pytest.raises(HostError, match=r"no/all.json cannot be written: No such file"):
            export_data(url, tmp_path / "no" / "all.json")


class TestCsv:
    def test_one_row_per_sample(self) -> None:
        campaign = a_campaign()
        runs = [a_run(campaign), a_run(campaign, round=2, failure=BROKEN, accelerator=None)]
        sink = io.StringIO()
        write_samples_csv(sink, [*runs, a_run(campaign, measurements=())])
        rows = list(csv.DictReader(io.StringIO(sink.getvalue())))
        assert [(r["round"], r["metric"], r["value"], r["unit"], r["failure"]) for r in rows] == [
            ("1", "iops", "9870.5", "1/s", ""),
            ("1", "latency_p99", "0.00025", "s", ""),
            ("2", "iops", "9870.5", "1/s", "guest"),
            ("2", "latency_p99", "0.00025", "s", "guest"),
        ]
        assert tuple(rows[0]) == CSV_COLUMNS
        assert rows[0]["accelerator"] == "tcg"
        assert rows[2]["accelerator"] == ""

    @pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＠"])
    def test_a_text_is_never_a_formula(self, sign: str) -> None:
        evil = f'{sign}HYPERLINK("http://x";"y")'
        samples = (Sample("iops", Direction.READ, -1.5),)
        run = a_run(a_campaign(), medium=evil, measurements=(a_measurement(samples=samples),))
        sink = io.StringIO(newline="")
        write_samples_csv(sink, [run])
        (row,) = csv.DictReader(io.StringIO(sink.getvalue(), newline=""))
        assert row["medium"] == f"'{evil}"
        assert row["value"] == "-1.5"

    @pytest.mark.parametrize("value", [-1.5, 0, None, "raw/none", "", "a=b", "'quoted'"])
    def test_other_values_stay_as_they_are(self, value: object) -> None:
        assert csv_field(value) == value
