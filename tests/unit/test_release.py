"""What a stranger relies on: packages, workflows, forms, notes of changes, the threat model."""

from __future__ import annotations

import ast
import gzip
import json
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vdisklab import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(set((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")) - {
    ROOT / ".github/ISSUE_TEMPLATE/config.yml"
})  # fmt: skip
MADE = {".venv", ".git", "build", "dist", "man", "site", "wheels", "__pycache__", ".hypothesis"}
THREATS = ROOT / "docs" / "threat-model.md"
LARGEST = 500_000


def read(file: Path) -> dict[str, Any]:
    document = yaml.safe_load(file.read_text())
    assert isinstance(document, dict)
    return document


def ours(directory: Path) -> Iterator[Path]:
    """The files that are not made."""
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            if path.name not in MADE and not path.name.endswith(("_cache", ".egg-info")):
                yield from ours(path)
        elif path.name not in (".git", ".install.lock"):
            yield path


def test_no_file_is_larger_than_the_limit_of_the_commit_hook() -> None:
    assert str(LARGEST) in (ROOT / ".pre-commit-config.yaml").read_text()
    assert [path for path in ours(ROOT) if path.stat().st_size > LARGEST] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units_of_the_package(tmp_path: Path) -> None:
    """Under the names that dh_installsystemd gives them, with a program that is there."""
    units = []
    for file in sorted((ROOT / "debian").glob("vdisklab.*.service")):
        for unit in (file, file.with_suffix(".timer")):
            if unit.exists():
                units.append(tmp_path / unit.name.removeprefix("vdisklab.").replace("@", "@3f2a"))
                units[-1].write_text(
                    unit.read_text().replace("/usr/bin/vdisklab", shutil.which("true") or "")
                )
    assert len(units) == 5
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, units)],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    complaints = [line for line in said.stderr.splitlines() if "vdisklab" in line]
    assert (said.returncode, complaints) == (0, [])


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "vdisklab.__version__"}
    holders = [
        path
        for path in ours(ROOT / "src")
        if path.suffix == ".py" and f'"{__version__}"' in path.read_text()
    ]
    assert holders == [ROOT / "src/vdisklab/__init__.py"]


def test_the_licence_of_each_part_is_declared() -> None:
    """For Python's packages and for Debian's, whose word for MIT is Expat."""
    held = {str(path.relative_to(ROOT)) for path in ours(ROOT) if "LICENSE" in path.name}
    assert set(PROJECT["project"]["license-files"]) == held
    declared = set(PROJECT["project"]["license"].split(" AND "))
    debian = re.findall(r"^License: (.*)$", (ROOT / "debian/copyright").read_text(), re.MULTILINE)
    assert declared == {{"Expat": "MIT"}.get(name, name) for name in debian}
    assert len(declared) == len(held)


URLS = (
    '[project.urls]\nHomepage = "https://vdisklab.test/"\nIssues = "https://vdisklab.test/issues"\n'
)
READY = {
    "pyproject.toml": f"[project]\n{URLS}",
    "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2026-11-27)\n",
    "SECURITY.md": "| 1.2 | yes |",
    "docs/threat-model.md": "Signed.",
    "changes/.keep": "",
}


@pytest.mark.parametrize(
    ("name", "text", "lacks"),
    [
        ("pyproject.toml", "[project]\n", ["has no Homepage", "has no Issues"]),
        ("pyproject.toml", f"[project]\n{URLS}".replace("https:", "http:", 1), ["has no Homepage"]),
        ("CHANGELOG.md", "## 1.2.30 (2026-11-27)", ["has no part 1.2.3: pipx run towncrier"]),
        ("changes/+x.fix.md", "Mended.", [r"1 notes .* such as \+x.fix.md"]),
        ("SECURITY.md", "1.2 (not yet made)", ['SECURITY.md says "not yet made"']),
        ("docs/threat-model.md", "there is no release yet", ["threat-model.md says"]),
        ("tests/data/releases/1.2.3/says.json.gz", '{"options": []}', ["before options changed"]),
        ("changes/.keep", "", []),
    ],
)
def test_a_tag_is_refused_with_what_it_lacks(
    tmp_path: Path, name: str, text: str, lacks: list[str]
) -> None:
    record = "tests/data/releases/1.2.3/says.json.gz"
    for file, content in {**READY, record: '{"options": ["--all"]}', name: text}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        written = content.encode()
        (tmp_path / file).write_bytes(gzip.compress(written) if file == record else written)
    missing = runpy.run_path(str(ROOT / "script/ready-to-tag"))["missing"]
    said = list(missing(tmp_path, "1.2.3", json.loads('{"options": ["--all"]}')))
    assert len(said) == len(lacks)
    assert [lack for lack, line in zip(lacks, said, strict=True) if not re.search(lack, line)] == []


@pytest.mark.parametrize(
    ("urls", "homepage"), [(URLS, ["Homepage: https://vdisklab.test/"]), ("", [])]
)
def test_the_debian_package_takes_its_homepage_from_the_project(
    tmp_path: Path, urls: str, homepage: list[str]
) -> None:
    """With a pip that fetches nothing, and a builder that keeps the control file."""
    for name in ("debian", "script/build-deb", "src/vdisklab/__init__.py", "LICENSE", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    (tmp_path / "pyproject.toml").write_text(urls)
    programs = {
        "python3": '[ "$2" != venv ] || { mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; }',
        "dpkg-buildpackage": "cp debian/control ../made.deb",
    }
    (tmp_path / "bin").mkdir()
    for name, script in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    subprocess.run(
        [tmp_path / "script/build-deb"], env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    control = (tmp_path / "dist/made.deb").read_text().partition("\n\n")[0].splitlines()
    assert [line for line in control if line.startswith("Homepage")] == homepage
    assert "Maintainer: vdisklab maintainers <maintainers@vdisklab.invalid>" in control


@pytest.mark.slow
@pytest.mark.nightly
def test_the_archive_holds_the_tree_and_the_wheel_made_of_it_the_program(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    files = {str(path.relative_to(ROOT)) for path in ours(ROOT)}
    for name in files:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    done = subprocess.run(
        [tree / "script/build", tmp_path / "dist"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}, check=True, timeout=300,
        capture_output=True, text=True,
    )  # fmt: skip
    archive, wheel = map(Path, done.stdout.split())
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert files - held == set(), "its tests need all of them, where a distribution runs them"
    with zipfile.ZipFile(wheel) as opened_wheel:
        installed = set(opened_wheel.namelist())
    about = f"vdisklab-{__version__}"
    assert {name.removeprefix("src/") for name in files if name.startswith("src/")} < installed
    assert f"{about}.data/data/share/man/man1/vdisklab.1" in installed
    for licence in PROJECT["project"]["license-files"]:
        assert f"{about}.dist-info/licenses/{licence}" in installed


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_reads_only_and_pins_each_action_by_its_commit(file: Path) -> None:
    assert read(file)["permissions"] == {"contents": "read"}
    used = re.findall(r"uses: (.*)", file.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_the_workflow_runs_every_part_of_the_tests_under_every_python() -> None:
    jobs = read(ROOT / ".github/workflows/ci.yml")["jobs"]
    called = {
        part
        for job in jobs.values()
        for step in job["steps"]
        if step.get("run") == "script/test"
        for part in step["env"]["VDISKLAB_PARTS"].split()
    }
    all_parts = re.search(r"VDISKLAB_PARTS:-([\w ]+)", (ROOT / "script/test").read_text())
    assert all_parts
    assert called == set(all_parts[1].split())
    named = "Programming Language :: Python :: 3."
    pythons = [
        line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"]
        if line.startswith(named)
    ]  # fmt: skip
    matrix = jobs["unit"]["strategy"]["matrix"]
    assert matrix["python"] == pythons
    assert PROJECT["project"]["requires-python"] == f">={pythons[0]}"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_each_form_asks_for_what_doctor_says_and_forms_of_faults_for_the_version(
    form: Path,
) -> None:
    labels = [part["attributes"].get("label") for part in read(form)["body"]]
    asked = [label for label in labels if label and label.startswith("vdisklab doctor ")]
    assert asked == ["vdisklab doctor --format json"]
    assert "vdisklab --version" in labels or form.stem == "question"


def test_each_note_of_a_change_is_one_that_towncrier_takes() -> None:
    """Right after a release there is none."""
    kinds = "|".join(kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"])
    for note in (ROOT / "changes").glob("*"):
        assert re.fullmatch(rf"(\+[a-z0-9-]+|\d+)\.({kinds})(\.\d+)?\.md", note.name)
        text = note.read_text()
        assert text.strip(), note.name
        assert not text.startswith(("*", "-", "#", " ")) or text[:2] == "**", note.name


def test_the_change_log_has_the_mark_that_towncrier_looks_for() -> None:
    mark = PROJECT["tool"]["towncrier"]["start_string"]
    assert (ROOT / "CHANGELOG.md").read_text().count(mark) == 1


def named_tests(page: Path) -> set[str]:
    return set(re.findall(r"`(tests/[\w/.]+\.py::[\w:]+)`", page.read_text()))


def names_of_tests(file: Path) -> set[str]:
    """`test_x` and `TestY::test_x` of a file, as pytest calls them."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{row.name}" for row in node.body if isinstance(row, ast.FunctionDef)
            }
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


@pytest.mark.parametrize("named", sorted(named_tests(THREATS)))
def test_a_test_that_the_threat_model_names_exists(named: str) -> None:
    file, _, name = named.partition("::")
    assert name in names_of_tests(ROOT / file)


def test_each_line_of_the_threat_model_names_a_test() -> None:
    """Those about what an attacker controls, before what is open."""
    controlled = THREATS.read_text().partition(
        "\n## Who may attack, what each can reach, and the test\n"
    )[2]
    lines, heading, still_open = controlled.partition("\n## Open\n")
    assert heading
    assert still_open.count("\n* ") >= 1
    held = [row for row in lines.splitlines() if row.startswith("* ")]
    assert len(held) > 20
    assert [row for row in held if not re.search(r"`tests/[\w/.]+::", row)] == []
