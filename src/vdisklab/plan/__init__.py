"""Requests and plans as values. No I/O: reads no file and runs no program."""
