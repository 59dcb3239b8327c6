"""LVM's metadata on real loop devices: these programs need no device-mapper, volumes do."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.errors import HostError
from vdisklab.host.blockdevice import record_devices, signatures
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Entry
from vdisklab.storage.lvm import GROUP, group_command, lvm_report, volume_command

from .conftest import MIB, Attach

pytestmark = pytest.mark.host


@pytest.fixture
def members(host: LocalHost, attach: Attach) -> tuple[Path, ...]:
    if host.which("vgcreate") is None:
        pytest.skip("needs lvm2")
    return (attach(), attach())


def entry(name: str, members: tuple[Path, ...]) -> Entry:
    return Entry(0, GROUP.kind, name, {"devices": record_devices(members)})


def test_a_group_is_made_and_undone(host: LocalHost, members: tuple[Path, ...]) -> None:
    host.run(*group_command("vdl_test_a", members))
    assert lvm_report(host, "vgs", members, "vg_name") == [{"vg_name": "vdl_test_a"}]
    GROUP.undo(host, entry("vdl_test_a", members))
    GROUP.undo(host, entry("vdl_test_a", members))
    assert [signatures(host, member) for member in members] == [(), ()]


def test_a_group_of_another_name_keeps_all(host: LocalHost, members: tuple[Path, ...]) -> None:
    host.run(*group_command("vdl_test_precious", members))
    GROUP.undo(host, entry("vdl_test", members))
    assert lvm_report(host, "vgs", members, "vg_name") == [{"vg_name": "vdl_test_precious"}]
    GROUP.undo(host, entry("vdl_test_precious", members))


def test_physical_volumes_without_a_group_go(host: LocalHost, members: tuple[Path, ...]) -> None:
    host.run("pvcreate", "--devices", members[0], "--quiet", members[0])
    GROUP.undo(host, entry("vdl_test", members))
    assert signatures(host, members[0]) == ()


def test_a_volume_is_understood_as_far_as_the_kernel_goes(
    host: LocalHost, members: tuple[Path, ...]
) -> None:
    host.run(*group_command("vdl_test_b", members))
    try:
        host.run(*volume_command("vdl_test_b", members, 16 * MIB, thin=False))
    except HostError as error:
        assert "device-mapper" in str(error)  # noqa: PT017 - either way is right
    finally:
        GROUP.undo(host, entry("vdl_test_b", members))
    assert signatures(host, members[0]) == ()
