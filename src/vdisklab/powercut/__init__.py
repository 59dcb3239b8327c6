"""Cuts the power of a logged host disk, lets everything recover, and checks what was promised."""
