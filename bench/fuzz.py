"""Feeds damaged inputs to every parser of outside text, and counts everything but typed errors.

    bench/fuzz.py [--inputs 100000] [--seed 1] [--only NAME …] [--limit 1.0] [--seconds S]

An input passes if it is read, or refused with a VdisklabError. Any other exception is a fault, and
so is an input that takes more than `--limit` seconds of CPU (a verb on a database has 20 times as
long) or `--memory` MiB. Inputs are mutations of recorded
files (`fuzz_inputs.py`, `fuzz_parsers.py`); each parser has its share of them. Prints one JSON
document; ends with 1 if there is a fault. The input of a fault is a function of seed, parser and
batch, and is printed too.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

from msgspec import to_builtins

from fuzz_inputs import Mutator, Parser
from fuzz_parsers import parsers
from machine import machine_facts, print_result
from vdisklab.errors import VdisklabError

_BATCH = 500
_INPUT_SHOWN = 2000


class TooSlowError(BaseException):
    """An input took longer than the limit. No parser's `except Exception` may catch it."""


@dataclass(slots=True)
class Tally:
    """The inputs of one parser; `faults` maps what went wrong to its first input."""

    inputs: int = 0
    read: int = 0
    refused: int = 0
    cpu_seconds: float = 0.0
    slowest_seconds: float = 0.0
    characters: int = 0
    faults: dict[str, dict[str, object]] = field(default_factory=dict)


def batches(chosen: Sequence[Parser], inputs: int) -> Iterator[tuple[Parser, int, int]]:
    """Parser, number and size of each batch; the parsers take turns, so that all are reached."""
    whole = sum(parser.share for parser in chosen)
    left = {parser.name: max(1, round(inputs * parser.share / whole)) for parser in chosen}
    number = 0
    while any(left.values()):
        for parser in chosen:
            size = min(
                left[parser.name], max(1, round(_BATCH * parser.share * len(chosen) / whole))
            )
            if size:
                left[parser.name] -= size
                yield parser, number, size
        number += 1


def feed(
    parser: Parser, mutator: Mutator, size: int, tally: Tally, *, place: str, limit: float
) -> None:
    """One batch of inputs."""
    read, clock = parser.read, time.process_time
    random = Random(place)  # noqa: S311 - reproducible on purpose
    for _ in range(size):
        text = mutator.make(random)
        tally.characters += len(text)
        begin = clock()
        try:
            try:
                signal.setitimer(signal.ITIMER_PROF, limit)
                read(text)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            tally.read += 1
        except VdisklabError:
            tally.refused += 1
        except (Exception, TooSlowError) as error:  # noqa: BLE001 - that is what is looked for
            _note(tally, error, text, place)
        taken = clock() - begin
        tally.cpu_seconds += taken
        tally.slowest_seconds = max(tally.slowest_seconds, taken)
    tally.inputs += size


def _note(tally: Tally, error: BaseException, text: str, place: str) -> None:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "vdisklab" in frame.filename
    ]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    key = f"{type(error).__name__} at {where}"
    fault = tally.faults.setdefault(
        key,
        {
            "count": 0,
            "message": str(error)[:300],
            "where": place,
            "length": len(text),
            "input": text[:_INPUT_SHOWN],
        },
    )
    fault["count"] = int(str(fault["count"])) + 1


def _progress(tallies: Mapping[str, Tally], seconds: float) -> str:
    done = sum(tally.inputs for tally in tallies.values())
    faults = [f"{name}: {fault}\n" for name, tally in tallies.items() for fault in tally.faults]
    return f"{done} inputs, {seconds:.0f} s, {len(faults)} faults\n{''.join(faults)}"


@contextmanager
def alarms() -> Iterator[None]:
    """Raises TooSlowError when the CPU time of an input is used up."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlowError("CPU time is used up")

    before = signal.signal(signal.SIGPROF, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)


def limit_memory(mib: int) -> None:
    """Lets this process allocate so much more: a parser that wants more gets a MemoryError, which
    is a fault."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    most = pages * os.sysconf("SC_PAGE_SIZE") + (mib << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", nargs="+", metavar="NAME")
    options.add_argument("--limit", type=float, default=1.0, help="CPU seconds for one input")
    options.add_argument("--memory", type=int, default=256, help="MiB for one input")
    options.add_argument("--seconds", type=float, default=math.inf, help="stop after that time")
    options.add_argument("--progress", type=Path, help="rewritten after each round")
    wanted = options.parse_args()
    result: dict[str, object] = machine_facts(Path.cwd())
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vdisklab-fuzz-") as scratch, alarms():
        chosen = [
            each for each in parsers(Path(scratch)) if not wanted.only or each.name in wanted.only
        ]
        mutators = {each.name: Mutator(each.seeds) for each in chosen}
        tallies = {each.name: Tally() for each in chosen}
        limit_memory(wanted.memory)
        for parser, number, size in batches(chosen, wanted.inputs):
            place = f"seed {wanted.seed}, {parser.name}, batch {number}"
            mutator, tally = mutators[parser.name], tallies[parser.name]
            limit = wanted.limit * parser.patience
            feed(parser, mutator, size, tally, place=place, limit=limit)
            if time.monotonic() - started > wanted.seconds:
                break
            if wanted.progress and parser is chosen[-1]:
                wanted.progress.write_text(_progress(tallies, time.monotonic() - started))
    seconds = time.monotonic() - started
    inputs = sum(tally.inputs for tally in tallies.values())
    result |= {
        "seed": wanted.seed,
        "inputs": inputs,
        "faults": sum(len(tally.faults) for tally in tallies.values()),
        "seconds": round(seconds, 1),
        "inputs_per_second": round(inputs / seconds),
        "niceness": os.nice(0),
        "limit_cpu_seconds": wanted.limit,
        "limit_mib": wanted.memory,
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "parsers": {name: to_builtins(tally) for name, tally in tallies.items()},
    }
    print_result(result)
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
