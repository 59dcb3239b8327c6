"""What a QEMU says of itself, from recordings of its monitor played by a program in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vdisklab.campaign.qemu_limits import find_qemus
from vdisklab.errors import HostError, PlanError
from vdisklab.guest.qemu.probe import QemuVersion, has_sandbox, probe_qemu
from vdisklab.host.command import LocalHost
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import Aio, Bus
from vdisklab.plan.capabilities import Capabilities, infeasible
from vdisklab.plan.guest import RequestedQemu, parse_qemu
from vdisklab.value import replace

# Shortened: of the properties of each device those of queues and threads are kept (of 5.2.0 none),
# of the schema two or three entries.
DATA = Path(__file__).parents[3] / "data" / "qemu"
DEVICES = ("virtio-blk-pci", "nvme", "no-such-device")
HOST = LocalHost()


def player(tmp_path: Path, text: str, *, status: int = 0, name: str = "qemu") -> Path:
    """A program that answers whatever it is asked with a text."""
    (tmp_path / f"{name}.said").write_text(text)
    program = tmp_path / name
    program.write_text(f'#!/bin/sh\ncat >"$0.asked"\ncat "$0.said"\nexit {status}\n')
    program.chmod(0o755)
    return program


def recorded(version: str) -> str:
    return (DATA / f"monitor-qemu-{version}.jsonl").read_text()


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("5.2.0", "Debian 1:5.2+dfsg-11+deb11u3"),
        ("7.2.22", "Debian 1:7.2+dfsg-7+deb12u18+b3"),
        ("10.0.2", "Debian 1:10.0.2+ds-2+deb13u1~bpo12+1"),
    ],
)
def test_recorded_versions(tmp_path: Path, version: str, package: str) -> None:
    program = player(tmp_path, recorded(version))
    found = probe_qemu(HOST, program, DEVICES)
    assert (found.number, found.version) == (version, f"{version} ({package})")
    assert found.devices.keys() == {"virtio-blk-pci", "nvme"}
    lacks_threads = "iothreads" in found.lacking_options(Bus.VIRTIO)
    assert lacks_threads is (version == "7.2.22")
    assert found.aio == {"threads", "native", "io_uring"}
    asked = (tmp_path / "qemu.asked").read_text()
    assert "qmp_capabilities" in asked.splitlines()[0]


@pytest.mark.parametrize(
    ("version", "missing"), [("5.2.0", []), ("7.2.22", ["discard_no_unref"]), ("10.0.2", [])]
)
def test_options_of_qcow2_that_a_qemu_lacks(
    tmp_path: Path, version: str, missing: list[str]
) -> None:
    """The schema of 5.2.0 was recorded without its entry: unknown is not missing."""
    program = player(tmp_path, recorded(version))
    assert list(probe_qemu(HOST, program, ()).lacking_of_qcow2()) == missing
    _, able = find_qemus(HOST, [RequestedQemu("new", str(program))])
    assert [option for _, option in able["new"].of_formats] == missing
    if missing:
        limits = replace(able["new"], buses={})
        path = parse_path("qcow2:discard_no_unref=on/none/virtio:qemu=new")
        reason = infeasible(path, Capabilities(qemus={"new": limits}))
        assert reason is not None
        assert "(7.2.22) has no discard-no-unref for qcow2; QEMU 8.1 has it" in reason.reason
        assert "install a newer QEMU" in reason.instead
        plain = parse_path("qcow2:discard_no_unref=off/none/virtio:qemu=new")
        assert infeasible(plain, Capabilities(qemus={"new": limits})) is None


def test_a_qemu_or_host_without_seccomp_has_no_sandbox(tmp_path: Path) -> None:
    assert has_sandbox(HOST, str(player(tmp_path, "")))
    assert not has_sandbox(HOST, str(player(tmp_path, "", status=1, name="without")))


def test_what_it_was_built_without(tmp_path: Path) -> None:
    program = player(tmp_path, recorded("7.2.22").replace('"io_uring"', '"other"'))
    assert "io_uring" not in probe_qemu(HOST, program, ()).aio
    qemus, able = find_qemus(HOST, [RequestedQemu("own", str(program))])
    assert (qemus[0].name, qemus[0].binary) == ("own", program)
    assert set(able["own"].aio) == {Aio.IO_URING}
    # The recording knows two devices, so every bus that needs another one is missing.
    assert Bus.VIRTIO not in able["own"].buses
    assert "has no device scsi-hd" in able["own"].buses[Bus.SCSI].reason or "virtio-scsi" in (
        able["own"].buses[Bus.SCSI].reason
    )


@pytest.mark.parametrize(
    ("said", "status", "problem"),
    [
        ("", 0, "does not answer like QEMU"),
        ("hello\n", 0, "it printed 'hello'"),
        ("cannot open libfoo.so.1\n", 127, "it printed 'cannot open libfoo.so.1'"),
        ('{"QMP": {}}\n{"return": {}}\n', 0, "does not answer like QEMU"),
        ('{"id": "query-version", "return": 7}\n', 0, "does not answer like QEMU"),
    ],
)
def test_what_is_no_qemu(tmp_path: Path, said: str, status: int, problem: str) -> None:
    program = player(tmp_path, said, status=status)
    if status:
        program.write_text(f"#!/bin/sh\necho '{said.strip()}' >&2\nexit {status}\n")
    with pytest.raises(HostError, match=problem) as caught:
        probe_qemu(HOST, program, DEVICES)
    assert str(program) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_processor_and_an_old_one(tmp_path: Path) -> None:
    text = recorded("7.2.22")
    arm = player(tmp_path, text.replace('"x86_64"', '"aarch64"'))
    with pytest.raises(HostError, match="is QEMU for aarch64"):
        probe_qemu(HOST, arm, ())
    old = player(tmp_path, text.replace('"major": 7', '"major": 2'))
    with pytest.raises(HostError, match=r"is QEMU 2\.2\.22 .*too old") as caught:
        probe_qemu(HOST, old, ())
    assert "5.0 or newer" in str(caught.value.hint)


def test_a_missing_file_and_one_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for name in ("missing", "text"):
        with pytest.raises(HostError, match="is not an executable program"):
            probe_qemu(HOST, tmp_path / name, ())


@pytest.mark.parametrize("name", [None, "new"])
def test_a_slash_makes_a_path_and_a_plain_name_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    program = player(tmp_path, recorded("7.2.22"), name="patched")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    prefix = f"{name}=" if name else ""
    for text in ("./patched", "below/../patched", str(program)):
        (qemu,), _ = find_qemus(HOST, [parse_qemu(prefix + text)])
        assert qemu.binary.is_absolute()
        assert qemu.binary.samefile(program)
    with pytest.raises(HostError, match="patched is not in PATH; a file in the cur") as caught:
        find_qemus(HOST, [parse_qemu(prefix + "patched")])
    assert caught.value.hint == f"write --qemu {prefix}./patched"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (qemu,), _ = find_qemus(HOST, [parse_qemu(prefix + "patched")])
    assert qemu.binary == program


def test_two_builds_of_one_version_need_names(tmp_path: Path) -> None:
    first = player(tmp_path, recorded("7.2.22"), name="one")
    other = player(tmp_path, recorded("7.2.22"), name="other")
    with pytest.raises(PlanError, match="2 QEMUs are called"):
        find_qemus(HOST, [RequestedQemu(None, str(first)), RequestedQemu(None, str(other))])
    qemus, _ = find_qemus(HOST, [RequestedQemu("a", str(first)), RequestedQemu("b", str(other))])
    assert [qemu.name for qemu in qemus] == ["a", "b"]


def test_versions_are_spelled_alike() -> None:
    number = {"major": 7, "minor": 2, "micro": 0}
    for package, text in (("", "7.2.0"), (" (Debian 1:7.2)", "7.2.0 (Debian 1:7.2)")):
        assert str(QemuVersion.model_validate({"qemu": number, "package": package})) == text
