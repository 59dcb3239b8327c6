"""Proxmox VE: lines of /etc/pve/qemu-server/VMID.conf (qm.conf(5), qemu-server 7 and later).

Proxmox fills in defaults of its own: a drive without `cache` gets cache=none, and one without
`aio` io_uring. So both are always written. Proxmox opens a volume of a storage: the host layers
are those of the storage that is named here `STORAGE`.
"""

from __future__ import annotations

from vdisklab.errors import PlanError
from vdisklab.export.form import Exported, Gap, NotExpressibleError, Wish, check
from vdisklab.export.preparation import commented
from vdisklab.path.segments import Bus, CacheMode, ImageFormat, WriteCache

_FORMATS = (ImageFormat.RAW, ImageFormat.QCOW2, ImageFormat.VMDK, ImageFormat.QED)
_SLOTS = {Bus.VIRTIO: "virtio0", Bus.SCSI: "scsi0", Bus.IDE: "ide0", Bus.SATA: "sata0"}


def export(wish: Wish) -> Exported:
    """The drive's line, with the controller's before it."""
    check(wish.path)
    path, attachment = wish.path, wish.path.attachment
    if attachment.bus not in _SLOTS:
        raise NotExpressibleError(
            "Proxmox VE", f"bus {attachment.bus}", f"it has {', '.join(_SLOTS)}; or use --to qemu"
        )
    if path.image is not None and path.image.format not in _FORMATS:
        raise NotExpressibleError(
            "Proxmox VE", f"format {path.image.format}", f"it has {', '.join(_FORMATS)}"
        )
    volume = wish.source or "STORAGE:vm-100-disk-0"
    if "," in volume or volume != volume.strip():
        raise PlanError(
            f"Proxmox VE cannot be told of {volume!r}: its options are parted by commas",
            hint="rename the file, or give --source STORAGE:VOLUME",
        )
    options = [volume, f"cache={_cache(path.cache)}", f"aio={attachment.aio}"]
    if path.image is not None:
        options.append(f"format={path.image.format}")
    options.append(f"discard={'on' if attachment.option('discard') == 'unmap' else 'ignore'}")
    if attachment.iothread:
        options.append("iothread=1")
    if attachment.bus is Bus.SCSI and attachment.queues is not None:
        options.append(f"queues={attachment.queues}")
    gaps = _gaps(wish)
    # Only this controller gives each disk a thread of its own.
    model = "virtio-scsi-single" if attachment.iothread else "virtio-scsi-pci"
    controller = f"scsihw: {model}\n" if attachment.bus is Bus.SCSI else ""
    lines = iter([f"vdisklab {path}", *_storage(wish)])
    text = f"{commented(lines, gaps)}{controller}{_SLOTS[attachment.bus]}: {','.join(options)}\n"
    return Exported(text, gaps)


def _cache(mode: CacheMode) -> str:
    # QEMU told nothing is writeback; Proxmox told nothing is none.
    return CacheMode.WRITEBACK.value if mode is CacheMode.DEFAULT else mode.value


def _storage(wish: Wish) -> tuple[str, ...]:
    stack = wish.path.stack
    return (f"STORAGE is one on {stack}",) if stack else ()


def _gaps(wish: Wish) -> tuple[Gap, ...]:
    attachment = wish.path.attachment
    gaps: list[Gap] = []
    if wish.path.cache is CacheMode.DEFAULT:
        gaps.append(Gap("cache mode default", "written as writeback, which QEMU takes it for"))
    if attachment.write_cache is not WriteCache.MODE:
        gaps.append(
            Gap(f"write_cache={attachment.write_cache}", "the drive follows its cache mode")
        )
    if attachment.bus is Bus.VIRTIO and attachment.queues is not None:
        gaps.append(Gap(f"queues={attachment.queues}", "QEMU gives one queue for each CPU"))
    return tuple(gaps)
