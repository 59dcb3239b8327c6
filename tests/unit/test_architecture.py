"""The arrow: plan → storage → guest → workload → campaign → result → analysis → report → cli."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from vdisklab.cli.shell.verbs import verb_files

PACKAGE = "vdisklab"
ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / PACKAGE

# The base of all values, below all rooms.
EVERYWHERE = {"value"}

# Who imports whom, exactly: an import that is not named here fails, and so does a name that nobody
# needs any more. A room may import itself. `results.model` names one module of a room.
ALLOWED = {
    "value": set(),
    "errors": set(),
    "validation": set(),
    "progress": set(),
    "sanitise": set(),
    "numbers": set(),
    "units": {"errors"},
    "as_text": set(),
    "documents": {"as_text", "sanitise", "validation"},
    # The pure core: every rule about a disk path, once.
    "path": {"as_text", "errors", "units"},
    # What is done to a running guest's disk: it knows neither loads nor verdicts.
    "operations": {"as_text", "errors", "units", "path", "host"},
    "plan": {"errors", "units", "validation", "path", "operations.registry", "operations.making",
             "operations.ways.registry"},
    # Pure: what a guest asked of its disk, and what others' traces say of theirs.
    "loads": {"errors", "units", "validation"},
    "host": {"errors", "units", "progress", "path", "results.model"},
    "storage": {"errors", "units", "path", "plan", "results.model", "host"},
    "guest": {"errors", "units", "validation", "progress", "path", "operations.operation", "plan",
              "results.model", "host"},
    # Pure: it renders commands and reads answers.
    "workload": {"errors", "units", "validation", "path", "plan", "loads", "results.model"},
    "campaign": {"errors", "units", "progress", "path", "operations", "plan", "results.model",
                 "host", "storage", "guest", "workload"},
    # A store of what was seen; it knows neither host nor campaign.
    "results": {"errors", "validation", "path", "plan", "analysis.observations",
                "host.safe_places", "host.writing"},
    # Values of values: no I/O, so no database either.
    "analysis": {"as_text", "documents", "errors", "numbers", "units", "path", "plan",
                 "results.model"},
    # Paths to configuration and back, both pure; the disk in QEMU's own words is the guest's.
    "platforms": {"as_text", "documents", "errors", "units", "path",
                  "guest.qemu.block_nodes", "guest.qemu.keyval", "storage.image_commands",
                  "storage.server_url"},
    # What an answer asks a host, without changing it.
    "inspection": {"errors", "units", "progress", "path", "host", "storage", "guest", "platforms"},
    # What a running guest asks of its disk: switched on, waited for, switched off.
    "recording": {"errors", "units", "host", "inspection", "loads", "platforms"},
    # An answer is a value that says all that is shown of it: loaded, computed, never printed.
    "answers": {"as_text", "documents", "errors", "numbers", "sanitise", "units", "progress",
                "path", "operations.registry", "operations.making", "operations.ways.registry",
                "plan", "host", "storage", "guest", "workload",
                "campaign", "results", "analysis", "platforms", "inspection", "loads"},
    # What changes something: measures, cuts power, imports, deletes.
    "actions": {"errors", "units", "progress", "path", "plan", "host", "storage", "guest",
                "workload", "campaign", "results", "analysis", "answers", "loads",
                "recording"},
    # The columns and sentences of answers.
    "views": {"documents", "errors", "numbers", "sanitise", "units", "progress", "path",
              "results", "analysis", "platforms", "inspection", "answers"},
    "cli": {"documents", "errors", "sanitise", "units", "progress", "path", "plan", "host",
            "workload", "campaign.user_guest", "results", "analysis", "platforms",
            "inspection", "answers", "actions", "views", "loads", "recording"},
    # The leaves: only their own verbs import them (test_leaves.py).
    "lab": {"errors", "units", "progress", "path", "plan", "host", "storage", "guest"},
    "powercut": {"errors", "units", "validation", "progress", "path", "operations", "plan",
                 "results.model", "results.power_cut", "host", "storage", "guest", "workload"},
    "fleet": {"errors", "units", "host", "results"},
    "watch": {"errors", "units", "progress", "results", "answers", "views"},
    "__init__": set(),
    "__main__": {"cli", "errors"},
}  # fmt: skip

# A leaf's files for its verb have the neighbours of a verb, an action, an answer or a view.
ROW_OF_FILE = {"verb": "cli", "action": "actions", "answer": "answers", "view": "views"}

# The vocabulary of results imports the pure core alone, so that all may import it.
ALLOWED_IN_MODULE = {
    "path.durability": {"path"},
    "results.model": {"path"},
    "results.power_cut": {"path", "results.model"},
}

LEAVES = {"lab", "powercut", "fleet", "watch"}

# Names that say nothing about their subject.
NO_SUBJECT = {"util", "utils", "common", "helper", "helpers", "misc"}

# Names that stand for anything: `request`, `each_host`, `moment` and `options` say what it is.
SAYS_NOTHING = {"one", "own", "at", "known", "words"}

MODULES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    """`plan.path` for src/vdisklab/path/disk_path.py, `plan` for its __init__."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), path)


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file: several tests look at each, and to walk to them takes a second."""
    return tuple(ast.walk(tree_of(path)))


def stage_of(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """The modules of our package that a file imports, without the package's name."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    module = name_of(path)
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in nodes_of(path):
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


def row_of(module: str) -> str:
    """The row of the table that says what a module may import."""
    room, _, file = module.partition(".")
    if module in ALLOWED_IN_MODULE:
        return module
    return ROW_OF_FILE[file] if room in LEAVES and file in ROW_OF_FILE else room


def may_import(importer: str, imported: str) -> bool:
    row, room = row_of(importer), stage_of(importer)
    if row == room and imported.startswith((f"{room}.verb", f"{room}.action")):
        return False
    allowed = (
        EVERYWHERE
        | (ALLOWED | ALLOWED_IN_MODULE)[row]
        | ({room, row} if row != importer else set())
    )
    return any(imported == name or imported.startswith(f"{name}.") for name in allowed)


def test_left_never_imports_right() -> None:
    rooms = {stage_of(name_of(path)) for path in MODULES}
    assert rooms == ALLOWED.keys(), "give each room its place in the table"
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        for name in imports_of(path)
        if not may_import(name_of(path), name)
    ]
    assert wrong == []


def test_no_import_is_allowed_that_nobody_needs() -> None:
    imported: dict[str, set[str]] = {name: set() for name in (*ALLOWED, *ALLOWED_IN_MODULE)}
    for path in MODULES:
        module = name_of(path)
        imported[row_of(module)] |= set(imports_of(path))
    unused = [
        f"{row}: {name}"
        for row, names in (ALLOWED | ALLOWED_IN_MODULE).items()
        for name in sorted(names)
        if not any(f"{found}.".startswith(f"{name}.") for found in imported[row])
    ]
    assert unused == []


# Rooms that need each other: a store knows what is observed in it, and whoever reads it.
MUTUAL = {("analysis", "results"), ("host", "results"), ("plan", "results")}


def test_no_two_rooms_import_each_other() -> None:
    arrows = {
        (stage_of(name_of(path)), stage_of(name)) for path in MODULES for name in imports_of(path)
    }
    both = {(first, other) for first, other in arrows if first < other and (other, first) in arrows}
    assert both - MUTUAL == set()


def test_every_module_says_its_job() -> None:
    assert [name_of(path) for path in MODULES if not ast.get_docstring(tree_of(path))] == []


def test_every_module_has_a_subject() -> None:
    names = [name_of(path) for path in MODULES]
    assert [name for name in names if NO_SUBJECT & set(name.split("."))] == []


def given_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Each name that a file gives to a variable, parameter, field, function, class or import, and
    its line."""
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


def says_nothing(nodes: Iterable[ast.AST]) -> list[str]:
    return [f"{line}: {name}" for name, line in given_names(nodes) if name in SAYS_NOTHING]


@pytest.mark.parametrize("directory", ["src", "tests", "bench"])
def test_names_say_what_they_name(directory: str) -> None:
    found = {path: says_nothing(nodes_of(path)) for path in (ROOT / directory).rglob("*.py")}
    assert {str(path): lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "one = 1",
        "for at, row in enumerate(rows): ...",
        "own: int = 1",
        "rows = [one for one in rows]",
        "def at(): ...",
        "def rows(*, known): ...",
        "rows = lambda one: one",
        "self.own = 1",
        "import words.path as words",
        "match row:\n    case [own, *rest]: ...",
        "if (one := next(rows)): ...",
        "with open(file) as one: ...",
    ],
)
def test_a_name_that_says_nothing_is_found_wherever_it_is_given(text: str) -> None:
    assert len(says_nothing(ast.walk(ast.parse(text)))) == 1


def test_the_design_names_the_rooms_that_are_there() -> None:
    page = (SOURCE.parents[1] / "docs" / "design.md").read_text()
    listed = page.partition("## The rooms\n\n")[2].partition("\n\n")[0]
    rooms = {line.split()[0] for line in listed.splitlines()}
    assert rooms == {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    below = re.findall(r"\b([a-z]+)/ ", listed)
    assert [name for name in below if not list(SOURCE.glob(f"*/{name}/"))] == []


def test_no_class_has_the_name_of_another() -> None:
    trees = [tree_of(path) for path in MODULES]
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [name for name, count in Counter(classes).items() if count > 1] == []


def test_no_module_gives_a_name_twice() -> None:
    """The second one would count for what was written with the first one, too."""
    given = Counter(
        (name_of(path), target.id)
        for path in MODULES
        for node in tree_of(path).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    )
    assert [name for name, count in given.items() if count > 1] == []


PLACEHOLDER = re.compile(r"\{\w*\}")


def is_template_with_values(node: ast.AST) -> bool:
    """An f-string with a placeholder for `str.format`, which would also fill the braces of values:
    paths have some ({raw,qcow2}/none)."""
    return (
        isinstance(node, ast.JoinedStr)
        and any(isinstance(part, ast.FormattedValue) for part in node.values)
        and any(
            PLACEHOLDER.search(str(part.value))
            for part in node.values
            if isinstance(part, ast.Constant)
        )
    )


def test_no_text_with_values_is_formatted_again() -> None:
    assert any(map(is_template_with_values, ast.walk(ast.parse("f'`{verb} {{}}`'.format"))))
    found = [
        f"{name_of(path)}:{getattr(node, 'lineno', 0)}"
        for path in MODULES
        for node in nodes_of(path)
        if is_template_with_values(node)
    ]
    assert found == []


def reads_own_file_by_locale(node: ast.AST) -> bool:
    """True for the text of a file of the package that is decoded as the locale says."""
    match node:
        case ast.Call(func=ast.Attribute(attr="read_text", value=file), args=[], keywords=[]):
            return "files(" in ast.unparse(file)
    return False


def test_files_of_the_package_are_read_in_any_locale() -> None:
    wrong = "resources.files('vdisklab').joinpath('x').read_text()"
    assert any(map(reads_own_file_by_locale, ast.walk(ast.parse(wrong))))
    found = [
        f"{name_of(path)}:{getattr(node, 'lineno', 0)}"
        for path in MODULES
        for node in nodes_of(path)
        if reads_own_file_by_locale(node)
    ]
    assert found == []


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


ROOMS_THAT_WAIT = ["host", "storage", "guest", "operations", "campaign", "powercut", "lab",
                   "inspection"]  # fmt: skip


def test_deadlines_are_longer_on_a_slow_machine() -> None:
    found = [
        f"{room}/{file.name}:{getattr(node, 'lineno', 0)}"
        for room in ROOMS_THAT_WAIT
        for file in (SOURCE / room).rglob("*.py")
        for node in nodes_of(file)
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


VERB_MODULES = sorted(file.module.removeprefix(f"{PACKAGE}.") for file in verb_files().values())


def test_no_verb_imports_a_verb() -> None:
    """Verbs may share answers, actions, or cli.shell."""
    found = [
        f"{module} imports {name}"
        for module in VERB_MODULES
        for name in imports_of(SOURCE / f"{module.replace('.', '/')}.py")
        if name.rpartition(".")[0] in VERB_MODULES
    ]
    assert found == []


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
        ("powercut/x.py", "from vdisklab.campaign.measure_cell import measure_cell", False),
        ("campaign/x.py", "from vdisklab.powercut.crash_states import Verdict", False),
        ("powercut/x.py", "from vdisklab.results.store import Store", False),
        ("powercut/x.py", "from vdisklab.powercut.action import judge_power_cuts", False),
        ("powercut/action.py", "from vdisklab.results.store import Store", True),
        ("powercut/action.py", "from vdisklab.lab.lab_job import run_job", False),
        ("storage/action.py", "from vdisklab.results.store import Store", False),
        ("guest/x.py", "from vdisklab.results.model import Sample", True),
        ("guest/x.py", "from vdisklab.results import database", False),
        ("operations/x.py", "from vdisklab.guest.qemu.qmp import Channel", False),
        ("operations/x.py", "from vdisklab.workload.fio import Fio", False),
        ("campaign/x.py", "from vdisklab import guest, storage, workload", True),
        ("results/model.py", "from vdisklab.plan.matrix import expand", False),
        ("cli/x.py", "def late() -> None:\n    from vdisklab.actions import measure", True),
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
    imported = imports_of(path)
    assert imported
    assert all(may_import(name_of(path), name) for name in imported) is allowed
