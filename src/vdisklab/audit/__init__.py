"""Existing guests' configurations as disk paths, and their risks. No I/O."""
