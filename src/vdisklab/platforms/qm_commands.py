"""`qm create`, `qm set`, `qm template`, `qm clone` and `qm disk` of Proxmox VE (qm(1)), the first
four also as `pvesh`: the lines of VMID.conf.

A clone has its template's lines, and volumes of its own: on those of a template that are files,
unless it is a `--full` one (PVE::API2::Qemu: clone_vm).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from vdisklab.path.platforms import Platform
from vdisklab.platforms.reading import DisklessGuest, GuestText, UnreadDisk, clone_of
from vdisklab.platforms.shell_script import ShellCommand, commands_of, tells
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.unknown_words import parts_of, unknown_in
from vdisklab.platforms.where_set import only_line, set_in
from vdisklab.value import Value, replace

_COMMAND = re.compile(
    r"\bqm\s+(?:create|set|clone|template|disk|importdisk|move[_-]disk|unlink|importovf)\b|\bpvesh\s+(?:create|set)\s+\S*/qemu\b"
)
_VERBS = ("create", "set", "clone", "template")
_OF_DISK = {
    "importdisk": "import", "move_disk": "move", "move-disk": "move", "unlink": "unlink",
    "importovf": "importovf",
}  # fmt: skip
"""What `qm disk VERB` was called before Proxmox VE 7.1, and importovf (qm(1))."""

_POSITIONS = {
    "import": ("source", "storage"), "move": ("disk", "storage"), "unlink": (),
    "importovf": ("source", "storage"),
}  # fmt: skip
"""The words of these behind the guest's number."""
_OF_API = re.compile(r"/nodes/(?P<node>[\w-]+)/qemu(?:/(?P<vmid>[0-9]+)(?:/(?P<verb>\w+))?)?")
_UNATTACHED = "unattached"
"""The name of the storage of a volume that is attached to nothing, among a guest's settings."""

_NEW = re.compile(r"^(?P<storage>[\w.-]+):(?P<size>[0-9]+(?:\.[0-9]+)?)(?=,|$)")
_BY_VARIABLE = re.compile(r"\bcache=\$\{?([A-Za-z_]\w*)\}?")
_DISK = re.compile(r"(?:scsi|virtio|sata|ide)[0-9]+")


def _recognises(text: GuestText) -> bool:
    return _COMMAND.search(text.text) is not None


class _GuestCommand(Value):
    """What a command does to a guest: its verb is one of `qm`'s."""

    verb: str
    vmid: str
    options: Mapping[str, str]
    node: str = ""

    @property
    def new_vmid(self) -> str:
        """The clone's, of `qm clone`."""
        return self.options.get("newid", "VMID")


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    guests: dict[str, dict[str, str]] = {}
    nodes: dict[str, str] = {}
    clones: dict[str, str] = {}
    doubts: dict[str, str] = {}
    places: dict[str, dict[str, str]] = {}
    made: set[str] = set()
    unread: dict[str, list[UnreadDisk]] = {}
    for given in commands_of(text.text, text.files, text.first_line):
        command = _of_command(given)
        if command is None:
            continue
        vmid = command.vmid
        if command.verb == "create" or (command.verb == "clone" and vmid in made):
            made.add(command.new_vmid if command.verb == "clone" else vmid)
        if command.verb == "clone":
            vmid, clones[command.new_vmid] = command.new_vmid, command.vmid
            guests[vmid] = _cloned(command, guests.get(command.vmid, {}))
        elif command.verb == "template":
            guests.setdefault(vmid, {})["template"] = "1"
        elif command.verb in _POSITIONS:
            settings = guests.setdefault(vmid, {})
            unread.setdefault(vmid, []).extend(_set_disk(settings, command, text.origin))
        else:
            _set(guests.setdefault(vmid, {}), command)
            slots = filter(_DISK.fullmatch, command.options)
            places.setdefault(vmid, {}).update(
                (slot, _place_of(text, slot, given.line)) for slot in slots
            )
        nodes[vmid] = command.node or nodes.get(vmid, "")
        doubts[vmid] = given.doubt or doubts.get(vmid) or doubts.get(clones.get(vmid, ""), "")
    for vmid, settings in guests.items():
        unattached = settings.pop(_UNATTACHED, "")
        name, node = PurePath(vmid).name, nodes[vmid]
        within = f"nodes/{node}/qemu-server/" if node else ""
        conf = as_conf(settings, f"{text.origin}/{within}{name}.conf")
        guest = settings.get("name", name)
        diskless = clone_of(guest, clones[vmid]) if vmid in clones else None
        if unattached:
            diskless = _imported(guest, name, unattached)
        adds_to = "" if vmid in made or "scsihw" in settings else f"`qm set` in {text.origin}"
        yield replace(
            conf, diskless=diskless, doubt=doubts[vmid], changed_at=places.get(vmid, {}),
            adds_to=adds_to, unread=tuple(unread.get(vmid, ())),
        )  # fmt: skip


def _place_of(text: GuestText, slot: str, line: int) -> str:
    """Where a command that begins in a line sets the cache mode of a disk: in the line of the
    disk's own option, or where the variable has its value that is its cache mode."""
    lines = text.text.splitlines()
    start = line - text.first_line
    number = start
    for number in range(start, len(lines)):
        if re.search(rf"-{slot}\b", lines[number]) or not lines[number].endswith("\\"):
            break
    shown = lines[number] if number < len(lines) else ""
    named = _BY_VARIABLE.search(shown)
    if named is not None:
        found = only_line(text.text, rf"\b{named[1]}=")
        return set_in(text, named[1], None if found is None else found + text.first_line - 1)
    return set_in(text, "cache", number + text.first_line)


def _set(settings: dict[str, str], command: _GuestCommand) -> None:
    for key, value in command.options.items():
        settings[key] = with_volume(command.vmid, key, _without_unknown(key, value))
    for gone in re.split("[ ,;]+", settings.pop("delete", "")):
        settings.pop(gone, None)


def _set_disk(
    settings: dict[str, str], command: _GuestCommand, origin: str
) -> Iterator[UnreadDisk]:
    """Does what `qm disk` and `qm importovf` do; a disk whose settings the text does not have gets
    a row. An imported volume is attached to nothing unless the command names a slot for it."""
    options, vmid = command.options, command.vmid
    storage, form = options.get("storage", "?"), options.get("format", "")
    volume = f"{storage}:0{f',format={form}' if form else ''}"
    shown = f"run `qm config {vmid} > {vmid}.conf` on its node and name {vmid}.conf"
    if command.verb == "unlink":
        for slot in re.split("[ ,;]+", options.get("idlist", "")):
            settings.pop(slot, None)
    elif command.verb == "importovf":
        why = f"the disks of {options.get('source', '?')[:200]} are on storage {storage}: {shown}"
        yield UnreadDisk("", "?", why)
    elif command.verb == "import":
        slot = options.get("target-disk", _UNATTACHED)
        settings[slot] = with_volume(vmid, slot, volume) if slot != _UNATTACHED else storage
    else:
        slot = options.get("disk", "?")
        if slot in settings:
            rest = re.sub(r"(^|,)format=\w+", "", settings[slot].partition(",")[2]).lstrip(",")
            settings[slot] = with_volume(vmid, slot, ",".join(filter(None, (volume, rest))))
        elif _DISK.fullmatch(slot) or not slot.isalnum():
            where = f"`qm disk move` in {origin} moves it to storage {storage}"
            yield UnreadDisk("", slot, f"{where}, and its settings are not there: {shown}")


def _imported(guest: str, vmid: str, storage: str) -> DisklessGuest:
    """A guest of which the text only says that a volume is imported for it."""
    return DisklessGuest(
        guest,
        f"`qm disk import` makes a volume on {storage}, which is attached to nothing",
        f"`qm config {vmid}` prints it as unused0, and `qm set {vmid} --scsi0 VOLUME` attaches it",
    )


def _without_unknown(key: str, value: str) -> str:
    """A disk's options, in which a word that may be further options is the cache mode, which it may
    set."""
    if not _DISK.fullmatch(key):
        return value
    each = [unknown_in(part, is_first=not n) for n, part in enumerate(parts_of(value))]
    unknown = next((word for word, _ in each if word), "")
    kept = [part for _, part in each if part and not (unknown and part.startswith("cache="))]
    return ",".join((*kept, *([f"cache={unknown.replace(',', ';')}"] if unknown else [])))


def _cloned(command: _GuestCommand, template: Mapping[str, str]) -> dict[str, str]:
    """The lines of a new clone, as far as the text has those of its template."""
    options = command.options
    is_full = "template" not in template or options.get("full", "0") != "0"
    lines = {key: value for key, value in template.items() if key not in ("template", "name")}
    for key in filter(_DISK.fullmatch, lines):
        volume, comma, rest = lines[key].partition(",")
        storage, colon, name = volume.partition(":")
        copied = name.replace(f"{command.vmid}/", f"{command.new_vmid}/")
        copied = re.sub(rf"\b(?:vm|base)-{command.vmid}-", f"vm-{command.new_vmid}-", copied)
        below = (
            "" if is_full else f"{name.replace(f'vm-{command.vmid}-', f'base-{command.vmid}-')}/"
        )
        if is_full and "storage" in options:  # which decides the format, unless a volume ends so
            storage = options["storage"]
            rest = re.sub(r"(^|,)format=\w+", "", rest).lstrip(",")
        lines[key] = f"{storage}{colon}{below}{copied}{comma if rest else ''}{rest}"
    return lines | ({"name": options["name"]} if "name" in options else {})


def as_conf(settings: Mapping[str, str], origin: str) -> GuestText:
    """A VMID.conf of these settings."""
    lines = (f"{key}: {' '.join(value.split())}\n" for key, value in settings.items())
    return GuestText("".join(("memory: 512\n", *lines)), origin, of=Platform.PROXMOX)


def with_volume(vmid: str, slot: str, value: str) -> str:
    """A disk's settings with the volume that `STORAGE:SIZE` makes (qm(1), "Create a new disk")."""
    match = _NEW.match(value)
    if match is None or not _DISK.fullmatch(slot):
        return value
    form = re.search(r"(?:^|,)format=(\w+)", value)
    ending = f".{form[1]}" if form and form[1] != "raw" else ""
    return f"{match['storage']}:vm-{vmid}-disk-{slot}{ending}{value[match.end() :]}"


def _of_command(command: ShellCommand) -> _GuestCommand | None:
    """What a command does to a guest; None for another command."""
    argv = [*command.argv]
    names = [PurePath(word).name for word in argv]
    if tells(argv):
        return None
    for number, name in enumerate(names[:8]):
        verb, *rest = argv[number + 1 :] or [""]
        if name == "qm" and rest:
            of_disk = rest[0] if verb == "disk" else _OF_DISK.get(verb, "")
            if of_disk in _POSITIONS:
                return _of_disk(of_disk, rest[1:] if verb == "disk" else rest)
            return _of_qm(verb, rest) if verb in _VERBS else None
        if name == "pvesh" and verb in ("create", "set") and "/qemu" in "".join(rest[:1]):
            options = dict(_options(rest[1:]))
            place = _OF_API.search(rest[0])
            of_guest = {} if place is None else place.groupdict("")
            vmid = of_guest.get("vmid") or options.pop("vmid", "VMID")
            kind = of_guest.get("verb", "")
            return _GuestCommand(
                kind if kind in _VERBS else verb, vmid, options, of_guest.get("node", "")
            )
    return None


def _of_qm(verb: str, rest: Sequence[str]) -> _GuestCommand:
    vmid, *given = rest
    if verb == "clone" and given:
        return _GuestCommand(verb, vmid, {"newid": given[0], **_options(given[1:])})
    return _GuestCommand(verb, vmid, _options(given))


def _of_disk(verb: str, rest: Sequence[str]) -> _GuestCommand | None:
    """`qm disk VERB VMID …`, whose words may also be behind its options."""
    if not rest:
        return None
    names = _POSITIONS[verb]
    given = dict(zip(names, rest[1:], strict=False))
    return _GuestCommand(verb, rest[0], {**given, **_options(rest[1 + len(names) :])})


def _options(argv: Sequence[str]) -> Mapping[str, str]:
    """The options and their values: a word that begins with a dash is the next option, unless it is
    more than one word, or that of `args`, whose own words are options (qm(1), `--args`)."""
    options: dict[str, str] = {}
    rest = list(argv)
    while rest:
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        is_whole = name == "args" or (rest and re.search(r"\s", rest[0]))
        if not equals and rest and (is_whole or not re.match(r"--?[a-z]", rest[0])):
            value = rest.pop(0)
        if re.fullmatch(r"[a-z][a-z0-9_-]*", name):
            options[name] = value
    return options


FORM = TextForm(recognises=_recognises, rewritten=_rewritten, shares=True)
