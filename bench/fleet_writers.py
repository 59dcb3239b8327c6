"""200 simulated hosts write at once into one PostgreSQL: rate, lock waits, size.

    bench/fleet_writers.py [--hosts 200] [--cells 20] [--rounds 3] [--processes 4] [--json FILE]

Needs PostgreSQL's server programs. The hosts are threads of a few processes, each with its own
connection, and store the runs of bench/fleet_data.py through `Store.add_run`, as `vdisklab run`
does, without pauses: real hosts write a run every few seconds. Beside them the sessions that wait
for a lock are counted ten times a second (pg_stat_activity). PostgreSQL's usual 100 connections do
not do for 200 hosts, so max_connections is 300.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.unit.results.postgresql_server import private_server

from fleet_data import Fleet, campaigns
from fleet_faults import restart
from machine import machine_facts
from vdisklab.results.store import open_store


def write(url: str, fleet: Fleet, first: int, step: int, begin: Any) -> None:  # noqa: ANN401
    """The hosts `first`, `first + step` … of a fleet as threads."""
    mine = [pair for number, pair in enumerate(campaigns(fleet)) if number % step == first]

    def host(campaign: Any, runs: Any) -> None:  # noqa: ANN401
        with open_store(url, create=False, patience=120) as store:
            store.add_campaign(campaign)
            for run in runs:
                store.add_run(run)

    threads = [threading.Thread(target=host, args=pair) for pair in mine]
    begin.wait()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def waits(url: str, ended: threading.Event) -> Counter[str]:
    """How many sessions were seen waiting for what, in all looks together."""
    seen: Counter[str] = Counter()
    with psycopg.connect(url, autocommit=True) as connection:
        while not ended.wait(0.1):
            seen["looks"] += 1
            rows = connection.execute(
                "SELECT coalesce(wait_event_type, 'running'), count(*) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() "
                "AND state <> 'idle' GROUP BY 1"
            )
            seen.update({str(kind): int(count) for kind, count in rows})
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    fleet = Fleet(given.hosts, given.cells, given.rounds)
    with private_server() as server:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET max_connections = 300")
        restart(server)
        url = server.new_database()
        with open_store(url):
            pass
        begin = multiprocessing.Barrier(given.processes + 1)
        writers = [
            multiprocessing.Process(target=write, args=(url, fleet, first, given.processes, begin))
            for first in range(given.processes)
        ]
        for writer in writers:
            writer.start()
        begin.wait()
        started, ended = time.monotonic(), threading.Event()
        seen: list[Counter[str]] = []
        watch = threading.Thread(target=lambda: seen.append(waits(url, ended)))
        watch.start()
        for writer in writers:
            writer.join()
        seconds = time.monotonic() - started
        ended.set()
        watch.join()
        with psycopg.connect(url) as connection:
            (runs, samples, size, deadlocks), *_ = connection.execute(
                "SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM sample), "
                "pg_database_size(current_database()), (SELECT deadlocks FROM pg_stat_database "
                "WHERE datname = current_database())"
            ).fetchall()
    looks = seen[0].pop("looks")
    answer = {
        **machine_facts(Path("/tmp")),  # noqa: S108 - where the server's data are
        "hosts": given.hosts,
        "runs": runs,
        "expected runs": given.hosts * given.cells * given.rounds,
        "samples": samples,
        "seconds": round(seconds, 1),
        "runs per second": round(runs / seconds, 1),
        "sessions waiting, mean": {kind: round(n / looks, 2) for kind, n in seen[0].items()},
        "deadlocks": deadlocks,
        "bytes": size,
        "bytes per run": round(size / max(runs, 1)),
    }
    text = json.dumps(answer, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")
    return 0 if runs == answer["expected runs"] and not deadlocks else 1


if __name__ == "__main__":
    sys.exit(main())
