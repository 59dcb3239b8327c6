"""Needs: requirements on a disk path, in the same words for every option `--need`.

A new need is one member of `NeedKind` and one row of `_RULES`, which also feeds the help.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from vdisklab.as_text import AsText
from vdisklab.errors import PlanError
from vdisklab.path.backing import backing_below
from vdisklab.path.disk_path import Attachment, DiskPath, Image, Layer, Options, parse_path
from vdisklab.path.durability import (
    NOTHING_STORED,
    CrashVerdicts,
    DurabilityKind,
    FailureModel,
    durability,
    needs_no_flush,
)
from vdisklab.path.power_cut_words import RunOutcome
from vdisklab.path.rules import Impossible, impossible
from vdisklab.path.segments import BUS_OPTIONS, Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.path.stalls import OperationStall
from vdisklab.value import Value, replace

UNSAFE_HELP = "Paths that lose flushed data in a power cut qualify, too."
_EXAMPLE = "ext4/qcow2/none"
CONTRADICTION = "these needs contradict each other: leave one out"
FLUSH_AGAIN = (
    "mount it with barriers, or measure in another --dir; if its disk keeps its cache in a power "
    "cut, add --disk plp"
)
"""The hint where a file system below all paths sends no flushes."""

_CACHE_PREFERENCE = (
    CacheMode.NONE, CacheMode.DIRECTSYNC, CacheMode.WRITEBACK, CacheMode.WRITETHROUGH,
    CacheMode.DEFAULT, CacheMode.UNSAFE, CacheMode.DIRECTUNSAFE,
)  # fmt: skip

_NO_WRITE_CACHE: Options = (("write_cache", "off"),)
_DISCARDING: Options = (("discard", "unmap"),)
_STOPPING: Options = (("rerror", "stop"), ("werror", "stop"))
_PAUSING: Options = (("rerror", "report"), ("werror", "enospc"))


_CAME_OUT = {
    RunOutcome.READ_ONLY: "had a read-only file system",
    RunOutcome.RESTART: "had to be restarted",
    RunOutcome.REPAIR: "needed a repair of its file system",
    RunOutcome.HANGS: "hung for good",
    RunOutcome.DATABASE: "had a damaged database",
    RunOutcome.LOST: "lost what it had fsynced",
}


class NeedKind(StrEnum):
    """The needs, as users write them; the last four take a value: `format=qcow2`."""

    DURABLE = "durable"
    NO_FLUSH_SAFE = "no-flush-safe"
    DISPOSABLE = "disposable"
    BACKUP = "backup"
    SNAPSHOTS = "snapshots"
    DISCARD = "discard"
    LIVE_MIGRATION = "live-migration"
    SURVIVES_FULL = "survives-full"
    SURVIVES_ERRORS = "survives-errors"
    FORMAT = "format"
    CACHE = "cache"
    BUS = "bus"
    LAYER = "layer"


@dataclass(frozen=True, slots=True)
class Need(AsText):
    """One need; `value` is None for a kind that takes none.

    `implied` is True for the default need, which the user did not write.
    """

    kind: NeedKind
    value: str | None = None
    implied: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return self.kind.value if self.value is None else f"{self.kind}={self.value}"

    @property
    def meaning(self) -> str:
        """The requirement on the path, as a clause."""
        return _RULES[self.kind].meaning

    @property
    def goes_by_power_cuts(self) -> bool:
        """True when stored power cuts, if there are any, decide whether a path meets the need."""
        return self.kind in (NeedKind.DURABLE, NeedKind.NO_FLUSH_SAFE)

    @property
    def goes_by_error_policy(self) -> bool:
        """True when QEMU's error policy decides, unless failing storage was judged here."""
        return self.kind in (NeedKind.SURVIVES_FULL, NeedKind.SURVIVES_ERRORS)

    @property
    def goes_by_stalls(self) -> bool:
        """True when measured operations, if there are any, decide whether a path meets the need."""
        return self.kind in (NeedKind.BACKUP, NeedKind.SNAPSHOTS)

    @property
    def way_out(self) -> str:
        """The hint that tells how to allow paths that do not meet this need."""
        return "add --unsafe" if self.implied else f"leave out --need {self}"


DISPOSABLE = Need(NeedKind.DISPOSABLE)
"""The need of a guest that is thrown away, as in a CI: speed alone."""

DURABLE = Need(NeedKind.DURABLE, implied=True)
"""The need that every recommended path must meet, unless the user says `--unsafe`."""


def parse_need(text: str) -> Need:
    """Parses one need. Raises PlanError, which lists the known needs."""
    word, equals, value = text.partition("=")
    rule = _RULES.get(NeedKind(word)) if word in set(NeedKind) else None
    if rule is None or bool(equals) != bool(rule.values):
        raise PlanError(f"unknown need {text!r}", hint=f"write one of {NEED_WORDS}")
    if rule.values and value not in rule.values:
        raise PlanError(f"unknown {word} {value!r}", hint=f"possible: {', '.join(rule.values)}")
    return Need(NeedKind(word), value or None)


def parse_needs(texts: Iterable[str] | None) -> tuple[Need, ...]:
    """Parses the values of `--need`, without duplicates. Raises PlanError."""
    return tuple(dict.fromkeys(parse_need(text) for text in texts or ()))


def with_default(needs: Iterable[Need], *, unsafe: bool = False) -> tuple[Need, ...]:
    """The needs, and the default one: durable, unless the user wants `unsafe` paths, too.

    Raises PlanError if `unsafe` contradicts a need.
    """
    given = tuple(dict.fromkeys(needs))
    if unsafe and DURABLE in given:
        raise PlanError("--unsafe and --need durable contradict each other", hint="leave one out")
    unneeded = unsafe or DISPOSABLE in given or any(need.goes_by_power_cuts for need in given)
    return given if unneeded else (DURABLE, *given)


def lack(path: DiskPath, need: Need, verdicts: CrashVerdicts) -> str | None:
    """The reason why a path does not meet a need, as a clause; None if the path meets the need.

    A path without power cuts counts as durable unless a rule says otherwise.
    """
    return _RULES[need.kind].lack(path, need.value or "", verdicts)


def meets(path: DiskPath, need: Need, verdicts: CrashVerdicts) -> bool:
    """True when the path meets the need."""
    return lack(path, need, verdicts) is None


def unmet(path: DiskPath, needs: Iterable[Need], verdicts: CrashVerdicts) -> dict[Need, str]:
    """The needs that a path does not meet, with reasons; empty if it meets all."""
    reasons = ((need, lack(path, need, verdicts)) for need in needs)
    return {need: reason for need, reason in reasons if reason is not None}


_POLICIES: Mapping[NeedKind, Options] = {
    NeedKind.SURVIVES_FULL: _PAUSING,
    NeedKind.SURVIVES_ERRORS: _STOPPING,
}
"""QEMU's error policy that meets a need, mildest first."""


def _policy(kind: NeedKind, attachment: Attachment) -> Options:
    """The policy for a need; instead of `ignore` always the one that hides nothing."""
    hides = any(policy == "ignore" for _, policy in attachment.error_policy)
    return _STOPPING if hides else _POLICIES[kind]


def with_error_policy(path: DiskPath, needs: Iterable[Need], verdicts: CrashVerdicts) -> DiskPath:
    """The path with the error policy that these needs ask for; the same path if none is needed, or
    its bus has none.

    The policy only acts once a request has failed, so the path is as fast with it.
    """
    asked = {need.kind: need for need in needs}
    for kind in _POLICIES:
        if kind not in asked or "werror" not in BUS_OPTIONS[path.attachment.bus]:
            continue
        if not meets(path, asked[kind], verdicts):
            policy = _policy(kind, path.attachment)
            options = {**dict(path.attachment.options), **dict(policy)}
            attachment = replace(path.attachment, options=tuple(sorted(options.items())))
            path = replace(path, attachment=attachment)
    return path


def undecided(path: DiskPath, need: Need) -> bool:
    """True when unknown layers below the path could make it meet the need.

    Data counts as durable unless a rule or a power cut says otherwise, so this is never True for
    needs that go by power cuts.
    """
    rule = _RULES[need.kind]
    if not rule.by_layers or meets(path, need, CrashVerdicts()):
        return False
    stacks = [stack for kind in LayerKind if kind.facts.target is None for stack in _stacks(kind)]
    complete = (DiskPath((*stack, *path.layers), path.image) for stack in stacks)
    return any(
        meets(variant, need, CrashVerdicts()) and impossible(variant) is None
        for variant in complete
    )


def _loses_flushed_data(path: DiskPath, _value: str, verdicts: CrashVerdicts) -> str | None:
    judged = durability(path, verdicts)
    if judged.kind is DurabilityKind.LOST_IN_TEST:
        states = judged.states
        return f"it lost acknowledged writes in {states.lost} of {states.judged} power cuts"
    return judged.reason


def _loses_unflushed_data(path: DiskPath, value: str, verdicts: CrashVerdicts) -> str | None:
    reason = _loses_flushed_data(path, value, verdicts)
    if reason is None and not needs_no_flush(path, verdicts.disk):
        return "its device has a write cache, so a write waits for the guest's flush"
    return reason


def _stalls(path: DiskPath, need: NeedKind, verdicts: CrashVerdicts) -> str | None:
    """Why the mildest operation of its kind, as measured, held the guest for too long."""
    found = verdicts.stalls.too_long(path, need)
    if found is None:
        return None
    return f"{stall_in_words(found)}, and --stall allows {_wait(verdicts.stalls.limit)}"


def measured_stall(path: DiskPath, need: Need, verdicts: CrashVerdicts) -> str | None:
    """The measured stall by which a path meets the need, with the limit, as a clause; None for a
    need that goes by none, or if none was measured."""
    found = verdicts.stalls.mildest(path, need.kind) if need.goes_by_stalls else None
    if found is None:
        return None
    return f"{stall_in_words(found)}; --stall allows {_wait(verdicts.stalls.limit)}"


def stall_in_words(stall: OperationStall) -> str:
    """What stood still for how long in which operation, as a clause."""
    what = "write" if stall.of_writes else "request"
    on = f" on {stall.on}" if stall.on else ""
    return f"no {what} was completed for {_wait(stall.seconds)} in its {stall.operation}{on}"


def _wait(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _stalls_in_backups(path: DiskPath, _value: str, verdicts: CrashVerdicts) -> str | None:
    if path.shares_directory or not path.has_storage:
        return "QEMU has no disk there that it could back up"
    return _stalls(path, NeedKind.BACKUP, verdicts)


def _has_no_snapshots(path: DiskPath, _value: str, verdicts: CrashVerdicts) -> str | None:
    if path.image is not None and path.image.can_have_snapshots:
        return _stalls(path, NeedKind.SNAPSHOTS, verdicts)
    if any(layer.kind.facts.makes_snapshots for layer in path.layers):
        return _stalls(path, NeedKind.SNAPSHOTS, verdicts)
    above = path.image is not None and path.has_storage and not path.shares_directory
    external = " (an external one turns its disk into a qcow2 overlay)" if above else ""
    return f"neither its format nor a host layer makes snapshots{external}"


def _ignores_discards(path: DiskPath, _value: str, _verdicts: CrashVerdicts) -> str | None:
    if not path.has_storage:
        return NOTHING_STORED
    if path.shares_directory:
        return None  # a file that the guest removes is removed on the host
    discard = path.attachment.option("discard")
    if discard != "unmap":
        return f"its bus has discard={discard}"
    # Linear volumes pass discards on to what could free the space.
    frees = (layer for layer in reversed(path.layers) if not layer.kind.facts.passes_discards)
    last = next(frees, None)
    if last is not None and last.option("discard") is False:
        return f"{last.kind} has discard=off"
    return None


def _cannot_migrate(path: DiskPath, _value: str, _verdicts: CrashVerdicts) -> str | None:
    if path.shares_directory:
        return f"QEMU does not migrate a guest that has mounted {path.attachment.bus}"
    # libvirt refuses to migrate a disk whose data may wait in the host's page cache.
    if not path.cache.direct:
        return f"cache mode {path.cache} leaves data in the host's page cache"
    if path.attachment.bus is Bus.NVME:
        return "QEMU marks its NVMe device as unmigratable"
    return None


def _does_not_survive(model: FailureModel, path: DiskPath, verdicts: CrashVerdicts) -> str | None:
    """Why a guest is not what it was after a failure of its storage: as judged here, else by QEMU's
    policy."""
    if not path.has_storage:
        return NOTHING_STORED
    stored = verdicts.on_failing_storage(path, model)
    if stored is not None:
        worst = RunOutcome(stored)
        return None if worst.is_harmless else f"its guest, under {model}, {_CAME_OUT[worst]}"
    attachment, full = path.attachment, model is FailureModel.STORAGE_FULL
    if "werror" not in BUS_OPTIONS[attachment.bus]:
        return f"QEMU passes every error on to a guest with a disk on {attachment.bus}"
    writes, reads = attachment.option("werror") or "enospc", attachment.option("rerror")
    wrong = [
        f"{name}={policy}"
        for name, policy, good in (
            ("werror", writes, ("stop", "enospc") if full else ("stop",)),
            ("rerror", reads, ("stop", "report") if full else ("stop",)),
        )
        if policy not in good
    ]
    if not wrong:
        return None
    ignored = any(policy == "ignore" for policy in (writes, reads))
    what = "hides errors from the guest" if ignored else "passes errors on to the guest"
    return f"QEMU {what} ({', '.join(wrong)})"


def _has_another_format(path: DiskPath, value: str, _verdicts: CrashVerdicts) -> str | None:
    if path.image is None:
        return "it has no image format"
    return None if path.image.format == value else f"its format is {path.image.format}"


def _has_another_cache(path: DiskPath, value: str, _verdicts: CrashVerdicts) -> str | None:
    return None if path.cache == value else f"its cache mode is {path.cache}"


def _has_another_bus(path: DiskPath, value: str, _verdicts: CrashVerdicts) -> str | None:
    return None if path.attachment.bus == value else f"its bus is {path.attachment.bus}"


def _has_no_such_layer(path: DiskPath, value: str, _verdicts: CrashVerdicts) -> str | None:
    if any(layer.kind == value for layer in path.layers):
        return None
    return f"its host layers are {path.stack}" if path.layers else "it has no host layer"


class _Rule(Value):
    """`values` are the values that a need accepts; empty for a need without a value.

    `by_layers` is True if a path may meet the need by its host layers alone.
    """

    meaning: str
    lack: Callable[[DiskPath, str, CrashVerdicts], str | None]
    values: tuple[str, ...] = ()
    by_layers: bool = False


_RULES: Mapping[NeedKind, _Rule] = {
    NeedKind.DURABLE: _Rule(
        "flushed data survives a power cut, as far as is known", _loses_flushed_data
    ),
    NeedKind.NO_FLUSH_SAFE: _Rule(
        "written data survives a power cut even if the guest never flushes", _loses_unflushed_data
    ),
    NeedKind.DISPOSABLE: _Rule(
        "the guest is thrown away, so only speed counts: data may be lost in a power cut",
        lambda _path, _value, _verdicts: None,
    ),
    NeedKind.BACKUP: _Rule(
        "no request waits for longer than --stall in a backup while the guest runs, if `run "
        "--during` measured that",
        _stalls_in_backups,
    ),
    NeedKind.SNAPSHOTS: _Rule(
        "the disk is qcow2 without a data file, or on a host layer that makes snapshots; and no "
        "request waits for longer than --stall in a snapshot, if `run --during` measured that",
        _has_no_snapshots,
        by_layers=True,
    ),
    NeedKind.DISCARD: _Rule("the guest's discards free space on the host", _ignores_discards),
    NeedKind.LIVE_MIGRATION: _Rule(
        "the image bypasses the host's page cache, and the device can migrate", _cannot_migrate
    ),
    NeedKind.SURVIVES_FULL: _Rule(
        "a guest whose storage is full goes on, whole, once it has been grown",
        lambda path, _value, verdicts: _does_not_survive(FailureModel.STORAGE_FULL, path, verdicts),
    ),
    NeedKind.SURVIVES_ERRORS: _Rule(
        "a guest whose storage has failed goes on, whole, when it is good again",
        lambda path, _value, verdicts: _does_not_survive(
            FailureModel.STORAGE_ERROR, path, verdicts
        ),
    ),
    NeedKind.FORMAT: _Rule("this image format", _has_another_format, tuple(ImageFormat)),
    NeedKind.CACHE: _Rule("this cache mode", _has_another_cache, tuple(CacheMode)),
    NeedKind.BUS: _Rule("this bus", _has_another_bus, tuple(Bus)),
    NeedKind.LAYER: _Rule("this host layer", _has_no_such_layer, tuple(LayerKind), by_layers=True),
}

NEED_WORDS = ", ".join(f"{kind}=…" if rule.values else kind for kind, rule in _RULES.items())
"""All needs as users write them, for help texts and hints."""


def needs_help(sentence: str) -> str:
    """The help text of an option `--need`: `sentence` and the list of needs."""
    return f"{sentence}: {NEED_WORDS}; can be repeated."


def example_of(needs: Sequence[Need]) -> DiskPath | None:
    """An example of a path that meets all needs; None if the needs contradict each other."""
    return nearest(parse_path(_EXAMPLE), needs, CrashVerdicts())


def nearest(
    path: DiskPath,
    needs: Sequence[Need],
    verdicts: CrashVerdicts,
    refusal: Callable[[DiskPath], Impossible | None] | None = None,
) -> DiskPath | None:
    """The possible path closest to `path` that meets all needs and has no `refusal`, or None.

    It may be the path of a whole device.
    """
    backing = backing_below(path)
    buses = _buses(path, needs)

    def cost(variant: DiskPath) -> tuple[bool, object]:
        # A bus that nobody named comes last: it is no remedy for writes that a power cut lost.
        return variant.attachment.bus not in buses, distance(path, variant)

    for variation in sorted(_variations(path, needs), key=cost):
        suits = impossible(variation, backing) is None and not unmet(variation, needs, verdicts)
        if suits and (refusal is None or refusal(variation) is None):
            return variation
    return None


def nearest_hint(
    path: DiskPath,
    needs: Sequence[Need],
    verdicts: CrashVerdicts,
    refusal: Callable[[DiskPath], Impossible | None] | None = None,
) -> str:
    """The hint for a refused path: the nearest path that meets all needs, or why there is none.

    `refusal(path)` gives a clause, to follow the path's name, if the verb cannot use that path.
    """
    instead = nearest(path, needs, verdicts, refusal)
    if instead is not None:
        return f"the nearest path that meets all needs: {instead}"
    other = nearest(path, needs, verdicts)
    refused = None if other is None or refusal is None else refusal(other)
    if refused is not None:
        return f"{other} meets all needs, but it {refused.reason}; leave out a need"
    return CONTRADICTION if verdicts.without_flushes is None else FLUSH_AGAIN


def _buses(path: DiskPath, needs: Sequence[Need]) -> tuple[Bus, Bus]:
    named = {need.kind: need.value for need in needs}
    return path.attachment.bus, Bus(named.get(NeedKind.BUS) or Bus.VIRTIO)


def _variations(path: DiskPath, needs: Sequence[Need]) -> Iterator[DiskPath]:
    named = {need.kind: need.value or "" for need in needs}
    layers = [path.layers, *_stacks(named.get(NeedKind.LAYER))]
    images = [path.image, None, *(Image(form) for form in _formats(named.get(NeedKind.FORMAT)))]
    modes = [path.cache, *_CACHE_PREFERENCE]
    buses = _buses(path, needs)
    extras: list[Options] = [(), _NO_WRITE_CACHE]
    if NeedKind.DISCARD in named:
        extras += [(*extra, *_DISCARDING) for extra in extras]
    strictest_first = (NeedKind.SURVIVES_ERRORS, NeedKind.SURVIVES_FULL)
    asked = [kind for kind in strictest_first if kind in named]
    if asked:  # the strictest meets the others, too
        extras += [(*extra, *_policy(asked[0], path.attachment)) for extra in extras]
    # Also without the path's own options, because some of them contradict the needs.
    moved = (
        Attachment(bus, tuple(item for item in path.attachment.options if item[0] in schema))
        for bus in (*buses, Bus.SCSI)
        for schema in (BUS_OPTIONS[bus],)
    )
    attachments = [path.attachment, *(Attachment(bus) for bus in buses), *moved]
    for stack, image, mode, attachment, extra in itertools.product(
        dict.fromkeys(layers),
        dict.fromkeys(images),
        dict.fromkeys(modes),
        dict.fromkeys(attachments),
        extras,
    ):
        options = dict(attachment.options) | dict(extra)
        options_of_bus = tuple(
            item for item in options.items() if item[0] in BUS_OPTIONS[attachment.bus]
        )
        yield DiskPath(stack, image, mode, Attachment(attachment.bus, options_of_bus))


def _stacks(wanted: str | None) -> tuple[tuple[Layer, ...], ...]:
    ext4, btrfs = Layer(LayerKind.EXT4), Layer(LayerKind.BTRFS)
    if wanted is None:
        return (ext4,), (btrfs,)
    layer = Layer(LayerKind(wanted))
    return (layer,), (layer, ext4)


def _formats(wanted: str | None) -> tuple[ImageFormat, ...]:
    return (ImageFormat.QCOW2, ImageFormat.RAW) if wanted is None else (ImageFormat(wanted),)


def distance(path: DiskPath, other: DiskPath) -> int:
    """The difference of two paths: an option counts less than a segment, `write_cache` more."""
    segments = (
        path.layers != other.layers,
        path.cache is not other.cache,
        path.attachment.bus is not other.attachment.bus,
    )
    options = dict(set(path.attachment.options) ^ set(other.attachment.options))
    image = dict(set(_image_options(path)) ^ set(_image_options(other)))
    return (
        2 * sum(segments)
        + _format_distance(_format(path), _format(other))
        + sum(3 if name == "write_cache" else 1 for name in options)
        + (len(image) if _format(path) is _format(other) else 0)
    )


def other_format(path: DiskPath, other: DiskPath) -> bool:
    """True if two images store the guest's bytes differently; a device stores them as raw does."""
    return _format_distance(_format(path), _format(other)) > 1


def _format_distance(form: ImageFormat | None, other: ImageFormat | None) -> int:
    """A device without a format holds the same bytes as a raw image, so the two are alike."""
    if form is other:
        return 0
    return 1 if {form, other} == {None, ImageFormat.RAW} else 2


def _format(path: DiskPath) -> ImageFormat | None:
    return None if path.image is None else path.image.format


def _image_options(path: DiskPath) -> Options:
    return () if path.image is None else path.image.options
