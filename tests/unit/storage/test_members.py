"""lvm, lvmthin, md and zvol with scripted programs: the exact commands, and what undoes them.

The kernel of most development machines has no device-mapper, md or ZFS; the lab proves the rest.
The answers of the programs are shaped like those of lvm2 2.03.16, mdadm 4.2 and OpenZFS 2.1.11.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.errors import CommandError, HostError, PlanError
from vdisklab.host import blockdevice
from vdisklab.host.ledger import Entry, Kind, open_ledger
from vdisklab.path.disk_path import Layer, parse_path
from vdisklab.storage import lvm, md, undo
from vdisklab.storage.lvm import GROUP, LOGICAL_VOLUME, group_command, pool_command, volume_command
from vdisklab.storage.md import ARRAY, create_command, parse_export
from vdisklab.storage.site import Site, open_site
from vdisklab.storage.stack import UNDO
from vdisklab.storage.targets import Device
from vdisklab.storage.zfs import (
    ARC,
    POOL,
    _require_asked,
    dataset_command,
    parse_arcstats,
    parse_properties,
    parse_raid,
)
from vdisklab.storage.zfs import (
    pool_command as zpool_command,
)
from vdisklab.storage.zfs import (
    volume_command as zvol_command,
)
from vdisklab.units import MIB
from vdisklab.value import replace

from .scripted_host import ScriptedHost

DEVICES = (Path("/dev/x"), Path("/dev/y"))
KNOWN = frozenset(
    {"ashift", "recordsize", "volblocksize", "compression", "sync", "logbias", "primarycache"}
)


def layer(text: str) -> Layer:
    (found,) = parse_path(f"{text}/host").layers
    return found


def test_commands_of_lvm() -> None:
    only = "--devices /dev/x,/dev/y --config backup/backup=0 backup/archive=0 --quiet --yes"
    assert " ".join(group_command("vdl_1", DEVICES)) == (
        f"vgcreate {only} --zero y vdl_1 /dev/x /dev/y"
    )
    assert " ".join(pool_command("vdl_1", DEVICES)) == (
        f"lvcreate {only} --type thin-pool --name pool --extents 100%FREE vdl_1"
    )
    assert " ".join(volume_command("vdl_1", DEVICES, MIB, thin=False)) == (
        f"lvcreate {only} --name disk --wipesignatures n --size 1048576b vdl_1"
    )
    assert " ".join(volume_command("vdl_1", DEVICES, MIB, thin=True)) == (
        f"lvcreate {only} --name disk --virtualsize 1048576b --thin vdl_1/pool"
    )


def test_command_of_md() -> None:
    assert " ".join(create_command("vdl_1", "5", (*DEVICES, Path("/dev/z")))) == (
        "mdadm --quiet --create /dev/md/vdl_1 --name=vdl_1 --metadata=1.2 --level=5 "
        "--raid-devices=3 --assume-clean --bitmap=none --run /dev/x /dev/y /dev/z"
    )


def test_mdadm_refuses_bitmaps_on_level_0() -> None:
    assert "bitmap" not in " ".join(create_command("vdl_1", "0", DEVICES))


@pytest.mark.parametrize(
    ("text", "pool", "dataset"),
    [
        (
            "zfs",
            "-o ashift=12 -o cachefile=none -O mountpoint=none p /dev/x /dev/y",
            "-o compression=off -o sync=standard -o logbias=latency -o primarycache=all",
        ),
        (
            "zfs:raid=mirror:ashift=9:recordsize=1M:compression=zstd",
            "-o ashift=9 -o cachefile=none -O mountpoint=none p mirror /dev/x /dev/y",
            "-o recordsize=1M -o compression=zstd -o sync=standard -o logbias=latency "
            "-o primarycache=all",
        ),
    ],
)
def test_commands_of_zfs(text: str, pool: str, dataset: str) -> None:
    assert " ".join(zpool_command(layer(text), "p", DEVICES, KNOWN)) == f"zpool create -f {pool}"
    made = " ".join(dataset_command(layer(text), "p", Path("/m"), KNOWN))
    assert made == f"zfs create -o mountpoint=/m {dataset} p/disk"


def test_command_of_zvol() -> None:
    made = zvol_command(
        layer("zvol:volblocksize=16k:sync=always:logbias=throughput"), "p/disk", MIB, KNOWN
    )
    assert " ".join(made) == (
        "zfs create -V 1048576 -o volblocksize=16k -o compression=off -o sync=always "
        "-o logbias=throughput -o primarycache=all p/disk"
    )


def test_direct_of_zfs_is_set_only_if_the_path_names_it() -> None:
    members = KNOWN | {"direct"}
    assert "direct" not in " ".join(dataset_command(layer("zfs"), "p", Path("/m"), members))
    for value in ("standard", "always", "disabled"):
        made = dataset_command(layer(f"zfs:direct={value}"), "p", Path("/m"), members)
        assert f"direct={value}" in made
    with pytest.raises(PlanError, match="direct"):
        parse_path("zvol:direct=always/host")  # zfsprops(7): of data sets
    with pytest.raises(HostError, match="zfs has direct=None instead of always"):
        _require_asked(layer("zfs:direct=always"), {"zfs.sync": "standard"})  # ZFS 2.2
    _require_asked(layer("zfs:direct=always"), {"zfs.direct": "always"})


def test_a_default_that_an_old_version_lacks_is_left_out_and_a_wish_is_not() -> None:
    old = frozenset({"compression", "primarycache"})
    assert "ashift" not in " ".join(zpool_command(layer("zfs"), "p", DEVICES, old))
    assert "ashift=9" in " ".join(zpool_command(layer("zfs:ashift=9"), "p", DEVICES, old))
    assert "sync" not in " ".join(dataset_command(layer("zfs"), "p", Path("/m"), old))


def test_parsers() -> None:
    usage = "\tPROPERTY   EDIT   VALUES\n\tallocated   NO   <size>\n\tashift   YES   <9-16>\n"
    assert parse_properties(usage) == {"allocated", "ashift"}
    assert parse_properties("") == frozenset()
    assert parse_raid("\tp\tONLINE\n\t  raidz1-0  ONLINE  0\n\t    sda ONLINE") == "raidz1"
    assert parse_raid("\tp\tONLINE\n\t  sda ONLINE") == "single"
    assert parse_export("MD_LEVEL=raid5\nMD_DEVICES=3\nnonsense") == {
        "MD_LEVEL": "raid5",
        "MD_DEVICES": "3",
    }
    assert md.array_name("MD_NAME=host:vdl_1_a") == "vdl_1_a"
    assert md.array_name("MD_NAME=vdl_1_a") == "vdl_1_a"
    assert md.array_name("") == ""
    arcstats = "13 1 0x01 123 33456 1 2\nname type data\nsize 4 1024\nc_max 4 4096\ntorn 4"
    assert parse_arcstats(arcstats) == {"size": 1024, "c_max": 4096}


class Programs(ScriptedHost):
    """Answers as if what was made were there."""

    def __init__(self, fail_on: str = "") -> None:
        super().__init__(fail_on)
        self.group: str | None = None

    def _answer(self, command: tuple[str, ...]) -> str:
        self._remember(command)
        match command[0]:
            case "vgs" if "--reportformat" not in command:
                return f"  {self.group or ''}\n"
            case "vgs" | "lvs" | "pvs":
                rows = self._rows(command[0])
                return json.dumps({"report": [{command[0][:2]: rows}]})
            case _:
                return super()._answer(command)

    def _remember(self, command: tuple[str, ...]) -> None:
        if command[0] == "vgcreate":
            self.group = next(word for word in command if word.startswith("vdl_"))
        if command[0] == "vgremove":
            self.group = None

    def _rows(self, program: str) -> list[dict[str, str]]:
        if program == "pvs":
            return [{"pv_name": "/dev/x", "vg_name": self.group or "", "pv_fmt": "lvm2"}]
        if self.group is None:
            return []
        common = {"vg_name": self.group, "lv_size": "1048576"}
        names = ["disk", *(["disk2"] if any("--name disk2" in line for line in self.lines) else [])]
        rows = [{**common, "lv_name": name, "segtype": "linear"} for name in names]
        return rows if program == "lvs" else [common]


@pytest.fixture
def _devices_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockdevice, "recorded_devices", lambda text: DEVICES)
    monkeypatch.setattr(blockdevice, "record_devices", lambda paths: "[]")


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Site]:
    with open_ledger(tmp_path / "state") as ledger, open_site(Programs(), ledger, tmp_path) as site:
        yield site


@pytest.mark.usefixtures("_devices_stay_the_same")
def test_lvm_is_taken_down_in_order(scripted: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vdisklab.storage.site.wait_until", lambda *args, **kwargs: None)
    host = scripted.host
    assert isinstance(host, Programs)
    below = Device(DEVICES[0], disks=DEVICES)
    with lvm.logical_volume(scripted, below, layer("lvm"), "s-0", MIB) as top:
        assert isinstance(top, Device)
        assert top.properties["lvm.segment_type"] == "linear"
        assert top.members == (top.path,)
    verbs = [line.split()[0] for line in host.lines]
    assert verbs == [
        "dmsetup", "vgs", "vgcreate", "lvcreate", "lvs",
        "lvs", "lvremove", "vgs", "vgchange", "vgremove", "pvs", "pvremove",
    ]  # fmt: skip
    assert all("--devices /dev/x,/dev/y" in line for line in host.lines[2:])


@pytest.mark.usefixtures("_devices_stay_the_same")
def test_the_volumes_of_guests_are_made_and_removed_one_by_one(
    scripted: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vdisklab.storage.site.wait_until", lambda *args, **kwargs: None)
    host = scripted.host
    assert isinstance(host, Programs)
    below = Device(DEVICES[0], disks=DEVICES)
    with (
        lvm.logical_volume(scripted, below, layer("lvm"), "s-0", MIB) as top,
        lvm.another_logical_volume(
            scripted, below, layer("lvm"), "s-0", size=MIB, guest=2
        ) as second,
    ):
        assert second == top.path.with_name("disk2")
        target = replace(top, volumes=(top.path, second))
        assert target.of_guest(1).path == second
        assert target.of_guest(0) == target
        host.lines.append("in use")
    changes = [line.split()[0] for line in host.lines if "create" in line or "remove" in line]
    assert changes == [
        "vgcreate", "lvcreate", "lvcreate", "lvremove", "lvremove", "vgremove", "pvremove",
    ]  # fmt: skip
    removed = [line.split()[-1] for line in host.lines if line.startswith("lvremove")]
    assert [name.rpartition("/")[2] for name in removed] == ["disk2", "disk"]


@pytest.mark.usefixtures("_devices_stay_the_same")
@pytest.mark.parametrize(
    ("fails", "verbs"),
    [
        ("dmsetup", ["dmsetup"]),
        ("vgcreate", ["dmsetup", "vgs", "vgcreate", "vgs", "pvs", "pvremove"]),
        (
            "lvcreate",
            ["dmsetup", "vgs", "vgcreate", "lvcreate", "lvs", "lvremove", "vgs", "vgchange",
             "vgremove", "pvs", "pvremove"],
        ),
    ],
)  # fmt: skip
def test_half_a_group_is_taken_down(tmp_path: Path, fails: str, verbs: list[str]) -> None:
    host = Programs(fail_on=fails)
    below = Device(DEVICES[0], disks=DEVICES)
    with (
        open_ledger(tmp_path / "state") as ledger,
        open_site(host, ledger, tmp_path) as site,
        pytest.raises(HostError),
        lvm.logical_volume(site, below, layer("lvm"), "s-0", MIB),
    ):
        pytest.fail("not reached")
    seen = [line.split()[0] for line in host.lines]
    assert [verb for verb in seen if verb != "vgcreate" or fails != ""] == verbs


@pytest.mark.usefixtures("_devices_stay_the_same")
def test_a_name_that_is_taken_is_refused_before_anything_is_made(
    scripted: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, below = scripted.host, Device(DEVICES[0], disks=DEVICES)
    assert isinstance(host, Programs)
    host.group = scripted.unique("s-0")
    with (
        pytest.raises(HostError, match=f"the volume group {host.group} already exists"),
        lvm.logical_volume(scripted, below, layer("lvm"), "s-0", MIB),
    ):
        pytest.fail("not reached")
    monkeypatch.setattr(md, "_require_level", lambda host, level: None)
    monkeypatch.setattr(md, "arrays", lambda host: [(Path("/dev/md9"), scripted.unique("s-0"))])
    with (
        pytest.raises(HostError, match=r"the array vdl_\w+ already exists"),
        md.array(scripted, below, layer("md:level=1"), "s-0", MIB),
    ):
        pytest.fail("not reached")
    assert {line.split()[0] for line in host.lines} == {"dmsetup", "vgs"}


def test_without_device_mapper_one_sentence(scripted: Site) -> None:
    host = Programs(fail_on="dmsetup")
    site = Site(host, scripted.ledger, scripted.directory)
    below = Device(DEVICES[0])
    with (
        pytest.raises(HostError, match="this kernel has no device-mapper") as refused,
        lvm.logical_volume(site, below, layer("lvm"), "s-0", MIB),
    ):
        pytest.fail("not reached")
    assert "lab" in str(refused.value.hint)


def test_without_md_one_sentence(
    scripted: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(md, "MDSTAT", tmp_path / "mdstat")
    (tmp_path / "mdstat").write_text("Personalities : [raid1] [raid6] [raid5] [raid4]\n")
    below = Device(DEVICES[0], disks=DEVICES)
    with (
        pytest.raises(HostError, match="no software RAID of level 10"),
        md.array(scripted, below, layer("md:level=10"), "s-0", MIB),
    ):
        pytest.fail("not reached")


@pytest.mark.parametrize("kind", [GROUP.kind, LOGICAL_VOLUME.kind, ARRAY.kind, POOL.kind])
def test_nothing_is_removed_when_the_devices_are_gone(kind: Kind) -> None:
    host = ScriptedHost()
    UNDO[kind](host, Entry(0, kind, "vdl_1_a/disk", {"devices": "[]"}))
    assert host.lines == [] or host.verbs() == ["zpool"]


@pytest.mark.usefixtures("_devices_stay_the_same")
def test_a_group_of_another_name_is_not_touched() -> None:
    host = Programs()
    host.group = "vdl_1_a_precious"
    GROUP.undo(host, Entry(0, GROUP.kind, "vdl_1_a", {"devices": "[]"}))
    LOGICAL_VOLUME.undo(host, Entry(0, LOGICAL_VOLUME.kind, "vdl_1_a/disk", {"devices": "[]"}))
    assert {line.split()[0] for line in host.lines} == {"vgs", "pvs", "lvs"}


@pytest.mark.usefixtures("_devices_stay_the_same")
def test_what_cannot_be_removed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "_RETRY_SECONDS", 0.0)
    host = Programs(fail_on="vgremove")
    host.group = "vdl_1_a"
    with pytest.raises(HostError, match=r"`vgremove .*vdl_1_a` exited with"):
        GROUP.undo(host, Entry(0, GROUP.kind, "vdl_1_a", {"devices": "[]"}))


def test_the_limit_of_the_arc_is_written_back(tmp_path: Path) -> None:
    parameter = tmp_path / "zfs_arc_max"
    parameter.write_text("123")
    detail = {"parameter": "0", "effective": "4096"}
    ARC.undo(ScriptedHost(), Entry(0, ARC.kind, str(parameter), detail))
    assert parameter.read_text() == "0"
    missing = Entry(0, ARC.kind, str(tmp_path / "gone"), detail)
    ARC.undo(ScriptedHost(), missing)


def test_the_scripted_host_can_fail() -> None:
    with pytest.raises(CommandError):
        ScriptedHost(fail_on="vgs").run("vgs")
