"""The clients that write: over NBD, in a guest, as a database, through the BIOS."""
