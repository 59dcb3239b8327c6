"""Lets a disk recover, reads it, and compares it with what the client was promised."""
