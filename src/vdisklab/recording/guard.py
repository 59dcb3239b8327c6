"""A process that switches a guest's trace events off when vdisklab dies without doing so.

    python -m vdisklab.recording.guard SECONDS NOTE

It waits for the end of its standard input, which vdisklab holds open, or for so many seconds. The
word `done` there says that nothing is left to do.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from vdisklab.errors import VdisklabError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Entry
from vdisklab.host.waiting import patience
from vdisklab.recording.tracing import TRACE, stop_tracing
from vdisklab.units import decimal_number

_DONE = b"done"
_END_SECONDS = 30.0


@contextmanager
def guard(detail: Mapping[str, str], seconds: float) -> Iterator[None]:
    """Runs the guard while the context is open; it acts after `seconds` in any case."""
    note = json.dumps(dict(detail))
    # -P: nothing is loaded from the current directory, which may be another user's.
    command = [sys.executable, "-P", "-m", __name__, f"{seconds:.1f}", note]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C is vdisklab's
    )
    said = None
    try:
        yield
        said = _DONE
    finally:  # without `done` the guard tries what failed once more
        try:
            process.communicate(said, timeout=_END_SECONDS * patience())
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def main(arguments: Sequence[str]) -> int:
    """Waits, then switches off; the exit status is 1 if that failed."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    seconds, note = decimal_number(arguments[0]) or 0.0, json.loads(arguments[1])
    ended, _, _ = select.select([0], [], [], seconds)
    if ended and os.read(0, len(_DONE)) == _DONE:
        return 0
    try:
        stop_tracing(LocalHost(), Entry(0, TRACE, str(note.get("guest")), note))
    except VdisklabError:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
