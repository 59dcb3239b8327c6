"""A place for campaigns through the real command line, and the proof that they leave nothing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from vdisklab.cli.shell.main import main
from vdisklab.results.model import Run
from vdisklab.results.store import open_store

_PROFILE = """
name = "short"
title = "One write and one read"

[[measurement]]
name = "write"
program = "fio"
rw = "write"
bs = "64k"

[[measurement]]
name = "read"
program = "fio"
rw = "randread"
bs = "4k"
iodepth = 4
"""

_FILES = """
name = "files"
title = "Two jobs that write to files"

[[measurement]]
name = "write"
program = "fio"
filesystem = "ext4"
rw = "randwrite"
bs = "16k"
size = "4M"
numjobs = 2
fsync = 1
"""


@dataclass(frozen=True)
class Lab:
    """A work directory, a database and a state of its own; the guest's image is shared."""

    directory: Path
    state: Path

    @property
    def database(self) -> Path:
        return self.directory / "lab.sqlite"

    @property
    def work(self) -> Path:
        return self.directory / "work"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "vdisklab", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path), "VDISKLAB_STATE": str(self.state)},
        )

    def call(self, *arguments: str) -> tuple[int, str]:
        """Exit status and what was printed by the command line in this process.

        A program of its own loads all modules again, half a second of CPU: use `start` only for a
        program that is killed, that runs beside the test, or whose start is tested.
        """
        said = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            patch.setenv("VDISKLAB_STATE", str(self.state))
            status = main(arguments)
        said.seek(0)
        return status, said.read()

    def arguments(
        self,
        *paths: str,
        rounds: int = 1,
        runtime: str = "200ms",
        profile: str = "short",
        cpus: int = 1,
    ) -> Sequence[str]:
        """Guests have one CPU: they boot sooner, and QEMU 7.2 sometimes forgets the second."""
        return (
            "run", *paths, "--profile", str(self.directory / f"{profile}.toml"),
            "--baseline", "none", "--page-cache", "cold", "--rounds", str(rounds),
            "--runtime", runtime, "--ramp", "0", "--size", "32M", "--accelerator", "tcg",
            "--guest-cpus", str(cpus),
            "--dir", str(self.work),
            "--db", str(self.database),
        )  # fmt: skip

    def run(self, *paths: str, rounds: int = 1, cpus: int = 1) -> tuple[int, str]:
        """Exit status and what was printed."""
        return self.call(*self.arguments(*paths, rounds=rounds, cpus=cpus))

    def stop_and_continue(
        self, stopped_by: signal.Signals, arguments: Sequence[str], *, planned: int
    ) -> list[Run]:
        """The runs of a campaign of so many that was stopped after the first and called again.

        What was measured is kept, and nothing is left on the host, after SIGKILL by `clean`.
        """
        with self.start(*arguments) as process:
            self.wait_for_runs(process, 1)
            process.send_signal(stopped_by)
            printed, _ = process.communicate(timeout=60)
        kept = self.runs()
        assert 1 <= len(kept) < planned, printed
        if stopped_by is signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
            assert self.leftovers() != []
            status, said = self.call("clean")
            assert status == 0, said
        else:
            assert process.returncode == 130, printed
            assert "interrupted" in printed
        assert self.leftovers() == []
        status, printed = self.call(*arguments)
        assert status == 0, printed
        assert f"continuing: {len(kept)} of {planned} runs" in printed
        runs = self.runs()
        assert {run.id for run in kept} < {run.id for run in runs}
        return runs

    def runs(self) -> list[Run]:
        with open_store(str(self.database)) as store:
            return list(store.runs())

    def leftovers(self) -> list[str]:
        """What is still mounted, attached, running or noted; the guest's image may stay."""
        left = [str(path) for path in self.work.iterdir()]
        left += [str(path) for path in (self.state / "ledger").glob("*.jsonl")]
        left += [
            line
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if self.is_in(line)
        ]
        for file in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):  # detached meanwhile
                left += [name] if self.is_in(name := file.read_text()) else []
        left += [f"QEMU {pid}" for pid in self.guests()]
        return left

    def is_in(self, text: str) -> bool:
        return str(self.work) in text

    def prepare(self) -> None:
        """Makes the work directory and the profile."""
        self.work.mkdir()
        (self.directory / "short.toml").write_text(_PROFILE)
        (self.directory / "files.toml").write_text(_FILES)

    def wait_for_runs(self, process: subprocess.Popen[str], count: int) -> None:
        """Returns once so many runs are in the database; the process must live on.

        The database is opened when it was written: opening it ten times a second takes a tenth of
        a CPU from what is waited for.
        """
        deadline = time.monotonic() + 240
        looked_at = None
        while True:
            written = self.database.stat().st_mtime_ns if self.database.exists() else None
            if written != looked_at and len(self.runs()) >= count:
                return
            looked_at = written
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def guests(self) -> list[int]:
        """The processes of QEMU and virtiofsd that have to do with the work directory."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments = file.read_bytes().decode(errors="replace")
            except OSError:
                continue
            program = arguments.partition("\0")[0]
            if program.startswith("qemu-system") or program.endswith("virtiofsd"):
                if not self.is_in(arguments):
                    continue
                found.append(int(file.parent.name))
        return found


def require_ran_as_planned(
    lab: Lab, runs: Iterable[Run], arguments: Sequence[str], *, only: bool = False
) -> None:
    """What a run of each path executed is what `plan --commands` prints for it, in its order.

    With `only`, nothing else of what it prints is left, apart from building the disk.
    """
    _, *command_line = arguments
    place = command_line.index("--db")
    del command_line[place : place + 2]
    _, printed = lab.call("plan", *command_line, "--commands", "--format", "json")
    by_cell = json.loads(printed[printed.index("{") :])["commands"]
    planned = {cell.partition(" (")[0]: commands for cell, commands in by_cell.items()}
    for run in runs:
        shown = planned[run.path]
        lines = [shown["qemu"], *shown["qmp"], *shown["measurements"]]
        ran = dict.fromkeys(_as_planned(run.commands))
        if only:
            assert list(ran) == _as_planned(lines)
        listed = dict.fromkeys(_as_planned([*shown["host"], *lines]))
        assert list(ran) == [line for line in listed if line in ran]


def _as_planned(commands: Sequence[str]) -> list[str]:
    """Commands with `RUN` for what a run makes up, and without descriptors' numbers."""
    text = "\0".join(commands)
    text = re.sub(r"vdisklab-[0-9a-f]{8}(-\d+)?", "vdisklab-RUN", text)
    text = re.sub(r"\bvdl[0-9a-f]{8}\b", "vdlRUN", text)
    text = re.sub(r"(--write_\w+_log=\S+-)[0-9a-f]{8}\b", r"\1RUN", text)
    text = re.sub(r"(--startdelay|--randseed)=\w+", r"\1=RUN", text)
    return re.sub(r"\bfd=\d+", "fd=N", text).split("\0")
