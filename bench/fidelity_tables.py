"""Tables of vdisklab and guests made by hand, from the records of fidelity.py.

.venv/bin/python bench/fidelity_tables.py pooled      # the table of docs/guest.md
.venv/bin/python bench/fidelity_tables.py machines
.venv/bin/python bench/fidelity_tables.py changes lab-fidelity-parameters   # -write, -timer
.venv/bin/python bench/fidelity_tables.py changes fidelity-parameters
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from fidelity import typical
from pages import record_of

TITLES = {
    "write-1m-q1": "write 1M",
    "randread-4k-q1": "read 4k",
    "randwrite-4k-q1": "write 4k",
    "randread-4k-q32": "read 4k, depth 32",
}
JOBS = tuple(TITLES)
RECORDS = {
    "AMD": "lab-fidelity-amd",
    "AMD, with the Debian": "lab-fidelity-debian-amd",
    "Intel": "lab-fidelity",
    "Intel, with the Debian": "lab-fidelity-debian-intel",
    "Intel, with the Debian, again": "lab-fidelity-debian",
}
"""All records of bench/fidelity.py under KVM in the lab, by their names in the tables."""
ALL = tuple(RECORDS.values())
DEBIAN = tuple(name for name in ALL if "debian" in name)
BY_HAND, THE_DEBIAN = ("hand", "control"), ("system",)
ROWS = {
    "control ÷ hand": (ALL, "control", ("hand",)),
    "vdisklab ÷ both by hand": (ALL, "vdisklab", BY_HAND),
    "vdisklab ÷ Debian": (DEBIAN, "vdisklab", THE_DEBIAN),
    "Debian ÷ both by hand": (DEBIAN, "system", BY_HAND),
}
VALUES = {"IOPS": 0, "work": 1}
CHANGES = {
    "none (the control)": ("control", "hand"),
    "`tsc=reliable`": ("tsc", "hand"),
    "`no_timer_check`": ("no_timer_check", "hand"),
    "`lpj=8000000`": ("lpj", "hand"),
    "initcalls left out": ("initcalls", "hand"),
    "a root port": ("root-port", "hand"),
    "`-blockdev`": ("blockdev", "hand"),
    "fio's log": ("log", "hand"),
    "fio's percentiles and JSON+": ("percentiles", "hand"),
    "an ordinary buffer": ("buffer", "hand"),
    "vdisklab's guest, attachment and options of fio": ("vdisklab", "hand"),
    "the same, both with an ordinary buffer": ("ordinary", "buffer"),
    "vdisklab's watch": ("vdisklab", "unwatched"),
    "all of vdisklab's guest": ("vdisklab", "hand"),
    "all of it ÷ a guest with `tsc=reliable`": ("vdisklab", "tsc"),
}
"""The guests that each row of a table of changes divides."""
UNDER_EMULATION = ("all of vdisklab's guest", "all of it ÷ a guest with `tsc=reliable`")
TABLES = {
    "lab-fidelity-parameters": ("work", UNDER_EMULATION),
    "lab-fidelity-write": ("work", UNDER_EMULATION),
    "lab-fidelity-timer": ("work", UNDER_EMULATION),
    "fidelity-parameters": ("IOPS", ("vdisklab's guest, attachment and options of fio",)),
}
"""The value that each record of changes shows, and the rows that its table leaves out."""

Boots = list[list[dict[str, dict[str, list[float]]]]]


def boots_of(*names: str) -> Boots:
    """The rounds of each boot of these records."""
    records = record_of("lab.json.gz")
    return [boot for name in names for boot in records[name]["iops_and_work"]]


def ratio(boots: Boots, job: str, value: str, over: str, *under: str) -> dict[str, Any]:
    """From the runs. The ratio to two guests is that to their geometric mean, run by run."""
    place = VALUES[value]
    return typical([
        statistics.geometric_mean(
            runs[job][over][place]
            / statistics.geometric_mean(runs[job][arm][place] for arm in under)
            for runs in rounds
        )
        for rounds in boots
    ])  # fmt: skip


def cells(boots: Boots, jobs: Sequence[str], value: str, over: str, *under: str) -> list[str]:
    """For each job a ratio with its interval."""
    digits = 3 if value == "work" else 2
    found = [ratio(boots, job, value, over, *under) for job in jobs]
    return [
        f"{each['ratio']:.{digits}f} "
        f"({each['interval_95'][0]:.{digits}f}–{each['interval_95'][1]:.{digits}f})"
        for each in found
    ]


def pooled() -> Iterator[list[str]]:
    """All boots together: IOPS and work."""
    for value in VALUES:
        for row, (names, over, under) in ROWS.items():
            yield [row, value, *cells(boots_of(*names), JOBS, value, over, *under)]


def machines() -> Iterator[list[str]]:
    """The IOPS of vdisklab by record, divided by those of the guests by hand, and of the Debian."""
    for other, under in (("by hand", BY_HAND), ("Debian", THE_DEBIAN)):
        for machine, name in RECORDS.items():
            if other == "by hand" or name in DEBIAN:
                boots = boots_of(name)
                found = cells(boots, JOBS, "IOPS", "vdisklab", *under)
                yield [machine, other, str(len(boots)), *found]


def changes(record: str) -> Iterator[list[str]]:
    """What each change of a guest did."""
    boots, (value, left_out) = boots_of(record), TABLES[record]
    (measured, *_) = boots[0][0].values()
    for row, arms in CHANGES.items():
        if row not in left_out and {*arms} <= measured.keys():
            yield [row, *cells(boots, tuple(boots[0][0]), value, *arms)]


def shown(arguments: Sequence[str]) -> str:
    """A table in Markdown."""
    kind, *names = arguments
    jobs: Sequence[str] = JOBS
    match kind:
        case "pooled":
            head, rows = ["ratio", ""], pooled()
        case "machines":
            head, rows = ["machine below the lab", "÷", "boots"], machines()
        case _:
            head, rows = ["change"], changes(*names)
            jobs = tuple(boots_of(*names)[0][0])
    head += [TITLES[job] for job in jobs]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


if __name__ == "__main__":
    print(shown(sys.argv[1:]))
