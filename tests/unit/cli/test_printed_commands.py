"""Every command that an answer, a hint or a page prints works: each is collected, and then run.

Words in capitals and `…` stand for something of the reader's; `FOR` has a value for each. What
would measure stops when its plan is made: there every layer can be built. No guest's image is
built either: the tests of guests hold `plan --commands` with one against what a run executes.
"""

from __future__ import annotations

import html
import io
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console

from tests.unit.analysis.made import CAMPAIGN, campaign_runs
from tests.unit.cli.test_advice import runs
from tests.unit.cli.test_hosts import campaign, runs_of
from tests.unit.loads.loads import load
from tests.unit.stored import Database
from vdisklab.actions import missing_claims
from vdisklab.actions.find_best import BestSearch
from vdisklab.answers import plan as plan_answer
from vdisklab.answers.analysis import Analysis
from vdisklab.answers.begun import MeasuringHost
from vdisklab.answers.effort import so_far_of
from vdisklab.answers.plan import answer_plan
from vdisklab.answers.race_plan import as_race
from vdisklab.answers.tell_apart import more_rounds_command
from vdisklab.cli import advise, density
from vdisklab.cli.shell import run_campaigns
from vdisklab.cli.shell.after_run import print_verdict
from vdisklab.cli.shell.main import main
from vdisklab.cli.shell.measured_campaigns import _going_on
from vdisklab.cli.shell.named import Named
from vdisklab.cli.shell.options import Format
from vdisklab.errors import VdisklabError
from vdisklab.guest.qemu.command_line import BootFiles
from vdisklab.lab import verb as lab
from vdisklab.loads.load import IoKind
from vdisklab.loads.load_file import encode
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.durability import CrashVerdicts
from vdisklab.path.needs import parse_need, with_default
from vdisklab.plan.accelerator import AcceleratorChoice
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities, QemuLimits
from vdisklab.plan.density_request import DensityRequest
from vdisklab.plan.guest import Qemu
from vdisklab.plan.race_terms import RaceTerms
from vdisklab.plan.run_request import RunRequest
from vdisklab.plan.settings import DEFAULT_PROFILE, NO_BASELINE, Request
from vdisklab.powercut import verb as powercut
from vdisklab.results.model import Run
from vdisklab.results.store import open_store
from vdisklab.value import replace
from vdisklab.workload.profile_files import load_profile

ROOT = Path(__file__).parents[3]
GUEST = str(ROOT / "tests" / "data" / "guests" / "machine.yaml")
RECORDED = {
    "campaign": ROOT / "docs" / "images" / "campaign.json.gz",
    **{name: ROOT / "bench" / "results" / f"{name}.json.gz" for name in ("disks", "search-disk")},
}
FINDINGS = (0, 9, 10)
"""Statuses of an answer: 9 and 10 say that a disk or a claim does not hold."""

FOR = {
    "PATHS…": "raw/none host",
    "PATHS": "raw/none",
    "PLATFORM": "libvirt",
    "N": "1",
    "DEVICE": "/dev/sdz",
    "GUESTS": GUEST,
    "GUEST": GUEST,
    "FILE": "/srv/images/web1.raw",
    "DIR": "made",
    "BIN": "qemu-system-x86_64",
    "MEASUREMENT": "randwrite-4k-q1",
    "OPERATION": "nothing",
}
_PLACEHOLDER = re.compile(r"…|(?<![\w/.-])[A-Z]{1,}(?![\w.-])")
_CODE = re.compile(r"`(vdisklab (?!VERB)[^`]*)`")
_LINE = re.compile(r"^(?:hint: )?(vdisklab [a-z].*)$", re.MULTILINE)
_PAGE = re.compile(r"<code>(vdisklab [^<]*)")
_STEP = re.compile(
    r"(?:see it|(?:paste it|for a new guest)(?: for QEMU [^:]*)?): `?(vdisklab [^`;\n]*)"
)

_PLANNED = re.compile(r"vdisklab run (?!.*--(?:again|claims|campaign|need)\b).*")
"""A command whose plan is made of its words and the host alone."""

READING = (
    ("rank", "--why"),
    ("rank", "--hosts", "all"),
    ("rank", "--metric", "nothing"),
    ("rank", "--pareto", "read/write"),
    ("recommend", "--why"),
    ("recommend", "--need", "durable"),
    ("recommend", "--need", "layer=zvol"),
    ("recommend", "--guests", "3"),
    ("compare", "raw/none", "ext4/raw/none"),
    ("compare", "--published", "debatty-2024"),
    ("table", "--why"),
    ("claims",),
    ("claims", "--hosts", "all"),
    ("audit", GUEST),
    ("advise", GUEST),
    ("runs",),
    ("runs", "nothing"),
    ("runs", "--delete", "nothing"),
    ("show", "nothing"),
    ("export", "raw/none"),
    ("export-data", "/dev/null"),
    ("report", "-o", "page.html"),
)
"""What a user asks of a database, answers and errors."""


class PlannedError(VdisklabError):
    """The command has come as far as the disks."""

    exit_code = 0


def plan_only(request: Request) -> NoReturn:
    """Makes the plan of a request on a host that can build everything. Raises PlanError."""
    usual = "open-load" if isinstance(request, DensityRequest) else DEFAULT_PROFILE
    profile = load_profile(request.profile or usual)
    qemus = tuple(Qemu(row.name or "10.0.0", Path(row.binary), "10.0.0") for row in request.qemu)
    able = {qemu.name: QemuLimits() for qemu in qemus}
    plan = build_plan(request, Capabilities(qemus=able), profile, qemus)
    dropped = [row for row in plan.dropped if str(row.path) in request.patterns]
    assert not dropped, f"the command names a path that is dropped: {dropped}"
    raise PlannedError("planned")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "4000")
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("VDISKLAB_DB", str(tmp_path / "results.sqlite"))

    def planned(
        _store: object, asked: Request | Sequence[Request], *_: object, **__: object
    ) -> NoReturn:
        for request in [asked] if isinstance(asked, Request) else asked:
            with suppress(PlannedError):
                plan_only(request)
        raise PlannedError("planned")

    def stop(*_: object, **__: object) -> NoReturn:
        raise PlannedError("planned")

    for module, name, instead in (
        (run_campaigns, "measure", planned),
        (run_campaigns, "measure_in_turns", planned),
        (density, "measure_density", planned),
        (density, "measure_neighbour", planned),
        (advise, "measure", planned),
        (missing_claims, "measure", planned),
        (powercut, "judge_power_cuts", stop),
        (powercut, "replay_case", stop),
        (lab, "build_lab_image", stop),
        (
            plan_answer,
            "boot_files",
            lambda *_: BootFiles(Path("kernel"), Path("initrd"), None, ""),
        ),
    ):
        monkeypatch.setattr(module, name, instead)


@pytest.fixture(scope="module")
def planned() -> set[str]:
    """The campaigns of one test print many commands of another's: each is planned once."""
    return set()


class Printed:
    """The commands that were printed, with the command that printed each."""

    def __init__(self, capsys: pytest.CaptureFixture[str], planned: set[str] | None = None) -> None:
        """`planned` are commands that were planned already, whatever the database holds."""
        self.capsys = capsys
        self.commands: dict[str, str] = {}
        self.of_the_reader = dict(FOR)
        self.planned = set[str]() if planned is None else planned

    def call(self, *arguments: str) -> tuple[int, str]:
        """Runs a command and notes what it prints."""
        self.capsys.readouterr()
        status = main(arguments)
        out, err = self.capsys.readouterr()
        self.note(err, arguments)
        self.note(out, arguments)
        return status, out + err

    def note(self, text: str, arguments: tuple[str, ...]) -> None:
        text = text.replace(r"\u2026", "…")  # as JSON has it
        for pattern in (_CODE, _LINE, _STEP):
            for command in pattern.findall(text):
                self.commands.setdefault(" ".join(command.split()), shlex.join(arguments))

    def ask_all(self, *, as_json: bool = True) -> None:
        """Asks all that a user may, in words and as JSON; reads the page, too."""
        for arguments in (*READING, *self._stored()):
            self.call(*arguments)
            if not as_json or arguments[0] in ("export", "export-data", "report"):
                continue
            status, said = self.call(*arguments, "--format", "json")
            if status in FINDINGS:
                for text in texts(json.loads(said[: said.rindex("}") + 1])):
                    self.note(text, arguments)
        page = Path("page.html")
        if page.exists():
            shown = re.sub("</?span[^>]*>", "", page.read_text())
            for command in _PAGE.findall(shown):
                self.commands.setdefault(html.unescape(command), "the page")

    def _stored(self) -> Iterator[tuple[str, ...]]:
        """The campaigns, and a measured and a failed run of each."""
        status, said = self.call("runs", "--format", "json")
        for found in json.loads(said)["campaigns"] if status == 0 else ():
            name = self.of_the_reader["CAMPAIGN"] = found["campaign"]
            yield "runs", name
            yield "rank", "--campaign", name
            _, said = self.call("runs", name, "--format", "json")
            runs = {bool(load["failure"]): load["run"] for load in json.loads(said)["runs"]}
            self.of_the_reader["RUN"] = next(iter(runs.values()), "none")
            yield from (("show", run) for run in runs.values())

    def require_all_work(self, but: re.Pattern[str] = re.compile("(?!)")) -> None:
        """Runs each printed command; names those that end with another error than `but`."""
        failed = []
        for command, origin in list(self.commands.items()):
            # The database of a test has a name of its own, and a plan does not depend on it.
            what_is_run = re.sub(r" --db \S+", "", command)
            if what_is_run in self.planned:
                continue
            try:
                arguments = shlex.split(self.filled(command))[1:]
                status, said = self.call(*arguments)
            except AssertionError as error:
                status, said = 2, str(error)
            if status == 0 and _PLANNED.fullmatch(what_is_run):
                self.planned.add(what_is_run)
            if status not in FINDINGS and not but.search(said):
                failed.append(f"{command}\n    printed by {origin}\n    {status}: {said[:300]}")
        assert not failed, "\n".join(failed)

    def filled(self, command: str) -> str:
        """A command with values for the words that stand for something of the reader's."""
        for name, value in self.of_the_reader.items():
            command = re.sub(rf"(?<![\w/.-]){name}(?![\w.-])", value, command)
        unknown = _PLACEHOLDER.search(re.sub(r"'[^']*'", "", command))
        assert unknown is None, f"nobody knows what to write for {unknown}"
        return command


def texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    """All texts of a JSON value."""
    if isinstance(value, str):
        yield value
    for item in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from texts(item)


@pytest.mark.parametrize(
    "name",
    [
        "campaign",
        # More rows of the same kinds, 4 and 8 s; several hosts and devices are made up below.
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("disks", "search-disk")),
    ],
)
def test_each_command_printed_about_a_recorded_campaign_works(
    name: str, planned: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = Printed(capsys, planned)
    assert printed.call("import", str(RECORDED[name]))[0] == 0
    printed.ask_all()
    assert len(printed.commands) > 10
    printed.require_all_work()


in_each_form = pytest.mark.parametrize(
    "as_json", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["words", "json"]
)
"""Each commit reads the JSON of the recorded campaign alone: its texts have the words' commands."""


@in_each_form
def test_each_command_printed_about_many_hosts_works(
    as_json: bool, tmp_path: Path, planned: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    database = Database(tmp_path / "results.sqlite")
    database.write((), campaigns=[campaign(number) for number in range(4)])
    database.add(run for number in range(4) for run in runs_of(number, 0.4 if number == 2 else 1))
    printed = Printed(capsys, planned)
    printed.ask_all(as_json=as_json)
    printed.require_all_work(re.compile("was measured on another host"))  # it is for that host


OF_SEVERAL = (
    ("rank",),
    ("rank", "--top", "3"),
    ("rank", "--pareto", "read/write"),
    ("recommend",),
    ("compare", "raw/none", "qcow2/directsync"),
    ("table",),
    ("report", "-o", "page.html"),
    ("trend",),
    ("claims",),
    ("advise", GUEST),
)
"""Commands that several campaigns are given to."""


@pytest.mark.parametrize(
    ("second", "commands"),
    [
        ({"machine": "b" * 16}, {"rank": ("table --campaign c0 --campaign c1", "c0", "c1")}),
        ({"runtime": 9.0}, {"rank": ("c0", "c1"), "table": ("c0", "c1")}),
        ({"machine": "b" * 16, "runtime": 9.0},
         {"rank": ("c0", "c1"), "table": ("c0", "c1"), "trend": ("c1", "c0")}),
        ({"directory": "/elsewhere"}, {"rank": ("c0", "c1", "vdisklab table")}),
        ({"under": ("kvm",)}, {"rank": ("c0", "c1")}),
        ({"under": ("tcg", "kvm")}, {"rank": ("c0",)}),
        ({"without": "raw/none", "runtime": 9.0}, {"compare": ("c0",), "rank": ("c0", "c1")}),
    ],
    ids="-".join,
)  # fmt: skip
def test_campaigns_that_share_no_answer_have_the_commands_that_answer(
    second: dict[str, Any], commands: dict[str, tuple[str, ...]], tmp_path: Path,
    planned: set[str], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Two machines have one name, as the virtual machines of a template do."""
    plan: dict[str, Any] = {
        key: value for key, value in second.items() if key in ("runtime", "directory")
    }
    first = replace(CAMPAIGN, id="c0", host=replace(CAMPAIGN.host, hostname="vm"))
    machine = second.get("machine", first.host.machine_id)
    host = replace(first.host, machine_id=machine)
    other = replace(first, id="c1", host=host, plan={**CAMPAIGN.plan, **plan},
                    started=first.started + timedelta(days=1))  # fmt: skip
    made = [replace(run, id=f"a{run.id}", campaign="c0") for run in campaign_runs(3)]
    for place, run in enumerate(campaign_runs(3)):
        if run.path != second.get("without"):
            accelerators = second.get("under", (run.accelerator,))
            under = accelerators[place % len(accelerators)] if run.accelerator else None
            made.append(replace(run, id=f"b{run.id}", campaign="c1", accelerator=under))
    Database(tmp_path / "results.sqlite").write(made, campaigns=(other, first))
    printed = Printed(capsys, planned)
    for verb in OF_SEVERAL:
        before = set(printed.commands)
        status, said = printed.call(*verb, "--campaign", "c0", "--campaign", "c1")
        new = [command for command in printed.commands if command not in before]
        if status:
            assert said.startswith(("error: campaigns c", "error: the guests of c"))
            assert said.count("vm-") in (0, 2), "each machine by the name that --hosts takes"
            asked = [command for command in new if command.startswith(f"vdisklab {verb[0]}")]
            assert all(" ".join(verb[1:]) in command for command in asked), "what was asked"
            assert asked
        for expected in commands.get(verb[0], ()) if len(verb) == 1 or "raw/none" in verb else ():
            assert any(expected in command for command in new), expected
    printed.call("rank", "--hosts", "all")
    printed.require_all_work(re.compile("was measured on another host"))  # it is for that host


def test_campaigns_of_many_machines_are_answered_over_their_hosts(
    tmp_path: Path, planned: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the hosts' own verb, though the newest campaign of all has a plan of its own."""
    database, other = Database(tmp_path / "results.sqlite"), campaign(3, runtime=9.0)
    three = [campaign(number) for number in range(3)]
    newest = replace(other, started=other.started + timedelta(days=1))
    database.write((), campaigns=[newest, *three])
    database.add(run for number in range(4) for run in runs_of(number))
    printed = Printed(capsys, planned)
    named = [word for each in three for word in ("--campaign", each.id)]
    for verb, asked in (
        (("rank", "--bars"), named),
        (("recommend",), ["--hosts", "all"]),
        (("compare", "raw/none", "host"), ["--hosts", "all"]),
    ):
        status, said = printed.call(*verb, *asked)
        assert status == 2
        assert (
            f"from several hosts: `vdisklab {shlex.join((*verb, '--hosts', 'all', *named))}`"
            in said
        )
    assert printed.call("rank", "--pareto", "read/write", *named)[0] == 2
    assert "vdisklab rank --pareto read/write --campaign c0000002" in printed.commands
    printed.require_all_work(re.compile("was measured on another host"))


_GUESTS = {"profile": "open-load", "load": 100}


@in_each_form
@pytest.mark.parametrize(
    ("plan", "instead"),
    [
        (_GUESTS, {"raw": "raw", "none": "none/virtio:guests=2"}),
        # 3 s, and its commands are those of density with one option more.
        pytest.param(
            {**_GUESTS, "profile": "quiet-db", "neighbour": "bulk-write", "load": None},
            {"none": "none/virtio:guests=2", "directsync": "directsync/virtio:guests=3"},
            marks=pytest.mark.nightly,
        ),
        ({"devices": ["/dev/sdz"]},
         {"raw": "ext4/raw", "qcow2": "ext4/qcow2", "ext4/raw/none": "none"}),
        # 3 s each, and little else than above.
        pytest.param({"devices": ["/dev/sdz"]}, {"raw": "ext4/raw", "qcow2": "ext4/qcow2"},
                     marks=pytest.mark.nightly),
        pytest.param({}, {"none": "none/virtio:qemu=10.0.2"}, marks=pytest.mark.nightly),
    ],
)  # fmt: skip
def test_each_command_printed_about_guests_at_once_and_devices_works(
    plan: dict[str, Any], instead: dict[str, str], as_json: bool, tmp_path: Path,
    planned: set[str], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Campaigns of density, beside a neighbour, on a device (with and without host layers), and
    with a QEMU of its own."""
    database = Database(tmp_path / "results.sqlite")
    measured: list[Run] = []
    for run_ in campaign_runs():
        path = run_.path
        for arguments, others in instead.items():
            path = re.sub(rf"\b{arguments}\b", others, path, count=1)
        measured.append(replace(run_, path=path, cell=f"{path}|{run_.page_cache}"))
    paths = list(dict.fromkeys(f"{run_.path}" for run_ in measured))
    database.write(
        measured, campaigns=[replace(CAMPAIGN, plan={**CAMPAIGN.plan, "cells": paths, **plan})]
    )
    printed = Printed(capsys, planned)
    printed.ask_all(as_json=as_json)
    assert len(printed.commands) > 10
    printed.require_all_work(LACKING)


@in_each_form
def test_each_command_printed_about_foreign_results_works(
    as_json: bool, tmp_path: Path, planned: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "out.txt"
    result.write_text("1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2 s, 537 MB/s\n")
    printed = Printed(capsys, planned)
    assert printed.call("import", str(result), "--as", "my VM at home")[0] == 0
    assert printed.call("export", "my VM at home")[0] == 2
    printed.ask_all(as_json=as_json)
    printed.require_all_work()


def test_each_command_printed_on_a_fresh_host_works(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no database yet."""
    printed = Printed(capsys)
    printed.ask_all()
    for arguments in (
        ("doctor",), ("profiles",), ("method",), ("clean",), ("lab", "run", "raw/none"),
        ("run",), ("run", "raw/default"), ("run", "nonsense"), ("powercut", "raw/none"),
        ("powercut",), ("powercut", "ext4/raw/none"), ("density", "raw/none"),
        ("compare", "raw/none"), ("import", "nothing.json"), ("claims", "--only", "nothing"),
        ("fleet", "status"),
    ):  # fmt: skip
        printed.call(*arguments)
    printed.require_all_work()


DISCARD = parse_need("discard")
BY_IOPS = "rank --metric randread-4k-q1/read/iops"


@pytest.mark.parametrize(
    ("verb", "settings"),
    [
        ("recommend", Request(size_bytes=128 << 20, guest_cpus=4)),
        ("rank", Request(runtime=0.5, accelerator=AcceleratorChoice.TCG)),
        (BY_IOPS, Request(baseline="raw/none/virtio", scale=0.5)),
        (BY_IOPS, Request(page_cache=PageCacheChoice.COLD, baseline=NO_BASELINE)),
    ],
)
def test_a_tie_prints_the_command_that_races_its_paths_as_they_were_measured(
    verb: str,
    settings: Request,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tied = ("raw/none/virtio", "qcow2/none", "raw/none/scsi", "raw/none/sata", "raw/default")
    paths = (*tied, "raw/unsafe", "host")
    (tmp_path / "a b").mkdir(exist_ok=True)
    request = replace(settings, paths=paths, directory=tmp_path / "a b", rounds=3, profile="short")
    plan = build_plan(request, Capabilities(), load_profile("short"))
    as_measured = replace(CAMPAIGN, plan=plan.as_json())
    database = Database(tmp_path / "results.sqlite")
    database.write(runs(3, dict.fromkeys(paths, 0.8), noise=0.1), campaigns=[as_measured])
    assert main([*verb.split(), "--format", "json"]) == 0
    choice = json.loads(capsys.readouterr().out)["choice"]
    raced: list[tuple[Request, BestSearch]] = []

    def measured(
        _store: object, request: Request, *_: object, search: BestSearch, **__: object
    ) -> NoReturn:
        raced.append((request, search))
        raise PlannedError("planned")

    monkeypatch.setattr(run_campaigns, "measure", measured)
    command = shlex.split(choice["surer"]["command"])
    assert main(command[1:]) == 0
    ((asked, search),) = raced
    profile = load_profile(asked.profile or DEFAULT_PROFILE)
    race = search.narrow(build_plan(asked, Capabilities(), profile), CrashVerdicts()).plan
    assert race.race is not None
    assert race.race.metric == ("randread-4k-q1/read/iops" if "iops" in verb else "overall")
    assert {cell.label for cell in race.cells if cell.path.is_guest_storage} == {
        choice["cell"], *choice["ties"]
    }  # fmt: skip
    assert ("host" in asked.paths) == any(cell.path.on_host for cell in plan.cells)
    require_one_time(choice["surer"], race, database)
    stored, wanted = plan.as_json(), race.as_json()
    for changed in ("cells", "seed", "race", "rounds"):
        stored.pop(changed, None)
        wanted.pop(changed, None)
    assert wanted == stored


PAGES = ("README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")))
_SHELL = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHIPPED = f"import {ROOT}/docs/images/quickstart.json.gz"
OF_THE_PAGES = {
    "--campaign A --campaign B": "--campaign CAMPAIGN",
    "compare A B": "compare raw/none qcow2/none",
    "compare qemu=A qemu=B": "compare raw/none qcow2/none",
    "--qemu BIN --qemu BIN": "--qemu one=BIN --qemu other=BIN",
    "profiles NAME": "profiles short",
    "method --schema NAME": "method --schema rank",
    "powercut PATH": "powercut ext4/raw/none",
    "export PATH --to FORM": "export raw/none --to libvirt",
    "VERB …": "runs",
    "import docs/": f"import {ROOT}/docs/",
    "import bench/": f"import {ROOT}/bench/",
    "import results.json.gz": SHIPPED,
    "import kvm1.json.gz kvm2.json.gz kvm3.json.gz": SHIPPED,
    "vm-and-pvc.yaml": GUEST,
    "guest.xml": GUEST,
    "/etc/pve/qemu-server": GUEST,
    "--forget PLACE": "--forget nbd://localhost/vol",
}
"""What the pages' words stand for, where the usual values are not meant."""

LACKING = re.compile(
    "this campaign has no measurements of|has no search of how many|is the only host that matches"
    "|' was not measured( in this campaign)?\n|the lab is not built yet"
    "|a fleet stores its results in one PostgreSQL|no guest was found on this host"
    "|nothing is left on nbd://localhost/vol|was measured on another host"
    "|no running guest is called web01|/dev/sdz is not a block device"
    "|has no disks that were made from a template|no path was measured with --guests"
)
"""What a command may say of a database or host that has not what the page speaks of."""


def commands_of(page: str) -> Iterator[str]:
    """The commands of a page's prose and shell blocks; its console blocks are run elsewhere.

    A verb alone is the verb's name, and `export-data -` prints a whole campaign.
    """
    text = (ROOT / page).read_text()
    blocks = "\n".join(_SHELL.findall(text)).replace("\\\n", " ")
    found = _CODE.findall(re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S))
    found += re.findall(r"^ *(?:sudo )?(vdisklab [^#\n]*)", blocks, re.MULTILINE)
    return (row for row in found if len(row.split()) > 2 and not row.endswith("data -"))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the recorded campaign, to copy."""
    file = tmp_path_factory.mktemp("imported") / "results.sqlite"
    assert main(["import", str(RECORDED["campaign"]), "--db", str(file)]) == 0
    return file


@pytest.fixture(scope="module")
def in_it(imported: Path) -> dict[str, str]:
    """What the pages' words stand for in this database."""
    with open_store(str(imported)) as store:
        campaign = store.campaigns()[0].id
        return {"CAMPAIGN": campaign, "RUN": store.outlines([campaign])[0].id}


def claims_of_the_docs() -> str:
    """The file of claims that docs/claims.md shows."""
    page = (ROOT / "docs/claims.md").read_text()
    below = page.partition("\n## Your own claims\n")[2].partition("\n## ")[0]
    return "\n".join(line.strip() for line in below.splitlines() if line.startswith("    "))


@pytest.mark.parametrize("page", PAGES)
def test_each_command_in_a_page_works(
    page: str, imported: Path, in_it: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(imported, "results.sqlite")
    printed = Printed(capsys)
    printed.of_the_reader |= in_it
    for directory in ("made", "mnt/local", "mnt/block-storage", "srv/images"):
        Path(directory).mkdir(parents=True)
    Path("web01-vda.load").write_bytes(encode(load((0, IoKind.WRITE, 0, 4096, 100))))
    Path("acceptance.toml").write_text(claims_of_the_docs())
    for found in commands_of(page):
        command = re.sub(r" /(?=mnt|srv|root)", " ", found)
        for arguments, instead in OF_THE_PAGES.items():
            command = command.replace(arguments, instead)
        printed.commands[command] = page
    printed.require_all_work(LACKING)


@pytest.mark.parametrize(
    ("path", "usual"),
    [
        ("nbd:at=fast/qcow2/none/scsi", "nbd:at=fast/qcow2/writeback"),
        ("nbd:at=fast/none", "nbd:at=fast/writeback"),
        ("ext4/raw/none/virtio:iothread=on", "ext4/raw/writeback"),
        ("raw/none/scsi:queues=2", "raw/writeback"),
    ],
)
def test_qemus_default_is_measured_beside_the_path_as_that_was_measured(
    path: str, usual: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone, in a campaign of its own, its numbers could not change the answer."""
    paths = ("host", path, "raw/directsync")
    plan = {**CAMPAIGN.plan, "cells": list(paths), "directory": str(tmp_path), "profile": "quick",
            "baseline": "host", "target": ["fast=nbd://127.0.0.1:1/x"]}  # fmt: skip
    measurements = build_plan(Request(("raw/none",)), Capabilities(), load_profile("quick"))
    plan["measurements"] = measurements.as_json()["measurements"]
    database = Database(tmp_path / "results.sqlite")
    speeds = {"host": 1.0, path: 0.9, "raw/directsync": 0.2}
    database.write(runs(5, speeds), campaigns=[replace(CAMPAIGN, plan=plan)])
    assert main(["recommend", "--why"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    (command,) = re.findall("; to compare the two on bench1: `([^`]+)`", said)
    argv = shlex.split(command)
    typed = [text.replace("nbd:at=fast/", "fast/") for text in (path, usual)]
    assert argv[2:5] == [*typed, "host"]
    for pair in (("--dir", str(tmp_path)), ("--profile", "quick"), ("--find", "best")):
        assert argv[argv.index(pair[0]) + 1] == pair[1]
    assert main(["recommend", "--why", "--weights", "read=1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "QEMU's default cache mode was not measured" in said
    assert "; to compare the two" not in said, "no race goes by weights"


@pytest.mark.parametrize(
    ("asked", "terms"),
    [
        (["--need", "discard"], RaceTerms(shortlist=True, needs=with_default([DISCARD]))),
        (["--need", "durable"], RaceTerms(shortlist=True)),
        ([], RaceTerms(shortlist=True)),
    ],
)
def test_a_race_for_needs_is_raced_for_them(
    asked: list[str], terms: RaceTerms, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A race on other terms decides nothing for them."""
    tied = [f"{image}/none/virtio:discard=unmap" for image in ("raw", "qcow2")]
    request = Request((*tied, "host"), directory=tmp_path, profile="short")
    plan = build_plan(request, Capabilities(), load_profile("short"))
    database = Database(tmp_path / "results.sqlite")
    made = runs(3, dict.fromkeys((*tied, "host"), 0.8), noise=0.1)
    database.write(made, campaigns=[replace(CAMPAIGN, plan=plan.as_json())])
    assert main(["recommend", *asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    raced: list[BestSearch] = []

    def measured(*_: object, search: BestSearch, **__: object) -> NoReturn:
        raced.append(search)
        raise PlannedError("planned")

    monkeypatch.setattr(run_campaigns, "measure", measured)
    command = found["choice"]["surer"]["command"]
    assert main(shlex.split(command)[1:]) == 0
    (search,) = raced
    assert set(search.terms.needs) == set(terms.needs)
    assert search.terms == replace(terms, needs=search.terms.needs)


@pytest.mark.parametrize(
    ("path", "beside"), [("raw/none", "raw/writeback"), ("qcow2/default", "qcow2/none")]
)
def test_a_path_that_stands_alone_has_a_command_that_compares_it(
    path: str, beside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = Request((path,), directory=tmp_path, profile="short")
    plan = build_plan(request, Capabilities(), load_profile("short"))
    alone = replace(CAMPAIGN, plan=plan.as_json() | {"rounds": 5})
    database = Database(tmp_path / "results.sqlite")
    database.write(runs(5, {"host": 1.0, path: 0.9}), campaigns=[alone])
    assert main(["rank"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{path} is the only path with numbers" in said
    (command, cost) = re.findall("To compare it, race it on bench1: `([^`]+)`: ([^)]+)", said)[0]
    argv = shlex.split(command)
    assert argv[2:5] == [path, beside, "host"]
    assert ("--dir", str(tmp_path)) in pairwise(argv)
    assert cost.startswith("usually less than ")
    assert "--metric" not in argv
    assert main(["rank", "--metric", "read"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    (command,) = re.findall("To compare it, race it on bench1: `([^`]+)`", said)
    assert ("--metric", "read") in pairwise(shlex.split(command)), "by the number of the answer"


def test_paths_that_lack_rounds_have_the_command_that_measures_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = ("raw/none", "qcow2/none")
    request = Request(paths, directory=tmp_path, profile="short")
    plan = build_plan(request, Capabilities(), load_profile("short"))
    begun = replace(CAMPAIGN, plan=plan.as_json() | {"rounds": 5}, fingerprint=plan.fingerprint)
    database = Database(tmp_path / "results.sqlite")
    made = runs(5, {"host": 1.0, "raw/none": 0.9, "qcow2/none": 0.5})
    kept = [run for run in made if run.path != "qcow2/none" or run.round < 3]
    database.write(kept, campaigns=[begun])
    assert main(["rank"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    (command,) = re.findall("To compare them, continue the campaign on bench1: `([^`]+)`", said)
    assert {*shlex.split(command)[2:5]} == {*paths, "host"}
    assert ("--rounds", "3") in pairwise(shlex.split(command))


def require_one_time(surer: Mapping[str, Any], race: CampaignPlan, database: Database) -> None:
    """`plan` says of the printed command what the answer said of it."""
    with open_store(database.url) as store:
        so_far = so_far_of(store, MeasuringHost.of(CAMPAIGN.host), race, CrashVerdicts())
        planned = answer_plan(race, so_far=so_far)
    assert planned.runs[1] == surer["runs"]
    assert planned.seconds_estimated == pytest.approx(surer["seconds"])
    assert planned.seconds_usually == pytest.approx(surer["seconds_usually"])


def test_an_undecided_race_names_the_command_that_continues_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same paths in the same order: in another one it would begin a new campaign."""
    paths = ("raw/none/scsi", "host", "raw/none/sata", "qcow2/none")
    (tmp_path / "a b").mkdir()
    request = Request(paths=paths, directory=tmp_path / "a b", profile="short")
    plan = as_race(build_plan(request, Capabilities(), load_profile("short")), RaceTerms())
    stored = {**plan.as_json(), "race": RaceTerms().as_json()}
    begun = replace(CAMPAIGN, plan=stored, fingerprint=plan.fingerprint)
    database = Database(tmp_path / "results.sqlite")
    cells = {cell.path.canonical: cell.fingerprint for cell in plan.cells}
    made = runs(3, dict.fromkeys(paths, 0.8), noise=0.1)
    again = [replace(row, cell=cells[row.path]) for row in made]
    database.write(again, campaigns=[begun])
    assert main(["rank", "--format", "json"]) == 0
    choice = json.loads(capsys.readouterr().out)["choice"]
    with open_store(database.url) as store:
        analysis, console = Analysis.of(store, [begun.id]), Console(file=io.StringIO())
        print_verdict(analysis, Format.TABLE, console, again="vdisklab run A")
        # What `run --new` and `run --again` began is not continued by the same command.
        for anew in (RunRequest(new=True), RunRequest(again=begun.id)):
            assert _going_on(anew, analysis, Named()) == choice["surer"]["command"]
    said = capsys.readouterr().out
    assert "3 rounds cannot tell which of these 3 is the best, or by how much." in said
    assert "To tell them apart, run `vdisklab run A`, which continues the race: " in said
    assert said.count("vdisklab run ") == 1, "one command: the user's own"
    continued: list[str] = []

    def measured(
        _store: object, request: Request, *_: object, search: BestSearch, **__: object
    ) -> NoReturn:
        profile = load_profile(request.profile or DEFAULT_PROFILE)
        drafted = build_plan(request, Capabilities(), profile).as_begun(begun.plan)
        race = search.narrow(drafted, CrashVerdicts()).plan
        require_one_time(choice["surer"], race, database)
        continued.append(race.fingerprint)
        raise PlannedError("planned")

    monkeypatch.setattr(run_campaigns, "measure", measured)
    assert choice["surer"]["paths"] == 0
    assert main(shlex.split(choice["surer"]["command"])[1:]) == 0
    assert continued == [plan.fingerprint]
    with_kernel = {**stored, "guest": {**stored["guest"], "kernel": "/boot/vmlinuz-16k"}}
    database.write(again, campaigns=[replace(begun, plan=with_kernel)])
    with open_store(database.url) as store:
        of_another = Analysis.of(store, [begun.id])
        assert more_rounds_command(of_another) is None, "no option of `run` names a kernel"
