"""QEMU: its command line, block nodes, process and monitor, and what is read back from it."""
