"""`show RUN --script`: a shell script that repeats a run by hand."""

from __future__ import annotations

import json
import re
import shlex
from importlib.resources import files
from pathlib import Path

from vdisklab.errors import PlanError
from vdisklab.guest.systems import FIND_DISK, FIND_SECONDS, LOAD_DRIVERS
from vdisklab.path.disk_path import DiskPath
from vdisklab.results.model import Campaign, Origin, Run
from vdisklab.sanitise import sanitise_line
from vdisklab.storage.image_commands import create_command, fill_command

_WORK = "@WORK@"
_CHANNELS = re.compile(r"socket,id=(agent|monitor),fd=\d+")
_SITE = re.compile(r"(/[^\s,\"']*/vdisklab-[0-9a-f]{8})/")
"""The directory of a run; see `open_site`."""


def repeat_script(run: Run, campaign: Campaign) -> str:
    """The script. Raises PlanError for a run that needs more than an image and one guest."""
    path = run.measured_cell.path
    said = "\n".join(run.commands)
    lines = [line for line in run.commands if _CHANNELS.search(line)]
    sites = dict.fromkeys(_SITE.findall(said))
    images = dict.fromkeys(re.findall(r"/vdisklab-[0-9a-f]{8}/(image[^\s,\"']*)", said))
    serials = re.findall(r"serial\W+(vdl[0-9a-f]+)", said)
    reason = "its name is no disk path" if path is None else _too_much(run, path)
    if not reason and not (len(lines) == len(sites) == len(images) == 1 and serials):
        reason = "it had several guests or images, or vdisklab did not start its QEMU"
    if reason or path is None or path.image is None:
        raise PlanError(
            f"no script repeats run {run.id}: {reason}",
            hint=f"`vdisklab show {run.id}` has its commands",
        )
    (site,), (image,) = sites, images
    qemu = _CHANNELS.sub(rf"socket,id=\1,path={_WORK}/\1,server=on,wait=off", lines[0])
    plug = [json.loads(line) for line in run.commands if line.startswith("{")]
    programs = [measured.command for measured in run.measurements]
    size = int(campaign.plan["size_bytes"])
    place = Path(_WORK) / image
    make = (
        create_command(path.image, place, size),
        fill_command(
            path.image.driver,
            Path(_WORK) / "random",
            place,
            thin=path.image.is_thin,
            compressed=path.image.compressed,
        ),
    )
    words = shlex.split(qemu)
    values = {
        "what": sanitise_line(f"Repeats run {run.id} of vdisklab by hand: {run.measured_cell}."),
        "directory": sanitise_line(str(Path(site).parent)),
        "files": shlex.join(
            [word for word in words if word.startswith("/")]
            + re.findall(r"file,filename=(/[^,]*),node-name=system", qemu)
        ),
        "size": str(size),
        "image": "\n".join(map(_in_shell, make)),
        "qemu": _in_shell(words, site),
        "plug": repr(plug).replace(site, _WORK),
        "programs": repr([shlex.split(program) for program in programs]),
        "rest": repr(
            (
                image,
                str(run.page_cache),
                [LOAD_DRIVERS, "240"],
                [FIND_DISK, serials[0], str(int(FIND_SECONDS) * 4)],
            )
        ),
    }
    script = files("vdisklab.answers").joinpath("repeat.sh").read_text()
    for name, value in values.items():
        script = script.replace(f"@{name}@", value)
    return script


def _too_much(run: Run, path: DiskPath) -> str:
    """The parts of a run that the script cannot build; empty if there are none."""
    image = path.image
    if run.origin is not Origin.GUEST or not run.measurements:
        return "nothing was measured in a guest on this host"
    if path.layers or image is None or path.shares_directory:
        return "it needs host layers or a device"
    if image.encrypted or image.has_data_file or image.snapshots or image.bitmaps:
        return "its image is encrypted, in two files, or has snapshots or bitmaps"
    if image.backing:
        return "its image has a backing file"
    served = path.attachment.bus.is_served
    return "its disk is served by another program" if served else ""


def _in_shell(words: list[str] | tuple[str, ...], site: str = _WORK) -> str:
    """A command whose words may have the work directory in them, which the script chooses."""
    spelled = (shlex.quote(word.replace(site, _WORK)) for word in words)
    return " ".join(
        re.sub(_WORK, "'\"$work\"'", word) if "'" in word else word.replace(_WORK, '"$work"')
        for word in spelled
    )
