"""All platforms: reads the guests of any, writes a path for each, changes a disk.

A platform's file is imported by the name in its row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from itertools import islice, product

from vdisklab.errors import PlanError, VdisklabError
from vdisklab.path.bus_options import IN_THE_GUEST
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.named_target import names_device
from vdisklab.path.platforms import PRINTED, Platform
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import BUS_OPTIONS, LayerKind
from vdisklab.platforms import (
    host_lines,
    host_mounts,
    initiators,
    nbd_servers,
    nfs_exports,
    no_guests,
    server_files,
    storage_pools,
    variable_values,
)
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import (
    HOST_DEVICES,
    Change,
    Configuration,
    Dialect,
    Form,
    Gap,
    NotChangeableError,
    Reader,
    lacks,
)
from vdisklab.platforms.guest_disks import (
    NOT_CONFIGURED,
    configured_path,
    require_configurable,
    require_expressible,
)
from vdisklab.platforms.guest_edge import read_apart
from vdisklab.platforms.nbd_servers import with_servers
from vdisklab.platforms.network import placed
from vdisklab.platforms.other_hypervisors import refuse_other_hypervisors
from vdisklab.platforms.present import present
from vdisklab.platforms.reading import DisklessGuest, GuestText, Tree
from vdisklab.platforms.request import DOMAIN_TYPES, WHOLE_DEVICE, ExportRequest
from vdisklab.platforms.shared_images import with_shared_images
from vdisklab.platforms.storage_pools import with_pools
from vdisklab.platforms.text_form import rewritten_texts
from vdisklab.platforms.where_set import place_to_change
from vdisklab.value import replace

_LONGEST = 4096  # PATH_MAX
_MOST_NAMED = 4
_QEMUS_HOST_DEVICE = (
    r"(?<!model=['\"])\b(?P<device>(?:vfio-(?:user-)?(?:pci|ccw|ap|platform)|usb-host|usb-redir)\b"
    r"[^\s\0'\"<]*)"
)
"""In the arguments of a QEMU, which a guest of any platform may have."""


_OF_KRBD = re.compile(r"/dev/rbd[0-9/-]")


@cache
def dialect_of(platform: Platform) -> Dialect:
    """The platform's way to say a disk."""
    dialect: Dialect = import_module(f"vdisklab.platforms.{platform.module}").DIALECT
    return dialect


def dialects() -> Mapping[Platform, Dialect]:
    """The platforms whose file is there, in the order of their rows."""
    return {platform: dialect_of(platform) for platform in present()}


def forms() -> Mapping[str, Form]:
    """All forms of configuration that can be written, by name."""
    return {form.name: form for dialect in dialects().values() for form in dialect.forms}


def form_named(name: str) -> Form:
    """The form of that name. Raises PlanError."""
    if name not in forms():
        raise PlanError(
            f"no platform has the form {name!r}", hint=f"possible: {', '.join(forms())}"
        )
    return forms()[name]


def platform_of(form: str) -> Platform:
    """The platform that has a form of that name."""
    return next(
        platform
        for platform, dialect in dialects().items()
        if form in {each.name for each in dialect.forms}
    )


def read_guests(
    texts: Sequence[GuestText],
    notes: list[str] | None = None,
    diskless: list[DisklessGuest] | None = None,
) -> tuple[ConfiguredDisk, ...]:
    """The hard disks of all guests in these texts.

    Claims, storages and pools may stand in other texts than the guests. A guest that cannot be read
    becomes a disk with a problem. Raises PlanError for a required text that no platform knows, and
    for one whose guest cannot be read if there is no other guest. `notes` gets the message of one
    that is not required, and of data holders that are left out; `diskless` gets the guests that
    have no disk.
    """
    named = texts
    said = [(text, _said_beside(text)) for text in texts]
    beside = [(text, what) for text, what in said if what is not None]
    guests = tuple(_in_platforms_words((text for text, what in said if what is None), notes))
    texts = (*guests, *(text for text, _ in beside))
    platforms = tuple(dialects().values())
    readers: dict[int, Reader] = {}
    disks: list[ConfiguredDisk] = []
    yaml: list[GuestText] = []
    left_out: dict[str, None] = {}
    refused: list[tuple[VdisklabError, tuple[ConfiguredDisk, ...]]] = []
    for text in guests:
        owner = _owner(text, platforms)
        try:
            if owner is None:
                _require_known(text, platforms)
                yaml.append(text)
                continue
        except PlanError as error:
            if text.required or notes is None:
                raise
            notes.append(f"{error}: skipped.")
            continue
        found = read_apart(partial(_read_text, owner, readers, texts, (), text))
        if isinstance(found.error, VdisklabError) and not text.required and notes is not None:
            notes.append(f"{found.error}: skipped.")
            disks += found.disks
            continue
        read = (*found.all(text.name, _platform_of(owner)), *_unread(text, _platform_of(owner)))
        if isinstance(found.error, VdisklabError):
            refused.append((found.error, read))
        else:
            disks += (
                replace(
                    _with_loss(disk, text),
                    origin=text.origin,
                    changed_in=text.changed_in or disk.changed_in,
                    changed_at=_place_of(disk, text) or disk.changed_at,
                    refused=text.refused or disk.refused,
                    may_differ=text.doubt or disk.may_differ,
                )
                for disk in read
            )
            left_out |= dict.fromkeys(_left_out(owner, text))
            if diskless is not None and not read:
                diskless += _without_disk(owner, text)
    for text, dialect in product(yaml, platforms):
        if any(map(dialect.recognises_document, text.documents)):
            left_out |= dict.fromkeys(_left_out(dialect, text))
            (diskless if diskless is not None else []).extend(_without_disk(dialect, text))
    disks += _disks_of_yaml(texts, yaml, platforms)
    if refused and not disks and len(refused) == 1:
        raise refused[0][0]
    disks += (disk for _, read in refused for disk in read)
    (diskless if diskless is not None else []).extend(what for _, what in beside)
    alone = (text for text, what in said if what is None)
    (notes if notes is not None else []).extend(
        note for text in alone for note in host_lines.notes_on(text)
    )
    if left_out and notes is not None:
        notes.append(f"Left out: {', '.join(left_out)}.")
    return tuple(map(_readable, with_shared_images(_with_host(disks, texts, named))))


def _with_host(
    disks: Iterable[ConfiguredDisk], texts: Sequence[GuestText], named: Sequence[GuestText]
) -> Iterable[ConfiguredDisk]:
    """The disks, each with what these texts say that it loses below QEMU."""
    below = with_servers(with_pools(disks, texts), texts, named)
    below = host_lines.with_told_caches(host_mounts.with_mounts(below, named), named)
    return host_lines.with_changes(below, named)


_WITHOUT_GUEST = (
    (variable_values.is_values_file, variable_values.said),
    (host_mounts.is_mounts_file, host_mounts.said),
    (initiators.is_initiator_file, initiators.said),
    (storage_pools.is_pool_file, storage_pools.said),
    (nfs_exports.is_exports_file, nfs_exports.said),
)
"""Texts that surely have no guest, and what they say."""


def _said_beside(text: GuestText) -> DisklessGuest | None:
    """What a text says that has no guest by its kind, but what their disks depend on: a server's
    file, a script that starts servers, a storage pool, values of variables, a container, or what
    cloud-init reads; None for another."""
    for recognises, says in _WITHOUT_GUEST:
        if recognises(text):
            return says(text)
    if server_files.is_server_file(text) and not (
        server_files.is_commands(text) and _has_guest(text)
    ):
        return server_files.said(text)
    if nbd_servers.starts_servers(text) and not _has_guest(text):
        return nbd_servers.said(text)
    beside = host_lines.said(text)
    return no_guests.said(text) if beside is None or _has_guest(text) else beside


def _with_loss(disk: ConfiguredDisk, text: GuestText) -> ConfiguredDisk:
    """The disk with what its text says that it loses below QEMU."""
    loss, instead = text.lost_at.get(disk.target, (None, ""))
    if loss is None or disk.lost_below is not None:
        return disk
    return replace(disk, lost_below=loss, below_instead=instead)


def _place_of(disk: ConfiguredDisk, text: GuestText) -> str:
    """Where a program's file sets the disk's cache mode; empty if that is not known."""
    found = (text.changed_at.get(key or "") for key in (disk.target, disk.source, ""))
    return next(filter(None, found), "")


def _read_text(
    owner: Dialect,
    readers: dict[int, Reader],
    texts: Sequence[GuestText],
    documents: Sequence[Tree],
    text: GuestText,
) -> Iterable[ConfiguredDisk]:
    """The disks of a text; `readers` has the readers that were made before. Raises PlanError."""
    reader = readers.get(id(owner)) or owner.reader(texts, documents)
    readers[id(owner)] = reader
    return reader(text)


def _owner(text: GuestText, platforms: Iterable[Dialect]) -> Dialect | None:
    """The platform whose words the text has; None if only the parsed YAML can tell."""
    if text.of is not None:
        return dialect_of(text.of)
    return next((dialect for dialect in platforms if dialect.recognises(text)), None)


def _without_disk(owner: Dialect, text: GuestText) -> Iterator[DisklessGuest]:
    """The guest of a text in which no disk was found, if it is known why."""
    found = text.diskless or owner.without_disk(text)
    if found is not None:
        yield found


def _unread(text: GuestText, platform: Platform) -> Iterator[ConfiguredDisk]:
    """A row for each disk of a form that is not in the platform's words."""
    for disk in text.unread:
        yield ConfiguredDisk(
            disk.guest or text.name, disk.target, None, None, problem=disk.why, platform=platform,
            guest=text.name, drops_flushes=disk.drops_flushes,
        )  # fmt: skip


def _platform_of(dialect: Dialect) -> Platform:
    return next(platform for platform, each in dialects().items() if each is dialect)


def _in_platforms_words(texts: Iterable[GuestText], notes: list[str] | None) -> Iterator[GuestText]:
    """The texts, those of a form in the words of the platform that it makes a guest of."""
    for text in texts:
        try:
            refuse_other_hypervisors(text)
            inside = tuple(rewritten_texts(text))
            if inside != (text,):
                inside = tuple(filter(_is_known, inside)) or (text,)
            if notes is not None:
                notes.extend(dict.fromkeys(each.note for each in inside if each.note))
            yield from inside
        except PlanError as error:
            if text.required or notes is None:
                raise
            notes.append(f"{error}: skipped.")


def _has_guest(text: GuestText) -> bool:
    """True for a text of a platform, or of a form that makes guests of one, also one that cannot be
    read; a unit of a server makes none."""
    try:
        inside = tuple(rewritten_texts(text))
    except PlanError:
        return True
    return any(map(_is_known, inside)) and not all(map(nbd_servers.only_servers, inside))


def _is_known(text: GuestText) -> bool:
    """True for a text of a platform: a paste may have others, too."""
    platforms = tuple(dialects().values())
    if _owner(text, platforms) is not None:
        return True
    with suppress(PlanError):
        _require_known(text, platforms)
        return True
    return False


def _left_out(dialect: Dialect, text: GuestText) -> Iterator[str]:
    """The parts of a guest that hold data but are no hard disks, with the names of its devices."""
    named: dict[str, dict[str, None]] = {}
    for what, pattern in (*dialect.left_out.items(), (HOST_DEVICES, _QEMUS_HOST_DEVICE)):
        for match in islice(re.finditer(pattern, text.text, re.MULTILINE), _MOST_NAMED + 1):
            name = match.groupdict().get("device")
            named.setdefault(what, {}).update({name[:100]: None} if name else {})
    for what, names in named.items():
        more = ["…"] if len(names) > _MOST_NAMED else []
        shown = "; ".join([*list(names)[:_MOST_NAMED], *more])
        yield f"{what} ({shown})" if names else what


def _require_known(text: GuestText, platforms: Sequence[Dialect]) -> None:
    """Raises PlanError for a text that is not YAML, or has a document of no platform."""
    if not any(
        dialect.recognises_document(document)
        for document in text.documents
        for dialect in platforms
    ):
        raise PlanError(
            f"{text.origin} holds no guest that vdisklab knows", hint=f"it reads {PRINTED}"
        )


def _disks_of_yaml(
    texts: Sequence[GuestText], yaml: Sequence[GuestText], platforms: Sequence[Dialect]
) -> Iterator[ConfiguredDisk]:
    documents = tuple(document for text in yaml for document in text.documents)
    readers: dict[int, Reader] = {}
    for dialect in platforms:
        for text in yaml:
            if any(map(dialect.recognises_document, text.documents)):
                read = partial(_read_text, dialect, readers, texts, documents, text)
                found = read_apart(read).all(text.name, _platform_of(dialect))
                yield from (replace(disk, origin=text.origin) for disk in found)


def _readable(disk: ConfiguredDisk) -> ConfiguredDisk:
    """The disk with its texts cut to what a table can hold: a hostile file has megabytes.

    A block device that the kernel maps from Ceph is known by its name (Ceph's 50-rbd.rules).
    """
    path = disk.path
    if path is not None and not path.layers and _OF_KRBD.match(disk.source or ""):
        disk = replace(disk, path=placed(path, LayerKind.KRBD))
    return replace(
        disk,
        domain=_cut(disk.domain),
        target=_cut(disk.target),
        source=disk.source and _cut(disk.source),
        problem=disk.problem and _cut(disk.problem.replace("␣", " ")),
        may_differ=disk.may_differ.replace("␣", " "),
        unseen=disk.unseen and _cut(disk.unseen),
        limits=tuple(map(_cut, disk.limits)),
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:100]}…"


def configure(request: ExportRequest, form: str) -> Configuration:
    """The configuration of a disk with a user's options, in a form of `forms`.

    A QEMU named in the path, and settings made inside the guest, become gaps: guests'
    configurations cannot express them. Raises PlanError for texts and sizes that the platform would
    refuse, and for paths that it cannot express.
    """
    chosen, platform = form_named(form), platform_of(form)
    _require_plain_texts(request)
    _require_disk(request, absolute=chosen.absolute)
    attachment, shares_directory = request.path.attachment, request.path.shares_directory
    schema = BUS_OPTIONS[attachment.bus]
    gaps = tuple(
        Gap(f"{option}={schema[option].format(value)}", instead)
        for option, instead in NOT_CONFIGURED.items()
        # The comments of a share say how the guest mounts it.
        if (value := attachment.option(option)) is not None
        and not (shares_directory and option in IN_THE_GUEST)
    )
    request = replace(request, path=configured_path(request.path))
    require_configurable(request.path, guest=request.guest)
    require_expressible(platform, request)
    directory = chosen.write_share if shares_directory else None
    configuration = (directory or chosen.write)(request)
    asked = tuple(_placeholder(request, configuration.text))
    return replace(
        configuration,
        gaps=(*gaps, *configuration.gaps),
        requirements=(*configuration.requirements, *asked),
    )


def _placeholder(request: ExportRequest, text: str) -> Iterator[str]:
    """What stands in the text for a device or storage that nobody named."""
    if request.source is not None or request.storage is not None:
        return
    target, place = request.path.target, request.place("")
    if target is None and WHOLE_DEVICE in text:
        yield f"{WHOLE_DEVICE} stands for the whole device: name it with --source"
    elif target is not None and target.example in place and place in text:
        yield f"{place} stands for your storage: name it with --target NAME=PLACE"


def _require_plain_texts(request: ExportRequest) -> None:
    """Refuses control characters, which XML and line-based files cannot hold."""
    for text in (request.source or "", request.name):
        if not text.isprintable():
            raise PlanError(
                f"{text!r} has control characters, which no configuration may contain",
                hint="rename it",
            )
    if not request.name:
        raise PlanError("the guest needs a name", hint="--name web1")


def _require_disk(request: ExportRequest, *, absolute: bool) -> None:
    source, url = request.source, request.url
    if source == "" or (absolute and url is None and not (source or "/").startswith("/")):
        raise PlanError(
            f"{source!r} is not a source of a disk",
            hint="give an absolute path: --source /srv/images/web1.qcow2",
        )
    if request.size <= 0:
        raise PlanError("a disk cannot have size 0", hint="--size 10G")
    if "/" in request.name:
        raise PlanError(f"{request.name!r} cannot be the name of a guest", hint="--name web1")
    if request.domain_type not in DOMAIN_TYPES:
        raise PlanError(f"unknown domain type {request.domain_type!r}", hint="write kvm or qemu")


def change_of(disk: ConfiguredDisk, wanted: DiskPath) -> Change:
    """The change of a disk to the settings of a path: cache mode, aio, I/O thread.

    They leave the image and the guest's view of the bus as they are; everything else needs a
    conversion, or a driver in the guest. Raises NotChangeableError if the disk's platform has
    no such setting, PlanError if no platform has.
    """
    now = disk.path or disk.assumed
    if now is None:
        raise NotChangeableError("the disk has no path", hint="see why with `vdisklab audit`")
    if disk.past is not None:
        raise NotChangeableError(
            f"it is {disk.past}, not the guest of today", hint="name what `virsh dumpxml` prints"
        )
    if disk.is_thrown_away:
        # QEMU's arguments in its place would have no overlay: they write into the image itself.
        raise NotChangeableError(
            "what it writes is thrown away on purpose when its guest stops",
            hint="remove snapshot or <transient/> first, if its data matter",
        )
    is_mode = wanted.cache.spelled_out is not now.cache.spelled_out
    if disk.changed_in:
        raise NotChangeableError(
            f"{disk.changed_in} sets it, and would undo the change",
            hint=f"change {(is_mode and place_to_change(disk.changed_at)) or 'it there'}",
        )
    require_configurable(wanted, there=True)
    if disk.shareable and not wanted.cache.direct:
        raise NotChangeableError(
            f"guests share the disk, and cache mode {wanted.cache} keeps data in one host's memory",
            hint="choose none or directsync",
        )
    dialect = dialect_of(disk.platform)
    if wanted.cache.spelled_out not in dialect.cache_modes:
        raise lacks(disk.platform, f"cache mode {wanted.cache}")
    if wanted.attachment.bus not in dialect.buses:
        raise lacks(disk.platform, f"bus {wanted.attachment.bus}")
    change = dialect.change(disk, now, wanted)
    return replace(change, node=disk.node or None) if dialect.changes_on_node else change


def can_change(disk: ConfiguredDisk, wanted: DiskPath) -> bool:
    """True if one line gives the disk the settings of a path."""
    try:
        change_of(disk, wanted)
    except PlanError:
        return False
    return True


def cannot_have(disk: ConfiguredDisk, path: DiskPath) -> Impossible | None:
    """Why a disk's platform cannot give the guest this path on its storage; None if it can."""
    if disk.path is not None and disk.path.target is not None and path.target != disk.path.target:
        return Impossible(f"is not on the disk's own {disk.path.layers[0].kind}", "move the disk")
    in_file = path.image is not None and path.image.driver == "raw"
    holds_files = path.layers[-1].kind.facts.holds_files if path.layers else in_file
    if holds_files and disk.source is not None and names_device(disk.source):
        return Impossible(f"does not fit the block device {disk.source}", "leave out a need")
    gaps, present = _gaps(disk.platform, path), disk.path and _gaps(disk.platform, disk.path)
    if gaps is None or gaps - (present or frozenset()):
        return Impossible(f"is no path of {disk.platform.full_name}", "leave out a need")
    return None


def can_express(platform: Platform, path: DiskPath) -> bool:
    """True if a form of the platform can be written for this path, or the platform has no form."""
    return not dialect_of(platform).forms or _gaps(platform, path) is not None


@cache
def _gaps(platform: Platform, path: DiskPath) -> frozenset[str] | None:
    """The parts of a path that the platform cannot express; None if it cannot express the path at
    all.
    """
    for form in dialect_of(platform).forms:
        with suppress(PlanError):
            return frozenset(gap.option for gap in configure(ExportRequest(path), form.name).gaps)
    return None
