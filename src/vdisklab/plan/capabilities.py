"""The capabilities of this host (what it can build and serve, by its survey) and the paths they
rule out.
"""

from __future__ import annotations

from collections.abc import Mapping

from vdisklab.path.disk_path import Attachment, DiskPath
from vdisklab.path.rules import Impossible
from vdisklab.path.segments import Aio, Bus, CacheMode, ImageFormat
from vdisklab.value import Value, field, replace


class Missing(Value):
    """The reason why this host lacks something, and how to get it."""

    reason: str
    mend: str


class QemuLimits(Value):
    """The limits of one QEMU; `guest` is set if it cannot run a guest at all.

    `options` are options of a bus in the path, such as `iothreads`, and `of_formats` those of an
    image format.
    """

    buses: Mapping[Bus, Missing] = field(default_factory=dict)
    aio: Mapping[Aio, Missing] = field(default_factory=dict)
    guest: Missing | None = None
    options: Mapping[tuple[Bus, str], Missing] = field(default_factory=dict)
    of_formats: Mapping[tuple[ImageFormat, str], Missing] = field(default_factory=dict)


class Capabilities(Value):
    """The features that this host lacks; everything else is assumed to work.

    `installed` is the QEMU of paths that name none, `qemus` are those that paths name by `qemu=`.
    `aio` is what the kernel refuses to all of them. `direct_io` tells for a stack
    (`DiskPath.stack`, "" for the work directory) whether O_DIRECT works on it; None or no entry
    means untried. `stacks` holds the stacks that could not be built, by the same name; their layers
    may work in other stacks. `on_tmpfs` is true if the work directory lies in memory.
    """

    formats: Mapping[ImageFormat, Missing] = field(default_factory=dict)
    aio: Mapping[Aio, Missing] = field(default_factory=dict)
    installed: QemuLimits = QemuLimits()
    direct_io: Mapping[str, bool | None] = field(default_factory=dict)
    stacks: Mapping[str, Missing] = field(default_factory=dict)
    on_tmpfs: bool = False
    qemus: Mapping[str, QemuLimits] = field(default_factory=dict)

    def of(self, qemu: str | None) -> QemuLimits | None:
        """The limits of the QEMU of that name; None for an unknown name.

        Without a name: the limits of the installed QEMU.
        """
        limits = self.installed if qemu is None else self.qemus.get(qemu)
        return limits and replace(limits, aio={**limits.aio, **self.aio})


def infeasible(path: DiskPath, capabilities: Capabilities) -> Impossible | None:
    """The first reason why this host cannot build or serve a path, or None."""
    if path.has_storage and path.stack in capabilities.stacks:
        missing = capabilities.stacks[path.stack]
        if path.target is not None:
            return Impossible(missing.reason, missing.mend)
        what = "the stack" if len(path.layers) > 1 else "host layer"
        return _lacking(f"{what} {path.stack}", capabilities.stacks[path.stack])
    guest_side = None if path.on_host else _infeasible_for_guest(path, capabilities)
    return guest_side or _without_direct_io(path, capabilities)


def _infeasible_for_guest(path: DiskPath, capabilities: Capabilities) -> Impossible | None:
    qemu = path.attachment.qemu
    able = capabilities.of(qemu)
    if able is None:
        return Impossible(f"no QEMU is called {qemu}", f"name its program: --qemu {qemu}=BIN")
    if able.guest is not None:
        return _lacking("a guest", able.guest)
    if path.image is not None and path.image.format in capabilities.formats:
        form = path.image.format
        return _lacking(f"image format {form}", capabilities.formats[form])
    for (form, option), missing in able.of_formats.items():
        image = path.image
        if image is not None and image.format is form and image.option(option):
            return _lacking(f"option {option} of {form}", missing)
    return _infeasible_attachment(path.attachment, able)


def _infeasible_attachment(attachment: Attachment, able: QemuLimits) -> Impossible | None:
    bus, aio = attachment.bus, attachment.aio
    if bus in able.buses:
        return _lacking(f"bus {bus}", able.buses[bus])
    if aio in able.aio:
        return _lacking(f"aio={aio}", able.aio[aio])
    for option, _ in attachment.options:
        if (bus, option) in able.options:
            return _lacking(f"option {option} of bus {bus}", able.options[bus, option])
    return None


def _without_direct_io(path: DiskPath, capabilities: Capabilities) -> Impossible | None:
    if not path.needs_direct_io or capabilities.direct_io.get(path.stack) in (True, None):
        return None
    where = path.stack or "the work directory"
    if path.on_host:
        return Impossible(
            f"the workload on the host needs O_DIRECT, which {where} refuses here",
            "choose a directory on another file system, or leave the host out",
        )
    return Impossible(
        f"cache mode {path.cache} needs O_DIRECT, which {where} refuses here",
        f"choose {CacheMode.choices(lambda mode: not mode.direct)}, or another file system",
    )


def _lacking(what: str, missing: Missing) -> Impossible:
    return Impossible(f"{what} is not available on this host: {missing.reason}", missing.mend)
