"""The lab's virtual machine: its command line, its boot under a deadline, and its results."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from vdisklab.errors import GuestError, HostError
from vdisklab.guest.qemu.process import qemu_process
from vdisklab.host.command import Host, environment
from vdisklab.host.ledger import Kind
from vdisklab.host.mounts import free_bytes
from vdisklab.host.programs import QEMU
from vdisklab.host.waiting import PATIENCE, patience
from vdisklab.lab.lab_image import LabImage
from vdisklab.plan.guest import Accelerator
from vdisklab.storage.site import Site
from vdisklab.units import GIB, MIB, format_bytes, format_duration

LABEL = "emulated under emulation: proof that a stack works, worthless as a speed"

KVM_TRIAL_SECONDS = 20.0
_BOOT_SECONDS = {Accelerator.KVM: 60.0, Accelerator.TCG: 420.0}
_SILENCE_SECONDS = 1800.0
_RESULTS = 1 * GIB
_LEAST_ROOM = 4 * GIB
_SPARE_ROOM = 64 * MIB
_CONSOLE_LINES = 8
_PATIENCE_HINT = f"on a slow or busy machine, {PATIENCE}=4 makes all deadlines four times longer"
_SOCKET_PATH = 107  # bytes in sun_path without the final 0, see unix(7)


class Purpose(Enum):
    """The purpose of a boot of the lab."""

    JOB = auto()
    SHELL = auto()


@dataclass(frozen=True, slots=True)
class LabConfig:
    """The machine: its CPUs and memory, the number of its empty disks and the size of each."""

    accelerator: Accelerator
    cpus: int = 2
    memory_bytes: int = 4 * GIB
    disks: int = 4
    disk_bytes: int = 2 * GIB
    work_bytes: int = 24 * GIB


@dataclass(frozen=True, slots=True)
class LabFiles:
    """The files of one run of the lab; all but the image's are in the run's own directory."""

    image: LabImage
    directory: Path
    code: Path

    @property
    def overlay(self) -> Path:
        """A layer over the image's root file system, which is never written to."""
        return self.directory / "root.qcow2"

    @property
    def stream(self) -> Path:
        """The output of the job as it runs."""
        return self.directory / "stream"

    @property
    def console(self) -> Path:
        """The console of the lab's kernel."""
        return self.directory / "console"

    @property
    def errors(self) -> Path:
        """QEMU's standard error."""
        return self.directory / "qemu.errors"

    @property
    def monitor(self) -> Path:
        """A QMP socket: `stop` and `cont` pause the lab, including its clock."""
        return self.directory / "qmp"

    @property
    def results(self) -> Path:
        """A disk on which the job leaves a tar archive."""
        return self.directory / "results.raw"


def lab_argv(config: LabConfig, files: LabFiles, name: str, purpose: Purpose) -> tuple[str, ...]:
    """The QEMU command line. The machine has no network card, and none of the user's disks."""
    cpu = "host" if config.accelerator is Accelerator.KVM else "max"
    append = "root=/dev/vda rw console=ttyS0 quiet panic=-1 init=/sbin/vdisklab-lab"
    channel = () if purpose is Purpose.SHELL else (
        "-device", "virtio-serial-pci", "-chardev", f"file,id=job,path={files.stream}",
        "-device", "virtserialport,chardev=job,name=vdisklab",
    )  # fmt: skip
    console = "mon:stdio" if purpose is Purpose.SHELL else f"file:{files.console}"
    return (
        QEMU, "-name", f"guest={name},debug-threads=on", "-nodefaults", "-display", "none",
        "-machine", f"q35,accel={config.accelerator}", "-cpu", cpu, "-smp", str(config.cpus),
        "-m", f"{config.memory_bytes // MIB}M", "-nic", "none", "-no-reboot",
        "-device", "virtio-rng-pci",
        "-kernel", str(files.image.kernel), "-initrd", str(files.image.initrd), "-append", append,
        *_disk("root", files.overlay, "qcow2"),
        *_disk("code", files.code, "raw", read_only=True),
        *_disk("work", files.directory / "work.raw", "raw"),
        *_disk("results", files.results, "raw"),
        *(
            argument
            for number in range(1, config.disks + 1)
            for argument in _disk(f"disk{number}", files.directory / f"disk{number}.raw", "raw")
        ),
        *channel, "-serial", console, *_monitor(files.monitor),
    )  # fmt: skip


def _monitor(socket: Path) -> tuple[str, ...]:
    """A QMP socket for pausing the lab; left out if its path is too long for a socket."""
    if len(os.fsencode(socket)) > _SOCKET_PATH:
        return ()
    return ("-qmp", f"unix:{socket},server=on,wait=off")


def _disk(name: str, file: Path, form: str, *, read_only: bool = False) -> tuple[str, ...]:
    """A virtio disk with its name as serial number. Nothing is flushed: the lab is thrown away."""
    mode = ",readonly=on" if read_only else ""
    return (
        "-drive", f"file={file},format={form},if=none,id={name},cache=unsafe{mode}",
        "-device", f"virtio-blk-pci,drive={name},serial={name}",
    )  # fmt: skip


def require_lab_room(directory: Path) -> None:
    """Raises HostError when a directory is missing or too full for a run of the lab."""
    try:
        free = free_bytes(directory)
    except OSError as error:
        raise HostError(
            f"the lab's directory {directory} cannot be used: {error.strerror}",
            hint="name another directory with --dir",
        ) from error
    if free < _LEAST_ROOM:
        raise HostError(
            f"the lab needs at least {format_bytes(_LEAST_ROOM)}, "
            f"and {directory} has {format_bytes(free)} free",
            hint="free some space there, or name another directory with --dir",
        )


@contextmanager
def lab_files(site: Site, image: LabImage, code: Path, config: LabConfig) -> Iterator[LabFiles]:
    """The disks of one run, in the site's directory; sparse, so they grow as they are written."""
    files = LabFiles(image, site.directory, code)
    site.host.run(
        "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", image.root, files.overlay
    )
    sizes = {f"disk{number}": config.disk_bytes for number in range(1, config.disks + 1)}
    for name, size in {**sizes, "work": config.work_bytes, "results": _RESULTS}.items():
        _make_disk(files.directory / f"{name}.raw", size)
    files.stream.touch()
    yield files


def _make_disk(file: Path, size: int) -> None:
    """A sparse file; the file system limits its size."""
    try:
        with file.open("xb") as disk:
            disk.truncate(size)
    except (OSError, OverflowError) as error:
        raise HostError(
            f"a disk of {format_bytes(size)} cannot be created for the lab in {file.parent}: "
            f"{getattr(error, 'strerror', None) or 'the number is too large'}",
            hint="choose a smaller --lab-disk-size, or name another directory with --dir",
        ) from error


@dataclass(frozen=True, slots=True)
class LabEnd:
    """How a job ended. Wall seconds are by our clock, others by the lab's since its boot."""

    status: int
    up_seconds: float
    lab_seconds: float
    wall_seconds: float


def run_job(site: Site, config: LabConfig, files: LabFiles, say: Callable[[str], None]) -> LabEnd:
    """Boots the lab, passes the lines of its job to `say`, and returns how the job ended.

    `say` also gets an empty line now and then. Raises GuestError when the lab does not come up in
    time, prints nothing for too long, or dies.
    """
    name = f"vdisklab-lab-{site.ledger.run_id}"
    started = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(site.tracked(Kind.PROCESS, f"guest={name},"))
        stack.enter_context(_last_words(files))
        argv = lab_argv(config, files, name, Purpose.JOB)
        process = stack.enter_context(qemu_process(argv, (), files.errors))
        lines = _lines(files.stream, process)
        up = _await_up(lines, _BOOT_SECONDS[config.accelerator])
        for line in lines:
            if line.startswith("@lab done "):
                _, _, status, seconds = line.split()
                _await_end(process)
                return LabEnd(int(status), up, float(seconds), time.monotonic() - started)
            say(line)
    raise GuestError("the lab ended before its job did")


def boot_lab_kernel(
    host: Host, kernel: Path, seconds: float, accelerator: Accelerator = Accelerator.KVM
) -> None:
    """Boots the lab's kernel without a root file system: it panics at once, which ends QEMU.

    Raises GuestError when this takes more than `seconds`, or the accelerator does not work.
    """
    cpu = "host" if accelerator is Accelerator.KVM else "max"
    try:
        host.run(
            QEMU, "-machine", f"q35,accel={accelerator}", "-cpu", cpu, "-m", "256M",
            "-nodefaults", "-display", "none", "-no-reboot",
            "-kernel", kernel, "-append", "panic=-1 quiet",
            timeout=seconds,
        )  # fmt: skip
    except HostError as error:
        raise GuestError(f"the lab's kernel did not boot: {error}") from error


def run_shell(site: Site, config: LabConfig, files: LabFiles) -> None:
    """Boots the lab with its console on this terminal, and returns when its shell ends."""
    name = f"vdisklab-lab-{site.ledger.run_id}"
    with site.tracked(Kind.PROCESS, f"guest={name},"):
        argv = lab_argv(config, files, name, Purpose.SHELL)
        subprocess.run(argv, env=environment(), check=False)


def _lines(stream: Path, process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The lines of the stream as they arrive; an empty line while there are none."""
    with stream.open("rb") as reading:
        rest = b""
        last_output = time.monotonic()
        while True:
            ended = process.poll() is not None
            output = reading.read()
            if output:
                last_output = time.monotonic()
                *lines, rest = (rest + output).split(b"\n")
                yield from (line.decode(errors="replace").rstrip("\r") for line in lines)
            elif ended:
                return
            elif time.monotonic() - last_output > _SILENCE_SECONDS * patience():
                silence = format_duration(time.monotonic() - last_output)
                raise GuestError(f"the lab has printed nothing for {silence}", hint=_PATIENCE_HINT)
            else:
                _require_spare_room(stream.parent)
                yield ""
                time.sleep(0.2)


def _require_spare_room(directory: Path) -> None:
    """Raises HostError when a disk is full: QEMU would then stop the lab at its next write."""
    free = free_bytes(directory)
    if free < _SPARE_ROOM:
        raise HostError(
            f"the lab has filled {directory.parent}: {format_bytes(free)} are left",
            hint="free some space there, or name another directory with --dir",
        )


def _await_up(lines: Iterator[str], seconds: float) -> float:
    deadline = time.monotonic() + seconds * patience()
    for line in lines:
        if line.startswith("@lab up "):
            return float(line.split()[2])
        if time.monotonic() > deadline:
            raise GuestError(
                f"the lab did not come up within {format_duration(seconds * patience())}",
                hint=_PATIENCE_HINT,
            )
    raise GuestError("the lab's virtual machine ended before it was up")


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()  # its results are written


@contextmanager
def _last_words(files: LabFiles) -> Iterator[None]:
    """Adds the last lines of QEMU and of the lab's console to a GuestError."""
    try:
        yield
    except GuestError as error:
        for title, file in (("QEMU:", files.errors), ("the lab's console:", files.console)):
            lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
            if lines:
                error.add_note("\n".join([title, *lines[-_CONSOLE_LINES:]]))
        raise


def take_result(files: LabFiles, name: str, into: Path) -> Path | None:
    """One file from the job's results, or None. Raises GuestError for a damaged archive."""
    try:
        with tarfile.open(files.results, "r:") as archive:
            member = next((m for m in archive if m.name in (name, f"./{name}")), None)
            content = None if member is None or not member.isfile() else archive.extractfile(member)
            if content is None:
                return None
            target = into / name
            with target.open("xb") as sink:
                shutil.copyfileobj(content, sink)
            return target
    except tarfile.ReadError as error:
        raise GuestError(f"the lab's results cannot be read: {error}") from error
