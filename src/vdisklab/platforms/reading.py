"""The parts that readers of configurations share: texts, YAML, words that become options, limits.

No text is trusted: YAML has a budget, which merge keys use, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import PurePath
from typing import Any

from vdisklab.path.disk_path import Attachment, DiskPath, Image
from vdisklab.path.options import OptionValue
from vdisklab.path.platforms import Platform
from vdisklab.path.segments import BUS_OPTIONS, FORMAT_OPTIONS, Bus, CacheMode, ImageFormat
from vdisklab.units import whole_number
from vdisklab.value import Value

DEEPEST = 100
"""Levels of lists and mappings that a document may have; the C composer recurses for each."""

Tree = Mapping[str, Any]
"""A mapping of a YAML document."""


_VARIABLE = re.compile(r"\$[{(\w@*]|\{\{|`")
_PARAMETER = re.compile(r"\$\{?[0-9@*]")
_NO_FSYNC = re.compile(r"(?:LD_PRELOAD=.*)?\b(?:lib)?(?P<library>eatmydata|nosync)(\.so.*)?\b")


class UnseenStorageError(ValueError):
    """What was read does not say what storage a disk has; `way` tells what reads it, as a clause
    with a command and what to do with its output."""

    def __init__(self, why: str, way: str) -> None:
        super().__init__(f"{why}: {way}")
        self.way = way


def way_to_see(error: ValueError) -> str | None:
    """What makes a disk's storage known; None if the error is another one."""
    return error.way if isinstance(error, UnseenStorageError) else None


MAP_IT = (
    "vdisklab has no target of that kind; mount or map one on this host and name it: `vdisklab run "
    "mine/raw/none raw/none --target mine=PLACE`, where PLACE is a directory or a spare device"
)
"""The way out for a disk on the network."""

SERVED_ELSEWHERE = (
    "another process serves it (vhost-user), so its image and cache mode are not in this "
    "configuration: give that process's command line, too"
)

SCSI_PASSED = (
    "the guest's SCSI commands go straight to the device (lun); vdisklab does not measure lun, but "
    "can measure a spare device as a SCSI disk: `vdisklab run none/scsi --on DEVICE`"
)

_MOST_NAMED = 20


def without_fsync(variables: Iterable[str]) -> str | None:
    """Why QEMU's flushes do nothing, if a library that replaces fsync(2) is put before libc's.

    The words are the programs that start QEMU, its variables, or the libraries that it has loaded.
    """
    matches = filter(None, map(_NO_FSYNC.search, variables))
    return next((f"{match['library']} makes QEMU's fsync do nothing" for match in matches), None)


class UnreadDisk(Value):
    """A disk that a text shows, but not well enough to be read: `why` as a clause without a stop.

    `guest` is empty for a disk of the text's only guest.
    """

    guest: str
    target: str
    why: str
    drops_flushes: bool = False


class DisklessGuest(Value):
    """A guest without a hard disk in its configuration: `why` there is nothing to judge, after its
    name and a colon, and `instead`, what to do, as a hint."""

    name: str
    why: str
    instead: str


def clone_of(name: str, template: str) -> DisklessGuest:
    """A guest of Proxmox VE whose text says that it is cloned, and names no disk."""
    number = template if re.fullmatch("[0-9]{1,9}", template) else "VMID"
    listed = "" if number == template else " (`qm list` there shows its VMID)"
    return DisklessGuest(
        name,
        f"no disk to judge here, as a clone gets those of its template "
        f"{template.strip('${} ')[:60]}",
        f"audit the template: `qm config {number} > {number}.conf` on its node{listed}, then name "
        f"{number}.conf",
    )


@dataclass(frozen=True)
class GuestText:
    """A configuration of one or more guests, and where it comes from.

    A text that is not `required` may be anything, as a file of a directory is. `changed_in` names
    what it was written for, if a program writes the guest anew from there.
    """

    text: str
    origin: str
    required: bool = True
    changed_in: str = ""
    changed_at: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Where the cache mode of each of its disks is set, by their names in the platform's words or
    their files, as a noun; under "" that of any other."""
    lost_at: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)
    """Why disks lose flushed data below QEMU, by their names, and what to do, as a clause."""
    refused: tuple[str, str] | None = None
    """Why the program that makes the guest does not start it, and the way out."""
    adds_to: str = ""
    """The command, as a noun, that gives these lines to a guest that has others already; empty for
    a text that has all of them."""
    first_line: int = 1
    """The line of its file in which it begins, if it is a part of the file."""
    place: str = ""
    """The file's whole name without links, if the text is a file's."""
    of: Platform | None = None
    """The platform in whose words a form has written the text; without one the text shows it."""
    unread: tuple[UnreadDisk, ...] = ()
    """Disks of the form that it could not write in the platform's words."""
    note: str = ""
    """A sentence about what the form assumed."""
    doubt: str = ""
    """Why the disks' settings may be others, as a clause."""
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The texts of the files that this one names, as far as they are beside it."""
    diskless: DisklessGuest | None = None
    """Why the guest has no disk, if the text shows none."""

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return PurePath(self.origin).name

    @property
    def name(self) -> str:
        """The name of its file without directory and extension."""
        return PurePath(self.origin).stem

    @cached_property
    def documents(self) -> tuple[Tree, ...]:
        """The text's mappings as YAML, and those in its lists and `items`. Raises PlanError."""
        # Imported late: no other text needs YAML, and `rank` reads no text.
        from vdisklab.platforms.yaml_documents import read_documents  # noqa: PLC0415

        return read_documents(self.text, self.origin)


def tree(value: object, *keys: str) -> Tree:
    """The mapping below these keys; an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def branches(value: object, *keys: str) -> tuple[Tree, ...]:
    """The mappings in the list that these keys lead to; none if there is no list."""
    listed = tree(value, *keys[:-1]).get(keys[-1])
    return (
        tuple(entry for entry in listed if isinstance(entry, dict))
        if isinstance(listed, list)
        else ()
    )


def word(value: object, *keys: str) -> str | None:
    """The text or number below these keys, as text; None if there is none."""
    leaf = tree(value, *keys[:-1]).get(keys[-1])
    return str(leaf) if isinstance(leaf, str | int | float) and not isinstance(leaf, bool) else None


def is_deep(value: object) -> bool:
    """True for lists and mappings nested deeper than any configuration; a text of them recurses."""
    level = [value]
    for _ in range(DEEPEST):
        inner = (each.values() if isinstance(each, dict) else each
                 for each in level if isinstance(each, dict | list))  # fmt: skip
        level = [value for values in inner for value in values]
        if not level:
            return False
    return True


def image_of(form: ImageFormat, *, on_device: bool) -> Image | None:
    """The image of a disk; None for raw on a block device, which is the device itself."""
    return None if on_device and form is ImageFormat.RAW else Image(form)


def queues_of(text: str, admin: int = 0) -> OptionValue:
    """How many of a device's queues carry data: all but `admin`, which carry other commands."""
    number = whole_number(text)
    try:
        data = text if number is None else str(number - admin)
        return BUS_OPTIONS[Bus.VIRTIO]["queues"].parse(data)
    except ValueError as error:
        raise ValueError(f"its number of queues is {text!r}, but must be {error}") from None


def parsed_options(
    bus: Bus | ImageFormat, settings: Mapping[str, object]
) -> dict[str, OptionValue]:
    """The values of the options that the bus or format has.

    A setting of None, and a limit that is empty or zero, count as not set.

    Raises ValueError for a value that no path can have.
    """
    schema = BUS_OPTIONS[bus] if isinstance(bus, Bus) else FORMAT_OPTIONS[bus]
    options: dict[str, OptionValue] = {}
    for option, word in settings.items():
        if option not in schema or word in (None, "", "0", 0):
            continue
        try:
            options[option] = schema[option].parse(str(word).strip())
        except ValueError as error:
            raise ValueError(f"its {option} is {word!r}, but must be {error}") from None
    return options


def block_words(properties: Mapping[str, object]) -> dict[str, object]:
    """A device's options of block sizes from QEMU's properties, which libvirt has, too."""
    return {
        "block_size": properties.get("logical_block_size"),
        "discard_granularity": properties.get("discard_granularity"),
    }


def beyond_schema(bus: Bus, settings: Mapping[str, object]) -> tuple[str, ...]:
    """The options that are set and that the bus does not have, as `name=value`.

    Blocks of 512 bytes are every bus's.
    """
    return tuple(
        f"{name}={value}"
        for name, value in settings.items()
        if name not in BUS_OPTIONS[bus]
        and str(value) not in ("None", "", "0", "512" if name == "block_size" else "")
    )


def ignored_errors(write: object, read: object) -> tuple[str, ...]:
    """Requests whose errors the guest never sees (`writes`, `reads`), by werror= and rerror=."""
    return tuple(
        what for what, word in (("writes", write), ("reads", read)) if str(word) == "ignore"
    )


def error_words(write: object, read: object) -> dict[str, object]:
    """The options werror= and rerror= from QEMU's words; `auto` is QEMU's choice.

    A read never lacks space, so `enospc` means `report` for reads.
    """
    said = {"werror": write, "rerror": {"enospc": "report"}.get(str(read), read)}
    return {name: word for name, word in said.items() if str(word) != "auto"}


def policy_path(bus: str, write: object, read: object) -> DiskPath | None:
    """A path with this bus and QEMU's words for errors, for a disk whose own path is not known;
    None for a bus that no path has."""
    if bus not in set(Bus):
        return None
    try:
        options = parsed_options(Bus(bus), error_words(write, read))
    except ValueError:
        return None
    return DiskPath((), Image(ImageFormat.RAW), CacheMode.DEFAULT, attachment_of(Bus(bus), options))


def attachment_of(bus: Bus, options: Mapping[str, OptionValue]) -> Attachment:
    """The attachment, limited to options that the bus has."""
    schema = BUS_OPTIONS[bus]
    return Attachment(bus, tuple((key, options[key]) for key in options if key in schema))


def is_variable(word: object) -> bool:
    """True for a value that the program which makes the guest fills in: `${x}`, `$x`, `$1`,
    `$(command)`, `{{ x }}`."""
    return isinstance(word, str) and _VARIABLE.search(word) is not None


BY_EACH_CALL = "which each call of its function gives"
"""Of a parameter, `$1`, whose value is not known."""


def one_of(word: str, allowed: tuple[str, ...], what: str) -> str:
    """The word. Raises ValueError unless it is in `allowed`."""
    if word not in allowed and _PARAMETER.match(word):
        raise ValueError(f"its {what} is {word[:_SHOWN]}, {BY_EACH_CALL}")
    if word not in allowed and is_variable(word):
        raise ValueError(f"its {what} is {word[:_SHOWN]}, a variable whose value is not known")
    if word not in allowed:
        names = ", ".join(allowed)
        raise ValueError(f"vdisklab does not measure its {what} {word!r}, only {names}")
    return word


Accepted = Mapping[str, Sequence[str]]
"""The words that a platform accepts for a setting, by its name; the first is the usual way out."""

_SHOWN = 40
_MOST_WORDS, _FIRST_WORDS = 12, 6
"""How many words are all named, and how many of more than these."""


def refused_word(
    program: str, accepted: Accepted, settings: Mapping[str, object]
) -> tuple[str, str] | None:
    """Why a program does not take those of these settings that it refuses, and the way out; None if
    it accepts them all.

    A setting of None is not written, and one without a row, or a variable, is not judged.
    """
    wrong = {
        name: str(settings[name])[:_SHOWN]
        for name, possible in accepted.items()
        if settings.get(name) is not None
        and str(settings[name]) not in possible
        and not is_variable(settings[name])
    }
    if not wrong:
        return None
    refused = " and ".join(f"{name} {shown}" for name, shown in wrong.items())
    instead = ", and ".join(f"{name} {_choice(accepted[name])}" for name in wrong)
    return f"{program} refuses {refused}", f"write {instead}"


def _choice(possible: Sequence[str]) -> str:
    if len(possible) > _MOST_WORDS:
        possible = (*possible[:_FIRST_WORDS], "another that it takes")
    *others, last = possible
    return f"{', '.join(others)} or {last}" if others else last


class LimitWords(Value):
    """The words with which a platform limits a disk's I/O.

    A path can only limit totals (throttle_iops=N, throttle_bps=SIZE): `expressible` has the words
    for these, by option. `others` are limits of reads or writes alone, bursts, and limits that
    several disks share: they are found and named, not merged.
    """

    expressible: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...]

    def of_path(self, settings: Mapping[str, Any]) -> Mapping[str, object]:
        """The values that a path can say, by its option."""
        flat = dict(_flat(settings))
        return {
            option: next((flat[word] for word in keys if word in flat), None)
            for option, keys in self.expressible.items()
        }

    def written(self, attachment: Attachment) -> dict[str, object]:
        """The limits of a path as the platform's words: the first of each option's."""
        values = {keys[0]: attachment.option(name) for name, keys in self.expressible.items()}
        return {word: value for word, value in values.items() if value is not None}

    def beyond(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Each limit that is set and that a path cannot express, as written there."""
        return self._named(settings, self.others)

    def all(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Each limit that is set, of a disk whose path can say none."""
        expressible = (word for keys in self.expressible.values() for word in keys)
        return self._named(settings, (*expressible, *self.others))

    def _named(self, settings: Mapping[str, Any], keys: Iterable[str]) -> tuple[str, ...]:
        flat = dict(_flat(settings))
        return tuple(
            f"{word}={flat[word]}"
            for word in keys
            if word in flat and str(flat[word]).strip() not in _none_of(word)
        )


def shared_group(word: str, name: object, of_all_disks: Mapping[str, int]) -> tuple[str, ...]:
    """The name of a group whose limits several disks share; nothing for a disk's own group.

    `of_all_disks` counts the disks of each group, by its name as text.
    """
    return (f"{word}={name}",) if name and of_all_disks.get(str(name), 0) > 1 else ()


def first_of(settings: Sequence[str]) -> tuple[str, ...]:
    """The words of a whole guest that each of its disks is shown with, and how many more it has:
    thousands for each of thousands of disks would take minutes."""
    more = len(settings) - _MOST_NAMED
    return (*settings[:_MOST_NAMED], f"and {more} more") if more > 0 else tuple(settings)


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.") if not above else ()
        else:
            yield f"{above}{key}", value


def _none_of(word: str) -> tuple[str, ...]:
    """The values of no limit; a burst lasts a second unless its length is set."""
    return ("", "0", "0.0", "None", "1") if word.endswith("length") else ("", "0", "0.0", "None")


def limit_words(expressible: Mapping[str, tuple[str, ...]], *families: Iterable[str]) -> LimitWords:
    """The words of a platform; `families` may repeat those that a path can say."""
    expressed = {word for keys in expressible.values() for word in keys}
    others = (word for family in families for word in family if word not in expressed)
    return LimitWords(expressible, tuple(others))


def joined(*parts: Iterable[str]) -> tuple[str, ...]:
    """Each combination of the parts, as one word."""
    return tuple("".join(word) for word in product(*parts))
