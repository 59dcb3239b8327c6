"""A recording of a running guest's disk, as the tests make it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vdisklab.host.command import LocalHost
from vdisklab.host.ledger import open_ledger
from vdisklab.inspection.existing_guests import process_monitor
from vdisklab.loads.load import RecordedLoad
from vdisklab.recording.guests import RunningGuest
from vdisklab.recording.recorder import LOG_LIMIT, NotTraced, Wait, find_disk, record_disk


@dataclass(frozen=True)
class Recorded:
    """A guest whose disks are recorded."""

    guest: RunningGuest

    def record(
        self,
        name: str,
        seconds: float,
        limit: int = LOG_LIMIT,
        ended_early: Callable[[], bool] = lambda: False,
    ) -> RecordedLoad:
        made = self.try_to_record(name, Wait(seconds, limit, ended_early))
        assert isinstance(made, RecordedLoad)
        return made

    def try_to_record(self, name: str, wait: Wait) -> RecordedLoad | NotTraced:
        found, events, qemu = find_disk(LocalHost(), self.guest, name)
        assert not isinstance(events, NotTraced)
        with open_ledger() as ledger:
            made = record_disk(
                LocalHost(), ledger, self.guest, found, events=events, qemu=qemu, wait=wait
            )
        assert isinstance(made, RecordedLoad | NotTraced)
        return made

    def events_on(self) -> list[str]:
        with process_monitor(Path(self.guest.socket), self.guest.user) as monitor:
            states = monitor.execute("trace-event-get-state", {"name": "*"})
        return [each["name"] for each in states if each["state"] == "enabled"]
