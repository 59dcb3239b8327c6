"""The command `vdisklab`, also as `python -m vdisklab`."""

from __future__ import annotations

import gc
import os
import signal

from vdisklab.errors import EXIT_INTERRUPTED


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
    gc.disable()  # nearly all that is loaded stays
    from vdisklab.cli.shell.main import main as run_verb  # noqa: PLC0415

    return run_verb()


if __name__ == "__main__":
    raise SystemExit(main())
