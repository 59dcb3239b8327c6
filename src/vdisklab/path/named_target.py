"""Targets that the user names: `--target san=iscsi://10.0.0.5/iqn.x:disk/1`, then `san/raw/none`.

A path is stored with the kind of its target and the name: `iscsi:at=san/raw/none`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from vdisklab.as_text import AsText
from vdisklab.errors import PlanError
from vdisklab.path.disk_path import has_known_names
from vdisklab.path.options import NAME
from vdisklab.path.segments import LayerKind
from vdisklab.value import Value

_SCHEMES: Mapping[str, LayerKind] = {
    scheme: kind
    for kind in LayerKind
    if kind.facts.target is not None
    for scheme in kind.facts.target.schemes
}
"""The kind of a URL, by its scheme."""

_MOUNTED = ("smb", "cifs", "afp", "webdav", "davs", "ceph", "glusterfs", "gluster", "virtiofs")
"""Schemes of storage that is measured as a directory where the host has mounted it."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_HOST_AND_PORT = re.compile(r"[\w.-]+:[0-9]{1,5}", re.ASCII)
_FORM = "write --target NAME=PLACE: a directory, a block device, or one of " + ", ".join(
    f"{kind.facts.target.example}" for kind in dict.fromkeys(_SCHEMES.values()) if kind.facts.target
)


COPIES = "to"
"""The name of the target that is the directory of `--to`; the user does not write it."""

HIDDEN_VARIABLE = "VDISKLAB_SECRET_"
"""How the environment variables with targets' secrets begin."""

_STORED_NAME = re.compile(
    r"(?<![\w.+:=/-])(?:"
    + "|".join(kind.value for kind in LayerKind if kind.facts.target is not None)
    + r"):at=([A-Za-z0-9.+_-]{1,40})(?=/)"
)


def names_device(filename: str) -> bool:
    """True for the name of a block device, as opposed to an image's (/dev/shm has images)."""
    return filename.startswith("/dev/") and not filename.startswith("/dev/shm/")  # noqa: S108 - a name


class NamedTarget(AsText, Value):
    """A place that the user named. `kind` is None for a file name until this host was asked."""

    name: str
    place: str
    kind: LayerKind | None = None

    @property
    def layer(self) -> str:
        """The lowest layer of its paths, as a path spells it."""
        return f"{self.kind or LayerKind.DIR}:at={self.name}"

    @property
    def called(self) -> str:
        """What messages call it."""
        return name_in_messages(self.name)

    @property
    def opened_by_qemu(self) -> bool:
        """True for a URL, which one of QEMU's own drivers opens."""
        target = (self.kind or LayerKind.DIR).facts.target
        return target is not None and target.by_qemu

    @property
    def holds_files(self) -> bool:
        """True for a directory, on this host or on a server."""
        return (self.kind or LayerKind.DIR).facts.holds_files

    def __str__(self) -> str:
        return f"{self.name}={self.place}"


def name_in_messages(name: str) -> str:
    """What messages call a target of that name."""
    return "the target of --to" if name == COPIES else f"target {name}"


def parse_target(text: str) -> NamedTarget:
    """The target in `NAME=PLACE`. Raises PlanError, also for a URL that holds a password."""
    name, equals, place = text.partition("=")
    if not equals or not place:
        address = _HOST_AND_PORT.fullmatch(text)
        hint = f"for an NBD server: --target NAME=nbd://{text}/EXPORT" if address else _FORM
        raise PlanError(f"{text!r} names no target", hint=hint)
    if not NAME.fullmatch(name):
        raise PlanError(
            f"{name!r} cannot be the name of a target",
            hint="use letters, digits and . + _ -, at most 40",
        )
    if has_known_names(name):
        raise PlanError(
            f"a target cannot be called {name!r}, because disk paths use that word",
            hint=f"choose another name: --target my{name}={place}",
        )
    if not place.isprintable():
        raise PlanError(f"the place of target {name} holds a control character", hint=_FORM)
    scheme = _SCHEME.fullmatch(place)
    if scheme is None or place.startswith(("/", "./", "../")):
        return NamedTarget(name, place)
    if scheme[1] not in _SCHEMES:
        mounted = f"mount it, and name the directory: --target {name}=/mnt/{name}"
        if scheme[2].startswith("/") and not scheme[2].startswith("//"):
            mounted += f"; or nfs://{scheme[1]}{scheme[2]} for QEMU's own NFS driver"
        hint = mounted if scheme[1] in _MOUNTED or "nfs://" in mounted else _FORM
        raise PlanError(f"target {name}: vdisklab measures no {scheme[1]}: storage", hint=hint)
    kind = _SCHEMES[scheme[1]]
    if kind is not LayerKind.RBD:
        _require_no_password(name, urlsplit_of(name, place))
    return NamedTarget(name, place, kind)


def urlsplit_of(name: str, place: str) -> SplitResult:
    """The parts of a URL. Raises PlanError for one that cannot be read."""
    try:
        parts = urlsplit(place)
        _ = parts.port
    except ValueError as error:
        raise PlanError(f"target {name}: {place} is no URL: {error}", hint=_FORM) from None
    return parts


def _require_no_password(name: str, parts: SplitResult) -> None:
    """Raises PlanError if the URL holds a password, which commands and databases would show."""
    users = unquote(parts.netloc.rpartition("@")[0])
    hidden = {key for key, _ in parse_qsl(parts.query)} & {"password", "key", "secret", "psk"}
    if parts.password is not None or "%" in users or ":" in users or hidden:
        raise PlanError(
            f"the URL of target {name} holds a password, which every user of this host could read",
            hint=f"leave it out of the URL and write it into a file: --secret {name}=FILE, or set "
            f"{secret_variable(name)}",
        )


def parse_secret(text: str) -> tuple[str, Path]:
    """The target's name and the file in `NAME=FILE`. Raises PlanError."""
    name, equals, file = text.partition("=")
    if not equals or not file or not NAME.fullmatch(name) or not file.isprintable():
        raise PlanError(
            "--secret takes the name of a target and a file", hint="write --secret NAME=FILE"
        )
    return name, Path(file)


def secret_variable(name: str) -> str:
    """The environment variable that holds a target's secret."""
    return HIDDEN_VARIABLE + re.sub(r"\W", "_", name).upper()


def options_of(
    target: NamedTarget, secrets: Iterable[tuple[str, Path]] = ()
) -> tuple[tuple[str, str], ...]:
    """The options that name a target, and the file of its secret, each with its value.

    FILE stands for one that is not among `secrets` but that the server asks for: no result says
    where secrets are. One in the environment needs no option.
    """
    file = dict(secrets).get(target.name)
    asks = target.place.startswith("nbds") or (
        target.kind is LayerKind.ISCSI and "@" in target.place
    )
    if file is None and asks and secret_variable(target.name) not in os.environ:
        file = Path("FILE")
    named = (("--target", str(target)),)
    return named if file is None else (*named, ("--secret", f"{target.name}={file}"))


def require_targets(
    targets: Iterable[NamedTarget], secrets: Iterable[tuple[str, Path]] = ()
) -> None:
    """Raises PlanError for a name or a place that is given twice, and a secret that none takes."""
    names: dict[str, NamedTarget] = {}
    places: dict[str, NamedTarget] = {}
    for target in targets:
        if target.name == COPIES:
            raise PlanError(
                f"a target cannot be called {COPIES!r}, because the directory of --to is",
                hint=f"choose another name: --target my{COPIES}={target.place}",
            )
        if target.name in names:
            raise PlanError(
                f"--target {target.name} is given twice", hint="give each target a name of its own"
            )
        same = places.get(target.place.rstrip("/"))
        if same is not None:
            raise PlanError(
                f"{same.name} and {target.name} are two names for one target, {target.place}",
                hint="name it once",
            )
        names[target.name] = places[target.place.rstrip("/")] = target
    for name, _ in secrets:
        if name not in names:
            raise PlanError(
                f"--secret {name} names no target", hint=f"add --target {name}=PLACE, or correct it"
            )
        if not names[name].opened_by_qemu:
            raise PlanError(
                f"target {name} is a directory or device of this host, which takes no secret",
                hint=f"leave out --secret {name}",
            )


def as_typed(text: str) -> str:
    """A text in which paths on named targets are spelled as the user typed them.

    `iscsi:at=san/raw/none`, as it is stored, becomes `san/raw/none`: every verb understands both.
    """
    return _STORED_NAME.sub(r"\1", text) if ":at=" in text else text


def with_targets(text: str, targets: Collection[NamedTarget]) -> str:
    """A path as a user wrote it, with the kind of a named target in the place of its name.

    `raw` is left out on a block device, which is the disk itself.
    """
    first, slash, rest = text.partition("/")
    target = next((candidate for candidate in targets if candidate.name == first), None)
    if target is None:
        return text
    facts = (target.kind or LayerKind.DIR).facts
    if not facts.holds_files and not (facts.target and facts.target.takes_format):
        head, more, after = rest.partition("/")
        if head == "raw":
            slash, rest = ("/" if more else ""), after
    return f"{target.layer}{slash}{rest}"
