"""`fleet status` and `fleet doctor`: the workers that are there, and what they lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from vdisklab.documents import Answer
from vdisklab.value import Value


class WorkerStatus(Value):
    """One worker."""

    host: str
    address: str
    vdisklab: Annotated[str, "version"]
    silent_seconds: Annotated[float, "since the scheduler last heard of it"]
    measuring_since: Annotated[float | None, "seconds since 1970; null: no campaign is running"]
    line: Annotated[str, "the last line that the campaign printed"]


class FleetStatusAnswer(Answer):
    """`vdisklab fleet status`: the workers that are there."""

    FORMAT = "vdisklab.fleet-status/2"

    scheduler: str
    hosts: tuple[WorkerStatus, ...]


class WorkerCheck(Value, kw_only=True):
    """The findings of `vdisklab fleet doctor` on one host."""

    host: str
    versions: Annotated[str, "empty if they are this end's"]
    database: Annotated[str, "empty if the host can use it with its own password, else why not"]
    directory: Annotated[
        str | None, "empty if images can be built in the work directory; null: none was asked for"
    ] = None
    free_bytes: Annotated[int | None, "in the work directory"] = None
    certificate_until: str
    leftovers: Annotated[
        int | None, "number of things that killed runs left behind; null if nobody could look"
    ]
    facts: Mapping[str, str]

    @property
    def is_ready(self) -> bool:
        """True if a campaign can begin on this host."""
        return not (self.versions or self.database or self.directory or self.leftovers)


class FleetDoctorAnswer(Answer):
    """`vdisklab fleet doctor`: what each worker lacks for a campaign."""

    FORMAT = "vdisklab.fleet-doctor/2"

    scheduler: str
    hosts: tuple[WorkerCheck, ...]
