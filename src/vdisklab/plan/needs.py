"""What an answer must satisfy: `durable`, `format=qcow2`, `bus=virtio`, `cache=none` and such."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import DiskPath
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, LayerKind
from vdisklab.plan.campaign import CampaignPlan, Dropped

DURABLE = "durable"


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that is asked of a path, as it was written. `why` tells what a path lacks."""

    text: str
    met: Callable[[DiskPath], bool]
    why: Callable[[DiskPath], str] = lambda _: ""


def parse_need(text: str) -> Need:
    """The need that `text` spells. Raises PlanError for anything else."""
    if text == DURABLE:
        return Need(text, keeps_flushes)
    key, equals, value = text.partition("=")
    if not equals or key not in _WORDS:
        raise PlanError(
            f"{text!r} is no need",
            hint=f"write {DURABLE}, or {', '.join(f'{k}=…' for k in _WORDS)}",
        )
    known, has = _WORDS[key]
    if value not in known:
        raise PlanError(f"{value!r} is no {key}", hint=f"possible: {', '.join(known)}")
    return Need(text, lambda path: has(path) == value or value in has(path).split("/"))


def keeps_flushes(path: DiskPath) -> bool:
    """True when nothing in the path is told to throw away what the guest asks to be kept.

    cache=unsafe drops the guest's flushes (qemu(1)); tmpfs lives in memory; ZFS with
    sync=disabled answers before data is stable (zfsprops(7)); barrier=0 and nobarrier leave the
    device's cache unflushed (ext4(5), btrfs(5)). `powercut` shows what a path really loses.
    """
    if path.cache.no_flush:
        return False
    for layer in path.layers:
        if layer.kind is LayerKind.TMPFS or layer.option("sync") == "disabled":
            return False
        if layer.option("barrier") is False:
            return False
    return True


def _layers(path: DiskPath) -> str:
    return "/".join(layer.kind.value for layer in path.layers)


def _format(path: DiskPath) -> str:
    return "" if path.image is None else path.image.format.value


_WORDS: Mapping[str, tuple[tuple[str, ...], Callable[[DiskPath], str]]] = {
    "format": (tuple(ImageFormat), _format),
    "cache": (tuple(CacheMode), lambda path: path.cache.value),
    "bus": (tuple(Bus), lambda path: path.attachment.bus.value),
    "layer": (tuple(LayerKind), _layers),
}


def only_with(plan: CampaignPlan, needs: Sequence[Need]) -> CampaignPlan:
    """The plan without the guests' paths that lack a need; those are listed as dropped.

    Paths on the host stay, as scores relate to them. Raises PlanError when no guest is left.
    """
    dropped = list(plan.dropped)
    kept = []
    for cell in plan.cells:
        lacking = [need for need in needs if not need.met(cell.path)]
        if cell.path.on_host or not lacking:
            kept.append(cell)
        else:
            why = lacking[0].why(cell.path)
            reason = f"it does not meet --need {lacking[0].text}{f': {why}' if why else ''}"
            gone = Dropped(cell.path.canonical, reason, "leave the need out to measure it")
            dropped += [] if gone in dropped else [gone]
    if not any(not cell.path.on_host for cell in kept):
        raise PlanError(
            f"no path meets {', '.join(need.text for need in needs)}",
            hint="ask for less, or name more paths",
        )
    return replace(plan, cells=tuple(kept), dropped=tuple(dropped))
