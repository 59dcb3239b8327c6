"""The layer of a guest's block device, by what the kernel says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.inspection import disk_on_host
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.risk_kinds import ProbablyVolume


@pytest.mark.parametrize(
    ("name", "uuid", "discards", "layers"),
    [
        ("dm-0", "LVM-abcdef", "4096", ["lvm"]),
        ("dm-0", "CRYPT-LUKS2-0123-root", "0", ["luks"]),
        ("dm-0", "CRYPT-LUKS2-0123-root", None, ["luks"]),
        ("dm-0", "CRYPT-LUKS1-0123-root", "4294966784", ["luks:discard=on"]),
        ("dm-0", "CRYPT-PLAIN-swap", "0", []),
        ("dm-0", "mpath-3600", "0", []),
        ("md127", None, "0", ["md"]),
        ("sda", None, "4096", []),
    ],
)
def test_the_layer_of_a_device(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    uuid: str | None,
    discards: str | None,
    layers: list[str],
) -> None:
    monkeypatch.setattr(disk_on_host, "_BLOCK", tmp_path)
    for file, text in (("dm/uuid", uuid), ("queue/discard_max_bytes", discards)):
        (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (tmp_path / name / file).write_text(f"{text}\n")
    assert [str(layer) for layer in disk_on_host._device_layers(f"/dev/{name}")] == layers


@pytest.mark.parametrize("source", [None, "/srv/a.qcow2", "pool:a"])
def test_what_is_no_device_has_none(source: str | None) -> None:
    assert disk_on_host._device_layers(source) == ()
    assert str(disk_on_host._device_layers("/dev/zvol/tank/a")[0]) == "zvol"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("/dev/no-such-vg/pg", "a logical volume pg of the group no-such-vg"),
        ("/dev/mapper/nosuch-pg--data", "a logical volume pg-data of the group nosuch"),
        ("/dev/disk/by-id/no-such", None),
    ],
)
def test_what_the_name_of_a_device_of_another_host_says_is_said_and_not_measured(
    source: str, said: str | None
) -> None:
    """The name may deceive: it is a risk, and the path that is measured names no layer."""
    disk = ConfiguredDisk("g", "vda", source, parse_path("none"))
    (context,) = disk_on_host.read_contexts([disk])
    assert str(disk_on_host.measured_form(disk, parse_path("none"), context)) == "none"
    found = [risk.volume for risk in risks(disk, context) if isinstance(risk, ProbablyVolume)]
    assert found == ([] if said is None else [said])
