"""Does a replay repeat a recording, and choose the path that the application would choose?

    python bench/replay.py measure WORK [ROUNDS]    # an hour or two under emulation; goes on
    python bench/replay.py repeat WORK PAIRS        # timed replays, for `fidelity`
    python bench/replay.py keep WORK
    python bench/replay.py show fidelity
    python bench/replay.py show choice

`measure` runs ten applications (replay-applications.toml) on six paths, and records with QEMU's
trace events what each asks of its disk. What each did on one path is then replayed on all six as
fast as it goes. The default score is measured on the same paths. All of it lies on a disk that
takes stated times (slow_disk.py), so that the disk decides and not the emulated processor.

`repeat` replays each load as it was timed, on the path and disk of the recording.

`fidelity` compares each recording with the recording of its timed replay on the same path: requests
and bytes by kind, the time from the first request to the last one's end, and service times at QEMU.
`choice` compares the six paths' order by each application with that by its replay as fast as it
goes, and by the score: Kendall's tau, and how much slower the application is on the path that the
replay would choose.
"""

from __future__ import annotations

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

from machine import machine_facts
from pages import keep_record, record_of
from slow_disk import DiskTimes, slow_disk
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
    "raw/none", "raw/writeback", "raw/writethrough", "raw/unsafe", "qcow2/none",
    "qcow2:preallocation=off/none",
)  # fmt: skip
RECORDED_ON = "qcow2/none"
PROFILE = Path(__file__).with_name("replay-applications.toml")
APPLICATIONS = tuple(
    measurement["name"] for measurement in tomllib.loads(PROFILE.read_text())["measurement"]
)
READERS = ("postgresql-reads",)
"""Their transactions are counted as reads."""
DISK_BYTES = 1 << 30
SLOW = DiskTimes(read=2, write=2, flush=8)
SLOW_BYTES = 12 << 30
COMMON = ("--size", "1G", "--guest-memory", "512M", "--page-cache", "cold")
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
        log.unlink()

    def file(self, number: int) -> Path:
        """Where the recording of that number with this label lies."""
        arguments = self.label.replace("/", "_").replace(":", "-").replace("=", "-").split()
        return self.directory / f"{self.of}{'-'.join(arguments)}-{number}.load"


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


def measure(work: Path, rounds: str) -> None:
    """The score, and then each application with its replay: what is there by then can be kept."""
    work.mkdir(exist_ok=True)
    with slow_disk(work, SLOW_BYTES, SLOW) as slow:
        run(work, slow, "score", "--profile", "short", *COMMON, "--rounds", rounds)
        for application in APPLICATIONS:
            with recording(Recorder(work)):
                profile = str(_profile_of(application, work))
                run(work, slow, application, "--profile", profile, *COMMON, "--rounds", rounds)
            load = work / f"{application}.load"
            if not load.exists():
                recorded = Recorder(work, f"{application} {RECORDED_ON}").file(1)
                load.write_bytes(recorded.read_bytes())
            run(
                work, slow, f"replay-{application}", "--profile", str(load), *COMMON,
                "--rounds", rounds,
            )  # fmt: skip


def _timed(load: Path) -> Path:
    """A profile with the timed replay alone."""
    file = load.with_name(f"timed-{load.stem}.toml")
    file.write_text(
        f'name = "timed-{load.stem}"\ntitle = "timed"\n[[measurement]]\nname = "timed"\n'
        f'program = "replay"\nload = "{load}"\nmode = "timed"\n'
    )
    return file


def _profile_of(application: str, work: Path) -> Path:
    """A profile with this application alone."""
    head, *measurements = PROFILE.read_text().split("[[measurement]]")
    (mine,) = (text for text in measurements if f'name = "{application}"' in text)
    file = work / f"{application}.toml"
    file.write_text(f"{head}[[measurement]]{mine}")
    return file


def repeat(work: Path, pairs: str) -> None:
    """Timed replays of each load on the path where it was recorded, each recorded, too."""
    loads = [load for name in APPLICATIONS if (load := work / f"{name}.load").exists()]
    with slow_disk(work, SLOW_BYTES, SLOW) as slow:
        for load in loads:
            profile = str(_timed(load))
            with recording(Recorder(work, of=f"{load.stem}-replayed-")):
                run(
                    work, slow, f"timed-{load.stem}", "--profile", profile, "--rounds", pairs,
                    "--runtime", "60s", *COMMON, paths=(RECORDED_ON,),
                )  # fmt: skip


def medians(database: Path, wanted: Mapping[str, tuple[str, str]]) -> dict[str, dict[str, float]]:
    """By measurement and path the median of its metric, a rate; a duration is inverted.

    `wanted` has metric and direction by measurement.
    """
    values: dict[str, dict[str, list[float]]] = {}
    with open_store(str(database)) as store:
        for campaign in store.campaigns():
            for run in store.runs(campaign.id):
                for measurement in run.measurements:
                    if measurement.name not in wanted:
                        continue
                    for sample in measurement.samples:
                        if (sample.metric, sample.direction.value) == wanted[measurement.name]:
                            paths = values.setdefault(measurement.name, {})
                            paths.setdefault(run.measured_cell.name, []).append(
                                1 / sample.value if sample.metric == "duration" else sample.value
                            )
    return {
        name: {path: median(numbers) for path, numbers in paths.items()}
        for name, paths in values.items()
    }


def tau(first: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Kendall's tau-a of two rankings of the same paths."""
    pairs = list(combinations(sorted(first.keys() & other.keys()), 2))
    agree = sum(np.sign(first[a] - first[b]) * np.sign(other[a] - other[b]) for a, b in pairs)
    return float(agree / len(pairs))


def loss(application: Mapping[str, float], chosen_by: Mapping[str, float]) -> float:
    """How much slower the application is on the path that `chosen_by` has as its best."""
    chosen = max(chosen_by, key=lambda path: chosen_by[path])
    return 1 - application[chosen] / max(application.values())


def described(load: RecordedLoad) -> dict[str, Any]:
    """What two recordings are compared by."""
    ends = load.due_us + np.maximum(load.service_us, 0)
    about: dict[str, Any] = {"seconds": float(ends.max() - load.due_us.min()) / 1e6}
    for kind in _KINDS:
        mine = load.kind == kind
        took = load.service_us[mine & load.is_timed]
        about[kind.name.lower()] = {
            "requests": int(mine.sum()),
            "bytes": int(load.length[mine].sum()),
            "p50": float(np.percentile(took, 50)) if len(took) else None,
            "p99": float(np.percentile(took, 99)) if len(took) else None,
        }
    return about


def keep(work: Path) -> dict[str, Any]:
    """The record of what was measured."""
    fidelity = []
    for application in APPLICATIONS:
        for path in PATHS:
            of = Recorder(work, f"timed {path}", f"{application}-replayed-")
            for number in count(1):
                if not of.file(number).exists():
                    break
                recorded = read_load(work / f"{application}.load")
                fidelity.append(
                    {"application": application, "path": path, "recorded": described(recorded),
                     "replayed": described(read_load(of.file(number)))}
                )  # fmt: skip
    choice = []
    score = scores(work / "score.sqlite")
    for application in APPLICATIONS:
        original, replay = work / f"{application}.sqlite", work / f"replay-{application}.sqlite"
        if not original.exists() or not replay.exists():
            continue
        side = "read" if application in READERS else "write"
        mine = medians(original, {application: ("transactions", side)})[application]
        replays = medians(replay, {"fast": ("iops", "none")}).get("fast", {})
        if len(replays) == len(mine) == len(PATHS):
            choice.append(
                {"application": application, "rates": mine, "replay": replays, "score": score,
                 "tau": tau(mine, replays), "loss": loss(mine, replays),
                 "score_tau": tau(mine, score), "score_loss": loss(mine, score)}
            )  # fmt: skip
    return {
        "machine": machine_facts(work),
        "recorded_on": RECORDED_ON,
        "fidelity": fidelity,
        "choice": choice,
    }


def scores(database: Path) -> dict[str, float]:
    """The geometric mean of the four bandwidths of the score by path: a rank needs no baseline."""
    sides = {
        "seqwrite-1m-q1": "write", "randwrite-4k-q1": "write", "seqread-1m-q1": "read",
        "randread-4k-q1": "read",
    }  # fmt: skip
    found: dict[str, dict[str, float]] = {}
    for name, side in sides.items():
        sustained = medians(database, {name: ("sustained", side)})
        plain = medians(database, {name: ("bandwidth", side)})
        found |= sustained or plain
    paths = set.intersection(*(set(by_path) for by_path in found.values()))
    return {
        path: float(np.exp(np.mean([np.log(by_path[path]) for by_path in found.values()])))
        for path in paths
    }


def shown(arguments: list[str]) -> str:
    """The record's table: `fidelity`, with `all` paths or the recorded one, or `choice`."""
    record = record_of(RECORD)
    if arguments[0] == "fidelity":
        pairs = [
            pair for pair in record["fidelity"] if "all" in arguments or pair["path"] == RECORDED_ON
        ]
        lines = [
            "| application | on | reads, writes | bytes | flushes | length | writes: p50 | p99 |",
            "|---|---|---|---|---|---|---|---|",
        ]
        return "\n".join([*lines, *map(_fidelity_row, pairs)])
    lines = [
        "| application | replay: tau | its choice costs | score: tau | its choice costs |",
        "|---|---|---|---|---|",
    ]
    for row in record["choice"]:
        lines.append(
            f"| {row['application']} | {row['tau']:.2f} | {row['loss']:.0%} "
            f"| {row['score_tau']:.2f} | {row['score_loss']:.0%} |"
        )
    return "\n".join(lines)


def _fidelity_row(pair: Mapping[str, Any]) -> str:
    first, other = pair["recorded"], pair["replayed"]

    def same(what: str, *kinds: str) -> str:
        before, after = (sum(about[kind][what] for kind in kinds) for about in (first, other))
        return f"{before:,}" if before == after else f"{before:,}, replayed {after:,}"

    def ratio(what: str) -> str:
        return f"×{other['write'][what] / first['write'][what]:.2f}"

    return (
        f"| {pair['application']} | `{pair['path']}` | {same('requests', 'read', 'write')} "
        f"| {same('bytes', 'read', 'write')} | {same('requests', 'flush')} "
        f"| {first['seconds']:.2f} s, {other['seconds'] / first['seconds'] - 1:+.2%} "
        f"| {ratio('p50')} | {ratio('p99')} |"
    )


def main() -> None:
    """Measures, keeps or shows."""
    verb, *arguments = sys.argv[1:]
    if verb == "measure":
        measure(Path(arguments[0]).absolute(), arguments[1] if len(arguments) > 1 else "1")
    elif verb == "repeat":
        repeat(Path(arguments[0]).absolute(), arguments[1])
    elif verb == "keep":
        keep_record(RECORD, keep(Path(arguments[0])))
    else:
        sys.stdout.write(f"{shown(arguments)}\n")


if __name__ == "__main__":
    main()
