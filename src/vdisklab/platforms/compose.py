"""Compose files of the images that run QEMU in a container: qemus/qemu, dockur/windows.

Their variables and defaults are those of src/disk.sh of qemus/qemu: DISK_CACHE none, DISK_IO native
(threads with a cache mode that needs it), DISK_TYPE scsi, DISK_FMT raw, DISK_DISCARD unmap, each
disk with an I/O thread and detect-zeroes=on. dockur/windows, dockur/macos and vdsm/virtual-dsm are
built on that image (their Dockerfiles); macos has blk (its docs/environment.md).

Compose puts values of the environment in place of `$NAME` and `${NAME:-default}`, and those of
`.env` beside the file (docs.docker.com/reference/compose-file/interpolation); `env_file:` gives a
service variables, which `environment:` goes before. A variable without a value in these files has
its default here, which a note says; one without a default stays as written.

A service of another image is a guest if its own command starts QEMU (`entrypoint`, `command`).
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Any

from vdisklab.path.architecture import AARCH64, X86_64, Architecture
from vdisklab.path.platforms import Platform
from vdisklab.platforms.reading import (
    GuestText,
    UnreadDisk,
    is_deep,
    is_variable,
    refused_word,
    tree,
    word,
)
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.where_set import only_line, set_in, unset
from vdisklab.units import named
from vdisklab.value import Value, field

_IMAGE = re.compile(
    r"(?:^|/)(?:(?:qemux?|qemus|dockurr?)/(?P<name>qemu|windows|macos)(?P<kind>-arm)?"
    r"|(?:vdsm|kroese)/virtual-dsm)"
)
_SCSI = "virtio-scsi-pci,id={0}b,iothread=io2 -device scsi-hd,drive={0},bus={0}b.0"
_BLK = "virtio-blk-pci,drive={0},iothread=io2"
_AHCI = "ich9-ahci,id={0}a -device ide-hd,drive={0},bus={0}a.0"
_DEVICES = {
    "scsi": _SCSI, "virtio-scsi": _SCSI, "blk": _BLK, "virtio-blk": _BLK, "ide": _AHCI,
    "sata": _AHCI, "nvme": "nvme,drive={0},serial={0}", "usb": "usb-storage,drive={0}",
    "auto": "ide-hd,drive={0}",
}  # fmt: skip
_NOT_KNOWN = "DISK_TYPE-of-the-environment,drive={0}"
_ACCEPTED = {
    "DISK_TYPE": (*(kind for kind in _DEVICES if not kind.startswith("virtio")),),
    "DISK_FMT": ("raw", "qcow2"),
}
"""The words with which the container starts (src/disk.sh); those with `virtio-` are in newer ones
only."""


_EXPRESSION = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<plain>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?:(?P<rule>:?[-?+])(?P<word>(?:[^{}]|\$\{[^{}]*\})*))?\})"
)
_DEEPEST = 4
_MOST_LINES, _MOST_FILES, _MOST_NAMED = 2000, 20, 3
_NAME = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.*)")
_QUOTED = re.compile(r"(?P<mark>['\"])(?P<value>.*?)(?P=mark)")
_DOT_ENV = ".env"
_IMAGE_ENDINGS = (".img", ".raw", ".qcow2")
"""Of an image that is mounted in the place of a disk."""
_CACHE, _ARGUMENTS = "DISK_CACHE", "ARGUMENTS"
_DIRECT = ("none", "directsync")
_INSIDE = re.compile(r"(?:/dev)?/disk[1-6]?")
_DEVICE = re.compile(
    r"/dev/(?:sd|vd|xvd|hd|nvme|mapper/|dm-|disk/|md|loop|zd|zvol/|rbd|nbd|mmcblk|ram|zram)"
)
"""Names of the host's block devices (Documentation/admin-guide/devices.txt)."""
_COMMAND = re.compile(r"^[ \t]+['\"]?(?:command|entrypoint)['\"]?:", re.MULTILINE)
_QEMU = re.compile(r"\bqemu-(?:system-[a-z0-9_]+|kvm)\b")
_SHELLS = ("sh", "bash", "ash", "dash")
_FILE = re.compile(r"\bfile(?:name)?=(/[^,\s]+)")
_IMAGE_FILE = re.compile(r"\.(?:img|raw|qcow2|vmdk|vdi|vhdx?)$", re.IGNORECASE)


def _recognises(text: GuestText) -> bool:
    if "services:" not in text.text:
        return False
    given = _dotenv(text.files.get(_DOT_ENV, ""), {})
    return (_COMMAND.search(text.text) is not None and _QEMU.search(text.text) is not None) or any(
        _IMAGE.search(_interpolated(found, _Values(given), 0))
        for found in re.findall(r"\bimage:\s*['\"]?([^\s'\"]{1,200})", text.text)
    )


def _names(text: GuestText) -> Iterator[str]:
    """`.env`, which compose reads beside the file, and the files that the services name."""
    if "services:" not in text.text:
        return
    yield _DOT_ENV
    for document in text.documents:
        for service in tree(document, "services").values():
            yield from (name for name, _ in _env_files(service))


def _env_files(service: object) -> Iterator[tuple[str, bool]]:
    """The names under `env_file:`, each with False if it may be missing."""
    listed = service.get("env_file") if isinstance(service, dict) else None
    for entry in islice(listed if isinstance(listed, list) else [listed], _MOST_FILES):
        if isinstance(entry, str):
            yield entry, True
        elif isinstance(entry, dict) and (name := word(entry, "path")) is not None:
            yield name, entry.get("required") is not False


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    given = _dotenv(text.files.get(_DOT_ENV, ""), {})
    for document in text.documents:
        for name, written in tree(document, "services").items():
            values = _Values(given)
            service = _filled(written, values, text) if isinstance(written, dict) else {}
            match = _IMAGE.search(str(service.get("image", "")))
            if match is None:
                yield from _of_command(text, str(name), service, _missing(written, text))
            else:
                row = AARCH64 if match["kind"] else X86_64
                argv = _command(str(name), service, match["name"] or "", row)
                refused = _refused(_variables(service.get("environment")))
                missing = _missing(written, text)
                yield GuestText(
                    "\0".join(argv), f"{text.origin}/{name}", refused=refused, of=Platform.QEMU,
                    unread=tuple(_not_read(str(name), service)),
                    note=_note(text.origin, values, missing, _unmounted(str(name), service)),
                    doubt=_doubt(missing), changed_at=_places_of(text, str(name), service),
                    lost_at=dict(_in_memory(service, _tmpfs_volumes(document))),
                )  # fmt: skip


def _of_command(
    text: GuestText, name: str, service: Mapping[str, Any], missing: Sequence[str]
) -> Iterator[GuestText]:
    """The guest of a service whose own command starts QEMU, with its files as the host has them."""
    argv = [*_words(service.get("entrypoint")), *_words(service.get("command"))]
    if len(argv) > 2 and PurePath(argv[0]).name in _SHELLS and argv[1].endswith("c"):
        argv = _words(argv[2])
    if not any(_QEMU.fullmatch(PurePath(each).name) for each in argv):
        return
    mounts = [_places(volume) for volume in _volumes(service)]
    on_host = {posixpath.normpath(inside): place for place, inside in mounts if place[:1] == "/"}
    unseen = [
        file
        for file in _FILE.findall(" ".join(argv))
        if not any(file.startswith(f"{inside}/") for inside in on_host) and not _DEVICE.match(file)
    ]
    deepest_first = sorted(on_host, key=len, reverse=True)
    if deepest_first:
        mounted = "|".join(map(re.escape, deepest_first))
        below = re.compile(rf"(?<![\w./-])(?:{mounted})(?=[/,]|$)")
        argv = [below.sub(lambda match: on_host[match[0]], each) for each in argv]
    line = _line_of(text, name, "command")
    where = f"`cache=` of {set_in(text, 'command', line, f'service {name}')}"
    yield GuestText(
        "\0".join(argv), f"{text.origin}/{name}", of=Platform.QEMU, changed_at={"": where},
        doubt=_doubt(missing) or _unseen(unseen),
    )  # fmt: skip


def _unseen(files: Sequence[str]) -> str:
    """Why disks in these files are in doubt; empty without one."""
    if not files:
        return ""
    are = "is" if len(files) == 1 else "are"
    first = [*files[:_MOST_NAMED], *(["others"] if len(files) > _MOST_NAMED else [])]
    return (
        f"{named(first)} {are} in the container, where nothing of the host is mounted that was read"
    )


def _words(written: object) -> list[str]:
    """The words of a command, as a list or as a shell would split it."""
    if isinstance(written, str):
        try:
            return shlex.split(written)
        except ValueError:
            return written.split()
    return [str(each) for each in written] if isinstance(written, list) else []


def _places_of(text: GuestText, name: str, service: Mapping[str, Any]) -> dict[str, str]:
    """Where the cache modes of a service's disks are set: those of the container in one variable,
    that of a -drive of ARGUMENTS in its own words."""
    variable = _place(text, name, service)
    of_container = {f"data{number}": variable for number in range(1, 7)}
    if not _variables(service.get("environment")).get(_ARGUMENTS):
        return {"": variable}
    line = _line_of(text, name, _ARGUMENTS)
    return {**of_container, "": f"`cache=` of {set_in(text, _ARGUMENTS, line, f'service {name}')}"}


def _of_service(text: GuestText, service: str) -> tuple[int, str]:
    """The number of lines before those of a service, and these; none if they are not found."""
    lines = text.text.splitlines()
    head = re.compile(rf"([ \t]+)['\"]?{re.escape(service)}['\"]?:")
    start = next((number for number, line in enumerate(lines) if head.match(line)), None)
    inside: list[str] = []
    if start is not None and (match := head.match(lines[start])) is not None:
        ends = re.compile(rf"[ \t]{{0,{len(match[1])}}}[^\s#]")
        for each in lines[start + 1 :]:
            if ends.match(each):
                break
            inside.append(each)
    return (start or 0) + 1, "\n".join(inside)


def _line_of(text: GuestText, service: str, name: str) -> int | None:
    before, inside = _of_service(text, service)
    line = only_line(inside, rf"\b{name}\b")
    return None if line is None else line + before


def _place(text: GuestText, name: str, service: Mapping[str, Any]) -> str:
    """Where a service's cache mode is set: in the compose file, or in a file of variables that it
    names; without either it is the container's, and can be set in the service."""
    _, inside = _of_service(text, name)
    line = _line_of(text, name, _CACHE)
    if line is None and _CACHE not in inside:
        for file in reversed([each for each, _ in _env_files(service)]):  # the last one wins
            content = text.files.get(file, "")
            if (found := only_line(content, rf"(?m)^\s*(?:export\s+)?{_CACHE}\s*=")) is not None:
                return f"`{_CACHE}` in line {found} of {file}"
    place = set_in(text, _CACHE, line, f"service {name}")
    return place if _CACHE in _variables(service.get("environment")) else unset(place)


def _tmpfs_volumes(document: object) -> frozenset[str]:
    """The names of the volumes that are tmpfs (the local driver's option `type`)."""
    named = tree(document, "volumes")
    return frozenset(
        str(name)
        for name, volume in named.items()
        if tree(volume, "driver_opts").get("type") in ("tmpfs", "ramfs")
    )


def _volumes(service: Mapping[str, Any]) -> Sequence[object]:
    listed = service.get("volumes")
    return listed if isinstance(listed, list) else ()


def _temporary(service: Mapping[str, Any]) -> set[str]:
    """The directories inside the container at which `tmpfs:` mounts memory."""
    entries = service.get("tmpfs")
    return {
        posixpath.normpath(str(entry).partition(":")[0])
        for entry in (entries if isinstance(entries, list) else [entries])
        if entry
    }


def _in_memory(
    service: Mapping[str, Any], volumes: frozenset[str]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """The names of the container's disks whose directory is a tmpfs, each with why it loses all,
    and the way out: `tmpfs:`, a volume with `type: tmpfs`, one of these `volumes`."""
    inside = _temporary(service)
    for volume in _volumes(service):
        place, target = _places(volume)
        if place in volumes or (isinstance(volume, dict) and volume.get("type") == "tmpfs"):
            inside.add(posixpath.normpath(target))
    for number, (directory, _) in enumerate(_disks_in(service), 1):
        if directory in inside:
            instead = f"Mount a directory of a disk at {directory} instead"
            yield f"data{number}", (f"{directory} is memory (tmpfs)", instead)


def _unmounted(name: str, service: Mapping[str, Any]) -> str:
    """A sentence about disks in a directory where nothing is mounted; empty without one. Of
    /storage the image makes a volume without a name (its Dockerfile), which a new container does
    not get; the others are in the container's own layer."""
    mounted = {posixpath.normpath(_places(volume)[1]) for volume in _volumes(service)}
    mounted |= _temporary(service)
    bare = [place for place, is_made in _disks_in(service) if is_made and place not in mounted]
    if not bare:
        return ""
    return (
        f"Service {name} mounts nothing at {named(bare)}: its disk goes with the container, so "
        "mount a directory there to keep it"
    )


class _Values(Value):
    """The values that compose finds for names: those `given`; `assumed` gets the defaults used."""

    given: Mapping[str, str]
    assumed: dict[str, str] = field(default_factory=dict)


def _filled(service: Mapping[str, Any], values: _Values, text: GuestText) -> dict[str, Any]:
    """The service with the values of its variables, and the variables of its `env_file:`."""

    def put(value: Any) -> Any:  # noqa: ANN401 - any value of YAML
        if isinstance(value, str):
            return _interpolated(value, values, 0)
        if isinstance(value, list):
            return [put(each) for each in value]
        if isinstance(value, dict):
            return {key: put(each) for key, each in value.items()}
        return value

    keys = ("environment", "devices", "volumes", "image", "command", "entrypoint")
    written = {key: service.get(key) for key in keys}
    filled = {**service, **{key: put(each) for key, each in written.items() if not is_deep(each)}}
    variables: dict[str, str] = {}
    for name, _ in _env_files(service):
        variables |= _dotenv(text.files.get(name, ""), {**variables, **values.given})
    named = _variables(filled.get("environment"))
    # A name without a value is passed through.
    passed = {name: values.given.get(name, word) for name, word in named.items()
              if word == f"${{{name}}}"}  # fmt: skip
    listed = filled.get("volumes")
    volumes = listed if isinstance(listed, list) else []
    return {
        **filled,
        "environment": {**variables, **named, **passed},
        "volumes": [_from_file(each, text.place) for each in volumes],
    }


def _from_file(volume: object, file: str) -> object:
    """A volume whose place on the host, if it is relative, is beside the compose file."""
    place, inside = _places(volume)
    if not file or not re.match(r"\.{1,2}(/|$)", place):
        return volume
    found = posixpath.normpath(PurePath(file).parent / place)
    if isinstance(volume, dict):
        return {**volume, "source": found}
    return f"{found}:{inside}"


def _missing(service: object, text: GuestText) -> tuple[str, ...]:
    """The files that a service needs and that are not beside the text."""
    return tuple(name for name, needed in _env_files(service) if needed and name not in text.files)


def _dotenv(text: str, before: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file of NAME=VALUE lines; `before` has those that its values may name."""
    found: dict[str, str] = {}
    for line in text.splitlines()[:_MOST_LINES]:
        match = _NAME.fullmatch(line.strip())
        if match is None:
            continue
        quoted = _QUOTED.match(match["value"])
        value = re.split(r"\s+#", match["value"], maxsplit=1)[0].strip()
        value = value if quoted is None else quoted["value"]
        if quoted is None or quoted["mark"] == '"':
            value = _interpolated(value, _Values({**before, **found}), 0)
        found[match["name"]] = value
    return found


def _interpolated(text: str, values: _Values, depth: int) -> str:
    """The text as compose writes it with these values, in which no other variable is set."""

    def put(match: re.Match[str]) -> str:
        name, rule = match["name"] or match["plain"], match["rule"] or ""
        if match["escaped"]:
            return "$"
        value = values.given.get(name)
        is_set = value is not None and not (rule.startswith(":") and not value)
        if value is not None and is_set and not rule.endswith("+"):
            return value
        if not (rule.endswith("+") if is_set else rule.endswith("-")):
            return match[0]
        instead = str(match["word"])
        instead = instead if depth > _DEEPEST else _interpolated(instead, values, depth + 1)
        if not is_set:
            values.assumed[name] = instead
        return instead

    return _EXPRESSION.sub(put, text)


def _doubt(missing: Sequence[str]) -> str:
    """Why the settings may be others than those that were read; empty if nothing is missing."""
    return f"{named(missing)} may change its settings, and was not found" if missing else ""


def _note(origin: str, values: _Values, missing: Sequence[str], unmounted: str) -> str:
    """What was taken for the variables that have a default, which file of variables is not beside
    the text, and which disks go with their container; empty if all is known."""
    said = [unmounted] if unmounted else []
    if missing:
        said.append(
            f"{origin} names env_file {named(missing)}, which is not beside it: the image's "
            "defaults are read instead"
        )
    if values.assumed:
        first = list(values.assumed.items())[:4]
        listed = ", ".join(f"{name}={value[:40]}" for name, value in first)
        said.append(
            f"{origin} is read with its defaults ({listed}), which the environment or .env may "
            "change"
        )
    return f"{'. '.join(said)}." if said else ""


def _not_read(name: str, service: Mapping[str, Any]) -> Iterator[UnreadDisk]:
    """What looks like a disk where the image looks for none, or where no device may be opened."""
    variables = _variables(service.get("environment"))
    for key in ("devices", "volumes"):
        listed = service.get(key)
        for entry in listed if isinstance(listed, list) else []:
            place, inside = _places(entry)
            if key == "devices" and _INSIDE.fullmatch(inside):
                continue
            is_disk = _DEVICE.match(place) or (key == "volumes" and _IMAGE_FILE.search(place))
            expected = (*variables.values(), *_image_places(variables.get("DISK_NAME") or "data"))
            if not is_disk or inside in expected:
                continue
            why = f"{place} stands under {key}: at {inside}, where vdisklab does not read it"
            if key == "volumes" and _DEVICE.match(place):
                why = f"{place} stands under volumes:, where a container may not open a device"
            yield UnreadDisk(name, inside, why)


def _places(entry: object) -> tuple[str, str]:
    """The place on the host of a device or volume, and the one inside the container."""
    if isinstance(entry, dict):
        place, inside = str(entry.get("source", "")), str(entry.get("target", ""))
    else:
        place, _, rest = str(entry).partition(":")
        inside = rest.partition(":")[0]
    return place, inside or place


def _refused(variables: Mapping[str, str]) -> tuple[str, str] | None:
    """Why the container ends instead of starting the guest, and the way out."""
    kind = variables.get("DISK_TYPE", "").lower().removeprefix("virtio-")
    written = {"DISK_TYPE": kind or None, "DISK_FMT": variables.get("DISK_FMT", "").lower() or None}
    return refused_word("the container", _ACCEPTED, written)


def _command(name: str, service: Mapping[str, Any], image: str, row: Architecture) -> Iterator[str]:
    variables = _variables(service.get("environment"))
    usual = {"macos": "blk"}.get(image, "scsi")
    kind = variables.get("DISK_TYPE", "").lower() or usual
    yield from (
        row.emulator,
        "-name",
        name,
        "-machine",
        row.machines["virtio"],
        "-object",
        "iothread,id=io2",
    )
    disks = [*_disks(service)]
    cache, io = variables.get("DISK_CACHE") or "none", variables.get("DISK_IO") or "native"
    if io.lower() == "native" and not is_variable(cache) and cache.lower() not in _DIRECT:
        io = "threads"  # as the container does, with a warning
    for number, (place, driver) in enumerate(disks, 1):
        node = f"data{number}"
        settings = {
            "file": place, "id": node, "format": driver, "if": "none",
            "cache": cache, "aio": io,
            "discard": variables.get("DISK_DISCARD") or "on", "detect-zeroes": "on",
        }  # fmt: skip
        yield "-drive"
        yield ",".join(f"{key}={value.replace(',', ',,')}" for key, value in settings.items())
        yield "-device"
        # Of a kind that the container refuses, which is said, the disk is read as the usual one.
        device = _NOT_KNOWN if is_variable(kind) else _DEVICES.get(kind, _DEVICES[usual])
        yield from device.format(node).split(" ")
    try:
        yield from shlex.split(variables.get(_ARGUMENTS, ""))
    except ValueError:
        yield variables[_ARGUMENTS]


def _disks(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The place of each disk on the host, and its format."""
    variables = _variables(service.get("environment"))
    form = variables.get("DISK_FMT", "").lower() or "raw"
    file = variables.get("DISK_NAME") or "data"
    ending = {"raw": "img"}.get(form, form)
    for suffix in ("", *map(str, range(2, 7))):
        inside = f"/storage{suffix}"
        place = _mounted(service, inside)
        if device := variables.get(f"DEVICE{suffix}") or _device(service, suffix):
            yield device, "raw"
        elif mounted := _image(service, file, suffix):
            yield mounted, "qcow2" if mounted.endswith(".qcow2") else "raw"
        elif not suffix or variables.get(f"DISK{suffix}_SIZE") or place != inside:
            yield f"{place}/{file}{suffix}.{ending}", form


def _disks_in(service: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The directory of each disk inside the container; False for one that is a device or file of
    the host's, or in a directory of the host's."""
    for place, _ in _disks(service):
        directory = posixpath.dirname(place)
        yield directory, re.fullmatch(r"/storage[2-6]?", directory) is not None


def _variables(environment: object) -> Mapping[str, str]:
    """The service's variables, of a mapping or of a list of NAME=VALUE; one without a value has
    that of the environment."""
    if isinstance(environment, dict):
        return {
            str(key): f"${{{key}}}" if value is None else str(value)
            for key, value in environment.items()
        }
    listed = environment if isinstance(environment, list) else []
    pairs = (str(entry).partition("=") for entry in listed)
    return {name: value if equals else f"${{{name}}}" for name, equals, value in pairs}


def _device(service: Mapping[str, Any], suffix: str) -> str | None:
    """The host's device that takes the place of this disk: /disk, /disk1, /disk2 … inside."""
    inside = {f"{top}/disk{number}" for top in ("", "/dev") for number in (suffix or "1", suffix)}
    devices = service.get("devices")
    for device in devices if isinstance(devices, list) else []:
        place, _, rest = str(device).partition(":")
        if rest.partition(":")[0] in inside:
            return place
    return None


def _image_places(name: str, suffixes: Iterable[str] = ("", *map(str, range(2, 7)))) -> list[str]:
    """Where the container looks for an image of each disk, before it makes one in /storage."""
    bases = (
        base
        for suffix in suffixes
        for base in (f"{name}{suffix}", f"disk{suffix}", *([] if suffix else ["disk1"]))
    )
    return [f"/{base}{ending}" for base in bases for ending in _IMAGE_ENDINGS]


def _image(service: Mapping[str, Any], name: str, suffix: str) -> str | None:
    """The image on the host that is mounted in the place of this disk."""
    places = _image_places(name, [suffix])
    mounted = map(_places, _volumes(service))
    return next((place for place, inside in mounted if place and inside in places), None)


def _mounted(service: Mapping[str, Any], inside: str) -> str:
    """The host's directory that is mounted there, or the place inside the container."""
    for volume in _volumes(service):
        if isinstance(volume, dict):
            if volume.get("target") == inside and volume.get("type") == "bind":
                return str(volume.get("source", inside))
        else:
            place, _, rest = str(volume).partition(":")
            if rest.partition(":")[0] == inside and place.startswith("/"):
                return place
    return inside


FORM = TextForm(
    recognises=_recognises, rewritten=_rewritten, changed_in="the compose file", names=_names
)
