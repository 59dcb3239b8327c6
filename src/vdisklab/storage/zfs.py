"""ZFS: a new pool with one dataset (`zfs`) or one volume (`zvol`)."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vdisklab.errors import CommandError, DirtyHostError, HostError
from vdisklab.host import blockdevice, ledger, syscalls, waiting
from vdisklab.host.command import Host
from vdisklab.host.counters import device_below, read_devices
from vdisklab.host.machine import read_text
from vdisklab.path.disk_path import Layer
from vdisklab.path.segments import LayerKind
from vdisklab.results.model import ZFS_FUSE
from vdisklab.storage.filesystem import require_mounted
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Device, Directory, Volume
from vdisklab.storage.undo import Removable, openers_of, retried
from vdisklab.units import format_bytes, whole_number
from vdisklab.value import replace

DATASET = "disk"
_NODE_SECONDS = 30.0
_RELEASE_SECONDS = 3.0
_START = "start zfs-fuse (service zfs-fuse start), or install ZFS's kernel module"
_INSTALL = "install zfsutils-linux and zfs-dkms (Debian's contrib); or try it in the lab"
# Options of a path that are dataset properties with the same name.
_PROPERTIES = (
    "recordsize", "volblocksize", "compression", "sync", "logbias", "primarycache", "direct",
)  # fmt: skip


_Pool = tuple[str, frozenset[str]]
"""The name of a pool, and the properties that its ZFS has."""

_TRIAL = 4 << 20
PARAMETER = Path("/sys/module/zfs/parameters/zfs_arc_max")
STATISTICS = Path("/proc/spl/kstat/zfs/arcstats")
_SETTLE_SECONDS = 10.0


@contextmanager
def _new_pool(site: Site, below: Device, layer: Layer, name: str) -> Iterator[_Pool]:
    """A pool on all members below, while the context is open."""
    pool = site.unique(name)
    site.check(lambda: _require_new_pool(site.host, pool))
    if layer.kind is LayerKind.ZVOL:
        site.check(_require_volumes)
    supported = known_properties(site.host, layer)
    with site.tracked_on(below.members, POOL, pool):
        create = pool_command(layer, pool, below.members, supported)
        site.run_uninterrupted(*create, timeout=120)
        yield pool, supported


@contextmanager
def dataset(
    site: Site, below: Device, layer: Layer, name: str, _capacity: int
) -> Iterator[Directory]:
    """A dataset in a new pool, mounted in the site's directory."""
    mountpoint = site.directory / name
    with site.tracked(ledger.Kind.DIRECTORY, mountpoint):
        site.run("mkdir", mountpoint)
        with (
            _new_pool(site, below, layer, name) as (pool, supported),
            site.tracked(ledger.Kind.MOUNT, mountpoint),
        ):
            create = dataset_command(layer, pool, mountpoint, supported)
            site.run_uninterrupted(*create, timeout=120)

            def read_back() -> dict[str, str]:
                require_mounted(mountpoint, "zfs")
                properties = _read_back(site.host, layer, pool, supported)
                return {**properties, "zfs.o_direct": directness(site, mountpoint, below.members)}

            top = below.file_system(mountpoint, site.read_back(read_back))
            yield replace(top, volume=Volume(f"{pool}/{DATASET}", below.members))


@contextmanager
def volume(site: Site, below: Device, layer: Layer, name: str, capacity: int) -> Iterator[Device]:
    """A ZFS volume of `capacity` bytes in a new pool, with its room reserved."""
    with _new_pool(site, below, layer, name) as (pool, supported):
        node = _volume_node(site, layer, f"{pool}/{DATASET}", capacity, supported)
        properties = site.read_back(lambda: _read_back(site.host, layer, pool, supported))
        volume = Volume(f"{pool}/{DATASET}", below.members)
        yield replace(below.device(node, properties), volume=volume)


@contextmanager
def another_volume(
    site: Site, below: Device, layer: Layer, name: str, *, size: int, guest: int
) -> Iterator[Path]:
    """The node of another volume in the pool that `volume` made under this name.

    The volume is removed with the pool.
    """
    del below
    supported = known_properties(site.host, layer)
    yield _volume_node(site, layer, f"{site.unique(name)}/{DATASET}{guest}", size, supported)


def _volume_node(site: Site, layer: Layer, name: str, size: int, supported: frozenset[str]) -> Path:
    site.run_uninterrupted(*volume_command(layer, name, size, supported), timeout=120)
    return site.node(Path("/dev/zvol") / name, _NODE_SECONDS)


def uses_zfs(layer: Layer) -> bool:
    """True for the layers that make a pool: a dataset or a volume."""
    return layer.kind in (LayerKind.ZFS, LayerKind.ZVOL)


def pool_command(
    layer: Layer, pool: str, members: Sequence[Path], supported: frozenset[str]
) -> tuple[str, ...]:
    """The command that creates the pool; without a cache file, nothing imports it after a boot.

    -f is needed only for members of different sizes; their contents were checked before.
    """
    raid = str(layer.option("raid"))
    kind = () if raid == "single" else (raid,)
    ashift = (
        ("-o", f"ashift={layer.option('ashift')}") if _wanted(layer, "ashift", supported) else ()
    )
    return (
        "zpool", "create", "-f", *ashift, "-o", "cachefile=none", "-O", "mountpoint=none",
        pool, *kind, *map(str, members),
    )  # fmt: skip


def dataset_command(
    layer: Layer, pool: str, mountpoint: Path, supported: frozenset[str]
) -> tuple[str, ...]:
    """The command that creates the dataset with the layer's properties, and mounts it."""
    place = ("-o", f"mountpoint={mountpoint}")
    return ("zfs", "create", *place, *_settings(layer, supported), f"{pool}/{DATASET}")


def volume_command(
    layer: Layer, volume: str, size: int, supported: frozenset[str]
) -> tuple[str, ...]:
    """The command that creates the volume POOL/NAME with the layer's properties."""
    return ("zfs", "create", "-V", str(size), *_settings(layer, supported), volume)


def known_properties(host: Host, layer: Layer) -> frozenset[str]:
    """The properties that this version of ZFS has, from the lists in its own help.

    Without ZFS, as in a plan for another host: all properties that the layer has options for.
    """
    if host.which("zpool") is None or host.which("zfs") is None:
        return frozenset(layer.kind.facts.options)
    usages = [host.run(program, "get", allowed=range(1, 3)).stderr for program in ("zpool", "zfs")]
    return parse_properties("\n".join(usages))


def parse_properties(usage: str) -> frozenset[str]:
    """Names in lines such as `ashift   YES   <ashift, 9-13>` of zpool's and zfs's help."""
    return frozenset(re.findall(r"^\s+([a-z][a-z_@.]*)\s+(?:YES|NO)\b", usage, re.MULTILINE))


def parse_raid(status: str) -> str:
    """How the members are joined, from `zpool status`: mirror, raidz1, …; else single."""
    actual = re.search(r"^\s+(mirror|raidz[123])-\d+\s", status, re.MULTILINE)
    return actual[1] if actual else "single"


def _wanted(layer: Layer, option: str, supported: frozenset[str]) -> bool:
    """Whether to set an option: it has a value, and this ZFS knows it or the path names it.

    A default that an old version lacks is not set; the actual value is read back.
    """
    if layer.option(option) is None:
        return False
    return option in supported or option in dict(layer.options)


def _settings(layer: Layer, supported: frozenset[str]) -> list[str]:
    schema = layer.kind.facts.options
    arguments: list[str] = []
    for option in _PROPERTIES:
        value = layer.option(option) if option in schema else None
        if value is not None and _wanted(layer, option, supported):
            # ZFS reads sizes as we write them: 64k, 1M
            arguments += ["-o", f"{option}={schema[option].format(value)}"]
    return arguments


def require_zfs(host: Host) -> tuple[str, ...]:
    """The names of the pools. Raises HostError if neither the kernel's ZFS nor zfs-fuse runs."""
    for program in ("zpool", "zfs"):
        if host.which(program) is None:
            raise HostError(f"{program} is not installed", hint=_INSTALL)
    if host.which("modprobe") is not None:
        host.run("modprobe", "--quiet", "zfs", allowed=range(256))
    try:
        return tuple(host.run("zpool", "list", "-H", "-o", "name").stdout.split("\n"))
    except CommandError as error:
        hint = _START if "zfs-fuse" in error.stderr else _INSTALL
        raise HostError(f"ZFS does not run here: {_first_line(error.stderr)}", hint=hint) from error


def _require_new_pool(host: Host, pool: str) -> None:
    if pool in require_zfs(host):
        raise HostError(f"the pool {pool} already exists", hint="try again")


def _require_volumes(module: Path = Path("/sys/module/zfs")) -> None:
    """Raises HostError for volumes without ZFS in the kernel.

    zfs-fuse serves the same programs, but only the kernel module creates block devices, and
    zfs-fuse may crash on the request.
    """
    if not module.exists():
        raise HostError(
            "volumes need ZFS in the kernel, but this host runs zfs-fuse", hint=_INSTALL
        )


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no answer")


def _read_back(host: Host, layer: Layer, pool: str, supported: frozenset[str]) -> dict[str, str]:
    schema, kind = layer.kind.facts.options, layer.kind.value
    names = [name for name in _PROPERTIES if name in schema and name in supported]
    text = host.run(
        "zfs", "get", "-H", "-p", "-o", "property,value", ",".join(names), f"{pool}/{DATASET}"
    ).stdout
    properties = {
        f"{kind}.{name}": _canonical(layer, name, value)
        for name, value in (line.split("\t") for line in text.splitlines())
    }
    properties[f"{kind}.raid"] = parse_raid(host.run("zpool", "status", pool).stdout)
    if "ashift" in supported:
        # the last line's third column; -H came with later versions
        line = host.run("zpool", "get", "ashift", pool).stdout.strip().splitlines()[-1]
        properties[f"{kind}.ashift"] = line.split()[2]
    properties |= {f"{kind}.{name}": value for name, value in _version_and_arc().items()}
    _require_asked(layer, properties)
    return properties


def _canonical(layer: Layer, name: str, value: str) -> str:
    """A property as paths spell it; `zfs get -p` prints bytes."""
    schema = layer.kind.facts.options
    number = whole_number(value)
    return value if number is None else schema[name].format(number)


def _version_and_arc() -> Mapping[str, str]:
    version = read_text(Path("/sys/module/zfs/version"))
    return ({} if version is None else {"version": version}) | arc_facts()


def _require_asked(layer: Layer, properties: Mapping[str, str]) -> None:
    schema = layer.kind.facts.options
    for option, value in layer.options:
        actual = properties.get(f"{layer.kind}.{option}")
        if actual != schema[option].format(value):
            raise HostError(
                f"{layer.kind} has {option}={actual} instead of {schema[option].format(value)}",
                hint="this version of ZFS does not support it; omit the option",
            )


def directness(site: Site, directory: Path, members: Sequence[Path]) -> str:
    """What O_DIRECT does in a directory: `refused`, `direct`, or `accepted, served from a cache`.

    A file system may accept the flag but serve requests from a cache (ZFS before 2.3). Some MiB are
    written and read back with O_DIRECT: if the devices below did not transfer them, a cache did.
    """
    if not Directory(directory).usable():
        return "refused"
    numbers = [number for member in members if (number := device_below(member)) is not None]
    file = directory / "o_direct.trial"
    with site.tracked(ledger.Kind.FILE, file):
        site.new_file(file)
        flags = os.O_RDWR | os.O_DIRECT
        with syscalls.opened(file, flags) as descriptor, mmap.mmap(-1, _TRIAL) as block:
            block[:] = os.urandom(_TRIAL)
            os.pwritev(descriptor, [block], 0)
            os.fsync(descriptor)
            before = read_devices(numbers)
            os.preadv(descriptor, [block], 0)
            after = read_devices(numbers)
    if before is None or after is None:
        return "accepted, and nobody counts below"
    read = after.since(before).read_bytes
    return "direct" if read >= _TRIAL else "accepted, served from a cache"


def parse_arcstats(text: str) -> dict[str, int]:
    """The counters of a kstat table: `name type data` lines after two of header."""
    rows = (line.split() for line in text.splitlines()[2:])
    return {row[0]: int(row[2]) for row in rows if len(row) == 3}


def arc_facts() -> dict[str, str]:
    """The present size and the limit of ZFS's cache in bytes; empty if the kernel does not report
    them.
    """
    text = read_text(STATISTICS)
    if text is None:
        return {}
    counters = parse_arcstats(text)
    return {"arc_size": str(counters["size"]), "arc_limit": str(counters["c_max"])}


@contextmanager
def limited_arc(site: Site, limit: int) -> Iterator[None]:
    """Limits the cache to `limit` bytes while the context is open.

    Raises HostError if the limit does not exist or ZFS does not follow it.
    """
    before = site.observe(_arc_setting, planned=("", ""))
    with site.tracked(ARC, PARAMETER, parameter=before[0], effective=before[1]):
        site.check(lambda: _limit_arc(limit))
        yield


def _arc_setting() -> tuple[str, str]:
    """The module's parameter, and the limit in effect."""
    facts, parameter = arc_facts(), read_text(PARAMETER)
    if not facts or parameter is None:
        raise HostError(
            "the size of ZFS's cache cannot be set here: the module is not loaded, or it is not "
            "the kernel's ZFS",
            hint="leave out --arc, or `modprobe zfs`",
        )
    return parameter, facts["arc_limit"]


def _limit_arc(limit: int) -> None:
    try:
        PARAMETER.write_text(str(limit))
    except OSError as error:
        raise HostError(
            f"{PARAMETER} cannot be written: {error.strerror}",
            hint="leave out --arc, or load the kernel's zfs module: only it has this parameter",
        ) from error
    waiting.wait_until(
        lambda: arc_facts()["arc_limit"] == str(limit),
        timeout=_SETTLE_SECONDS,
        what=f"limit of {format_bytes(limit)} on ZFS's cache (the kernel's log says why)",
    )


def destroy_pool(host: Host, entry: ledger.Entry) -> None:
    """Destroys a pool with its contents, and removes ZFS's labels from its members.

    Raises DirtyHostError if zfs-fuse has the pool and `zpool` does not reach it, as from another
    mount namespace: without its labels the pool would look as if it were gone.
    """
    members = blockdevice.recorded_devices(entry.detail["devices"])
    on_them = [name for name in filter(None, pools(host)) if _stands_on(host, name, members)]
    if entry.name in on_them:
        retried(host, ("zpool", "destroy", "-f", entry.name))
    elif on_them:
        return  # the devices belong to another pool
    nodes = [node for member in members for node in _with_partitions(member.resolve())]
    try:
        waiting.wait_until(
            lambda: not _users_of(nodes), timeout=_RELEASE_SECONDS, what=f"the pool {entry.name}"
        )
    except HostError as error:
        users = ", ".join(_users_of(nodes))
        pid = users.rpartition("(")[2].rstrip(")")
        raise DirtyHostError(
            f"the pool {entry.name} is in use by {users}, which `zpool` does not reach from here",
            hint=f"clean it in that mount namespace: nsenter --mount --target {pid} vdisklab clean",
        ) from error
    for member in members:
        _remove_labels(host, member, entry.name)


def _users_of(nodes: Collection[Path]) -> list[str]:
    """The zfs-fuse that has a device open; the kernel's ZFS shows none."""
    return [user for user in openers_of(nodes) if user.startswith(f"{ZFS_FUSE} ")]


def pools(host: Host) -> list[str]:
    """The imported pools; none if ZFS does not run."""
    if host.which("zpool") is None:
        return []
    listed = host.run("zpool", "list", "-H", "-o", "name", allowed=(0, 1)).stdout
    return listed.split("\n")


def _stands_on(host: Host, pool: str, members: tuple[Path, ...]) -> bool:
    """True if one of these devices, or a partition of one, is a member of a pool."""
    status = host.run("zpool", "status", pool).stdout.split()
    names = {node.name for member in members for node in _with_partitions(member)}
    return any(Path(word).name in names for word in status)


def _remove_labels(host: Host, member: Path, pool: str) -> None:
    """Removes ZFS's labels, and the partition table that ZFS writes on whole disks.

    One command removes both: after a kill between two commands, the table would remain without the
    label that identifies its owner.
    """
    nodes = _with_partitions(member)
    for node in nodes:
        labels = blockdevice.signatures(host, node)
        if any(label.kind == "zfs_member" and label.label == pool for label in labels):
            retried(host, ("wipefs", "--all", "--quiet", *map(str, nodes)))
            return


def _with_partitions(member: Path) -> list[Path]:
    """The partitions of a device, and the device last."""
    name = member.resolve().name
    parts = sorted(Path(f"/sys/class/block/{name}").glob("*/partition"))
    return [*(Path("/dev") / part.parent.name for part in parts), member]


def restore_arc(_host: Host, entry: ledger.Entry) -> None:
    """Writes back ZFS's limits; `detail` has the parameter's text and the limit in effect.

    A parameter of 0 means the default, and writing 0 changes nothing by itself, so the limit
    that was in effect is written first (arc_tuning_update of OpenZFS).
    """
    parameter = Path(entry.name)
    if not parameter.exists():
        return
    try:
        for value in (entry.detail["effective"], entry.detail["parameter"]):
            parameter.write_text(value)
    except OSError as error:
        raise DirtyHostError(f"{parameter} cannot be restored: {error.strerror}") from error
    if read_text(parameter) != entry.detail["parameter"]:
        raise DirtyHostError(f"{parameter} is {read_text(parameter)} after it was restored")


def destroy_dataset(host: Host, entry: ledger.Entry) -> None:
    """Destroys a dataset or volume POOL/NAME with its snapshots and what was cloned from them."""
    pool = entry.name.partition("/")[0]
    members = blockdevice.recorded_devices(entry.detail["devices"])
    if pool not in pools(host) or not _stands_on(host, pool, members):
        return
    there = host.run("zfs", "list", "-H", "-o", "name", "-t", "filesystem,volume").stdout.split()
    if entry.name in there:
        retried(host, ("zfs", "destroy", "-R", entry.name))


POOL = Removable("pool", destroy_pool)
DATASET_BESIDE = Removable("dataset", destroy_dataset)
ARC = Removable("limit of ZFS's cache", restore_arc)
REMOVES = (POOL, DATASET_BESIDE, ARC)
