"""The command `vdisklab`, also as `python -m vdisklab`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence

from vdisklab.errors import EXIT_INTERRUPTED

_GUEST_ARCHITECTURE = "VDISKLAB_GUEST_ARCH"


def main() -> int:
    """Runs one verb; returns the exit status. Ctrl-C during loading ends the program at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Nothing is open yet, and a library that is half loaded may print a traceback.
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    # Our matrices are small, so the threads that OpenBLAS starts on each CPU only cost time, and
    # sums would depend on their number. pydantic looks for plugins in every installed package.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Python looks for the modules of `-m` and of multiprocessing in the current directory first,
    # where another user may have put theirs, as in /tmp. None that we start does (python(1), -P).
    os.environ["PYTHONSAFEPATH"] = "1"
    _choose_guests(sys.argv[1:])
    gc.disable()  # nearly all that is loaded stays
    from vdisklab.cli.shell.main import main as run_verb  # noqa: PLC0415

    return run_verb()


def _choose_guests(arguments: Sequence[str]) -> None:
    """Sets the guests' architecture, which is the same for the whole process, before it is read.

    It is the last one that `--guest-arch` names, or `--arch` of the verb `lab`; without these words
    it is this host's (`vdisklab.path.architecture.GUEST`).
    """
    option = "--arch" if "lab" in arguments[:1] else "--guest-arch"
    os.environ.pop(_GUEST_ARCHITECTURE, None)
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == option:
            value = value if equals else "".join(arguments[place + 1 : place + 2])
            os.environ[_GUEST_ARCHITECTURE] = value


if __name__ == "__main__":
    raise SystemExit(main())
