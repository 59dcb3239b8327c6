"""What a guest had on its disk after its storage failed, kept if something is lost: `--replay`.

Of each verdict the first such run is kept, as its disk was before the host's kernel replayed any
journal. Runs that lost nothing are not kept: there is nothing to look at.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import to_builtins

from vdisklab.errors import PowercutError
from vdisklab.host import syscalls
from vdisklab.host.command import Host
from vdisklab.host.ledger import Kind, Ledger
from vdisklab.path.power_cut_words import ClientKind, RunOutcome
from vdisklab.path.segments import GuestFsKind, ImageFormat
from vdisklab.powercut.recovery import unmount_state
from vdisklab.results.power_cut import ReplayedState
from vdisklab.storage.site import Site, open_site
from vdisklab.value import Value, replace

KEPT = frozenset({RunOutcome.LOST, RunOutcome.DATABASE, RunOutcome.REPAIR})
"""The outcomes that are worth a look."""

_CASE = re.compile(r"([0-9a-f]{8})/run(\d+)")
_DISK, _FACTS = "disk.raw", "run.json"


class KeptRun(Value):
    """What is known of a run that is kept."""

    path: str
    client: str
    filesystem: str | None
    outcome: str
    detail: str
    number: int
    failure: str = ""
    """How its storage failed; runs of earlier versions do not say."""


def case_of(verdict: str, number: int) -> str:
    """The name of a run for `--replay`."""
    return f"{verdict}/run{number}"


def is_run(case: str) -> bool:
    """True for the name of a run whose storage failed, and not of a state after a power cut."""
    return _CASE.fullmatch(case) is not None


def keep_run(
    site: Site, image: Path, form: ImageFormat, facts: KeptRun, directory: Path
) -> str | None:
    """Copies the guest's disk; returns why that failed, because the verdict remains valid."""
    shutil.rmtree(directory, ignore_errors=True)  # of an attempt before
    try:
        directory.mkdir(parents=True)
        site.run("qemu-img", "convert", "-f", form, "-O", "raw", image, directory / _DISK)
        (directory / _FACTS).write_text(json.dumps(to_builtins(facts)))
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        return f"it cannot be kept for --replay: {error.strerror}"
    return None


@contextmanager
def replayed_run(
    host: Host, ledger: Ledger, directory: Path, kept: Path, case: str
) -> Iterator[ReplayedState]:
    """The guest's disk as it was, with its file system mounted while the context is open.

    Raises PowercutError for a run that is not kept.
    """
    found = _CASE.fullmatch(case)
    source = kept / (found[1] if found else case)
    try:
        facts = KeptRun(**json.loads((source / _FACTS).read_text()))
    except OSError as error:
        raise PowercutError(
            f"{case} is not kept: {error.strerror}",
            hint="of each verdict the first run is kept that lost or damaged something; the "
            "verdicts' column `case` names it",
        ) from error
    except (ValueError, TypeError) as error:
        raise PowercutError(f"{source / _FACTS} is damaged", hint="judge the path again") from error
    if found is None or int(found[2]) != facts.number:
        raise PowercutError(
            f"{case} is not kept: that run lost and damaged nothing",
            hint=f"write {case_of(source.name, facts.number)}, the first run that did",
        )
    client = ClientKind(facts.client)
    with open_site(host, ledger, directory) as site:
        disk, mountpoint = site.directory / _DISK, site.directory / "recovered"
        with (
            site.tracked(Kind.FILE, disk),
            site.tracked(Kind.DIRECTORY, mountpoint),
            site.tracked(Kind.LOOP, disk),
            site.tracked(Kind.MOUNT, mountpoint),
        ):
            mountpoint.mkdir()
            site.run("cp", "--sparse=always", source / _DISK, disk)
            device = syscalls.attach_loop(disk)
            state = ReplayedState(
                facts.path, client.phrase, client.expects, facts.outcome, facts.detail, device,
                failure=facts.failure,
            )  # fmt: skip
            if facts.filesystem is None:
                yield replace(state, has_filesystem=False)
                return
            try:
                syscalls.mount(device, mountpoint, GuestFsKind(facts.filesystem))
            except OSError:
                yield state
                return
            try:
                yield replace(state, mountpoint=mountpoint)
            finally:
                unmount_state(mountpoint)
