"""Targets that the user names: which kind each is on this host, and how a stack begins on it."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vdisklab.errors import CommandError, HostError, PlanError
from vdisklab.host.answering import answered, require_answer
from vdisklab.host.blockdevice import device_facts
from vdisklab.host.command import Host
from vdisklab.host.ledger import Kind
from vdisklab.host.mounts import mount_of
from vdisklab.host.pagecache import try_o_direct
from vdisklab.host.safe_places import require_safe
from vdisklab.path.backing import BackingDevices
from vdisklab.path.named_target import NamedTarget
from vdisklab.path.segments import LayerKind
from vdisklab.storage import remote
from vdisklab.storage.device import require_usable, whole_devices
from vdisklab.storage.server_url import url_of
from vdisklab.storage.site import Site, require_room
from vdisklab.storage.targets import WRITABLE, Directory, Target
from vdisklab.storage.undo import NOT_SEEN_YET
from vdisklab.value import replace

MOUNTED: Mapping[str, LayerKind] = {
    filesystem: kind
    for kind in LayerKind
    if kind.facts.target is not None
    for filesystem in kind.facts.target.filesystems
}
"""The kinds of directories that are not on this machine, by the file system in mountinfo."""


_MISNAMED = frozenset(map(os.strerror, (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)))
_READ_SECONDS = 30.0
"""How long a device may take to read a block."""


def with_kinds(host: Host, targets: Collection[NamedTarget]) -> tuple[NamedTarget, ...]:
    """The targets with the kind that each is on this host, and absolute file names.

    Raises HostError for a place that is neither a directory nor a block device, and PlanError for
    one disk or directory that has two names.
    """
    named: dict[str, NamedTarget] = {}
    for target_named in targets:
        target, identity = (
            _with_kind(host, target_named)
            if target_named.kind is None
            else (target_named, _node_of(target_named))
        )
        if (same := named.setdefault(identity, target)) is not target:
            raise PlanError(
                f"{same.name} and {target.name} are two names for one target, {target.place}",
                hint="name it once",
            )
    return tuple(named.values())


def _node_of(target: NamedTarget) -> str:
    try:
        return json.dumps(url_of(target, None).node, sort_keys=True)
    except PlanError:  # said when it is opened
        return target.place


def _with_kind(host: Host, target: NamedTarget) -> tuple[NamedTarget, str]:
    """The target, and what tells its directory or device from all others."""
    place = Path(target.place).absolute()
    named = f"{target.called}: {place}"
    try:
        require_answer(host, place)
        seen = host.run("stat", "-L", "-c", "%f %d:%i %t:%T", place).stdout
    except CommandError as error:
        raise _unusable(named, error) from error
    except HostError as error:
        raise HostError(f"{target.called}: {error.message}", hint=error.hint) from error
    bits, file, device = seen.split()
    mode = int(bits, 16)
    if stat.S_ISBLK(mode):
        is_krbd = place.resolve().name.startswith("rbd")
        kind = LayerKind.KRBD if is_krbd else LayerKind.DEVICE
        return replace(target, place=str(place), kind=kind), f"device {device}"
    if not stat.S_ISDIR(mode):
        raise HostError(
            f"{named} is neither a directory nor a block device",
            hint="name the directory of the images; vdisklab makes its own there",
        )
    mount = mount_of(place)
    kind = LayerKind.DIR if mount is None else MOUNTED.get(mount.filesystem, LayerKind.DIR)
    return replace(target, place=str(place), kind=kind), file


def _unusable(named: str, error: CommandError, *, was_there: bool = False) -> HostError:
    reason = error.stderr.strip().rpartition(": ")[2] or "unknown error"
    if "denied" in reason:
        hint = "let this user read it (NFS: no_root_squash for root)"
    elif was_there or reason not in _MISNAMED:
        hint = "mount or connect it again (`dmesg` says why it went), and run the same command"
    else:
        hint = "name a directory, a block device or a URL"
    return HostError(f"{named} cannot be used: {reason}", hint=hint)


def unanswered(host: Host, target: NamedTarget) -> HostError | None:
    """Why a directory's server or a device does not answer any more; None if it does."""
    named, place = f"{target.called}: {target.place}", Path(target.place)
    try:
        if target.holds_files:
            require_answer(host, place)
        else:
            # Of more than a logical block of any device.
            read = (f"if={place}", "of=/dev/null", "iflag=direct", "bs=65536", "count=1")
            seen = host.run("dd", "status=noxfer", *read, timeout=_READ_SECONDS)
            if "0+0 records in" in seen.stderr:  # /dev/nbd0 is there without a server, too
                raise CommandError(seen.argv, 0, "it has become empty")
    except CommandError as error:
        return _unusable(named, error, was_there=True)
    except HostError as error:
        return HostError(f"{target.called}: {error.message}", hint=error.hint)
    return None


def unwritable(site: Site, target: NamedTarget, backing: BackingDevices) -> HostError | None:
    """Why nothing can be written on a target that answers, tried as before a campaign: it has
    become read-only or full. None if it can, or if it is a block device.
    """
    try:
        if target.opened_by_qemu:
            remote.require_answer(site, target, backing)
        elif target.holds_files:
            answered(Path(target.place), Directory(Path(target.place)).usable)
    except HostError as error:
        named = "" if target.opened_by_qemu else f"{target.called}: "
        return HostError(f"{named}{error.message}", hint=error.hint)
    return None


@contextmanager
def given_target(
    site: Site, target: NamedTarget, backing: BackingDevices, needed: int
) -> Iterator[Target]:
    """The target below a stack, with room for `needed` bytes; nothing else there is touched."""
    if target.opened_by_qemu:
        with remote.remote_target(site, target, backing, needed) as opened:
            yield opened
    elif target.holds_files:
        with _own_directory(site, target, needed) as directory:
            yield directory
    else:
        with whole_devices(site, given_device(target, backing), 1, needed) as whole:
            seen = site.read_back(lambda: device_facts(whole.path))
            yield replace(whole, properties={**whole.properties, **seen})


def require_fit(site: Site, target: NamedTarget, backing: BackingDevices, needed: int) -> None:
    """Raises HostError if a disk that answers is too small, or may not be overwritten."""
    if target.opened_by_qemu:
        remote.require_fit(site, target, backing, needed)
    elif unanswered(site.host, target) is None:
        require_usable(site.host, given_device(target, backing), needed)


def given_device(target: NamedTarget, backing: BackingDevices) -> BackingDevices:
    """The devices below a stack whose only device is this target."""
    device = Path(target.place)
    destroy = (device,) if backing.may_destroy(target) else ()
    return BackingDevices(devices=(device,), destroy=destroy)


@contextmanager
def _own_directory(site: Site, target: NamedTarget, needed: int) -> Iterator[Directory]:
    """A new directory in the target's, which is removed with its contents at the end."""
    place = Path(target.place)
    private = place / f"{site.directory.name}.{target.name}"
    site.check(
        lambda: answered(place, lambda: _require_fit(target, place, needed, site.directory.name))
    )
    way = "name a directory of root's"
    site.check(lambda: answered(place, lambda: require_safe(place, target.called, way)))
    with site.tracked(Kind.DIRECTORY, private, **NOT_SEEN_YET), ExitStack() as stack:
        try:
            site.run("mkdir", "--mode=700", private)
        except CommandError as error:
            reason = error.stderr.strip().rpartition(": ")[2]
            raise HostError(
                f"{target.called}: nothing can be created in {place}: {reason}", hint=WRITABLE
            ) from error
        try:
            used = stack.enter_context(site.held(private))
        except OSError as error:
            raise HostError(
                f"{target.called}: {private} was just made and cannot be used by this user: "
                f"{error.strerror}",
                hint="let what this user makes there be this user's (NFS: no_root_squash; CIFS: "
                "uid=0), and leave it alone",
            ) from error
        yield Directory(
            used, site.read_back(lambda: answered(used, lambda: mount_properties(used)))
        )


def _require_fit(target: NamedTarget, place: Path, needed: int, private: str) -> None:
    """Raises HostError if another campaign, perhaps on another host, has its images there, or
    without room."""
    found = (entry.name for entry in place.glob("vdisklab-" + "[0-9a-f]" * 8 + "*"))
    others = sorted(name for name in found if not name.startswith(private))
    if others:
        raise HostError(
            f"{target.called}: another campaign uses {place}: it has {others[0]}",
            hint="wait until it ends; after a crash run `vdisklab clean` on the host that ran it, "
            f"or remove {place / others[0]}",
        )
    require_room(place, needed, target.called, "or free some space there")


def mount_properties(place: Path) -> dict[str, str]:
    """The file system of a directory as the kernel shows it: type, source and options."""
    mount = mount_of(place)
    if mount is None:
        return {"target.filesystem": "unknown"}
    return {
        "target.filesystem": mount.filesystem,
        "target.source": mount.source,
        "target.options": ",".join(sorted(mount.options)),
        "target.o_direct": "off" if try_o_direct(place) else "on",
    }
