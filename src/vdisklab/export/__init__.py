"""Writes a disk path as configuration for platforms that run guests. No I/O."""
