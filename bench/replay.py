"""Does a replay repeat a recording, and choose the path that the application would choose?

    python bench/replay.py measure WORK GROUP [ROUNDS]    # 25 minutes under emulation; goes on
    python bench/replay.py measure WORK GROUP:APPLICATION ROUNDS    # further rounds of it alone
    python bench/replay.py apply WORK GROUP[:APPLICATION] ROUNDS    # without the replays
    python bench/replay.py replay WORK GROUP[:APPLICATION] ROUNDS   # only the replays
    python bench/replay.py repeat WORK GROUP[:APPLICATION] PAIRS    # timed replays, for `short`
    python bench/replay.py pairs WORK APPLICATION REPLAYS    # a long load and its timed replays
    python bench/replay.py keep WORK
    python bench/replay.py show fidelity
    python bench/replay.py show short
    python bench/replay.py show choice

`measure` runs ten applications (replay-applications.toml) on six paths, and records with QEMU's
trace events what each asks of its disk. What each did on one path is then replayed on all six as
fast as it goes. The group `score` is the default score on the same paths; the others are
applications that share their guests. All of it lies on a disk that takes stated times
(slow_disk.py), so that the disk decides and not the emulated processor.

`pairs` records an application of replay-long.toml on one path, and then timed replays of this
recording there. The host's ext4 commits its journal only when it is asked to: by its clock it would
do so every five seconds, each time at other requests. `fidelity` compares the recordings: requests
and bytes by kind, the time from the first request to the last one's end, and service times at QEMU.
`repeat` and `short` do so for the short loads of `measure`, with those commits.

`choice` compares the six paths' order by each application with that by its replay as fast as it
goes, and by the score: Kendall's tau, and how much slower the application is on the path that the
replay would choose.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from msgspec import to_builtins

from machine import machine_facts
from pages import keep_record, record_of
from slow_disk import DiskTimes, slow_disk
from vdisklab.analysis.distributions import t_isf
from vdisklab.campaign import measure_cell
from vdisklab.campaign.attachment import GuestPlace, Place, run_measured
from vdisklab.campaign.watches import Watch
from vdisklab.cli.shell.main import main as vdisklab
from vdisklab.guest import machine
from vdisklab.loads.load import IoKind, LoadSource, RecordedBy, RecordedLoad
from vdisklab.loads.load_file import encode, read_load
from vdisklab.loads.qemu_trace.trace_log import TRACED, read_trace
from vdisklab.results.store import open_store
from vdisklab.workload.program import Outputs, Script

RECORD = "replay.json.gz"
PATHS = (
    "raw/none", "raw/writeback", "raw/writethrough", "raw/unsafe", "qcow2/none", "btrfs/raw/none",
)  # fmt: skip
KEEPING = tuple(path for path in PATHS if not path.endswith("/unsafe"))
"""Those that keep what was flushed: nobody chooses another one for a database."""
RECORDED_ON = "qcow2/none"
PROFILE = Path(__file__).with_name("replay-applications.toml")
LONG = Path(__file__).with_name("replay-long.toml")
APPLICATIONS = tuple(
    measurement["name"] for measurement in tomllib.loads(PROFILE.read_text())["measurement"]
)
LONG_APPLICATIONS = tuple(
    measurement["name"] for measurement in tomllib.loads(LONG.read_text())["measurement"]
)
READERS = ("postgresql-reads",)
"""Their transactions are counted as reads."""
GROUPS = {
    "sqlite": ("sqlite", "sqlite-delete", "sqlite-large"),
    "postgresql": ("postgresql", "postgresql-alone", "postgresql-reads"),
    "rocksdb": ("rocksdb", "rocksdb-8"),
    "mariadb": ("mariadb", "mariadb-alone"),
}
DISK_BYTES = 512 << 20
SLOW = DiskTimes(read=20, write=20, flush=100)
SLOW_BYTES = 6 << 30
COMMON = ("--size", "512M", "--guest-memory", "512M", "--page-cache", "cold")
WHOLE = ("--runtime", "60s")
LONG_WHOLE = ("--runtime", "600s")
"""Longer than each load of `measure` and of `pairs`, which is replayed whole then."""
NO_CLOCK = "commit=3600"
"""For ext4: the seconds after which it commits its journal without being asked."""
BEGAN = ".began"
"""Beside each load: when it began, microseconds since 1970."""
_LEAST_ROUNDS = 3
_PERCENTILES = ("p50", "p95", "p99")
_UNTIMED = dict.fromkeys(_PERCENTILES)
_KINDS = (IoKind.READ, IoKind.WRITE, IoKind.FLUSH)


@dataclass(slots=True)
class Recorder:
    """Records each measured program; `label` says where the next recordings go."""

    directory: Path
    label: str = ""
    of: str = ""

    def run(self, place: Place, script: Script, watch: Watch) -> Outputs:
        """As `run_measured`, while QEMU logs the requests of the guest's disks."""
        if not isinstance(place, GuestPlace):
            return run_measured(place, script, watch)
        (bus,) = (bus for bus in TRACED if bus.name == "virtio")
        monitor, log = place.machine.monitor, self.directory / "trace.log"
        log.unlink(missing_ok=True)

        def switch(*, on: bool) -> None:
            target = str(log) if on else "/dev/null"
            line = {"command-line": f"logfile {target}"}
            if on:
                monitor.execute("human-monitor-command", line)
            for event in (*bus.events, *bus.further):
                monitor.execute("trace-event-set-state", {"name": event, "enable": on})
            if not on:
                monitor.execute("human-monitor-command", line)

        switch(on=True)
        _in_real_time(place.machine.pid)
        try:
            return run_measured(place, script, watch)
        finally:
            switch(on=False)
            self._keep(log)

    def _keep(self, log: Path) -> None:
        (bus,) = (bus for bus in TRACED if bus.name == "virtio")
        with log.open("rb") as lines:
            places = read_trace(lines, bus, 512).requests.places
        if not places:
            raise SystemExit("QEMU logged no request of a disk")
        # The guest's other disks bring programs and data, which were read before.
        place = max(places.values(), key=len)
        begin = min(place.due_us)
        span = max(
            due + max(took, 0) for due, took in zip(place.due_us, place.service_us, strict=True)
        )
        source = LoadSource(
            self.label, RecordedBy.QEMU_TRACE, span - begin + 1, disk_bytes=DISK_BYTES, bus="virtio"
        )
        load = place.load(source, begin, timed=True)
        file = next(name for number in count(1) if not (name := self.file(number)).exists())
        file.write_bytes(encode(load))
        file.with_suffix(BEGAN).write_text(str(begin))
        log.unlink()

    def file(self, number: int) -> Path:
        """Where the recording of that number with this label lies."""
        arguments = self.label.replace("/", "_").replace(":", "-").replace("=", "-").split()
        return self.directory / f"{self.of}{'-'.join(arguments)}-{number}.load"


def _in_real_time(qemu: int) -> None:
    """Lets QEMU go before all others, and its threads that do requests before its processors.

    Else a recording on a busy machine is one of how busy it was just then. Threads that they start
    inherit it.
    """
    for thread in Path(f"/proc/{qemu}/task").iterdir():
        is_processor = (thread / "comm").read_text().startswith("CPU ")
        os.sched_setscheduler(
            int(thread.name), os.SCHED_RR, os.sched_param(1 if is_processor else 2)
        )


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """While it is open, measured programs in guests are recorded."""
    measure = measure_cell._measure
    build_argv = vars(machine)["build_argv"]

    def timed(*config: Any) -> tuple[str, ...]:  # noqa: ANN401
        return (*build_argv(*config), "-msg", "timestamp=on")

    def named(context: Any, cell: Any, attachment: Any, plan: Any) -> Any:  # noqa: ANN401
        recorder.label = f"{plan.name} {cell.path.canonical}"
        return measure(context, cell, attachment, plan)

    measure_cell._measure = named
    vars(measure_cell)["run_measured"] = recorder.run
    vars(machine)["build_argv"] = timed
    try:
        yield
    finally:
        measure_cell._measure = measure
        vars(measure_cell)["run_measured"] = run_measured
        vars(machine)["build_argv"] = build_argv


def run(
    work: Path, directory: Path, name: str, *arguments: str, paths: Sequence[str] = PATHS
) -> None:
    """One campaign on these paths in a directory, with a database of its own."""
    command = [
        "run", *paths, "--baseline", "none", "--db", str(work / f"{name}.sqlite"),
        "--dir", str(directory), *arguments,
    ]  # fmt: skip
    status = vdisklab(command)
    if status:
        raise SystemExit(f"vdisklab {' '.join(command)} ended with {status}")


def applications_of(group: str) -> tuple[str, ...]:
    """Those of a group, or of `GROUP:APPLICATION` the one."""
    name, _, application = group.partition(":")
    if application and application not in GROUPS[name]:
        raise SystemExit(f"{name} has no application {application}: {', '.join(GROUPS[name])}")
    return (application,) if application else GROUPS[name]


def measure(work: Path, group: str, rounds: str) -> None:
    """The score, or a group's applications and then their replays; what is there can be kept."""
    apply(work, group, rounds)
    if group != "score":
        replay(work, group, rounds)


def apply(work: Path, group: str, rounds: str) -> None:
    """The score, or a group's applications."""
    work.mkdir(parents=True, exist_ok=True)
    with slow_disk(work, SLOW_BYTES, SLOW) as slow:
        if group == "score":
            run(work, slow, "score", "--profile", "short", *COMMON, "--rounds", rounds)
            return
        with recording(Recorder(work)):
            profile = str(profile_of(applications_of(group), work))
            run(work, slow, "applications", "--profile", profile, *COMMON, "--rounds", rounds)
        for application in applications_of(group):
            load = work / f"{application}.load"
            if not load.exists():
                recorded = Recorder(work, f"{application} {RECORDED_ON}").file(1)
                load.write_bytes(recorded.read_bytes())


def replay(work: Path, group: str, rounds: str) -> None:
    """The replays of a group's loads, as fast as they go, on all paths.

    They are recorded as the applications are, so that both pay for it, and can be compared.
    """
    profile = str(replays_of(applications_of(group), work, "fast"))
    with slow_disk(work, SLOW_BYTES, SLOW) as slow, recording(Recorder(work, of="fast-")):
        run(
            work, slow, "replays", "--profile", profile, *COMMON, *WHOLE, "--rounds", rounds,
        )  # fmt: skip


def replays_of(applications: Sequence[str], work: Path, mode: str) -> Path:
    """A profile with the replay of each of these applications."""
    head = f'name = "{mode}-{"-".join(applications)}"\ntitle = "replays"\n'
    file = work / f"{mode}.toml"
    file.write_text(
        head
        + "".join(
            f'[[measurement]]\nname = "{application}"\nprogram = "replay"\nmode = "{mode}"\n'
            f'load = "{work / application}.load"\n'
            for application in applications
        )
    )
    return file


def profile_of(applications: Sequence[str], work: Path, profile: Path = PROFILE) -> Path:
    """A profile with these applications alone."""
    head, *measurements = profile.read_text().split("[[measurement]]")
    mine = [
        text
        for text in measurements
        if any(f'name = "{application}"\n' in text for application in applications)
    ]
    file = work / f"{'-'.join(applications)}.toml"
    file.write_text("[[measurement]]".join([head, *mine]))
    return file


def repeat(work: Path, group: str, pairs: str) -> None:
    """Timed replays of each load on the path where it was recorded, each recorded, too."""
    applications = applications_of(group)
    with slow_disk(work, SLOW_BYTES, SLOW) as slow:
        _repeat(work, slow, applications, pairs, WHOLE)


def _repeat(
    work: Path, slow: Path, applications: Sequence[str], times: str, whole: Sequence[str]
) -> None:
    profile = str(replays_of(applications, work, "timed"))
    with recording(Recorder(work, of="replayed-")):
        run(
            work, slow, "timed", "--profile", profile, "--rounds", times, *whole, *COMMON,
            paths=(RECORDED_ON,),
        )  # fmt: skip


def pairs(work: Path, application: str, replays: str) -> None:
    """A recording of a long load, and so many timed replays of it, each recorded, too."""
    work.mkdir(parents=True)
    with slow_disk(work, SLOW_BYTES, SLOW, options=NO_CLOCK) as slow:
        with recording(recorder := Recorder(work)):
            profile = str(profile_of([application], work, LONG))
            run(
                work, slow, "applications", "--profile", profile, *COMMON, "--rounds", "1",
                paths=(RECORDED_ON,),
            )  # fmt: skip
        (work / f"{application}.load").write_bytes(recorder.file(1).read_bytes())
        _repeat(work, slow, [application], replays, LONG_WHOLE)


def rounds_of(
    database: Path, wanted: Mapping[str, tuple[str, str]]
) -> dict[str, list[dict[str, float]]]:
    """By measurement, for each round the metric by path, a rate; a duration is inverted.

    `wanted` has metric and direction by measurement.
    """
    rounds: dict[str, dict[tuple[str, int], dict[str, float]]] = {}
    with open_store(str(database)) as store:
        for campaign in store.campaigns():
            for run in store.runs(campaign.id):
                for measurement in run.measurements:
                    if measurement.name not in wanted:
                        continue
                    for sample in measurement.samples:
                        if (sample.metric, sample.direction.value) == wanted[measurement.name]:
                            mine = rounds.setdefault(measurement.name, {})
                            mine.setdefault((campaign.id, run.round), {})[
                                run.measured_cell.name
                            ] = 1 / sample.value if sample.metric == "duration" else sample.value
    return {name: list(mine.values()) for name, mine in rounds.items()}


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By path the median over the rounds."""
    paths = dict.fromkeys(path for each in rounds for path in each)
    return {path: median(each[path] for each in rounds if path in each) for path in paths}


def tau(first: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Kendall's tau-a of two rankings of the same paths."""
    pairs = list(combinations(sorted(first.keys() & other.keys()), 2))
    agree = sum(np.sign(first[a] - first[b]) * np.sign(other[a] - other[b]) for a, b in pairs)
    return float(agree / len(pairs))


def best(rates: Mapping[str, float]) -> str:
    """The fastest of the paths that keep what was flushed."""
    return max(KEEPING, key=lambda path: rates[path])


def loss(application: Mapping[str, float], chosen_by: Mapping[str, float]) -> float:
    """How much slower the application is on the path that `chosen_by` has as its best."""
    return 1 - application[best(chosen_by)] / application[best(application)]


def loss_interval(
    rounds: Sequence[Mapping[str, float]], chosen: str, fastest: str
) -> tuple[float, float] | None:
    """The 95 % interval of the loss, from the ratio of both paths in each round (Student's t of its
    logarithm); None for fewer than three rounds, or if the paths are the same."""
    pairs = [each for each in rounds if chosen in each and fastest in each]
    if len(pairs) < _LEAST_ROUNDS or chosen == fastest:
        return None
    logs = np.log([each[chosen] / each[fastest] for each in pairs])
    half = t_isf(0.025, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return float(1 - np.exp(logs.mean() + half)), float(1 - np.exp(logs.mean() - half))


def whole_rounds(rounds: Sequence[Mapping[str, float]]) -> int:
    """In how many rounds each path was measured at least."""
    return min(sum(path in each for each in rounds) for path in PATHS)


def between_rounds(rounds: Sequence[Mapping[str, float]]) -> float | None:
    """How far rounds of one path are apart: the largest through the smallest, in the median of the
    paths; None for a single round."""
    found = [
        max(rates) / min(rates)
        for path in KEEPING
        if len(rates := [each[path] for each in rounds if path in each]) > 1
    ]
    return median(found) if found else None


def described(load: RecordedLoad) -> dict[str, Any]:
    """What two recordings are compared by."""
    ends = load.due_us + np.maximum(load.service_us, 0)
    is_flush = load.kind == IoKind.FLUSH
    about: dict[str, Any] = {
        "seconds": float(ends.max() - load.due_us.min()) / 1e6,
        "flushes_beside_another": int((load.due_us[is_flush][1:] < ends[is_flush][:-1]).sum()),
    }
    for kind in _KINDS:
        mine = load.kind == kind
        took = load.service_us[mine & load.is_timed]
        about[kind.name.lower()] = {
            "requests": int(mine.sum()),
            "bytes": int(load.length[mine].sum()),
            **{
                name: float(np.percentile(took, int(name[1:]))) if len(took) else None
                for name in _PERCENTILES
            },
        }
    return about


def keep(work: Path) -> dict[str, Any]:
    """The record of what was measured."""
    of_score = work / "score" / "score.sqlite"
    score = scores(of_score) if of_score.exists() else {}
    if len(score) < len(PATHS):
        score = {}
    return {
        "machine": machine_facts(work),
        "recorded_on": RECORDED_ON,
        "disk": to_builtins(SLOW),
        "fidelity": [
            pair
            for application in LONG_APPLICATIONS
            for directory in directories_of(work / "pairs", application)
            for pair in _pairs(directory, application)
        ],
        "short": [
            pair
            for group, application in _applications()
            for pair in _pairs(work / group, application)
        ],
        "choice": [
            chosen
            for group, application in _applications()
            if (chosen := _choice(work / group, application, score)) is not None
        ],
    }  # fmt: skip


def _applications() -> list[tuple[str, str]]:
    return [(group, application) for group in GROUPS for application in GROUPS[group]]


def directories_of(above: Path, application: str) -> Iterator[Path]:
    """One for each recording of a long load."""
    for number in count(1):
        if not (directory := above / f"{application}.{number}").exists():
            return
        yield directory


def _pairs(directory: Path, application: str) -> list[dict[str, Any]]:
    """The recording of an application beside the recording of each of its timed replays."""
    load = directory / f"{application}.load"
    return [
        {"application": application, "path": RECORDED_ON,
         "recorded": described(read_load(load)), "replayed": described(read_load(replay))}
        for replay in _replayed(directory, application)
    ]  # fmt: skip


def _replayed(directory: Path, application: str) -> Iterator[Path]:
    """The recordings of this application's timed replays."""
    of = Recorder(directory, f"{application} {RECORDED_ON}", "replayed-")
    for number in count(1):
        if not of.file(number).exists():
            return
        yield of.file(number)


def _choice(directory: Path, application: str, score: Mapping[str, float]) -> dict[str, Any] | None:
    """The three rankings of the paths; None while one of the first two is not whole.

    Figures of the score are None if it was not measured.
    """
    side = "read" if application in READERS else "write"
    original, replay = directory / "applications.sqlite", directory / "replays.sqlite"
    if not original.exists() or not replay.exists():
        return None
    rounds = rounds_of(original, {application: ("transactions", side)}).get(application, [])
    replayed = rounds_of(replay, {application: ("iops", "none")}).get(application, [])
    mine, replays = medians(rounds), medians(replayed)
    if not len(replays) == len(mine) == len(PATHS):
        return None
    return {
        "application": application, "rates": mine, "replay": replays, "score": score,
        "rounds": [whole_rounds(rounds), whole_rounds(replayed)],
        "between_rounds": [between_rounds(rounds), between_rounds(replayed)],
        "tau": tau(mine, replays), "loss": loss(mine, replays),
        "loss_interval": loss_interval(rounds, best(replays), best(mine)),
        "score_tau": tau(mine, score) if score else None,
        "score_loss": loss(mine, score) if score else None,
        "worst": loss(mine, {path: -rate for path, rate in mine.items()}),
    }  # fmt: skip


def scores(database: Path) -> dict[str, float]:
    """The geometric mean of the four bandwidths of the score by path: a rank needs no baseline."""
    sides = {
        "seqwrite-1m-q1": "write", "randwrite-4k-q1": "write", "seqread-1m-q1": "read",
        "randread-4k-q1": "read",
    }  # fmt: skip
    found: dict[str, dict[str, float]] = {}
    for name, side in sides.items():
        sustained = rounds_of(database, {name: ("sustained", side)}).get(name)
        plain = rounds_of(database, {name: ("bandwidth", side)}).get(name)
        found[name] = medians(sustained or plain or [])
    paths = set.intersection(*(set(by_path) for by_path in found.values()))
    return {
        path: float(np.exp(np.mean([np.log(by_path[path]) for by_path in found.values()])))
        for path in paths
    }


def shown(arguments: list[str]) -> str:
    """The record's table: `fidelity`, `short` or `choice`."""
    record = record_of(RECORD)
    if arguments[0] in ("fidelity", "short"):
        return "\n".join(_fidelity_rows(record[arguments[0]]))
    lines = [
        "| application | rounds | of its replay | one path between rounds | replay: tau "
        "| its choice costs | 95 % | score: tau | its choice costs | the worst choice costs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in record["choice"]:
        lines.append(
            f"| {row['application']} | {row['rounds'][0]} | {row['rounds'][1]} "
            f"| {', '.join(map(_times, row['between_rounds']))} | {row['tau']:.2f} "
            f"| {row['loss']:.0%} | {_range(row['loss_interval'])} "
            f"| {_or_dash(row['score_tau'], '.2f')} | {_or_dash(row['score_loss'], '.0%')} "
            f"| {row['worst']:.0%} |"
        )
    return "\n".join(lines)


def _or_dash(number: float | None, form: str) -> str:
    return "–" if number is None else format(number, form)


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"×{ratio:.2f}"


def _range(interval: Sequence[float] | None) -> str:
    return "–" if interval is None else f"{interval[0]:.0%} to {interval[1]:.0%}"


def _fidelity_rows(pairs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """By application: in how many of its pairs each goal is met, and the ratios' medians.

    Times are those of the reads or the writes, whichever are more; p99 rests on the slowest
    hundredth of them. `replayed` has by replay how many flushes began beside another one. How far
    p99 of several replays of one load is apart says how much of a difference is the machine's.
    """
    yield (
        "| application | pairs | same requests and bytes | same flushes | beside another flush "
        "| replayed | length within 1 % | of | p99 rests on | p50 within 10 % | p95 | p99 "
        "| p50 | p95 | p99 | p99 between replays |"
    )
    yield f"{'|---' * 16}|"
    for application in dict.fromkeys(pair["application"] for pair in pairs):
        mine = [pair for pair in pairs if pair["application"] == application]
        recorded = mine[0]["recorded"]
        kind = max(("read", "write"), key=lambda name: recorded[name]["requests"])
        ratios = {
            what: [pair["replayed"][kind][what] / pair["recorded"][kind][what] for pair in mine]
            for what in _PERCENTILES
        }
        same = {
            kinds: sum(
                all(pair["recorded"][kind] | _UNTIMED == pair["replayed"][kind] | _UNTIMED
                    for kind in kinds)
                for pair in mine
            )
            for kinds in (("read", "write"), ("flush",))
        }  # fmt: skip
        length = sum(
            abs(pair["replayed"]["seconds"] / pair["recorded"]["seconds"] - 1) <= 0.01
            for pair in mine
        )
        near = {what: sum(0.9 <= ratio <= 1.1 for ratio in ratios[what]) for what in ratios}
        beside = [str(pair["replayed"]["flushes_beside_another"]) for pair in mine]
        apart = max(ratios["p99"]) / min(ratios["p99"])
        yield (
            f"| {application} | {len(mine)} | {same['read', 'write']} | {same['flush',]} "
            f"| {recorded['flushes_beside_another']} | {', '.join(beside)} "
            f"| {length} | {kind}s | {recorded[kind]['requests'] // 100} "
            f"| {near['p50']} | {near['p95']} | {near['p99']} | "
            + " | ".join(f"×{median(ratios[name]):.2f}" for name in _PERCENTILES)
            + f" | {f'×{apart:.2f}' if len(mine) > 1 else '–'} |"
        )


def main() -> None:
    """Measures, keeps or shows."""
    verb, *arguments = sys.argv[1:]
    actions = {"measure": measure, "apply": apply, "replay": replay, "repeat": repeat}
    if verb == "pairs":
        work, application, replays = arguments
        above = Path(work).absolute() / "pairs"
        number = len(list(directories_of(above, application))) + 1
        pairs(above / f"{application}.{number}", application, replays)
    elif verb in actions:
        work, group, *rounds = arguments
        directory = Path(work).absolute() / group.partition(":")[0]
        actions[verb](directory, group, rounds[0] if rounds else "1")
    elif verb == "keep":
        keep_record(RECORD, keep(Path(arguments[0])))
    else:
        sys.stdout.write(f"{shown(arguments)}\n")


if __name__ == "__main__":
    main()
