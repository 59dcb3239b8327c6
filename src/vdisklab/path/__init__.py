"""Disk paths: what they mean, which cannot exist, what they promise. Pure; all packages use it."""
