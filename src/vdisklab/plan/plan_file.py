"""Plan files: parses TOML into a `Request`, and makes the JSON schema for editors."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field, ValidationError, create_model

from vdisklab.errors import DamagedError
from vdisklab.plan.option_rows import AnyRequest, OptionRows, SettingRow, given, settings_of
from vdisklab.plan.settings import Request
from vdisklab.plan.toml_file import TomlTable, describe_place, read_toml, text_of
from vdisklab.plan.value_kinds import SHARE, WHOLE
from vdisklab.validation import first_problem

_TABLES = {"guest": "the virtual machine"}
_WHOLE_FILE = "What to measure, where, and how often"


@cache
def _plan_table(request: type[OptionRows]) -> type[TomlTable]:
    keys = _keys(request, "")
    for name, described in _TABLES.items():
        inner: Any = _table(f"{name.capitalize()}Table", described, _keys(request, name))
        keys[name] = (inner | None, Field(None, description=f"table [{name}]: {described}"))
    return _table("PlanTable", _WHOLE_FILE, keys)


def plan_table(request: type[OptionRows]) -> type[TomlTable]:
    """The model of a plan file, with one key for each row of a class of requests."""
    return _plan_table(request)  # type: ignore[arg-type] # mypy takes the class for unhashable


def _table(title: str, described: str, keys: dict[str, Any]) -> type[TomlTable]:
    model: type[TomlTable] = create_model(title, __base__=TomlTable, __doc__=described, **keys)
    return model


def _keys(request: type[OptionRows], table: str) -> dict[str, Any]:
    """The keys of one table as pydantic fields."""
    return {
        row.key: (
            row.kind.toml | None,
            Field(None, description=row.described, **_earlier_name(row), **_lowest(row)),
        )
        for row in settings_of(request)
        if row.key and row.table == table
    }


def _earlier_name(row: SettingRow) -> dict[str, Any]:
    return {"validation_alias": AliasChoices(row.key, row.formerly)} if row.formerly else {}


def _lowest(row: SettingRow) -> dict[str, Any]:
    """The lower limit of a plain number for the schema; `settings.check` checks all limits."""
    if row.limits is None or row.kind not in (WHOLE, SHARE):
        return {}
    return {"gt" if row.limits.above else "ge": row.limits.low}


def parse_plan_file(text: str, origin: str, request: type[AnyRequest]) -> AnyRequest:
    """The request in a plan file. Raises PlanError naming `origin`, the table and the key."""
    return _request(read_toml(text, origin, plan_table(request)), request)


def read_plan_file(
    file: Path, request: type[AnyRequest], note: Callable[[str], None]
) -> AnyRequest:
    """The request in a plan file; `note` gets a sentence for each key that has another name now.

    Raises PlanError, also if the file cannot be read.
    """
    text = text_of(file, "plan file")
    parsed = parse_plan_file(text, str(file), request)
    keys = tomllib.loads(text)
    for row in settings_of(request):
        if row.formerly and row.formerly in (keys.get(row.table, {}) if row.table else keys):
            note(f"key {row.formerly!r} of {file} is now called {row.key!r}")
    return parsed


def request_alike(plan: Mapping[str, Any], request: type[AnyRequest]) -> AnyRequest:
    """The request that repeats a stored plan's settings, as far as the plan stores them.

    Raises DamagedError if the plan holds what no setting can be.
    """
    try:
        return _request(_stored_table(plan, request), request)
    except ValidationError as error:
        raise DamagedError(
            f"the stored plan of a campaign cannot be used: {first_problem(error)}",
            hint="restore a copy of the database",
        ) from error


def settings_error(plan: Mapping[str, Any]) -> str | None:
    """The fault of a stored plan's settings in one sentence; None if `request_alike` reads them."""
    try:
        _stored_table(plan, Request)
    except ValidationError as error:
        return first_problem(error)
    return None


def _stored_table(plan: Mapping[str, Any], request: type[OptionRows]) -> TomlTable:
    """The settings of a stored plan as a plan file would have them. Raises ValidationError."""
    file: dict[str, Any] = {name: {} for name in _TABLES}
    for row in settings_of(request):
        value = _stored(plan, row.stored) if row.stored else None
        if value is not None:
            (file[row.table] if row.table else file)[row.key] = value
    return plan_table(request).model_validate(file)


def names_of_keys(request: OptionRows, origin: str) -> dict[str, str]:
    """The key of each setting in the plan file `origin`, in the form that errors use."""
    return {
        row.name: describe_place([name for name in (row.table, row.key) if name], origin)
        for row, _ in given(request)
    }


def _stored(plan: Mapping[str, Any], place: str) -> object:
    """The value at a place such as `guest.cpus`; None if there is none."""
    value: Any = plan
    for key in place.split("."):
        value = (value or {}).get(key)
    return value


def _request(file: TomlTable, request: type[AnyRequest]) -> AnyRequest:
    values = dict(_values(file))
    names = {(row.table, row.key): row.name for row in settings_of(request) if row.key}
    return request(**{names[place]: value for place, value in values.items()})


def _values(table: TomlTable, name: str = "") -> Iterator[tuple[tuple[str, str], Any]]:
    """Table, key and value of every entry in a file."""
    for key in table.model_fields_set:
        value = getattr(table, key)
        if isinstance(value, TomlTable):
            yield from _values(value, key)
        else:
            yield (name, key), value


def plan_file_schema(request: type[Request] = Request) -> dict[str, Any]:
    """The JSON schema of plan files; `docs/plan.schema.json` is this, and a test compares."""
    schema: dict[str, Any] = plan_table(request).model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_table_without_null(schema),
        "title": "vdisklab plan file",
    }


def _without_null(schema: object) -> object:
    """The schema without `null`, which TOML does not have: an unset key is absent."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    return _table_without_null(schema) if isinstance(schema, dict) else schema


def _table_without_null(schema: dict[str, Any]) -> dict[str, Any]:
    table = {
        key: _without_null(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
    }
    choices = table.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        del table["anyOf"]
        table = {**(rest[0] if len(rest) == 1 else {"anyOf": rest}), **table}
    return table
