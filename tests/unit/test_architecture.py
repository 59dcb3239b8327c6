"""The arrow: plan → storage → guest → workload → campaign → result → analysis → report → cli."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from vdisklab.cli.shell.verbs import modules

PACKAGE = "vdisklab"
SOURCE = Path(__file__).parents[2] / "src" / PACKAGE

# Who may import whom. Whatever is not named here may not be imported; a stage may import itself.
VOCABULARY = {
    "errors",
    "units",
    "validation",
    "progress",
    "sanitise",
    "numbers",
    "as_text",
    "documents",
    "path",
    "plan",
    "results.model",
    "results.power_cut",
}
ALLOWED = {
    "errors":   set(),
    "units":    {"errors"},
    "validation": set(),
    "progress": set(),
    "sanitise": set(),
    "numbers":  set(),
    # How values stand in JSON and CSV. A value that says itself needs the documents' code, late.
    "as_text":  {"documents"},
    "documents": {"as_text", "sanitise", "validation"},
    "path":     {"errors", "units", "as_text"},  # the pure core: every rule about a disk path, once
    "plan":     {"errors", "units", "validation", "path"},
    "host":     {"errors", "units", "progress", "path", "plan", "results.model"},
    "storage":  VOCABULARY | {"host"},
    "guest":    VOCABULARY | {"host"},
    "workload": VOCABULARY,  # pure: it renders commands and reads answers
    "campaign": VOCABULARY | {"host", "storage", "guest", "workload"},
    "lab":      VOCABULARY | {"host", "storage", "guest"},
    "powercut": VOCABULARY | {"host", "storage", "guest", "workload"},
    # A store of what was seen; it knows neither host nor campaign.
    "results":  VOCABULARY | {"analysis.observations", "host.safe_places"},
    # Paths to configuration and back, both pure; the disk in QEMU's own words is the guest's.
    "platforms": VOCABULARY | {"guest.qemu.block_nodes", "storage.image_commands",
                              "storage.server_url"},
    "analysis": VOCABULARY,  # values of values: no I/O, so no database either
    # Campaigns on many hosts, with an optional dependency: only its verbs import it.
    "fleet":    VOCABULARY | {"host", "results"},
    # An answer is a value that says all that is shown of it: loaded, computed, never printed.
    "answers":  VOCABULARY | {"host", "storage", "guest", "workload", "campaign", "powercut", "lab",
                              "results", "analysis", "platforms", "actions"},
    # What changes something: measures, cuts power, imports, deletes.
    "actions":  VOCABULARY | {"host", "storage", "guest", "workload", "campaign", "powercut", "lab",
                              "results", "analysis", "platforms", "answers"},
    # The columns and sentences of answers.
    "views":    VOCABULARY | {"analysis", "results", "platforms", "answers", "actions"},
    # The live page, with an optional dependency: only its verb imports it.
    "web":      VOCABULARY | {"results", "answers", "views"},
    "cli":      VOCABULARY | {"host", "storage", "guest", "workload", "campaign", "powercut", "lab",
                              "results", "analysis", "views", "platforms", "answers",
                              "actions", "fleet", "web"},
    "__init__": set(),
    "__main__": {"cli", "errors"},
}  # fmt: skip

# The vocabulary of results imports the pure core alone, so that all may import it.
ALLOWED_IN_MODULE = {
    "results.model": {"path", "documents"},
    "results.power_cut": {"path", "results.model"},
}

# Names that say nothing about their subject.
NO_SUBJECT = {"util", "utils", "common", "helper", "helpers", "misc"}

MODULES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    """`plan.path` for src/vdisklab/path/disk_path.py, `plan` for its __init__."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), path)


def stage_of(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def imports_of(path: Path) -> Iterator[str]:
    """The modules of our package that a file imports, without the package's name."""
    module = name_of(path)
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                parents = f"{PACKAGE}.{package}".rstrip(".").split(".")
                kept = parents[: len(parents) - node.level + 1]
                start = ".".join([*kept, *([start] if start else [])])
            names = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.removeprefix(f"{PACKAGE}.") for name in names if is_ours(name))


def is_ours(name: str) -> bool:
    # `from vdisklab import __version__` is a fact about the package, not a stage.
    return name.startswith(f"{PACKAGE}.") and not name.startswith(f"{PACKAGE}.__")


def may_import(importer: str, imported: str) -> bool:
    if importer in ALLOWED_IN_MODULE:
        allowed = ALLOWED_IN_MODULE[importer]
    else:
        allowed = ALLOWED[stage_of(importer)] | {stage_of(importer)}
    return any(imported == name or imported.startswith(f"{name}.") for name in allowed)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_left_never_imports_right(path: Path) -> None:
    module = name_of(path)
    assert stage_of(module) in ALLOWED, f"give {stage_of(module)} its place in the table"
    wrong = [name for name in imports_of(path) if not may_import(module, name)]
    assert not wrong, f"{module} must not import {', '.join(wrong)}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_its_job(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), f"{name_of(path)} has no docstring"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_has_a_subject(path: Path) -> None:
    assert not NO_SUBJECT & set(name_of(path).split(".")), "name it by its subject"


def test_no_class_has_the_name_of_another() -> None:
    trees = [tree_of(path) for path in MODULES]
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [name for name, count in Counter(classes).items() if count > 1] == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_gives_a_name_twice(path: Path) -> None:
    """The second one would count for what was written with the first one, too."""
    given = Counter(
        target.id
        for node in tree_of(path).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    )
    assert [name for name, count in given.items() if count > 1] == []


WAITS = {"wait", "join", "poll", "settimeout"}


def has_wrong_deadline(node: ast.AST) -> bool:
    """A wait for a constant, or for one that is multiplied by `patience` twice."""
    match node:
        case (
            ast.Call(func=ast.Attribute(attr=waits), args=[ast.Name(id=seconds)])
            | ast.BinOp(left=ast.Call(func=ast.Attribute(attr=waits)), right=ast.Name(id=seconds))
        ):
            return waits in WAITS | {"monotonic"} and seconds.endswith("_SECONDS")
        case ast.keyword(arg="timeout", value=value):
            return "patience()" in ast.unparse(value)
    return False


@pytest.mark.parametrize("room", ["host", "storage", "guest", "campaign", "powercut", "lab"])
def test_deadlines_are_longer_on_a_slow_machine(room: str) -> None:
    found = [
        f"{file.name}:{getattr(node, 'lineno', 0)}"
        for file in (SOURCE / room).rglob("*.py")
        for node in ast.walk(tree_of(file))
        if has_wrong_deadline(node)
    ]
    assert found == []


def test_the_unit_tests_have_the_rooms_of_the_source() -> None:
    tests = Path(__file__).parent
    rooms = {path.parent.relative_to(SOURCE) for path in MODULES if "migrations" not in path.parts}
    assert {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} == rooms


def test_all_tests_that_need_a_guest_are_in_their_directory() -> None:
    """script/test looks for them there only."""
    tests = Path(__file__).parents[1]
    marked = {
        path.relative_to(tests)
        for path in tests.rglob("test_*.py")
        if "pytest.mark.guest" in path.read_text() and path != Path(__file__)
    }
    assert {path for path in marked if path.parent != Path("guest")} == {Path("test_conftest.py")}


VERB_MODULES = sorted(f"cli.{module}" for module in modules().values())


@pytest.mark.parametrize("module", VERB_MODULES)
def test_no_verb_imports_a_verb(module: str) -> None:
    path = SOURCE / f"{module.replace('.', '/')}.py"
    imported = {name.rpartition(".")[0] for name in imports_of(path)}
    verbs = imported & set(VERB_MODULES)
    assert not verbs, f"{module} and {', '.join(verbs)} may share answers, actions, or cli.shell"


def test_every_directory_is_a_package() -> None:
    bare = {path.parent for path in MODULES} - {path.parent for path in SOURCE.rglob("__init__.py")}
    assert not bare


@pytest.mark.parametrize(
    ("importer", "text", "allowed"),
    [
        ("plan/x.py", "from vdisklab.storage.site import Target", False),
        ("plan/x.py", "import vdisklab.cli.shell.main", False),
        ("plan/x.py", "from ..host import command", False),
        ("plan/x.py", "from . import path", True),
        ("storage/x.py", "from vdisklab.guest import argv", False),
        ("storage/x.py", "from vdisklab.host.command import Host", True),
        ("workload/x.py", "from vdisklab.host.command import Host", False),
        ("powercut/x.py", "from vdisklab.storage.site import Site", True),
        ("powercut/x.py", "from vdisklab.campaign.measure_cell import Bench", False),
        ("campaign/x.py", "from vdisklab.powercut.crash_states import Verdict", False),
        ("powercut/x.py", "from vdisklab.results.store import Store", False),
        ("guest/x.py", "from vdisklab.results.model import Sample", True),
        ("guest/x.py", "from vdisklab.results import database", False),
        ("campaign/x.py", "from vdisklab import guest, storage, workload", True),
        ("results/model.py", "from vdisklab.plan.matrix import expand", False),
        ("cli/x.py", "def late() -> None:\n    from vdisklab.campaign import runner", True),
        ("analysis/x.py", "def late() -> None:\n    from vdisklab.views import page", False),
    ],
)
def test_the_test_sees_each_form_of_import(
    importer: str, text: str, allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    path = tmp_path / importer
    path.parent.mkdir()
    path.write_text(text)
    imported = list(imports_of(path))
    assert imported
    assert all(may_import(name_of(path), name) for name in imported) is allowed
