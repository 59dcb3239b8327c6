"""OpenStack: its disks are configured for all guests of a compute host."""

from __future__ import annotations

from vdisklab.path.disk_path import DiskPath
from vdisklab.platforms.configured_disk import ConfiguredDisk
from vdisklab.platforms.dialect import Change, Dialect, lacks
from vdisklab.platforms.libvirt import CACHE_MODES


def _change(disk: ConfiguredDisk, _now: DiskPath, _wanted: DiskPath) -> Change:
    what = "setting of one disk: see [libvirt]disk_cachemodes in nova.conf"
    raise lacks(disk.platform, what)


DIALECT = Dialect(cache_modes=CACHE_MODES, change=_change, reader=lambda _texts: lambda _text: ())
