"""Switches a guest's trace events on, with a log file that has a limit, and always off again.

QEMU writes the log by itself, so nothing is read while the guest works. The events are noted in the
ledger before they are on. A guard, which is a process of its own, switches them off as soon as
vdisklab dies; `vdisklab clean` does it if both were killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vdisklab.errors import DirtyHostError, GuestError, HostError, RefusedError
from vdisklab.host.command import Host
from vdisklab.host.ledger import Entry, Kind, Ledger
from vdisklab.host.safe_places import make_directory, make_state_directory, open_file
from vdisklab.host.state_directory import state_directory
from vdisklab.host.waiting import interrupts_held
from vdisklab.recording.guests import GuestMonitor, RunningGuest, of_detail, open_monitor
from vdisklab.value import Value

TRACE = "trace of guest"
"""The kind of thing that the ledger notes."""

NOWHERE = "/dev/null"
_LIBVIRTS_LOGS = Path("/var/log/libvirt/qemu")
"""AppArmor's profile of a libvirt guest lets QEMU write GUEST.log anywhere below it (libvirt's
src/security/virt-aa-helper.c: `/var/log/libvirt/**/GUEST.log w`)."""
_SETTLE_SECONDS = 0.25
_EVENTS = "events"
HISTOGRAM = "histogram"
"""The detail of a ledger's note that names a device whose latencies QEMU keeps histograms of."""


class TracingLog(Value):
    """The log that QEMU writes: its file, and a descriptor of it that is ours."""

    file: Path
    descriptor: int

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return os.fstat(self.descriptor).st_size


def available_events(monitor: GuestMonitor, events: Sequence[str]) -> tuple[str, ...]:
    """Those of the events that this QEMU has; a QEMU built without tracing has none."""
    found = []
    for event in events:
        try:
            answer = monitor.execute("trace-event-get-state", {"name": event})
        except RefusedError:
            continue
        states = [each.get("state") for each in answer] if isinstance(answer, list) else []
        if states and "unavailable" not in states:
            if "enabled" in states:
                raise GuestError(
                    f"another program traces this guest already ({event} is on)",
                    hint="wait for it; after a killed recording run `vdisklab clean`",
                )
            found.append(event)
    return tuple(found)


@contextmanager
def log_file(ledger: Ledger, guest: RunningGuest) -> Iterator[TracingLog]:
    """An empty file that the guest's QEMU may write, removed at the end. Raises HostError."""
    base = _LIBVIRTS_LOGS if guest.domain and os.geteuid() == 0 else None
    if base is None or not base.is_dir():
        base = state_directory() / "recordings"
        make_state_directory(base)
    directory = base / f"vdisklab-{ledger.run_id}"
    if guest.user != os.geteuid() and os.geteuid() != 0:
        raise HostError(
            "the guest's QEMU belongs to another user, so its log could not be read",
            hint="be root, or that user",
        )
    with ExitStack() as stack:
        stack.enter_context(ledger.entry(Kind.DIRECTORY, directory))
        try:
            make_directory(directory, "the log directory", "see --log-limit", 0o711)
            stack.callback(_remove_directory, directory)
            file = directory / f"{guest.domain or 'guest'}.log"
            stack.enter_context(ledger.entry(Kind.FILE, file))
            descriptor = open_file(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            stack.callback(os.close, descriptor)
            stack.callback(_remove_file, file)
            if os.geteuid() == 0:
                os.fchown(descriptor, guest.user, -1)
        except OSError as error:
            raise HostError(
                f"no log can be made in {base}: {error.strerror or error}",
                hint="set VDISKLAB_STATE to a directory that can be written",
            ) from error
        yield TracingLog(file, descriptor)


@contextmanager
def tracing(
    host: Host,
    ledger: Ledger,
    guest: RunningGuest,
    *,
    events: Sequence[str],
    log: TracingLog,
    guard: Callable[[Mapping[str, str]], contextlib.AbstractContextManager[None]],
) -> Iterator[None]:
    """The events are on, and go to the log; read back. `guard` switches them off if we die.

    Raises GuestError; DirtyHostError if they cannot be switched off.
    """
    detail = {**guest.detail, _EVENTS: " ".join(events)}
    with ledger.entry(TRACE, guest.name, **detail) as entry, guard(detail):
        try:
            with interrupts_held(), open_monitor(host, guest) as monitor:
                switch_on(monitor, events, log.file)
            yield
        finally:
            with interrupts_held():
                stop_tracing(host, entry)


def stop_tracing(host: Host, entry: Entry) -> None:
    """Switches off what a ledger notes, and reads it back. Nothing is left of a guest that ended.

    Raises DirtyHostError if the guest runs and does not obey.
    """
    guest = of_detail(entry.detail)
    if not guest.is_running:
        return
    try:
        with open_monitor(host, guest) as monitor:
            device = entry.detail.get(HISTOGRAM)
            if device is None:
                switch_off(monitor, entry.detail.get(_EVENTS, "").split())
            else:
                with contextlib.suppress(RefusedError):  # a QEMU without them, or the disk is gone
                    monitor.execute("block-latency-histogram-set", {"id": device})
    except (GuestError, HostError) as error:
        if not guest.is_running:
            return
        raise DirtyHostError(
            f"the trace events of guest {guest.name} are still on: {error}",
            hint="run `vdisklab clean` when the guest's monitor answers",
        ) from error


def switch_on(monitor: GuestMonitor, events: Sequence[str], log: Path) -> None:
    """Switches the events on, which go to the log, and reads it back. Raises GuestError.

    The last event, which ends requests, follows a moment later: then the beginnings of those that
    it ends were logged, and none of them is taken for a flush.
    """
    _log_to(monitor, log)
    for event in events:
        if event == events[-1]:
            time.sleep(_SETTLE_SECONDS)
        monitor.execute("trace-event-set-state", {"name": event, "enable": True})
    off = [event for event in events if not _is_on(monitor, event)]
    if off:
        raise GuestError(f"QEMU did not switch {off[0]} on")


def switch_off(monitor: GuestMonitor, events: Sequence[str]) -> None:
    """Switches the events off and the log away. Raises GuestError if one stays on.

    The last event, which ends requests, goes first: no end is logged without its beginning.
    """
    for event in reversed(events):
        monitor.execute("trace-event-set-state", {"name": event, "enable": False})
    _log_to(monitor, Path(NOWHERE))
    on = [event for event in events if _is_on(monitor, event)]
    if on:
        raise GuestError(f"QEMU did not switch {on[0]} off")


def _log_to(monitor: GuestMonitor, file: Path) -> None:
    """QMP has no command for it; HMP's `logfile` has (hmp-commands.hx)."""
    said = monitor.execute("human-monitor-command", {"command-line": f"logfile {file}"})
    if said:
        raise GuestError(
            f"QEMU cannot write its log to {file}: {str(said).strip()[:200]}",
            hint="AppArmor or SELinux may forbid it: see `dmesg` or /var/log/audit/audit.log",
        )


def _is_on(monitor: GuestMonitor, event: str) -> bool:
    answer = monitor.execute("trace-event-get-state", {"name": event})
    return isinstance(answer, list) and any(each.get("state") == "enabled" for each in answer)


def _remove_file(file: Path) -> None:
    file.unlink(missing_ok=True)


def _remove_directory(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        directory.rmdir()
