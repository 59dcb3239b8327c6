"""I/O limits that a path cannot express are named, on each platform, and the others are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN
from vdisklab.cli.shell.main import main
from vdisklab.path.disk_path import parse_path
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import NotChangeableError
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.qemu import as_running
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import change_of, read_guests
from vdisklab.platforms.risk_kinds import LimitsBeyondPath, Throttled
from vdisklab.results.store import open_store

DOMAIN = """<domain type='kvm'><name>g</name>{above}<devices>
<disk type='file' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>
<source file='/srv/a.img'/><target dev='vda' bus='virtio'/>{inside}</disk>{others}</devices>
</domain>"""
OTHER = (
    "<disk type='file' device='disk'><source file='/srv/b.img'/><target dev='vdb' bus='virtio'/>"
    "<iotune><total_iops_sec>9</total_iops_sec><group_name>shared</group_name></iotune></disk>"
)
GROUPS = (
    "<throttlegroups><throttlegroup><group_name>slow</group_name><total_iops_sec>70"
    "</total_iops_sec><read_bytes_sec_max>8</read_bytes_sec_max></throttlegroup>"
    "<throttlegroup><group_name>fast</group_name><total_bytes_sec>900</total_bytes_sec>"
    "</throttlegroup></throttlegroups>"
)


def first(text: str, name: str) -> ConfiguredDisk:
    return read_guests([GuestText(text, name)])[0]


def libvirt(inside: str, above: str = "", others: str = "") -> ConfiguredDisk:
    return first(DOMAIN.format(inside=inside, above=above, others=others), "g.xml")


def tuned(**limits: object) -> str:
    elements = "".join(f"<{word}>{value}</{word}>" for word, value in limits.items())
    return f"<iotune>{elements}</iotune>"


def filters(*groups: str) -> str:
    named = "".join(f"<throttlefilter group='{group}'/>" for group in groups)
    return f"<throttlefilters>{named}</throttlefilters>"


@pytest.mark.parametrize(
    ("inside", "above", "said", "limits"),
    [
        (tuned(read_iops_sec=500, write_bytes_sec=7), "", "",
         ("read_iops_sec=500", "write_bytes_sec=7")),
        (tuned(total_iops_sec=500, total_iops_sec_max=900, total_iops_sec_max_length=60), "",
         ":throttle_iops=500", ("total_iops_sec_max=900", "total_iops_sec_max_length=60")),
        (tuned(total_bytes_sec=4096, total_bytes_sec_max_length=1, read_iops_sec=0), "",
         ":throttle_bps=4K", ()),
        (tuned(total_iops_sec=9, size_iops_sec=4096), "", ":throttle_iops=9",
         ("size_iops_sec=4096",)),
        (tuned(total_iops_sec=9, group_name="own"), "", ":throttle_iops=9", ()),
        (tuned(total_iops_sec=9, group_name="shared"), "", ":throttle_iops=9",
         ("group_name=shared",)),
        (filters("slow"), GROUPS, ":throttle_iops=70", ("read_bytes_sec_max=8",)),
        (filters("slow", "fast"), GROUPS, "",
         ("total_iops_sec=70", "read_bytes_sec_max=8", "total_bytes_sec=900")),
        ("", "<blkiotune><device><path>/dev/sda</path><write_iops_sec>30</write_iops_sec></device>"
         "</blkiotune>", "", ("blkiotune /dev/sda write_iops_sec=30",)),
    ],
)  # fmt: skip
def test_libvirts_limits(inside: str, above: str, said: str, limits: tuple[str, ...]) -> None:
    disk = libvirt(inside, above, OTHER)
    assert (disk.path, disk.limits) == (parse_path(f"raw/none/virtio:aio=native{said}"), limits)


@pytest.mark.parametrize(
    ("arguments", "said", "limits"),
    [
        ("iops_rd=100,iops_wr=200", "", ("iops_rd=100", "iops_wr=200")),
        ("mbps_rd=1.5,mbps_wr=0,bps_wr=7", "", ("bps_wr=7", "mbps_rd=1.5")),
        ("iops=500,iops_max=900,iops_max_length=5", ":throttle_iops=500",
         ("iops_max=900", "iops_max_length=5")),
        ("mbps=0.5,iops_rd_length=9", ":throttle_bps=512K", ("iops_rd_length=9",)),
        ("bps=1048576,mbps_max=9", ":throttle_bps=1M", ("mbps_max=9",)),
    ],
)  # fmt: skip
def test_proxmoxs_limits(arguments: str, said: str, limits: tuple[str, ...]) -> None:
    disk = first(
        f"name: g\nmemory: 512\nvirtio0: /srv/a.img,detect_zeroes=0,{arguments}\n", "7.conf"
    )
    path = parse_path(f"raw/none/virtio:aio=io_uring{said}")
    assert (disk.path, disk.limits) == (path, limits)


def test_a_limit_of_proxmox_that_is_no_number_is_named() -> None:
    disk = first("name: g\nmemory: 512\nvirtio0: /srv/a.img,mbps=fast\n", "7.conf")
    assert disk.problem == "its mbps is 'fast', but must be a number"


@pytest.mark.parametrize(
    ("arguments", "said", "limits"),
    [
        ("-drive file=/a,format=raw,if=virtio,throttling.iops-read=5,throttling.bps-write=6", "",
         ("throttling.iops-read=5", "throttling.bps-write=6")),
        ("-drive file=/a,format=raw,if=virtio,iops=7,iops_rd_max=8,iops_size=4096",
         "/virtio:throttle_iops=7", ("iops_rd_max=8", "iops_size=4096")),
        ("-drive file=/a,format=raw,if=virtio,throttling.iops-total=7,throttling.group=g",
         "/virtio:throttle_iops=7", ()),
        ("-drive file=/a,format=raw,if=virtio,bps=4096,group=g "
         "-drive file=/b,format=raw,if=virtio,throttling.group=g",
         "/virtio:throttle_bps=4K", ("group=g",)),
        ("-fsdev local,id=s,path=/x,security_model=none,throttling.iops-total=7 "
         "-device virtio-9p-pci,fsdev=s,mount_tag=m", "9p", ("throttling.iops-total=7",)),
    ],
)  # fmt: skip
def test_limits_in_a_command_line(arguments: str, said: str, limits: tuple[str, ...]) -> None:
    disk = first(f"qemu-system-x86_64 {arguments}", "g.cmdline")
    expected = said if said == "9p" else f"raw/default{said}"
    assert (disk.path, disk.limits) == (parse_path(expected), limits)


@pytest.mark.parametrize(
    ("group", "said", "limits"),
    [
        ('{"qom-type":"throttle-group","id":"t","limits":{"iops-total":5,"bps-read":9}}',
         "/virtio:throttle_iops=5", ("limits.bps-read=9",)),
        ("throttle-group,id=t,limits.iops-read=5,limits.iops-read-max=8", "",
         ("limits.iops-read=5", "limits.iops-read-max=8")),
        ("throttle-group,id=t,x-bps-total=4096,x-iops-write=9,x-iops-write-max-length=1",
         "/virtio:throttle_bps=4K", ("x-iops-write=9",)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sharers", [1, 2])
def test_limits_of_a_throttle_group(
    group: str, said: str, limits: tuple[str, ...], sharers: int
) -> None:
    arguments = ["qemu-system-x86_64", "-object", group]
    for number in range(sharers):
        arguments += [
            "-blockdev", f"driver=raw,node-name=r{number},file.driver=file,file.filename=/a",
            "-blockdev", f"driver=throttle,node-name=l{number},throttle-group=t,file=r{number}",
            "-device", f"virtio-blk-pci,drive=l{number},id=d{number}",
        ]  # fmt: skip
    disk = first("\0".join(arguments), "g.cmdline")
    shared = ("throttle-group=t",) if sharers > 1 else ()
    assert (disk.path, disk.limits) == (parse_path(f"raw/default{said}"), (*limits, *shared))


def test_incus_limits_reads_and_writes_each() -> None:
    text = """name: web
type: virtual-machine
config: {}
devices:
  root: {type: disk, path: /, source: /srv/a.img, limits.read: 30MB, limits.write: "",
         limits.max: 10iops}
"""
    assert first(text, "web.yaml").limits == ("limits.read=30MB", "limits.max=10iops")


NO_LIMITS = {"iops": 0, "iops_rd": 0, "iops_wr": 0, "bps": 0, "bps_rd": 0, "bps_wr": 0}


@pytest.mark.parametrize(
    ("inserted", "path", "limits"),
    [
        ({}, "raw/none/virtio:throttle_iops=7", ("iops_rd_max=8",)),
        (NO_LIMITS, "raw/none", ()),
        ({**NO_LIMITS, "iops_rd": 5, "bps": 4096}, "raw/none/virtio:throttle_bps=4K",
         ("iops_rd=5",)),
        ({**NO_LIMITS, "iops_wr": 5, "group": "d0"}, "raw/none", ("iops_wr=5",)),
        ({**NO_LIMITS, "iops_wr": 5, "group": "g"}, "raw/none", ("iops_wr=5", "group=g")),
        ({**NO_LIMITS, "iops_wr_max": 5, "iops_wr_max_length": 1, "iops_size": 4096}, "raw/none",
         ("iops_wr_max=5", "iops_size=4096")),
        ({**NO_LIMITS, "drv": "throttle"}, "raw/none/virtio:throttle_iops=7", ("iops_rd_max=8",)),
        ({**NO_LIMITS, "drv": "throttle", "bps": 9}, "raw/none/virtio:throttle_iops=7",
         ("iops_rd_max=8", "bps=9")),
    ],
)  # fmt: skip
def test_the_limits_of_a_running_disk_are_those_of_now(
    inserted: dict[str, object], path: str, limits: tuple[str, ...]
) -> None:
    disk = ConfiguredDisk(
        "web", "d0", "/a.img", parse_path("raw/none/virtio:throttle_iops=7"),
        limits=("iops_rd_max=8",),
    )  # fmt: skip
    answer = [
        {"qdev": "d0", "inserted": inserted},
        {"qdev": "d1", "inserted": {**NO_LIMITS, "group": "g"}},
    ]
    now = as_running(disk, answer)
    assert (now.path, now.limits) == (parse_path(path), limits)


def test_a_limited_disk_is_never_compared_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "g.xml"
    inside = tuned(read_iops_sec=500, write_iops_sec_max=9)
    file.write_text(DOMAIN.format(inside=inside, above="", others=""))
    with open_store(str(tmp_path / "r.sqlite")) as store:
        store.add_campaign(CAMPAIGN)
    arguments = [str(file), "--db", str(tmp_path / "r.sqlite")]
    main(["audit", *arguments])
    table = " ".join(capsys.readouterr().out.split())
    said = "has I/O limits that a path cannot express (read_iops_sec=500, write_iops_sec_max=9)"
    assert said in table
    main(["audit", *arguments, "--format", "csv"])
    assert "read_iops_sec=500 write_iops_sec_max=9" in capsys.readouterr().out
    main(["audit", *arguments, "--format", "json"])
    (disk,) = json.loads(capsys.readouterr().out)["disks"]
    found = [risk for risk in disk["risks"] if risk["kind"] == "limits-beyond-path"]
    assert found[0]["limits"] == ["read_iops_sec=500", "write_iops_sec_max=9"]


def test_the_risk_has_every_limit() -> None:
    disk = libvirt(tuned(read_iops_sec=500))
    assert LimitsBeyondPath(("read_iops_sec=500",)) in risks(disk)
    assert not any(isinstance(risk, LimitsBeyondPath) for risk in risks(libvirt("")))


@pytest.mark.parametrize(
    ("disk", "limits", "how"),
    [
        (libvirt(tuned(total_iops_sec=500)), ("throttle_iops=500",), "virsh blkdeviotune g vda"),
        (libvirt(tuned(read_iops_sec=500, total_bytes_sec=1 << 20)),
         ("read_iops_sec=500", "throttle_bps=1M"), "virsh blkdeviotune g vda"),
        (first("qemu-system-x86_64 -drive file=/a.img,format=raw,if=virtio,throttling.bps-read=9",
               "g.sh"), ("throttling.bps-read=9",), "block_set_io_throttle"),
        (first("scsi0: /a.raw,iops_rd=300", "7.conf"), ("iops_rd=300",), "qm config 7"),
    ],
)  # fmt: skip
def test_a_slow_guests_own_limits_are_named(
    disk: ConfiguredDisk, limits: tuple[str, ...], how: str
) -> None:
    """Whoever asks why a guest is slow hears of its limits first, and how to change them."""
    (found,) = (risk for risk in risks(disk) if isinstance(risk, Throttled))
    assert found.limits == limits
    assert how in str(found)


def test_other_settings_are_no_limits() -> None:
    disk = first(
        "qemu-system-x86_64 -drive file=/a.img,format=raw,if=none,id=d "
        "-device virtio-blk-pci,drive=d,event_idx=off",
        "g.sh",
    )
    assert disk.limits
    assert not any(isinstance(risk, Throttled) for risk in risks(disk))


def test_no_arguments_are_offered_that_lack_the_limits() -> None:
    disk = first("qemu-system-x86_64 -drive file=/a,format=raw,if=virtio,iops_rd=5", "g.cmdline")
    with pytest.raises(NotChangeableError, match="keep its limits"):
        change_of(disk, parse_path("raw/none"))


def _on_controller(driver: str, model: str = "virtio-scsi") -> tuple[str, ...]:
    xml = (
        "<domain type='kvm'><name>c</name><devices><disk type='file' device='disk'>"
        "<driver type='raw'/><source file='/a'/><target dev='sdb' bus='scsi'/>"
        "<address type='drive' controller='1'/></disk>"
        f"<controller type='scsi' index='1' model='{model}'><driver {driver}/></controller>"
        "</devices></domain>"
    )
    (disk,) = read_guests([GuestText(xml, "c.xml")])
    return disk.limits


@pytest.mark.parametrize(
    ("driver", "named"),
    [
        ("queues='2' max_sectors='128'", ("max_sectors=128",)),
        ("iothread='1' cmd_per_lun='4' event_idx='off'", ("cmd_per_lun=4", "event_idx=off")),
        ("queues='4' iothread='1' queue_size='256' ioeventfd='on' iommu='on'", ()),
    ],
)
def test_settings_of_a_disks_controller_are_named(driver: str, named: tuple[str, ...]) -> None:
    assert _on_controller(driver) == named


def test_settings_of_a_libvirt_share_are_named() -> None:
    xml = (
        "<domain><name>s</name><devices><filesystem type='mount'><driver type='virtiofs' "
        "queue='1024'/><binary><thread_pool size='16'/></binary><source dir='/a'/>"
        "<target dir='t'/></filesystem></devices></domain>"
    )
    (disk,) = read_guests([GuestText(xml, "s.xml")])
    assert disk.limits == ("queue=1024", "thread_pool size=16")
