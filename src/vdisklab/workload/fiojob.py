"""The user's own fio job files: their options, the check that they are safe, and their profile.

fio can run programs and write to any file that a job names. So only options that are known to do
neither are accepted, and vdisklab names the file. fio also makes a file as large as the job
requests: `size=150%` of a file of 64 MiB wrote until the disk was full (fio 3.33). So the size that
the jobs need is computed first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePath

from vdisklab.errors import PlanError
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.plan.profile_file import READABLE
from vdisklab.plan.toml_file import text_of
from vdisklab.units import parse_duration, parse_size, whole_number
from vdisklab.value import Value

GLOBAL = "global"

_SECTION = re.compile(r"\[([^\[\]]+)\]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]*")
_ENGINES = ("libaio", "io_uring", "sync", "psync", "vsync", "pvsync", "pvsync2", "posixaio")

_MOST = 999_999_999
_SHARE = re.compile(r"([0-9]{1,9})%")

_HARMLESS = frozenset(
    """
    rw readwrite bs blocksize bsrange blocksize_range bssplit blockalign ba blocksize_unaligned
    bs_unaligned size io_size io_limit filesize offset offset_increment number_ios loops iodepth
    iodepth_batch iodepth_batch_submit iodepth_batch_complete iodepth_batch_complete_min
    iodepth_batch_complete_max iodepth_low numjobs ioengine direct buffered runtime time_based
    ramp_time startdelay rwmixread rwmixwrite rwmixcycle fsync fdatasync end_fsync
    fsync_on_close sync invalidate group_reporting stonewall new_group thread norandommap
    randrepeat allrandrepeat randseed random_generator random_distribution percentage_random
    softrandommap rate rate_iops rate_min rate_iops_min rate_process thinktime thinktime_spin
    thinktime_blocks refill_buffers scramble_buffers zero_buffers buffer_compress_percentage
    buffer_compress_chunk dedupe_percentage nrfiles openfiles file_service_type fallocate
    create_serialize create_fsync create_on_open overwrite hipri registerfiles
    fixedbufs sqthread_poll percentile_list clat_percentiles lat_percentiles slat_percentiles
    verify do_verify verify_fatal verify_backlog verify_interval verify_pattern name description
    nice prio prioclass cpus_allowed cpus_allowed_policy filename continue_on_error exitall
    exitall_on_error
    """.split()  # noqa: SIM905
)


_FLUSHING = ("fsync", "fdatasync", "end_fsync", "fsync_on_close", "sync")


class Section(Value):
    """One job of a file with its own options only."""

    name: str
    options: Mapping[str, str]

    @property
    def after_all(self) -> bool:
        """True if it starts after all jobs before it have ended."""
        return "stonewall" in self.options


def groups(job: str, origin: str) -> tuple[tuple[Section, ...], ...]:
    """The groups of jobs that run at the same time, in the file's order.

    Raises PlanError for a file that is not a job file, or that could access other files.
    """
    groups_so_far: list[list[Section]] = []
    sections = _sections(job, origin)
    waits = any(member.name == GLOBAL and member.after_all for member in sections)
    for section in sections:
        _check(section, origin)
        if section.name != GLOBAL:
            if not groups_so_far or section.after_all or waits:
                groups_so_far.append([])
            groups_so_far[-1].append(section)
    if not groups_so_far:
        raise PlanError(f"{origin} holds no job", hint="a job begins with its name in [ ]")
    return tuple(tuple(group) for group in groups_so_far)


def job_options(job: str) -> dict[str, str]:
    """All options in a file, each with its last value."""
    return {
        key: value
        for section in _sections(job, "the job file")
        for key, value in section.options.items()
    }


def job_seconds(job: str) -> float:
    """Seconds of the longest job by its `runtime`, `ramp_time` and `startdelay`.

    0.0 if no job has any of them: then jobs end when their size is done.
    """
    longest = 0.0
    for section in _sections(job, "the job file"):
        spans = [section.options.get(key) for key in ("runtime", "ramp_time", "startdelay")]
        longest = max(longest, sum(_seconds(span) for span in spans if span))
    return longest


def leaves_writes(job: str) -> bool:
    """True if jobs write, and none of them flushes what it wrote."""
    options = job_options(job)
    directions = [
        section.options.get("rw", section.options.get("readwrite", "read"))
        for section in _sections(job, "the job file")
    ]
    writes = any("write" in direction or direction in ("rw", "randrw") for direction in directions)
    return writes and not any(options.get(name, "0") not in ("0", "none") for name in _FLUSHING)


def makers(job: str, wanted: Collection[str]) -> int:
    """Number of jobs that create their own files in a directory."""
    return sum(1 if "filename" in options else _jobs(options) for options in _merged(job, wanted))


def reach(job: str, wanted: Collection[str], whole: int, usual: int, *, in_directory: bool) -> int:
    """The bytes that the jobs need: the sum of their files in a directory, else the end of the last
    job. `whole` is the size of the file or disk, `usual` the size of a job that sets none.

    `wanted` are the names of the jobs; empty means all. Raises PlanError for a size that cannot be
    parsed.
    """
    ends: dict[str, int] = {}
    for number, options in enumerate(_merged(job, wanted)):
        # Jobs with the same file name share the file; on a disk all jobs share it.
        file = options.get("filename", f"of job {number}") if in_directory else ""
        end = _end(options, whole, usual, in_directory)
        ends[file] = max(end, ends.get(file, 0))
    return sum(ends.values())


def _end(options: Mapping[str, str], whole: int, usual: int, in_directory: bool) -> int:
    files = _size(options, "filesize", whole, 0) * _number(options, "nrfiles")
    size = max(_size(options, "size", whole, usual), files)
    size += _size(options, "offset", whole, 0)
    others = _jobs(options) - 1
    further = _size(options, "offset_increment", whole, 0)
    if (
        in_directory and "filename" not in options
    ):  # each job has its own file, each with a larger offset
        return size * (others + 1) + further * others * (others + 1) // 2
    return size + others * further


def _merged(job: str, wanted: Collection[str]) -> Iterator[dict[str, str]]:
    """Each job's options with those of [global] before it."""
    common: dict[str, str] = {}
    for section in _sections(job, "the job file"):
        if section.name == GLOBAL:
            common |= section.options
        elif not wanted or section.name in wanted:
            yield {**common, **section.options}


def _jobs(options: Mapping[str, str]) -> int:
    return _number(options, "numjobs")


def _number(options: Mapping[str, str], key: str) -> int:
    text = options.get(key, "1")
    number = whole_number(text)
    if number is None or number > _MOST:
        raise PlanError(
            f"the job file's {key}={text[:40]} is not a number", hint="write a whole number"
        )
    return max(1, number)


def _size(options: Mapping[str, str], key: str, whole: int, otherwise: int) -> int:
    """The size in bytes; of a range its upper bound. A percentage refers to `whole`."""
    text = options.get(key)
    if text is None:
        return otherwise
    last = text.rpartition("-")[2]
    share = _SHARE.fullmatch(last)
    try:
        return -(-whole * int(share[1]) // 100) if share is not None else parse_size(last)
    except PlanError:
        raise PlanError(
            f"the job file's {key}={text[:40]} is not a size",
            hint="write it like 4096, 64k, 512M, 2G or 50%",
        ) from None


def _seconds(span: str) -> float:
    try:
        return parse_duration(span)
    except PlanError:
        raise PlanError(
            f"the job file's {span!r} is not a time", hint="write seconds, or 500ms, 5m"
        ) from None


def _sections(job: str, origin: str) -> list[Section]:
    parsed: list[tuple[str, dict[str, str]]] = []
    for number, text in enumerate(job.splitlines(), 1):
        line = text.strip()
        if line.startswith(("#", ";")):
            continue
        match = _SECTION.fullmatch(line)
        if match is not None:
            parsed.append((match[1].strip(), {}))
        elif line and not parsed:
            raise PlanError(
                f"line {number} of {origin} is {line[:60]!r}, before any [job]",
                hint="a fio job file begins with [global] or the name of a job in [ ]",
            )
        elif line:
            key, _, value = line.partition("=")
            parsed[-1][1][key.strip().lower()] = value.strip()
    return [Section(name, options) for name, options in parsed]


def _check(section: Section, origin: str) -> None:
    where = f"job [{section.name}] of {origin}"
    if not _NAME.fullmatch(section.name):
        raise PlanError(f"{where}: fio would create a file with that name", hint="use letters")
    # fio compares six letters only (init.c), so its [global2] is options for all jobs that follow.
    if section.name != GLOBAL and section.name.lower().startswith(GLOBAL):
        raise PlanError(
            f"{where}: fio treats a job with that name as [{GLOBAL}]", hint="give it another name"
        )
    for key, value in section.options.items():
        if key not in _HARMLESS:
            raise PlanError(
                f"{where}: option {key!r} is not allowed: it is unknown, or may use files "
                "other than the measured disk",
                hint="leave it out; files and logs are named by vdisklab",
            )
        if "${" in value or "`" in value or "$(" in value:
            raise PlanError(
                f"{where}: {key} takes its value from the environment or a command",
                hint="write the value",
            )
    engine = section.options.get("ioengine", "libaio")
    if engine not in _ENGINES:
        raise PlanError(f"{where}: ioengine {engine!r}", hint=f"known: {', '.join(_ENGINES)}")
    file = section.options.get("filename")
    if file is not None and (not _NAME.fullmatch(file) or ".." in file):
        raise PlanError(
            f"{where}: filename={file} is not on the measured disk",
            hint="leave filename out: vdisklab names the disk, or the directory on it",
        )


def read_job(name: str) -> Profile:
    """The profile of the user's job file. Raises PlanError."""
    return job_profile(text_of(Path(name), "profile", READABLE), name)


def job_profile(job: str, origin: str) -> Profile:
    """The profile of a job file, named after the file. Jobs that run together are one measurement,
    named after the first.

    Raises PlanError for a file that is not a job file, or that could access other files.
    """
    measurements: list[MeasurementPlan] = []
    for group in groups(job, origin):
        name = _free_name(group[0].name, [measurement.name for measurement in measurements])
        sections = tuple(section.name for section in group)
        measurements.append(MeasurementPlan(name, "fio", {"job": job, "sections": sections}))
    stem = _plain(PurePath(origin).stem)
    return Profile(stem, f"the fio job file {PurePath(origin).name}", tuple(measurements))


def _free_name(wanted: str, used_names: list[str]) -> str:
    name = plain = _plain(wanted)
    number = 2
    while name in used_names:
        name = f"{plain}-{number}"
        number += 1
    return name


def _plain(text: str) -> str:
    """The text as a name in a profile: lower-case letters, digits, dots and dashes."""
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")
    return name[:60] or "job"
