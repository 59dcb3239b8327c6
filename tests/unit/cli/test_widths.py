"""Every verb's tables at five widths: no word and no number is cut, and JSON has each number."""

from __future__ import annotations

import ast
import gzip
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.unit.analysis.made import labelled
from tests.unit.results.test_power_cut import KEPT, LOST
from tests.unit.views.test_show import MEMBERS, group_answer
from tests.unit.views.test_table import answered
from vdisklab import numbers, views
from vdisklab.analysis.observations import MeasureKey
from vdisklab.analysis.paired_ratios import Ratio
from vdisklab.answers.doctor import DoctorAnswer
from vdisklab.answers.powercut import PowercutAnswer, crash_verdict
from vdisklab.cli.shell import output
from vdisklab.cli.shell.main import main
from vdisklab.documents import document as document_of
from vdisklab.fleet.answer import FleetDoctorAnswer, FleetStatusAnswer, WorkerCheck, WorkerStatus
from vdisklab.fleet.view import doctor_tables, status_tables
from vdisklab.inspection.host_features import Availability, HostFinding
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.segments import PageCache
from vdisklab.results.model import Direction, GuestGroup, HostLoad
from vdisklab.units import format_bytes, format_duration
from vdisklab.views import doctor as doctor_view
from vdisklab.views import powercut as powercut_view
from vdisklab.views import show as show_view
from vdisklab.views import table as table_view
from vdisklab.views.layout import Table
from vdisklab.views.terminal import show
from vdisklab.views.wording import difference

CAMPAIGN = Path(__file__).parents[3] / "docs" / "images" / "campaign.json.gz"
WIDTHS = (60, 80, 100, 120, 200)
WIDEST = 1000
LONG = "xfs/qcow2:cluster_size=2097152:lazy_refcounts=on/none/virtio:iothread=on:queues=4"
FREE = "my VM at home"
SINCE = 1795000000.0

VERBS: dict[str, tuple[str, ...]] = {
    "rank": ("rank",),
    "rank by latency": ("rank", "--metric", "randread-4k-q1/read/latency_p99"),
    "rank as bars": ("rank", "--bars"),
    "rank by several": ("rank", "--pareto", "read/write/latency_p99/cpu"),
    "advise": ("advise", "DOMAIN"),
    "recommend": ("recommend",),
    "recommend by weights": ("recommend", "--weights", "read=3,seqwrite-1m-q1/write/bandwidth=1"),
    "compare": ("compare", LONG, "ext4/raw/none"),
    "compare with a free name": ("compare", FREE, "ext4/raw/none"),
    "compare everything": ("compare", LONG, "ext4/raw/none", "--all"),
    "published": ("compare", "--published", "debatty-2024"),
    "table": ("table",),
    "table side by side": ("table", "--campaign", "354e", "--campaign", "0123"),
    "grid": ("table", "--as", "grid"),
    "grid side by side": ("table", "--as", "grid", "--campaign", "354e", "--campaign", "0123"),
    "claims": ("claims",),
    "runs": ("runs",),
    "runs of a campaign": ("runs", "354e"),
    "show": ("show", "8ac3"),
    "audit": ("audit", "DOMAIN", "--need", "format=qcow2"),
    "profiles": ("profiles",),
    "profile": ("profiles", "hdtune"),
    "method": ("method",),
    "plan": ("plan", LONG, "ext4/raw/{none,writeback}", "host", "--rounds", "7"),
}
DOMAIN = """<domain type='kvm'><name>web.example.org</name><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/>
<source file='/nowhere/a/very/long/name/of/an/image/web.qcow2'/><target dev='vda' bus='virtio'/>
</disk><disk type='file' device='disk'><driver name='qemu' type='raw' cache='unsafe'/>
<source file='/nowhere/b.img'/><target dev='vdb' bus='sata'/></disk></devices></domain>"""


def builders() -> set[str]:
    """The functions of the product that make a table for people: `module.function`."""
    return {
        f"{file.stem}.{function.name}"
        for file in Path(views.__file__).parent.rglob("*.py")
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef) and function.returns is not None
        if re.search(r"\bTable\[", ast.unparse(function.returns)) and not for_programs(function)
    }


def for_programs(function: ast.FunctionDef) -> bool:
    """Whether the table has no columns: only CSV and Parquet have it."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "Table"
        and [ast.unparse(argument) for argument in node.args[1:2]] == ["()"]
        for node in ast.walk(function)
    )


def building() -> Iterator[str]:
    """The functions of the product that are running."""
    frame = sys._getframe().f_back
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("vdisklab.views"):
            yield f"{module.rpartition('.')[2]}.{frame.f_code.co_name}"
        frame = frame.f_back


@dataclass
class Shown:
    """What a case of VERBS shows: its tables, the functions that made them, and its JSON."""

    tables: list[Table[Any]]
    made: set[str]
    document: Any


def held_elsewhere(builder: str) -> bool:
    """Whether a test about this module calls `require_whole`."""
    subject = re.compile(rf"\b{builder.partition('.')[0].partition('_')[0]}")
    texts = (file.read_text() for file in Path(__file__).parents[1].rglob("test_*.py"))
    return any("require_whole(" in text and subject.search(text) for text in texts)


def test_every_table_of_the_product_is_held_at_every_width(shown: Mapping[str, Shown]) -> None:
    made = {builder for case in shown.values() for builder in case.made}
    missing = {builder for builder in builders() - made if not held_elsewhere(builder)}
    assert not missing, "a case of VERBS must show them, or a test call require_whole"


def with_keys(text: str) -> str:
    """An export whose runs have the keys of their cells."""
    export = json.loads(text)
    for row in export["campaigns"]:
        for run in row["runs"]:
            cell = MeasuredCell(run["path"], PageCache(run["page_cache"]))
            run["cell"] = cell.fingerprint
    return json.dumps(export)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded campaign: one path spelled out at length, another under a free name."""
    text = gzip.decompress(CAMPAIGN.read_bytes()).decode()
    text = text.replace("xfs/qcow2/none", LONG).replace("xfs/raw/none", FREE)
    place = tmp_path_factory.mktemp("widths")
    text = with_keys(text)
    (place / "campaign.json").write_text(text)
    (place / "web.xml").write_text(DOMAIN)
    other = text.replace("354e79dc", "01234567").replace('"/srv/work"', '"/srv/other/place"')
    other = re.sub(r'("id": ")([0-9a-f]{16}")', r"\g<1>0\2", other).replace("2026-11", "2026-09")
    (place / "other.json").write_text(other)
    database = place / "results.sqlite"
    for name in ("campaign.json", "other.json"):
        assert main(["import", str(place / name), "--db", str(database)]) == 0
    return database


def words_of(text: str) -> set[str]:
    """The words of an answer, without punctuation at their ends."""
    text = re.sub(r"\* --wide shows [^*]*?\.(?=\s)", "", text)
    return {word.strip(".,;:()") for word in text.split() if not set(word) <= set("─█▏▎▍▌▋▊▉")}


NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")


def rows_of(text: str) -> str:
    """The lines of tables: unlike titles, notes and commands they begin with a space."""
    return "\n".join(line for line in text.splitlines() if line.startswith(" "))


def headings_of(text: str) -> str:
    """The lines above the rules."""
    lines = text.splitlines()
    ends = [place for place, line in enumerate(lines) if line.startswith(" ──")]
    return "\n".join(line for end in ends for line in lines[max(0, end - 3) : end])


def spellings(value: object) -> Iterator[str]:
    """The ways to write the numbers of a JSON document for people."""
    match value:
        case dict():
            for key, part in value.items():
                yield from NUMBER.findall(key)
                yield from spellings(part)
        case list():
            yield str(len(value))
            for part in value:
                yield from spellings(part)
        case str():
            yield from NUMBER.findall(re.sub(r"T(\d\d:\d\d:\d\d)\.\d+", r" \1 ", value))
        case int() | float() if not isinstance(value, bool):
            for scale in (1e-9, 1e-6, 1e-3, 1, 1e3, 1e6, 1e9, 1e12, 1 << 10, 1 << 20, 1 << 30):
                yield numbers.digits(abs(value) / scale)
            texts = (format_duration(abs(value)), format_bytes(value), numbers.probability(value))
            yield from NUMBER.findall(" ".join((*texts, f"{value:g} {value:.0f} {value:.2f}")))
            yield from NUMBER.findall(f"{value:.1%} {value:.0%}")
            yield from NUMBER.findall(numbers.gain(value, None, None))
            for ratio in (value, 1 / value) if value > 0 else ():
                yield from NUMBER.findall(difference(Ratio(1, ratio)))
        case _:
            return


def require_whole(tables: Sequence[Table[Any]], document: Any) -> None:  # noqa: ANN401
    """Checks an answer at each width against its widest form, and that against its JSON; and that
    by default a row is one line."""

    def printed(width: int, *, wide: bool = True) -> str:
        sink = io.StringIO()
        for table in tables:
            show(table, Console(file=sink, width=width), why=True, wide=wide)
        return sink.getvalue()

    for table in tables:
        titles = [column.title for column in table.columns if column.title]
        assert len(set(titles)) == len(titles), f"two columns of one heading: {titles}"
    whole = printed(WIDEST)
    in_document = set(spellings(document)) | set(NUMBER.findall(headings_of(whole)))
    made_up = set(NUMBER.findall(rows_of(whole))) - in_document
    assert not made_up, f"not in JSON: {made_up}"
    names = [name for name in names_in(document) if set(name.split()) <= words_of(whole)]
    for width in WIDTHS:
        text = printed(width)
        assert words_of(text) <= words_of(whole), (
            f"cut at {width}: {words_of(text) - words_of(whole)}"
        )
        for line in rows_of(text).splitlines():
            assert cell_len(line) <= width or len(line.split()) <= 3, line
        for name in names:
            assert set(name.split()) <= words_of(text), f"{name} is gone at {width}"
    rows = sum(len(table.rows) for table in tables)
    # A `whole` column goes on below; the row's name stands in its first line.
    takes_lines = any(column.whole for table in tables for column in table.columns)
    for width in WIDTHS[1:]:
        text = printed(width, wide=False)
        shown = rows_of(text).splitlines()
        assert all(cell_len(line) <= width for line in shown), max(shown, key=cell_len)
        below = [
            line
            for part in text.split(" ──")[1:]
            for line in part.split("\n\n")[0].splitlines()[1:]
            if line[:3].strip() or not takes_lines
        ]
        assert len(below) <= rows, below


def names_in(document: Any) -> set[str]:  # noqa: ANN401
    """The cells and paths of the rows of a document."""
    rows = [row for rows in document.values() if isinstance(rows, list) for row in rows]
    found = {row.get(key) for row in rows if isinstance(row, dict) for key in ("path", "cell")}
    return {re.sub(r" \((cold|warm)\)$", "", name) for name in found if isinstance(name, str)}


@pytest.fixture(scope="module")
def shown(results: Path) -> dict[str, Shown]:
    """Each case of VERBS, run once as tables and once as JSON."""
    domain = str(results.with_name("web.xml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VDISKLAB_DB", str(results))
        patch.chdir(results.parent)
        return {
            name: run_case([domain if word == "DOMAIN" else word for word in arguments])
            for name, arguments in VERBS.items()
        }


def run_case(arguments: Sequence[str]) -> Shown:
    """What a command shows."""
    case = Shown([], set(), None)
    initialise = Table.__init__

    def noted(self: Table[Any], *values: Any, **named: Any) -> None:  # noqa: ANN401 - a table's
        case.made.update(building())
        initialise(self, *values, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "__init__", noted)
        patch.setattr(output, "show", lambda table, *_, **__: case.tables.append(table))
        # 8: `plan` on a kernel without xfs
        assert main(arguments) in (0, 8, 9, 10), arguments
        with redirect_stdout(io.StringIO()) as printed:
            assert main([*arguments, "--format", "json"]) in (0, 8, 9, 10), arguments
    case.document = json.loads(printed.getvalue())
    return case


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_at_every_width(name: str, shown: Mapping[str, Shown]) -> None:
    case = shown[name]
    assert case.tables
    require_whole(case.tables, case.document)


def test_the_host_and_power_cuts_at_every_width() -> None:
    findings = [
        HostFinding("KVM", Availability.MISSING, "/dev/kvm is missing", "×30 slower",
                    "modprobe kvm_intel, or switch virtualisation on in the firmware's setup"),
        HostFinding("fio", Availability.OK, "fio-3.33 in /usr/local/lib/somewhere/deep/bin/fio"),
    ]  # fmt: skip
    cuts = PowercutAnswer((), tuple(map(crash_verdict, (KEPT, LOST))))
    host = DoctorAnswer.of(findings)
    require_whole(list(doctor_view.tables(host)), document_of(host))
    require_whole(list(powercut_view.tables(cuts)), document_of(cuts))


def test_installations_and_boots_at_every_width() -> None:
    values = {
        "duration": 83.21, "allocated": 5.37e9, "mapped": 4.81e9, "flushes": 412.0,
        "worst_second": 7.31e6, "longest_stall": 1.93, "boot_time": 61.4, "shutdown_time": 2.17,
    }  # fmt: skip
    numbers = {
        (f"{path} ({state})", 1, MeasureKey(name, Direction.WRITE, metric)): factor * value
        for path, factor in ((LONG.replace("/none/", "/writeback/"), 2.9), ("raw/writeback", 1.0))
        for state in ("cold", "warm")
        for name in ("install-first", "install-again")
        for metric, value in values.items()
    }
    answer = answered(labelled(numbers), installations=["install-first", "install-again"])
    shown = list(table_view.tables(answer))
    assert [len(table.rows) for table in shown] == [8, 8]
    require_whole(shown, document_of(answer))


def test_guests_and_members_of_a_fleet_at_every_width() -> None:
    load = HostLoad(cpu=0.513, steal=0.017, device=0.94, queue=3.2, thread="IO", thread_cpu=0.71)
    group = GuestGroup(5.25, MEMBERS, load)
    answer = group_answer(group, "oltp-and-log")
    tables = [table for table in show_view.tables(answer) if table.title.startswith("Guests of")]
    require_whole(tables, document_of(answer))
    names = [f"kvm{number}.some-rack.example.org" for number in (7, 12)]
    entries = [
        WorkerStatus(
            host=name, address="tls://192.0.2.1:8786", vdisklab="0.1.0", silent_seconds=seconds,
            measuring_since=since, line=line,
        )
        for name, seconds, since, line in (
            (names[0], 4321.0, SINCE, f"randread-4k-q32 of {LONG}"),
            (names[1], 7.5, None, ""),
        )
    ]  # fmt: skip
    checks = [
        WorkerCheck(
            host=name, versions=versions, database=database, certificate_until="2027-03-09",
            leftovers=leftovers, facts={},
        )
        for name, versions, database, leftovers in (
            (names[0], "QEMU 7.2.22 here, 8.2.4 at 3 others", "", 17),
            (names[1], "", "cannot be reached: connection refused", None),
        )
    ]  # fmt: skip
    # JSON has the seconds since 1970, of which the table prints the date.
    date = datetime.fromtimestamp(SINCE, UTC).isoformat()
    status = FleetStatusAnswer("tls://db1:8786", tuple(entries))
    require_whole(list(status_tables(status)), {**document_of(status), "date": date})
    doctor = FleetDoctorAnswer("tls://db1:8786", tuple(checks))
    require_whole(list(doctor_tables(doctor)), document_of(doctor))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_verdict_wraps_and_the_number_that_decides_goes_last(
    width: int, shown: Mapping[str, Shown]
) -> None:
    """A sentence without its middle, and four rates without the ratio that ranks."""

    def printed(table: Table[Any]) -> str:
        sink = io.StringIO()
        show(table, Console(file=sink, width=width), why=True)
        return sink.getvalue()

    (compared,) = shown["compare"].tables
    verdicts = next(column for column in compared.columns if column.title.startswith("A, comp"))
    texts = rows_of(printed(compared)).split()
    for row in compared.rows:
        assert set(verdicts.show(row).split()) <= set(texts)
    (ranked,) = shown["rank"].tables
    columns = {column.heading: column for column in ranked.columns}
    last = [column for column in columns.values() if not column.spare]
    assert columns["vs base"] in last
    rates = [column for heading, column in columns.items() if heading.startswith("4k write")]
    assert rates
    assert all(rate not in last for rate in rates)
    texts = rows_of(printed(ranked)).split()
    assert {columns["vs base"].show(row) for row in ranked.rows} <= set(texts)
