"""The command that makes a lossy image safe: a conversion, or its switch turned off."""

from __future__ import annotations

import shlex
from pathlib import Path

from vdisklab.path.segments import ImageFormat


def remedy_for(file: Path, form: ImageFormat) -> str:
    """A sentence with the whole command for an image of a lossy format or switch.

    qemu-img writes over a file that exists, without a question, so the command tests for one, and
    names the new file only once it is whole. The new name has the old one in it, so that two images
    never get one name.
    """
    if form is ImageFormat.QCOW2:
        amend = ("qemu-img", "amend", "-o", "lazy_refcounts=off", str(file))
        return f"Turn it off while the guest is stopped: `{shlex.join(amend)}`."
    new, part = f"{file}.qcow2", f"{file}.qcow2.part"
    convert = ("qemu-img", "convert", "-p", "-f", form.value, "-O", "qcow2", str(file), part)
    there = shlex.join(("echo", f"{new} is there already"))
    return (
        f"Convert it while the guest is stopped: `{{ test ! -e {shlex.quote(new)} || "
        f"! {there} >&2; }} && {shlex.join(convert)} && {shlex.join(('mv', '-n', part, new))}`; "
        "then name the new file in the guest's configuration."
    )
