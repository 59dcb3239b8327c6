"""Parsers of what a user types or writes: paths, needs, sizes, plan files, profiles, job files."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

from fuzz_inputs import ROOT, Parser
from vdisklab.analysis.claimfile import parse_claims
from vdisklab.path.backing import BackingDevices
from vdisklab.path.braces import expand, expand_segments
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import CrashVerdicts, durability
from vdisklab.path.needs import nearest, parse_needs, unmet
from vdisklab.path.rules import impossible
from vdisklab.plan.option_rows import check
from vdisklab.plan.plan_file import parse_plan_file
from vdisklab.plan.profile_file import parse_profile
from vdisklab.plan.settings import Request, command_words
from vdisklab.powercut.crash_states import parse_crash_state
from vdisklab.results.database import parse_address, without_password
from vdisklab.units import parse_duration, parse_size
from vdisklab.workload.builtin_profiles import builtin_profile_text, builtin_profiles
from vdisklab.workload.fiojob import job_profile, job_seconds, makers, reach


def path_parsers() -> Iterable[Parser]:
    paths = (
        "ext4/qcow2:cluster_size=2M:preallocation=metadata/none/virtio:queues=4:iothread=on",
        "lvm/xfs/raw/writeback",
        "host",
        "tmpfs/null/unsafe/nvme",
        "md:level=raid10/raw/directsync",
        "btrfs:compress=zstd:raid=raid1/vmdk/default/scsi:discard=unmap",
        "zfs:recordsize=16k/host",
        "raw/default",
        "luks/ext4/qed/none/sata:write_cache=on",
        "dm-thin/raw/none/usb",
    )
    patterns = (
        "{ext4,xfs}/{raw,qcow2:cluster_size={64k,2M}}/{none,writeback}",
        "raw/none/virtio:queues={1..16..3}",
        "qcow2:cluster_size={a..e}/none",
        "{{a,b},c}{d,}",
        r"ext4\{a\,b}",
        "{1..3}{x..z}",
    )
    needs = (
        "durable,snapshots",
        "format=qcow2",
        "bus=virtio cache=none layer=lvm",
        "discard",
        "live-migration",
    )
    yield Parser("disk path", 250, paths, _path)
    yield Parser("braces", 100, (*patterns, *paths), _pattern)
    yield Parser(
        "cell",
        110,
        (*(f"{path} (warm)" for path in paths), "host qemu=10.0.2", "my VM at home"),
        lambda text: MeasuredCell.parse(text).label,
    )
    yield Parser("needs", 40, needs, _needs)
    yield Parser(
        "size", 110, ("4096", "64k", "512M", "2GiB", "1T", "18446744073709551615"), parse_size
    )
    yield Parser("duration", 90, ("5", "500ms", "1.5s", "30m", "2h"), parse_duration)
    yield Parser(
        "database address",
        70,
        (
            "results.sqlite",
            "~/results.sqlite",
            "sqlite:////var/lib/x.db",
            "postgresql://me:secret@db.example/bench",
            "postgres://me@[::1]:5432/bench?host=/run/pg&password=x",
            "mysql://a/b",
        ),
        _address,
    )
    yield Parser("power-cut case", 70, ("12-ff", "3-1f-2-512-77", "0-0"), parse_crash_state)


def _path(text: str) -> object:
    path = parse_path(text)
    if parse_path(path.canonical) != path:
        raise AssertionError(f"{path.canonical} is another path")
    impossible(path, BackingDevices())
    return path.fingerprint, str(path), path.stack, durability(path, CrashVerdicts())


def _pattern(text: str) -> object:
    return expand(text), expand_segments(text)


def _needs(text: str) -> object:
    needs = parse_needs(text.split(","))
    path = parse_path("ext4/raw/writeback")
    return unmet(path, needs, CrashVerdicts()), nearest(path, needs, CrashVerdicts())


def _address(text: str) -> object:
    return str(parse_address(text)), without_password(text)


def file_parsers() -> Iterable[Parser]:
    folder = resources.files("vdisklab.analysis") / "claims_data"
    claims = [each.read_text("utf-8") for each in folder.iterdir() if each.name.endswith(".toml")]
    profiles = [builtin_profile_text(name) for name in builtin_profiles()]
    yield Parser("plan file", 40, (_PLAN, (ROOT / "bench/search-profile.toml").read_text()), _plan)
    yield Parser("profile", 10, tuple(profiles), lambda text: parse_profile(text, "x.toml"))
    yield Parser(
        "claims",
        3,
        tuple(text[:6000] for text in claims),
        lambda text: parse_claims(text, "x.toml"),
    )
    yield Parser("fio job file", 80, (_JOB, _JOB.replace("[c]", "[global]\nstonewall\n[c]")), _job)


_PLAN = """\
paths = ["{ext4,xfs}/{raw,qcow2}/none", "host"]
profile = "quick"
rounds = 5
runtime = "10s"
ramp = 1.5
size = "2G"
directory = "/srv/images"
page_cache = "both"
baseline = "host"
label = "night"
seed = 7
max_paths = 100

[guest]
memory = "512M"
cpus = 2
accelerator = "kvm"
image = "/var/lib/images/debian.qcow2"
"""

_JOB = """\
; a comment
[global]
ioengine=libaio
direct=1
size=50%
runtime=30s
[a]
rw=randread
bs=4k
numjobs=4
offset_increment=1G
[b]
stonewall
rw=write
bsrange=4k-64k
filename=data
startdelay=500ms
filesize=1M-2M
nrfiles=3
[c]
rw=randrw
"""


def _plan(text: str) -> object:
    request = parse_plan_file(text, "plan.toml", Request)
    check(request)
    return command_words(request)


def _job(text: str) -> object:
    profile = job_profile(text, "job.fio")
    return (
        profile.name,
        job_seconds(text),
        makers(text, ()),
        [reach(text, (), 1 << 30, 1 << 20, in_directory=inside) for inside in (True, False)],
    )
