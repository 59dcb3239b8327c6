"""Options of segments: what each may be, its default, and its canonical spelling."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from vdisklab.errors import PlanError
from vdisklab.path.segments import Aio, Bus, ImageFormat, LayerKind, WriteCache
from vdisklab.units import format_size, parse_size

OptionValue = str | int | bool


class OptionType(Protocol):
    """Reads and writes the values of one option."""

    @property
    def default(self) -> OptionValue | None:
        """The value when the option is left out; None when that is the system's own choice."""

    def parse(self, text: str) -> OptionValue:
        """The typed value; raises ValueError saying what was expected."""

    def format(self, value: OptionValue) -> str:
        """The one spelling of a value, which `parse` reads back."""

    def expected(self) -> str:
        """What may be written, for messages."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    choices: tuple[str, ...]
    default: OptionValue | None = None

    def parse(self, text: str) -> OptionValue:
        """The word itself."""
        if text not in self.choices:
            raise ValueError(self.expected())
        return text

    def format(self, value: OptionValue) -> str:
        """The word itself."""
        return str(value)

    def expected(self) -> str:
        """The words."""
        return "one of " + ", ".join(self.choices)


@dataclass(frozen=True, slots=True)
class Switch:
    """`on` or `off`."""

    default: OptionValue | None = False

    def parse(self, text: str) -> OptionValue:
        """True for on, False for off."""
        if text not in ("on", "off"):
            raise ValueError(self.expected())
        return text == "on"

    def format(self, value: OptionValue) -> str:
        """`on` or `off`."""
        return "on" if value else "off"

    def expected(self) -> str:
        """The two words."""
        return "on or off"


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number within bounds."""

    low: int
    high: int
    default: OptionValue | None = None

    def parse(self, text: str) -> OptionValue:
        """The number."""
        if not re.fullmatch(r"[0-9]{1,9}", text) or not self.low <= int(text) <= self.high:
            raise ValueError(self.expected())
        return int(text)

    def format(self, value: OptionValue) -> str:
        """The digits."""
        return str(value)

    def expected(self) -> str:
        """The bounds."""
        return f"a whole number from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes within bounds, a power of two where asked."""

    low: int
    high: int
    power_of_two: bool = True
    default: OptionValue | None = None

    def parse(self, text: str) -> OptionValue:
        """The bytes."""
        if any(character.isspace() for character in text):
            raise ValueError(self.expected())
        try:
            size = parse_size(text)
        except PlanError:
            raise ValueError(self.expected()) from None
        if not self.low <= size <= self.high or (self.power_of_two and size & (size - 1)):
            raise ValueError(self.expected())
        return size

    def format(self, value: OptionValue) -> str:
        """The shortest exact spelling."""
        return format_size(int(value))

    def expected(self) -> str:
        """The bounds."""
        kind = "a power of two" if self.power_of_two else "a size"
        return f"{kind} from {format_size(self.low)} to {format_size(self.high)}"


@dataclass(frozen=True, slots=True)
class Name:
    """A name that the user gives to something."""

    default: OptionValue | None = None

    def parse(self, text: str) -> OptionValue:
        """The name itself."""
        if not NAME.fullmatch(text):
            raise ValueError(self.expected())
        return text

    def format(self, value: OptionValue) -> str:
        """The name itself."""
        return str(value)

    def expected(self) -> str:
        """What a name is made of."""
        return "a name of letters, digits and . + _ -, of at most 40 characters"


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,39}")
"""No character that a disk path or a shell would read as its own."""

Schema = Mapping[str, OptionType]

_NONE: Schema = {}

LAYER_OPTIONS: Mapping[LayerKind, Schema] = {
    LayerKind.EXT4: {
        "barrier": Switch(default=True),
        "data": Choice(("ordered", "writeback", "journal"), default="ordered"),
    },
    LayerKind.XFS: {"reflink": Switch(default=True)},
    LayerKind.BTRFS: {
        "barrier": Switch(default=True),
        "datacow": Switch(default=True),
        "compress": Choice(("no", "lzo", "zlib", "zstd"), default="no"),
    },
    LayerKind.TMPFS: _NONE,
    LayerKind.LVM: _NONE,
    LayerKind.LVMTHIN: _NONE,
    LayerKind.MD: {"level": Choice(("0", "1", "5", "10"), default="1")},
    LayerKind.ZFS: {
        "recordsize": Size(512, 16 << 20),
        "compression": Choice(("off", "on", "lz4", "lzjb", "zstd", "gzip"), default="off"),
        "sync": Choice(("standard", "always", "disabled"), default="standard"),
        "primarycache": Choice(("all", "metadata", "none"), default="all"),
        "ashift": Number(9, 16, default=12),
        "raid": Choice(("single", "mirror", "raidz1", "raidz2"), default="single"),
    },
    LayerKind.ZVOL: {
        "volblocksize": Size(512, 128 << 10),
        "compression": Choice(("off", "on", "lz4", "lzjb", "zstd", "gzip"), default="off"),
        "sync": Choice(("standard", "always", "disabled"), default="standard"),
        "primarycache": Choice(("all", "metadata", "none"), default="all"),
        "ashift": Number(9, 16, default=12),
        "raid": Choice(("single", "mirror", "raidz1", "raidz2"), default="single"),
    },
}

FORMAT_OPTIONS: Mapping[ImageFormat, Schema] = {
    ImageFormat.RAW: {"preallocation": Choice(("off", "falloc", "full"), default="full")},
    ImageFormat.QCOW2: {
        "preallocation": Choice(("off", "metadata", "falloc", "full"), default="full"),
        "cluster_size": Size(512, 2 << 20, default=64 << 10),
        "lazy_refcounts": Switch(),
        "compat": Choice(("0.10", "1.1"), default="1.1"),
    },
    ImageFormat.VMDK: _NONE,
    ImageFormat.VDI: _NONE,
    ImageFormat.VHDX: _NONE,
    ImageFormat.QED: _NONE,
    ImageFormat.NULL: _NONE,
}

_ANY_BUS: Schema = {
    "aio": Choice(tuple(Aio), default=Aio.THREADS.value),
    "write_cache": Choice(tuple(WriteCache), default=WriteCache.MODE.value),
    "discard": Choice(("ignore", "unmap"), default="ignore"),
    "qemu": Name(),
}
_THREADED: Schema = {"iothread": Switch(), "queues": Number(1, 64)}

BUS_OPTIONS: Mapping[Bus, Schema] = {
    Bus.VIRTIO: {**_ANY_BUS, **_THREADED},
    Bus.SCSI: {**_ANY_BUS, **_THREADED},
    Bus.NVME: {**_ANY_BUS, "queues": Number(1, 64)},
    Bus.IDE: _ANY_BUS,
    Bus.SATA: _ANY_BUS,
    Bus.USB: _ANY_BUS,
}
