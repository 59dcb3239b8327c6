"""What power cuts on this machine came to, one verdict for each path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vdisklab.cli.tables import Results
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import Cuts, PathVerdict, Verdicts, forgets_fua
from vdisklab.powercut.campaign import AccessKind
from vdisklab.powercut.clients.driver import DriverSetting
from vdisklab.powercut.judging.verdict import Outcome
from vdisklab.powercut.recording.trace import ClientKind
from vdisklab.results.model import HostFacts
from vdisklab.results.powercut import PowerCut


def stored_verdicts(results: Results, host: HostFacts) -> Verdicts:
    """The verdicts that hold for a host: of that machine, under that kernel and QEMU.

    Another QEMU or kernel is another path: what it lost or kept says nothing of this one.
    """
    return verdicts_of(
        each
        for each in results.power_cuts(host.machine_id)
        if (each.host.kernel, each.host.qemu) == (host.kernel, host.qemu)
    )


def verdicts_of(found: Iterable[PowerCut]) -> Verdicts:
    """The verdicts by path, apart for clients that flush and for one that does not."""
    verdicts: dict[str, PathVerdict] = {}
    for each in found:
        if each.failure is not None or each.survives is None or _alters_itself(each):
            continue
        if says_nothing_of_its_device(each):
            continue
        known = verdicts.get(each.path, PathVerdict(each.path))
        cuts = _cuts(each)
        verdicts[each.path] = (
            replace(known, unflushed=known.unflushed + cuts)
            if each.client == ClientKind.NEVER
            else replace(known, flushed=known.flushed + cuts)
        )
    return verdicts


def says_nothing_of_its_device(found: PowerCut) -> bool:
    """True when a path was judged without its device, and that device drops what was asked for.

    The block layer alone keeps what the guest would lose on the same path.
    """
    return found.access == AccessKind.NBD and forgets_fua(parse_path(found.path))


def _cuts(found: PowerCut) -> Cuts:
    broken = sum(count for outcome, count in found.outcomes.items() if Outcome(outcome).is_loss)
    # A broken promise is one, whatever the outcomes are called.
    return Cuts(found.states, max(broken, int(not found.survives)), found.exhaustive)


def _alters_itself(found: PowerCut) -> bool:
    """A guest that set its own disk's write cache says nothing of one that did not."""
    return bool(found.settings.get("driver", DriverSetting.AS_FOUND) != DriverSetting.AS_FOUND)
