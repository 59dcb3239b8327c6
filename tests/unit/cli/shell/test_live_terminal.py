"""The progress of `run` as real pseudo-terminals show it."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyte
import pytest

from tests.unit.stored import Database
from vdisklab.cli.shell.main import main

ROOT = Path(__file__).parents[4]
CURSOR_IS_SHOWN = b"\x1b[?25h"


class Terminal:
    """A terminal on which `drawn.py` runs."""

    def __init__(self, columns: int, rows: int, url: str, more: Mapping[str, str]) -> None:
        self._master, slave = os.openpty()
        self.screen = pyte.HistoryScreen(columns, rows, history=500)
        self._stream = pyte.ByteStream(self.screen)
        self.sent = b""
        self.resize(columns, rows)
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.cli.shell.drawn", url],
            stdin=subprocess.PIPE,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env={**kept, "PYTHONPATH": paths, "LANG": "C.UTF-8", "TERM": "xterm-256color", **more},
        )
        os.close(slave)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def step(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def all_lines(self) -> list[str]:
        """With those that have scrolled away."""
        gone = self.screen.history.top
        width = range(self.screen.columns)
        return ["".join(row[place].data for place in width).rstrip() for row in gone] + self.lines

    def see(self, *texts: str, seconds: float = 60.0) -> str:
        """The screen, once it shows all texts."""
        end = time.monotonic() + seconds
        while not all(text in " ".join(self.lines) for text in texts):
            waits = self._read(0.2) or self.process.poll() is None
            if not waits or time.monotonic() > end:
                raise AssertionError("\n".join(["the screen is", *self.lines]))
        return "\n".join(self.lines)

    def end(self) -> int:
        """Waits until the program has ended."""
        while self._read(60.0):
            pass
        return self.process.wait(60)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            read = os.read(self._master, 1 << 16)
        except OSError:  # nobody has the terminal open any more
            return False
        self.sent += read
        self._stream.feed(read)
        return bool(read)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._master)


@contextmanager
def drawing(
    database: Database, columns: int = 80, rows: int = 24, more: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    terminal = Terminal(columns, rows, database.url, more or {})
    try:
        yield terminal
    finally:
        terminal.close()


def test_the_ranking_of_rank_stands_above_the_current_cell(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    with drawing(database) as terminal:
        seen = terminal.see("round 3, cell 5/5: raw/none · randread-4k-q1 · 12 MB/s, 3000 IOPS")
        assert "PROVISIONAL" not in seen, "before the third round has ended"
        terminal.step()
        seen = terminal.see("PROVISIONAL, after 4 rounds", "seqread-1m-q1", "left in this round")
        terminal.step()
        seen = terminal.see("✗ 16 round 4, cell 1/5: raw/writeback (cold): no answer", "cell 2/5")
        assert seen.count("PROVISIONAL") == 1
        terminal.step()
        assert terminal.end() == 0
    left = [line for line in terminal.all_lines if line]
    assert [line[:4] for line in left] == ["cont", "meas", "✓ 15", "✗ 16", "the "], (
        "one line for each cell remains, and no ranking"
    )
    assert terminal.sent.rstrip().endswith(b"the answer")
    assert terminal.sent.count(CURSOR_IS_SHOWN) == 1
    assert main(["rank", "--db", database.url]) == 0
    (verdict, *_) = capsys.readouterr().out.splitlines()
    assert verdict in seen, "the words are those of `rank`"


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (20, 10),
        # Wider, where all fits more easily; a second for each.
        pytest.param(120, 50, marks=pytest.mark.nightly),
        *(pytest.param(40, rows, marks=pytest.mark.nightly) for rows in (12, 24)),
    ],
)
def test_every_line_fits_into_the_terminal(database: Database, columns: int, rows: int) -> None:
    with drawing(database, columns, rows) as terminal:
        terminal.see("3000 IOPS")
        terminal.step()
        terminal.see("seqread-1m-q1", "left")
        terminal.step()
        seen = terminal.see("cell 2/5")
        assert seen.count("cell 2/5") == 1, "what was drawn before has been wiped out"
        if rows >= 24:
            assert seen.count("PROVISIONAL") == 1
            assert " 1–2 " in seen
        if columns == 120:
            assert "more line" not in seen


def test_a_terminal_may_change_its_size(database: Database) -> None:
    with drawing(database, 100, 30) as terminal:
        terminal.see("3000 IOPS")
        terminal.step()
        terminal.see("PROVISIONAL", "qcow2/directsync")
        terminal.resize(40, 14)
        seen = terminal.see("more lines: `vdisklab rank --db x`", "left in this round")
        terminal.resize(100, 30)
        seen = terminal.see("qcow2/directsync", "left in this round")
        assert "more line" not in seen.split("PROVISIONAL")[-1]


def test_ctrl_c_gives_the_terminal_back(database: Database) -> None:
    with drawing(database) as terminal:
        terminal.see("3000 IOPS")
        terminal.step()
        terminal.see("PROVISIONAL")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
        assert terminal.lines[3] == "interrupted: 15 runs kept; the same command continues"
        assert not any(terminal.lines[4:]), "the ranking is gone"
        assert terminal.sent.count(CURSOR_IS_SHOWN) == 1


def test_no_color_means_no_colour(database: Database) -> None:
    for more, coloured in ({"NO_COLOR": "1"}, False), ({"COLORTERM": "truecolor"}, True):
        with drawing(database, more=more) as terminal:
            terminal.see("3000 IOPS")
            terminal.step()
            terminal.see("PROVISIONAL", "✓")
            assert (b"\x1b[32m" in terminal.sent) is coloured


def test_a_dumb_terminal_gets_plain_lines(database: Database) -> None:
    with drawing(database, more={"TERM": "dumb"}) as terminal:
        terminal.see("measuring a race: at least 7.0 s, usually less than 45 s, at most 1 min 30 s")
        for _ in range(3):
            terminal.step()
        assert terminal.end() == 0
    assert b"\x1b" not in terminal.sent
    said = terminal.sent.decode()
    assert said.count("PROVISIONAL") == 1, "as without a terminal"
    assert "✓ 15 round 3" in said
