"""Converts values of the result model to table rows and back; runs no SQL."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import to_builtins
from msgspec.structs import asdict

from vdisklab.errors import UnstorableError
from vdisklab.path.segments import PageCache
from vdisklab.results import model, schema
from vdisklab.results.power_cut import Counterexample, PowerCut
from vdisklab.validation import shown

Row = sa.RowMapping

DEEPEST = 100
"""Maximum nesting of a plan; vdisklab's plans have five levels."""


_Wanted = tuple[str, Callable[[Any], bool]]
_Shape = Mapping[str, _Wanted]
_TEXT: _Wanted = ("should be text", lambda value: isinstance(value, str))
_TEXT_OR_NONE: _Wanted = ("should be text", lambda value: value is None or isinstance(value, str))
_LIST: _Wanted = ("should be a list", lambda value: isinstance(value, list))
_OBJECT: _Wanted = (
    "should be an object with named values",
    lambda value: isinstance(value, Mapping),
)

_MEASURED: _Shape = {
    "name": _TEXT,
    "program": _TEXT_OR_NONE,
    "settings": _OBJECT,
    "filesystem": _TEXT_OR_NONE,
}


class UnusableError(ValueError):
    """A stored value that breaks no rule of its table, and yet cannot have been stored."""


def _fields(kind: type[Any], *apart: str) -> tuple[str, ...]:
    """The names of a value's fields that are columns, too; `apart` are those that are not."""
    return tuple(name for name in kind.__struct_fields__ if name not in apart)


_HOST, _CHECK, _COUNTED, _LOAD = map(
    _fields, (model.HostFacts, model.Check, model.IoCounters, model.HostLoad)
)
_CAMPAIGN = _fields(model.Campaign, "plan", "host")
_OUTLINE = _fields(model.RunOutline, "campaign", "page_cache", "origin", "failure")
_MEASUREMENT = _fields(model.Measurement, "samples", "evidence", "series", "group", "raw")
_EVIDENCE = _fields(model.Evidence, *model.Observer)
_MEMBER = _fields(model.Member, "evidence")
_POWER_CUT = _fields(PowerCut, "host", "outcomes", "settings", "observed", "counterexample")


def _columns(value: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _values(row: Row, names: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def host_row(facts: model.HostFacts) -> dict[str, Any]:
    """The row of a host; equal facts have an equal `fingerprint`, also when they are read again."""
    row = asdict(facts) | {"more": dict(facts.more)}
    for name, fact in row.items():
        row[name] = schema.storable(fact) if isinstance(fact, str) else fact
    text = json.dumps(row, sort_keys=True)
    return row | {"fingerprint": hashlib.sha256(text.encode()).hexdigest()}


def host_facts(row: Row) -> model.HostFacts:
    """The facts in a row of `host`."""
    return model.HostFacts(**_values(row, _HOST))


def metric_row(metric: model.Metric) -> dict[str, Any]:
    """The stored columns of a metric; how its values are compared is up to the analysis."""
    return {"name": metric.name, "unit": metric.unit, "better": metric.better.value}


def campaign_row(campaign: model.Campaign, host_key: int) -> dict[str, Any]:
    """The row of a campaign; `host_key` is the key of its host."""
    return _columns(campaign, _CAMPAIGN) | {"plan": dict(campaign.plan), "host": host_key}


def campaign_value(row: Row, host: model.HostFacts) -> model.Campaign:
    """The campaign in a row of `campaign`; raises UnusableError for a plan that is none."""
    error = plan_error(row["plan"])
    if error is not None:
        raise UnusableError(f"plan cannot be used: {error}")
    return model.Campaign(**_values(row, _CAMPAIGN), plan=row["plan"], host=host)


def run_row(run: model.Run, campaign_key: int) -> dict[str, Any]:
    """The row of a run, without its checks and measurements."""
    return _columns(run, _OUTLINE) | {
        "campaign": campaign_key,
        "page_cache": run.page_cache.value,
        "origin": run.origin.value,
        "commands": list(run.commands),
        "failure_kind": run.failure.kind.value if run.failure else None,
        "failure_message": run.failure.message if run.failure else None,
    }


def failure_value(row: Row) -> model.Failure | None:
    """The failure of the run in a row of `run`; None if it did not fail."""
    if row["failure_kind"] is None:
        return None
    return model.Failure(model.FailureKind(row["failure_kind"]), row["failure_message"])


def commands_of(row: Row) -> tuple[str, ...]:
    """The commands in a row of `run`; raises UnusableError for one that is no text."""
    for command in row["commands"]:
        if not isinstance(command, str):
            raise UnusableError(f"commands has {command!r} instead of a text")
    return tuple(row["commands"])


def run_value(
    row: Row,
    campaign_id: str,
    checks: Iterable[model.Check],
    measurements: Iterable[model.Measurement],
) -> model.Run:
    """The run in a row of `run`, with its checks and measurements."""
    return model.Run(
        **_outlined(row, campaign_id),
        checks=tuple(checks),
        commands=commands_of(row),
        measurements=tuple(measurements),
    )


def outline_value(row: Row, campaign_id: str) -> model.RunOutline:
    """The run in a row of `run`, without its checks and measurements."""
    return model.RunOutline(**_outlined(row, campaign_id))


def _outlined(row: Row, campaign_id: str) -> dict[str, Any]:
    """The fields that a run and its outline have in common."""
    return _values(row, _OUTLINE) | {
        "campaign": campaign_id,
        "page_cache": PageCache(row["page_cache"]),
        "origin": model.Origin(row["origin"]),
        "failure": failure_value(row),
    }


def check_rows(checks: Sequence[model.Check], run_key: int) -> list[dict[str, Any]]:
    """The rows of a run's checks."""
    return [
        {"run": run_key, "ordinal": ordinal, **_columns(check, _CHECK)}
        for ordinal, check in enumerate(checks)
    ]


def check_value(row: Row) -> model.Check:
    """The check in a row of `state_check`."""
    return model.Check(**_values(row, _CHECK))


def measurement_row(measurement: model.Measurement, run_key: int, ordinal: int) -> dict[str, Any]:
    """The row of a measurement, without its samples and counters."""
    return {
        "run": run_key,
        "ordinal": ordinal,
        **_columns(measurement, _MEASUREMENT),
        **_columns(measurement.evidence, _EVIDENCE),
        # A tenth of fio's JSON. Lone surrogates, which stand for invalid bytes, are kept.
        "raw": zlib.compress(measurement.raw.encode(errors="surrogatepass")),
    }


def _raw(row: Row) -> str:
    """A program's output as it wrote it; raises UnusableError unless it is compressed text."""
    try:
        return zlib.decompress(row["raw"]).decode(errors="surrogatepass")
    except (zlib.error, UnicodeDecodeError) as error:
        problem = f"raw is {row['raw']!r:.40} instead of compressed text"
        raise UnusableError(problem) from error


def measurement_value(
    row: Row,
    counted: Mapping[str, model.IoCounters],
    samples: Iterable[model.Sample],
    series: Iterable[model.Series] = (),
    group: model.GuestGroup | None = None,
) -> model.Measurement:
    """The measurement in a row of `measurement`, with its samples and counters."""
    return model.Measurement(
        **_values(row, _MEASUREMENT),
        samples=tuple(samples),
        evidence=_evidence_value(_values(row, _EVIDENCE), counted),
        series=tuple(series),
        group=group,
        raw=_raw(row),
    )


def _evidence_value(
    values: dict[str, Any], counted: Mapping[str, model.IoCounters]
) -> model.Evidence:
    return model.Evidence(**values | {who.value: counted.get(who) for who in model.Observer})


def counted_rows(evidence: model.Evidence, measurement_key: int) -> list[dict[str, Any]]:
    """One row for each observer that could count."""
    observations = ((who.value, getattr(evidence, who.value)) for who in model.Observer)
    return [
        {"measurement": measurement_key, "observer": observer, **_columns(counts, _COUNTED)}
        for observer, counts in observations
        if counts is not None
    ]


def counted_value(row: Row) -> model.IoCounters:
    """The counts in a row of `counted`."""
    return model.IoCounters(**_values(row, _COUNTED))


def sample_rows(samples: Sequence[model.Sample], measurement_key: int) -> list[dict[str, Any]]:
    """The rows of a measurement's samples, in the order the program reported them."""
    return [
        {
            "measurement": measurement_key,
            "ordinal": ordinal,
            "metric": sample.metric,
            "direction": sample.direction.value,
            "value": sample.value,
        }
        for ordinal, sample in enumerate(samples)
    ]


def sample_value(row: Row) -> model.Sample:
    """The sample in a row of `sample`."""
    return model.Sample(row["metric"], model.Direction(row["direction"]), row["value"])


def series_rows(series: Sequence[model.Series], measurement_key: int) -> list[dict[str, Any]]:
    """The rows of a measurement's series; raises UnstorableError for a point below zero or NaN."""
    for value in (value for metric_series in series for value in metric_series.values):
        if not 0 <= value < math.inf:
            raise UnstorableError(
                f"{value} in a series is not a number from 0 and is not stored",
                hint="the program that reported it is probably wrong",
            )
    return [
        {
            "measurement": measurement_key,
            "ordinal": ordinal,
            "metric": metric_series.metric,
            "direction": metric_series.direction.value,
            "interval_seconds": metric_series.interval,
            "points": list(metric_series.values),
        }
        for ordinal, metric_series in enumerate(series)
    ]


def series_value(row: Row) -> model.Series:
    """The series in a row of `series`; raises UnusableError for a point that is none."""
    for point in row["points"]:
        if type(point) not in (float, int) or not 0 <= point < math.inf:
            problem = f"points is {point!r:.40} instead of a number from 0"
            raise UnusableError(problem)
    points = tuple(map(float, row["points"]))
    return model.Series(
        row["metric"], model.Direction(row["direction"]), row["interval_seconds"], points
    )


def group_rows(group: model.GuestGroup | None, measurement_key: int) -> list[dict[str, Any]]:
    """The row of a group of guests; none without a group."""
    if group is None:
        return []
    return [{"measurement": measurement_key, "seconds": group.seconds, **asdict(group.load)}]


def member_rows(group: model.GuestGroup | None, measurement_key: int) -> list[dict[str, Any]]:
    """One row for each guest of a group. The evidence is a JSON object with the known counts."""
    return [
        _columns(member, _MEMBER)
        | {"measurement": measurement_key, "evidence": _evidence_json(member.evidence)}
        for member in (group.members if group is not None else ())
    ]


def _evidence_json(evidence: model.Evidence) -> dict[str, Any]:
    return {name: value for name, value in to_builtins(evidence).items() if value is not None}


def group_value(row: Row, members: Iterable[Row]) -> model.GuestGroup:
    """The group in a row of `guest_group`, with the rows of its members."""
    return model.GuestGroup(
        seconds=row["seconds"],
        members=tuple(map(_member_value, members)),
        load=model.HostLoad(**_values(row, _LOAD)),
    )


def _member_value(row: Row) -> model.Member:
    stored = row["evidence"]
    counted = {
        who.value: model.IoCounters(**stored[who]) for who in model.Observer if who in stored
    }
    evidence = _evidence_value({name: stored.get(name) for name in _EVIDENCE}, counted)
    return model.Member(**_values(row, _MEMBER), evidence=evidence)


def power_cut_row(verdict: PowerCut, host_key: int) -> dict[str, Any]:
    """The row of a power cut's verdict; `host_key` is the key of its host."""
    bad = verdict.counterexample
    return {
        **_columns(verdict, _POWER_CUT),
        "host": host_key,
        "outcomes": dict(verdict.outcomes),
        "settings": dict(verdict.settings),
        "observed": dict(verdict.observed),
        "bad_case": bad.case if bad else None,
        "bad_outcome": bad.outcome if bad else None,
        "bad_detail": bad.detail if bad else None,
    }


def power_cut_value(row: Row, host: model.HostFacts) -> PowerCut:
    """The verdict in a row of `power_cut`."""
    bad = (
        None
        if row["bad_case"] is None
        else Counterexample(row["bad_case"], row["bad_outcome"], row["bad_detail"])
    )
    return PowerCut(
        **_values(row, _POWER_CUT),
        host=host,
        outcomes=row["outcomes"],
        settings=row["settings"],
        observed=row["observed"],
        counterexample=bad,
    )


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_PLAN: _Shape = {
    "cells": ("should be a list of texts", _are_texts),
    "measurements": _LIST,
    "left_out": (
        "should be an object of texts",
        lambda value: isinstance(value, dict) and _are_texts([*value.values()]),
    ),
    "baseline": _TEXT,
    "guest": _OBJECT,
    "qemu": _OBJECT,
    "devices": ("should be a list of texts", lambda value: value is None or _are_texts(value)),
    "directory": _TEXT_OR_NONE,
    "size_bytes": (
        "should be a whole number",
        lambda value: value is None or isinstance(value, int),
    ),
}


def plan_error(plan: Any) -> str | None:  # noqa: ANN401 - any JSON value
    """The fault of a plan, such as `measurements is missing`; None if it has none.

    Only the parts that answers read are checked. By hand, because every answer begins here, and
    pydantic takes a tenth of a second to load; `request_alike` checks the settings that it reads.
    """
    if _is_deep(plan):
        return f"it is nested deeper than {DEEPEST} levels"
    return next(_faults(plan), None)


def _faults(plan: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    """The faults of a plan, and then of its measurements."""
    found = list(_wrong_values("", plan, _PLAN, "measurements"))
    yield from found
    for place, measurement in enumerate(() if found else plan["measurements"]):
        yield from _wrong_values(f"measurements.{place}", measurement, _MEASURED, "name")


def _wrong_values(
    place: str,
    part: Any,  # noqa: ANN401 - any JSON value
    shape: _Shape,
    needed: str,
) -> Iterator[str]:
    """The keys that `part` lacks, or whose values vdisklab does not write."""
    wanted, fits = _OBJECT
    if not fits(part):
        yield f"{place or 'it'} {wanted}, not {shown(part)}"
        return
    before = f"{place}." if place else ""
    if needed not in part:
        yield f"{before}{needed} is missing"
    for key, (wanted, fits) in shape.items():
        if key in part and not fits(part[key]):
            yield f"{before}{key} {wanted}, not {shown(part[key])}"


def _is_deep(plan: object) -> bool:
    """True for a plan nested too deeply for a database or a reader."""
    level: list[object] = [plan]
    for _ in range(DEEPEST):
        inner: list[object] = []
        for value in level:
            if isinstance(value, Mapping):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        if not inner:
            return False
        level = inner
    return True
