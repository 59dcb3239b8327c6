"""`dataclass` as the standard library has it, for a third of the time at each start.

`rank` loads 212 dataclasses before it ranks. The standard library compiles six to eight methods
for each of them (`_create_fn` in dataclasses.py of Python 3.11), which took a quarter of the CPU
time of `rank`. Here only `__init__` is compiled; the other methods are functions that all classes
share. A class that can be ordered is left to the standard library.

Fields of the kind `InitVar` are not known here; a call that passes one fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_Class = type[Any]
_Value = Any
_Fields = Sequence[dataclasses.Field[Any]]


def _dataclass(
    undecorated: _Class | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    kw_only: bool = False,
    order: bool = False,
) -> _Class | Callable[[_Class], _Class]:
    """The class with the methods that `dataclasses.dataclass` would give it, or its decorator."""

    def decorated(plain: _Class) -> _Class:
        if order:
            return dataclasses.dataclass(
                frozen=frozen, slots=slots, eq=eq, kw_only=kw_only, order=order
            )(plain)
        # The standard library collects the fields, makes the slots, and refuses a subclass that is
        # frozen if its base is not, or the other way round.
        inherits = any(map(dataclasses.is_dataclass, plain.__mro__[1:]))
        made: _Class = dataclasses.dataclass(
            init=False,
            repr=False,
            eq=False,
            slots=slots,
            kw_only=kw_only,
            frozen=frozen and inherits,
        )(plain)
        fields = dataclasses.fields(made)
        methods: dict[str, Any] = {"__init__": _init(made, fields, frozen), "__repr__": _repr}
        if eq:
            methods |= _comparing(fields, frozen)
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
            made.__dataclass_params__.frozen = True  # what a subclass asks
        if frozen and slots:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        written = vars(plain)
        for name, method in methods.items():
            # Python itself sets __hash__ to None in a class that writes its __eq__.
            if name not in written or (name == "__hash__" and written[name] is None):
                setattr(made, name, method)
        return made

    return decorated if undecorated is None else decorated(undecorated)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  # mypy takes it as exported
else:
    dataclass = _dataclass


def _init(made: _Class, fields: _Fields, frozen: bool) -> Callable[..., None]:
    """`__init__`, compiled: it is called for each sample and each row of a database."""
    names: dict[str, Any] = {
        "__name__": made.__module__,
        "_dataclass_set": object.__setattr__,
        "_dataclass_missing": dataclasses.MISSING,
    }
    parameters = ["self"]
    by_name: list[str] = []
    lines: list[str] = []
    for field in fields:
        name = field.name
        default, value = "", name
        if field.default_factory is not dataclasses.MISSING:
            made_value = f"_dataclass_factory_{name}"
            names[made_value] = field.default_factory
            default = "=_dataclass_missing"
            new = f"{made_value}()"
            value = f"{new} if {name} is _dataclass_missing else {name}" if field.init else new
        elif field.default is not dataclasses.MISSING:
            names[f"_dataclass_default_{name}"] = field.default
            default = f"=_dataclass_default_{name}"
            value = name if field.init else default[1:]
        elif not field.init:
            continue  # __post_init__ sets it
        if field.init:
            (by_name if field.kw_only else parameters).append(name + default)
        line = f"_dataclass_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}"
        lines.append(line)
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    if by_name:
        parameters += ["*", *by_name]
    text = "\n  ".join([f"def __init__({', '.join(parameters)}):", *(lines or ["pass"])])
    exec(text, names)  # noqa: S102  # the names of our own fields, as in the standard library
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


def _comparing(fields: _Fields, frozen: bool) -> dict[str, Any]:
    """`__eq__` and `__hash__`; a value that can change has no hash."""
    compared = [field.name for field in fields if field.compare]
    values = _values_of(compared)

    def equal(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    if not frozen:
        return {"__eq__": equal, "__hash__": None}
    hashed = [
        field.name for field in fields if (field.compare if field.hash is None else field.hash)
    ]
    hashed_values = values if hashed == compared else _values_of(hashed)
    return {"__eq__": equal, "__hash__": lambda self: hash(hashed_values(self))}


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads these attributes as a tuple, also one or none."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


@recursive_repr()
def _repr(self: _Value) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: object, name: str, value: object) -> None:
    del self, value
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    del self
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: _Value) -> list[Any]:
    """What `pickle` and `copy` keep: they cannot set the attributes of a frozen value."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: _Value, state: Sequence[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
