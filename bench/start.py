"""CPU seconds that verbs take until they have started, beside an interpreter that does nothing.

    .venv/bin/python bench/start.py [--rounds 7] [--against SRC] > start.json

Each round starts every command once, in turns, so a busy machine slows all of them alike. `rank`
ranks the campaign of docs/images. `run` opens the database, finds no campaign to repeat and ends:
what is measured is all that `run` imports before it looks at the host; what measures a cell is
imported later, after the first sentences. `--against` names the `src` of another checkout, whose
commands take turns with these.

The numbers are user and system time of the process, as the kernel counts them when it ends.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import machine_facts, print_result

REPOSITORY = Path(__file__).parents[1]
CAMPAIGN = REPOSITORY / "docs/images/campaign.json.gz"
BARE = "python -c pass"
NO_CAMPAIGN = "0000"

VERBS: Mapping[str, tuple[str, ...]] = {
    "--help": ("--help",),
    "rank": ("rank",),
    "run": ("run", "--again", NO_CAMPAIGN),
    "runs": ("runs",),
    "run --help": ("run", "--help"),
    "plan --help": ("plan", "--help"),
}


def cpu_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """User and system time of one process."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # wait4 has collected it
    return usage.ru_utime + usage.ru_stime


def started(source: Path, database: Path) -> dict[str, str]:
    """The environment of a command whose program lies in `source`."""
    chosen = {"PYTHONPATH": str(source), "VDISKLAB_DB": str(database), "COLUMNS": "120"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | chosen


def measure(rounds: int, sources: Mapping[str, Path]) -> dict[str, dict[str, list[float]]]:
    """CPU seconds of each round by checkout and verb; the first start of each does not count."""
    with tempfile.TemporaryDirectory() as directory:
        databases = {name: Path(directory) / f"{name}.sqlite" for name in sources}
        environments = {name: started(source, databases[name]) for name, source in sources.items()}
        for environment in environments.values():
            program = [sys.executable, "-m", "vdisklab", "import", str(CAMPAIGN)]
            subprocess.run(program, env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds: dict[str, dict[str, list[float]]] = {
            name: {verb: [] for verb in (BARE, *VERBS)} for name in sources
        }
        for number in range(rounds + 1):
            for name, environment in environments.items():
                for verb in (BARE, *VERBS):
                    arguments = (
                        ["-m", "vdisklab", *VERBS[verb]] if verb in VERBS else ["-c", "pass"]
                    )
                    taken = cpu_seconds([sys.executable, *arguments], environment)
                    if number:
                        seconds[name][verb].append(taken)
    return seconds


def summary(seconds: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """The least and the median of each verb's rounds."""
    return {
        verb: {"min": round(min(taken), 3), "median": round(statistics.median(taken), 3)}
        for verb, taken in seconds.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", type=Path, help="the src of another checkout")
    options = parser.parse_args()
    sources = {"here": REPOSITORY / "src"}
    if options.against is not None:
        sources["against"] = options.against
    result: dict[str, Any] = machine_facts(REPOSITORY)
    seconds = measure(options.rounds, sources)
    result["rounds"] = options.rounds
    result["cpu_seconds"] = {name: summary(verbs) for name, verbs in seconds.items()}
    print_result(result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
