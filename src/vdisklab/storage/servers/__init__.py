"""The members of QEMU's node for each kind of server: a file of the kind's name, found by it."""
