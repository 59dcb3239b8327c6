"""Prints each run of a database; the exit status is 0 if N runs were measured, all under KVM.

    python lab_under_kvm.py DATABASE N

For script/test-lab: inside the lab, and below it for the runs that a lab has brought back.
"""

from __future__ import annotations

import sys

from vdisklab.results.store import open_store

wrong = 0
with open_store(sys.argv[1], create=False) as store:
    runs = list(store.runs())
for run in runs:
    wrong += run.failure is not None or run.accelerator != "kvm"
    columns = [str(run.path), run.page_cache.value, run.accelerator, f"{run.wall_seconds:.1f} s"]
    # Of a guest of the user's own: what it is. The micro guest has the programs of the lab itself.
    columns += [
        check.observed
        for check in run.checks
        if check.name in ("guest.system", "guest.kernel", "guest.fio")
    ]
    print(*columns, run.failure.sentence if run.failure else "")
sys.exit(wrong > 0 or len(runs) != int(sys.argv[2]))
