"""Charts drawn in a process of their own, while the numbers are still being read.

vl-convert takes most of a second until it can draw its first chart, and lets nothing else in its
process run meanwhile.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import vl_convert

from vdisklab.errors import HostError

Spec = dict[str, Any]

Draw = Callable[[Sequence[Spec]], Callable[[], list[str]]]
"""Begins to draw charts as SVG; what it returns waits for them."""

_SMALLEST: Spec = {"data": {"values": [{}]}, "mark": "point"}


def draw_here(specs: Sequence[Spec]) -> Callable[[], list[str]]:
    """Draws in this process, when the drawings are asked for."""
    return lambda: [vl_convert.vegalite_to_svg(spec) for spec in specs]


@dataclass(frozen=True, slots=True)
class _Helper:
    """The process, and the thread that talks to it; it draws what it is given, and ends."""

    process: subprocess.Popen[str]
    talking: ThreadPoolExecutor

    def draw(self, specs: Sequence[Spec]) -> Callable[[], list[str]]:
        asked = "".join(f"{json.dumps(spec)}\n" for spec in specs)
        answer: Future[tuple[str, str]] = self.talking.submit(self.process.communicate, asked)

        def drawn() -> list[str]:
            found = [json.loads(line) for line in answer.result()[0].splitlines()]
            if self.process.returncode or len(found) != len(specs):
                raise HostError(
                    f"drawing the charts ended with {self.process.returncode}",
                    hint="run `vdisklab report` again, or --format csv, which draws nothing",
                )
            return found

        return drawn


@contextmanager
def drawing_aside() -> Iterator[Draw]:
    """Something that draws charts once, in a process that makes itself ready at once.

    Raises HostError when the charts are asked for and the process has failed.
    """
    argv = (sys.executable, "-m", __name__)
    with (
        ThreadPoolExecutor(1) as talking,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            yield _Helper(process, talking).draw
        finally:
            process.kill()  # of one that has drawn and ended nothing is left to kill


def main() -> None:
    """Draws each line's chart on a line; ends when there are no more, or nobody listens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is our parent's, which ends us
    draw_here([_SMALLEST])()
    for line in sys.stdin:
        (drawn,) = draw_here([json.loads(line)])()
        print(json.dumps(drawn))


if __name__ == "__main__":
    main()
