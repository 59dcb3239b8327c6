"""Plan files, their JSON schema, and the command line on top of them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from vdisklab.errors import PlanError
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.durability import HostDisk
from vdisklab.path.platforms import Platform
from vdisklab.plan.accelerator import AcceleratorChoice
from vdisklab.plan.age import Age
from vdisklab.plan.cache_memory import CacheMemory
from vdisklab.plan.option_rows import given, merge, settings_of
from vdisklab.plan.plan_file import parse_plan_file, plan_file_schema
from vdisklab.plan.settings import Request

SCHEMA_FILE = Path(__file__).parents[3] / "docs" / "plan.schema.json"

FULL = """
paths = ["{ext4,xfs}/qcow2/{none,writeback}", "ext4/host"]
platform = ["proxmox"]
profile = "quick"
rounds = 7
runtime = "500ms"
ramp = 1
size = "2G"
dir = "/srv/images"
devices = ["/dev/sdb", "/dev/sdc"]
disks = 2
disk = "plp"
arc = "1G"
db = "postgresql://lab/runs"
seed = 42
age = "rewrites=2,snapshots=1"
page_cache = "cold"
cache_memory = "25%"
baseline = "ext4/host"
label = "new SSD"
scale = 0.5
keep_equal = true

[guest]
architecture = "arm64"
cpus = 4
memory = 1073741824
accelerator = "tcg"
kernel = "/boot/vmlinuz"
"""
FULL_REQUEST = Request(
    paths=("{ext4,xfs}/qcow2/{none,writeback}", "ext4/host"),
    platform=(Platform.PROXMOX,),
    profile="quick",
    rounds=7,
    runtime=0.5,
    ramp=1.0,
    size_bytes=2 << 30,
    directory=Path("/srv/images"),
    devices=(Path("/dev/sdb"), Path("/dev/sdc")),
    disks=2,
    disk=HostDisk.PLP,
    arc_bytes=1 << 30,
    db="postgresql://lab/runs",
    seed=42,
    age=Age(rewrites=2, snapshots=1),
    page_cache=PageCacheChoice.COLD,
    cache_memory=CacheMemory(None, 0.25),
    baseline="ext4/host",
    label="new SSD",
    scale=0.5,
    keep_equal=True,
    accelerator=AcceleratorChoice.TCG,
    guest_arch="aarch64",
    guest_cpus=4,
    guest_memory=1 << 30,
    guest_kernel="/boot/vmlinuz",
)


def test_every_key_is_read() -> None:
    assert parse_plan_file(FULL, "plan.toml", Request) == FULL_REQUEST
    not_said = {row.key for row in settings_of(Request)} - {
        row.key for row, _ in given(FULL_REQUEST)
    }
    assert not_said == {
        "qemu", "image", "firmware", "system_bus", "boot", "diskspd", "scheduler", "filesystem",
        "mount", "guests", "load", "clients", "during", "during_limit", "made", "from",
        "neighbour", "target", "to", "",
    }  # fmt: skip


def test_nothing_said_is_nothing_asked() -> None:
    assert parse_plan_file("", "plan.toml", Request) == Request()
    assert parse_plan_file("[guest]", "plan.toml", Request) == Request()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("rounds = 'x'", "key 'rounds' of plan.toml should be a whole number, not 'x'", "number"),
        ("rounds = true", "should be a whole number, not true", "number"),
        ("rounds = 2.5", "should be a whole number, not 2.5", "number"),
        ("rounds = 0", "'rounds' of plan.toml should be at least 1, not 0", "from 1"),
        ("round = 1", "key 'round' of plan.toml is unknown", "did you mean rounds?"),
        ("[guest]\nmemroy = 1", r"key 'memroy' in table \[guest\] of plan.toml", "mean memory?"),
        ("[geust]", "key 'geust' of plan.toml is unknown", "did you mean guest?"),
        ("guest = 1", "key 'guest' of plan.toml should be a table, not 1", "virtual machine"),
        ("paths = 'raw'", "key 'paths' of plan.toml should be a list", "Disk paths"),
        ("paths = ['raw', 1]", "item 2 of key 'paths' of plan.toml", "Disk paths"),
        ("size = '1Q'", "key 'size' of plan.toml: '1Q' is not a size", "512M"),
        ("size = 1.5", "key 'size' of plan.toml should be a whole number", "512M"),
        ("runtime = 'long'", "key 'runtime' of plan.toml: 'long' is not a duration", "500ms"),
        ("runtime = inf", "key 'runtime' of plan.toml: inf is not a duration", "500ms"),
        ("runtime = 2020-01-01", "should be a number, not 2020-01-01", "seconds"),
        ("page_cache = 'hot'", "should be 'cold', 'warm' or 'both', not 'hot'", "page cache"),
        ("[guest]\naccelerator = 'xen'", "should be 'auto', 'kvm' or 'tcg'", "auto is KVM"),
        ("dir = ''", "key 'dir' of plan.toml should not be empty", "work directory"),
        ("rounds = 1\nrounds = 2\n", "plan.toml is not valid TOML: .*line 2", "quotes"),
        ("paths = [", "plan.toml is not valid TOML", "quotes"),
    ],
)
def test_errors_name_file_table_and_key(text: str, message: str, hint: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        parse_plan_file(text, "plan.toml", Request)
    assert "\n" not in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_the_command_line_wins_key_by_key() -> None:
    command_line = Request(paths=("raw/none",), rounds=1, ramp=0.0, label="", guest_cpus=1)
    merged = merge(FULL_REQUEST, command_line)
    assert merged.paths == ("raw/none",)
    assert (merged.rounds, merged.ramp, merged.label) == (1, 0.0, "")
    assert (merged.guest_cpus, merged.guest_memory) == (1, 1 << 30)
    assert merged.seed == 42


def test_nothing_on_either_side_changes_nothing() -> None:
    assert merge(FULL_REQUEST, Request()) == FULL_REQUEST
    assert merge(Request(), FULL_REQUEST) == FULL_REQUEST


def test_committed_schema_is_current() -> None:
    # When this fails: run script/plan-schema.
    assert SCHEMA_FILE.read_text() == json.dumps(plan_file_schema(), indent=2) + "\n"


@pytest.mark.parametrize("text", [FULL, "", "runtime = 2.5\nsize = '512MiB'\n[guest]\ncpus = 1"])
def test_schema_accepts_what_we_read(text: str) -> None:
    parse_plan_file(text, "plan.toml", Request)
    jsonschema.Draft202012Validator(plan_file_schema()).validate(tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    ["round = 1", "rounds = 0", "rounds = 'x'", "size = '1Q'", "runtime = 'x'", "paths = [1]",
     "page_cache = 'hot'", "[guest]\nx = 1", "[guest]\naccelerator = 'xen'"],
)  # fmt: skip
def test_schema_refuses_what_we_refuse(text: str) -> None:
    with pytest.raises(PlanError):
        parse_plan_file(text, "plan.toml", Request)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(plan_file_schema()).validate(tomllib.loads(text))
