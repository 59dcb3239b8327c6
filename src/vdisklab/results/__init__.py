"""Runs as they were seen, and where they are kept."""
