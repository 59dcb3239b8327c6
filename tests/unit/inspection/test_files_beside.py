"""A compose file gets the variables of its guests from the files beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vdisklab.errors import PlanError
from vdisklab.host.command import LocalHost
from vdisklab.inspection.existing_guests import ExistingGuests, read_disks
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.risk_kinds import MayDiffer

IMAGE = "services:\n  vm:\n    image: qemux/qemu\n{}"
MISSING = "compose.yml names env_file vm.env, which is not beside it"


def read(directory: Path, **files: str) -> ExistingGuests:
    for name, text in files.items():
        place = directory / name.replace("_", "/").replace("DOT", ".")
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    return read_disks(LocalHost(), [directory / "compose.yml"], None)


@pytest.mark.parametrize(
    ("service", "files", "cache"),
    [
        ("    env_file: vm.env\n", {"vm.env": "DISK_CACHE=unsafe\n"}, "unsafe"),
        ("    env_file: ./vm.env\n", {"vm.env": "# a\n\nexport DISK_CACHE='unsafe' # b\n"},
         "unsafe"),
        ("    env_file: [a.env, vm.env]\n",
         {"a.env": "DISK_CACHE=unsafe\n", "vm.env": "DISK_CACHE=writeback\n"}, "writeback"),
        ("    env_file:\n      - path: etc/vm.env\n        required: true\n",
         {"etc_vm.env": "DISK_CACHE=unsafe"}, "unsafe"),
        # `environment:` goes before, and the service's files do not fill in the file itself.
        ("    env_file: vm.env\n    environment: {DISK_CACHE: writeback}\n",
         {"vm.env": "DISK_CACHE=unsafe\n"}, "writeback"),
        ("    environment: {DISK_CACHE: '${CACHE:-none}'}\n    env_file: vm.env\n",
         {"vm.env": "CACHE=unsafe\n"}, "none"),
        ("    environment: {DISK_CACHE: '${CACHE:-none}'}\n",
         {"DOTenv": "CACHE=unsafe\n"}, "unsafe"),
        ("    environment: {DISK_CACHE: $CACHE}\n", {"DOTenv": 'CACHE="unsafe"\n'}, "unsafe"),
        ("    environment: {DISK_CACHE: '${CACHE:?}'}\n", {"DOTenv": "CACHE=unsafe\n"}, "unsafe"),
        ("    environment: [DISK_CACHE]\n", {"DOTenv": "DISK_CACHE=unsafe\n"}, "unsafe"),
        ("    env_file: vm.env\n",
         {"DOTenv": "MODE=unsafe\n", "vm.env": "DISK_CACHE=${MODE}\n"}, "unsafe"),
        # Without `env_file:` a `.env` sets no variable of the container.
        ("", {"DOTenv": "DISK_CACHE=unsafe\n"}, "none"),
        ("    env_file: vm.env\n", {"vm.env": "nonsense\nDISK_CACHE\n=x\n"}, "none"),
    ],
)  # fmt: skip
def test_the_files_that_it_names_set_its_variables(
    service: str, files: dict[str, str], cache: str, tmp_path: Path
) -> None:
    found = read(tmp_path, **{"compose.yml": IMAGE.format(service), **files})
    (disk,) = found.disks
    assert disk.path is not None
    assert disk.path.cache == cache
    assert disk.drops_flushes is (cache == "unsafe")
    assert not any("is not beside it" in note for note in found.notes)


@pytest.mark.parametrize("made", ["none", "directory", "binary"])
def test_a_file_that_cannot_be_read_is_said(made: str, tmp_path: Path) -> None:
    if made == "directory":
        (tmp_path / "vm.env").mkdir()
    elif made == "binary":
        (tmp_path / "vm.env").write_bytes(b"DISK_CACHE=unsafe\xff\n")
    found = read(tmp_path, **{"compose.yml": IMAGE.format("    env_file: vm.env\n")})
    assert any(MISSING in note for note in found.notes)
    assert str(found.disks[0].path).startswith("raw/none/scsi")


def test_a_file_that_may_be_missing_is_not_said(tmp_path: Path) -> None:
    text = IMAGE.format(
        "    volumes: [/vm:/storage]\n    env_file: [{path: vm.env, required: false}]\n"
    )
    assert not read(tmp_path, **{"compose.yml": text}).notes


def test_a_default_that_the_file_beside_it_sets_is_no_assumption(tmp_path: Path) -> None:
    settings = "    environment: {DISK_CACHE: '${CACHE:-none}'}\n"
    text = IMAGE.format(f"    volumes: [/vm:/storage]\n{settings}")
    assert any("is read with its defaults" in note for note in read(
        tmp_path, **{"compose.yml": text}).notes)  # fmt: skip
    assert not read(tmp_path, **{"compose.yml": text, "DOTenv": "CACHE=none\n"}).notes


def test_a_broken_file_is_refused_as_before(tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        read(tmp_path, **{"compose.yml": IMAGE.format("  x: [\n")})


@pytest.mark.parametrize(
    ("volume", "source"),
    [
        ("./store:/storage", "store/data.img"),
        ("../up:/storage:rw", "../up/data.img"),
        ("{type: bind, source: ./store, target: /storage}", "store/data.img"),
        ("./web.qcow2:/disk.qcow2", "web.qcow2"),
        ("/abs:/storage", "/abs/data.img"),
        ("named:/storage", "/storage/data.img"),
    ],
)
def test_a_relative_place_is_beside_the_file(volume: str, source: str, tmp_path: Path) -> None:
    shown = volume if volume.startswith("{") else f"'{volume}'"
    text = IMAGE.format(f"    volumes: [{shown}]\n")
    (disk,) = read(tmp_path, **{"compose.yml": text}).disks
    assert disk.source == os.path.normpath(tmp_path / source)


DOMAIN = """resource "libvirt_domain" "vm" {{
  name = "web"
  disk {{ file = "/srv/web.qcow2" }}
  {}
}}
"""
LOSSY = '<driver name="qemu" type="qcow2" cache="unsafe"/>'


@pytest.mark.parametrize(
    ("changes", "sheet", "drops"),
    [
        (f"xml {{\n xslt = <<EOX\n{LOSSY}\nEOX\n }}", "", True),
        ('xml { xslt = file("${path.module}/web.xsl") }', LOSSY, True),
        ('xml { xslt = file("web.xsl") }',
         '<xsl:attribute name="cache">unsafe</xsl:attribute>', True),
        ("xml = { xslt = var.sheet }", "", False),
        ('xml { xslt = file("gone.xsl") }', LOSSY, False),
        ('xml { xslt = templatefile("web.xsl", { a = 1 }) }', "<!-- never unsafe --><a/>", False),
    ],
)  # fmt: skip
def test_a_style_sheet_leaves_no_disk_of_a_domain_known(
    changes: str, sheet: str, drops: bool, tmp_path: Path
) -> None:
    (tmp_path / "main.tf").write_text(DOMAIN.format(changes))
    (tmp_path / "web.xsl").write_text(sheet)
    (disk,) = read_disks(LocalHost(), [tmp_path / "main.tf"], None).disks
    assert (disk.target, disk.path) == ("vda", None)
    assert "an xslt changes its settings" in (disk.problem or "")
    assert disk.drops_flushes is drops


QEMU = "qemu-system-x86_64 -m 1G -drive file=/srv/a.raw,format=raw,if=virtio,cache=${CACHE}\n"
UNIT = "[Service]\nEnvironment=CACHE=none\nEnvironmentFile={}\nExecStart=/usr/bin/"


@pytest.mark.parametrize(
    ("name", "text", "files", "path", "doubt"),
    [
        ("vm.sh", "CACHE=none\n. ./vm.conf\n" + QEMU, {"vm.conf": "CACHE=unsafe\n"},
         "raw/unsafe", ""),
        ("vm.sh", "CACHE=none\nsource etc/vm\n" + QEMU, {}, "raw/none",
         "line 2 reads etc/vm, which was not found: $CACHE may have another value"),
        ("vm.service", UNIT.format("{there}/vm") + QEMU, {"vm": "# a\nCACHE='unsafe'\n"},
         "raw/unsafe", ""),
        ("vm.service", UNIT.format("-{there}/vm") + QEMU, {"vm": "OPTS=-m 2G -smp 2\nCACHE=unsafe"},
         "raw/unsafe", ""),
        ("vm@.service", UNIT.format("-{there}/vm-%i") + QEMU, {}, "raw/none",
         "vm-%i, which was not found: $CACHE may"),
        ("vm.service", UNIT.format("-{there}/vm") + QEMU, {}, "raw/none",
         "vm, which was not found: $CACHE may"),
        ("compose.yml", IMAGE.format("    env_file: [vm.env]\n"), {},
         "raw/none/scsi:aio=native:detect_zeroes=on:discard=unmap:iothread=on",
         "vm.env may change"),
    ],
)  # fmt: skip
def test_variables_of_a_file_win_and_one_that_is_gone_leaves_doubt(
    name: str, text: str, files: dict[str, str], path: str, doubt: str, tmp_path: Path
) -> None:
    for each, given in {name: text.replace("{there}", str(tmp_path)), **files}.items():
        (tmp_path / each).write_text(given)
    (disk,) = read_disks(LocalHost(), [tmp_path / name], None).disks
    assert str(disk.path) == path
    assert doubt in disk.may_differ if doubt else not disk.may_differ
    assert bool(disk.may_differ) is any(isinstance(risk, MayDiffer) for risk in risks(disk))


VARIABLE = """\
variable "cache" { default = "none" }
resource "proxmox_virtual_environment_vm" "x" {
  name = "x"
  disk {
    datastore_id = "local-lvm"
    interface    = "scsi0"
    cache        = var.cache
  }
}
"""


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "none"),
        ({"terraform.tfvars": 'cache = "unsafe"'}, "unsafe"),
        ({"other.tfvars": 'cache = "unsafe"'}, "none"),  # named with -var-file alone
        ({"terraform.tfvars": 'cache = "unsafe"', "a.auto.tfvars": 'cache = "writeback"'},
         "writeback"),
        ({"b.auto.tfvars": 'cache = "unsafe"', "a.auto.tfvars": 'cache = "none"'}, "unsafe"),
        ({"terraform.tfvars": 'cache = lower("UNSAFE")'}, "unknown"),
        ({"terraform.tfvars.json": '{"cache": "unsafe"}'}, "unknown"),
        ({"a.auto.tfvars": "cache = ["}, "unknown"),
        ({"a.auto.tfvars": None}, "unknown"),
    ],
)  # fmt: skip
def test_terraforms_own_files_set_variables(
    files: dict[str, str | None], said: str, tmp_path: Path
) -> None:
    (tmp_path / "main.tf").write_text(VARIABLE)
    (tmp_path / "storage.cfg").write_text("lvmthin: local-lvm\n\tthinpool data\n\tvgname pve\n")
    for name, text in files.items():
        if text is None:
            (tmp_path / name).mkdir()  # which nobody can read as a file
        else:
            (tmp_path / name).write_text(text)
    (disk,) = read_disks(LocalHost(), [tmp_path / "main.tf"], None).disks
    path = disk.path or disk.assumed
    if said == "unknown":
        assert path is None
        assert "its cache mode is ${" in (disk.problem or "")
        assert "a variable whose value is not known" in (disk.problem or "")
    else:
        assert path is not None
        assert path.cache.spelled_out.value == said


PACKED = """\
variable "cache" {
  type    = string
  default = "none"
}
source "qemu" "img" {
  format     = "raw"
  disk_cache = var.cache
}
"""


@pytest.mark.parametrize(
    ("files", "path", "place"),
    [
        ({}, "raw/none", "`default` in line 3 of img.pkr.hcl"),
        ({"a.auto.pkrvars.hcl": 'x = 1\ncache = "unsafe"\n'}, "raw/unsafe",
         "`cache` in line 2 of a.auto.pkrvars.hcl"),
        ({"a.auto.pkrvars.hcl": 'cache = "unsafe"\n', "b.auto.pkrvars.hcl": 'cache = "none"\n'},
         "raw/none", "`cache` in line 1 of b.auto.pkrvars.hcl"),
        ({"prod.pkrvars.hcl": 'cache = "unsafe"\n'}, "raw/none",
         "`default` in line 3 of img.pkr.hcl"),
        ({"a.auto.pkrvars.hcl": "cache = ["}, "None", ""),
    ],
)  # fmt: skip
def test_packers_own_files_set_variables(
    files: dict[str, str], path: str, place: str, tmp_path: Path
) -> None:
    for name, text in {"img.pkr.hcl": PACKED, **files}.items():
        (tmp_path / name).write_text(text)
    (disk,) = read_disks(LocalHost(), [tmp_path / "img.pkr.hcl"], None).disks
    assert str(disk.path) == path
    where = disk.changed_at.replace(f"{tmp_path}/", "")
    assert where == (place and f"{place} (-var, -var-file and PKR_VAR_cache override it)") or (
        disk.path is None
    )


def test_the_file_of_variables_is_the_place_to_edit(tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text(VARIABLE)
    (tmp_path / "terraform.tfvars").write_text('name = "x"\ncache = "unsafe"\n')
    (disk,) = read_disks(LocalHost(), [tmp_path / "main.tf"], None).disks
    assert disk.changed_at == (
        "`cache` in line 2 of terraform.tfvars (-var, -var-file and TF_VAR_cache override it)"
    )


def test_a_cache_mode_of_an_environment_file_is_changed_there(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "docker run -d --name vm1 --env-file vm.env -v /srv/vm1:/storage qemux/qemu\n"
    )
    (tmp_path / "vm.env").write_text("RAM_SIZE=2G\nDISK_CACHE=unsafe\n")
    (disk,) = read_disks(LocalHost(), [tmp_path / "run.sh"], None).disks
    assert disk.changed_at == "`DISK_CACHE` in line 2 of vm.env"
