"""Commands to copy name the database and campaigns that the user named; free names have no path."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from html import unescape
from pathlib import Path

import pytest
import typer

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.stored import Database
from vdisklab.answers.elsewhere import host_elsewhere
from vdisklab.answers.export_command import measured_place
from vdisklab.cli.import_ import ImportOptions
from vdisklab.cli.recommend import RecommendOptions
from vdisklab.cli.record import RecordOptions
from vdisklab.cli.shell.caller import Caller
from vdisklab.cli.shell.main import build_app, main
from vdisklab.cli.shell.named import ANSWERS, Named
from vdisklab.cli.shell.options import OutputOptions
from vdisklab.cli.shell.output import print_answer
from vdisklab.cli.shell.verbs import naming_options, verb_files
from vdisklab.documents import Answer
from vdisklab.errors import PlanError
from vdisklab.host.facts import machine_id
from vdisklab.path.durability import HostDisk
from vdisklab.path.needs import parse_need
from vdisklab.plan.run_request import RunRequest
from vdisklab.results.model import Campaign
from vdisklab.value import replace
from vdisklab.views.layout import Table

# A command as code, wrapped or not.
COMMAND = re.compile(r"`(vdisklab [a-z-]+[^`]*)`")


def test_the_file_of_a_verb_tells_which_of_the_options_it_has() -> None:
    group = typer.main.get_command(build_app())
    for name in verb_files():
        verb = group.commands[name]  # type: ignore[attr-defined]
        options = {option for param in verb.params for option in param.opts}
        named = {"--db", "--campaign", "--target"}
        assert naming_options(name) & named == options & named, name
        for option, answers in ANSWERS.items():
            if name in answers and option in naming_options(name):
                assert option in options, name
    assert naming_options("rank") == {"--db", "--campaign", "--disk", "--unsafe", "--hosts"}
    assert naming_options("run") == {"--db", "--target", "--disk"}
    said = {"--db", "--campaign", "--disk"}
    assert naming_options("advise") == said, "of a campaign's rows only some"
    assert not naming_options("lab"), "a group"
    assert not naming_options("joy"), "no verb"


TARGETS = ("fast=nbd+unix:///?socket=/run/n", "far=/mnt/nas")
FAST = "--target 'fast=nbd+unix:///?socket=/run/n'"


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("`vdisklab export nbd:at=fast/none`", f"`vdisklab export fast/none {FAST}`"),
        ("`vdisklab powercut nbd:at=fast/none`", f"`vdisklab powercut fast/none {FAST}`"),
        ("`vdisklab run nbd:at=fast/raw/none nfs:at=far/raw/none`",
         f"`vdisklab run fast/raw/none far/raw/none {FAST} --target far=/mnt/nas`"),
        (f"`vdisklab run nbd:at=fast/raw/none {FAST}`", None),
        ("`vdisklab run nbd:at=faster/raw/none`", None),
        ("`vdisklab compare nbd:at=fast/raw/none raw/none`", None),
    ],
)  # fmt: skip
def test_a_command_with_a_path_on_a_target_names_the_target(
    text: str, complete: str | None
) -> None:
    campaign = replace(CAMPAIGN, plan={**CAMPAIGN.plan, "target": list(TARGETS)})
    named = Named().on_targets_of((campaign, campaign))
    assert named.in_text(text) == (complete or text.replace("nbd:at=", ""))
    if complete is not None:
        page = named.in_html(f"<code>{text.strip('`')}</code>")
        assert named.in_html(page) == page, "named once"
        plain = re.sub("<[^>]+>", "", page)
        assert unescape(plain) == complete.strip("`")


@pytest.mark.parametrize(
    ("command", "complete"),
    [
        ("vdisklab rank --guests 2", "vdisklab rank --guests 2 --disk plp"),
        ("vdisklab recommend --campaign c0",
         "vdisklab recommend --campaign c0 --need backup --need format=qcow2 --stall 2 "
         "--disk plp"),
        ("vdisklab recommend --need backup --stall 2",
         "vdisklab recommend --need backup --stall 2 --need format=qcow2 --disk plp"),
        ("vdisklab run raw/none", "vdisklab run raw/none --disk plp"),
        ("vdisklab report --disk plp", "vdisklab report --disk plp"),
        ("vdisklab record web", "vdisklab record web"),
        ("vdisklab show 1a", "vdisklab show 1a"),
    ],
)  # fmt: skip
def test_a_command_keeps_the_options_that_its_answer_goes_by(command: str, complete: str) -> None:
    request = RecommendOptions(
        need=(parse_need("backup"), parse_need("format=qcow2")), stall=2.0, disk=HostDisk.PLP
    )
    found = Named.by(request).in_text(f"`{command}`").strip("`")
    assert sorted(shlex.split(found)) == sorted(shlex.split(complete))
    assert Named.by(Named.by(request)).in_text(f"`{command}`") == f"`{found}`"
    page = Named.by(request).in_html(f"<code>{command}</code>")
    assert unescape(re.sub("<[^>]+>", "", page)) == found
    over_hosts = Named.by(RecommendOptions(hosts=("all", "rack=b 2")))
    assert over_hosts.in_text("`vdisklab rank --metric read`") == (
        "`vdisklab rank --metric read --hosts all --hosts 'rack=b 2'`"
    )
    assert over_hosts.in_text("`vdisklab rank --campaign 1a`") == "`vdisklab rank --campaign 1a`"
    assert over_hosts.in_text("`vdisklab run raw/none`") == "`vdisklab run raw/none`"
    unsafe = Named.by(RecommendOptions(unsafe=True))
    assert unsafe.in_text("`vdisklab rank`") == "`vdisklab rank --unsafe`"
    assert unsafe.in_text("`vdisklab run raw/none`") == "`vdisklab run raw/none`"


def test_a_disk_of_the_recorded_guest_is_no_claim_of_the_hosts_disk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "`vdisklab run raw/none --profile web01-vda.load`"
    assert Named.by(RecordOptions(guest="web01", disk="vda")).in_text(command) == command
    assert Named.by(ImportOptions(files=(), disk="0")).in_text(command) == command

    def fail(*_: object) -> None:
        raise PlanError("no", hint=command)

    monkeypatch.setattr("vdisklab.cli.record.record_guest", fail)
    assert main(["record", "web01", "--disk", "vda"]) == PlanError.exit_code
    assert "web01-vda.load`" in capsys.readouterr().err


class _Answer(Answer):
    FORMAT = "vdisklab.said/1"

    campaigns: tuple[Campaign, ...]


def test_it_is_said_where_a_command_of_a_campaign_has_to_be_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --dir it would measure another disk, in a campaign of its own."""
    text = "Race them: `vdisklab run raw/none --dir '/nowhere/my qs' --size 1G`."
    away = replace(CAMPAIGN, plan={**CAMPAIGN.plan, "directory": "/nowhere/my qs"})
    here = replace(away, host=replace(away.host, machine_id=machine_id()))
    there = replace(here, plan={**here.plan, "directory": str(Path(__file__).parent)})

    def said(campaign: Campaign, note: str) -> str:
        table = Table[object]("Title.", (), (), (note,))
        print_answer(_Answer((campaign,)), (table,), OutputOptions())
        return " ".join(capsys.readouterr().out.split())

    recorded = (
        "Recorded in /nowhere/my qs, which is not on this machine now; the numbers are complete. "
    )
    gone = f"{recorded}To measure there again, mount the disk that held it."
    anew = f"{recorded}What measures here is of another disk: that of the current directory"
    for campaign, note, where in (
        (away, text, "Measured on the host bench1, not on this machine: commands that measure more "
                     "are for bench1."),
        (away, "Nothing to do.", "not on this machine. * Nothing to do."),
        (here, text, gone),
        (here, f"Go on: `vdisklab run --again {here.id}`.", gone),
        (here, "Race them: `vdisklab run raw/none --size 1G`.", anew),
        (here, "Race them: `vdisklab run raw/none --dir /tmp`.", "Title. * Race them: "),
        (here, "To measure again: `vdisklab trend --confirm`.", gone),
        (here, "Go on: `vdisklab run --again 0123abcd`.", "Title. * Go on: "),
        (here, "Nothing to do.", "Title. * Nothing to do."),
        (there, text, "Title. * Race them: "),
    ):  # fmt: skip
        found = said(campaign, note)
        assert where in found, found
        assert note in found
    hidden = "which cannot be seen as this user; the numbers are complete."
    monkeypatch.setattr("vdisklab.answers.elsewhere.is_out_of_sight", lambda _: True)
    assert hidden in said(here, text)
    assert "mkdir" not in said(here, text)
    assert hidden not in said(here, "Nothing to do.")
    assert host_elsewhere((away, away)) == CAMPAIGN.host.hostname
    unknown = replace(away, host=replace(away.host, machine_id=""))
    assert [host_elsewhere(each) for each in ((here,), (here, away), (unknown,), ())] == [None] * 4


SAN = "iscsi://al@10.0.0.5/iqn.x:t/1"


@pytest.mark.parametrize(
    ("url", "given", "variable", "option"),
    [
        (SAN, "/root/my key", None, " --secret 'san=/root/my key'"),
        (SAN, None, None, " --secret san=FILE"),
        (SAN, None, "hidden", ""),
        ("nbds://h/e", None, None, " --secret san=FILE"),
        ("iscsi://10.0.0.5/iqn.x:t/1", None, None, ""),
        ("rbd:p/i?id=lab", "/root/key", None, " --secret san=/root/key"),
    ],
)
def test_a_command_names_the_file_of_a_secret_and_never_what_is_in_it(
    url: str, given: str | None, variable: str | None, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("VDISKLAB_SECRET_SAN", variable)
    request = RunRequest(secret=() if given is None else (("san", Path(given)),))
    kind = {"iscsi": "iscsi", "nbds": "nbd", "rbd": "rbd"}[url.partition(":")[0]]
    campaign = replace(CAMPAIGN, plan={**CAMPAIGN.plan, "target": [f"san={url}"]})
    named = Named.by(request).on_targets_of((campaign,))
    path = f"vdisklab export {kind}:at=san/raw/none"
    target = f" --target {shlex.quote(f'san={url}')}"
    typed = "vdisklab export san/raw/none"
    assert named.in_text(f"`{path}`") == f"`{typed}{target}{option}`"
    assert named.in_text(f"`{path}{target}{option}`") == f"`{typed}{target}{option}`"
    assert named.in_text(f"`{path}{target}`") == f"`{typed}{target}{option}`"
    place = measured_place(f"{kind}:at=san/raw/none", campaign, request.secret)
    assert shlex.join(place.option) == f"{target}{option}".strip()


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("see `vdisklab rank`", "see `vdisklab rank --campaign 3f2a --db 'my db'`"),
        ("`vdisklab runs 3f2a` lists", "`vdisklab runs 3f2a --db 'my db'` lists"),
        ("vdisklab run raw/none", "vdisklab run raw/none --db 'my db'"),
        ("`vdisklab rank --db x --campaign y`", "`vdisklab rank --db x --campaign y`"),
        ("`vdisklab doctor`, vdisklab run", "`vdisklab doctor`, vdisklab run"),
        (r"run \`vdisklab run a\-b\`", r"run \`vdisklab run a\-b --db 'my db'\`"),
    ],
)
def test_commands_are_completed(text: str, complete: str) -> None:
    named = Named.of("my db", ["3f2a"])
    assert named.in_text(text) == complete
    assert named.in_json({"a": [text, 1, None]}) == {"a": [complete, 1, None]}
    assert named.in_json({"a": [text, text]}, {text}) == {"a": [text, text]}, "for another host"
    assert Named.of(None).in_text(text) == text


def test_only_commands_take_the_programs_name() -> None:
    """A sentence may begin with vdisklab, in a cell of a table, too."""
    named = Named(caller=Caller("/opt/x/vdisklab", "/opt/x/vdisklab"))
    for sentence in ("vdisklab does not measure its format 'qcow3'", "so vdisklab rank is wrong"):
        assert named.in_text(sentence) == sentence
    assert named.in_text("vdisklab rank") == "/opt/x/vdisklab rank"
    assert named.in_text("run `vdisklab --version`") == "run `/opt/x/vdisklab --version`"


def test_a_page_is_completed_in_its_own_quoting_and_without_a_password() -> None:
    page = "<code>vdisklab rank</code> vdisklab rank"
    added = '<span class="whole">--db</span> &#x27;a&amp;b&#x27;'
    assert Named.of("a&b").in_html(page) == f"<code>vdisklab rank {added}</code> vdisklab rank"
    page = '<code>vdisklab rank <span class="whole">--rounds</span> 4</code>'
    assert Named.of("a&b").in_html(page) == page.replace("</code>", f" {added}</code>")
    assert "secret" not in Named.of("postgresql://u:secret@h/d").in_text("vdisklab rank")
    assert "secret" not in Named.of("x://u:secret@h:p/d").in_text("vdisklab rank")


def commands(text: str) -> list[str]:
    joined = " ".join(text.split())
    return [
        command
        for command in COMMAND.findall(joined)
        if "--db" in naming_options(command.split()[1])
    ]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("rank",), 0),
        (("recommend",), 0),
        (("claims", "--only", "debatty-2024"), 10),
        (("compare", "raw/none", "host"), 0),
        (("compare", "raw/none"), 2),
        (("compare", "raw/none", "zvol/none"), 2),
        (("recommend", "--need", "layer=zvol"), 2),
    ],
)
def test_no_command_of_an_answer_forgets_the_database(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...], status: int,
) -> None:  # fmt: skip
    other = tmp_path / "other.sqlite"
    shutil.copy(database.file, other)
    named = (*arguments, "--db", str(other), "--campaign", "c0ffee01")
    assert main(named) == status
    said = capsys.readouterr()
    found = commands(said.out + said.err)
    assert all(f"--db {other}" in command for command in found)
    assert all(
        "--campaign c0ffee01" in command
        for command in found
        if "--campaign" in naming_options(command.split()[1])
    )
    assert main((*named, "--format", "json")) == status
    answer = capsys.readouterr().out
    if status != 2:
        in_json = commands(json.dumps(json.loads(answer)))
        assert all(f"--db {other}" in command for command in in_json)
    # What the environment names needs no repeating.
    main(arguments)
    said = capsys.readouterr()
    assert not [command for command in commands(said.out + said.err) if "--db" in command]


def test_a_report_names_the_database(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, page = tmp_path / "other.sqlite", tmp_path / "report.html"
    shutil.copy(database.file, other)
    assert main(["report", "--db", str(other), "-o", str(page)]) == 0
    shown = re.sub("</?span[^>]*>", "", page.read_text())
    found = re.findall(r"<code>(vdisklab ([a-z-]+)[^<]*)", shown)
    in_question = [command for command, verb in found if "--db" in naming_options(verb)]
    assert len(in_question) > 3
    assert all(f" --db {other}" in command for command in in_question)
    assert any(command.endswith(f"--source FILE --db {other}") for command in in_question)


@pytest.mark.parametrize(
    "arguments", [("export",), ("powercut",), ("plan",), ("run",), ("run", "raw/none")]
)
def test_a_free_name_is_called_one_where_a_path_is_needed(
    database: Database,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    result = tmp_path / "out.txt"
    result.write_text("1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2 s, 537 MB/s\n")
    assert main(["import", str(result), "--as", "my VM at home"]) == 0
    capsys.readouterr()
    assert main([*arguments, "my VM at home"]) == 2
    said = capsys.readouterr().err
    assert "'my VM at home' is a free name of an import, which has numbers but no conf" in said
    assert "--as PATH" in said
    assert main([*arguments, "my VM at work"]) == 2
    assert "unknown segment" in capsys.readouterr().err
