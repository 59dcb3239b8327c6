"""The template of disks that are made: a copy of the image, in the form that a way takes.

Every disk is made from this copy on the measured storage, never from the user's own file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vdisklab.campaign.clones import Clones
from vdisklab.campaign.given_image import WHOLE_IMAGE_SECONDS, GivenImage
from vdisklab.errors import (
    CommandError,
    HostError,
)
from vdisklab.host import ledger, pagecache
from vdisklab.operations.making import NewDisk, Template, TemplateForm, Way
from vdisklab.storage.site import Site
from vdisklab.value import Value, replace

TEMPLATE = "template"
"""The name of a template's file, or of the subvolume that it lies in."""

NO_SPACE = ("No space left on device", "Disk quota exceeded")
"""What programs print of ENOSPC and EDQUOT."""


@contextmanager
def default_source(site: Site, random: Path, size: int) -> Iterator[Path]:
    """A raw file of `size` bytes: half of them random, a quarter that compresses to half, a quarter
    zeros that take no place."""
    file = site.directory / "template.source"
    script = (
        'dd if="$1" of="$2" bs=1M count="$3" iflag=fullblock,count_bytes status=none && '
        'basenc --base16 --wrap=0 "$1" | head --bytes="$4" >> "$2" && truncate --size="$5" "$2"'
    )
    half, quarter = size // 2, size // 4
    with site.tracked(ledger.Kind.FILE, file):
        site.new_file(file)
        arguments = (random, file, str(half), str(quarter), str(size))
        site.run_marked("sh", "-c", script, "sh", *arguments, timeout=WHOLE_IMAGE_SECONDS)
        yield file


class TemplateOrder(Value):
    """The image from which a disk is made in a way, which decides the template's form."""

    given: GivenImage
    way: Way
    disk: NewDisk

    @property
    def key(self) -> str:
        """Equal for orders that one template serves."""
        kind, settings = self.way.kind, ",".join(self.disk.settings)
        home = kind.clones or ("subvolume" if kind.in_subvolume else "")
        return f"{kind.template}/{self.disk.driver}/{settings}/{home}"


@contextmanager
def placed_template(
    site: Site, directory: Path, order: TemplateOrder, number: int
) -> Iterator[Template]:
    """The template in the form that a way takes it, in the directory that the disks are made in;
    its name has the `number`.

    It is on the disk, and unchanged since, when the context begins. Raises HostError.
    """
    form, disk = order.way.kind.template, order.disk
    if order.way.kind.in_subvolume:
        home = directory / f"{TEMPLATE}-{number}"
        with site.tracked(ledger.Kind.DIRECTORY, home):
            site.run("btrfs", "--quiet", "subvolume", "create", home)
            yield _written(site, home / disk.place.name, order)
        return
    suffix = disk.driver if form is TemplateForm.OF_DISK else order.given.driver
    file = directory / f"{TEMPLATE}-{number}.{suffix}"
    with site.tracked(ledger.Kind.FILE, file):
        yield _written(site, file, order)


@contextmanager
def cloned_template(clones: Clones, order: TemplateOrder, number: int) -> Iterator[Template]:
    """The template as, or in, a volume of its own from which disks are cloned. Raises HostError."""
    site, disk, name = clones.site, order.disk, f"{TEMPLATE}-{number}"
    is_device = clones.layer.gives_device
    made: list[Template] = []

    def fill(place: Path) -> None:
        if is_device:
            _onto_device(site, place, order.given)
            written = Template(place, "raw", disk.size)
        else:
            written = _written(site, place / disk.place.name, order)
        made.append(replace(written, volume=clones.named(name)))

    with clones.template(name, disk.size, fill):
        yield made[0]


def _onto_device(site: Site, device: Path, given: GivenImage) -> None:
    """The template's data on a new volume, of which every byte is zero."""
    if given.packed:
        script = 'xz --decompress --stdout -- "$1" | dd of="$2" conv=sparse,fsync bs=1M status=none'
        _filled(site, "sh", "-c", script, "sh", given.file, device)
        return
    convert = ("qemu-img", "convert", "-q", "-n", "--target-is-zero", "-f", given.driver)
    _filled(site, *convert, "-O", "raw", given.file, device)


def _written(site: Site, file: Path, order: TemplateOrder) -> Template:
    given, form, disk = order.given, order.way.kind.template, order.disk
    if form is TemplateForm.NONE:
        return Template(file, "raw", disk.size)
    if form is TemplateForm.XZ or (form is TemplateForm.GIVEN and not given.packed):
        _filled(site, "cp", "--sparse=auto", "--reflink=never", "--", given.file, file)
        template = Template(file, given.driver, given.size)
    else:
        template = _converted(site, file, given, form, disk)
    site.check(lambda: pagecache.evict(file))
    return template


def _converted(
    site: Site, file: Path, given: GivenImage, form: TemplateForm, disk: NewDisk
) -> Template:
    source, driver = given.file, given.driver
    unpacked = file.with_name(f"{file.name}.unpacked")
    with ExitStack() as opened:
        if given.packed:
            script = 'xz --decompress --stdout -- "$1" | dd of="$2" conv=sparse bs=1M status=none'
            opened.enter_context(site.tracked(ledger.Kind.FILE, unpacked))
            _filled(site, "sh", "-c", script, "sh", given.file, unpacked)
            source = unpacked
        if form is TemplateForm.GIVEN:
            site.run("mv", "--", source, file)
            return Template(file, driver, given.size)
        convert = ("qemu-img", "convert", "-q", "-f", driver, "-O", disk.driver)
        _filled(site, *convert, *disk.format_options, source, file)
    if disk.size != given.size:
        site.run("qemu-img", "resize", "-q", "-f", disk.driver, file, str(disk.size))
    return Template(file, disk.driver, disk.size)


def _filled(site: Site, *command: str | os.PathLike[str]) -> None:
    try:
        site.run_marked(*command, timeout=WHOLE_IMAGE_SECONDS)
    except CommandError as error:
        if any(full in error.stderr for full in NO_SPACE):
            raise HostError(
                f"no space is left for the template's copy in {site.directory}",
                hint="choose another --dir, or a smaller --size",
            ) from error
        raise HostError(
            f"the template cannot be copied to the measured storage: {error}",
            hint="choose another --dir",
        ) from error
