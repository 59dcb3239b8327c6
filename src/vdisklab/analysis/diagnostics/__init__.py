"""Diagnostics: reasons to distrust a number, found in the values and in recorded evidence."""
