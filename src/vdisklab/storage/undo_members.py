"""Removes volume groups, arrays and pools, with their metadata on member devices.

Each is found by its name, which contains the run's id, and only on the devices in the ledger: a
group with the same name on other disks is not vdisklab's. All functions are idempotent.
"""

from __future__ import annotations

import contextlib
import errno
import json
import time
from collections.abc import Iterator
from pathlib import Path

from vdisklab.errors import CommandError, DirtyHostError, HostError
from vdisklab.host.blockdevice import recorded_devices, signatures
from vdisklab.host.command import Host
from vdisklab.host.facts import read_text
from vdisklab.host.ledger import Entry
from vdisklab.host.waiting import patience, wait_until

_BUSY_SECONDS = 20.0
_LOOKING_SECONDS = 5.0


def lvm_on(devices: tuple[Path, ...]) -> tuple[str, ...]:
    """An LVM command limited to these devices (lvm(8), --devices).

    It archives nothing in /etc/lvm, so that `clean` leaves no trace.
    """
    quiet = "backup/backup=0 backup/archive=0"
    return ("--devices", ",".join(map(str, devices)), "--config", quiet)


def lvm_report(host: Host, program: str, devices: tuple[Path, ...], fields: str) -> list[
    dict[str, str]
]:  # fmt: skip
    """The report of vgs, lvs or pvs on these devices: one mapping per line."""
    text = host.run(
        program, *lvm_on(devices), "--all" if program == "pvs" else "--quiet",
        "--reportformat", "json", "--units", "b", "--nosuffix", "-o", fields,
    ).stdout  # fmt: skip
    (report,) = json.loads(text)["report"]
    (rows,) = (rows for name, rows in report.items() if name in ("vg", "lv", "pv"))
    return [{key: str(value) for key, value in row.items()} for row in rows]


def remove_volume(host: Host, entry: Entry) -> None:
    """Removes a logical volume, named GROUP/VOLUME."""
    devices = recorded_devices(entry.detail["devices"])
    if not devices:
        return
    volumes = lvm_report(host, "lvs", devices, "vg_name,lv_name")
    if entry.name in (f"{row['vg_name']}/{row['lv_name']}" for row in volumes):
        _retry(host, ("lvremove", *lvm_on(devices), "--quiet", "--force", "--yes", entry.name))


def remove_group(host: Host, entry: Entry) -> None:
    """Removes a volume group with its volumes, and the labels of its physical volumes."""
    devices = recorded_devices(entry.detail["devices"])
    if not devices:
        return
    groups = {row["vg_name"] for row in lvm_report(host, "vgs", devices, "vg_name")}
    if entry.name in groups:
        quiet = ("--quiet", "--yes")
        host.run("vgchange", *lvm_on(devices), *quiet, "--activate", "n", entry.name)
        _retry(host, ("vgremove", *lvm_on(devices), *quiet, "--force", entry.name))
    # a group that was never finished leaves physical volumes without one
    for row in lvm_report(host, "pvs", devices, "pv_name,vg_name,pv_fmt"):
        if row["pv_fmt"] and not row["vg_name"]:
            host.run("pvremove", *lvm_on(devices), "--quiet", "--yes", row["pv_name"])


def _retry(host: Host, command: tuple[str, ...]) -> None:
    """Repeats a command until it succeeds, because udev may briefly hold a device open."""
    last: list[CommandError] = []

    def done() -> bool:
        try:
            host.run(*command, timeout=120)
        except CommandError as error:
            last[:] = [error]
            return False
        return True

    try:
        wait_until(done, timeout=_BUSY_SECONDS, what=f"end of `{command[0]}`", interval=0.1)
    except HostError as error:
        raise (last[0] if last else error) from None


def arrays(host: Host) -> Iterator[tuple[Path, str]]:
    """Running md arrays and their names, without mdadm's prefix with the host's name."""
    for place in sorted(Path("/sys/block").glob("md*/md")):
        device = Path("/dev") / place.parent.name
        text = host.run("mdadm", "--detail", "--export", device, allowed=(0, 1)).stdout
        yield device, array_name(text)


def array_name(export: str) -> str:
    """The array's name in the output of `mdadm --export`; empty if there is none."""
    facts = dict(line.split("=", 1) for line in export.splitlines() if "=" in line)
    return facts.get("MD_NAME", "").rpartition(":")[2]


def stop_array(host: Host, entry: Entry) -> None:
    """Stops an md array and removes its superblocks from its members."""
    for device, name in arrays(host):
        if name == entry.name:
            _retry(host, ("mdadm", "--quiet", "--stop", str(device)))
    for member in recorded_devices(entry.detail["devices"]):
        text = host.run("mdadm", "--examine", "--export", member, allowed=(0, 1)).stdout
        if array_name(text) == entry.name:
            _retry(host, ("mdadm", "--quiet", "--zero-superblock", str(member)))


def destroy_pool(host: Host, entry: Entry) -> None:
    """Destroys a pool with its contents, and removes ZFS's labels from its members."""
    members = recorded_devices(entry.detail["devices"])
    if entry.name in pools(host) and _stands_on(host, entry.name, members):
        _retry(host, ("zpool", "destroy", "-f", entry.name))
    for member in members:
        _remove_labels(host, member, entry.name)


def pools(host: Host) -> list[str]:
    """The imported pools; none if ZFS does not run."""
    if host.which("zpool") is None:
        return []
    listed = host.run("zpool", "list", "-H", "-o", "name", allowed=(0, 1)).stdout
    return listed.split("\n")


def _stands_on(host: Host, pool: str, members: tuple[Path, ...]) -> bool:
    """True if one of these devices, or a partition of one, is a member of a pool."""
    status = host.run("zpool", "status", pool).stdout.split()
    names = {node.name for member in members for node in _with_partitions(member)}
    return any(Path(word).name in names for word in status)


def _remove_labels(host: Host, member: Path, pool: str) -> None:
    """Removes ZFS's labels, and the partition table that ZFS writes on whole disks.

    One command removes both: after a kill between two commands, the table would remain without the
    label that identifies its owner.
    """
    nodes = _with_partitions(member)
    for node in nodes:
        labels = signatures(host, node)
        if any(label.kind == "zfs_member" and label.label == pool for label in labels):
            _retry(host, ("wipefs", "--all", "--quiet", *map(str, nodes)))
            return


def _with_partitions(member: Path) -> list[Path]:
    """The partitions of a device, and the device last."""
    name = member.resolve().name
    parts = sorted(Path(f"/sys/class/block/{name}").glob("*/partition"))
    return [*(Path("/dev") / part.parent.name for part in parts), member]


def restore_arc(_host: Host, entry: Entry) -> None:
    """Writes back ZFS's limits; `detail` has the parameter's text and the limit in effect.

    A parameter of 0 means the default, and writing 0 changes nothing by itself, so the limit
    that was in effect is written first (arc_tuning_update of OpenZFS).
    """
    parameter = Path(entry.name)
    if not parameter.exists():
        return
    try:
        for value in (entry.detail["effective"], entry.detail["parameter"]):
            parameter.write_text(value)
    except OSError as error:
        raise DirtyHostError(f"{parameter} cannot be restored: {error.strerror}") from error
    if read_text(parameter) != entry.detail["parameter"]:
        raise DirtyHostError(f"{parameter} is {read_text(parameter)} after it was restored")


ZRAM_CONTROL = Path("/sys/class/zram-control")
ZRAM_BLOCK = Path("/sys/block")


def zram_devices() -> Iterator[str]:
    """The names of all zram devices."""
    return (path.name for path in ZRAM_BLOCK.glob("zram*"))


def remove_zram(_host: Host, entry: Entry) -> None:
    """Removes the device of that size, and one that was added since and has no size yet."""
    earlier = entry.detail.get("earlier", "").split()
    for device in sorted(zram_devices()):
        directory = ZRAM_BLOCK / device
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            size = (directory / "disksize").read_text().strip()
            unused = size == "0" and device not in earlier
            if size != entry.name and not unused:
                continue
            try:
                # udev opens a device whose writer has closed it, to look for a file system.
                _write_when_free(directory / "reset", "1")
                _write_when_free(ZRAM_CONTROL / "hot_remove", device.removeprefix("zram"))
            except OSError as error:
                raise DirtyHostError(
                    f"/dev/{device} cannot be removed: {error.strerror}",
                    hint="something uses it: see `lsof` and `findmnt`, then run `vdisklab clean`",
                ) from error


def _write_when_free(attribute: Path, value: str) -> None:
    """Writes to sysfs. Raises OSError if the device stays busy for a while."""
    deadline = time.monotonic() + _LOOKING_SECONDS * patience()
    while True:
        try:
            attribute.write_text(value)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
