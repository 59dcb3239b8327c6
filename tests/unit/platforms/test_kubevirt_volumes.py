"""KubeVirt: disks and the volumes that have their names."""

from __future__ import annotations

import json

import pytest

from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.risk_kinds import CannotWork

Node = dict[str, object]

GOOD: Node = {"name": "a", "cache": "none", "disk": {"bus": "virtio"}}
HOST: Node = {"name": "a", "hostDisk": {"path": "/data/a.img", "type": "Disk"}}


def read(
    disks: list[Node], volumes: list[Node], kind: str = "VirtualMachine"
) -> dict[str, ConfiguredDisk]:
    spec = {"domain": {"devices": {"disks": disks}}, "volumes": volumes}
    machine = {
        "apiVersion": "kubevirt.io/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "edge"},
        "spec": {"template": {"spec": spec}} if kind == "VirtualMachine" else spec,
    }
    found = read_guests([GuestText(json.dumps(machine), "web.json")])
    return {disk.target: disk for disk in found}


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstance"])
@pytest.mark.parametrize("name", ["b", "A"])
def test_a_disk_without_a_volume_of_its_name_is_refused_by_kubevirt(name: str, kind: str) -> None:
    """KubeVirt's webhook: "Validate disks match volumes correctly" (pkg/storage/admitters)."""
    disk = read([GOOD, {**GOOD, "name": name}], [HOST], kind)[name]
    assert disk.path is None
    (risk,) = (each for each in risks(disk) if isinstance(each, CannotWork))
    assert f"its disk '{name}' has no volume of this name" in str(risk)
    assert f"add a volume named {name}" in str(risk)


def test_no_patch_is_printed_that_the_webhook_refuses_for_another_disk() -> None:
    wanted = parse_path("raw/writeback/virtio:discard=unmap")
    whole = read([GOOD], [HOST])["a"]
    assert "kubectl patch" in change_of(whole, wanted).paste
    broken = read([GOOD, {**GOOD, "name": "b"}], [HOST])["a"]
    with pytest.raises(NotChangeableError, match="whose disk 'b' has no volume") as refused:
        change_of(broken, wanted)
    assert refused.value.hint == "first add a volume named b to spec.template.spec.volumes"


@pytest.mark.parametrize("device", ["cdrom", "floppy"])
def test_an_empty_drive_is_no_disk_without_a_volume(device: str) -> None:
    disks = read([GOOD, {"name": "cd", device: {}}], [HOST])
    assert set(disks) == {"a"}
    assert disks["a"].refused is None
    assert json.loads(disks["a"].text)["without_volume"] == []


def test_a_volume_of_a_new_kind_is_named() -> None:
    disk = read([GOOD], [{"name": "a", "newKind": {}}])["a"]
    assert disk.problem == "its volume is of a kind that vdisklab does not know (newKind)"
