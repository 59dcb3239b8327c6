"""Reads from QEMU and the guest's kernel how an attached disk is actually configured.

From a running QEMU's answers about a disk, only the members used here are read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from vdisklab.errors import GuestError, HostError
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu import block_nodes, daemons
from vdisklab.guest.qemu.probe import QemuVersion
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.guest.systems import GuestDisk
from vdisklab.path.segments import Aio, Bus
from vdisklab.results.model import Check, IoCounters
from vdisklab.validation import first_problem
from vdisklab.value import Value, replace

_Element = TypeVar("_Element", bound=BaseModel)
_RECORDED = ("nr_requests", "read_ahead_kb", "wbt_lat_usec")
_RING_PACKED = 34
"""VIRTIO_F_RING_PACKED, a bit of virtio's features (virtio 1.1, section 6)."""


class BlockLayer(Protocol):
    """A process with QEMU's block layer: QEMU with a guest, or its storage daemon."""

    @property
    def pid(self) -> int:
        """The number of the process."""

    @property
    def monitor(self) -> Channel:
        """The process's QMP monitor."""

    def query(self, command: str) -> Any:  # noqa: ANN401 - QMP returns any JSON value
        """The answer to a QMP query."""


class CacheModes(BaseModel):
    """BlockdevCacheInfo of qapi/block-core.json."""

    direct: bool
    no_flush: bool = Field(alias="no-flush")
    writeback: bool


class Inserted(BaseModel):
    """BlockDeviceInfo: the node below a device. `drv` is the driver, that is, the format."""

    drv: str
    cache: CacheModes


class NamedNode(BaseModel):
    """An element of query-named-block-nodes: `drv` is the node's driver."""

    node_name: str = Field("", alias="node-name")
    drv: str
    detect_zeroes: str
    cache: CacheModes


class _Statistics(BaseModel):
    """BlockDeviceStats: a device's counters since it was plugged."""

    rd_bytes: int
    wr_bytes: int
    rd_operations: int
    wr_operations: int
    flush_operations: int
    rd_total_time_ns: int
    wr_total_time_ns: int
    flush_total_time_ns: int

    @property
    def counters(self) -> IoCounters:
        """The same as counters, with seconds."""
        times = (self.rd_total_time_ns, self.wr_total_time_ns, self.flush_total_time_ns)
        return IoCounters(
            self.rd_bytes, self.wr_bytes, self.rd_operations, self.wr_operations,
            self.flush_operations, *(time / 1e9 for time in times),
        )  # fmt: skip


class _Device(BaseModel):
    qdev: str = ""


class _Block(_Device):
    """BlockInfo, an element of query-block."""

    inserted: Inserted | None = None


class _BlockStats(_Device):
    """BlockStats, an element of query-blockstats."""

    stats: _Statistics


class IoThread(BaseModel):
    """IOThreadInfo, an element of query-iothreads; `settings` by QEMU's names."""

    id: str
    poll_max_ns: int = Field(0, alias="poll-max-ns")
    aio_max_batch: int = Field(0, alias="aio-max-batch")

    @property
    def settings(self) -> dict[str, int]:
        """The properties that a path may set."""
        return {"poll-max-ns": self.poll_max_ns, "aio-max-batch": self.aio_max_batch}


_Of = TypeVar("_Of", bound=_Device)


def inserted_node(machine: Machine, device: str) -> Inserted:
    """The node below a plugged device. Raises GuestError when QEMU does not list the device."""
    device_answer = _of_device(_query(machine, "query-block", _Block), device)
    if device_answer is None or device_answer.inserted is None:
        raise GuestError(f"QEMU accepted the disk {device} but does not list it")
    return device_answer.inserted


def device_statistics(machine: Machine, device: str) -> IoCounters | None:
    """A device's counters since it was plugged; None when QEMU does not list it."""
    answer = _of_device(_query(machine, "query-blockstats", _BlockStats), device)
    return None if answer is None else answer.stats.counters


def disk_statistics(machine: Machine, disk: block_nodes.Disk) -> IoCounters | None:
    """A disk's counters since it was plugged; None when QEMU does not list it.

    QEMU counts no flushes of NVMe since 6.2: nvme_flush in hw/nvme/ctrl.c lost its
    block_acct_start when it was made cancellable (38f4ac65ac88).
    """
    counted = device_statistics(machine, disk.names.device)
    if counted is None or disk.attachment.bus is not Bus.NVME or counted.flush_operations:
        return counted
    return replace(counted, flush_operations=None, flush_seconds=None)


def running_version(machine: BlockLayer) -> str:
    """The version of the running QEMU, in the same form as `probe_qemu` returns."""
    answer = machine.query("query-version")
    try:
        return str(QemuVersion.model_validate(answer))
    except ValidationError as error:
        raise GuestError(f"QEMU's answer to query-version is not as expected: {answer}") from error


def named_node(machine: BlockLayer, name: str) -> NamedNode:
    """A block node. Raises GuestError when QEMU does not list it."""
    nodes = _query(machine, "query-named-block-nodes", NamedNode)
    node = next((node for node in nodes if node.node_name == name), None)
    if node is None:
        raise GuestError(f"QEMU does not list the block node {name}")
    return node


def iothreads(machine: Machine) -> list[IoThread]:
    """QEMU's event loops besides the main loop."""
    return _query(machine, "query-iothreads", IoThread)


def _of_device(answers: Sequence[_Of], device: str) -> _Of | None:
    """QEMU lists virtio-blk-pci under the path of its inner virtio device, so the path is split."""
    return next((answer for answer in answers if device in answer.qdev.split("/")), None)


@cache
def _list_of(kind: type[_Element]) -> TypeAdapter[list[_Element]]:
    """The validator of a list. Cached: making one takes longer than parsing an answer."""
    return TypeAdapter(list[kind])  # type: ignore[valid-type]


def _query(machine: BlockLayer, query: str, kind: type[_Element]) -> list[_Element]:
    answer = machine.query(query)
    try:
        return _list_of(kind).validate_python(answer)
    except ValidationError as error:
        raise GuestError(
            f"QEMU's answer to {query} is not as expected: {first_problem(error)}"
        ) from error


class QemuTraces(Value):
    """QEMU's number of io_uring rings, according to /proc, and of event loops."""

    rings: int
    loops: int


def read_process(machine: Machine) -> QemuTraces:
    """Counts io_uring descriptors and event loops (the main loop and each iothread)."""
    return QemuTraces(_count_rings(machine.pid), 1 + len(iothreads(machine)))


def read_daemon(daemon: daemons.StorageDaemon, disk: block_nodes.Disk | None = None) -> QemuTraces:
    """Like `read_process`, for a daemon: it has one loop more, the iothread of the disk that it
    serves.
    """
    threads = disk is not None and disk.attachment.iothread
    return QemuTraces(_count_rings(daemon.pid), 1 + threads)


class ServingDaemon(Value):
    """The daemon that serves a disk, and its traces before it opened the disk."""

    daemon: daemons.StorageDaemon
    at_start: QemuTraces


def check_state(
    machine: Machine,
    disk: block_nodes.Disk,
    guest_disk: GuestDisk,
    at_start: QemuTraces,
    serving: ServingDaemon | None = None,
) -> tuple[Check, ...]:
    """Compares the requested state of this disk with the state that was read back.

    A disk on a served bus is opened by the daemon `serving`.

    `at_start` are QEMU's traces before its first disk was plugged. All disks of a guest must use
    the same aio mode: QEMU never closes an aio context, so later modes cannot be distinguished.
    """
    version = running_version(machine)
    checks = [
        Check("qemu.version", machine.config.version, version),
        Check("guest.size", str(disk.size), guest_disk.facts.get("size_bytes", "unknown")),
        *_check_fact(guest_disk, "guest.write_cache", "write_cache", _expected_write_cache(disk)),
    ]
    attachment = disk.attachment
    if serving is not None:
        checks += _check_served(serving, disk)
    else:
        checks += _check_block(machine, disk)
        if disk.filename is not None:
            checks.append(_check_direct(machine.pid, disk))
            seen = _seen_aio(machine.pid, read_process(machine), at_start)
            checks.append(Check("qemu.aio", attachment.aio, seen))
        checks += (
            Check(f"qemu.{name}", str(policy), str(_property(machine, disk.names.device, name)))
            for name, policy in attachment.error_policy
        )
        if attachment.iothread or attachment.iothreads is not None:
            checks += _check_threads(machine, disk)
        if block_nodes.throttle_limits(attachment):
            checks.append(_check_throttle(machine, disk))
    if attachment.queues is not None:
        queues = str(attachment.queues)
        checks += _check_fact(guest_disk, "guest.queues", "nr_hw_queues", queues)
    if attachment.block_size is not None:
        for fact in ("logical_block_size", "physical_block_size"):
            checks += _check_fact(guest_disk, f"guest.{fact}", fact, str(attachment.block_size))
    if attachment.discard_granularity is not None:
        fact, size = "discard_granularity", str(attachment.discard_granularity)
        checks += _check_fact(guest_disk, f"guest.{fact}", fact, size)
    checks += _check_ring(machine, disk, guest_disk)
    return tuple(checks)


def check_share(
    machine: Machine, disk: block_nodes.Disk, daemon: daemons.VirtiofsDaemon | None
) -> Iterator[Check]:
    """The directory's device in QEMU, and the daemon's options; its mount is read in the guest."""
    yield Check("qemu.version", machine.config.version, running_version(machine))
    tag = "tag" if daemon else "mount_tag"
    device = disk.names.device
    yield Check(f"qemu.{tag}", disk.serial, str(_property(machine, device, tag)))
    if daemon is not None:
        yield Check("virtiofsd.version", None, daemon.version)
        yield Check("virtiofsd.source", disk.directory, daemon.option("source"))
        yield Check("virtiofsd.cache", str(disk.attachment.option("cache")), daemon.option("cache"))


def _check_served(serving: ServingDaemon, disk: block_nodes.Disk) -> Iterator[Check]:
    """The image as the daemon opened it. The daemon has no query of iothreads, so their objects are
    read.

    The write cache is the export's; the guest's kernel shows it (`guest.write_cache`).
    """
    daemon, names, attachment = serving.daemon, disk.names, disk.attachment
    node = named_node(daemon, names.node)
    yield Check(f"{block_nodes.DAEMON}.version", None, running_version(daemon))
    yield Check("qemu.format", disk.driver, node.drv)
    yield Check("qemu.cache.direct", _word(disk.cache.direct), _word(node.cache.direct))
    yield Check("qemu.cache.no-flush", _word(disk.cache.no_flush), _word(node.cache.no_flush))
    if attachment.detect_zeroes != "off":
        yield Check("qemu.detect_zeroes", attachment.detect_zeroes, node.detect_zeroes)
    if disk.filename is not None:
        yield _check_direct(daemon.pid, disk)
        seen = _seen_aio(daemon.pid, read_daemon(daemon, disk), serving.at_start)
        yield Check("qemu.aio", attachment.aio, seen)
    (export,) = daemon.query("query-block-exports")
    yield Check("qemu.export", "vhost-user-blk", str(export.get("type")))
    settings = block_nodes.iothread_settings(attachment)
    if attachment.iothread:
        threads = daemon.monitor.execute("qom-list", {"path": "/objects"})
        thread = next((item["name"] for item in threads if item["name"] == names.iothread), "none")
        yield Check("qemu.iothread", names.iothread, thread)
    for name, value in settings.items():
        where = {"path": f"/objects/{names.iothread}", "property": name}
        yield Check(
            f"qemu.iothread.{name}", str(value), str(daemon.monitor.execute("qom-get", where))
        )
    if block_nodes.throttle_limits(attachment):
        yield _check_throttle(daemon, disk)


def _check_fact(
    guest_disk: GuestDisk, name: str, fact: str, requested: str | None
) -> tuple[Check, ...]:
    """Checks one fact of the disk; no check if this kind of guest cannot report it."""
    if fact in guest_disk.hidden:
        return ()
    return (Check(name, requested, guest_disk.facts.get(fact, "unknown")),)


def _expected_write_cache(disk: block_nodes.Disk) -> str:
    announced = disk.attachment.announces_write_cache(disk.cache)
    return "write back" if announced else "write through"


def _check_block(machine: Machine, disk: block_nodes.Disk) -> tuple[Check, ...]:
    inserted = inserted_node(machine, disk.names.device)
    cache = inserted.cache
    return (
        *_check_node(machine, disk, inserted.drv),
        Check("qemu.cache.direct", _word(disk.cache.direct), _word(cache.direct)),
        Check("qemu.cache.no-flush", _word(disk.cache.no_flush), _word(cache.no_flush)),
        Check("qemu.cache.writeback", _word(disk.offers_write_cache), _word(cache.writeback)),
        *_check_protocol(machine, disk),
    )


def _check_protocol(machine: Machine, disk: block_nodes.Disk) -> tuple[Check, ...]:
    """The driver that opens the server's disk or file, and its library's file, whose name has the
    version: before 6.0, libnfs can read ahead and cache."""
    if disk.source is None or disk.filename is not None:
        return ()
    driver = str(disk.source["driver"])
    node = named_node(machine, disk.names.file_node)
    file = re.compile(rf"/(lib{driver}\.so\S*)(?: \(deleted\))?$", re.MULTILINE)
    library = file.search(_maps(machine.pid))
    return (
        Check("qemu.protocol", driver, node.drv),
        *([Check("qemu.library", None, library[1])] if library else []),  # QEMU itself speaks NBD
    )


def _check_node(machine: Machine, disk: block_nodes.Disk, device_driver: str) -> tuple[Check, ...]:
    """Checks the format's driver, and the detection of zeros if the path sets it.

    The device of a throttled disk uses the filter, so QEMU must list the node below by its name.
    """
    attachment = disk.attachment
    if not block_nodes.throttle_limits(attachment) and attachment.detect_zeroes == "off":
        return (Check("qemu.format", disk.driver, device_driver),)
    node = named_node(machine, disk.names.node)
    detecting = Check("qemu.detect_zeroes", attachment.detect_zeroes, node.detect_zeroes)
    return (Check("qemu.format", disk.driver, node.drv), detecting)


def _check_throttle(machine: BlockLayer, disk: block_nodes.Disk) -> Check:
    """The limits of the throttle group; QEMU lists many, and 0 means unlimited."""
    group = disk.names.throttle
    limits = machine.monitor.execute("qom-get", {"path": f"/objects/{group}", "property": "limits"})
    seen = {name: number for name, number in limits.items() if name.endswith("-total") and number}
    requested = block_nodes.throttle_limits(disk.attachment)
    return Check("qemu.throttle", _spell(requested), _spell(seen))


def _spell(settings: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(settings.items()))


def _word(value: bool) -> str:
    return "on" if value else "off"


def _check_direct(pid: int, disk: block_nodes.Disk) -> Check:
    """O_DIRECT in the flags of all files of the image that QEMU holds open (proc(5), fdinfo)."""
    files = (disk.filename or "", *disk.parts.files)
    modes = {_word(bool(flags & os.O_DIRECT)) for file in files for flags in _open_flags(pid, file)}
    return Check("kernel.o_direct", _word(disk.cache.direct), "/".join(sorted(modes)) or "not open")


def _open_flags(pid: int, filename: str) -> list[int]:
    try:
        image_status = Path(filename).stat()
    except OSError as error:
        raise HostError(
            f"{filename} cannot be read: {error.strerror}",
            hint="keep other programs from removing files in the work directory during a campaign",
        ) from error
    return [
        flags
        for number in _descriptors(pid)
        if (flags := _flags_of(pid, number, image_status)) is not None
    ]


def _flags_of(pid: int, number: str, image_status: os.stat_result) -> int | None:
    """The flags of a descriptor; None if it refers to another file or has been closed."""
    try:
        if not _same_file(Path(f"/proc/{pid}/fd/{number}").stat(), image_status):
            return None
        text = Path(f"/proc/{pid}/fdinfo/{number}").read_text()
    except OSError:
        return None
    match = re.search(r"^flags:\s*([0-7]+)$", text, re.MULTILINE)
    return None if match is None else int(match[1], 8)


def _same_file(first: os.stat_result, other: os.stat_result) -> bool:
    if other.st_rdev:
        return first.st_rdev == other.st_rdev
    return (first.st_dev, first.st_ino) == (other.st_dev, other.st_ino)


def _seen_aio(pid: int, now: QemuTraces, at_start: QemuTraces) -> str:
    """The aio mode, recognised by a ring of libaio in memory or by io_uring descriptors.

    Each of QEMU's event loops may have a ring for polling; an additional ring belongs to the disk.
    """
    if _has_aio_ring(pid):
        return Aio.NATIVE
    polling = at_start.rings * now.loops // max(1, at_start.loops)
    return Aio.IO_URING if now.rings > polling else Aio.THREADS


def _has_aio_ring(pid: int) -> bool:
    """io_setup(2) maps its ring from a file that the kernel calls /[aio] (fs/aio.c)."""
    return any(line.endswith((" /[aio]", " /[aio] (deleted)")) for line in _maps(pid).splitlines())


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError as error:
        raise _gone(pid, error) from error


def _count_rings(pid: int) -> int:
    count = 0
    for number in _descriptors(pid):
        with contextlib.suppress(OSError):  # closed meanwhile
            link = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - not a path on disk
            count += link == "anon_inode:[io_uring]"
    return count


def _descriptors(pid: int) -> list[str]:
    try:
        return [entry.name for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError as error:
        raise _gone(pid, error) from error


def _gone(pid: int, error: OSError) -> GuestError:
    return GuestError(
        f"QEMU (process {pid}) has ended: {error.strerror}",
        hint="`dmesg` says whether the kernel killed it because memory ran out",
    )


def _check_threads(machine: Machine, disk: block_nodes.Disk) -> tuple[Check, ...]:
    """Checks the device's thread, or its queues' threads, and the settings of each."""
    names, attachment = disk.names, disk.attachment
    disk_threads = [thread for thread in iothreads(machine) if thread.id.startswith(names.iothread)]
    checks = []
    if attachment.iothread:
        seen = _property(machine, _controller(disk), "iothread")
        checks.append(Check("qemu.iothread", f"/objects/{names.iothread}", str(seen)))
    else:
        mapping = _property(machine, _controller(disk), "iothread-vq-mapping")
        used = {str(entry.get("iothread", "")).rpartition("/")[2] for entry in mapping or ()}
        threads = sorted(thread.id for thread in disk_threads if thread.id in used)
        checks.append(Check("qemu.iothreads", str(attachment.iothreads), str(len(threads))))
    settings = block_nodes.iothread_settings(attachment)
    if settings:
        own_settings = {
            _spell({name: thread.settings[name] for name in settings}) for thread in disk_threads
        }
        shown = " / ".join(sorted(own_settings))
        checks.append(Check("qemu.iothread_settings", _spell(settings), shown))
    return tuple(checks)


def guest_queue_checks(disk: block_nodes.Disk, guest_disk: GuestDisk) -> tuple[Check, ...]:
    """Checks of the requested scheduler and of the queue's other settings, as far as the guest
    shows them.
    """
    facts = {"scheduler": disk.attachment.guest_scheduler, **dict.fromkeys(_RECORDED)}
    return tuple(
        Check(f"guest.{name}", requested, guest_disk.facts.get(name, "unknown"))
        for name, requested in facts.items()
        if requested is not None or name in guest_disk.facts
    )


def _check_ring(
    machine: Machine, disk: block_nodes.Disk, guest_disk: GuestDisk
) -> tuple[Check, ...]:
    """The virtqueues: their size in QEMU, and packed rings as the guest's driver accepted them."""
    attachment = disk.attachment
    properties = block_nodes.CONTROLLER_PROPERTIES.get(attachment.bus, {})
    checks: list[Check] = []
    size = attachment.option("queue_size")
    if size is not None:
        seen = _property(machine, _controller(disk), properties["queue_size"])
        checks.append(Check("qemu.queue_size", str(size), str(seen)))
    if attachment.option("packed"):
        features = guest_disk.facts.get("virtio_features", "")
        accepted = features[_RING_PACKED : _RING_PACKED + 1]
        checks.append(Check("guest.packed_ring", "1", accepted or "unknown"))
    return tuple(checks)


def _controller(disk: block_nodes.Disk) -> str:
    names = disk.names
    return names.controller if disk.attachment.bus is Bus.SCSI else names.device


def _property(machine: Machine, device: str, name: str) -> Any:  # noqa: ANN401 - any JSON value
    return machine.monitor.execute(
        "qom-get", {"path": f"/machine/peripheral/{device}", "property": name}
    )
