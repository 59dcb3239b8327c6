"""`python -m vdisklab` is the command `vdisklab`."""

from vdisklab.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
