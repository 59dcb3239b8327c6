"""Ansible's modules proxmox_kvm and proxmox_disk (community.general, community.proxmox).

Of Jinja only the names of variables are filled in, from `vars` and from the literal list of a
task's `loop` (Ansible's playbooks_loops and playbooks_variables), with the filter `default` for a
key that a mapping of the text lacks: of a variable that may be set elsewhere no default is taken.
Another expression stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from vdisklab.errors import PlanError
from vdisklab.path.segments import CacheMode
from vdisklab.platforms.qm_commands import as_conf, with_volume
from vdisklab.platforms.reading import GuestText, Tree, UnreadDisk, clone_of, is_deep, tree, word
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.where_set import only_line, set_in
from vdisklab.value import replace

_MODULE = re.compile(r"^[ \t-]*['\"]?(?:[\w.]+\.)?proxmox_(?:kvm|disk)['\"]?\s*:\s*$", re.MULTILINE)
_BUSES = ("scsi", "virtio", "sata", "ide")
_OF_DISK = ("aio", "cache", "detect_zeroes", "discard", "iops", "iops_max", "iops_rd", "iops_wr",
            "iothread", "mbps", "mbps_rd", "mbps_wr", "rerror", "werror", "ro", "scsiblock",
            "shared", "snapshot")  # fmt: skip
_MOST_VALUES = 200_000
_MOST_ITEMS = 500
_SLOT = re.compile(r"(?:scsi|virtio|sata|ide)[0-9]+")
_NAME = re.compile(
    r"""\{\{\s*(?P<name>[A-Za-z_]\w*(?:\.\w+|\['\w+'\]|\["\w+"\])*)\s*
    (?:\|\s*(?:default|d)\(\s*(?P<default>'[^'{}]*'|"[^"{}]*"|[\w.]+)\s*
    (?:,\s*(?:boolean\s*=\s*)?(?P<empty>true|True|false|False)\s*)?\)\s*)?\}\}""",
    re.VERBOSE,
)
_PLAIN = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}
_OMIT = object()
"""What Ansible's `omit` stands for: the module does not get the key."""
_DEEPEST, _LONGEST = 4, 4096
"""How often a variable may stand for another, and how long a value may become."""


def has_module(text: GuestText) -> bool:
    """True for a text with a task of these modules."""
    return _MODULE.search(text.text) is not None


def playbook_of(text: GuestText, unread: str) -> list[Tree]:
    """The documents of a playbook. Raises PlanError for damaged YAML; `unread` is what is not read
    then, as a clause."""
    try:
        return list(text.documents)
    except PlanError as error:
        raise PlanError(
            f"{error}; so {unread}",
            hint="see what `ansible-playbook --syntax-check` says of it",
        ) from error


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    guests: dict[str, dict[str, str]] = {}
    unread: dict[str, list[UnreadDisk]] = {}
    clones: dict[str, str] = {}
    documents = playbook_of(text, f"its task {_first(text)} is not read")
    for module, values in _modules(documents):
        clone = values.get("clone")
        # Of a clone `vmid` is the template's number, and `newid` its own (the module's options).
        names = ("newid", "name") if clone else ("vmid", "name", "newid")
        guest = str(next((values[name] for name in names if name in values), text.name))
        key = re.sub(r"[^\w-]+", "_", guest)[:100] or "guest"
        settings = guests.setdefault(key, {} if key == guest else {"name": guest[:100]})
        of_module = _of_kvm if module == "kvm" else _of_disk
        unread.setdefault(key, []).extend(of_module(settings, guest, values))
        if clone:
            clones[key] = str(values.get("vmid", clone))
    if not guests:
        raise PlanError(
            f"{text.origin} has the task {_first(text)}, but its arguments are not `key: value` "
            "lines",
            hint="write `key: value` lines below the module's name",
        )
    for key, settings in guests.items():
        shown = settings.get("name", key)
        rows = tuple(replace(disk, guest=shown) for disk in unread[key])
        yield replace(
            as_conf(settings, f"{text.origin}/{key}.conf"),
            changed_at={"": set_in(text, "cache", only_line(text.text, r"\bcache\b"), "its task")},
            unread=rows,
            diskless=clone_of(shown, clones[key]) if key in clones else None,
        )


def _first(text: GuestText) -> str:
    """The module that was recognised, with its line."""
    match = _MODULE.search(text.text)
    if match is None:
        return "?"
    start = match.end() - len(match[0].lstrip())
    return f"{match[0].strip(' -:')} in line {text.text.count(chr(10), 0, start) + 1}"


Variables = Mapping[str, Any]


def _modules(documents: list[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The modules of Proxmox VE, with the variables of the text filled in."""
    for name, task, variables in tasks_of(documents, re.compile(r"proxmox_(?:kvm|disk)")):
        given = tree(task, name)
        if given and not is_deep(given):
            yield name.rpartition("_")[2], filled(given, variables)


def tasks_of(
    documents: list[Any], module: re.Pattern[str]
) -> Iterator[tuple[str, Mapping[str, Any], Variables]]:
    """The tasks with a module of such a name in plays, blocks and roles, in the order of the text,
    with its key, once for each item of a loop, and the variables that they have."""
    rest: list[tuple[Any, Variables]] = [(each, {}) for each in reversed(documents)]
    seen = 0
    while rest and seen < _MOST_VALUES:
        (value, variables), seen = rest.pop(), seen + 1
        inside: list[Any] = []
        if isinstance(value, list):
            inside = value
        elif isinstance(value, dict):
            if given := tree(value, "vars"):
                variables = {**variables, **given}
                seen += len(variables)
            for key, inner in value.items():
                if module.fullmatch(str(key).rpartition(".")[2]) is None:
                    continue
                for items in _loops(value, variables):
                    seen += len(variables) + (len(inner) if isinstance(inner, dict) else 1)
                    yield str(key), value, items
            inside = [each for each in value.values() if isinstance(each, dict | list)]
        rest += [(each, variables) for each in reversed(inside)]


def _loops(task: Mapping[str, Any], variables: Variables) -> Iterator[Variables]:
    """The variables for each item of a task's loop; those given, if it has no list."""
    items = task.get("loop", task.get("with_items", task.get("with_list")))
    if isinstance(items, str) and (match := _NAME.fullmatch(items.strip())):
        items = _value(match[1], variables)
    name = word(task, "loop_control", "loop_var") or "item"
    if not isinstance(items, list) or not items:
        yield variables
        return
    for item in islice(items, _MOST_ITEMS):
        yield {**variables, name: item}


def _value(name: str, variables: Variables) -> Any:  # noqa: ANN401 - any value of YAML
    """What a name with its keys stands for; None if that is not in the text."""
    value: Any = variables
    for key in re.findall(r"\w+", name):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _given(match: re.Match[str], variables: Variables) -> Any:  # noqa: ANN401 - any value of YAML
    """What an expression stands for; None if the text does not say."""
    value, default = _value(match["name"], variables), match["default"]
    is_empty = not value and (match["empty"] or "").lower() == "true"
    if default is None or (value is not None and not is_empty):
        return value
    head, *keys = re.findall(r"\w+", match["name"])
    if value is None and not (keys and isinstance(variables.get(head), dict)):
        return None
    if default == "omit":
        return _OMIT
    if default[0] in "'\"":
        return default[1:-1]
    is_number = re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", default)
    return default if is_number else _PLAIN.get(default, _value(default, variables))


def filled(value: Any, variables: Variables) -> Any:  # noqa: ANN401
    """The value with the values of these variables in place of their names."""
    if isinstance(value, dict):
        pairs = (
            (str(filled(key, variables)), filled(inner, variables)) for key, inner in value.items()
        )
        return {key: inner for key, inner in pairs if inner is not _OMIT}
    for _ in range(_DEEPEST):
        if not isinstance(value, str) or "{{" not in value or len(value) > _LONGEST:
            break
        whole = _NAME.fullmatch(value.strip())
        if whole and (found := _given(whole, variables)) is not None:
            value = found
            continue
        value = _NAME.sub(lambda match: _text(match, variables), value)
    return value


def _text(match: re.Match[str], variables: Variables) -> str:
    value = _given(match, variables)
    is_plain = value is not None and value is not _OMIT and not isinstance(value, dict | list)
    return str(value) if is_plain else match[0]


def _not_known(target: str, what: str, settings: object) -> UnreadDisk:
    """The row of a disk whose slot only Ansible knows."""
    lossy = re.search(rf"\bcache['\"]?[=:]\s*['\"]?{CacheMode.UNSAFE}\b", str(settings)[:_LONGEST])
    why = f"{what[:200]}, which only Ansible knows"
    return UnreadDisk("", target, why, drops_flushes=lossy is not None)


def _of_kvm(
    settings: dict[str, str], guest: str, values: Mapping[str, Any]
) -> Iterator[UnreadDisk]:
    for key in ("scsihw", "args", "name"):
        if isinstance(values.get(key), str):
            settings[key] = values[key]
    if values.get("template") in (True, 1, "yes", "true"):
        settings["template"] = "1"
    found = {key: line for key, line in values.items() if _SLOT.fullmatch(key)}
    for bus in _BUSES:
        disks = values.get(bus)
        if isinstance(disks, dict):
            # A slot's number alone, too: community.general joins it with the bus.
            found |= {
                f"{bus}{slot}" if re.fullmatch("[0-9]{1,3}", str(slot)) else str(slot): line
                for slot, line in disks.items()
            }
        elif disks is not None:
            yield _not_known(bus, f"its {bus} is {disks}", disks)
    for slot, line in found.items():
        if _SLOT.fullmatch(slot):
            settings[slot] = with_volume(guest, slot, str(line))
        else:
            yield _not_known("disk", f"its slot is {slot}", line)


def _of_disk(
    settings: dict[str, str], guest: str, values: Mapping[str, Any]
) -> Iterator[UnreadDisk]:
    slot = str(values.get("disk", "?"))
    if not _SLOT.fullmatch(slot):
        yield _not_known("disk", f"its slot is {slot}", values)
        return
    if str(values.get("state", "present")) in ("absent", "detached"):
        settings.pop(slot, None)
        return
    if values.get("media") == "cdrom":
        return
    before = settings.get(slot, "")
    volume = before.partition(",")[0] or f"{values.get('storage', '?')}:{values.get('size', 1)}"
    form = f",format={values['format']}" if "format" in values else ""
    options = [f"{key}={_word(key, values[key])}" for key in _OF_DISK if key in values]
    settings[slot] = with_volume(guest, slot, ",".join((f"{volume}{form}", *options)))


def _word(key: str, value: object) -> str:
    if isinstance(value, bool):
        return ("on" if value else "ignore") if key == "discard" else str(int(value))
    return str(value)


FORM = TextForm(recognises=has_module, rewritten=_rewritten, changed_in="Ansible")
