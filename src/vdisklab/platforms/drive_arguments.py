"""Parses QEMU's arguments into what they make: block nodes, devices, objects.

`-blockdev`, `-object` and `-device` may be JSON or `key=value,…`; a `-drive` becomes the node that
QEMU makes of it, and `-set` and `-global` change other arguments.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vdisklab.errors import PlanError
from vdisklab.path.architecture import ARCHITECTURES, X86_64, Architecture
from vdisklab.path.named_target import names_device
from vdisklab.path.segments import CacheMode, WriteCache
from vdisklab.platforms.reading import is_deep, is_variable, one_of, refused_word
from vdisklab.platforms.unknown_words import is_replaced, parts_of, unknown_in
from vdisklab.units import whole_number
from vdisklab.value import Value, field

Settings = Mapping[str, Any]
"""One argument, or a member of it."""

FIRST_KEYS = {
    "blockdev": "driver", "object": "qom-type", "device": "driver", "fsdev": "fsdriver",
    "virtfs": "fsdriver", "export": "type", "nbd-server": "addr",
}  # fmt: skip
"""The key of a first value without one."""

_ALONE = re.compile(
    "h|help|version|nographic|snapshot|S|s|enable-[a-z-]+|no-[a-z0-9-]+|daemonize|nodefaults|"
    "nodefconfig|usb|full-screen|only-migratable|semihosting|mem-prealloc|preconfig|win2k-hack|"
    "sdl|curses|alt-grab|ctrl-grab|portrait|singlestep|localtime|rtc-td-hack|tdf"
)
"""The options without a value (qemu-options.hx)."""

_OPTION = re.compile("--?[a-z]")
_SHELL = re.compile(r"[;&|<>]|[0-9]?>+.*|&&|\|\|")
_OF_CALLER = re.compile(r"\$[@*]|\$\{[@*].*")
_UNKNOWN_WORD = re.compile(r"[$`]|\{\{")

UNKNOWN = "$"
"""The key of the words in a list of options that may be further options."""


CHANGES_OTHERS = "may change the others (-snapshot, -global)"
CHANGES_IT = "may change it (-snapshot, -global)"
"""What unknown arguments may do to the disks of a guest, as the end of a clause."""

MOST_CHANGES = 250
"""Options -set and -global of one guest: each may change each of its disks."""

_WHOLE_WORDS = ("", "drive", "device", "blockdev")
_DEVICES: Mapping[str, Settings] = {
    "virtio": {"driver": "virtio-blk-pci"},
    "ide": {"driver": "ide-hd", "unit": "0"},
}

_VIRT = re.compile(r"(?:^|[ ,=])virt(?:[-,. ]|$)")
_OTHER_MEDIA = ("floppy", "pflash")
_OWN_KEYS = re.compile(
    "if|id|media|index|bus|unit|cache|aio|format|file|snapshot|readonly|read-only|werror|rerror|"
    r"\$|serial|copy-on-read|discard|detect-zeroes|throttling|group|addr|driver|filename|"
    "(throttling[.])?(i?ops|bps)([-_].*)?"
)
"""The options of a -drive that are not its node's own."""


_SHOWN = 40
"""Characters of a variable that are shown."""


def is_on(value: object) -> bool:
    """True for the ways to say yes in JSON and in `key=value` (qapi/opts-visitor.c)."""
    return value is True or value in ("on", "yes", "true", "y")


def known_flag(settings: Mapping[str, object], name: str, what: str) -> bool:
    """True if a flag is on. Raises ValueError for a variable, whose value is not known."""
    value = settings.get(name)
    if is_variable(value):
        raise ValueError(
            f"its {what} is {str(value)[:_SHOWN]}, a variable whose value is not known"
        )
    return is_on(value)


def settings_of(value: object) -> Settings:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def keyed_settings(text: str, first: str) -> dict[str, Any]:
    """`driver,key=value,a.b=on` as nested settings; a value without a key is that of `first`.

    Two commas stand for one (qemu-option.c). A key that has a value and members keeps its value
    under the empty name: `cache=none,cache.direct=off`. Words that may be further options are
    those of UNKNOWN.
    """
    settings: dict[str, Any] = {}
    for number, spelled in enumerate(parts_of(text)):
        unknown, part = unknown_in(spelled, is_first=number == 0)
        if unknown:
            settings.setdefault(UNKNOWN, []).append(unknown)
        if not part:
            continue
        key, equals, value = part.partition("=")
        if not equals:
            if number:
                settings[key] = True
                continue
            key, value = first, part
        *above, last = key.split(".", 20)  # a hostile one has thousands
        inner = settings
        for name in above:
            below = inner.setdefault(name, {})
            if not isinstance(below, dict):
                inner[name] = below = {"": below}
            inner = below
        if isinstance(inner.get(last), dict):
            inner[last][""] = value
        else:
            inner[last] = value
    return settings


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text; None if the text is not one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: nested without end
        return None
    return value if isinstance(value, dict) and not is_deep(value) else None


def split_arguments(text: str) -> list[str]:
    """The words of arguments in a configuration; a broken quotation leaves one word, which no
    option has."""
    try:
        return shlex.split(text)
    except ValueError:
        return [f"-{text.lstrip('- ')} "]


def options_of(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each option without hyphens, with its value; a word that belongs to none has no name.

    Shell syntax after the command is left out.
    """
    position = 0
    while position < len(argv):
        word, following = argv[position], next(iter(argv[position + 1 : position + 2]), "-none")
        position += 1
        if _SHELL.fullmatch(word):
            return
        if word == "--":  # of the program that starts QEMU
            continue
        if not word.startswith("-") or word == "-":
            if word:
                yield "", word
        elif _ALONE.fullmatch(word.lstrip("-")) or _OPTION.match(following):
            yield word.lstrip("-"), ""
        else:
            yield word.lstrip("-"), following
            position += 1


class Arguments(Value):
    """The parts that a command line makes: `nodes` and `objects` by name, devices in order.

    `drives` are the names of the nodes that a -drive made. `unread` names arguments that may
    describe a disk and were not understood. `sockets` has the path of each chardev by its id,
    `groups` counts the nodes of each throttle group.
    """

    options: tuple[tuple[str, str], ...]
    nodes: Mapping[str, Settings]
    drives: frozenset[str]
    devices: tuple[Settings, ...]
    objects: Mapping[str, Settings]
    unread: tuple[str, ...] = ()
    program: str = ""
    sockets: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Why QEMU does not start, and the way out, by what is `unread`."""
    doubt: str = ""
    """Why all disks may have other settings, as a clause; empty if they have these."""

    @property
    def machine(self) -> str:
        """The machine's name: without `-machine` the program's default. Empty if unknown."""
        named = _machine_named(self.options)
        row = _row_of(self.program)
        return named or ("" if row is None or not self.program else row.default_machine)

    @property
    def has_virt(self) -> bool:
        """True for the machine `virt`, whose disks of type ide-hd can only be on AHCI."""
        return _VIRT.search(self.machine) is not None

    def all(self, flag: str) -> Iterator[Settings]:
        """The settings of all options of that name; those that cannot be read are left out."""
        return _settings_after(self.options, flag)


def arguments_of(argv: Sequence[str], program: str = "") -> Arguments:
    """Parses the words after a program's name; `program` tells the machine's architecture.

    Raises PlanError for more changes of other arguments than any guest has.
    """
    options = tuple(_changed(few_changes(argv)))
    unread: list[str] = list(_unread(options))
    drives = list(_drives(options, program))
    unread += [drive.problem for drive in drives if drive.problem]
    good = [drive for drive in drives if not drive.problem]
    nodes = {str(node.get("node-name")): node for node in _settings_after(options, "blockdev")}
    nodes |= {str(drive.node["node-name"]): drive.node for drive in good}
    globals_ = _by_driver(options)
    defaults = {str(drive.node["node-name"]): drive.defaults for drive in good}
    named = [*_settings_after(options, "device"), *(d.device for d in good if d.device)]
    devices = tuple(
        {
            **defaults.get(str(device.get("drive")), {}),
            **globals_.get(plain_driver(device), {}),
            **device,
        }
        for device in named
    )
    objects = {str(made.get("id")): made for made in _settings_after(options, "object")}
    chardevs = (keyed_settings(value, "backend") for flag, value in options if flag == "chardev")
    sockets = {str(each.get("id")): str(each.get("path")) for each in chardevs}
    groups = Counter(str(node.get("throttle-group", node.get("group"))) for node in nodes.values())
    refused = {drive.problem: drive.refused for drive in drives if drive.problem and drive.refused}
    return Arguments(
        options, nodes, frozenset(defaults), devices, objects, tuple(unread), program, sockets,
        groups, refused, _doubt(options),
    )  # fmt: skip


def _doubt(options: Iterable[tuple[str, str]]) -> str:
    """Why -set and -global, or what a shell puts in place of a word, may change any disk; empty if
    they change those that they name. A script's own arguments are none as a rule."""
    for flag, value in options:
        if flag in ("set", "global") and is_replaced(value.partition("=")[0]):
            return f"-{flag} {value[:_SHOWN]} may change it, whose words are not known"
        if not flag and _UNKNOWN_WORD.match(value) and not _OF_CALLER.fullmatch(value):
            return f"what stands for {value[:_SHOWN]} {CHANGES_IT}"
    return ""


def few_changes(argv: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The options. Raises PlanError if more of them change others than any guest has."""
    options = tuple(options_of(argv))
    if sum(flag in ("set", "global") for flag, _ in options) > MOST_CHANGES:
        raise PlanError(
            f"the arguments have -set and -global more than {MOST_CHANGES} times",
            hint="no guest needs so many: write the settings into the arguments that they change",
        )
    return options


def _changed(options: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The options with what `-set GROUP.ID.KEY=VALUE` says of them."""
    changes: dict[tuple[str, str], list[str]] = {}
    for group, name, *setting in (value.split(".", 2) for flag, value in options if flag == "set"):
        changes.setdefault((group, name), []).extend(setting)
    for flag, value in options:
        name = str(keyed_settings(value, first="").get("id")) if changes else ""
        yield flag, ",".join((value, *changes.get((flag, name), ())))


def _settings_after(options: Iterable[tuple[str, str]], flag: str) -> Iterator[Settings]:
    for name, value in options:
        if name != flag:
            continue
        if not value.startswith("{"):
            yield keyed_settings(value, first=FIRST_KEYS[flag])
        elif (settings := json_object(value)) is not None:
            yield settings


def _unread(options: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Clauses about arguments that may describe a disk and cannot be read."""
    for flag, value in options:
        if flag == "readconfig":
            yield (
                f"its configuration is in {value} (-readconfig), which is not read: its disks are "
                "not known"
            )
        elif flag in FIRST_KEYS and value.startswith("{") and json_object(value) is None:
            yield f"the JSON after -{flag} cannot be read, and may describe a disk"
        elif is_replaced(flag):
            yield f"a shell puts an option in place of -{flag}, which may describe a disk"
        elif flag in _WHOLE_WORDS and _UNKNOWN_WORD.match(value):
            more = "" if flag else f", and {CHANGES_OTHERS}"
            yield f"a shell puts arguments in place of {value}, which may describe a disk{more}"
        elif " " in flag:
            yield f"QEMU does not know the one argument '-{flag}', which may describe a disk"
        elif flag in ("sd", "mtdblock", "usbdevice") and (flag != "usbdevice" or "disk:" in value):
            yield f"vdisklab does not measure disks of -{flag}: {value}"


class Changes:
    """The changes that arguments beside a guest's disks make to them."""

    def __init__(self, argv: Sequence[str]) -> None:
        """Raises PlanError for more changes than any guest has."""
        options = few_changes(argv)
        self._of_drivers = _by_driver(options)
        self._set: dict[tuple[str, str], dict[str, str]] = {}
        for flag, value in options:
            if flag == "set":
                name, _, text = value.partition("=")
                match name.split(".", 2):
                    case [group, owner, key]:
                        self._set.setdefault((group, owner), {})[key] = text
                    case _:
                        pass

    def properties_of(self, device: Settings) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The properties that are set on a device: by -global on all with its driver, by -set on it
        alone."""
        of_device = self._set.get(("device", str(device.get("id"))), {})
        return self._of_drivers.get(plain_driver(device), {}), of_device

    def of_drive(self, name: str) -> Mapping[str, str]:
        """What `-set drive.NAME.KEY=VALUE` makes of the -drive with that name."""
        return self._set.get(("drive", name), {})


def beside_arguments(argv: Sequence[str]) -> Iterator[str]:
    """The words that change disks which a manager gives to QEMU beside these arguments, if it gives
    them as -drive: QEMU ignores -snapshot for -blockdev, and does not start with such a -set."""
    options = tuple(options_of(argv))
    drives = {keyed_settings(value, "file").get("id") for flag, value in options if flag == "drive"}
    for flag, value in options:
        group, *name = value.split(".")
        if flag == "snapshot":
            yield "-snapshot"
        elif flag == "set" and group == "drive" and drives.isdisjoint(name[:1]):
            yield f"-set {value}"


def drops_flushes(drive: Mapping[str, str]) -> bool:
    """True if these options of a -drive ignore flushes."""
    return drive.get("cache") == CacheMode.UNSAFE or is_on(drive.get("cache.no-flush"))


def _globals(options: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """The driver, property and value of each -global."""
    for flag, text in options:
        if flag != "global":
            continue
        settings = keyed_settings(text, first="")
        if "property" in settings:
            yield tuple(str(settings.get(key)) for key in ("driver", "property", "value"))  # type: ignore[misc] # three
        elif match := re.fullmatch(r"([^.=]+)\.([^=]+)=(.*)", text):
            yield match[1], match[2], match[3]


def plain_driver(device: Settings) -> str:
    """The driver without what says how the guest sees it: `virtio-blk-pci-non-transitional`."""
    driver = re.sub(r"-(non-)?transitional$", "", str(device.get("driver")))
    driver = re.sub(r"^(virtio-(?:blk|scsi))-(?:device|ccw)$", r"\1-pci", driver)
    aliases = {"scsi-disk": "scsi-hd", "virtio-blk": "virtio-blk-pci", "ide-drive": "ide-hd",
               "virtio-scsi": "virtio-scsi-pci"}  # fmt: skip
    return aliases.get(driver, driver)


def _by_driver(options: Iterable[tuple[str, str]]) -> Mapping[str, Mapping[str, str]]:
    """The properties that -global sets, by the plain name of their driver."""
    found: dict[str, dict[str, str]] = {}
    for driver, name, value in _globals(options):
        found.setdefault(plain_driver({"driver": driver}), {})[name] = value
    return found


_ACCEPTED = {"cache": ("none", "writeback", "writethrough", "directsync", "unsafe")}
"""The words of a -drive (bdrv_parse_cache_mode)."""


class _Drive(Value):
    """What a `-drive` stands for: its node, its device, and the settings that its device gets.

    `device` is empty with if=none, whose device has an argument of its own.
    """

    node: Settings
    defaults: Settings
    device: Settings
    problem: str | None = None
    refused: tuple[str, str] | None = None


def _drives(options: Sequence[tuple[str, str]], program: str) -> Iterator[_Drive]:
    """The disks of `-drive` and `-hda`…`-hdd`; CD-ROMs, floppies and firmware are left out."""
    machine = _machine_named(options)
    ahci = X86_64.machines["sata"] in machine
    usual = _usual_interface(machine, program)
    used: Counter[str] = Counter()
    for flag, value in options:
        if flag in _WHOLE_WORDS and _UNKNOWN_WORD.match(value):
            continue
        if flag in ("", "hda", "hdb", "hdc", "hdd"):
            settings: dict[str, Any] = {"file": value}
        elif flag == "drive":
            settings = keyed_settings(value, first="file")
        else:
            continue
        interface = str(settings.get("if", usual))
        said = settings.get("media", "disk")
        media = "hd" if said == "disk" or is_variable(said) else "cd"
        number = whole_number(str(settings.get("index", used[interface])))
        if number is None:  # QEMU does not start with it
            problem = f"the index {settings['index']!r} of its -drive is not a number"
            yield _Drive({}, {}, {}, problem)
            continue
        used[interface] = number + 1
        name = str(settings.get("id", _name(interface, media, number, ahci=ahci)))
        if media == "hd" and interface not in _OTHER_MEDIA:
            yield _drive(settings, name, interface, ahci=ahci)


def _name(interface: str, media: str, number: int, *, ahci: bool) -> str:
    """The name that QEMU gives a drive without an id, which `query-block` shows (drive_new)."""
    per_bus = {"ide": 1 if ahci else 2, "scsi": 7}.get(interface)
    if per_bus is None:
        return f"{interface}{number}"
    return f"{interface}{number // per_bus}-{media}{number % per_bus}"


def _usual_interface(machine: str, program: str) -> str:
    """The interface of a -drive that names none: MachineClass.block_default_type.

    Red Hat calls its program qemu-kvm on every architecture; then the machine tells it.
    """
    if "microvm" in machine:
        return "none"
    if _VIRT.search(machine) or program.endswith("qemu-system-s390x"):
        return "virtio"
    row = _row_of(program)
    return X86_64.default_interface if row is X86_64 else "the machine's own"


def _machine_named(options: Sequence[tuple[str, str]]) -> str:
    return " ".join(value for flag, value in options if flag in ("machine", "M"))


def _row_of(program: str) -> Architecture | None:
    """The row of a program's machines: x86 unless its name says another; None for one without."""
    if "qemu-system-" not in program:
        return X86_64
    arch = program.rpartition("qemu-system-")[2]
    return next((row for row in ARCHITECTURES if arch in row.emulator_targets), None)


def _drive(options: Settings, name: str, interface: str, *, ahci: bool) -> _Drive:
    """The nodes that blockdev_init() makes (blockdev.c); without format= QEMU looks at the file,
    so `probed` is True. An interface that is not known becomes the device's driver."""
    try:
        cache, write_cache = _cache_of(options.get("cache"))
        node = _node(options, name)
    except ValueError as error:
        refused = refused_word("QEMU", _ACCEPTED, {"cache": _cache_word(options.get("cache"))})
        return _Drive({}, {}, {}, f"-drive {name}: {error}", refused)
    if cache is not None:
        node["cache"] = cache
    defaults = {key: options[key] for key in ("werror", "rerror") if key in options}
    if write_cache is not None:
        defaults["write-cache"] = write_cache.value
    device = {} if interface == "none" else _DEVICES.get(interface, {"driver": interface})
    if ahci and interface == "ide":  # AHCI has no units
        device = {"driver": "ide-hd"}
    return _Drive(node, defaults, {**device, "drive": name, "id": name} if device else {})


def _node(options: Settings, name: str) -> dict[str, Any]:
    """The format's node of a -drive, with the file's node in it. Raises ValueError."""
    format_node = {key: value for key, value in options.items() if not _OWN_KEYS.fullmatch(key)}
    file = options.get("file")
    inner = dict(settings_of(file))
    filename = str(inner.pop("", options.get("filename", "")) if inner else file or "")
    form = options.get("format", options.get("driver"))
    if filename.startswith("json:"):
        spelled = json_object(filename[5:])
        if spelled is None:
            raise ValueError("its JSON cannot be read")
        format_node = {**spelled, **format_node}
        form = form or spelled.get("driver")
    elif "driver" in options and "file" not in options:  # the node is the file's
        format_node["filename"] = options.get("filename")
    else:
        opened = _opened(str(inner.get("filename", filename)))
        format_node["file"] = {**opened, **inner} if filename or "driver" not in inner else inner
    throttling = settings_of(options.get("throttling"))
    discard = str(options.get("discard", format_node.get("discard", "off")))
    node = {
        **format_node,
        "node-name": name,
        "driver": str(form or "raw"),
        "probed": form is None,
        "discard": {"on": "unmap", "off": "ignore"}.get(discard, discard),
        "detect-zeroes": str(options.get("detect-zeroes", format_node.get("detect-zeroes", "off"))),
        "limits": options,
        "group": throttling.get("group", options.get("group")),
        "snapshot": options.get("snapshot"),
        "copy-on-read": options.get("copy-on-read"),
        "read-only": options.get(
            "read-only", options.get("readonly", format_node.get("read-only"))
        ),
    }
    if UNKNOWN in options:
        node[UNKNOWN] = options[UNKNOWN]
    if "aio" in options:
        node["aio"] = str(options["aio"])
    return node


def _opened(filename: str) -> dict[str, Any]:
    """The file's node for a name, which may begin with a protocol (block.c, path_has_protocol)."""
    # The colon of `${1:?image}` ends no protocol.
    match = re.fullmatch(r"((?>(?:\$\{[^}]*\}|[^/:])+)):(.*)", filename, re.DOTALL)
    if match is None:
        return {"driver": "host_device" if names_device(filename) else "file", "filename": filename}
    local = match[1] in ("file", "host_device")
    return {"driver": match[1], "filename": match[2] if local else filename}


def _cache_flags(setting: object) -> Mapping[str, object]:
    if isinstance(setting, dict):
        return setting
    return {} if setting is None else {"": setting}


def _cache_word(setting: object) -> str | None:
    """The word of `cache=`, for which `off` is another one."""
    word = _cache_flags(setting).get("")
    return None if word is None else {"off": "none"}.get(str(word), str(word))


def _cache_of(setting: object) -> tuple[dict[str, bool] | None, WriteCache | None]:
    """The flags of a drive's node and its device's write cache, from `cache=` and `cache.*`.

    Both are None where nothing is set. `cache=off` is `none` (bdrv_parse_cache_mode). Raises
    ValueError for an unknown word.
    """
    flags = _cache_flags(setting)
    word = _cache_word(setting) or str(CacheMode.DEFAULT)
    mode = CacheMode(one_of(word, tuple(CacheMode), "cache mode"))
    named = {
        name: known_flag(flags, name, f"cache.{name}")
        for name in ("direct", "no-flush")
        if name in flags
    }
    if mode is CacheMode.DEFAULT and not named and "writeback" not in flags:
        return None, None
    write_cache = WriteCache.MODE.qemu_property(mode.spelled_out)
    if "writeback" in flags:
        write_cache = WriteCache.ON if is_on(flags["writeback"]) else WriteCache.OFF
    return {"direct": mode.direct, "no-flush": mode.no_flush, **named}, write_cache
