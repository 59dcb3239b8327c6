"""Guests: their image, QEMU process, disks and agent, and the pool that keeps them."""
