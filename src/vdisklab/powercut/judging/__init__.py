"""Runs a disk's recovery, reads its content, and compares it with the promises to the client."""
