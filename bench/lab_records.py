"""The lab's records, in one compressed file: what each part of script/test-lab printed.

python bench/lab_records.py                    a table: when, where, how long, how it ended
python bench/lab_records.py show NAME          what a part printed, or its numbers
python bench/lab_records.py keep NAME FILE     puts the text or the JSON of a file there
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pages import RESULTS, keep_record, record_of

NAME = "lab.json.gz"
Records = Mapping[str, object]


def texts(records: Records) -> dict[str, str]:
    """What was printed, by the part's name; the others hold numbers."""
    return {name: content for name, content in records.items() if isinstance(content, str)}


def table(records: Records) -> Iterator[str]:
    """A line for each part: its name, when and where, and how it ended."""
    for name, text in texts(records).items():
        command, where, *_, end = text.splitlines()
        if not command.startswith("$ "):
            continue  # a log of events
        yield f"{name}: {where.removeprefix('# ')}; {end}"


def kept(records: Records, name: str, file: Path) -> dict[str, object]:
    """The records with the content of a file as that of `name`."""
    text = file.read_text(encoding="utf-8")
    content = json.loads(text) if text.startswith("{") else text
    return dict(sorted({**records, name: content}.items()))


def main() -> None:
    """Prints or keeps records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", nargs="?", choices=["show", "keep"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("file", nargs="?", type=Path)
    given = parser.parse_args()
    records: Records = record_of(NAME) if (RESULTS / NAME).exists() else {}
    if given.verb == "keep":
        keep_record(NAME, kept(records, given.name, given.file))
    elif given.verb == "show":
        content = records.get(given.name, "")
        print(content if isinstance(content, str) else json.dumps(content, indent=1), end="")
    else:
        print(*table(records), sep="\n")


if __name__ == "__main__":
    main()
