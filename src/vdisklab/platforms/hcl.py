"""Reads HCL, the language of Terraform and Packer, as far as values are literal.

A reader of our own: python-hcl2 evaluates no expression either, would bring a parser generator
(lark) along, and has no budget for a hostile text. An expression stays as its text, unless it is a
variable or local whose only value stands in the same text. HCL's native syntax specification,
"Structural Elements". A `dynamic` block over a literal list or mapping becomes its blocks
(Terraform's "dynamic Blocks"); of functions only `lookup` and `try` of its value are known.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vdisklab.errors import PlanError
from vdisklab.value import Value

_DEEPEST = 60
_MOST_TOKENS = 400_000
_MOST_BLOCKS = 20_000
_LONGEST = 4096
_LOOKUP = re.compile(r'lookup\((?P<place>[\w.]+),"(?P<key>[\w-]+)",(?P<default>"[^"$]*"|[\w.]+)\)')
_TRY = re.compile(r'try\((?P<place>\w+\.value)\.(?P<key>[\w-]+),(?P<default>"[^"$]*"|[\w.]+)\)')
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|/\*.*?\*/|(?:\#|//)[^\n]*)
    |(?P<end>\n)
    |<<[-~]?(?P<mark>\w+)\n(?P<heredoc>.*?)^[ \t]*(?P=mark)[ \t]*$
    |"(?P<text>(?:[^"\\$\n]|\\.|\$(?!\{)|\$\{(?:[^{}"]|"[^"\n]*"|\{[^{}]*\})*\})*)"
    |(?P<number>-?[0-9]+(?:\.[0-9]+)?(?![\w.]))
    |(?P<name>[A-Za-z_][\w-]*(?:\.[\w-]+|\[[\w".*]*\])*)
    |(?P<sign>[{}\[\](),=:])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_WORDS = {"true": True, "false": False, "null": None}


@dataclass(slots=True)
class HclBlock:
    """A block: its type, its labels, its attributes, and the blocks in it."""

    type: str
    labels: tuple[str, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    blocks: list[HclBlock] = field(default_factory=list)
    line: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    """The lines of the text in which it and its attributes begin."""
    references: dict[str, str] = field(default_factory=dict)
    """The variables and locals that whole attributes had before their values: `var.cache`."""

    def all(self, *types: str) -> Iterator[HclBlock]:
        """The blocks of that type, also where a `dynamic` block makes them; through several types
        those inside each other."""
        first, *rest = types
        for block in self.blocks:
            is_dynamic = block.type == "dynamic" and block.labels == (first,)
            found = block.all("content") if is_dynamic else iter([block])
            if is_dynamic or block.type == first:
                for inner in found:
                    yield from inner.all(*rest) if rest else iter([inner])

    def text(self, name: str, otherwise: str = "") -> str:
        """An attribute as text; `on` and `off` are not told apart from true and false."""
        value = self.attributes.get(name)
        if isinstance(value, bool):
            return "1" if value else "0"
        return otherwise if value is None else str(value)


def read_hcl(text: str, origin: str, given: Sequence[str] = ()) -> HclBlock:
    """The whole file as a block, with the values of variables that the texts `given` have, of which
    a later one wins. Raises PlanError for a text that is not HCL.

    A given text that cannot be read may set any variable, so that none has a known value.
    """
    whole = _parsed(text, origin)
    _put_values(whole, _values(whole, _variables(given)), 0)
    _expand(whole, [_MOST_BLOCKS], 0)
    return whole


def _variables(given: Sequence[str]) -> Mapping[str, Any] | None:
    """The values of variables in such texts; None if one of them cannot be read."""
    found: dict[str, Any] = {}
    for text in given:
        try:
            block = _parsed(text, "")
        except PlanError:
            return None
        if block.blocks:
            return None
        found |= {f"var.{name}": value for name, value in block.attributes.items()}
    return found


def _parsed(text: str, origin: str) -> HclBlock:
    """The whole file as a block, with its expressions as texts."""
    tokens = [match for match in _TOKEN.finditer(text) if match["blank"] is None]
    if len(tokens) > _MOST_TOKENS:
        raise PlanError(f"{origin} is larger than any configuration", hint="split the file")
    whole = HclBlock("")
    parser = _Parser(tokens, [match.start() for match in re.finditer("\n", text)])
    try:
        parser.body(whole, 0)
    except (IndexError, _BrokenError) as error:
        start = tokens[min(parser.position, len(tokens)) - 1].start() if tokens else 0
        raise PlanError(
            f"{origin} is not HCL as Terraform and Packer write it: see line "
            f"{text.count(chr(10), 0, start) + 1}",
            hint="check it with `terraform validate` or `packer validate`",
        ) from error
    return whole


class _BrokenError(ValueError):
    """A text that is not HCL, or is nested without end."""


@dataclass(slots=True)
class _Parser:
    tokens: list[re.Match[str]]
    ends: list[int]
    position: int = 0

    def _line(self, token: re.Match[str]) -> int:
        return bisect(self.ends, token.start() - 1) + 1

    def _peek(self) -> re.Match[str] | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def _next(self) -> re.Match[str]:
        self.position += 1
        return self.tokens[self.position - 1]

    def _skip_ends(self) -> None:
        while (token := self._peek()) is not None and (token["end"] or token["sign"] == ","):
            self.position += 1

    def body(self, block: HclBlock, depth: int) -> None:
        """The attributes and blocks up to the closing brace, or the end of the file."""
        if depth > _DEEPEST:
            raise _BrokenError
        while True:
            self._skip_ends()
            token = self._peek()
            if token is None or token["sign"] == "}":
                if (token is None) != (depth == 0):
                    raise _BrokenError
                self.position += 1
                return
            self._element(block, self._next(), depth)

    def _element(self, block: HclBlock, token: re.Match[str], depth: int) -> None:
        name = token["name"] if token["name"] is not None else token["text"]
        if name is None:
            raise _BrokenError
        following = self._next()
        if following["sign"] in ("=", ":"):
            block.lines[name] = self._line(token)
            block.attributes[name] = self._value(depth + 1)
            return
        labels: list[str] = []
        while following["sign"] != "{":
            label = following["text"] if following["text"] is not None else following["name"]
            if label is None:
                raise _BrokenError
            labels.append(label)
            following = self._next()
        inner = HclBlock(name, tuple(labels), line=self._line(token))
        self.body(inner, depth + 1)
        block.blocks.append(inner)

    def _value(self, depth: int) -> Any:  # noqa: ANN401 - any value of HCL
        """A literal, or the text of an expression up to the end of its line."""
        if depth > _DEEPEST:
            raise _BrokenError
        token = self._next()
        value: Any
        if token["heredoc"] is not None:
            value = token["heredoc"]
        elif token["text"] is not None:
            value = re.sub(r'\\(["\\])', r"\1", token["text"])
        elif token["number"] is not None:
            value = float(token["number"]) if "." in token["number"] else token["number"]
        elif token["name"] is not None:
            value = _WORDS.get(token["name"], f"${{{token['name']}}}")
        elif token["sign"] == "[":
            value = self._list(depth)
        elif token["sign"] == "{" and self._is_for():
            value = f"${{{self._expression()}}}"
        elif token["sign"] == "{":
            inner = HclBlock("")
            self.body(inner, depth + 1)
            value = inner.attributes
        else:
            value = f"${{{token[0]}}}"
        return self._with_rest(value, token)

    def _is_for(self) -> bool:
        """True after the brace of `{ for key in map : key => value }`, which may span lines."""
        self._skip_ends()
        token = self._peek()
        return token is not None and token["name"] == "for"

    def _expression(self) -> str:
        """The text up to the closing brace, which is read, too."""
        text, nested = "", 1
        while nested:
            token = self._next()
            nested += {"{": 1, "}": -1}.get(token["sign"] or "", 0)
            text += f"{token[0]} " if nested else ""
        return text.strip()

    def _with_rest(self, value: Any, first: re.Match[str]) -> Any:  # noqa: ANN401
        """The value, or the text of the expression if one goes on after it."""
        rest, nested = "", 0
        while (token := self._peek()) is not None:
            if nested == 0 and (token["end"] or token["sign"] in (",", "}", "]", ")")):
                break
            nested += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(
                token["sign"] or "", 0
            )
            rest += token[0]
            self.position += 1
        return f"${{{first[0]}{rest}}}" if rest else value

    def _list(self, depth: int) -> list[Any]:
        values: list[Any] = []
        while True:
            self._skip_ends()
            token = self._peek()
            if token is None:
                raise _BrokenError
            if token["sign"] == "]":
                self.position += 1
                return values
            values.append(self._value(depth + 1))


def _values(whole: HclBlock, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The literal values of the file's variables and locals, by reference; those `given` win."""
    found: dict[str, Any] = {}
    for block in whole.blocks:
        if (
            given is not None
            and block.type == "variable"
            and block.labels
            and "default" in block.attributes
        ):
            found[f"var.{block.labels[0]}"] = block.attributes["default"]
        elif block.type == "locals":
            found |= {f"local.{name}": value for name, value in block.attributes.items()}
    found |= given or {}
    plain = (str, bool, float, list, dict)
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, plain) and "${" not in str(value) and len(str(value)) < _LONGEST
    }


def _in_text(match: re.Match[str], values: Mapping[str, Any]) -> str:
    value = values.get(match[1])
    return match[0] if value is None or isinstance(value, list | dict) else str(value)


def _expand(block: HclBlock, budget: list[int], depth: int) -> None:
    """Puts the blocks that `dynamic` ones make in their places, as far as their list is literal;
    `budget` has how many attributes and blocks are still made."""
    if depth > _DEEPEST:
        return
    found: list[HclBlock] = []
    for inner in block.blocks:
        found += _made(inner, budget) if inner.type == "dynamic" else [inner]
    block.blocks = found
    for inner in found:
        if inner.type != "dynamic":
            _expand(inner, budget, depth + 1)


def _size(block: HclBlock) -> int:
    """The number of attributes and blocks in a block, and itself."""
    return 1 + len(block.attributes) + sum(map(_size, block.blocks))


def _made(dynamic: HclBlock, budget: list[int]) -> list[HclBlock]:
    """The blocks of a `dynamic` one; itself if what they are made of is not literal."""
    items, content = dynamic.attributes.get("for_each"), next(dynamic.all("content"), None)
    if isinstance(items, list):
        items = dict(enumerate(items))
    if not isinstance(items, dict) or content is None or not dynamic.labels or (
        "${" in str(items) or len(items) * _size(content) > budget[0]
    ):  # fmt: skip
        return [dynamic]
    budget[0] -= len(items) * _size(content)
    name = dynamic.text("iterator", dynamic.labels[0]).strip("${}")
    return [
        _with_item(content, dynamic.labels[0], _Item(name, str(key), value), 0)
        for key, value in items.items()
    ]


class _Item(Value):
    """An entry of the list that a `dynamic` block is made of: `disk.key` and `disk.value`."""

    name: str
    key: str
    value: Any

    def find(self, expression: str) -> Any:  # noqa: ANN401 - any value of HCL
        """What an expression stands for; None if it is another one."""
        if expression == f"{self.name}.key":
            return self.key
        default: str | None = None
        match = _LOOKUP.fullmatch(expression) or _TRY.fullmatch(expression)
        if match is not None:
            expression, default = f"{match['place']}.{match['key']}", match["default"]
        place, _, rest = expression.partition(".value")
        if place != self.name:
            return None
        value = self.value
        for key in re.findall(r"[\w-]+", rest):
            value = value.get(key) if isinstance(value, dict) else None
        if value is None and default is not None:
            return _WORDS.get(default, default.strip('"'))
        return value

    def fill(self, value: Any, depth: int) -> Any:  # noqa: ANN401
        """The value with what its expressions stand for."""
        if isinstance(value, str) and "${" in value:
            whole = re.fullmatch(r"\$\{([^{}]*)\}", value)
            found = None if whole is None else self.find(whole[1])
            return re.sub(r"\$\{([^{}]*)\}", self._text, value) if found is None else found
        if depth > _DEEPEST:
            return value
        if isinstance(value, list):
            return [self.fill(each, depth + 1) for each in value]
        if isinstance(value, dict):
            return {key: self.fill(each, depth + 1) for key, each in value.items()}
        return value

    def _text(self, match: re.Match[str]) -> str:
        found = self.find(match[1])
        return match[0] if found is None or isinstance(found, list | dict) else str(found)


def _with_item(content: HclBlock, kind: str, item: _Item, depth: int) -> HclBlock:
    filled = {key: item.fill(value, 0) for key, value in content.attributes.items()}
    inner = [] if depth > _DEEPEST else [
        _with_item(each, each.type, item, depth + 1) for each in content.blocks
    ]  # fmt: skip
    return HclBlock(kind, content.labels, filled, inner, content.line, content.lines)


def _put_values(block: HclBlock, values: Mapping[str, Any], depth: int) -> None:
    def put(value: Any, deep: int) -> Any:  # noqa: ANN401
        if isinstance(value, str) and "${" in value:
            whole = re.fullmatch(r"\$\{([\w.-]+)\}", value)
            if whole and whole[1] in values:
                return values[whole[1]]
            return re.sub(r"\$\{([\w.-]+)\}", lambda match: _in_text(match, values), value)
        if deep > _DEEPEST:
            return value
        if isinstance(value, list):
            return [put(each, deep + 1) for each in value]
        if isinstance(value, dict):
            return {key: put(each, deep + 1) for key, each in value.items()}
        return value

    for key, value in block.attributes.items():
        named = re.fullmatch(r"\$\{([\w.-]+)\}", value) if isinstance(value, str) else None
        if named is not None and named[1] in values:
            block.references[key] = named[1]
    block.attributes = {key: put(value, depth) for key, value in block.attributes.items()}
    for inner in block.blocks:
        _put_values(inner, values, depth + 1)
