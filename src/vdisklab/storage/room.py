"""Checks that the host has enough disk space and memory."""

from __future__ import annotations

from pathlib import Path

from vdisklab.errors import HostError
from vdisklab.host.mounts import free_bytes
from vdisklab.units import MIB, format_bytes


def require_room(directory: Path, needed: int, what: str) -> None:
    """Raises HostError when less than `needed` bytes are free in a directory."""
    free = free_bytes(directory)
    if needed > free:
        raise HostError(
            f"{what} needs {format_bytes(needed)}, and {directory} has {format_bytes(free)} free",
            hint="choose a smaller --size, fewer paths, or another --dir",
        )


def require_memory(needed: int, available: int, what: str) -> None:
    """Raises HostError if `needed` bytes are more than `available`; 0 means unknown."""
    if 0 < available < needed:
        raise HostError(
            f"{what} needs {format_bytes(needed)} of memory for tmpfs, but "
            f"{format_bytes(available)} is available",
            hint="choose a smaller --size, or fewer paths on tmpfs",
        )


def require_guest_memory(needed: int, total: int) -> None:
    """Raises HostError if a guest's memory is more than the host has; `total` 0 is unknown."""
    if 0 < total < needed:
        raise HostError(
            f"a guest with {format_bytes(needed)} of memory does not fit into this host's "
            f"{format_bytes(total)}",
            hint="choose a smaller --guest-memory",
        )


# QEMU's own memory beside its guest's: block layer, device models, translated code.
_QEMU_BYTES = 96 * MIB


def guests_that_fit(memory: int, available: int) -> int:
    """The number of guests with `memory` bytes that fit into the `available` ones."""
    return available // memory_of_guests(memory, 1)


def memory_of_guests(memory: int, guests: int) -> int:
    """The host memory in bytes that `guests` guests of `memory` bytes need, with their QEMUs."""
    return guests * (memory + _QEMU_BYTES)


def require_memory_for_all(memory: int, guests: int, available: int) -> None:
    """Raises HostError if several guests do not fit into `available` bytes; 0 means unknown."""
    fitting = guests_that_fit(memory, available)
    if guests > 1 and available > 0 and fitting < guests:
        raise HostError(
            f"{guests} guests with {format_bytes(memory)} of memory need "
            f"{format_bytes(memory_of_guests(memory, guests))} with their QEMUs, but "
            f"{format_bytes(available)} is available",
            hint=f"measure at most {fitting} guests, or choose a smaller --guest-memory"
            if fitting
            else "choose a smaller --guest-memory",
        )
