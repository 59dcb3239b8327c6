"""The row of an option, and requests whose fields are such rows.

A verb's options, the keys of plan files and the help are made of rows; `vdisklab.plan.settings` has
those of a campaign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, Field, dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, TypeVar

from vdisklab.errors import PlanError
from vdisklab.path.durability import HostDisk
from vdisklab.plan import value_kinds as kinds

PLAN_FLAG = "--plan"
"""The option that names a plan file."""

NAMES = "{names}"
"""Where the help of a row has names that are found when it is shown."""

_SAME = "the field's name"


class Panel(StrEnum):
    """The groups of options in `--help`, in this order."""

    WHAT = "What to measure"
    LENGTH = "How long, how often"
    WHERE = "Where"
    GUEST = "Which guest"
    SEARCH = "The race for the best, without --rounds"
    OUTPUT = "Results"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One row: an option of a campaign, named by its field of `Request`."""

    kind: kinds.ValueKind
    help: str
    panel: Panel | None
    _: KW_ONLY
    key: str = _SAME
    """The key in plan files, in `table` or at the top level; empty if plan files have none."""
    table: str = ""
    flag: str = _SAME
    """The flag on the command line; empty if it has none."""
    metavar: str = ""
    default: Any = None
    """Applies if neither the user nor the profile sets a value."""
    shown: str = ""
    """The default as the help shows it."""
    limits: kinds.Limits | None = None
    needs: str = ""
    """Another option, without which this one has no effect."""
    stored: str = ""
    """The value's place in a stored plan, for commands that repeat a campaign's settings."""
    identifies: bool = False
    """True if the value is stored at the top of the campaign's plan, unless it is the default."""
    envvar: str = ""
    """The environment variable that sets the option, too."""
    formerly: str = ""
    """An earlier name, or one that people try: plan files and command lines accept it, with a note.
    """
    names: Callable[[], Sequence[str]] = tuple
    """The names that stand for `NAMES` in the help, read when the help is shown."""
    name: str = ""

    @property
    def explained(self) -> str:
        """The help with all names in it."""
        return self.help.replace(NAMES, ", ".join(self.names()))

    def named(self, name: str) -> SettingRow:
        """The row with its field's name; key and flag get the same name unless they are given."""
        default = "" if self.default is None else f"{self.kind.spell(self.default)}"
        return replace(
            self,
            name=name,
            key=name if self.key == _SAME else self.key,
            flag=f"--{name.replace('_', '-')}" if self.flag == _SAME else self.flag,
            shown=self.shown or default,
        )

    @property
    def described(self) -> str:
        """The meaning of the option and the form of its value, for plan files."""
        formats = [self.kind.hint] if self.kind.hint else []
        if self.kind is kinds.WHOLE and self.limits is not None:
            formats.append(f"a whole number from {self.limits.low}")
        return self.explained.rstrip(".") + (f" ({', '.join(formats)})" if formats else "")


def setting(kind: kinds.ValueKind, help: str, panel: Panel, **more: Any) -> Any:  # noqa: ANN401
    """A field of `Request` with its row; `more` are further members of `SettingRow`."""
    return field(default=kind.empty, metadata={"setting": SettingRow(kind, help, panel, **more)})


def option(kind: kinds.ValueKind, help: str, default: Any = None, **more: Any) -> Any:  # noqa: ANN401
    """A field of `OptionRows` that no plan file has, with its row; unset, it holds its default."""
    row = SettingRow(kind, help, None, default=default, **({"key": ""} | more))
    unset = kind.empty if default is None else default
    return field(default=unset, metadata={"setting": row})


@dataclass(frozen=True, slots=True)
class OptionRows:
    """A request to a verb whose options are rows: its fields, in this order."""

    OF_CAMPAIGN: ClassVar[bool] = False
    """True if it asks for a campaign, which a plan file may say, too."""


AnyRequest = TypeVar("AnyRequest", bound=OptionRows)


def settings_of(request: type[OptionRows]) -> tuple[SettingRow, ...]:
    """The rows of a class of requests, in their order."""
    return _rows(fields(request))


@cache
def _rows(declared: tuple[Field[Any], ...]) -> tuple[SettingRow, ...]:
    return tuple(field.metadata["setting"].named(field.name) for field in declared)


def given(request: OptionRows) -> Iterator[tuple[SettingRow, Any]]:
    """Each setting that a request sets, with its value."""
    for declared, row in zip(fields(request), settings_of(type(request)), strict=True):
        value = getattr(request, row.name)
        if value != declared.default:
            yield row, value


def merge(below: AnyRequest, above: AnyRequest) -> AnyRequest:
    """Merges two requests: a setting of `above` replaces that of `below`, lists as a whole."""
    return replace(below, **{row.name: value for row, value in given(above)})


def defaults(request: type[AnyRequest]) -> AnyRequest:
    """The request with the default of every setting."""
    rows = settings_of(request)
    return request(**{row.name: row.default for row in rows if row.default is not None})


def with_defaults(
    request: AnyRequest, usual: Mapping[str, object], places: Mapping[str, str]
) -> AnyRequest:
    """The request with the usual value of each setting that it leaves open, else the default.

    `usual` has a profile's values by setting, `places` the keys of the profile that they come from.
    Raises PlanError as `check`.
    """
    below = replace(defaults(type(request)), **dict(usual))
    settings = merge(below, request)
    check(settings, places)
    return settings


def check(request: OptionRows, names: Mapping[str, str] | None = None) -> None:
    """Raises PlanError for a number outside its limits, and for an option that lacks the option
    it needs.

    `names` has the keys of settings that come from a plan file; errors name others by their flags.
    """
    rows = {row.name: row for row in settings_of(type(request))}
    for row, value in given(request):
        name = (names or {}).get(row.name, row.flag)
        if row.needs and not getattr(request, row.needs):
            needed = rows[row.needs]
            raise PlanError(
                f"{name} has no effect without {needed.flag}",
                hint=f"add {needed.flag} {needed.metavar}",
            )
        if row.limits is not None and not row.limits.admit(value):
            raise PlanError(
                f"{name} is {row.kind.spell(value)}{row.kind.unit}",
                hint=row.limits.sentence(row.kind),
            )


def database_setting() -> Any:  # noqa: ANN401
    """The database, of a campaign and of whatever answers from it."""
    return setting(
        kinds.TEXT,
        "The database of results: a file, sqlite:///FILE or postgresql://…",
        Panel.OUTPUT,
        metavar="URL",
        shown="the file that `vdisklab run` uses",
        envvar="VDISKLAB_DB",
    )


def host_disk_setting() -> Any:  # noqa: ANN401
    """What the host's disk keeps in a power cut, for a campaign and for answers from it."""
    return setting(
        kinds.one_of(HostDisk),
        "The host's disk in a power cut: volatile loses writes that were not flushed; plp "
        "(power-loss protection) keeps every completed write.",
        Panel.WHERE,
        default=HostDisk.VOLATILE,
    )
