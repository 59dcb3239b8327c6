"""Traces of block devices that other programs and researchers write; pure."""
