"""The documents of answers from several hosts (`--hosts`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEntry:
    """One worker."""

    host: str
    address: str
    vdisklab: Annotated[str, "version"]
    silent_seconds: Annotated[float, "since the scheduler last heard of it"]
    measuring_since: Annotated[float | None, "seconds since 1970; null: no campaign is running"]
    line: Annotated[str, "the last line that the campaign printed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatusDocument:
    """`vdisklab fleet status`: the workers that are there."""

    format: Literal["vdisklab.fleet-status/1"] = "vdisklab.fleet-status/1"
    scheduler: str
    hosts: tuple[MemberEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCheck:
    """What `vdisklab fleet doctor` found on one host."""

    host: str
    versions: Annotated[str, "empty if they are this end's"]
    database: Annotated[str, "empty if the host can use it with its own password, else why not"]
    directory: Annotated[
        str | None, "empty if images can be built in the work directory; null: none was asked for"
    ] = None
    free_bytes: Annotated[int | None, "in the work directory"] = None
    certificate_until: str
    leftovers: Annotated[int | None, "things that killed runs left behind; null: could not look"]
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDoctorDocument:
    """`vdisklab fleet doctor`."""

    format: Literal["vdisklab.fleet-doctor/1"] = "vdisklab.fleet-doctor/1"
    scheduler: str
    hosts: tuple[MemberCheck, ...]
