"""Every parser of text from outside, with whole inputs to damage and its share of the inputs."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from vdisklab.analysis.claimfile import parse_claims
from vdisklab.audit.configured_disk import disk_path, risks
from vdisklab.audit.domain import read_domain
from vdisklab.audit.guest_texts import GuestText, read_guests
from vdisklab.cli.main import EXIT_BUG
from vdisklab.cli.main import main as run_verb
from vdisklab.errors import VdisklabError, WorkloadError
from vdisklab.export.libvirt import QEMU_NAMESPACE
from vdisklab.guest.agent import Agent
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.qmp import Channel
from vdisklab.guest.qemu.qmp_models import (
    device_statistics,
    inserted_node,
    iothreads,
    running_version,
)
from vdisklab.guest.system.detect_os import detect_os
from vdisklab.host.ledger import pending
from vdisklab.path.backing import BackingDevices
from vdisklab.path.braces import expand, expand_segments
from vdisklab.path.cell import MeasuredCell
from vdisklab.path.disk_path import parse_path
from vdisklab.path.durability import durability
from vdisklab.path.needs import nearest, parse_needs, unmet
from vdisklab.path.rules import impossible
from vdisklab.plan.plan_file import parse_plan_file
from vdisklab.plan.profile import MeasurementPlan, parse_profile
from vdisklab.plan.settings import Request, check, command_words
from vdisklab.powercut.cutting.cuts import parse_cut
from vdisklab.powercut.judging.image_reader import BadImageError, read_metadata
from vdisklab.powercut.recording.trace import trace_from_json
from vdisklab.powercut.recording.write_log import LogWriter, read_log
from vdisklab.results.address import parse_address, without_password
from vdisklab.results.exchange import is_export, read_export
from vdisklab.results.model import Direction
from vdisklab.results.store import open_store
from vdisklab.services.campaign_files import import_campaigns, require_usable_plan
from vdisklab.services.import_results import read_file
from vdisklab.units import parse_duration, parse_size
from vdisklab.workload import bandwidth_series
from vdisklab.workload.fiojob import job_profile, job_seconds, makers, reach
from vdisklab.workload.importers.formats import recognise
from vdisklab.workload.program import Output
from vdisklab.workload.registry import WORKLOADS, builtin_profile_text, builtin_profiles

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser, whole inputs of it, and its share of the inputs.

    Bytes are given as text of Latin-1. `patience` multiplies the time limit of an input.
    """

    name: str
    share: float
    seeds: tuple[str, ...]
    read: Callable[[str], object]
    patience: float = 1.0


def parsers(scratch: Path) -> tuple[Parser, ...]:
    """All parsers; those that read files write them below `scratch`."""
    return (
        *_of_paths(),
        *_of_files(),
        *_of_results(scratch),
        *_of_guests(),
        *_of_images(scratch),
        *_of_databases(scratch),
    )


def _of_paths() -> Iterable[Parser]:
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
    yield Parser("power-cut case", 70, ("12-ff", "3-1f-2-512-77", "0-0"), parse_cut)


def _path(text: str) -> object:
    path = parse_path(text)
    if parse_path(path.canonical) != path:
        raise AssertionError(f"{path.canonical} is another path")
    impossible(path, BackingDevices())
    return path.fingerprint, str(path), path.stack, durability(path, {})


def _pattern(text: str) -> object:
    return expand(text), expand_segments(text)


def _needs(text: str) -> object:
    needs = parse_needs(text.split(","))
    path = parse_path("ext4/raw/writeback")
    return unmet(path, needs, {}), nearest(path, needs, {})


def _address(text: str) -> object:
    return str(parse_address(text)), without_password(text)


def _of_files() -> Iterable[Parser]:
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
blocks = 5
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


def _recorded(*names: str) -> tuple[str, ...]:
    return tuple((DATA / name).read_text("utf-8") for name in names)


def _of_results(scratch: Path) -> Iterable[Parser]:
    fio = _recorded(
        "fio-3.33-plain.json",
        "fio-3.33-fsync.json",
        "fio/randrw-fio-3.33.json",
        "fio/enospc-fio-3.33.txt",
    )
    logs = _recorded("fio-3.33-3jobs_bw.log", "fio-3.33-frozen_bw.log", "fio-3.33-randrw_bw.log")
    bonnie = _recorded(
        "bonnie-2.00a-short.csv",
        "bonnie-2.00a-fast.csv",
        "foreign/bonnie-1.03e.txt",
        "foreign/bonnie-2.00a-whole.txt",
        "foreign/bonnie-2.00a-x2.csv",
    )
    sysbench = _recorded(
        *(f"sysbench-1.0.20-{mode}.txt" for mode in ("rndrd", "rndwr", "histogram")),
        "foreign/sysbench-0.4.12.txt",
    )
    diskmark = _recorded(
        *(f"foreign/crystaldiskmark-{version}.txt" for version in ("3.0", "6.0", "8.0.0"))
    )
    dd = _recorded("dd-9.1-4k.txt", "dd-9.1-progress.txt")
    diskspd = _recorded("foreign/diskspd-2.0.xml")
    every = (*fio, *bonnie, *sysbench, *diskmark, *dd, *diskspd)
    yield Parser("import of fio", 5, fio, recognise)
    yield Parser("import of bonnie++", 20, bonnie, recognise)
    yield Parser("import of sysbench", 5, sysbench, recognise)
    yield Parser("import of CrystalDiskMark", 20, diskmark, recognise)
    yield Parser("import of dd", 25, dd, recognise)
    yield Parser("import of DISKSPD", 6, diskspd, recognise)
    yield Parser(
        "import of a file",
        2,
        tuple(text.encode().decode("latin-1") for text in every),
        lambda text: read_file(_file(scratch / "result", text)),
    )
    yield Parser("log of fio", 8, tuple(text[:3000] for text in logs), _log)
    yield Parser("output of a program", 1.5, every, _output)
    exported = _exported(6)
    yield Parser("export of vdisklab", 2.5, (exported, _exported(1)), _export)


def _log(text: str) -> object:
    run = bandwidth_series.LoggedRun(
        0.1, 5.0, {Direction.READ: 1 << 20, Direction.WRITE: 1 << 20}, 0.2
    )
    return bandwidth_series.lines_of_log(text), bandwidth_series.read_log(text, run)


_PLANS = {
    "fio": MeasurementPlan("m", "fio", {"rw": "randread", "bs": "4k"}),
    "dd": MeasurementPlan("m", "dd", {"bs": "4k", "count": 16384}),
    "bonnie++": MeasurementPlan("m", "bonnie++", {}),
    "sysbench": MeasurementPlan("m", "sysbench", {"mode": "rndrd"}),
}


def _output(text: str) -> object:
    for name, plan in _PLANS.items():
        with suppress(WorkloadError):
            WORKLOADS[name].parse(plan, Output(text, text, {}))
    return None


def _exported(runs: int) -> str:
    """The recorded campaign with its first runs, without the output of programs."""
    document = json.loads(gzip.decompress((ROOT / "docs/images/campaign.json.gz").read_bytes()))
    document["metrics"], document["power_cuts"] = (
        document["metrics"][:3],
        document["power_cuts"][:1],
    )
    (campaign, *_) = document["campaigns"]
    campaign["runs"] = campaign["runs"][:runs]
    for run in campaign["runs"]:
        for measurement in run["measurements"]:
            measurement["raw"], measurement["series"] = "", measurement["series"][:1]
    return json.dumps({**document, "campaigns": [campaign]})


def _export(text: str) -> object:
    content = text.encode(errors="surrogatepass")
    export = read_export(content, name="x.json")
    for each in export.campaigns:
        require_usable_plan(each.campaign, "x.json")
    return is_export(content)


def _of_guests() -> Iterable[Parser]:
    argv = [
        (
            "-blockdev",
            {
                "driver": "qcow2",
                "node-name": "f",
                "file": "p",
                "discard": "unmap",
                "cache": {"direct": True, "no-flush": False},
            },
        ),
        ("-blockdev", {"driver": "file", "node-name": "p", "filename": "/x", "aio": "native"}),
        ("-object", {"qom-type": "iothread", "id": "t"}),
        ("-device", {"driver": "virtio-scsi-pci", "id": "s", "iothread": "t", "num_queues": 2}),
        ("-device", {"driver": "scsi-hd", "drive": "f", "id": "d", "bus": "s.0"}),
    ]
    words = [
        word for flag, value in argv for word in (flag, json.dumps(value).replace('"', "&quot;"))
    ]
    tags = "".join(f'<qemu:arg value="{word}"/>\n' for word in words)
    commandline = (
        f'<domain xmlns:qemu="{QEMU_NAMESPACE}"><name>web</name>\n'
        f"<qemu:commandline>{tags}</qemu:commandline></domain>"
    )
    yield Parser("libvirt domain", 20, (_DOMAIN,), _domain)
    yield Parser("QEMU arguments", 15, (commandline,), _domain)
    yield Parser("guests of other managers", 15, _GUESTS, _guests)
    answers = [json.loads(text)["answers"] for text in _recorded("qmp/qemu-7.2.22-virtio.json")]
    names = ("query-block", "query-blockstats", "query-iothreads", "query-version")
    qmp = json.dumps(
        {
            name: answers[0].get(
                name, {"qemu": {"major": 7, "minor": 2, "micro": 2}, "package": ""}
            )
            for name in names
        }
    )
    yield Parser("QEMU's answers", 10, (qmp,), _qmp)
    yield Parser("the agent's answers", 20, (json.dumps(_AGENT),), _agent)


_DOMAIN = f"""\
<domain type='kvm' xmlns:qemu='{QEMU_NAMESPACE}'>
  <name>web</name>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='none' io='native' discard='unmap'
       queues='4' iothread='1'/>
      <source file='/var/lib/libvirt/images/web.qcow2'/>
      <target dev='vda' bus='virtio'/><alias name='ua-one'/>
    </disk>
    <disk type='block' device='disk'><driver name='qemu' type='raw' cache='unsafe'/>
      <source dev='/dev/vg/web'/><target dev='sda' bus='scsi'/>
      <address type='drive' controller='0'/><readonly/>
    </disk>
    <disk type='network' device='cdrom'><target dev='hdc' bus='ide'/></disk>
    <controller type='scsi' index='0' model='virtio-scsi'>
      <driver queues='2' iothread='1'/></controller>
  </devices>
  <metadata><v:disks xmlns:v='urn:x'><v:disk target='vda' path='qcow2/none'/></v:disks></metadata>
  <qemu:override><qemu:device alias='ua-one'><qemu:frontend>
    <qemu:property name='write-cache' type='string' value='on'/>
  </qemu:frontend></qemu:device></qemu:override>
</domain>
"""


def _domain(text: str) -> object:
    return [(disk_path(disk), risks(disk)) for disk in read_domain(text, "web.xml")]


_GUESTS = (
    "name: web\nscsihw: virtio-scsi-pci\nscsi0: /srv/a.qcow2,cache=none,iothread=1,mbps=5\n",
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a}\nspec:\n  template:\n"
    "    spec:\n      domain: {devices: {disks: [{name: d, disk: {bus: virtio}}]}}\n"
    "      volumes: [{name: d, hostDisk: {path: /a.img}}]\n",
    "- {name: a, config: {}, devices: {d: {type: disk, source: /dev/sdz, io.cache: none}}}\n",
    "qemu-system-x86_64 -drive file=/a,if=none,id=d,cache=none -device virtio-blk-pci,drive=d",
)


def _guests(text: str) -> object:
    return [(disk_path(disk), risks(disk)) for disk in read_guests([GuestText(text, "a.txt")])]


def _values(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value; a text that is no JSON does not get past QEMU's own protocol."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VdisklabError("not JSON") from error


def _qmp(text: str) -> object:
    value = _values(text)
    answers: Mapping[str, Any] = value if isinstance(value, dict) else {}
    machine = cast("Machine", SimpleNamespace(query=answers.get, pid=1))
    for ask in (
        running_version,
        iothreads,
        lambda m: inserted_node(m, "virtio0"),
        lambda m: device_statistics(m, "virtio0"),
    ):
        with suppress(VdisklabError):
            ask(machine)
    return None


_AGENT: dict[str, Any] = {
    "guest-info": {
        "version": "8.0",
        "supported_commands": [
            {"name": name, "enabled": True}
            for name in (
                "guest-exec",
                "guest-exec-status",
                "guest-file-open",
                "guest-file-read",
                "guest-file-close",
                "guest-get-osinfo",
            )
        ],
    },
    "guest-get-osinfo": {"id": "debian", "pretty-name": "Debian 12", "version-id": "12"},
    "guest-exec": {"pid": 7},
    "guest-file-open": 1000,
    "guest-file-close": {},
    "guest-exec-status": {
        "exited": True,
        "exitcode": 0,
        "out-data": "aGVsbG8=",
        "err-data": "",
        "signal": 0,
    },
    "guest-file-read": {"count": 5, "buf-b64": "aGVsbG8=", "eof": True},
}


class _Recorded:
    """A channel whose answers are known beforehand."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers

    def execute(self, command: str, *_: object, **__: object) -> Any:  # noqa: ANN401
        return self._answers.get(command)

    def pause(self, _seconds: float) -> None:
        raise VdisklabError("the agent has no further answer")


def _agent(text: str) -> object:
    value = _values(text)
    agent = Agent(cast("Channel", _Recorded(value if isinstance(value, dict) else {})))
    for ask in (
        lambda: detect_os(agent, None),
        lambda: agent.run(("true",), timeout=0.0),
        lambda: agent.read_file("/x"),
    ):
        with suppress(VdisklabError):
            ask()
    return None


def _file(file: Path, text: str) -> Path:
    file.write_bytes(text.encode("latin-1", errors="replace"))
    return file


def _of_images(scratch: Path) -> Iterable[Parser]:
    image, log = scratch / "disk.qcow2", scratch / "writes.log"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-o", "cluster_size=512", str(image), "64k"],
        check=True,
        timeout=60,
    )
    with log.open("w+b") as opened:
        writer = LogWriter(opened.fileno())
        for number in range(6):
            writer.write(number * 4096, bytes([number]) * 512)
        writer.flush()
        writer.discard(8192, 4096)
        writer.zero(0, 1024)
    trace = json.dumps(
        {
            "path": "ext4/raw/none",
            "client": "flushes",
            "access": "nbd",
            "filesystem": "ext4",
            "mount_options": ["data=ordered"],
            "image": "disk.raw",
            "image_format": "raw",
            "image_size": 8388608,
            "disk_size": 20971520,
            "filled": True,
            "begin": 3,
            "end": 99,
            "writes": [
                {"version": 1, "first": 0, "count": 8, "submitted": 4, "acked": 5, "promised": 7}
            ],
            "seen": {"cluster_size": "65536"},
            "flushes": [[6, 7]],
        }
    )
    yield Parser(
        "qcow2 image",
        5,
        (image.read_bytes().decode("latin-1"),),
        lambda text: _qcow2(_file(scratch / "image", text)),
    )
    yield Parser(
        "log of writes",
        5,
        (log.read_bytes().decode("latin-1"),),
        lambda text: read_log(_file(scratch / "log", text)),
    )
    yield Parser("recording", 30, (trace,), trace_from_json)
    ledger = "".join(
        json.dumps(line) + "\n"
        for line in (
            {"add": 1, "kind": "loop", "name": "/dev/loop0", "detail": {"file": "/x"}},
            {"add": 2, "kind": "mount", "name": "/mnt", "detail": {}},
            {"strike": 2},
        )
    )
    yield Parser("ledger", 5, (ledger,), lambda text: pending(_file(scratch / "ledger", text)))


def _qcow2(file: Path) -> object:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return read_metadata(descriptor).offsets_of(np.arange(16))
    except BadImageError as error:
        raise VdisklabError(str(error)) from error
    finally:
        os.close(descriptor)


def _of_databases(scratch: Path) -> Iterable[Parser]:
    file, damaged = scratch / "whole.sqlite", scratch / "damaged.sqlite"
    export = scratch / "campaign.json"
    export.write_text(_exported(12))
    import_campaigns(str(file), [export])
    with sqlite3.connect(file) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        columns = [
            (table, row[1])
            for table in tables
            for row in connection.execute(f"PRAGMA table_info({table})")
        ]
    connection.close()
    statements = [
        f"UPDATE {table} SET {column} = 'x' WHERE rowid % 2 = 1 OR 7 = 7;\n"  # noqa: S608
        for table, column in columns
    ]
    statements += [f"DELETE FROM {table} WHERE rowid > 2;\n" for table in tables]  # noqa: S608
    statements += [f"DROP TABLE {table};\n" for table in tables]
    statements += [f"ALTER TABLE {table} DROP COLUMN {column};\n" for table, column in columns]

    def values(text: str) -> object:
        shutil.copyfile(file, damaged)
        with suppress(sqlite3.Error, UnicodeError, sqlite3.Warning, ValueError):
            connection = sqlite3.connect(damaged, isolation_level=None)
            connection.execute("PRAGMA synchronous = OFF")
            for statement in text.split(";\n"):
                with suppress(sqlite3.Error, sqlite3.Warning):
                    connection.execute(statement)
            connection.close()
        return _verb(damaged, len(text))

    def pages(text: str) -> object:
        return _verb(_file(damaged, text), len(text))

    def imported(text: str) -> object:
        damaged.unlink(missing_ok=True)
        export.write_bytes(text.encode(errors="replace"))
        import_campaigns(str(damaged), [export])
        return _verb(damaged, len(text))

    yield Parser("values in a database", 0.03, tuple(statements), values, patience=20)
    yield Parser(
        "pages of a database", 0.01, (file.read_bytes().decode("latin-1"),), pages, patience=20
    )
    yield Parser("verbs after an import", 0.01, (_exported(12),), imported, patience=20)


_VERBS = (
    ("runs",),
    ("rank",),
    ("table",),
    ("recommend",),
    ("claims",),
    ("compare", "raw/none", "raw/writeback"),
    ("report", "--format", "json", "-o", "/dev/null"),
    ("export-data", "/dev/null"),
    ("export-data", "/dev/null.csv"),
    ("table", "--as", "grid"),
    ("runs", "--format", "json"),
    ("export", "raw/none"),
    ("table", "--as", "bonnie"),
    ("rank", "--format", "json"),
)


def _verb(file: Path, number: int) -> object:
    """One verb on a database. Raises AssertionError if it calls its end a bug."""
    told = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(told):
        status = run_verb((*_VERBS[number % len(_VERBS)], "--db", str(file)))
        if status == 0:
            with suppress(VdisklabError), open_store(str(file), create=False) as store:
                for run in store.runs():
                    store.run(run.id)
    if status == EXIT_BUG:
        raise AssertionError(f"{' '.join(_VERBS[number % len(_VERBS)])}: {told.getvalue()[:200]}")
    return status
