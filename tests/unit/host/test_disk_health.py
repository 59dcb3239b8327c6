"""Wear and temperature as recorded outputs of smartctl have them, and as damaged ones do not.

The outputs of two disks are from the test data of prometheus-community/smartctl_exporter
(Apache-2.0), which has blanked names out; the third is of a virtual disk.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.host.files import write
from tests.unit.host.test_facts import fake_program
from vdisklab.host.command import LocalHost
from vdisklab.host.disk_health import DiskHealth, disk_checks, parse_smartctl

OUTPUTS = Path(__file__).parents[2] / "data" / "smartctl"
NVME, SATA, NONE = (
    (OUTPUTS / f"smartctl-{name}.json").read_text()
    for name in ("7.3-nvme", "7.1-sata", "7.3-no-smart")
)
WORN = {"number": 7, "table": [{"name": "Percentage Used Endurance Indicator", "value": 8}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([
            "temperature", "current", "firmware_version", "smartctl", "messages", "string",
            "nvme_smart_health_information_log", "percentage_used", "ata_device_statistics",
            "pages", "table", "name", "value", "endurance_used", "current_percent",
        ]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


def test_recorded_outputs() -> None:
    assert parse_smartctl(NVME) == DiskHealth("REDACTED", 0, 35)
    assert parse_smartctl(SATA) == DiskHealth("REDACTED", None, 47), "wear was not asked for"
    problem = "/dev/vda: Unable to detect device type"
    assert parse_smartctl(NONE) == DiskHealth(problem=problem)


@pytest.mark.parametrize(
    ("more", "wear"),
    [
        ({"ata_device_statistics": {"pages": [{"number": 1, "table": []}, WORN]}}, 8),
        ({"endurance_used": {"current_percent": 3}}, 3),
        ({"nvme_smart_health_information_log": {"percentage_used": 130}}, 130),
        ({"nvme_smart_health_information_log": {"percentage_used": -1}}, None),
        ({"nvme_smart_health_information_log": {"percentage_used": True}}, None),
    ],
)
def test_wear_is_that_of_the_standards(more: dict[str, Any], wear: int | None) -> None:
    assert parse_smartctl(json.dumps({**json.loads(SATA), **more})).wear_percent == wear


@pytest.mark.parametrize("text", ["", "smartctl 7.3", "[]", "null", NVME[:700], "[" * 99_999])
def test_what_is_no_json_is_said(text: str) -> None:
    assert parse_smartctl(text) == DiskHealth(problem="its output is no JSON")


@given(JSON)
def test_any_json_is_read_or_explained(said: Any) -> None:  # noqa: ANN401 - any JSON
    health = parse_smartctl(json.dumps(said))
    assert (health.problem is None) is (
        (health.firmware, health.wear_percent, health.celsius) != (None, None, None)
    )


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """Two disks, a partition, a mapped device over both, and a virtual disk."""
    root = write(tmp_path / "sys", {
        "block/nvme0n1/device/firmware_rev": "2B2QEXM7\n",
        "block/nvme0n1/nvme0n1p2/partition": "2\n",
        "block/sda/device/rev": "0410\n",
        "block/dm-0/dm/name": "vg-lv\n",
        "block/vda/size": "1\n",
    })  # fmt: skip
    (root / "block/dm-0/slaves").mkdir()
    (root / "block/dm-0/slaves/sda").symlink_to(root / "block/sda")
    (root / "block/dm-0/slaves/nvme0n1p2").symlink_to(root / "block/nvme0n1/nvme0n1p2")
    numbers = root / "dev/block"
    numbers.mkdir(parents=True)
    for number, name in ("253:0", "dm-0"), ("259:2", "nvme0n1/nvme0n1p2"), ("252:0", "vda"):
        (numbers / number).symlink_to(root / "block" / name)
    return numbers


def checks(devices: Path, *numbers: tuple[int, int]) -> dict[str, str]:
    found = disk_checks(LocalHost(), numbers, devices)
    assert all(check.requested is None for check in found), "nobody asked for it"
    return {check.name.removeprefix("host.disk."): check.observed for check in found}


def test_every_disk_below_is_asked(
    devices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    script = (
        f"case $4 in /dev/nvme0n1) cat {OUTPUTS}/smartctl-7.3-nvme.json;; "
        f"/dev/sda) cat {OUTPUTS}/smartctl-7.1-sata.json;; esac; exit 64"
    )
    fake_program(tmp_path / "bin", "smartctl", script)
    assert checks(devices, (259, 2)) == {
        "firmware": "REDACTED", "wear": "0 % used", "temperature": "35 °C"
    }  # fmt: skip
    assert checks(devices, (253, 0), (259, 2)) == {
        "firmware": "REDACTED/REDACTED", "wear": "0 % used/unknown", "temperature": "35 °C/47 °C"
    }  # fmt: skip
    fake_program(tmp_path / "bin", "smartctl", f"cat {OUTPUTS}/smartctl-7.3-no-smart.json; exit 2")
    said = checks(devices, (259, 2))
    assert said["firmware"] == "2B2QEXM7", "the kernel knows it"
    assert said["wear"] == "unknown: /dev/vda: Unable to detect device type"


def test_without_smartctl_that_is_said(devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalHost, "which", lambda *_: None)
    assert checks(devices, (259, 2)) == {
        "firmware": "2B2QEXM7",
        "wear": "unknown: smartctl is not installed",
        "temperature": "unknown: smartctl is not installed",
    }
    assert checks(devices, (252, 0)) == {}, "a virtual disk has none"
