"""What `run` says at its end."""

from __future__ import annotations

import shlex


def next_step(path: str | None, db: str | None, campaign: str | None) -> str:
    """The commands that show the results of a run and print the configuration of a path.

    `db` and `campaign` are named unless they are the defaults (None).
    """
    place = "" if db is None else f" --db {shlex.quote(db)}"
    chosen = "" if campaign is None else f" --campaign {campaign}"
    see = f"see it: vdisklab report{chosen}{place}"
    return see if path is None else f"{see}; paste it: vdisklab export {path}{place}"
