"""tgt: one target with one LUN on a file."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.daemon import ADDRESS, Daemon, Server, accepts, free_port, listens, run, running

TARGET = "iqn.2026-01.net.example:disk"
USER = "alice"

# Mode page 8 with the bit WCE (in the third value) cleared; tgt's own page has 0x14.
_NO_CACHE = "mode_page=8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"


@dataclass(frozen=True)
class _Tgt(Server):
    """tgt forgets its targets, so they are made again after a start."""

    commands: tuple[tuple[str, ...], ...] = ()

    def restart(self) -> None:
        super().restart()
        self.make()

    def make(self) -> None:
        for command in self.commands:
            run("tgtadm", "-C", "1", "--lld", "iscsi", *command, environment=self.environment)


@contextmanager
def tgt(
    directory: Path, image: Path, *, write_cache: bool = True, read_only: bool = False,
    chap: bool = False,
) -> Iterator[Server]:  # fmt: skip
    """tgt with a raw file as LUN 1. `write_cache` is what it claims; it is honest both ways.

    With `chap` its password is in the file `password` of the directory.
    """
    port, ipc = free_port(), directory / "tgt"
    environment = {"TGT_IPC_SOCKET": str(ipc)}
    lun = ("--mode", "logicalunit", "--tid", "1", "--lun", "1")
    commands: list[tuple[str, ...]] = [
        ("--op", "new", "--mode", "target", "--tid", "1", "-T", TARGET),
        ("--op", "new", *lun, "-b", str(image)),
    ]
    if not write_cache:
        commands.append(("--op", "update", *lun, "--params", _NO_CACHE))
    if read_only:
        commands.append(("--op", "update", *lun, "--params", "readonly=1"))
    objects: tuple[str, ...] = ()
    if chap:
        password = directory / "password"
        password.write_text(secrets.token_hex(8))  # 12 to 16 bytes, as CHAP wants
        account = ("--mode", "account", "--user", USER)
        commands.append(("--op", "new", *account, "--password", password.read_text()))
        commands.append(("--op", "bind", *account, "--tid", "1"))
        objects = (f"secret,id=password,file={password}",)
    commands.append(("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"))
    daemon = Daemon(
        ("tgtd", "-f", "--iscsi", f"portal={ADDRESS}:{port}", "-C", "1"),
        directory / "tgtd.log",
        lambda: accepts(Path(f"{ipc}.1")) and listens(port),
        environment,
        sockets=[Path(f"{ipc}.1")],
        seconds_to_end=0,  # it does not end while it has targets
    )
    url = f"iscsi://{ADDRESS}:{port}/{TARGET}/1"
    server = _Tgt(url, directory, (daemon,), objects, environment, tuple(commands))
    with running(daemon):
        server.make()
        yield server
