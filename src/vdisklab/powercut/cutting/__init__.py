"""Builds the disks that a power cut could leave behind."""
