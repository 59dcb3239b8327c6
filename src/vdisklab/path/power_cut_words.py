"""The words of power cuts that verdicts store: ways to the disk, clients, drivers, outcomes."""

from __future__ import annotations

from enum import StrEnum

from vdisklab.errors import PlanError
from vdisklab.path.segments import Bus

_COMMIT = "a transaction is durable once COMMIT has returned; on the guest's ext4 with"


class AccessKind(StrEnum):
    """The way from the client to the disk."""

    NBD = "nbd"
    BOOT_SECTOR = "boot-sector"
    GUEST = "guest"


class ClientKind(StrEnum):
    """The point from which a client expects a write to be durable."""

    FLUSHES = "flushes"
    FUA = "fua"
    NEVER = "never"
    SQLITE_WAL = "sqlite-wal"
    SQLITE_DELETE = "sqlite-delete"
    SQLITE_EXTRA = "sqlite-extra"
    POSTGRESQL = "postgresql"
    FILES = "files"

    @property
    def is_database(self) -> bool:
        """True for clients on a file system, whose writes are transactions instead of sectors."""
        return self not in (ClientKind.FLUSHES, ClientKind.FUA, ClientKind.NEVER)

    @property
    def uses_directories(self) -> bool:
        """True if it also works in a host directory that the guest mounts."""
        return self.is_database and self not in (ClientKind.POSTGRESQL, ClientKind.FILES)

    @property
    def phrase(self) -> str:
        """The client in a few words, for people."""
        return {
            ClientKind.FLUSHES: "flushes",
            ClientKind.FUA: "forced writes",
            ClientKind.NEVER: "never flushes",
            ClientKind.SQLITE_WAL: "SQLite, WAL",
            ClientKind.SQLITE_DELETE: "SQLite, journal, FULL",
            ClientKind.SQLITE_EXTRA: "SQLite, journal, EXTRA",
            ClientKind.POSTGRESQL: "PostgreSQL",
            ClientKind.FILES: "file operations",
        }[self]

    @property
    def expects(self) -> str:
        """A sentence that says from when on the client takes a write for durable."""
        return {
            ClientKind.FLUSHES: "a write is durable once a later flush was acknowledged",
            ClientKind.FUA: "a write with FUA is durable once it was acknowledged",
            ClientKind.NEVER: "a write is durable once acknowledged; nothing is ever flushed",
            ClientKind.SQLITE_WAL: f"{_COMMIT} WAL, synchronous=FULL",
            ClientKind.SQLITE_DELETE: f"{_COMMIT} a rollback journal, synchronous=FULL",
            ClientKind.SQLITE_EXTRA: f"{_COMMIT} a rollback journal, synchronous=EXTRA",
            ClientKind.POSTGRESQL: f"{_COMMIT} synchronous_commit=on",
            ClientKind.FILES: "on the guest's ext4 a file's content is durable once its fsync has "
            "returned, and its names once the directory's has",
        }[self]


class DriverSetting(StrEnum):
    """How a guest changes its disk's write cache.

    `queue` affects the guest's block layer only: it stops sending flushes, without a command to the
    device (Documentation/block/writeback_cache_control.rst). `cache-type` and `hdparm` send one.
    """

    AS_FOUND = "as-found"
    QUEUE = "queue"
    CACHE_TYPE = "cache-type"
    HDPARM = "hdparm"

    @property
    def buses(self) -> frozenset[Bus]:
        """The buses whose driver has the setting."""
        match self:
            case DriverSetting.HDPARM:
                return frozenset({Bus.IDE, Bus.SATA})
            case DriverSetting.CACHE_TYPE:
                return frozenset(Bus) - {Bus.NVME}
            case _:
                return frozenset(Bus)

    @property
    def command(self) -> str:
        """The equivalent shell command."""
        return {
            DriverSetting.AS_FOUND: "nothing",
            DriverSetting.QUEUE: "echo write through > /sys/block/DISK/queue/write_cache",
            DriverSetting.CACHE_TYPE: "echo write through > …/cache_type",
            DriverSetting.HDPARM: "hdparm -W0 DISK",
        }[self]

    def refusal(self, bus: Bus) -> PlanError | None:
        """Why a bus does not have the setting; None when it does."""
        if bus in self.buses:
            return None
        return PlanError(
            f"a guest's {bus} disk has no setting `{self}`", hint="choose another --driver"
        )


class StateOutcome(StrEnum):
    """The outcome of one state, best first; databases store these words, so they stay."""

    KEPT = "kept"
    LOST = "lost"
    TORN = "torn"
    GARBAGE = "garbage"
    DAMAGED = "image damaged"
    DATABASE = "database corrupt"
    CORRUPT_LATER = "corrupt in the afterlife"
    UNREADABLE = "image unreadable"
    UNMOUNTABLE = "file system unmountable"

    @property
    def is_loss(self) -> bool:
        """True when an acknowledged write was lost."""
        return self is not StateOutcome.KEPT


class RunOutcome(StrEnum):
    """What became of a guest whose storage failed, best first; databases store these words."""

    GOES_ON = "goes on"
    PAUSED = "paused and complete"
    READ_ONLY = "file system read-only"
    RESTART = "needs a restart"
    REPAIR = "needs repair"
    HANGS = "hangs for good"
    DATABASE = "database refuses"
    LOST = "lost what it had acknowledged"

    @property
    def is_loss(self) -> bool:
        """True if the guest's program lost what it had been told is durable."""
        return self in (RunOutcome.LOST, RunOutcome.DATABASE)

    @property
    def is_harmless(self) -> bool:
        """True if the guest is what it was as soon as its storage is good again."""
        return self in (RunOutcome.GOES_ON, RunOutcome.PAUSED)
