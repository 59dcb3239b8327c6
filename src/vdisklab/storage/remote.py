"""Targets on servers, opened by QEMU's own drivers: NBD, iSCSI, NFS (libnfs), Ceph (librbd), ssh.

No kernel of the host sees them, so QEMU's programs create, fill, inspect and empty them. A password
or key is never on a command line: QEMU's secret objects read it from a file.

What differs between kinds of servers, such as the questions of a protocol, stands in `servers`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vdisklab.errors import CommandError, CommandTimeoutError, DirtyHostError, HostError
from vdisklab.host.command import Host, require_programs
from vdisklab.host.ledger import NEEDED, Entry, Kind, leftovers, pending
from vdisklab.path.backing import BackingDevices
from vdisklab.path.named_target import NamedTarget, secret_variable
from vdisklab.storage.server_answers import ANSWER_SECONDS, undone
from vdisklab.storage.server_url import (
    INITIATOR,
    KEYS,
    Url,
    kind_opened_by,
    module_of,
    server_module,
    url_of,
)
from vdisklab.storage.site import Site
from vdisklab.storage.targets import Remote
from vdisklab.storage.undo import Removable
from vdisklab.units import format_bytes
from vdisklab.value import replace

_FILL_SECONDS = 3600.0
_SECTOR = 512
_DIFFERENT = re.compile(r"mismatch at offset ([0-9]+)")

_NO_SUCH_FILE = ("NFS3ERR_NOENT", "No such file")
"""What the drivers nfs and ssh say of a file that is not there; QEMU 7.2 with libnfs 4.0."""

_NO_DRIVER = "install QEMU's driver for it: apt install qemu-block-extra (Fedora: qemu-block-NAME)"
_ADMIT = (
    f"let the target admit QEMU's initiators, {INITIATOR} and {INITIATOR}:GUEST (LIO: `set "
    "attribute generate_node_acls=1`)"
)
"""Of libiscsi's "Authorization failure", status 0202 of a login: "the initiator is not allowed
access to the given target" (RFC 7143, 11.13.5). A wrong password is 0201."""
_WAYS_OUT = (
    ("image is not in", "see that its server keeps what is written: it does not give it back"),
    ("qemu-block-extra", _NO_DRIVER),
    ("unknown driver", _NO_DRIVER),
    ("unknown protocol", _NO_DRIVER),
    ("starttls", "the server has no TLS: write nbd:// and leave out --secret"),
    ("tls handshake", "give the key that the server has: --secret NAME=DIR/keys.psk"),
    ("tls", "give the server's key: nbds:// and --secret NAME=DIR/keys.psk"),
    ("can not reconnect", "start the server, or correct host and port"),
    ("export not available", "name an export that the server has: nbdinfo --list URL"),
    ("invalid address", "correct the server's name, which this host cannot resolve"),
    ("reading conf file", "name the cluster's configuration: rbd:POOL/IMAGE@CEPH.CONF"),
    ("monitor info", "name the cluster's configuration: rbd:POOL/IMAGE@CEPH.CONF"),
    ("error connecting", "name a user and a key that the cluster knows: ?id=USER, --secret"),
    ("nfs_service", "start the server and its rpcbind, which libnfs asks for NFS version 3"),
    ("mnt3err_acces", "name a directory that is exported to this host: showmount -e HOST"),
    ("target not found", "name a target that the server has: iscsi-ls iscsi://HOST"),
    ("logical_unit_not", "name a LUN that the target has: iscsi-ls --show-luns iscsi://HOST"),
    ("publickey", "load your key into your ssh agent: ssh-add FILE"),
    ("reading header", "make the image: rbd create POOL/IMAGE --size SIZE"),
    ("opening pool", "name a pool that the cluster has: ceph osd pool ls"),
    ("read-only", "let the server export it read-write"),
    ("rofs", "let the server export it read-write"),
    ("permission", "let the server grant this host's user read and write access"),
    ("acces", "let the server grant this host's user read and write access"),
    ("stale", "mount or export it again: the server no longer knows this file handle"),
    ("refused", "start the server, or correct host and port"),
    ("nospc", "free some space on the server, or choose a smaller --size"),
    ("no space", "free some space on the server, or choose a smaller --size"),
    ("no such file", "start the server, or name a socket or directory that exists there"),
    ("input/output", "see that the server has space left, and what its log says of its disk"),
    ("no password", "give the password: --secret NAME=FILE"),
    ("authentication", "give user and password: USER@ in the URL, and --secret NAME=FILE"),
    ("authorization", _ADMIT),
    ("failed to log in", "correct the user, USER@ in the URL, or the password: --secret NAME=FILE"),
    ("host key", "add the server's key to known_hosts: ssh-keyscan HOST >> ~/.ssh/known_hosts"),
)


@contextmanager
def secret_of(site: Site, target: NamedTarget, backing: BackingDevices) -> Iterator[Path | None]:
    """A file with a target's secret, from the user's own or from the environment; None without one.

    QEMU takes the end of a line for a part of a password, and keys of TLS from `keys.psk` alone.
    """
    named = next((file for name, file in backing.secrets if name == target.name), None)
    text = os.environ.get(secret_variable(target.name))
    if named is not None:
        site.check(lambda: _require_private(target, named))
        text = site.observe(named.read_text, planned="read then")
    is_tls = target.place.startswith("nbds")
    as_it_is = named is not None and (named.name == KEYS if is_tls else text and text[-1] != "\n")
    if text is None or as_it_is:
        yield named
        return
    secret_directory = site.directory / f"{target.name}.secret"
    with site.tracked(Kind.DIRECTORY, secret_directory):
        site.run("mkdir", "--mode=700", secret_directory)
        file = secret_directory / KEYS
        site.write_private(file, text if is_tls else text.rstrip("\n"))
        yield file


def _require_private(target: NamedTarget, file: Path) -> None:
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise HostError(
            f"the secret of target {target.name} cannot be read: {file}: {error.strerror}",
            hint="name another file with --secret",
        ) from error
    if mode & 0o077:
        raise HostError(
            f"{file}, the secret of target {target.name}, can be read by other users",
            hint=f"chmod 600 {file}",
        )


@contextmanager
def remote_target(
    site: Site, target: NamedTarget, backing: BackingDevices, needed: int
) -> Iterator[Remote]:
    """The target on a server, after the server was asked about it.

    A disk must have `needed` bytes, all zero unless it may be destroyed, and is left zeroed. Raises
    HostError with the way out if the server does not answer or the disk is not fit.
    """
    with ExitStack() as entered:
        secret = entered.enter_context(secret_of(site, target, backing))
        url = url_of(target, secret)
        properties = {"target.url": url.text, "target.driver": str(url.node["driver"])}
        remote = Remote(url, target.holds_files, properties, prefix=site.directory.name)
        if target.holds_files:
            site.check(lambda: _require_files(site, target, url))
            yield remote
            return
        properties |= site.read_back(lambda: promises(site.host, target, url))
        _require_writable(target, properties)
        site.observe(lambda: _empty_what_ended(site, target, url), planned=None)
        site.check(lambda: _require_fit(site, target, url, backing, needed))
        detail = {"bytes": str(needed), "node": url.opened, "objects": json.dumps(url.objects)}
        if secret is not None:
            detail[NEEDED] = str(secret.absolute())
        with site.tracked(DISK, url.text, **detail):
            yield remote


def require_fit(site: Site, target: NamedTarget, backing: BackingDevices, needed: int) -> None:
    """Raises HostError if a disk is too small or holds data. If its server does not answer, its
    cells fail, and others are measured."""
    with secret_of(site, target, backing) as secret:
        url = url_of(target, secret)
        if unanswered(site.host, target.name, Remote(url, holds_files=False)) is None:
            site.observe(lambda: _empty_what_ended(site, target, url), planned=None)
            _require_fit(site, target, url, backing, needed)


def _empty_what_ended(site: Site, target: NamedTarget, url: Url) -> None:
    """Empties a disk that a run which has ended could not empty, because its server was gone.

    A run whose programs may still write to the disk is left to `clean`. Raises HostError if the
    disk cannot be emptied now.
    """
    with leftovers(site.ledger.path.parent.parent) as ledgers:
        for ledger in ledgers:
            if any(entry.kind not in _LIES_STILL for entry in ledger.entries):
                continue
            left = [
                each for each in ledger.entries if (each.kind, each.name) == (DISK.kind, url.text)
            ]
            for entry in left:
                try:
                    empty_disk(site.host, entry)
                except DirtyHostError as error:
                    raise HostError(
                        f"target {target.name}: {error.message}", hint=error.hint
                    ) from error
                ledger.strike(entry)
            if left and len(left) == len(ledger.entries):
                ledger.path.unlink()


def _require_fit(
    site: Site, target: NamedTarget, url: Url, backing: BackingDevices, needed: int
) -> None:
    for path in site.ledger.path.parent.glob("*.jsonl"):
        with contextlib.suppress(FileNotFoundError):  # its campaign has just ended
            others = () if path == site.ledger.path else pending(path)
            if any((entry.kind, entry.name) == (DISK.kind, url.text) for entry in others):
                raise HostError(
                    f"target {target.name}: another campaign uses {url.text}, or has left it",
                    hint="wait until that ends; after a crash run `vdisklab clean`",
                )
    size = disk_size(site.host, target.name, url)
    if size < needed:
        raise HostError(
            f"target {target.name} has {format_bytes(size)}, but needs {format_bytes(needed)}",
            hint="choose a smaller --size, or name a larger disk",
        )
    if not backing.may_destroy(target):
        _require_empty(site.host, target, url, needed)


def require_answer(site: Site, target: NamedTarget, backing: BackingDevices) -> None:
    """Raises HostError unless a disk can be written, or a file made and removed in a directory."""
    with secret_of(site, target, backing) as secret:
        url = url_of(target, secret)
        if target.holds_files:
            _require_files(site, target, url)
        else:
            disk_size(site.host, target.name, url)
            _require_writable(target, promises(site.host, target, url))


def unanswered(host: Host, name: str, remote: Remote) -> HostError | None:
    """Why the server of a target does not answer any more; None if it does."""
    url = remote.url.file("vdisklab-looks-here") if remote.holds_files else remote.url
    try:
        disk_size(host, name, replace(url, text=remote.url.text))
    except HostError as error:
        answered = remote.holds_files and any(word in error.message for word in _NO_SUCH_FILE)
        return None if answered else error
    return None


def _require_files(site: Site, target: NamedTarget, url: Url) -> None:
    """Raises HostError unless a file can be made and removed in a directory on a server."""
    file = url.file(f"{site.directory.name}-trial.raw")
    trial = site.ledger.add(FILE.kind, file.text, node=json.dumps(file.node))
    create = ("qemu-img", "create", "-q", "-f", "raw", file.text, "4096")
    try:
        ask(site.host, target.name, url, *create)
    except HostError as error:
        if isinstance(error.__cause__, CommandError):
            # The server has refused it, and may refuse to remove what is not there, too.
            with contextlib.suppress(DirtyHostError):
                remove_remote_file(site.host, trial)
            site.ledger.strike(trial)
        raise
    try:  # a full server makes the file, and refuses what is written to it
        write = ("qemu-io", "--format=raw", "-c", "write -q 0 4k", file.opened)
        ask(site.host, target.name, url, *write)
    finally:
        remove_remote_file(site.host, trial)
        site.ledger.strike(trial)


def ask(host: Host, name: str, url: Url, *command: str, timeout: float = ANSWER_SECONDS) -> str:
    """What a program of QEMU says of a target. Raises HostError with the way out."""
    program, verb, *arguments = command
    require_programs(host, program)
    try:
        return host.run(program, verb, *url.secrets, *arguments, timeout=timeout).stdout
    except CommandTimeoutError as error:
        raise HostError(
            f"the server of target {name} does not answer within {timeout:.0f} s: {url.text}",
            hint="check that it runs and that this host reaches it",
        ) from error
    except CommandError as error:
        raise unusable(f"target {name} ({url.text})", url, error) from error


@contextmanager
def reasons(place: Path | Url) -> Iterator[None]:
    """What a program of QEMU says of a server in its body becomes an error with the way out."""
    try:
        yield
    except CommandError as error:
        if isinstance(place, Url):
            raise unusable(place.text, place, error) from error
        raise


def unusable(shown: str, url: Url, error: CommandError) -> HostError:
    """The error for a target that QEMU cannot open or write, with what helps."""
    said = error.stderr.strip().splitlines() or ["it gives no reason"]
    reason = said[0].removeprefix("qemu-img: ").removeprefix("qemu-io: ")
    reason = re.sub("^Could not open 'json:.*?': ", "", reason.replace(url.opened, url.text))
    reason = reason.replace(f"Could not open '{url.text}': ", "")
    if reason.startswith(f"{url.node['driver']}://"):  # the URL of a file, before what it says
        reason = reason.partition(": ")[2]
    hint = next(
        (way for word, way in _WAYS_OUT if word in reason.lower()),
        "check the URL and that this host reaches the server",
    )
    return HostError(f"{shown} cannot be used: {reason}", hint=hint)


def disk_size(host: Host, name: str, url: Url) -> int:
    """Bytes of a disk on a server."""
    text = ask(host, name, url, "qemu-img", "info", "--output=json", url.opened)
    return int(json.loads(text)["virtual-size"])


def promises(host: Host, target: NamedTarget, url: Url) -> dict[str, str]:
    """What the server says of flushes and limits, in the words of its protocol.

    Empty for a protocol without such words. Raises HostError if it cannot be asked.
    """
    asked: dict[str, str] = server_module(target).promises(host, target, url)
    return asked


def _require_writable(target: NamedTarget, properties: Mapping[str, str]) -> None:
    if any(name.endswith("read_only") and said == "on" for name, said in properties.items()):
        raise HostError(
            f"target {target.name} ({target.place}) is exported read-only",
            hint="let the server export it read-write",
        )


def _part(url: Url, size: int) -> str:
    """The first `size` bytes of a disk, as a file name of QEMU."""
    return "json:" + json.dumps({"driver": "raw", "offset": 0, "size": size, "file": url.node})


def _require_empty(host: Host, target: NamedTarget, url: Url, size: int) -> None:
    """Raises HostError unless the bytes that would be overwritten are all zero."""
    nothing = "json:" + json.dumps({"driver": "null-co", "size": size, "read-zeroes": True})
    command = ("qemu-img", "compare", *url.secrets, _part(url, size), nothing)
    try:
        ended = host.run(*command, allowed=(0, 1), timeout=_FILL_SECONDS)
    except CommandError as error:
        raise unusable(f"target {target.name} ({url.text})", url, error) from error
    if ended.status == 1:
        _require_same_again(host, target, url, size, ended.stdout)
        raise HostError(
            f"target {target.name} ({url.text}) holds data, which measuring would destroy",
            hint=f"name another disk, or add --destroy {target.name} if its contents are not "
            "needed",
        )


def _require_same_again(host: Host, target: NamedTarget, url: Url, size: int, said: str) -> None:
    """Raises HostError if bytes that `qemu-img compare` saw to be data are read as zeros now."""
    seen = _DIFFERENT.search(said)
    if seen is None:
        return
    offset = int(seen[1]) // _SECTOR * _SECTOR
    again = ("-c", f"read -P 0 {offset} {min(_SECTOR, size - offset)}", _part(url, size))
    try:
        read = host.run("qemu-io", *url.secrets, *again, allowed=(0, 1), timeout=ANSWER_SECONDS)
    except CommandError as error:
        raise unusable(f"target {target.name} ({url.text})", url, error) from error
    if read.status == 0 and "Pattern verification failed" not in read.stdout:
        raise HostError(
            f"target {target.name} ({url.text}) does not return the same data twice: the first "
            f"read at byte {offset} returned data, the second zeros",
            hint="another host writes to it, or the server or the network damages data: look at "
            "their logs",
        )


def empty_disk(host: Host, entry: Entry) -> None:
    """Writes zeros over the part of a disk that vdisklab has written, if its server answers."""
    part = json.loads(entry.detail["node"].removeprefix("json:"))["file"]
    url = Url(entry.name, part, tuple(json.loads(entry.detail["objects"])))
    size = int(entry.detail["bytes"])
    undone(host, entry, "qemu-img", "info", *url.secrets, url.opened)

    def zero(write: str) -> None:
        commands = ("-c", f"{write} 0 {size}", "-c", "flush", _part(url, size))
        undone(host, entry, "qemu-io", *url.secrets, *commands, timeout=_FILL_SECONDS)

    try:
        zero("write -z")
    except DirtyHostError:
        zero("write -z -u")  # a full server: without the blocks that it had to allocate


def remove_remote_file(host: Host, entry: Entry) -> None:
    """Removes an image from a server."""
    node = json.loads(entry.detail["node"])
    module_of(kind_opened_by(node["driver"])).remove(host, entry, node)


DISK = Removable("disk on a server", empty_disk)
"""The first bytes of a disk that a server exports."""

FILE = Removable("file on a server", remove_remote_file)
"""An image in a directory that a server exports."""

_LIES_STILL = frozenset({DISK.kind, FILE.kind, Kind.DIRECTORY, Kind.FILE})
"""Kinds of things that write nothing by themselves."""
