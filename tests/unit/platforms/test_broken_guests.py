"""One broken guest never hides the others, and says itself that it was not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.made_processes import make_process
from vdisklab.errors import PlanError
from vdisklab.host.command import LocalHost
from vdisklab.inspection.existing_guests import read_disks, running_disks
from vdisklab.path.platforms import Platform
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.disk_risks import risks
from vdisklab.platforms.guest_edge import BUG, read_apart, read_each
from vdisklab.platforms.reading import GuestText
from vdisklab.platforms.registry import read_guests
from vdisklab.platforms.yaml_documents import read_documents

QEMU = "qemu-system-x86_64 -name {} -drive file=/a,format=raw,{}"
DOMAIN = (
    "<domain type='kvm'><name>{0}</name><devices><disk type='file'><source file='/a'>{1}</source>"
    "<target dev='vda' bus='virtio'/></disk></devices></domain>"
)
NESTED = "<backingStore>" * 1000 + "</backingStore>" * 1000


def problems(disks: tuple[ConfiguredDisk, ...]) -> dict[str, str]:
    return {disk.domain: disk.problem or "" for disk in disks}


@pytest.mark.parametrize("index", ["d0", "½", "²", "٣", "-1", "+1", "1_0", "", "9" * 5000])
def test_an_index_that_is_none_is_that_disks_problem(index: str) -> None:
    (disk,) = read_guests([GuestText(QEMU.format("a", f"index={index}"), "a.sh")])
    assert "the index" in (disk.problem or "")


def test_a_broken_process_leaves_the_others(tmp_path: Path) -> None:
    many = [word for n in range(600) for word in ("-device", f"virtio-blk-pci,drive=d{n}")]
    for number, arguments in enumerate(
        (["-drive", "file=/a,index=½"], [], many, ["-qmp", "unix:a=b"])
    ):
        command = ["qemu-system-x86_64", "-name", f"g{number}", "-drive", "file=/a,format=raw"]
        make_process(tmp_path, number + 1, command + arguments)
    found = problems(tuple(running_disks(tmp_path)))
    assert found.pop("process 3").startswith("its guest cannot be read: a command line has more")
    assert found.keys() == {"g0", "g1", "g3"}


EATS = "eatmydata makes QEMU's fsync do nothing"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("environ", "HOME=/root\0LD_PRELOAD=libeatmydata.so\0"),
        ("maps", "7f00-7f01 r-xp 0000 08:01 99     /usr/lib/x86_64-linux-gnu/libeatmydata.so.1\n"),
    ],
)
def test_a_running_qemu_whose_library_takes_fsync_away_loses_data(
    tmp_path: Path, file: str, text: str
) -> None:
    for number in (1, 2):
        process = make_process(tmp_path, number, QEMU.format(f"g{number}", "id=a").split())
        (process / "environ").write_text("EDITOR=/usr/share/eatmydata/vi\0")
    (tmp_path / "2" / file).write_text(text)
    kept, lost = running_disks(tmp_path)
    assert (kept.lost_below, lost.lost_below) == (None, EATS)


def test_a_domain_whose_variable_takes_fsync_away_loses_data() -> None:
    name = "http://libvirt.org/schemas/domain/qemu/1.0"
    env = "<q:env name='{}' value='libeatmydata.so'/>"
    line = f"<q:commandline xmlns:q='{name}'>{env}</q:commandline>"
    for variable, said in (("LD_PRELOAD", EATS), ("XDG_NAME", None)):
        text = DOMAIN.format("a", "").replace("</domain>", f"{line.format(variable)}</domain>")
        (disk,) = read_guests([GuestText(text, "a.xml")])
        assert disk.lost_below == said


def test_a_broken_domain_leaves_the_others() -> None:
    text = DOMAIN.format("a", "") + DOMAIN.format("b", NESTED) + DOMAIN.format("c", "")
    found = problems(read_guests([GuestText(text, "all.xml")]))
    assert found["b"].startswith("its guest cannot be read: all.xml has elements nested more than")
    assert (found["a"], found["c"]) == ("", "")


def test_a_guest_that_is_broken_from_its_next_start_on_is_read_as_it_is() -> None:
    text = DOMAIN.format("a", "") + DOMAIN.format("a", NESTED)
    now, later = read_guests([GuestText(text, "all.xml")])
    assert (now.problem, now.pending) == (None, "")
    assert "nested more than" in (later.problem or "")


def test_a_broken_file_leaves_the_others(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.xml" for name in "abc"]
    for file, content in zip(files, ("", NESTED, ""), strict=True):
        file.write_text(DOMAIN.format(file.stem, content))
    found = problems(read_disks(LocalHost(), files, None).disks)
    assert "nested more than" in found["b"]
    assert (found["a"], found["c"]) == ("", "")
    with pytest.raises(PlanError, match="nested more than"):
        read_disks(LocalHost(), files[1:2], None)


def test_a_bug_costs_one_guest() -> None:
    def broken() -> list[ConfiguredDisk]:
        raise RecursionError("too deep")

    good = ConfiguredDisk("web", "vda", "/a", None)
    guests = [("old", broken), ("web", lambda: [good])]
    old, web = read_each(Platform.INCUS, guests)
    assert web is good
    assert (old.domain, old.platform, old.path) == ("old", Platform.INCUS, None)
    assert f"{BUG} (RecursionError: too deep)" in (old.problem or "")
    assert risks(old) == ()


def test_the_disks_before_an_error_are_kept() -> None:
    def half() -> object:
        yield ConfiguredDisk("web", "vda", "/a", None)
        raise ValueError("x")

    found = read_apart(half)  # type: ignore[arg-type] # a generator
    assert [disk.target for disk in found.all("web", Platform.QEMU)] == ["vda", "?"]


@pytest.mark.parametrize(
    "document",
    [
        "{config: {1: 2, 2001-01-01: 3, null: 4, 1.5: 5, on: x}, devices: {1: {type: disk, 2: 3}}}",
        "{apiVersion: a, kind: VirtualMachine, metadata: {name: 1}, spec: {domain: {devices: "
        "{disks: [{name: 1, 2001-01-01: x, null: y}]}}, volumes: [{name: 1, 3: 4}]}}",
        "{flavor: {3: 4}, image: {5: 6}, id: 2001-01-01, volumes_attached: [{id: 7}]}",
    ],
)
def test_keys_are_text(document: str) -> None:
    """YAML has keys of other types, which JSON cannot have, and patterns cannot search."""
    disks = read_guests([GuestText(document, "x.yaml")])
    assert disks
    assert not [disk.problem for disk in disks if BUG in (disk.problem or "")]


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000, ":".join(["1"] * 100_000)])
def test_a_number_without_end_is_text(number: str) -> None:
    (document,) = read_documents(f"{{name: {number}}}", "x.yaml")
    assert document["name"] == number


@pytest.mark.parametrize(
    "arguments",
    [
        "-blockdev driver=nbd,node-name=n,server=x", "-blockdev driver=nfs,node-name=n,server=x",
        "-blockdev driver=ssh,node-name=n,path=/x,server=y,host-key-check=z",
        "-blockdev driver=rbd,node-name=n,pool=a,image=b,server.0=x",
        "-blockdev node-name=n,file=m -blockdev node-name=m,file=l "
        "-blockdev driver=file,node-name=l,filename=/x",
        "-blockdev driver=nbd,node-name=n,filename=nbd://[x/",
    ],
)  # fmt: skip
def test_a_node_of_other_types_is_that_disks_problem(arguments: str) -> None:
    text = f"qemu-system-x86_64 {arguments} -device virtio-blk-pci,drive=n,id=d"
    (disk,) = (disk for disk in read_guests([GuestText(text, "a.sh")]) if disk.target == "d")
    assert disk.problem
    assert BUG not in disk.problem


@pytest.mark.parametrize("depth", [90, 990, 100_000])
def test_json_without_end_is_that_disks_problem(depth: int) -> None:
    nested = '{"a":' * depth + "1" + "}" * depth
    arguments = json.dumps({"driver": "raw", "node-name": "n"})[:-1] + f', "x": {nested}}}'
    text = f"qemu-system-x86_64\0-blockdev\0{arguments}\0-device\0virtio-blk-pci,drive=n,id=d"
    for disk in read_guests([GuestText(text, "a.sh")]):
        assert disk.problem
        assert BUG not in disk.problem
