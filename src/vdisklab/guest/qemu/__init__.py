"""QEMU: its arguments, block nodes, process, monitor, and what it reports back."""
