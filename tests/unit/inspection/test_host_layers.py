"""A host layer that drops flushes is seen where the kernel, or ZFS itself, says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from vdisklab.cli.shell.main import main
from vdisklab.host import mounts
from vdisklab.host.mounts import Mount, mount_of, without_flushes
from vdisklab.inspection.disk_on_host import read_contexts
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import HostDisk
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_context import disk_path, unknown_layers
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.risk_kinds import FlushesDroppedBelow, SoftMount
from vdisklab.value import replace


@pytest.fixture
def image(tmp_path: Path) -> str:
    (tmp_path / "a.raw").write_bytes(bytes(4096))
    return str(tmp_path / "a.raw")


def mounted(monkeypatch: pytest.MonkeyPatch, kind: str, options: str) -> None:
    mount = Mount(Path("/"), kind, "tank/vm", frozenset(options.split(",")))
    monkeypatch.setattr(mounts, "mount_of", lambda _source: mount)


def zfs(monkeypatch: pytest.MonkeyPatch, directory: Path, answer: str, status: int = 0) -> None:
    """A program that answers for the data set tank/vm and the volume tank/vm-1 alone."""
    program = directory / "bin" / "zfs"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$*" = "get -H -o value sync tank/vm" ] || [ "$6" = tank/vm-1 ] || exit 1\n'
        f"echo {answer}; exit {status}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


@pytest.mark.parametrize(
    ("kind", "options", "path"),
    [
        ("ext4", "rw,relatime,nobarrier", "ext4:barrier=off/raw/none"),
        ("ext4", "rw,barrier=0", "ext4:barrier=off/raw/none"),
        ("btrfs", "rw,nobarrier", "btrfs:barrier=off/raw/none"),
        ("ext4", "rw,relatime", "ext4/raw/none"),
        ("xfs", "rw,relatime", "xfs/raw/none"),
    ],
)
def test_barriers_that_are_off_drop_flushes(
    monkeypatch: pytest.MonkeyPatch, image: str, kind: str, options: str, path: str
) -> None:
    mounted(monkeypatch, kind, options)
    disk = ConfiguredDisk("g", "vda", image, parse_path("raw:preallocation=off/none"))
    (context,) = read_contexts([disk])
    found = disk_path(disk, context)
    assert found is not None
    assert str(found).replace(":preallocation=off", "") == path
    dropped = any(isinstance(risk, FlushesDroppedBelow) for risk in risks(disk, context))
    assert dropped is ("barrier=off" in path)


@pytest.mark.parametrize(
    ("answer", "layer"),
    [("disabled", "zfs:sync=disabled"), ("always", "zfs:sync=always"), ("standard", "zfs")],
)
def test_what_zfs_does_at_a_flush_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: str, answer: str, layer: str
) -> None:
    mounted(monkeypatch, "zfs", "rw,xattr")
    zfs(monkeypatch, tmp_path, answer)
    disk = ConfiguredDisk("g", "vda", image, parse_path("raw/none"))
    (context,) = read_contexts([disk])
    assert [str(each) for each in context.layers or ()] == [layer]
    dropped = any(isinstance(risk, FlushesDroppedBelow) for risk in risks(disk, context))
    assert dropped is (answer == "disabled")


def test_a_volume_of_zfs_is_asked_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    zfs(monkeypatch, tmp_path, "disabled")
    disk = ConfiguredDisk("g", "vda", "/dev/zvol/tank/vm-1", parse_path("zvol/none"))
    (context,) = read_contexts([disk])
    assert str(disk_path(disk, context)) == "zvol:sync=disabled/none"
    assert any(isinstance(risk, FlushesDroppedBelow) for risk in risks(disk, context))


def test_a_zfs_that_does_not_answer_is_not_taken_for_a_safe_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: str
) -> None:
    mounted(monkeypatch, "zfs", "rw")
    zfs(monkeypatch, tmp_path, "no", status=1)
    disk = ConfiguredDisk("g", "vda", image, parse_path("raw/none"))
    (context,) = read_contexts([disk])
    assert context.layers is None
    assert unknown_layers(disk, context) == f"the host layers of {image} are unknown"


MOUNTINFO = {
    # Recorded with Linux 6.18.
    "ext4 is mounted with nobarrier": ("43 27 7:0 / / rw,relatime - ext4 /dev/loop0 rw,nobarrier"),
    "btrfs is mounted with nobarrier": (
        "43 27 0:39 / / rw,relatime - btrfs /dev/loop0 "
        "rw,nobarrier,discard=async,space_cache=v2,subvolid=5,subvol=/"
    ),
    # As the kernels' show_options write them: xfs of Linux 3.10, f2fs and gfs2 of 6.1.
    "xfs is mounted with nobarrier": (
        "60 38 253:2 / / rw,relatime shared:30 - xfs /dev/mapper/vg-vms "
        "rw,attr2,nobarrier,inode64,noquota"
    ),
    "f2fs is mounted with fsync_mode=nobarrier": (
        "61 29 259:3 / / rw,relatime shared:31 - f2fs /dev/nvme0n1p3 "
        "rw,lazytime,background_gc=on,nogc_merge,discard,user_xattr,inline_xattr,acl,inline_data,"
        "inline_dentry,flush_merge,barrier,extent_cache,mode=adaptive,active_logs=6,"
        "alloc_mode=reuse,checkpoint_merge,fsync_mode=nobarrier,memory=normal,errors=continue"
    ),
    "f2fs is mounted with nobarrier": (
        "61 29 259:3 / / rw,relatime shared:31 - f2fs /dev/nvme0n1p3 "
        "rw,background_gc=on,flush_merge,nobarrier,extent_cache,mode=adaptive,fsync_mode=posix"
    ),
    "gfs2 is mounted with nobarrier": (
        "70 29 253:9 / / rw,relatime - gfs2 /dev/mapper/san-vms rw,locktable=c:vms,nobarrier"
    ),
    "": (
        "61 29 259:3 / / rw,relatime - f2fs /dev/nvme0n1p3 "
        "rw,background_gc=on,flush_merge,barrier,extent_cache,mode=adaptive,fsync_mode=posix"
    ),
}


@pytest.fixture(params=MOUNTINFO)
def reason(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said of a mount: all that this program asks for lies on it."""
    table = tmp_path / "proc" / "self" / "mountinfo"
    table.parent.mkdir(parents=True)
    table.write_text(MOUNTINFO[request.param] + "\n")
    monkeypatch.setattr(mounts, "_TABLE", table)
    monkeypatch.setattr(mounts, "mount_of", lambda source: mount_of(source, table))
    return str(request.param)


@pytest.mark.parametrize("path", ["raw:preallocation=off/none", None])
def test_a_file_system_mounted_without_barriers_loses_what_is_flushed(
    reason: str, image: str, path: str | None
) -> None:
    disk = ConfiguredDisk(
        "g", "vda", image, parse_path(path) if path else None, problem="it has none"
    )
    (context,) = read_contexts([disk])
    dropped = [risk for risk in risks(disk, context) if isinstance(risk, FlushesDroppedBelow)]
    assert len(dropped) == bool(reason)
    kept = replace(context, disk=HostDisk.PLP)
    assert not any(isinstance(risk, FlushesDroppedBelow) for risk in risks(disk, kept))
    read_only = risks(replace(disk, read_only=True), context)
    assert not any(isinstance(row, FlushesDroppedBelow) for row in read_only)


GUEST = """<domain type='kvm'><name>g</name><devices><disk type='file' device='disk'>
<driver name='qemu' type='raw' cache='none'/><source file='{}'/><target dev='vda' bus='virtio'/>
</disk></devices></domain>"""


def test_audit_and_advise_judge_it(
    reason: str,
    image: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VDISKLAB_STATE", str(tmp_path / "state"))
    guest = tmp_path / "g.xml"
    guest.write_text(GUEST.format(image))
    for arguments in ((), ("--disk", "plp")):
        main(["audit", str(guest), "--need", "durable", "--wide", *arguments])
        said = capsys.readouterr().out
        for word in ("loses data", "lacks      durable"):
            assert (word in said) is (bool(reason) and not arguments), word
    main(["import", "docs/images/campaign.json.gz"])
    for arguments in ((), ("--disk", "plp")):
        capsys.readouterr()
        main(["advise", str(guest), "--wide", "--why", *arguments])
        said = capsys.readouterr().out
        assert ("no setting of the guest makes it safe" in said) is (bool(reason) and not arguments)


@pytest.mark.parametrize("name", ["zfs_nocacheflush", "zil_nocacheflush"])
def test_a_parameter_of_zfs_holds_for_all_pools(tmp_path: Path, name: str) -> None:
    mount = Mount(Path("/tank"), "zfs", "tank/vm", frozenset({"rw", "xattr"}))
    parameter = tmp_path / "sys/module/zfs/parameters" / name
    parameter.parent.mkdir(parents=True)
    parameter.write_text("0\n")
    assert without_flushes(mount, tmp_path) is None
    parameter.write_text("1\n")
    said = without_flushes(mount, tmp_path)
    assert said == f"ZFS's module parameter {name} is on, so no flush reaches the disk"
    assert without_flushes(replace(mount, filesystem="xfs"), tmp_path) is None


@pytest.mark.parametrize(
    ("kind", "options", "policy", "said"),
    [
        ("nfs4", "rw,soft,timeo=600", "", "/ is nfs4 mounted with `soft`: when the server does not "
         "answer in time, requests fail, the guest gets I/O errors, and writes"),
        ("nfs", "rw,softerr", "", "/ is nfs mounted with `softerr`: "),
        ("cifs", "rw,soft", "", "/ is cifs mounted with `soft`: "),
        ("nfs4", "rw,soft", "/virtio:rerror=stop:werror=stop", "requests fail, the guest is "
         "paused, and writes that are still in this host's memory may be lost. Mount it with "),
        ("nfs4", "rw,hard", "", None),
        ("ext4", "rw,soft", "", None),
    ],
)  # fmt: skip
def test_a_mount_that_gives_up_on_its_server_is_named(
    monkeypatch: pytest.MonkeyPatch, image: str, kind: str, options: str, policy: str,
    said: str | None,
) -> None:  # fmt: skip
    """nfs(5), soft: the client fails a request after retrans retransmissions, which "can cause
    silent data corruption in certain cases"; mount.cifs(8) does so by default."""
    mounted(monkeypatch, kind, options)
    disk = ConfiguredDisk("g", "vda", image, parse_path(f"raw/none{policy}"))
    (context,) = read_contexts([disk])
    found = [str(risk) for risk in risks(disk, context) if isinstance(risk, SoftMount)]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
