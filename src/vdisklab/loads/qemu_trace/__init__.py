"""QEMU's trace events as it logs them, and the requests that they tell of; pure."""
