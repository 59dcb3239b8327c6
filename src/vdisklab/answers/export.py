"""Exports a disk path: its configuration, and the effect of a power cut on the guest's data."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Annotated

from vdisklab.answers.export_command import DiskPlace, measured_place
from vdisklab.answers.here import verdicts_here
from vdisklab.answers.loading import open_results
from vdisklab.documents import Answer
from vdisklab.errors import DatabaseError, NoDatabaseError, PlanError
from vdisklab.host.command import Host, LocalHost
from vdisklab.host.facts import machine_facts
from vdisklab.host.image_file import format_of, seen_file
from vdisklab.path.bus_options import without_qemu
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import DiskPath, parse_path
from vdisklab.path.durability import CrashVerdicts, Durability, HostDisk, durability
from vdisklab.path.named_target import NamedTarget, parse_target, with_targets
from vdisklab.path.needs import Need, nearest_hint, unmet
from vdisklab.path.segments import ImageFormat
from vdisklab.plan.accelerator import Accelerator
from vdisklab.platforms.dialect import Gap
from vdisklab.platforms.guest_disks import require_configurable
from vdisklab.platforms.registry import configure, form_named, forms
from vdisklab.platforms.request import DOMAIN_TYPES, ExportRequest
from vdisklab.results.model import Campaign
from vdisklab.storage.given import with_kinds
from vdisklab.storage.image_commands import format_settings
from vdisklab.value import HIDDEN, Value, replace

_COMMENTS = ("#", "<!--", "<?")


class ExportAnswer(Answer):
    """`vdisklab export`: a path as the configuration of a platform."""

    FORMAT = "vdisklab.export/1"

    path: Annotated[DiskPath, "without a QEMU name"]
    form: Annotated[str, "the value of `--to`"]
    text: Annotated[str, "the configuration; its comments name gaps and requirements, too"]
    gaps: Annotated[tuple[Gap, ...], "what the platform cannot express"]
    requirements: Annotated[tuple[str, ...], "what must be set elsewhere for it to work"]
    durability: Durability
    emulated_in: Annotated[str | None, HIDDEN] = None
    """The newest campaign that measured the path, if emulation ran its guests and KVM runs this."""


def on_target(
    host: Host, text: str, targets: Sequence[NamedTarget], secrets: Sequence[tuple[str, Path]] = ()
) -> tuple[DiskPath, DiskPlace]:
    """The path, which may begin with the name of a target, and where its disk is.

    Raises PlanError for a wrong path, or targets of which the path uses none.
    """
    first = text.partition("/")[0]
    used = [*with_kinds(host, [target for target in targets if target.name == first])]
    path = parse_path(with_targets(text, used))
    name = path.layers[0].option("at") if path.layers else None
    target = next((target for target in (*used, *targets) if target.name == name), None)
    if targets and target is None:
        raise PlanError(
            f"{text} is on none of these targets: {', '.join(target.name for target in targets)}",
            hint=f"begin the path with the name of one: {targets[0].name}/raw/none",
        )
    storage = None if target is None else target.place
    return path, DiskPlace(storage=storage, secret=dict(secrets).get(str(name)))


def stored_targets(db: str | None, text: str) -> tuple[NamedTarget, ...]:
    """The target by whose name a path begins, as the newest campaign on it stored it; empty without
    one.
    """
    first = text.partition("/")[0]
    try:
        with open_results(db) as results:
            for campaign in results.campaigns():
                for target in map(parse_target, campaign.plan.get("target") or ()):
                    if target.name == first:
                        return (target,)
    except DatabaseError:
        pass
    return ()


class ConfiguredFor(Value):
    """A path as a platform's configuration, without comments; `notes` are those of `export`."""

    title: Annotated[str, "the platform, and what kind of configuration it is"]
    text: str
    notes: Annotated[
        tuple[str, ...], "what it cannot express, and what must be set elsewhere for it to work"
    ] = ()
    settings: Annotated[str, HIDDEN] = ""
    """What a disk that a guest already has needs of it; empty where the form has no such part."""


def configurations_of(cell: MeasuredCell, campaign: Campaign) -> Iterator[ConfiguredFor]:
    """A measured path for each platform, the best known first; platforms that cannot express it are
    left out.
    """
    path = cell.path
    if path is None or path.on_host:
        return
    place = measured_place(str(path), campaign)
    titled = [form for form in forms().values() if form.title]
    for form in sorted(titled, key=lambda form: not form.leads):
        with suppress(PlanError):
            request = ExportRequest(path, place.source, storage=place.storage, pasted=True)
            written = configure(request, form.name)
            lines = written.text.splitlines(keepends=True)
            plain = "".join(line for line in lines if not line.startswith(_COMMENTS))
            notes = (*map(str, written.gaps), *written.requirements)
            yield ConfiguredFor(form.title, plain.strip("\n"), notes, written.settings)


def answer_export(
    request: ExportRequest, form: str, needs: tuple[Need, ...], disk: HostDisk, db: str | None
) -> ExportAnswer:
    """The configuration. Raises PlanError if the path lacks a need; the hint names one that meets
    all.

    The durability is that of this machine's stored verdicts; without a readable database only needs
    that depend on power cuts are refused, and the rules tell the rest.
    """
    path = without_qemu(request.path)
    try:
        verdicts = _verdicts_here(db, disk)  # also without a need: a stored loss is said
    except DatabaseError:
        if any(need.goes_by_power_cuts for need in needs):
            raise
        verdicts = CrashVerdicts(disk=disk)
    require_configurable(path)
    _require_needs(path, needs, verdicts)
    source = None if path.opened_by_qemu else request.source
    exists = False
    if source and (Path(source).is_absolute() or form_named(form).relative):
        exists = _holds_an_image(path, source)
    written = configure(replace(request, exists=exists), form)
    return ExportAnswer(
        path,
        form,
        written.text,
        written.gaps,
        written.requirements,
        durability(path, verdicts),
        _emulated_in(db, path) if request.domain_type == DOMAIN_TYPES[0] else None,
    )


def _emulated_in(db: str | None, path: DiskPath) -> str | None:
    """The newest campaign that measured a path, if only emulation ran its guests there."""
    with suppress(DatabaseError), open_results(db) as results:
        for campaign in results.campaigns(with_runs=True):
            paths = (cell.path for cell in campaign.cells)
            if any(other is not None and _is_same(other, path) for other in paths):
                under = {each.accelerator for each in results.ran_under(campaign.id)}
                return campaign.id if under == {Accelerator.TCG} else None
    return None


def _is_same(measured: DiskPath, path: DiskPath) -> bool:
    """True for the path itself, whichever installed QEMU ran it."""
    return without_qemu(measured).spelled_out == path.spelled_out


def _require_needs(path: DiskPath, needs: tuple[Need, ...], verdicts: CrashVerdicts) -> None:
    lacks = unmet(path, needs, verdicts)
    if not lacks:
        return
    need, reason = next(iter(lacks.items()))
    raise PlanError(
        f"{path} does not meet --need {need}: {reason}", hint=nearest_hint(path, needs, verdicts)
    )


def _holds_an_image(path: DiskPath, source: str) -> bool:
    """True for a source that is a file with an image of the path's format.

    Raises PlanError for one that holds an image of another format: QEMU refuses it, or the guest
    gets its header as the first sectors of the disk, and writes over it.

    A device whose first bytes are of no format may still be given one.
    """
    file, wanted = Path(source), ImageFormat.RAW if path.image is None else path.image.format
    with seen_file(file) as seen:
        found = format_of(seen)
        is_file = seen is not None and seen.is_regular
        is_new = seen is None or not seen.is_regular or seen.status.st_size == 0
    if found in (None, wanted) or (found is ImageFormat.RAW and is_new):
        return is_file and not is_new
    hint = f"name a path with {found}, or another --source"
    if is_file and (path.image is None or not (path.image.encrypted or path.image.has_data_file)):
        new = _unused(file, wanted)
        options = () if path.image is None else format_settings(path.image)
        # A file without a known header may be of a format that only qemu-img knows.
        source_format = () if found is ImageFormat.RAW else ("-f", found)
        convert = shlex.join((
            "qemu-img", "convert", "-p", *source_format, "-O", wanted,
            *(("-o", ",".join(options)) if options else ()), source, str(new),
        ))  # fmt: skip
        hint = (
            f"shut its guest down, convert the image (`{convert}`), and write "
            f"--source {shlex.quote(str(new))}"
        )
    raise PlanError(f"{source} is a {found} image, and {path} needs a {wanted} one", hint=hint)


def _unused(file: Path, form: ImageFormat) -> Path:
    """A name beside the file that no file has: qemu-img writes over one without a question."""
    numbered = (f"{file.stem}-{number}.{form}" for number in count(2))
    names = map(file.with_name, chain((f"{file.stem}.{form}",), numbered))
    return next(name for name in names if not os.path.lexists(name))


def _verdicts_here(db: str | None, disk: HostDisk) -> CrashVerdicts:
    """The verdicts stored for this machine; none if there is no default database.

    Raises DatabaseError for a named one that does not exist, and for any that cannot be read.
    """
    host = LocalHost()
    try:
        with open_results(db) as results:
            return verdicts_here(results, host, disk)
    except NoDatabaseError:
        if db is not None:
            raise
        return CrashVerdicts(disk=disk, zfs_fuse=machine_facts(host).has_zfs_fuse)
