"""Recognises the program that wrote a result file, and parses it; one row for each program.

A text that only looks like results is refused with the reason and with what to import instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NoReturn

from msgspec.structs import astuple

from vdisklab.errors import WorkloadError
from vdisklab.results.model import Direction
from vdisklab.value import Value, replace
from vdisklab.workload import bonnie, dd, fio_report, postgresql, sysbench
from vdisklab.workload.diskspd import parse_crystaldiskmark, parse_diskspd
from vdisklab.workload.elbencho import is_elbencho, parse_elbencho
from vdisklab.workload.kdiskmark import is_kdiskmark, parse_kdiskmark
from vdisklab.workload.program import NamedResult, ProgramResult, Report, printable

# A hostile file may have names of a megabyte.
_LONGEST_NAME = 200

# A database holds 64 bits, and no program prints more.
_BOUND = 1 << 63

_OLD_FIO = re.compile(r'"fio version"\s*:\s*"(fio-[0-2]\.[0-9.]{1,12})')
_XML = re.compile(r"\s*<(?!!doctype html|html)", re.IGNORECASE)
_SYSBENCH = re.compile(r"^sysbench ([0-9][0-9.a-z]*)", re.MULTILINE)
_SYSBENCH_OTHER = re.compile(r"^(?:Creating files for the test|Removing test files)", re.MULTILINE)
_SYSBENCH_MODE = re.compile(r"^Doing (sequential|random) ([a-z/() ]+?) test$", re.MULTILINE)


_FIO_JSON = "run fio with --output-format=json+, and import that"
FILEIO = "measure the disk with `sysbench fileio --file-test-mode=rndrd run`"
SYSBENCH_TESTS = {
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
    r"[^\n]{0,200}[0-9] ?[^\s\d]{0,3}[BБo]/[^\W\d_]"
)

# A pattern, a description of the texts that match it, and the hint; the first match counts.
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
        (r"^(?:File operations:|Operations performed:|SQL statistics:|OLTP test statistics:)",
         "sysbench's first line, `sysbench` with its version, is missing",
         "import everything that sysbench printed, unchanged"),
        (r"(?i)\A\s*<(?:!doctype html|html)\b", "this is a web page, not a result",
         "download the file itself; on GitHub with its button Raw"),
        (r"^(?:FATAL|sysbench): ", "sysbench failed: there is no result in it",
         "import what `sysbench fileio … run` printed"),
        (r"^OPERATION +RESULT TYPE +FIRST DONE", "this is elbencho's text output",
         "run elbencho with --jsonfile FILE, and import that file"),
        (r"^ISO Date,Label,Phase,RuntimeMS,", "this is elbencho's live log, not its end result",
         "run elbencho with --jsonfile FILE, and import that file"),
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
    "pgbench": re.compile(r"^pgbench: (?:error|fatal): .*", re.MULTILINE),
    "sysbench": re.compile(r"^FATAL: .*", re.MULTILINE),
    "bonnie++": re.compile(
        r"^.*drastic I/O error.*|^Can't (?:read|write|open|sync) .*", re.MULTILINE
    ),
}  # fmt: skip


class _Format(Value):
    name: str
    is_it: Callable[[str], bool]
    parse: Callable[[str], tuple[Report, ...]]
    is_lines: bool = False
    """True for a format of lines: a script may append another program's results to them."""


def recognise(text: str) -> tuple[Report, ...]:
    """The reports in a file's text.

    Raises WorkloadError if no known program wrote it, if several did, and if one failed.
    """
    if not text.strip():
        raise WorkloadError(
            "the file is empty", hint="write the program's output into it, and import it again"
        )
    forms = [form for form in _FORMATS if form.is_it(text)]
    if not forms:
        refuse_unknown(text, [form.name for form in _FORMATS])
    form = forms[0]
    if form.is_lines:
        _require_alone(form.name, [other.name for other in forms[1:]])
        refuse_failed(text)
    return _within_bounds(form, text)


def _require_alone(program: str, others: list[str]) -> None:
    """Raises WorkloadError for a file with results of several programs, since only one is read."""
    if others:
        raise WorkloadError(
            f"the file has results of several programs: {program}, {', '.join(others)}",
            hint="put the results of each program into a separate file",
        )


def _within_bounds(form: _Format, text: str) -> tuple[Report, ...]:
    try:
        reports = form.parse(text)
    except OverflowError as error:
        raise _out_of_bounds() from error
    outcomes = [result.outcome for report in reports for result in report.results]
    # `not all(<)` refuses NaN, too.
    if not all(number < _BOUND for outcome in outcomes for number in _numbers(outcome)):
        raise _out_of_bounds()
    return tuple(_fit(report) for report in reports)


def _out_of_bounds() -> WorkloadError:
    return WorkloadError(
        "the file has a number that is too large to be a measurement",
        hint="the program that wrote it is probably wrong: measure again",
    )


def _fit(report: Report) -> Report:
    """The report with printable names. Raises WorkloadError if one is too long."""
    named = [result.name for result in report.results]
    for name in (report.version or "", report.label or "", *named):
        if len(name) > _LONGEST_NAME:
            raise WorkloadError(
                f"the file has a name of {len(name)} characters, more than {_LONGEST_NAME}: "
                f"{name[:40]!r}…",
                hint="give it a shorter name, and measure again",
            )
    return replace(
        report,
        version=report.version and printable(report.version),
        label=report.label and printable(report.label),
        results=tuple(
            NamedResult(printable(result.name), result.outcome) for result in report.results
        ),
    )


def _numbers(outcome: ProgramResult) -> Iterator[float]:
    yield from (sample.value for sample in outcome.samples)
    yield from (value for series in outcome.series for value in series.values)
    yield outcome.measured_seconds or 0
    if outcome.counted is not None:
        yield from (count for count in astuple(outcome.counted) if count is not None)


def _require_one(count: int, what: str) -> None:
    """Raises WorkloadError for a file of several results: all but one would be ignored."""
    if count > 1:
        raise WorkloadError(f"the file holds {count} {what}", hint="put each into a separate file")


def _fio(text: str) -> tuple[Report, ...]:
    """One report: the hosts of `fio --client` run a job at the same time, so they are one run."""
    _require_one(text.count('"fio version"'), "reports of fio")
    before = _OLD_FIO.search(text)
    if before is not None:
        raise WorkloadError(
            f"the report is from {before[1]}; only fio 3 and newer are supported",
            hint="fio 2 reports other units: measure again with a newer fio",
        )
    report = fio_report.read_report(text)
    _require_alone(
        "fio", [form.name for form in _FORMATS if form.is_lines and form.is_it(report.around)]
    )
    if not report.version:
        raise WorkloadError("fio's report is not as expected at 'fio version'")
    version = report.version.removeprefix("fio-")
    hosts, by_name = report.hosts, report.by_name
    label = f"{len(hosts)} clients" if len(hosts) > 1 else next(iter(hosts), None)
    results = tuple(_fio_job(name, jobs, report) for name, jobs in by_name)
    return (Report("fio", version, label, results),)


def _fio_job(
    name: str, jobs: Sequence[fio_report.FioJob], report: fio_report.FioReport
) -> NamedResult:
    """A job's result, of all hosts that ran it."""
    if len({job.hostname for job in jobs}) < len(jobs):
        raise WorkloadError(
            "fio's report has several jobs of the same name", hint="run fio with --group_reporting"
        )
    if len(jobs) == 1:
        return NamedResult(name, fio_report.outcome_of(jobs))
    added, whole = fio_report.sum_of(jobs), report.sum_of_hosts
    if whole is None or len(report.by_name) > 1:
        return NamedResult(name, added)
    return NamedResult(name, fio_report.outcome_of([whole]))  # with percentiles of all


def _sysbench(text: str) -> tuple[Report, ...]:
    """Each run in a file as a measurement, without `prepare` and `cleanup`."""
    starts = [match.start() for match in _SYSBENCH.finditer(text)]
    parts = [text[begin:end] for begin, end in pairwise([*starts, len(text)])]
    runs = [part for part in parts if _SYSBENCH_OTHER.search(part) is None] or parts
    versions = {match[1] for match in _SYSBENCH.finditer(text)}
    _require_one(len(versions), "versions of sysbench")
    results = [_sysbench_run(run) for run in runs]
    for name, count in Counter(result.name for result in results).items():
        _require_one(count, f"results of {name}")
    return (Report("sysbench", versions.pop(), None, tuple(results)),)


def _sysbench_run(text: str) -> NamedResult:
    if sysbench.is_oltp(text):
        return sysbench.parse_oltp(text)
    mode = _SYSBENCH_MODE.search(text)
    if mode is None:
        for sign, test in SYSBENCH_TESTS.items():
            if sign in text:
                raise WorkloadError(
                    f"this is sysbench's test of {test}; its tests `fileio` and `oltp_*` "
                    "measure a disk",
                    hint=FILEIO,
                )
        if _SYSBENCH_OTHER.search(text) is not None:
            raise WorkloadError(
                "sysbench only made or removed its files; it measured nothing",
                hint="import what `sysbench fileio … run` printed",
            )
        raise WorkloadError("sysbench's line `Doing … test` of its fileio test is missing")
    kind = {"sequential": "seq", "random": "rnd"}[mode[1]]
    what = {"read": "rd", "write": "wr", "write (creation)": "wr", "rewrite": "rewr",
            "r/w": "rw"}.get(mode[2])  # fmt: skip
    if what is None:
        raise WorkloadError(f"unknown sysbench test {mode[0][6:66]!r}")
    return NamedResult(f"sysbench-{kind}{what}", sysbench.parse_text(text))


def _bonnie(text: str) -> tuple[Report, ...]:
    """The CSV if there is one: the text above it is rounded."""
    if any(map(bonnie.is_csv_line, text.splitlines())):
        lines = bonnie.parse_csv(text)
        if not all(line.samples for line in lines):
            raise WorkloadError("every test of bonnie++ was too short to be measured")
        return tuple(
            Report("bonnie++", line.version, line.name or None,
                   (NamedResult("bonnie", ProgramResult(line.samples, None, None)),))
            for line in lines
        )  # fmt: skip
    return bonnie.parse_bonnie_text(text)


def _dd(text: str) -> tuple[Report, ...]:
    """dd does not print the direction, so it stays unknown."""
    _require_one(text.count(" records out"), "results of dd")
    copied = dd.parse_line(text)
    outcome = ProgramResult(tuple(dd.samples_of(Direction.NONE, copied)), None, copied.seconds)
    return (Report("dd", None, None, (NamedResult("dd", outcome),)),)


_FORMATS = (
    _Format("fio JSON and JSON+", lambda text: '"fio version"' in text, _fio),
    _Format(
        "DISKSPD XML", lambda text: _XML.match(text) is not None, lambda t: (parse_diskspd(t),)
    ),
    _Format(
        "CrystalDiskMark text",
        lambda text: "CrystalDiskMark" in text,
        lambda text: (parse_crystaldiskmark(text),),
        is_lines=True,
    ),
    _Format("elbencho CSV and JSON", is_elbencho, parse_elbencho, is_lines=True),
    _Format(
        "KDiskMark text",
        is_kdiskmark,
        lambda text: (parse_kdiskmark(text),),
        is_lines=True,
    ),
    _Format(
        "pgbench text",
        lambda text: "\ntps = " in f"\n{text}" or "transaction type: " in text,
        postgresql.imported,
        is_lines=True,
    ),
    _Format(
        "sysbench fileio and oltp text",
        lambda text: _SYSBENCH.search(text) is not None,
        _sysbench,
        is_lines=True,
    ),
    _Format(
        "bonnie++ CSV and text",
        lambda text: any(
            bonnie.HEADING.fullmatch(line) or bonnie.is_csv_line(line) for line in text.splitlines()
        ),
        _bonnie,
        is_lines=True,
    ),
    _Format("dd", lambda text: any(end in text for end in dd.ENDS), _dd, is_lines=True),
)


def refuse_failed(text: str) -> None:
    """Raises WorkloadError if a program says in the text that it failed."""
    for program, sign in _FAILURES.items():
        failure = sign.search(text)
        if failure is not None:
            raise WorkloadError(
                f"{program} failed: {failure[0].strip()[:120]!r}",
                hint="a run that failed measured nothing; import one that did not",
            )


def refuse_unknown(text: str, formats: Sequence[str]) -> NoReturn:
    """Raises WorkloadError: it says what the text is, or names the `formats` formats."""
    for sign, sentence, hint in _KNOWN:
        if sign.search(text) is not None:
            raise WorkloadError(sentence, hint=hint)
    every = [*formats, "a file that `export-data` writes"]
    raise WorkloadError("no known program wrote this", hint=f"known: {', '.join(every)}")
