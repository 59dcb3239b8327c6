"""Guests of the user's own, through a socket: what they are and lack, how disks are found."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.guest.fake_agent import DEBIAN, WINDOWS, FakeAgent, Said, agent_of
from tests.unit.guest.fake_far_side import channel_to
from vdisklab.errors import GuestError, HostError, RefusedError
from vdisklab.guest.agent import Agent
from vdisklab.guest.machine import detect_os
from vdisklab.guest.systems import Family, LinuxGuest, UnfitGuestError, WindowsGuest, micro_facts

LINUX_DISK = "device=/dev/vdb\nsize_bytes=33554432\nwrite_cache=write back\nnr_hw_queues=2\n"
WINDOWS_DISK = (
    "device=#1\r\nsize_bytes=33554432\r\nlogical_block_size=512\r\nphysical_block_size=512\r\n"
    "bus=SCSI\r\n"
)


def debian(argv: Sequence[str], stdin: str) -> Said:
    """A Debian with fio, whose shell really runs what only looks."""
    if argv[:2] == ("sh", "-s"):
        return Said(LINUX_DISK) if "has_serial" in stdin else Said(status=2)
    if "is-system-running" in argv[-1]:
        return Said("degraded\n", status=1)
    if argv[0] == "sh" and "uname" in argv[-1]:
        return Said("Linux 6.1.0-38-amd64\nfio-3.33\n")
    if argv[:2] == ("sh", "-c"):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return Said(done.stdout, done.stderr, done.returncode)
    return Said()


def windows(argv: Sequence[str], stdin: str) -> Said:
    del stdin
    if argv[0] == "powershell.exe" and "Get-Disk" in script_of(argv):
        if "vdlmissing" in script_of(argv):
            return Said(stderr="no disk with serial number vdlmissing within 15 s\r\n", status=1)
        return Said(WINDOWS_DISK)
    return Said()


def script_of(argv: Sequence[str]) -> str:
    return base64.b64decode(argv[-1]).decode("utf-16-le")


def test_a_micro_guest_says_its_kernel_and_the_size_of_its_pages() -> None:
    printed = "kernel=6.12.1-arm64-16k\ncpus=2\npage_size=16384\ncommand_line=console=ttyAMA0\n"
    facts = {check.name: check.observed for check in micro_facts(printed)}
    assert facts == {"guest.kernel": "Linux 6.12.1-arm64-16k", "guest.page_size": "16384"}


class TestLinux:
    def test_it_is_recognised_and_says_what_it_is(self) -> None:
        with agent_of(FakeAgent(DEBIAN, debian)) as agent:
            system = detect_os(agent, None)
            assert isinstance(system, LinuxGuest)
            system.await_ready(agent)
            facts = {check.name: check.observed for check in system.facts(agent)}
        assert facts == {
            "guest.system": "Debian GNU/Linux 12 (bookworm)",
            "guest.kernel": "Linux 6.1.0-38-amd64",
            "guest.fio": "fio-3.33",
            "guest.agent": "7.2.22",
            "guest.state": "degraded",
        }

    def test_its_disk_is_found_by_its_serial(self) -> None:
        fake = FakeAgent(DEBIAN, debian)
        with agent_of(fake) as agent:
            disk = detect_os(agent, None).find_disk(agent, "vdl1234")
        assert disk.device == "/dev/vdb"
        assert disk.facts["write_cache"] == "write back"
        assert not disk.hidden
        assert fake.ran[-1][:3] == ("sh", "-s", "vdl1234")

    def test_a_missing_program_is_one_sentence(self) -> None:
        with agent_of(FakeAgent(DEBIAN, debian)) as agent:
            system = detect_os(agent, None)
            system.require(agent, ("sh", "cat"))
            with pytest.raises(UnfitGuestError) as caught:
                system.require(agent, ("sh", "no-fio", "mkfs.no", "cat"))
        assert str(caught.value) == (
            "the guest (Debian GNU/Linux 12 (bookworm)) has no no-fio, mkfs.no"
        )
        assert "install them in the image" in str(caught.value.hint)

    def test_no_such_disk(self) -> None:
        def none(_argv: Sequence[str], _stdin: str) -> Said:
            return Said(stderr="no disk with serial number vdlx within 15 s\n", status=1)

        with agent_of(FakeAgent(DEBIAN, none)) as agent:
            system = detect_os(agent, None)
            with pytest.raises(GuestError, match="does not see the disk vdlx: no disk with serial"):
                system.find_disk(agent, "vdlx")


class TestAgent:
    def test_one_that_forbids_programs(self) -> None:
        fake = FakeAgent(DEBIAN, debian, disabled=("guest-exec",))
        with (
            agent_of(fake) as agent,
            pytest.raises(UnfitGuestError, match="does not allow guest-exec") as caught,
        ):
            detect_os(agent, None)
        assert "/etc/sysconfig/qemu-ga" in str(caught.value.hint)

    def test_one_that_falls_silent_while_a_program_runs(self) -> None:
        fake = FakeAgent(DEBIAN, lambda argv, stdin: None, silent_after=4)
        with (
            channel_to(fake.answer, greets=False) as (channel, _),
            pytest.raises(GuestError, match="no answer to guest-exec-status from the guest agent"),
        ):
            Agent(channel, patience_seconds=0.3).run(("fio", "--version"), timeout=20)

    def test_one_that_is_started_anew_while_a_program_runs(self) -> None:
        fake = FakeAgent(DEBIAN, lambda argv, stdin: None, anew_after=4)
        said = r"was restarted while it ran `fio --version`.*Invalid parameter 'pid'"
        with agent_of(fake) as agent, pytest.raises(GuestError, match=said) as caught:
            agent.run(("fio", "--version"), timeout=20)
        assert not isinstance(caught.value, RefusedError)

    def test_a_program_that_does_not_end_is_killed(self) -> None:
        for system, killer in ((DEBIAN, "sh"), (WINDOWS, "taskkill.exe")):
            fake = FakeAgent(system, lambda argv, stdin: None)
            with agent_of(fake) as agent:
                used = agent.on_windows() if system is WINDOWS else agent
                with pytest.raises(GuestError, match=r"did not end within 0\.1 s"):
                    used.run(("fio",), timeout=0.1)
            assert fake.ran[-1][0] == killer


class TestWindows:
    """Recorded after Microsoft's documentation: nobody could run it."""

    def test_it_is_recognised_and_gets_diskspd(self, tmp_path: Path) -> None:
        program = tmp_path / "diskspd.exe"
        program.write_bytes(b"MZ" + bytes(range(256)) * 2048)
        fake = FakeAgent(WINDOWS, windows)
        with agent_of(fake) as agent:
            system = detect_os(agent, program)
            assert isinstance(system, WindowsGuest)
            assert system.family is Family.WINDOWS
            system.require(agent, ("fio",))
        assert fake.files == {r"C:\Windows\Temp\vdisklab-diskspd.exe": program.read_bytes()}

    def test_its_disk_is_found_and_made_writable(self) -> None:
        fake = FakeAgent(WINDOWS, windows)
        with agent_of(fake) as agent:
            disk = detect_os(agent, None).find_disk(agent, "vdl1234")
        assert disk.device == "#1"
        assert disk.facts["size_bytes"] == "33554432"
        assert disk.hidden >= {"write_cache", "nr_hw_queues"}
        script = script_of(fake.ran[-1])
        assert "-eq 'vdl1234'" in script
        assert "Set-Disk -Number $disk.Number -IsReadOnly $false" in script

    def test_no_such_disk(self) -> None:
        with agent_of(FakeAgent(WINDOWS, windows)) as agent:
            system = detect_os(agent, None)
            with pytest.raises(GuestError, match="no disk with serial number vdlmissing"):
                system.find_disk(agent, "vdlmissing")

    def test_without_diskspd_it_says_where_to_get_it(self, tmp_path: Path) -> None:
        with agent_of(FakeAgent(WINDOWS, windows)) as agent:
            with pytest.raises(UnfitGuestError, match="measures with DISKSPD") as caught:
                detect_os(agent, None).require(agent, ())
            assert "--diskspd FILE" in str(caught.value.hint)
            (tmp_path / "text").write_text("no program")
            with pytest.raises(HostError, match="not a Windows program"):
                detect_os(agent, tmp_path / "text").require(agent, ())
