"""Cells in a random order, one by one: the only room that knows storage, guest and workload."""
