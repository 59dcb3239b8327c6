"""vdisklab measures every way of giving a KVM guest a local disk."""

__version__ = "0.1.0"
