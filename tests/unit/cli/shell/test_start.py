"""What verbs load until they have started: a module too much costs every start of the program.

`bench/start.py` measures the CPU seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.unit.stored import Database

HEAVY = (
    "alembic", "asyncpg", "distributed", "jinja2", "psycopg", "pyarrow", "qemu", "scipy",
    "sqlalchemy.dialects.postgresql", "starlette", "yaml",
)  # fmt: skip
"""Libraries for a few verbs, or for one kind of database."""

NOT_TO_ANSWER = (
    "vdisklab.actions", "vdisklab.campaign", "vdisklab.guest", "vdisklab.lab", "vdisklab.platforms",
    "vdisklab.plan.plan_file", "vdisklab.plan.profile_file", "vdisklab.results.exchange",
    "vdisklab.storage", "vdisklab.watch", "vdisklab.workload.registry",
)  # fmt: skip
"""What an answer from stored numbers does without: it measures nothing and reads no file."""

NOT_TO_RANK = (
    "numpy.ma", "vdisklab.analysis.diagnostics.servers", "vdisklab.analysis.sums",
    "vdisklab.answers.during", "vdisklab.answers.race", "vdisklab.host.ledger",
    "vdisklab.operations.registry", "vdisklab.plan.campaign", "vdisklab.plan.guest",
    "vdisklab.plan.settings", "vdisklab.progress",
)  # fmt: skip

NOT_FOR_ITS_LAST_LINE = (*NOT_TO_ANSWER, "configparser", "pydantic", "xml")
"""What `rank` does without: its last line needs of a platform the row of what it can have."""

ROWS_OF_PLATFORMS = (
    "vdisklab.platforms", "vdisklab.platforms.guest_disks", "vdisklab.platforms.present",
    "vdisklab.platforms.request", "vdisklab.storage", "vdisklab.storage.server_url",
)  # fmt: skip

NOT_TO_MEASURE = (
    "vdisklab.lab",
    "vdisklab.platforms",
    "vdisklab.results.exchange",
    "vdisklab.watch",
)

NOT_BEFORE_RANKING = (
    "vdisklab.analysis.diagnostics.ranked",
    "vdisklab.analysis.diagnostics.recorded",
    "vdisklab.analysis.diagnostics.values",
    "vdisklab.answers.analysis",
)
"""What `run` does without until something is measured."""

FOR_SOME_CELLS = tuple(
    f"vdisklab.campaign.measure_{way}" for way in ("boots", "during", "group", "life")
)

FOR_FIRST_CELL = tuple(
    f"vdisklab.campaign.{name}"
    for name in ("attachment", "context", "guests", "measure_cell", "runner", "watches")
)
FOR_GUESTS_AND_REPORTS = (
    "vdisklab.guest.factory", "vdisklab.guest.image.guest_image", "vdisklab.workload.fio_report",
)  # fmt: skip
"""What `run` does without until the first cell is measured."""

FOR_SOME_PROFILES = tuple(
    f"vdisklab.workload.{program}"
    for program in (
        "bonnie", "dd", "discard", "diskspd", "mariadb", "postgresql", "replay", "rocksdb",
        "sqlite", "sysbench",
    )
)  # fmt: skip
"""Programs that a profile of fio does without."""

FORBIDDEN: dict[tuple[str, ...], Sequence[str]] = {
    ("--help",): (
        *HEAVY, *NOT_TO_ANSWER, "numpy", "pydantic", "sqlalchemy", "vdisklab.answers",
        "vdisklab.path", "vdisklab.plan",
    ),
    ("rank", "--format", "csv"): (
        *HEAVY, *NOT_TO_ANSWER, *NOT_TO_RANK,
    ),
    ("rank",): (*HEAVY, *NOT_FOR_ITS_LAST_LINE, *NOT_TO_RANK),
    ("run", "--help"): (*HEAVY, *NOT_TO_ANSWER, "numpy", "pydantic", "sqlalchemy"),
    ("plan", "--help"): (*HEAVY, *NOT_TO_ANSWER, "numpy", "pydantic", "sqlalchemy"),
    ("run", "--again", "0000"): (
        *(set(HEAVY) - {"qemu"}), *NOT_TO_MEASURE, *NOT_BEFORE_RANKING, *FOR_SOME_CELLS,
        *FOR_FIRST_CELL, *FOR_GUESTS_AND_REPORTS, *FOR_SOME_PROFILES,
    ),
}  # fmt: skip
"""By the words of a command, the modules that it may not load."""

BUT: dict[tuple[str, ...], Sequence[str]] = {("rank",): ROWS_OF_PLATFORMS}
"""Those that it may load all the same, by their full names."""

PROGRAM = """
import json, sys
from vdisklab.__main__ import main
main()
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", FORBIDDEN, ids=" ".join)
def test_a_verb_loads_only_what_it_uses(arguments: tuple[str, ...], database: Database) -> None:
    del database  # VDISKLAB_DB names it
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True
    )
    loaded = json.loads(ended.stderr.splitlines()[-1])
    assert "vdisklab.cli.shell.main" in loaded
    forbidden = [
        name
        for name in loaded
        if any(name == module or name.startswith(f"{module}.") for module in FORBIDDEN[arguments])
        and name not in BUT.get(arguments, ())
    ]
    assert forbidden == []
