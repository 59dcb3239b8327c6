"""A whole cell and a whole campaign against a QEMU that says what a real one said."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.unit.guest.fake_qemu import RECORDED, FakeQemu, Message, machine_of, recorded, refusing
from vdisklab.campaign.attachment import disk_for, storage_checks
from vdisklab.campaign.context import CampaignContext
from vdisklab.campaign.host_stacks import ActiveStack, HostStacks, Stack, image_key
from vdisklab.campaign.measure_cell import measure_cell
from vdisklab.campaign.measured_evidence import StateError, set_page_cache
from vdisklab.campaign.runner import RunTag, campaign_runs
from vdisklab.errors import DirtyHostError
from vdisklab.guest.factory import GuestPool
from vdisklab.guest.machine import Machine
from vdisklab.guest.qemu.block_nodes import Disk
from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.host.pagecache import occupied_bytes, residency, resident_share, warm
from vdisklab.path.disk_path import parse_path
from vdisklab.path.segments import PageCache
from vdisklab.plan.accelerator import Accelerator
from vdisklab.plan.profile import Profile
from vdisklab.progress import MeasurementStarted, RunFinished, Throughput, silent
from vdisklab.results.model import FailureKind, Origin, Run
from vdisklab.storage.image import ImageFile
from vdisklab.storage.site import open_site
from vdisklab.storage.targets import Directory, Share
from vdisklab.value import replace
from vdisklab.workload.fio import Fio

from .plans import a_plan

DATA = Path(__file__).parents[2] / "data"
FIO = (DATA / "fio-3.33-randrw.json").read_text()
FIO_LOG = (DATA / "fio-3.33-randrw_bw.log").read_text()
SIZE = 32 << 20
ROOT = Directory(Path("/"))


@dataclass
class Stable:
    """Starts the QEMUs that it was given, one after the other; the last one again and again."""

    qemus: list[FakeQemu]
    started: list[FakeQemu] = field(default_factory=list)
    ended: list[FakeQemu] = field(default_factory=list)

    @contextmanager
    def start(self, _machine: str, disks: tuple[Disk, ...], _qemu: str | None) -> Iterator[Machine]:
        qemu = self.qemus.pop(0) if len(self.qemus) > 1 else self.qemus[0]
        self.started.append(qemu)
        for disk in disks:
            qemu.plugged(disk)
        try:
            with machine_of(qemu) as machine:
                yield machine
        finally:
            self.ended.append(qemu)


def fio(name: str, **more: Callable[[Message], Any]) -> FakeQemu:
    """A QEMU with its guest, in which fio says what it once said."""
    return FakeQemu(name, dict(more), programs={"fio": (0, FIO, FIO_LOG)})


@pytest.fixture
def opened(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[CampaignContext, list[object]]]]:
    """Makes a bench for one path, with its image in place and these QEMUs in its stable."""
    # The image is no qcow2: qemu-io finds every block as it was written.
    qemu_io = tmp_path / "programs" / "qemu-io"
    qemu_io.parent.mkdir()
    qemu_io.write_text("#!/bin/sh\nsed -n 's|^read.*|read 4096/4096 bytes|p'\n")
    qemu_io.chmod(0o755)
    monkeypatch.setenv("PATH", f"{qemu_io.parent}:{os.environ['PATH']}")
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger(tmp_path / "state"))
        site = stack.enter_context(open_site(LocalHost(), ledger, tmp_path))

        def make(
            path: str, stable: Stable, *, rounds: int = 1
        ) -> tuple[CampaignContext, list[object]]:
            runtime = 1.0 if path == "host" else 0.01  # with a log
            plan = replace(a_plan(path, rounds=rounds), runtime=runtime, ramp=0.0, size_bytes=SIZE)
            cell = plan.cells[0]
            plan = replace(plan, cells=(cell,))
            events: list[object] = []
            workshop = HostStacks(site, plan, image, events.append)
            key = image_key(cell.path, plan.backing)
            if key is not None and cell.path.has_storage:
                seen = {"image.virtual_size": str(SIZE), "image.mapped": str(SIZE)}
                target = Directory(image.parent)
                made = ImageFile(target, image, key.format.value, SIZE, seen, (image,))
                stack_below = Stack(())
                workshop._active[stack_below] = ActiveStack(
                    stack_below, target, ExitStack(), {(key, 0): made}
                )
            pool = GuestPool(stable.start, events.append)
            return CampaignContext(plan, workshop, pool, Accelerator.TCG, events.append), events

        yield make


Make = Callable[..., tuple[CampaignContext, list[object]]]


@pytest.mark.parametrize("name", RECORDED)
def test_a_cell_on_each_bus(name: str, opened: Make) -> None:
    qemu = fio(name)
    stable = Stable([qemu])
    bench, events = opened(recorded(name).path, stable)
    with bench.guests:
        observed = measure_cell(bench, bench.plan.cells[0])
    assert all(check.confirmed for check in observed.checks)
    assert {check.name for check in observed.checks} >= {"guest.size", "qemu.cache.direct"}
    (measured,) = observed.measurements
    assert {sample.metric for sample in measured.samples} >= {"iops", "latency_p99", "worst_second"}
    assert len(measured.series) == 2
    assert measured.evidence.guest is not None
    assert measured.evidence.qemu is not None
    assert measured.evidence.host_cpu_seconds is not None
    assert observed.commands[0].startswith("qemu ")
    assert observed.commands[-1].startswith("fio ")
    assert ('"device_add"' in observed.commands[-2]) is (name not in ("ide", "sata"))
    assert [type(each) for each in events if isinstance(each, MeasurementStarted)]
    assert stable.ended == [qemu]
    order = [each for each in qemu.asked if not each.endswith(("-io", "-hba"))]
    if name in ("ide", "sata"):
        asked = [each for each in order if not each.startswith("block-latency-histogram-set")]
        assert asked == ["guest: load-drivers", "guest: find-disk", "guest: fio"]
    else:
        middle = order.index("guest: fio")
        verbs = [each.split()[0] for each in order]
        assert verbs[0] == "guest:"
        plugging = ["device_add", "guest:", "block-latency-histogram-set"]
        assert verbs[middle - 3 : middle] == plugging
        assert verbs[middle + 1 :][0] == "device_del"
        assert verbs[-1] == "stop"


def test_only_the_cell_enters_stack_and_image_not_each_measurement(opened: Make) -> None:
    """`path`, `plan` and `storage` give values; each measurement uses them without asking again."""
    entered: list[Counter[str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.parent.name in ("path", "plan", "storage"):
            entered[-1][f"{file.parent.name}/{file.name}"] += 1

    for count in (1, 4):
        bench, _ = opened(recorded("virtio").path, Stable([fio("virtio")]))
        (only,) = bench.plan.profile.measurements
        measurements = tuple(replace(only, name=f"m{number}") for number in range(count))
        plan = replace(bench.plan, profile=Profile("p", "several", measurements))
        entered.append(Counter())
        with bench.guests:
            sys.setprofile(note)
            observed = measure_cell(replace(bench, plan=plan), plan.cells[0])
            sys.setprofile(None)
        assert len(observed.measurements) == count
    assert entered[0] == entered[1]
    assert entered[0]["path/disk_path.py"]


class TestFailure:
    """After any error the guest is ended; the next cell gets another one."""

    @staticmethod
    def runs(opened: Make, first: FakeQemu) -> tuple[list[Run], Stable, FakeQemu]:
        second = fio(first.name)
        stable = Stable([first, second])
        bench, events = opened(recorded(first.name).path, stable)
        cells = bench.plan.cells
        twice = replace(bench.plan, cells=(*cells, *cells))
        with bench.guests:
            found = list(campaign_runs(replace(bench, plan=twice), RunTag("c", "vda")))
        assert [type(each) for each in events].count(RunFinished) == 2
        assert stable.started == [first, second]
        assert stable.ended[-1] is second
        assert found[1].failure is None, found[1].failure
        assert found[1].measurements
        assert found[0].measurements == ()
        return found, stable, second

    @pytest.mark.parametrize("name", ["virtio", "nvme"])
    @pytest.mark.parametrize("verb", ["blockdev-add", "device_add", "query-block", "device_del"])
    def test_qemu_refuses(self, verb: str, name: str, opened: Make) -> None:
        first = fio(name, **{verb: lambda request: refusing("no such luck")})
        (failed, _), _, _ = self.runs(opened, first)
        assert failed.failure is not None
        assert failed.failure.kind is FailureKind.GUEST
        assert failed.failure.message == "QEMU refused: no such luck"
        assert not any(line.startswith(("blockdev-del", "stop")) for line in first.asked)

    @pytest.mark.parametrize("verb", ["blockdev-add", "query-blockstats", "guest-exec"])
    def test_qemu_dies(self, verb: str, opened: Make) -> None:
        (failed, _), _, _ = self.runs(opened, fio("nvme", **{verb: lambda request: None}))
        assert failed.failure is not None
        assert failed.failure.kind is FailureKind.GUEST
        assert "connection was lost" in failed.failure.message

    def test_a_state_that_is_not_confirmed(self, opened: Make) -> None:
        first = fio("scsi")
        first.ignores_direct = True
        (failed, _), _, _ = self.runs(opened, first)
        assert failed.failure is not None
        assert failed.failure.kind is FailureKind.STATE
        assert failed.failure.message == "state not confirmed: kernel.o_direct is off, not on"
        assert "kernel.o_direct" in {check.name for check in failed.checks if not check.confirmed}
        assert "guest: fio" not in first.asked

    def test_the_program_fails(self, opened: Make) -> None:
        first = FakeQemu("nvme", programs={"fio": (1, "", "fio: no such device\n")})
        (failed, _), _, _ = self.runs(opened, first)
        assert failed.failure is not None
        assert failed.failure.kind is FailureKind.WORKLOAD
        assert "no such device" in failed.failure.message
        assert first.asked[-1] == "guest: fio"

    def test_an_image_that_vanishes(self, opened: Make, image: Path) -> None:
        qemu = fio("nvme")

        def gone(request: Message) -> Any:  # noqa: ANN401
            image.unlink()
            del qemu.instead["query-blockstats"]
            return qemu.monitor(request)

        qemu.instead["query-blockstats"] = gone
        bench, _ = opened(recorded("nvme").path, Stable([qemu]))
        with bench.guests:
            (failed,) = campaign_runs(bench, RunTag("c", None))
        assert failed.failure is not None
        assert failed.failure.kind is FailureKind.STORAGE
        assert "No such file" in failed.failure.message

    def test_an_error_that_nobody_foresaw_is_a_failed_run_too(self, opened: Make) -> None:
        def observer(event: object) -> None:
            if isinstance(event, MeasurementStarted):
                raise ZeroDivisionError("float division")

        stable = Stable([fio("nvme")])
        bench, _ = opened(recorded("nvme").path, stable)
        with bench.guests:
            (failed,) = campaign_runs(replace(bench, progress=observer), RunTag("c", None))
        assert failed.failure is not None
        assert failed.failure.kind is FailureKind.INTERNAL
        assert failed.failure.message == "ZeroDivisionError: float division"
        assert failed.origin is Origin.GUEST
        assert stable.ended == stable.started

    def test_a_host_that_cannot_be_cleaned_ends_the_campaign(self, opened: Make) -> None:
        def dirty(
            _machine: str, _disks: tuple[Disk, ...], _qemu: str | None
        ) -> AbstractContextManager[Machine]:
            raise DirtyHostError("QEMU (process 1) did not end when killed")

        bench, _ = opened("raw/none/nvme", Stable([fio("nvme")]))
        pool = GuestPool(dirty, silent)
        with pytest.raises(DirtyHostError):
            list(campaign_runs(replace(bench, guests=pool), RunTag("c", None)))


def test_a_measurement_that_needs_a_fresh_guest_gets_one_for_itself(
    opened: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fio, "needs_fresh_guest", True)
    stable = Stable([fio("virtio") for _ in range(3)])
    first, second, third = stable.qemus
    bench, _ = opened(recorded("virtio").path, stable)
    (plan,) = bench.plan.profile.measurements
    twice = replace(bench.plan.profile, measurements=(plan, replace(plan, name="again")))
    bench = replace(bench, plan=replace(bench.plan, profile=twice))
    cell = bench.plan.cells[0]
    with bench.guests:
        observed = measure_cell(bench, cell)
        assert (stable.started, stable.ended) == ([first, second], [first])
        measure_cell(replace(bench, plan=replace(bench.plan, profile=one_of(twice))), cell)
        assert (stable.started, stable.ended) == ([first, second, third], [first, second])
    assert [each.name for each in observed.measurements] == ["m", "again"]
    assert len(set(observed.checks)) == len(observed.checks)
    assert sum(line.startswith("fio ") for line in observed.commands) == 2
    assert sum('"device_add"' in line for line in observed.commands) == 2


def one_of(profile: Profile) -> Profile:
    return replace(profile, measurements=profile.measurements[:1])


def test_throughput_is_told_while_a_program_runs(opened: Make) -> None:
    """By what QEMU counts, so that the guest is not disturbed."""
    qemu = fio("virtio")
    asked = [0]

    def counting(request: Message) -> list[Message]:
        asked[0] += 1
        text = recorded("virtio", qemu.serial).answers["query-blockstats"]
        for round in text:
            round["stats"]["wr_bytes"] += asked[0] << 20
            round["stats"]["wr_operations"] += asked[0]
        return [{"return": text}]

    left = [20]

    def status(request: Message) -> list[Message]:
        if qemu.asked[-1] == "guest: fio" and left[0]:
            left[0] -= 1
            return [{"return": {"exited": False}}]
        return [{"return": qemu._ended(request["arguments"]["pid"])}]

    qemu.instead |= {"query-blockstats": counting, "guest-exec-status": status}
    bench, events = opened(recorded("virtio").path, Stable([qemu]))
    with bench.guests:
        measure_cell(bench, bench.plan.cells[0])
    told = [event for event in events if isinstance(event, Throughput)]
    assert 2 <= len(told) <= 20, "as often as looking may use CPU"
    assert all(each.bytes_per_second > 0 for each in told)
    for each in told:
        assert each.operations_per_second is not None
        assert each.bytes_per_second / each.operations_per_second == pytest.approx(1 << 20)


class TestStorageChecks:
    """What the path asks of stack and image, beside what was read back."""

    @staticmethod
    def wrong(path: str, **seen: str) -> dict[str, str]:
        properties = {name.replace("__", "."): value for name, value in seen.items()}
        image = ImageFile(ROOT, Path("/i"), "qcow2", SIZE, properties, ())
        checks = storage_checks(parse_path(path), image)
        assert [check.name for check in checks] == sorted(f"host.{name}" for name in properties)
        return {check.name: check.observed for check in checks if not check.confirmed}

    def test_sizes(self) -> None:
        full = {"image__virtual_size": str(SIZE), "image__mapped": str(SIZE)}
        assert self.wrong("qcow2/none", **full) == {}
        half = full | {"image__mapped": str(SIZE // 2)}
        assert self.wrong("qcow2/none", **half) == {"host.image.mapped": str(SIZE // 2)}
        assert self.wrong("qcow2:preallocation=off/none", **half) == {}
        other = full | {"image__virtual_size": "1"}
        assert self.wrong("raw/none", **other) == {"host.image.virtual_size": "1"}

    def test_a_formats_settings(self) -> None:
        path = "qcow2:cluster_size=2M:lazy_refcounts=on/none"
        seen = {
            "image__cluster_size": str(2 << 20),
            "image__lazy_refcounts": "True",
            "image__compat": "1.1",
        }
        assert self.wrong(path, **seen) == {}
        assert self.wrong(path, **seen | {"image__cluster_size": "65536"}) == {
            "host.image.cluster_size": "65536"
        }
        assert self.wrong(path, **seen | {"image__lazy_refcounts": "False"}) == {
            "host.image.lazy_refcounts": "False"
        }

    def test_a_layers_options(self) -> None:
        assert self.wrong("xfs:reflink=off/raw/none", xfs__reflink="off") == {}
        assert self.wrong("xfs:reflink=off/raw/none", xfs__reflink="on") == {
            "host.xfs.reflink": "on"
        }
        assert self.wrong("zfs:recordsize=64k/raw", zfs__recordsize="128k") == {
            "host.zfs.recordsize": "128k"
        }
        assert self.wrong("md:level=10/none", md__level="10", md__devices="4") == {}

    def test_a_loop_device_is_direct_whatever_the_path_says(self) -> None:
        assert self.wrong("ext4/raw", loop__direct_io="off") == {"host.loop.direct_io": "off"}

    def test_what_the_path_does_not_decide_is_kept(self) -> None:
        image = ImageFile(ROOT, Path("/i"), "raw", SIZE, {"ext4.mount": "rw,relatime"}, ())
        (check,) = storage_checks(parse_path("ext4/raw"), image)
        assert (check.requested, check.observed, check.confirmed) == (None, "rw,relatime", True)


class TestPageCache:
    """The host's page cache, for a real file of this machine."""

    @pytest.fixture
    def file(self, image: Path) -> Path:
        image.write_bytes(os.urandom(1 << 20))
        return image

    @staticmethod
    def held(file: Path, *, caches: tuple[Path, ...] | None = None) -> ImageFile:
        files = (file,) if caches is None else caches
        return ImageFile(Directory(file.parent), file, "raw", file.stat().st_size, {}, files)

    @pytest.mark.parametrize("asked", PageCache)
    def test_it_is_as_asked_afterwards(self, asked: PageCache, file: Path) -> None:
        for before in (PageCache.WARM, PageCache.COLD, asked):
            set_page_cache(before, self.held(file))
        seen = residency(file)
        assert seen == 1.0 if asked is PageCache.WARM else seen <= 0.02

    def test_what_others_hold_stays_and_is_not_called_cold(self, file: Path) -> None:
        """Pages that a process has mapped are not dropped (mm/fadvise.c)."""
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as held:
            assert sum(held[::4096]) >= 0
            with pytest.raises(StateError, match=r"host.page_cache is \d+ % resident, not cold"):
                set_page_cache(PageCache.COLD, self.held(file))
            set_page_cache(PageCache.BYPASSED, self.held(file))

    def test_what_others_hold_for_a_moment_only_is_emptied_at_a_later_attempt(
        self, file: Path
    ) -> None:
        with file.open("rb") as opened:
            held = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
            assert sum(held[::4096]) >= 0
            letting_go = threading.Timer(0.05, held.close)
            letting_go.start()
            set_page_cache(PageCache.COLD, self.held(file))
            letting_go.join()
        assert residency(file) <= 0.02

    def test_what_does_not_get_warm_is_not_called_warm(self, file: Path) -> None:
        set_page_cache(PageCache.COLD, self.held(file))
        with pytest.raises(StateError, match=r"0 % resident, not warm") as caught:
            set_page_cache(PageCache.WARM, self.held(file, caches=()))
        (check,) = caught.value.checks
        assert (check.name, check.requested, check.confirmed) == ("host.page_cache", "warm", False)

    def test_the_files_below_are_emptied_too(self, file: Path, tmp_path: Path) -> None:
        below = tmp_path / "below"
        below.write_bytes(os.urandom(1 << 20))
        warm(below)
        set_page_cache(PageCache.COLD, self.held(file, caches=(file, below)))
        assert residency(below) <= 0.02

    @pytest.mark.parametrize("asked", [PageCache.COLD, PageCache.WARM])
    def test_a_directory_has_that_of_its_files(self, asked: PageCache, tmp_path: Path) -> None:
        share = Share(tmp_path / "share")
        (share.path / "below").mkdir(parents=True)
        set_page_cache(asked, share)
        assert resident_share(share.path) is None
        for name, size in (("one", 1 << 20), ("below/other", 3 << 20), ("empty", 0)):
            (share.path / name).write_bytes(os.urandom(size))
        set_page_cache(asked, share)
        resident = resident_share(share.path)
        assert resident is not None
        assert resident >= 0.98 if asked is PageCache.WARM else resident <= 0.02
        assert (occupied_bytes(share.path) or 0) >= 4 << 20

    def test_holes_of_a_directory_in_memory_need_not_be_warm(self) -> None:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
            with (Path(place) / "sparse").open("wb") as sparse:
                sparse.truncate(64 << 20)
                sparse.write(os.urandom(1 << 20))
            share = Share(Path(place))
            set_page_cache(PageCache.WARM, share)
            assert resident_share(share.path) == 1.0

    def test_the_null_device_has_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        touched: list[Path] = []
        for name in ("warm", "evict"):
            monkeypatch.setattr(f"vdisklab.host.pagecache.{name}", touched.append)
        for wanted in PageCache:
            set_page_cache(wanted, None)
        assert touched == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("raw/none", ("raw", {"driver": "file", "filename": "/i"}, 7)),
        ("null", ("null-co", None, SIZE)),
    ],
)
def test_the_disk_that_a_path_makes(path: str, expected: tuple[object, ...]) -> None:
    held = ImageFile(ROOT, Path("/i"), "raw", 7, {}, ())
    parsed = parse_path(path)
    disk = disk_for(parsed, held if parsed.has_storage else None, SIZE, "s")
    assert (disk.driver, disk.source, disk.size) == expected
    assert disk.cache is parsed.cache


class TestOnHost:
    """The same measurement without a guest, with fio as a script that is first on PATH."""

    @staticmethod
    def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
        program = tmp_path / "bin" / "fio"
        program.parent.mkdir()
        (tmp_path / "said.json").write_text(FIO)
        (tmp_path / "said.log").write_text(FIO_LOG)
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def test_what_it_says_is_measured(
        self, opened: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """fio adds to the log's name the number of the job and what is in it."""
        self.script(
            tmp_path,
            monkeypatch,
            "for word; do case $word in --write_bw_log=*) log=${word#*=} ;; esac; done\n"
            f'cp {tmp_path}/said.log "${{log}}_bw.log"; cat {tmp_path}/said.json',
        )
        bench, _ = opened("host", Stable([fio("nvme")]))
        (run,) = campaign_runs(bench, RunTag("c", "vda"))
        assert run.failure is None, run.failure
        assert (run.origin, run.accelerator) == (Origin.HOST, None)
        (measured,) = run.measurements
        assert measured.series
        assert measured.evidence.qemu is None
        assert measured.evidence.host_cpu_seconds is not None
        names = {check.name for check in run.checks if ".image." in check.name}
        assert names == {"host.image.virtual_size", "host.image.mapped"}

    @pytest.mark.parametrize(
        ("body", "kind", "said"),
        [
            ("echo 'fio: no such luck' >&2; exit 1", FailureKind.STORAGE, "no such luck"),
            ("echo '{'", FailureKind.WORKLOAD, "was not written"),
            ("kill -9 $$", FailureKind.STORAGE, "was killed by signal 9"),
        ],
    )
    def test_a_program_that_fails(
        self,
        body: str,
        kind: FailureKind,
        said: str,
        opened: Make,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.script(tmp_path, monkeypatch, body)
        bench, _ = opened("host", Stable([fio("nvme")]))
        (run,) = campaign_runs(bench, RunTag("c", "vda"))
        assert run.failure is not None
        assert run.failure.kind is kind
        assert said in run.failure.message
        assert run.measurements == ()
