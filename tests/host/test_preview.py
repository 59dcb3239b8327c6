"""`plan --commands` prints what a run executes: the builders run once for real, once recorded."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.campaign.plans import a_plan
from vdisklab.campaign.host_stacks import HostStacks
from vdisklab.campaign.preview import GuestFiles, preview_cell
from vdisklab.host.command import Completed, LocalHost, PathArg
from vdisklab.host.ledger import open_ledger
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.guest import Accelerator
from vdisklab.progress import silent
from vdisklab.storage.image import random_source
from vdisklab.storage.site import open_site

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
