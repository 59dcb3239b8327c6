"""Files that a program's measurements copy, made once on the host and kept in the cache:

    CACHE/data/FINGERPRINT/data.tar      the files, for the host and as a guest's read-only disk
                           manifest.json

They are reused until the program's version or the script that makes them changes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from vdisklab.campaign.schedule import planned_subject
from vdisklab.errors import HostError
from vdisklab.guest.image.cache import building, keep, kept_or_built
from vdisklab.host.command import Host, install_hint
from vdisklab.host.mounts import free_bytes
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.progress import Progress, Step
from vdisklab.storage.site import Site
from vdisklab.units import format_bytes
from vdisklab.value import Value
from vdisklab.workload.program import PreparedFiles, Timing
from vdisklab.workload.registry import workload_for

_MANIFEST = "manifest.json"
_MAKE_SECONDS = 4 * 3600.0
_KEPT_SETS = 3
_KEPT_SECONDS = 24 * 3600.0


class PreparedData(Value):
    """Files in the cache, as the archive `disk`."""

    disk: Path
    fingerprint: str

    @property
    def directory(self) -> Path:
        """The archive, for programs on the host."""
        return self.disk

    def __str__(self) -> str:
        return self.fingerprint


def files_of(plan: CampaignPlan) -> dict[str, PreparedFiles]:
    """The files that the plan's measurements copy, by name."""
    timing = Timing(plan.runtime, plan.ramp, plan.scale)
    found = (
        workload_for(measurement).files(measurement, planned_subject(plan, measurement), timing)
        for measurement in plan.profile.measurements
    )
    return {files.name: files for files in found if files is not None}


def prepared_data(
    site: Site, cache: Path, plan: CampaignPlan, progress: Progress
) -> dict[str, PreparedData]:
    """The files by name, made unless they are in the cache.

    A guest of the user's own makes them itself where this host lacks the program. Raises HostError
    if it is lacking for other cells, or if making them fails.
    """
    require_programs_of_data(site.host, plan)
    data = {}
    for name, files in files_of(plan).items():
        if _lacking(site.host, files):
            continue
        progress(Step(f"preparing {name}: {format_bytes(files.size)} of data"))
        data[name] = kept_or_made(site, cache / "data", files)
    return data


def require_programs_of_data(host: Host, plan: CampaignPlan) -> None:
    """Raises HostError if this host lacks a program that makes the files, and no guest of the
    user's own makes them."""
    on_host = any(cell.path.on_host for cell in plan.cells)
    if plan.guest.user is not None and not on_host:
        return
    for files in files_of(plan).values():
        lacking = _lacking(host, files)
        if lacking:
            raise HostError(
                f"the data to measure cannot be made: {lacking[0]} is not installed",
                hint=install_hint(lacking),
            )


def _lacking(host: Host, files: PreparedFiles) -> list[str]:
    return [program for program in files.programs if host.which(program) is None]


def planned_data(host: Host, cache: Path, plan: CampaignPlan) -> Iterator[tuple[str, PreparedData]]:
    """The files in the cache; without them their places, with a placeholder."""
    for name, files in files_of(plan).items():
        directory = cache / "data"
        if not _lacking(host, files):
            kept = _kept(directory, _request(host, files))
            yield name, kept or PreparedData(directory / "FINGERPRINT" / "data.tar", "FINGERPRINT")


def _request(host: Host, files: PreparedFiles) -> Mapping[str, object]:
    """All that the files depend on."""
    version = host.run(files.programs[0], "--version", allowed=range(256), timeout=20).stdout
    script = hashlib.sha256(files.script.encode()).hexdigest()
    return {"name": files.name, "arguments": [*files.arguments], "script": script,
            "version": version.strip()}  # fmt: skip


def _kept(directory: Path, request: Mapping[str, object]) -> PreparedData | None:
    place = directory / _fingerprint(request)
    return PreparedData(place / "data.tar", place.name) if (place / _MANIFEST).exists() else None


def _fingerprint(request: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]


def kept_or_made(site: Site, directory: Path, files: PreparedFiles) -> PreparedData:
    """One set of files below `directory`. Raises HostError if it cannot be made."""
    request = _request(site.host, files)
    found = kept_or_built(
        directory,
        lambda: _kept(directory, request),
        lambda: _make(site, directory, files, request),
        f"the data of {files.name}",
    )
    (found.disk.parent / _MANIFEST).touch()
    return found


def _make(
    site: Site, directory: Path, files: PreparedFiles, request: Mapping[str, object]
) -> PreparedData:
    room, needed = free_bytes(directory), 2 * files.size
    if room < needed:
        raise HostError(
            f"the data of {files.name} needs {format_bytes(needed)} in {directory}, which has "
            f"{format_bytes(room)} free",
            hint="free some space there, choose a smaller --size, or set VDISKLAB_STATE to a "
            "directory with more room",
        )
    with building(directory) as work:
        for name, content in files.given.items():
            (work / name).write_bytes(content())
        make = ("sh", "-s", "--", "make", str(work), *files.arguments)
        site.run_marked(*make, timeout=_MAKE_SECONDS, stdin=files.script)
        archive = work / "data.tar"
        site.run_marked(
            "tar", "--numeric-owner", "-cf", archive, "-C", work, "data", timeout=_MAKE_SECONDS
        )
        shutil.rmtree(work / "data")
        for name in files.given:
            (work / name).unlink(missing_ok=True)
        (work / _MANIFEST).write_text(json.dumps(request, indent=1))
        final = keep(work, directory / _fingerprint(request))
    _prune(directory)
    return PreparedData(final / "data.tar", final.name)


def _prune(directory: Path) -> None:
    """Removes old sets except those used within a day: this campaign, or another process's, boots
    more guests with them."""
    manifests = list(directory.glob(f"[!.]*/{_MANIFEST}"))
    manifests.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for manifest in manifests[_KEPT_SETS:]:
        if time.time() - manifest.stat().st_mtime > _KEPT_SECONDS:
            shutil.rmtree(manifest.parent, ignore_errors=True)
