"""The disk path: one name for one way of giving a guest a disk.

    HOST LAYERS (bottom first) / IMAGE FORMAT / CACHE MODE / BUS        zvol/ext4/qcow2/writeback
    HOST LAYERS / SHARE                                                  ext4/virtiofs
    HOST LAYERS / host                                                   ext4/host
    HOST LAYERS / PLATFORM                                               libvirt, ext4/libvirt

No name belongs to two kinds, so any segment may be omitted. The canonical spelling always has the
cache mode (but for a share, which has none), omits `virtio` without options and options at their
defaults, and sorts options.
"""

from __future__ import annotations

import difflib
import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import cached_property
from typing import Any

from vdisklab.as_text import AsText
from vdisklab.errors import PlanError
from vdisklab.path.options import OptionValue, Order, Schema
from vdisklab.path.platforms import spell_out
from vdisklab.path.segments import (
    BUS_OPTIONS,
    ERROR_POLICY,
    FORMAT_OPTIONS,
    HOST,
    Aio,
    Bus,
    CacheMode,
    ImageFormat,
    LayerKind,
    TargetFacts,
    WriteCache,
)
from vdisklab.units import whole_number
from vdisklab.value import Value, force_setattr, replace

Options = tuple[tuple[str, OptionValue], ...]
"""Options that differ from their defaults, sorted by name."""

EMPTY = "create"
"""The way of making a disk that is empty: without the template's data it is no choice."""


_SLIP = 0.8
"""How alike a word must be to an option to be taken for a slip of it (difflib)."""

_NBD_ADDRESS = (
    "name an NBD server as --target NAME=nbd://HOST:PORT/EXPORT, and write NAME/none as the path"
)

_STORAGE_WORDS: Mapping[str, LayerKind] = {
    "ceph": LayerKind.RBD, "librbd": LayerKind.RBD, "cifs": LayerKind.SMB,
    "gluster": LayerKind.GLUSTERFS, "nvmeof": LayerKind.DEVICE, "nvme-of": LayerKind.DEVICE,
    "nvmet": LayerKind.DEVICE, "multipath": LayerKind.DEVICE, "drbd": LayerKind.DEVICE,
    "san": LayerKind.ISCSI, "nas": LayerKind.NFS, "nfs4": LayerKind.NFS, "sshfs": LayerKind.SSH,
    "linstor": LayerKind.DEVICE, "fc": LayerKind.DEVICE, "nvme-tcp": LayerKind.DEVICE,
}  # fmt: skip
"""Words that people try for storage elsewhere, which are no names of kinds of targets."""


class PathSyntaxError(PlanError):
    """Raised for a text that is not a disk path; `position` counts characters from 1."""

    def __init__(self, text: str, position: int, problem: str, expected: str) -> None:
        self.text = text
        self.position = position
        super().__init__(f"{problem} at character {position} of {text!r}", hint=expected)


class _Kind(IntEnum):
    LAYER = 0
    IMAGE = 1
    CACHE = 2
    BUS = 3
    HOST = 4


def _vocabulary() -> dict[str, tuple[_Kind, Schema]]:
    vocabulary: dict[str, tuple[_Kind, Schema]] = {}
    vocabulary |= {kind.value: (_Kind.LAYER, kind.facts.options) for kind in LayerKind}
    vocabulary |= {form.value: (_Kind.IMAGE, FORMAT_OPTIONS[form]) for form in ImageFormat}
    vocabulary |= {mode.value: (_Kind.CACHE, {}) for mode in CacheMode}
    vocabulary |= {bus.value: (_Kind.BUS, BUS_OPTIONS[bus]) for bus in Bus}
    vocabulary[HOST] = (_Kind.HOST, {})
    return vocabulary


_WORDS: Mapping[str, tuple[_Kind, Schema]] = _vocabulary()


class _Segment:
    """The shared part of a layer, an image and a bus: options that fit the schema of its name."""

    __slots__ = ()

    options: Options

    @property
    @abstractmethod
    def name(self) -> str:
        """The word before the options."""

    def __post_init__(self) -> None:
        segment: Any = self  # each subclass is a struct
        schema = _WORDS[self.name][1]
        last = dict(self.options).items()  # of two values the later one holds
        changed = ((key, value) for key, value in last if value != schema[key].default)
        force_setattr(segment, "options", tuple(sorted(changed)))

    def option(self, name: str) -> OptionValue | None:
        """The requested value, or the default; None if the segment lacks the option."""
        value = dict(self.options).get(name)
        schema = _WORDS[self.name][1]
        return schema[name].default if value is None and name in schema else value

    def word(self, name: str) -> str:
        """The value of an option as it is spelled; `unset` without one."""
        value = self.option(name)
        return "unset" if value is None else _WORDS[self.name][1][name].format(value)

    def _number(self, name: str) -> int | None:
        value = self.option(name)
        return None if value is None else int(value)

    def _text(self, name: str) -> str | None:
        value = self.option(name)
        return None if value is None else str(value)

    def __str__(self) -> str:
        schema = _WORDS[self.name][1]
        spelled = (f"{key}={schema[key].format(value)}" for key, value in self.options)
        return ":".join([self.name, *spelled])


class Layer(_Segment, Value):
    """One host layer with its options."""

    kind: LayerKind
    options: Options = ()

    @property
    def name(self) -> str:
        """The word before the options."""
        return self.kind


class Image(_Segment, Value):
    """An image format with its options."""

    format: ImageFormat
    options: Options = ()

    @property
    def name(self) -> str:
        """The word before the options."""
        return self.format

    @property
    def is_thin(self) -> bool:
        """True when a new image (the base of a chain) is not fully allocated.

        qemu-img creates formats without a preallocation option as thin images.
        """
        return self.format.is_file and self.option("preallocation") != "full"

    @property
    def backing(self) -> int:
        """The number of overlays above the base image; 0 without a chain."""
        return self._number("backing") or 0

    @property
    def snapshots(self) -> int:
        """The number of internal snapshots."""
        return self._number("snapshots") or 0

    @property
    def bitmaps(self) -> int:
        """The number of persistent dirty bitmaps."""
        return self._number("bitmaps") or 0

    @property
    def has_data_file(self) -> bool:
        """True for a qcow2 image whose file has only tables; its data is in a file beside it."""
        return self.option("data_file") not in (None, "off")

    @property
    def can_have_snapshots(self) -> bool:
        """True when QEMU can make internal snapshots: in qcow2 without an external data file.

        block/qcow2-snapshot.c, qcow2_snapshot_create; a raw data file makes no difference.
        """
        return self.format is ImageFormat.QCOW2 and not self.has_data_file

    @property
    def compressed(self) -> bool:
        """True for a qcow2 image whose clusters are compressed; guests' writes are not."""
        return self.option("compression") not in (None, "off")

    @property
    def encrypted(self) -> bool:
        """True for an image that QEMU encrypts with LUKS."""
        return self.option("encrypt") == "luks"

    @property
    def driver(self) -> str:
        """QEMU's block driver: `luks` for an encrypted raw image, else the format's own."""
        return "luks" if self.encrypted and self.format is ImageFormat.RAW else self.format.value

    @property
    def base(self) -> Image:
        """The lowest image of the chain: the same without overlays."""
        options = tuple(item for item in self.options if item[0] not in ("backing", "overlay"))
        return Image(self.format, options)

    @property
    def is_made_anew(self) -> bool:
        """True when a measurement changes what is allocated, so each run needs a new image."""
        return self.is_thin or self.backing > 0 or self.snapshots > 0 or self.compressed


class Attachment(_Segment, Value):
    """The bus that the guest sees the disk on, with its options."""

    bus: Bus = Bus.VIRTIO
    options: Options = ()

    @property
    def name(self) -> str:
        """The word before the options."""
        return self.bus

    @property
    def aio(self) -> Aio:
        """QEMU's interface to the host's kernel for I/O; a share is served by threads."""
        return Aio(str(self.option("aio") or Aio.THREADS))

    @property
    def write_cache(self) -> WriteCache:
        """The device's option `write_cache`; data written to a share always waits for fsync(2)."""
        return WriteCache(str(self.option("write_cache") or WriteCache.MODE))

    @property
    def iothread(self) -> bool:
        """True when the device has its own thread for requests."""
        return bool(self.option("iothread"))

    @property
    def qemu(self) -> str | None:
        """The name of the QEMU to run, or None for the installed one."""
        return self._text("qemu")

    @property
    def queues(self) -> int | None:
        """The number of request queues, or None for QEMU's own choice."""
        return self._number("queues")

    @property
    def iothreads(self) -> int | None:
        """The number of threads that share the queues, or None without such a mapping."""
        return self._number("iothreads")

    @property
    def block_size(self) -> int | None:
        """Bytes of a logical and physical block, or None for QEMU's own choice."""
        return self._number("block_size")

    @property
    def discard_granularity(self) -> int | None:
        """Bytes that the guest should discard together, or None for QEMU's own choice."""
        return self._number("discard_granularity")

    @property
    def guest_scheduler(self) -> str | None:
        """The I/O scheduler of the disk in the guest, or None for the guest's own choice."""
        return self._text("guest_scheduler")

    @property
    def guest_fs(self) -> str | None:
        """The file system for programs that use files, or None for the measurement's own.

        A share has its own.
        """
        return self.bus.value if self.bus.shares_directory else self._text("guest_fs")

    @property
    def guest_mount(self) -> tuple[str, ...]:
        """The options with which the guest mounts the file system on its disk, or its share."""
        value = self.option("guest_mount")
        options = () if value is None else tuple(str(value).split("+"))
        if self.bus is not Bus.P9:
            return options
        client = tuple(f"{name}={of}" for name, of in self.options if name in ("cache", "msize"))
        return ("trans=virtio", *client, *options)

    @property
    def guests(self) -> int | None:
        """The number of guests that are measured at once, each with its own disk of this path.

        None for one guest alone that is not measured as a group.
        """
        return self._number("guests")

    @property
    def during(self) -> str | None:
        """The operation in whose middle the guest is measured, as a user orders it; None without
        one."""
        value = self.option("during")
        return None if value is None else str(value).replace("+", ":")

    @property
    def made(self) -> str | None:
        """The way in which the disk is made from a template, as a user writes it; None for a disk
        that vdisklab fills and settles."""
        value = self.option("made")
        return None if value is None else str(value).replace("+", ":")

    @property
    def error_policy(self) -> Options:
        """What the path says of failed requests: `werror`, `rerror`."""
        return tuple(option for option in self.options if option[0] in ERROR_POLICY)

    @property
    def detect_zeroes(self) -> str:
        """How QEMU writes blocks of zeros: `off`, `on` or `unmap`."""
        return str(self.option("detect_zeroes") or "off")

    def announces_write_cache(self, mode: CacheMode) -> bool:
        """True when the guest's kernel sees a volatile write cache.

        QEMU's NVMe device always announces one (hw/nvme/ctrl.c, id->vwc).
        """
        return self.bus is Bus.NVME or self.write_cache.is_offered(mode)


class DiskPath(AsText, Value, dict=True):
    """One way of giving a disk to a guest, or (`on_host`) a workload on the host itself."""

    layers: tuple[Layer, ...] = ()
    image: Image | None = None
    cache: CacheMode = CacheMode.DEFAULT
    attachment: Attachment = Attachment()
    on_host: bool = False

    def __post_init__(self) -> None:
        if self.on_host and (self.image, self.cache, self.attachment) != (
            None, CacheMode.DEFAULT, Attachment(),
        ):  # fmt: skip
            raise ValueError("a path that ends in `host` has only host layers")

    @property
    def spelled_out(self) -> DiskPath:
        """The path itself; with `writeback`, which is QEMU's default, for `default`.

        Both are one configuration, except that a bus option may say more about the write cache.
        """
        return replace(self, cache=self.cache.spelled_out) if not self.on_host else self

    @cached_property
    def canonical(self) -> str:
        """The canonical spelling of this path, which `parse_path` accepts."""
        parts = [str(layer) for layer in self.layers]
        if self.on_host:
            return "/".join([*parts, HOST])
        if self.image is not None:
            parts.append(str(self.image))
        if not (self.shares_directory and self.cache is CacheMode.DEFAULT):
            parts.append(self.cache.value)
        if self.attachment != Attachment():
            parts.append(str(self.attachment))
        return "/".join(parts)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the path in joins and file names."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]

    @property
    def shares_directory(self) -> bool:
        """True when the guest sees a host directory instead of a disk."""
        return self.attachment.bus.shares_directory

    @property
    def gives_disk(self) -> bool:
        """True when a guest sees a disk; False for a host directory and for `host`."""
        return not (self.on_host or self.shares_directory)

    @property
    def target(self) -> TargetFacts | None:
        """The kind of storage that the user names, if the path begins with one."""
        return self.layers[0].kind.facts.target if self.layers else None

    @property
    def opened_by_qemu(self) -> bool:
        """True if one of QEMU's own drivers opens the target, so no kernel of the host does."""
        return self.target is not None and self.target.by_qemu

    @property
    def may_hold_formats(self) -> bool:
        """True for a disk on a server of which a path names the format, even raw."""
        return self.target is not None and self.target.takes_format

    @property
    def has_storage(self) -> bool:
        """False for the null device, which uses no storage of the host."""
        return self.image is None or self.image.format is not ImageFormat.NULL

    @property
    def is_guest_storage(self) -> bool:
        """True when a guest can keep data on it; False for `host`, for the null device, and for a
        disk without the template's data, which is measured for comparison alone."""
        return self.has_storage and not self.on_host and self.attachment.made != EMPTY

    @property
    def needs_direct_io(self) -> bool:
        """True when O_DIRECT must work on the stack; workloads on the host always use it."""
        return self.on_host or self.cache.direct

    @property
    def offers_write_cache(self) -> bool:
        """True when the device has a volatile write cache: data is durable after a flush only."""
        return self.attachment.write_cache.is_offered(self.cache)

    @property
    def guest_side(self) -> tuple[object, ...]:
        """The part that configures QEMU; equal for two paths with the same QEMU configuration.

        `writeback` with write_cache=off is `writethrough`. Host layers and image options are
        excluded, and what QEMU does when a request fails, which no request that succeeds shows.
        """
        attachment, mode = self.attachment, self.cache.spelled_out
        return (
            self.image and self.image.format,
            (mode.direct, mode.no_flush),
            attachment.write_cache.qemu_property(mode),
            attachment.bus,
            tuple(
                option
                for option in attachment.options
                if option[0] not in ("write_cache", *ERROR_POLICY)
            ),
        )

    @property
    def without_error_policy(self) -> DiskPath:
        """The path as it is while no request fails."""
        attachment = self.attachment
        if not attachment.error_policy:
            return self
        kept = tuple(option for option in attachment.options if option[0] not in ERROR_POLICY)
        return replace(self, attachment=Attachment(attachment.bus, kept))

    @property
    def stack(self) -> str:
        """The canonical host layers; an empty string for the work directory itself."""
        return "/".join(str(layer) for layer in self.layers)

    def __str__(self) -> str:
        return self.canonical


_KIND_NAMES = {
    _Kind.LAYER: "host layer",
    _Kind.IMAGE: "image format",
    _Kind.CACHE: "cache mode",
    _Kind.BUS: "bus",
    _Kind.HOST: "`host`",
}

_MAY_FOLLOW: Mapping[_Kind | None, tuple[_Kind, ...]] = {
    None: tuple(_Kind),
    _Kind.LAYER: tuple(_Kind),
    _Kind.IMAGE: (_Kind.CACHE, _Kind.BUS),
    _Kind.CACHE: (_Kind.BUS,),
    _Kind.BUS: (),
    _Kind.HOST: (),
}
"""The kinds that may follow each kind of segment; None is the start of the path."""


class _Token(Value):
    kind: _Kind
    name: str
    options: Options
    position: int


def parse_path(text: str) -> DiskPath:
    """The disk path that `text` spells; a platform's name gives the path of its default disk.

    Raises PathSyntaxError with the position and a hint.
    """
    text = spell_out(text)
    if not text.strip():
        raise PathSyntaxError(text, 1, "the path is empty", "write a path such as ext4/qcow2/none")
    if "://" in text or (text.startswith("/") and text[1:].partition("/")[0] not in _WORDS):
        hint = "name your storage with --target mine=PLACE, and write mine/raw/none"
        instead = _instead_of_file(text) or hint
        raise PathSyntaxError(text, 1, "a place instead of a path", instead)
    tokens: list[_Token] = []
    position = 1
    for part in text.split("/"):
        before = tokens[-1] if tokens else None
        tokens.append(_token(text, part, position, before))
        position += len(part) + 1
    return _assemble(tokens)


def has_known_names(text: str) -> bool:
    """True if each segment begins with a known name; any other text is not a path."""
    return all(part.partition(":")[0] in _WORDS for part in text.split("/"))


def _token(text: str, part: str, position: int, before: _Token | None) -> _Token:
    name, *settings = part.split(":")
    first = text.partition("/")[0]
    if name not in _WORDS and (way := _naming(first)):
        problem = f"unknown segment {name!r}" if name else "an empty segment"
        raise PathSyntaxError(text, position, problem, way)
    if not part:
        raise PathSyntaxError(
            text,
            position,
            "an empty segment",
            "write exactly one slash between two names and none at the ends; in braces put the "
            "slash next to the name, as in ext4/{raw/,}none",
        )
    if name not in _WORDS:
        problem, hint = _unknown_name(name, before, settings)
        raise PathSyntaxError(text, position, problem, _instead_of_file(text) or hint)
    kind, schema = _WORDS[name]
    if before is not None and kind not in _MAY_FOLLOW[before.kind]:
        raise PathSyntaxError(text, position, *_out_of_order(kind, name, before))
    options = _options(text, name, settings, position + len(name) + 1, schema)
    return _Token(kind, name, options, position)


def _options(
    text: str, segment: str, settings: list[str], position: int, schema: Schema
) -> Options:
    options: dict[str, OptionValue] = {}
    for setting in settings:
        ordered = _of_order(options, setting, schema)
        option, value = ordered or _option(text, segment, setting, position, schema)
        if option in options and ordered is None:
            problem = f"option {option!r} is given twice"
            raise PathSyntaxError(text, position, problem, "write it once")
        options[option] = value
        position += len(setting) + 1
    return tuple(options.items())


def _of_order(
    options: Mapping[str, OptionValue], setting: str, schema: Schema
) -> tuple[str, OptionValue] | None:
    """The order before a setting, with that setting as its own: `made=convert:zeroed=on`, as
    `--made` takes it. None for a setting of the segment, or one that looks like a slip of it."""
    last = next(reversed([*options]), None)
    name = setting.partition("=")[0]
    if last is None or not isinstance(schema[last], Order) or name in schema:
        return None
    if difflib.get_close_matches(name, schema, cutoff=_SLIP):
        return None
    with suppress(ValueError):
        return last, schema[last].parse(f"{options[last]}+{setting}")
    return None


def _option(
    text: str, segment: str, setting: str, position: int, schema: Schema
) -> tuple[str, OptionValue]:
    option, equals, value = setting.partition("=")
    if option not in schema:
        problem = f"{segment} has no option {option!r}" if option else "an empty option"
        raise PathSyntaxError(text, position, problem, _possible_options(segment, option, schema))
    if not equals:
        expected = f"write {option}=VALUE, where VALUE is {schema[option].expected}"
        raise PathSyntaxError(text, position, f"option {option!r} has no value", expected)
    try:
        return option, schema[option].parse(value)
    except ValueError as error:
        problem = f"{option}={value} is not possible for {segment}"
        place = position + len(option) + 1
        hint = f"expected {error}{_option_that_takes(value, option, schema)}"
        raise PathSyntaxError(text, place, problem, hint) from None


def _option_that_takes(value: str, option: str, schema: Schema) -> str:
    """Names an option with nearly the same name that takes the value, such as iothread=on."""
    for similar in difflib.get_close_matches(option, [*{*schema} - {option}], cutoff=0.85):
        with suppress(ValueError):
            schema[similar].parse(value)
            return f"; {similar}={value} is possible"
    return ""


def _possible_options(segment: str, option: str, schema: Schema) -> str:
    if not schema:
        # HOST:PORT of a server, which reads as the segment `host` with an option.
        return _NBD_ADDRESS if whole_number(option) is not None else f"{segment} takes no options"
    return f"{_did_you_mean(option, schema)}Possible for {segment}: {', '.join(schema)}"


def _unknown_name(name: str, before: _Token | None, settings: Sequence[str]) -> tuple[str, str]:
    """The problem and the hint for an unknown name; the hint has the most similar names."""
    kinds = _MAY_FOLLOW[None if before is None else before.kind]
    problem = f"unknown segment {name!r}"
    if "{" in name or "}" in name:
        # Complete braces have been expanded already.
        return problem, "a brace is not closed or holds no comma: write '{raw,qcow2}', in quotes"
    taken_for = _taken_for(settings) if before is None else None
    if taken_for is not None:
        return problem, taken_for
    if before is not None and not kinds:
        return problem, f"nothing may follow {_described(before.kind, before.name)}: end it here"
    by_kind = {kind: [word for word, (of, _) in _WORDS.items() if of is kind] for kind in kinds}
    lists = [
        _KIND_NAMES[kind] if kind is _Kind.HOST else f"{_KIND_NAMES[kind]} ({', '.join(names)})"
        for kind, names in by_kind.items()
    ]
    nearest = _did_you_mean(name, [word for names in by_kind.values() for word in names])
    after = "" if before is None else f" after {before.name}"
    named = "" if before is not None else f"; or storage that you name: --target {name}=PLACE"
    return problem, f"{nearest}Possible here{after}: {', '.join(lists)}{named}"


def _instead_of_file(text: str) -> str | None:
    """What to write instead of a file's name that was given as a path; None for others."""
    if text.endswith(".toml"):
        return f"a plan file is named with --plan {text}, and a profile with --profile {text}"
    if text.endswith(".fio"):
        return f"a job file is named with --profile {text}"
    if text.startswith(("./", "../", "~")):
        return (
            "a path says how a disk is made, such as raw/none; the directory in which its image is "
            "made is named with --dir DIR"
        )
    return None


def _taken_for(settings: Sequence[str]) -> str | None:
    """What to write instead of an address that was given as a path; None for others."""
    if settings and whole_number(settings[0]) is not None:
        return _NBD_ADDRESS
    return None


def _naming(word: str) -> str | None:
    """How to name the storage that a word stands for; None if vdisklab can build it, or nobody
    calls storage so."""
    kind = _STORAGE_WORDS.get(word) or (LayerKind(word) if word in set(LayerKind) else None)
    if kind is None or kind.facts.target is None:
        return None
    return (
        f"{word} is storage that you have, which vdisklab never builds: name it with --target "
        f"my{word}={kind.facts.target.example}, and write my{word}/raw/none"
    )


def _out_of_order(kind: _Kind, name: str, before: _Token) -> tuple[str, str]:
    if before.kind is _Kind.HOST:
        return f"{name!r} after `host`", "`host` ends a path: the workload runs on the host itself"
    if kind is _Kind.HOST:
        return (
            f"`host` after {_described(before.kind, before.name)}",
            "only host layers may precede `host`, as in ext4/host",
        )
    if kind is before.kind:
        return (
            f"a second {_KIND_NAMES[kind]}, {name!r}, after {before.name!r}",
            f"a path has one {_KIND_NAMES[kind]}; to measure both write {{{before.name},{name}}}",
        )
    return (
        f"{_described(kind, name)} after {_described(before.kind, before.name)}",
        "the order is host layers / image format / cache mode / bus",
    )


def _described(kind: _Kind, name: str) -> str:
    return _KIND_NAMES[kind] if kind is _Kind.HOST else f"{_KIND_NAMES[kind]} {name!r}"


def _did_you_mean(word: str, vocabulary: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.lower(), list(vocabulary), n=1, cutoff=0.5)
    return f"did you mean {close[0]}? " if close else ""


def some_are_alike(paths: Sequence[str]) -> bool:
    """True if two paths are one configuration in two spellings, such as raw/default and
    raw/writeback.

    Raises PathSyntaxError.
    """
    return len({parse_path(path).spelled_out for path in paths}) < len(paths)


def _assemble(tokens: list[_Token]) -> DiskPath:
    layers = tuple(
        Layer(LayerKind(token.name), token.options) for token in tokens if token.kind is _Kind.LAYER
    )
    image: Image | None = None
    cache = CacheMode.DEFAULT
    attachment = Attachment()
    for token in tokens:
        if token.kind is _Kind.IMAGE:
            image = Image(ImageFormat(token.name), token.options)
        elif token.kind is _Kind.CACHE:
            cache = CacheMode(token.name)
        elif token.kind is _Kind.BUS:
            attachment = Attachment(Bus(token.name), token.options)
    on_host = tokens[-1].kind is _Kind.HOST
    return DiskPath(layers, image, cache, attachment, on_host)
