"""A container of the images that run QEMU, started by `docker run` or `podman run`, or described by
a Quadlet: rewritten into a compose file's service.

docker-run(1), podman-run(1); podman-systemd.unit(5): Image, Environment, EnvironmentFile, Volume,
AddDevice, Exec, Entrypoint and ContainerName of a `.container` file. `--env-file` has lines of
NAME=VALUE.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePath

from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.shell_script import commands_of, tells
from vdisklab.platforms.text_form import TextForm
from vdisklab.platforms.where_set import line_with, only_line, set_in, unset

_PROGRAMS = ("docker", "podman", "nerdctl")
_VERBS = ("run", "create")
_COMMAND = re.compile(rf"\b(?:{'|'.join(_PROGRAMS)})\b[^\n]{{0,200}}\b(?:{'|'.join(_VERBS)})\b")
_QUADLET = re.compile(r"^\[Container\]\s*$", re.MULTILINE)
_KEY = re.compile(r"^(?P<key>[A-Z]\w+)\s*=\s*(?P<value>.*)$", re.MULTILINE)
_CONTINUED = re.compile(r"\\\r?\n\s*")
_ALONE = (
    "detach", "interactive", "tty", "rm", "privileged", "init", "publish-all", "read-only",
    "no-healthcheck", "replace", "oom-kill-disable", "sig-proxy", "quiet", "rmi", "no-hosts",
)  # fmt: skip
"""Options without a value; a letter of `-dit` is one, too."""
_LETTERS = frozenset("ditPq")
_LONG = {"e": "env", "v": "volume"}
_MODE = "DISK_CACHE"
_QEMU = re.compile(r"(?:^|[\s/'\"])(?:qemu-system-|qemu-kvm\b|kvm\b)")
_MOST_FILES = 20
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(slots=True)
class _Container:
    name: str = ""
    image: str = ""
    argv: tuple[str, ...] = ()
    """The words of the command line that starts it; none of a Quadlet's."""
    variables: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    tmpfs: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    entrypoint: str = ""
    """Of a Quadlet, as its command; QEMU in the command line of a script is read there."""
    command: str = ""

    def add(self, option: str, value: str) -> None:
        """Takes an option of the command line; others change no disk."""
        match option:
            case "name":
                self.name = value
            case "env":
                self.variables.append(value)
            case "env-file":
                self.files.append(value)
            case "volume":
                self.volumes.append(value)
            case "device":
                self.devices.append(value)
            case "tmpfs":
                self.tmpfs.append(value)
            case "mount":
                parts = dict(part.partition("=")[::2] for part in value.split(","))
                source = parts.get("source", parts.get("src", ""))
                inside = parts.get("target", parts.get("destination", parts.get("dst", "")))
                if parts.get("type") == "tmpfs":
                    self.tmpfs.append(inside)
                else:
                    self.volumes.append(f"{source}:{inside}")
            case _:
                pass


def _recognises(text: GuestText) -> bool:
    return _QUADLET.search(text.text) is not None or _COMMAND.search(text.text) is not None


def _containers(text: GuestText) -> Iterator[_Container]:
    if _QUADLET.search(text.text):
        yield _of_quadlet(text)
        return
    for command in commands_of(text.text, text.files, text.first_line):
        names = [PurePath(part).name for part in command.argv]
        first = next((number for number, name in enumerate(names[:8]) if name in _PROGRAMS), None)
        if first is None or tells(command.argv):
            continue
        verb = next(
            (number for number in range(first, len(names)) if names[number] in _VERBS), None
        )
        if verb is not None:
            yield _of_command(command.argv[first:], verb - first)


def _of_command(argv: Sequence[str], verb: int) -> _Container:
    """The container of a command with `run` at that place: options stand before the image."""
    container, rest = _Container(argv=(PurePath(argv[0]).name, *argv[1:])), iter(argv[verb + 1 :])
    for part in rest:
        if not part.startswith("-"):
            container.image = part
            break
        name, equals, value = part.lstrip("-").partition("=")
        if not part.startswith("--") and set(name) <= _LETTERS:
            continue
        if not part.startswith("--") and len(name) > 1:
            name, value, equals = name[0], part[2:].removeprefix("="), "="
        if name in _ALONE:
            continue
        container.add(_LONG.get(name, name), value if equals else next(rest, ""))
    return container


def _of_quadlet(text: GuestText) -> _Container:
    options = {"Environment": "env", "EnvironmentFile": "env-file", "Volume": "volume",
               "AddDevice": "device", "Tmpfs": "tmpfs", "Mount": "mount",
               "ContainerName": "name"}  # fmt: skip
    container = _Container()
    for match in _KEY.finditer(_CONTINUED.sub(" ", text.text)):
        key, value = match["key"], match["value"].strip()
        if key == "Image":
            container.image = value
        elif key == "Entrypoint":
            container.entrypoint = value
        elif key == "Exec":
            container.command = value
        elif key == "Environment":
            with suppress(ValueError):
                container.variables += shlex.split(value)
        elif key in options:
            container.add(options[key], value)
    return container


def _rewritten(text: GuestText) -> Iterator[GuestText]:
    """Each container as a service, with the variables of its files before its own."""
    containers = [*_containers(text)]
    names = [_name_of(container, text) for container in containers]
    for container, name in zip(containers, names, strict=True):
        lines = (line for name in container.files for line in text.files.get(name, "").splitlines())
        given = [
            line.strip() for line in lines if "=" in line and not line.lstrip().startswith("#")
        ]
        pairs = [*given, *container.variables]
        environment = {}
        for pair in pairs:
            variable, equals, value = pair.partition("=")
            if _NAME.fullmatch(variable):
                environment[variable] = value if equals else f"${{{variable}}}"
        line = line_with(text.text, container.argv) if names.count(name) > 1 else None
        service = f"{name}:{line}" if line is not None and not container.name else name
        whole = "".join(
            f"    {key}: {json.dumps(value)}\n"
            for key, value in (
                ("image", container.image), ("environment", environment),
                ("entrypoint", container.entrypoint), ("command", container.command),
                ("volumes", container.volumes), ("devices", container.devices),
                ("tmpfs", container.tmpfs),
                ("env_file", [file for file in container.files if file not in text.files]),
            )
        )  # fmt: skip
        place = _place_of_mode(container, service, text)
        yield GuestText(
            f"services:\n  {json.dumps(service)}:\n{whole}", text.origin, changed_at={"": place}
        )


def _name_of(container: _Container, text: GuestText) -> str:
    """The container's name; without one that of a Quadlet's file, which systemd makes the unit's
    (podman-systemd.unit(5), ContainerName), or of the image."""
    if container.name or not container.argv:
        return container.name or PurePath(text.origin).stem
    return PurePath(container.image.partition(":")[0]).name or "container"


def _place_of_mode(container: _Container, service: str, text: GuestText) -> str:
    """Where the cache mode is set: in a Quadlet's own command, if it starts QEMU; else in the
    variable of the text, which counts, or of the last file that sets it."""
    if _QEMU.search(f"{container.entrypoint} {container.command}"):
        line = only_line(text.text, r"(?m)^(?:Exec|Entrypoint)[ \t]*=")
        return f"`cache=` of {set_in(text, 'Exec', line, f'container {service}')}"
    setting = rf"(?m)\b{_MODE}="
    if any(pair.startswith(_MODE) for pair in container.variables):
        return set_in(text, _MODE, only_line(text.text, setting), f"container {service}")
    files = [GuestText(text.files[name], name) for name in container.files if name in text.files]
    for file in reversed(files):
        if re.search(rf"(?m)^\s*{_MODE}=", file.text):
            return set_in(file, _MODE, only_line(file.text, setting))
    return unset(set_in(text, _MODE, None, f"container {service}"))


def _names(text: GuestText) -> Iterator[str]:
    if _recognises(text):
        files = (name for container in _containers(text) for name in container.files)
        yield from islice(files, _MOST_FILES)


FORM = TextForm(
    recognises=_recognises, rewritten=_rewritten, shares=True,
    changed_in="the command or file of the container", names=_names,
)  # fmt: skip
