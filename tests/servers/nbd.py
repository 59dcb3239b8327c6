"""nbdkit and qemu-nbd."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.daemon import ADDRESS, Daemon, Server, accepts, free_port, listens, running

# A server of a disk in memory that has no flush and no FUA (T1): the client is told so.
NO_FLUSH = (
    "eval",
    "get_size=echo 67108864",
    "pread=dd if=$tmpdir/disk bs=1M iflag=skip_bytes,count_bytes skip=$4 count=$3 2>/dev/null",
    "pwrite=dd of=$tmpdir/disk bs=1M conv=notrunc oflag=seek_bytes seek=$4 2>/dev/null",
    "open=truncate -s 67108864 $tmpdir/disk",
    "can_write=exit 0",
    "can_flush=exit 3",
    "can_fua=echo none",
)


@contextmanager
def nbdkit(
    directory: Path,
    *plugin: str,
    filters: Sequence[str] = (),
    read_only: bool = False,
    tcp: bool = False,
    psk: bool = False,
) -> Iterator[Server]:
    """nbdkit on a unix socket, or on a port of the loopback address with TLS if `psk`.

    The `plugin` comes with its arguments and those of the filters; 64 MiB in memory without it.
    """
    options = [f"--filter={name}" for name in filters] + ["--readonly"] * read_only
    objects: tuple[str, ...] = ()
    if psk:
        key = directory / "keys.psk"
        key.write_text(f"alice:{secrets.token_hex(32)}\n")
        key.chmod(0o600)
        options += ["--tls=require", f"--tls-psk={key}"]
        objects = (f"tls-creds-psk,id=tls,dir={directory},endpoint=client,username=alice",)
    with _served(
        directory, ["nbdkit", "--foreground", *options], plugin or ("memory", "64M"), tcp or psk
    ) as (url, daemon):
        yield Server(url, directory, (daemon,), objects)


def requests(directory: Path) -> dict[str, int]:
    """How many requests of each kind arrived, from the file of nbdkit's filter `log`.

    A write with FUA counts as a `Write` and as a `FUA`.
    """
    counts: dict[str, int] = {}
    for line in (directory / "requests").read_text().splitlines():
        if found := re.search(r"connection=\d+ ([A-Z]\w+) id=\d+ (.*)", line):
            kinds = [found[1]] + ["FUA"] * ("fua=1" in found[2])
            counts |= {kind: counts.get(kind, 0) + 1 for kind in kinds}
    return counts


@contextmanager
def qemu_nbd(
    directory: Path, image: Path, *, cache: str = "none", read_only: bool = False, tcp: bool = False
) -> Iterator[Server]:
    """qemu-nbd with a raw file, for up to eight clients, one after the other or at once."""
    options = ["--format=raw", f"--cache={cache}", "--persistent", "--shared=8"]
    options += ["--read-only"] * read_only
    with _served(directory, ["qemu-nbd", *options], (str(image),), tcp) as (url, daemon):
        yield Server(url, directory, (daemon,))


@contextmanager
def _served(
    directory: Path, options: Sequence[str], rest: Sequence[str], tcp: bool
) -> Iterator[tuple[str, Daemon]]:
    log = directory / f"{options[0]}.log"
    nbdkit = options[0] == "nbdkit"
    if tcp:
        port = free_port()
        address = f"--{'ipaddr' if nbdkit else 'bind'}={ADDRESS}"
        argv = (*options, address, f"--port={port}", *rest)
        daemon = Daemon(argv, log, lambda: listens(port))
        url = f"nbd://{ADDRESS}:{port}"
    else:
        socket = directory / "nbd.sock"
        word = "--unix" if nbdkit else "--socket"
        argv = (*options, f"{word}={socket}", *rest)
        daemon = Daemon(argv, log, lambda: accepts(socket), sockets=[socket])
        url = f"nbd+unix:///?socket={socket}"
    with running(daemon):
        yield url, daemon
