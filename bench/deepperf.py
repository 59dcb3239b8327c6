"""The path model on six configurable systems that others measured, beside two published methods.

    bench/deepperf.py DIRECTORY [--samples 30] [--draws 60] [--keep]

DIRECTORY is `Data` of github.com/DeepPerf/DeepPerf (Ha & Zhang, DeepPerf: performance prediction
for configurable software with deep sparse neural network, ICSE 2019). Each option of a system is a
factor. The model predicts all configurations from DECART's own samples (Guo et al., Empirical
Software Engineering 2018), by the mean of its draws. Printed is the mean relative error of the
configurations that were not measured, in per cent, and the errors that both authors published:
DECART's with the same samples, DeepPerf's with its own.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections.abc import Mapping
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt

from machine import machine_facts
from pages import keep_record, record_of
from vdisklab.analysis.observations import Floats
from vdisklab.analysis.path_model import PathModel, Runs

SYSTEMS = {
    "Apache": "Apache", "LLVM": "LLVM", "x264": "X264", "SQL": "SQL", "BDBC": "BDBC",
    "BDBJ": "BDBJ",
}  # fmt: skip
"""Systems, and their names in the files of samples."""

BEFORE: Mapping[str, tuple[float, ...]] = {
    "Apache": (20.4, 13.7, 10.3, 8.4, 7.0),
    "LLVM": (4.5, 3.5, 2.8, 2.8, 2.4),
    "x264": (8.9, 4.4, 3.3, 2.2, 1.5),
    "SQL": (4.4, 4.4, 4.3, 4.2),
    "BDBC": (61.8, 34.5, 27.3, 21.4, 16.2),
    "BDBJ": (12.5, 4.2, 2.7, 2.3, 2.3),
}
"""The model of factors and pairs alone, before it had a second one."""


def samples(file: Path) -> dict[int, npt.NDArray[np.int64]]:
    """By size: samples x places of configurations. The first line has the size of each column."""
    table = np.genfromtxt(file, delimiter=",").astype(np.int64)
    sizes = table[0]
    return {int(size): table[1:, sizes == size] for size in dict.fromkeys(sizes.tolist())}


def predicted(model: PathModel, logs: Floats, rows: npt.NDArray[np.int64], draws: int) -> Floats:
    """The logarithms of all configurations, from those of some rows."""
    runs = Runs(rows, np.zeros(len(rows), np.int64), logs[rows])
    mean = model.draws(runs, draws, np.random.default_rng(0)).mean(axis=1)
    answer: Floats = mean + (logs[rows] - mean[rows]).mean()
    return answer


def errors(directory: Path, system: str, most: int, draws: int) -> dict[str, float]:
    """The mean relative error for each number of samples, in per cent."""
    table = np.genfromtxt(directory / f"{system}_AllNumeric.csv", delimiter=",", skip_header=1)
    levels, speed = table[:, :-1].astype(np.int64), table[:, -1]
    model, logs = PathModel(levels), np.log(speed)
    found = {}
    for size, rows in samples(directory / f"{SYSTEMS[system]}_training_index.csv").items():
        each = []
        for sample in rows[:most]:
            rest = np.setdiff1d(np.arange(len(speed)), sample)
            guess = np.exp(predicted(model, logs, sample, draws))[rest]
            each.append(100 * float(np.mean(np.abs(guess - speed[rest]) / speed[rest])))
        found[str(size)] = float(np.mean(each))
    return found


def published(directory: Path, system: str) -> dict[str, dict[str, float]]:
    """Both authors' errors by the number of samples."""
    name = f"CART_{SYSTEMS[system]}_Stat_crossvalidation_gridsearch.csv"
    with (directory / "DECART_results" / name).open() as stream:
        decart = {
            row["SamplingSize"]: float(row["GeneralizedError(%)"])
            for row in csv.DictReader(stream)
            if row["GeneralizedError(%)"]
        }
    table = np.loadtxt(directory / "DeepPerf_results" / f"result_{system}.csv", delimiter=",")
    return {"decart": decart, "deepperf": {f"{row[0]:.0f}": float(row[1]) for row in table}}


def shown(arguments: list[str]) -> str:
    """The table of docs/proofs.md, from its record."""
    del arguments
    return table(record_of("deepperf.json.gz")["systems"])


def table(systems: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The errors as Markdown."""
    lines = [
        "| system | samples | vdisklab | factors and pairs alone | DECART, same samples "
        "| DeepPerf, own samples |",
        "|---|---|---|---|---|---|",
    ]
    for system, found in systems.items():
        sizes = list(found["vdisklab"])
        columns = [
            ", ".join(f"{found[who][size]:.1f}" if size in found[who] else "–" for size in sizes)
            for who in ("vdisklab", "before", "decart", "deepperf")
        ]
        lines.append(f"| {system} | {', '.join(sizes)} | {' | '.join(columns)} |")
    return "\n".join(lines)


def main() -> None:
    """Predicts all systems."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--samples", type=int, default=30, help="samples of each size")
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--only", default="", metavar="SYSTEM")
    parser.add_argument("--keep", action="store_true", help="keep the record of docs/proofs.md")
    wanted = parser.parse_args()
    systems = {}
    for system in SYSTEMS:
        if wanted.only not in system:
            continue
        errors_here = errors(wanted.directory, system, wanted.samples, wanted.draws)
        before = dict(zip(errors_here, BEFORE[system], strict=False))
        systems[system] = {
            "vdisklab": errors_here, "before": before, **published(wanted.directory, system),
        }  # fmt: skip
        print(table({system: systems[system]}).splitlines()[-1], flush=True)
    if wanted.keep:
        record = {
            "machine": machine_facts(Path.cwd()), "samples": wanted.samples,
            "draws": wanted.draws, "systems": systems,
        }  # fmt: skip
        keep_record("deepperf.json.gz", record)
    print(json.dumps(systems, indent=1))


if __name__ == "__main__":
    main()
