"""What makes an operation bearable: each platform has a line, or the reason why there is none."""

from __future__ import annotations

import json

import pytest

from tests.relief_lines import PATHS, every_line, every_way, ways
from vdisklab.operations.operation import DiskOperation, OperationKind
from vdisklab.operations.registry import OPERATIONS, parse_operation
from vdisklab.operations.relief import LIBVIRT, PROXMOX, QEMU


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
def test_each_operation_has_a_line_for_each_platform_or_says_why_not(row: OperationKind) -> None:
    for path in PATHS.get(row.name, ("qcow2/none",)):
        found = ways(DiskOperation(row), path)
        for platform in (LIBVIRT, PROXMOX, QEMU):
            assert any(platform in way.platform for way in found), (row.name, platform)


def test_a_way_is_a_line_or_a_reason() -> None:
    for operation, way in every_way():
        assert bool(way.line) != bool(way.reason), operation
        assert "\n" not in way.line + way.reason


def test_what_the_operation_had_already_is_not_advised() -> None:
    lines = {
        text: [way.line for way in ways(parse_operation(text), "qcow2/none")]
        for text in ("backup", "backup:workers=1", "backup:speed=32M", "backup:fleecing")
    }
    assert any("max-workers" in line for line in lines["backup"])
    assert not any(line.startswith("performance") for line in lines["backup:workers=1"])
    assert any(line.endswith("--bwlimit 51200") for line in lines["backup"])
    assert any(line.endswith("--bwlimit 16384") for line in lines["backup:speed=32M"])
    assert any('"speed": 16777216' in line for line in lines["backup:speed=32M"])
    assert any("fleecing" in line for line in lines["backup:workers=1"])
    proxmox = [line for line in lines["backup:fleecing"] if line.startswith("vzdump")]
    assert proxmox == ["vzdump VMID --fleecing enabled=1,storage=local-lvm --bwlimit 51200"]
    slow = [way.line for way in ways(parse_operation("backup"), "qcow2/none", 10.5e6)]
    assert any(line.endswith("--bwlimit 5120") for line in slow)
    assert any('"speed": 5242880' in line for line in slow)
    slower = [way.line for way in ways(parse_operation("mirror"), "qcow2/none", 1e6)]
    assert any(line.endswith("--bwlimit 488") for line in slower)
    mirror = ways(parse_operation("mirror"), "qcow2/none", 10.5e6)
    assert {way.basis for way in mirror} == {"at half of the 10 MiB/s that it copied"}
    assert {way.basis for way in ways(parse_operation("backup:speed=32M"), "qcow2/none", 90e6)} == {
        "at half of its speed=",
        "",
    }
    assert any("not known" in way.basis for way in ways(parse_operation("backup"), "qcow2/none"))
    modes = [
        any("copy-mode" in way.line for way in ways(parse_operation(text), "raw/none"))
        for text in ("mirror", "mirror:copy-mode=write-blocking")
    ]
    assert modes == [False, True]


def test_the_options_of_the_operation_stay() -> None:
    order = parse_operation("backup:compress=on:speed=32M:workers=8")
    jobs = [json.loads(way.line) for way in ways(order, "qcow2/none") if way.platform == QEMU]
    (limited,) = (job["arguments"] for job in jobs)
    assert (limited["compress"], limited["speed"]) == (True, 16 << 20)
    lines = [way.line for way in ways(order, "qcow2/none") if "fleecing" in way.platform]
    assert json.loads(lines[-1])["arguments"]["x-perf"] == {"max-workers": 8}
    assert json.loads(lines[-1])["arguments"]["speed"] == 32 << 20
    proxmox = [way.line for way in ways(order, "qcow2/none") if "vzdump VMID" in way.line]
    packed = "--compress zstd"
    assert proxmox == [
        f"vzdump VMID --fleecing enabled=1,storage=local-lvm --bwlimit 32768 {packed}",
        f"vzdump VMID --bwlimit 16384 {packed}",
    ]
    (pull,) = (way.line for way in ways(order, "qcow2/none") if "domainbackup" in way.line)
    assert "qemu-img convert -c -r 33554432 -O qcow2 nbd://localhost/vda FILE;" in pull
    fleeced = ways(parse_operation("backup:fleecing"), "qcow2/none")
    assert any("copy-before-write" in way.line for way in fleeced)


def test_the_lines_of_qemu_are_json() -> None:
    lines = [line for line in every_line() if line.startswith("{")]
    assert len(lines) >= 12
    for line in lines:
        assert set(json.loads(line)) == {"execute", "arguments"}


def test_libvirt_fleeces_by_a_pull_backup_and_never_by_a_push_backup() -> None:
    fleeced = ways(parse_operation("backup:fleecing"), "qcow2/none", 20 << 20)
    (line,) = (way.line for way in fleeced if way.platform.startswith(LIBVIRT))
    assert "<scratch file=" in line
    assert "mode='pull'" in line
    assert line.endswith(
        "{ qemu-img convert -r 10485760 -O qcow2 nbd://localhost/vda FILE; "
        "virsh domjobabort DOMAIN; }"
    )
    for text, count in (("backup", 2), ("backup:incremental", 2)):
        found = ways(parse_operation(text), "qcow2/none")
        lines = [way.line for way in found if way.platform.startswith(LIBVIRT)]
        assert len(lines) == count
        assert any("blockjob" in line for line in lines)
