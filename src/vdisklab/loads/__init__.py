"""Loads: what a guest asked of its disk, as it was recorded; pure."""
