"""Files that measurements copy: made once, kept, and named when they cannot be made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.campaign.plans import a_plan
from vdisklab.campaign import prepared_data as module
from vdisklab.campaign.prepared_data import files_of, planned_data, prepared_data
from vdisklab.errors import CommandError, HostError
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import Ledger
from vdisklab.plan.campaign import CampaignPlan
from vdisklab.plan.profile import MeasurementPlan, Profile
from vdisklab.progress import silent
from vdisklab.storage.site import Site
from vdisklab.value import replace
from vdisklab.workload.program import PreparedFiles

SCRIPT = 'mkdir "$2/data" && echo "$3" >"$2/data/rows" && echo made >>"{log}"'


def a_database(path: str = "raw/none") -> CampaignPlan:
    first = MeasurementPlan("one", "postgresql", {"scale": 3}, "ext4")
    second = MeasurementPlan("two", "postgresql", {"scale": 3, "clients": 2}, "ext4")
    plan = replace(a_plan(path), size_bytes=1 << 30)
    return replace(plan, profile=Profile("p", "t", (first, second)))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    ledger = Ledger(tmp_path / "ledger", "run", -1)
    return Site(LocalHost(), ledger, tmp_path)


def made(
    monkeypatch: pytest.MonkeyPatch, log: Path, script: str = SCRIPT, program: str = "tar"
) -> None:
    files = PreparedFiles("data-3", script.format(log=log), ("3",), (program,), 1 << 20)
    monkeypatch.setattr(module, "files_of", lambda _plan: {files.name: files})


def test_measurements_of_one_scale_share_their_data() -> None:
    (files,) = files_of(a_database()).values()
    assert (files.name, files.arguments) == ("pgbench-3", ("3",))
    assert not files_of(replace(a_plan("raw/none"), size_bytes=1 << 30))


def test_they_are_made_once(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch, tmp_path / "log")
    cache = tmp_path / "cache"
    first, again = (prepared_data(site, cache, a_database(), silent) for _ in range(2))
    assert first == again
    assert (tmp_path / "log").read_text() == "made\n"
    (data,) = first.values()
    listing = LocalHost().run("tar", "-tf", data.disk).stdout.split()
    assert listing == ["data/", "data/rows"]
    assert dict(planned_data(LocalHost(), cache, a_database())) == first


def test_another_script_makes_others(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(monkeypatch, tmp_path / "log")
    first = prepared_data(site, tmp_path / "cache", a_database(), silent)
    made(monkeypatch, tmp_path / "log", SCRIPT + "\n# newer")
    assert prepared_data(site, tmp_path / "cache", a_database(), silent) != first


def test_sets_used_within_a_day_are_kept(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A campaign of five loads has five sets, and another process may have more."""
    cache = tmp_path / "cache"

    def use(number: int) -> Path:
        made(monkeypatch, tmp_path / "log", f"{SCRIPT}\n# set {number}")
        (data,) = prepared_data(site, cache, a_database(), silent).values()
        return data.disk

    disks = [use(number) for number in range(5)]
    assert all(disk.exists() for disk in disks)
    for disk in disks:
        os.utime(disk.parent / "manifest.json", (1e9, 1e9))
    assert use(0) == disks[0]
    use(5)
    assert disks[0].exists()
    assert sum(disk.exists() for disk in disks) == 2


def test_what_fails_is_not_kept(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(monkeypatch, tmp_path / "log", 'echo "the server does not start: FATAL" >&2; exit 1')
    with pytest.raises(CommandError, match="the server does not start: FATAL"):
        prepared_data(site, tmp_path / "cache", a_database(), silent)
    assert not list((tmp_path / "cache/data").glob("[!.]*"))


def test_a_missing_program_is_named_with_its_package(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(monkeypatch, tmp_path / "log", program="no-such-server")
    with pytest.raises(HostError, match="no-such-server is not installed") as caught:
        prepared_data(site, tmp_path / "cache", a_database(), silent)
    assert caught.value.hint
    assert not dict(planned_data(LocalHost(), tmp_path / "cache", a_database()))


def test_a_full_cache_is_told_before(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(monkeypatch, tmp_path / "log")
    monkeypatch.setattr(module, "free_bytes", lambda _directory: 1000)
    with pytest.raises(HostError, match=r"data-3 needs 2\.0 MiB in .* which has 1000 B free"):
        prepared_data(site, tmp_path / "cache", a_database(), silent)


def test_what_is_given_lies_there_beforehand_and_is_not_kept(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'mkdir "$2/data" && cp "$2/plan" "$2/data/copy"'
    files = PreparedFiles("plan-1", script, (), ("tar",), 1 << 20, {"plan": lambda: b"requests"})
    monkeypatch.setattr(module, "files_of", lambda _plan: {files.name: files})
    (data,) = prepared_data(site, tmp_path / "cache", a_database(), silent).values()
    assert LocalHost().run("tar", "-xOf", data.disk, "data/copy").stdout == "requests"
    assert sorted(file.name for file in data.disk.parent.iterdir()) == ["data.tar", "manifest.json"]
