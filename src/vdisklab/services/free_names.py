"""Free names of imported results, where a disk path is expected."""

from __future__ import annotations

from vdisklab.errors import DatabaseError, PlanError
from vdisklab.path.disk_path import PathSyntaxError
from vdisklab.services.answers import open_results


def free_name(error: PathSyntaxError, db: str | None) -> PlanError | None:
    """The error for a free name that stands where a path is expected; None if nothing stored has
    that name."""
    try:
        with open_results(db) as results:
            known = results.holds_path(error.text)
    except DatabaseError:
        return None
    if not known:
        return None
    return PlanError(
        f"{error.text!r} is a free name of an import, which has numbers but no configuration",
        hint="name a disk path such as ext4/raw/none; to give the import one, import the file "
        "again with --as PATH",
    )
