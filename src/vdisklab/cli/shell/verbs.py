"""The verbs of the command line: each file of `vdisklab.cli` is one, and `verb.py` of a leaf.

The file `import_.py` holds the function `import_`, whose docstring is its help, and one line such
as `PANEL = VerbPanel.STORED`, which says where the list of verbs shows `import`. In the folder of a
leaf, such as `lab`, the function of `verb.py` has the folder's name. A function that returns
`typer.Typer` is a group: it has verbs of its own. Until a verb runs, its file is read and not
imported, because importing all verbs takes a second.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path

import typer

from vdisklab.value import Value

PACKAGE = "vdisklab"


class VerbPanel(StrEnum):
    """The groups in the list of verbs, in its order."""

    PREPARE = "Before measuring"
    MEASURE = "Measure"
    ELSEWHERE = "Measure elsewhere"
    LEARN = "Answers from measurements"
    GUESTS = "Disks of guests"
    STORED = "Stored results"


class VerbFile(Value):
    """Where a verb is: `function` in `module`, which is the file `source`."""

    name: str
    module: str
    function: str
    source: Path

    def read(self) -> ast.Module:
        """The file, read and not imported."""
        return ast.parse(self.source.read_bytes())


class ListedVerb(Value):
    """The facts about a verb that its file states."""

    file: VerbFile
    panel: VerbPanel
    docstring: str
    is_group: bool


@cache  # each command asks three times
def verb_files(package: str = PACKAGE) -> Mapping[str, VerbFile]:
    """The file of each verb by the verb's name, such as `export-data`; those of the core first."""
    (root,) = map(Path, import_module(package).__path__)
    core = (
        (source.stem, f"{package}.cli.{source.stem}", source)
        for source in sorted(root.glob("cli/*.py"))
        if source.stem != "__init__"
    )
    leaves = (
        (source.parent.name, f"{package}.{source.parent.name}.verb", source)
        for source in sorted(root.glob("*/verb.py"))
    )
    files = (
        VerbFile(function.removesuffix("_").replace("_", "-"), module, function, source)
        for function, module, source in (*core, *leaves)
    )
    return {file.name: file for file in files}


def listed_verbs(package: str = PACKAGE) -> list[ListedVerb]:
    """All verbs in the order of the help: by panel, then by name."""
    panels = list(VerbPanel)
    found = map(listed_verb, verb_files(package).values())
    return sorted(found, key=lambda verb: (panels.index(verb.panel), verb.file.name))


def listed_verb(file: VerbFile) -> ListedVerb:
    """The facts about a verb that its file states, read without importing the file."""
    tree = file.read()
    function = _function(tree, file)
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
    return ListedVerb(file, VerbPanel[panel], docstring, is_group)


def imported_verb(file: VerbFile) -> ListedVerb:
    """The same facts, taken from the imported file, for the verb that is about to run."""
    module = import_module(file.module)
    function = getattr(module, file.function)
    # As text, if annotations are not evaluated in the file.
    written = f"{typer.__name__}.{typer.Typer.__name__}"
    is_group = function.__annotations__.get("return") in (typer.Typer, written)
    return ListedVerb(file, module.PANEL, inspect.getdoc(function) or "", is_group)


def _function(tree: ast.Module, file: VerbFile) -> ast.FunctionDef:
    (function,) = (
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == file.function
    )
    return function


KEPT = ("disk", "need", "unsafe", "stall", "hosts")
"""Options that decide what an answer says of a path: commands that answer keep them."""


@cache
def naming_options(name: str) -> frozenset[str]:
    """The options among --db, --campaign, --target and those of `KEPT` that a verb takes; none for
    an unknown verb or a group.

    They are read off the requests that its function takes, without importing the verb.
    """
    file = verb_files().get(name)
    if file is None:
        return frozenset()
    tree = file.read()
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    verb = _function(tree, file)
    calls = (call for call in verb.decorator_list if isinstance(call, ast.Call))
    chosen = {
        keyword.arg: set(ast.literal_eval(keyword.value))
        for call in calls
        for keyword in call.keywords
    }
    rows: set[str] = set()
    for argument in verb.args.args:
        if argument.arg in chosen:
            rows |= chosen[argument.arg]
        elif argument.annotation is not None:
            rows |= _rows(ast.unparse(argument.annotation), classes)
    return frozenset(f"--{row}" for row in ("db", "campaign", "target", *KEPT) if row in rows)


def _rows(request: str, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """The names of a request's rows; a request that no verb's file defines is a campaign's."""
    from vdisklab.cli.shell import options  # noqa: PLC0415 - `--help` does without them

    if request in classes:
        targets = (
            statement.target
            for statement in classes[request].body
            if isinstance(statement, ast.AnnAssign)
        )
        bases = (ast.unparse(base) for base in classes[request].bases)
        return set(map(ast.unparse, targets)).union(*(_rows(base, classes) for base in bases))
    shared = getattr(options, request.rpartition(".")[2], None)
    if shared is None:
        from vdisklab.plan.settings import Request  # noqa: PLC0415 - only some verbs take it

        shared = Request
    return {row.name for row in fields(shared)} if is_dataclass(shared) else set()
