"""The programs that vdisklab runs: the package that contains each, and what it is for."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

from vdisklab.errors import HostError

QEMU = "qemu-system-x86_64"
"""The installed QEMU's name. Guests are x86-64, whatever else QEMU could emulate."""
_NO_PACKAGE = "-"


@dataclass(frozen=True, slots=True)
class HostProgram:
    """A program's packages, and what cannot be done without it.

    `packages` has one name for each package manager, in the order of MANAGERS.
    """

    packages: tuple[str, ...]
    purpose: str


def _rows(*kinds: str) -> Iterator[str]:
    """The rows of those kinds in packages.txt, which script/install reads too."""
    text = resources.files("vdisklab.host").joinpath("packages.txt").read_text("utf-8")
    for line in text.splitlines():
        kind, _, row = line.partition(" ")
        if kind in kinds:
            yield row


def _programs() -> Iterator[tuple[str, HostProgram]]:
    for row in _rows("needed", "optional", "other"):
        programs, *packages, purpose = row.split(maxsplit=1 + len(MANAGERS))
        for program in programs.split(","):
            yield program, HostProgram(tuple(packages), purpose)


MANAGERS = dict(row.split(maxsplit=1) for row in _rows("manager"))
"""The package managers, each with the command that installs packages."""
PROGRAMS: Mapping[str, HostProgram] = dict(_programs())


def layer_programs(layer: str) -> tuple[str, ...]:
    """The programs of a host layer, the first of each package."""
    purpose = f"layer {layer}"
    rows = [(program, row) for program, row in PROGRAMS.items() if row.purpose == purpose]
    first = {row.packages: program for program, row in reversed(rows)}
    return tuple(reversed(first.values()))


def install_hint(programs: Iterable[str]) -> str:
    """How to get programs here: the command of this system's package manager.

    Programs without a known package are only named; without a known manager all are.
    """
    wanted = tuple(programs)
    manager = next((name for name in MANAGERS if shutil.which(name)), None)
    packages = {program: _package(program, manager) for program in wanted}
    unknown = [program for program, package in packages.items() if package == _NO_PACKAGE]
    if manager is None or unknown:
        return f"install the package that contains {', '.join(unknown)}"
    return f"{MANAGERS[manager]} {' '.join(dict.fromkeys(packages.values()))}"


def _package(program: str, manager: str | None) -> str:
    if manager is None or program not in PROGRAMS:
        return _NO_PACKAGE
    return PROGRAMS[program].packages[list(MANAGERS).index(manager)]


def not_installed(program: str) -> HostError:
    """The error for a missing program."""
    return HostError(f"{program} is not installed", hint=install_hint([program]))
