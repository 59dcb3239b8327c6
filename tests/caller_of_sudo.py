"""The user who called sudo, as an enemy: her directory is the work directory, and she moves what
root makes in it as soon as it is there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

EVE = 65534
"""Her user number; she is a process of her own with her own rights."""

_OFTEN = 0.002
_OPENED = 0.1
"""Seconds until root has opened what it made."""


@dataclass(frozen=True)
class Prize:
    """A directory of root's that she wants written, beside her own."""

    directory: Path

    def seen(self) -> list[tuple[str, int, int, int]]:
        """All that a write there would change."""
        return [
            (str(each.relative_to(self.directory)), seen.st_mode, seen.st_size, seen.st_mtime_ns)
            for each in [self.directory, *sorted(self.directory.rglob("*"))]
            for seen in [each.lstat()]
        ]


def make_prize(above: Path) -> Prize:
    """The prize, with a file in it under a name that a site uses."""
    directory = above / "roots"
    directory.mkdir(mode=0o700)
    (directory / "random.source").write_text("precious\n")
    return Prize(directory)


@contextmanager
def swapping(
    work: Path, prize: Prize, monkeypatch: pytest.MonkeyPatch, *, spared: int = 1
) -> Iterator[Path]:
    """While open, a private directory in `work` is moved, and a link to the prize takes its name.

    The first `spared` directories are left alone: those in which stacks are tried. The context is
    the file in which Eve counts what she moved.
    """
    os.chown(work, EVE, EVE)
    monkeypatch.setenv("SUDO_UID", str(EVE))
    tally = work.parent / "moved"
    tally.touch()
    there, counter = os.open(work, os.O_RDONLY | os.O_DIRECTORY), os.open(tally, os.O_WRONLY)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(EVE, EVE, EVE)
            os.setresuid(EVE, EVE, EVE)
            _swap(there, counter, os.fspath(prize.directory), spared)
        finally:
            os._exit(1)
    try:
        yield tally
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(there)
        os.close(counter)
        for link in work.iterdir():
            if link.is_symlink():
                link.unlink()


def _swap(work: int, counter: int, prize: str, spared: int) -> None:
    met = 0
    there = False
    while True:
        names = [name for name in os.listdir(work) if name.startswith("vdisklab-")]
        if not names:
            there = False
        elif not there:
            there, met = True, met + 1
            if met > spared:
                time.sleep(_OPENED)
                with suppress(OSError):
                    os.rename(names[0], f"moved-{met}", src_dir_fd=work, dst_dir_fd=work)
                    os.symlink(prize, names[0], dir_fd=work)
                    os.write(counter, b"x")
        time.sleep(_OFTEN)
