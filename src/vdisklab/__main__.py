"""The command `vdisklab`, also as `python -m vdisklab`."""

from __future__ import annotations

from vdisklab.errors import EXIT_INTERRUPTED


def main() -> int:
    """Runs one verb; returns the exit status. Ctrl-C during loading prints no traceback either."""
    try:
        # It loads numpy, SQLAlchemy and more, which takes a second or two.
        from vdisklab.cli.shell.main import main as run_verb  # noqa: PLC0415
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return run_verb()


if __name__ == "__main__":
    raise SystemExit(main())
