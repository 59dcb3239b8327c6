"""The clients that write to a disk: over NBD, in a guest, as a database, through the BIOS."""
