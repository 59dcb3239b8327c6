"""The lab's virtual machine: its disks, its command line, and a shell in it.

One disk brings vdisklab, the Python packages that it needs, and the job.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata, resources
from pathlib import Path

import vdisklab
from vdisklab.errors import GuestError, HostError
from vdisklab.host import command, facts, ledger, mounts
from vdisklab.host.state_directory import cache_directory
from vdisklab.lab.lab_image import LabImage
from vdisklab.path.architecture import GUEST, is_foreign
from vdisklab.path.segments import Bus
from vdisklab.plan import option_rows, run_request
from vdisklab.plan.accelerator import Accelerator
from vdisklab.storage.site import Site
from vdisklab.units import GIB, MIB, format_bytes
from vdisklab.value import Value

KVM_TRIAL_SECONDS = 20.0
_LEAST_ROOM = 4 * GIB
_SOCKET_PATH = 107  # bytes in sun_path without the final 0, see unix(7)


CARRIED = Path("/vdisklab/files")
"""The lab's directory for files named on the command line."""

_FILE_OPTIONS = (
    option_rows.PLAN_FLAG,
    *(row.flag for row in option_rows.settings_of(run_request.RunRequest) if row.kind.input_file),
)
"""The options of `run` that name a file to read."""

# Imported only when a database is opened, or guests are audited.
_LOADED_LATER = {"alembic", "PyYAML"}


class LabConfig(Value):
    """The machine: its CPUs and memory, the number of its empty disks and the size of each."""

    accelerator: Accelerator
    cpus: int = 2
    memory_bytes: int = 4 * GIB
    disks: int = 4
    disk_bytes: int = 2 * GIB
    work_bytes: int = 24 * GIB


class LabFiles:
    """The files of one run of the lab; all but the image's are in the run's own directory."""

    def __init__(self, image: LabImage, directory: Path, code: Path) -> None:
        self.image = image
        self.directory = directory
        self.code = code
        # A layer over the image's root file system, which is never written to.
        self.overlay = directory / "root.qcow2"
        self.stream = directory / "stream"  # the output of the job as it runs
        self.runs = directory / "runs"  # the runs that it has measured, one on each line
        self.pulse = directory / "pulse"  # grows every few seconds while the lab runs programs
        self.console = directory / "console"
        self.errors = directory / "qemu.errors"
        # A QMP socket: `stop` and `cont` pause the lab, including its clock.
        self.monitor = directory / "qmp"
        # What QEMU says of resets (a triple fault ends the lab without a message), and the CPUs'
        # registers when it ended.
        self.resets = directory / "resets"


def usable_cpus(accelerator: Accelerator, cpus: int) -> int:
    """The number of the lab's CPUs: one if QEMU emulates them and cannot do several, else `cpus`.

    On x86 QEMU changes the SVM state of its first CPU from the threads of all others without a lock
    (`cpu_clear_ignne`), so a guest under KVM can lose its registers, and the lab can die
    (docs/decisions/0015). Before 8.1, QEMU also keeps breakpoints that the lab's kernel has
    removed, and the lab hangs.
    """
    return cpus if accelerator is Accelerator.KVM or GUEST.lab_has_cpus else 1


def lab_argv(config: LabConfig, files: LabFiles, name: str, monitor: int | None) -> tuple[str, ...]:
    """The QEMU command line. The machine has no network card, and none of the user's disks.

    `monitor` is the file descriptor of a QMP socket; None is for a shell on this terminal, without
    a job. An NMI makes the lab's kernel panic, which prints what it was doing.

    An emulated lab switches off the features that cost an emulated CPU most: page tables of five
    levels (each level is walked for each level of a nested table), protection against Spectre, a
    clock that is read from an emulated timer, string instructions that are emulated byte by byte
    (ERMS, FSRM; the kernel then copies and clears eight bytes at a time), and random addresses
    (ASLR), with which QEMU translates a program anew at each start (docs/decisions/0015).
    The clock is explained at `Architecture.emulated_clock`, other CPUs at `Architecture.lab_cpu`.
    """
    append = (
        f"root=/dev/vda rw console={GUEST.console} quiet panic=-1 unknown_nmi_panic "
        "init=/sbin/vdisklab-lab"
    )
    cpu = "host"
    if config.accelerator is Accelerator.TCG:
        cpu = GUEST.lab_cpu
        append += f" mitigations=off norandmaps {GUEST.emulated_clock}"
    return (
        facts.QEMU, "-name", f"guest={name},debug-threads=on", "-nodefaults", "-display", "none",
        "-machine", _machine(config.accelerator), "-cpu", cpu,
        "-smp", str(config.cpus),
        "-m", f"{config.memory_bytes // MIB}M", "-nic", "none", "-no-reboot",
        "-device", "virtio-rng-pci",
        "-kernel", str(files.image.kernel), "-initrd", str(files.image.initrd), "-append", append,
        *_disk("root", files.overlay, "qcow2"),
        *_disk("code", files.code, "raw", read_only=True),
        *_disk("work", files.directory / "work.raw", "raw"),
        *(
            argument
            for number in range(1, config.disks + 1)
            for argument in _disk(f"disk{number}", files.directory / f"disk{number}.raw", "raw")
        ),
        *_monitor(files.monitor),
        *(("-serial", "mon:stdio") if monitor is None else _job_channels(files, monitor)),
    )  # fmt: skip


def _machine(accelerator: Accelerator) -> str:
    """The machine, which under emulation offers KVM to the lab's kernel."""
    options = GUEST.lab_options if accelerator.is_emulation else ""
    return f"{Bus.VIRTIO.machine}{GUEST.machine_options}{options},accel={accelerator}"


def _job_channels(files: LabFiles, monitor: int) -> tuple[str, ...]:
    """The console, the files that the job writes to, and our monitor. The monitor reads the
    registers of a lab that has reset itself: QEMU waits for that (-no-shutdown).
    """
    channels = ["-serial", f"file:{files.console}", "-d", "cpu_reset", "-D", str(files.resets)]
    channels += ["-no-shutdown"]
    channels += ["-chardev", f"socket,id=ours,fd={monitor}", "-mon", "chardev=ours,mode=control"]
    channels += ["-device", "virtio-serial-pci"]
    for port, file in {"job": files.stream, "runs": files.runs, "pulse": files.pulse}.items():
        channels += ["-chardev", f"file,id={port},path={file}"]
        channels += ["-device", f"virtserialport,chardev={port},name={port}"]
    return tuple(channels)


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
        free = mounts.free_bytes(directory)
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
    for name, size in {**sizes, "work": config.work_bytes}.items():
        _make_disk(files.directory / f"{name}.raw", size)
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


def boot_lab_kernel(
    host: command.Host, kernel: Path, seconds: float, accelerator: Accelerator = Accelerator.KVM
) -> None:
    """Boots the lab's kernel without a root file system: it panics at once, which ends QEMU.

    Raises GuestError when this takes more than `seconds` times the patience, or if the accelerator
    does not work.
    """
    cpu = "host" if accelerator is Accelerator.KVM else GUEST.lab_cpu
    try:
        host.run(
            facts.QEMU, "-machine", _machine(accelerator), "-cpu", cpu,
            "-m", "256M", "-nodefaults", "-display", "none", "-no-reboot",
            "-kernel", kernel, "-append", "panic=-1 quiet",
            timeout=seconds,
        )  # fmt: skip
    except HostError as error:
        raise GuestError(f"the lab's kernel did not boot: {error}") from error


def run_shell(site: Site, config: LabConfig, files: LabFiles) -> None:
    """Boots the lab with its console on this terminal, and returns when its shell ends."""
    name = f"vdisklab-lab-{site.ledger.run_id}"
    with site.tracked(ledger.Kind.PROCESS, f"guest={name},"):
        argv = lab_argv(config, files, name, None)
        subprocess.run(argv, env=command.environment(), check=False)


def carried_files(arguments: Sequence[str]) -> tuple[list[str], dict[str, Path]]:
    """The arguments for the lab, and the files to carry there by their new names.

    A value of one of _FILE_OPTIONS is carried if it is a file here; else it is a name.
    """
    arguments_inside, files = list(arguments), dict[str, Path]()
    for number, word in enumerate(arguments_inside):
        option, equals, value = word.partition("=")
        if number and arguments_inside[number - 1] in _FILE_OPTIONS:
            before, value = "", word
        elif option in _FILE_OPTIONS and equals:
            before = f"{option}="
        else:
            continue
        if mounts.is_visible_file(Path(value)):
            name = f"{len(files)}-{Path(value).name}"
            files[name] = Path(value)
            arguments_inside[number] = f"{before}{CARRIED / name}"
    return arguments_inside, files


def payload_disk(
    host: command.Host, directory: Path, job: str | None, files: Mapping[str, Path] | None = None
) -> Path:
    """A file system that the lab mounts read-only; without a job, the lab opens a shell.

    The packages are copied from the running program, including compiled ones, so the lab needs
    the same version of Python.
    """
    tree = directory / "payload"
    packages = tree / "packages"
    packages.mkdir(parents=True)
    if is_foreign():
        _install_foreign(host, packages)
    else:
        for distribution in needed_distributions():
            _copy(distribution, packages)
    source = Path(vdisklab.__file__).parent
    shutil.copytree(source, packages / "vdisklab")
    # Compiles what is not yet: copies keep the times by which Python knows what is up to date.
    compileall.compile_dir(packages / "vdisklab", quiet=1)
    (tree / "start").write_text(start_script())
    if job is not None:
        (tree / "job").write_text(job)
    carried = tree / CARRIED.name
    carried.mkdir()
    for name, file in (files or {}).items():
        shutil.copyfile(file, carried / name)
    size = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file())
    disk = directory / "code.ext4"
    blocks = int(size * 1.3 + 32 * MIB) // 1024
    host.run("mke2fs", "-q", "-t", "ext4", "-d", tree, disk, f"{blocks}k", timeout=300)
    shutil.rmtree(tree)
    return disk


def _install_foreign(host: command.Host, into: Path) -> None:
    """The same versions of our packages for the lab's architecture, by pip from its usual index.

    They are kept in the cache. Raises HostError if a package has no such wheel.
    """
    wanted = sorted(f"{item.name}=={item.version}" for item in needed_distributions())
    cache = cache_directory() / f"lab/packages-{GUEST.name}"
    stamp = cache / ".stamp"
    if not stamp.exists() or stamp.read_text().split() != wanted:
        shutil.rmtree(cache, ignore_errors=True)
        platforms = (f"manylinux_2_{minor}_{GUEST.name}" for minor in (17, 28))
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        host.run(
            sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
            "--no-input", "--no-deps", "--no-compile", "--only-binary", ":all:",
            "--target", cache, "--implementation", "cp", "--python-version", version,
            *(word for name in platforms for word in ("--platform", name)), *wanted,
            timeout=900,
        )  # fmt: skip
        compileall.compile_dir(cache, quiet=1)
        stamp.write_text("\n".join(wanted))
    shutil.copytree(cache, into, dirs_exist_ok=True)


def start_script() -> str:
    """What the lab runs after its kernel, with the names of the architecture."""
    text = resources.files("vdisklab.lab").joinpath("start.sh").read_text("utf-8")
    names = {"CONSOLE": GUEST.console, "KVM_MODULES": " ".join(GUEST.kvm_modules.values())}
    for name, value in names.items():
        text = text.replace(f"@{name}@", value)
    return text


def needed_distributions() -> tuple[metadata.Distribution, ...]:
    """The distributions of all loaded modules, and those that they require.

    Loaded modules, not our own metadata, so that it works from a plain checkout too.
    """
    loaded = {name.partition(".")[0] for name in sys.modules}
    by_module = metadata.packages_distributions()
    names = {name for module in loaded for name in by_module.get(module, ())}
    wanted: dict[str, metadata.Distribution] = {}
    queue = sorted(_normal(name) for name in (names | _LOADED_LATER) - {"vdisklab"})
    while queue:
        name = queue.pop()
        if name in wanted:
            continue
        try:
            wanted[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # required on other platforms only
        queue += required_names(wanted[name].requires or ())
    return tuple(wanted.values())


def required_names(requirements: Iterable[str]) -> list[str]:
    """The names in lines such as `numpy (>=1.2) ; python_version < "4"`, without extras."""
    return [
        _normal(match[0])
        for line in requirements
        if "extra ==" not in line and (match := re.match(r"[A-Za-z0-9._-]+", line))
    ]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _copy(distribution: metadata.Distribution, into: Path) -> None:
    """Copies the installed files of a distribution, without its tests and programs."""
    if distribution.files is None:
        raise HostError(
            f"the package {distribution.name} has no list of its files",
            hint="install it again with pip",
        )
    for file in distribution.files:
        source = Path(str(distribution.locate_file(file)))
        outside = ".." in file.parts or "tests" in file.parts
        if outside or not source.is_file():
            continue
        target = into / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)  # keeps the time, by which Python recognises its compiled form
