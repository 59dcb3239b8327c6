"""fio: builds its command, in the guest and on the host alike, and parses its JSON+."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from vdisklab.errors import PlanError, WorkloadError
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.results.model import Direction
from vdisklab.units import MIB, parse_size
from vdisklab.value import replace
from vdisklab.workload import fiojob, open_load, program
from vdisklab.workload.grouped import BesideRun

_OPEN_DIRECTIONS = ("randread", "randwrite")
_EACH_REQUEST = (
    "--disable_slat=1", "--disable_clat=1", "--log_unix_epoch=1", "--per_job_logs=1",
)  # fmt: skip

# With less memory, the guest's kernel and RAM file system do not leave enough for fio.
_SYSTEM_MEMORY = 96 * MIB
_SLACK_SECONDS = 120.0
_JOB_SLACK_SECONDS = 3600.0
_ONE_SECOND = 0.99
_COUNTED = ("writes", "flushes", "host_syncs", "device_flushes")

# Percentiles of the whole latency, from submission to completion. fio's default is completion
# latency (clat), which is close to zero if a request completes before io_submit(2) returns: on
# tmpfs with aio=native a guest's median was 8 us of clat, at 158 us a request.
_OUTPUT = (
    "--output-format=json+", "--eta=never", "--lat_percentiles=1", "--clat_percentiles=0",
)  # fmt: skip


class FioSettings(program.Settings):
    """Settings of a fio measurement in a profile, with fio's own names.

    `size` is the number of bytes that each job works on; the default is the whole subject. A job
    ends when it has done its size, unless `time_based`. `sync` opens the subject with O_SYNC or
    O_DSYNC: a write is answered once it is durable. `rate_iops` makes an open load of that many
    random requests a second (`open_load`). `count_flushes` counts its writes, and
    what becomes of them: flushes at QEMU, QEMU's fdatasync calls, flushes at the host's device.
    `job` is the text of a job file that runs unchanged on the subject; then nothing else is set.
    """

    rw: Literal["read", "write", "randread", "randwrite", "rw", "randrw"] | None = None
    bs: str | None = None
    bsrange: str | None = None
    iodepth: Annotated[int, Field(ge=1, le=4096)] = 1
    iodepth_batch: Annotated[int, Field(ge=1, le=4096)] | None = None
    numjobs: Annotated[int, Field(ge=1, le=256)] = 1
    rwmixread: Annotated[int, Field(ge=0, le=100)] | None = None
    fsync: Annotated[int, Field(ge=0)] | None = None
    sync: Literal["sync", "dsync"] | None = None
    ioengine: str = "libaio"
    size: str | None = None
    time_based: bool = True
    every_block_once: bool = False
    rate_iops: Annotated[int, Field(ge=1, le=open_load.MOST_RATE)] | None = None
    count_flushes: bool = False
    job: str | None = None
    sections: tuple[str, ...] = ()


def read_fio_settings(plan: MeasurementPlan) -> FioSettings:
    """The measurement's settings, typed. Raises PlanError naming the first wrong one."""
    settings = program.read_settings(plan, FioSettings)
    if settings.job is not None:
        if not set(plan.settings) <= {"job", "sections"}:
            raise PlanError(
                f"measurement {plan.name!r}: a job file cannot be combined with settings"
            )
        _check_job(settings, plan.name)
        return settings
    if settings.rw is None:
        raise PlanError(f"measurement {plan.name!r}: fio setting 'rw' is missing")
    if (settings.bs is None) is (settings.bsrange is None):
        raise PlanError(f"measurement {plan.name!r}: set either 'bs' or 'bsrange'")
    _block_size(settings)
    if settings.rate_iops is not None:
        _check_open(settings, plan.name)
    return settings


def _check_open(settings: FioSettings, name: str) -> None:
    """Raises PlanError for settings that contradict an open load."""
    if settings.rw not in _OPEN_DIRECTIONS:
        raise PlanError(
            f"measurement {name!r}: an open load reads or writes at random, so rw = "
            f"{settings.rw!r} cannot have rate_iops",
            hint=f"write rw = {' or '.join(map(repr, _OPEN_DIRECTIONS))}",
        )
    if settings.fsync is not None:
        raise PlanError(
            f"measurement {name!r}: fsync does not apply to an open load, whose latencies would "
            "leave it out",
            hint='write sync = "dsync": then each write is durable when it is answered',
        )
    for setting in ("iodepth", "numjobs", "iodepth_batch", "size"):
        if getattr(settings, setting) not in (None, 1):
            raise PlanError(
                f"measurement {name!r}: {setting} does not apply to an open load: as many requests "
                "are in flight as are due",
                hint=f"leave out {setting}",
            )


class Fio(program.Workload):
    """The flexible I/O tester."""

    needs_rate = True

    def script(
        self, plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
    ) -> program.Script:
        """A job over the whole subject with direct I/O: no cache but the host's page cache, if the
        cache mode uses it, stands between fio and the disk."""
        settings = read_fio_settings(plan)
        if settings.job is not None:
            return _job_script(plan, settings, subject, timing)
        if settings.rate_iops is not None:
            raise PlanError(
                f"measurement {plan.name!r} has an open load, which is measured in a group of "
                "guests",
                hint="add --guests 1 to a guest's path such as raw/none, or leave out rate_iops",
            )
        program.require_memory(plan, _SYSTEM_MEMORY + _buffers(settings), subject.memory)
        options = [
            f"--name={plan.name}",
            *_place(plan, settings, subject, timing),
            f"--rw={settings.rw}",
            _block_size(settings),
            f"--iodepth={settings.iodepth}",
            f"--ioengine={settings.ioengine}",
            "--direct=1",
            f"--runtime={_milliseconds(timing.runtime)}",
            *_pace(settings, subject, timing),
            "--group_reporting=1",
            "--randrepeat=0",
            *_OUTPUT,
        ]
        if settings.iodepth_batch is not None:
            options.append(f"--iodepth_batch={settings.iodepth_batch}")
        if settings.numjobs > 1:
            options.append(f"--numjobs={settings.numjobs}")
        if settings.rwmixread is not None:
            options.append(f"--rwmixread={settings.rwmixread}")
        options += _flushing(settings)
        logs, log_options = _log(plan, subject, timing)
        timed = timing.runtime + timing.ramp
        expected = timed if settings.time_based else 0.0
        command = ("fio", *options, *log_options)
        observe = _COUNTED if settings.count_flushes else ()
        return program.Script(
            command, expected, timed + _SLACK_SECONDS, collect=logs, observe=observe
        )

    def group_script(
        self,
        plan: MeasurementPlan,
        subject: program.Subject,
        timing: program.Timing,
        start: open_load.GroupStart,
    ) -> program.Script:
        """The script of one of several guests: it starts after a delay, and logs each request.

        Raises PlanError for measurements whose requests cannot be logged or timed.
        """
        settings = read_fio_settings(plan)
        if settings.job is not None or not settings.time_based:
            raise PlanError(
                f"measurement {plan.name!r} does not run for a given time, so guests cannot run it "
                "at once",
                hint="choose a profile of timed fio measurements, or leave out --guests",
            )
        program.require_memory(plan, _SYSTEM_MEMORY + _buffers(settings), subject.memory)
        prefix = f"{subject.scratch}/{plan.name}{subject.mark}"
        options = [
            "--name=global",
            *_place(plan, settings, subject, timing),
            f"--rw={settings.rw}",
            _block_size(settings),
            "--direct=1",
            "--time_based=1",
            f"--startdelay={_milliseconds(start.delay)}",
            f"--runtime={_milliseconds(timing.ramp + timing.runtime)}",
            "--group_reporting=1",
            "--randrepeat=0",
            "--norandommap=1",
            *_OUTPUT,
            f"--write_lat_log={prefix}",
            *_EACH_REQUEST,
        ]
        if settings.rwmixread is not None:
            options.append(f"--rwmixread={settings.rwmixread}")
        options += _flushing(settings)
        if settings.rate_iops is not None:
            rates = open_load.thread_rates(settings.rate_iops)
            options += [f"--randseed={start.seed}", "--rate_process=poisson", "--ioengine=psync"]
            for rate in sorted(set(rates), reverse=True):
                jobs = (
                    f"--name={plan.name}",
                    f"--rate_iops={rate}",
                    f"--numjobs={rates.count(rate)}",
                )
                options += jobs
            logs = tuple(f"{prefix}_lat.{number}.log" for number in range(1, len(rates) + 1))
            options.insert(1, "--thread=1")
        else:
            options += [f"--ioengine={settings.ioengine}", f"--iodepth={settings.iodepth}"]
            options += [f"--name={plan.name}", f"--numjobs={settings.numjobs}"]
            logs = tuple(f"{prefix}_lat.{number}.log" for number in range(1, settings.numjobs + 1))
        expected = start.delay + timing.ramp + timing.runtime
        return program.Script(("fio", *options), expected, expected + _SLACK_SECONDS, collect=logs)

    def beside_script(
        self, plan: MeasurementPlan, subject: program.Subject, run: BesideRun
    ) -> program.Script:
        """The script of an open load beside an operation.

        Each thread reads or writes, as `rwmixread` shares the rate. Raises PlanError for
        measurements that are not random reads and writes of one size.
        """
        settings, seconds, start = read_fio_settings(plan), run.seconds, run.start
        if settings.rw not in (*_OPEN_DIRECTIONS, "randrw") or settings.bs is None:
            raise PlanError(
                "an operation is measured beside random requests at a fixed rate, and measurement "
                f"{plan.name!r} has none",
                hint='leave out --profile, or set rw = "randrw" and bs',
            )
        prefix = f"{subject.scratch}/{plan.name}{subject.mark}"
        options = [
            "--name=global",
            *_place(plan, settings, subject, program.Timing(seconds, 0.0, 1.0)),
            _block_size(settings),
            "--direct=1",
            "--time_based=1",
            f"--startdelay={_milliseconds(start.delay)}",
            f"--runtime={_milliseconds(seconds)}",
            "--group_reporting=1",
            "--randrepeat=0",
            "--norandommap=1",
            *_OUTPUT,
            f"--write_lat_log={prefix}",
            *_EACH_REQUEST,
            f"--randseed={start.seed}",
            "--rate_process=poisson",
            "--ioengine=psync",
            *_flushing(settings),
        ]
        threads = _beside_threads(settings, run)
        for rw, per_thread, count in threads:
            options += [f"--name={plan.name}", f"--rw={rw}", f"--rate_iops={per_thread}"]
            options += [f"--numjobs={count}", "--thread"]
        every = sum(count for *_, count in threads)
        logs = tuple(f"{prefix}_lat.{number}.log" for number in range(1, every + 1))
        return program.Script(
            ("fio", *options), seconds, seconds + start.delay + _SLACK_SECONDS, collect=logs
        )

    def beside_requests(
        self, plan: MeasurementPlan, output: program.Outputs, run: BesideRun, lasted: float
    ) -> open_load.GuestRequests:
        """The requests of an open load beside an operation, from the logs of its threads."""
        threads = _beside_threads(read_fio_settings(plan), run)
        rates = [per_thread for _, per_thread, count in threads for _ in range(count)]
        return open_load.read_paced([*output.files.values()], rates, lasted, run.start.seed)

    def leaves_writes(self, plan: MeasurementPlan) -> bool:
        """True for writes without fsync; a job file is judged by its own options."""
        settings = read_fio_settings(plan)
        if settings.job is not None:
            return fiojob.leaves_writes(settings.job)
        return not _flushing(settings) and "read" not in {settings.rw, (settings.rw or "")[4:]}

    def fits_together(self, plan: MeasurementPlan) -> bool:
        """True if the measurement can be a job of one fio with others: it works on the disk itself
        with one job of its own, as a part that the host starts."""
        settings = read_fio_settings(plan)
        return (
            plan.filesystem is None
            and settings.job is None
            and settings.rate_iops is None
            and settings.numjobs == 1
            and not settings.count_flushes
        )

    def together(self, scripts: Sequence[program.Script]) -> tuple[str, ...]:
        """The command of one fio that has a job for each of these scripts; each job is a part of a
        program that runs in steps (`guest.steps`), numbered from 1."""
        argv = ["fio"]
        for number, script in enumerate(scripts, 1):
            before = f"echo ready {number} >&3; read -r go </run/vdisklab/steps/{number}"
            argv += script.command[1:]
            # fio appends a redirection to a file in the current directory (exec_string in backend.c
            # of 3.33), which the `#` turns into a comment.
            argv += ("--new_group=1", f"--exec_prerun={before} #",
                      f"--exec_postrun=echo done {number} >&3 #")  # fmt: skip
        return tuple(argv)

    def apart(
        self, plans: Sequence[MeasurementPlan], output: program.Outputs
    ) -> tuple[program.Outputs, ...]:
        """The output of such a fio as that of a fio for each measurement, without logs: fio writes
        those of all jobs when the last one has ended, each to the file of its script.

        Raises WorkloadError if a measurement has no job in the report.
        """
        from vdisklab.workload import fio_report  # noqa: PLC0415 - nothing was measured yet

        reports = fio_report.parts_of_report(output.stdout)
        named = [fio_report.read_report(report).jobs[0].jobname for report in reports]
        if named != [plan.name for plan in plans]:
            raise WorkloadError(
                f"fio's report has the jobs {', '.join(named)[:200]} in place of "
                f"{', '.join(plan.name for plan in plans)[:200]}"
            )
        return tuple(program.Outputs(report, output.stderr) for report in reports)

    def group_requests(
        self,
        plan: MeasurementPlan,
        output: program.Outputs,
        timing: program.Timing,
        start: open_load.GroupStart,
    ) -> open_load.GuestRequests:
        """The requests of one guest of a group, from its logs.

        Raises WorkloadError if fio's report says that a job failed.
        """
        from vdisklab.workload import fio_report  # noqa: PLC0415 - nothing was measured yet

        fio_report.outcome_of(fio_report.read_report(output.stdout).jobs)
        rate, logs = read_fio_settings(plan).rate_iops, tuple(output.files.values())
        return open_load.read_requests(logs, rate, timing.ramp + timing.runtime, start.seed)

    def parse(self, plan: MeasurementPlan, output: program.Outputs) -> program.ProgramResult:
        """Samples of each direction in which operations were done, and bandwidth over time.

        Bandwidth and IOPS are fio's means over the run; latency and its percentiles are from
        submission to completion (`lat`).
        """
        from vdisklab.workload import fio_report  # noqa: PLC0415 - nothing was measured yet

        jobs = fio_report.read_report(output.stdout).jobs
        outcome = fio_report.outcome_of(jobs)
        counted, seconds = outcome.counted, outcome.measured_seconds
        if counted is None or seconds is None:
            raise WorkloadError("fio's report does not tell reads from writes")
        bandwidth_log = program.BandwidthLog((), ())
        for text in output.files.values() or program.lines_of_log(output.stderr):
            totals = {Direction.READ: counted.read_bytes, Direction.WRITE: counted.write_bytes}
            run = program.LoggedRun(
                _window(output.stdout, plan), seconds, totals, fio_report.slowest_request(jobs)
            )
            bandwidth_log = program.read_log(text, run)
        return replace(
            outcome, samples=(*outcome.samples, *bandwidth_log.samples), series=bandwidth_log.series
        )


def _beside_threads(settings: FioSettings, run: BesideRun) -> list[tuple[str, int, int]]:
    """The threads of an open load beside an operation, in fio's order.

    Each entry is (rw, requests per second of a thread, number of such threads).
    """
    if run.rate is None:
        raise ValueError("an open load has a rate")
    reads = {"randread": 100, "randwrite": 0}.get(settings.rw or "", settings.rwmixread or 50)
    share = run.rate * reads // 100
    threads = []
    for rw, rate in (("randread", share), ("randwrite", run.rate - share)):
        rates = open_load.thread_rates(rate) if rate else ()
        threads += [(rw, each, rates.count(each)) for each in sorted(set(rates), reverse=True)]
    return threads


def _block_size(settings: FioSettings) -> str:
    if settings.bs is not None:
        return f"--bs={parse_size(settings.bs)}"
    low, dash, high = (settings.bsrange or "").partition("-")
    if not dash:
        raise PlanError(f"bsrange {settings.bsrange!r} is not a range", hint="write it like 512-1M")
    return f"--bsrange={parse_size(low)}-{parse_size(high)}"


def _flushing(settings: FioSettings) -> list[str]:
    """The options that make written data durable; none for plain writes."""
    chosen = {"fsync": settings.fsync, "sync": settings.sync}
    return [f"--{name}={value}" for name, value in chosen.items() if value is not None]


def _buffers(settings: FioSettings) -> int:
    """The bytes of all jobs' buffers: one for each request in flight, of the largest block size."""
    largest = settings.bs or (settings.bsrange or "").partition("-")[2]
    return settings.numjobs * settings.iodepth * parse_size(largest)


def _place(
    plan: MeasurementPlan, settings: FioSettings, subject: program.Subject, timing: program.Timing
) -> tuple[str, ...]:
    """The options for the jobs' target: a device, a file, or files in a directory."""
    jobs = settings.numjobs
    if settings.size is None:
        # The file system itself needs space.
        size = subject.size if not subject.is_directory else subject.size // 2 // jobs
        size -= size % 4096
    else:
        size = max(1 << 20, int(parse_size(settings.size) * timing.scale) >> 12 << 12)
        room = subject.room_for_files if subject.is_directory else subject.size
        program.require_room(plan, size * jobs, room)
    if subject.is_directory:
        return (f"--directory={subject.path}", f"--size={size}")
    apart = (f"--offset_increment={size}",) if settings.size is not None and jobs > 1 else ()
    return (f"--filename={subject.path}", f"--size={size}", *apart)


def _pace(
    settings: FioSettings, subject: program.Subject, timing: program.Timing
) -> tuple[str, ...]:
    """Options that decide when a job ends: after a time, or when its size is done.

    A job that only reads ends after the first pass at the latest if the second would read a cache.
    """
    if subject.read_once and settings.rw in ("read", "randread"):
        return ()
    norandommap = () if settings.every_block_once else ("--norandommap=1",)
    if not settings.time_based:
        return norandommap
    return ("--time_based=1", f"--ramp_time={_milliseconds(timing.ramp)}", *norandommap)


def _log(
    plan: MeasurementPlan, subject: program.Subject, timing: program.Timing
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The bandwidth log to read back, if any, and the options for it: none for a run of less than a
    second, which has no bandwidth by the second.

    If possible it goes to standard error: reading a file back takes 7 ms in an emulated guest, as
    its agent stores the number of each file that it opens (qga/main.c, ga_get_fd_handle).
    """
    if timing.runtime < _ONE_SECOND:
        return (), ()
    prefix = subject.stderr_log or f"{subject.scratch}/{plan.name}{subject.mark}"
    # fio keeps the log in memory until it ends: at most a thousand windows for each job
    window = max(100, round(timing.runtime))
    options = (f"--write_bw_log={prefix}", f"--log_avg_msec={window}", "--per_job_logs=0")
    return () if subject.stderr_log else (f"{prefix}_bw.log",), options


def _window(report: str, plan: MeasurementPlan) -> float:
    """Seconds of the log's window, which fio's report repeats among the options."""
    match = re.search(r'"log_avg_msec"\s*:\s*"([0-9]{1,9})"', report)
    if match is None:
        raise WorkloadError(f"fio's report on {plan.name} lacks the option log_avg_msec")
    return int(match[1]) / 1000


def _check_job(settings: FioSettings, name: str) -> None:
    file_groups = fiojob.groups(settings.job or "", f"the job file of {name!r}")
    if not settings.sections and len(file_groups) > 1:
        raise PlanError(
            f"the job file of {name!r} has groups of jobs that run one after another",
            hint="give the file itself to --profile: each group becomes a measurement",
        )


def _job_script(
    plan: MeasurementPlan, settings: FioSettings, subject: program.Subject, timing: program.Timing
) -> program.Script:
    """Runs the user's own job file, unchanged, from standard input; its own runtime applies."""
    job = settings.job or ""
    from_file = fiojob.job_options(job)
    if "filename" in from_file and not subject.is_directory:
        raise PlanError(
            f"the job file of {plan.name!r} names the file {from_file['filename']}, which is not "
            "on the measured disk",
            hint='leave filename out, or set filesystem = "ext4" in a TOML profile',
        )
    place = f"--directory={subject.path}" if subject.is_directory else f"--filename={subject.path}"
    makes = max(1, fiojob.makers(job, settings.sections))
    usual = subject.size // 2 // makes if subject.is_directory else subject.size
    _require_reach(plan, settings, subject, usual)
    # Options before a job file are defaults for its sections (tried with fio 3.33). A job that
    # verifies would write its state to a file in the current directory.
    size = ("--verify_state_save=0", *(() if "size" in from_file else (f"--size={usual}",)))
    sections = tuple(f"--section={name}" for name in settings.sections)
    logs, log_options = _log(plan, subject, replace(timing, runtime=max(1.0, timing.runtime)))
    options = (place, *size, "--group_reporting=1", *_OUTPUT, *log_options, *sections)
    limit = fiojob.job_seconds(job) + timing.runtime + _JOB_SLACK_SECONDS
    return program.Script(("fio", *options, "-"), 0.0, limit, stdin=job, collect=logs)


def _require_reach(
    plan: MeasurementPlan, settings: FioSettings, subject: program.Subject, usual: int
) -> None:
    """Raises PlanError for jobs beyond the end of the subject, which fio would enlarge."""
    room = subject.room_for_files if subject.is_directory else subject.size
    job, wanted, inside = settings.job or "", settings.sections, subject.is_directory
    end = fiojob.reach(job, wanted, subject.size, usual, in_directory=inside)
    if end > room:
        raise PlanError(
            f"the job file of {plan.name!r} needs {-(-end // MIB)} MiB, and the disk has "
            f"room for {room // MIB} MiB",
            hint="choose a larger --size, or less size, offset or numjobs in the job file",
        )


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
