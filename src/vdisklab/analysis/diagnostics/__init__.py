"""Diagnostics: reasons to distrust a number, from the values and from recorded evidence."""
