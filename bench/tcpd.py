"""`trend`'s search for lasting changes on the Turing Change Point Dataset, with its defaults.

    bench/tcpd.py DIRECTORY [--keep]

DIRECTORY is a copy of github.com/alan-turing-institute/TCPD (van den Burg & Williams, An evaluation
of change point detection algorithms, 2020): datasets/*/*.json and annotations.json. Only series
with one dimension that lie in the repository are read, and none with missing values: 30 of 42. The
F1 score is TCPDBench's: a place counts as found within 5 of an annotator's, the beginning counts as
a change, precision is against all annotators together and recall is the mean over them.

`steps` are the places of level shifts, `all` also those at which a line begins. Scores of others
are those that TCPDBench published for the same series (default_f1_uni_full.json).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from machine import machine_facts
from pages import keep_record, record_of
from vdisklab.analysis.level_changes import ChangeKind, level_changes

MARGIN = 5
OTHERS = {"no change, always": 0.668, "binary segmentation": 0.667, "PELT": 0.663, "AMOC": 0.653}


def matched(true: Collection[int], said: Collection[int]) -> int:
    """How many true places have a said place near them, each said place counting once."""
    left, count = set(said), 0
    for place in sorted(true):
        near = min(left, key=lambda row: (abs(row - place), row), default=None)
        if near is not None and abs(near - place) <= MARGIN:
            left.remove(near)
            count += 1
    return count


def f1(annotations: Sequence[Collection[int]], said: Collection[int]) -> float:
    """TCPDBench's F-measure."""
    each = [{0, *places} for places in annotations]
    found = {0, *said}
    precision = matched(set().union(*each), found) / len(found)
    recall = float(np.mean([matched(places, found) / len(places) for places in each]))
    return 2 * precision * recall / (precision + recall)


def scored(directory: Path) -> dict[str, dict[str, float]]:
    """The scores of each series."""
    annotations = json.loads((directory / "annotations.json").read_text())
    scores = {}
    for file in sorted(directory.glob("datasets/*/*.json")):
        data = json.loads(file.read_text())
        if file.stem not in annotations or data["n_dim"] != 1:
            continue
        raw = data["series"][0]["raw"]
        if None in raw or not np.isfinite(np.array(raw, float)).all():
            continue
        changes = level_changes(np.array(raw, float))
        places = list(annotations[file.stem].values())
        steps = [change.start for change in changes if change.kind is ChangeKind.STEP]
        scores[file.stem] = {
            "length": len(raw),
            "steps": f1(places, steps),
            "all": f1(places, [change.start for change in changes]),
            "none": f1(places, []),
        }
    return scores


def shown(arguments: list[str]) -> str:
    """The table of docs/proofs.md, from its record."""
    del arguments
    return table(record_of("tcpd.json.gz")["scores"])


def table(scores: dict[str, dict[str, float]]) -> str:
    """The mean scores as Markdown."""
    means = {key: np.mean([score[key] for score in scores.values()]) for key in ("steps", "all")}
    rows = [f"vdisklab, steps | **{means['steps']:.3f}**"]
    rows += [f"vdisklab, steps and the beginnings of lines | **{means['all']:.3f}**"]
    rows += [f"{name} | {score:.3f}" for name, score in OTHERS.items()]
    return "\n".join(
        [f"| method, with its defaults | F1, {len(scores)} series |", "|---|---|"]
        + [f"| {row} |" for row in rows]
    )


def main() -> None:
    """Scores all series."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep the record of docs/proofs.md")
    wanted = parser.parse_args()
    scores = scored(wanted.directory)
    if not scores:
        parser.error(f"{wanted.directory} has no series of the data set")
    if wanted.keep:
        keep_record("tcpd.json.gz", {"machine": machine_facts(Path.cwd()), "scores": scores})
    print(json.dumps(scores, indent=1))
    print(table(scores))


if __name__ == "__main__":
    main()
