"""Kills a fleet at random while it measures, and counts what is lost: nothing may be.

    bench/fleet_faults.py [--kills 100] [--hosts 3] [--rounds 60] [--seed 1]

Needs root, fio and PostgreSQL's server programs. Starts a PostgreSQL, a scheduler and a worker for
each host; a host is a mount and network namespace with a machine id, a name and a state directory
of its own. The campaign measures the disk path `host`, which needs no guest. At random moments it

* kills (SIGKILL) a worker, the scheduler, the client, or the campaign's process on a host,
* stops PostgreSQL at once and starts it again,
* takes a host's network away for 40 seconds,

and starts again what was killed, as systemd would; the client gives the same command. After each it
notes which runs are stored. At the end every cell must be stored once on each host, every run that
was ever seen must still be there, and no host may have a ledger entry or a process left.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.unit.fleet.nodes import Fleet, fleet_in
from tests.unit.results.postgresql_server import Server, private_server

from machine import machine_facts, print_result
from vdisklab.host.ledger import leftovers

MEASURED = "SELECT id FROM run WHERE failure_kind IS NULL"

DEAD = 40.0
"""Seconds without a network: longer than Dask's and the kernel's patience of 30 s."""

PROFILE = """\
name = "one-read"
title = "One short random read"

[[measurement]]
name = "randread-4k-q1"
program = "fio"
rw = "randread"
bs = "4k"
"""


KINDS = {
    "worker": 30, "campaign": 25, "scheduler": 20, "client": 15, "postgresql": 5, "network": 5,
}  # fmt: skip
"""What is killed, with its weight."""


@dataclass
class Trial:
    """The fleet under fire; `seen` has the ids of all runs that were ever stored."""

    fleet: Fleet
    server: Server
    hosts: list[str]
    rounds: int
    seen: set[str] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)
    client: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The database, through PostgreSQL's socket."""
        return self.server.url("fleet")

    @property
    def waits(self) -> bool:
        """True while the client waits for the hosts."""
        return self.client is not None and self.client.poll() is None

    def start_client(self) -> None:
        """Gives the command for all hosts."""
        arguments = ["host", "--profile", str(self.fleet.directory / "profile.toml"), "--dir",
                 str(self.fleet.directory / "work"), "--runtime", "0.1", "--ramp", "0",
                 "--size", "16M", "--rounds", str(self.rounds)]  # fmt: skip
        with (self.fleet.directory / "client.log").open("ab") as log:
            self.client = subprocess.Popen(
                [sys.executable, "-m", "vdisklab", "fleet", "run", *arguments,
                 *(word for host in self.hosts for word in ("--hosts", host)),
                 "--scheduler", self.fleet.address, "--tls", self.fleet.tls, "--db", self.url],
                stdout=log, stderr=log,
            )  # fmt: skip

    def start_worker(self, host: str) -> None:
        """Starts a host's worker in its namespaces."""
        number = self.hosts.index(host)
        state = self.fleet.directory
        script = (
            f"mount --bind {state}/id-{host} /etc/machine-id && hostname {host} && "
            f'mount --bind {state}/work-{host} {state}/work && exec "$@"'
        )
        self.fleet.worker(
            host,
            ("ip", "netns", "exec", space(number), "unshare", "--mount", "--uts", "sh", "-c",
             script, "-"),
            VDISKLAB_SCHEDULER=f"tls://10.99.{number}.1:{self.fleet.port}",
        )  # fmt: skip

    def keep_alive(self) -> None:
        """Starts again what has ended, as systemd would, and the client if work is left."""
        for name, node in list(self.fleet.nodes.items()):
            if node.poll() is not None:
                self.fleet.scheduler() if name == "scheduler" else self.start_worker(name)
        if not self.waits:
            if self.client is not None and self.client.returncode == 0:
                self.rounds += 20
            self.start_client()

    def fault(self, rng: random.Random) -> None:
        """One fault of a random kind on a random host."""
        (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
        host = rng.choice(self.hosts)
        if kind == "worker":
            self.fleet.kill(host)
        elif kind == "scheduler":
            self.fleet.kill("scheduler")
        elif kind == "client" and self.client is not None:
            self.client.kill()
            self.client.wait()
        elif kind == "campaign" and not self._kill_campaign(host):
            return
        elif kind == "postgresql":
            restart(self.server)
        elif kind == "network":
            number = self.hosts.index(host)
            run("ip", "link", "set", f"vdlf{number}", "down")
            time.sleep(DEAD)
            run("ip", "link", "set", f"vdlf{number}", "up")
        self.faults[kind] += 1

    def _kill_campaign(self, host: str) -> bool:
        campaigns = processes(self.fleet.state(host), "run")
        for process in campaigns:
            process.kill()
        return bool(campaigns)

    def look(self) -> int:
        """Records the stored runs and those that have gone; returns the number stored."""
        engine = sa.create_engine(self.url.replace("postgresql:", "postgresql+psycopg:"))
        try:
            with engine.connect() as connection:
                now = set(connection.scalars(sa.text(MEASURED)))
        except sa.exc.SQLAlchemyError:
            return len(self.seen)  # PostgreSQL is starting, or has no tables yet
        finally:
            engine.dispose()
        self.lost |= self.seen - now
        self.seen |= now
        return len(now)

    def counts(self) -> Counter[tuple[str, int, str]]:
        """How often each cell of each round of each host is stored as measured."""
        engine = sa.create_engine(self.url.replace("postgresql:", "postgresql+psycopg:"))
        query = sa.text(
            "SELECT host.hostname, run.round, run.cell FROM run JOIN campaign ON "
            "campaign.key = run.campaign JOIN host ON host.key = campaign.host "
            "WHERE run.failure_kind IS NULL"
        )
        with engine.connect() as connection:
            answer = Counter((str(h), int(b), str(c)) for h, b, c in connection.execute(query))
        engine.dispose()
        return answer


def processes(state: Path, verb: str) -> list[psutil.Process]:
    """The processes of `vdisklab VERB` with this state directory."""
    answer = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get("VDISKLAB_STATE") == str(state)
            if is_ours and process.cmdline()[1:4] == ["-m", "vdisklab", verb]:
                answer.append(process)
        except psutil.Error:
            continue
    return answer


def run(*arguments: str) -> None:
    subprocess.run(arguments, check=True, timeout=60, stdout=subprocess.DEVNULL)


def space(number: int) -> str:
    return f"vdlf-host{number}"


@contextmanager
def networks(count: int) -> Iterator[None]:
    """A network namespace for each host, with a cable to this one."""
    try:
        for number in range(count):
            name, inside = space(number), f"vdli{number}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"vdlf{number}", "type", "veth", "peer", inside, "netns", name)
            run("ip", "addr", "add", f"10.99.{number}.1/30", "dev", f"vdlf{number}")
            run("ip", "link", "set", f"vdlf{number}", "up")
            for arguments in (
                ("addr", "add", f"10.99.{number}.2/30", "dev", inside),
                ("link", "set", inside, "up"),
                ("link", "set", "lo", "up"),
            ):
                run("ip", "-n", name, *arguments)
        yield
    finally:
        for number in range(count):
            subprocess.run(["ip", "netns", "del", space(number)], check=False, timeout=60)


def restart(server: Server) -> None:
    """Stops PostgreSQL at once, as a power cut would, and starts it again."""
    from tests.unit.results import postgresql_server as pg  # noqa: PLC0415

    data = server.socket_directory / "data"
    arguments = [*pg._as_user(server.socket_directory), str(pg._programs() / "pg_ctl")]
    arguments += ["-D", str(data), "-m", "immediate", "-w"]
    arguments += ["-l", str(server.socket_directory / "log"), "restart"]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, cwd=server.socket_directory)


def prepare(directory: Path, hosts: list[str]) -> None:
    (directory / "work").mkdir()
    (directory / "profile.toml").write_text(PROFILE)
    for number, host in enumerate(hosts, 1):
        (directory / f"work-{host}").mkdir()
        (directory / f"id-{host}").write_text(f"{number:032x}\n")


def trial(given: argparse.Namespace, directory: Path, server: Server) -> dict[str, object]:
    rng = random.Random(given.seed)  # noqa: S311 - repeatable
    hosts = [f"kvm{number}" for number in range(1, given.hosts + 1)]
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE fleet")
    prepare(directory, hosts)
    started = time.monotonic()
    with networks(len(hosts)), fleet_in(directory) as fleet:
        under = Trial(fleet, server, hosts, given.rounds)
        fleet.listen = f"tls://0.0.0.0:{fleet.port}"
        fleet.scheduler()
        for host in hosts:
            under.start_worker(host)
        while sum(under.faults.values()) < given.kills:
            under.keep_alive()
            time.sleep(rng.uniform(*given.pause))
            under.fault(rng)
            under.look()
            done = sum(under.faults.values())
            print(f"{done} faults, {len(under.seen)} runs, {len(under.lost)} lost", file=sys.stderr)
        end = time.monotonic() + 900
        # The client also waits for a host whose worker was the last one to be killed.
        while under.look() < len(hosts) * under.rounds or under.waits:
            if time.monotonic() > end:
                break
            if not under.waits:
                under.start_client()
            for name, node in list(fleet.nodes.items()):
                if node.poll() is not None:
                    fleet.scheduler() if name == "scheduler" else under.start_worker(name)
            time.sleep(2)
        if under.client is not None:
            under.client.wait(120)
        counts = under.counts()
    return {
        "hosts": len(hosts),
        "rounds": under.rounds,
        "faults": dict(under.faults),
        "expected": len(hosts) * under.rounds,
        "stored": len(counts),
        "lost": len(under.lost),
        "twice": sum(count > 1 for count in counts.values()),
        "ledger entries left": sum(entries_left(fleet.state(host)) for host in hosts),
        "processes left": sum(len(processes(fleet.state(host), "run")) for host in hosts),
        "seconds": round(time.monotonic() - started),
    }


def entries_left(state: Path) -> int:
    with leftovers(state) as ledgers:
        return sum(len(ledger.entries) for ledger in ledgers)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--pause", type=float, nargs=2, default=(1.0, 5.0))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vdisklab-faults-") as name, private_server() as server:
        answer = {**machine_facts(Path(name)), **trial(given, Path(name), server)}
    print_result(answer)
    return 0 if not (answer["lost"] or answer["twice"]) else 1


if __name__ == "__main__":
    sys.exit(main())
