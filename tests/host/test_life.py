"""The life of disks on real file systems: what each way reads and writes is counted exactly.

Campaigns without a guest, through the real command line. Everything is on loop devices.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab import Lab
from vdisklab.campaign import given_image
from vdisklab.campaign.given_image import (
    FirstWrite,
    find_first_write,
    inspect_template,
    require_whole,
)
from vdisklab.campaign.measure_life import own_bytes
from vdisklab.errors import HostError, PlanError
from vdisklab.host.command import LocalHost
from vdisklab.host.syscalls import attach_loop, detach_loop
from vdisklab.path.disk_path import parse_path
from vdisklab.results.model import BENEATH, FailureKind, Run

pytestmark = pytest.mark.host

MIB = 1 << 20
SIZE = 64 * MIB
DATA = SIZE // 4 * 3
"""The default template's last quarter are zeros, which take no place."""

BLOCK, CLUSTER = 4 << 10, 64 << 10
COPIED = 128 << 10
"""XFS's extent size hint for copies on write (mkfs.xfs(8): 32 blocks)."""

TABLES = MIB
"""What a file system writes of its own, at most, in a step of a small disk."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, tmp_path / "state")
    made.prepare()
    yield made
    assert made.leftovers() == []


def command(lab: Lab, *arguments: str, size: str = "64M") -> tuple[str, ...]:
    return (
        "run", *arguments, "--profile", "life-host", "--rounds", "1", "--size", size,
        "--dir", str(lab.work), "--db", str(lab.database),
    )  # fmt: skip


def lives(lab: Lab, *arguments: str) -> Mapping[str, Run]:
    """The runs by the way in which their disks were made."""
    status, printed = lab.call(*command(lab, *arguments))
    assert status == 0, printed
    runs = lab.runs()
    assert [run.failure for run in runs if run.failure] == [], printed
    return {str(parse_path(run.path).attachment.made): run for run in runs}


def sample(run: Run, step: str, metric: str) -> float:
    (found,) = (measured for measured in run.measurements if measured.name == step)
    return next(each.value for each in found.samples if each.metric == metric)


def moved(run: Run, *steps: str) -> tuple[int, int]:
    """Bytes that the loop device read and wrote in these steps."""
    devices = [step.evidence.device for step in run.measurements if step.name in steps]
    assert None not in devices
    counted = [device for device in devices if device is not None]
    return sum(each.read_bytes for each in counted), sum(each.write_bytes for each in counted)


READY = ("make", "attach", "first-write")


@pytest.mark.parametrize("filesystem", ["xfs", "btrfs"])
def test_what_each_way_writes_is_what_it_must(lab: Lab, filesystem: str) -> None:
    ways = ("cp", "sparse", "reflink", "convert", "create")
    found = lives(lab, f"{filesystem}/raw/none", "--made", ",".join(ways))
    assert set(found) == set(ways)
    written = {way: moved(run, *READY)[1] for way, run in found.items()}
    assert SIZE <= written["cp"] <= SIZE + TABLES, "a full copy writes the disk once"
    for way in ("sparse", "convert"):
        assert DATA <= written[way] <= DATA + TABLES, "zeros are not written"
    for way in ("reflink", "create"):
        assert written[way] < TABLES, "and shared blocks are not either, whatever their number"
    assert moved(found["reflink"], "make")[0] < TABLES
    assert moved(found["cp"], "make")[0] >= DATA

    for way, run in found.items():
        allocated = sample(run, "make", "allocated") + sample(run, "first-write", "allocated")
        given_back = sample(run, "delete", "given_back")
        if way in ("cp", "sparse", "convert"):
            assert abs(given_back - allocated) <= TABLES, "delete gives back what make took"
        else:
            assert given_back <= TABLES
    assert sample(found["reflink"], "first-write", "unshared") == 4096
    assert sample(found["cp"], "make", "unwritten") >= SIZE - TABLES
    assert sample(found["reflink"], "make", "unwritten") < TABLES


def test_a_first_write_to_an_overlay_costs_a_cluster(lab: Lab) -> None:
    """Of 4 KiB written, a cluster of 64 KiB is allocated; with subclusters, too, but less of it is
    copied from the template."""
    path = "xfs/qcow2{,:extended_l2=on:cluster_size=128k}/none"
    status, printed = lab.call(*command(lab, path, "--made", "overlay,overlay:depth=2"))
    assert status == 0, printed
    mapped = {}
    for run in lab.runs():
        assert run.failure is None, printed
        path_of = parse_path(run.path)
        assert path_of.image is not None
        key = (bool(path_of.image.option("extended_l2")), path_of.attachment.made)
        mapped[key] = sample(run, "first-write", "mapped")
        assert moved(run, "make")[1] < 2 * TABLES
    assert mapped == {
        (False, "overlay"): 64 << 10,
        (False, "overlay:depth=2"): 64 << 10,
        (True, "overlay"): 4 << 10,
        (True, "overlay:depth=2"): 4 << 10,
    }


def test_what_xfs_allocates_beyond_a_cluster_is_what_hints_ask_for(tmp_path: Path) -> None:
    """qemu-img's extent size hint of 1 MiB, and XFS's own of 128 KiB for copies on write: not what
    XFS allocates ahead of an open file, which is back after the file was closed."""
    file, place = tmp_path / "xfs", tmp_path / "mounted"
    file.touch()
    os.truncate(file, 400 * MIB)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", file], check=True)
    place.mkdir()
    subprocess.run(["mount", "-o", "loop", file, place], check=True)
    try:
        _template(place / "golden.raw", "raw")
        overlay = ("qemu-img", "create", "-q", "-f", "qcow2", "-b", "golden.raw", "-F", "raw")
        subprocess.run([*overlay, place / "hinted"], check=True)
        subprocess.run([*overlay, "-o", "extent_size_hint=0", place / "plain"], check=True)
        for copy in ("shared", "exact"):
            clone = ("cp", "--reflink=always", place / "golden.raw", place / copy)
            subprocess.run(clone, check=True)
        subprocess.run(["xfs_io", "-c", "cowextsize 4k", place / "exact"], check=True)
        grown = {
            name: _grown_by_a_write(place / name, form)
            for name, form in (
                ("hinted", "qcow2"), ("plain", "qcow2"), ("shared", "raw"), ("exact", "raw"),
            )
        }  # fmt: skip
    finally:
        subprocess.run(["umount", place], check=True)
    assert grown == {
        "hinted": MIB,
        "plain": 2 * CLUSTER,
        "shared": COPIED,
        "exact": BLOCK,
    }


def _grown_by_a_write(disk: Path, form: str) -> int:
    """Bytes by which grew what a disk occupies alone, after it was written, flushed and closed."""
    os.sync()
    before = own_bytes(disk)
    write = ("qemu-io", "-t", "none", "-f", form, "-c", f"write -q {MIB + BLOCK} {BLOCK}")
    subprocess.run([*write, "-c", "flush", disk], check=True, stdout=subprocess.DEVNULL)
    return own_bytes(disk) - before


def test_disks_are_made_at_once(lab: Lab) -> None:
    (run,) = lives(lab, "xfs/raw/none", "--made", "cp", "--guests", "3").values()
    assert 3 * SIZE <= moved(run, *READY)[1] <= 3 * SIZE + TABLES


def test_ways_race_by_a_step_as_rank_prints_it(lab: Lab) -> None:
    ways = [f"xfs/raw/none/virtio:made={way}" for way in ("cp", "sparse")]
    status, said = _said(
        lab, "run", *ways, "--profile", "life-host", "--baseline", "none", "--size", "16M",
        "--find", "best", "--metric", "first-write/none/ready", "--budget", "20s",
        "--dir", str(lab.work), "--db", str(lab.database),
    )  # fmt: skip
    assert status == 0, said
    # The race's own answer; on a busy machine the budget may end before it shows anything.
    assert re.search(r"after [0-9]+ rounds?[.:]", said), said


def test_target_is_zero_saves_the_writes_of_zeros(lab: Lab) -> None:
    """Onto a device qemu-img writes zeros, too, unless it is told that they are there."""
    file = lab.directory / "device"
    file.touch()
    os.truncate(file, SIZE + 2 * MIB)
    device = attach_loop(file, direct_io=False)
    try:
        found = lives(lab, "none", "--on", device, "--made", "convert,convert:zeroed=on")
    finally:
        detach_loop(device)
    plain, told = (moved(found[way], *READY)[1] for way in ("convert", "convert:zeroed=on"))
    assert plain - told == SIZE - DATA
    assert "delete" not in {step.name for step in found["convert"].measurements}


@pytest.mark.parametrize(
    "form",
    ["vmdk", *(pytest.param(form, marks=pytest.mark.nightly) for form in ("vhdx", "qcow2"))],
)
def test_a_template_in_another_format_is_imported_and_untouched(lab: Lab, form: str) -> None:
    template = lab.directory / f"golden.{form}"
    _template(template, form)
    before = hashlib.sha256(template.read_bytes()).hexdigest()
    status, printed = lab.call(*_from(lab, template, "xfs/raw/none", "--made", "convert,cp"))
    assert status == 0, printed
    assert hashlib.sha256(template.read_bytes()).hexdigest() == before
    for run in lab.runs():
        assert 8 * MIB <= moved(run, *READY)[1] <= 16 * MIB + 2 * TABLES
        (check,) = (check for check in run.checks if check.name == "life.template")
        assert check.confirmed


def test_a_packed_template_is_unpacked(lab: Lab) -> None:
    raw = lab.directory / "golden.raw"
    _template(raw, "raw", zeros=12, data=4)
    subprocess.run(["xz", "-0", raw], check=True)
    packed = raw.with_name("golden.raw.xz")
    status, printed = lab.call(*_from(lab, packed, "xfs/raw/none", "--made", "unpack,cp"))
    assert status == 0, printed
    made = {parse_path(run.path).attachment.made: run for run in lab.runs()}
    assert set(made) == {"unpack", "cp"}
    for run in made.values():
        assert 4 * MIB <= moved(run, *READY)[1] <= 16 * MIB + TABLES
    # As after `xz -d`: what was unpacked is in memory until the first flush.
    assert moved(made["unpack"], "make")[1] <= TABLES


def _template(file: Path, form: str, zeros: int = 8, data: int = 8) -> None:
    """MiB of random data, and of zeros."""
    source = file.with_name("source")
    source.write_bytes(os.urandom(data * MIB) + bytes(zeros * MIB))
    subprocess.run(["qemu-img", "convert", "-O", form, source, file], check=True)
    source.unlink()


def _from(lab: Lab, template: Path | str, *arguments: str) -> tuple[str, ...]:
    return (
        "run", *arguments, "--profile", "life-host", "--rounds", "1", "--from", str(template),
        "--dir", str(lab.work), "--db", str(lab.database),
    )  # fmt: skip


def test_templates_that_cannot_be_used_are_refused_in_a_sentence(lab: Lab) -> None:
    good, backing, secret = (lab.directory / f"{name}.qcow2" for name in ("good", "top", "luks"))
    _template(good, "qcow2", zeros=24)
    image = ("qemu-img", "create", "-q", "-f", "qcow2")
    subprocess.run([*image, "-b", good, "-F", "qcow2", backing], check=True)
    orphan, gone = lab.directory / "orphan.qcow2", lab.directory / "gone.qcow2"
    shutil.copyfile(good, gone)
    subprocess.run([*image, "-b", gone.name, "-F", "qcow2", orphan], check=True)
    gone.unlink()
    # Of both ciphers of qcow2, qemu-img says the same; the key of LUKS takes it two seconds.
    key = ("--object", "secret,id=k,data=x", "-o", "encrypt.format=aes,encrypt.key-secret=k")
    subprocess.run([*image, *key, secret, "1M"], check=True)
    luks = lab.directory / "luks.raw"
    # Not by qemu-img, which tries for two seconds how many rounds its key shall have.
    luks.write_bytes(bytes(4 * MIB))
    quick = ("--type", "luks1", "--pbkdf-force-iterations", "1000", "--batch-mode")
    subprocess.run(["cryptsetup", "luksFormat", *quick, luks, "-"], input=b"x", check=True)
    fifo = lab.directory / "fifo"
    subprocess.run(["mkfifo", fifo], check=True)
    (empty := lab.directory / "empty.raw").touch()
    (text := lab.directory / "notes.txt").write_text("hello\n")
    writer = subprocess.Popen(
        ["qemu-io", "-f", "qcow2", good], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    writer.stdout.read(1)  # the prompt: the image is open
    short = lab.directory / "short.qcow2"
    _cut(good, short, 200_000)
    refusals = {
        short: "is cut short: counting reference for region exceeding the end of the file",
        lab.directory / "missing": "does not exist",
        fifo: "is a named pipe (FIFO), not an image",
        lab.directory: "is a directory, not an image",
        backing: "has the backing file",
        orphan: "needs the backing file gone.qcow2, which is not there",
        secret: "is encrypted",
        luks: "is encrypted",
        empty: "is empty",
        text: "has 6 bytes, not a multiple of 512",
        good: "is in use: a guest has it open for writing",
    }
    try:
        for file, said in refusals.items():
            assert said in _refused(lab, file)
    finally:
        writer.communicate(timeout=60)
    assert "cannot hold it" in _refused(lab, good, "--size", "16M")


@pytest.mark.parametrize(
    ("name", "said", "way"),
    [
        ("old.vhd", "is an image of Virtual PC (VHD)", "qemu-img convert -f vpc -O qcow2"),
        ("fixed.vhd", "is an image of Virtual PC (VHD)", "qemu-img convert -f vpc -O qcow2"),
        ("disk.raw.gz", "is packed by gzip", "unpack it: gunzip"),
        ("disk.ova", "is a tar archive, as OVA files are", "name the image in it"),
        ("disk.img", "is packed by xz, and its name does not end in .xz", "rename it"),
    ],
)
def test_what_is_no_raw_disk_is_not_measured_as_one(
    tmp_path: Path, name: str, said: str, way: str
) -> None:
    raw, file = tmp_path / "golden.raw", tmp_path / name
    _template(raw, "raw", data=1)
    commands: dict[str, tuple[str | Path, ...]] = {
        "old.vhd": ("qemu-img", "convert", "-O", "vpc", raw, file),
        "fixed.vhd": ("qemu-img", "convert", "-O", "vpc", "-o", "subformat=fixed", raw, file),
        "disk.ova": ("tar", "-cf", file, "-C", tmp_path, raw.name),
    }
    if name in commands:
        subprocess.run(commands[name], check=True)
    else:
        packer = "gzip" if name.endswith(".gz") else "xz"
        with file.open("wb") as packed:
            subprocess.run([packer, "-1", "--stdout", raw], stdout=packed, check=True)
        os.truncate(file, -(-file.stat().st_size // 512) * 512)
    with pytest.raises(PlanError) as refused:
        inspect_template(LocalHost(), file)
    assert said in refused.value.message
    assert way in (refused.value.hint or "")


def test_a_template_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("-x, y=z.qcow2")
    _template(tmp_path / file, "qcow2")
    given = inspect_template(LocalHost(), file)
    require_whole(LocalHost(), given)
    assert (given.driver, given.size) == ("qcow2", 16 * MIB)


@pytest.mark.parametrize(
    ("name", "said"),
    [("", "the name of a file is empty"), ("https://example.org/a.qcow2", "is a URL, and no file")],
)
def test_what_names_no_file_is_said(lab: Lab, name: str, said: str) -> None:
    assert said in _refused(lab, name)


def test_a_raw_template_that_a_guest_writes_is_in_use(tmp_path: Path) -> None:
    """`qemu-img info` takes no lock on a raw image, so it does not tell."""
    file = tmp_path / "golden.raw"
    file.write_bytes(bytes(MIB))
    with subprocess.Popen(
        ["qemu-io", "-f", "raw", file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.read(1)  # the prompt: the image is open
        with pytest.raises(HostError, match="is in use: a guest has it open for writing"):
            inspect_template(LocalHost(), file)
        writer.communicate(timeout=60)
    assert inspect_template(LocalHost(), file).size == MIB


def _cut(file: Path, short: Path, missing: int) -> None:
    """A copy of a file without its last bytes."""
    shutil.copyfile(file, short)
    os.truncate(short, short.stat().st_size - missing)


@pytest.mark.parametrize("form", ["qcow2", "vmdk", "vhdx", "vdi", "qed"])
def test_a_template_that_is_cut_short_is_seen_by_its_tables(tmp_path: Path, form: str) -> None:
    host, whole, short = LocalHost(), tmp_path / f"whole.{form}", tmp_path / f"short.{form}"
    _template(whole, form)
    require_whole(host, inspect_template(host, whole))
    for missing in (200_000, 6 * MIB):
        _cut(whole, short, missing)
        with pytest.raises(HostError, match=r"is cut short|is damaged"):
            require_whole(host, inspect_template(host, short))


def test_a_packed_template_that_is_cut_short_is_seen(tmp_path: Path) -> None:
    raw = tmp_path / "golden.raw"
    raw.write_bytes(os.urandom(65536))
    subprocess.run(["xz", "-0", raw], check=True)
    short = tmp_path / "short.raw.xz"
    _cut(tmp_path / "golden.raw.xz", short, 100)
    with pytest.raises(HostError, match="is cut short or damaged"):
        inspect_template(LocalHost(), short)


def test_a_table_that_is_not_read_in_time_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program named qemu-img, first on PATH, that never ends."""
    image, fake = tmp_path / "golden.qcow2", tmp_path / "bin" / "qemu-img"
    _template(image, "qcow2")
    host = LocalHost()
    given = inspect_template(host, image)
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    monkeypatch.setattr(given_image, "CHECK_SECONDS", 0.2)
    require_whole(host, given)


def _refused(lab: Lab, template: Path | str, *arguments: str) -> str:
    status, printed = lab.call(*_from(lab, template, "xfs/raw/none", *arguments))
    assert status in (2, 3), printed
    assert "Traceback" not in printed
    errors = [line for line in printed.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, printed
    return " ".join(printed.split())


def test_a_full_file_system_fails_the_cell_and_leaves_nothing(lab: Lab) -> None:
    """A program named cp, first on PATH, fills what a copy of the disk does not find room for."""
    fake = lab.directory / "bin" / "cp"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\n"
        'case "$*" in *made-*) echo "cp: error writing: No space left on device" >&2; exit 1;; '
        'esac\nexec /bin/cp "$@"\n'
    )
    fake.chmod(0o755)
    arguments = command(lab, "xfs/raw/none", "--made", "cp,create")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(fake.parent), prepend=":")
        status, printed = lab.call(*arguments)
    assert status == 8, printed
    failed = [run for run in lab.runs() if run.failure is not None]
    assert [run.failure and run.failure.kind for run in failed] == [FailureKind.STORAGE]
    assert failed[0].failure is not None
    assert "no space is left on xfs for the disk that cp makes" in failed[0].failure.message


def test_no_room_for_the_templates_copy_is_said_as_such(lab: Lab) -> None:
    """A program named cp, first on PATH, finds no room for the template."""
    raw = lab.directory / "golden.raw"
    _template(raw, "raw", zeros=31, data=1)
    subprocess.run(["xz", "-0", raw], check=True)
    packed = raw.with_name("golden.raw.xz")
    fake = lab.directory / "bin" / "cp"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "cp: error writing: No space left on device" >&2; exit 1\n')
    fake.chmod(0o755)
    arguments = _from(lab, packed, "xfs/raw/none", "--made", "unpack")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(fake.parent), prepend=":")
        status, printed = lab.call(*arguments)
    assert status == 8, printed
    (failure,) = (run.failure for run in lab.runs())
    assert failure is not None
    assert failure.message.startswith("no space is left for the template's copy in ")


def test_a_file_system_that_fills_up_in_the_middle(lab: Lab) -> None:
    """Somebody else fills it after the campaign has begun: one copy of two finds room."""
    template, file, small = lab.directory / "golden.raw", lab.directory / "small", lab.work
    _template(template, "raw", zeros=24)
    before = hashlib.sha256(template.read_bytes()).hexdigest()
    file.touch()
    os.truncate(file, 400 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", file], check=True)
    subprocess.run(["mount", "-o", "loop", file, small], check=True)
    try:
        arguments = _from(lab, template, "raw/none", "--made", "cp,create", "--guests", "2")
        with lab.start(*arguments) as process:
            _fill_but(small, 80 * MIB, process)
            printed, _ = process.communicate(timeout=120)
        left = sorted(each.name for each in small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)
    assert process.returncode == 8, printed
    by_way = {parse_path(run.path).attachment.made: run.failure for run in lab.runs()}
    assert by_way["create"] is None
    failure = by_way["cp"]
    assert failure is not None
    assert failure.kind is FailureKind.STORAGE
    assert "no space is left on the work directory for the disk that cp makes" in failure.message
    assert left == ["lost+found", "theirs"]
    assert hashlib.sha256(template.read_bytes()).hexdigest() == before


def _fill_but(directory: Path, room: int, process: subprocess.Popen[str]) -> None:
    """Leaves `room` bytes to the campaign, once it has begun to write.

    They hold its random data, 32 MiB, the template's 8 and one disk of 32.
    """
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    assert any(line.startswith("writing") for line in lines), "the campaign did not begin"
    written = sum(file.stat().st_blocks * 512 for file in directory.glob("vdisklab-*/*"))
    free = os.statvfs(directory).f_bfree * os.statvfs(directory).f_frsize
    with (directory / "theirs").open("wb") as opened:
        os.posix_fallocate(opened.fileno(), 0, free - room + written)


_KILLS = {
    # Way, path, and the command of a step that kills vdisklab. It acts afterwards all the same.
    "cp": ("cp", "xfs/raw/none", "cp"),
    "reflink": ("reflink", "xfs/raw/none", "cp"),
    "overlay": ("overlay:depth=2", "xfs/qcow2/none", "qemu-img"),
    "convert": ("convert", "xfs/raw/none", "qemu-img"),
    "btrfs-snapshot": ("btrfs-snapshot", "btrfs/raw/none", "btrfs"),
    "sparse": ("sparse", "xfs/raw/none", "cp"),
    "dd": ("dd", "xfs/raw/none", "dd"),
    "create": ("create", "xfs/qcow2/none", "qemu-img"),
    "first write": ("reflink", "xfs/raw/none", "qemu-io"),
    "delete": ("cp", "xfs/raw/none", "rm"),
    "delete of a snapshot": ("btrfs-snapshot", "btrfs/raw/none", "btrfs *delete"),
}
_EACH_COMMIT = ("cp", "overlay", "btrfs-snapshot")
"""A file, a chain of images and a snapshot: two seconds each. At night the others are killed, which
leave one of these, too."""


@pytest.mark.parametrize(
    ("made", "path", "command"),
    [
        pytest.param(*kill, id=name, marks=() if name in _EACH_COMMIT else pytest.mark.nightly)
        for name, kill in _KILLS.items()
    ],
)
def test_what_a_kill_leaves_is_cleaned(lab: Lab, made: str, path: str, command: str) -> None:
    """The program of a step, first on PATH, kills vdisklab and is still at work when it is gone."""
    program, _, order = command.partition(" ")
    fake, real = lab.directory / "bin" / program, shutil.which(program)
    assert real is not None
    fake.parent.mkdir()
    told = lab.directory / "pid"
    fake.write_text(
        "#!/bin/sh\n"
        f'case "$*" in {order}*made-*) test -f {told} && kill -KILL $(cat {told});; esac\n'
        f'exec {real} "$@"\n'
    )
    fake.chmod(0o755)
    template = lab.directory / "golden.raw"
    _template(template, "raw")
    before = hashlib.sha256(template.read_bytes()).hexdigest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(fake.parent), prepend=":")
        with lab.start(*_from(lab, template, path, "--made", made)) as process:
            told.write_text(str(process.pid))
            printed, _ = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, printed
    assert lab.leftovers() != []
    status, said = lab.call("clean")
    assert status == 0, said
    assert hashlib.sha256(template.read_bytes()).hexdigest() == before


def test_the_first_write_goes_to_a_block_with_data(lab: Lab) -> None:
    """8 MiB of data at 64 MiB, nothing at a quarter of the disk: a reflink shares no hole."""
    template = lab.directory / "golden.raw"
    template.touch()
    os.truncate(template, 96 * MIB)
    with template.open("r+b") as opened:
        opened.seek(64 * MIB)
        opened.write(os.urandom(8 * MIB))
    arguments = _from(lab, template, "xfs/{raw,qcow2}/none", "--made", "reflink,overlay")
    status, printed = lab.call(*arguments)
    assert status == 0, printed
    for run in lab.runs():
        (beneath,) = (check for check in run.checks if check.name == BENEATH)
        assert beneath.observed == "data"
        (first,) = (step for step in run.measurements if step.name == "first-write")
        assert f" {64 * MIB + BLOCK} {BLOCK}" in first.command
        if parse_path(run.path).attachment.made == "reflink":
            assert sample(run, "first-write", "unshared") >= BLOCK


def test_of_a_template_without_data_it_is_said_that_nothing_was_copied(lab: Lab) -> None:
    template = lab.directory / "empty.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", template, "32M"], check=True)
    status, printed = lab.call(*_from(lab, template, "xfs/raw/none", "--made", "reflink"))
    assert status == 0, printed
    assert "the template has no data" in " ".join(printed.split())


@pytest.mark.parametrize("form", ["raw", "qcow2", "vmdk", "vhdx", "vdi", "raw.xz"])
def test_data_are_found_in_each_format(tmp_path: Path, form: str) -> None:
    """Zeros that are written count as none. The name has a comma, which QEMU's options double."""
    raw, file = tmp_path / "golden,1.raw", tmp_path / f"golden,1.{form}"
    host, block = LocalHost(), os.urandom(BLOCK)
    for size, data, wanted in (
        (32, (4 * MIB, 9 * MIB + CLUSTER), 9 * MIB + CLUSTER),
        (32, (4 * MIB,), 4 * MIB),
        (32, (), 8 * MIB + BLOCK),
    ):
        raw.write_bytes(bytes(size * MIB))
        with raw.open("r+b") as opened:
            for place in data:
                opened.seek(place)
                opened.write(block)
        if form == "raw.xz":
            subprocess.run(["xz", "-0", "--keep", "--force", raw], check=True)
        elif form != "raw":
            subprocess.run(["qemu-img", "convert", "-O", form, raw, file], check=True)
        found = find_first_write(host, inspect_template(host, file))
        assert found == FirstWrite(wanted, on_data=bool(data))


def test_a_block_within_a_cluster_is_taken_rather_than_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "golden.raw"
    file.write_bytes(bytes(MIB) + os.urandom(CLUSTER) + bytes(MIB - CLUSTER))
    host = LocalHost()
    assert find_first_write(host, inspect_template(host, file)).offset == MIB + BLOCK


@contextmanager
def _mounted(lab: Lab, *mkfs: str) -> Iterator[Path]:
    """A file system of 400 MiB on a loop device."""
    file, place = lab.directory / f"{mkfs[0]}-disk", lab.directory / f"{mkfs[0]}-mounted"
    file.touch()
    os.truncate(file, 400 * MIB)
    subprocess.run([*mkfs, file], check=True, stdout=subprocess.DEVNULL)
    place.mkdir()
    subprocess.run(["mount", "-o", "loop", file, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def _said(lab: Lab, *arguments: str) -> tuple[int, str]:
    status, printed = lab.call(*arguments)
    return status, " ".join(printed.split())


def test_the_file_system_of_a_directory_decides_about_reflinks(lab: Lab) -> None:
    """Of the work directory and of a target alike: what cannot be is dropped when it is planned."""
    how = ("--profile", "life-host", "--size", "16M", "--db", str(lab.database))
    with _mounted(lab, "mkfs.ext4", "-q") as ext4, _mounted(lab, "mkfs.xfs", "-q") as xfs:
        for place, can in ((ext4, False), (xfs, True)):
            status, said = _said(lab, "plan", "raw/none", "--dir", str(place), *how)
            assert status == 0, said
            assert ("made=reflink" in said) is can
            only = ("raw/none", "--made", "reflink", "--dir", str(place))
            status, said = _said(lab, "plan", *only, *how)
            assert (status == 0) is can, said
            refused = "the work directory is on ext4, which shares no blocks between files here"
            assert (refused in said) is not can
            named = ("t/raw/none", "--target", f"t={place}", "--made", "cp,reflink")
            verb = ("run", "--rounds", "1") if can else ("plan",)
            status, said = _said(lab, *verb, *named, "--dir", str(lab.work), *how)
            assert status == 0, said
            assert ("target t is on ext4, which shares no blocks" in said) is not can
    made = [parse_path(run.path).attachment.made for run in lab.runs() if run.failure is None]
    assert sorted(map(str, made)) == ["cp", "reflink"]


def test_a_template_that_a_loop_device_may_write_is_in_use(tmp_path: Path) -> None:
    file, host = tmp_path / "golden.raw", LocalHost()
    file.write_bytes(bytes(MIB))
    device = attach_loop(file, direct_io=False)
    try:
        with pytest.raises(HostError, match=f"is in use: {device} is attached to it"):
            inspect_template(host, file)
    finally:
        detach_loop(device)
    attach = ("losetup", "--read-only", "--find", "--show", file)
    device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    try:
        assert inspect_template(host, file).size == MIB
    finally:
        detach_loop(device)


def test_a_changed_template_is_another_plan(lab: Lab) -> None:
    template = lab.directory / "golden.raw"
    _template(template, "raw", zeros=24)
    # On a file system of its own: the space of one that others write to is long in coming back.
    arguments = _from(lab, template, "xfs/raw/none", "--made", "cp")
    status, said = _said(lab, *arguments)
    assert status == 0, said
    status, said = _said(lab, *arguments)
    assert "already measured" in said
    with template.open("r+b") as opened:
        opened.write(os.urandom(CLUSTER))
    status, said = _said(lab, *arguments)
    assert (status, "already measured" in said) == (0, False), said
    assert len({run.campaign for run in lab.runs()}) == len(lab.runs()) == 2


CHANGED = "golden.raw changed during the campaign"


def test_a_template_that_changes_during_the_run_fails_what_is_left_of_it(lab: Lab) -> None:
    """What was measured before is kept; the same command then measures the new template."""
    template = lab.directory / "golden.raw"
    _template(template, "raw", zeros=24)
    arguments = _from(lab, template, "xfs/raw/none", "--made", "cp,dd,sparse,reflink,convert")
    with lab.start(*arguments) as process:
        lab.wait_for_runs(process, 1)
        with template.open("r+b") as opened:
            opened.write(os.urandom(CLUSTER))
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 8, printed
    assert f"{CHANGED}\nhint: stop the program that writes to it, and run the same" in printed
    failures = [run.failure for run in lab.runs()]
    assert len(failures) == 5
    assert failures[0] is None
    assert failures[-1] is not None
    assert CHANGED in failures[-1].sentence
    status, said = _said(lab, *arguments)
    assert status == 0, said
    assert len({run.campaign for run in lab.runs()}) == 2


def test_a_template_that_changes_while_it_is_copied_makes_no_disk(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, programs = lab.directory / "golden.raw", lab.directory / "programs"
    _template(template, "raw", zeros=24)
    programs.mkdir()
    fake = programs / "cp"
    fake.write_text(f'#!/bin/sh\n{shutil.which("cp")} "$@" && touch {template}\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    status, said = _said(lab, *_from(lab, template, "xfs/qcow2/none", "--made", "convert"))
    assert (status, CHANGED in said) == (8, True), said


def test_of_a_block_device_a_sample_is_compared(lab: Lab) -> None:
    """A device has no time of change: what is written beside the sample goes unseen."""
    file, host = lab.directory / "golden.raw", LocalHost()
    file.write_bytes(os.urandom(32 * MIB))
    device = Path(attach_loop(file, direct_io=False))

    def state() -> str:
        return inspect_template(host, device).state

    def write(offset: int) -> None:
        with device.open("r+b") as opened:
            opened.seek(offset)
            opened.write(os.urandom(BLOCK))

    try:
        before = state()
        assert before.startswith(f"{32 * MIB} bytes, sample ")
        pieces = given_image.sampled(32 * MIB)
        beside = next(
            first + given_image.PIECE
            for first, second in itertools.pairwise(pieces)
            if second >= first + given_image.PIECE + BLOCK
        )
        write(beside)
        assert state() == before
        for offset in (0, 3 * MIB, pieces[-9], 32 * MIB - BLOCK):
            write(offset)
            assert state() != before
            before = state()
        arguments = _from(lab, device, "xfs/raw/none", "--made", "cp")
        for changed in (True, False):
            status, said = _said(lab, *arguments)
            assert status == 0, said
            assert ("already measured" in said) is not changed
        write(MIB)
        status, said = _said(lab, *arguments)
        assert (status, "already measured" in said) == (0, False), said
    finally:
        detach_loop(str(device))
    whole = given_image.sampled(16 * MIB)
    assert {*range(0, 16 * MIB, given_image.PIECE)} <= set(whole), "all of a small one"
