"""vdisklab measures every way of giving a KVM guest a disk."""

__version__ = "0.1.0"
