"""The verbs of the command line: each file of `vdisklab.cli` is one.

The file `import_.py` holds the function `import_`, whose docstring is its help, and one line such
as `PANEL = VerbPanel.STORED`, which says where the list of verbs shows `import`. A function that
returns `typer.Typer` is a group: it has verbs of its own. Until a verb runs, its file is read and
not imported, because importing all verbs takes a second.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

import typer

PACKAGE = "vdisklab.cli"


class VerbPanel(StrEnum):
    """The groups in the list of verbs, in its order."""

    PREPARE = "Before measuring"
    MEASURE = "Measure"
    ELSEWHERE = "Measure elsewhere"
    LEARN = "Answers from measurements"
    GUESTS = "Disks of guests"
    STORED = "Stored results"


@dataclass(frozen=True, slots=True)
class VerbFile:
    """The facts about a verb that its file states."""

    name: str
    module: str
    panel: VerbPanel
    docstring: str
    is_group: bool


def modules(package: str = PACKAGE) -> dict[str, str]:
    """The module of each verb by its name, such as `export-data`."""
    stems = [
        file.name.removesuffix(".py")
        for file in files(package).iterdir()
        if file.name.endswith(".py") and file.name != "__init__.py"
    ]
    return {stem.removesuffix("_").replace("_", "-"): stem for stem in sorted(stems)}


def verb_files(package: str = PACKAGE) -> list[VerbFile]:
    """All verbs in the order of the help: by panel, then by name."""
    panels = list(VerbPanel)
    found = (verb_file(name, package) for name in modules(package))
    return sorted(found, key=lambda verb: (panels.index(verb.panel), verb.name))


def verb_file(name: str, package: str = PACKAGE) -> VerbFile:
    """The facts about a verb that its file states, read without importing the file."""
    module = modules(package)[name]
    tree = ast.parse(files(package).joinpath(f"{module}.py").read_bytes())
    (function,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == module
    )
    (panel,) = (
        node.value.attr
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Attribute)
        and [ast.unparse(target) for target in node.targets] == ["PANEL"]
    )
    returned = ast.unparse(function.returns) if function.returns else ""
    docstring = ast.get_docstring(function) or ""
    is_group = returned == f"{typer.__name__}.{typer.Typer.__name__}"
    return VerbFile(name, module, VerbPanel[panel], docstring, is_group)


@cache
def naming_options(name: str) -> frozenset[str]:
    """The options among --db, --campaign and --target that a verb takes; none for an unknown verb
    or a group.

    They are read off the requests that its function takes, without importing the verb.
    """
    if name not in modules():
        return frozenset()
    module = modules()[name]
    tree = ast.parse(files(PACKAGE).joinpath(f"{module}.py").read_bytes())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    (verb,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == module)
    calls = (call for call in verb.decorator_list if isinstance(call, ast.Call))
    chosen = {
        keyword.arg: set(ast.literal_eval(keyword.value))
        for call in calls
        for keyword in call.keywords
    }
    rows: set[str] = set()
    for argument in verb.args.args:
        if argument.annotation is not None:
            taken = _rows(ast.unparse(argument.annotation), classes)
            rows |= taken & chosen.get(argument.arg, taken)
    return frozenset(f"--{row}" for row in ("db", "campaign", "target") if row in rows)


def _rows(request: str, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """The names of a request's rows; a request that no verb's file defines is a campaign's."""
    from vdisklab.cli.shell import options  # noqa: PLC0415 - `--help` does without them
    from vdisklab.plan.settings import Request  # noqa: PLC0415

    if request in classes:
        targets = (
            statement.target
            for statement in classes[request].body
            if isinstance(statement, ast.AnnAssign)
        )
        bases = (ast.unparse(base) for base in classes[request].bases)
        return set(map(ast.unparse, targets)).union(*(_rows(base, classes) for base in bases))
    shared = getattr(options, request.rpartition(".")[2], Request)
    return {row.name for row in fields(shared)} if is_dataclass(shared) else set()
