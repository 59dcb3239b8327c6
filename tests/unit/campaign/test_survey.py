"""What this host lacks, by what its programs say; they are scripts here, first on PATH."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.guest.qemu_monitor import monitor_answers
from vdisklab.campaign.survey import survey
from vdisklab.errors import DirtyHostError, HostError
from vdisklab.host.command import LocalHost, install_hint
from vdisklab.host.ledger import open_ledger, pending
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import Bus, ImageFormat
from vdisklab.plan.build import Draft, draft_plan
from vdisklab.plan.capabilities import Capabilities, QemuLimits, infeasible
from vdisklab.plan.named_here import NamedHere
from vdisklab.plan.settings import Request
from vdisklab.progress import Progress, Step, silent
from vdisklab.workload.profile_files import load_profile

DATA = Path(__file__).parents[2] / "data" / "qmp"


# Attaches none, and has none to list.
_NO_LOOPS = """
case "$*" in *--find*) echo 'losetup: cannot find an unused device' >&2; exit 1 ;; esac
"""


def said(name: str, qemu: str = "7.2.22") -> str:
    """What the real program printed."""
    return (DATA / f"qemu-{qemu}-{name}.txt").read_text()


class Programs:
    """A directory that is all of PATH."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.calls = directory / "calls"

    def prints(self, name: str, text: str, *, status: int = 0) -> None:
        file = self.directory / f"{name}.said"
        file.write_text(text)
        self.is_script(name, f"while IFS= read -r l; do echo \"$l\"; done <'{file}'\nexit {status}")

    def is_script(self, name: str, body: str) -> None:
        program = self.directory / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.calls}\n{body}\n')
        program.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    directory = tmp_path / "bin"
    directory.mkdir()
    made = Programs(directory)
    made.prints("qemu-system-x86_64", monitor_answers())
    made.prints("qemu-img", said("qemu-img-help"), status=1)
    made.prints("qemu-storage-daemon", "")
    made.prints("virtiofsd", "")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    # A user has no right of root, whatever `geteuid` says.
    monkeypatch.setattr(
        "vdisklab.campaign.survey.missing_right",
        lambda: ("root", "run vdisklab as root") if os.geteuid() else None,
    )
    for program in ("truncate", "mkdir"):
        (directory / program).symlink_to(f"/bin/{program}")
    monkeypatch.setenv("PATH", str(directory))
    return made


def draft_in(work: Path) -> Draft:
    """A draft of which only the work directory is of interest."""
    request = Request(paths=("host",), directory=work)
    return draft_plan(NamedHere(request, load_profile("quick")))


def found(
    tmp_path: Path, *paths: str, progress: Progress = silent, work: Path | None = None
) -> Capabilities:
    work = work or tmp_path / "work"
    work.mkdir(exist_ok=True)
    with open_ledger(tmp_path / "state") as ledger:
        try:
            return survey(LocalHost(), ledger, draft_in(work), map(parse_path, paths), progress)
        finally:
            assert list(work.iterdir()) == []
            assert pending(ledger.path) == []


def test_a_host_that_has_everything(programs: Programs, tmp_path: Path) -> None:
    paths = [f"{form}/writeback/{bus}" for form in ImageFormat for bus in Bus if form != "null"]
    seen = found(tmp_path, *paths)
    assert (seen.installed, seen.formats, seen.stacks) == (QemuLimits(), {}, {})
    assert set(seen.direct_io) == {""}


@pytest.mark.parametrize("bus", Bus)
def test_a_qemu_without_a_device_lacks_its_bus_alone(
    bus: Bus, programs: Programs, tmp_path: Path
) -> None:
    device = {
        Bus.VIRTIO: "virtio-blk-pci", Bus.SCSI: "virtio-scsi-pci", Bus.IDE: "ide-hd",
        Bus.SATA: "ich9-ahci", Bus.NVME: "nvme", Bus.USB: "usb-storage",
        Bus.VHOSTUSER: "vhost-user-blk-pci", Bus.VIRTIOFS: "vhost-user-fs-pci",
        Bus.P9: "virtio-9p-pci",
    }[bus]  # fmt: skip
    programs.prints("qemu-system-x86_64", monitor_answers([device]))
    seen = found(tmp_path, *(f"raw/writeback/{each}" for each in Bus))
    lacking = {Bus.IDE, Bus.SATA} if bus is Bus.IDE else {bus}
    assert set(seen.installed.buses) == lacking
    assert f"this QEMU has no device {device}" in seen.installed.buses[bus].reason


def test_without_its_daemon_only_the_served_bus_is_missing(
    programs: Programs, tmp_path: Path
) -> None:
    (programs.directory / "qemu-storage-daemon").unlink()
    path = parse_path("raw/none/vhostuser")
    seen = found(tmp_path, "raw/none", str(path))
    assert set(seen.installed.buses) == {Bus.VHOSTUSER}
    verdict = infeasible(path, seen)
    assert verdict is not None
    assert "qemu-storage-daemon is not installed" in verdict.reason
    assert infeasible(parse_path("raw/none"), seen) is None


@pytest.mark.parametrize("user", [0, 1000])
def test_virtiofs_needs_its_daemon_and_root(
    user: int, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parse_path("virtiofs")
    programs.prints("apt-get", "")
    assert infeasible(path, found(tmp_path, "virtiofs")) is None
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr("vdisklab.guest.qemu.daemons._PLACES", ("nowhere",))
    verdict = infeasible(path, found(tmp_path, "virtiofs"))
    assert verdict is not None
    assert ("virtiofsd needs root" if user else "virtiofsd is not installed") in verdict.reason
    assert verdict.instead
    assert user or "on Debian 12" in verdict.instead  # it has no package of that name
    assert infeasible(parse_path("9p"), found(tmp_path, "9p")) is None


def test_virtiofs_misreads_the_flags_of_another_architectures_guest(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest of arm64 on x86: fio's O_DIRECT and O_CREAT gave EINVAL on virtiofs, not on 9p."""
    del programs
    monkeypatch.setattr("vdisklab.campaign.qemu_limits.is_foreign", lambda: True)
    verdict = infeasible(parse_path("virtiofs"), found(tmp_path, "virtiofs"))
    assert verdict is not None
    assert "O_DIRECT of a guest" in verdict.reason
    assert infeasible(parse_path("9p"), found(tmp_path, "9p")) is None


def test_a_qemu_without_io_uring_lacks_that_aio_mode(programs: Programs, tmp_path: Path) -> None:
    programs.prints("qemu-system-x86_64", monitor_answers(aio=("threads", "native")))
    seen = found(tmp_path, "raw/writeback/virtio:aio=io_uring")
    dropped = infeasible(parse_path("raw/writeback/virtio:aio=io_uring"), seen)
    assert dropped is not None
    assert "this QEMU was built without it" in dropped.reason
    assert infeasible(parse_path("raw/writeback"), seen) is None


def test_a_schema_without_aio_modes_says_nothing_of_them(
    programs: Programs, tmp_path: Path
) -> None:
    programs.prints("qemu-system-x86_64", monitor_answers(aio=()))
    assert found(tmp_path, "raw/writeback").installed == QemuLimits()


@pytest.mark.parametrize("qemu", ["7.2.22", "10.0.13"])
def test_a_format_that_qemu_img_does_not_make(
    programs: Programs, tmp_path: Path, qemu: str
) -> None:
    less = said("qemu-img-help", qemu).replace(" vmdk", "").replace(" vdi", "")
    programs.prints("qemu-img", less, status=1)
    seen = found(tmp_path, "vmdk", "qcow2", "raw")
    assert set(seen.formats) == {ImageFormat.VMDK}
    dropped = infeasible(parse_path("vmdk"), seen)
    assert dropped is not None
    assert "qemu-img does not make vmdk" in dropped.reason


def test_what_cannot_be_read_says_nothing_of_formats(programs: Programs, tmp_path: Path) -> None:
    programs.prints("qemu-img", "qemu-img: error while loading shared libraries", status=1)
    assert found(tmp_path, "vmdk").formats == {}


@pytest.mark.parametrize("program", ["qemu-system-x86_64", "qemu-img"])
def test_a_missing_program_means_no_guest(program: str, programs: Programs, tmp_path: Path) -> None:
    (programs.directory / program).unlink()
    seen = found(tmp_path, "raw/writeback", "host")
    assert seen.installed.guest is not None
    assert seen.installed.guest.reason == f"{program} is not installed"
    assert "package that contains qemu-system-x86_64, qemu-img" in seen.installed.guest.mend
    assert infeasible(parse_path("host"), seen) is None


def test_without_guests_no_qemu_is_asked(programs: Programs, tmp_path: Path) -> None:
    for program in ("qemu-system-x86_64", "qemu-img"):
        programs.is_script(program, "exit 1")
    assert found(tmp_path, "host").installed.guest is None
    assert not programs.calls.exists()


def test_a_qemu_that_cannot_start_is_a_sentence(programs: Programs, tmp_path: Path) -> None:
    programs.is_script("qemu-system-x86_64", "echo 'cannot open shared object' >&2; exit 127")
    with pytest.raises(HostError, match="cannot open shared object"):
        found(tmp_path, "raw/writeback")


class TestStacks:
    def test_without_root_layers_are_not_tried(
        self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        seen = found(tmp_path, "ext4/host", "host")
        assert set(seen.stacks) == {"ext4"}
        assert seen.stacks["ext4"].mend == (
            "run vdisklab as root, or leave out ext4/: images in --dir are on the file system that "
            "is there"
        )
        assert set(seen.direct_io) == {"ext4", ""}
        assert seen.direct_io["ext4"] is None
        assert not programs.calls.exists()

    def test_one_that_cannot_be_built_costs_the_others_nothing(
        self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        programs.is_script("losetup", _NO_LOOPS)
        steps: list[object] = []
        seen = found(tmp_path, "ext4/host", "ext4/raw/none", "xfs/host", "host",
                     progress=steps.append)  # fmt: skip
        assert set(seen.stacks) == {"ext4", "xfs"}
        assert "cannot find an unused device" in seen.stacks["ext4"].reason
        assert seen.stacks["ext4"].mend
        dropped = infeasible(parse_path("ext4/raw/none"), seen)
        assert dropped is not None
        assert "unused device" in dropped.reason
        assert infeasible(parse_path("host"), seen) is None
        assert steps == [
            Step("trying ext4"), Step("trying xfs"), Step("trying the work directory"),
        ]  # fmt: skip

    def test_without_losetup_nothing_is_left_to_detach(
        self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert programs.directory.is_dir()
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr("vdisklab.host.command._ADMIN_PATHS", ())
        seen = found(tmp_path, "ext4/host", "host")
        assert seen.stacks["ext4"].reason == "losetup is not installed"
        assert seen.stacks["ext4"].mend == install_hint(["losetup"])

    def test_a_trial_that_cannot_be_taken_down_is_not_a_missing_stack(
        self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        programs.is_script("losetup", "echo 'losetup: permission denied' >&2; exit 1")
        work = tmp_path / "work"
        work.mkdir()
        with (
            open_ledger(tmp_path / "state") as ledger,
            pytest.raises(DirtyHostError, match="cannot be detached"),
        ):
            survey(LocalHost(), ledger, draft_in(work), [parse_path("ext4/host")], silent)
        assert [entry.kind for entry in pending(ledger.path)] == [
            "process",
            "loop",
            "file",
            "directory",
        ]


def test_a_work_directory_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with (
        open_ledger(tmp_path / "state") as ledger,
        pytest.raises(HostError, match=r"work directory .* cannot be used"),
    ):
        survey(LocalHost(), ledger, draft_in(file), [parse_path("host")], silent)
