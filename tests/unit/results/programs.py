"""Tests that kill, limit or multiply a writer run it as a Python process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that sees the modules that this one sees; its output is read through pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )


def output_of(program: str, *arguments: str) -> list[str]:
    """The lines that the program printed; it must end well and complain of nothing."""
    with start(program, *arguments) as process:
        printed, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")
    return printed.splitlines()
