"""The command `vdisklab`, also as `python -m vdisklab`."""

from __future__ import annotations

import importlib


def main() -> int:
    """Runs one verb; returns the exit status.

    Loading the program takes a second or more, and an interrupt meanwhile is no bug either.
    """
    try:
        edge = importlib.import_module("vdisklab.cli.main")
    except KeyboardInterrupt:
        return 130
    status: int = edge.main()
    return status


if __name__ == "__main__":
    raise SystemExit(main())
