"""Every option of a campaign, one row each.

A row (`vdisklab.plan.option_rows`) is a field of `Request` with a `setting(...)`. It defines the
key in plan files and their JSON schema (`vdisklab.plan.plan_file`), the flag of `run` and of every
other verb that takes it (`vdisklab.cli.shell.options`), the help, default and limits, and its
spelling in commands that vdisklab prints. Code that needs the value reads the field, or
`CampaignPlan.settings` while measuring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from vdisklab.path.architecture import ARCHITECTURES, GUEST, HOST
from vdisklab.path.cell import PageCacheChoice
from vdisklab.path.durability import HostDisk
from vdisklab.path.named_target import NamedTarget, parse_secret, parse_target
from vdisklab.path.platforms import PLATFORMS, Platform, parse_platform
from vdisklab.plan import guest
from vdisklab.plan import value_kinds as kinds
from vdisklab.plan.accelerator import AcceleratorChoice
from vdisklab.plan.age import Age, parse_age
from vdisklab.plan.cache_memory import CacheMemory, parse_cache_memory
from vdisklab.plan.option_rows import (
    NAMES,
    OptionRows,
    Panel,
    database_setting,
    given,
    host_disk_setting,
    setting,
)
from vdisklab.units import GIB, MIB

DURING_PROFILE = "during"
"""The profile beside an operation."""

LIFE_PROFILE = "life"
"""The profile of disks that are made from a template."""

DEFAULT_PROFILE = "short"

NO_BASELINE = "none"
"""The value of `baseline` for a campaign without one; no disk path has this spelling."""


_DAY = 86_400
LARGEST_DISK = 1 << 50
"""In bytes: what `--size` takes. XFS and QEMU's images hold more, and no disk of a guest does."""


what_setting = partial(setting, panel=Panel.WHAT)
length_setting = partial(setting, panel=Panel.LENGTH)
where_setting = partial(setting, panel=Panel.WHERE)
guest_setting = partial(setting, panel=Panel.GUEST, table="guest")
output_setting = partial(setting, panel=Panel.OUTPUT)


# Imported late: every verb loads the rows, and few name an operation or a way to make disks.
def _names_of_operations() -> list[str]:
    from vdisklab.operations.registry import OPERATIONS  # noqa: PLC0415

    return [row.name for row in OPERATIONS]


def _spelled_operation(text: str) -> str:
    from vdisklab.operations.registry import spelled_order  # noqa: PLC0415

    return spelled_order(text)


def _names_of_ways() -> list[str]:
    from vdisklab.operations.ways.registry import WAYS  # noqa: PLC0415

    return [row.name for row in WAYS]


def _spelled_way(text: str) -> str:
    from vdisklab.operations.ways.registry import spelled_way  # noqa: PLC0415

    return spelled_way(text)


@dataclass(frozen=True, slots=True)
class Request(OptionRows):
    """A campaign as requested; None or an empty tuple for an option that the user did not set."""

    OF_CAMPAIGN = True

    paths: tuple[str, ...] = what_setting(
        kinds.PATHS,
        "Disk paths, such as ext4/qcow2/none; braces make a matrix: "
        "{ext4,xfs}/{raw,qcow2}/{none,writeback}.",
        flag="",
        metavar="PATHS...",
    )
    platform: tuple[Platform, ...] = what_setting(
        kinds.several(parse_platform, str),
        "Also measure the disk that this platform gives a new guest today, and do --during with "
        f"the platform's own settings: {PLATFORMS}; can be repeated.",
        metavar="NAME",
        shown="none",
    )
    profile: str | None = what_setting(
        kinds.NAME_OR_FILE,
        "The profile that each cell runs: one that `vdisklab profiles` lists, or a file: your "
        "own profile (.toml), any job file of fio (.fio), or a recorded load (.load). With "
        "--during it is the profile during, unless you name one.",
        metavar="NAME",
        default=DEFAULT_PROFILE,
    )
    load: int | None = what_setting(
        kinds.RATE,
        "Requests per second that each guest sends, with a profile that sends at a fixed rate.",
        metavar="RATE",
        shown="the profile's; with --during a third of what the path has just carried",
        stored="load",
        identifies=True,
    )
    during: tuple[str, ...] = what_setting(
        kinds.texts(_spelled_operation),
        "Do this to the running guest's disk in the middle of its load, and measure before, "
        f"meanwhile and after: {NAMES}, with options as in backup:workers=1; commas or repeating "
        "it compare several.",
        names=_names_of_operations,
        key="during",
        metavar="OPERATION",
        shown="no operation",
    )
    to: str | None = what_setting(
        kinds.TEXT,
        "Where a backup or a mirror goes: a disk path such as ext4/qcow2, the name of a --target, "
        "or a directory such as /mnt/backup.",
        metavar="PATH",
        shown="a file beside the image",
        needs="during",
        stored="to",
        identifies=True,
    )
    during_limit: float | None = what_setting(
        kinds.SECONDS,
        "How long an operation may take, such as 10m: then it is ended, and its cell has failed. A "
        "mirror whose target is slower than the guest writes never ends by itself.",
        metavar="TIME",
        shown="2m",
        limits=kinds.Limits(0, _DAY, above=True),
        needs="during",
        stored="during_limit",
    )
    template: Path | None = what_setting(
        kinds.INPUT_FILE,
        "The image that disks are made from: raw, qcow2, vmdk, vhdx or vdi, or raw packed by xz. "
        "It is copied first, and never changed.",
        flag="--from",
        key="from",
        metavar="IMAGE",
        shown="half random data, a quarter that compresses, a quarter zeros",
        stored="template",
        identifies=True,
    )
    made: tuple[str, ...] = what_setting(
        kinds.texts(_spelled_way),
        f"How disks are made from the template: {NAMES}, with options as in convert:workers=8; "
        "commas or repeating it compare several.",
        names=_names_of_ways,
        key="made",
        metavar="WAY",
        shown="every way that a path allows",
    )
    clients: int | None = what_setting(
        kinds.WHOLE,
        "Clients of a database, where the profile has several.",
        metavar="N",
        shown="the profile's",
        limits=kinds.Limits(1, 1000),
        stored="clients",
        identifies=True,
    )
    neighbour: str | None = what_setting(
        kinds.NAME_OR_FILE,
        "With several guests, only the first is measured; the others run this profile's first "
        "measurement. It shows what neighbours do to a guest.",
        metavar="NAME",
        shown="all guests run the same",
        needs="guests",
        stored="neighbour",
        identifies=True,
    )
    page_cache: PageCacheChoice | None = what_setting(
        kinds.one_of(PageCacheChoice),
        "State of the host's page cache before each measurement, for paths that use it.",
        default=PageCacheChoice.BOTH,
        shown="the profile's, else both",
    )
    cache_memory: CacheMemory | None = what_setting(
        kinds.parsed_by(parse_cache_memory, "a size or share", "such as 25% or 64M"),
        "The host's memory for pages of a guest's disk, as a share of the disk or a size: QEMU and "
        "its page cache then run in a control group, where a small disk behaves as a large one "
        "does on this host.",
        metavar="SHARE",
        shown="all of the host's",
        stored="cache_memory",
        identifies=True,
    )
    baseline: str | None = what_setting(
        kinds.PATH,
        "The disk path that scores relate to; with `none` no path is added, and scores relate to "
        "the first one.",
        metavar="PATH",
        shown="the first path on the host, else `host`",
    )
    keep_equal: bool = what_setting(
        kinds.SWITCH,
        "Measure raw/default beside raw/writeback, too: they are one configuration, because "
        "writeback is QEMU's default cache mode.",
    )
    rounds: int | None = length_setting(
        kinds.WHOLE,
        "How often each cell is measured: once in each round.",
        default=5,
        shown="until one is shown to be good enough; 5 with nothing to rank; 3 with --during",
        limits=kinds.Limits(1, 10_000),
        formerly="blocks",
    )
    runtime: float | None = length_setting(
        kinds.SECONDS,
        "How long each measurement runs.",
        metavar="SECONDS",
        default=5.0,
        shown="the profile's, else 5",
        limits=kinds.Limits(0, _DAY, above=True),
        stored="runtime",
    )
    ramp: float | None = length_setting(
        kinds.SECONDS,
        "How long each measurement warms up before it counts.",
        metavar="SECONDS",
        default=0.5,
        shown="the profile's, else 0.5",
        limits=kinds.Limits(0, _DAY),
        stored="ramp",
    )
    scale: float | None = length_setting(
        kinds.SHARE,
        "For measurements without a time limit: the share of their work to do, such as 0.1; for "
        "databases: the share of their data.",
        metavar="SHARE",
        default=1.0,
        limits=kinds.Limits(0, 1000, above=True),
        stored="scale",
        identifies=True,
    )
    age: Age | None = what_setting(
        kinds.parsed_by(parse_age, "an age", "such as fill=80%,rewrites=3,snapshots=2"),
        "Wear images and file systems before measuring: fill=80% of the path's own file system, "
        "rewrites=N passes of random writes over 10 % of the disk each, snapshots=N taken and "
        "removed around them.",
        metavar="AGE",
        shown="none",
        identifies=True,
    )
    seed: int | None = length_setting(
        kinds.WHOLE,
        "Seed for the random order of cells.",
        shown="from the plan",
        limits=kinds.Limits(0, (1 << 63) - 1),
    )
    size_bytes: int | None = where_setting(
        kinds.SIZE,
        "Size of the guest's disk.",
        key="size",
        flag="--size",
        metavar="SIZE",
        default=1 * GIB,
        shown="the profile's, else 1G",
        limits=kinds.Limits(16 * MIB, LARGEST_DISK, multiple_of=MIB),
        stored="size_bytes",
    )
    directory: Path | None = where_setting(
        kinds.FILE,
        "The work directory, on the file system to be measured.",
        key="dir",
        flag="--dir",
        metavar="DIR",
        shown="the current directory",
        stored="directory",
    )
    devices: tuple[Path, ...] = where_setting(
        kinds.FILES,
        "Build on this whole block device instead of the work directory; can be repeated for lvm, "
        "md and ZFS; other layers use the first. The device must be idle and empty, and is left "
        "empty.",
        flag="--on",
        metavar="DEVICE",
        stored="devices",
    )
    destroy: tuple[Path, ...] = where_setting(
        kinds.FILES,
        "Allow vdisklab to destroy the data on this device or target; --on or --target must "
        "name it, too.",
        key="",  # no plan file may say so
        metavar="DEVICE|NAME",
    )
    target: tuple[NamedTarget, ...] = where_setting(
        kinds.several(parse_target, str),
        "Storage that you have, with a name for paths: a directory on any mount, a block device, "
        "or a URL for one of QEMU's drivers: nbd://, nbd+unix://, iscsi://, nfs://, ssh://, "
        "rbd:POOL/IMAGE. --target san=iscsi://10.0.0.5/iqn.x:disk/1 makes san/raw/none a path; "
        "can be repeated.",
        metavar="NAME=PLACE",
        stored="target",
    )
    secret: tuple[tuple[str, Path], ...] = where_setting(
        kinds.several(parse_secret, str, spell="{0[0]}={0[1]}".format),
        "A file with the password or key of a target; can be repeated. The environment variable "
        "VDISKLAB_SECRET_NAME does the same.",
        key="",  # no plan file says where secrets are
        metavar="NAME=FILE",
        needs="target",
    )
    disks: int | None = where_setting(
        kinds.WHOLE,
        "How many disks lvm, md and ZFS get.",
        metavar="N",
        shown="as few as they need, or all of --on",
        limits=kinds.Limits(1, 26),
        stored="disks",
    )
    disk: HostDisk | None = host_disk_setting()
    arc_bytes: int | None = where_setting(
        kinds.SIZE,
        "Limit ZFS's cache while measuring.",
        key="arc",
        flag="--arc",
        metavar="SIZE",
        shown="as it is",
        # arc_init of OpenZFS ignores a zfs_arc_max below 64 MiB.
        limits=kinds.Limits(64 * MIB),
        stored="arc_bytes",
    )
    accelerator: AcceleratorChoice | None = guest_setting(
        kinds.one_of(AcceleratorChoice),
        "What runs the guest; auto is KVM if it really runs one, else emulation (tcg).",
        default=AcceleratorChoice.AUTO,
        stored="guest.accelerator",
    )
    guest_arch: str | None = guest_setting(
        kinds.ARCHITECTURE,
        "The guests' architecture: "
        + " or ".join(row.name for row in ARCHITECTURES)
        + ". QEMU emulates guests of another one than this host's.",
        key="architecture",
        metavar="NAME",
        default=(HOST or GUEST).name,
        shown="this host's",
        stored="guest_arch",
        identifies=True,
    )
    guest_cpus: int | None = guest_setting(
        kinds.WHOLE,
        "Number of virtual CPUs.",
        key="cpus",
        default=guest.USUAL_GUEST.cpus,
        limits=kinds.Limits(1, 255),
        stored="guest.cpus",
    )
    guest_memory: int | None = guest_setting(
        kinds.SIZE,
        "The guest's memory.",
        key="memory",
        metavar="SIZE",
        default=guest.USUAL_GUEST.memory_bytes,
        shown="the profile's, else 1G",
        limits=kinds.Limits(128 * MIB),  # a guest with less memory does not boot
        stored="guest.memory_bytes",
    )
    guest_kernel: str | None = guest_setting(
        kinds.TEXT,
        "Kernel image to boot instead of the host's.",
        key="kernel",
        flag="",
        stored="guest.kernel",
    )
    qemu: tuple[guest.RequestedQemu, ...] = setting(
        kinds.several(guest.parse_qemu, str),
        "Measure each path with this QEMU; repeat it to compare old and new.",
        Panel.GUEST,
        metavar="[NAME=]BIN",
        shown="the installed one",
    )
    guest_scheduler: tuple[str, ...] = guest_setting(
        kinds.values_of("guest_scheduler"),
        "Measure each path with this I/O scheduler in the guest: none, mq-deadline, kyber or bfq; "
        "braces or repeating it compare several.",
        key="scheduler",
        metavar="NAME",
        shown="the guest's own",
    )
    guest_fs: tuple[str, ...] = guest_setting(
        kinds.values_of("guest_fs"),
        "The guest's file system for measurements that use files: ext2, ext3, ext4, xfs or btrfs; "
        "braces or repeating it compare several.",
        key="filesystem",
        flag="--guest-fs",
        metavar="NAME",
        shown="the measurement's own",
    )
    guest_mount: tuple[str, ...] = guest_setting(
        kinds.values_of("guest_mount"),
        "The guest's mount options for that file system, joined by +, such as noatime+commit=60; "
        "braces or repeating it compare several.",
        key="mount",
        metavar="OPTIONS",
        shown="the guest's own",
    )
    guests: tuple[str, ...] = guest_setting(
        kinds.values_of("guests"),
        "Measure each path in this many guests at once, each with its own disk; braces, commas or "
        "repeating it compare several. Fio's measurements can do that, and the life of a disk.",
        key="guests",
        metavar="N",
        shown="one alone",
    )
    guest_image: Path | None = guest_setting(
        kinds.INPUT_FILE,
        "Measure in a guest of your own: a disk image with the QEMU guest agent in it. It is never "
        "written to.",
        key="image",
        flag="--guest",
        metavar="IMAGE",
        shown="a micro guest made from this host's programs",
        stored="guest.image",
    )
    guest_firmware: guest.Firmware | None = guest_setting(
        kinds.one_of(guest.Firmware),
        "What boots your own guest.",
        key="firmware",
        shown="bios",
        needs="guest_image",
        stored="guest.firmware",
    )
    guest_bus: guest.SystemBus | None = guest_setting(
        kinds.one_of(guest.SystemBus),
        "How your own guest sees the disk it boots from.",
        key="system_bus",
        shown="virtio",
        needs="guest_image",
        stored="guest.system_bus",
    )
    guest_boot: float | None = guest_setting(
        kinds.SECONDS,
        "How long your own guest may take until its agent answers.",
        key="boot",
        metavar="TIME",
        shown="5m, 15m under emulation",
        limits=kinds.Limits(0, _DAY, above=True),
        needs="guest_image",
        stored="guest_boot",
    )
    diskspd: Path | None = guest_setting(
        kinds.INPUT_FILE,
        f"Microsoft's DISKSPD ({GUEST.diskspd}), which measures in a Windows guest.",
        metavar="FILE",
        needs="guest_image",
        stored="diskspd",
    )
    label: str | None = output_setting(kinds.LABEL, "A label for the campaign.", default="")
    db: str | None = database_setting()

    @property
    def searches_guests(self) -> bool:
        """True if it measures only as many guests as a search of each path's capacity needs."""
        return False

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of all paths to measure: the user's, and those of the platforms."""
        return (*self.paths, *(platform.value for platform in self.platform))

    @property
    def has_operations(self) -> bool:
        """True if --during orders an operation, or a path names one, as `plan` prints paths."""
        return bool(self.during) or any(":during=" in pattern for pattern in self.patterns)

    @property
    def profile_name(self) -> str:
        """The name of the profile, or its file: the user's, else what fits the other options."""
        if self.profile:
            return self.profile
        if self.made or self.template is not None:
            return LIFE_PROFILE
        return DURING_PROFILE if self.has_operations else DEFAULT_PROFILE


def like(name: str) -> Any:  # noqa: ANN401
    """A field that reuses the row of the field of that name in `Request`."""
    (same,) = (declared for declared in fields(Request) if declared.name == name)
    return field(default=same.default, metadata=same.metadata)


_MANY_PATHS = 8
"""A command with more paths is too long to be read."""


def command_words(request: Request) -> list[str]:
    """The arguments that give `vdisklab run` the same request: many paths with braces, which are
    the same paths in the same order."""
    # Imported late: most commands print none.
    from vdisklab.path.braces import shortened  # noqa: PLC0415

    many = len(request.paths) > _MANY_PATHS
    arguments = ["vdisklab", "run", *(shortened(request.paths) if many else request.paths)]
    for row, value in given(request):
        if row.flag:
            values = value if row.kind.many else (value,)
            arguments += (
                [row.flag]
                if row.kind is kinds.SWITCH
                else [word for item in values for word in (row.flag, row.kind.spell(item))]
            )
    return arguments


def identity(request: Request) -> Mapping[str, Any]:
    """The settings that identify a campaign but have no field in `CampaignPlan`, as JSON values.

    Defaults are left out, so that a new setting leaves the fingerprints of old plans as they are.
    """
    return {
        row.name: value if isinstance(value, int | float) else row.kind.spell(value)
        for row, value in given(request)
        if row.identifies and value != row.default
    }
