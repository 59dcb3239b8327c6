"""Several QEMUs beside each other: each has a name, and each disk path is measured with each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.path.disk_path import Attachment, DiskPath
from vdisklab.path.options import NAME


@dataclass(frozen=True, slots=True)
class AskedQemu:
    """A QEMU as the user names it: `BIN`, or `NAME=BIN`; without a name it gets its version's."""

    name: str | None
    binary: Path


@dataclass(frozen=True, slots=True)
class Qemu:
    """A QEMU that paths name by `qemu=NAME`. `version` is the whole of what it says of itself."""

    name: str
    binary: Path
    version: str


def parse_qemu(text: str) -> AskedQemu:
    """What `--qemu` was told. Raises PlanError for a name or a file that cannot be."""
    name, equals, file = text.partition("=")
    if not equals or "/" in name:
        name, file = "", text
    elif not NAME.fullmatch(name):
        raise PlanError(
            f"{name!r} cannot be the name of a QEMU",
            hint="write NAME=BIN with a name of letters, digits and . + _ -",
        )
    if not file:
        raise PlanError(f"{text!r} names no QEMU", hint="write --qemu /path/to/qemu-system-x86_64")
    return AskedQemu(name or None, Path(file))


def require_distinct(qemus: Sequence[Qemu]) -> None:
    """Raises PlanError when two of them have the same name, as two builds of one version do."""
    for name, count in Counter(qemu.name for qemu in qemus).items():
        if count > 1:
            raise PlanError(
                f"{count} QEMUs are called {name}",
                hint=f"name them: --qemu {name}-a=BIN --qemu {name}-b=BIN",
            )


def with_each(path: DiskPath, names: Iterable[str]) -> tuple[DiskPath, ...]:
    """The path with each QEMU in turn; itself when it has no guest, or names its QEMU already."""
    found = tuple(names)
    if path.on_host or path.attachment.qemu is not None or not found:
        return (path,)
    return tuple(
        replace(path, attachment=_with(path.attachment, (("qemu", name),))) for name in found
    )


def without_qemu(path: DiskPath) -> DiskPath:
    """The path as any QEMU could give it."""
    if path.attachment.qemu is None:
        return path
    return replace(path, attachment=_with(path.attachment, ()))


def _with(attachment: Attachment, added: tuple[tuple[str, str], ...]) -> Attachment:
    kept = tuple(option for option in attachment.options if option[0] != "qemu")
    return Attachment(attachment.bus, (*kept, *added))
