"""A signal ends a query that never would."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from vdisklab.results.store import open_store

from .values import a_campaign, a_run


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def has_open(pid: int, file: Path) -> bool:
    """True while the process has the file open."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed just now
            links.append(link.readlink())
    return file in links


# The same handler has both; 1 s each.
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGINT]
)
def test_an_endless_view_does_not_keep_a_verb_from_ending(
    number: signal.Signals, tmp_path: Path
) -> None:
    file, campaign = tmp_path / "db.sqlite", a_campaign()
    with open_store(str(file)) as store:
        store.add_campaign(campaign)
        store.add_run(a_run(campaign))
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "ALTER TABLE campaign RENAME TO kept; CREATE VIEW campaign AS WITH RECURSIVE n(x) AS "
            "(SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT kept.* FROM kept, n WHERE x < 0"
        )
    arguments = [sys.executable, "-m", "vdisklab", "runs", "--db", str(file)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            reading, since = False, 0.0  # the query is all that takes long once the file is open
            while not reading or cpu_seconds(process.pid) < since + 0.5:
                assert process.poll() is None, process.communicate()[0]
                if not reading and (reading := has_open(process.pid, file)):
                    since = cpu_seconds(process.pid)
                time.sleep(0.1)
            process.send_signal(number)
            said, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert b"Traceback" not in said
