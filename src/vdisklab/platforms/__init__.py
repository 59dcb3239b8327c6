"""Platforms read a guest's configuration as disk paths, write a path as one, and change a disk.

One file for each platform, one row in `path.platforms`; `dialect` is their interface. No I/O.
"""
