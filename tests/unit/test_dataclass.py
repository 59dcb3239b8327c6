"""`vdisklab.dataclass` makes the class that the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, field, replace
from itertools import product
from typing import Any, ClassVar

import pytest

from vdisklab import dataclass as ours

MAKERS: dict[str, Any] = {"theirs": dataclasses.dataclass, "ours": ours._dataclass}

Outcome = tuple[str, object]
Value = Any


class Point:
    """Two numbers, one of them with a default."""

    x: int
    y: int = 2
    KIND: ClassVar[str] = "point"


class Single:
    value: float


class Nothing:
    pass


class Rows:
    """Factories, parts that are not compared or shown, and some that only the class sets."""

    rows: list[int] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)
    hidden: int = field(default=7, init=False)
    made: dict[str, int] = field(default_factory=dict, init=False, hash=False)
    total: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", sum(self.rows))


class Named:
    place: str
    _: KW_ONLY
    size: int
    unit: str = "B"
    marks: tuple[str, ...] = field(default_factory=tuple)


class Written:
    """Its methods are its own."""

    value: int

    def __repr__(self) -> str:
        return f"<{self.value}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Written) and self.value % 2 == other.value % 2

    def __hash__(self) -> int:
        return 3


class Equal:  # noqa: PLW1641  # the decorator gives it one
    """Its equality is its own, its hash is not."""

    value: int

    def __eq__(self, other: object) -> bool:
        return self.value == getattr(other, "value", None)


CALLS: dict[type, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    Point: [((1,), {}), ((1, 2), {}), ((), {"y": 3, "x": 1}), ((), {}), ((1, 2, 3), {}),
            ((1,), {"x": 1}), ((1,), {"z": 1}), ((True,), {})],
    Single: [((1.5,), {}), ((math.nan,), {}), (((),), {})],
    Nothing: [((), {}), ((1,), {})],
    Rows: [((), {}), (([1, 2],), {}), (([1, 2], "note"), {}), ((), {"hidden": 1})],
    Named: [(("a",), {"size": 1}), (("a",), {}), (("a", 1), {}), (("a",), {"size": 1, "unit": "s"}),
            (("a",), {"size": 1, "marks": ("m",)})],
    Written: [((1,), {}), ((2,), {}), ((3,), {})],
    Equal: [((1,), {}), ((2,), {})],
}  # fmt: skip

OPTIONS = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True, "slots": True, "eq": False},
    {"slots": True, "eq": False},
    {"frozen": True, "slots": True, "order": True},
]


def outcome(action: Callable[[], object]) -> Outcome:
    """What a call returns, or the error that it raises."""
    try:
        return "returned", action()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error).__name__, str(error)


def refused(action: Callable[[], object]) -> str:
    """The error, if there is one.

    Python 3.11 raises `TypeError` for what is no field of a frozen class with slots
    (github.com/python/cpython/issues/105936).
    """
    kind = outcome(action)[0]
    return "FrozenInstanceError" if kind == "TypeError" else kind


def shown(value: object) -> str:
    """The text of a value; an address has no meaning."""
    text = repr(value)
    return text if " object at 0x" not in text else text.partition(" at 0x")[0]


def facts(made: type[Any], plain: type) -> Iterator[Outcome]:
    """All that a class answers, in an order of its own."""
    yield "fields", [(f.name, f.init, f.compare, f.kw_only) for f in dataclasses.fields(made)]
    yield "match", made.__match_args__
    yield "slots", getattr(made, "__slots__", None)
    yield (
        "parameters",
        [
            (name, parameter.kind, parameter.default is inspect.Parameter.empty)
            for name, parameter in inspect.signature(made).parameters.items()
        ],
    )
    values = []
    for positional, named in CALLS[plain]:
        kind, value = outcome(lambda p=positional, n=named: made(*p, **n))  # type: ignore[misc]
        yield kind, shown(value)
        if kind == "returned":
            values.append(value)
    for value in values:
        yield from facts_of(value, made)
        yield "equal", [outcome(lambda v=value, o=other: v == o) for other in values]  # type: ignore[misc]
        yield "equal to another type", value == "text"
        yield "less", [outcome(lambda v=value, o=other: v < o)[0] for other in values]  # type: ignore[misc]


def facts_of(value: Value, made: type[Any]) -> Iterator[Outcome]:
    by_address = vars(made).get("__hash__", made) is made
    yield "hash", "by address" if by_address else outcome(lambda: hash(value))
    yield "as dict", dataclasses.asdict(value)
    for name in ("x", "value", "new"):
        yield "set", refused(lambda n=name: setattr(value, n, 1))  # type: ignore[misc]
        yield "delete", refused(lambda n=name: delattr(copy.copy(value), n))  # type: ignore[misc]
        yield "kept", hasattr(value, name)
    yield "copied", shown(copy.deepcopy(value))
    yield "replaced", outcome(lambda: shown(replace(value)))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("plain", CALLS, ids=lambda plain: plain.__name__)
def test_a_class_answers_as_the_standard_librarys(plain: type, options: dict[str, bool]) -> None:
    answers = {}
    for maker, decorator in MAKERS.items():
        try:
            made = decorator(**options)(type(plain.__name__, (), body_of(plain)))
        except (TypeError, ValueError) as error:
            answers[maker] = [(type(error).__name__, str(error))]
            continue
        answers[maker] = [(kind, str(fact)) for kind, fact in facts(made, plain)]
    assert len(answers["theirs"]) > 1 or "order" in options
    assert answers["ours"] == answers["theirs"]


class More:
    """What a class adds to the fields that it inherits."""

    label: str = "more"
    y: int = 9


INHERITED = [((1,), {}), ((1, 2, "label"), {}), ((), {"x": 1, "label": ""}), (("label",), {})]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("base_options", OPTIONS[:4], ids="-".join)
def test_a_subclass_answers_as_the_standard_librarys(
    options: dict[str, bool], base_options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CALLS, More, INHERITED)
    answers = {}
    for pair in product(MAKERS, repeat=2):
        first, second = (MAKERS[maker] for maker in pair)
        base = first(**base_options)(type("Point", (), body_of(Point)))
        try:
            made = second(**options)(type("More", (base,), body_of(More)))
        except TypeError as error:
            answers[pair] = [("refused", str(error))]
            continue
        answers[pair] = [(kind, str(fact)) for kind, fact in facts(made, More)]
    expected = answers["theirs", "theirs"]
    refused_by_both = options.get("frozen", False) is not base_options.get("frozen", False)
    assert (expected[0][0] == "refused") is refused_by_both
    assert [pair for pair, found in answers.items() if found != expected] == []


def body_of(plain: type) -> dict[str, Any]:
    """All that a class defines, for another class."""
    return {name: value for name, value in vars(plain).items() if name not in DROPPED}


DROPPED = ("__dict__", "__weakref__")


@ours.dataclass(frozen=True, slots=True)
class Kept:
    number: int
    rows: tuple[int, ...] = ()
    marks: list[str] = field(default_factory=list, compare=False)


@ours.dataclass(frozen=True, slots=True)
class Inherited(Kept):
    name: str = ""


@ours.dataclass
class Changed:
    number: int = 0


@pytest.mark.parametrize("value", [Kept(1, (2,), ["a"]), Inherited(1, (2,), ["a"], "name")])
def test_a_frozen_value_is_pickled_and_copied_with_all_its_parts(value: Kept) -> None:
    pickled = pickle.loads(pickle.dumps(value))  # noqa: S301  # our own
    for again in (pickled, copy.copy(value), copy.deepcopy(value)):
        assert again == value
        assert again.marks == ["a"]
        assert hash(again) == hash(value)


def test_a_subclass_keeps_the_fields_and_is_frozen() -> None:
    value = Inherited(1, name="disk")
    assert value == Inherited(1, (), [], "disk")
    assert repr(value) == "Inherited(number=1, rows=(), marks=[], name='disk')"
    for name in ("number", "name"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, 2)
    assert value != Kept(1)


def test_a_value_that_can_change_cannot_inherit_from_a_frozen_one() -> None:
    with pytest.raises(TypeError, match="frozen"):

        @ours.dataclass
        class Wrong(Kept):  # type: ignore[misc]
            name: str = ""


def test_a_value_that_can_change_has_no_hash() -> None:
    value = Changed()
    value.number = 3
    assert value == Changed(3)
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)


def test_a_value_that_holds_itself_is_shown() -> None:
    value = Kept(1, (), [])
    value.marks.append(value)  # type: ignore[arg-type]
    assert repr(value) == "Kept(number=1, rows=(), marks=[...])"


def test_each_class_compiles_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is why the decorator is ours."""
    compiled = []
    real = exec

    def counted(text: str, *names: dict[str, object]) -> None:
        compiled.append(text)
        real(text, *names)

    monkeypatch.setattr("builtins.exec", counted)
    body = {"__annotations__": {"x": "int", "y": "int"}, "__module__": __name__}
    ours._dataclass(frozen=True, slots=True)(type("Pair", (), dict(body)))
    assert len(compiled) == 1
    dataclasses.dataclass(frozen=True, slots=True)(type("Pair", (), dict(body)))
    assert len(compiled) > 5
