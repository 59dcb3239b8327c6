"""Builds the host side of a disk path, layer by layer, and removes it again."""
