"""Waiting ends: when the condition holds, or at the deadline and not before."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vdisklab.errors import INTERRUPTS, DirtyHostError, GuestError, HostError
from vdisklab.guest.qemu.qmp import qemu_process
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Kind, open_ledger, pending
from vdisklab.host.waiting import (
    factor_of_machine,
    interrupts_held,
    longer_deadlines,
    patience,
    seconds_without_cpu,
    wait_until,
)
from vdisklab.storage.site import open_site


@dataclass
class FakeClock:
    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(
    ("cpu", "kvm", "factor"),
    [
        ("AMD EPYC 9B14", True, 1.0),
        ("AMD EPYC 9B14", False, 1.0),
        ("QEMU TCG CPU version 2.5+", True, 8.0),
        ("QEMU TCG CPU version 2.5+", False, 20.0),
    ],
)
def test_deadlines_are_longer_on_an_emulated_machine(
    cpu: str, kvm: bool, factor: float, tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"model name\t: {cpu}\n")
    device = tmp_path / "kvm"
    if kvm:
        device.touch()
    assert factor_of_machine(tmp_path, device) == factor


def test_longer_deadlines_multiply_and_end() -> None:
    usual = patience()
    with longer_deadlines(4):
        with contextlib.suppress(KeyError), longer_deadlines(2):
            assert patience() == 8 * usual
            raise KeyError
        assert patience() == 4 * usual
    assert patience() == usual


def test_a_condition_that_holds_costs_no_sleep() -> None:
    clock = FakeClock()
    wait_until(lambda: True, timeout=0, what="anything", clock=clock)
    assert clock.slept == []


def test_returns_once_the_condition_holds() -> None:
    clock = FakeClock()
    wait_until(lambda: clock.now >= 101, timeout=5, what="the second", clock=clock)
    assert 101 <= clock.now < 101.2


def test_raises_at_the_deadline_and_says_what_was_awaited() -> None:
    clock = FakeClock()
    with pytest.raises(HostError, match=r"no release of /dev/loop7 within 2\.5 s"):
        wait_until(lambda: False, timeout=2.5, what="release of /dev/loop7", clock=clock)
    assert 102.5 <= clock.now < 102.7


def test_raises_the_error_asked_for() -> None:
    with pytest.raises(GuestError):
        wait_until(lambda: False, timeout=1, what="answer", clock=FakeClock(), error=GuestError)


def test_pauses_grow_to_a_tenth_of_a_second() -> None:
    clock = FakeClock()
    with pytest.raises(HostError):
        wait_until(lambda: False, timeout=3, what="end", clock=clock)
    assert clock.slept[0] == pytest.approx(0.01)
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] == pytest.approx(0.1)


def test_a_sleep_that_took_too_long_is_followed_by_one_more_look() -> None:
    clock = FakeClock()

    def overslept() -> bool:
        if clock.slept:
            clock.now += 60
        return bool(clock.slept)

    wait_until(overslept, timeout=1, what="end", clock=clock)


def test_an_error_of_the_condition_is_not_hidden() -> None:
    def broken() -> bool:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        wait_until(broken, timeout=1, what="end", clock=FakeClock())


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory first on PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


@pytest.fixture(autouse=True)
def _handlers_of_a_new_program() -> Iterator[None]:
    """Another test's verb may have left its own."""
    before = {number: signal.getsignal(number) for number in INTERRUPTS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def fake(directory: Path, name: str, script: str) -> None:
    program = directory / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_an_interrupt_is_heard_when_the_block_ends() -> None:
    reached: list[int] = []

    def interrupted() -> None:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            reached.append(1)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_stays_is_not_hidden_by_an_interrupt() -> None:
    def interrupted() -> None:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            raise DirtyHostError("/m is busy")

    with pytest.raises(DirtyHostError):
        interrupted()


def test_what_is_ignored_stays_ignored_and_other_threads_hold_nothing() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interrupts_held():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    seen: list[object] = []

    def look() -> None:
        with interrupts_held():
            seen.append([signal.getsignal(number) for number in INTERRUPTS])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [[signal.getsignal(number) for number in INTERRUPTS]]


def test_a_program_is_in_no_group_of_ours(programs: Path) -> None:
    fake(programs, "which-group", "cut -d' ' -f5 /proc/$$/stat")
    assert int(LocalHost().run("which-group").stdout) != os.getpgrp()


@pytest.mark.parametrize("timeout", [1.0, 60.0])
def test_a_program_that_is_not_awaited_may_take_down_what_it_made(
    programs: Path, tmp_path: Path, timeout: float
) -> None:
    """Also what it started itself; by a deadline and by an interrupt."""
    ends = f"trap 'echo child >> {tmp_path}/ended; exit' TERM"
    interrupt = f"kill -INT {os.getpid()};" if timeout > 1 else ""
    fake(programs, "child", f"{ends}; {interrupt} sleep 30 & wait")
    fake(programs, "main", f"trap 'wait; echo main >> {tmp_path}/ended; exit' TERM; child & wait")
    with pytest.raises(KeyboardInterrupt if interrupt else HostError):
        LocalHost().run("main", timeout=timeout)
    assert (tmp_path / "ended").read_text().split() == ["child", "main"]


def run(program: str, _directory: Path) -> None:
    LocalHost().run(program)


def run_like_qemu(program: str, directory: Path) -> None:
    with qemu_process((program,), (), directory / "errors"):
        pytest.fail("not reached")


@pytest.mark.parametrize("start", [run, run_like_qemu])
def test_an_interrupt_while_a_program_is_being_started_ends_it(
    start: Callable[[str, Path], None],
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine we may see only long after it that a program has been started."""

    class Slow(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
            super().__init__(*arguments, **options)
            wait_until((tmp_path / "pid").exists, timeout=60, what="program")
            signal.raise_signal(signal.SIGINT)

    says = f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid"
    fake(programs, "main", f"{says}; exec sleep 60")
    monkeypatch.setattr(subprocess, "Popen", Slow)
    with pytest.raises(KeyboardInterrupt):
        start(str(programs / "main"), tmp_path)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_an_interrupt_while_something_is_taken_down_leaves_nothing(
    programs: Path, tmp_path: Path
) -> None:
    """The interrupt comes from the very program that takes down."""
    made = tmp_path / "array"
    fake(programs, "mdadm", f"kill -INT $PPID; sleep 0.6; rm {made}")
    fake(programs, "dmsetup", f"test $1 = ls && {{ cat {made}; exit; }}\nexec mdadm")
    with (
        pytest.raises(KeyboardInterrupt),
        open_ledger(tmp_path / "state") as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
        site.tracked(Kind.MAPPED, "vdl_1"),
    ):
        made.write_text("vdl_1\t(254:0)\n")
    assert not made.exists()
    assert not ledger.path.exists()


def test_what_cannot_be_taken_down_for_any_reason_stays_in_the_ledger(
    programs: Path, tmp_path: Path
) -> None:
    fake(programs, "dmsetup", "test $1 = ls && { echo 'vdl_1\t(254:0)'; exit; }\nexit 1")
    with (
        pytest.raises(DirtyHostError, match="vdl_1 cannot be removed"),
        open_ledger(tmp_path / "state") as ledger,
        open_site(LocalHost(), ledger, tmp_path) as site,
        site.tracked(Kind.MAPPED, "vdl_1"),
    ):
        pass
    assert [entry.kind for entry in pending(ledger.path)] == [
        Kind.PROCESS,
        Kind.MAPPED,
        Kind.DIRECTORY,
    ]


def test_the_thread_that_waited_longest_for_a_cpu_counts(tmp_path: Path) -> None:
    for thread, waited in {"7": 2_500_000_000, "8": 9_000_000}.items():
        (tmp_path / "7/task" / thread).mkdir(parents=True)
        (tmp_path / "7/task" / thread / "schedstat").write_text(f"81 {waited} 3\n")
    assert seconds_without_cpu(7, tmp_path) == 2.5
    (tmp_path / "7/task/9").mkdir()
    assert seconds_without_cpu(7, tmp_path) in (0, 0.009, 2.5), "a thread that has just ended"
    assert seconds_without_cpu(8, tmp_path) == 0, "no such process"


def test_the_kernel_counts_how_long_a_process_waits_for_a_cpu() -> None:
    assert 0 <= seconds_without_cpu(os.getpid()) < 1e6
