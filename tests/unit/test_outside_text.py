"""Text from outside meets only functions that end with a typed error: a check of the sources.

`index=d0`, `index=½` and 1,000 nested elements once ended `advise` for all guests: int(), recursion
and str.isdigit do not raise what their caller expects. So readers of configurations use
`whole_number`, `decimal_number`, `json_object`, `read_documents`, and look keys up with get().
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_architecture import nodes_of

SOURCE = Path(__file__).parents[2] / "src" / "vdisklab"
MODULES = sorted(SOURCE.rglob("*.py"))
READERS = sorted(
    [
        *(SOURCE / "platforms").glob("*.py"),
        *(
            each
            for name in ("existing_guests.py", "disk_on_host.py")
            for each in SOURCE.rglob(name)
        ),
        *(SOURCE / "fleet" / name for name in ("coordinator.py", "quiet_settings.py")),
        SOURCE / "path" / "named_target.py",
        SOURCE / "storage" / "server_url.py",
    ]
)

DIGITS = {"isdigit", "isdecimal", "isnumeric"}
"""Methods that accept what int() refuses, or digits of all scripts."""

OWN_NUMBERS = {
    "int(attachment.iothread)",
    "int(not alone)",
    "int(attachment.detect_zeroes != 'off')",
    "int(value)",  # of a bool
    "int(below[1])",  # three digits
    "float(token['number'])",  # of a token of the grammar
    "float(value)",  # of an int or a float
    "int(user)",  # the kernel's
}
"""Values that vdisklab itself made."""

OWN_KEYS = {
    # nodes, disks and options that the module itself makes
    "drive.node['node-name']", "settings['index']", "url.node['image']", "url.node['pool']",
    "before['inherited']", "before['at']", "before['kind']", "url.node['driver']", "node['lun']",
    "url.node['portal']", "url.node['target']", "host['host']", "host['port']",
    "options['discard']", "BUS_OPTIONS[Bus.VIRTIO]['poll']", "BUS_OPTIONS[Bus.VIRTIO]['queues']",
    "server['host']", "server['port']", "_server(parts, 2049)['host']", "each['qom-type']",
    "self.node['path']", "X86_64.machines['sata']", "X86_64.machines['virtio']",
    "row.machines['virtio']",
    # asked for with get() just before
    "state['line']", "variables['ARGUMENTS']", "lines['Cache mode']",
    "document['driver']", "document['kind']", "blocks['physical_block_size']", "node['driver']",
    "threading['queues']", "options['queues']", "entry['inserted']",
    "node['backing']",
    # server_disk catches KeyError for all writers of its table
    "node['portal']", "node['target']", "node['path']", "node['server']", "node['namespace']",
    "node['server']['host']", "node['image']", "node['pool']", "node['user']",
}  # fmt: skip

PARSERS = {
    "json.loads": {"json_object", "read_json", "_change", "_sources"},
    "fromstring": {"read_domain"},
    "yaml.load_all": {"read_documents"},
    "yaml.parse": {"_require_small"},
    "ET.tostring": {
        "_configured",  # after _require_shallow
        "_domain",  # of the form's own elements
        "export", "export_element", "_export_share", "_export_share_element",  # our own elements
    },
}  # fmt: skip
"""Parsers that recurse or raise several errors, and the functions that make one kind of them."""

BOUNDED = {"_expand", "_with_item", "fill", "_flat", "_mappings", "commands",
           "_put_values", "put", "_rewritten",
           "_filled", "filled", "_interpolated"}  # fmt: skip
"""Functions that call themselves on values whose depth their reader has limited."""


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef):
            yield node


def catches(function: ast.AST, errors: set[str]) -> bool:
    """True if the function has a try that catches one of these errors."""
    return any(
        name.id in errors
        for node in ast.walk(function)
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        for name in ast.walk(node.type)
        if isinstance(name, ast.Name)
    )


def unsafe_numbers(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            text = ast.unparse(node)
            if node.func.id in ("int", "float") and node.args and text not in OWN_NUMBERS:
                yield text


def unsafe_parsers(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if function.name not in PARSERS.get(called, {function.name}):
                yield called
            recurses = called in (function.name, f"self.{function.name}")
            if recurses and function.name not in BOUNDED:
                yield f"{called} calls itself"


def found_by_patterns(function: ast.FunctionDef) -> set[str]:
    """The names of matches: their groups exist."""
    names = {"token", "following", "match"}  # parameters that are matches
    for node in ast.walk(function):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.NamedExpr):
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.For | ast.comprehension):
            pairs = [(node.target, node.iter)]
        elif isinstance(node, ast.Lambda):
            names |= {argument.arg for argument in node.args.args if argument.arg == "match"}
        for target, value in pairs:
            text = ast.unparse(value)
            if any(f".{way}(" in text for way in ("match", "fullmatch", "search", "finditer")):
                names |= {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
    return names


def unsafe_keys(function: ast.FunctionDef) -> Iterator[str]:
    """Constant keys that a mapping may lack: nothing in the function asks whether it has them."""
    asked = {
        (ast.unparse(node.left), ast.unparse(over))
        for node in ast.walk(function)
        if isinstance(node, ast.Compare)
        for over in node.comparators
    }
    matches = found_by_patterns(function)
    for node in ast.walk(function):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        key = node.slice
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            continue
        base = ast.unparse(node.value)
        if base in matches or (ast.unparse(key), base) in asked:
            continue
        if catches(function, {"KeyError", "LookupError"}):
            continue
        yield ast.unparse(node)


def test_no_method_guesses_what_int_accepts() -> None:
    used = [
        f"{name_of(path)}:{node.lineno}: {node.attr}"
        for path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr in DIGITS
    ]
    assert used == [], "use units.whole_number"


@pytest.mark.parametrize("path", READERS, ids=name_of)
def test_numbers_in_text_are_read_by_a_safe_function(path: Path) -> None:
    found = [
        text
        for function in functions(path)
        if not catches(function, {"ValueError"})
        for text in unsafe_numbers(function)
    ]
    assert found == [], "use units.whole_number or decimal_number"


@pytest.mark.parametrize("path", READERS, ids=name_of)
def test_patterns_find_ascii_digits(path: Path) -> None:
    """A `\\d` also finds the digits of other scripts, which the code after it does not expect."""
    texts = [
        node.value
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert [text for text in texts if r"\d" in text] == []


@pytest.mark.parametrize("path", READERS, ids=name_of)
def test_parsers_and_recursion_are_bounded(path: Path) -> None:
    assert [text for function in functions(path) for text in unsafe_parsers(function)] == []


@pytest.mark.parametrize("path", READERS, ids=name_of)
def test_keys_are_asked_for(path: Path) -> None:
    found = {text for function in functions(path) for text in unsafe_keys(function)}
    assert found - OWN_KEYS == set(), "use get()"


@pytest.mark.parametrize(
    ("source", "check"),
    [
        ("def f(text):\n    return int(text)", unsafe_numbers),
        ("def f(text):\n    return float(text['a'])", unsafe_numbers),
        ("def f(text):\n    return json.loads(text)", unsafe_parsers),
        ("def f(value):\n    return [f(each) for each in value]", unsafe_parsers),
        ("def f(tree):\n    return tree['kind']", unsafe_keys),
    ],
)
def test_the_check_finds_it(source: str, check: object) -> None:
    assert callable(check)
    (function,) = ast.parse(source).body
    assert list(check(function))
