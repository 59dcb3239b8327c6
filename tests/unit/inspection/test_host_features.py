"""The doctor finds what is lacking, says what it costs, and how to mend it."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.guest.qemu_monitor import monitor_answers
from vdisklab.answers.doctor import DoctorAnswer
from vdisklab.cli.shell.main import main
from vdisklab.documents import document
from vdisklab.errors import HostError
from vdisklab.guest.accelerator import KvmTrial
from vdisklab.host.command import Completed, Host, PathArg, layer_programs
from vdisklab.host.facts import QEMU
from vdisklab.host.mounts import free_bytes
from vdisklab.inspection import host_features as probe
from vdisklab.inspection.host_features import Availability, HostFinding, Inspection, examine
from vdisklab.path.segments import LayerKind
from vdisklab.progress import silent
from vdisklab.units import format_bytes

PROGRAMS = {
    QEMU: "QEMU emulator version 7.2.22",
    "qemu-img": "qemu-img version 7.2.22",
    "qemu-storage-daemon": "qemu-storage-daemon version 7.2.22",
    "fio": "fio-3.33",
    **dict.fromkeys(["busybox", "qemu-ga", "mke2fs", "bonnie++", "sysbench", "sqlite3"], ""),
    **dict.fromkeys(["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mount", "losetup"], ""),
}
SAID = {
    "qemu-img --help": "raw\nSupported formats: raw qcow2 vmdk vdi vhdx qed null-co\n",
    "fio --enghelp": "Available IO engines:\n\tpsync\n\tlibaio\n\tio_uring\n",
}


class ScriptedHost:
    """Has `programs`, each of which says what it is told to."""

    def __init__(self, *lacking: str, monitor: str | None = None) -> None:
        self.programs = {name: text for name, text in PROGRAMS.items() if name not in lacking}
        self.monitor = monitor_answers() if monitor is None else monitor
        self.said = dict(SAID)

    def which(self, program: str) -> Path | None:
        return Path("/usr/bin", program) if program in self.programs else None

    def run(self, *argv: PathArg, **_options: object) -> Completed:
        arguments = [str(word) for word in argv]
        arguments[0] = Path(arguments[0]).name
        if arguments[0] == QEMU:
            return Completed(tuple(arguments), 0, self.monitor, "")
        if arguments[0] not in self.programs:
            raise HostError(f"{arguments[0]} is not installed")
        default = self.programs[arguments[0]] if arguments[1:] == ["--version"] else ""
        return Completed(tuple(arguments), 0, self.said.get(" ".join(arguments), default), "")


def no_kvm() -> KvmTrial:
    return KvmTrial(False, "/dev/kvm does not exist", "load its module: modprobe kvm_amd")


def findings(
    tmp_path: Path, host: Host, files: Mapping[str, str] | None = None
) -> dict[str, HostFinding]:
    root = tmp_path / "root"
    for name, text in {
        "proc/filesystems": "ext4\nxfs\nbtrfs\ntmpfs\n",
        "proc/devices": "7 loop\n",
        "proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 7000000 kB\n",
        "dev/loop-control": "",
        "dev/fuse": "",
        **(files or {}),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    seen = examine(Inspection(host, tmp_path, no_kvm, root))
    return {finding.topic: finding for finding in seen}


def test_the_kernel_and_the_system_are_named_for_whoever_reads_a_report(tmp_path: Path) -> None:
    files = {
        "proc/sys/kernel/osrelease": "6.1.0-9\n",
        "etc/os-release": 'PRETTY_NAME="Debian 12"\n',
    }
    assert (
        findings(tmp_path, ScriptedHost(), files)["kernel"].observed == "Linux 6.1.0-9, Debian 12"
    )


def test_a_good_machine_can_do_the_main_job_without_kvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = findings(tmp_path, ScriptedHost())
    assert DoctorAnswer.of(found.values()).main_job
    assert found["KVM"].state is Availability.LIMITED
    assert "emulation" in (found["KVM"].costs or "")
    assert found["QEMU devices"].state is Availability.OK
    assert found["layer xfs"].state is Availability.OK


@pytest.mark.parametrize(
    ("user", "capabilities", "right"),
    [(1000, "0000000000000000", "root"), (0, "00000000a80425fb", "CAP_SYS_ADMIN")],
)
def test_each_layer_says_which_right_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, capabilities: str, right: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    status = {"proc/self/status": f"Name:\tx\nCapEff:\t{capabilities}\n"}
    found = findings(tmp_path, ScriptedHost(), status)
    assert found["layer xfs"].observed == f"kernel and programs; building it needs {right}"
    assert found["layer xfs"].costs == "cannot be measured: layer xfs"
    assert not [
        each for each in found.values()
        if each.topic.startswith("layer ") and each.state is Availability.OK
    ]  # fmt: skip
    assert DoctorAnswer.of(found.values()).main_job


def test_a_work_directory_without_flushes_is_named(tmp_path: Path) -> None:
    line = "43 27 0:39 / / rw - btrfs /dev/loop0 rw,{}discard=async,subvol=/\n"
    table = "proc/self/mountinfo"
    assert "flushes" not in findings(tmp_path, ScriptedHost(), {table: line.format("")})
    found = findings(tmp_path, ScriptedHost(), {table: line.format("nobarrier,")})
    assert found["flushes"].observed == (
        "btrfs is mounted with nobarrier, so no flush reaches the disk"
    )


def test_whatever_is_lacking_has_a_cost_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = findings(tmp_path, ScriptedHost(QEMU, "fio", "mkfs.xfs", "sqlite3", "busybox"))
    for finding in found.values():
        assert (finding.state is Availability.OK) == (finding.costs is None), finding
        assert (finding.state is Availability.OK) == (finding.mend is None), finding


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [("000001ffffffffff", "yes"), ("00000000a80425fb", "yes, but without CAP_SYS_ADMIN")],
)
def test_root_in_a_container_lacks_a_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capabilities: str, said: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    status = {"proc/self/status": f"Name:\tx\nCapEff:\t{capabilities}\n"}
    assert findings(tmp_path, ScriptedHost(), status)["root"].observed == said


@pytest.mark.parametrize(
    ("program", "topic", "package"),
    [
        (QEMU, "QEMU", "qemu-system-x86"),
        ("qemu-img", "qemu-img", "qemu-utils"),
        ("fio", "fio", "fio"),
        ("qemu-ga", "guest programs", "qemu-guest-agent"),
    ],
)
def test_without_an_essential_program_the_job_cannot_be_done(
    tmp_path: Path, program: str, topic: str, package: str
) -> None:
    found = findings(tmp_path, ScriptedHost(program))
    assert not DoctorAnswer.of(found.values()).main_job
    assert found[topic].state is Availability.MISSING
    assert (found[topic].mend or "").endswith(f" {package}")


def test_a_qemu_without_a_device_costs_its_bus_only(tmp_path: Path) -> None:
    found = findings(tmp_path, ScriptedHost(monitor=monitor_answers(["nvme"])))
    assert found["QEMU devices"].state is Availability.LIMITED
    assert found["QEMU devices"].observed == "lacks nvme"
    assert found["QEMU devices"].costs == "cannot be measured: bus nvme"
    assert DoctorAnswer.of(found.values()).main_job


def test_a_device_that_may_not_be_opened_needs_a_right_and_no_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith("loop-control"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real_open(path, flags, mode)

    real_open = os.open
    monkeypatch.setattr("vdisklab.inspection.host_features.os.open", refuse)
    found = findings(tmp_path, ScriptedHost())
    assert found["loop devices"].mend == "run vdisklab as root"
    assert found["FUSE"].state is Availability.OK


@pytest.mark.parametrize(
    ("misc", "remedy"), [("237 loop-control\n229 fuse\n", "into the container"), ("", "modprobe")]
)
def test_a_container_without_a_device_loads_no_driver_that_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, misc: str, remedy: str
) -> None:
    def lack(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if str(path).startswith(f"{tmp_path}/root/dev/"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return real_open(path, flags, mode)

    real_open = os.open
    monkeypatch.setattr("vdisklab.inspection.host_features.os.open", lack)
    found = findings(tmp_path, ScriptedHost(), {"proc/misc": misc})
    for topic in ("loop devices", "FUSE"):
        assert remedy in (found[topic].mend or "")


def test_a_layer_needs_kernel_and_programs(tmp_path: Path) -> None:
    found = findings(tmp_path, ScriptedHost("mkfs.btrfs"))
    assert found["layer btrfs"].observed == "not installed: mkfs.btrfs"
    assert found["layer lvm"].observed == "not in this kernel; not installed: lvm, dmsetup"
    assert found["layer luks"].observed == "not in this kernel; not installed: cryptsetup"
    assert "contrib" in (found["layer zfs"].mend or "")


def test_every_layer_is_looked_for_with_its_programs() -> None:
    inside = {LayerKind.ZVOL: "zfs", LayerKind.LVMTHIN: "lvm"}
    layers = {name for name, _ in probe._LAYERS} - {"loop"}
    built = {kind for kind in LayerKind if kind.facts.target is None}
    assert {inside.get(kind, kind) for kind in built} == layers
    assert all(layer_programs(layer) for layer in layers)


def test_zfs_outside_the_kernel_is_known_by_its_answer(tmp_path: Path) -> None:
    host = ScriptedHost()
    host.programs |= {"zpool": "", "zfs": ""}
    answered = findings(tmp_path, host)["layer zfs"]
    assert (answered.state, answered.observed) == (
        Availability.LIMITED,
        "not in this kernel; zfs-fuse is running",
    )
    assert "zvol" in (answered.costs or "")


def test_zfs_fuse_is_the_same_fact_for_a_user_whom_its_socket_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """root was told `limited`, and nobody `missing, not in this kernel`."""

    def refused(_: object) -> tuple[str, ...]:
        raise HostError("ZFS does not run here: connect: Permission denied")

    monkeypatch.setattr(probe, "require_zfs", refused)
    host = ScriptedHost()
    host.programs |= {"zpool": "", "zfs": ""}
    assert findings(tmp_path, host)["layer zfs"].state is Availability.MISSING
    answered = findings(tmp_path, host, {"proc/77/comm": "zfs-fuse\n"})["layer zfs"]
    assert answered.observed == "not in this kernel; zfs-fuse is running"
    assert answered.state is Availability.LIMITED


def test_zfs_that_does_not_answer_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = ScriptedHost()
    host.programs |= {"zpool": "", "zfs": ""}
    monkeypatch.setattr(probe, "_zfs_answers", lambda _host, _parts: False)
    assert findings(tmp_path, host)["layer zfs"].state is Availability.MISSING


def test_a_directory_that_cannot_be_written_stops_everything(tmp_path: Path) -> None:
    seen = tuple(examine(Inspection(ScriptedHost(), tmp_path / "absent", no_kvm, tmp_path)))
    assert not DoctorAnswer.of(seen).main_job
    (finding,) = [each for each in seen if each.topic == "work directory"]
    assert "No such file" in finding.observed


def test_io_uring_that_is_refused_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "try_io_uring", lambda: "not allowed")
    found = findings(tmp_path, ScriptedHost())
    assert found["io_uring"].state is Availability.MISSING
    assert "sysctl" in (found["io_uring"].mend or "")


def test_json_is_stable(tmp_path: Path) -> None:
    finding = HostFinding("KVM", Availability.LIMITED, "tried", "slow", "mend")
    found = document(DoctorAnswer.of([finding]))
    assert found == {
        "format": "vdisklab.doctor/2",
        "main_job": True,
        "findings": [
            {
                "topic": "KVM",
                "state": "limited",
                "observed": "tried",
                "costs": "slow",
                "mend": "mend",
                "essential": False,
            }
        ],
        "sentences": [],
    }


@pytest.mark.parametrize(("state", "status"), [(Availability.OK, 0), (Availability.MISSING, 3)])
def test_the_verb_in_every_format(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: Availability,
    status: int,
) -> None:
    costs, mend = (None, None) if state is Availability.OK else ("a cost", "a remedy")
    finding = HostFinding("fio", state, "[bold]seen", costs, mend, essential=True)
    monkeypatch.setattr("vdisklab.cli.doctor.inspect_host", lambda *_: (finding,))
    assert main(["doctor"]) == status
    table = capsys.readouterr().out
    assert "[bold]seen" in table
    assert ("a remedy" in table) == (state is Availability.MISSING)
    assert main(["doctor", "--format", "json"]) == status
    assert json.loads(capsys.readouterr().out)["main_job"] is (status == 0)
    assert main(["doctor", "--format", "csv"]) == status
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["topic"] == "fio"


def test_the_power_cut_needs_fuse_and_the_storage_daemon(tmp_path: Path) -> None:
    found = findings(tmp_path, ScriptedHost("qemu-storage-daemon"))
    assert found["FUSE"].topic == "FUSE"
    assert found["qemu-storage-daemon"].state is Availability.MISSING
    assert (found["qemu-storage-daemon"].mend or "").endswith(" qemu-system-common")
    assert "power cuts" in (found["qemu-storage-daemon"].costs or "")
    assert findings(tmp_path, ScriptedHost())["qemu-storage-daemon"].observed.startswith("7.2")


@pytest.mark.parametrize(
    ("monitor", "topic", "essential"),
    [
        (monitor_answers(aio=["threads", "native"]), "QEMU io_uring", False),
        (monitor_answers(["virtio-blk-pci"]), "QEMU virtio-blk", True),
        (monitor_answers(machines=()), "QEMU machines", True),
        ("cannot open shared object", "QEMU", True),
    ],
)
def test_what_a_qemu_was_built_without(
    tmp_path: Path, monitor: str, topic: str, essential: bool
) -> None:
    found = findings(tmp_path, ScriptedHost(monitor=monitor))
    assert found[topic].state is Availability.MISSING
    assert DoctorAnswer.of(found.values()).main_job is not essential


def test_free_space_is_what_the_plan_counts(tmp_path: Path) -> None:
    seen = findings(tmp_path, ScriptedHost())["free space"].observed
    assert seen.split(" free")[0][:3] == format_bytes(free_bytes(tmp_path))[:3]


@pytest.mark.parametrize("device", [True, False])
def test_kvm_without_a_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: bool
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "file"))
    refused = None if device else no_kvm()
    monkeypatch.setattr(probe, "device_refused", lambda: refused)
    kvm = probe.inspect_host(ScriptedHost(), tmp_path, silent)[0]
    assert (kvm.topic, kvm.state) == ("KVM", Availability.LIMITED)
    assert ("set VDISKLAB_STATE" in (kvm.mend or "")) is device
