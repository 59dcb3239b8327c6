"""The words with which each platform limits a disk's I/O, and those that a path can say.

A path says totals: throttle_iops=N and throttle_bps=SIZE. Limits of reads alone or
writes alone, bursts, and limits that several disks share are found and named, not merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any


@dataclass(frozen=True, slots=True)
class LimitWords:
    """One platform's words: by option of a path those that say it, and all others."""

    expressible: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...]

    def of_path(self, settings: Mapping[str, Any]) -> Mapping[str, object]:
        """The values that a path can say, by its option."""
        flat = dict(_flat(settings))
        return {
            option: next((flat[word] for word in words if word in flat), None)
            for option, words in self.expressible.items()
        }

    def beyond(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Each limit that is set and that a path cannot express, as written there."""
        return self._named(settings, self.others)

    def all(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Each limit that is set, of a disk whose path can say none."""
        return self._named(settings, (*_spellings(self.expressible), *self.others))

    def _named(self, settings: Mapping[str, Any], words: Iterable[str]) -> tuple[str, ...]:
        flat = dict(_flat(settings))
        return tuple(
            f"{word}={flat[word]}"
            for word in words
            if word in flat and str(flat[word]).strip() not in _none_of(word)
        )


def shared_group(word: str, name: object, of_all_disks: Iterable[object]) -> tuple[str, ...]:
    """The name of a group whose limits several disks share; nothing for a disk's own group."""
    return (f"{word}={name}",) if name and list(of_all_disks).count(name) > 1 else ()


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.") if not above else ()
        else:
            yield f"{above}{key}", value


def _none_of(word: str) -> tuple[str, ...]:
    """The values of no limit; a burst lasts a second unless its length is set."""
    return ("", "0", "0.0", "None", "1") if word.endswith("length") else ("", "0", "0.0", "None")


def _spellings(expressible: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for words in expressible.values():
        yield from words


def _rest(expressible: Mapping[str, tuple[str, ...]], words: Iterable[str]) -> LimitWords:
    known = set(_spellings(expressible))
    return LimitWords(expressible, tuple(word for word in words if word not in known))


def _joined(*parts: Iterable[str]) -> tuple[str, ...]:
    return tuple("".join(word) for word in product(*parts))


_PREFIXES = ("", "limits.", "throttling.", "x-")
_WAYS = ("-total", "-read", "-write")
_OLD_WAYS = ("", "_rd", "_wr")

QEMU = _rest(
    {
        "throttle_iops": (*_joined(_PREFIXES, ("iops-total",)), "iops"),
        "throttle_bps": (*_joined(_PREFIXES, ("bps-total",)), "bps"),
    },
    (
        *_joined(_PREFIXES, ("iops", "bps"), _WAYS, ("", "-max", "-max-length")),
        *_joined(_PREFIXES, ("iops-size",)),
        *_joined(("iops", "bps"), _OLD_WAYS, ("", "_max", "_max_length")),
        "iops_size",
    ),
)
"""ThrottleLimits of a throttle-group, also with `x-`; the options of -drive and -fsdev, and the
old ones that drive_new() renames (blockdev.c); BlockDeviceInfo of `query-block`."""

LIBVIRT = _rest(
    {"throttle_iops": ("total_iops_sec",), "throttle_bps": ("total_bytes_sec",)},
    (
        *_joined(
            ("total", "read", "write"), ("_bytes", "_iops"), ("_sec",), ("", "_max", "_max_length")
        ),
        "size_iops_sec",
    ),
)
"""The elements of <iotune> and <throttlegroup> (formatdomain.html)."""

PROXMOX = _rest(
    {"throttle_iops": ("iops",), "throttle_bps": ("bps",)},
    (
        *_joined(("iops", "bps"), _OLD_WAYS, ("", "_max", "_max_length", "_length")),
        *_joined(("mbps",), ("_rd", "_wr"), ("", "_max")),
        "mbps_max",
    ),
)
"""PVE::QemuServer::Drive; `mbps` is a path's too, but in megabytes."""

INCUS = LimitWords({}, ("limits.read", "limits.write", "limits.max"))
"""Of a disk device; limits.max is a limit of reads and another of writes."""
