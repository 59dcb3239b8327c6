"""`vdisklab export`: a disk path as configuration."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vdisklab.errors import PlanError
from vdisklab.export.form import Wish, for_any_qemu
from vdisklab.export.registry import EXPORTERS, Form
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import durability
from vdisklab.render.tables.power_cuts import durability_sentence
from vdisklab.units import parse_size

_DOMAIN_TYPES = ("kvm", "qemu")


def export(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A disk path, as ext4/qcow2/none.")],
    to: Annotated[Form, typer.Option("--to", help="Who shall run the guest.")] = Form.LIBVIRT,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The image file, block device, volume or claim to give to it."
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="The guest's name.")] = "guest",
    size: Annotated[str, typer.Option(metavar="SIZE", help="Of an image to be made.")] = "10G",
    domain_type: Annotated[
        str, typer.Option("--type", help="kvm, or qemu to emulate (libvirt and QEMU).")
    ] = "kvm",
) -> None:
    """Print the configuration that gives a guest its disk in this way.

    What a form cannot say stands in its comments and on standard error.

    Examples:

      vdisklab export ext4/qcow2/none --to libvirt --source /srv/images/web.qcow2

      vdisklab export raw/writeback/scsi:iothread=on:queues=4 --to proxmox
    """
    if domain_type not in _DOMAIN_TYPES:
        raise PlanError(f"{domain_type!r} is no type of domain", hint="write kvm or qemu")
    asked, gaps = for_any_qemu(parse_path(path))
    wish = Wish(asked, source, name, parse_size(size), domain_type)
    _must_be_plain(wish)
    _must_be_a_disk(wish, to)
    exported = EXPORTERS[to](wish)
    sys.stdout.write(exported.text)
    for gap in (*gaps, *exported.gaps):
        print(f"note: {gap}", file=sys.stderr)
    kept = durability(asked, {})
    if not kept.keeping.acceptable:
        print(f"note: {durability_sentence(str(asked), kept)}", file=sys.stderr)


def _must_be_a_disk(wish: Wish, to: Form) -> None:
    """Refuses what the target would refuse: an empty or relative source, a size of nothing."""
    if wish.source == "" or (to is Form.LIBVIRT and not (wish.source or "/").startswith("/")):
        raise PlanError(
            f"{wish.source!r} is no source of a disk",
            hint="give the whole path: --source /srv/images/web1.qcow2",
        )
    if wish.size <= 0:
        raise PlanError("a disk of size 0 holds nothing", hint="--size 10G")
    if "/" in wish.name:
        raise PlanError(f"{wish.name!r} cannot be the name of a guest", hint="--name web1")


def _must_be_plain(wish: Wish) -> None:
    """Refuses control characters, which XML and line-based files cannot hold."""
    for text in (wish.source or "", wish.name):
        if not text.isprintable():
            raise PlanError(f"{text!r} holds characters that a configuration cannot")
    if not wish.name:
        raise PlanError("the guest needs a name", hint="--name web1")
