"""Builds what the host side of a disk path names, layer by layer, and takes it down again."""
