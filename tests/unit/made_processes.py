"""Directories like /proc/PID, with the files that readers of processes look at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def make_process(
    processes: Path,
    number: int,
    arguments: Sequence[str],
    *,
    runs: str = "",
    cwd: Path | None = None,
    user: int | None = None,
) -> Path:
    """A process that calls itself by its first word, runs that or another file, and is a user's (by
    default the caller's)."""
    process = processes / str(number)
    (process / "fd").mkdir(parents=True)
    (process / "fdinfo").mkdir()
    (process / "cmdline").write_text("\0".join(arguments) + "\0")
    (process / "exe").symlink_to(runs or arguments[0])
    user = os.geteuid() if user is None else user
    (process / "status").write_text(f"Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\n")
    if cwd is not None:
        (process / "cwd").symlink_to(cwd)
    return process


def hold(process: Path, file: Path, flags: int = os.O_RDONLY) -> None:
    """The process has the file open with these flags."""
    number = str(len(list((process / "fd").iterdir())) + 3)
    (process / "fd" / number).symlink_to(file)
    (process / "fdinfo" / number).write_text(f"pos:\t0\nflags:\t{flags:07o}\nmnt_id:\t1\n")
