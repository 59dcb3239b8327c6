"""What tests may need, and the proof that they leave nothing behind.

A test is skipped where its needs are missing, and fails where they must not be: in continuous
integration (CI=true or VDISKLAB_CI=1), where every other skip is a failure, too.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

# As vdisklab/__main__.py, before numpy and pydantic are imported: tests of the program as it runs.
# OpenBLAS's idle threads take more CPU time than its work, also from the tests beside it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# A shell starts background jobs with SIGINT and SIGQUIT ignored, nohup with SIGHUP, and whatever
# tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

_ADMIN_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
_HOST_PROGRAMS = ("losetup", "mount", "umount", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs")
_GUEST_PROGRAMS = ("qemu-system-x86_64", "qemu-img", "busybox", "qemu-ga", "mke2fs", "fio")

# What installing a program cannot change: the kernel, the machine, the place of the tests. A test
# that is skipped for another reason fails in continuous integration.
IMPOSSIBLE_HERE = (
    "this kernel has no zram",
    "this kernel has ZFS, and with it volumes",
    "no control groups of version 1",
    "no disk below the directory",
    "io_setup is not allowed here",
    "io_uring is not allowed here",
    "the call has another number",
    "needs root to become another user",
    "refuses O_DIRECT",
)

# Sockets and mount points of runs, also of other people's: watched where we are alone.
_RUNTIME = Path("/run/vdisklab")


def in_ci(environment: Mapping[str, str] = os.environ) -> bool:
    """True where a test that cannot run is a failure."""
    return any(
        environment.get(name, "") not in ("", "0", "false") for name in ("CI", "VDISKLAB_CI")
    )


def lacking(marker: str) -> list[str]:
    """What a test with this marker needs and this machine does not have."""
    programs = _HOST_PROGRAMS if marker == "host" else _GUEST_PROGRAMS
    lacks = [name for name in programs if shutil.which(name, path=_ADMIN_PATH) is None]
    if marker == "host":
        if os.geteuid() != 0:
            lacks.append("root")
        if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
            lacks.append("/dev/loop-control")
    return lacks


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in ("host", "guest"):
        if item.get_closest_marker(marker) is None:
            continue
        lacks = lacking(marker)
        if lacks and in_ci():
            pytest.fail(f"continuous integration lacks {', '.join(lacks)}", pytrace=False)
        if lacks:
            pytest.skip(f"needs {', '.join(lacks)}")


# Imports and the making of tests leave no cycles behind, and looking for them takes as long again.
gc.disable()


def pytest_collection_finish() -> None:
    """Keeps the collector of cycles away from what the imports made, which is most of all objects.

    It would go through them hundreds of times, a fifth of the unit tests' CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Makes a failure of a skip in continuous integration, unless its reason is in the list."""
    del item, call
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and in_ci():
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        if not any(impossible in reason for impossible in IMPOSSIBLE_HERE):
            report.outcome = "failed"
            report.longrepr = f"continuous integration skips nothing: {reason}"
    return report


@dataclass(frozen=True)
class Leftovers:
    """What exists on this machine and may be of our making."""

    loops: frozenset[str] = frozenset()
    mounts: frozenset[str] = frozenset()
    processes: frozenset[str] = frozenset()
    ledgers: frozenset[str] = frozenset()
    runtime: frozenset[str] = frozenset()

    def beyond(self, before: Leftovers) -> list[str]:
        """One line for each thing that was not there before."""
        return [
            f"{kind}: {thing}"
            for kind in ("loops", "mounts", "processes", "ledgers", "runtime")
            for thing in sorted(getattr(self, kind) - getattr(before, kind))
        ]


def look_around(state: Path, places: tuple[Path, ...]) -> Leftovers:
    """Looks for our things: those in `places`, and processes that were told of `state`.

    Other people make loop devices and mounts on the same machine, so only places tell whose
    they are.
    """

    def ours(text: str) -> bool:
        return any(str(place) in text for place in places)

    loops = {
        f"/dev/{entry.parent.parent.name}": _read(entry).strip()
        for entry in Path("/sys/block").glob("loop*/loop/backing_file")
        if ours(_read(entry))
    }
    mounts = {
        line.split()[4]
        for line in _read(Path("/proc/self/mountinfo")).splitlines()
        if ours(line) or any(f" {loop} " in line for loop in loops)
    }
    return Leftovers(
        frozenset(f"{device} on {file}" for device, file in loops.items()),
        frozenset(mounts),
        frozenset(_processes(state)),
        frozenset(str(path) for path in (state / "ledger").glob("*.jsonl")),
        frozenset(str(path) for path in _RUNTIME.glob("*")) if _RUNTIME in places else frozenset(),
    )


def _processes(state: Path) -> Iterator[str]:
    """Processes started by us or by ours, told by the state directory in their environment."""
    for file in Path("/proc").glob("[0-9]*/environ"):
        if f"VDISKLAB_STATE={state}\0" not in _read(file):
            continue
        name = _read(file.parent / "comm").strip()
        # By name, too: pytest itself and what tests hold just now is nobody's leftover.
        if re.match(r"qemu|fio|bonnie|sysbench|vdisklab|dd$", name):
            yield f"{name} ({file.parent.name})"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # it ended while we looked


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps tests away from the real state, and proves at the end that they cleaned up."""
    state = tmp_path_factory.mktemp("state")
    # Not below pytest's own directory, which is closed to others: as root, tests run programs as
    # another user (PostgreSQL refuses to be root), and those must get to their files.
    scratch = Path(tempfile.mkdtemp(prefix="vdisklab-tests-"))
    scratch.chmod(0o755)
    # Beside another pytest, script/test looks there when both have ended.
    alone = in_ci() and "VDISKLAB_TESTS_BESIDE" not in os.environ
    places = (tmp_path_factory.getbasetemp(), scratch, *([_RUNTIME] if alone else []))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VDISKLAB_STATE", str(state))
        # What programs put into temporary directories then lies in our own directory.
        patch.setenv("TMPDIR", str(scratch))
        patch.setattr("tempfile.tempdir", None)
        before = look_around(state, places)
        yield
        left = look_around(state, places).beyond(before)
        left += [f"temporary: {path}" for path in sorted(scratch.iterdir())]
    with contextlib.suppress(OSError):
        scratch.rmdir()  # stays if anything is in it, which then is said
    if left:
        pytest.fail("the tests left behind: " + "; ".join(left), pytrace=False)
