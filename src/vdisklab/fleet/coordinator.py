"""The client's side: which hosts are there, giving them a campaign, waiting, and stopping."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Future, fire_and_forget
from distributed.comm import CommClosedError
from distributed.security import Security

from vdisklab.errors import EXIT_CELLS_FAILED, EXIT_INTERRUPTED, HostError, PlanError, VdisklabError
from vdisklab.fleet.host_campaign import LAST_LINES, check_here, measure_here, stop_here
from vdisklab.fleet.nodes import RETRY_SECONDS, Say, place_of
from vdisklab.fleet.quiet_settings import read_json, version_difference
from vdisklab.results.host_choice import chosen_hosts
from vdisklab.value import Value

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 180.0
"""Seconds for the scheduler to fetch an answer from a worker, whose network may be down for a
while.
"""

_LOST = (OSError, CommClosedError, CancelledError, TimeoutError, asyncio.TimeoutError)
_POLL_SECONDS = 1.0
_NO_NUMBERS = "no ranking: "
_NO_ANSWER = "its worker's answer is not one: is another version installed there?"
_NO_WORD = "its worker says that the campaign is done, and has no line that it printed"
_LONGEST_LINE = 1000
_MOST_CAMPAIGNS = 10_000
_LARGEST = 1e15
_SHUT = "it has ended, but the scheduler cannot reach its worker's port (`fleet worker --port`)"


class FleetMember(Value):
    """One worker as the scheduler knows it. `campaign` is empty if none runs there.

    `until` is the last day of its certificate, `silent` the seconds since the scheduler last heard
    from it.
    """

    name: str
    address: str
    versions: Mapping[str, str]
    facts: Mapping[str, str]
    until: str
    campaign: Mapping[str, Any]
    silent: float


class HostResult(Value):
    """How a host's campaign ended: the status of `vdisklab run`, None if the host never came.

    `campaigns` has the ids of those that the host says it measured, or found complete.
    """

    host: str
    status: int | None
    lines: tuple[str, ...]
    campaigns: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The end in words."""
        reason = f": {_sentence(self.lines)}" if self.lines else ""
        if self.status is None:
            return f"gave up{reason}"
        nothing = any(line.startswith(_NO_NUMBERS) for line in self.lines)
        outcomes = {
            0: "done",
            EXIT_CELLS_FAILED: f"done, but cells failed{reason if nothing else ''}",
            EXIT_INTERRUPTED: "stopped",
        }
        return outcomes.get(self.status, f"failed with status {self.status}{reason}")


def _sentence(lines: Sequence[str]) -> str:
    """The error in the last lines of a log with its hint, else the last line."""
    for number, line in reversed(tuple(enumerate(lines))):
        for prefix in ("error: ", _NO_NUMBERS):
            if line.startswith(prefix):
                hints = [f" ({more.removeprefix('hint: ')})" for more in lines[number + 1 :]]
                return line.removeprefix(prefix) + "".join(hints[:1])
    return lines[-1]


@contextmanager
def connected(address: str, security: Security) -> Iterator[Client]:
    """A client of the scheduler. Raises HostError if it does not answer, or has other versions."""
    try:
        client = Client(
            address,
            security=security,
            timeout=CONNECT_SECONDS,
            set_as_default=False,
            name="vdisklab",
        )
    except (OSError, TimeoutError, CommClosedError) as error:
        raise HostError(
            f"the scheduler {address} does not answer, or refuses this certificate",
            hint="is `vdisklab fleet scheduler` running there, with certificates of the same "
            "authority?",
        ) from error
    try:
        difference = version_difference("the scheduler", _identity(client).get("versions"))
        if difference is not None:
            raise HostError(difference, hint="install the same versions on all hosts of the fleet")
        yield client
    finally:
        with suppress(*_LOST):
            client.close(timeout=2)


def _identity(client: Client) -> dict[str, Any]:
    identity: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)
    return identity


def members(client: Client) -> tuple[FleetMember, ...]:
    """The connected workers, by name."""
    now = time.time()
    workers = _identity(client).get("workers", {}).items()
    return tuple(
        sorted(
            (_member(address, worker, now) for address, worker in workers),
            key=lambda member: member.name,
        )
    )


def _member(address: str, worker: Mapping[str, Any], now: float) -> FleetMember:
    """A worker as the scheduler knows it; what a worker says of itself may be anything."""
    hello, metrics = read_json(worker.get("hello")), worker.get("metrics")
    state = read_json(metrics.get("campaign")) if isinstance(metrics, Mapping) else {}
    since = finite(state.get("since"))
    line = {"line": str(state["line"])} if "line" in state else {}
    return FleetMember(
        name=str(worker.get("name")),
        address=address,
        versions=_texts(hello.get("versions")),
        facts=_texts(hello.get("facts")),
        until=str(hello.get("until", "")),
        campaign=line if since is None else {"since": since, **line},
        silent=max(0.0, now - (finite(worker.get("last_seen")) or now)),
    )


def _texts(value: object) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, dict) else {}


def finite(value: object) -> float | None:
    """The value if it is a number, and not NaN or infinity; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _LARGEST else None  # False for NaN


def choose_members(there: Sequence[FleetMember], wanted: Sequence[str]) -> tuple[str, ...]:
    """The names of the hosts that `all`, names and FACT=VALUE choose.

    A named host may still be absent, and join later. Raises PlanError if nothing is chosen, and
    HostError for a host of another version.
    """
    by_name = {member.name: member for member in there}
    facts = {member.name: member.facts for member in there}
    chosen = chosen_hosts(wanted, facts)
    if not chosen:
        raise PlanError(
            "no worker is connected",
            hint="start `vdisklab fleet worker` on the hosts; `vdisklab fleet status` lists them",
        )
    for name in chosen:
        other = by_name.get(name)
        difference = None if other is None else version_difference(name, other.versions)
        if difference is not None:
            raise HostError(difference, hint="install the same versions on all hosts of the fleet")
    return chosen


@dataclass(slots=True)
class CampaignRun:
    """One command for many hosts, and its result on each.

    A host that is away for `give_up` seconds is given up. `seen` has the time at which each host
    was last there.
    """

    hosts: Sequence[str]
    task: str
    give_up: float
    say: Say
    results: dict[str, HostResult] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seen = dict.fromkeys(self.hosts, time.monotonic())

    @property
    def left(self) -> list[str]:
        """The hosts without a result."""
        return [host for host in self.hosts if host not in self.results]

    def wait(self, address: str, security: Security) -> tuple[HostResult, ...]:
        """Gives the command and waits for all hosts. If the wait is interrupted, the hosts go on.

        If the scheduler is restarted, the command is given again: hosts then continue, or have
        nothing to do.
        """
        waiting = False
        while self.left:
            try:
                with connected(address, security) as client:
                    waiting = False
                    self._collect(client)
            except HostError as error:
                if not waiting:
                    self.say(f"waiting for the scheduler: {error}")
                waiting = True
            except _LOST:
                self.say("the connection to the scheduler is lost; the hosts go on")
            if self.left:
                self._without_the_absent()
                time.sleep(RETRY_SECONDS)
        return tuple(self.results[host] for host in self.hosts)

    def _collect(self, client: Client) -> None:
        """Submits the task for each host and takes the results as they come."""
        futures = {host: _submitted(client, self.task, host) for host in self.left}
        while futures:
            there = {member.name for member in members(client)}
            for host, future in list(futures.items()):
                if host in there:
                    self.seen[host] = time.monotonic()
                if future.status in ("cancelled", "lost"):
                    raise CommClosedError("the scheduler was restarted")
                if future.done():
                    self._note(_result(host, futures.pop(host)))
                    if self.results[host].status is None:  # else it would be begun again and again
                        client.cancel([future], force=True)
            for host in self._without_the_absent():
                client.cancel([futures.pop(host)], force=True)
            time.sleep(_POLL_SECONDS)

    def _without_the_absent(self) -> list[str]:
        """Notes the hosts that were away for too long; returns them."""
        now = time.monotonic()
        gone = [host for host in self.left if now - self.seen[host] > self.give_up]
        for host in gone:
            self._note(HostResult(host, None, (f"not there for {self.give_up:.0f} s",)))
        return gone

    def _note(self, result: HostResult) -> None:
        self.results[result.host] = result
        self.say(f"{result.host}: {result.sentence}")


def task_of(arguments: Sequence[str], url: str | None) -> str:
    """The text that is sent to a host: the arguments of `vdisklab run`, and the database."""
    return json.dumps({"arguments": list(arguments), "db": url})


def _submitted(client: Client, task: str, host: str) -> Future:
    digest = hashlib.sha256(task.encode()).hexdigest()[:12]
    future = client.submit(
        measure_here,
        task,
        key=f"vdisklab-{digest}-{host}",
        pure=False,
        resources={place_of(host): 1},
    )
    fire_and_forget(future)  # the campaign goes on when this client ends
    return future


def _result(host: str, future: Future) -> HostResult:
    if future.status == "error":
        return HostResult(host, VdisklabError.exit_code, (str(future.exception()),))
    try:
        report = read_json(future.result(ANSWER_SECONDS))
    except TimeoutError:
        return HostResult(host, None, (_SHUT,))
    return result_of(host, report)


def result_of(host: str, report: Mapping[str, Any]) -> HostResult:
    """The result in a worker's answer. One that is no answer is a failure of that host."""
    status, lines = report.get("status"), report.get("lines")
    if not isinstance(status, int) or isinstance(status, bool) or not isinstance(lines, list):
        return HostResult(host, VdisklabError.exit_code, (_NO_ANSWER,))
    texts = tuple(str(line)[:_LONGEST_LINE] for line in lines[-LAST_LINES:])
    if status == 0 and not texts:  # `vdisklab run` always says something
        return HostResult(host, VdisklabError.exit_code, (_NO_WORD,))
    named = report.get("campaigns")
    ids = named[:_MOST_CAMPAIGNS] if isinstance(named, list) else ()
    return HostResult(host, status, texts, tuple(str(name)[:_LONGEST_LINE] for name in ids))


def without_results(results: Sequence[HostResult], stored: Collection[str]) -> tuple[str, ...]:
    """The hosts that say they are done, but name no campaign, or one that is not among `stored`.

    `stored` has the ids of the database's campaigns that have runs. Two workers of one machine may
    name the same campaign, and a worker's name need not be its host's.
    """
    return tuple(
        result.host
        for result in results
        if result.status == 0
        and not (result.campaigns and all(name in stored for name in result.campaigns))
    )


def stop_hosts(client: Client, names: Collection[str]) -> dict[str, str]:
    """Interrupts the campaigns on these hosts, waits for their cleanup, says what happened."""
    there = {member.address: member.name for member in members(client) if member.name in names}
    if not there:
        return {}
    answers = client.run(_stop, workers=list(there), on_error="return")
    return {there[address]: str(answer) for address, answer in answers.items()}


def check_hosts(client: Client, url: str, directory: str | None = None) -> list[dict[str, Any]]:
    """Whether each host has what a campaign needs: the fields of `WorkerCheck`."""
    there = members(client)
    if not there:
        return []
    answers = client.run(_check, url, directory, on_error="return")
    checks = []
    for member in there:
        answer = answers.get(member.address, "gone")
        report = _report(read_json(answer)) or {
            "database": str(answer)[:_LONGEST_LINE] or _NO_ANSWER
        }
        checks.append(
            {
                "leftovers": None,
                "host": member.name,
                "versions": version_difference(member.name, member.versions) or "",
                "certificate_until": member.until,
                "facts": member.facts,
                **report,
            }
        )
    return checks


def _report(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a worker's check has, as far as they are of the right kind; empty without the
    database's."""
    report: dict[str, Any] = {}
    for key, kind in (("database", str), ("directory", str), ("free_bytes", int),
                      ("leftovers", int)):  # fmt: skip
        if isinstance(answer.get(key), kind):
            report[key] = answer[key]
    return report if "database" in report else {}


async def _check(url: str, directory: str | None) -> str:
    return await asyncio.to_thread(check_here, url, directory)


async def _stop() -> str:
    return await asyncio.to_thread(stop_here)
