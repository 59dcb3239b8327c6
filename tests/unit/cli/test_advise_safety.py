"""What `vdisklab advise` says of disks that lose flushed data, fail or throw away their writes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.analysis.made import CAMPAIGN
from tests.unit.cli.advise_guests import INCUS, SPEEDS, advised, guest
from tests.unit.cli.test_advice import CUT_KEPT, runs
from tests.unit.stored import Database
from vdisklab.cli.shell.main import main
from vdisklab.host.command import LocalHost
from vdisklab.host.facts import collect_facts
from vdisklab.path.disk_path import parse_path
from vdisklab.value import replace


@pytest.mark.parametrize("losing", ["<transient/></disk>", "error_policy='ignore'"])
def test_a_disk_that_loses_data_beside_its_path_is_not_called_safe(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], losing: str
) -> None:
    """Its speed cannot be compared, and its cache mode alone passes flushes on."""
    file = Path(guest(tmp_path, "qcow2/none"))
    text = file.read_text().replace("<driver ", "<driver copy_on_read='on' ")
    before = "</disk>" if losing.endswith("</disk>") else "copy_on_read='on'"
    after = losing if before == "</disk>" else f"{before} {losing}"
    assert before in text
    file.write_text(text.replace(before, after))
    (row,) = advised(capsys, str(file))["disks"]
    assert "safe" not in row["reason"]


def test_a_disk_whose_flushes_an_argument_drops_is_to_be_changed(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own cache mode passes flushes on, so no line changes that."""
    file = Path(guest(tmp_path, "qcow2/none"))
    argument = "<qemu:arg value='-set'/><qemu:arg value='drive.drive-ua-disk0.cache=unsafe'/>"
    line = f"<qemu:commandline>{argument}</qemu:commandline></domain>"
    file.write_text(file.read_text().replace("</domain>", line))
    (row,) = advised(capsys, str(file))["disks"]
    assert (row["action"], row["to"]) == ("change", None)
    assert row["reason"].startswith("leave -set drive.drive-ua-disk0.cache=unsafe out: ")


@pytest.mark.parametrize(
    ("name", "text", "said", "paste", "undo"),
    [
        ("1.conf", "name: one\nvirtio0: fast:vm-1-disk-0,cache=unsafe,size=8G\n",
         "cache none: keeps flushed data",
         "qm set 1 --virtio0 fast:vm-1-disk-0,size=8G,cache=none",
         "qm set 1 --virtio0 fast:vm-1-disk-0,cache=unsafe,size=8G"),
        ("config.txt", "name: one\nvirtio0: fast:vm-7-disk-0,cache=unsafe,size=8G\n",
         "cache none: keeps flushed data",
         "qm set 7 --virtio0 fast:vm-7-disk-0,size=8G,cache=none",
         "qm set 7 --virtio0 fast:vm-7-disk-0,cache=unsafe,size=8G"),
        ("config.txt", "name: one\nvirtio0: fast:disk,cache=unsafe,size=8G\n",
         "cache none: keeps flushed data",
         "qm set VMID --virtio0 fast:disk,size=8G,cache=none",
         "qm set VMID --virtio0 fast:disk,cache=unsafe,size=8G"),
        ("1.conf", "name: one\nvirtio0: fast:vm-1-disk-0,cache=writeback,aio=native\n",
         "does not start, as io=native needs O_DIRECT, which writeback does not use; cache none",
         "qm set 1 --virtio0 fast:vm-1-disk-0,cache=none,aio=native",
         "qm set 1 --virtio0 fast:vm-1-disk-0,cache=writeback,aio=native"),
        ("incus.yaml", INCUS, "cache none: keeps flushed data",
         "incus config device override web root io.cache=none",
         "incus config device remove web root"),
    ],
)  # fmt: skip
def test_an_unsafe_disk_is_changed_though_its_storage_is_not_known(
    name: str, text: str, said: str, paste: str, undo: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The storage's file is missing, and the line needs none."""
    monkeypatch.setenv("COLUMNS", "80")  # no column stands beside the reason
    file = tmp_path / name
    file.write_text(text)
    (row,) = advised(capsys, str(file))["disks"]
    assert (row["action"], row["path"]) == ("change", None)
    assert row["change"] == {"paste": paste, "undo": undo, "node": None}
    assert main(["advise", str(file)]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_disk_that_loses_data_is_made_safe_and_the_cost_is_said(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = advised(capsys, guest(tmp_path, "raw/unsafe"))
    (group,) = document["disks"]
    assert group["for_safety"]
    assert group["power_cut"]["kind"] == "lost-by-construction"
    assert group["then"]["kind"] == "not-tested"
    assert group["gain"]["ratio"] < 0.7
    said = " ".join(document["sentences"])
    assert re.search(r"it passes flushes on \(untested\); it is between 4\d and 4\d % slower", said)


def test_the_cost_of_safety_is_measured_with_what_the_disk_would_be_changed_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No adjacent path of an unsafe NVMe disk keeps flushed data."""
    document = advised(capsys, guest(tmp_path, "qcow2/unsafe/nvme"))
    (row,), (plan,) = document["disks"], document["planned"]
    assert row["action"] == "change"
    assert {"qcow2/unsafe/nvme", row["to"]} <= set(plan["command"].split())


def test_a_disk_that_needs_no_flush_never_gets_one_that_does(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (group,) = advised(capsys, guest(tmp_path, "qcow2/writethrough"))["disks"]
    assert (group["action"], group["to"]) == ("change", "qcow2/directsync")


def test_a_disk_whose_guest_gets_errors_is_said_before_one_that_is_paused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"a": "qcow2/none", "b": "qcow2/none/virtio:werror=report"}
    images = {name: str(tmp_path / f"{name}.qcow2") for name in paths}
    for image in images.values():
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "64T"], check=True)
    files = [guest(tmp_path, path, name, images[name]) for name, path in paths.items()]
    assert main(["advise", *files]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("* ")]
    assert notes[0].startswith("* b vda: The image may grow by ")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (
            "raw/writeback/virtio:aio=native",
            "does not start, as io=native needs O_DIRECT, which writeback does not use; cache none",
        ),
        ("raw/unsafe/nvme", "cache directsync: keeps flushed data, its cost was not measured"),
        ("raw/unsafe", "cache none: keeps flushed data, its cost was not measured"),
    ],
)
def test_what_cannot_start_or_loses_data_is_to_change(
    path: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    file = guest(tmp_path, path)
    (row,) = advised(capsys, file)["disks"]
    assert row["action"] == "change"
    assert row["change"]["paste"]
    assert row["change"]["undo"]
    assert parse_path(row["to"]).cache.direct
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["advise", file]) == 0
    shown = capsys.readouterr().out
    table = " ".join(shown.split("\n\n")[1].split())
    assert says in table, "the reason is not cut"
    assert "…" not in table.partition(says)[0]


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("path", ["raw/none", "raw/unsafe", "qcow2/none"])
def test_audit_and_advise_say_the_same_of_a_power_cut(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, there: bool
) -> None:
    """Verdicts of a file system count for the disks on it; what was tested is not to be tested."""
    host = collect_facts(LocalHost())
    kept = replace(CUT_KEPT, host=host)
    database.write(runs(speeds=SPEEDS), campaigns=[replace(CAMPAIGN, host=host)])
    image = parse_path(path).image
    assert image is not None
    kinds = ("ext4", "xfs", "btrfs")
    paths = [f"{kind}/{image}/none" for kind in kinds]
    paths += [f"{kind}/{image}:preallocation=off/none" for kind in kinds]
    database.add_power_cuts([replace(kept, id=f"c{n}", path=each) for n, each in enumerate(paths)])
    file = tmp_path / "web.img"
    if there:
        subprocess.run(["qemu-img", "create", "-q", "-f", str(image), file, "1M"], check=True)
    config = guest(tmp_path, path, image=str(file) if there else "/nowhere/web.img")
    said = []
    for verb in ("advise", "audit"):
        assert main([verb, config, "--db", database.url, "--format", "json"]) == 0
        (disk,) = json.loads(capsys.readouterr().out)["disks"]
        said.append({name: disk["power_cut"][name] for name in ("kind", "below", "elsewhere")})
    assert said[0] == said[1]
    assert main(["advise", config, "--db", database.url, "--why"]) == 0
    assert "vdisklab powercut" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("qemu-system-x86_64 -snapshot -drive file={0}/a.raw,format=raw,if=virtio,cache=unsafe",
         "g.sh"),
        ("qemu-system-x86_64 -drive file={0}/a.raw,format=raw,if=virtio,cache=unsafe,snapshot=on",
         "g.sh"),
        ("<domain type='kvm'><name>ci</name><devices><disk type='file' device='disk'>"
         "<driver name='qemu' type='raw' cache='unsafe'/><source file='{0}/a.raw'/>"
         "<target dev='vda' bus='virtio'/><transient/></disk></devices></domain>", "g.xml"),
        ("scsihw: virtio-scsi-single\nscsi0: {0}/a.raw,cache=unsafe,snapshot=1\nmemory: 512\n",
         "3.conf"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cache", ["unsafe", "none"])
def test_no_line_takes_away_the_overlay_of_writes_that_are_thrown_away(
    text: str, name: str, cache: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In QEMU's arguments a changed line would let the guest write into its golden image."""
    (tmp_path / "a.raw").write_bytes(bytes(4096))
    guest = tmp_path / name
    guest.write_text(
        text.format(tmp_path).replace("=unsafe", f"={cache}").replace("'unsafe'", f"'{cache}'")
    )
    assert main(["advise", str(guest), "--format", "json"]) == 0
    (disk,) = json.loads(capsys.readouterr().out)["disks"]
    assert disk["advice"]["action"] == "keep"
    assert disk["advice"]["reason"] == "nothing it writes is meant to survive"
    assert disk["advice"]["change"] is None
    assert main(["advise", str(guest), "--why"]) == 0
    shown = capsys.readouterr().out
    assert "loses data" in shown
    assert "blockdev" not in shown
    assert "keeps flushed data" not in shown
    assert "# to " not in shown


def test_a_soft_mount_is_part_of_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "storage.cfg").write_text(
        "nfs: nas\n\texport /e\n\tpath /mnt/pve/nas\n\tserver 10.0.0.5\n\toptions soft\n"
    )
    guest = tmp_path / "101.conf"
    guest.write_text(
        "name: web\nmemory: 512\nscsihw: virtio-scsi-single\nscsi0: nas:101/vm-101-disk-0.raw\n"
    )
    assert main(["advise", str(guest), str(tmp_path / "storage.cfg")]) == 0
    assert "soft mount; " in capsys.readouterr().out


def test_no_reason_begins_with_an_empty_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "db.yaml").write_text(
        "name: db\ntype: virtual-machine\ndevices:\n"
        "  d: {source: /srv/a.img, type: disk, io.cache: unsafe, io.bus: nvme}\n"
    )
    assert main(["advise", str(tmp_path / "db.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "cache none, bus scsi" in shown
    assert " ; " not in shown


def test_failed_writes_that_are_called_good_are_changed_as_audit_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "vm.sh"
    script.write_text(
        "qemu-system-x86_64 -m 1G -drive file=/vm/a.raw,format=raw,if=none,id=d,cache=none,"
        "werror=ignore -device virtio-blk-pci,drive=d\n"
    )
    (row,) = advised(capsys, str(script))["disks"]
    assert (row["action"], row["for_safety"]) == ("change", True)
    assert row["to"] == "raw/none/virtio:werror=stop"
    assert "werror=stop" in row["change"]["paste"]
    assert any("Errors are ignored" in str(risk) for risk in row["risks"])
    main(["advise", str(script), "--why"])
    said = " ".join(capsys.readouterr().out.split())
    assert "unless a write or flush fails, which its error policy (ignore) calls good" in said


def test_a_shared_directory_is_in_no_cache_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    xml = tmp_path / "web.xml"
    xml.write_text(
        "<domain type='kvm'><name>web</name><devices><filesystem type='mount'>"
        "<driver type='virtiofs'/><source dir='/srv/a'/><target dir='a'/></filesystem>"
        "<filesystem type='mount'><source dir='/srv/b'/><target dir='b'/></filesystem>"
        "</devices></domain>"
    )
    main(["advise", str(xml), "--why"])
    said = " ".join(capsys.readouterr().out.split())
    assert "a directory of the host (virtiofs) and no disk" in said
    assert "a directory of the host (9p) and no disk" in said
    assert "cache=writeback" not in said


def test_a_server_by_its_address_that_may_be_the_named_one_is_not_called_safe(
    store: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its port and export are those of a line that drops flushes: only the host is not known."""
    guest_file, server = tmp_path / "pg.sh", tmp_path / "serve.sh"
    guest_file.write_text(
        "qemu-system-x86_64 -drive file=nbd://nas/data,format=raw,if=virtio,cache=none\n"
    )
    server.write_text("#!/bin/sh\nqemu-nbd -t --cache=unsafe -f raw -x data /srv/data.img\n")
    files = (str(guest_file), str(server))
    (row,) = advised(capsys, *files)["disks"]
    assert row["action"] == "unknown"
    assert row["reason"].startswith(f"if nas is the machine of {server}, line 2 of {server}")
    assert main(["audit", *files, "--need", "durable", "--format", "json"]) == 0
    (disk,) = json.loads(capsys.readouterr().out)["disks"]
    assert disk["lacks"] == {}
    assert disk["undecided"]["durable"] == row["reason"]


POLICY = """<domain type='kvm'><name>g</name><devices><disk type='file' device='disk'>
<driver name='qemu' type='raw' cache='{cache}' error_policy='ignore'/>
<source file='{place}/a.img'/><target dev='vda' bus='virtio'/></disk></devices></domain>
"""
LOSSY_POOL = """<pool type='fs' xmlns:fs='http://libvirt.org/schemas/storagepool/fs/1.0'>
<name>data</name><target><path>/srv/data</path></target>
<fs:mount_opts><fs:option name='nobarrier'/></fs:mount_opts></pool>
"""
MACHINE = """apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: g, namespace: n}
spec:
  template:
    spec:
      domain:
        devices: {disks: [{name: a, errorPolicy: ignore, cache: none, disk: {bus: virtio}}]}
      volumes: [{name: a, persistentVolumeClaim: {claimName: c}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c, namespace: n}
spec: {volumeMode: Filesystem, volumeName: pv}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv}
spec: {volumeMode: Filesystem, mountOptions: [nobarrier], csi: {driver: topolvm.io, fsType: ext4},
       claimRef: {name: c, namespace: n}}
"""
SCRIPT = """mount -o nobarrier /dev/sdb1 /srv/data
qemu-system-x86_64 -name g \\
  -drive file=/srv/data/a.img,format=raw,if=virtio,cache=none,werror=ignore
"""


@pytest.mark.parametrize(
    ("files", "first"),
    [
        ({"g.xml": POLICY.format(cache="none", place="/srv/data"), "pool.xml": LOSSY_POOL},
         "set error_policy='stop' and rerror_policy='stop' in its <driver>, and change what is "
         "below the guest"),
        ({"g.xml": POLICY.format(cache="unsafe", place="/srv/data"), "pool.xml": LOSSY_POOL},
         "set error_policy='stop' and rerror_policy='stop' in its <driver> and cache none, "
         "and change what is below the guest"),
        ({"g.xml": POLICY.format(cache="unsafe", place="/srv")},
         "set error_policy='stop' and rerror_policy='stop' in its <driver> and cache none"),
        ({"g.yaml": MACHINE},
         "set errorPolicy: stop of its disk, and change what is below the guest"),
        ({"g.sh": SCRIPT},
         "set werror=stop and rerror=stop of its device, and change what is below the guest"),
    ],
)  # fmt: skip
def test_both_remedies_are_told(
    files: dict[str, str],
    first: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error policy that calls failed writes good, and what drops flushes whatever it is."""
    monkeypatch.setenv("COLUMNS", "400")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in files]
    (row,) = advised(capsys, *paths)["disks"]
    assert (row["action"], row["reason"].startswith(f"{first}: ")) == ("change", True)
    assert main(["advise", *paths, "--why"]) == 0
    printed = capsys.readouterr().out
    (line,) = (line for line in printed.splitlines() if line.startswith(" g "))
    assert first in line
    if "below" in first:
        assert "eave `nobarrier` out" in printed or "leave nobarrier out" in printed


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ("nobarrier,noatime", "incus storage set fast btrfs.mount_options=noatime"),
        ("nobarrier", "incus storage unset fast btrfs.mount_options"),
        (
            "noatime,barrier=0,nobarrier,ssd",
            "incus storage set fast btrfs.mount_options=noatime,ssd",
        ),
    ],
)
def test_the_command_for_a_pool_of_incus_has_its_name_and_its_options(
    options: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "400")
    text = INCUS.replace("pool: default", "pool: fast").replace("unsafe", "none")
    pool = f"- name: fast\n  driver: btrfs\n  config: {{btrfs.mount_options: '{options}'}}\n"
    (tmp_path / "i.yaml").write_text(text)
    (tmp_path / "p.yaml").write_text(pool)
    assert main(["audit", str(tmp_path / "i.yaml"), str(tmp_path / "p.yaml")]) == 0
    assert f"`{command}`; it holds once" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["audit", "advise"])
@pytest.mark.parametrize(
    ("setting", "kind"),
    [("cache=unsafe", "lost-by-construction"), ("cache=none", None), ("readonly=on", None)],
)
def test_what_drops_flushes_loses_data_whatever_the_format_is(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    verb: str, setting: str, kind: str | None,
) -> None:  # fmt: skip
    """QEMU looks into the file for its format, and the cache mode drops flushes of any."""
    file = tmp_path / "vm.sh"
    read_only = ",cache=unsafe" if setting.startswith("readonly") else ""
    file.write_text(f"qemu-system-x86_64 -drive if=virtio,file=/dev/vg0/a,{setting}{read_only}\n")
    main([verb, str(file), "--db", database.url, "--format", "json"])
    (disk,) = json.loads(capsys.readouterr().out)["disks"]
    assert disk["path"] is None
    found = disk["power_cut"]
    assert (None if found is None else found["kind"]) == kind
    main([verb, str(file), "--db", database.url])
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith(" vm virtio0 "))
    assert ("loses data" in row) == (kind is not None)
