"""The documentation is held against the program."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from vdisklab.cli.shell.main import build_app
from vdisklab.operations.registry import judged_names
from vdisklab.path.braces import expand
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.registry import forms

from .test_architecture import nodes_of

ROOT = Path(__file__).parents[2]
COMMANDS = ROOT / "docs" / "commands.md"
WRITTEN = {
    *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changes").glob("*.md"),
    *(ROOT / ".github").rglob("*.md"),
}  # fmt: skip

TROUBLESHOOTING = (
    "state not confirmed: ",
    "aio=native needs O_DIRECT, which cache mode ",
    " needs O_DIRECT, which ",
    " cannot be unmounted; it is in use by ",
    "answer of the guest's agent under ",
    "the guest of ",
    " does not start: ",
    " does not allow ",
    " is not available on this host: ",
    " is in use: ",
    "it is mounted on ",
    "its use would destroy the contents",
    "no ranking: ",
    "othing is shown after ",
    "is locked by another program",
    " was written by a newer vdisklab: ",
    "is damaged",
    " does not exist",
    " cannot be opened: ",
    " opens, but no guest booted under KVM in ",
    "under emulation (TCG)",
)
"""The fixed parts of the messages that docs/troubleshooting.md quotes."""


def examples(text: str) -> list[str]:
    found = re.findall(r"^ {4}(?:\.venv/bin/)?(vdisklab .*)$", text, re.MULTILINE)
    return [re.split(r"\s#\s|\s{2,}", line)[0].strip() for line in found]


def test_the_command_pages_are_those_of_the_program() -> None:
    page = runpy.run_path(str(ROOT / "script" / "commands-page"))["page"]
    assert COMMANDS.read_text() == f"{page().rstrip()}\n", (
        "run .venv/bin/python script/commands-page > docs/commands.md"
    )


def test_the_manual_page_has_every_verb() -> None:
    page = runpy.run_path(str(ROOT / "script" / "man-page"))["page"]()
    assert page.startswith(".TH VDISKLAB")
    verbs = re.findall(r"^## vdisklab ([a-z-]+)$", COMMANDS.read_text(), re.MULTILINE)
    assert verbs
    assert [verb for verb in verbs if f"vdisklab {verb}" not in page.replace("\\-", "-")] == []


def test_every_verb_has_an_example() -> None:
    text = COMMANDS.read_text()
    for part in text.split("\n## vdisklab ")[1:]:
        assert examples(part), part.splitlines()[0]


def named(text: str) -> list[str]:
    """The commands within sentences, whole and with arguments: `vdisklab trend` names a verb."""
    found = re.findall(r"`(vdisklab (?>(?:fleet |lab )?)[a-z-]+ [^`]+)`", text)
    return [example for example in found if "…" not in example]


@pytest.fixture(scope="module")
def program() -> Any:  # noqa: ANN401 - typer's own kind of command has no public name
    """The command line with all verbs, which takes 0.1 s to build."""
    return typer.main.get_command(build_app())


@pytest.mark.parametrize(
    "directory",
    sorted({page.parent for page in WRITTEN}),
    ids=lambda directory: str(directory.relative_to(ROOT)),
)
def test_examples_are_understood(directory: Path, program: Any) -> None:  # noqa: ANN401
    """Each example is parsed as the program would, without being run."""
    found = [
        (page.name, example)
        for page in sorted(WRITTEN)
        if page.parent == directory
        for text in (page.read_text(),)
        for example in (*examples(text), *named(text))
    ]
    for page, example in found:
        command, arguments = program, shlex.split(re.split(r" [>|] ", example)[0])[1:]
        while arguments and hasattr(command, "commands"):
            assert arguments[0] in command.commands, f"{page}: {example}"
            command, arguments = command.commands[arguments[0]], arguments[1:]
        if "--help" in arguments:
            continue
        command.make_context(f"{page}: {example}", list(arguments))


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_a_page_is_one_page(page: Path) -> None:
    """A page pasted into another has a second title."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1


def test_each_page_is_linked_from_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)", (ROOT / "docs" / "index.md").read_text()))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} == {*linked, "index.md"}


def test_paths_in_the_examples_can_be_read() -> None:
    for example in examples((ROOT / "docs" / "index.md").read_text()):
        for word in shlex.split(example)[2:]:
            if "/" in word and not word.startswith(("-", "/")):
                assert [parse_path(path) for path in expand(word)]


def test_the_operations_that_powercut_takes_are_documented() -> None:
    assert f"which takes {judged_names()};" in (ROOT / "docs" / "operations.md").read_text()
    assert judged_names() in COMMANDS.read_text()


def test_every_export_is_documented() -> None:
    text = (ROOT / "docs" / "platforms.md").read_text()
    for form in forms():
        assert f"* `{form}`: " in text


def test_troubleshooting_quotes_the_messages_as_they_are() -> None:
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().replace("`", " ").split())
    texts = {
        node.value
        for file in (ROOT / "src").rglob("*.py")
        for node in nodes_of(file)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for message in TROUBLESHOOTING:
        assert any(message in text for text in texts), f"no message has {message!r} any more"
        assert message.strip(" :") in page, f"the page no longer quotes {message!r}"


def test_every_row_of_the_design_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    table = page.partition("## Where a change goes")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z_/]+\.py)` \|$", table, re.MULTILINE)
    assert len(named) == len(re.findall(r"^\| [^-n]", table, re.MULTILINE))
    assert [name for name in named if not (ROOT / "tests" / "unit" / name).exists()] == []


def test_every_room_of_the_design_is_there() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    rooms = re.findall(r"^    ([a-z]+)  +\S", page.partition("Below them all")[0], re.MULTILINE)
    source = ROOT / "src" / "vdisklab"
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    assert set(rooms) == packages
