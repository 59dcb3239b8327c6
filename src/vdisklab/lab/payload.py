"""The disk that brings vdisklab, the Python packages that it needs, and the job into the lab."""

from __future__ import annotations

import compileall
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path

import vdisklab
from vdisklab.errors import HostError
from vdisklab.host.command import Host
from vdisklab.host.visible import is_visible_file
from vdisklab.plan.plan_file import PLAN_FLAG
from vdisklab.plan.run_request import RunRequest
from vdisklab.plan.settings import settings_of
from vdisklab.units import MIB

CARRIED = Path("/vdisklab/files")
"""Where the lab has the files that were named on the command line."""

_FILE_OPTIONS = (
    PLAN_FLAG,
    *(row.flag for row in settings_of(RunRequest) if row.kind.input_file),
)
"""The options of `run` that name a file to read."""

# Imported only when a database is opened, or guests are audited.
_LOADED_LATER = {"alembic", "PyYAML"}


def carried_files(arguments: Sequence[str]) -> tuple[list[str], dict[str, Path]]:
    """The arguments for the lab, and the files to carry there by their new names.

    Values of _FILE_OPTIONS that are files here are carried; others are names.
    """
    words, files = list(arguments), dict[str, Path]()
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        if number and words[number - 1] in _FILE_OPTIONS:
            before, value = "", word
        elif option in _FILE_OPTIONS and equals:
            before = f"{option}="
        else:
            continue
        if is_visible_file(Path(value)):
            name = f"{len(files)}-{Path(value).name}"
            files[name] = Path(value)
            words[number] = f"{before}{CARRIED / name}"
    return words, files


def payload_disk(
    host: Host, directory: Path, job: str | None, files: Mapping[str, Path] | None = None
) -> Path:
    """A file system that the lab mounts read-only; without a job, the lab opens a shell.

    The packages are copied from the running program, including compiled ones, so the lab needs
    the same version of Python.
    """
    tree = directory / "payload"
    packages = tree / "packages"
    packages.mkdir(parents=True)
    for distribution in needed_distributions():
        _copy(distribution, packages)
    source = Path(vdisklab.__file__).parent
    shutil.copytree(source, packages / "vdisklab")
    # Compiles what is not yet: copies keep the times by which Python knows what is up to date.
    compileall.compile_dir(packages / "vdisklab", quiet=1)
    start = resources.files("vdisklab.lab").joinpath("start.sh").read_text()
    (tree / "start").write_text(start)
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
