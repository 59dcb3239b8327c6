"""Images of a campaign in a plain directory: allocated ones once, thin ones for each run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vdisklab.campaign.host_stacks import HostStacks, open_host_stacks, stacks_of
from vdisklab.errors import HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger, pending
from vdisklab.path.disk_path import parse_path
from vdisklab.progress import Step
from vdisklab.storage.site import Site, open_site
from vdisklab.value import replace

from .plans import a_plan

SIZE = 1 << 20

# Makes and describes thin raw images and no others.
_QEMU_IMG = f"""#!/bin/sh
echo "$*" >>"${{0%/*}}/calls"
for word; do file=$last last=$word; done
case "$1" in
create) : >"$file" ;;
info) echo '{{"virtual-size": {SIZE}}}' ;;
map) echo '[]' ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A host with little more than coreutils; nothing is left in its work directory."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    for program in ("dd", "cp", "env", "truncate"):
        (tmp_path / "bin" / program).symlink_to(f"/bin/{program}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with open_ledger(tmp_path / "state") as ledger:
        with open_site(LocalHost(), ledger, tmp_path / "work") as site:
            yield site
        assert pending(ledger.path) == []
    assert list((tmp_path / "work").iterdir()) == []


def opened(site: Site, *paths: str) -> HostStacks:
    plan = replace(a_plan(*paths), size_bytes=SIZE, directory=site.directory)
    return HostStacks(site, plan, Path("/no/source"), lambda event: None)


def test_an_allocated_image_is_made_once_and_shared(site: Site) -> None:
    events: list[object] = []
    paths = ("raw/{writeback,unsafe}", "host")
    plan = replace(a_plan(*paths), size_bytes=SIZE, directory=site.directory)
    with open_host_stacks(site, plan, events.append) as workshop:
        seen = []
        for cell in plan.cells:
            with workshop.image_for(cell.path) as image:
                assert image is not None
                assert image.on_host.stat().st_size == SIZE
                assert image.properties["image.mapped"] == str(SIZE)
                seen.append((image.on_host, image.on_host.stat().st_ino))
        assert len(set(seen)) == 1
        assert workshop.source.read_bytes() == seen[0][0].read_bytes()
    assert events == [Step("writing 1.0 MiB of random data"), Step("filling raw")]


def test_each_guest_of_a_group_has_its_own_image(site: Site) -> None:
    plan = a_plan("raw/none/virtio:guests={1,2}")
    plan = replace(plan, size_bytes=SIZE, directory=site.directory)
    path = plan.cells[1].path
    with open_host_stacks(site, plan, lambda event: None) as stacks:
        with stacks.image_for(path) as first, stacks.image_for(path, 1) as second:
            assert first is not None
            assert second is not None
            assert first.on_host != second.on_host
            assert second.on_host.stat().st_blocks * 512 >= SIZE
        with stacks.image_for(path, 1) as again:
            assert again is second
    assert sum(stacks_of(plan).values()) > 2 * SIZE


def test_the_null_device_has_no_image(site: Site) -> None:
    with opened(site, "null").image_for(parse_path("null")) as image:
        assert image is None


def test_a_thin_image_is_new_for_each_run(site: Site, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "qemu-img"
    program.write_text(_QEMU_IMG)
    program.chmod(0o755)
    path = "raw:preallocation=off/writeback"
    plan = replace(a_plan(path), size_bytes=SIZE, directory=site.directory)
    with open_host_stacks(site, plan, lambda event: None) as workshop:
        for _ in range(2):
            with workshop.image_for(plan.cells[0].path) as image:
                assert image is not None
                held = image.on_host
                assert held.exists()
            assert not held.exists()
    calls = (tmp_path / "bin" / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["create", "info", "map"] * 2


def test_an_error_while_it_is_used_leaves_nothing(site: Site) -> None:
    plan = replace(a_plan("host"), size_bytes=SIZE, directory=site.directory)
    with (
        pytest.raises(KeyboardInterrupt),
        open_host_stacks(site, plan, lambda event: None),
    ):
        raise KeyboardInterrupt
    assert list(site.directory.iterdir()) == []


def test_a_stack_that_was_not_built_is_no_crash(site: Site) -> None:
    workshop = opened(site, "raw")
    with (
        pytest.raises(HostError, match="the stack ext4 is not part of this campaign"),
        workshop.image_for(parse_path("ext4/raw")),
    ):
        pytest.fail("not reached")
