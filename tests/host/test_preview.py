"""`plan --commands` prints what a run executes: the builders run once for real, once recorded."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tests.unit.campaign.plans import a_plan
from vdisklab.campaign.host_stacks import HostStacks
from vdisklab.campaign.preview import GuestFiles, preview_cell
from vdisklab.campaign.preview_during import AFTER, BEFORE, DURING, GUEST, QEMU
from vdisklab.host.command import Completed, LocalHost, PathArg
from vdisklab.host.ledger import open_ledger
from vdisklab.operations.operation import OperationKind
from vdisklab.operations.registry import OPERATIONS
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.build import build_plan
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.capabilities import Capabilities
from vdisklab.plan.settings import Request
from vdisklab.progress import silent
from vdisklab.storage.image import random_source
from vdisklab.storage.site import open_site
from vdisklab.value import replace
from vdisklab.workload.profile_files import requested_profile

pytestmark = pytest.mark.host

# Programs that only look.
_LOOKING = re.compile(
    r"losetup --json|qemu-img (info|map)|xfs_info|z(fs|pool) (get|list|status)|modprobe|lsblk|blkid"
)


class LoggingHost(LocalHost):
    """Runs programs, and remembers those that changed something: one that fails may be repeated."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def run(
        self,
        *argv: PathArg,
        timeout: float = 60.0,
        allowed: Collection[int] = (0,),
        stdin: str | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Completed:
        completed = super().run(*argv, timeout=timeout, allowed=allowed, stdin=stdin, watch=watch)
        line = shlex.join(map(str, argv))
        if not _LOOKING.match(line):
            self.lines.append(line)
        return completed


def built(plan: CampaignPlan, state: Path) -> list[str]:
    """What building the plan's only cell runs, with a run's identifiers as in a preview."""
    host = LoggingHost()
    with (
        open_ledger(state) as ledger,
        open_site(host, ledger, plan.directory) as site,
        random_source(site, plan.size_bytes) as source,
    ):
        stacks = HostStacks(site, plan, source, silent)
        with stacks.image_for(plan.cells[0].path):
            lines = "\n".join(host.lines).replace(f"env {site.mark} ", "")
            # As root, programs reach the site's files by its descriptor.
            lines = re.sub(r"/proc/\d+/fd/\d+/", f"{site.directory}/", lines)
        stacks.close()
    lines = lines.replace(ledger.run_id, "RUN")
    return re.sub(r"/dev/loop\d+", "/dev/loop", lines).splitlines()


@pytest.mark.parametrize(
    "path",
    [
        "ext4:data=writeback/raw/none",
        "xfs:reflink=off/qcow2:cluster_size=128k/writeback",
        "btrfs:compress=zstd/qcow2:preallocation=metadata/writeback",
        "tmpfs/raw/writeback",
        "raw:preallocation=off/writeback",
        "qcow2:backing=2:preallocation=off/none",
        "qcow2:encrypt=luks:preallocation=off/none",
        "qcow2:data_file=raw:preallocation=off/writeback",
        "qcow2:bitmaps=1:preallocation=off:snapshots=1/writeback",
        "xfs/host",
    ],
)
def test_the_commands_of_a_plan_are_those_of_a_run(path: str, tmp_path: Path) -> None:
    compare(path, tmp_path)


def compare(path: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    plan = replace(a_plan(path), directory=work)
    shown = preview_cell(LocalHost(), plan, plan.cells[0], GuestFiles(), Accelerator.TCG).host
    planned = [re.sub(r"/dev/loop-[\w.]+", "/dev/loop", line) for line in shown]
    real = built(plan, tmp_path / "state")
    # A filled image is read back, which changes nothing: previews show what changes the host.
    real = [line for line in real if not line.startswith("qemu-io -t ")]
    if ":preallocation=off" in path or "metadata" in path:
        real = [line for line in real if not line.startswith("dd ")]  # for other cells' images
    assert planned == real


ON = {
    "commit": "ext4/qcow2:backing=1/none", "stream": "qcow2:backing=1/none",
    "host-snapshot": "lvmthin/none", "host-snapshot:delete": "zfs/raw/none",
    "reflink": "xfs/raw/none", "scrub": "btrfs/raw/none", "zfs-send": "zvol/none",
    "trim": "raw/none/virtio:discard=unmap",
}  # fmt: skip
"""Paths on which an operation is possible, if qcow2/none is none."""


def during_plan(path: str, order: str, directory: Path, to: str | None = None) -> CampaignPlan:
    load = None if to is None else 40
    request = Request(paths=(path,), directory=directory, during=(order,), to=to, load=load)
    return build_plan(request, Capabilities(), requested_profile(request))


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
def test_a_plan_has_the_commands_of_its_operation_and_load(
    row: OperationKind, tmp_path: Path
) -> None:
    plan = during_plan(ON.get(row.name, "qcow2/none"), row.name, tmp_path)
    commands = preview_cell(LocalHost(), plan, plan.cells[0], GuestFiles(), Accelerator.TCG)
    given = commands.operation
    assert [each.when for each in given] == sorted(
        (each.when for each in given), key=[BEFORE, DURING, AFTER].index
    )
    loads = [each.command for each in given if (each.when, each.where) == (DURING, GUEST)]
    assert loads[0].startswith("fio ")
    assert {"--rate_iops=RUN", "--startdelay=RUN"} <= set(loads[0].split())
    assert commands.measurements == ()
    assert any(each.when == DURING for each in given[1:]) or row.name == "nothing"


def test_the_commands_of_a_fleecing_backup_are_in_order(tmp_path: Path) -> None:
    plan = during_plan("raw/none", "backup:fleecing", tmp_path, to=str(tmp_path))
    commands = preview_cell(LocalHost(), plan, plan.cells[0], GuestFiles(), Accelerator.TCG)
    asked = [json.loads(each.command) for each in commands.operation if each.where == QEMU]
    assert [
        (each["execute"], each["arguments"].get("node-name") or each["arguments"].get("value"))
        for each in asked
    ] == [
        ("blockdev-add", "during-target"), ("blockdev-add", "during-fleece"),
        ("blockdev-add", "during-filter"), ("qom-set", "during-filter"),
        ("blockdev-add", "during-snapshot"), ("blockdev-backup", None), ("job-dismiss", None),
        ("blockdev-del", "during-target"), ("blockdev-del", "during-snapshot"),
        ("qom-set", "vdlRUN-node"), ("blockdev-del", "during-filter"),
        ("blockdev-del", "during-fleece"),
    ]  # fmt: skip
    (load,) = (each.command for each in commands.operation if each.where == GUEST)
    assert sum(map(int, re.findall(r"--rate_iops=(\d+)", load))) >= 2
    assert "=RUN" in load
