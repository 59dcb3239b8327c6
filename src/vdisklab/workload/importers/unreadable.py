"""Texts that look like results but are not: says why, and what to import instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from vdisklab.errors import WorkloadError

_FIO_JSON = "run fio with --output-format=json+, and import that"

FILEIO = "measure the disk with `sysbench fileio --file-test-mode=rndrd run`"
SYSBENCH_TESTS = {
    "SQL statistics:": "a database (oltp)",
    "OLTP test": "a database (oltp)",
    "Prime numbers limit:": "the processor",
    "Doing CPU performance benchmark": "the processor",
    "Running memory speed test": "memory",
    "Doing memory operations speed test": "memory",
    "Doing thread subsystem performance test": "threads",
    "Doing mutex performance test": "mutexes",
}
"""Words of sysbench's tests that measure no disk."""

# dd's three lines in any language: two counts `100+0`, then a rate such as `1,7 GB/s`.
_TRANSLATED_DD = (
    r"[0-9]{1,12}\+[0-9]{1,12}[^\n]{0,60}\n"
    r"[^\n]{0,60}[0-9]{1,12}\+[0-9]{1,12}[^\n]{0,60}\n"
    r"[^\n]{0,200}[0-9] ?[kKMGT]?i?[BБ]/[scс]"
)

# A pattern, what a matching text is, and the hint; the first match counts.
_KNOWN: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(sign, re.MULTILINE), sentence, hint)
    for sign, sentence, hint in (
        (_TRANSLATED_DD, "this is dd's output in a language other than English",
         "run it with LC_ALL=C: `LC_ALL=C dd …`"),
        (r"^(?:\S*/)?dd: (?!warning)", "dd failed, or its last line is missing",
         "import a run that ended with its line `… copied`"),
        (r"^(?:Total IO|%-ile \|)|^ *%-ile \|", "this is DISKSPD's text output",
         "run DISKSPD with -Rxml, and import its XML"),
        (r"^Command Line: .*diskspd", "this is DISKSPD's text output",
         "run DISKSPD with -Rxml, and import its XML"),
        (r": \(g=[0-9]+\): rw=|\(groupid=[0-9]+, jobs=[0-9]+\)", "this is fio's normal text output",
         _FIO_JSON),
        (r"^[23];fio-[0-9]", "this is fio's terse output", _FIO_JSON),
        (r"\A[0-9]+, [0-9]+, [0-9]+(?:, [0-9]+)*\s*$",
         "this is a log of fio (bandwidth, IOPS or latency), not its report", _FIO_JSON),
        (r"^fio: ", "fio failed: there is no report in it", _FIO_JSON),
        (r"^(?:SQL statistics:|OLTP test statistics:)", "this is sysbench's test of a "
         "database (oltp); only its test `fileio` measures a disk", FILEIO),
        (r"^(?:File operations:|Operations performed:)", "sysbench's first line, `sysbench` with "
         "its version, is missing", "import everything that sysbench printed, unchanged"),
        (r"(?i)\A\s*<(?:!doctype html|html)\b", "this is a web page, not a result",
         "download the file itself; on GitHub with its button Raw"),
        (r"^(?:FATAL|sysbench): ", "sysbench failed: there is no result in it",
         "import what `sysbench fileio … run` printed"),
        (r"drastic I/O error|^Can't (?:read|write|open|sync) ", "bonnie++ failed: there is no "
         "result in it", "give bonnie++ more room, or a smaller -s"),
        (r"\A\s*(?:[#;].*\s+)*\[[A-Za-z][\w -]*\]\s*$",
         "this looks like a fio job file, which has no results",
         "measure with it: `vdisklab run PATHS --profile FILE`"),
        (r"\A\s*[{\[]", "this is JSON, but neither a report of fio nor an export of vdisklab",
         _FIO_JSON),
    )
)  # fmt: skip

_FAILURES = {
    "dd": re.compile(r"^(?:\S*/)?dd: (?!warning).*", re.MULTILINE),
    "sysbench": re.compile(r"^FATAL: .*", re.MULTILINE),
    "bonnie++": re.compile(
        r"^.*drastic I/O error.*|^Can't (?:read|write|open|sync) .*", re.MULTILINE
    ),
}  # fmt: skip


def refuse_failed(text: str) -> None:
    """Raises WorkloadError if a program says in the text that it failed."""
    for program, sign in _FAILURES.items():
        failure = sign.search(text)
        if failure is not None:
            raise WorkloadError(
                f"{program} failed: {failure[0].strip()[:120]!r}",
                hint="a run that failed measured nothing; import one that did not",
            )


def refuse_unknown(text: str, known: Sequence[str]) -> NoReturn:
    """Raises WorkloadError that says what the text is, or names the `known` formats."""
    for sign, sentence, hint in _KNOWN:
        if sign.search(text) is not None:
            raise WorkloadError(sentence, hint=hint)
    every = [*known, "a file that `export-data` writes"]
    raise WorkloadError("no known program wrote this", hint=f"known: {', '.join(every)}")
