"""Recordings: builds the stack on a logged disk, lets a client write, and keeps log and trace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from vdisklab.errors import PlanError, PowercutError
from vdisklab.guest.qemu.block_nodes import Disk, ImageParts, format_options
from vdisklab.guest.qemu.daemons import StorageDaemon
from vdisklab.host.ledger import Kind
from vdisklab.host.syscalls import freeze_and_thaw, opened, sync_filesystem, write_whole
from vdisklab.operations.operation import DiskOperation
from vdisklab.path import backing, durability, rules, segments
from vdisklab.path.disk_path import DiskPath, Image, Layer
from vdisklab.powercut import client, rebuild, recovery, sectors
from vdisklab.powercut.mid_run import OperationInMidRun, in_mid_run
from vdisklab.storage import disk_server, write_log
from vdisklab.storage.filesystem import wanted_mount_options
from vdisklab.storage.image import ImageFile, image_file
from vdisklab.storage.image_commands import create_command
from vdisklab.storage.logged_disk import LoggedDisk, logged_disk, logged_file
from vdisklab.storage.site import Site
from vdisklab.storage.stack import HOST_LAYERS
from vdisklab.storage.targets import Directory, Target, shared_directory
from vdisklab.storage.zfs import DATASET
from vdisklab.units import MIB, SECTOR
from vdisklab.value import Value, replace

IMAGE_BYTES = 8 * MIB
LOG_NAME, TRACE_NAME, KEY_NAME = "writes.log", "trace.json", "image.key"

_COPY_BYTES = MIB // 2
"""FUSE splits a longer write from memory that is not page-aligned within a sector."""
_SOURCE_SECTORS = 2048

Access = Callable[[Disk], AbstractContextManager[client.ClientDisk]]
"""Opens the disk for a client: over NBD, in a guest, from a boot sector."""


class Recording(Value):
    """A recorded run: a directory on this machine with the log and the trace."""

    directory: Path
    trace: client.Trace

    @property
    def log(self) -> Path:
        """The log of writes."""
        return self.directory / LOG_NAME

    @property
    def beside(self) -> tuple[str, ...]:
        """Files that no log holds: images of the chain below without a file system, and a key."""
        images = self.trace.backing if self.trace.filesystem == client.NO_FILESYSTEM else ()
        return (*images, *((KEY_NAME,) if self.trace.encrypted else ()))

    def remove(self) -> None:
        """Deletes the directory."""
        shutil.rmtree(self.directory)

    def copy_to(self, directory: Path) -> None:
        """Copies the recording to a new directory, without filling the log's holes.

        Raises PowercutError if the copy cannot be written, and removes the part written so far.
        """
        try:
            directory.mkdir(parents=True)
            for name in (LOG_NAME, *self.beside):
                _copy_sparse(self.directory / name, directory / name)
            shutil.copyfile(self.directory / TRACE_NAME, directory / TRACE_NAME)
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise PowercutError(
                f"the recording cannot be kept for --replay: {error.strerror}",
                hint=f"free some space in {directory.parent}, and judge again with --new",
            ) from error


def _copy_sparse(source: Path, target: Path, mode: str = "xb") -> None:
    with source.open("rb") as reading, target.open(mode) as writing:
        os.truncate(writing.fileno(), os.fstat(reading.fileno()).st_size)
        for begin, end in rebuild.stored_ranges(reading.fileno()):
            for offset in range(begin, end, _COPY_BYTES):
                data = os.pread(reading.fileno(), min(_COPY_BYTES, end - offset), offset)
                write_whole(writing.fileno(), [data], offset)


def open_recording(directory: Path) -> Recording:
    """Opens a kept recording. Raises PowercutError if it does not exist or is damaged."""
    try:
        content = (directory / TRACE_NAME).read_bytes()
    except OSError as error:
        raise PowercutError(
            f"{directory} holds no recording: {error.strerror}",
            hint="name a case as `vdisklab powercut` printed it; recordings of losses lie "
            "below powercut/ in the state directory",
        ) from error
    return Recording(directory, client.trace_from_json(content))


class RunSpec(Value):
    """The run to record: the path, the client's load, and how the disk is logged.

    `host_survives`: the image itself is logged, instead of the disk below the host's file system.
    """

    path: DiskPath
    load: client.Load
    access: str = "nbd"
    size: int = IMAGE_BYTES
    lies: disk_server.Lies = disk_server.HONEST
    direct_io: bool = True
    host_survives: bool = False
    during: DiskOperation | None = None


def make_recording(
    site: Site, spec: RunSpec, access: Access, directory: Path, daemon: StorageDaemon
) -> Recording:
    """Records one run into the new `directory`. The stack is removed before it returns.

    `daemon` is the QEMU that `access` uses; `spec.during` is done through its monitor.
    """
    directory.mkdir()
    log = directory / LOG_NAME
    record = _recorded_file if spec.host_survives else _recorded_stack
    with record(site, spec, directory.name, log) as stack:
        if stack.image.key_file is not None:
            shutil.copy(stack.image.key_file, directory / KEY_NAME)
        disk_spec = _guest_disk(spec, stack.image, directory.name)
        with (
            write_log.open_tail(log) as tail,
            access(disk_spec) as disk,
        ):
            operation = (
                None if spec.during is None else in_mid_run(spec.during, daemon, disk_spec, disk)
            )
            begin = tail.position()
            run = client.run_client(disk, tail, spec.load, spec.size // SECTOR, operation)
            end = tail.position()
            observed = {**stack.observed, **disk.observed}
        trace = client.Trace(
            path=spec.path.canonical,
            client=spec.load.kind,
            access=spec.access,
            filesystem=stack.filesystem,
            mount_options=stack.mount_options,
            image=stack.image_name,
            backing=tuple(file.name for file in stack.image.backing),
            data_file=None if stack.image.data_file is None else stack.image.data_file.name,
            encrypted=stack.image.key_file is not None,
            image_format=stack.image.format,
            image_size=spec.size,
            disk_size=stack.disk.size,
            filled=stack.filled,
            begin=begin,
            end=end,
            writes=run.writes,
            observed=observed,
            flushes=run.flushes,
            switch=_switch(stack, operation, run.finished),
        )
    (directory / TRACE_NAME).write_text(client.trace_to_json(trace))
    return Recording(directory, trace)


def without_switch(recording: Recording) -> Recording:
    """The same recording, as if the guest's configuration had changed only after the run."""
    switch = recording.trace.switch
    late = None if switch is None else replace(switch, position=recording.trace.end)
    trace = replace(recording.trace, switch=late)
    (recording.directory / TRACE_NAME).write_text(client.trace_to_json(trace))
    return Recording(recording.directory, trace)


def _switch(
    stack: _RecordedStack, operation: OperationInMidRun | None, finished: int | None
) -> client.ImageSwitch | None:
    if operation is None or finished is None:
        return None
    root = Path(stack.image_name).parent
    running = operation.running
    image, *below = (str(root / file.name) for file in running.files_after)
    new_format = None if running.driver_after == stack.image.format else running.driver_after
    images = client.Images(image, tuple(below), new_format)
    return client.ImageSwitch(finished, images, running.size_after)


def _guest_disk(spec: RunSpec, image: ImageFile, name: str) -> Disk:
    return Disk(
        serial=name[-20:],
        size=spec.size,
        source=image.node(),
        driver=image.format,
        cache=spec.path.cache,
        attachment=spec.path.attachment,
        parts=ImageParts(
            backing=tuple(map(str, image.backing)),
            data_file=None if image.data_file is None else str(image.data_file),
            key_file=None if image.key_file is None else str(image.key_file),
            format_options=format_options(spec.path.image),
        ),
    )


class _RecordedStack(Value):
    """The stack while a client writes; `pool` is the name of a ZFS pool.

    `image_name` is relative to the root of the file system, as it will be after a recovery.
    """

    disk: LoggedDisk
    image: ImageFile
    image_name: str
    filled: bool
    filesystem: str
    mount_options: tuple[str, ...] = ()
    pool: str | None = None

    @property
    def observed(self) -> dict[str, str]:
        pool = {} if self.pool is None else {recovery.POOL: self.pool}
        return {**self.image.properties, **pool}


def require_judgeable(path: DiskPath) -> tuple[Layer, Image | None]:
    """The path's only file system and its image; None for a directory. Raises PlanError for other
    paths.
    """
    refusal = rules.not_judgeable(path)
    if refusal is not None:
        raise PlanError(f"{path} {refusal.reason}", hint=refusal.instead)
    return path.layers[0], path.image


def not_judgeable_under(model: durability.FailureModel, path: DiskPath) -> rules.Impossible | None:
    """Why a path cannot be judged under a model, as what follows its name; None if it can."""
    if model.spares_the_host and path.image is not None and path.image.has_data_file:
        return rules.Impossible(
            f"cannot be judged under {model}: only one file is logged, and the data is in another",
            "leave out data_file",
        )
    if model.spares_the_host and path.shares_directory:
        return rules.Impossible(
            f"cannot be judged under {model}: only one file is logged, and it is a directory",
            f"leave out --model {model}",
        )
    return rules.not_judgeable(path)


@contextmanager
def _recorded_stack(site: Site, spec: RunSpec, name: str, log: Path) -> Iterator[_RecordedStack]:
    """The path's host side with its image, all of it durable when the context opens."""
    layer, image = require_judgeable(spec.path)
    sizes = 3 if spec.during is not None and spec.during.kind.doubles else 2
    capacity = backing.size_for(spec.path.layers, sizes * spec.size + 4 * MIB)
    with (
        logged_disk(
            site, name, capacity, lies=spec.lies, direct_io=spec.direct_io, log=log
        ) as disk,
        HOST_LAYERS[layer.kind].build(site, disk.device, layer, f"{name}.mnt", spec.size) as target,
        _data(site, target, image, size=spec.size) as file,
    ):
        place = target.on_host
        _make_durable(file, place)
        pool = site.unique(f"{name}.mnt") if layer.kind is segments.LayerKind.ZFS else None
        if pool is None:
            freeze_and_thaw(place)
        else:
            _sync_pool(site, pool)
        yield _RecordedStack(
            disk,
            file,
            image_name=str(file.on_host.relative_to(place)),
            filled=image is not None and not image.is_thin,
            filesystem=layer.kind.value,
            mount_options=() if pool else wanted_mount_options(layer),
            pool=pool,
        )


@contextmanager
def _recorded_file(site: Site, spec: RunSpec, name: str, log: Path) -> Iterator[_RecordedStack]:
    """The path's image as the logged file: no file system is below it that could lose anything.

    The file has all its size at the start. QEMU's qcow2 driver allocates clusters by reference
    counts, not by the length of the file (docs/interop/qcow2.txt).
    """
    _, image = require_judgeable(spec.path)
    assert image is not None  # noqa: S101 - not_judgeable_under refuses a directory
    place = Directory(site.directory)
    with _image(site, place, image, size=spec.size, name=name) as made:
        for below in made.backing:  # QEMU only reads it, so it stays with the recording as it is
            os.link(below, log.parent / below.name)
        is_raw = image.format is segments.ImageFormat.RAW
        size = made.on_host.stat().st_size if is_raw else 2 * spec.size + 4 * MIB
        with logged_file(site, name, size, lies=spec.lies, log=log) as file:
            _copy_sparse(made.on_host, file.path, "r+b")
            yield _RecordedStack(
                file,
                replace(made, path=file.path),
                image_name=rebuild.STATE_NAME,
                filled=not image.is_thin,
                filesystem=client.NO_FILESYSTEM,
            )


def _write_source(file: Path, size: int) -> None:
    """Writes the initial content of full images: sectors of version `FILLED`."""
    with file.open("xb") as sink:
        for first in range(0, size // SECTOR, _SOURCE_SECTORS):
            count = min(_SOURCE_SECTORS, size // SECTOR - first)
            sink.write(sectors.make_sectors(first, count, client.FILLED))


def _sync_pool(site: Site, pool: str) -> None:
    """Makes a pool write its transaction group, by a snapshot, which waits for it.

    zfs-fuse 0.7.0 lost a new, empty file after its fsync had returned.
    """
    snapshot = f"{pool}/{DATASET}@made"
    for verb in ("snapshot", "destroy"):
        site.host.run("zfs", verb, snapshot)


@contextmanager
def _data(site: Site, target: Target, image: Image | None, *, size: int) -> Iterator[ImageFile]:
    """The path's image, or the directory that its guest mounts."""
    if image is not None:
        with _image(site, target, image, size=size, name="disk") as made:
            yield made
        return
    with shared_directory(site, target, "disk") as shared:
        yield ImageFile(shared, shared.path, client.SHARED, size, {}, ())


@contextmanager
def _image(
    site: Site, target: Target, image: Image, *, size: int, name: str
) -> Iterator[ImageFile]:
    """The path's image, filled unless it is thin; of a chain, empty overlays above a base, as just
    after a snapshot.

    Each overlay names the image below without a directory, so that it is found after a recovery.
    """
    source = None if image.is_thin else site.directory / f"{name}.source"
    if source is not None:
        _write_source(source, size)
    with ExitStack() as files:
        base = image_file(site, target, image.base, size=size, name=name, source=source)
        made = files.enter_context(base)
        if source is not None:
            source.unlink()
        chain, directory = [made.on_host], target.on_host
        for number in range(1, image.backing + 1):
            file = directory / f"{name}-{number}.{image.format}"
            files.enter_context(site.tracked(Kind.FILE, file))
            site.new_file(file)
            site.run(*create_command(image, file, size, below=Path(chain[0].name)))
            chain.insert(0, file)
        yield replace(made, path=chain[0], backing=tuple(chain[1:]))


def _make_durable(image: ImageFile, directory: Path) -> None:
    """Syncs a new image and its name: `qemu-img create` alone may lose the file."""
    data = () if image.data_file is None else (image.data_file,)
    for path in (image.path, *image.backing, *data, directory):
        with opened(path, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)
    sync_filesystem(directory)
