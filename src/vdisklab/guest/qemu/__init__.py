"""QEMU: command line, block nodes, process, monitor, and the state that is read back from it."""
