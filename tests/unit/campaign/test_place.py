"""Where programs run: what is prepared is undone, and caches are emptied in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from tests.unit.guest.fake_agent import WINDOWS, FakeAgent, Said, agent_of
from vdisklab.actions.clean import remove_leftovers
from vdisklab.campaign.attachment import (
    GuestPlace,
    HostPlace,
    Workspace,
    host_subject,
    prepared,
    run_measured,
    with_files,
)
from vdisklab.campaign.watches import TimeSeries, Watch
from vdisklab.errors import (
    CommandError,
    GuestError,
    HostError,
    PlanError,
    VdisklabError,
    WorkloadError,
    way_out,
)
from vdisklab.guest.agent import CompletedInGuest
from vdisklab.guest.machine import Machine, detect_os
from vdisklab.guest.systems import GuestSystem, MicroGuest
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Entry, Kind, open_ledger
from vdisklab.plan.profile import MeasurementPlan
from vdisklab.storage.image import ImageFile
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.targets import Device, Directory
from vdisklab.storage.undo import kill_process, processes_marked
from vdisklab.value import replace
from vdisklab.workload.program import (
    Outputs,
    Script,
    SideCommand,
    Subject,
    Timing,
    in_directory,
)
from vdisklab.workload.registry import workload_for

DISK = Subject("/dev/vdb", 1 << 30, is_device=True)


@dataclass
class Unwatched:
    """Sees nothing but the number of the program."""

    processes: list[int | None] = field(default_factory=list)

    def begin(self) -> None:
        return

    def __call__(self, process: int | None = None) -> None:
        self.processes.append(process)

    def end(self) -> TimeSeries:
        return TimeSeries((), (), None)


def step(*arguments: str) -> SideCommand:
    return SideCommand(arguments, 5)


@dataclass
class Scripted:
    """A place that writes down what it is asked, and fails at one word."""

    fails: str = ""
    asked: list[str] = field(default_factory=list)

    @contextmanager
    def workspace(self, filesystem: str | None) -> Iterator[Workspace]:
        del filesystem
        yield Workspace(DISK, lambda: None)

    def step(self, step: SideCommand) -> None:
        self.asked.append(step.command[0])
        if step.command[0] == self.fails:
            raise WorkloadError("no space left")

    def run(self, script: Script, watch: Watch) -> Outputs:
        del watch
        self.asked.append(script.command[0])
        return Outputs("said", "complained")

    def collect(self, name: str) -> str:
        return f"content of {name}"


SCRIPT = Script(
    ("measure",), 0, 5, prepare=(step("a"), step("b")), conclude=(step("y"), step("z")),
    collect=("/tmp/log",),  # noqa: S108
)  # fmt: skip


def test_steps_before_and_after() -> None:
    place = Scripted()
    with prepared(place, SCRIPT):
        output = with_files(place, SCRIPT, place.run(SCRIPT, Unwatched()))
    assert place.asked == ["a", "b", "measure", "y", "z"]
    assert output.text.startswith("said\n==> standard error <==\ncomplained\n==> /tmp/log <==")


def test_what_follows_is_done_whatever_fails() -> None:
    place = Scripted(fails="b")
    with pytest.raises(WorkloadError, match="no space"), prepared(place, SCRIPT):
        pytest.fail("not reached")
    assert place.asked == ["a", "b", "y", "z"]


def test_the_first_error_is_told_and_not_its_echo() -> None:
    class Lost(Scripted):
        def step(self, step: SideCommand) -> None:
            self.asked.append(step.command[0])
            if step.command[0] in "yz":
                raise GuestError("the connection was lost")

    place = Lost()
    with pytest.raises(WorkloadError, match="fio exited with 1"), prepared(place, SCRIPT):
        raise WorkloadError("fio exited with 1")
    assert place.asked == ["a", "b", "y", "z"]
    with pytest.raises(GuestError, match="lost"), prepared(place, SCRIPT):
        pass
    assert place.asked == ["a", "b", "y", "z"] * 2


def test_a_disk_that_refuses_has_a_way_out() -> None:
    """Seen with fio on a LUN of tgt whose file system was full."""
    said = "fio: io_u error on file /dev/vdb: Input/output error: write offset=0, buflen=65536"
    assert "which may be full or read-only" in str(way_out(said))


@pytest.mark.parametrize(
    "error", [WorkloadError("gave up"), CommandError(("pgbench",), 2, "gave up")]
)
def test_a_program_whose_server_ends_shows_the_log_and_the_way_out(error: VdisklabError) -> None:
    class Ends(Scripted):
        log = "started\nCOPY\n PANIC: no WAL\nNo space left on device\n"

        def run(self, script: Script, watch: Watch) -> Outputs:
            del script, watch
            raise error

        def collect(self, name: str) -> str:
            del name
            if not self.log:
                raise HostError("there is no such file")
            return self.log

    served = replace(SCRIPT, log="/mnt/data/server.log")
    with pytest.raises(WorkloadError) as told:
        run_measured(Ends(), served, Unwatched())
    log = "the last lines of the server's log: COPY | PANIC: no WAL | No space left on device"
    assert str(told.value) == f"{error}; {log}"
    assert told.value.hint == (
        "the guest's disk or memory is full: choose a larger --size or --guest-memory"
    )
    Ends.log = ""
    for script in (served, SCRIPT):
        with pytest.raises(type(error)) as plain:
            run_measured(Ends(), script, Unwatched())
        assert plain.value is error


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with (
        open_ledger(tmp_path / "state") as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
    ):
        yield site


def image_in(site: Site) -> ImageFile:
    file = site.directory / "image"
    return ImageFile(Directory(site.directory), file, "raw", 1 << 20, {}, (file,))


def test_a_directory_of_the_stack_stands_for_the_guests_file_system(site: Site) -> None:
    subject = host_subject(site, image_in(site), 1 << 20, 1 << 30)
    place = HostPlace(site, subject, Directory(site.directory))
    with place.workspace("ext4") as space:
        directory = Path(space.subject.path)
        assert space.subject.is_directory
        assert directory.is_dir()
        place.step(SideCommand(("sh", "-c", f"echo x > {directory}/file"), 5))
        space.empty_cache()
        script = Script(("sh", "-c", "cat; echo e >&2"), 0, 5, stdin="in")
        watch = Unwatched()
        assert place.run(script, watch) == Outputs("in", "e\n")
        assert watch.processes, "the program's number is told"
        assert place.collect(str(directory / "file")) == "x\n"
        with pytest.raises(WorkloadError, match="file was not written"):
            place.collect(str(directory / "file"))
    assert not directory.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.campaign.test_place import DISK
from vdisklab.campaign.attachment import HostPlace
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Entry, Kind, open_ledger
from vdisklab.storage.site import open_site
from vdisklab.storage.targets import Device
from vdisklab.workload.program import Script
directory = Path(sys.argv[1])
with open_ledger(directory / "state") as ledger:
    with open_site(LocalHost(), ledger, directory) as site:
        place = HostPlace(site, DISK, Device(Path("/dev/x")))
        word = f"(sleep 300 & cd {directory}; echo $! >new; mv new pid; exec setsid sleep 300)"
        watch = lambda _: (directory / "pid").exists() and os.kill(os.getpid(), signal.SIGKILL)
        place.run(Script(("sh", "-c", word), 0, 60), watch)
"""


def test_after_sigkill_clean_ends_the_program_and_its_children(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)}, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    child = Path("/proc") / (tmp_path / "pid").read_text().strip() / "cmdline"
    assert b"sleep" in child.read_bytes()
    removed = list(remove_leftovers(LocalHost(), directory=tmp_path / "state"))
    entry = removed[0]
    assert entry.kind == Kind.PROCESS  # before the directory that it writes to
    assert processes_marked(entry.name) == []
    assert not child.exists() or child.read_bytes() == b""  # gone, or not yet reaped


FORKING = """
import os, time
for _ in range(100):
    if os.fork():
        break
    time.sleep(0.003)
time.sleep(30)
"""


def test_a_program_that_forks_while_it_is_killed_is_killed_too(site: Site) -> None:
    """Each process makes the next one and stays; no single look finds them all."""
    mark = f"forking-{site.ledger.run_id}"
    with subprocess.Popen([sys.executable, "-S", "-c", FORKING, mark]) as process:
        time.sleep(0.1)
        kill_process(LocalHost(), Entry(0, Kind.PROCESS, mark))
        assert processes_marked(mark) == []
        assert process.wait(10) == -signal.SIGKILL


def test_a_program_that_fails_is_named_as_it_was_asked_for(site: Site) -> None:
    place = HostPlace(site, DISK, Device(Path("/dev/x")))
    with pytest.raises(CommandError, match=r"^`sh -c 'exit 3'` exited with 3"):
        place.run(Script(("sh", "-c", "exit 3"), 0, 5), Unwatched())


def test_a_scripts_step_that_fails_says_its_last_lines_and_not_all_of_its_words(site: Site) -> None:
    place = HostPlace(site, DISK, Device(Path("/dev/x")))
    script = "echo the server does not start: FATAL: no space >&2; exit 1"
    said = "`sh -s -- start …` exited with 1: the server does not start: FATAL: no space"
    with pytest.raises(CommandError, match=f"^{said}$"):
        place.step(SideCommand(("sh", "-s", "--", "start", "/x", "fsync=on"), 5, script))


def test_a_program_that_a_shell_would_start_is_missed_by_name(site: Site) -> None:
    subject = host_subject(site, image_in(site), 1 << 20, 1 << 30)
    place = HostPlace(site, subject, Directory(site.directory))
    command = in_directory(str(site.directory), ("no-such-bench", "prepare"))
    with pytest.raises(HostError, match=r"^no-such-bench is not installed"):
        place.step(SideCommand(command, 5))
    with pytest.raises(HostError, match=r"^no-such-bench is not installed"):
        place.run(Script(command, 0, 5), Unwatched())
    place.step(SideCommand(in_directory(str(site.directory), ("true",)), 5))


def test_a_device_has_no_directory(site: Site) -> None:
    place = HostPlace(site, DISK, Device(Path("/dev/x")))
    with pytest.raises(HostError, match="ends on a block device"), place.workspace("ext4"):
        pytest.fail("not reached")
    with place.workspace(None) as space:
        assert space.subject is DISK


@dataclass
class FakeMounter:
    """A guest that mounts what it is told, or something else."""

    mounted: str = "ext4"
    asked: list[str] = field(default_factory=list)

    def run(self, argv: tuple[str, ...], **_options: object) -> CompletedInGuest:
        self.asked.append(" ".join(argv))
        answers = {"cat": f"/dev/vdb /mnt/vdisklab {self.mounted} rw 0 0\n", "stat": "100 4096\n"}
        return CompletedInGuest(argv, 0, answers.get(argv[0], ""), "", 0.1)


@dataclass
class FakeMachine:
    agent: FakeMounter
    system: GuestSystem = field(default_factory=MicroGuest)


def test_a_new_file_system_in_the_guest_and_gone_again() -> None:
    agent = FakeMounter()
    place = GuestPlace(cast(Machine, FakeMachine(agent)), DISK)
    with place.workspace("ext4") as space:
        assert (space.subject.path, space.subject.size) == ("/mnt/vdisklab", 409600)
        space.empty_cache()
    verbs = [each.removeprefix("env UNIX_IO_NOZEROOUT=1 ").split()[0] for each in agent.asked]
    assert verbs == [
        "mkfs.ext4", "mkdir", "mount", "cat", "stat", "umount", "mount", "cat", "umount",
    ]  # fmt: skip
    assert "nodiscard" in agent.asked[0]


def test_after_an_error_the_guests_file_system_is_left_alone() -> None:
    agent = FakeMounter()
    place = GuestPlace(cast(Machine, FakeMachine(agent)), DISK)
    with pytest.raises(GuestError, match="did not end"), place.workspace("ext4"):
        raise GuestError("`fio` did not end within 120 s")
    assert [each.split()[0] for each in agent.asked][-2:] == ["cat", "stat"]


def test_another_file_system_than_asked_for() -> None:
    agent = FakeMounter(mounted="ext2")
    place = GuestPlace(cast(Machine, FakeMachine(agent)), DISK)
    with pytest.raises(GuestError, match="as ext2 instead of ext4"), place.workspace("ext4"):
        pytest.fail("not reached")
    assert agent.asked[-1] == "cat /proc/mounts"


XML = (Path(__file__).parents[2] / "data" / "foreign" / "diskspd-2.0.xml").read_text()
WINDOWS_DISK = Subject("#1", 32 << 20, is_device=True, scratch=r"C:\Windows\Temp")


def windows(argv: Sequence[str], stdin: str) -> Said:
    """A Windows in which DISKSPD measures and PowerShell finds the disk."""
    del stdin
    if argv[0].endswith("diskspd.exe"):
        return Said("\ufeff" + XML if argv[-1] == "#1" else "Error opening file")
    return Said("device=#1\r\nsize_bytes=33554432\r\n")


def test_a_fio_measurement_is_done_by_diskspd_in_a_windows_guest(tmp_path: Path) -> None:
    """Through a socket, with answers after Microsoft's documentation."""
    program = tmp_path / "diskspd.exe"
    program.write_bytes(b"MZ")
    fake = FakeAgent(WINDOWS, windows)
    plan = MeasurementPlan("randread", "fio", {"rw": "randread", "bs": "4k"})
    with agent_of(fake) as agent:
        system = detect_os(agent, program)
        system.require(agent, ("fio",))
        machine = cast(Machine, FakeMachine(cast(FakeMounter, agent), system))
        assert system.find_disk(agent, "vdl1").device == WINDOWS_DISK.path
        place = GuestPlace(machine, WINDOWS_DISK)
        workload = workload_for(plan, in_windows=True)
        with place.workspace(None) as space:
            script = workload.script(plan, space.subject, Timing(1.0, 0.0))
            outcome = workload.parse(plan, place.run(replace(script, expected=0.0), Unwatched()))
        with pytest.raises(PlanError, match="files in a Windows guest"), place.workspace("ext4"):
            pytest.fail("not reached")
    assert {sample.metric for sample in outcome.samples} >= {"iops", "bandwidth", "latency_p99"}
    assert fake.ran[-1][0] == r"C:\Windows\Temp\vdisklab-diskspd.exe"
    assert list(fake.files) == [fake.ran[-1][0]]
