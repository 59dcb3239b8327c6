"""Examples of the documentation: blocks marked `console` are run, and their output compared.

A line `$ vdisklab …` is run in an empty directory with an empty state; the lines below it are what
it prints, errors included. `…` stands for anything in a line, and alone on a line for any lines.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from vdisklab.cli.shell.main import main

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


@dataclass(frozen=True)
class Example:
    page: str
    command: str
    output: str

    def __str__(self) -> str:
        return f"{self.page}: {self.command}"


def examples() -> Iterator[Example]:
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.M | re.S):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield Example(page.name, command, output.strip())


def pattern(output: str) -> re.Pattern[str]:
    """What the documentation promises, as an expression."""
    lines = [
        "(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + "\n"
        for line in output.splitlines()
    ]
    return re.compile("".join(lines))


def plain(text: str) -> str:
    """Without carriage returns, trailing spaces and empty lines at the ends."""
    return "".join(f"{line.rstrip()}\n" for line in text.strip().splitlines())


@pytest.mark.parametrize("example", list(examples()), ids=str)
def test_examples_print_what_the_pages_say(
    example: Example,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("VDISKLAB_DB", raising=False)
    arguments = shlex.split(example.command)
    assert arguments[0] == "vdisklab"
    main(arguments[1:])
    told = capsys.readouterr()
    said = plain(told.out) if told.out.strip() else plain(told.err)
    assert pattern(example.output).fullmatch(said), said


def test_the_readme_quotes_the_ranking_of_the_recorded_quickstart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (ROOT / "README.md").read_text()
    (quoted,) = re.findall(r"\(shortened\):\n\n((?:    .*\n|\n)+)", readme)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("VDISKLAB_DB", str(tmp_path / "lab.sqlite"))
    assert main(["import", str(ROOT / "docs/images/quickstart.json.gz")]) == 0
    capsys.readouterr()
    assert main(["rank"]) == 0
    assert pattern(plain(textwrap.dedent(quoted))).fullmatch(plain(capsys.readouterr().out))


def test_the_recorded_quickstart_calls_each_run_of_tcg_emulated() -> None:
    """An old form of the file had `emulated` of the host alone, beside `"accelerator": "tcg"`."""
    text = gzip.decompress((ROOT / "docs/images/quickstart.json.gz").read_bytes())
    runs = [run for campaign in json.loads(text)["campaigns"] for run in campaign["runs"]]
    assert {run["accelerator"] for run in runs} == {None, "tcg"}
    for run in runs:
        assert run["emulated"] is (run["accelerator"] == "tcg" or run["emulated_host"])


@pytest.mark.parametrize("verb", ["rank", "recommend"])
def test_what_the_race_has_decided_no_note_calls_undecided(
    verb: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VDISKLAB_DB", str(tmp_path / "lab.sqlite"))
    assert main(["import", str(ROOT / "docs/images/quickstart.json.gz")]) == 0
    capsys.readouterr()
    assert main([verb, "--why"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Use raw/none for a new disk: within 10 % of the best")
    of_ranks = "they take 10 % of the stated family-wise error"
    stated = "differ, at 5 % family-wise error"
    unfolded = " ".join(said.split())
    assert verb != "rank" or (of_ranks in unfolded and stated in unfolded), (
        "one error, of which a tenth"
    )
    assert "Inconclusive" not in said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_line_for_continuous_integration_judges_claims_of_ones_own(page: Path) -> None:
    """`claims --run --junit` judged the articles' claims: copied, it failed for ever."""
    lines = re.findall(r"vdisklab claims [^`\n]*--junit[^`\n]*", page.read_text())
    assert all("--file " in line for line in lines), lines
    assert lines or page.name != "README.md"


def test_there_are_examples_on_the_pages_that_teach() -> None:
    found = {example.page for example in examples()}
    assert {"index.md", "paths.md", "profiles.md"} <= found


def test_an_example_that_says_something_else_fails() -> None:
    assert pattern("a … c\n…\nend").fullmatch("a b c\n1\n2\nend\n")
    assert not pattern("a … c\nend").fullmatch("a b c\n1\nend\n")
    assert not pattern("a.c").fullmatch("abc\n")


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("mkdocs", path=str(Path(sys.executable).parent)) is None,
    reason="mkdocs is not installed",
)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Strict: a page that is not in the navigation, or a broken link, is an error."""
    done = subprocess.run(
        (
            sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet",
            "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path / "site"),
        ),
        capture_output=True, text=True, check=False, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "index.html").read_text()
    assert "https://" not in re.sub(r'href="https://[^"]*"', "", page)
